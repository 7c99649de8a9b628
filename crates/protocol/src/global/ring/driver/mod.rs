//! What the leader of a site does so that the site joins the ring and its pointers stay right.
//!
//! This is Chord's maintenance as Pamela Zave corrected it:
//!
//! - **Join**: look up the successor of the new virtual node, go back from there while a nearer one
//!   is known, and copy that one's whole list. Only then it is a member (`search`).
//! - **Stabilize**: ask the first of the list for its pointers and take over its list; a dead first
//!   one is dropped and the next one asked. If the first one's predecessor is nearer, ask *that
//!   one*, and take its list only if it answers. Then notify the first of the list that one is
//!   before it (`stabilize`).
//! - **Rectify**: the notified member takes the new predecessor if it is nearer than the old one,
//!   or if the old one, asked, is dead.
//! - **Fingers** are refreshed one after another by lookups; they make ways short and nothing
//!   right.
//!
//! Beyond Chord there are three things, made of the same two steps: to look up the successor of
//! one's own virtual node by way of some *other* site, and to take the member that is found if it
//! is nearer and answers with its list, as a joining node would (a *seek*).
//!
//! - **Merging.** Two halves of a cut network become two rings, each of which is whole for itself.
//!   They merge again: now and then a site seeks by way of a site of the directory that it has no
//!   pointer to ([`Driver::remind`]). If that finds a nearer member, it seeks for all its virtual
//!   nodes at once. Until each site has done so, lookups may end at either half.
//! - **Coming back.** A new driver with the pointers of a member cannot determine whether the site
//!   was away: only its leader may have changed. So it goes on with the old pointers, which lets
//!   lookups pass, and stabilizes and seeks at once, for all its virtual nodes. But it is not
//!   *confirmed*, and marks its pointers so, until it has taken over the list of a site that is;
//!   and a site that is confirmed takes nothing over from one that is not. For the ring that is a
//!   crash and a join. If all were away together no site can confirm another: then they take over
//!   from each other, and are confirmed when twice [`SUSPICION`] has passed, the directory
//!   has been tried [`ATTEMPTS`] times, and no seek has found a site that is. If no site
//!   is alive that one of its virtual nodes points to, it is no member any more and joins again, by
//!   way of the directory; and only if no member is found there either, for as long, it is a ring
//!   by itself, as a site is that is cut off.
//! - **Losing all successors.** More neighbours crashed than a list has. The site's next own
//!   virtual node takes their place, and a seek finds the true successor.
//!
//! What is not promised: at most one ring while sites are wrongly taken for dead. A site is taken
//! for dead if it leaves a question unanswered so often ([`ATTEMPTS`]) or the shell reports it; if
//! it is not, it comes back by the next stabilization of its neighbour or by a seek.
//!
//! All but the [`Ring`] is dropped when the leader changes, and nothing is lost with it.

mod asking;
mod leave;
mod search;
mod stabilize;

use super::point::{Member, Point, mix};
use super::pointers::Ring;
use asking::{About, Asked};
use model::{SiteId, limits};
use search::Fingers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wire::ring::{Content, Pointers, RingMessage};

/// Between two stabilizations of a virtual node.
const STABILIZE_INTERVAL: Duration = Duration::from_millis(500);
/// Between two fingers.
const FINGER_INTERVAL: Duration = Duration::from_millis(500);
/// Between two seeks by way of a site of the directory.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a site may take to send its pointers before the question is repeated.
pub(in crate::global::ring) const TIMEOUT: Duration = Duration::from_secs(1);
/// How often a question is sent before a site is taken for dead.
const ATTEMPTS: u32 = 3;
/// For how long a site is taken for dead without a new question. Any message from it ends this.
const SUSPICION: Duration = Duration::from_secs(5);

/// The effects of a driver.
#[derive(Clone, Debug, PartialEq)]
pub enum RingOutput {
    /// Send this to the leader of that site.
    Send {
        /// The site.
        to: SiteId,
        /// The message.
        message: RingMessage,
    },
    /// [`Driver::ring`] has changed: put it into the site's state.
    Changed,
}

/// Where one virtual node stands with its own upkeep.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// When it is to stabilize, or to try to join.
    due: Duration,
    /// It is about it.
    busy: bool,
    /// It has found its place since the driver began: no member was between it and its first
    /// successor.
    settled: bool,
    /// It is finding out whether its predecessor is alive.
    checking: bool,
}

