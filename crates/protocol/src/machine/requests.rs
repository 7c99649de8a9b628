//! Applied once: what clients were answered, for repetitions.
//!
//! A client without an answer sends its write again under the same number. If the first one was
//! applied, the second gets the first one's answer and changes nothing. Clients number their writes
//! and name in each the answers that they have seen; those are forgotten at once.
//!
//! The rest is forgotten too, by log time and by rules that every replica follows alike: when a
//! client has been idle for [`limits::CLIENT_REMEMBERED_MS`], or when there are too many clients or
//! answers (the client idle longest goes first). **What that leaves out:** a client that is
//! forgotten and repeats a write after that is taken for a new one, and the write is applied again.
//! The time is sixty times the longest a request waits by default, so it takes a client that
//! retries long after its deadline. An answer that alone was forgotten (too long, or too many of
//! one client) is never a licence to apply again: its repetition is refused.
//!
//! A write to a global keyspace is remembered with its slot, as the next owner of the slot needs
//! it, too: a client then is one for each slot it writes to. What is remembered of a slot belongs
//! to its records, and goes where these go ([`super::lineage`]).
//!
//! ```text
//! q client                      → floor (varint: sequences below it are refused) ‖ last seen (varint, ms)
//! a client sequence             → what came of it (wire::entry), or nothing if that was too long
//! Q [whose] slot client         → the same, about one slot
//! A slot client sequence        → revision (varint) ‖ the same
//! A whose slot client sequence  → the same, without a revision
//! ```

use super::apply::Applying;
use super::lineage::Whose;
use super::modes::ModeState;
use super::trial::Bug;
use super::{MachineError, tables};
use model::{
    Answer, Bytes, ClientId, Refusal, RequestId, Slot, SlotRun, SlotSet, StagedItem, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::entry::{decode_outcome, encode_outcome};
use wire::row::{self, Rest};

/// A client; of global keyspaces, one for each slot, and for each set of records of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientKey {
    pub(crate) whose: Whose,
    pub(crate) slot: Option<Slot>,
    pub(crate) client: ClientId,
}

impl ClientKey {
    /// Of what this site serves.
    #[cfg(test)]
    pub(crate) fn own(slot: Option<Slot>, client: ClientId) -> ClientKey {
        ClientKey { whose: Whose::Own, slot, client }
    }

    /// Whether its answers are sent to other sites.
    fn is_sent_on(self) -> bool {
        matches!(self.whose, Whose::Own | Whose::Borrowed(_)) && self.slot.is_some()
    }
}

/// The clients with remembered answers, without the answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Clients {
    clients: BTreeMap<ClientKey, Client>,
    /// The same clients by when they were seen last.
    idle: BTreeSet<(u64, ClientKey)>,
    /// What is remembered with a slot, by the revision at which it came to be so here.
    of_slots: BTreeMap<u64, (ClientKey, u64)>,
    /// What those of slots take in messages to other sites.
    sent: BTreeMap<(Whose, Slot), usize>,
    answers: usize,
    bytes: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Client {
    floor: u64,
    seen_ms: u64,
    /// Sequences with their answers.
    answered: BTreeMap<u64, Remembered>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remembered {
    bytes: u32,
    /// Its place in [`Clients::of_slots`]; 0: it has none.
    at: u64,
}

/// The answer to a client's request with this sequence, or the next one that is remembered.
pub(crate) type AnswerPlace = (ClientId, u64);

/// What is to be done with a request.
pub(crate) enum Admission {
    /// It is applied.
    New,
    /// It was applied before, and this came of it.
    Repeated(Result<Answer, Refusal>),
}

impl Clients {
    pub(crate) fn load(state: &impl Read) -> Result<Clients, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut all = Clients::default();
        for table in [tables::CLIENTS, tables::SLOT_CLIENTS] {
            for (key, row) in super::rows(state, table)? {
                let client = tables::parse_client(&key).and_then(|id| {
                    let (floor, seen_ms) = row::decode_bare(&row)?;
                    Some((id, Client { floor, seen_ms, answered: BTreeMap::new() }))
                });
                let (id, client) = client.ok_or_else(|| damaged(table))?;
                all.idle.insert((client.seen_ms, id));
                all.clients.insert(id, client);
            }
        }
        let mut is_damaged = false;
        let mut take = |key: Bytes, row: Bytes| {
            let owner = tables::parse_answer(&key).and_then(|(id, sequence)| {
                let (at, _) = split_answer(id, row.clone())?;
                Some((id, all.clients.get_mut(&id)?, sequence, at))
            });
            match owner {
                Some((id, client, sequence, at)) => {
                    let remembered = Remembered { bytes: row.len() as u32, at };
                    client.answered.insert(sequence, remembered);
                    if at > 0 {
                        all.of_slots.insert(at, (id, sequence));
                    }
                    count(&mut all.sent, id, row.len(), true);
                    all.answers += 1;
                    all.bytes += row.len();
                }
                None => is_damaged = true,
            }
            !is_damaged
        };
        for table in [tables::ANSWERS, tables::SLOT_ANSWERS] {
            let (from, until) = tables::whole(table);
            state.scan(&from, Some(&until), &mut take)?;
        }
        if is_damaged {
            return Err(damaged(tables::ANSWERS));
        }
        Ok(all)
    }

    fn exceed_limits(&self) -> bool {
        self.clients.len() > limits::CLIENTS_REMEMBERED_MAX
            || self.answers > limits::REQUESTS_REMEMBERED_MAX
            || self.bytes > limits::REQUESTS_REMEMBERED_BYTES_MAX
    }
}

