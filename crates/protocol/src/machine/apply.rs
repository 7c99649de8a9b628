//! Commands to changes: one log entry after the other, all of them one batch of the state.
//!
//! Before the commands of an entry, time does its share: what has expired goes, what is not needed
//! any more is trimmed, idle clients are forgotten. Each within a bound, so that no entry takes
//! long; what is left goes with the entries that follow, or with a tick.

use super::keys::{Place, check_key};
use super::lineage::Whose;
use super::modes::ModeState;
use super::overlay::Overlay;
use super::query::{self, ReadContext};
use super::requests::{Admission, ClientKey};
use super::strings::Put;
use super::trial::{Bug, Planted};
use super::{Index, MachineError, Stopped, tables};
use model::{
    Answer, Command, Guard, KeySlots, KeyspaceId, Query, Refusal, Revision, Slot, Step, Write,
    limits,
};
use storage::state::{Batch, State};
use wire::entry;

/// A batch under way. After an error it and what is known are torn: the machine must be opened
/// again from its state.
pub struct Applying<'a, S, M> {
    pub(crate) overlay: Overlay<'a, S>,
    pub(crate) known: &'a mut Index,
    pub(crate) modes: &'a mut M,
    /// Of the next change of this revision.
    pub(crate) ordinal: u32,
    /// Of the answer under way.
    answer_bytes: usize,
    /// The slot that the command under way is about, if its keyspace is global.
    pub(crate) slot: Option<Slot>,
    /// The records of that slot which it works on.
    pub(crate) whose: Whose,
    pub(crate) planted: Planted,
    /// What a step of a slot met as it moved what lies here; it ends the batch.
    pub(crate) failed: Option<MachineError>,
}

