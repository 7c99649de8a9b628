//! What only a trial asks for: bugs put in on purpose, and rare things made common.
//!
//! A tester that finds nothing proves little unless it finds what is known to be there. Each
//! [`Bug`] is one that a store like this one had, somewhere, and that an honest test must see: the
//! lab plants one and must find it. [`Rare`] makes code that seldom runs run often: a batch of one
//! command, a snapshot sent byte by byte, a request sent twice.
//!
//! Both are off unless the crate is built with its feature `trial`, which nothing but tests and the
//! lab's own trials asks for: without it every question here is `false` at compile time.

use crate::causal::trial as causal;
use crate::global::ownership::trial as rules;
use crate::machine::trial as machine;

/// A bug to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// The log reports durable without an fsync. (The shell's: it leaves the fsync out.)
    SkipSync,
    /// The log reports durable when it is written, before the fsync. (The shell's.)
    AnswerBeforeSync,
    /// A put is acknowledged when the leader has proposed it.
    AcknowledgeBeforeQuorum,
    /// A linearizable read is answered from the node's state without asking for a read index.
    ReadWithoutIndex,
    /// A lease lasts as long as if all clocks ran at one rate, and as if a tick were no tick.
    LeaseWithoutMargin,
    /// A leader that hands leadership over keeps its lease.
    LeaseThroughTransfer,
    /// A node forgets its term and its vote when it restarts.
    ForgetVote,
    /// A request that is sent again is applied again.
    ApplyTwice,
    /// A delete is answered and leaves the key, one time in five.
    ForgetTombstone,
    /// A put under a condition does not look whether it holds, one time in five.
    IgnoreCondition,
    /// Of keys that are written together the last one keeps what it held, one time in five.
    TearTogether,
    /// A write whose leader was lost is answered as certainly not done.
    DenyDoubt,
    /// A write whose answer is not stored is reported as refused where it is sent again, though its
    /// client gave it no number. (Answers that are too long are not stored; here one in five is not.)
    DenyForgotten,
    /// A node that starts, or takes a snapshot in, forgets which requests it has answered.
    ForgetRequests,
    /// A slot that is frozen is served as before.
    ServeFrozen,
    /// What changed while a slot was copied is not sent to its next owner.
    ForgetTail,
    /// What clients were answered does not go along with a slot.
    ForgetMovedAnswers,
    /// A slot that was given away is served as before.
    KeepToken,
    /// A copy of a remote key is the answer, without its owner's confirmation.
    TrustCopies,
    /// A site that was lost and comes back goes on serving what its backup has taken over.
    StaleOwnerServes,
    /// A read by lease, and what passes the core by, is answered from a state that lags behind what
    /// is committed.
    LeaseBehindCommit,
    /// A witness is refused votes for being one, and goes by the library's priorities.
    WitnessPriority,
    /// The gate narrows after everything else has left, also what lets another node lead.
    GateLast,
    /// A registry is taken over and spread when one registrar has accepted it.
    SpreadUnchosen,
    /// A registrar answers before its promise, or what it accepts, is in its log, and forgets it.
    PromiseUnlogged,
    /// Log time is what the leader's wall clock shows.
    TimeByWallClock,
    /// A message is its node's, whichever life of it sent it.
    TrustOldDisks,
    /// A node that asks to be taken in replaces the member of its id, though that one answers.
    EvictTheLiving,
    /// A leader shows a node that it has made a voter as one, while no other node has that
    /// committed.
    ShowNewVoters,
    /// What another site answers is handed out without a read index of this node's own site.
    ForwardUnindexed,
    /// A failover is forgotten when the lost site is back, before all other sites have learned of
    /// it.
    ForgetFailover,
    /// What a site has of another one goes when that one has another backup.
    DropMirror,
    /// A site that hands a slot over, or has lost it, keeps nothing of it.
    RetainNothing,
    /// Slots are taken from copies of the lost site's, though another site may own them by now.
    IgnoreHighestEpoch,
    /// A source takes a slot back from a silent destination, without its answer.
    AbortUnasked,
    /// Sites push facts about slots that change hands, and never compare their maps.
    MapsUncompared,
    /// A site is asked only for those slots of an order that are its own by the asked node's map.
    MoveByMap,
    /// A request of a session is served without what the session wrote at another site.
    AttachWithoutWritten,
    /// A request of a session is served without what the session has seen of the order of causal
    /// keys.
    AttachWithoutSeen,
    /// A site's causal writes are ordered as they come, not as they were made.
    OffersUnchained,
    /// A place of the order is imported without its write, if that is missing.
    PayloadSkipped,
    /// Any position of a site stands for all of its writes.
    ResolvedEarly,
    /// The token of a session is after a read what it was before.
    ReadsUnmerged,
    /// A read that finds nothing leaves the token of its session as it was.
    AbsenceUnseen,
    /// What is imported is put over a site's own writes that have no position yet.
    ImportOverPending,
    /// A leader carries out what another node passes on, whatever the session of it has seen.
    ForwardUnadmitted,
    /// The order of causal keys is trimmed beyond what sites have imported, and they are sent what
    /// is left.
    TrimmedUnimported,
    /// A site that gets its causal keys anew does not get which of its own writes they contain.
    ResyncUnordered,
    /// A site that gets its causal keys anew shows them as soon as the last record has come.
    ResyncSwitchedEarly,
    /// A key that is deleted while a site gets its causal keys anew stays there.
    ResyncKeepsDeleted,
    /// The root of causal keys orders that a key expires by what it has imported, whatever is
    /// ordered since.
    ExpireUnseen,
    /// A clear of causal keys removes a site's own writes that have no position yet.
    ClearPending,
    /// A site shows no causal key whose moment has passed by its own log time.
    ExpireByOwnClock,
    /// The root of causal keys gives the order away before the next one has all of it.
    RootUndrained,
    /// The root of causal keys orders on after it has given the order away.
    RootOrdersOn,
    /// A site that becomes the root of causal keys does not have which writes were ordered before.
    RootForgetsOrdered,
    /// The root of causal keys releases what its standby, which is in sync, does not have.
    ReleasedEarly,
    /// The root of causal keys names the position of a write before its standby has that.
    ResolvedUnreleased,
    /// The root of causal keys answers a clear before its standby has the place of that.
    ClearedUnreleased,
    /// A standby of causal keys is in sync before it has what was released without it.
    InSyncEarly,
    /// A standby of causal keys that is about to take over imports on.
    FrozenImports,
    /// A site that is restored from a backup goes on as if nothing was. (The shell's: it leaves the
    /// mark out.)
    RestoredUnmarked,
    /// The owner of a slot writes to a lent group as before.
    ServeLent,
    /// A group that is being given back is served as before.
    ServeGivenBack,
    /// A site leaves, and hands on no copies of what others own.
    HandNothingOn,
    /// The rows of lent groups go to a mirror before the records that belong to them.
    RowsAhead,
    /// Where groups may go is looked at when a move is decided, and not when it begins and arrives.
    RulesAtDecision,
    /// A root takes what another region has taken of a third one before it has that itself.
    BridgeUnordered,
    /// A root passes over what another region has taken of an order, though that place is lost, and
    /// may never have come.
    LostTakenPassed,
    /// A write of another region has all its effects, whatever was written since.
    BridgeUnstamped,
    /// A session that comes from another region is served whatever it has seen there.
    ForeignUnresolved,
    /// The stamps of a region's writes go by its own clock, whatever it has taken of other regions.
    ClockUnmerged,
    /// After a rebuild sessions are served that have seen what is lost.
    RebuiltUnchecked,
    /// A site of causal keys takes places of keyspaces that it holds without their content, if
    /// there are some that it does not hold.
    CoveredHeld,
    /// A site answers reads of causal keyspaces that it does not hold.
    AnswersUnheld,
    /// A site that passes a session's request on leaves out what its answer states as seen and
    /// written by the session.
    ForwardedUnmerged,
    /// What a fetch of causal keys brings lacks what the root has ordered and not imported.
    FetchedUnfolded,
    /// A site of causal keys takes what a fetch brings before its place.
    FetchedOutside,
    /// A site of causal keys takes places that touch what it holds on demand without their content.
    CoveredFetched,
    /// A site of causal keys answers reads of keys that it does not hold, of those that it could
    /// fetch.
    AnswersUnfetched,
    /// The root of causal keys orders a retried write again that has a place.
    RetryForgotten,
    /// The site that was asked first has its own attempt, and what it overwrote there, ordered
    /// behind the retry.
    RetryUnmatched,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 82] = [
        Bug::SkipSync,
        Bug::AnswerBeforeSync,
        Bug::AcknowledgeBeforeQuorum,
        Bug::ReadWithoutIndex,
        Bug::LeaseWithoutMargin,
        Bug::LeaseThroughTransfer,
        Bug::ForgetVote,
        Bug::ApplyTwice,
        Bug::ForgetTombstone,
        Bug::IgnoreCondition,
        Bug::TearTogether,
        Bug::DenyDoubt,
        Bug::DenyForgotten,
        Bug::ForgetRequests,
        Bug::ServeFrozen,
        Bug::ForgetTail,
        Bug::ForgetMovedAnswers,
        Bug::KeepToken,
        Bug::TrustCopies,
        Bug::StaleOwnerServes,
        Bug::LeaseBehindCommit,
        Bug::WitnessPriority,
        Bug::GateLast,
        Bug::SpreadUnchosen,
        Bug::PromiseUnlogged,
        Bug::TimeByWallClock,
        Bug::TrustOldDisks,
        Bug::EvictTheLiving,
        Bug::ShowNewVoters,
        Bug::ForwardUnindexed,
        Bug::ForgetFailover,
        Bug::DropMirror,
        Bug::RetainNothing,
        Bug::IgnoreHighestEpoch,
        Bug::AbortUnasked,
        Bug::MapsUncompared,
        Bug::MoveByMap,
        Bug::AttachWithoutWritten,
        Bug::AttachWithoutSeen,
        Bug::OffersUnchained,
        Bug::PayloadSkipped,
        Bug::ResolvedEarly,
        Bug::ReadsUnmerged,
        Bug::AbsenceUnseen,
        Bug::ImportOverPending,
        Bug::ForwardUnadmitted,
        Bug::TrimmedUnimported,
        Bug::ResyncUnordered,
        Bug::ResyncSwitchedEarly,
        Bug::ResyncKeepsDeleted,
        Bug::ExpireUnseen,
        Bug::ClearPending,
        Bug::ExpireByOwnClock,
        Bug::RootUndrained,
        Bug::RootOrdersOn,
        Bug::RootForgetsOrdered,
        Bug::ReleasedEarly,
        Bug::ResolvedUnreleased,
        Bug::ClearedUnreleased,
        Bug::InSyncEarly,
        Bug::FrozenImports,
        Bug::RestoredUnmarked,
        Bug::ServeLent,
        Bug::ServeGivenBack,
        Bug::HandNothingOn,
        Bug::RowsAhead,
        Bug::RulesAtDecision,
        Bug::CoveredHeld,
        Bug::AnswersUnheld,
        Bug::ForwardedUnmerged,
        Bug::FetchedUnfolded,
        Bug::FetchedOutside,
        Bug::CoveredFetched,
        Bug::AnswersUnfetched,
        Bug::RetryForgotten,
        Bug::RetryUnmatched,
        Bug::BridgeUnordered,
        Bug::LostTakenPassed,
        Bug::BridgeUnstamped,
        Bug::ForeignUnresolved,
        Bug::ClockUnmerged,
        Bug::RebuiltUnchecked,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Bug::SkipSync => "skip-sync",
            Bug::AnswerBeforeSync => "answer-before-sync",
            Bug::AcknowledgeBeforeQuorum => "acknowledge-before-quorum",
            Bug::ReadWithoutIndex => "read-without-index",
            Bug::LeaseWithoutMargin => "lease-without-margin",
            Bug::LeaseThroughTransfer => "lease-through-transfer",
            Bug::ForgetVote => "forget-vote",
            Bug::ApplyTwice => "apply-twice",
            Bug::ForgetTombstone => "forget-tombstone",
            Bug::IgnoreCondition => "ignore-condition",
            Bug::TearTogether => "tear-together",
            Bug::DenyDoubt => "deny-doubt",
            Bug::DenyForgotten => "deny-forgotten",
            Bug::ForgetRequests => "forget-requests",
            Bug::ServeFrozen => "serve-frozen",
            Bug::ForgetTail => "forget-tail",
            Bug::ForgetMovedAnswers => "forget-moved-answers",
            Bug::KeepToken => "keep-token",
            Bug::TrustCopies => "trust-copies",
            Bug::StaleOwnerServes => "stale-owner-serves",
            Bug::LeaseBehindCommit => "lease-behind-commit",
            Bug::WitnessPriority => "witness-priority",
            Bug::GateLast => "gate-last",
            Bug::SpreadUnchosen => "spread-unchosen",
            Bug::PromiseUnlogged => "promise-unlogged",
            Bug::TimeByWallClock => "time-by-wall-clock",
            Bug::TrustOldDisks => "trust-old-disks",
            Bug::EvictTheLiving => "evict-the-living",
            Bug::ShowNewVoters => "show-new-voters",
            Bug::ForwardUnindexed => "forward-unindexed",
            Bug::ForgetFailover => "forget-failover",
            Bug::DropMirror => "drop-mirror",
            Bug::RetainNothing => "retain-nothing",
            Bug::IgnoreHighestEpoch => "ignore-highest-epoch",
            Bug::AbortUnasked => "abort-unasked",
            Bug::MapsUncompared => "maps-uncompared",
            Bug::MoveByMap => "move-by-map",
            Bug::AttachWithoutWritten => "attach-without-written",
            Bug::AttachWithoutSeen => "attach-without-seen",
            Bug::OffersUnchained => "offers-unchained",
            Bug::PayloadSkipped => "payload-skipped",
            Bug::ResolvedEarly => "resolved-early",
            Bug::ReadsUnmerged => "reads-unmerged",
            Bug::AbsenceUnseen => "absence-unseen",
            Bug::ImportOverPending => "import-over-pending",
            Bug::ForwardUnadmitted => "forward-unadmitted",
            Bug::TrimmedUnimported => "trimmed-unimported",
            Bug::ResyncUnordered => "resync-unordered",
            Bug::ResyncSwitchedEarly => "resync-switched-early",
            Bug::ResyncKeepsDeleted => "resync-keeps-deleted",
            Bug::ExpireUnseen => "expire-unseen",
            Bug::ClearPending => "clear-pending",
            Bug::ExpireByOwnClock => "expire-by-own-clock",
            Bug::RootUndrained => "root-undrained",
            Bug::RootOrdersOn => "root-orders-on",
            Bug::RootForgetsOrdered => "root-forgets-ordered",
            Bug::ReleasedEarly => "released-early",
            Bug::ResolvedUnreleased => "resolved-unreleased",
            Bug::ClearedUnreleased => "cleared-unreleased",
            Bug::InSyncEarly => "in-sync-early",
            Bug::FrozenImports => "frozen-imports",
            Bug::RestoredUnmarked => "restored-unmarked",
            Bug::ServeLent => "serve-lent",
            Bug::ServeGivenBack => "serve-given-back",
            Bug::HandNothingOn => "hand-nothing-on",
            Bug::RowsAhead => "rows-ahead",
            Bug::RulesAtDecision => "rules-at-decision",
            Bug::CoveredHeld => "covered-held",
            Bug::AnswersUnheld => "answers-unheld",
            Bug::ForwardedUnmerged => "forwarded-unmerged",
            Bug::FetchedUnfolded => "fetched-unfolded",
            Bug::FetchedOutside => "fetched-outside",
            Bug::CoveredFetched => "covered-fetched",
            Bug::AnswersUnfetched => "answers-unfetched",
            Bug::RetryForgotten => "retry-forgotten",
            Bug::RetryUnmatched => "retry-unmatched",
            Bug::BridgeUnordered => "bridge-unordered",
            Bug::LostTakenPassed => "lost-taken-passed",
            Bug::BridgeUnstamped => "bridge-unstamped",
            Bug::ForeignUnresolved => "foreign-unresolved",
            Bug::ClockUnmerged => "clock-unmerged",
            Bug::RebuiltUnchecked => "rebuilt-unchecked",
        }
    }
}

