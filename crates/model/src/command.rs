//! What enters the log: everything that must survive.

#![expect(missing_docs, reason = "a variant's doc speaks of its fields; their names say the rest")]

use crate::{
    Ballot, Bytes, DeploymentId, Epoch, Fencing, KeyspaceId, KeyspaceSpec, Mirroring, MoveId,
    Promotion, Query, Receiving, Registry, RegistryChange, RequestId, Revision, SiteEntry, SiteId,
    SlotEpochs, SlotSet,
};

/// One command of a site's replicated log. Applying it is deterministic: its outcome depends on
/// the state, on log time and on nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A write to one keyspace.
    Write {
        /// Where.
        keyspace: KeyspaceId,
        /// What.
        write: Write,
        /// For writes that may be sent again.
        request: Option<RequestId>,
    },
    /// Several steps at one moment, or none of them: when a guard fails nothing is done. A step
    /// that is refused (a wrong type, say) does not undo the others, as in Redis.
    Transaction {
        /// Where all of it happens.
        keyspace: KeyspaceId,
        /// What must still hold.
        guards: Vec<Guard>,
        /// What is done, in order.
        steps: Vec<Step>,
        /// For transactions that may be sent again.
        request: Option<RequestId>,
    },
    /// Removes every key of every keyspace (FLUSHALL). The keyspaces stay.
    ClearAll,
    /// Makes a keyspace. Its id is the next free one. [`crate::Answer::Keyspace`].
    CreateKeyspace(KeyspaceSpec),
    /// Removes a keyspace with all it holds. The default one stays.
    DropKeyspace { name: String },
    /// Moves a consumer's durable cursor, or makes it: from now on the keyspace's changes are kept
    /// for it. The position never moves back.
    SetCursor { name: String, keyspace: KeyspaceId, position: Revision },
    /// Forgets a consumer.
    DropCursor { name: String, keyspace: KeyspaceId },
    /// Nothing but the time: removes what has expired and trims what is not needed any more.
    Tick,
    /// Begins a deployment of this site, which holds all slots. Does nothing in a site that belongs
    /// to one.
    Found { deployment: DeploymentId, site: SiteEntry },
    /// Enters a deployment that has taken this site in under this id.
    Enter { site: SiteId, registry: Box<Registry> },
    /// Changes the registry. As a request it is a change that any site can be asked for
    /// ([`crate::Answer::Registered`]); as an entry of a log, the change of a site that is the only
    /// registrar.
    ChangeRegistry(RegistryChange),
    /// Takes a newer version of the registry over.
    LearnRegistry(Box<Registry>),
    /// Keeps the site's pointers of the ring, opaque here.
    SetRing(Bytes),
    /// Registers the owner of slots, for lookups of others. Only higher epochs count.
    Register { holder: SiteId, slots: SlotEpochs },
    /// A step of slots leaving this site. [`crate::Answer::Done`].
    Giving { number: u64, step: Giving },
    /// A step of slots coming to this site.
    Receiving { id: MoveId, step: Receiving },
    /// This site's mirror is kept there from now on, beginning anew; `None`: nowhere.
    SetMirror { to: Option<SiteId> },
    /// A step of the mirror of another site, kept here.
    Mirror { from: SiteId, number: u64, step: Mirroring },
    /// A step of a fence against a site that may be lost, for the promotion of its backup.
    Fence { lost: SiteId, by: SiteId, number: u64, step: Fencing },
    /// Takes over from a lost site that had the right to change the registry, which goes on from
    /// the latest one that any site has.
    Promote { promotion: Promotion, registry: Box<Registry> },
    /// A step of this site as one that holds the registry, or as one that changes it.
    /// [`crate::Answer::Registrar`].
    Registrar(RegistrarStep),
    /// Takes this registry over, if it is newer, and returns the site's records of all slots: in
    /// the failover of `lost` that this version opened, or without one.
    /// [`crate::Answer::Inventory`].
    Inventory { registry: Box<Registry>, lost: SiteId, failover: Option<Ballot> },
    /// The owner of these slots reports that a copy of each is complete at another site, with this
    /// generation and position: copies that are void by that go.
    Supersede { slots: SlotEpochs, generation: u64, position: u64 },
    /// Throws away the copies of what a site owned, by an operator's order that names the site.
    DiscardCopies { of: SiteId },
}

