//! What a request on its way has to do with copies of remote keys ([`crate::global::cache`]).

use super::{At, Routing};
use crate::global::cache::{Asked, Copies, Validator};
use crate::origin::Origin;
use model::Body;
use wire::inter_site;

impl Routing {
    /// What a request asks.
    pub(crate) fn body(&self, id: u64) -> Option<&Body> {
        self.routed.get(&id).map(|one| &one.body)
    }

    /// The same, by the number that it has at another site.
    pub(crate) fn body_there(&self, wire_id: u64) -> Option<&Body> {
        self.body(self.id_here(wire_id))
    }

    /// A request leaves for the owner of a key that may be copied: which question it is, and since
    /// when, if it did not leave before. Whether it asks anew.
    pub(crate) fn asks(&mut self, id: u64, asked: Asked) -> bool {
        let Some(one) = self.routed.get_mut(&id) else { return false };
        // What is answered may be the answer to the first time.
        one.asked.get_or_insert(asked).anew
    }

    /// Which question a request is that was sent to another site.
    pub(crate) fn asked_there(&self, wire_id: u64) -> Option<&Asked> {
        let one = self.routed.get(&self.id_here(wire_id))?;
        one.asked.as_ref().filter(|_| matches!(one.at, At::Sent(..)))
    }

    /// Its owner confirmed a copy that is not here any more: now for the value.
    pub(crate) fn ask_anew(&mut self, wire_id: u64) {
        let id = self.id_here(wire_id);
        let Some(one) = self.routed.get_mut(&id) else { return };
        if let (Some(asked), At::Sent(..)) = (&mut one.asked, one.at) {
            asked.anew = true;
            one.at = At::Due;
            self.due.push(id);
        }
    }

    /// A request of another site was taken in just now, with the validator of its node's copy of
    /// the key, if it keeps copies.
    pub(crate) fn note_requester(&mut self, origin: Origin, known: Option<inter_site::Validator>) {
        let last = self.routed.get_mut(&self.last_id).filter(|one| one.origin == origin);
        if let (Some(one), Some(known)) = (last, known) {
            one.copies = Copies::Cached(Validator::from_wire(known));
        }
    }

    /// Whether the node of another site that asks a request keeps copies.
    pub(crate) fn copies(&self, id: u64) -> Copies {
        self.routed.get(&id).map_or(Copies::None, |one| one.copies)
    }

    /// A request ends here, and is answered in its own way.
    pub(crate) fn release(&mut self, id: u64) -> Option<Origin> {
        self.routed.remove(&id).map(|one| one.origin)
    }
}
