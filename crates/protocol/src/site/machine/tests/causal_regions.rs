//! Causal keys of three regions: the machines of their roots, and of a second site of one of them,
//! and what passes between them by hand, in any legal order. In the end all show, of each register,
//! the write with the highest stamp.

mod exhaustive;
mod rebuilt;

use super::causal::{CARTS, change, delete, set, unset};
use super::*;
use model::{
    Bridge, Bridged, CausalCommand, DeploymentId, Effect, ExpiryCondition, Import, KeyStamps,
    KeyspaceSpec, Mark, Offer, Position, RegionId, Registers, RegistryChange, RegistryError, Stamp,
    limits,
};
use proptest::collection::vec;
use proptest::prelude::*;

const KEYS: [&str; 3] = ["a", "b", "c"];
const FIELDS: [&str; 2] = ["f", "g"];
/// The sites: the roots of the three regions, and a second site of the second one.
const ROOTS: [usize; 3] = [0, 1, 2];
const SECOND: usize = 3;
const OF_SECOND: usize = 1;

fn region_entry(name: &str, region: &str) -> SiteEntry {
    SiteEntry { region: SiteName::new(region).ok(), ..entry(name) }
}

pub(super) fn regions() -> [Site; 4] {
    let mut sites = [(); 4].map(|()| Site::new());
    let site = region_entry("a", "east");
    let found = DeploymentCommand::Found { deployment: DeploymentId(7), site };
    sites[0].run(Command::Deployment(found)).unwrap();
    for (name, region) in [("b", "west"), ("c", "south"), ("d", "west")] {
        sites[0].run(change(RegistryChange::Join(region_entry(name, region)))).unwrap();
    }
    let spec = KeyspaceSpec::causal_region("carts", "cart:");
    sites[0].run(Command::CreateKeyspace(spec)).unwrap();
    for at in 1..4 {
        let registry = Box::new((*sites[0].copy_of_registry()).clone());
        let enter = DeploymentCommand::Enter { site: SiteId(at as u32 + 1), registry };
        sites[at].run(Command::Deployment(enter)).unwrap();
    }
    sites
}

impl Site {
    fn region(&self) -> (RegionId, u16) {
        self.machine.region().map(|region| (region.id, region.epoch)).unwrap()
    }

    /// Its own writes get their places: it is the root.
    fn order_all(&mut self, offer: Offer) {
        let (_, epoch) = self.region();
        self.causal(CausalCommand::Order { epoch, offer }).unwrap();
    }

    /// What a root has behind a position, for another one.
    fn bridge(&self, after: Position, len: usize) -> Bridge {
        let last = self.machine.causal().order_last();
        let all = self.machine.ordered(after, usize::MAX).unwrap();
        let upto = all.iter().take(len).next_back().map_or(after, |(position, ..)| *position);
        let places = all.into_iter().take(len);
        let registry = self.copy_of_registry();
        let is_lost = |of, position| registry.region(of).is_some_and(|of| of.lacks(position));
        let places = places
            .filter_map(|(position, site, write)| Bridged::of(position, site, write, is_lost))
            .collect();
        let log_time_ms = self.machine.log_time_ms();
        let clock_ms = if upto == last { log_time_ms.saturating_sub(10) } else { 0 };
        let causal = self.machine.causal();
        let all = causal.taken_all(&registry, self.machine.region().unwrap());
        let has = if upto == last { all } else { vec![] };
        Bridge { of: self.region().0, after, upto, clock_ms, has, places }
    }

    fn taken(&self, of: RegionId) -> Position {
        self.machine.causal().taken_of(&self.copy_of_registry(), of, self.region().1)
    }

    fn take(&mut self, bridge: Bridge) -> Result<Answer, Refusal> {
        let (_, epoch) = self.region();
        self.causal(CausalCommand::Bridge { epoch, bridge })
    }

