//! Slots that would be better at another site: advice, where keyspaces ask for it.
//!
//! Nothing moves. Instead an imagined owner of each slot is kept, as if the advice had been
//! followed: the ledger states what that would have cost and saved, and the next decision starts
//! from there.

use super::sites::{Picture, Sites};
use super::{KEY_BYTES, OPERATIONS_MAX, STABILITY, WINDOW, reason, shown, us};
use crate::job::View;
use crate::placement::explain::Why;
use crate::placement::ledger::Ledger;
use crate::placement::plan::{self, Limits};
use crate::placement::stability::Regrets;
use crate::placement::{Assignment, Explanation, Groups, plan as planned};
use crate::site::counting::Users;
use model::{
    AdvisedMove, PlacementExplained, PlacementReason, PlacementWindow, Registry, SiteId, Slot,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::State;

/// The moves of one window: in number, and in bytes.
const BUDGET: (u64, u64) = (64, 64 << 20);

/// An imagined owner.
#[derive(Clone, Copy, Debug)]
struct Advised {
    to: SiteId,
    since: Duration,
    gain_ms_per_s: f32,
    bytes: u32,
}

/// What is advised of slots. See the module.
#[derive(Debug, Default)]
pub(super) struct Advice {
    window_began: Duration,
    advised: BTreeMap<u16, Advised>,
    /// By slot.
    regrets: Option<Regrets>,
    ledger: Ledger,
}

impl Advice {
    /// Begins anew.
    pub(super) fn begin(&mut self, now: Duration) {
        *self = Advice { window_began: now, ..Advice::default() };
    }

    pub(super) fn len(&self) -> usize {
        self.advised.len()
    }

    /// Everything as it is. `imagined`: as if all advice had been followed.
    fn picture<S: State>(
        &self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        (sites, users): (&Sites, &BTreeMap<u16, Users>),
        imagined: bool,
    ) -> Option<Picture> {
        let at = sites.place(own)?;
        let rules = sites.rules(registry, &view.failure_detector.lost(view.now));
        let keys = view.machine.keys_by_slot();
        let mut groups = Groups::new(sites.len(), sites.len());
        let none = BTreeMap::new();
        for slot in Slot::all() {
            let users = users.get(&slot.number()).filter(|_| view.machine.serves(slot));
            let advised = self.advised.get(&slot.number()).filter(|_| imagined);
            let owner = advised.and_then(|advice| sites.place(advice.to)).unwrap_or(at);
            let bytes = users.map_or(0, |users| {
                let keys = keys.get(&slot).copied().unwrap_or_default();
                keys * users.mean_bytes().unwrap_or(KEY_BYTES)
            });
            let rates = users.map_or(&none, |users| &users.rates);
            groups.push(owner, u32::try_from(bytes).unwrap_or(u32::MAX), sites.accesses(rates));
        }
        Some(sites.picture(own, rules, groups))
    }

    pub(super) fn decide<S: State>(
        &mut self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        seen: (&Sites, &BTreeMap<u16, Users>),
        elapsed: Duration,
    ) {
        // What has moved, by an operator perhaps, is for its next owner to advise.
        let serves = |slot: &u16| Slot::new(*slot).is_some_and(|slot| view.machine.serves(slot));
        self.advised.retain(|slot, _| serves(slot));
        let Some(mut picture) = self.picture(view, (own, registry), seen, true) else { return };
        let count = picture.groups.len();
        let mut regrets = self.regrets.take().unwrap_or_else(|| Regrets::new(count));
        let moves = {
            let (solver, groups) = (picture.solver(), &picture.groups);
            let solution = solver.solve(groups, OPERATIONS_MAX);
            let elapsed_s = elapsed.as_secs_f32();
            let ready = regrets.ready(&picture.stability, &solver, groups, &solution, elapsed_s);
            let wanted = Assignment::of_ready(groups, &solution, &ready);
            let spent = self.ledger.current();
            let limits = Limits {
                moves_max: BUDGET.0.saturating_sub(spent.moves) as usize,
                bytes_max: BUDGET.1.saturating_sub(spent.bytes),
                site_bytes_max: BUDGET.1,
            };
            planned(&plan::moves(&solver, groups, &wanted), groups, None, limits).moves
        };
        for one in &moves {
            let group = one.group as usize;
            let rate = picture.groups.accesses(group).rate();
            let from = picture.groups.owner(group);
            let pause_ms = STABILITY.pause_ms(picture.latencies.mean(), from, one.to);
            self.ledger.moved(one, f64::from(STABILITY.cost_of_move_ms(rate, 0, pause_ms)));
            regrets.moved(&STABILITY, group);
            picture.groups.set_owner(group, one.to);
            let slot = one.group as u16;
            match seen.0.site(one.to) {
                to if to == own => drop(self.advised.remove(&slot)),
                to => {
                    let (bytes, since) = (one.bytes, view.now);
                    let advice = Advised { to, since, gain_ms_per_s: one.gain, bytes };
                    self.advised.insert(slot, advice);
                }
            }
        }
        self.regrets = Some(regrets);
        self.account(view.now, (own, seen.0), &picture);
    }

    /// What the advice is worth now; and the window's account, when it ends.
    fn account(&mut self, now: Duration, (own, sites): (SiteId, &Sites), picture: &Picture) {
        let (solver, groups) = (picture.solver(), &picture.groups);
        let Some(at) = sites.place(own) else { return };
        for (slot, advice) in &mut self.advised {
            let group = usize::from(*slot);
            let there = solver.cost(groups, group, groups.owner(group));
            let gain = solver.cost(groups, group, at) - there;
            advice.gain_ms_per_s = if gain.is_finite() { gain } else { 0.0 };
            advice.bytes = groups.bytes(group);
        }
        let elapsed = now.saturating_sub(self.window_began);
        if elapsed >= WINDOW {
            self.ledger.close(&solver, groups, elapsed.as_secs_f64());
            self.window_began = now;
        }
    }

    /// Where a slot is and could be; accesses of a key's group are left to the caller.
    pub(super) fn explain<S: State>(
        &mut self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        seen: (&Sites, &BTreeMap<u16, Users>),
        slot: Slot,
    ) -> Option<PlacementExplained> {
        let picture = self.picture(view, (own, registry), seen, false)?;
        let (solver, groups) = (picture.solver(), &picture.groups);
        let group = usize::from(slot.number());
        let regrets = self.regrets.take().unwrap_or_else(|| Regrets::new(groups.len()));
        let explanation = regrets.explain(&picture.stability, &solver, groups, group);
        self.regrets = Some(regrets);
        let why = self.reason(slot, seen.0, &explanation);
        Some(shown((own, seen.0), slot, explanation, why))
    }

    fn reason(&self, slot: Slot, sites: &Sites, explanation: &Explanation) -> PlacementReason {
        if let Some(advice) = self.advised.get(&slot.number())
            && let Some(place) = sites.place(advice.to)
        {
            let mean = |place| {
                let candidates = &explanation.candidates;
                candidates.iter().find(|one| one.site == place).and_then(|one| one.mean_ms)
            };
            let gain = mean(explanation.owner).zip(mean(place)).map_or(0.0, |(a, b)| a - b);
            return PlacementReason::Advised { to: advice.to, gain_us: us(gain) };
        }
        match explanation.why {
            // It is advised with the next decision.
            Why::Moves { to, gain_ms } => {
                PlacementReason::Waits { to: sites.site(to), gain_us: us(gain_ms) }
            }
            why => reason(sites, why),
        }
    }

    pub(super) fn report(
        &self,
        now: Duration,
        own: SiteId,
    ) -> (Vec<AdvisedMove>, Vec<PlacementWindow>) {
        let advised = self.advised.iter().filter_map(|(slot, advice)| {
            Some(AdvisedMove {
                slot: Slot::new(*slot)?,
                from: own,
                to: advice.to,
                gain_us_per_s: us(advice.gain_ms_per_s),
                bytes: u64::from(advice.bytes),
                for_ms: now.saturating_sub(advice.since).as_millis() as u64,
            })
        });
        let mut advised: Vec<AdvisedMove> = advised.collect();
        advised.sort_by_key(|one| (std::cmp::Reverse(one.gain_us_per_s), one.slot));
        (advised, super::windows(&self.ledger))
    }
}

/// The sites of the users of slots.
pub(super) fn origins(users: &BTreeMap<u16, Users>) -> BTreeSet<SiteId> {
    users.values().flat_map(|users| users.rates.keys().copied()).collect()
}
