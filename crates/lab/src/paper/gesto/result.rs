//! The figures: what came out, beside what was published, and whether that is the same.
//!
//! The text of the paper has few numbers. Where it has one, a statement comes out *in value* if the
//! number here is within a fifth of it, or on the stated side of it; *in shape* if the order or the
//! trend that it states is here too.

use super::experiment::{CLIENTS, PATTERN, PATTERNS, Point, Results, SITES, Scene, System, scenes};
use super::{Size, goals};
use crate::baselines::play::{Measured, quantile};
use crate::report::study::{Across, Chart};

/// What the paper states, and what is here.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What is compared.
    pub what: &'static str,
    /// The paper's.
    pub published: &'static str,
    /// What is here.
    pub here: String,
    /// Whether it came out in value; none: the paper has no number.
    pub in_value: Option<bool>,
    /// Whether it came out in shape.
    pub in_shape: bool,
    /// Why not.
    pub why: &'static str,
}

impl Finding {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let came_out = match (self.in_value, self.in_shape) {
            (Some(true), true) => "It came out in value and in shape.",
            (Some(false), true) => "It came out in shape, not in value.",
            (Some(true), false) => "It came out in value, not in shape.",
            (None, true) => "It came out in shape; there is no number.",
            (_, false) => "It did not come out.",
        };
        let missed = !self.in_shape || self.in_value == Some(false);
        [came_out, if missed { self.why } else { "" }].join(" ").trim().to_owned()
    }
}

/// A figure.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its number in the paper; 0 and 1: it is not in the paper.
    pub number: u8,
    /// What it shows.
    pub title: &'static str,
    /// How to read it.
    pub about: &'static str,
    /// What its table's columns are.
    pub heads: Vec<String>,
    /// Its table: a name and values.
    pub rows: Vec<(String, Vec<String>)>,
    /// As plots.
    pub charts: Vec<Chart>,
    /// What is compared.
    pub findings: Vec<Finding>,
}

/// A figure of the paper, or one of ours.
#[must_use]
pub fn shown(figure: u8, results: &Results, size: Size) -> Shown {
    let runs = Runs { results, size };
    match figure {
        2 => runs.figure_2(),
        3 => runs.figure_3(),
        4 => runs.figure_4(),
        5 => runs.figure_5(),
        6 => runs.figure_6(),
        7 => runs.figure_7(),
        goals::NUMBER => goals::shown(results, size),
        _ => runs.metadata(),
    }
}

struct Runs<'a> {
    results: &'a Results,
    size: Size,
}

type Of = fn(&Measured) -> f64;

fn near(value: f64, published: f64) -> bool {
    (value / published - 1.0).abs() <= 0.2
}

fn ms(us: f64) -> f64 {
    us / 1_000.0
}

fn names() -> Vec<String> {
    System::ALL.iter().map(|system| system.name().to_owned()).collect()
}

fn p90_visible(measured: &Measured) -> f64 {
    ms(quantile(&measured.visible_us, 0.9))
}

fn half_move(measured: &Measured) -> f64 {
    ms(quantile(&measured.moves_us, 0.5))
}

/// The points of a cumulative distribution, in ms.
pub(super) fn cumulative(values_us: &[u64]) -> Vec<(f64, f64)> {
    let steps = if values_us.is_empty() { 0..0 } else { 0..51 };
    steps
        .map(|step| (ms(quantile(values_us, f64::from(step) / 50.0)), f64::from(step) * 2.0))
        .collect()
}

