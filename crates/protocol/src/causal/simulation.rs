//! Three sites of the parts of this room, over states that are as simple as can be: random runs
//! over links that lose, repeat and overtake, with leaders that are lost and clients that move.
//!
//! A site is one node. A commit takes no time. A leader that is lost comes back as another node,
//! without what was volatile. At the end the links are sound; then all sites must have the same
//! keys, each read must have returned nothing older than what its session had in its past, and all
//! must be quiet.

use super::admission::{Admission, Here, NO_OTHERS, admit};
use super::distribute::{self, Distribute};
use super::export::{self, Export};
use super::import::{self, Import};
use super::interest::Interest;
use super::layout::Layout;
use super::resolve::Questions;
use super::trial::{Bug, Planted};
use super::{Durable, Part, Region};
use model::{
    Answer, Bytes, CausalCommand, CausalToken, CausalWrite, Effect, Failure, HeldSize,
    Import as Entry, KeyspaceId, NodeId, Offer, Position, RegionId, ResyncItem, Revision, SiteId,
    StandbyRule, key_hash,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::causal::{CausalStep, Resolve, Writes};
use wire::entry::{decode_writes, encode_writes};

const SITES: u32 = 3;
const KEYS: u64 = 3;

/// What a site keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) own: SiteId,
    pub(super) applied: Position,
    pub(super) own_ordered: Revision,
    /// Whether each answer has one write only.
    pub(super) one_each: bool,
    /// Whether it has stopped to be the root, and given the order away.
    pub(super) stopped: Option<bool>,
    /// Up to where it keeps no order.
    pub(super) trimmed: Position,
    /// To which site.
    pub(super) given_to: Option<SiteId>,
    /// Where its epoch began.
    pub(super) begun: Position,
    /// All regions have taken what lies up to there.
    pub(super) kept_after: Option<Position>,
    /// What it has of the orders of other regions.
    pub(super) taken: Vec<(RegionId, Position)>,
    /// Whether its keys are on their way anew.
    pub(super) resyncing: bool,
    pub(super) restored: bool,
    /// What it holds on demand, of one keyspace, with its bytes.
    pub(super) held: BTreeMap<Bytes, u64>,
    revision: Revision,
    unordered: BTreeMap<Revision, CausalWrite>,
    order: Vec<(Position, SiteId, CausalWrite)>,
    ordered_of: BTreeMap<SiteId, (Revision, Position)>,
    /// The write of each key that has the highest imported position.
    imported: BTreeMap<Bytes, (Position, SiteId, Revision)>,
}

/// This site in a region of three, with site 1 as the root.
pub(super) fn region(own: u32) -> Region {
    let sites: Vec<SiteId> = (1..=SITES).map(SiteId).collect();
    Region {
        id: RegionId(1),
        own: SiteId(own),
        root: SiteId(1),
        epoch: 1,
        has_begun: true,
        is_rebuilding: false,
        layout: Layout::with(sites, Interest::default()),
        next: None,
        standby: None,
        standby_rule: StandbyRule::default(),
        gate: None,
        is_frozen: false,
    }
}

/// A write of a site's key.
pub(super) fn write(revision: u64) -> CausalWrite {
    write_of(revision, 0, Position::default())
}

fn write_of(revision: u64, key: u64, seen: Position) -> CausalWrite {
    let key = Bytes::from(vec![b'k', key as u8]);
    let effects = vec![Effect::Put { key, value: "v".into() }];
    CausalWrite { revision: Revision(revision), seen, keyspace: KeyspaceId(2), effects }
}

impl Store {
    /// An empty one, of this site.
    pub(super) fn of(own: u32) -> Store {
        Store { own: SiteId(own), ..Store::default() }
    }

    pub(super) fn commit(&mut self, write: CausalWrite) {
        self.revision = write.revision;
        self.unordered.insert(write.revision, write);
    }

