//! A toy mode, as a test of the house: a counter with a table, a command, what readers see, a
//! token, and a job.
//!
//! It is added to the state, the sessions and the jobs the way that CONTRIBUTING lists, and nothing
//! outside of the modes had to change for it. It stands in the place of all modes, so it shows
//! nothing of how requests and ticks of several are composed. Its command borrows a variant of the global family, as [`Command`] is closed. A read in a
//! session waits until the counter is where the session has seen it.

use super::Origin;
use super::sessions::Sessions;
use crate::job::{Effect, Job, Progress, View};
use crate::machine::apply::Applying;
use crate::machine::keys::Place;
use crate::machine::lineage::Whose;
use crate::machine::query::Served;
use crate::machine::{Committed, Index, Machine, MachineError, ModeState, Publish, Stopped};
use crate::origin::Ticket;
use model::{
    Answer, Command, Epoch, GlobalCommand, KeyspaceId, KeyspaceSpec, Refusal, Revision,
    SessionToken, SiteId, Slot, SlotRun,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::state::memory::MemoryState;
use storage::state::{Read, State};
use wire::entry::Batch;

/// The letter of its table.
const TABLE: u8 = b'J';

#[derive(Debug)]
struct Counter(u64);

/// What readers see of it.
#[derive(Debug, Default)]
struct Seen(AtomicU64);

impl Publish<Counter> for Seen {
    fn begin_commit(&self) {}

    fn publish(&self, _: &mut Index, counter: &mut Counter) {
        self.0.store(counter.0, Ordering::Release);
    }

    fn end_commit(&self) {}
}

impl ModeState for Counter {
    type Published = Seen;

    fn load(state: &impl Read) -> Result<Counter, MachineError> {
        let Some(row) = state.get(&[TABLE])? else { return Ok(Counter(0)) };
        let damaged = MachineError::Damaged { table: TABLE as char };
        Ok(Counter(u64::from_be_bytes(row[..].try_into().map_err(|_| damaged)?)))
    }

    fn reload(&mut self, state: &impl Read) -> Result<(), MachineError> {
        *self = Counter::load(state)?;
        Ok(())
    }

    fn pass_time<S: State>(_: &mut Applying<'_, S, Self>) -> Result<(), MachineError> {
        Ok(())
    }

    fn time_due_ms(&self) -> Option<u64> {
        None
    }

    fn forget_expiry<S: State>(
        _: &mut Applying<'_, S, Self>,
        _: u64,
        _: u64,
        _: &[u8],
    ) -> Result<(), MachineError> {
        Ok(())
    }

    fn owns_writes(_: &KeyspaceSpec) -> bool {
        false
    }

    fn execute<S: State>(
        at: &mut Applying<'_, S, Self>,
        command: &Command,
    ) -> Result<Answer, Stopped> {
        let Command::Global(GlobalCommand::DiscardCopies { of: SiteId(more) }) = command else {
            return Err(Refusal::NoDeployment.into());
        };
        at.modes.0 += u64::from(*more);
        Ok(Answer::Integer(at.modes.0 as i64))
    }

    fn write<S: State>(at: &mut Applying<'_, S, Self>) {
        at.overlay.put(vec![TABLE], at.modes.0.to_be_bytes().to_vec());
    }

    fn admit<S: State>(
        _: &mut Applying<'_, S, Self>,
        _: &Command,
        slot: Slot,
    ) -> Result<Whose, Refusal> {
        Err(Refusal::NotHeld(slot))
    }

    fn served_since(&self, _: Slot, _: Whose) -> (Epoch, Revision) {
        (Epoch::default(), Revision(0))
    }

    fn follow_records<S: State>(
        _: &mut Applying<'_, S, Self>,
        _: SlotRun,
        _: Whose,
        _: Option<Whose>,
    ) {
    }

    fn count(&self, _: KeyspaceId) -> u64 {
        0
    }

    fn served(&self, _: KeyspaceId) -> Vec<Served> {
        Vec::new()
    }

    fn place<S: State>(_: &mut Applying<'_, S, Self>, _: KeyspaceId, _: Slot) -> Place {
        unreachable!("it has no slots")
    }

    fn recount(&mut self, _: Place, _: i64, _: i64) {}

    fn expire<S: State>(_: &mut Applying<'_, S, Self>, _: u64, _: &[u8]) -> Option<Place> {
        None
    }

    fn create_keyspace<S: State>(
        _: &mut Applying<'_, S, Self>,
        _: &KeyspaceSpec,
    ) -> Result<Option<Answer>, Stopped> {
        Ok(None)
    }

    fn drop_keyspace<S: State>(
        _: &mut Applying<'_, S, Self>,
        _: &str,
    ) -> Result<Option<Answer>, Stopped> {
        Ok(None)
    }

    fn keyspace_begins<S: State>(
        _: &mut Applying<'_, S, Self>,
        _: KeyspaceId,
    ) -> Result<(), Stopped> {
        Ok(())
    }

    fn keyspace_ends<S: State>(_: &mut Applying<'_, S, Self>, _: KeyspaceId) {}

    fn check_clear<S: State>(_: &mut Applying<'_, S, Self>, _: KeyspaceId) -> Result<(), Refusal> {
        Ok(())
    }

    fn clear<S: State>(_: &mut Applying<'_, S, Self>, _: KeyspaceId) {}
}

/// Its job: the counter grows until it is full, by one command at a time.
struct Filling {
    full: u64,
    /// What was proposed at the counter's present value is not proposed again.
    proposed_at: Option<u64>,
}

impl Filling {
    fn up_to(full: u64) -> Filling {
        Filling { full, proposed_at: None }
    }
}

impl<S: State> Job<S, Counter> for Filling {
    fn poll(&mut self, view: &View<'_, S, Counter>) -> Vec<Effect> {
        let counter = view.machine.modes.0;
        if counter >= self.full || self.proposed_at.replace(counter) == Some(counter) {
            return Vec::new();
        }
        vec![Effect::Propose(add(1))]
    }

    fn progress(&self, view: &View<'_, S, Counter>) -> Progress {
        Progress { left: self.full.saturating_sub(view.machine.modes.0), ..Progress::default() }
    }
}

/// The command of the mode.
fn add(more: u32) -> Command {
    Command::Global(GlobalCommand::DiscardCopies { of: SiteId(more) })
}

/// One replica: its machine, and the sessions of the requests that wait there.
struct Replica {
    machine: Machine<MemoryState, Counter>,
    sessions: Sessions,
}

impl Replica {
    fn new() -> Replica {
        let machine = Machine::open(MemoryState::default()).unwrap();
        Replica { machine, sessions: Sessions::default() }
    }

    fn add(&mut self, more: u32) -> Answer {
        self.apply(add(more))
    }

    /// Polls a job once, and performs what it wants done; returns how much that was.
    fn work(&mut self, job: &mut Filling) -> usize {
        let effects = job.poll(&View::of(&self.machine, Duration::ZERO));
        let count = effects.len();
        for effect in effects {
            let Effect::Propose(command) = effect else { panic!("not proposed: {effect:?}") };
            self.apply(command);
        }
        count
    }

    fn apply(&mut self, command: Command) -> Answer {
        let batch = Batch { log_time_ms: 1, commands: vec![command] };
        let index = self.machine.applied().index + 1;
        let entry = Committed { index, term: 1, batch: Some(&batch), members: None };
        let mut answers = Vec::new();
        self.machine.apply(&[entry], &mut answers).unwrap();
        answers.pop().unwrap().unwrap()
    }

    /// The counter, and the token beside it. `None`: the read waits.
    fn read(&mut self, origin: Origin) -> Option<(u64, Option<SessionToken>)> {
        let now = self.machine.published.0.load(Ordering::Acquire);
        let seen =
            |token: &SessionToken| token.bytes()[..].try_into().map_or(0, u64::from_be_bytes);
        if self.sessions.asked(origin).is_some_and(|token| seen(token) > now) {
            return None;
        }
        let token = SessionToken::new(now.to_be_bytes().to_vec().into());
        self.sessions.answered(origin, token);
        Some((now, self.sessions.end(origin)))
    }
}

#[test]
fn its_reads_wait_for_what_their_session_has_seen() {
    let (mut ahead, mut behind) = (Replica::new(), Replica::new());
    assert_eq!(ahead.add(2), Answer::Integer(2));
    let (first, second, third) =
        (Origin::client(Ticket(1)), Origin::client(Ticket(2)), Origin::client(Ticket(3)));
    ahead.sessions.begin(first, SessionToken::new(Default::default()));
    let (value, token) = ahead.read(first).unwrap();
    assert!(value == 2 && token.is_some());

    behind.sessions.begin(second, token.clone());
    assert_eq!(behind.read(second), None, "its session has seen more");
    assert_eq!(behind.read(third), Some((0, None)), "of no session");
    behind.add(2);
    assert_eq!(behind.read(second), Some((2, token)));
}

#[test]
fn its_table_is_read_again() {
    let mut replica = Replica::new();
    replica.add(2);
    replica.add(3);
    let state = replica.machine.state().clone();
    assert_eq!(Machine::<_, Counter>::open(state).unwrap().modes.0, 5);
}

#[test]
fn its_job_goes_on_from_the_state_when_a_leader_is_lost() {
    let mut replica = Replica::new();
    let mut job = Filling::up_to(3);
    assert_eq!(replica.work(&mut job), 1);
    let view = View::of(&replica.machine, Duration::ZERO);
    assert_eq!(job.progress(&view).left, 2);
    assert_eq!(job.poll(&view).len(), 1);
    assert_eq!(job.poll(&view).len(), 0, "proposed, and not applied yet");
    // The leader is lost, and the proposal with it.
    let mut next = Filling::up_to(3);
    assert_eq!([0; 3].map(|_| replica.work(&mut next)), [1, 1, 0]);
    assert_eq!(replica.machine.modes.0, 3);
}