    fn shown(&self) -> Vec<Shown> {
        let key_of = |key: &'static str| {
            let fields = match self.ask_in(CARTS, Query::HashGetAll { key: key.into() }) {
                Ok(Answer::Fields(fields)) => fields,
                _ => Vec::new(),
            };
            let string = match self.ask_in(CARTS, Query::Get { key: key.into() }) {
                Ok(Answer::Value(value)) => value.map(|found| found.value),
                _ => None,
            };
            Shown { string, fields: fields.into_iter().collect(), expiry: self.expiry_of(key) }
        };
        KEYS.into_iter().map(key_of).collect()
    }

    /// When a key expires; of an absent one, too.
    fn expiry_of(&self, key: &'static str) -> Option<u64> {
        let keyspaces = super::super::keyspaces::Keyspaces::load(self.machine.state()).unwrap();
        let generation = keyspaces.generation(CARTS).unwrap();
        let row = self.machine.state().get(&tables::record(generation, key.as_bytes())).unwrap();
        let record = row.map(|row| Record::decode(row).unwrap());
        record.and_then(|record| record.agreed()).map(|expiry| expiry.ms)
    }
}

/// The registers of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    string: Option<Bytes>,
    fields: BTreeMap<Bytes, Bytes>,
    expiry: Option<u64>,
}

/// The same, each with the stamp of the write that it is of.
#[derive(Clone, Debug, Default)]
struct Expected {
    string: (Option<Bytes>, Stamp),
    fields: BTreeMap<Bytes, (Option<Bytes>, Stamp)>,
    expiry: (Option<u64>, Stamp),
}

impl Expected {
    /// A write with a higher stamp than all before it.
    fn take(&mut self, effects: &[Effect], effect: &Effect, stamp: Stamp) {
        match effect {
            Effect::Put { value, .. } => {
                let (string, expiry) = ((Some(value.clone()), stamp), (None, stamp));
                *self = Expected { string, expiry, ..Expected::default() };
            }
            Effect::Replace { value, .. } => {
                let (string, expiry) = ((Some(value.clone()), stamp), self.expiry);
                *self = Expected { string, expiry, ..Expected::default() };
            }
            Effect::Delete { .. } | Effect::Clear => {
                let (string, expiry) = ((None, stamp), (None, stamp));
                *self = Expected { string, expiry, ..Expected::default() };
            }
            Effect::SetFields { fields, .. } => {
                self.string = (None, stamp);
                let set =
                    |(name, value): &(Bytes, Bytes)| (name.clone(), (Some(value.clone()), stamp));
                self.fields.extend(fields.iter().map(set));
            }
            Effect::DeleteFields { fields, .. } => {
                self.fields.extend(fields.iter().map(|name| (name.clone(), (None, stamp))));
            }
            Effect::SetExpiry { at_ms, .. } => self.expiry = (*at_ms, stamp),
            Effect::Expire { .. } => {
                let Effect::Mark(Mark::Held { stamps }) = &effects[0] else {
                    panic!("what it held: {effects:?}")
                };
                self.expire(stamps);
            }
            other => panic!("{other:?} assigns nothing"),
        }
    }

    fn expire(&mut self, held: &KeyStamps) {
        let of_all = held.values.unwrap_or_default().max(held.floor);
        if self.string.1 <= of_all.max(held.string.unwrap_or_default()) {
            self.string.0 = None;
        }
        for (name, (value, stamp)) in &mut self.fields {
            let named = held.fields.iter().find(|(of, _)| of == name);
            if *stamp <= of_all.max(named.map_or(Stamp::default(), |(_, stamp)| *stamp)) {
                *value = None;
            }
        }
        if self.expiry.1 <= held.expiry.unwrap_or_default().max(held.floor) {
            self.expiry.0 = None;
        }
    }

    fn shown(&self) -> Shown {
        let fields = self.fields.iter();
        let fields = fields.filter_map(|(name, (value, _))| Some((name.clone(), value.clone()?)));
        Shown { string: self.string.0.clone(), fields: fields.collect(), expiry: self.expiry.0 }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize, Kind),
    Clear(usize),
    Order(usize),
    Import(usize, usize),
    Bridge(usize, usize, usize),
    Pass(u64),
    Reopen(usize),
}

#[derive(Clone, Debug)]
enum Kind {
    Put,
    Large,
    Replace,
    Delete,
    Set(usize),
    Unset(usize),
    Expire(Option<u64>),
}