    pub(super) fn order(&mut self, site: SiteId, write: CausalWrite) {
        self.order_in(1, site, write);
    }

    /// The same in an epoch that may be a later one.
    pub(super) fn order_in(&mut self, epoch: u16, site: SiteId, write: CausalWrite) {
        let position = self.order_last().next(epoch);
        self.ordered_of.insert(site, (write.revision, position));
        self.order.push((position, site, write));
    }

    /// The root orders an offer. The last revision of its site that has a position.
    fn take_offer(&mut self, offer: Offer) -> Revision {
        let ordered = |store: &Store| store.ordered_of.get(&offer.site).map(|of| of.0);
        if offer.after > ordered(self).unwrap_or_default() {
            return ordered(self).unwrap_or_default();
        }
        for write in offer.writes.iter() {
            if write.revision > ordered(self).unwrap_or_default() {
                self.order(offer.site, write.clone());
            }
        }
        ordered(self).unwrap_or_default()
    }

    fn take_import(&mut self, from: Position, upto: Position, entries: Vec<Entry>) {
        if from != self.applied {
            return;
        }
        for entry in entries {
            let (position, site, write) = match entry {
                Entry::Own(position) => {
                    let (_, write) = self.unordered.pop_first().expect("an own write is pending");
                    self.own_ordered = write.revision;
                    (position, self.own, write)
                }
                Entry::Other { position, site, write } => (position, site, write),
            };
            let key = write.effects[0].key().expect("a put").clone();
            self.imported.insert(key, (position, site, write.revision));
        }
        self.applied = upto;
    }

    fn here(&self) -> Here {
        let (region, own, revision) = (RegionId(1), self.own, self.revision);
        let (others, rebuilt, lacks_own) = (NO_OTHERS, None, None);
        let (applied, released) = (self.applied, self.applied);
        Here { region, others, own, applied, released, revision, rebuilt, lacks_own }
    }

    /// What a key shows, and the token of a session that reads it.
    fn read(&self, key: u64, token: &mut CausalToken) -> Option<(SiteId, Revision)> {
        let key = Bytes::from(vec![b'k', key as u8]);
        let pending = self.unordered.values().rfind(|write| write.effects[0].key() == Some(&key));
        if let Some(pending) = pending {
            token.writes(self.own, pending.revision);
            return Some((self.own, pending.revision));
        }
        let imported = self.imported.get(&key);
        match imported {
            Some((position, site, _)) if *site != self.own => token.sees(*position),
            _ => token.sees(self.applied),
        }
        imported.map(|(_, site, revision)| (*site, *revision))
    }
}

impl Durable for Store {
    fn taken_all(&self) -> Vec<(RegionId, Position)> {
        self.taken.clone()
    }

    fn trimmed_upto(&self) -> Position {
        self.trimmed
    }

    fn order_bytes(&self) -> u64 {
        0
    }

    fn last_revision(&self) -> Revision {
        self.revision
    }

    fn stopped_in(&self, _: u16) -> Option<bool> {
        self.stopped
    }

    fn given_to(&self) -> Option<SiteId> {
        self.given_to
    }

    fn ordered_all(&self) -> Vec<(SiteId, Revision, Position)> {
        let all = self.ordered_of.iter();
        all.map(|(site, (revision, position))| (*site, *revision, *position)).collect()
    }

    fn whole_upto(&self) -> Option<Position> {
        Some(self.applied).filter(|_| !self.resyncing)
    }
    fn is_resyncing(&self) -> bool {
        self.resyncing
    }

    fn is_restored(&self) -> bool {
        self.restored
    }

    fn lacks_own(&self, _: Revision) -> bool {
        false
    }

    fn records(
        &self,
        _: Option<&(KeyspaceId, Bytes)>,
        _: usize,
        _: &dyn Fn(KeyspaceId) -> bool,
    ) -> (Vec<ResyncItem>, Option<(KeyspaceId, Bytes)>) {
        (Vec::new(), None)
    }

