//! Causal keys in any legal order of writes, orders and imports at three sites, against a model
//! that folds everything anew: at every moment each site shows a prefix of the order under its own
//! pending writes, a token names all that a session has seen, and in the end all sites show the
//! same.

use super::super::causal::Causal;
use super::super::causal::session::{Lacks, SessionRead};
use super::causal::{A, B, C, CARTS, change, three_sites};
use super::*;
use model::{
    CausalCommand, CausalToken, CausalWrite, Effect, Expiring, Import, KeyspaceSpec, Kind, NO_SITE,
    Offer, Position, RegistryChange, Step,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

const MORE: KeyspaceId = KeyspaceId(2);
const KEYS: [&str; 3] = ["a", "b", "c"];

/// The identity of a write.
type Id = (SiteId, Revision);

/// A site, as a number below 3.
fn site_of(at: usize) -> SiteId {
    [A, B, C, NO_SITE][at]
}

/// What the root orders by itself, as a number beside the sites'.
const BY_ROOT: usize = 3;

// ---- the model ---------------------------------------------------------------------------------

/// An assignment, by the model's own understanding of commands.
#[derive(Clone, Debug)]
enum Assign {
    Put(&'static str, Bytes),
    Delete(&'static str),
    Set(&'static str, Vec<(Bytes, Bytes)>),
    Unset(&'static str, Vec<Bytes>),
    Expiry(&'static str, Option<u64>),
    Clear,
}

impl Assign {
    fn is_of(&self, key: &str) -> bool {
        matches!(self, Assign::Clear) || self.key() == key
    }

    fn key(&self) -> &'static str {
        match self {
            Assign::Clear => "",

            Assign::Put(key, _) | Assign::Delete(key) => key,
            Assign::Set(key, _) | Assign::Unset(key, _) | Assign::Expiry(key, _) => key,
        }
    }
}

#[derive(Clone, Debug)]
struct Written {
    id: Id,
    keyspace: KeyspaceId,
    assigns: Vec<Assign>,
    /// All that may have caused it.
    past: BTreeSet<Id>,
}

/// The registers of a key, each with the write that assigned it last.
#[derive(Clone, Debug, Default)]
struct Registers {
    string: (Option<Bytes>, Option<Id>),
    fields: BTreeMap<Bytes, (Option<Bytes>, Option<Id>)>,
    /// Of all other fields.
    others: Option<Id>,
    expiry: (Option<u64>, Option<Id>),
}

impl Registers {
    fn take(&mut self, assign: &Assign, id: Id) {
        let id = Some(id);
        match assign {
            Assign::Put(_, value) => {
                let (string, expiry) = ((Some(value.clone()), id), (None, id));
                *self = Registers { string, fields: BTreeMap::new(), others: id, expiry };
            }
            Assign::Delete(_) | Assign::Clear => {
                let (string, expiry) = ((None, id), (None, id));
                *self = Registers { string, fields: BTreeMap::new(), others: id, expiry };
            }
            Assign::Expiry(_, at_ms) => self.expiry = (*at_ms, id),
            Assign::Set(_, fields) => {
                self.string = (None, id);
                for (name, value) in fields {
                    self.fields.insert(name.clone(), (Some(value.clone()), id));
                }
            }
            Assign::Unset(_, fields) => {
                for name in fields {
                    self.fields.insert(name.clone(), (None, id));
                }
            }
        }
    }

    fn hash(&self) -> Vec<(Bytes, Bytes)> {
        let there = self.fields.iter();
        there.filter_map(|(name, (value, _))| Some((name.clone(), value.clone()?))).collect()
    }

    fn kind(&self) -> Option<Kind> {
        match (&self.string.0, self.hash().is_empty()) {
            (Some(_), true) => Some(Kind::String),
            (Some(_), false) => panic!("both a string and a hash: {self:?}"),
            (None, false) => Some(Kind::Hash),
            (None, true) => None,
        }
    }

    /// The writes that a read of the whole key depends on. Under a string no field shows, whichever
    /// write deleted it since: whatever makes one show again makes the string absent.
    fn read(&self) -> BTreeSet<Id> {
        if self.string.0.is_some() {
            return self.string.1.into_iter().collect();
        }
        let fields = self.fields.values().filter_map(|(_, id)| *id);
        fields.chain(self.string.1).chain(self.others).collect()
    }
}

#[derive(Debug, Default)]
struct Model {
    /// What each site has written, in order, and the root by itself.
    own: [Vec<Written>; 4],
    /// The order: site, and which of its writes.
    order: Vec<(usize, usize)>,
    /// How much of the order each site has imported.
    applied: [usize; 3],
}

impl Model {
    /// What is visible at a site, in the order of its fold.
    fn visible(&self, site: usize) -> impl Iterator<Item = &Written> {
        let ordered = &self.order[..self.applied[site]];
        let own = ordered.iter().filter(|(of, _)| *of == site).count();
        let ordered = ordered.iter().map(|(of, number)| &self.own[*of][*number]);
        ordered.chain(&self.own[site][own..])
    }

    fn ids(&self, site: usize) -> BTreeSet<Id> {
        self.visible(site).map(|write| write.id).collect()
    }

    fn registers(&self, site: usize, keyspace: KeyspaceId, key: &str) -> Registers {
        let mut registers = Registers::default();
        for write in self.visible(site).filter(|write| write.keyspace == keyspace) {
            for assign in write.assigns.iter().filter(|assign| assign.is_of(key)) {
                registers.take(assign, write.id);
            }
        }
        registers
    }

    /// A key as the order up to a place has it.
    fn ordered(&self, upto: usize, keyspace: KeyspaceId, key: &str) -> Registers {
        let mut registers = Registers::default();
        for (of, number) in &self.order[..upto] {
            let write = &self.own[*of][*number];
            let of_key = |assign: &&Assign| write.keyspace == keyspace && assign.is_of(key);
            write.assigns.iter().filter(of_key).for_each(|one| registers.take(one, write.id));
        }
        registers
    }

    fn position(&self, id: Id) -> Option<Position> {
        let is_it = |(of, number): &(usize, usize)| self.own[*of][*number].id == id;
        let at = self.order.iter().position(is_it)?;
        Some(Position::new(1, at as u64 + 1))
    }
}

/// A session: its token, and all that it has seen and what caused that.
#[derive(Clone, Debug, Default)]
struct Session {
    token: CausalToken,
    past: BTreeSet<Id>,
}

// ---- the world ---------------------------------------------------------------------------------

struct World {
    sites: [Site; 3],
    model: Model,
    sessions: Vec<Session>,
    values: u32,
}

impl World {
    fn new() -> World {
        let sessions = vec![Session::default(); 3];
        World { sites: three_sites(), model: Model::default(), sessions, values: 0 }
    }

    fn has(&self, site: usize, keyspace: KeyspaceId) -> bool {
        self.sites[site].machine.spec(keyspace).is_some()
    }

    fn value(&mut self) -> Bytes {
        self.values += 1;
        self.values.to_string().into()
    }

    /// The command of one part of a write, and what it assigns if the key is of this kind by then.
    fn part(&mut self, site: usize, part: &Part) -> (Write, Vec<Assign>) {
        let key = |at: usize| KEYS[at];
        match part {
            Part::Put(at) => {
                let value = self.value();
                let write = Write::Put {
                    key: key(*at).into(),
                    value: value.clone(),
                    condition: Condition::Always,
                    expiry: Expiry::Never,
                    return_old: false,
                };
                (write, vec![Assign::Put(key(*at), value)])
            }
            Part::PutMany(keys) => {
                let pairs: Vec<_> = keys.iter().map(|at| (key(*at), self.value())).collect();
                let of = |(key, value): &(&'static str, Bytes)| (Bytes::from(*key), value.clone());
                let many = pairs.iter().map(of).collect();
                let assigns = pairs.into_iter().map(|(key, value)| Assign::Put(key, value));
                (Write::PutMany { pairs: many, if_all_absent: false }, assigns.collect())
            }
            Part::Delete(keys) => {
                let keys: Vec<_> = keys.iter().map(|at| key(*at)).collect();
                let write = Write::Delete { keys: keys.iter().map(|key| (*key).into()).collect() };
                (write, keys.into_iter().map(Assign::Delete).collect())
            }
            Part::Set(at, fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|field| (name(*field), self.value())).collect();
                let write = Write::HashSet { key: key(*at).into(), fields: fields.clone() };
                (write, vec![Assign::Set(key(*at), fields)])
            }
            Part::Expire(at, after_ms) => {
                let expiry = after_ms.map_or(Expiry::Never, Expiry::AfterMs);
                let condition = model::ExpiryCondition::Always;
                let write = Write::SetExpiry { key: key(*at).into(), expiry, condition };
                let at_ms = after_ms.map(|ms| self.sites[site].now_ms + ms);
                (write, vec![Assign::Expiry(key(*at), at_ms)])
            }
            Part::PutExpiring(at, after_ms) => {
                let (write, mut assigns) = self.part(site, &Part::Put(*at));
                let Write::Put { key: of, value, condition, return_old, .. } = write else {
                    unreachable!("a put is one")
                };
                let expiry = Expiry::AfterMs(*after_ms);
                let at_ms = Some(self.sites[site].now_ms + after_ms);
                assigns.push(Assign::Expiry(key(*at), at_ms));
                (Write::Put { key: of, value, condition, expiry, return_old }, assigns)
            }
            Part::Unset(at, fields) => {
                let fields: Vec<_> = fields.iter().map(|field| name(*field)).collect();
                let write = Write::HashDelete { key: key(*at).into(), fields: fields.clone() };
                (write, vec![Assign::Unset(key(*at), fields)])
            }
        }
    }

    /// A site writes: one part alone, several as a transaction.
    fn write(&mut self, site: usize, keyspace: KeyspaceId, parts: &[Part], session: usize) {
        if !self.has(site, keyspace) || !self.attach(site, session) {
            return;
        }
        let made: Vec<_> = parts.iter().map(|part| self.part(site, part)).collect();
        let mut shown: BTreeMap<&str, Registers> = BTreeMap::new();
        for key in KEYS {
            shown.insert(key, self.model.registers(site, keyspace, key));
        }
        let id = (site_of(site), self.sites[site].machine.revision().next());
        let mut assigns = Vec::new();
        for (write, of_it) in &made {
            let is_hash = matches!(write, Write::HashSet { .. } | Write::HashDelete { .. });
            let is_string = is_hash && shown[of_it[0].key()].kind() == Some(Kind::String);
            let is_put = matches!(write, Write::Put { .. });
            for assign in of_it.iter().filter(|_| !is_string) {
                let registers = shown.get_mut(assign.key()).unwrap();
                // A key that is not there does not expire, and one that does not has nothing to
                // clear.
                let is_idle = match assign {
                    Assign::Expiry(_, None) => registers.expiry.0.is_none(),
                    _ => false,
                };
                let is_absent = matches!(assign, Assign::Expiry(..)) && registers.kind().is_none();
                if !is_put && (is_idle || is_absent) {
                    continue;
                }
                registers.take(assign, id);
                assigns.push(assign.clone());
                // A hash that has gone leaves no expiry.
                let is_unset = matches!(assign, Assign::Unset(..));
                if is_unset && registers.kind().is_none() && registers.expiry.0.is_some() {
                    let clear = Assign::Expiry(assign.key(), None);
                    registers.take(&clear, id);
                    assigns.push(clear);
                }
            }
        }
        let mut writes: Vec<_> = made.into_iter().map(|(write, _)| write).collect();
        let command = match writes.len() {
            1 => Command::Write { keyspace, write: writes.remove(0), request: None },
            _ => {
                let steps = writes.into_iter().map(Step::Write).collect();
                Command::Transaction { keyspace, guards: vec![], steps, request: None }
            }
        };
        match self.sites[site].run(command) {
            Ok(_) | Err(Refusal::WrongType) => {}
            Err(refusal) => panic!("{refusal}"),
        }
        let mut past = self.model.ids(site);
        past.extend(&self.sessions[session].past);
        if !assigns.is_empty() {
            assert_eq!(self.sites[site].machine.revision(), id.1);
            past.insert(id);
            let written = Written { id, keyspace, assigns, past: past.clone() };
            self.model.own[site].push(written);
        }
        let session = &mut self.sessions[session];
        session.token = self.sites[site].machine.reader().causal().covering(session.token);
        session.past = past;
    }

    /// A session goes to a site, if that covers its token by now.
    fn attach(&mut self, site: usize, session: usize) -> bool {
        let Session { token, past } = &mut self.sessions[session];
        loop {
            match self.sites[site].machine.reader().lacks(token) {
                None => break,
                Some(Lacks::PositionOf(of, revision)) => {
                    match self.sites[0].machine.causal().ordered_of(of) {
                        Some((upto, position)) if upto >= revision => {
                            token.sees(position);
                            token.written = None;
                        }
                        _ => return false,
                    }
                }
                Some(Lacks::Order(_)) => return false,
                Some(
                    lacks @ (Lacks::Revision(_)
                    | Lacks::Region
                    | Lacks::Keyspace
                    | Lacks::Ended { .. }),
                ) => {
                    panic!("{lacks:?}")
                }
            }
        }
        let here = self.model.ids(site);
        assert!(past.is_subset(&here), "a session has seen {past:?}, the site has {here:?}");
        true
    }

    fn read(&mut self, site: usize, keyspace: KeyspaceId, key: usize, session: usize) {
        if !self.has(site, keyspace) || !self.attach(site, session) {
            return;
        }
        let registers = self.model.registers(site, keyspace, KEYS[key]);
        let query = match key {
            0 => Query::HashGetAll { key: KEYS[key].into() },
            _ => Query::Get { key: KEYS[key].into() },
        };
        let token = self.sessions[session].token;
        let read = self.sites[site].read_in_session(keyspace, &query, token);
        let SessionRead::Answered(_, token) = read else { panic!("{read:?}") };
        let session = &mut self.sessions[session];
        session.token = token;
        for id in registers.read() {
            let of = self.model.own.iter().flatten().find(|write| write.id == id).unwrap();
            session.past.extend(&of.past);
        }
    }

    /// Some writes of a site are offered, from somewhere.
    fn order(&mut self, site: usize, from: usize, len: usize, epoch: u16) {
        let id = site_of(site);
        let all: Vec<CausalWrite> = self.all_unordered(site);
        let from = from.min(all.len());
        let own = |number: usize| self.model.own[site][number].id.1;
        let imported = self.model.own[site].len() - all.len();
        let after = match imported + from {
            0 => Revision(0),
            before => own(before - 1),
        };
        let writes: Vec<_> = all[from..].iter().take(len).cloned().collect();
        let upto = imported + from + writes.len();
        let answer = self.sites[0]
            .causal(CausalCommand::Order { epoch, offer: Offer { site: id, after, writes } });
        let ordered = self.model.order.iter().filter(|(of, _)| *of == site).count();
        if epoch != 1 {
            assert!(matches!(answer, Err(Refusal::NotCausal(_))));
            return;
        }
        let mut last = ordered;
        if imported + from <= ordered {
            for number in ordered..upto {
                self.model.order.push((site, number));
                last = number + 1;
            }
        }
        let last = if last == 0 { Revision(0) } else { self.model.own[site][last - 1].id.1 };
        assert_eq!(answer, Ok(Answer::Done(last)));
    }

    fn all_unordered(&self, site: usize) -> Vec<CausalWrite> {
        self.sites[site].machine.unordered(Revision(0), usize::MAX).unwrap()
    }

    /// A site takes a batch: from where it is, or from before.
    fn import(&mut self, site: usize, back: usize, len: usize) {
        let applied = self.model.applied[site];
        let from = applied.saturating_sub(back);
        let upto = (from + len).min(self.model.order.len());
        let position = |count: usize| match count {
            0 => Position(0),
            count => Position::new(1, count as u64),
        };
        let mut entries = Vec::new();
        let mut is_known = true;
        for at in from..upto {
            let (of, number) = self.model.order[at];
            let keyspace = self.model.own[of][number].keyspace;
            is_known &= of == site || keyspace == CARTS || self.copies_made(site);
            entries.push(match of == site {
                true => Import::Own(position(at + 1)),
                false => {
                    let write = self.written(of, number);
                    Import::Other { position: position(at + 1), site: site_of(of), write }
                }
            });
        }
        let command = CausalCommand::Import { from: position(from), upto: position(upto), entries };
        let before = dump(self.sites[site].machine.state());
        let answer = self.sites[site].causal(command);
        if from != applied {
            answer.unwrap();
            let mut after = dump(self.sites[site].machine.state());
            after.insert(tables::HEAD.into(), before[tables::HEAD].clone());
            assert_eq!(after, before, "nothing is done twice");
        } else if is_known {
            answer.unwrap();
            self.model.applied[site] = upto;
        } else {
            assert!(matches!(answer, Err(Refusal::NoKeyspace(_))), "{answer:?}");
        }
    }

    /// Whether a site's registry is one in which the second keyspace has been made.
    fn copies_made(&self, site: usize) -> bool {
        self.sites[site].copy_of_registry().keyspace_next > MORE.0
    }

    /// A write in the form in which sites send it.
    fn written(&self, site: usize, number: usize) -> CausalWrite {
        let position = Position(0);
        let kept = self.sites[0].machine.ordered(position, usize::MAX).unwrap();
        let own = if site == BY_ROOT { Vec::new() } else { self.all_unordered(site) };
        let revision = self.model.own[site][number].id.1;
        let in_order = kept.into_iter().filter(|(_, of, _)| *of == site_of(site));
        let mut all = in_order.map(|(_, _, write)| write).chain(own);
        all.find(|write| write.revision == revision).expect("the root keeps it until all have it")
    }

    fn trim(&mut self) {
        let upto = *self.model.applied.iter().min().unwrap();
        let upto = Position::new(1, upto as u64);
        self.sites[0].causal(CausalCommand::Trim { upto }).unwrap();
    }

    /// The registry reaches a site.
    fn learn(&mut self, site: usize) {
        let registry = self.sites[0].copy_of_registry();
        self.sites[site].learn(&registry);
    }

    /// The root clears a keyspace, behind what its own site has written.
    fn clear(&mut self, keyspace: KeyspaceId) {
        if !self.has(0, keyspace) {
            return;
        }
        let answer = self.sites[0].causal(CausalCommand::Clear { keyspace });
        let Ok(Answer::Placed(Position(place))) = answer else { panic!("{answer:?}") };
        let revision = Revision(place);
        let ordered = self.model.order.iter().filter(|(of, _)| *of == 0).count();
        let own = ordered..self.model.own[0].len();
        self.model.order.extend(own.map(|number| (0, number)));
        let id = (NO_SITE, revision);
        assert_eq!(revision.0, Position::new(1, self.model.order.len() as u64 + 1).0);
        let mut past = self.model.ids(0);
        past.insert(id);
        let number = self.model.own[BY_ROOT].len();
        let assigns = vec![Assign::Clear];
        self.model.own[BY_ROOT].push(Written { id, keyspace, assigns, past });
        self.model.order.push((BY_ROOT, number));
    }

    /// The root orders that what is due by its clock goes, and that is right.
    fn expire(&mut self) {
        let before = self.model.order.len();
        self.sites[0].tick();
        let after = match before {
            0 => Position(0),
            before => Position::new(1, before as u64),
        };
        for (position, site, write) in self.sites[0].machine.ordered(after, usize::MAX).unwrap() {
            assert_eq!((site, write.revision.0), (NO_SITE, position.0));
            let [Effect::Expire { key, site, revision }] = &write.effects[..] else {
                panic!("{write:?}")
            };
            let key = KEYS.into_iter().find(|name| name.as_bytes() == key).unwrap();
            let number = self.model.own[BY_ROOT].len();
            let upto = self.model.order.len();
            let (ms, of) = self.model.ordered(upto, write.keyspace, key).expiry;
            assert_eq!(of, Some((*site, *revision)), "{key} has another expiry by then");
            assert!(ms.is_some_and(|ms| ms <= self.sites[0].now_ms), "{key} is not due");
            let id = (NO_SITE, write.revision);
            // A clock decided it: what the root's own site has written since is no cause of it.
            let of_order = |(of, number): &(usize, usize)| self.model.own[*of][*number].id;
            let mut past: BTreeSet<Id> = self.model.order.iter().map(of_order).collect();
            past.insert(id);
            let assigns = vec![Assign::Delete(key)];
            self.model.own[BY_ROOT].push(Written { id, keyspace: write.keyspace, assigns, past });
            self.model.order.push((BY_ROOT, number));
        }
        let upto = self.model.order.len();
        if self.model.applied[0] == before && self.all_unordered(0).is_empty() {
            for keyspace in [CARTS, MORE].into_iter().filter(|id| self.has(0, *id)) {
                for key in KEYS {
                    let (ms, _) = self.model.ordered(upto, keyspace, key).expiry;
                    assert!(ms.is_none_or(|ms| ms > self.sites[0].now_ms), "{key} is still there");
                }
            }
        }
    }

    fn check(&mut self) {
        for (at, site) in self.sites.iter().enumerate() {
            for keyspace in [CARTS, MORE].into_iter().filter(|id| self.has(at, *id)) {
                let mut count = 0;
                for key in KEYS {
                    let registers = self.model.registers(at, keyspace, key);
                    count += i64::from(registers.kind().is_some());
                    check_key(site, keyspace, key, &registers, &self.model);
                }
                assert_eq!(site.ask_in(keyspace, Query::Count), Ok(Answer::Integer(count)));
            }
            let causal = site.machine.causal();
            assert_eq!(*causal, Causal::load(site.machine.state()).unwrap(), "as after a restart");
            let pending = self.model.own[at].len()
                - self.model.order[..self.model.applied[at]]
                    .iter()
                    .filter(|(of, _)| *of == at)
                    .count();
            assert_eq!(self.all_unordered(at).len(), pending);
        }
        let last = self.model.order.len() as u64;
        let order_last = self.sites[0].machine.causal().order_last();
        assert_eq!(order_last.count(), last);
    }
}

fn name(field: usize) -> Bytes {
    ["f", "g", "h"][field].into()
}

/// A key shows what the model shows, and a token of a session that reads it names all that was
/// seen.
fn check_key(
    site: &Site,
    keyspace: KeyspaceId,
    key: &'static str,
    registers: &Registers,
    model: &Model,
) {
    let kind = registers.kind();
    let ask = |query: Query| site.ask_in(keyspace, query).unwrap();
    assert_eq!(ask(Query::Kind { key: key.into() }), Answer::Kind(kind), "{keyspace} {key}");
    match kind {
        Some(Kind::String) => {
            let Answer::Value(Some(found)) = ask(Query::Get { key: key.into() }) else {
                panic!("no value")
            };
            assert_eq!(Some(&found.value), registers.string.0.as_ref());
        }
        Some(Kind::Hash) => {
            let fields = ask(Query::HashGetAll { key: key.into() });
            assert_eq!(fields, Answer::Fields(registers.hash()));
        }
        None => {}
    }
    let expiring = match (kind, registers.expiry.0) {
        (None, _) => Expiring::Absent,
        (_, None) => Expiring::Never,
        (_, Some(ms)) => Expiring::AtMs(ms),
    };
    assert_eq!(ask(Query::Expiry { key: key.into() }), Answer::Expiry(expiring), "{key}");
    let query = Query::Kind { key: key.into() };
    let read = site.read_in_session(keyspace, &query, CausalToken::default());
    let SessionRead::Answered(Ok(_), token) = read else { panic!("{read:?}") };
    // The position of a string under an expiry that was set since is not kept: what set that has a
    // higher one.
    let is_plain = kind != Some(Kind::String) || registers.expiry.1 == registers.string.1;
    let covers = |(of, revision): Id| {
        let here = token.written.is_some_and(|(site, upto)| site == of && revision <= upto);
        here || model.position((of, revision)).is_some_and(|position| position <= token.seen)
    };
    for id in registers.read() {
        assert!(!is_plain || covers(id), "{token:?} does not name {id:?}");
    }
    assert!(token.seen <= site.machine.causal().applied());
    if let (Some(Kind::String), Some(id)) = (kind, registers.string.1)
        && id.0 != site.own()
        && is_plain
    {
        assert_eq!((Some(token.seen), token.written), (model.position(id), None), "no more");
    }
}

// ---- what happens ------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Part {
    Put(usize),
    PutMany(Vec<usize>),
    Delete(Vec<usize>),
    Set(usize, Vec<usize>),
    Unset(usize, Vec<usize>),
    Expire(usize, Option<u64>),
    PutExpiring(usize, u64),
}

#[derive(Clone, Debug)]
enum Act {
    Wait(u64),
    Clear(KeyspaceId),
    Write { site: usize, keyspace: KeyspaceId, parts: Vec<Part>, session: usize },
    Read { site: usize, keyspace: KeyspaceId, key: usize, session: usize },
    Begin(usize),
    Order { site: usize, from: usize, len: usize, epoch: u16 },
    Import { site: usize, back: usize, len: usize },
    Trim,
    Reopen(usize),
    Learn(usize),
    Create,
    Drop,
}

fn part() -> impl Strategy<Value = Part> {
    let keys = || vec(0usize..3, 1..3);
    prop_oneof![
        3 => (0usize..3).prop_map(Part::Put),
        1 => keys().prop_map(Part::PutMany),
        2 => keys().prop_map(Part::Delete),
        4 => (0usize..3, vec(0usize..3, 1..3)).prop_map(|(key, fields)| Part::Set(key, fields)),
        3 => (0usize..3, vec(0usize..3, 1..3)).prop_map(|(key, fields)| Part::Unset(key, fields)),
        2 => (0usize..3, prop_oneof![1 => Just(None), 3 => (1u64..60).prop_map(Some)])
            .prop_map(|(key, after_ms)| Part::Expire(key, after_ms)),
        1 => (0usize..3, 1u64..60).prop_map(|(key, after_ms)| Part::PutExpiring(key, after_ms)),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let keyspace = || prop_oneof![4 => Just(CARTS), 1 => Just(MORE)];
    let parts = || prop_oneof![3 => vec(part(), 1..2), 1 => vec(part(), 2..4)];
    let (site, session) = (|| 0usize..3, || 0usize..3);
    prop_oneof![
        8 => (site(), keyspace(), parts(), session()).prop_map(|(site, keyspace, parts, session)| {
            Act::Write { site, keyspace, parts, session }
        }),
        4 => (site(), keyspace(), 0usize..3, session()).prop_map(|(site, keyspace, key, session)| {
            Act::Read { site, keyspace, key, session }
        }),
        1 => session().prop_map(Act::Begin),
        5 => (site(), prop_oneof![4 => Just(0usize), 1 => 1usize..3], 0usize..4)
            .prop_map(|(site, from, len)| Act::Order { site, from, len, epoch: 1 }),
        1 => site().prop_map(|site| Act::Order { site, from: 0, len: 1, epoch: 2 }),
        7 => (site(), prop_oneof![5 => Just(0usize), 1 => 1usize..3], 1usize..5)
            .prop_map(|(site, back, len)| Act::Import { site, back, len }),
        1 => Just(Act::Trim),
        2 => (1u64..40).prop_map(Act::Wait),
        1 => keyspace().prop_map(Act::Clear),
        1 => site().prop_map(Act::Reopen),
        1 => site().prop_map(Act::Learn),
        1 => Just(Act::Create),
        1 => prop_oneof![5 => Just(Act::Trim), 1 => Just(Act::Drop)],
    ]
}

fn perform(world: &mut World, act: &Act) {
    // Any entry of the root brings it.
    world.expire();
    match act {
        Act::Clear(keyspace) => world.clear(*keyspace),
        Act::Wait(ms) => {
            world.sites[0].now_ms += ms;
            world.expire();
        }
        Act::Write { site, keyspace, parts, session } => {
            world.write(*site, *keyspace, parts, *session);
        }
        Act::Read { site, keyspace, key, session } => world.read(*site, *keyspace, *key, *session),
        Act::Begin(session) => world.sessions[*session] = Session::default(),
        Act::Order { site, from, len, epoch } => world.order(*site, *from, *len, *epoch),
        Act::Import { site, back, len } => {
            // What was trimmed cannot be sent again; nothing that a site still needs is.
            world.import(*site, if world.has_all() { *back } else { 0 }, *len);
        }
        Act::Trim => world.trim(),
        Act::Reopen(site) => world.sites[*site].reopen(),
        Act::Learn(site) => world.learn(*site),
        Act::Create => {
            let spec = KeyspaceSpec::causal_region("more", "more:");
            if world.sites[0].copy_of_registry().keyspace_next == MORE.0 {
                world.sites[0].run(change(RegistryChange::CreateKeyspace(spec))).unwrap();
            }
        }
        Act::Drop => {
            let drop = RegistryChange::DropKeyspace("carts".into());
            let answer = world.sites[0].run(change(drop));
            assert!(matches!(answer, Ok(_) | Err(Refusal::NoKeyspace(_))), "{answer:?}");
        }
    }
}

impl World {
    /// Whether the root keeps the whole order.
    fn has_all(&self) -> bool {
        self.sites[0].machine.causal().trimmed_upto() == Position(0)
    }

    /// Everything arrives.
    fn settle(&mut self) {
        for _ in 0..2 {
            // What is due has its place before what the next entry of the root orders.
            self.expire();
            for site in 0..3 {
                self.learn(site);
                self.order(site, 0, usize::MAX, 1);
            }
            for site in 0..3 {
                self.import(site, 0, usize::MAX - 1_000);
            }
            self.expire();
        }
        self.check();
        assert!(self.model.own.iter().map(Vec::len).sum::<usize>() == self.model.order.len());
        let shown = |site: &Site, keyspace: KeyspaceId, key: &'static str| {
            let kind = site.ask_in(keyspace, Query::Kind { key: key.into() });
            let string = site.ask_in(keyspace, Query::GetMany { keys: vec![key.into()] });
            (kind, string, site.ask_in(keyspace, Query::HashGetAll { key: key.into() }))
        };
        for keyspace in [CARTS, MORE] {
            for key in KEYS {
                let [a, b, c] = [0, 1, 2].map(|site| shown(&self.sites[site], keyspace, key));
                assert!(a == b && b == c, "{keyspace} {key}: {a:?}, {b:?}, {c:?}");
            }
        }
        for session in 0..3 {
            for site in 0..3 {
                assert!(self.attach(site, session), "all have all");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn sites_show_a_prefix_under_what_is_pending_and_agree_in_the_end(acts in vec(act(), 1..60)) {
        let mut world = World::new();
        for act in &acts {
            perform(&mut world, act);
            world.check();
        }
        world.settle();
    }
}