/// The upkeep of one site's pointers.
pub struct Driver {
    ring: Ring,
    announced: Ring,
    random: u64,
    next_id: u64,
    turns: BTreeMap<Point, Turn>,
    asked: BTreeMap<u64, Asked>,
    /// Sites taken for dead, and until when.
    silent: BTreeMap<SiteId, Duration>,
    /// Whether virtual nodes that are no members are to become some.
    joining: bool,
    /// A site that is confirmed has taken it in, or there is no other site.
    vouched: bool,
    /// Its pointers may be taken over by others that are confirmed.
    confirmed: bool,
    /// When it was first asked to do something.
    began: Option<Duration>,
    /// When it became certain that none is left of the sites that the pointers named.
    withdrawn: Option<Duration>,
    /// When a member was last seen.
    last_answer: Duration,
    /// Sites of the directory that were tried in this round, and rounds since it began or withdrew.
    tried: BTreeSet<SiteId>,
    rounds: u32,
    /// The sites by which to join.
    vias: Vec<SiteId>,
    /// The directory.
    known: Vec<SiteId>,
    probe_due: Duration,
    /// For which virtual node the last probe was.
    probed: Option<Point>,
    /// Seeks to be done, and the sites by way of which.
    seeks: VecDeque<(Point, Option<SiteId>)>,
    fingers: Fingers,
    outputs: VecDeque<RingOutput>,
}

impl Driver {
    /// The upkeep of these pointers. `seed` is drawn at each start.
    pub fn new(ring: Ring, seed: u64) -> Driver {
        let turns = ring.points().map(|point| (point, Turn::default())).collect();
        let mut driver = Driver {
            announced: ring.clone(),
            random: mix(seed),
            next_id: mix(seed ^ u64::from(ring.site().0)),
            turns,
            asked: BTreeMap::new(),
            silent: BTreeMap::new(),
            joining: ring.is_member(),
            vouched: false,
            confirmed: false,
            began: None,
            withdrawn: None,
            last_answer: Duration::ZERO,
            tried: BTreeSet::new(),
            rounds: 0,
            vias: Vec::new(),
            known: Vec::new(),
            probe_due: Duration::ZERO,
            probed: None,
            seeks: VecDeque::new(),
            fingers: Fingers::default(),
            outputs: VecDeque::new(),
            ring,
        };
        // Whatever the pointers are worth after what may have been a long absence.
        let points: Vec<Point> = driver.ring.members().map(|member| member.point).collect();
        driver.seeks.extend(points.into_iter().map(|point| (point, None)));
        driver
    }

    /// The pointers as they are now.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether all virtual nodes that are members have found their places since the driver began.
    pub fn is_settled(&self) -> bool {
        self.ring.members().all(|own| self.turn(own.point).settled)
    }

