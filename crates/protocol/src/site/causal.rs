//! Causal keys at a node: the parts of [`crate::causal`] put to work.
//!
//! - The site's leader runs six jobs: export, distribute (at the root), import, resync, root and standby.
//! - A message for a leader that reaches another node is answered with the leader, if that is known; what it
//!   carried is sent again there, as any message that was lost.
//! - A request of a causal keyspace is served here or waits here, whatever the site: by the token of its session
//!   ([`crate::causal::admission`]). A request without a token is a session of its own.
//!
//! A read of a session that has a token is answered from this node's state: that the state has what the token
//! names is all that it needs. The first read of a session takes a read index of its site, so that a client that
//! comes to another node finds what it was answered before. A write that was admitted at one node is carried out
//! through the log, where all that the node has applied comes before it.

mod shown;

pub(super) use shown::Shown;

use super::machine::Machine;
use super::machine::causal::NOT_HELD;
use super::machine::causal::session::{Lacks, SessionRead};
use super::{Origin, Site};
use crate::admission::Target;
use crate::bugs::{Bug, of_causal};
use crate::causal::admission::{Admission, Here, Requests};
use crate::causal::clears::Clears;
use crate::causal::distribute::{self, Distribute};
use crate::causal::export::{self, Export};
use crate::causal::import::{self, Import};
use crate::causal::layout::Layout;
use crate::causal::resolve::Questions;
use crate::causal::resync::Resync;
use crate::causal::roots::{self, Roots};
use crate::causal::{Durable, Region};
use crate::job::{Effect, Job, Progress, View};
use crate::replica::moments;
use crate::replica::reads::WaitingRead;
use crate::replica::writes::Settled;
use model::{
    Answer, Body, CausalCommand, CausalToken, CausalWrite, Command, Failure, JobName, KeyspaceId,
    KeyspaceSpec, NO_SITE, NodeId, Position, ReadConsistency, SessionError, SiteId, limits,
};
use std::sync::Arc;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::causal::{CausalMessage, CausalStep, Pull, Resolved, Writes};
use wire::entry::{decode_writes, encode_writes};
use wire::inter_site::InterSite;

type Outcome = Result<Answer, Failure>;

/// What a clear is answered that has a place which may be lost with this root.
const UNRELEASED: Failure = Failure::Unknown {
    why: "the root's standby has not acknowledged the place of it: see what is there, and ask again",
};

/// How long a change of the registry is tried.
pub(super) const CHANGE_HAS: Duration = Duration::from_secs(5);

/// What a node holds of causal keys beside the state and its leader's jobs.
pub(super) struct Causal {
    requests: Requests<Asked>,
    questions: Questions,
    clears: Clears<Settled>,
    /// Of the registry that the jobs saw last.
    pub(super) layout: Option<Arc<Layout>>,
    /// The leader and term, other than this node's, under which the jobs were stopped.
    pub(super) stopped_under: Option<(Option<NodeId>, u64)>,
}

/// A request that waits.
#[derive(Debug)]
struct Asked {
    origin: Origin,
    body: Body,
    deadline: Duration,
}

impl Causal {
    pub(super) fn new(options: &super::Options) -> Causal {
        let planted = of_causal(options.planted);
        let (requests, questions) = (Requests::new(planted), Questions::new(planted));
        Causal { requests, questions, clears: Clears::default(), layout: None, stopped_under: None }
    }

    /// Keeps the layout of the region: all its jobs need it, at every step.
    fn follow<S: State>(&mut self, machine: &Machine<S>) {
        let Some(member) = machine.membership().filter(|_| machine.region().is_some()) else {
            return;
        };
        if !self.layout.as_ref().is_some_and(|layout| layout.is_of(&member.registry)) {
            self.layout = Some(Arc::new(Layout::of(&member.registry)));
        }
    }

    /// Whether no request waits, which ends at its deadline.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_idle() && self.clears.is_idle()
    }
}

// ---- the state -------------------------------------------------------------------------------------