/// A write of a key, of which no other one has the value.
fn write_of(key: usize, kind: &Kind, number: u32) -> Write {
    let name = KEYS[key];
    let key: Bytes = name.into();
    let value: Bytes = number.to_string().into();
    let (condition, return_old) = (Condition::Always, false);
    let put = |value, expiry| Write::Put { key: key.clone(), value, condition, expiry, return_old };
    let text = Box::leak(number.to_string().into_boxed_str());
    match kind {
        Kind::Put => put(value, Expiry::Never),
        Kind::Large => put(vec![b'x'; 20_000].into(), Expiry::AfterMs(300)),
        Kind::Replace => put(value, Expiry::Keep),
        Kind::Delete => delete(name),
        Kind::Set(field) => set(name, FIELDS[*field], text),
        Kind::Unset(field) => unset(name, FIELDS[*field]),
        Kind::Expire(after_ms) => {
            let expiry = after_ms.map_or(Expiry::Never, Expiry::AfterMs);
            Write::SetExpiry { key, expiry, condition: ExpiryCondition::Always }
        }
    }
}

struct World {
    sites: [Site; 4],
    /// What each root has ordered of its own region.
    ordered: BTreeMap<(Stamp, Position), Vec<Effect>>,
    looked_at: [Position; 3],
    values: u32,
}

impl World {
    fn new() -> World {
        let looked_at = [Position::default(); 3];
        World { sites: regions(), ordered: BTreeMap::new(), looked_at, values: 0 }
    }

    fn write(&mut self, site: usize, key: usize, kind: &Kind) {
        self.values += 1;
        let write = write_of(key, kind, self.values);
        match self.sites[site].write_in(CARTS, write) {
            Ok(_) | Err(Refusal::WrongType) => {}
            Err(refusal) => panic!("{refusal}"),
        }
    }

    /// Notes what a root has ordered since.
    fn look(&mut self, root: usize) {
        let all = self.sites[root].machine.ordered(self.looked_at[root], usize::MAX).unwrap();
        for (position, _, write) in all {
            self.looked_at[root] = position;
            if let Some((stamp, None)) = write.stamp() {
                self.ordered.insert((stamp, position), write.effects);
            }
        }
    }

    fn order(&mut self, site: usize) {
        let root = if site == SECOND { OF_SECOND } else { site };
        let offer = self.sites[site].offer();
        self.sites[root].order_all(offer);
        self.look(root);
    }

    fn import(&mut self, site: usize, len: usize) {
        let root = if site == SECOND { OF_SECOND } else { site };
        let (own, from) = (self.sites[site].own(), self.sites[site].machine.causal().applied());
        let mut upto = from;
        let entries = self.sites[root].machine.ordered(from, usize::MAX).unwrap().into_iter();
        let entries: Vec<Import> = entries
            .take(len)
            .map(|(position, of, write)| {
                upto = position;
                match of == own {
                    true => Import::Own(position),
                    false => Import::Other { position, site: of, write },
                }
            })
            .collect();
        self.sites[site].causal(CausalCommand::Import { from, upto, entries }).unwrap();
    }