    /// Whether the site counts as a member with the pointers it has: since the driver began, a site
    /// that is confirmed has taken it in, or there is none, and each of its virtual nodes that is a
    /// member has found its place.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed && self.ring.is_member()
    }

    /// Begins to join by way of a site that is a member, and goes on until it is done.
    pub fn join(&mut self, now: Duration, via: SiteId) {
        self.joining = true;
        if !self.vias.contains(&via) && via != self.ring.site() {
            // The last few are enough: the directory is another source.
            self.vias.truncate(limits::RING_SUCCESSORS - 1);
            self.vias.insert(0, via);
        }
        self.timeout(now);
    }

    /// Sets the directory: the sites that there are. Every [`PROBE_INTERVAL`] one of them
    /// that is not among the pointers is asked whether it is of another ring.
    pub fn remind(&mut self, now: Duration, known: &[SiteId]) {
        let me = self.ring.site();
        let others = known.iter().copied().filter(|site| *site != me);
        self.known = others.take(limits::RING_KNOWN_MAX).collect();
        self.timeout(now);
    }

    /// The sites that are taken for dead.
    pub fn suspects(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.silent.keys().copied()
    }

    /// Takes in a message of another site.
    pub fn handle(&mut self, now: Duration, from: SiteId, message: RingMessage) {
        if from == self.ring.site() {
            return;
        }
        self.silent.remove(&from);
        match message.content {
            Some(Content::Neighbours(question)) => {
                let mut answer = self.pointers_of(Point(question.point));
                answer.id = question.id;
                self.send(from, Content::Pointers(answer));
            }
            Some(Content::Pointers(mut pointers)) => {
                pointers.successors.truncate(limits::RING_LIST_MEMBERS_MAX);
                if pointers.member {
                    self.last_answer = now;
                }
                if let Some(asked) = self.answered(pointers.id, from) {
                    self.reported(now, asked.about, pointers);
                }
            }
            Some(Content::Notify(notify)) => {
                let before = notify.predecessor.map(Member::from);
                if let Some(before) = before.filter(|before| before.site == from) {
                    self.rectify(now, Point(notify.point), before);
                }
            }
            Some(Content::Find(mut find)) => {
                find.without.truncate(limits::RING_AVOIDED_MAX);
                let found = self.ring.answer(&find);
                self.send(from, Content::Found(found));
            }
            Some(Content::Found(found)) => {
                if found.way.is_some() {
                    self.last_answer = now;
                }
                if let Some(Asked { about: About::Way { mut walk, goal }, .. }) =
                    self.answered(found.id, from)
                {
                    let next = walk.found(found.way, &self.ring);
                    self.walk_on(now, walk, goal, next);
                }
            }
            Some(Content::Leave(leave)) => self.left(now, from, leave),
            None => {}
        }
    }

    /// Takes a site of which an answer is awaited for dead at once: the shell has found that it
    /// cannot be reached.
    pub fn unreachable(&mut self, now: Duration, site: SiteId) {
        let waiting: Vec<u64> = self.asked_of(site);
        if !waiting.is_empty() {
            waiting.into_iter().for_each(|id| self.unanswered(now, id));
        }
    }

    /// Lets time pass.
    pub fn timeout(&mut self, now: Duration) {
        self.silent.retain(|_, until| *until > now);
        self.began.get_or_insert(now);
        // No site that it could have found in that time is confirmed.
        self.confirmed |=
            self.ring.is_member() && self.confirms_itself().is_some_and(|at| at <= now);
        self.ask_again(now);
        for point in self.ring.points().collect::<Vec<_>>() {
            let turn = self.turn(point);
            if turn.busy || turn.due > now {
                continue;
            }
            match self.ring.is_joined(point) {
                true => self.stabilize(now, point),
                false if self.joining => self.start_to_join(now, point),
                false => {}
            }
        }
        self.search_on(now);
    }

    /// When [`Driver::timeout`] must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let turns = self
            .turns
            .iter()
            .filter(|(point, turn)| !turn.busy && (self.joining || self.ring.is_joined(**point)));
        let asked = self.asked.values().map(|asked| asked.deadline).min();
        let turns = turns.map(|(_, turn)| turn.due).min();
        let confirms = self.confirms_itself().filter(|_| self.ring.is_member());
        [asked, turns, self.search_due(), confirms].into_iter().flatten().min()
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self) -> Option<RingOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        (self.ring != self.announced).then(|| {
            self.announced.clone_from(&self.ring);
            RingOutput::Changed
        })
    }

    fn confirms_itself(&self) -> Option<Duration> {
        let done = self.has_tried() && self.seeks.is_empty() && self.searches() == 0;
        let began = self.began.filter(|_| !self.confirmed && done)?;
        Some(began + 2 * SUSPICION)
    }

    /// What this site reports of one of its virtual nodes.
    fn pointers_of(&self, point: Point) -> Pointers {
        let successors = self.ring.reported(point).into_iter().map(Into::into).collect();
        Pointers {
            id: 0,
            point: point.0,
            member: self.ring.is_joined(point),
            settled: self.confirmed && self.turn(point).settled,
            predecessor: self.ring.predecessor(point).map(Into::into),
            successors,
        }
    }

    fn turn(&self, point: Point) -> Turn {
        self.turns.get(&point).copied().unwrap_or_default()
    }

    fn turn_mut(&mut self, point: Point) -> &mut Turn {
        self.turns.entry(point).or_default()
    }

    /// A number below `bound`, by chance.
    fn chance(&mut self, bound: usize) -> usize {
        self.random = mix(self.random);
        (self.random % bound.max(1) as u64) as usize
    }

    /// About this long: sites that began together are not to go on in step.
    fn about(&mut self, interval: Duration) -> Duration {
        let part = self.chance(interval.as_millis() as usize / 5);
        interval * 9 / 10 + Duration::from_millis(part as u64)
    }

    fn is_silent(&self, site: SiteId) -> bool {
        self.silent.contains_key(&site)
    }

    fn send(&mut self, to: SiteId, message: Content) {
        self.outputs.push_back(RingOutput::Send { to, message: message.into() });
    }
}
