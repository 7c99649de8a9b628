//! What a site's leader runs beside requests: one trait, one effect, one list for operators.
//!
//! A [`Job`] is the volatile half of something durable: it sees the state ([`View`]) and answers
//! with effects ([`Effect`]). It can be lost at any moment. A new leader begins with an empty job,
//! which finds what there is to do in the state and asks the other sites for the rest.
//!
//! Two tables have all jobs, a line each: [`model::JobName`] has what people and other nodes see of
//! a job, `crate::site::jobs` its type and when it is polled. A job that is missing in one of them
//! does not compile.
//!
//! Left out on purpose: when a job is polled is the site's choice (`crate::site::jobs`), and so is
//! how an effect is performed. A job reads no clock, and changes nothing but itself. The driver of
//! changes of the registry ([`crate::deployment::registry::Driver`]) is no job: ADR 46 states why.

use crate::causal::layout::Layout;
use crate::deployment::failure_detector::FailureDetector;
use crate::deployment::versions::Versions;
use crate::global::backups::Backups;
use crate::global::preferred_owners::PreferredOwners;
use crate::global::round_trips::RoundTrips;
use crate::machine::{Machine, ModeState};
use crate::origin::Origin;
use crate::site::machine::Modes;
use model::{
    Answer, ClientId, Command, Failure, NodeId, Position, RegistryChange, RequestId, SiteId,
    SlotEpochs, limits,
};
use std::sync::Arc;
use std::time::Duration;
use storage::state::State;
use wire::inter_site::InterSite;

/// What a job wants done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A command of this site. Its outcome shows in the state.
    Propose(Command),
    /// A command of a site, this one perhaps. The answer comes back under `id`; `None`: it does not
    /// matter. It is unknown after `timeout`.
    Ask { id: Option<u64>, to: SiteId, command: Command, timeout: Duration },
    /// A message to a site, this one perhaps. `awaited`: its silence is counted.
    Send { to: SiteId, message: InterSite, awaited: bool },
    /// A message to this node of a site.
    SendNode { site: SiteId, node: NodeId, message: InterSite },
    /// A message to all nodes of a site: which of them leads is not known.
    SendAll { to: SiteId, message: InterSite },
    /// A site is called; its answer shows in [`View::failure_detector`].
    Call(SiteId),
    /// A change of the registry, under the number of an operator's command if it has one. Its
    /// outcome shows in the registry, and comes back under `id` if there is one.
    Change {
        id: Option<u64>,
        change: RegistryChange,
        request: Option<RequestId>,
        timeout: Duration,
    },
    /// The registry goes on without these sites, which are lost.
    Recover { without: Vec<SiteId> },
    /// The outcome of a request, for its origin.
    Settle(Origin, Result<Answer, Failure>),
    /// Another site serves these slots: what waits for them need not wait for the state to show it.
    Owned { slots: SlotEpochs, by: SiteId },
    /// The state cannot be read: the node ends.
    Fail(String),
}

impl Effect {
    /// A command of a site, with the timeout of a client's request.
    pub(crate) fn ask(id: u64, to: SiteId, command: Command) -> Effect {
        Effect::Ask { id: Some(id), to, command, timeout: limits::REQUEST_DEADLINE }
    }

    /// A change of the registry of this site's own.
    pub(crate) fn change(change: RegistryChange, timeout: Duration) -> Effect {
        Effect::Change { id: None, change, request: None, timeout }
    }
}

/// How far a job is, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// What is left to do, in [`model::JobName::unit`].
    pub(crate) left: u64,
    /// Bytes that were sent to other sites by this leader.
    pub(crate) sent_bytes: u64,
}