/// The bug that is planted in a node, if one is.
pub type Planted = crate::trial::Planted<Bug>;

/// Of what is planted in a node, what its rules of ownership have to do with.
pub(crate) fn of_rules(planted: Planted) -> rules::Planted {
    let pairs = [
        (Bug::ForgetFailover, rules::Bug::ForgottenOnReturn),
        (Bug::RetainNothing, rules::Bug::NothingRetained),
        (Bug::IgnoreHighestEpoch, rules::Bug::HighestEpochIgnored),
        (Bug::HandNothingOn, rules::Bug::NothingHandedOn),
    ];
    let found = pairs.into_iter().find(|(bug, _)| planted.is(*bug));
    found.map_or(rules::Planted::none(), |(_, rule)| rules::Planted::of(rule))
}

/// Of what is planted in a node, what its state machine has to do with.
pub(crate) fn of_machine(planted: Planted) -> machine::Planted {
    let pairs = [
        (Bug::ApplyTwice, machine::Bug::ApplyTwice),
        (Bug::DenyForgotten, machine::Bug::DenyForgotten),
        (Bug::ForgetRequests, machine::Bug::ForgetRequests),
        (Bug::ForgetMovedAnswers, machine::Bug::ForgetMovedAnswers),
        (Bug::ForgetTombstone, machine::Bug::ForgetTombstone),
        (Bug::IgnoreCondition, machine::Bug::IgnoreCondition),
        (Bug::TearTogether, machine::Bug::TearTogether),
    ];
    let found = pairs.into_iter().find(|(bug, _)| planted.is(*bug));
    found.map_or(machine::Planted::none(), |(_, bug)| machine::Planted::of(bug))
}

