//! Operators' orders to hand slots over, and whether the answers to them are about all slots that
//! were asked for: a site that holds one of them all the time does not answer without naming it.

use super::{NodeIndex, Simulation};
use model::{
    Answer, Body, ClientId, Command, Epoch, Failure, GlobalCommand, Ordered, Request, RequestId,
    SiteId, Slot, SlotSet, SourceStep,
};
use protocol::site::Ticket;

/// How long an answer is waited for.
const TIMEOUT_MS: u64 = 5_000;

/// An order that one site was asked to carry out.
#[derive(Debug)]
pub(super) struct Asked {
    site: usize,
    id: SiteId,
    /// What it held of the slots when it was asked.
    held: Vec<(Slot, Epoch)>,
}

/// What an operator orders.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Under which number: the same one, whomever it is asked by way of.
    pub operator: u64,
    /// What is to move.
    pub slots: SlotSet,
    /// Where to.
    pub to: SiteId,
}

impl<C> Simulation<C> {
    /// Asks a site, by way of a node of any site, for what it holds of some slots.
    pub fn ask_order(&mut self, node: NodeIndex, site: usize, wanted: &Wanted) {
        let Some(id) = self.sites[site].id else { return };
        let Wanted { operator, slots, to } = wanted.clone();
        let held = self.held_of(site, slots.iter());
        let number = RequestId { client: ClientId(operator), sequence: 1, acknowledged_below: 0 };
        let step = SourceStep::Order { id: number, slots, to };
        let command = Box::new(Command::Global(GlobalCommand::Source { number: 0, step }));
        let body = Body::AtSite { site: id, command };
        let request = Request { deadline_ms: Some(TIMEOUT_MS), ..Request::new(body) };
        let Some(ticket) = self.announce(node) else { return };
        self.orders.insert(ticket, Asked { site, id, held });
        self.take_or_wait(node, ticket, request);
    }

    fn held_of(&self, site: usize, slots: impl Iterator<Item = Slot>) -> Vec<(Slot, Epoch)> {
        let Some(leader) = self.leader(site) else { return Vec::new() };
        slots.filter_map(|slot| Some((slot, self.serves(leader, slot)?))).collect()
    }

    /// Looks at an answer, if it is one to an order.
    pub(super) fn judge_order(&mut self, ticket: Ticket, outcome: &Result<Answer, Failure>) {
        let Some(asked) = self.orders.remove(&ticket) else { return };
        let Ok(Answer::Ordered(ordered)) = outcome else { return };
        if self.sites[asked.site].id != Some(asked.id) {
            return;
        }
        let unsaid = asked.held.iter().filter(|(slot, _)| !is_about(ordered, *slot));
        // An epoch that is still the same has been the same all the time.
        let unsaid: Vec<(Slot, Epoch)> = unsaid.copied().collect();
        let still = self.held_of(asked.site, unsaid.iter().map(|(slot, _)| *slot));
        if let Some((slot, _)) = unsaid.into_iter().find(|one| still.contains(one)) {
            let name = self.label(asked.site);
            let what = format!(
                "{name} held slot {slot} all the time, and an order to move it was answered for {name} \
                 without a message of it"
            );
            self.failure.get_or_insert(what);
        }
    }
}

fn is_about(ordered: &Ordered, slot: Slot) -> bool {
    ordered.moves.iter().any(|one| one.slots.contains(slot))
        || ordered.holdings.iter().any(|one| one.slots.contains(slot))
}
