//! Causal keys at a node: the parts of [`crate::causal`] put to work.
//!
//! - The site's leader runs the jobs of causal keys, which are in the table of
//!   [`crate::site::jobs`].
//! - A message for a leader that reaches another node is answered with the leader, if that is
//!   known; what it carried is sent again there, as any message that was lost.
//! - A request of a causal keyspace is served here or waits here, whatever the site: by the token
//!   of its session ([`crate::causal::admission`]). A request without a token is a session of its
//!   own.
//!
//! A read of a session that has a token is answered from this node's state: that the state has what
//! the token names is all that it needs. The first read of a session takes a read index of its
//! site, so that a client that comes to another node finds what it was answered before. A write
//! that was admitted at one node is carried out through the log, where all that the node has
//! applied comes before it.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `jobs` | what the parts have in common as jobs, and what their steps are as effects |
//! | `requests` | requests of sessions, admitted or waiting |
//! | `fetching` | requests that wait for keys which this site is to hold on demand |
//! | `tokens` | the tokens beside answers |
//! | `shown` | the state as the jobs see it |

mod fetching;
mod jobs;
mod requests;
mod shown;
mod tokens;

pub(super) use jobs::{CausalJob, Seen, sent};
pub(super) use shown::Shown;

use super::jobs::When;
use super::machine::Machine;
use super::{Origin, Site};
use crate::bugs::of_causal;
use crate::causal::admission::Requests;
use crate::causal::clears::Clears;
use crate::causal::layout::Layout;
use crate::causal::resolve::Questions;
use crate::causal::{Durable, Region};
use crate::job::View;
use crate::replica::writes::Settled;
use fetching::Fetching;
pub(in crate::site) use fetching::may_move;
use model::{Answer, Body, Failure, KeyspaceId, NodeId, Position, SiteId, limits};
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
    fetching: Fetching,
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
        let (clears, fetching) = (Clears::default(), Fetching::default());
        Causal { requests, questions, clears, fetching, layout: None, stopped_under: None }
    }

    /// Keeps the layout of the region: all its jobs need it, at every step.
    fn follow<S: State>(&mut self, machine: &Machine<S>) {
        let Some(member) = machine.membership().filter(|_| machine.region().is_some()) else {
            return;
        };
        if !self.layout.as_ref().is_some_and(|layout| layout.is_of(&member.registry)) {
            self.layout = Some(Arc::new(Layout::of(&member.registry, member.own)));
        }
    }

    /// This node leads, or another one does. `last`: the end of its log.
    pub(super) fn begin_leading(&mut self, leads: bool, last: u64) {
        self.fetching.begin_leading(if leads { last } else { 0 });
    }

    /// Whether no eviction that a leader before this one has logged is still to be applied.
    pub(super) fn knows_evictions(&self, applied: u64) -> bool {
        self.fetching.knows_evictions(applied)
    }

    /// Whether no request waits, which ends at its deadline.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_idle() && self.clears.is_idle() && self.fetching.is_idle()
    }
}

/// The region of a site; `None`: it has no causal keyspace. `standby_has`: how far the standby has
/// the order.
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
            None => Arc::new(Layout::of(&member.registry, member.own)),
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

/// How far the order is released, as every node of a site has it.
fn released<S: State>(machine: &Machine<S>) -> Position {
    let (Some(member), Some(region)) = (machine.membership(), machine.region()) else {
        return Position(0);
    };
    machine.causal().released(region, member.own)
}