impl Runs<'_> {
    fn get(&self, scene: Scene, system: System) -> Option<&Measured> {
        self.results.get(&Point { scene, system, size: self.size })
    }

    fn value(&self, scene: Scene, system: System, of: Of) -> f64 {
        self.get(scene, system).map_or(f64::NAN, of)
    }

    fn table(
        &self,
        scenes: &[(String, Scene)],
        of: Of,
        digits: usize,
    ) -> Vec<(String, Vec<String>)> {
        let cell = |scene: Scene, system| format!("{:.digits$}", self.value(scene, system, of));
        let row = |(name, scene): &(String, Scene)| {
            (name.clone(), System::ALL.map(|system| cell(*scene, system)).to_vec())
        };
        scenes.iter().map(row).collect()
    }

    fn lines(&self, scenes: &[Scene], x: &[f64], of: Of) -> Vec<(String, Vec<(f64, f64)>)> {
        let line = |system: System| {
            let points = scenes.iter().zip(x);
            let points = points.map(|(scene, x)| (*x, self.value(*scene, system, of)));
            (system.name().to_owned(), points.filter(|(_, y)| y.is_finite()).collect())
        };
        System::ALL.map(line).to_vec()
    }

    fn figure_2(&self) -> Shown {
        let scene = Scene::Pattern(PATTERN);
        let rows: [(&str, Of); 6] = [
            ("read, p50", |one| ms(quantile(&one.reads_us, 0.5))),
            ("read, p90", |one| ms(quantile(&one.reads_us, 0.9))),
            ("read, p99", |one| ms(quantile(&one.reads_us, 0.99))),
            ("write, p50", |one| ms(quantile(&one.writes_us, 0.5))),
            ("write, p90", |one| ms(quantile(&one.writes_us, 0.9))),
            ("write, p99", |one| ms(quantile(&one.writes_us, 0.99))),
        ];
        let get = |row: usize, system| self.value(scene, system, rows[row].1);
        let [eventual, cops, occult, saturn, gesto] = System::ALL;
        let chart = |file: &str, title: &str, of: fn(&Measured) -> &Vec<u64>| Chart {
            file: file.to_owned(),
            title: title.to_owned(),
            about: "Which share of the operations took no longer than this.".to_owned(),
            x: Across::Numbers("ms"),
            y: "% of operations",
            lines: System::ALL
                .map(|system| {
                    let values = self.get(scene, system).map(of);
                    (system.name().to_owned(), cumulative(values.map_or(&[], Vec::as_slice)))
                })
                .to_vec(),
        };
        let others = [eventual, cops, saturn, gesto];
        let spread = get(5, occult) / get(3, occult);
        let sum = |system| (0..rows.len()).map(|row| get(row, system)).sum::<f64>();
        let next = [cops, occult, saturn, gesto].map(sum).into_iter().fold(f64::INFINITY, f64::min);
        let longest_read = self.value(scene, occult, |one| ms(quantile(&one.reads_us, 1.0)));
        let longest_write = self.value(scene, occult, |one| ms(quantile(&one.writes_us, 1.0)));
        Shown {
            number: 2,
            title: "Figure 2: latency of reads and writes",
            about: "Milliseconds, of clients at their own sites.",
            heads: names(),
            rows: rows
                .iter()
                .map(|(name, of)| {
                    let cell = |system| format!("{:.2}", self.value(scene, system, *of));
                    ((*name).to_owned(), System::ALL.map(cell).to_vec())
                })
                .collect(),
            charts: vec![
                chart("figure-2-reads", "Figure 2: reads", |one| &one.reads_us),
                chart("figure-2-writes", "Figure 2: writes", |one| &one.writes_us),
            ],
            findings: vec![
                Finding {
                    what: "reads are faster than writes, but for Occult",
                    published: "all four",
                    here: format!(
                        "{} of 4",
                        others.iter().filter(|one| get(0, **one) < get(3, **one)).count()
                    ),
                    in_value: None,
                    in_shape: others.iter().all(|one| get(0, *one) < get(3, *one)),
                    why: "A write costs a core more than a read; only work that waits can reverse that.",
                },
                Finding {
                    what: "eventual has the lowest latencies, these six added up",
                    published: "the lowest",
                    here: format!("{:.2} ms; the next {next:.2} ms", sum(eventual)),
                    in_value: None,
                    in_shape: sum(eventual) < next,
                    why: "A core of its own exports metadata in the models, and the others are idle most of the time: \
                          no client waits for the work that eventual does not have.",
                },
                Finding {
                    what: "Occult: writes, p99 against p50",
                    published: "marginally more",
                    here: format!("{spread:.1}×"),
                    in_value: None,
                    in_shape: spread < 1.2,
                    why: "A write takes the round trip to Lyon, which is 7 to 17 ms by Table I, and 0.2 ms for \
                          clients in Lyon; all of them are counted together here.",
                },
                Finding {
                    what: "Occult: p90 of reads",
                    published: "below 2 ms",
                    here: format!("{:.2} ms", get(1, occult)),
                    in_value: Some(get(1, occult) < 2.0),
                    in_shape: get(1, occult) < 2.0 && get(2, occult) > 2.0,
                    why: "p99 is below 2 ms, too: hardly a read finds its site behind.",
                },
                Finding {
                    what: "Occult: the longest read takes as long as the longest write, or longer",
                    published: "as long, and the retries",
                    here: format!("{longest_read:.1} and {longest_write:.1} ms"),
                    in_value: None,
                    in_shape: longest_read >= 0.8 * longest_write,
                    why: "A read goes to Lyon only after three attempts at its own site in vain: the longest one need \
                          not be from the site that is the farthest from there.",
                },
                Finding {
                    what: "Saturn and Gesto are alike; COPS is slower",
                    published: "so",
                    here: format!(
                        "p99 of writes: {:.2}, {:.2}; {:.2} ms",
                        get(5, saturn),
                        get(5, gesto),
                        get(5, cops)
                    ),
                    in_value: None,
                    in_shape: near(get(5, saturn), get(5, gesto)) && get(5, cops) > get(5, gesto),
                    why: "With two clients a site, eight cores of the model are idle enough to hide COPS's checks.",
                },
            ],
        }
    }

    fn patterns(&self) -> (Vec<(String, Scene)>, Vec<Scene>, Vec<f64>) {
        let scenes = scenes(3, self.size);
        let named =
            PATTERNS.iter().zip(&scenes).map(|(reads, scene)| (format!("{reads} reads"), *scene));
        (named.collect(), scenes.clone(), PATTERNS.map(f64::from).to_vec())
    }

    fn figure_3(&self) -> Shown {
        let (named, scenes, x) = self.patterns();
        let rate: Of = |one| one.rate_hz() / 1_000.0;
        let per_cpu: Of = |one| one.per_cpu_s() / 1_000.0;
        let mut rows = self.table(&named, rate, 2);
        let of_cpu = self.table(&named, per_cpu, 2);
        rows.extend(
            of_cpu.into_iter().map(|(name, cells)| (format!("{name}, a CPU-second"), cells)),
        );
        let share = |of: Of, system| -> f64 {
            let values = scenes.iter().map(|scene| {
                self.value(*scene, system, of) / self.value(*scene, System::Eventual, of)
            });
            values.fold(f64::INFINITY, f64::min)
        };
        let least = |of| share(of, System::Saturn).min(share(of, System::Gesto));
        let fall = |of: Of, system| {
            let (first, last) = (scenes.first(), scenes.last());
            let get =
                |scene: Option<&Scene>| scene.map_or(f64::NAN, |one| self.value(*one, system, of));
            get(last) / get(first)
        };
        let steady = [System::Eventual, System::Saturn, System::Gesto];
        let most = |of: Of, systems: &[System]| {
            let of_system = |system: &System| {
                let values = scenes.iter().map(|scene| {
                    self.value(*scene, *system, of) / self.value(*scene, System::Eventual, of)
                });
                values.fold(0.0, f64::max)
            };
            systems.iter().map(of_system).fold(0.0, f64::max)
        };
        let most_rate = most(rate, &System::ALL[1..]);
        let most_per_cpu = most(per_cpu, &[System::Cops, System::Saturn, System::Gesto]);
        let apart = |of: Of| {
            let values = scenes.iter().map(|scene| {
                let gesto = self.value(*scene, System::Gesto, of);
                (gesto / self.value(*scene, System::Saturn, of) - 1.0).abs()
            });
            values.fold(0.0, f64::max)
        };
        let lowest = scenes.iter().all(|scene| {
            System::ALL.iter().all(|system| {
                self.value(*scene, System::Occult, rate) <= self.value(*scene, *system, rate)
            })
        });
        Shown {
            number: 3,
            title: "Figure 3: throughput by access pattern",
            about: "Thousands of operations a second of virtual time, 14 clients; and for each second that a core \
                    of the model is busy. The pattern is the number of reads before a write of a key that is \
                    everywhere.",
            heads: names(),
            rows,
            charts: vec![Chart {
                file: "figure-3".to_owned(),
                title: "Figure 3: throughput".to_owned(),
                about: "For each second that a core is busy.".to_owned(),
                x: Across::Numbers("reads before a write of a key that is everywhere"),
                y: "1,000 operations",
                lines: self.lines(&scenes, &x, per_cpu),
            }],
            findings: vec![
                Finding {
                    what: "Gesto and Saturn against eventual, at least",
                    published: "above 90 %",
                    here: format!(
                        "{:.0} %; {:.0} % a CPU-second",
                        100.0 * least(rate),
                        100.0 * least(per_cpu)
                    ),
                    in_value: Some(least(rate) > 0.9),
                    in_shape: least(rate) > 0.9 && least(per_cpu) < 1.0,
                    why: "It depends on what metadata costs a core, which the paper does not state.",
                },
                Finding {
                    what: "eventual makes the most operations",
                    published: "the most",
                    here: format!(
                        "others at most {:.1} %; a CPU-second, without Occult, {:.1} %",
                        100.0 * most_rate,
                        100.0 * most_per_cpu
                    ),
                    in_value: None,
                    in_shape: most_rate <= 1.005 && most_per_cpu < 1.0,
                    why: "Links decide on the rate, which is alike then; and of its shortest lists COPS has next to \
                          nothing to check.",
                },
                Finding {
                    what: "Gesto and Saturn are alike",
                    published: "no significant difference",
                    here: format!(
                        "at most {:.1} % apart; {:.1} % a CPU-second",
                        100.0 * apart(rate),
                        100.0 * apart(per_cpu)
                    ),
                    in_value: None,
                    in_shape: apart(rate) < 0.05 && apart(per_cpu) < 0.05,
                    why: "A label of Saturn passes up to three serializers, metadata of Gesto one broker: for each \
                          second of a core that makes a difference.",
                },
                Finding {
                    what: "only COPS depends on the pattern",
                    published: "heavily impacted",
                    here: format!(
                        "COPS from first to last {:.2}×, a CPU-second {:.2}×",
                        fall(rate, System::Cops),
                        fall(per_cpu, System::Cops)
                    ),
                    in_value: None,
                    in_shape: fall(per_cpu, System::Cops) < 0.8
                        && steady.iter().all(|system| near(fall(per_cpu, *system), 1.0)),
                    why: "The cores are idle most of the time, so links decide on the rate. For each second of a \
                          core COPS falls; the others rise, as a read costs less than a write.",
                },
                Finding {
                    what: "Occult is the lowest",
                    published: "so",
                    here: format!("{:.0} % of eventual", 100.0 * share(rate, System::Occult)),
                    in_value: None,
                    in_shape: lowest,
                    why: "With the longest lists COPS is lower.",
                },
            ],
        }
    }

    fn figure_4(&self) -> Shown {
        let (named, scenes, x) = self.patterns();
        let p90: Of = p90_visible;
        let get = |place: usize, system| self.value(scenes[place], system, p90);
        let last = scenes.len() - 1;
        let grows = |system| get(last, system) / get(0, system);
        let steady = [System::Eventual, System::Occult, System::Saturn, System::Gesto];
        let least = steady.map(grows).into_iter().fold(f64::INFINITY, f64::min);
        let most = steady.map(grows).into_iter().fold(0.0, f64::max);
        let order = |place| {
            get(place, System::Eventual) <= get(place, System::Gesto)
                && get(place, System::Gesto) <= get(place, System::Saturn)
        };
        Shown {
            number: 4,
            title: "Figure 4: remote visibility by access pattern",
            about: "90th percentile of the time from a write's request to its visibility at another site, ms.",
            heads: names(),
            rows: self.table(&named, p90, 1),
            charts: vec![Chart {
                file: "figure-4".to_owned(),
                title: "Figure 4: remote visibility, p90".to_owned(),
                about: "By access pattern.".to_owned(),
                x: Across::Numbers("reads before a write of a key that is everywhere"),
                y: "ms",
                lines: self.lines(&scenes, &x, p90),
            }],
            findings: vec![
                Finding {
                    what: "only COPS gets worse",
                    published: "others almost constant",
                    here: format!(
                        "COPS {:.2}×, others {least:.2}× to {most:.2}×",
                        grows(System::Cops)
                    ),
                    in_value: None,
                    in_shape: grows(System::Cops) > 1.1
                        && steady.iter().all(|system| near(grows(*system), 1.0)),
                    why: "A check costs the model so little that links decide: a write that waits for another \
                          one waits for a link, whatever the length of its list.",
                },
                Finding {
                    what: "eventual, then Gesto, then Saturn",
                    published: "so",
                    here: format!(
                        "{:.1}, {:.1}, {:.1} ms",
                        get(1, System::Eventual),
                        get(1, System::Gesto),
                        get(1, System::Saturn)
                    ),
                    in_value: None,
                    in_shape: (0..scenes.len()).all(order),
                    why: "Which way is longer, over the broker or along the tree, depends on where serializers stand, \
                          which the paper does not show.",
                },
                Finding {
                    what: "Occult is close to eventual",
                    published: "closely followed",
                    here: format!("{:.2}×", get(1, System::Occult) / get(1, System::Eventual)),
                    in_value: None,
                    in_shape: get(1, System::Occult) / get(1, System::Eventual) < 1.2,
                    why: "Every write goes by way of Lyon, which is a detour between sites that are near each other.",
                },
            ],
        }
    }

    fn figure_5(&self) -> Shown {
        let at = |system, share: f64| {
            self.get(Scene::Free, system)
                .map_or(f64::NAN, |one| ms(quantile(&one.visible_us, share)))
        };
        let systems = [System::Eventual, System::Occult, System::Saturn, System::Gesto];
        let percents = [5, 25, 50, 75, 90, 99];
        let rows = percents.map(|percent| {
            let cell = |system| match system {
                System::Cops => "–".to_owned(),
                _ => format!("{:.1}", at(system, f64::from(percent) / 100.0)),
            };
            (format!("{percent} %"), System::ALL.map(cell).to_vec())
        });
        // The last percent up to which Saturn is not slower.
        let saturn_ahead = (1..=99_u32)
            .rev()
            .find(|percent| {
                let share = f64::from(*percent) / 100.0;
                at(System::Saturn, share) < at(System::Gesto, share)
            })
            .unwrap_or(0);
        let first = |system| {
            (1..=99_u32).all(|percent| {
                let share = f64::from(percent) / 100.0;
                at(System::Eventual, share) <= at(system, share) + 0.05
            })
        };
        let tail = |share| at(System::Occult, share) / at(System::Eventual, share);
        Shown {
            number: 5,
            title: "Figure 5: remote visibility",
            about: "Time from a write's request to its visibility at another site, ms. Clients read any number of \
                    keys between writes; without COPS, as in the paper.",
            heads: names(),
            rows: rows.to_vec(),
            charts: vec![Chart {
                file: "figure-5".to_owned(),
                title: "Figure 5: remote visibility".to_owned(),
                about: "Which share of remote writes was visible by then.".to_owned(),
                x: Across::Numbers("ms"),
                y: "% of remote writes",
                lines: systems
                    .map(|system| {
                        let values =
                            self.get(Scene::Free, system).map(|one| one.visible_us.as_slice());
                        (system.name().to_owned(), cumulative(values.unwrap_or_default()))
                    })
                    .to_vec(),
            }],
            findings: vec![
                Finding {
                    what: "eventual is the fastest everywhere",
                    published: "always",
                    here: format!(
                        "p50 {:.1} ms, p90 {:.1} ms",
                        at(System::Eventual, 0.5),
                        at(System::Eventual, 0.9)
                    ),
                    in_value: None,
                    in_shape: systems.iter().all(|system| first(*system)),
                    why: "Writes by Occult are visible in Lyon first, whichever site asked for them.",
                },
                Finding {
                    what: "Saturn is faster than Gesto up to",
                    published: "the first 5 %",
                    here: format!("{saturn_ahead} %"),
                    in_value: Some((3..=8).contains(&saturn_ahead)),
                    in_shape: saturn_ahead < 50,
                    why: "It depends on the tree, which the paper does not show: here serializers stand in Nancy, \
                          Lyon and Nantes, and short links within their groups avoid Lyon.",
                },
                Finding {
                    what: "Gesto surpasses Saturn after",
                    published: "around half of all updates (beside the first 5 %, which contradicts it)",
                    here: format!("{saturn_ahead} %"),
                    in_value: Some((40..=60).contains(&saturn_ahead)),
                    in_shape: at(System::Gesto, 0.99) < at(System::Saturn, 0.99),
                    why: "The paper states two places for it, and at most one of them can be right; here it depends on \
                          where serializers stand, which the paper does not show.",
                },
                Finding {
                    what: "Occult nears eventual towards the tail",
                    published: "so",
                    here: format!("p25 {:.1}×, p90 {:.1}×", tail(0.25), tail(0.9)),
                    in_value: None,
                    in_shape: tail(0.9) < tail(0.25) && tail(0.9) < 1.2,
                    why: "Every write goes by way of Lyon; how long that detour is beside the direct way depends on the \
                          two sites.",
                },
            ],
        }
    }

    fn figure_6(&self) -> Shown {
        let scenes = scenes(6, self.size);
        let totals: Vec<usize> = CLIENTS[..scenes.len()].iter().map(|one| one * 7).collect();
        let named: Vec<(String, Scene)> = totals
            .iter()
            .zip(&scenes)
            .map(|(total, scene)| (format!("{total} clients"), *scene))
            .collect();
        let x: Vec<f64> = totals.iter().map(|total| *total as f64).collect();
        let rate: Of = |one| one.rate_hz() / 1_000.0;
        let late: Of = p90_visible;
        let mut rows = self.table(&named, rate, 1);
        let waits = self.table(&named, late, 1);
        rows.extend(
            waits.into_iter().map(|(name, cells)| (format!("{name}, visible p90 ms"), cells)),
        );
        let most = |system| {
            scenes.iter().map(|scene| self.value(*scene, system, rate)).fold(0.0, f64::max)
        };
        let beaten = |system: System| {
            let found = scenes.iter().zip(&totals).find(|(scene, _)| {
                self.value(**scene, system, rate)
                    > 1.005 * self.value(**scene, System::Eventual, rate)
            });
            found.map(|(_, total)| *total)
        };
        let last = scenes.last().copied().unwrap_or(Scene::Free);
        let surpasses = |what, system: System| {
            let (from, latest) = (beaten(system), self.value(last, system, late));
            Finding {
                what,
                published: "150 clients",
                here: from.map_or_else(|| "nowhere".to_owned(), |total| format!("{total} clients")),
                in_value: Some(from.is_some_and(|total| (120..=180).contains(&total))),
                in_shape: from.is_some() && latest > 3.0 * self.value(last, System::Eventual, late),
                why: "Where it begins depends on what an import costs beside an operation.",
            }
        };
        let below_150 = scenes.iter().zip(&totals).filter(|(_, total)| **total < 150);
        let shares = below_150.flat_map(|(scene, _)| {
            let eventual = self.value(*scene, System::Eventual, rate);
            [System::Saturn, System::Gesto]
                .map(|system| self.value(*scene, system, rate) / eventual)
        });
        let optimal = shares.fold(f64::INFINITY, f64::min);
        let first = |system: System| self.value(scenes[0], system, rate);
        let others = [System::Eventual, System::Cops, System::Saturn, System::Gesto];
        let next = others.map(first).into_iter().fold(f64::INFINITY, f64::min);
        let cops =
            100.0 * (1.0 - most(System::Cops) / most(System::Gesto).min(most(System::Saturn)));
        Shown {
            number: 6,
            title: "Figure 6: throughput by number of clients",
            about: "Thousands of operations a second of virtual time; and the 90th percentile of remote visibility, \
                    which shows the queues. Each site has eight cores for clients and remote writes, and one core \
                    that imports metadata, one write after the other.",
            heads: names(),
            rows,
            charts: vec![
                Chart {
                    file: "figure-6".to_owned(),
                    title: "Figure 6: throughput".to_owned(),
                    about: "By number of clients.".to_owned(),
                    x: Across::Numbers("clients"),
                    y: "1,000 operations a second",
                    lines: self.lines(&scenes, &x, rate),
                },
                Chart {
                    file: "figure-6-visibility".to_owned(),
                    title: "Remote visibility under the same load, p90".to_owned(),
                    about: "Where it grows with the time that a run takes, queues do.".to_owned(),
                    x: Across::Numbers("clients"),
                    y: "ms",
                    lines: self.lines(&scenes, &x, late),
                },
            ],
            findings: vec![
                surpasses("Gesto surpasses eventual, as its imports are late, from", System::Gesto),
                surpasses(
                    "Saturn surpasses eventual, as its imports are late, from",
                    System::Saturn,
                ),
                Finding {
                    what: "below 150 clients: Gesto and Saturn against eventual, at least",
                    published: "near optimal",
                    here: format!("{:.1} %", 100.0 * optimal),
                    in_value: None,
                    in_shape: optimal > 0.9,
                    why: "What metadata costs the cores beside an operation is assumed.",
                },
                Finding {
                    what: "COPS's most below Gesto's and Saturn's",
                    published: "about 45 %",
                    here: format!("{cops:.0} %"),
                    in_value: Some(near(cops, 45.0)),
                    in_shape: cops > 20.0,
                    why: "It depends on what a check costs, which the paper does not state.",
                },
                Finding {
                    what: "Occult grows to its most at 550 clients, above COPS",
                    published: "so",
                    here: format!("{:.0}, COPS {:.0}", most(System::Occult), most(System::Cops)),
                    in_value: None,
                    in_shape: most(System::Occult) > most(System::Cops)
                        && self.value(last, System::Occult, rate) >= 0.97 * most(System::Occult),
                    why: "Lyon's cores do all of its writes, so its most depends on what a write is assumed to cost.",
                },
                Finding {
                    what: "Occult is the worst at first",
                    published: "the worst",
                    here: format!("{:.1}, the next {next:.1}", first(System::Occult)),
                    in_value: None,
                    in_shape: first(System::Occult) < next,
                    why: "With few clients links decide, and only Occult's writes wait for long ones.",
                },
            ],
        }
    }

    fn figure_7(&self) -> Shown {
        let at = |system, share: f64| {
            self.get(Scene::Moves, system)
                .map_or(f64::NAN, |one| ms(quantile(&one.moves_us, share)))
        };
        let rows = [5, 25, 50, 75, 90, 99].map(|percent| {
            let cell = |system| format!("{:.1}", at(system, f64::from(percent) / 100.0));
            (format!("{percent} %"), System::ALL.map(cell).to_vec())
        });
        let half = |system| self.value(Scene::Moves, system, half_move);
        let best = half(System::Eventual);
        let near_best = [System::Occult, System::Gesto, System::Cops];
        let is_fastest = |share: f64| {
            let eventual = at(System::Eventual, share);
            System::ALL.iter().all(|system| eventual <= 1.01 * at(*system, share))
        };
        let (cops, gesto) = (half(System::Cops), half(System::Gesto));
        Shown {
            number: 7,
            title: "Figure 7: latency of moves",
            about: "From a client's wish to go on at another site to its admission there, ms. The client stays at its \
                    place, so the way there is part of it. Two clients a site have W1 and two W2.",
            heads: names(),
            rows: rows.to_vec(),
            charts: vec![Chart {
                file: "figure-7".to_owned(),
                title: "Figure 7: latency of moves".to_owned(),
                about: "Which share of moves took no longer than this.".to_owned(),
                x: Across::Numbers("ms"),
                y: "% of moves",
                lines: System::ALL
                    .map(|system| {
                        let values =
                            self.get(Scene::Moves, system).map(|one| one.moves_us.as_slice());
                        (system.name().to_owned(), cumulative(values.unwrap_or_default()))
                    })
                    .to_vec(),
            }],
            findings: vec![
                Finding {
                    what: "Occult, Gesto and COPS are near eventual, p50",
                    published: "near optimal",
                    here: near_best
                        .map(|system| format!("{} {:.2}×", system.name(), half(system) / best))
                        .join(", "),
                    in_value: None,
                    in_shape: near_best.iter().all(|system| half(*system) < 1.2 * best),
                    why: "A target that the broker sends little waits for a snapshot over the broker, which takes \
                          longer than the way to the target where Lyon is not between them.",
                },
                Finding {
                    what: "eventual is the fastest, p50 and p90",
                    published: "the fastest",
                    here: format!("{best:.1} and {:.1} ms", at(System::Eventual, 0.9)),
                    in_value: None,
                    in_shape: is_fastest(0.5) && is_fastest(0.9),
                    why: "A move in eventual takes the way to its target and nothing else, as most do in Occult; targets \
                          are drawn, and not the same ones in each store.",
                },
                Finding {
                    what: "COPS is a little slower than Gesto, p50",
                    published: "a little higher",
                    here: format!("{cops:.2} and {gesto:.2} ms"),
                    in_value: None,
                    in_shape: cops > gesto && cops < 1.2 * gesto,
                    why: "What a check of its list costs is assumed, and little beside the way to the target.",
                },
                Finding {
                    what: "Saturn is the slowest, p50",
                    published: "the worst",
                    here: format!("{:.2}×", half(System::Saturn) / best),
                    in_value: None,
                    in_shape: System::ALL
                        .iter()
                        .all(|system| half(*system) <= half(System::Saturn)),
                    why: "How long a label of a move takes depends on where serializers stand, which the paper does not \
                          show.",
                },
            ],
        }
    }

    fn metadata(&self) -> Shown {
        let scenes = scenes(0, self.size);
        let named: Vec<(String, Scene)> = SITES
            .iter()
            .zip(&scenes)
            .map(|(sites, scene)| (format!("{sites} sites"), *scene))
            .collect();
        let x: Vec<f64> = SITES.iter().map(|sites| *sites as f64).collect();
        let bytes: Of = Measured::metadata_bytes;
        let (first, last) = (scenes[0], scenes[scenes.len() - 1]);
        let grows = |system| self.value(last, system, bytes) / self.value(first, system, bytes);
        Shown {
            number: 0,
            title: "Metadata by number of sites",
            about: "Bytes on all links for each operation, beside keys and values: to and from clients, between sites, \
                    brokers and serializers. Clients have W1; all keys but a hundredth are at four sites, and one \
                    write in five is of a key that is everywhere.",
            heads: names(),
            rows: self.table(&named, bytes, 0),
            charts: vec![Chart {
                file: "metadata".to_owned(),
                title: "Metadata by number of sites".to_owned(),
                about: "Bytes for each operation.".to_owned(),
                x: Across::Powers("sites"),
                y: "bytes an operation",
                lines: self.lines(&scenes, &x, bytes),
            }],
            findings: vec![Finding {
                what: "Gesto's timestamps do not grow with the number of sites",
                published: "constant size",
                here: format!(
                    "24 bytes each; on all links {:.1}×, eventual {:.1}×, COPS {:.1}×",
                    grows(System::Gesto),
                    grows(System::Eventual),
                    grows(System::Cops)
                ),
                // What a message carries is of one size by its type.
                in_value: Some(true),
                in_shape: grows(System::Gesto) <= 1.2 * grows(System::Eventual),
                why: "Each message carries the same, but a write of a key that is everywhere takes more of them: its data \
                      and its metadata go to every site, each on a way of its own.",
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{FIGURES, points};
    use super::*;

    #[test]
    fn every_figure_is_shown_of_few_runs() {
        let results: Results =
            points(&FIGURES, Size::Quick).into_iter().map(|point| (point, point.run())).collect();
        for figure in FIGURES {
            let shown = shown(figure, &results, Size::Quick);
            assert_eq!((shown.number, shown.heads.len()), (figure, 5));
            assert!(shown.rows.iter().all(|(_, cells)| cells.len() == 5));
            let cells = shown.rows.iter().flat_map(|(_, cells)| cells);
            assert!(
                !cells.into_iter().any(|cell| cell.contains("NaN")),
                "{figure}: {:?}",
                shown.rows
            );
            assert!(!shown.charts.is_empty());
            assert_eq!(shown.findings.is_empty(), figure == goals::NUMBER);
            for finding in &shown.findings {
                assert!(!finding.here.contains("NaN"), "{figure}: {}", finding.here);
            }
        }
    }
}