    fn bridge(&mut self, from: usize, to: usize, len: usize) {
        let of = self.sites[from].region().0;
        let after = self.sites[to].taken(of);
        let bridge = self.sites[from].bridge(after, len);
        let answer = self.sites[to].take(bridge).unwrap();
        assert_eq!(answer, Answer::Done(Revision(self.sites[to].taken(of).0)));
        self.look(to);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(site, key, kind) => self.write(*site, *key, kind),
            Step::Clear(root) => {
                self.sites[*root].causal(CausalCommand::Clear { keyspace: CARTS }).unwrap();
                self.look(*root);
            }
            Step::Order(site) => self.order(*site),
            Step::Import(site, len) => self.import(*site, *len),
            Step::Bridge(from, to, len) => self.bridge(*from, *to, *len),
            Step::Pass(ms) => self.sites.iter_mut().for_each(|site| site.now_ms += ms),
            Step::Reopen(site) => self.sites[*site].reopen(),
        }
    }

    /// Everything comes everywhere.
    fn settle(&mut self) {
        for round in 0..40 {
            for site in 0..4 {
                self.order(site);
            }
            for from in ROOTS {
                for to in ROOTS.into_iter().filter(|to| *to != from) {
                    self.bridge(from, to, usize::MAX);
                }
            }
            (0..4).for_each(|site| self.import(site, usize::MAX));
            ROOTS.into_iter().for_each(|root| self.sites[root].tick());
            ROOTS.into_iter().for_each(|root| self.look(root));
            if round == 20 {
                self.step(&Step::Pass(10_000));
            }
        }
        (0..4).for_each(|site| self.import(site, usize::MAX));
    }

    fn check(&mut self) {
        let mut expected = vec![Expected::default(); KEYS.len()];
        for ((stamp, _), effects) in &self.ordered {
            for effect in effects.iter().filter(|effect| !effect.is_mark()) {
                for (at, key) in KEYS.iter().enumerate() {
                    if effect.key().is_none_or(|of| of == *key) {
                        expected[at].take(effects, effect, *stamp);
                    }
                }
            }
        }
        let wanted: Vec<Shown> = expected.iter().map(Expected::shown).collect();
        for site in &self.sites {
            assert_eq!(site.shown(), wanted, "{}: {:#?}", site.own(), self.ordered);
        }
        let [.., second] = &self.sites;
        let root = &self.sites[OF_SECOND];
        assert_eq!(second.machine.causal().of_order(), root.machine.causal().of_order());
        assert!(second.machine.causal().is_whole());
        (0..4).for_each(|site| self.sites[site].reopen());
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::Put),
        1 => Just(Kind::Large),
        1 => Just(Kind::Replace),
        1 => Just(Kind::Delete),
        3 => (0..2_usize).prop_map(Kind::Set),
        2 => (0..2_usize).prop_map(Kind::Unset),
        1 => prop_oneof![Just(None), (1..400_u64).prop_map(Some)].prop_map(Kind::Expire),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let other = |(from, to): (usize, usize)| (from, (from + 1 + to) % 3);
    prop_oneof![
        8 => (0..4_usize, 0..3_usize, kind()).prop_map(|(site, key, kind)| Step::Write(site, key, kind)),
        1 => (0..3_usize).prop_map(Step::Clear),
        6 => (0..4_usize).prop_map(Step::Order),
        6 => (0..4_usize, 1..5_usize).prop_map(|(site, len)| Step::Import(site, len)),
        9 => ((0..3_usize, 0..2_usize).prop_map(other), 1..5_usize)
            .prop_map(|((from, to), len)| Step::Bridge(from, to, len)),
        3 => prop_oneof![4 => 1..40_u64, 1 => 300..500_u64].prop_map(Step::Pass),
        1 => (0..4_usize).prop_map(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn all_regions_end_with_the_highest_stamps(steps in vec(step(), 1..90)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.settle();
        world.check();
    }
}

#[test]
fn each_region_has_its_root_and_a_new_one_is_named_before_the_first_keyspace() {
    let mut sites = regions();
    let roots: Vec<_> = sites.iter().map(|site| site.machine.region().unwrap().root.0).collect();
    assert_eq!(roots, [1, 2, 3, 2]);
    let late = sites[0].run(change(RegistryChange::Join(region_entry("e", "north"))));
    assert!(matches!(late, Err(Refusal::Registry(RegistryError::NewRegion { .. }))), "{late:?}");
}

#[test]
fn a_write_that_comes_late_leaves_what_has_a_higher_stamp() {
    let mut world = World::new();
    world.write(0, 0, &Kind::Set(0));
    world.order(0);
    world.step(&Step::Pass(100));
    world.write(1, 0, &Kind::Set(1));
    world.write(1, 0, &Kind::Expire(Some(50_000)));
    world.order(1);
    world.bridge(0, 1, usize::MAX);
    let (.., write) =
        world.sites[1].machine.ordered(Position(0), usize::MAX).unwrap().pop().unwrap();
    // It makes the string absent, and so did the later one.
    let registers =
        Registers { string: true, fields: vec!["g".into()], expiry: true, ..Registers::default() };
    let keeps = Effect::Mark(Mark::Keeps { key: "a".into(), registers });
    assert_eq!(write.effects[0], keeps);
    world.settle();
    world.check();
    assert_eq!(world.sites[0].shown()[0].fields.len(), 2);
}

#[test]
fn what_a_third_region_has_comes_first() {
    let mut world = World::new();
    world.write(0, 0, &Kind::Put);
    world.order(0);
    world.bridge(0, 1, usize::MAX);
    world.write(1, 1, &Kind::Put);
    world.order(1);
    // The third region lacks the cause.
    let of = world.sites[1].region().0;
    world.bridge(1, 2, usize::MAX);
    assert!(world.sites[2].taken(of) < world.sites[1].machine.causal().order_last());
    let ordered = world.sites[2].machine.ordered(Position(0), usize::MAX).unwrap();
    assert!(ordered.iter().all(|(.., write)| write.stamp().is_none()), "{ordered:?}");
    world.bridge(0, 2, usize::MAX);
    world.bridge(1, 2, usize::MAX);
    assert_eq!(world.sites[2].taken(of), world.sites[1].machine.causal().order_last());
}

#[test]
fn a_gap_is_answered_with_where_to_begin() {
    let mut world = World::new();
    world.write(0, 0, &Kind::Put);
    world.order(0);
    let last = world.sites[0].machine.causal().order_last();
    let (of, epoch) = world.sites[0].region();
    let (has, places) = (vec![], vec![]);
    let late = Bridge { of, after: last, upto: last, clock_ms: 0, has, places };
    assert_eq!(world.sites[1].take(late), Ok(Answer::Done(Revision(0))));
    let own = world.sites[1].region().0;
    let foolish = Bridge { of: own, ..world.sites[0].bridge(Position(0), 1) };
    assert!(matches!(world.sites[1].take(foolish), Err(Refusal::NotCausal(_))));
    let bridge = world.sites[0].bridge(Position(0), usize::MAX);
    let command = CausalCommand::Bridge { epoch: epoch + 9, bridge };
    assert!(matches!(world.sites[1].causal(command), Err(Refusal::NotCausal(_))));
}

#[test]
fn what_is_put_while_another_region_lets_a_key_expire_stays() {
    let mut world = World::new();
    world.write(0, 0, &Kind::Put);
    world.write(0, 0, &Kind::Expire(Some(300)));
    for _ in 0..4 {
        world.order(0);
        [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
            .into_iter()
            .for_each(|(from, to)| world.bridge(from, to, usize::MAX));
        (0..4).for_each(|site| world.import(site, usize::MAX));
    }
    world.step(&Step::Pass(400));
    (0..3).for_each(|site| world.sites[site].tick());
    for (from, to) in [(0, 1), (2, 1), (0, 2), (1, 2), (1, 0), (2, 0), (0, 1), (2, 1)] {
        world.bridge(from, to, usize::MAX);
    }
    // The second region lets it expire; the first one has another value by then.
    world.write(0, 0, &Kind::Put);
    world.order(0);
    world.sites[1].tick();
    world.look(1);
    let expires = |effects: &Vec<Effect>| {
        effects.iter().any(|effect| matches!(effect, Effect::Expire { .. }))
    };
    assert!(world.ordered.values().any(expires));
    world.settle();
    world.check();
    assert!(world.sites[0].shown()[0].string.is_some());
}

#[test]
fn a_value_that_fills_a_page_does_not_stay_for_ever() {
    let mut world = World::new();
    let large = limits::CAUSAL_IMPORT_BYTES_MAX + 1;
    for round in 0..12 {
        let value = Bytes::from(vec![b'x'; large]);
        let (condition, expiry, return_old) = (Condition::Always, Expiry::Never, false);
        let put = Write::Put { key: KEYS[0].into(), value, condition, expiry, return_old };
        world.sites[0].write_in(CARTS, put).unwrap();
        world.step(&Step::Pass(20));
        world.order(0);
        for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0), (1, 2), (2, 1)] {
            world.bridge(from, to, usize::MAX);
        }
        (0..4).for_each(|site| world.import(site, usize::MAX));
        let bytes = world.sites[SECOND].machine.causal().order_bytes();
        assert!(bytes < 4 * large as u64, "{bytes} bytes in round {round}");
    }
}

#[test]
fn the_order_is_kept_until_all_regions_have_taken_it() {
    let mut world = World::new();
    let mut most = 0;
    for round in 0..60 {
        world.write(round % 4, 0, &Kind::Large);
        world.step(&Step::Pass(20));
        world.order(round % 4);
        if round > 20 {
            for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)] {
                world.bridge(from, to, usize::MAX);
            }
        }
        (0..4).for_each(|site| world.import(site, usize::MAX));
        let upto = world.sites[0].machine.causal().applied();
        world.sites[0].causal(CausalCommand::Trim { upto }).unwrap();
        world.look(0);
        most = most.max(world.sites[SECOND].machine.causal().order_bytes());
    }
    let bytes = |site: usize| world.sites[site].machine.causal().order_bytes();
    assert!(most > 300_000, "{most}: nothing goes that a region lacks");
    assert!(bytes(SECOND) < most / 2 && bytes(0) < most / 2, "{} and {}", bytes(SECOND), bytes(0));
    assert!(world.sites[SECOND].machine.causal().kept_after() > Position(0));
    world.settle();
    world.check();
}