/// An answer of so many bytes came, or went.
fn count(sent: &mut BTreeMap<(Whose, Slot), usize>, of: ClientKey, bytes: usize, came: bool) {
    let Some(slot) = of.slot.filter(|_| of.is_sent_on()) else { return };
    let (at, bytes) = ((of.whose, slot), bytes + limits::ANSWER_SENT_BYTES);
    let sum = sent.get(&at).copied().unwrap_or_default();
    match if came { sum + bytes } else { sum.saturating_sub(bytes) } {
        0 => drop(sent.remove(&at)),
        sum => drop(sent.insert(at, sum)),
    }
}

/// The place of an answer among those of slots, and the answer.
fn split_answer(client_key: ClientKey, row: Bytes) -> Option<(u64, Bytes)> {
    if !client_key.is_sent_on() {
        return Some((0, row));
    }
    let (at, Rest(answer)) = row::decode_bare(&row)?;
    Some((at, answer))
}

impl Client {
    /// The answer to a request of this client, as it goes with the records of a slot.
    fn item(
        &self,
        state: &impl Read,
        client_key: ClientKey,
        slot: Slot,
        sequence: u64,
    ) -> Result<StagedItem, MachineError> {
        let row = state.get(&tables::answer(client_key, sequence))?;
        let row = row.and_then(|row| split_answer(client_key, row));
        let (_, row) = row.ok_or(MachineError::Damaged { table: tables::SLOT_ANSWERS as char })?;
        let (client, floor, seen_ms) = (client_key.client, self.floor, self.seen_ms);
        Ok(StagedItem::Remembered { slot, client, sequence, floor, seen_ms, row })
    }
}