    fn holds_key(&self, _: KeyspaceId, key: &Bytes) -> bool {
        self.held.contains_key(key)
    }
    fn holds_hash(&self, _: KeyspaceId, hash: u32) -> bool {
        self.held.keys().any(|key| key_hash(key) == hash)
    }
    fn held_size(&self, _: KeyspaceId) -> HeldSize {
        HeldSize { keys: self.held.len() as u64, bytes: self.held.values().sum() }
    }
    fn least_read(&self, _: KeyspaceId, bytes: u64, keys: u64) -> Vec<Bytes> {
        let (mut freed, mut found) = (0, Vec::new());
        for (key, of_key) in &self.held {
            if freed >= bytes && found.len() as u64 >= keys {
                break;
            }
            freed += of_key;
            found.push(key.clone());
        }
        found
    }
    fn applied(&self) -> Position {
        self.applied
    }
    fn kept_upto(&self) -> Revision {
        self.own_ordered
    }
    fn unordered(&self, after: Revision, _: usize) -> Vec<CausalWrite> {
        let all = self.unordered.range(Revision(after.0 + 1)..).map(|(_, write)| write.clone());
        all.take(if self.one_each { 1 } else { 4 }).collect()
    }
    fn order_last(&self) -> Position {
        self.order.last().map(|(position, ..)| *position).unwrap_or_default().max(self.begun)
    }
    fn ordered_of(&self, site: SiteId) -> Option<(Revision, Position)> {
        self.ordered_of.get(&site).copied()
    }
    fn ordered(&self, after: Position, _: usize) -> Vec<(Position, SiteId, CausalWrite)> {
        let from = self.order.partition_point(|(position, ..)| *position <= after);
        self.order.iter().skip(from).take(2_000).cloned().collect()
    }
    fn kept_after(&self) -> Option<Position> {
        self.kept_after
    }
}

/// One message: to a node of a site.
#[derive(Clone, Debug)]
enum Message {
    Order { id: u64, from: (SiteId, NodeId), offer: Offer },
    Ordered { id: u64, to: NodeId, outcome: Revision },
    Step { from: (SiteId, NodeId), message: CausalStep },
}

struct Site {
    store: Store,
    node: NodeId,
    export: Export,
    distribute: Distribute,
    import: Import,
    questions: Questions,
    /// Offers that wait for an answer, and until when.
    asked: BTreeMap<u64, Duration>,
}

/// Writes, each behind its key.
type Past = BTreeSet<(u64, SiteId, Revision)>;

#[derive(Clone, Debug)]
struct Client {
    at: usize,
    token: CausalToken,
    past: Past,
    asked: Option<Duration>,
}

/// A read: what it returned, and what its session had of the key.
struct Seen {
    returned: Option<(SiteId, Revision)>,
    past: Vec<(SiteId, Revision)>,
}

struct World {
    random: u64,
    now: Duration,
    planted: Planted,
    sites: Vec<Site>,
    links: Vec<(Duration, usize, Message)>,
    clients: Vec<Client>,
    seen: Vec<Seen>,
    /// What the writer of each write had in its past.
    pasts: BTreeMap<(SiteId, Revision), Past>,
    sound: bool,
    cut: Option<usize>,
    sent: u64,
}

