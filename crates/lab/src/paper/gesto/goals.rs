//! What Portolan's own causal keys are to reach in the scenes of the paper, beside the models.
//!
//! The models have no disks. So that durability is equal, *eventual* and *Saturn* are taken with
//! their commits: one at the site of a write, one at the site that takes it in. Only the wait for a
//! commit that is under way is not added to it: disks here are busy with the writes of other sites,
//! which eventual consistency would have to commit as well.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Bytes, CausalToken, KeyspaceSpec, Request, Revision, SessionToken, SiteId};

use super::Size;
use super::experiment::{PATTERN, Point, Results, Scene, System};
use super::own::{COMMIT, beside_root};
use super::result::Shown;
use crate::baselines::Layout;
use crate::baselines::play::{Measured, Moved, quantile};
use crate::link::Link;
use crate::paper::bar::Bar;
use crate::paper::sites::{MS, Sites, key, put};
use crate::report::study::{Across, Chart};
use crate::simulation::{Down, Settings};

/// The number of what is shown of them among the figures: the paper's figure 1 is no result.
pub const NUMBER: u8 = 1;
/// What is shown beside them.
const BESIDE: [System; 5] =
    [System::Eventual, System::Saturn, System::Gesto, System::Portolan, System::PortolanStandby];
/// The root is on the way between two sites where the way over it is at most so many percent
/// longer.
const DETOUR_PERCENT_MAX: u64 = 5;

/// All bars that these results have something for.
#[must_use]
pub fn all(results: &Results, size: Size, resumed: Option<Duration>) -> Vec<Bar> {
    let of = |scene, system| results.get(&Point { scene, system, size });
    let both = |scene| Some((of(scene, System::Portolan)?, of(scene, System::Eventual)?));
    let mut bars = Vec::new();
    if let Some((own, eventual)) = both(Scene::Pattern(PATTERN)) {
        bars.extend(of_operations(own, eventual));
    }
    if let Some((own, eventual)) = both(Scene::Free) {
        let saturn = of(Scene::Free, System::Saturn);
        bars.extend(saturn.map(|saturn| of_saturn(own, saturn)));
        bars.extend(of_visibility(own, eventual));
        let standby = of(Scene::Free, System::PortolanStandby);
        bars.extend(standby.into_iter().flat_map(|standby| of_standby(standby, own)));
    }
    if let Some((own, eventual)) = both(Scene::Moves) {
        bars.extend(of_moves(own, eventual));
    }
    bars.extend(resumed.map(|span| {
        let what = "the leader of the root's three nodes is killed, nothing is lost or reordered: the order goes on after";
        Bar::at_most(what, (span.as_secs_f64(), 1.5), " s")
    }));
    bars
}

fn ms(us: f64) -> f64 {
    us / 1_000.0
}

fn commits_us(count: u32) -> f64 {
    (COMMIT * count).as_micros() as f64
}

type Latencies = fn(&Measured) -> &[u64];

fn of_operations(own: &Measured, eventual: &Measured) -> Vec<Bar> {
    let kinds: [(&str, Latencies, u32); 2] =
        [("get", |one| &one.reads_us, 0), ("put", |one| &one.writes_us, 1)];
    let of = |(name, of, commits): (&str, Latencies, u32)| {
        [0.5, 0.99].map(|share| {
            let here = quantile(of(own), share);
            let least = quantile(of(eventual), share) + commits_us(commits);
            let what =
                format!("local {name}, p{:.0}, processors apart: above eventual", 100.0 * share);
            let more = format!(" ({:.2} and {:.2} ms)", ms(here), ms(least));
            Bar::at_most(what, (100.0 * (here / least - 1.0), 5.0), " %").with(&more)
        })
    };
    kinds.into_iter().flat_map(of).collect()
}

fn of_saturn(own: &Measured, saturn: &Measured) -> Bar {
    let at = |one: &Measured, percent: u32| quantile(&one.visible_us, f64::from(percent) / 100.0);
    let later = (51..=99)
        .filter(|percent| at(own, *percent) >= at(saturn, *percent) + commits_us(2))
        .count();
    let what = "remote visibility: percentiles from 51 to 99 at which Saturn is not later";
    let more =
        format!(" (p90 {:.1} and {:.1} ms)", ms(at(own, 90)), ms(at(saturn, 90) + commits_us(2)));
    Bar::at_most(what, (later as f64, 0.0), "").with(&more)
}