/// Of what is planted in a node, what the order of causal keys has to do with.
pub(crate) fn of_causal(planted: Planted) -> causal::Planted {
    let pairs = [
        (Bug::AttachWithoutWritten, causal::Bug::WrittenIgnored),
        (Bug::AttachWithoutSeen, causal::Bug::SeenIgnored),
        (Bug::OffersUnchained, causal::Bug::OffersUnchained),
        (Bug::PayloadSkipped, causal::Bug::PayloadSkipped),
        (Bug::ResolvedEarly, causal::Bug::ResolvedEarly),
        (Bug::ReadsUnmerged, causal::Bug::ReadsUnmerged),
        (Bug::TrimmedUnimported, causal::Bug::TrimmedUnimported),
        (Bug::ResyncUnordered, causal::Bug::ResyncUnordered),
        (Bug::ResyncSwitchedEarly, causal::Bug::ResyncSwitchedEarly),
        (Bug::RootUndrained, causal::Bug::RootUndrained),
        (Bug::ReleasedEarly, causal::Bug::ReleasedEarly),
        (Bug::ResolvedUnreleased, causal::Bug::ResolvedUnreleased),
        (Bug::InSyncEarly, causal::Bug::InSyncEarly),
        (Bug::CoveredHeld, causal::Bug::CoveredHeld),
        (Bug::FetchedOutside, causal::Bug::FetchedOutside),
        (Bug::CoveredFetched, causal::Bug::CoveredFetched),
        (Bug::ForeignUnresolved, causal::Bug::ForeignUnresolved),
    ];
    let found = pairs.into_iter().find(|(bug, _)| planted.is(*bug));
    found.map_or(causal::Planted::none(), |(_, bug)| causal::Planted::of(bug))
}

