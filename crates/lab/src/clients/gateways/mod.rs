//! The way that EdgeKV sends a request about a global key (Sonbol and others, 2020, §3.2 and §5.4;
//! its program where the paper leaves it open), as an option of a run: something to compare with.
//!
//! Each site has a gateway beside it, and the gateways form a [`chord`]. A client's request goes
//!
//! 1. from the client to its node, as any;
//! 2. from the node to the site's gateway and back: *is this key of this site?* If it is, the node
//!    does it, among its own;
//! 3. if not, once more to the gateway, now with the request;
//! 4. from the gateway to others and back, until it has the owner of the key. Each one on the way
//!    is asked twice, first for a nearer one and then for its successor, as EdgeKV's program
//!    does; no gateway stores what it was answered;
//! 5. to the gateway of that site, and from there to the node that leads it, which does it;
//! 6. the answer goes back over both gateways.
//!
//! Each leg takes its link's delay. A link between two ends is one connection: what enters it waits
//! until what is before it has entered, so gateways have the queues that bandwidth makes.
//!
//! Left out: gateways that fail, that join, or work on a request for any time. Which site holds a
//! key is not Chord's decision but that of the deployment which the lab has formed, so that both
//! ways find the same keys at the same sites.

pub mod chord;

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Answer, Failure, Slot};

use self::chord::Chord;
use super::asking::{Doing, answer_bytes};
use super::{Clients, Due, Lab, What};
use crate::link::{Link, Pipe};
use crate::random::Random;
use crate::run::Call;
use crate::simulation::NodeIndex;

/// How far gateways are from the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gateways {
    /// A node and the gateway of its site.
    pub node: Link,
    /// Two gateways.
    pub gateway: Link,
}

/// Where a leg begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Node(NodeIndex),
    Gateway(usize),
}

/// A message on its way from one end to the other.
#[derive(Debug, Clone, Copy)]
struct Leg {
    from: End,
    to: End,
    bytes: usize,
}

/// The way of one request.
#[derive(Debug)]
pub(super) struct Way {
    there: Vec<Leg>,
    /// The node that is to do it; `None`: its site has no leader.
    node: Option<NodeIndex>,
    back: Vec<(End, End)>,
}

/// All gateways, and what is on the links to and between them.
pub(super) struct Ways {
    gateways: Gateways,
    chord: Chord,
    /// The site of each slot.
    owners: Vec<usize>,
    pipes: BTreeMap<(End, End), Pipe>,
    random: Random,
}

impl Ways {
    pub(super) fn new(gateways: Gateways, sites: usize, owners: Vec<usize>) -> Ways {
        // Links without chance draw nothing.
        let random = Random::stream(0, "gateways", 0);
        Ways { gateways, chord: Chord::even(sites), owners, pipes: BTreeMap::new(), random }
    }

    /// The way of a request that has reached a node of a site.
    pub(super) fn of(&self, doing: &Doing, site: usize, node: usize, lab: &Lab) -> Way {
        let slot = Slot::of_key(doing.key.as_bytes());
        let owner = self.owners[usize::from(slot.number())];
        let asked = lab.sites[site].nodes[node];
        let leader = if owner == site { Some(asked) } else { lab.leader(owner) };
        let (question, request) = (doing.question_bytes(), doing.bytes());
        let (own, gateway) = (End::Node(asked), End::Gateway(site));
        let mut there = Vec::new();
        let mut call = |from, to, bytes| there.push(Leg { from, to, bytes });
        call(own, gateway, question);
        call(gateway, own, question);
        let mut back = Vec::new();
        if owner != site {
            call(own, gateway, request);
            for other in self.chord.way(site, self.chord.position(owner)) {
                for _ in 0..2 {
                    call(gateway, End::Gateway(other), question);
                    call(End::Gateway(other), gateway, question);
                }
            }
            call(gateway, End::Gateway(owner), request);
            if let Some(leader) = leader {
                call(End::Gateway(owner), End::Node(leader), request);
                let ends = [End::Node(leader), End::Gateway(owner), gateway, own];
                back.extend(ends.windows(2).map(|pair| (pair[0], pair[1])));
            }
        }
        Way { there, node: leader, back }
    }

    /// How long a message takes that enters a leg now.
    fn pass(&mut self, leg: Leg, now: Duration) -> Duration {
        let link = match (leg.from, leg.to) {
            (End::Gateway(_), End::Gateway(_)) => self.gateways.gateway,
            _ => self.gateways.node,
        };
        let pipe = self.pipes.entry((leg.from, leg.to)).or_default();
        pipe.due(now, leg.bytes, &link, &mut self.random) - now
    }
}

impl Clients<'_> {
    /// A request is at the beginning of a leg, or where it was to go.
    pub(super) fn travel(&mut self, lab: &mut Lab, client: usize, attempt: u32, leg: usize) {
        if !self.is_waited_for(client, attempt) {
            return;
        }
        let Some(way) = &self.clients[client].way else { return };
        match (way.there.get(leg), way.node, &mut self.ways) {
            (Some(next), _, Some(ways)) => {
                let delay = ways.pass(*next, lab.now());
                let what = What::Leg { attempt, leg: leg + 1 };
                lab.call_after(delay, Call::Client(Due { client, what }));
            }
            (None, Some(node), _) => self.ask_node(lab, client, attempt, node),
            _ => self.refuse(lab, client, attempt, "no node leads the site"),
        }
    }

    /// An answer is at the beginning of a leg of its way back, or at the client's node.
    pub(super) fn come_back(
        &mut self,
        lab: &mut Lab,
        client: usize,
        attempt: u32,
        leg: usize,
        outcome: Box<Result<Answer, Failure>>,
    ) {
        if !self.is_waited_for(client, attempt) {
            return;
        }
        let bytes = answer_bytes(&outcome);
        let one = &mut self.clients[client];
        let next = one.way.as_ref().and_then(|way| way.back.get(leg).copied());
        let (delay, what) = match (next, &mut self.ways) {
            (Some((from, to)), Some(ways)) => {
                let delay = ways.pass(Leg { from, to, bytes }, lab.now());
                (delay, What::Back { attempt, leg: leg + 1, outcome })
            }
            _ => (one.delay_down(lab.now(), bytes), What::Reply { attempt, outcome }),
        };
        lab.call_after(delay, Call::Client(Due { client, what }));
    }
}
