//! What the machine publishes to its readers with every commit, so that most of them need not look
//! it up.

use super::causal::NOT_HELD;
use super::causal::recency::Recency;
use super::causal::session::Seen;
use super::global::stores::EMPTY;
use super::lineage::Whose;
use super::{Modes, Stopped};
use crate::bugs::Bug;
use crate::global::accesses::Accesses;
use crate::global::ownership::lending::Part;
use crate::machine::{Index, Publish};
use crate::origin::ServedUnder;
use crate::replica::Pace;
use model::{
    Ballot, BySlot, Bytes, Catalog, DeploymentId, KeySlots, KeyspaceId, KeyspaceSpec, Query,
    Refusal, SiteId, Slot, SlotRun,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, RwLock};

/// What readers know of a machine.
#[derive(Debug, Default)]
pub struct Published {
    /// Odd while a commit is under way.
    pub(super) commits: AtomicU64,
    pub(super) revision: AtomicU64,
    pub(super) log_time_ms: AtomicU64,
    pub(super) pace: RwLock<Pace>,
    pub(super) accesses: Accesses,
    pub(super) causal: Seen,
    /// When keys were read last that are held on demand.
    pub(super) recency: Recency,
    /// Zero: none.
    deployment: AtomicU64,
    directory: RwLock<Directory>,
}

#[derive(Debug, Default)]
struct Directory {
    /// This site, which decides what it holds.
    own: Option<SiteId>,
    catalog: Arc<Catalog>,
    generations: BTreeMap<KeyspaceId, Where>,
    /// By slot: whether it is served here. Empty in a site without a deployment.
    served: Vec<AtomicBool>,
    /// Of served slots that a failover has taken: which one.
    failovers: BySlot<Ballot>,
    /// Groups that are not where their slot is, by keyspace and tag.
    groups: BTreeMap<KeyspaceId, BTreeMap<Bytes, Whereabouts>>,
    /// Whether a failover takes this site for lost: then it serves no group either.
    is_fenced: bool,
    /// The registry that this site has.
    version: Ballot,
}

/// Where a group is that is not where its slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// At its borrower.
    Away,
    /// Here, of another site's slot: where its records lie.
    Here(u64),
}

/// Where the records of a keyspace lie.
#[derive(Debug)]
enum Where {
    Whole(u64),
    /// Of a causal one: at other sites.
    Elsewhere,
    /// The same, but for the keys that are held on demand.
    OnDemand(u64),
    /// Of a global one, by slot; [`EMPTY`]: nowhere.
    BySlot {
        places: Arc<Vec<AtomicU64>>,
        /// Whether its groups may be lent.
        lends: bool,
    },
}

fn by_slot<T>(value: impl Fn(Slot) -> T) -> Vec<T> {
    Slot::all().map(value).collect()
}

fn place(slot: Slot) -> usize {
    usize::from(slot.number())
}

