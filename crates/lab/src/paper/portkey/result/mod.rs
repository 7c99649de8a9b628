//! The figures: what came out, beside what was published, and whether that is the same.
//!
//! A statement comes out *in value* if its number is within a fifth of the published one, or the
//! range here lies in the published one or overlaps half of it; *in shape* if the order or the
//! trend that it states is here too.

pub mod bars;

use super::experiment::play::INTERVAL_S;
use super::experiment::point::{Point, Scene, Strategy};
use super::experiment::scaling::Timed;
use super::experiment::workload::Workload;
use super::experiment::{
    DENSITIES, DEPLOYMENTS, LATENCIES, MBPS, Results, mean, p95, relative, seeds, spread,
};
use super::{Measured, Size};

/// What the paper states, and what is here.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What is compared.
    pub what: String,
    /// The paper's.
    pub published: String,
    /// The same strategies here.
    pub here: String,
    /// Ours in the place of Portkey's; empty: it is not about a strategy.
    pub ours: String,
    /// Whether it came out in value.
    pub in_value: bool,
    /// Whether it came out in shape.
    pub in_shape: bool,
    /// Why not, where that is known.
    pub why: &'static str,
}

impl Finding {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let came_out = match (self.in_value, self.in_shape) {
            (true, true) => "It came out in value and in shape.",
            (false, true) => "It came out in shape, not in value.",
            (true, false) => "It came out in value, not in shape.",
            (false, false) => "It did not come out.",
        };
        [came_out, self.why].join(" ").trim().to_owned()
    }
}

/// A figure.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Its number in the paper.
    pub number: u8,
    /// What it shows.
    pub title: &'static str,
    /// How to read it.
    pub about: &'static str,
    /// What its table's columns are.
    pub heads: Vec<String>,
    /// Its table: a name and values.
    pub rows: Vec<(String, Vec<String>)>,
    /// The same as lines: a name, and a value for each row.
    pub lines: Vec<(String, Vec<f64>)>,
    /// What is compared.
    pub findings: Vec<Finding>,
}

/// What is needed beside the runs.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Figure 12's; empty: not measured.
    pub timed: Vec<Timed>,
    /// Whether the program is a release.
    pub is_release: bool,
}

/// A figure of the paper.
#[must_use]
pub fn shown(figure: u8, results: &Results, size: Size, beside: &Beside) -> Shown {
    let runs = Runs { results, size };
    let shown = match figure {
        4 => runs.figure_4(),
        8 => runs.figure_8(),
        9 => runs.figure_9(),
        10 => runs.figure_10(),
        11 => runs.figure_11(),
        12 => figure_12(beside),
        13 => runs.figure_13(),
        _ => runs.figure_14(),
    };
    Shown { number: figure, ..shown }
}

type Of = fn(&Measured) -> f64;

const FEW: [Strategy; 2] = [Strategy::Portkey, Strategy::Ours];

struct Runs<'a> {
    results: &'a Results,
    size: Size,
}

fn near(value: f64, published: f64) -> bool {
    (value / published - 1.0).abs() <= 0.2
}

/// Whether a range lies in a published one, or overlaps it by half of the latter.
fn overlaps((low, high): (f64, f64), (published_low, published_high): (f64, f64)) -> bool {
    let is_inside = low >= published_low && high <= published_high;
    is_inside
        || high.min(published_high) - low.max(published_low)
            >= 0.5 * (published_high - published_low)
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(0.0, f64::max))
}

fn percent(spread: Option<(f64, f64, f64)>) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |(median, low, high)| {
            // With a decimal each, the ranges of seven strategies would be wider than the page.
            let range = format!(" ({:.0}–{:.0})", 100.0 * low, 100.0 * high);
            format!("{:.1}{}", 100.0 * median, if low < high { &range } else { "" })
        },
    )
}

fn times(value: f64) -> String {
    format!("{value:.1}×")
}

fn two(of: impl Fn(f64) -> String, (low, high): (f64, f64)) -> String {
    format!("{} to {}", of(low), of(high))
}