/// Of the pair of sites with the root on their way where it is the latest beside eventual's.
fn of_visibility(own: &Measured, eventual: &Measured) -> Option<Bar> {
    let layout = Layout::table_one(1);
    let way = |one: usize, other: usize| match one == other {
        true => 0,
        false => layout.delay_us[one][other],
    };
    let is_on_the_way = |(from, to): &(usize, usize)| {
        let over_us = way(*from, layout.root) + way(layout.root, *to);
        from != to && 100 * over_us <= (100 + DETOUR_PERCENT_MAX) * way(*from, *to)
    };
    let p90 = |one: &Measured, pair: (usize, usize)| {
        let of_pair = one.visible.iter().filter(|one| (one.from, one.at) == pair);
        let mut took: Vec<u64> = of_pair.map(|one| one.visible_us - one.issued_us).collect();
        took.sort_unstable();
        quantile(&took, 0.9)
    };
    let sites = 0..layout.sites();
    let pairs = sites.clone().flat_map(|from| sites.clone().map(move |to| (from, to)));
    let above = pairs.filter(is_on_the_way).map(|pair| {
        let (here, least) = (p90(own, pair), p90(eventual, pair) + commits_us(2));
        (here / least, here, least)
    });
    let known = above.filter(|(above, ..)| above.is_finite());
    let (above, here, least) = known.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let what = "remote visibility where the root is on the way, p90, the pair with the greatest excess: above eventual";
    let more = format!(" ({:.2} and {:.2} ms)", ms(here), ms(least));
    Some(Bar::at_most(what, (100.0 * (above - 1.0), 10.0), " %").with(&more))
}

/// A standby is to delay what becomes visible elsewhere by its round trip and its commit.
fn of_standby(standby: &Measured, own: &Measured) -> [Bar; 2] {
    let layout = Layout::table_one(1);
    let way_us = layout.delay_us[layout.root][beside_root(&layout)];
    let most = ms(2.0 * way_us as f64 + commits_us(1));
    [0.5, 0.9].map(|share| {
        let of = |one: &Measured| ms(quantile(&one.visible_us, share));
        let what = format!(
            "remote visibility with a standby, p{:.0}: above the same without one",
            100.0 * share
        );
        let more = format!(" ({:.1} and {:.1} ms)", of(standby), of(own));
        Bar::at_most(what, (of(standby) - of(own), most), " ms").with(&more)
    })
}

/// What all but one in a hundred moves take above the way to the site and back is to be at most a
/// round trip of it to the root, or the way from the site before over the root, and the commits of
/// the session's last write: its own, the root's, the importing site's.
fn of_moves(own: &Measured, eventual: &Measured) -> [Bar; 2] {
    let layout = Layout::table_one(1);
    let half = |one: &Measured| ms(quantile(&one.moves_us, 0.5));
    let above = half(own) - half(eventual);
    let more = format!(" ({:.2} and {:.2} ms)", half(own), half(eventual));
    let what = "moves, p50: above eventual";
    let of_half = Bar::at_most(what, (above, 1.0), " ms").with(&more);
    let root = layout.root;
    let is_in_time = |moved: &&Moved| {
        let Moved { home, from, to, took_us } = **moved;
        let way = |one: usize, other: usize| layout.delay_us[one][other];
        let there_us = 2 * layout.client_us(home, to) + layout.costs.attach_us as u64;
        let most_us = (2 * way(to, root)).max(way(from, root) + way(root, to));
        took_us <= there_us + most_us + commits_us(3) as u64
    };
    let late = own.moved.len() - own.moved.iter().filter(is_in_time).count();
    let percent = 100.0 * late as f64 / (own.moved.len() as f64).max(1.0);
    let p99 = ms(quantile(&own.moves_us, 0.99));
    let what = "moves that wait longer than a round trip to the root, or the way over it, and three commits";
    let more = format!(" ({late} of {}; p99 {p99:.1} ms)", own.moved.len());
    [of_half, Bar::at_most(what, (percent, 1.0), " %").with(&more)]
}