fn inter_site(step: CausalStep) -> InterSite {
    InterSite::Causal(CausalMessage::from(step))
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Runs the jobs of causal keys, which have nothing to do without a region; a node that does not
    /// lead stops them once.
    pub(super) fn run_causal_jobs(&mut self) {
        self.causal.follow(&self.machine);
        let stops_under = (!self.runs_jobs()).then_some(self.replica.led_by);
        if stops_under.is_some() && stops_under == self.causal.stopped_under {
            return;
        }
        self.causal.stopped_under = stops_under;
        if stops_under.is_none() && self.machine.region().is_none() {
            return;
        }
        self.run_jobs(When::Causal);
    }

    fn region_here(&self) -> Option<Region> {
        region_of(&self.machine, self.jobs.standby.acknowledged(), self.causal.layout.as_ref())
    }

    /// A message of another site, or of this one to itself.
    pub(super) fn take_causal(&mut self, site: SiteId, node: NodeId, message: CausalMessage) {
        let now = self.now.monotonic;
        let Some(step) = message.step else { return };
        // What it leaves in a job of a node that does not lead goes.
        self.causal.stopped_under = None;
        let of_state = matches!(step, CausalStep::Pull(_) | CausalStep::Resolve(_));
        let of_leader = matches!(
            step,
            CausalStep::Writes(_)
                | CausalStep::Where(_)
                | CausalStep::Reached(_)
                | CausalStep::Places(_)
                | CausalStep::Drop(_)
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
                self.jobs.import.take_writes(SiteId(writes.site), all, now);
            }
            CausalStep::Where(question) => {
                self.global.routing.learn_leader(site, node, self.now.monotonic);
                self.jobs.import.asked(question.epoch);
            }
            CausalStep::Reached(report) => {
                self.global.routing.learn_leader(site, node, self.now.monotonic);
                self.jobs.resync.reached(site, report, now);
                self.jobs.roots.reached(site, report, now);
                self.jobs.standby.reached(site, report, now);
                self.jobs.bridge.reached(site, report, now);
                self.jobs.distribute.reached((site, node), report, now);
            }
            CausalStep::Places(places) => {
                self.global.routing.learn_leader(site, node, self.now.monotonic);
                if let Some(region) = self.region_here() {
                    self.jobs.import.take_places(&places, now, &region);
                }
            }
            CausalStep::Drop(keys) => {
                self.jobs.distribute.dropped(site, KeyspaceId(keys.keyspace), &keys.keys);
            }
            CausalStep::Pull(pull) => self.take_pull(site, node, &pull),
            CausalStep::Resolve(question) => {
                let registry = self.machine.membership().map(|member| &member.registry);
                let of = SiteId(question.site);
                // One that has just joined is not listed here yet.
                let has_left = registry.is_some_and(|registry| registry.has_left(of));
                // Only at the root it is certain that nothing more is on its way.
                let orders = self.region_here().is_some_and(|region| region.orders());
                let rebuilt = registry.and_then(|registry| {
                    registry
                        .regions
                        .iter()
                        .find(|one| u32::from(one.id.0) == question.region)?
                        .rebuilt
                });
                // Of another region's site its own root is asked, too; of its lost order all
                // answer.
                let is_lost = match question.region {
                    0 => has_left && orders,
                    _ => rebuilt.is_some_and(|rebuilt| rebuilt.lacks(Position(question.seen))),
                };
                let questions = &mut self.causal.questions;
                let (shown, released) = (Shown::of(&self.machine), released(&self.machine));
                let requester = (site, node);
                let answer = questions.asked(requester, question, (now, is_lost), &shown, released);
                if let Some(answer) = answer {
                    self.send_to_requester((site, node), answer);
                }
            }
            CausalStep::Resolved(answer) => {
                self.take_resolved(answer);
            }
            CausalStep::LedBy(leader) => {
                let is_other = leader != 0 && leader != node.0;
                // Else that node is asked again, which would answer the same at once.
                let turns = is_other && self.global.routing.learn_leader(site, NodeId(leader), now);
                self.jobs.distribute.turned(site, node);
                if self.region_here().is_some_and(|region| region.root == site) {
                    self.jobs.import.led_by_another(turns);
                    if turns {
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
            self.jobs.distribute.pulled(site, &write);
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

    fn take_resolved(&mut self, answer: Resolved) {
        let Some(own) = self.machine.region().map(|region| region.id) else { return };
        let lost = self.causal.requests.resolved(answer, own);
        self.refuse_sessions(lost);
    }

    fn send_to_requester(&mut self, (site, node): (SiteId, NodeId), answer: Resolved) {
        if self.machine.membership().is_some_and(|member| member.own == site) {
            return self.take_resolved(answer);
        }
        self.send_inter_site(site, node, inter_site(CausalStep::Resolved(answer)));
    }
}