/// A step of a registrar, or of a site that makes an attempt to change the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrarStep {
    /// Writes down a ballot for an attempt of this site's, above one that was refused.
    Reserve(Ballot),
    /// Writes down a ballot that begins the next term.
    ReserveTerm,
    /// Promises to refuse lower ballots.
    Prepare(Ballot),
    /// Accepts a registry of this ballot.
    Accept(Ballot, Box<Registry>),
    /// A registry of before there were registrars is this site's to change: it owns the slot that the
    /// right belonged to. It is its only registrar from here on.
    Adopt,
}

impl Command {
    /// The number that it bears, if it bears one.
    pub fn request_id(&self) -> Option<RequestId> {
        match self {
            Command::Write { request, .. } | Command::Transaction { request, .. } => *request,
            _ => None,
        }
    }

    /// Whether applying it twice is the same as applying it once: it bears a number, or names all
    /// that it changes.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Command::Write { request, .. } | Command::Transaction { request, .. } => {
                request.is_some()
            }
            Command::SetCursor { .. }
            | Command::Tick
            | Command::Found { .. }
            | Command::Enter { .. }
            | Command::ChangeRegistry(_)
            | Command::LearnRegistry(_)
            | Command::SetRing(_)
            | Command::Register { .. }
            | Command::Receiving { .. }
            | Command::Giving { step: Giving::Forget | Giving::Order { .. }, .. }
            | Command::Mirror { .. }
            | Command::Fence { .. }
            | Command::Promote { .. }
            | Command::Registrar(_)
            | Command::Inventory { .. }
            | Command::Supersede { .. }
            | Command::DiscardCopies { .. } => true,
            Command::ClearAll
            | Command::CreateKeyspace(_)
            | Command::DropKeyspace { .. }
            | Command::DropCursor { .. }
            | Command::Giving { .. }
            | Command::SetMirror { .. } => false,
        }
    }
}

/// A step of a handover, taken by the giving site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Giving {
    /// Begins to hand to a site what this one holds of these slots; the command's number counts for
    /// nothing, the move gets its own.
    /// [`crate::Answer::Done`] with that number as revision.
    Begin { slots: SlotSet, to: SiteId, pinned: bool },
    /// An operator's order, which bears a number: what this site holds of these slots goes to a
    /// site. A repetition returns what came of it so far. [`crate::Answer::Ordered`], the
    /// destination's too.
    Order { id: RequestId, slots: SlotSet, to: SiteId },
    /// The slots are not served here any more.
    Freeze,
    /// The receiver serves them: what is here is read no more, but kept until the receiver's mirror
    /// has it, too.
    Release,
    /// The slots are served here again: the receiver has refused for ever, or they were never frozen.
    TakeBack { refused: bool },
    /// The slots are served here again, at these epochs: the receiver has left, and no site owns them. A move
    /// that has no slot left is over.
    Reclaim { slots: SlotEpochs },
    /// Stops copying for the time being, or goes on.
    Pause(bool),
    /// The receiver's mirror has the slots, or it has none: what was kept of them is forgotten.
    Forget,
}