/// For how long no write gets a place in the order after the leader of the root's three nodes was
/// killed. Another site writes each millisecond.
///
/// # Panics
/// If the sites do not come up, or if a write that was acknowledged has no place in the end, has
/// two, or has one before an earlier write.
#[must_use]
pub fn resume(seed: u64) -> Duration {
    let settings = Settings { sync: (COMMIT, COMMIT), notes_order: true, ..Settings::default() };
    let mut sites: Sites = Sites::new(&[3, 1], settings, |_, _| Link::constant(5.0), seed);
    let keyspace = sites.make(KeyspaceSpec::causal_region("cars", "car:"));
    sites.lab.run(5_000 * MS);
    let write = |sites: &mut Sites, number: u64| {
        let body = put(keyspace, key("car:", number % 100), 1);
        let token = SessionToken::new(Bytes::new()).expect("it is short");
        sites.ask(1, Request { token: Some(token), ..Request::new(body) });
    };
    let (mut longest, mut last, mut count) = (Duration::ZERO, sites.lab.now(), 0);
    for number in 0..4_000 {
        if number == 1_000 {
            (longest, last) = (Duration::ZERO, sites.lab.now());
            let leader = sites.lab.leader(0).expect("the root has a leader");
            sites.lab.crash(leader, &Down::Killed);
        }
        write(&mut sites, number);
        sites.lab.run(MS);
        if sites.lab.ordered().len() > count {
            (count, longest) = (sites.lab.ordered().len(), longest.max(sites.lab.now() - last));
            last = sites.lab.now();
        }
    }
    longest = longest.max(sites.lab.now() - last);
    sites.lab.run(1_000 * MS);
    assert_eq!(sites.lab.failure, None);
    let written = std::mem::take(&mut sites.lab.answered).into_iter().filter_map(|answered| {
        let token = answered.token.filter(|_| answered.outcome.is_ok())?;
        CausalToken::decode(token.bytes())?.written
    });
    let acknowledged: BTreeSet<(SiteId, Revision)> = written.collect();
    let ordered = sites.lab.ordered().iter().map(|(_, site, write)| (*site, write.revision));
    let ordered: Vec<_> = ordered.filter(|one| acknowledged.contains(one)).collect();
    assert!(acknowledged.len() > 3_000, "{} writes are acknowledged", acknowledged.len());
    assert!(
        ordered.iter().eq(&acknowledged),
        "each has one place, in the order in which it was written"
    );
    longest
}

/// The paper's scenes with Portolan's own causal keys among the stores.
pub(super) fn shown(results: &Results, size: Size) -> Shown {
    let get = |scene, system| results.get(&Point { scene, system, size });
    let row = |name: &str, scene, of: Latencies, share: f64| {
        let cell = |system| {
            let found = get(scene, system).map(|one| ms(quantile(of(one), share)));
            found.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.2}"))
        };
        (format!("{name}, p{:.0}", 100.0 * share), BESIDE.map(cell).to_vec())
    };
    let at_home = Scene::Pattern(PATTERN);
    let kinds: [(&str, Scene, Latencies, &[f64]); 4] = [
        ("read", at_home, |one| &one.reads_us, &[0.5, 0.99]),
        ("write", at_home, |one| &one.writes_us, &[0.5, 0.99]),
        ("visible elsewhere", Scene::Free, |one| &one.visible_us, &[0.25, 0.5, 0.75, 0.9, 0.99]),
        ("move", Scene::Moves, |one| &one.moves_us, &[0.5, 0.9, 0.99]),
    ];
    let rows = kinds.into_iter().flat_map(|(name, scene, of, shares)| {
        shares.iter().map(move |share| row(name, scene, of, *share))
    });
    let line = |scene, of: Latencies| {
        move |system: System| {
            let values = get(scene, system).map_or(&[][..], of);
            (system.name().to_owned(), super::result::cumulative(values))
        }
    };
    let chart = |file: &str, title: &str, y, scene, of: Latencies| Chart {
        file: file.to_owned(),
        title: title.to_owned(),
        about: "Portolan's with commits, the models' without.".to_owned(),
        x: Across::Numbers("ms"),
        y,
        lines: BESIDE
            .into_iter()
            .filter(|system| get(scene, *system).is_some())
            .map(line(scene, of))
            .collect(),
    };
    Shown {
        number: NUMBER,
        title: "Portolan's own causal keys",
        about: "Milliseconds, in the scenes of figures 2, 5 and 7. Whole sites of one node, each commit 0.35 ms; the models \
                have no disks.",
        heads: BESIDE.map(|system| system.name().to_owned()).to_vec(),
        rows: rows.collect(),
        charts: vec![
            chart(
                "own-visibility",
                "Portolan: remote visibility",
                "% of remote writes",
                Scene::Free,
                |one| &one.visible_us,
            ),
            chart("own-moves", "Portolan: latency of moves", "% of moves", Scene::Moves, |one| {
                &one.moves_us
            }),
        ],
        findings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::points;
    use super::*;

    #[test]
    fn own_causal_keys_are_compared_with_the_models() {
        let points = points(&[NUMBER], Size::Quick);
        let results: Results = points.into_iter().map(|point| (point, point.run())).collect();
        let shown = shown(&results, Size::Quick);
        assert!(shown.rows.iter().all(|(_, cells)| !cells.iter().any(|cell| cell.contains("NaN"))));
        let bars = all(&results, Size::Quick, Some(resume(1)));
        assert_eq!(bars.len(), 4 + 2 + 2 + 2 + 1);
        // Others depend on fractions of a millisecond, and are for the report.
        let is_coarse = |bar: &&Bar| {
            ["local get", "moves that wait", "the leader"]
                .iter()
                .any(|what| bar.what.starts_with(what))
        };
        for bar in bars.iter().filter(is_coarse) {
            assert!(bar.met, "{bar:?}");
        }
    }
}
