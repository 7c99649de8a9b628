//! What a replica does with its disk before it starts.
//!
//! The truth is the latest snapshot and the log behind it. The state is only what was made of them:
//! it may lag (its engine makes nothing durable by itself), be damaged, or be half loaded from a
//! snapshot when the power failed. Whatever it is, afterwards it is a prefix of the log, and the
//! rest is applied again as it is found committed.
//!
//! What cannot be mended here is an error: a log that lost entries which the state has applied, or
//! a state to be rebuilt without its snapshot.

use crate::machine::{self, Committed, Machine, MachineError, ModeState};
use model::{Bytes, Revision};
use prost::Message as _;
use storage::log::{LogError, LogStart, LogWriter, Recovered};
use storage::snapshot::{SnapshotError, SnapshotHead, Snapshots};
use storage::state::{Read, State, StateError};
use wire::peer::{Member, Members};

/// A replica that is ready to start.
pub struct Replica<S: State, M: ModeState> {
    /// Its state.
    pub state: S,
    /// The machine over it.
    pub machine: Machine<S, M>,
    /// The members as of what the state has applied; empty for a node that waits to be added.
    pub members: Members,
    /// The latest snapshot.
    pub snapshot: Option<SnapshotHead>,
}

/// Why a replica cannot start from its disk.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The state cannot be used, not even to be rebuilt.
    #[error(transparent)]
    State(#[from] StateError),
    /// The state's content makes no sense, even after a rebuild.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Entries that were durable are gone.
    #[error(
        "the state has applied entry {applied}, but the log ends at {last}: entries that were \
         durable are gone. Remove this node and let it join again with an empty disk, or restore a \
         backup"
    )]
    LogLost {
        /// How far the state is.
        applied: u64,
        /// How far the log is.
        last: u64,
    },
    /// There is nothing to rebuild the state from.
    #[error(
        "the state must be rebuilt ({why}), but the log begins after entry {start} and there is no \
         snapshot that covers what is before. Remove this node and let it join again with an empty \
         disk, or restore a backup"
    )]
    NothingToRebuildFrom {
        /// Why a rebuild is needed.
        why: String,
        /// Where the log begins.
        start: u64,
    },
}

/// Where the log of a new site begins: what is before is its membership.
const FIRST_INDEX: u64 = 1;

/// The members of a new site: one node, which votes.
pub fn first_members(member: Member) -> Members {
    let member = Member { since: FIRST_INDEX, ..member };
    Members { voters: vec![member.node], nodes: vec![member], ..Members::default() }
}

/// Members as they are kept in the state and in snapshots.
pub fn encode_members(members: &Members) -> Bytes {
    members.encode_to_vec().into()
}

/// What a snapshot of this view is of, and the revision of the state in it.
pub fn head_of(view: &impl Read) -> Result<(SnapshotHead, Revision), MachineError> {
    let (applied, revision, members) = machine::head_of(view)?;
    let members = members.unwrap_or_default();
    Ok((SnapshotHead { index: applied.index, term: applied.term, members }, revision))
}

/// Begins a new site of one node: its membership is the first thing that is durable. Begins
/// nothing when that has been done.
pub fn begin_site<S: State, M: ModeState>(
    member: Member,
    writer: &mut impl LogWriter,
    snapshots: &impl Snapshots,
    state: &S,
) -> Result<(), RecoveryError> {
    if snapshots.latest()?.is_some() {
        return Ok(());
    }
    state.clear()?;
    let members = encode_members(&first_members(member));
    let mut machine = Machine::<S, M>::open(state.clone())?;
    let first = Committed { index: 1, term: 1, batch: None, members: Some(members.clone()) };
    machine.apply(&[first], &mut Vec::new())?;
    snapshots.write(&SnapshotHead { index: 1, term: 1, members }, &state.view())?;
    Ok(writer.restart(LogStart { index: 1, term: 1 })?)
}

/// Makes log, snapshot and state agree. `warn` receives every rebuild and its cause.
pub fn recover<S: State, M: ModeState>(
    recovered: &mut Recovered,
    writer: &mut impl LogWriter,
    snapshots: &impl Snapshots,
    state: S,
    warn: &mut dyn FnMut(String),
) -> Result<Replica<S, M>, RecoveryError> {
    let snapshot = snapshots.latest()?;
    if let Some(head) = &snapshot
        && !holds(recovered, head)
    {
        // It was received whole, and then the power failed: the log before it is of no use.
        let start = LogStart { index: head.index, term: head.term };
        writer.restart(start)?;
        recovered.start = start;
        recovered.last_index = start.index;
        recovered.terms.clear();
        recovered.hard_state.commit = recovered.hard_state.commit.max(start.index);
    }
    let mut machine = match Machine::open(state.clone()) {
        Ok(machine) if machine.applied().index > recovered.last_index => {
            let applied = machine.applied().index;
            return Err(RecoveryError::LogLost { applied, last: recovered.last_index });
        }
        Ok(machine) if machine.applied().index >= recovered.start.index => Ok(machine),
        Ok(machine) => Err(format!("it ends at entry {}", machine.applied().index)),
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = &machine {
        if recovered.start.index > 0 {
            warn(format!("rebuilding the state from the snapshot and the log: {why}"));
        }
        machine = Ok(rebuild(recovered, snapshot.as_ref(), snapshots, &state, why)?);
    }
    let machine = machine.expect("rebuilt if it was not");
    let members = machine.members()?.or_else(|| snapshot.as_ref().map(|head| head.members.clone()));
    let members = members.map(|bytes| Members::decode(bytes).unwrap_or_default());
    Ok(Replica { state, machine, members: members.unwrap_or_default(), snapshot })
}

fn rebuild<S: State, M: ModeState>(
    recovered: &Recovered,
    snapshot: Option<&SnapshotHead>,
    snapshots: &impl Snapshots,
    state: &S,
    why: &str,
) -> Result<Machine<S, M>, RecoveryError> {
    state.clear()?;
    match snapshot {
        Some(head) if head.index >= recovered.start.index => snapshots.load(head.index, state)?,
        _ if recovered.start.index == 0 => {}
        _ => {
            let start = recovered.start.index;
            return Err(RecoveryError::NothingToRebuildFrom { why: why.to_string(), start });
        }
    }
    let mut machine = Machine::open(state.clone())?;
    if let Some(head) = snapshot.filter(|head| machine.applied().index < head.index) {
        if !machine::holds_nothing(state)? {
            let (why, start) = ("the snapshot has rows and no head".to_owned(), head.index);
            return Err(RecoveryError::NothingToRebuildFrom { why, start });
        }
        // A witness's: what it is of is in its own head, and in the state how far the witness had
        // come when it took it in.
        let applied = machine::Applied { index: head.index, term: head.term };
        machine.skip_to(applied, head.members.clone())?;
    }
    Ok(machine)
}

/// Whether the log goes on from this snapshot.
fn holds(log: &Recovered, head: &SnapshotHead) -> bool {
    if head.index <= log.start.index {
        return true;
    }
    let run = log.terms.partition_point(|run| run.index <= head.index);
    let term = run.checked_sub(1).map(|run| log.terms[run].term);
    head.index <= log.last_index && term == Some(head.term)
}