impl Runs<'_> {
    fn point(&self, scene: Scene, workload: Workload, strategy: Strategy) -> Point {
        Point::new(scene, workload, strategy, 1, self.size)
    }

    /// The median over seeds of a strategy's value as a share of hash placement's.
    fn share(&self, point: Point, of: Of) -> f64 {
        relative(self.results, point, of).map_or(f64::NAN, |spread| spread.0)
    }

    fn base(&self, workload: Workload, strategy: Strategy, tail: bool) -> f64 {
        let point = self.point(Scene::Base, workload, strategy);
        let point = if tail { point.for_tail() } else { point };
        self.share(point, if tail { p95 } else { mean })
    }

    fn figure_4(&self) -> Shown {
        let all = |tail: bool| {
            Workload::ALL.map(|workload| 1.0 / self.base(workload, Strategy::Oracle, tail))
        };
        let (means, tails) = (all(false), all(true));
        let local = range(&means[..2]);
        let spread_out = range(&means[2..4]);
        let finding =
            |what: &str, published: &str, here: (f64, f64), published_is, in_shape, why| Finding {
                what: what.to_owned(),
                published: published.to_owned(),
                here: two(times, here),
                ours: String::new(),
                in_value: overlaps(here, published_is),
                in_shape,
                why,
            };
        let order = local.0 > spread_out.1;
        Shown {
            number: 4,
            title: "Figure 4: random placement against the paper's optimal",
            about: "How many times the latency of the oracle hash placement has; the oracle sees each access \
                    before it is made and moves keys for nothing, for the mean or for the p95.",
            heads: vec!["mean".to_owned(), "p95".to_owned()],
            rows: Workload::ALL
                .iter()
                .zip(means.iter().zip(&tails))
                .map(|(workload, (mean, tail))| {
                    (workload.name().to_owned(), vec![times(*mean), times(*tail)])
                })
                .collect(),
            lines: vec![("mean".to_owned(), means.to_vec()), ("p95".to_owned(), tails.to_vec())],
            findings: vec![
                finding(
                    "mean, all workloads",
                    "1.7× to 5.4×",
                    range(&means),
                    (1.7, 5.4),
                    order,
                    "",
                ),
                finding(
                    "mean, per-client and regional",
                    "4.8× to 6.4×",
                    local,
                    (4.8, 6.4),
                    order,
                    "",
                ),
                finding(
                    "mean, group and global",
                    "1.5× to 1.8×",
                    spread_out,
                    (1.5, 1.8),
                    order,
                    "",
                ),
                finding(
                    "p95, all workloads",
                    "1.4× to 11.9×",
                    range(&tails),
                    (1.4, 11.9),
                    tails[0] > tails[2] && tails[1] > tails[3],
                    "11.9× is more than 50 ms is of 5 ms: tails of the paper hold what its testbed adds \
                     to the latencies that it assigns.",
                ),
            ],
        }
    }

    fn figure_8(&self) -> Shown {
        let mut columns = Strategy::ALL.to_vec();
        columns.remove(0);
        let mut rows = Vec::new();
        for tail in [false, true] {
            for workload in Workload::ALL {
                let cell = |strategy: &Strategy| {
                    let point = self.point(Scene::Base, workload, *strategy);
                    let (point, of) =
                        if tail { (point.for_tail(), p95 as Of) } else { (point, mean as Of) };
                    percent(relative(self.results, point, of))
                };
                let name = format!("{}, {}", workload.name(), if tail { "p95" } else { "mean" });
                rows.push((name, columns.iter().map(cell).collect()));
            }
        }
        for workload in Workload::ALL {
            let cell = |strategy: &Strategy| {
                let of_seed = |seed| {
                    let point = Point::new(Scene::Base, workload, *strategy, seed, self.size);
                    let run = self.results.get(&point)?;
                    Some(1_000.0 * run.waited_ms / run.accesses.max(1) as f64)
                };
                let waited_us = spread(seeds(self.size).filter_map(of_seed).collect());
                waited_us.map_or_else(|| "–".to_owned(), |(median, ..)| format!("{median:.1} µs"))
            };
            let name = format!("{}, waiting", workload.name());
            rows.push((name, columns.iter().map(cell).collect()));
        }
        let line = |strategy: &Strategy| {
            let of = |tail: bool| {
                Workload::ALL.map(|workload| 100.0 * self.base(workload, *strategy, tail))
            };
            (strategy.name().to_owned(), [of(false), of(true)].concat())
        };
        Shown {
            number: 8,
            title: "Figure 8: six workloads and all strategies",
            about: "Latency in % of hash placement's: median of the runs and their range. Rows of p95 have the \
                    objective p95 where a strategy has objectives. All of it contains what accesses waited for \
                    keys on their way: the last rows have that alone, the mean of all accesses.",
            heads: columns.iter().map(|strategy| strategy.name().to_owned()).collect(),
            rows,
            lines: columns.iter().map(line).collect(),
            findings: self.findings_8(),
        }
    }

    fn findings_8(&self) -> Vec<Finding> {
        let less = |strategy, tail: bool| -> (f64, f64) {
            range(
                &Workload::ALL.map(|workload| 100.0 * (1.0 - self.base(workload, strategy, tail))),
            )
        };
        let percent = |value: f64| format!("{value:.0} %");
        let mut findings = Vec::new();
        for (tail, published, is) in
            [(false, "21 % to 82 %", (21.0, 82.0)), (true, "26 % to 77 %", (26.0, 77.0))]
        {
            let (portkey, ours) = (less(Strategy::Portkey, tail), less(Strategy::Ours, tail));
            findings.push(Finding {
                what: format!("{} below random", if tail { "p95" } else { "mean" }),
                published: published.to_owned(),
                here: two(percent, portkey),
                ours: two(percent, ours),
                in_value: overlaps(portkey, is),
                in_shape: portkey.0 > 0.0,
                why: if tail {
                    "With many users of a key over the city, one in twenty is far from any place."
                } else {
                    ""
                },
            });
        }
        for (tail, published, is) in
            [(false, "at most 15 %", 15.0), (true, "at most 4 % but for per-client", 4.0)]
        {
            let above = |strategy, optimal| -> f64 {
                let of = |workload: &Workload| {
                    let best = self.base(*workload, optimal, tail);
                    100.0 * (self.base(*workload, strategy, tail) / best - 1.0)
                };
                let skips = |workload: &&Workload| !tail || **workload != Workload::PerClient;
                Workload::ALL.iter().filter(skips).map(of).fold(0.0, f64::max)
            };
            let (free, pays) = (Strategy::Oracle, Strategy::Optimal);
            let words = |strategy| {
                format!(
                    "{:.0} %; {:.0} % above the one that pays",
                    above(strategy, free),
                    above(strategy, pays)
                )
            };
            let value = above(Strategy::Portkey, free);
            findings.push(Finding {
                what: format!("{} above the oracle, at most", if tail { "p95" } else { "mean" }),
                published: published.to_owned(),
                here: words(Strategy::Portkey),
                ours: words(Strategy::Ours),
                in_value: value <= is * 1.2,
                in_shape: above(Strategy::Portkey, pays) <= is,
                why: "The oracle chases single accesses of each second: no strategy that learns can.",
            });
        }
        let heuristics = [Strategy::Accessing, Strategy::Dominant];
        let local = range(
            &heuristics.map(|one| 100.0 * (1.0 - self.base(Workload::PerClient, one, false))),
        );
        findings.push(Finding {
            what: "per-client: heuristics below random, mean".to_owned(),
            published: "70 % to 81 %".to_owned(),
            here: two(percent, local),
            ours: percent(100.0 * (1.0 - self.base(Workload::PerClient, Strategy::Ours, false))),
            in_value: near(f64::midpoint(local.0, local.1), 75.5),
            in_shape: local.0 > 60.0,
            why: "",
        });
        let gain = |strategy, other| {
            [Workload::Group, Workload::Global].map(|workload| {
                let less = |one| 1.0 - self.base(workload, one, false);
                less(strategy) / less(other).max(1e-3)
            })
        };
        let all = |strategy| {
            range(&[gain(strategy, heuristics[0]), gain(strategy, heuristics[1])].concat())
        };
        let portkey = all(Strategy::Portkey);
        findings.push(Finding {
            what: "group, global: reduction of the mean against the heuristics'".to_owned(),
            published: "2.1× to 2.6×".to_owned(),
            here: two(times, portkey),
            ours: two(times, all(Strategy::Ours)),
            in_value: overlaps(portkey, (2.1, 2.6)),
            in_shape: portkey.0 > 1.2,
            why: "",
        });
        findings
    }

    /// A line for each of the few strategies: how many times faster than random.
    fn speedups<const N: usize>(&self, points: [(Scene, Workload); N], of: Of) -> [[f64; N]; 2] {
        FEW.map(|strategy| {
            points.map(|(scene, workload)| {
                1.0 / self.share(self.point(scene, workload, strategy), of)
            })
        })
    }

    fn speedup_figure(
        &self,
        names: &[String],
        mean: &[Vec<f64>; 2],
        tail: Option<&[Vec<f64>; 2]>,
    ) -> Shown {
        let mut lines = Vec::new();
        for (objective, values) in [("mean", Some(mean)), ("p95", tail)] {
            for (strategy, values) in FEW.iter().zip(values.into_iter().flatten()) {
                lines.push((format!("{}, {objective}", strategy.name()), values.clone()));
            }
        }
        let row = |(index, name): (usize, &String)| {
            (name.clone(), lines.iter().map(|(_, values)| times(values[index])).collect())
        };
        Shown {
            heads: lines.iter().map(|(name, _)| name.clone()).collect(),
            rows: names.iter().enumerate().map(row).collect(),
            lines,
            ..Shown::default()
        }
    }

    fn tails<const N: usize>(&self, points: [(Scene, Workload); N]) -> [Vec<f64>; 2] {
        FEW.map(|strategy| {
            let one = |(scene, workload)| {
                1.0 / self.share(self.point(scene, workload, strategy).for_tail(), p95)
            };
            points.map(one).to_vec()
        })
    }

    fn figure_9(&self) -> Shown {
        let points = DENSITIES.map(|percent| (Scene::Density(percent), Workload::PerClient));
        let [portkey, ours] = self.speedups(points, mean);
        let names = DENSITIES.map(|percent| format!("{percent} %"));
        let grows = portkey.windows(2).all(|two| two[1] > 0.97 * two[0]) && portkey[4] > portkey[0];
        Shown {
            title: "Figure 9: by the density of sites, per-client",
            about: "How many times faster than hash placement over the same sites.",
            findings: vec![Finding {
                what: "peak speed-up from 40 % to 100 % of the access points".to_owned(),
                published: "2.3× to 5.2×".to_owned(),
                here: two(times, (portkey[1], portkey[4])),
                ours: two(times, (ours[1], ours[4])),
                in_value: near(portkey[1], 2.3) && near(portkey[4], 5.2),
                in_shape: grows,
                why: "",
            }],
            ..self.speedup_figure(
                &names,
                &[portkey.to_vec(), ours.to_vec()],
                Some(&self.tails(points)),
            )
        }
    }

    fn figure_10(&self) -> Shown {
        let points = LATENCIES.map(|(scene, _)| (scene, Workload::PerClient));
        let [portkey, ours] = self.speedups(points, mean);
        let names = LATENCIES.map(|(_, name)| name.to_owned());
        let near_base = [1, 2].map(|place| portkey[place] / portkey[0]);
        Shown {
            title: "Figure 10: by the latencies of the network, per-client",
            about: "How many times faster than hash placement.",
            findings: vec![
                Finding {
                    what: "slow and p2p, against base".to_owned(),
                    published: "not significantly different".to_owned(),
                    here: two(times, range(&near_base)),
                    ours: two(times, range(&[1, 2].map(|place| ours[place] / ours[0]))),
                    in_value: near_base.iter().all(|ratio| near(*ratio, 1.0)),
                    in_shape: portkey[..3].iter().all(|speedup| *speedup > 2.0),
                    why: "In p2p the tiers overlap (5–50, 20–150, 40–250 ms), and the nearest site is the \
                          best of 25 draws.",
                },
                Finding {
                    what: "fast wired".to_owned(),
                    published: "little advantage".to_owned(),
                    here: times(portkey[3]),
                    ours: times(ours[3]),
                    in_value: near(portkey[3], 1.0),
                    in_shape: portkey[3] < 1.1,
                    why: "",
                },
            ],
            ..self.speedup_figure(
                &names,
                &[portkey.to_vec(), ours.to_vec()],
                Some(&self.tails(points)),
            )
        }
    }

    /// The tail of each interval as a share of hash placement's, the median over seeds.
    fn over_time(&self, strategy: Strategy) -> Vec<f64> {
        let point = self.point(Scene::Cold, Workload::AllRw, strategy).for_tail();
        let intervals = self.results.get(&point).map_or(0, |measured| measured.intervals.len());
        let of = |interval: usize| {
            let of_seed = |seed| {
                let point = Point { seed, ..point };
                let random = Point { strategy: Strategy::Random, tail: false, ..point };
                let tail = |point| Some(self.results.get(&point)?.intervals.get(interval)?.1);
                Some(tail(point)? / tail(random)?)
            };
            spread(seeds(self.size).filter_map(of_seed).collect())
                .map_or(f64::NAN, |spread| spread.0)
        };
        (0..intervals).map(of).collect()
    }

    fn figure_11(&self) -> Shown {
        let lines = FEW.map(|strategy| (strategy.name().to_owned(), self.over_time(strategy)));
        // The end is the mean of the last third.
        let settled_s = |values: &[f64]| {
            let last = &values[values.len() - values.len().div_ceil(3)..];
            let end = last.iter().sum::<f64>() / last.len().max(1) as f64;
            let is_there = |value: &f64| *value <= 1.05 * end;
            (values.iter().position(is_there).unwrap_or(values.len()) + 1) * INTERVAL_S
        };
        let [portkey, ours] = [settled_s(&lines[0].1), settled_s(&lines[1].1)];
        let row = |interval: usize| {
            let cells = lines.iter().map(|(_, values)| format!("{:.1}", 100.0 * values[interval]));
            (format!("{} s", (interval + 1) * INTERVAL_S), cells.collect())
        };
        Shown {
            title: "Figure 11: over time, from a cold start, all-RW, p95",
            about: "The p95 of each 30 s in % of hash placement's; strategies decide for the p95.",
            heads: lines.iter().map(|(name, _)| name.clone()).collect(),
            rows: (0..lines[0].1.len()).map(row).collect(),
            findings: vec![Finding {
                what: "stable after".to_owned(),
                published: "60 to 120 s".to_owned(),
                here: format!("{portkey} s"),
                ours: format!("{ours} s"),
                in_value: (60..=120).contains(&portkey),
                in_shape: portkey <= 120,
                why: "Here each client's first window names the keys that it uses: the second window is \
                      placed already. The paper's keys are used less often.",
            }],
            lines: lines
                .map(|(name, values)| (name, values.iter().map(|value| 100.0 * value).collect()))
                .to_vec(),
            ..Shown::default()
        }
    }

    fn figure_13(&self) -> Shown {
        let points = MBPS.map(|mbps| (Scene::Mbps(mbps), Workload::AllRw));
        let [portkey, ours] = self.speedups(points, mean);
        let names = MBPS.map(|mbps| format!("{mbps} Mbit/s"));
        let random_ms = |mbps| {
            let point = self.point(Scene::Mbps(mbps), Workload::AllRw, Strategy::Random);
            let of_seed = |seed| Some(self.results.get(&Point { seed, ..point })?.mean_ms);
            spread(seeds(self.size).filter_map(of_seed).collect())
                .map_or(f64::NAN, |spread| spread.0)
        };
        let [one, ten, hundred] = [1, 10, 100].map(random_ms);
        Shown {
            title: "Figure 13: by the bandwidth of links, all-RW",
            about: "How many times faster than hash placement, with 10 accesses a second of each client: what \
                    links of 1 Mbit/s can carry.",
            findings: vec![
                Finding {
                    what: "speed-up over all bandwidths, mean".to_owned(),
                    published: "2.1× to 2.5×".to_owned(),
                    here: two(times, range(&portkey)),
                    ours: two(times, range(&ours)),
                    in_value: overlaps(range(&portkey), (2.1, 2.5))
                        || portkey.iter().all(|speedup| (1.7..=3.0).contains(speedup)),
                    in_shape: range(&portkey).1 / range(&portkey).0 < 1.4,
                    why: "A key of a client has an access in four seconds here. Ours does not tell a gain from noise \
                          by so few (2σ) and leaves it; Portkey moves it after one, all keys at once, and \
                          fills links of 1 Mbit/s with moves.",
                },
                Finding {
                    what: "random: from 10 to 1 Mbit/s, and from 100 to 10".to_owned(),
                    published: "significantly slower; about the same".to_owned(),
                    here: format!("{}; {}", times(one / ten), times(ten / hundred)),
                    ours: String::new(),
                    in_value: one / ten > 1.2 && near(ten / hundred, 1.0),
                    in_shape: one / ten > ten / hundred,
                    why: "",
                },
            ],
            ..self.speedup_figure(&names, &[portkey.to_vec(), ours.to_vec()], None)
        }
    }

    fn figure_14(&self) -> Shown {
        let points = DEPLOYMENTS.map(|(scene, workload, _)| (scene, workload));
        let [portkey, ours] = self.speedups(points, mean);
        let names = DEPLOYMENTS.map(|(_, _, name)| name.to_owned());
        let finding = |place: usize, published: f64| Finding {
            what: names[place].clone(),
            published: times(published),
            here: times(portkey[place]),
            ours: times(ours[place]),
            in_value: near(portkey[place], published),
            in_shape: portkey[place] > 1.5,
            why: "Its latencies are not in the paper: these are assumed, so the value shows little.",
        };
        Shown {
            title: "Figure 14: two small deployments, emulated",
            about: "How many times faster than hash placement, a minute after decisions began. Ten small \
                    computers in a building write their own keys (1–3 ms at home, 10–20 ms elsewhere); 24 \
                    phones roam over nine on three campuses (5–15, 10–20, 30–45 ms).",
            findings: vec![finding(0, 5.0), finding(1, 2.5)],
            ..self.speedup_figure(&names, &[portkey.to_vec(), ours.to_vec()], None)
        }
    }
}