impl Publish<Modes> for Published {
    fn begin_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    fn publish(&self, known: &mut Index, modes: &mut Modes) {
        // Before the keyspaces: their answers carry tokens that the deployment's key seals.
        self.deployment.store(modes.deployment.secret(), Ordering::Release);
        let dirty = std::mem::take(&mut modes.slots.dirty);
        let store = |keyspace, slot| modes.slots.store(keyspace, slot);
        let generation = |keyspace, slot| store(keyspace, slot).map_or(EMPTY, |s| s.generation);
        let own = modes.deployment.member.as_ref().map(|member| member.own);
        // Which keyspaces are held here depends on which site this is.
        let is_other = own != self.directory.read().expect("no reader panics with the lock").own;
        if std::mem::take(&mut known.keyspaces.changed) || dirty.everything || is_other {
            let mut directory = self.directory.write().expect("no reader panics with the lock");
            directory.own = own;
            let mut old = std::mem::take(&mut directory.generations);
            directory.catalog = Arc::new(known.keyspaces.catalog());
            self.accesses.follow(&directory.catalog, modes.deployment.secret());
            for (id, whole) in known.keyspaces.generations() {
                let spec = known.keyspaces.spec(id);
                let is_held = |own| spec.is_none_or(|spec| spec.is_held_by(own));
                let on_demand = own.zip(spec).and_then(|(own, spec)| spec.on_demand_at(own));
                if on_demand.is_some() {
                    let at = match modes.planted.is(Bug::AnswersUnfetched) {
                        true => Where::Whole(whole),
                        false => Where::OnDemand(whole),
                    };
                    directory.generations.insert(id, at);
                    continue;
                }
                if !own.is_none_or(is_held) && !modes.planted.is(Bug::AnswersUnheld) {
                    directory.generations.insert(id, Where::Elsewhere);
                    continue;
                }
                let lends = known.keyspaces.spec(id).is_some_and(KeyspaceSpec::lends);
                let at = match old.remove(&id) {
                    _ if !known.keyspaces.is_global(id) => Where::Whole(whole),
                    Some(Where::BySlot { places, .. }) if !dirty.everything => {
                        Where::BySlot { places, lends }
                    }
                    _ => {
                        let place = |slot| AtomicU64::new(generation(id, slot));
                        Where::BySlot { places: Arc::new(by_slot(place)), lends }
                    }
                };
                directory.generations.insert(id, at);
            }
        }
        if !dirty.tokens.is_empty() {
            let mut directory = self.directory.write().expect("no reader panics with the lock");
            if directory.served.is_empty() {
                directory.served = by_slot(|_| AtomicBool::new(false));
            }
            let alike = |run: SlotRun| run.cut(|slot| modes.slots.token_run(slot).0);
            for run in dirty.tokens.runs().flat_map(alike) {
                let serves = modes.slots.serves(run.first);
                for slot in run.slots() {
                    directory.served[place(slot)].store(serves, Ordering::Release);
                }
                let failover = modes.slots.token(run.first).epoch().failover;
                let failover = Some(failover).filter(|of| serves && *of != Ballot::FIRST);
                directory.failovers.set(run, failover);
            }
        }
        if !dirty.stores.is_empty() {
            let directory = self.directory.read().expect("no reader panics with the lock");
            for (keyspace, slot) in &dirty.stores {
                if let Some(Where::BySlot { places, .. }) = directory.generations.get(keyspace) {
                    let generation = generation(*keyspace, *slot);
                    places[place(*slot)].store(generation, Ordering::Release);
                }
            }
        }
        self.publish_groups(modes, dirty.everything);
        let member = modes.deployment.member.as_ref();
        let region = member.and_then(|member| member.registry.region_of(member.own));
        let is_planted = modes.planted.is(Bug::RebuiltUnchecked);
        let rebuilt = region.and_then(|region| region.rebuilt).filter(|_| !is_planted);
        self.causal.publish(member.map(|member| member.own), rebuilt, &modes.causal);
        self.revision.store(known.head.revision.0, Ordering::Release);
        self.log_time_ms.store(known.head.log_time_ms, Ordering::Release);
        dirty.tokens.runs().for_each(|run| modes.changed_tokens.insert_run(run));
    }

    fn end_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }
}

impl Published {
    fn publish_groups(&self, modes: &mut Modes, everything: bool) {
        let groups = std::mem::take(&mut modes.loans.dirty);
        let is_fenced = modes.is_fenced();
        let version = modes.place().map_or(Ballot::FIRST, |(_, registry)| registry.version);
        let is_same = |directory: &Directory| {
            (directory.is_fenced, directory.version) == (is_fenced, version)
        };
        let directory = self.directory.read().expect("no reader panics with the lock");
        if groups.is_empty() && !everything && is_same(&directory) {
            return;
        }
        drop(directory);
        let mut directory = self.directory.write().expect("no reader panics with the lock");
        (directory.is_fenced, directory.version) = (is_fenced, version);
        if everything {
            directory.groups.clear();
        }
        for group in groups {
            let part = modes.loans.part(&group).map(|part| (part.borrowed.part, part.generation));
            let row = modes.loans.row(Whose::Own, group.slot(), &group);
            let at = match (part, row) {
                (Some((Part::Held, generation)), _) => Some(Whereabouts::Here(generation)),
                (_, Some(_)) => Some(Whereabouts::Away),
                _ => None,
            };
            let of_keyspace = directory.groups.entry(group.keyspace).or_default();
            match at {
                Some(at) => drop(of_keyspace.insert(group.tag, at)),
                None => drop(of_keyspace.remove(&group.tag)),
            }
        }
        directory.groups.retain(|_, groups| !groups.is_empty());
    }