impl World {
    fn new(seed: u64, planted: Planted) -> World {
        let sites = (1..=SITES).map(|own| Site {
            store: Store::of(own),
            node: NodeId(u64::from(own)),
            export: Export::new(planted),
            distribute: Distribute::default(),
            import: Import::new(planted),
            questions: Questions::new(planted),
            asked: BTreeMap::new(),
        });
        let token = CausalToken { region: RegionId(1), ..CausalToken::default() };
        let client = |at| Client { at, token, past: BTreeSet::new(), asked: None };
        World {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: Duration::ZERO,
            planted,
            sites: sites.collect(),
            links: Vec::new(),
            clients: (0..4).map(|one| client(one % 3)).collect(),
            seen: Vec::new(),
            pasts: BTreeMap::new(),
            sound: false,
            cut: None,
            sent: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % below
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        self.sent += u64::from(from != to);
        let is_cut = from != to && (self.cut == Some(from) || self.cut == Some(to));
        let copies = match (self.sound, self.draw(10)) {
            _ if is_cut => 0,
            (false, 0) => 0,
            (false, 1) => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let ms = if from == to { 0 } else { 10 + self.draw(if self.sound { 5 } else { 60 }) };
            self.links.push((self.now + Duration::from_millis(ms), to, message.clone()));
        }
    }

    fn send_step(&mut self, from: usize, to: usize, message: CausalStep) {
        let from_node = (self.sites[from].store.own, self.sites[from].node);
        self.send(from, to, Message::Step { from: from_node, message });
    }

    /// Polls the parts of a site.
    fn poll(&mut self, at: usize) {
        let (now, region) = (self.now, region(at as u32 + 1));
        let site = &mut self.sites[at];
        let late: Vec<u64> =
            site.asked.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect();
        for id in late {
            site.asked.remove(&id);
            site.export.answered(id, &Err(Failure::NoLeader), now);
        }
        let offers = site.export.poll(now, &site.store, &region);
        for step in offers {
            match step {
                export::Step::Offer { id, offer, .. } => {
                    let site = &mut self.sites[at];
                    site.asked.insert(id, now + Duration::from_millis(500));
                    let from = (region.own, site.node);
                    self.send(at, 0, Message::Order { id, from, offer });
                }
                export::Step::Share(writes) => {
                    let writes = encode_writes(&writes);
                    for to in (1..3).filter(|to| *to != at) {
                        let site = region.own.0;
                        self.send_step(
                            at,
                            to,
                            CausalStep::Writes(Writes { site, writes: writes.clone() }),
                        );
                    }
                }
            }
        }
        let site = &mut self.sites[at];
        for step in site.distribute.poll(now, &site.store, &region) {
            match step {
                distribute::Step::Places(to, _, places) => {
                    self.send_step(at, to.0 as usize - 1, CausalStep::Places(places));
                }
                distribute::Step::Writes { .. } => unreachable!("every write has a site"),
                distribute::Step::Ask { to, message, .. } => {
                    self.send_step(at, to.0 as usize - 1, CausalStep::Where(message));
                }
            }
        }
        let site = &mut self.sites[at];
        for step in site.import.poll(now, &site.store, &region) {
            match step {
                import::Step::Propose(CausalCommand::Import { from, upto, entries }) => {
                    self.sites[at].store.take_import(from, upto, entries);
                }
                import::Step::Propose(_) => unreachable!("it imports"),
                import::Step::Report { message, .. } => {
                    self.send_step(at, 0, CausalStep::Reached(message))
                }
                import::Step::Pull(pull) => self.send_step(at, 0, CausalStep::Pull(pull)),
            }
        }
        let site = &mut self.sites[at];
        for ((to, _), answer) in
            site.questions.poll(now, &site.store, site.store.order_last(), |_, _| false)
        {
            self.send_step(at, to.0 as usize - 1, CausalStep::Resolved(answer));
        }
    }

    fn take(&mut self, at: usize, message: Message) {
        let now = self.now;
        match message {
            Message::Order { id, from, offer } => {
                let outcome = self.sites[at].store.take_offer(offer);
                let to = from.0.0 as usize - 1;
                self.send(at, to, Message::Ordered { id, to: from.1, outcome });
            }
            Message::Ordered { id, to, outcome } => {
                let site = &mut self.sites[at];
                if site.node == to && site.asked.remove(&id).is_some() {
                    site.export.answered(id, &Ok(Answer::Done(outcome)), now);
                }
            }
            Message::Step { from, message } => self.take_message(at, from, message),
        }
    }

    fn take_message(&mut self, at: usize, from: (SiteId, NodeId), message: CausalStep) {
        let now = self.now;
        let site = &mut self.sites[at];
        let back = from.0.0 as usize - 1;
        match message {
            CausalStep::Writes(writes) => {
                let all = decode_writes(writes.writes).expect("writes");
                site.import.take_writes(SiteId(writes.site), all, now);
            }
            CausalStep::Where(message) => site.import.asked(message.epoch),
            CausalStep::Reached(message) => site.distribute.reached(from, message, now),
            CausalStep::Places(places) => {
                let region = region(site.store.own.0);
                site.import.take_places(&places, now, &region);
            }
            CausalStep::Pull(pull) => {
                for position in pull.positions {
                    let store = &self.sites[at].store;
                    let found = store.ordered(Position(position - 1), 1).into_iter().next();
                    let (_, of, write) = found.expect("it has a place");
                    let writes = encode_writes(&vec![write]);
                    self.send_step(at, back, CausalStep::Writes(Writes { site: of.0, writes }));
                }
            }
            CausalStep::Resolve(question) => {
                let released = site.store.order_last();
                let answer =
                    site.questions.asked(from, question, (now, false), &site.store, released);
                if let Some(answer) = answer {
                    self.send_step(at, back, CausalStep::Resolved(answer));
                }
            }
            CausalStep::Resolved(answer) => {
                let write = Some((SiteId(answer.site), Revision(answer.revision)));
                for client in self.clients.iter_mut().filter(|client| client.token.written == write)
                {
                    client.token.written = None;
                    client.token.sees(Position(answer.position));
                }
            }
            CausalStep::LedBy(_) | CausalStep::Drop(_) => {}
        }
    }

    /// A client asks at its site; what has to wait, waits.
    fn ask(&mut self, one: usize, writes: bool, key: u64) -> bool {
        let mut client = self.clients[one].clone();
        let at = client.at;
        match admit(&client.token, &self.sites[at].store.here(), self.planted) {
            Admission::Served => {}
            Admission::Resolves(question) => {
                let Some((site, revision)) = question.written else { return false };
                if client.asked.is_none_or(|asked| asked + super::AGAIN <= self.now) {
                    self.clients[one].asked = Some(self.now);
                    let (site, revision) = (site.0, revision.0);
                    let question = Resolve { site, revision, ..Resolve::default() };
                    self.send_step(at, 0, CausalStep::Resolve(question));
                }
                return false;
            }
            _ => return false,
        }
        // With a planted bug it may still name another site.
        client.token.written = client.token.written.filter(|(site, _)| site.0 == at as u32 + 1);
        client.asked = None;
        let store = &mut self.sites[at].store;
        if writes {
            let revision = store.revision.0 + 1;
            store.commit(write_of(revision, key, store.applied));
            let own = (store.own, Revision(revision));
            client.token.writes(own.0, own.1);
            self.pasts.insert(own, client.past.clone());
            client.past.insert((key, own.0, own.1));
        } else {
            let before = client.token;
            let returned = store.read(key, &mut client.token);
            if self.planted.is(Bug::ReadsUnmerged) {
                client.token = before;
            }
            let past = client.past.iter().filter(|(of, ..)| *of == key);
            let past = past.map(|(_, site, revision)| (*site, *revision)).collect();
            self.seen.push(Seen { returned, past });
            if let Some((site, revision)) = returned {
                client.past.insert((key, site, revision));
                client.past.extend(self.pasts[&(site, revision)].iter().copied());
            }
        }
        self.clients[one] = client;
        true
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        for at in 0..3 {
            self.poll(at);
        }
        let now = self.now;
        let (due, later) =
            std::mem::take(&mut self.links).into_iter().partition(|(at, ..)| *at <= now);
        self.links = later;
        let due: Vec<_> = due;
        for (_, to, message) in due {
            self.take(to, message);
        }
    }

    /// A leader is lost, with all that is volatile.
    fn lose_leader(&mut self, at: usize) {
        let planted = self.planted;
        let site = &mut self.sites[at];
        site.node = NodeId(site.node.0 + 10);
        site.asked.clear();
        site.export = Export::new(planted);
        site.distribute = Distribute::default();
        site.import = Import::new(planted);
        site.questions = Questions::new(planted);
    }

    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
            let one = self.draw(self.clients.len() as u64) as usize;
            match self.draw(100) {
                0..20 => {
                    let (writes, key) = (self.draw(2) == 0, self.draw(KEYS));
                    self.ask(one, writes, key);
                }
                20..26 => self.clients[one].at = self.draw(3) as usize,
                26 if self.draw(5) == 0 => {
                    let at = self.draw(3) as usize;
                    self.lose_leader(at);
                }
                27 if self.draw(5) == 0 => {
                    self.cut = match self.cut {
                        None => Some(self.draw(3) as usize),
                        Some(_) => None,
                    };
                }
                _ => {}
            }
        }
    }

    /// The links are sound: all comes to rest, and is judged.
    fn settle(&mut self) -> Result<(), String> {
        (self.sound, self.cut) = (true, None);
        for _ in 0..8_000 {
            self.step();
        }
        let sent = self.sent;
        for _ in 0..60_000 {
            self.step();
        }
        if self.sent != sent {
            return Err(format!("{} messages in a quiet minute", self.sent - sent));
        }
        let last = self.sites[0].store.order_last();
        for site in &self.sites {
            let store = &site.store;
            if store.applied != last || !store.unordered.is_empty() {
                let (applied, own) = (store.applied, store.own);
                let left = store.unordered.len();
                return Err(format!("{own} is at {applied} of {last}, {left} without a place"));
            }
            if store.imported != self.sites[0].store.imported {
                return Err(format!("{} has other keys", store.own));
            }
        }
        let order = &self.sites[0].store.order;
        let positions: BTreeMap<_, _> =
            order.iter().map(|(at, site, write)| ((*site, write.revision), *at)).collect();
        for (write, past) in &self.pasts {
            let at = positions.get(write).ok_or_else(|| format!("{write:?} has no place"))?;
            for (_, site, revision) in past {
                if positions[&(*site, *revision)] >= *at {
                    return Err(format!("{write:?} comes before {site} {revision}, its cause"));
                }
            }
        }
        for seen in &self.seen {
            let at = seen.returned.map(|write| positions[&write]).unwrap_or_default();
            if let Some(newer) = seen.past.iter().find(|write| positions[write] > at) {
                return Err(format!("{:?} was read after {newer:?}", seen.returned));
            }
        }
        Ok(())
    }
}

fn run(seed: u64, planted: Planted) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, planted);
    world.run(4_000);
    world.settle()?;
    Ok((world.seen.len() as u64, world.sites[0].store.order_last().count()))
}

#[test]
fn sites_converge_and_sessions_never_go_back() {
    let (mut reads, mut writes) = (0, 0);
    for seed in 0..20 {
        let (read, written) = run(seed, Planted::none()).unwrap_or_else(|e| panic!("{seed}: {e}"));
        reads += read;
        writes += written;
    }
    assert!(reads > 2_000 && writes > 2_000, "{reads} reads, {writes} writes");
}

#[test]
#[cfg(feature = "trial")]
fn each_planted_bug_is_found() {
    // Those of resyncs are of whole sites.
    for bug in &Bug::ALL[..6] {
        let bug = *bug;
        let found = (0..40).find(|seed| {
            let planted = Planted::of(bug);
            std::panic::catch_unwind(|| run(*seed, planted)).is_ok_and(|found| found.is_err())
        });
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