/// The region of a site; `None`: it has no causal keyspace. `standby_has`: how far the standby has the order.
fn region_of<S: State>(
    machine: &Machine<S>,
    standby_has: Position,
    layout: Option<&Arc<Layout>>,
) -> Option<Region> {
    let (member, region, causal) = (machine.membership()?, machine.region()?, machine.causal());
    Some(Region {
        id: region.id,
        own: member.own,
        root: region.root,
        epoch: region.epoch,
        has_begun: causal.has_begun(region),
        is_rebuilding: region.is_rebuilding(),
        layout: match layout.filter(|layout| layout.is_of(&member.registry)) {
            Some(layout) => layout.clone(),
            None => Arc::new(Layout::of(&member.registry)),
        },
        next: region.next,
        standby: region.standby,
        standby_rule: region.standby_rule,
        // What is imported here was released, by whichever leader.
        gate: causal.holds(region).then(|| standby_has.max(causal.applied())),
        is_frozen: causal.is_frozen(region, member.own),
    })
}

/// The same, as a job sees it.
pub(super) fn region_in<S: State>(view: &View<'_, S>) -> Option<Region> {
    region_of(view.machine, view.standby_has, view.layout)
}

/// How far the order is released, as every node of a site knows it.
fn released<S: State>(machine: &Machine<S>) -> Position {
    let (Some(member), Some(region)) = (machine.membership(), machine.region()) else {
        return Position(0);
    };
    machine.causal().released(region, member.own)
}

fn inter_site(step: CausalStep) -> InterSite {
    InterSite::Causal(CausalMessage::from(step))
}

// ---- the jobs --------------------------------------------------------------------------------------

impl<S: State> Job<S> for Export {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effects = |step| match step {
            export::Step::Offer { id, to, epoch, offer } => {
                let command = Command::Causal(CausalCommand::Order { epoch, offer });
                vec![Effect::ask(id, to, command)]
            }
            export::Step::Share(writes) => share(&region, &writes),
        };
        let shown = Shown::of(view.machine);
        let steps = Export::poll(self, view.now, &shown, &region);
        steps.into_iter().flat_map(effects).chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Export::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Export::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = view.machine.causal().unordered_bytes();
        Progress { left, sent_bytes: self.sent_bytes() }
    }

    fn waits_for(&self, _: &View<'_, S>) -> Option<String> {
        let why = "room in the order at the root: it is full";
        self.is_refused().then(|| why.to_owned())
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Export::next_due(self, now)
    }
}

/// Of a retry: the first attempt has no place up to there.
fn since_of(body: &mut Body, seen: Position) {
    if let Body::Write(Command::Causal(CausalCommand::Retry { since, .. })) = body {
        *since = seen;
    }
}

/// Writes go to the sites that neither made nor order them, and hold their keyspaces.
fn share(region: &Region, writes: &[CausalWrite]) -> Vec<Effect> {
    let all = encode_writes(&writes.to_vec());
    let interest = &region.layout.interest;
    let others =
        region.layout.sites.iter().filter(|site| **site != region.own && **site != region.root);
    let of_site = |to: &SiteId| {
        let writes = match interest.holds_all(*to) {
            true => all.clone(),
            false => {
                let held = interest.select(*to, writes);
                encode_writes(&(!held.is_empty()).then_some(held)?)
            }
        };
        let message = inter_site(CausalStep::Writes(Writes { site: region.own.0, writes }));
        Some(Effect::Send { to: *to, message, awaited: false })
    };
    others.filter_map(of_site).collect()
}

impl<S: State> Job<S> for Distribute {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view) else { return Vec::new() };
        let effect = |step| match step {
            distribute::Step::Places(site, node, places) => {
                Effect::SendNode { site, node, message: inter_site(CausalStep::Places(places)) }
            }
            distribute::Step::Writes(site, node, writes) => {
                let writes = Writes { site: NO_SITE.0, writes: encode_writes(&writes) };
                Effect::SendNode { site, node, message: inter_site(CausalStep::Writes(writes)) }
            }
            distribute::Step::Ask { to, message: question, again } => {
                sent(to, CausalStep::Where(question), again)
            }
        };
        let shown = Shown::of(view.machine);
        let steps = Distribute::poll(self, view.now, &shown, &region);
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Distribute::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress { left: self.left(&Shown::of(view.machine)), sent_bytes: 0 }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Distribute::next_due(self, now)
    }
}

