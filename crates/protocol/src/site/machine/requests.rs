//! Applied once: what clients were answered, in case they ask again.
//!
//! A client that heard nothing sends its write again under the same number. If the first one was
//! applied, the second gets the first one's answer and changes nothing. Clients number their writes
//! and say with each what they have seen the answers of; those are forgotten at once.
//!
//! The rest is forgotten too, by log time and by rules that every replica follows alike: when a
//! client has been idle for [`limits::CLIENT_REMEMBERED_MS`], or when there are too many clients or
//! answers (the client idle longest goes first). **What that leaves out:** a client that is forgotten
//! and repeats a write after that is taken for a new one, and the write is applied again. The time
//! is sixty times the longest a request waits by default, so it takes a client that retries long
//! after its deadline. An answer that alone was forgotten (too long, or too many of one client) is
//! never a licence to apply again: its repetition is refused.
//!
//! ```text
//! q client           → floor (varint: sequences below it are refused) ‖ last seen (varint, ms)
//! a client sequence  → what came of it (wire::entry), or nothing if that was too long
//! ```

use super::super::trial::Bug;
use super::apply::Applying;
use super::{MachineError, tables};
use model::{Answer, Bytes, ClientId, Refusal, RequestId, limits};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::{Read, State};
use wire::entry::{decode_outcome, encode_outcome, put_varint, take_varint};

/// Who was answered what, without the answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Clients {
    clients: BTreeMap<ClientId, Client>,
    /// The same clients by when they were seen last.
    idle: BTreeSet<(u64, ClientId)>,
    answers: usize,
    bytes: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Client {
    floor: u64,
    seen_ms: u64,
    /// Sequences with the bytes of their answers.
    answered: BTreeMap<u64, u32>,
}

/// What is to be done with a request.
pub(super) enum Admission {
    /// It is applied.
    New,
    /// It was applied before, and this came of it.
    Repeated(Result<Answer, Refusal>),
}

impl Clients {
    pub(super) fn load(state: &impl Read) -> Result<Clients, MachineError> {
        let damaged = |table: u8| MachineError::Damaged { table: table as char };
        let mut all = Clients::default();
        for (key, row) in super::rows(state, tables::CLIENTS)? {
            let client = tables::parse_client(&key).and_then(|id| {
                let (floor, len) = take_varint(&row)?;
                let (seen_ms, _) = take_varint(&row[len..])?;
                Some((id, Client { floor, seen_ms, answered: BTreeMap::new() }))
            });
            let (id, client) = client.ok_or_else(|| damaged(tables::CLIENTS))?;
            all.idle.insert((client.seen_ms, id));
            all.clients.insert(id, client);
        }
        let (from, until) = tables::whole(tables::ANSWERS);
        let mut is_damaged = false;
        state.scan(&from, Some(&until), &mut |key, row| {
            let owner = tables::parse_answer(&key)
                .and_then(|(id, sequence)| Some((all.clients.get_mut(&id)?, sequence)));
            match owner {
                Some((client, sequence)) => {
                    client.answered.insert(sequence, row.len() as u32);
                    all.answers += 1;
                    all.bytes += row.len();
                }
                None => is_damaged = true,
            }
            !is_damaged
        })?;
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

impl<S: State> Applying<'_, S> {
    /// Looks whether a request was applied before.
    pub(super) fn admit(&self, id: RequestId) -> Result<Admission, MachineError> {
        if self.planted.is(Bug::ApplyTwice) {
            return Ok(Admission::New);
        }
        let client = self.known.clients.clients.get(&id.client);
        if client.is_some_and(|client| client.answered.contains_key(&id.sequence)) {
            let row = self.overlay.get(&tables::answer(id.client, id.sequence))?;
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
    pub(super) fn remember(&mut self, id: RequestId, outcome: &Result<Answer, Refusal>) {
        let mut row = encode_outcome(outcome);
        if row.len() > limits::ANSWER_REMEMBERED_BYTES_MAX {
            row = Bytes::new();
        }
        let all = &mut self.known.clients;
        let client = all.clients.entry(id.client).or_default();
        all.idle.remove(&(client.seen_ms, id.client));
        client.seen_ms = self.known.head.log_time_ms;
        all.idle.insert((client.seen_ms, id.client));
        client.answered.insert(id.sequence, row.len() as u32);
        all.answers += 1;
        all.bytes += row.len();
        self.overlay.put(tables::answer(id.client, id.sequence), row);

        let client = all.clients.get_mut(&id.client).expect("it was made just now");
        client.floor = client.floor.max(id.acknowledged_below);
        let mut excess =
            client.answered.len().saturating_sub(limits::REQUESTS_REMEMBERED_PER_CLIENT_MAX);
        while let Some(entry) = client.answered.first_entry()
            && (*entry.key() < client.floor || excess > 0)
        {
            let (sequence, bytes) = entry.remove_entry();
            client.floor = client.floor.max(sequence + 1);
            excess = excess.saturating_sub(1);
            all.answers -= 1;
            all.bytes -= bytes as usize;
            self.overlay.remove(tables::answer(id.client, sequence));
        }
        let mut row = Vec::with_capacity(2 * wire::entry::VARINT_BYTES_MAX);
        put_varint(client.floor, &mut row);
        put_varint(client.seen_ms, &mut row);
        self.overlay.put(tables::client(id.client), row);

        while self.known.clients.exceed_limits()
            && let Some(&(_, idlest)) =
                self.known.clients.idle.iter().find(|(_, client)| *client != id.client)
        {
            self.forget(idlest);
        }
    }

    /// Forgets clients that have been idle for long, up to about an entry's share of answers.
    pub(super) fn forget_idle(&mut self) {
        let mut left = limits::EXPIRED_PER_ENTRY_MAX;
        while let Some(&(seen_ms, client)) = self.known.clients.idle.first()
            && seen_ms.saturating_add(limits::CLIENT_REMEMBERED_MS) <= self.known.head.log_time_ms
            && left > 0
        {
            left = left.saturating_sub(1 + self.forget(client));
        }
    }

    fn forget(&mut self, id: ClientId) -> usize {
        let all = &mut self.known.clients;
        let client = all.clients.remove(&id).unwrap_or_default();
        all.idle.remove(&(client.seen_ms, id));
        all.answers -= client.answered.len();
        for (sequence, bytes) in &client.answered {
            all.bytes -= *bytes as usize;
            self.overlay.remove(tables::answer(id, *sequence));
        }
        self.overlay.remove(tables::client(id));
        client.answered.len()
    }
}
