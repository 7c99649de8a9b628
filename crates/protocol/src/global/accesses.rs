//! Accesses of global keys, noted at the site that owns them.
//!
//! A read is answered on a front's thread, on the links' thread for another site, or by the core; a
//! write enters by the core of any node. All of them pass [`Accesses::note`], once each, at the
//! node of the owner that takes them in: threads that read by [`crate::replica::ReadGate::answer`],
//! the core by `Site::carry_out`. It notes the group of the first key (all keys of a request are of
//! one slot), the site that the request came from, and the client, if that has a name
//! ([`model::ClientName`]): a group follows its client at the first access from elsewhere.
//!
//! Only keyspaces with a [`model::Placement`] other than `off` count. While there is none, an
//! access costs one relaxed load. Else one of N is noted, in proportion to the load of the node
//! ([`crate::placement::Sampler`]). What is noted waits in memory of a fixed limit for the core,
//! which takes it each second and counts it at the site's leader (`site::counting`): threads of
//! fronts share no counter. Where the core is late, or the load has just begun, the limit is met:
//! what finds no room is not looked at any more, and the more of it there is the fewer are noted.
//!
//! A client that goes where its keys are by itself ([`model::Request::direct`]) counts nowhere: it
//! reaches the owner from wherever it is. Nor does one that asks for that, as its requests may wait
//! ([`ClientName::UNCOUNTED`]).
//!
//! Left out: such a request that this site has to forward, as it does not know the owner for the
//! moment or has just handed its slot over, counts by this site. So does a write that a lost leader
//! may have done, whatever its client. A connection without a name has none: it is no longer than
//! the connection, so many short ones of one user (behind a proxy, say) would take the places of a
//! profile from each other.

pub use crate::origin::{Caller, Entry};
use crate::placement::{Client, GroupKey};
use model::{
    Body, Bytes, Catalog, ClientName, Command, KeyspaceId, KeyspaceSpec, SiteId, Slot, limits, tag,
};
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Accesses of one group by one client from one site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Access {
    pub(crate) group: GroupKey,
    pub(crate) client: ClientName,
    /// `None`: this one.
    pub(crate) site: Option<SiteId>,
    pub(crate) count: f32,
    /// The size of what was written; 0: nothing was.
    pub(crate) bytes: u32,
}

/// What the threads of a node have noted since the core took it last.
#[derive(Debug, Default)]
pub struct Accesses {
    is_on: AtomicBool,
    /// So that clients cannot choose groups that displace each other.
    secret: AtomicU64,
    per_s: AtomicU64,
    noted: Mutex<Noted>,
}

/// What was noted in some time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Noted {
    /// Taken: [put together](merged).
    pub(crate) accesses: Vec<Access>,
    /// Accesses that found no room, those of keyspaces that do not count with them.
    pub(crate) dropped: u64,
    /// All, with these.
    seen: f64,
    /// Of those that were kept: the sum of what each stands for, and of the squares of that.
    kept: (f32, f32),
}

impl Noted {
    /// Of how many accesses one was kept, on average over these accesses.
    pub(crate) fn one_of(&self) -> f32 {
        let (sum, squares) = self.kept;
        if sum > 0.0 { squares / sum } else { 1.0 }
    }
}

impl Accesses {
    /// The keyspaces are these now. `secret`: the same at all nodes of the site.
    pub(crate) fn follow(&self, catalog: &Catalog, secret: u64) {
        let is_on = catalog.all().iter().any(|keyspace| keyspace.spec.counts_accesses());
        self.secret.store(secret, Relaxed);
        if !is_on && self.is_on.load(Relaxed) {
            *self.lock() = Noted::default();
        }
        self.is_on.store(is_on, Relaxed);
    }

    /// Whether any keyspace counts.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// An access. `what`: what it is of, if it counts; looked at only if it is among the sampled
    /// ones.
    #[inline]
    pub(crate) fn note(&self, caller: Caller<'_>, what: impl FnOnce() -> Option<Accessed>) {
        let site = match caller.entry {
            Entry::Here => None,
            Entry::Site(site) => Some(site),
            Entry::Unknown => return,
        };
        if !self.is_on() || caller.client == ClientName::UNCOUNTED {
            return;
        }
        if let Some(weight) = caller.sampler.take() {
            self.keep(caller, site, weight, what);
        }
    }

