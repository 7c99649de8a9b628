//! Slots that are not at their preferred owner: their owner registers them, so that a lookup on the
//! ring finds them.
//!
//! A lookup ends at the ring's successor of a slot ([`PreferredOwners::registrar`]), which
//! redirects to the slot's preferred owner, unless another owner is registered. The owner of a slot
//! that an operator has moved registers it there, when that changes and now and then: a message may
//! be lost, and the registrar of a slot changes with the registry. A slot that is not registered
//! yet is found by asking one site after the other.
//!
//! [`PreferredOwners::registrar`]: crate::global::preferred_owners::PreferredOwners::registrar

use super::machine::global::tokens::Token;
use crate::job::{Effect, Job, View};
use model::{Command, Epoch, GlobalCommand, SiteId, Slot, SlotEpochs};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;

/// How often slots are registered again.
const REPORT_AGAIN: Duration = Duration::from_secs(30);
/// How long it is tried.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The slots that this leader has registered, by registrar.
#[derive(Debug, Default)]
pub(super) struct Registering {
    reported: BTreeMap<SiteId, SlotEpochs>,
    again: Duration,
}

impl<S: State> Job<S> for Registering {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(member) = view.machine.membership() else { return effects };
        let own = member.own;
        let mut away: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
        for slot in view.machine.pinned().iter() {
            if let Token::Held(epoch) = view.machine.token(slot)
                && view.preferred_owners.of(slot) != Some(own)
                && let Some(registrar) =
                    view.preferred_owners.registrar(slot).filter(|site| *site != own)
            {
                away.entry(registrar).or_default().push((slot, epoch));
            }
        }
        let again = self.again <= view.now;
        let mut reported = BTreeMap::new();
        for (registrar, slots) in away {
            let slots = SlotEpochs::gather(slots);
            if again || self.reported.get(&registrar) != Some(&slots) {
                let command =
                    Command::Global(GlobalCommand::Register { owner: own, slots: slots.clone() });
                effects.push(Effect::Ask { id: None, to: registrar, command, timeout: TIMEOUT });
            }
            reported.insert(registrar, slots);
        }
        if again {
            self.again = view.now + REPORT_AGAIN;
        }
        self.reported = reported;
        effects
    }

    fn stop(&mut self) -> Vec<Effect> {
        *self = Registering::default();
        Vec::new()
    }
}
