//! States that come to the same, brought into one form.
//!
//! What is cleared here can no longer matter, whatever comes next: a state and its form offer the
//! same steps and have the same faults, apart from steps that change nothing but what is cleared.
//! That is checked, too: a search without forms comes to the same states, each brought into its
//! form (`forms_leave_no_state_out`).

use super::scene::{Copied, Scene, Site, bit, has, place};
use model::{Ballot, DecidedFailover, Epoch, SiteId};
use protocol::global::ownership::trial::{Bug, Planted};
use protocol::global::ownership::{Holding, Token};
use std::rc::Rc;

impl Scene {
    /// `recoveries`: how many there may be.
    pub(crate) fn settle(&mut self, planted: Planted, recoveries: u8) {
        self.settle_left();
        self.settle_installs();
        self.settle_decisions();
        self.settle_ended();
        self.settle_copies(recoveries);
        self.settle_truth();
        let forgets = planted.is(Bug::ForgottenOnReturn) || planted.is(Bug::ForgottenOnceTaken);
        // A recovery goes on from what a site has, and compares versions.
        let is_plain = recoveries == 0;
        if is_plain && !forgets && !planted.is(Bug::MirrorDropped) {
            self.settle_versions();
        }
        let global = &mut self.global;
        if !planted.is(Bug::LateFence) {
            global.late = 0;
        }
        if !planted.is(Bug::SafeWithoutGeneration)
            && global.removals == 0
            && let Some(safe) = &mut global.safe
        {
            safe.named = 0;
        }
        // It is asked for without what is named as lost.
        global.acknowledged &= !global.named_lost;
    }

    /// A site that has left takes no step, and no other one looks at it.
    fn settle_left(&mut self) {
        let left = self.global.chain.registry.left;
        for (at, site) in self.sites.iter_mut().enumerate().filter(|(at, _)| has(left, *at)) {
            let version = Ballot::FIRST;
            let decided = Vec::new();
            let registry = Copied { version, open: None, backup: at as u8, left: 0, decided };
            let registry = Rc::new(registry);
            let holding = Holding::default();
            let (generation, former) = (0, None);
            let (records, copied) = (0, 0);
            let (stuck, kept) = (None, Rc::default());
            *site = Site { registry, holding, records, copied, generation, former, stuck, kept };
        }
    }

    /// An install is refused for good where a later epoch is known: tokens never decrease.
    fn settle_installs(&mut self) {
        let (sites, left) = (&self.sites, self.global.chain.registry.left);
        self.installs.retain(|install| {
            let (from, to) = (usize::from(install.from), usize::from(install.to));
            !has(left, from) && !has(left, to) && install.epoch > sites[to].holding.token.epoch()
        });
    }

    /// Of a decision, what it fenced and what opened it is of no use any more; and once the taker
    /// has it, neither is what that goes on from. So it is wherever there is a list of them.
    fn settle_decisions(&mut self) {
        let left = self.global.chain.registry.left;
        let epochs: Vec<Epoch> = self.sites.iter().map(|site| site.holding.token.epoch()).collect();
        let is_taken = |by: SiteId, decided: Ballot| {
            has(left, place(by)) || epochs[place(by)] >= Epoch::of_failover(decided)
        };
        let removes = self.global.removes;
        let settled = |decisions: &[DecidedFailover]| {
            let mut settled = decisions.to_vec();
            for one in &mut settled {
                // While the site counts as lost it matters whether there were any.
                if one.returned || !removes {
                    one.without.clear();
                }
                one.opened = Ballot::FIRST;
                for taken in &mut one.taken {
                    if is_taken(taken.by, one.decided) {
                        taken.from = None;
                    }
                }
            }
            (settled != decisions).then_some(settled)
        };
        if let Some(decided) = settled(&self.global.chain.registry.failovers.decided) {
            Rc::make_mut(&mut self.global.chain.registry).failovers.decided = decided;
        }
        if let Some(ended) = &mut self.global.ended
            && let Some(decided) = settled(&ended.0.registry.failovers.decided)
        {
            Rc::make_mut(&mut Rc::make_mut(ended).0.registry).failovers.decided = decided;
        }
        for site in &mut self.sites {
            if let Some(decided) = settled(&site.registry.decided) {
                Rc::make_mut(&mut site.registry).decided = decided;
            }
            if let Some(kept) = settled(&site.kept) {
                site.kept = Rc::new(kept);
            }
        }
    }

