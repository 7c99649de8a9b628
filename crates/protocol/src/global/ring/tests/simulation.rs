//! Sites with their drivers in virtual time: messages take time, get lost and overtake each other;
//! sites crash and come back with the pointers they had put away.

use super::super::invariant::{Violation, check, is_ideal};
use super::super::point::mix;
use super::super::{Driver, Ring, RingOutput};
use model::SiteId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;
use wire::ring::RingMessage;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Flying {
    at: Duration,
    number: u64,
    from: SiteId,
    to: SiteId,
    message: RingMessage,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Flying) -> bool {
        self.number == other.number
    }
}
impl Eq for Flying {}
impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Flying) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Flying {
    fn cmp(&self, other: &Flying) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(super) struct Sim {
    pub(super) now: Duration,
    random: u64,
    /// Of 1,000 messages, so many are lost.
    pub(super) lost_permille: u64,
    /// After one between two sites is lost, none is for so long.
    pub(super) calm_after_loss: Duration,
    lost: BTreeMap<(SiteId, SiteId), Duration>,
    pub(super) delay_ms_max: u64,
    drivers: BTreeMap<SiteId, Driver>,
    /// Sites that joined, or are to, and have not left.
    belong: BTreeSet<SiteId>,
    /// What each site has put away.
    kept: BTreeMap<SiteId, Ring>,
    flying: BinaryHeap<Reverse<Flying>>,
    messages: u64,
    /// Sites of different sides do not reach each other; 0 for those not listed.
    sides: BTreeMap<SiteId, u32>,
    /// Whether the invariant must hold now.
    pub(super) watched: bool,
    deadlines: BTreeMap<SiteId, Duration>,
    trace: bool,
}

impl Sim {
    pub(super) fn new(seed: u64) -> Sim {
        Sim {
            now: Duration::ZERO,
            random: mix(seed),
            lost_permille: 0,
            calm_after_loss: Duration::ZERO,
            lost: BTreeMap::new(),
            delay_ms_max: 50,
            drivers: BTreeMap::new(),
            belong: BTreeSet::new(),
            kept: BTreeMap::new(),
            flying: BinaryHeap::new(),
            messages: 0,
            sides: BTreeMap::new(),
            watched: true,
            deadlines: BTreeMap::new(),
            trace: false,
        }
    }

    /// A number below `bound`, by chance.
    pub(super) fn chance(&mut self, bound: u64) -> u64 {
        self.random = mix(self.random);
        self.random % bound
    }

    /// Starts a site with these pointers.
    pub(super) fn start(&mut self, ring: Ring) -> SiteId {
        let site = ring.site();
        let seed = self.chance(u64::MAX);
        self.kept.insert(site, ring.clone());
        self.belong.insert(site);
        self.drivers.insert(site, Driver::new(ring, seed));
        self.perform(site);
        site
    }

    /// The first site.
    pub(super) fn begin(&mut self, virtuals: u32) {
        let site = self.start(Ring::alone(SiteId(1), virtuals));
        self.with(site, |driver, now| driver.timeout(now));
    }

    /// A new site that joins by way of another.
    pub(super) fn join(&mut self, site: u32, virtuals: u32, via: u32) {
        let site = self.start(Ring::empty(SiteId(site), virtuals));
        self.with(site, |driver, now| driver.join(now, SiteId(via)));
    }

    pub(super) fn crash(&mut self, site: SiteId) {
        self.drivers.remove(&site);
        self.deadlines.remove(&site);
        self.look();
    }

    /// A site that crashed comes back with the pointers it had put away.
    pub(super) fn come_back(&mut self, site: SiteId) {
        let ring = Ring::decode(&self.kept[&site].encode()).unwrap();
        let was_member = ring.is_member();
        self.start(ring);
        // The directory is part of the site's state too.
        let all: Vec<SiteId> = self.kept.keys().copied().collect();
        self.with(site, |driver, now| driver.remind(now, &all));
        if !was_member {
            let via = *self.drivers.keys().find(|other| **other != site).unwrap();
            self.with(site, |driver, now| driver.join(now, via));
        }
    }

    pub(super) fn leave(&mut self, site: SiteId) {
        self.belong.remove(&site);
        self.with(site, |driver, now| driver.leave(now));
    }

    /// Gives every site a directory of all that ever were.
    pub(super) fn remind(&mut self) {
        let all: Vec<SiteId> = self.kept.keys().copied().collect();
        for site in self.drivers.keys().copied().collect::<Vec<_>>() {
            self.with(site, |driver, now| driver.remind(now, &all));
        }
    }

    /// Cuts these sites off the others.
    pub(super) fn cut(&mut self, off: &[SiteId]) {
        self.sides = off.iter().map(|site| (*site, 1)).collect();
    }

    pub(super) fn heal(&mut self) {
        self.sides.clear();
    }

    pub(super) fn with(&mut self, site: SiteId, what: impl FnOnce(&mut Driver, Duration)) {
        let Some(driver) = self.drivers.get_mut(&site) else { return };
        what(driver, self.now);
        self.perform(site);
    }

    pub(super) fn live(&self) -> BTreeSet<SiteId> {
        self.drivers.keys().copied().collect()
    }

    /// Live sites that answer for something.
    pub(super) fn members(&self) -> Vec<SiteId> {
        let members = self.drivers.iter().filter(|(_, driver)| driver.ring().is_member());
        members.map(|(site, _)| *site).collect()
    }

    /// Whether the ring holds without this site: the others are still one ring, and each names a
    /// third one that is alive. (In a ring of a few sites that have just joined by one of them they
    /// need not be. Zave's proof assumes that there are more members than a list is long.)
    pub(super) fn is_dispensable(&self, site: SiteId) -> bool {
        let mut confirmed = self.confirmed();
        confirmed.remove(&site);
        // Seldom, two sites that have just come or come back have pointers to each other by this
        // one only.
        if check(&self.rings(), &confirmed).is_err() {
            return false;
        }
        let others = self.rings().into_iter().filter(|ring| ring.site() != site);
        let mut members = others.filter(|ring| confirmed.contains(&ring.site())).peekable();
        members.peek().is_some()
            && members.all(|ring| {
                let lists = ring.members().flat_map(|own| ring.successors(own.point).to_vec());
                let mut third = lists.filter(|next| ![site, ring.site()].contains(&next.site));
                third.any(|next| confirmed.contains(&next.site))
            })
    }

    pub(super) fn driver(&self, site: SiteId) -> &Driver {
        &self.drivers[&site]
    }

    pub(super) fn rings(&self) -> Vec<&Ring> {
        self.drivers.values().map(Driver::ring).collect()
    }

    pub(super) fn violation(&self) -> Result<(), Violation> {
        check(&self.rings(), &self.confirmed())
    }

    fn confirmed(&self) -> BTreeSet<SiteId> {
        let confirmed = self.drivers.iter().filter(|(_, driver)| driver.is_confirmed());
        confirmed.map(|(site, _)| *site).collect()
    }

    /// Whether the pointers of all that are alive and belong to the ring are as they should be.
    pub(super) fn is_ideal(&self) -> bool {
        let belong: BTreeSet<SiteId> = self.belong.intersection(&self.live()).copied().collect();
        is_ideal(&self.rings(), &belong)
    }

    /// The same on one side of a cut.
    pub(super) fn is_ideal_among(&self, sites: &[SiteId]) -> bool {
        is_ideal(&self.rings(), &sites.iter().copied().collect())
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let message = self.flying.peek().map(|Reverse(flying)| flying.at);
            let due = self.deadlines.iter().map(|(site, at)| (*at, *site)).min();
            let next = message.into_iter().chain(due.map(|due| due.0)).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            match message == Some(at) {
                true => self.deliver(),
                false => {
                    let site = due.unwrap().1;
                    self.with(site, |driver, now| driver.timeout(now));
                }
            }
        }
        self.now = end;
    }

    /// Lets time pass until the pointers are as they should be, and returns how long that took.
    pub(super) fn run_until_ideal(&mut self, within: Duration) -> Duration {
        let start = self.now;
        while !self.is_ideal() {
            assert!(self.now - start < within, "not ideal after {within:?}: {}", self.describe());
            self.run(ms(250));
        }
        self.now - start
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    pub(super) fn describe(&self) -> String {
        let mut said = format!("{:?}\n", self.violation());
        let members: Vec<_> = self.rings().iter().flat_map(|ring| ring.members()).collect();
        let right = super::super::ideal(&members);
        for ring in self.rings() {
            for member in ring.members() {
                let right = &right[&ring.site()];
                let same = right.successors(member.point) == ring.successors(member.point);
                if !same || right.predecessor(member.point) != ring.predecessor(member.point) {
                    said += "WRONG ";
                }
                let list = ring.successors(member.point);
                let before = ring.predecessor(member.point);
                said += &format!("{member:?} after {before:?}, before {list:?}\n");
            }
            for member in ring.waiting() {
                said += &format!("{member:?} waits\n");
            }
        }
        said += &format!("belong: {:?}", self.belong);
        said.replace("Member { point: Point(", "(").replace("site: SiteId", "")
    }

    fn deliver(&mut self) {
        let Some(Reverse(Flying { from, to, message, .. })) = self.flying.pop() else { return };
        if self.trace {
            eprintln!("{:?} {from}→{to} {message:?}", self.now);
        }
        self.with(to, |driver, now| driver.handle(now, from, message));
    }

    fn perform(&mut self, site: SiteId) {
        let mut changed = false;
        while let Some(output) = self.drivers.get_mut(&site).and_then(Driver::poll) {
            match output {
                RingOutput::Send { to, message } => self.send(site, to, message),
                RingOutput::Changed => {
                    changed = true;
                    self.kept.insert(site, self.drivers[&site].ring().clone());
                }
            }
        }
        match self.drivers[&site].deadline() {
            Some(at) => self.deadlines.insert(site, at),
            None => self.deadlines.remove(&site),
        };
        if changed {
            self.look();
        }
    }

    fn look(&self) {
        if self.watched && !self.confirmed().is_empty() {
            let seen = self.violation();
            assert!(seen.is_ok(), "at {:?}: {}", self.now, self.describe());
        }
    }

    fn send(&mut self, from: SiteId, to: SiteId, message: RingMessage) {
        self.messages += 1;
        let side = |site| self.sides.get(&site).copied().unwrap_or(0);
        if side(from) != side(to) {
            return;
        }
        let is_lost = self.chance(1_000) < self.lost_permille;
        let calm = self.lost.entry((from.min(to), from.max(to))).or_default();
        if is_lost && *calm <= self.now {
            *calm = self.now + self.calm_after_loss;
            return;
        }
        let at = self.now + Duration::from_micros(1_000 + self.chance(self.delay_ms_max * 1_000));
        self.flying.push(Reverse(Flying { at, number: self.messages, from, to, message }));
    }
}
