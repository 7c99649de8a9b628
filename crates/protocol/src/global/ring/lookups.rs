//! Lookups of a node: which site is responsible for a point, found by asking one site after
//! another.
//!
//! Any node of a site can do this, with the pointers in its copy of the site's state. Each question
//! has a deadline; a site that does not answer is left out and the next best one asked. Lookups of
//! one point at the same time are one lookup. What is found is a hint, as old as the pointers it
//! was read from: a caller that acts on it must expect the answer "not here".

use super::point::Point;
use super::pointers::Ring;
use super::walk::{Next, Walk};
use model::{SiteId, limits};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::ring::{Content, Found, RingMessage};

/// How long a site that is asked the way may take, unless it is set.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// The effects and results of the lookups.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupOutput {
    /// Send this to a node of that site.
    Send {
        /// The site.
        to: SiteId,
        /// The question.
        message: RingMessage,
    },
    /// It is found.
    Done {
        /// The lookup.
        id: u64,
        /// The point.
        target: Point,
        /// The site responsible for it.
        site: SiteId,
        /// Messages to other sites that it took.
        hops: u32,
    },
    /// No site that was asked had the answer, or too many are under way.
    Failed {
        /// The lookup.
        id: u64,
        /// The point.
        target: Point,
    },
}

struct Lookup {
    walk: Walk,
    deadline: Duration,
}

/// The lookups of one node.
pub struct Lookups {
    timeout: Duration,
    next_id: u64,
    under_way: BTreeMap<u64, Lookup>,
    /// The lookup of each point.
    targets: BTreeMap<Point, u64>,
    outputs: VecDeque<LookupOutput>,
}

impl Lookups {
    /// None yet. They are numbered from `first_id`, drawn at the node's start: answers to questions
    /// of another node or an earlier process must not be taken for its own.
    pub fn new(first_id: u64, timeout: Duration) -> Lookups {
        Lookups {
            timeout,
            next_id: first_id,
            under_way: BTreeMap::new(),
            targets: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Begins to look up a point, or joins the lookup of it that is under way, and returns the
    /// lookup's number.
    pub fn begin(&mut self, now: Duration, target: Point, ring: &Ring) -> u64 {
        self.begin_without(now, target, &[], ring)
    }

    /// The same without these sites, which certainly do not answer. (A lookup of the point that is
    /// under way may not leave them out; it finds out by itself.)
    pub fn begin_without(
        &mut self,
        now: Duration,
        target: Point,
        without: &[SiteId],
        ring: &Ring,
    ) -> u64 {
        if let Some(id) = self.targets.get(&target) {
            return *id;
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        if self.under_way.len() >= limits::RING_LOOKUPS_MAX {
            self.outputs.push_back(LookupOutput::Failed { id, target });
            return id;
        }
        let mut walk = Walk::new(target, without.iter().copied());
        let next = walk.begin(ring);
        self.follow(now, id, walk, next);
        id
    }

    /// Takes in an answer; `false`: it answers no question of these lookups.
    pub fn handle(&mut self, now: Duration, from: SiteId, found: &Found, ring: &Ring) -> bool {
        let asked = |lookup: &Lookup| lookup.walk.is_waiting_for(from);
        if !self.under_way.get(&found.id).is_some_and(asked) {
            return false;
        }
        if let Some(mut walk) = self.take(found.id) {
            let next = walk.found(found.way, ring);
            self.follow(now, found.id, walk, next);
        }
        true
    }

    /// Does not wait any longer for a site that the shell reports out of reach.
    pub fn unreachable(&mut self, now: Duration, site: SiteId, ring: &Ring) {
        self.give_up(now, ring, |lookup| lookup.walk.is_waiting_for(site));
    }

    /// Lets time pass.
    pub fn timeout(&mut self, now: Duration, ring: &Ring) {
        self.give_up(now, ring, |lookup| lookup.deadline <= now);
    }

    /// When [`Lookups::timeout`] must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        self.under_way.values().map(|lookup| lookup.deadline).min()
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self) -> Option<LookupOutput> {
        self.outputs.pop_front()
    }

    fn give_up(&mut self, now: Duration, ring: &Ring, which: impl Fn(&Lookup) -> bool) {
        let under_way = self.under_way.iter();
        let silent: Vec<u64> =
            under_way.filter(|(_, lookup)| which(lookup)).map(|(id, _)| *id).collect();
        for id in silent {
            let Some(mut walk) = self.take(id) else { continue };
            let next = walk.redirected(ring);
            self.follow(now, id, walk, next);
        }
    }

    fn take(&mut self, id: u64) -> Option<Walk> {
        let lookup = self.under_way.remove(&id)?;
        self.targets.remove(&lookup.walk.target);
        Some(lookup.walk)
    }

    fn follow(&mut self, now: Duration, id: u64, walk: Walk, next: Next) {
        let target = walk.target;
        let output = match next {
            Next::Done(member) => {
                LookupOutput::Done { id, target, site: member.site, hops: walk.hops }
            }
            Next::Failed => LookupOutput::Failed { id, target },
            Next::Ask(to) => {
                let message = RingMessage::from(Content::Find(walk.question(id)));
                self.targets.insert(target, id);
                self.under_way.insert(id, Lookup { walk, deadline: now + self.timeout });
                LookupOutput::Send { to, message }
            }
        };
        self.outputs.push_back(output);
    }
}
