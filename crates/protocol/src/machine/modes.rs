//! What the machine needs of the modes of its site, whichever those are.
//!
//! A mode owns its rows, its family of commands and what readers may see of both. The machine hands
//! it the batch under way where it takes part: before an entry, at a command of its own, where a
//! key of a slot lies, when a keyspace begins, is cleared or ends. `site` composes the modes in one
//! closed type; there is no list of plugins.

use super::apply::Applying;
use super::keys::Place;
use super::lineage::Whose;
use super::query::Served;
use super::{Index, MachineError, Stopped};
use model::{Answer, Command, Epoch, KeyspaceId, KeyspaceSpec, Refusal, Revision, Slot, SlotRun};
use std::fmt;
use storage::state::{Read, State};

/// What a site has of its modes, and what they do to the state.
pub trait ModeState: Sized + fmt::Debug {
    /// What readers see of the machine and of the modes.
    type Published: Publish<Self>;

    /// What a state has of it.
    ///
    /// # Errors
    /// When the state cannot be read or makes no sense.
    fn load(state: &impl Read) -> Result<Self, MachineError>;

    /// Looks at the state anew, after a snapshot replaced it.
    ///
    /// # Errors
    /// As [`ModeState::load`].
    fn reload(&mut self, state: &impl Read) -> Result<(), MachineError>;

    /// Whether the writes to such a keyspace are applied by the mode: by [`ModeState::execute`].
    fn owns_writes(spec: &KeyspaceSpec) -> bool;

    /// Log time is at that of the entry under way: what of the mode's own is due by then.
    ///
    /// # Errors
    /// When the state fails.
    fn pass_time<S: State>(at: &mut Applying<'_, S, Self>) -> Result<(), MachineError>;

    /// When an entry should come for [`ModeState::pass_time`], if nothing else brings one.
    fn time_due_ms(&self) -> Option<u64>;

    /// A record with an expiry that sites agree on goes as garbage.
    ///
    /// # Errors
    /// When the state fails.
    fn forget_expiry<S: State>(
        at: &mut Applying<'_, S, Self>,
        ms: u64,
        generation: u64,
        key: &[u8],
    ) -> Result<(), MachineError>;

    /// Applies a command of a family that is not the machine's, or a write to a keyspace that the
    /// mode [owns](ModeState::owns_writes).
    ///
    /// # Errors
    /// Those of the command.
    fn execute<S: State>(
        at: &mut Applying<'_, S, Self>,
        command: &Command,
    ) -> Result<Answer, Stopped>;

    /// Brings what changed into the state.
    fn write<S: State>(at: &mut Applying<'_, S, Self>);

    // ---- keys of slots --------------------------------------------------------------------------

    /// The records of a slot that a write of this site's clients works on.
    ///
    /// # Errors
    /// When none of the slot are served here, or not those of its keys.
    fn admit<S: State>(
        at: &mut Applying<'_, S, Self>,
        command: &Command,
        slot: Slot,
    ) -> Result<Whose, Refusal>;

    /// The epoch at which these records of a slot are served here, and the revision since when they
    /// are.
    fn served_since(&self, slot: Slot, whose: Whose) -> (Epoch, Revision);

    /// Records of slots become others, or go.
    fn follow_records<S: State>(
        at: &mut Applying<'_, S, Self>,
        run: SlotRun,
        from: Whose,
        to: Option<Whose>,
    );

    /// How many keys of a keyspace lie in slots that are served here.
    fn count(&self, keyspace: KeyspaceId) -> u64;

    /// Where the records of a keyspace's slots lie that are served here.
    fn served(&self, keyspace: KeyspaceId) -> Vec<Served>;

    /// Where a write to a slot of a keyspace works; room is made for it.
    fn place<S: State>(at: &mut Applying<'_, S, Self>, keyspace: KeyspaceId, slot: Slot) -> Place;

    /// There are so many keys more or less, and bytes of keys and records. The bytes of what expires
    /// are not among them: see [`Self::expire`].
    fn recount(&mut self, place: Place, keys: i64, bytes: i64);

    /// A key expires that lies under a generation of no keyspace. Where it lies, if it is served;
    /// what is not served goes without a trace.
    fn expire<S: State>(
        at: &mut Applying<'_, S, Self>,
        generation: u64,
        key: &[u8],
    ) -> Option<Place>;

    // ---- keyspaces ------------------------------------------------------------------------------

    /// Whether a keyspace is here, so that a transaction in another one may read it.
    ///
    /// # Errors
    /// When it is not.
    fn check_read<S: State>(_: &mut Applying<'_, S, Self>, _: KeyspaceId) -> Result<(), Refusal> {
        Ok(())
    }

    /// Makes a keyspace, where that is not for this site alone to decide.
    ///
    /// # Errors
    /// When it may not be made here.
    fn create_keyspace<S: State>(
        at: &mut Applying<'_, S, Self>,
        spec: &KeyspaceSpec,
    ) -> Result<Option<Answer>, Stopped>;

    /// Drops a keyspace, where that is not for this site alone to decide.
    ///
    /// # Errors
    /// When it may not be dropped here.
    fn drop_keyspace<S: State>(
        at: &mut Applying<'_, S, Self>,
        name: &str,
    ) -> Result<Option<Answer>, Stopped>;

    /// A keyspace whose keys belong to slots begins.
    ///
    /// # Errors
    /// When the state fails.
    fn keyspace_begins<S: State>(
        at: &mut Applying<'_, S, Self>,
        keyspace: KeyspaceId,
    ) -> Result<(), Stopped>;

    /// A keyspace ends, with all it holds.
    fn keyspace_ends<S: State>(at: &mut Applying<'_, S, Self>, keyspace: KeyspaceId);

    /// Whether such a keyspace may be cleared.
    ///
    /// # Errors
    /// When not, or not now.
    fn check_clear<S: State>(
        at: &mut Applying<'_, S, Self>,
        keyspace: KeyspaceId,
    ) -> Result<(), Refusal>;

    /// Throws away what the served slots of a keyspace hold, as it [may](ModeState::check_clear).
    fn clear<S: State>(at: &mut Applying<'_, S, Self>, keyspace: KeyspaceId);
}

/// What readers see of a machine, on any thread.
pub trait Publish<M>: Default + fmt::Debug {
    /// From now until [`Publish::end_commit`], rows may change.
    fn begin_commit(&self);

    /// Shows readers what is known now.
    fn publish(&self, known: &mut Index, modes: &mut M);

    /// The commit and what came with it are seen by every reader.
    fn end_commit(&self);
}