fn figure_12(beside: &Beside) -> Shown {
    let of = |by_servers: bool| -> Vec<&Timed> {
        beside.timed.iter().filter(|timed| timed.by_servers == by_servers).collect()
    };
    let row = |timed: &Timed| {
        let what = if timed.by_servers { "servers, 1,024 keys" } else { "keys, 1,024 servers" };
        let cells = [timed.exact_s, timed.heuristic_s].map(|s| format!("{:.3}", 1_000.0 * s));
        (format!("{} {what}", timed.count), cells.to_vec())
    };
    let (servers, keys) = (of(true), of(false));
    // The power by which time grows.
    let power = |all: &[&Timed]| match (all.first(), all.last()) {
        (Some(first), Some(last)) if last.count > first.count => {
            (last.exact_s / first.exact_s).ln() / (last.count as f64 / first.count as f64).ln()
        }
        _ => f64::NAN,
    };
    let release = if beside.is_release { "" } else { " (not a release: slower)" };
    let papers = keys.iter().find(|timed| timed.count == 65_536).or(keys.last());
    let seconds = papers.map_or_else(
        || "–".to_owned(),
        |timed| format!("{:.3} s for {}{release}", timed.exact_s, timed.count),
    );
    let linear = |power: f64| (0.7..=1.3).contains(&power);
    Shown {
        title: "Figure 12: how long the solver takes",
        about: "Milliseconds of real time on one core, ours: over all servers, and by the heuristic.",
        heads: vec!["exact, ms".to_owned(), "heuristic, ms".to_owned()],
        rows: beside.timed.iter().map(row).collect(),
        lines: Vec::new(),
        findings: vec![
            Finding {
                what: "65,536 keys, 1,024 servers, exact".to_owned(),
                published: "1 s (MacBook Pro, 2019)".to_owned(),
                here: String::new(),
                ours: seconds,
                in_value: papers.is_some_and(|timed| timed.exact_s <= 1.2),
                in_shape: papers.is_some_and(|timed| timed.exact_s <= 1.2),
                why: "Faster is better here; the paper's solver was not run.",
            },
            Finding {
                what: "exact, time by the number of keys".to_owned(),
                published: "linear".to_owned(),
                here: String::new(),
                ours: format!("power of {:.2}", power(&keys)),
                in_value: linear(power(&keys)),
                in_shape: linear(power(&keys)),
                why: "",
            },
            Finding {
                what: "exact, time by the number of servers".to_owned(),
                published: "quadratic".to_owned(),
                here: String::new(),
                ours: format!("power of {:.2}", power(&servers)),
                in_value: power(&servers) > 1.7,
                in_shape: power(&servers) > 1.7,
                why: "Ours adds rows of origins that access a key, four here, and not all: it is linear.",
            },
        ],
        ..Shown::default()
    }
}