impl Clients {
    /// Those of some records of slots.
    fn of(&self, whose: Whose, run: SlotRun) -> impl Iterator<Item = (&ClientKey, &Client)> + '_ {
        let first = ClientKey { whose, slot: Some(run.first), client: ClientId(0) };
        let last = ClientKey { whose, slot: Some(run.last), client: ClientId(u64::MAX) };
        self.clients.range(first..=last)
    }

    /// The clients with answers that are remembered with some records of slots.
    pub(crate) fn client_keys(&self, whose: Whose, run: SlotRun) -> Vec<ClientKey> {
        self.of(whose, run).map(|(client_key, _)| *client_key).collect()
    }

    /// What is remembered with these records of a slot, from a place on: each answer goes to `put`,
    /// which returns whether there is room for another. Where to go on; `None`: that was all.
    pub(crate) fn of_slot(
        &self,
        state: &impl Read,
        (slot, whose): (Slot, Whose),
        (first, first_sequence): AnswerPlace,
        put: &mut dyn FnMut(StagedItem) -> bool,
    ) -> Result<Option<AnswerPlace>, MachineError> {
        let mut has_room = true;
        let client_key = |client| ClientKey { whose, slot: Some(slot), client };
        for (client_key, known) in
            self.clients.range(client_key(first)..=client_key(ClientId(u64::MAX)))
        {
            let from = if client_key.client == first { first_sequence } else { 0 };
            for sequence in known.answered.range(from..).map(|(sequence, _)| *sequence) {
                if !has_room {
                    return Ok(Some((client_key.client, sequence)));
                }
                has_room = put(known.item(state, *client_key, slot, sequence)?);
            }
        }
        Ok(None)
    }

    /// What came to be remembered with these records of a slot after a revision, or all of it.
    pub(crate) fn of_slot_since(
        &self,
        state: &impl Read,
        slot: Slot,
        whose: Whose,
        after: Option<u64>,
    ) -> Result<Vec<StagedItem>, MachineError> {
        let is_later = |one: &Remembered| after.is_none_or(|after| one.at > after);
        let mut items = Vec::new();
        for (client_key, known) in self.of(whose, SlotRun::one(slot)) {
            let later = known.answered.iter().filter(|(_, one)| is_later(one));
            for sequence in later.map(|(sequence, _)| *sequence) {
                items.push(known.item(state, *client_key, slot, sequence)?);
            }
        }
        Ok(items)
    }

    /// What the answers that are remembered with some records of a slot take in a message.
    pub(crate) fn sent_bytes(&self, whose: Whose, slot: Slot) -> usize {
        self.sent.get(&(whose, slot)).copied().unwrap_or_default()
    }

    /// What came to be remembered with these slots after a revision, until `put` returns that there
    /// is no room for another. The revision here of the last one; `None`: that was all.
    pub(crate) fn of_slots_after(
        &self,
        state: &impl Read,
        slots: &SlotSet,
        after: u64,
        put: &mut dyn FnMut(StagedItem) -> bool,
    ) -> Result<Option<u64>, MachineError> {
        let (mut has_room, mut last) = (true, after);
        for (at, (client_key, sequence)) in self.of_slots.range(after + 1..) {
            let is_own = client_key.whose == Whose::Own;
            let of_slot = client_key.slot.filter(|slot| is_own && slots.contains(*slot));
            let Some(slot) = of_slot else { continue };
            if !has_room {
                return Ok(Some(last));
            }
            let row = state.get(&tables::answer(*client_key, *sequence))?;
            let row = row.and_then(|row| split_answer(*client_key, row));
            let Some((_, row)) = row else {
                return Err(MachineError::Damaged { table: tables::SLOT_ANSWERS as char });
            };
            let known = self.clients.get(client_key);
            has_room = put(StagedItem::Remembered {
                slot,
                client: client_key.client,
                sequence: *sequence,
                floor: known.map_or(0, |client| client.floor),
                seen_ms: known.map_or(0, |client| client.seen_ms),
                row,
            });
            last = *at;
        }
        Ok(None)
    }
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// Looks whether a request was applied before.
    pub(crate) fn admit(
        &self,
        client_key: ClientKey,
        id: RequestId,
    ) -> Result<Admission, MachineError> {
        if self.planted.is(Bug::ApplyTwice) {
            return Ok(Admission::New);
        }
        let client = self.known.clients.clients.get(&client_key);
        if client.is_some_and(|client| client.answered.contains_key(&id.sequence)) {
            let row = self.overlay.get(&tables::answer(client_key, id.sequence))?;
            let row = row.and_then(|row| Some(split_answer(client_key, row)?.1));
            let damaged = MachineError::Damaged { table: tables::ANSWERS as char };
            return Ok(Admission::Repeated(match row {
                Some(row) if row.is_empty() => Err(Refusal::RequestForgotten),
                Some(row) => decode_outcome(row).map_err(|_| damaged)?,
                None => return Err(damaged),
            }));
        }
        let floor = client.map_or(0, |client| client.floor).max(id.acknowledged_below);
        if id.sequence < floor {
            return Ok(Admission::Repeated(Err(Refusal::RequestForgotten)));
        }
        Ok(Admission::New)
    }

    /// Remembers what came of a request that was applied.
    pub(crate) fn remember(
        &mut self,
        client_key: ClientKey,
        id: RequestId,
        outcome: &Result<Answer, Refusal>,
    ) {
        let mut row = encode_outcome(outcome);
        // Too long ones are rare: a trial takes others for such.
        let is_taken_for_long =
            self.planted.is(Bug::DenyForgotten) && id.sequence.is_multiple_of(5);
        if row.len() > limits::ANSWER_REMEMBERED_BYTES_MAX || is_taken_for_long {
            row = Bytes::new();
        }
        let seen_ms = self.known.head.log_time_ms;
        self.keep_answer(client_key, id.sequence, id.acknowledged_below, seen_ms, &row);
    }

    /// Takes over what was remembered with a slot elsewhere, or of other records of it.
    pub(crate) fn take_over_answer(
        &mut self,
        client_key: ClientKey,
        sequence: u64,
        floor: u64,
        seen_ms: u64,
        row: &Bytes,
    ) {
        if self.planted.is(Bug::ForgetMovedAnswers) {
            return;
        }
        let client = self.known.clients.clients.get(&client_key);
        let known = client.is_some_and(|client| {
            client.answered.contains_key(&sequence) || sequence < client.floor
        });
        if !known {
            // A revision of its own, so that it can be passed on in its turn.
            if client_key.is_sent_on() {
                self.next_revision();
            }
            self.keep_answer(client_key, sequence, floor, seen_ms, row);
        }
    }

    fn keep_answer(
        &mut self,
        client_key: ClientKey,
        sequence: u64,
        acknowledged_below: u64,
        seen_ms: u64,
        row: &Bytes,
    ) {
        let at = if client_key.is_sent_on() { self.known.head.revision.0 } else { 0 };
        let row = match client_key.is_sent_on() {
            false => row.clone(),
            true => row::encode_bare(&(at, Rest(row.clone()))).into(),
        };
        let all = &mut self.known.clients;
        let client = all.clients.entry(client_key).or_default();
        all.idle.remove(&(client.seen_ms, client_key));
        client.seen_ms = client.seen_ms.max(seen_ms);
        all.idle.insert((client.seen_ms, client_key));
        client.answered.insert(sequence, Remembered { bytes: row.len() as u32, at });
        if at > 0 {
            all.of_slots.insert(at, (client_key, sequence));
        }
        all.answers += 1;
        all.bytes += row.len();
        count(&mut all.sent, client_key, row.len(), true);
        self.overlay.put(tables::answer(client_key, sequence), row);

        let client = all.clients.get_mut(&client_key).expect("it was made just now");
        client.floor = client.floor.max(acknowledged_below);
        let mut excess =
            client.answered.len().saturating_sub(limits::REQUESTS_REMEMBERED_PER_CLIENT_MAX);
        while let Some(entry) = client.answered.first_entry()
            && (*entry.key() < client.floor || excess > 0)
        {
            let (sequence, remembered) = entry.remove_entry();
            client.floor = client.floor.max(sequence + 1);
            excess = excess.saturating_sub(1);
            all.answers -= 1;
            all.bytes -= remembered.bytes as usize;
            count(&mut all.sent, client_key, remembered.bytes as usize, false);
            all.of_slots.remove(&remembered.at);
            self.overlay.remove(tables::answer(client_key, sequence));
        }
        let row = row::encode_bare(&(client.floor, client.seen_ms));
        self.overlay.put(tables::client(client_key), row);

        while self.known.clients.exceed_limits()
            && let Some(&(_, idlest)) =
                self.known.clients.idle.iter().find(|(_, client)| *client != client_key)
        {
            self.forget(idlest);
        }
    }

    /// Forgets clients that have been idle for long, up to about an entry's share of answers.
    pub(crate) fn forget_idle(&mut self) {
        let mut left = limits::EXPIRED_PER_ENTRY_MAX;
        while let Some(&(seen_ms, client)) = self.known.clients.idle.first()
            && seen_ms.saturating_add(limits::CLIENT_REMEMBERED_MS) <= self.known.head.log_time_ms
            && left > 0
        {
            left = left.saturating_sub(1 + self.forget(client));
        }
    }

    /// Forgets a client. What it was answered: sequence and answer, each with the client's floor
    /// and when it was seen last.
    pub(crate) fn take_answers(
        &mut self,
        id: ClientKey,
    ) -> Result<Vec<(u64, u64, u64, Bytes)>, MachineError> {
        let Some(client) = self.known.clients.clients.get(&id) else { return Ok(Vec::new()) };
        let read = |sequence: &u64| {
            let row = self.overlay.get(&tables::answer(id, *sequence))?;
            let row = row.and_then(|row| Some(split_answer(id, row)?.1));
            let damaged = MachineError::Damaged { table: tables::SLOT_ANSWERS as char };
            Ok((*sequence, client.floor, client.seen_ms, row.ok_or(damaged)?))
        };
        let answers = client.answered.keys().map(read).collect::<Result<_, MachineError>>()?;
        self.forget(id);
        Ok(answers)
    }

    /// Forgets a client. How many answers it had.
    pub(crate) fn forget(&mut self, id: ClientKey) -> usize {
        let all = &mut self.known.clients;
        let client = all.clients.remove(&id).unwrap_or_default();
        all.idle.remove(&(client.seen_ms, id));
        all.answers -= client.answered.len();
        for (sequence, remembered) in &client.answered {
            all.bytes -= remembered.bytes as usize;
            count(&mut all.sent, id, remembered.bytes as usize, false);
            all.of_slots.remove(&remembered.at);
            self.overlay.remove(tables::answer(id, *sequence));
        }
        self.overlay.remove(tables::client(id));
        client.answered.len()
    }
}