/// What a job sees of its site. `M` is what the state has of the site's modes: a job of one mode
/// can be tried over a machine that has no other.
pub(crate) struct View<'a, S: State, M: ModeState = Modes> {
    /// The monotonic clock.
    pub(crate) now: Duration,
    /// The state.
    pub(crate) machine: &'a Machine<S, M>,
    /// Where slots belong.
    pub(crate) preferred_owners: &'a PreferredOwners,
    /// Which other sites answer.
    pub(crate) failure_detector: &'a FailureDetector,
    /// How long other sites take to answer.
    pub(crate) round_trips: &'a RoundTrips,
    /// The versions of the registry that other sites have.
    pub(crate) versions: &'a Versions,
    /// At the root of a region: how far its standby has the order for sure.
    pub(crate) standby_has: Position,
    /// The sites of this one's region, perhaps by an earlier registry ([`Layout::is_of`]).
    pub(crate) layout: Option<&'a Arc<Layout>>,
    /// The site that is to keep this one's mirror.
    pub(crate) backup: Option<SiteId>,
    /// What originals have reported of their mirrors.
    pub(crate) backups: &'a Backups,
    /// Log time and the wall clock, milliseconds.
    pub(crate) log_now_ms: u64,
    pub(crate) wall_ms: u64,
    /// This process, among those that number requests.
    pub(crate) client: ClientId,
    /// Whether this node leads.
    pub(crate) leads: bool,
    /// The log's disk takes nothing at the moment.
    pub(crate) disk_is_full: bool,
}

#[cfg(test)]
impl<'a, S: State, M: ModeState> View<'a, S, M> {
    /// What a job of a leader sees that has just begun, in a test.
    pub(crate) fn of(machine: &'a Machine<S, M>, now: Duration) -> View<'a, S, M> {
        use std::sync::LazyLock;
        static PREFERRED: LazyLock<PreferredOwners> = LazyLock::new(PreferredOwners::default);
        static FAILURE_DETECTOR: LazyLock<FailureDetector> =
            LazyLock::new(FailureDetector::default);
        static ROUND_TRIPS: LazyLock<RoundTrips> = LazyLock::new(RoundTrips::default);
        static VERSIONS: LazyLock<Versions> = LazyLock::new(Versions::default);
        static BACKUPS: LazyLock<Backups> = LazyLock::new(Backups::default);
        View {
            now,
            machine,
            preferred_owners: &PREFERRED,
            failure_detector: &FAILURE_DETECTOR,
            round_trips: &ROUND_TRIPS,
            versions: &VERSIONS,
            standby_has: Position(0),
            layout: None,
            backup: None,
            backups: &BACKUPS,
            log_now_ms: 0,
            wall_ms: 0,
            client: ClientId(1),
            leads: true,
            disk_is_full: false,
        }
    }
}

/// Something that a site's leader does beside requests. Idempotent, and resumable from the state
/// alone.
pub(crate) trait Job<S: State, M: ModeState = Modes> {
    /// The next steps.
    fn poll(&mut self, view: &View<'_, S, M>) -> Vec<Effect>;

    /// An outcome of [`Effect::Ask`], under its number.
    fn answered(
        &mut self,
        _id: u64,
        _outcome: Result<Answer, Failure>,
        _view: &View<'_, S, M>,
    ) -> Vec<Effect> {
        Vec::new()
    }

    /// This node leads no more: what was under way is the next leader's.
    fn stop(&mut self) -> Vec<Effect> {
        Vec::new()
    }

    /// The next steps of what may not wait while the job is paused: requests wait for it.
    fn poll_paused(&mut self, _view: &View<'_, S, M>) -> Vec<Effect> {
        Vec::new()
    }

    /// How far it is, for people.
    fn progress(&self, _view: &View<'_, S, M>) -> Progress {
        Progress::default()
    }

    /// Why it can do nothing, for people, if an operator has to look.
    fn waits_for(&self, _view: &View<'_, S, M>) -> Option<String> {
        None
    }

    /// When it must be polled at the latest, if that is before the next tick.
    fn next_due(&self, _now: Duration) -> Option<Duration> {
        None
    }
}