impl<S: State> Job<S> for Resync {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let shown = Shown::of(view.machine);
        let steps = Resync::poll(self, view.now, &shown, &region);
        steps.into_iter().chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Resync::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Resync::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = self.left(view.machine.causal_keys());
        Progress { left, sent_bytes: self.sent_bytes() }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Resync::next_due(self, now)
    }
}

impl<S: State> Job<S> for Roots {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effect = |step| match step {
            roots::Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            roots::Step::Hand { id, to, command } => Effect::ask(id, to, Command::Causal(command)),
            roots::Step::Ask { to, message, again } => sent(to, CausalStep::Where(message), again),
            roots::Step::Change(change) => Effect::change(change, CHANGE_HAS),
        };
        let shown = Shown::of(view.machine);
        let steps = Roots::poll(self, view.now, &shown, &region, next_root(view));
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        _: &View<'_, S>,
    ) -> Vec<Effect> {
        Roots::answered(self, id, &outcome);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Roots::stop(self);
        Vec::new()
    }

    /// What has begun comes to an end: no write has a position meanwhile.
    fn poll_paused(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let region = view.machine.region();
        let stopped = |region: &model::Region| view.machine.causal().stopped_in(region.epoch);
        match region.and_then(stopped) {
            Some(_) => Job::poll(self, view),
            None => Vec::new(),
        }
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress { left: self.left(&Shown::of(view.machine)), sent_bytes: 0 }
    }

    fn waits_for(&self, view: &View<'_, S>) -> Option<String> {
        Roots::waits_for(self, view.now, &Shown::of(view.machine)).map(str::to_owned)
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Roots::next_due(self, now)
    }
}

/// The site that is to be the root in the place of this one: by an operator, or as this one leaves.
fn next_root<S: State>(view: &View<'_, S>) -> Option<SiteId> {
    let (member, region) = (view.machine.membership()?, view.machine.region()?);
    let registry = &member.registry;
    let leaves = registry.site(member.own).is_some_and(|site| site.leaving);
    let lost = view.failure_detector.lost(view.now);
    // A site that leaves does not wait for a lost one.
    let next = region.next.filter(|next| !leaves || !lost.contains(next));
    if region.root != member.own || next.is_some() || !leaves {
        return next;
    }
    let is_needed = registry.keyspaces.iter().any(|keyspace| keyspace.spec.is_causal());
    let others = registry.staying().map(|site| site.id);
    let is_standby = |site: &SiteId| region.standby.is_some_and(|standby| standby.site == *site);
    let can = others.filter(|site| is_needed && !lost.contains(site));
    let can = can.filter(|site| registry.holds_all_causal(*site));
    can.min_by_key(|site| (!is_standby(site), *site))
}

/// A message for a site's leader. `is_lost`: nothing came of the last one, so that all nodes are asked.
pub(super) fn sent(to: SiteId, step: CausalStep, is_lost: bool) -> Effect {
    match is_lost {
        true => Effect::SendAll { to, message: inter_site(step) },
        false => Effect::Send { to, message: inter_site(step), awaited: false },
    }
}