/// A write to one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts a string. Overwrites any kind. [`crate::Answer::Put`].
    Put {
        /// The key.
        key: Bytes,
        /// Its new string.
        value: Bytes,
        /// Only if.
        condition: Condition,
        /// What becomes of its expiry.
        expiry: Expiry,
        /// Answer with the value before (which must then be a string).
        return_old: bool,
    },
    /// Puts several strings (MSET); with `if_all_absent` all or none (MSETNX).
    /// [`crate::Answer::Flag`]: whether it was done.
    PutMany { pairs: Vec<(Bytes, Bytes)>, if_all_absent: bool },
    /// Appends to a string, which is made if absent. [`crate::Answer::Integer`]: its new length.
    Append { key: Bytes, suffix: Bytes },
    /// Adds to a string that holds a decimal i64 (absent counts as 0). [`crate::Answer::Integer`].
    Add { key: Bytes, delta: i64 },
    /// Removes keys. [`crate::Answer::Integer`]: how many there were.
    Delete { keys: Vec<Bytes> },
    /// Removes a key if its version is still this one. [`crate::Answer::Flag`].
    DeleteIf { key: Bytes, version: Revision },
    /// Removes a key that holds a string and answers with it (GETDEL). [`crate::Answer::Value`].
    Take { key: Bytes },
    /// Answers with a key's string and sets or clears its expiry, if it is there (GETEX).
    /// [`crate::Answer::Value`].
    GetAndExpire { key: Bytes, expiry: Expiry },
    /// Sets or clears a key's expiry. A moment that has passed deletes the key.
    /// [`crate::Answer::Flag`]: whether something was changed.
    SetExpiry { key: Bytes, expiry: Expiry, condition: ExpiryCondition },
    /// Sets fields of a hash, which is made if absent. [`crate::Answer::Integer`]: how many are new.
    HashSet { key: Bytes, fields: Vec<(Bytes, Bytes)> },
    /// Sets a field if it is absent. [`crate::Answer::Flag`].
    HashSetIfAbsent { key: Bytes, field: Bytes, value: Bytes },
    /// Removes fields; a hash without fields is removed. [`crate::Answer::Integer`]: how many.
    HashDelete { key: Bytes, fields: Vec<Bytes> },
    /// Adds to a field that holds a decimal i64 (absent counts as 0). [`crate::Answer::Integer`].
    HashAdd { key: Bytes, field: Bytes, delta: i64 },
    /// Removes every key of the keyspace. [`crate::Answer::Done`].
    Clear,
    /// Removes every key of every keyspace of the site, as a step of a transaction.
    /// [`crate::Answer::Done`].
    ClearAll,
}

/// When a put is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// If the key is absent (NX).
    IfAbsent,
    /// If the key is there (XX).
    IfPresent,
    /// If the key's version is still this one; revision 0 means absent.
    IfVersion(Revision),
}

/// What becomes of a key's expiry. Relative times count from the entry's log time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// None from now on.
    #[default]
    Never,
    /// As it was.
    Keep,
    /// This long after the write.
    AfterMs(u64),
    /// At this moment by the wall clock of the leader that proposes it (milliseconds since 1970).
    AtMs(u64),
    /// At this log time: what becomes of [`Expiry::AtMs`] in the log, where the two clocks differ.
    AtLogMs(u64),
}

/// When an expiry is set (EXPIRE's NX, XX, GT, LT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryCondition {
    /// Always.
    #[default]
    Always,
    /// If the key has none.
    IfNone,
    /// If the key has one.
    IfSome,
    /// If the new one is later (no expiry counts as infinitely late).
    IfLater,
    /// If the new one is earlier.
    IfEarlier,
    /// If the key has one and the new one is earlier (XX with LT; no expiry is not "one").
    IfSomeEarlier,
}

/// What must still hold for a transaction to be done (WATCH).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The key.
    pub key: Bytes,
    /// The version it must still have; revision 0: it must be absent.
    pub version: Revision,
    /// With revision 0: it must not have been there since this point either. `None`: absent at the
    /// moment of the transaction is enough.
    pub absent_since: Option<ReadPoint>,
}

/// The state that a read saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPoint {
    /// How far the site's log had come.
    pub revision: Revision,
    /// Of a key in a slot: the epoch at which the site owned the slot. Revisions of two owners
    /// cannot be compared.
    pub epoch: Epoch,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A question, answered as of this step.
    Read(Query),
    /// A write.
    Write(Write),
    /// [`Query::Count`] or [`Query::Scan`] of a keyspace that need not be the transaction's: what the
    /// site that does it holds of it.
    ReadIn { keyspace: KeyspaceId, query: Query },
}
