//! Slots go to where they belong.
//!
//! A slot belongs to its preferred owner ([`crate::global::preferred_owners`]) unless an operator
//! has moved it. A site that is to leave hands all of its slots over, to where they would be
//! without it; what it does then is the next job ([`super::leaving`]). This job begins handovers,
//! and [`crate::global::handover`] carries them out.

use super::machine::Machine;
use super::machine::global::tokens::Token;
use crate::job::{Effect, Job, View};
use model::{Ballot, Command, GlobalCommand, SiteId, Slot, SlotRun, SourceStep, limits};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::State;

/// Moves that a site begins by itself at once.
const OWN_MOVES_MAX: usize = 4;

/// What is known of the slots' balance.
#[derive(Debug, Default)]
pub(super) struct Balancing {
    /// The version of the registry by which nothing is to be handed over; `None`: tokens have
    /// changed since.
    balanced: Option<Ballot>,
}

impl Balancing {
    /// Tokens changed hands.
    pub(super) fn wake(&mut self) {
        self.balanced = None;
    }
}

impl<S: State> Job<S> for Balancing {
    /// Begins to hand over what does not belong here. A preferred owner that cannot be reached is
    /// waited for; a site that leaves waits for none, and hands its slots to where they would be
    /// without such sites.
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let (machine, mut effects) = (view.machine, Vec::new());
        let Some(member) = machine.membership() else { return effects };
        if view.disk_is_full || member.registry.sites.len() < 2 {
            return effects;
        }
        let own = member.own;
        let Some(entry) = member.registry.site(own) else { return effects };
        let leaving = entry.leaving;
        let version = member.registry.version;
        if !leaving && self.balanced == Some(version) {
            return effects;
        }
        let lost = view.failure_detector.lost(view.now);
        let mut waits = false;
        let mut to_give: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
        for (run, token) in machine.tokens(std::iter::once(SlotRun::ALL)) {
            if !matches!(token, Token::Held(_)) {
                continue;
            }
            for slot in run.slots() {
                if !leaving && machine.pinned().contains(slot) {
                    continue;
                }
                let preferred = match leaving {
                    true => view.preferred_owners.without(slot, &lost),
                    false => view.preferred_owners.of(slot),
                };
                let Some(preferred) = preferred.filter(|preferred| *preferred != own) else {
                    continue;
                };
                match lost.contains(&preferred) {
                    true => waits = true,
                    false => to_give.entry(preferred).or_default().push(slot),
                }
            }
        }
        if to_give.is_empty() && !waits {
            self.balanced = Some(version);
        }
        if leaving {
            effects.extend(abort_moves_to(machine, &lost));
        }
        let mut room = OWN_MOVES_MAX.saturating_sub(machine.outgoing().len());
        for (to, slots) in to_give {
            for some in slots.chunks(limits::SLOTS_PER_MOVE_MAX) {
                if room == 0 {
                    return effects;
                }
                room -= 1;
                let slots = some.iter().copied().collect();
                let step = SourceStep::Begin { slots, to, pinned: false };
                effects.push(Effect::Propose(Command::Global(GlobalCommand::Source {
                    number: 0,
                    step,
                })));
            }
        }
        effects
    }
}

/// Ends the moves to these sites that nothing was sent for which could be installed.
fn abort_moves_to<S: State>(machine: &Machine<S>, lost: &BTreeSet<SiteId>) -> Vec<Effect> {
    let outgoing = machine.outgoing().iter();
    let begun = outgoing.filter(|(_, one)| one.frozen.is_none() && lost.contains(&one.to));
    let step = || SourceStep::Abort { refused: false };
    let abort = |(number, _): (&u64, _)| {
        Effect::Propose(Command::Global(GlobalCommand::Source { number: *number, step: step() }))
    };
    begun.map(abort).collect()
}