    fn keep(
        &self,
        caller: Caller<'_>,
        site: Option<SiteId>,
        weight: f32,
        what: impl FnOnce() -> Option<Accessed>,
    ) {
        caller.sampler.set_load(self.per_s.load(Relaxed));
        let mut noted = self.lock();
        noted.seen += f64::from(weight);
        if noted.accesses.len() >= limits::ACCESSES_NOTED_MAX {
            noted.dropped += weight as u64;
            // Of a second, or of more where the core is late: then fewer are counted until it is
            // back.
            self.per_s.fetch_max(noted.seen as u64, Relaxed);
            return;
        }
        let access = what().map(|Accessed { keyspace, may_be_lent, key, bytes }| {
            let group = self.group_of(keyspace, may_be_lent, &key);
            Access { group, client: caller.client, site, count: weight, bytes }
        });
        if let Some(access) = access {
            noted.kept = (noted.kept.0 + weight, noted.kept.1 + weight * weight);
            noted.accesses.push(access);
        }
    }

    /// The group of a key, or of a tag.
    pub(crate) fn group_of(&self, keyspace: KeyspaceId, may_be_lent: bool, key: &[u8]) -> GroupKey {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.secret.load(Relaxed));
        hasher.write_u32(keyspace.0);
        hasher.write(tag(key));
        let (slot, hash) = (Slot::of_key(key).number(), hasher.finish());
        match may_be_lent {
            true => GroupKey::lendable(slot, keyspace.0, hash),
            false => GroupKey::new(slot, hash),
        }
    }

    /// A client as the profiles of this site have it: with the secret, so that no name can be
    /// chosen to be taken for another.
    pub(crate) fn client_of(&self, name: ClientName) -> Client {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.secret.load(Relaxed));
        hasher.write_u64(name.number());
        Client::of_hash(hasher.finish())
    }

    /// What was noted in the time since the last call.
    pub(crate) fn take(&self, elapsed: Duration) -> Noted {
        let mut noted = std::mem::take(&mut *self.lock());
        let per_s = noted.seen / elapsed.as_secs_f64().max(0.001);
        self.per_s.store(per_s as u64, Relaxed);
        noted.accesses = merged(noted.accesses);
        noted
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each group, client and site once. A name that was at several sites in this time counts by site:
/// it is no client with a place.
pub(crate) fn merged(mut accesses: Vec<Access>) -> Vec<Access> {
    let place = |one: &Access| (one.group, one.client, one.site);
    accesses.sort_unstable_by_key(place);
    accesses.dedup_by(|next, kept| {
        let is_same = place(next) == place(kept);
        if is_same {
            kept.count += next.count;
            kept.bytes = kept.bytes.max(next.bytes);
        }
        is_same
    });
    for of_client in accesses.chunk_by_mut(|a, b| (a.group, a.client) == (b.group, b.client)) {
        if of_client.len() > 1 {
            of_client.iter_mut().for_each(|one| one.client.name = 0);
            // Where clients count alike its user has one vote, where most of its accesses come
            // from.
            of_client.sort_by(|a, b| a.count.total_cmp(&b.count));
        }
    }
    accesses
}

/// What an access is of.
#[derive(Debug)]
pub(crate) struct Accessed {
    pub(crate) keyspace: KeyspaceId,
    /// Whether groups of the keyspace may be lent.
    pub(crate) may_be_lent: bool,
    /// Its first key.
    pub(crate) key: Bytes,
    /// How much it writes.
    pub(crate) bytes: u32,
}

impl Accessed {
    /// `None`: accesses of that keyspace do not count.
    pub(crate) fn of(
        keyspace: KeyspaceId,
        spec: Option<&KeyspaceSpec>,
        (key, bytes): (&Bytes, u32),
    ) -> Option<Accessed> {
        let spec = spec.filter(|spec| spec.counts_accesses())?;
        Some(Accessed { keyspace, may_be_lent: spec.is_adaptive(), key: key.clone(), bytes })
    }
}

/// What a request accesses, if that counts.
pub(crate) fn accessed<'a>(
    body: &Body,
    spec: impl Fn(KeyspaceId) -> Option<&'a KeyspaceSpec>,
) -> Option<Accessed> {
    let written = |command: &Command| command.properties().size_bytes as u32;
    let (keyspace, key, bytes) = match body {
        Body::Read { keyspace, query, .. } => (*keyspace, query.first_key()?, 0),
        Body::Write(command) => match command {
            Command::Write { keyspace, write, .. } => {
                (*keyspace, write.keys().next()?, written(command))
            }
            Command::Transaction { keyspace, guards, steps, .. } => {
                let of_steps = steps.iter().find_map(|step| match step {
                    model::Step::Read(query) => query.first_key(),
                    model::Step::Write(write) => write.keys().next(),
                    model::Step::ReadIn { .. } => None,
                });
                let of_guards = || guards.first().map(|guard| &guard.key);
                (*keyspace, of_steps.or_else(of_guards)?, written(command))
            }
            _ => return None,
        },
        _ => return None,
    };
    Accessed::of(keyspace, spec(keyspace), (key, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Sampler;
    use model::{Keyspace, Placement, Query, ReadConsistency};

    const SECOND: Duration = Duration::from_secs(1);

    fn catalog(placement: Placement) -> Catalog {
        let spec = KeyspaceSpec { placement, ..KeyspaceSpec::linearizable_global("cars", "car:") };
        Catalog::new(vec![Keyspace { id: KeyspaceId(1), spec }])
    }

    fn note(accesses: &Accesses, sampler: &Sampler, site: Option<SiteId>, key: &'static str) {
        note_of(accesses, sampler, (ClientName::NONE, site), key);
    }

    fn note_of(
        accesses: &Accesses,
        sampler: &Sampler,
        (client, site): (ClientName, Option<SiteId>),
        key: &'static str,
    ) {
        let (keyspace, key) = (KeyspaceId(1), key.into());
        let what = Accessed { keyspace, may_be_lent: false, key, bytes: 7 };
        let entry = site.map_or(Entry::Here, Entry::Site);
        accesses.note(Caller { entry, client, sampler }, || Some(what));
    }

    #[test]
    fn nothing_is_noted_unless_a_keyspace_asks_for_it() {
        let (accesses, sampler) = (Accesses::default(), Sampler::new(1));
        let must_not = || -> Option<Accessed> { panic!("the key is not looked at") };
        let caller = |entry| Caller { entry, client: ClientName::NONE, sampler: &sampler };
        accesses.note(caller(Entry::Here), must_not);
        accesses.follow(&catalog(Placement::Off), 5);
        accesses.note(caller(Entry::Here), must_not);
        accesses.follow(&catalog(Placement::Advise), 5);
        accesses.note(caller(Entry::Unknown), must_not);
        note(&accesses, &sampler, None, "car:7");
        accesses.follow(&catalog(Placement::Off), 5);
        assert_eq!(accesses.take(SECOND), Noted::default());
    }

    #[test]
    fn accesses_of_a_group_from_a_site_are_added() {
        let (accesses, sampler) = (Accesses::default(), Sampler::new(1));
        accesses.follow(&catalog(Placement::Advise), 5);
        let east = Some(SiteId(2));
        for (site, key) in [(None, "x{a}"), (east, "{a}y"), (east, "{a}"), (None, "b")] {
            note(&accesses, &sampler, site, key);
        }
        let Noted { accesses: taken, dropped, .. } = accesses.take(SECOND);
        let a = accesses.group_of(KeyspaceId(1), false, b"{a}");
        assert_eq!(a.slot(), Slot::of_key(b"a").number());
        let found =
            |site| taken.iter().find(|one| (one.group, one.site) == (a, site)).unwrap().count;
        assert_eq!((found(None), found(east), taken.len(), dropped), (1.0, 2.0, 3, 0));
        assert_eq!(accesses.take(SECOND).accesses.len(), 0);
        accesses.follow(&catalog(Placement::Advise), 6);
        assert_ne!(accesses.group_of(KeyspaceId(1), false, b"{a}"), a, "another secret");
        let group = |keyspace, lent| accesses.group_of(KeyspaceId(keyspace), lent, b"{a}");
        assert_ne!(group(1, false), group(2, false), "another keyspace");
        assert!(group(1, true).is_lendable() && !group(1, false).is_lendable());
        assert_eq!([1, 2].map(|keyspace| group(keyspace, true).class()), [1, 2]);
        let alike = (1_024..).find(|keyspace| GroupKey::class_of(*keyspace) == 1).unwrap();
        assert_ne!(group(1, true), group(alike, true), "of one class, and others");
        let as_it_travels = GroupKey::of_number(group(1, true).number());
        assert_eq!(as_it_travels, group(1, true));
    }

    #[test]
    fn a_name_at_several_sites_within_a_second_counts_by_site() {
        let (accesses, sampler) = (Accesses::default(), Sampler::new(1));
        accesses.follow(&catalog(Placement::Advise), 5);
        let [car, service] =
            ["car-7", "shop"].map(|name| ClientName::of(Some("ann"), name.as_bytes()));
        let east = Some(SiteId(2));
        for (client, site) in [(service, None), (car, east), (service, east), (service, None)] {
            note_of(&accesses, &sampler, (client, site), "x{a}");
            note_of(&accesses, &sampler, (car, east), "b");
        }
        let a = accesses.group_of(KeyspaceId(1), false, b"{a}");
        let taken = accesses.take(SECOND).accesses;
        let of_a = taken.iter().filter(|one| one.group == a);
        let mut found: Vec<_> = of_a.map(|one| (one.client, one.site, one.count)).collect();
        found.sort_by_key(|one| (one.0, one.1));
        let unnamed = ClientName { name: 0, ..service };
        assert_eq!(found, [(unnamed, None, 2.0), (unnamed, east, 1.0), (car, east, 1.0)]);
        let of_b = taken.iter().find(|one| one.group != a).unwrap();
        assert_eq!((of_b.client, of_b.count), (car, 4.0));
        // A secret keeps names apart.
        let before = accesses.client_of(car);
        assert_ne!(before, accesses.client_of(service));
        accesses.follow(&catalog(Placement::Advise), 6);
        assert_ne!(before, accesses.client_of(car));
    }

    #[test]
    fn under_load_few_are_noted_and_weigh_more() {
        let (accesses, sampler) = (Accesses::default(), Sampler::new(1));
        accesses.follow(&catalog(Placement::Advise), 5);
        let mut totals = Vec::new();
        for _ in 0..3 {
            (0..1_000_000).for_each(|_| note(&accesses, &sampler, None, "car:7"));
            let noted = accesses.lock().accesses.len();
            let taken = accesses.take(SECOND);
            totals.push((noted, taken.accesses[0].count, taken.dropped, taken.one_of()));
        }
        let (noted, _, dropped, one_of) = totals[0];
        assert_eq!((noted, one_of), (limits::ACCESSES_NOTED_MAX, 1.0), "no load was known");
        let all = noted as u64 + dropped;
        assert!((990_000..1_010_000).contains(&all), "{all}");
        let (noted, count, dropped, one_of) = totals[2];
        assert!((40_000..60_000).contains(&noted), "{noted}");
        assert!((950_000.0..1_050_000.0).contains(&count), "{count}");
        assert!(dropped == 0 && (18.0..22.0).contains(&one_of), "{one_of}");
    }

    #[test]
    fn requests_about_keys_that_count_have_a_first_key() {
        let of = |body: &Body, placement| {
            let catalog = catalog(placement);
            let spec = |id| catalog.by_id(id).map(|one| &one.spec);
            accessed(body, spec).map(|found| found.key)
        };
        let (keyspace, consistency) = (KeyspaceId(1), ReadConsistency::Linearizable);
        let keys = ["{a}1", "{a}2"].map(Bytes::from).to_vec();
        let query = Query::GetMany { keys: keys.clone() };
        let read = Body::Read { keyspace, query, consistency };
        assert_eq!(of(&read, Placement::Advise), Some(keys[0].clone()));
        assert_eq!(of(&read, Placement::Off), None);
        let write = model::Write::Delete { keys: keys.clone() };
        let steps = vec![model::Step::Write(write.clone())];
        let transaction = Command::Transaction { keyspace, guards: vec![], steps, request: None };
        let write = Command::Write { keyspace, write, request: None };
        for command in [write, transaction, Command::Tick] {
            let is_tick = command == Command::Tick;
            let found = of(&Body::Write(command), Placement::Advise);
            assert_eq!(found, Some(keys[0].clone()).filter(|_| !is_tick));
        }
    }
}