    /// Whether a causal keyspace is at other sites.
    pub(super) fn is_elsewhere(&self, keyspace: KeyspaceId) -> bool {
        let directory = self.directory.read().expect("the writer does not panic with the lock");
        let at = directory.generations.get(&keyspace);
        matches!(at, Some(Where::Elsewhere | Where::OnDemand(_)))
    }

    /// Whether some of the keys of a causal keyspace are here, which is at other sites.
    pub(super) fn is_on_demand(&self, keyspace: KeyspaceId) -> bool {
        let directory = self.directory.read().expect("the writer does not panic with the lock");
        matches!(directory.generations.get(&keyspace), Some(Where::OnDemand(_)))
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.directory.read().expect("the writer does not panic with the lock").catalog.clone()
    }

    /// The site's deployment, once it belongs to one.
    pub(super) fn deployment(&self) -> Option<DeploymentId> {
        let id = self.deployment.load(Ordering::Acquire);
        (id != 0).then_some(DeploymentId(id))
    }

    pub(super) fn serves(&self, slot: Slot) -> bool {
        let directory = self.directory.read().expect("the writer does not panic with the lock");
        directory.served.get(place(slot)).is_some_and(|served| served.load(Ordering::Acquire))
    }

    /// Whether a key of a global keyspace is served here, wherever its slot is.
    pub(super) fn serves_key(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        let group = model::Group::of_key(keyspace, key);
        let directory = self.directory.read().expect("the writer does not panic with the lock");
        let lent = directory.groups.get(&keyspace).and_then(|groups| groups.get(&group.tag));
        match lent {
            Some(Whereabouts::Here(_)) => !directory.is_fenced,
            Some(Whereabouts::Away) => false,
            None => {
                let served = directory.served.get(place(group.slot()));
                served.is_some_and(|served| served.load(Ordering::Acquire))
            }
        }
    }

    /// Under which failover a query finds its records served.
    pub(super) fn served_under(&self, keyspace: KeyspaceId, query: &Query) -> ServedUnder {
        let KeySlots::One(slot) = query.key_slots() else { return ServedUnder::default() };
        let directory = self.directory.read().expect("the writer does not panic with the lock");
        match directory.group(keyspace, query) {
            Some(Whereabouts::Here(_)) => {
                ServedUnder { failover: directory.version, borrowed: true }
            }
            _ => {
                let failover = directory.failovers.get(slot).copied().unwrap_or(Ballot::FIRST);
                ServedUnder { failover, borrowed: false }
            }
        }
    }

    /// Where a query about one key finds its record, and whether only if the key is held on demand.
    pub(super) fn generation(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Result<(u64, bool), Stopped> {
        let directory = self.directory.read().expect("the writer does not panic with the lock");
        match directory.generations.get(&keyspace) {
            None => Err(Refusal::NoKeyspace(keyspace.to_string()).into()),
            Some(Where::Whole(generation)) => Ok((*generation, false)),
            Some(Where::OnDemand(generation)) => Ok((*generation, true)),
            Some(Where::Elsewhere) => Err(NOT_HELD.into()),
            Some(Where::BySlot { places, lends }) => match query.key_slots() {
                KeySlots::Several => Err(Refusal::CrossSlot.into()),
                // A query that names no key at all, though it could name some.
                KeySlots::Nowhere => Ok((EMPTY, false)),
                KeySlots::One(slot) => {
                    if *lends && query.one_tag().is_none() {
                        return Err(Refusal::CrossSlot.into());
                    }
                    match directory.group(keyspace, query) {
                        Some(Whereabouts::Away) => return Err(Refusal::NotHeld(slot).into()),
                        Some(Whereabouts::Here(generation)) if !directory.is_fenced => {
                            return Ok((generation, false));
                        }
                        _ => {}
                    }
                    let served = directory.served.get(place(slot));
                    match served.is_some_and(|served| served.load(Ordering::Acquire)) {
                        true => Ok((places[place(slot)].load(Ordering::Acquire), false)),
                        false => Err(Refusal::NotHeld(slot).into()),
                    }
                }
            },
        }
    }
}

impl Directory {
    /// Where the group of a query is, if it is not where its slot is.
    fn group(&self, keyspace: KeyspaceId, query: &Query) -> Option<Whereabouts> {
        let groups = self.groups.get(&keyspace)?;
        groups.get(&query.one_tag()?).copied()
    }
}