impl<S: State> Job<S> for Import {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effect = |step| match step {
            import::Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            import::Step::Report { message, silent } => {
                sent(region.root, CausalStep::Reached(message), silent)
            }
            import::Step::Pull(pull) => sent(region.root, CausalStep::Pull(pull), false),
        };
        let shown = Shown::of(view.machine);
        let steps = Import::poll(self, view.now, &shown, &region);
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Import::stop(self);
        Vec::new()
    }

    fn progress(&self, _: &View<'_, S>) -> Progress {
        Progress { left: self.left(), sent_bytes: 0 }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Import::next_due(self, now)
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Runs the jobs of causal keys; a node that does not lead stops them once.
    pub(super) fn run_causal_jobs(&mut self) {
        self.causal.follow(&self.machine);
        let stops_under = (!self.leads()).then_some(self.replica.led_by);
        if stops_under.is_some() && stops_under == self.causal.stopped_under {
            return;
        }
        self.causal.stopped_under = stops_under;
        for job in [
            JobName::Export,
            JobName::Distribute,
            JobName::Import,
            JobName::Resync,
            JobName::Root,
            JobName::Standby,
        ] {
            self.run_job(job);
        }
    }

    fn region_here(&self) -> Option<Region> {
        region_of(&self.machine, self.jobs.standby.acknowledged(), self.causal.layout.as_ref())
    }

    // ---- messages ----------------------------------------------------------------------------------

    /// A message of another site, or of this one to itself.
    pub(super) fn take_causal(&mut self, site: SiteId, node: NodeId, message: CausalMessage) {
        let now = self.now.monotonic;
        let Some(step) = message.step else { return };
        let of_state = matches!(step, CausalStep::Pull(_) | CausalStep::Resolve(_));
        let of_leader = matches!(
            step,
            CausalStep::Writes(_)
                | CausalStep::Where(_)
                | CausalStep::Reached(_)
                | CausalStep::Places(_)
        );
        // A witness has no state.
        if (of_state && self.options.witness) || (of_leader && !self.leads()) {
            let leader = self.replica.raft.leader().map_or(0, |leader| leader.0);
            return self.send_inter_site(site, node, inter_site(CausalStep::LedBy(leader)));
        }
        if self.options.witness {
            return;
        }
        match step {
            CausalStep::Writes(writes) => {
                // A message that cannot be read is as good as lost.
                let Ok(all) = decode_writes(writes.writes) else { return };
                self.jobs.import.take_writes(SiteId(writes.site), all);
            }
            CausalStep::Where(question) => {
                self.global.routing.learn_leader(site, node);
                self.jobs.import.asked(question.epoch);
            }
            CausalStep::Reached(report) => {
                self.global.routing.learn_leader(site, node);
                self.jobs.resync.reached(site, report, now);
                self.jobs.roots.reached(site, report, now);
                self.jobs.standby.reached(site, report, now);
                self.jobs.distribute.reached((site, node), report, now);
            }
            CausalStep::Places(places) => {
                self.global.routing.learn_leader(site, node);
                if let Some(region) = self.region_here() {
                    self.jobs.import.take_places(&places, now, &region);
                }
            }
            CausalStep::Pull(pull) => self.take_pull(site, node, &pull),
            CausalStep::Resolve(question) => {
                let registry = self.machine.membership().map(|member| &member.registry);
                let of = SiteId(question.site);
                // One that has just joined is not listed here yet.
                let has_left = registry.is_some_and(|registry| registry.has_left(of));
                // Only the root knows that nothing more is on its way.
                let orders = self.region_here().is_some_and(|region| region.orders());
                let has_left = has_left && orders;
                let questions = &mut self.causal.questions;
                let (shown, released) = (Shown::of(&self.machine), released(&self.machine));
                let asker = (site, node);
                let answer = questions.asked(asker, question, (now, has_left), &shown, released);
                if let Some(answer) = answer {
                    self.send_to_asker((site, node), answer);
                }
            }
            CausalStep::Resolved(answer) => {
                let lost = self.causal.requests.resolved(answer);
                self.refuse_sessions(lost);
            }
            CausalStep::LedBy(leader) => {
                let is_other = leader != 0 && leader != node.0;
                if is_other {
                    self.global.routing.learn_leader(site, NodeId(leader));
                }
                self.jobs.distribute.turned(site, node);
                if self.region_here().is_some_and(|region| region.root == site) {
                    self.jobs.import.turned();
                    if is_other {
                        self.causal.requests.ask_again();
                        self.ask_positions();
                    }
                }
            }
        }
    }

    /// A site lacks writes: those that fit a message are sent.
    fn take_pull(&mut self, site: SiteId, node: NodeId, pull: &Pull) {
        let mut bytes = 0;
        for position in pull.positions.iter().take(limits::CAUSAL_PULLED_MAX) {
            let before = Position(position.saturating_sub(1));
            let found = Shown::of(&self.machine).ordered(before, 1).into_iter().next();
            let Some((_, of, write)) = found.filter(|(at, ..)| at.0 == *position) else { continue };
            bytes += write.payload_bytes();
            let writes = encode_writes(&vec![write]);
            self.send_inter_site(
                site,
                node,
                inter_site(CausalStep::Writes(Writes { site: of.0, writes })),
            );
            if bytes > limits::CAUSAL_PAYLOAD_BYTES_MAX {
                return;
            }
        }
    }

    fn send_to_asker(&mut self, (site, node): (SiteId, NodeId), answer: Resolved) {
        if self.machine.membership().is_some_and(|member| member.own == site) {
            let lost = self.causal.requests.resolved(answer);
            return self.refuse_sessions(lost);
        }
        self.send_inter_site(site, node, inter_site(CausalStep::Resolved(answer)));
    }

    // ---- requests of sessions ----------------------------------------------------------------------

    /// Whether a keyspace's writes are ordered by a region.
    pub(super) fn is_causal(&self, keyspace: KeyspaceId) -> bool {
        self.machine.spec(keyspace).is_some_and(KeyspaceSpec::is_causal)
    }

    /// The causal keyspace that a request is about.
    pub(super) fn causal_keyspace(&self, body: &Body) -> Option<KeyspaceId> {
        let keyspace = match body {
            Body::Read { keyspace, .. }
            | Body::Write(
                Command::Write { keyspace, .. }
                | Command::Transaction { keyspace, .. }
                | Command::Causal(
                    CausalCommand::Clear { keyspace }
                    | CausalCommand::Numbered { keyspace, .. }
                    | CausalCommand::Retry { keyspace, .. },
                ),
            ) => *keyspace,
            _ => return None,
        };
        Some(keyspace).filter(|keyspace| self.is_causal(*keyspace))
    }

    fn causal_here(&self) -> Option<Here> {
        let member = self.machine.membership()?;
        let region = self.machine.region()?;
        let (own, applied) = (member.own, self.machine.causal().applied());
        let (region, rebuilt) = (region.id, region.rebuilt);
        let lacks_own = self.machine.causal().lacks_own();
        Some(Here { region, own, applied, revision: self.machine.revision(), rebuilt, lacks_own })
    }

    /// A keyspace is to be cleared: the root does that, under the token of the request.
    pub(super) fn take_clear(&mut self, origin: Origin, keyspace: KeyspaceId, deadline: Duration) {
        let body = Body::Write(Command::Causal(CausalCommand::Clear { keyspace }));
        let root = self.machine.region().map(|region| region.root);
        match root.filter(|_| !self.machine.is_root()) {
            Some(root) => self.take(origin, body, Target::Site(root), deadline),
            None => self.take_in_session(origin, body, deadline),
        }
    }

    /// A write is to be made in the place of a site that did not answer: the root does that, under the token of the request.
    pub(super) fn take_retry(&mut self, origin: Origin, mut body: Body, deadline: Duration) {
        // What its session has seen is known once that is admitted.
        since_of(&mut body, Position(0));
        let root = self.machine.region().map(|region| region.root);
        match root.filter(|_| !self.machine.is_root()) {
            Some(root) => self.take(origin, body, Target::Site(root), deadline),
            None => self.take_in_session(origin, body, deadline),
        }
    }

    /// A request of a causal keyspace has come to this node.
    pub(super) fn take_in_session(&mut self, origin: Origin, body: Body, deadline: Duration) {
        if let Some(miss) = self.miss(&body) {
            return self.take_elsewhere(origin, body, miss, deadline);
        }
        let Some(here) = self.causal_here() else {
            let failure = Failure::NotServing("its site is in no region");
            return self.settle(vec![(origin, Err(failure))]);
        };
        let asked = self.sessions.asked(origin);
        let token = match asked.map(CausalToken::of_session) {
            None => None,
            Some(None) => {
                return self.settle(vec![(origin, Err(SessionError::Foreign.into()))]);
            }
            Some(Some(token)) => Some(token).filter(|token| *token != CausalToken::default()),
        };
        let Some(token) = token else {
            // The session begins: it is served as one of this site alone.
            return self.take(origin, body, Target::Own, deadline);
        };
        match self.causal.requests.admit(&token, &here) {
            Admission::Served => self.serve_session(origin, body, token, deadline),
            Admission::Refused(error) => self.settle(vec![(origin, Err(error.into()))]),
            Admission::Waits | Admission::Resolves(..) => {
                let bytes = match &body {
                    Body::Write(command) => command.properties().size_bytes,
                    _ => 0,
                };
                let asked = (Asked { origin, body, deadline }, bytes);
                if self.causal.requests.push(asked, token, deadline, &here).is_err() {
                    let failure = Failure::Overloaded { what: "requests of sessions" };
                    return self.settle(vec![(origin, Err(failure))]);
                }
                self.ask_positions();
            }
        }
    }

    /// Whether a request that another node passes on is of a session, so that its token counts here.
    pub(super) fn is_of_session(&self, origin: Origin, body: &Body) -> bool {
        let is_planted = self.options.planted.is(Bug::ForwardUnadmitted);
        !is_planted && self.sessions.asked(origin).is_some() && self.causal_keyspace(body).is_some()
    }

    /// The node has what a request's session has seen.
    fn serve_session(
        &mut self,
        origin: Origin,
        body: Body,
        token: CausalToken,
        deadline: Duration,
    ) {
        self.sessions.follow(origin, token.into_session());
        let body = match body {
            Body::Read { keyspace, query, .. } => {
                Body::Read { keyspace, query, consistency: ReadConsistency::Stale }
            }
            mut body => {
                since_of(&mut body, token.seen);
                body
            }
        };
        self.take(origin, body, Target::Own, deadline);
    }

    /// Asks the root for positions that requests wait for. A node that does not answer is down, or a witness: then
    /// all are asked.
    fn ask_positions(&mut self) {
        let Some(region) = self.region_here() else { return };
        for (question, again) in self.causal.requests.take_questions(self.now.monotonic) {
            let question = inter_site(CausalStep::Resolve(question));
            match again && region.root != region.own {
                true => self.send_to_all(region.root, question),
                false => self.send_to_site(region.root, question),
            }
        }
    }

    /// Serves what waited for the state to move on, and answers other sites' questions.
    pub(super) fn admit_sessions(&mut self) {
        let Some(here) = self.causal_here() else { return };
        let (now, shown) = (self.now.monotonic, Shown::of(&self.machine));
        let released = released(&self.machine);
        for (asker, answer) in self.causal.questions.poll(now, &shown, released) {
            self.send_to_asker(asker, answer);
        }
        let clears = self.causal.clears.take(released, now).into_iter();
        let settled = clears.map(|((origin, outcome), is_released)| match is_released {
            true => (origin, outcome),
            false => (origin, Err(UNRELEASED)),
        });
        let settled: Vec<_> = settled.collect();
        self.settle(settled);
        for (asked, token) in self.causal.requests.take_admitted(&here) {
            let Asked { origin, body, deadline } = asked;
            self.serve_session(origin, body, token, deadline);
        }
    }

    /// What a tick brings: requests end at their deadline, and questions are repeated.
    pub(super) fn tick_causal(&mut self) {
        let Some(here) = self.causal_here() else { return };
        let late = self.causal.requests.give_up(self.now.monotonic, &here);
        self.refuse_sessions(late);
        self.ask_positions();
    }

    fn refuse_sessions(&mut self, refused: Vec<(Asked, SessionError)>) {
        let refused = refused.into_iter();
        let settled = refused.map(|(asked, error)| (asked.origin, Err(Failure::Session(error))));
        let settled: Vec<_> = settled.collect();
        if !settled.is_empty() {
            self.settle(settled);
        }
    }

    // ---- tokens of answers -------------------------------------------------------------------------

    /// A write is about to join the log: if it is one of a session, its answer has a token.
    pub(super) fn note_session_write(&mut self, origin: Origin, command: &Command) {
        if self.sessions.asked(origin).is_none() {
            return;
        }
        if let Command::Write { keyspace, .. }
        | Command::Transaction { keyspace, .. }
        | Command::Causal(
            CausalCommand::Clear { keyspace }
            | CausalCommand::Numbered { keyspace, .. }
            | CausalCommand::Retry { keyspace, .. },
        ) = command
            && self.is_causal(*keyspace)
        {
            self.sessions.writes(origin);
        }
    }

    /// Of what was applied just now: the answers that may go out. Clears wait until their places are released.
    pub(super) fn keep_clears(&mut self, settled: Vec<Settled>) -> Vec<Settled> {
        let place = |one: &Settled| match one.1 {
            Ok(Answer::Placed(place)) => Some(place),
            _ => None,
        };
        let is_planted = self.options.planted.is(Bug::ClearedUnreleased);
        if is_planted || settled.iter().all(|one| place(one).is_none()) {
            return settled;
        }
        let (now, released) = (self.now.monotonic, released(&self.machine));
        let mut rest = Vec::with_capacity(settled.len());
        for one in settled {
            match place(&one).filter(|place| *place > released) {
                None => rest.push(one),
                Some(place) => {
                    if let Err((origin, _)) = self.causal.clears.push(one, place, now) {
                        rest.push((origin, Err(UNRELEASED)));
                    }
                }
            }
        }
        rest
    }

    /// Writes were applied just now: their sessions have made them, and have seen what the steps of a
    /// transaction have read.
    pub(super) fn sessions_wrote(&mut self, settled: &[Settled]) {
        for (origin, outcome) in settled {
            if outcome.is_err() || !self.sessions.is_write(*origin) {
                continue;
            }
            let Some(asked) = self.sessions.asked(*origin) else { continue };
            let (point, token) = (self.machine.reader().causal(), CausalToken::of_session(asked));
            let mut token = token.unwrap_or_default();
            // One that names another site was served without its position: by a planted bug.
            token.written = token.written.filter(|(site, _)| *site == point.own);
            let token = match outcome {
                // A clear has its position at once, and all that its session has written comes before.
                Ok(Answer::Placed(place)) => {
                    let seen = token.seen.max(*place);
                    CausalToken { region: point.region, seen, written: None }
                }
                _ => point.covering(token),
            };
            self.sessions.answered(*origin, Some(token.into_session()));
        }
    }

    /// Whether requests are admitted that must not be: by a planted bug.
    fn attaches_blindly(&self) -> bool {
        let planted = self.options.planted;
        planted.is(Bug::AttachWithoutSeen) || planted.is(Bug::AttachWithoutWritten)
    }

    /// The answer to a read of a session, from the state as it is. `None`: it is of none.
    pub(super) fn answer_in_session(&mut self, read: &WaitingRead) -> Option<Outcome> {
        let asked = self.sessions.asked(read.origin)?;
        let token = CausalToken::of_session(asked).unwrap_or_default();
        if !self.is_causal(read.keyspace) {
            return None;
        }
        let reported =
            match self.machine.reader().in_session(read.keyspace, &read.query, None, token) {
                Ok(SessionRead::Answered(mut outcome, reported)) => {
                    if let Ok(answer) = &mut outcome {
                        let clock = &self.replica.log_clock;
                        moments::for_others(answer, clock.now_ms(), clock.wall_ahead_ms());
                    }
                    (outcome.map_err(Failure::Refused), reported)
                }
                Ok(SessionRead::Lacks(Lacks::Keyspace)) => return Some(Err(NOT_HELD.into())),
                Ok(SessionRead::Lacks(Lacks::Region)) => {
                    return Some(Err(SessionError::Foreign.into()));
                }
                Ok(SessionRead::Lacks(Lacks::Ended { have })) => {
                    return Some(Err(SessionError::Ended { have, need: token.seen }.into()));
                }
                Ok(SessionRead::Lacks(_)) if !self.attaches_blindly() => {
                    // Its node had no state yet when it came, and did not look at its token.
                    return Some(Err(Failure::NotServing("it had no state when the request came")));
                }
                Ok(SessionRead::Lacks(_)) => {
                    // It is served as one of no session is.
                    let outcome = self.machine.reader().query(read.keyspace, &read.query);
                    let point = self.machine.reader().causal();
                    let none = CausalToken::default();
                    (outcome.map_err(|_| Failure::NoLeader), point.covering(none))
                }
                Err(stopped) => {
                    self.fail(format!("{stopped:?}"));
                    return Some(Err(Failure::NotServing("its state cannot be read")));
                }
            };
        let planted = self.options.planted;
        let is_unmerged = planted.is(Bug::ReadsUnmerged)
            || (planted.is(Bug::AbsenceUnseen) && matches!(reported.0, Ok(Answer::Value(None))));
        let token = if is_unmerged {
            CausalToken { region: reported.1.region, ..token }
        } else {
            reported.1
        };
        self.sessions.answered(read.origin, Some(token.into_session()));
        Some(reported.0)
    }
}
