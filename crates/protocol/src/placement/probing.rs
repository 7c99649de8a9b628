//! Which sites are asked only for the time that the answer takes.
//!
//! A site needs its latencies to all others, and requests measure most of those that matter: probes
//! fill the gaps (Portkey §4.1.1). Each window the k nearest sites are probed, as far as nothing
//! else has measured them in the window before. When these have moved, *all* are measured again, in
//! a full round: a latency has changed by more than a share (20 %) since the last full round, or of
//! two of them the farther one has become the nearer one by more than that share. By the paper any
//! change of the order counts; noise alone swaps sites that are about equally far, in every window.
//!
//! Sites that move together see nothing change among the nearest (§7). So each window also probes a
//! site at random, and one of those that are unknown, and there is a full round every so many
//! windows whatever was seen. A site whose last answer is unlike those before is probed each window
//! until it is known whether its way has changed.
//!
//! The time, what is known, and chance come in as values. Probes that are due leave in the order of
//! their urgency, as many as the caller takes, and one whose site was measured meanwhile does not
//! leave at all; another full round begins only when the last one has left.

use model::SiteId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// When what is measured. The defaults are the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The nearest sites, which are measured each window: 1 or more.
    pub nearest: usize,
    /// The change of a latency, as a share of it, that has all sites measured.
    pub change: f32,
    /// All sites are measured every so many windows.
    pub full_windows: u32,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { nearest: 5, change: 0.2, full_windows: 30 }
    }
}

/// What is known of the latency to a site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The latency in ms. `None`: the site has never answered.
    pub ms: Option<f32>,
    /// It was measured since the last window began.
    pub fresh: bool,
    /// Its last answer is unlike those before.
    pub doubtful: bool,
}

/// The probes of one site. See the module.
#[derive(Clone, Debug, Default)]
pub struct Prober {
    /// As of the last full round, and of sites that were unknown then, when they were measured
    /// first; ms.
    reference: BTreeMap<SiteId, f32>,
    due: VecDeque<SiteId>,
    /// A full round is under way: `due` has what is left of it.
    in_round: bool,
    windows_since_round: u32,
    has_begun: bool,
}

impl Prober {
    /// A window begins. `known`: all other sites. `random`: any number, another one each time.
    pub fn window(&mut self, rule: &Rule, known: &BTreeMap<SiteId, Measured>, random: u64) {
        self.due.retain(|site| known.contains_key(site));
        self.reference.retain(|site, _| known.contains_key(site));
        self.windows_since_round = self.windows_since_round.saturating_add(1);
        let nearest = nearest(&latencies(known).collect(), rule.nearest);
        if self.in_round && self.due.is_empty() {
            // What the round has measured is known by now.
            self.in_round = false;
            self.reference.clear();
        }
        if !self.in_round {
            for (site, ms) in latencies(known) {
                self.reference.entry(site).or_insert(ms);
            }
            let is_time = !self.has_begun || self.windows_since_round >= rule.full_windows;
            if is_time || self.have_moved(rule, known) {
                self.due = stale(known).collect();
                (self.in_round, self.has_begun, self.windows_since_round) = (true, true, 0);
            } else {
                self.due = drawn(known, &nearest, random).into_iter().flatten().collect();
            }
        }
        let doubtful = known.iter().filter(|(_, one)| one.doubtful).map(|(site, _)| *site);
        let asked = doubtful.chain(nearest.into_iter().rev());
        for site in asked.filter(|site| !known[site].fresh) {
            self.due.retain(|due| *due != site);
            self.due.push_front(site);
        }
    }

    /// The sites to probe now, at most `most`. `is_fresh`: measured since the window began.
    pub fn take(&mut self, most: usize, is_fresh: impl Fn(SiteId) -> bool) -> Vec<SiteId> {
        let due = std::iter::from_fn(|| self.due.pop_front());
        due.filter(|site| !is_fresh(*site)).take(most).collect()
    }

    /// Whether the nearest sites, of now or of the last full round, are not where they were then.
    fn have_moved(&self, rule: &Rule, known: &BTreeMap<SiteId, Measured>) -> bool {
        let now: BTreeMap<SiteId, f32> = latencies(known).collect();
        let near: BTreeSet<SiteId> =
            [&now, &self.reference].iter().flat_map(|ms| nearest(ms, rule.nearest)).collect();
        let each =
            near.iter().filter_map(|site| Some((*self.reference.get(site)?, *now.get(site)?)));
        let each: Vec<(f32, f32)> = each.collect();
        let has_changed = |(then, now): &(f32, f32)| (now - then).abs() > rule.change * then;
        let is_passed = |(then, now): &(f32, f32)| {
            let is_nearer =
                |(then_b, now_b): &(f32, f32)| then <= then_b && *now > now_b * (1.0 + rule.change);
            each.iter().any(is_nearer)
        };
        each.iter().any(|one| has_changed(one) || is_passed(one))
    }
}

fn latencies(known: &BTreeMap<SiteId, Measured>) -> impl Iterator<Item = (SiteId, f32)> + '_ {
    known.iter().filter_map(|(site, one)| Some((*site, one.ms?)))
}

fn stale(known: &BTreeMap<SiteId, Measured>) -> impl Iterator<Item = SiteId> + '_ {
    known.iter().filter(|(_, one)| !one.fresh).map(|(site, _)| *site)
}

/// A site that was measured before and is not among the nearest, and one that was never measured.
fn drawn(
    known: &BTreeMap<SiteId, Measured>,
    nearest: &[SiteId],
    random: u64,
) -> [Option<SiteId>; 2] {
    [true, false].map(|is_known| {
        let is_one =
            |site: &SiteId| known[site].ms.is_some() == is_known && !nearest.contains(site);
        let sites = || stale(known).filter(is_one);
        let count = sites().count() as u64;
        sites().nth((random % count.max(1)) as usize)
    })
}

/// The k nearest, the nearest first.
fn nearest(ms: &BTreeMap<SiteId, f32>, k: usize) -> Vec<SiteId> {
    let mut sites: Vec<(SiteId, f32)> = ms.iter().map(|(site, ms)| (*site, *ms)).collect();
    sites.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    sites.into_iter().take(k).map(|(site, _)| site).collect()
}
