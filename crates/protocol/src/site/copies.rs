//! Copies of keys that other sites hold ([`crate::global::cache`]): this node's, and the validators
//! that it sends to the nodes of other sites for the keys that are here.

use super::machine::global::tokens::Token;
use super::{Origin, Site};
use crate::bugs::Bug;
use crate::global::cache::{Asked, Cache, Copies, Validator, copied_key};
use crate::replica::reads::WaitingRead;
use model::{
    Answer, Body, Bytes, Command, Failure, Query, ReadConsistency, SessionToken, Slot, SlotEpochs,
    Write,
};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::inter_site::{self, InterSiteAnswer, put_failover};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    // ---- at the node that asks ------------------------------------------------------------------

    /// Answers a read that may be stale from a young copy, if its key is elsewhere.
    pub(super) fn answer_from_copy(&mut self, origin: Origin, body: &Body) -> bool {
        let Body::Read { keyspace, query, consistency } = body else { return false };
        // A copy does not show whether it has what the session has seen.
        if !matches!(origin, Origin::Client { .. }) || self.sessions.asked(origin).is_some() {
            return false;
        }
        let Some(place) = self.global.cache.place(*keyspace, query) else { return false };
        if copied_key(query).is_none_or(|key| self.machine.serves(Slot::of_key(key))) {
            return false;
        }
        let answer = match consistency {
            ReadConsistency::Stale => self.global.cache.stale(&place, self.now.monotonic),
            ReadConsistency::Linearizable if self.options.planted.is(Bug::TrustCopies) => {
                self.global.cache.trusted(&place)
            }
            ReadConsistency::Linearizable | ReadConsistency::Backup => None,
        };
        let is_answered = answer.is_some();
        self.settle(answer.map(|answer| (origin, Ok(answer))).into_iter().collect());
        is_answered
    }

    /// What goes along with a request to another site: the validator of this node's copy of its
    /// key, if that may be copied.
    pub(super) fn known_copy(&mut self, id: u64) -> Option<inter_site::Validator> {
        if !matches!(self.global.routing.origin(id)?, Origin::Client { .. }) {
            return None;
        }
        let Body::Read { keyspace, query, .. } = self.global.routing.body(id)? else { return None };
        let place = self.global.cache.place(*keyspace, query)?;
        let known = self.global.cache.known(&place).map(Validator::to_wire);
        let turn = self.global.cache.turn();
        let asked = Asked { place, since: self.now.monotonic, turn, anew: false };
        let anew = self.global.routing.asks(id, asked);
        Some(known.filter(|_| !anew).unwrap_or_default())
    }

    /// What another site's answer comes to; `None`: it cannot be read, or is asked for again.
    pub(super) fn inter_site_outcome(
        &mut self,
        answer: &InterSiteAnswer,
    ) -> Option<Result<Answer, Failure>> {
        let validator = answer.validator.and_then(Validator::from_wire);
        let asked = self.global.routing.asked_there(answer.id).cloned();
        if answer.unchanged {
            let copied = self.global.cache.confirmed(&asked?, validator?);
            if copied.is_none() {
                self.global.routing.ask_anew(answer.id);
            }
            return copied.map(Ok);
        }
        let outcome = entry::decode_reply(answer.outcome.clone()).ok()?;
        if let (Some(asked), Ok(_)) = (asked, &outcome) {
            self.global.cache.missed();
            match validator {
                Some(validator) => self.global.cache.keep(asked, validator, &answer.outcome),
                // A borrower sends none.
                None => self.global.cache.forget(&asked.place),
            }
        }
        self.note_write_there(answer.id);
        Some(outcome)
    }

    /// A request leaves for another site: what it writes is not as it is copied here any more.
    pub(super) fn note_write(&mut self, id: u64) {
        if let Some(body) = self.global.routing.body(id) {
            note(&mut self.global.cache, body);
        }
    }

    fn note_write_there(&mut self, wire_id: u64) {
        if let Some(body) = self.global.routing.body_there(wire_id) {
            note(&mut self.global.cache, body);
        }
    }

    /// Whole keyspaces that are cleared through this node.
    pub(super) fn clear_copies(&mut self, body: &Body) {
        match body {
            Body::Write(Command::Write { keyspace, write: Write::Clear, .. }) => {
                self.global.cache.clear(*keyspace);
            }
            Body::Write(Command::ClearAll) => self.global.cache.clear_all(),
            Body::Write(Command::Transaction { steps, .. })
                if steps.contains(&model::Step::Write(Write::ClearAll)) =>
            {
                self.global.cache.clear_all();
            }
            _ => {}
        }
    }

    /// Slots are held here now.
    pub(super) fn drop_copies_of(&mut self, held: &SlotEpochs) {
        for slot in held.0.iter().flat_map(|(slots, _)| slots.iter()) {
            self.global.cache.drop_slot(slot);
        }
    }

    // ---- at the owner ---------------------------------------------------------------------------

    /// Answers a read of a node that keeps copies: that its copy is right, or with the value and
    /// what it was found at. Both are looked at between two entries of the log, so at one moment.
    pub(super) fn answer_by_validator(&mut self, read: &WaitingRead) -> bool {
        let Origin::Routed { id, .. } = read.origin else { return false };
        let Copies::Cached(known) = self.global.routing.copies(id) else { return false };
        let Some(key) = copied_key(&read.query).cloned() else { return false };
        let (Token::Held(epoch) | Token::Leaving { epoch, frozen: false, .. }) =
            self.machine.token(Slot::of_key(&key))
        else {
            return false;
        };
        let versions = Query::Versions { keys: vec![key] };
        let versions = self.query(read.keyspace, &versions, read.due);
        let Ok(Ok(Answer::Versions(versions))) = versions else { return false };
        let found = Validator { epoch, version: versions.first().copied().unwrap_or_default() };
        let unchanged = known == Some(found);
        let outcome = match unchanged {
            true => Bytes::new(),
            false => match self.query(read.keyspace, &read.query, read.due) {
                Ok(Ok(answer)) => entry::encode_reply(&Ok(answer)),
                _ => return false,
            },
        };
        let requester = self.global.routing.release(id);
        let Some(requester @ Origin::Site { site, node, id, .. }) = requester else { return false };
        let token = self.sessions.end(requester).map(SessionToken::into_bytes);
        let validator = Some(found.to_wire());
        let served = put_failover(epoch.failover);
        let answer = InterSiteAnswer {
            id,
            outcome,
            validator,
            unchanged,
            served,
            token,
            ..Default::default()
        };
        self.push_answer(site, node, answer);
        true
    }
}

/// What a write through this node changes.
fn note(cache: &mut Cache, body: &Body) {
    match body {
        Body::Write(Command::Write { keyspace, write, .. }) => cache.written(*keyspace, write),
        Body::Write(Command::Transaction { keyspace, steps, .. }) => {
            steps.iter().for_each(|step| cache.stepped(*keyspace, step));
        }
        _ => {}
    }
}