    /// Decisions in a site's copy are of use if a recovery may go on from it, or the site hands
    /// them in.
    fn settle_copies(&mut self, recoveries: u8) {
        let is_due = self.global.recoveries < recoveries;
        let removes = self.global.removes;
        for at in 0..self.sites.len() {
            let decided = &self.sites[at].registry.decided;
            let parts = removes && decided.iter().any(|one| !one.returned);
            let is_of_use = is_due || self.is_behind(at) || parts;
            if !is_of_use && !self.sites[at].registry.decided.is_empty() {
                Rc::make_mut(&mut self.sites[at].registry).decided.clear();
            }
        }
    }

    /// A term that no site is in any more is over.
    fn settle_ended(&mut self) {
        if self.global.ended.is_some() && !(0..self.sites.len()).any(|at| self.is_behind(at)) {
            self.global.ended = None;
        }
    }

    /// The last decision of a term matters while a site is a stale owner by it, or its taker has
    /// not got it.
    fn settle_truth(&mut self) {
        let registries = self.global.ended.iter().map(|ended| &ended.0.registry);
        let known = registries
            .chain([&self.global.chain.registry])
            .flat_map(|registry| &registry.failovers.decided)
            .chain(self.sites.iter().flat_map(|site| site.kept.iter()))
            .chain(self.sites.iter().flat_map(|site| &site.registry.decided));
        let known: Vec<_> = known
            .filter_map(|one| one.taken.first().map(|taken| (one.decided, place(taken.by))))
            .collect();
        self.global.truth = self.global.truth.map(|truth| {
            let (decided, fenced, had) = truth?;
            let epoch = Epoch::of_failover(decided);
            let waits =
                |at: usize| self.is_there(at) && self.sites[at].holding.token.epoch() < epoch;
            let stale = (0..self.sites.len())
                .filter(|at| self.is_there(*at) && self.is_stale(*at))
                .fold(0, |stale, at| stale | bit(at));
            let is_awaited = known.iter().any(|(one, by)| *one == decided && waits(*by));
            let (fenced, had) = (fenced & stale, if is_awaited { had } else { 0 });
            let is_over = fenced == 0 && had == 0 && !(0..self.sites.len()).any(waits);
            (!is_over).then_some((decided, fenced, had))
        });
    }

    /// A site that would learn nothing from the registry but its version has that. Of an earlier
    /// version it matters only which of those it has passed that it is still compared with.
    fn settle_versions(&mut self) {
        let registry = self.global.chain.registry.clone();
        let there = || (0..self.sites.len()).filter(|at| !has(registry.left, *at));
        // Others must have as late a version for what is frozen to be served again.
        let is_stuck = |site: &Site| matches!(site.holding.token, Token::Frozen { to, .. } if has(site.registry.left, place(to)));
        let mut compared: Vec<Ballot> = there()
            .map(|at| &self.sites[at])
            .filter(|site| is_stuck(site))
            .map(|site| site.registry.version)
            .collect();
        compared.extend(registry.failovers.open.iter().map(|open| open.opened));
        compared.extend(registry.failovers.decided.iter().map(|one| one.decided));
        compared.extend(self.global.truth.iter().flatten().map(|(decided, ..)| *decided));
        for at in there().collect::<Vec<_>>() {
            let site = &self.sites[at];
            let version = site.registry.version;
            if version == registry.version || is_stuck(site) {
                continue;
            }
            let is_same = site.registry.open == registry.failovers.open
                && site.registry.backup == registry.backups[at]
                && site.registry.left == registry.left;
            let is_behind = registry.failovers.decided.iter().any(|one| one.decided > version);
            let away = |decided: &[DecidedFailover]| {
                let lost = decided.iter().filter(|one| !one.returned).map(|one| place(one.lost));
                lost.fold(0, |away, at| away | bit(at))
            };
            let is_parted_alike = !self.global.removes
                || away(&site.registry.decided) == away(&registry.failovers.decided);
            if is_same && !is_behind && is_parted_alike {
                self.sites[at].registry = registry.of(at);
                continue;
            }
            let passed = compared.iter().copied().filter(|one| *one <= version).max();
            let version = passed.unwrap_or(Ballot::FIRST);
            if version != site.registry.version {
                Rc::make_mut(&mut self.sites[at].registry).version = version;
            }
        }
    }
}