impl<'a, S: State, M: ModeState> Applying<'a, S, M> {
    /// For about so many commands.
    pub(crate) fn new(
        state: &'a S,
        known: &'a mut Index,
        modes: &'a mut M,
        planted: Planted,
        commands: usize,
    ) -> Applying<'a, S, M> {
        let overlay = Overlay::new(state, commands);
        let (ordinal, answer_bytes, slot, whose, failed) = (0, 0, None, Whose::Own, None);
        Applying { overlay, known, modes, ordinal, answer_bytes, slot, whose, planted, failed }
    }

    /// Whether a bug of the state machine strikes now, in a trial: one time in five, at all
    /// replicas alike.
    pub(crate) fn is_struck_by(&self, bug: Bug) -> bool {
        self.planted.is(bug) && self.known.head.revision.0.is_multiple_of(5)
    }

    /// Applies the batch of one entry.
    pub(crate) fn entry(
        &mut self,
        batch: &entry::Batch,
        answers: &mut Vec<Result<Answer, Refusal>>,
    ) -> Result<(), MachineError> {
        let head = &mut self.known.head;
        head.log_time_ms = head.log_time_ms.max(batch.log_time_ms);
        self.expire_due()?;
        M::pass_time(self)?;
        self.trim_changes()?;
        self.forget_idle();
        for command in &batch.commands {
            self.answer_bytes = 0;
            answers.push(self.command(command)?);
            if let Some(failed) = self.failed.take() {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// The changes of all entries.
    pub(crate) fn finish(mut self) -> Batch {
        self.write_counts();
        M::write(&mut self);
        self.write_removals();
        self.write_expiring();
        self.write_logs();
        self.overlay.put(tables::HEAD, self.known.head.encode());
        self.overlay.into_batch()
    }

    fn command(&mut self, command: &Command) -> Result<Result<Answer, Refusal>, MachineError> {
        self.whose = Whose::Own;
        self.slot = match self.slot_of(command) {
            Ok(slot) => slot,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let request = match command {
            Command::Write { request, .. } | Command::Transaction { request, .. } => *request,
            _ => None,
        };
        let Some(id) = request else { return split(self.execute(command)) };
        let client_key = ClientKey { whose: self.whose, slot: self.slot, client: id.client };
        if let Admission::Repeated(outcome) = self.admit(client_key, id)? {
            return Ok(outcome);
        }
        let outcome = split(self.execute(command))?;
        self.remember(client_key, id, &outcome);
        Ok(outcome)
    }

    /// The slot a command is about, if its keyspace is global and the slot is served here.
    ///
    /// This comes before everything else: what was done for a slot that is not served here (any
    /// more) is not known here either.
    fn slot_of(&mut self, command: &Command) -> Result<Option<Slot>, Refusal> {
        let is_global = |keyspace| self.known.keyspaces.is_global(keyspace);
        // Where keys lie is worked out only where it matters: that is a checksum of each.
        let key_slots = match command {
            Command::Write { keyspace, write, .. } if is_global(*keyspace) => write.key_slots(),
            Command::Transaction { keyspace, guards, steps, .. } if is_global(*keyspace) => {
                KeySlots::of_transaction(guards, steps)
            }
            _ => return Ok(None),
        };
        match key_slots {
            KeySlots::One(slot) => {
                self.whose = M::admit(self, command, slot)?;
                Ok(Some(slot))
            }
            KeySlots::Several => Err(Refusal::CrossSlot),
            KeySlots::Nowhere => match command {
                Command::Write { write: Write::Clear | Write::ClearAll, .. } => Ok(None),
                _ => Err(Refusal::NotGlobal("do this without naming a key")),
            },
        }
    }

    fn execute(&mut self, command: &Command) -> Result<Answer, Stopped> {
        match command {
            Command::Write { keyspace, .. } | Command::Transaction { keyspace, .. }
                if self.known.keyspaces.spec(*keyspace).is_some_and(M::owns_writes) =>
            {
                self.next_revision();
                M::execute(self, command)
            }
            Command::Write { keyspace, write, .. } => {
                self.next_revision();
                self.write(*keyspace, write)
            }
            Command::Transaction { keyspace, guards, steps, .. } => {
                self.next_revision();
                self.transaction(*keyspace, guards, steps)
            }
            Command::ClearAll => {
                self.next_revision();
                self.clear_all(false)?;
                Ok(self.done())
            }
            Command::CreateKeyspace(spec) => self.create_keyspace(spec),
            Command::DropKeyspace { name } => self.drop_keyspace(name),
            Command::SetCursor { name, keyspace, position } => {
                self.set_cursor(name, *keyspace, *position)
            }
            Command::DropCursor { name, keyspace } => Ok(self.drop_cursor(name, *keyspace)),
            Command::Tick => {
                self.collect_garbage()?;
                Ok(self.done())
            }
            Command::Deployment(_) | Command::Global(_) | Command::Causal(_) => {
                M::execute(self, command)
            }
        }
    }

    fn transaction(
        &mut self,
        keyspace: KeyspaceId,
        guards: &[Guard],
        steps: &[Step],
    ) -> Result<Answer, Stopped> {
        let place = self.place(keyspace)?;
        if steps.len().max(guards.len()) > limits::TRANSACTION_STEPS_MAX {
            let max = limits::TRANSACTION_STEPS_MAX;
            return Err(Refusal::TooMany { what: "steps of one transaction", max }.into());
        }
        if !self.guards_hold(place, guards)? {
            return Ok(Answer::Aborted);
        }
        let mut outcomes = Vec::with_capacity(steps.len());
        for (nth, step) in (1..).zip(steps) {
            let is_last = nth > 1 && nth == steps.len() && matches!(step, Step::Write(_));
            if is_last && self.is_struck_by(Bug::TearTogether) {
                outcomes.push(Ok(self.done()));
                continue;
            }
            outcomes.push(split(match step {
                Step::Read(query) => self.read(keyspace, query),
                Step::Write(write) => self.write(keyspace, write),
                Step::ReadIn { keyspace, query } => self.read_in(*keyspace, query),
            })?);
        }
        Ok(Answer::Steps(outcomes))
    }

    /// Whether the keys of a transaction are as its guards require.
    pub(crate) fn guards_hold(&mut self, place: Place, guards: &[Guard]) -> Result<bool, Stopped> {
        for guard in guards {
            check_key(&guard.key)?;
            let version = self.cell_unread(place, &guard.key)?.version();
            let was_absent = |point| self.was_absent_since(place, &guard.key, point);
            if version != guard.version || !guard.absent_since.is_none_or(was_absent) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn read(&mut self, keyspace: KeyspaceId, query: &Query) -> Result<Answer, Stopped> {
        let Place { generation, .. } = self.place(keyspace)?;
        let context = ReadContext {
            read: &self.overlay,
            generation,
            log_time_ms: self.known.head.log_time_ms,
            count: matches!(query, Query::Count).then(|| self.count(keyspace)),
            point: self.read_point(),
            due_by: None,
        };
        query::answer(&context, query, &mut self.answer_bytes)
    }

    /// Answers what is asked of a whole keyspace in the middle of a transaction.
    pub(crate) fn read_in(
        &mut self,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Result<Answer, Stopped> {
        if !matches!(query, Query::Count | Query::Scan { .. }) {
            return Err(Refusal::NotGlobal("do this without naming a key").into());
        }
        M::check_read(self, keyspace)?;
        if *query == Query::Count || !self.known.keyspaces.is_global(keyspace) {
            return self.read(keyspace, query);
        }
        let served = self.modes.served(keyspace);
        query::scan_slots(&self.overlay, self.known.head.log_time_ms, None, &served, query)
    }

    fn write(&mut self, keyspace: KeyspaceId, write: &Write) -> Result<Answer, Stopped> {
        let place = self.place(keyspace)?;
        match write {
            Write::Put { key, value, condition, expiry, return_old } => {
                let (condition, expiry, return_old) = (*condition, *expiry, *return_old);
                self.put(place, key, Put { value, condition, expiry, return_old })
            }
            Write::PutMany { pairs, if_all_absent } => self.put_many(place, pairs, *if_all_absent),
            Write::Append { key, suffix } => self.append(place, key, suffix),
            Write::Add { key, delta } => self.add(place, key, *delta),
            Write::Delete { keys } => self.delete(place, keys),
            Write::DeleteIf { key, version } => self.delete_if(place, key, *version),
            Write::Take { key } => self.take(place, key),
            Write::GetAndExpire { key, expiry } => self.get_and_expire(place, key, *expiry),
            Write::SetExpiry { key, expiry, condition } => {
                self.set_expiry(place, key, *expiry, *condition)
            }
            Write::HashSet { key, fields } => self.hash_set(place, key, fields),
            Write::HashSetIfAbsent { key, field, value } => {
                self.hash_set_if_absent(place, key, field, value)
            }
            Write::HashDelete { key, fields } => self.hash_delete(place, key, fields),
            Write::HashAdd { key, field, delta } => self.hash_add(place, key, field, *delta),
            Write::Clear => {
                self.clear(keyspace)?;
                Ok(self.done())
            }
            Write::ClearAll => {
                self.clear_all(true)?;
                Ok(self.done())
            }
        }
    }

    /// How many keys a keyspace holds here.
    fn count(&self, keyspace: KeyspaceId) -> u64 {
        match self.known.keyspaces.is_global(keyspace) {
            true => self.modes.count(keyspace),
            false => self.known.keyspaces.count(keyspace),
        }
    }

    /// Begins the next revision (docs/adr/0002).
    pub(crate) fn next_revision(&mut self) {
        self.known.head.revision = self.known.head.revision.next();
        self.ordinal = 0;
    }

    /// Counts what an answer is going to carry, before anything is done for it.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Refusal> {
        query::charge(&mut self.answer_bytes, bytes)
    }

    fn done(&self) -> Answer {
        Answer::Done(self.revision())
    }

    fn revision(&self) -> Revision {
        self.known.head.revision
    }
}

/// A refusal is an outcome, a failure ends the machine.
pub(crate) fn split(
    result: Result<Answer, Stopped>,
) -> Result<Result<Answer, Refusal>, MachineError> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(Stopped::Refused(refusal)) => Ok(Err(refusal)),
        Err(Stopped::Due(_)) => unreachable!("a command is judged by the log time it came with"),
        Err(Stopped::Failed(error)) => Err(error),
    }
}