/// Makes rare things common, at the places in the code that ask.
#[derive(Clone, Debug, Default)]
pub struct Rare {
    permille: u64,
    state: u64,
}

impl Rare {
    /// True so many times of a thousand, by a stream of its own that `seed` begins.
    pub fn new(permille: u64, seed: u64) -> Rare {
        Rare { permille, state: seed }
    }

    /// Whether the rare thing happens now.
    pub fn happens(&mut self) -> bool {
        if !cfg!(feature = "trial") || self.permille == 0 {
            return false;
        }
        // SplitMix64, as in the lab.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % 1_000 < self.permille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_planted_by_default() {
        assert!(Bug::ALL.into_iter().all(|bug| !Planted::default().is(bug)));
        assert_eq!(Planted::of(Bug::SkipSync).is(Bug::SkipSync), Planted::is_possible());
        assert!(!Planted::of(Bug::SkipSync).is(Bug::ForgetVote));
    }

    #[test]
    fn rare_things_happen_as_often_as_asked() {
        let mut never = Rare::default();
        assert!((0..1_000).all(|_| !never.happens()));
        let mut often = Rare::new(250, 1);
        let count = (0..10_000).filter(|_| often.happens()).count();
        let expected = if Planted::is_possible() { 2_300..2_700 } else { 0..1 };
        assert!(expected.contains(&count), "{count}");
    }
}
