//! Slots that are not at home: their holder registers them, so that a lookup on the ring finds
//! them.
//!
//! A lookup ends at the ring's successor of a slot ([`Homes::registrar`]), which redirects to the
//! slot's home, unless another holder is registered. The holder of a slot that an operator has
//! moved registers it there, when that changes and now and then: a message may be lost, and the
//! registrar of a slot changes with the registry. A slot that is not registered yet is found by
//! asking one site after the other.
//!
//! [`Homes::registrar`]: crate::global::homes::Homes::registrar

use super::Site;
use super::machine::tokens::Token;
use crate::global::routing::Target;
use crate::site::Origin;
use model::{Body, Command, Epoch, SiteId, Slot, SlotEpochs};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How often slots are registered again.
const TELL_AGAIN: Duration = Duration::from_secs(30);
/// How long it is tried.
const DEADLINE: Duration = Duration::from_secs(10);

/// The slots that this leader has registered, by registrar.
#[derive(Debug, Default)]
pub(super) struct Registering {
    told: BTreeMap<SiteId, SlotEpochs>,
    again: Duration,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Registers the slots that are here although their home is elsewhere.
    pub(super) fn register_slots(&mut self) {
        if !self.leads() {
            self.registering = Registering::default();
            return;
        }
        let Some(member) = self.machine.membership() else { return };
        let own = member.own;
        let mut away: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
        for slot in self.machine.pinned().iter() {
            if let Token::Held(epoch) = self.machine.token(slot)
                && self.homes.of(slot) != Some(own)
                && let Some(registrar) = self.homes.registrar(slot).filter(|site| *site != own)
            {
                away.entry(registrar).or_default().push((slot, epoch));
            }
        }
        let now = self.now.monotonic;
        let again = self.registering.again <= now;
        let mut told = BTreeMap::new();
        for (registrar, slots) in away {
            let slots = SlotEpochs::gather(slots);
            if again || self.registering.told.get(&registrar) != Some(&slots) {
                let command = Command::Register { holder: own, slots: slots.clone() };
                let target = Target::Site(registrar);
                self.route(Origin::Nobody, Body::Write(command), target, now + DEADLINE);
            }
            told.insert(registrar, slots);
        }
        if again {
            self.registering.again = now + TELL_AGAIN;
        }
        self.registering.told = told;
    }
}
