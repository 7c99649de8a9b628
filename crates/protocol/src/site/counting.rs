//! Accesses of the keys that this site owns, counted at its leader.
//!
//! Each second every node takes what its threads have noted ([`crate::global::accesses`]). The
//! leader counts it in profiles, together with what the other nodes have sent it since: at which
//! sites a name was in a second is known of all of them together only. A new leader begins with
//! nothing counted: profiles are volatile, and wrong without harm.
//!
//! By the number of accesses, a client weighs what it asks, whatever names it has: its names decide
//! only what moves when it does. Where clients weigh alike ([`crate::Options::equal_clients`]), a
//! client is a user, as names can be made up: all of one user's are one vote.
//!
//! A group that leaves the site for the third time within 80 s counts by site there until that time
//! is over: it follows a name that is at several sites in turn, and each time its profile began
//! anew.

use super::Site;
use crate::global::accesses::{Access, Accesses, Caller, Entry, accessed, merged};
use crate::origin::Origin;
use crate::placement::{Client, Counter, GroupKey, Profile, Sampler, Site as Place, Tick};
use model::{Body, ClientName, SiteId, Slot, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer::{Content, CountedAccesses};

/// How often what was noted is counted.
const INTERVAL: Duration = Duration::from_secs(1);
/// In which time a count fades to a third: the span that rates are of.
pub(crate) const MEMORY_S: f32 = 10.0;
/// A group that has left so often within this time counts by site.
const LEFT_MAX: u32 = 3;
const LEFT_WITHIN: Duration = Duration::from_secs(80);
/// Groups of which that is known.
const GROUPS_LEFT_MAX: usize = 1 << 15;

/// The profiles of this site's groups, and where they come from.
#[derive(Debug)]
pub(super) struct Counting {
    /// Of requests that the core takes in.
    sampler: Sampler,
    last_take: Duration,
    /// At the leader, while any keyspace counts.
    counter: Option<Counter>,
    groups: usize,
    sites: Sites,
    /// What other nodes have sent since the last count.
    sent: Vec<Access>,
    /// Groups that have left: since when, and how often.
    left: BTreeMap<GroupKey, (Duration, u32)>,
    /// Accesses that were noted and not counted.
    dropped: u64,
    /// Of what is counted: the sum of what each access stands for, and of the squares of that. Both
    /// fade as counts do.
    sampled: (f32, f32),
    /// Whether each client of a group counts as much as any other.
    has_votes: bool,
}

impl Counting {
    /// Nothing is counted. `groups`: the number of profiles to keep. `has_votes`: each client
    /// counts alike.
    pub(super) fn new(seed: u64, groups: usize, has_votes: bool) -> Counting {
        Counting {
            sampler: Sampler::new(seed),
            last_take: Duration::ZERO,
            counter: None,
            groups,
            sites: Sites::default(),
            sent: Vec::new(),
            left: BTreeMap::new(),
            dropped: 0,
            sampled: (0.0, 0.0),
            has_votes,
        }
    }

    /// Who an access is by; `None`: a client without a name.
    fn counted_as(&self, client: ClientName) -> Option<ClientName> {
        let ClientName { user, name } = client;
        match self.has_votes {
            true if user != 0 => Some(ClientName { user, name: 0 }),
            _ => (name != 0).then_some(client),
        }
    }

    /// Counts accesses of the groups of a site.
    fn count(
        &mut self,
        now: Duration,
        own: SiteId,
        accesses: &[Access],
        client_of: impl Fn(ClientName) -> Client,
    ) {
        let Some(own) = self.sites.number(own) else { return };
        self.left.retain(|_, (since, _)| now < *since + LEFT_WITHIN);
        let now = Tick::of(now);
        let (groups, has_votes) = (self.groups, self.has_votes);
        let mut counter = self.counter.take().unwrap_or_else(|| {
            let counter = Counter::new(groups, MEMORY_S);
            if has_votes { counter.with_votes() } else { counter }
        });
        for one in accesses {
            let Some(site) = one.site.map_or(Some(own), |site| self.sites.number(site)) else {
                self.dropped += 1;
                continue;
            };
            let is_restless =
                !has_votes && self.left.get(&one.group).is_some_and(|left| left.1 >= LEFT_MAX);
            let client = self.counted_as(one.client).filter(|_| !is_restless);
            let client = client.map_or(Client::of_site(site), &client_of);
            counter.count(now, one.group, client, site, one.count);
            if one.bytes > 0
                && let Some(profile) = counter.profile(now, one.group)
            {
                profile.bytes = profile.bytes.max(one.bytes);
            }
        }
        self.counter = Some(counter);
    }

    /// Of so many accesses together one in `one_of` was counted, here or at another node.
    fn sampled(&mut self, accesses: f32, one_of: f32) {
        let one_of = if one_of.is_finite() { one_of } else { 1.0 };
        let one_of = one_of.clamp(1.0, Sampler::ONE_OF_MAX as f32);
        if !accesses.is_finite() {
            return;
        }
        self.sampled = (self.sampled.0 + accesses, self.sampled.1 + accesses * one_of);
    }

    fn sampled_fades(&mut self, elapsed: Duration) {
        let fades = (-elapsed.as_secs_f32() / MEMORY_S).exp();
        self.sampled = (self.sampled.0 * fades, self.sampled.1 * fades);
    }

    /// Of how many accesses one was counted, on average over what is counted. A vote is a client,
    /// and is whole.
    pub(super) fn one_of(&self) -> f32 {
        let (sum, squares) = self.sampled;
        if self.has_votes || sum < 1.0 { 1.0 } else { (squares / sum).max(1.0) }
    }

    /// Nothing is counted any more.
    fn forget(&mut self) {
        self.counter = None;
        self.sampled = (0.0, 0.0);
        self.sent.clear();
        self.left.clear();
    }

    /// Groups that have a profile; and those of them that follow clients with a name.
    pub(super) fn groups(&self) -> (u64, u64) {
        let profiles = self.counter.iter().flat_map(Counter::groups);
        profiles.fold((0, 0), |(all, by_client), (_, profile)| {
            let is_by_client = profile.clients(MEMORY_S).next().is_some();
            (all + 1, by_client + u64::from(is_by_client))
        })
    }

    /// Accesses that were noted and not counted.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// From which sites a group is accessed, and how often in a second.
    pub(super) fn users(&mut self, now: Duration, group: GroupKey) -> BTreeMap<SiteId, f32> {
        let mut users = Users::default();
        let profile = self.counter.as_mut().and_then(|one| one.profile(Tick::of(now), group));
        profile.into_iter().for_each(|profile| users.add(&self.sites, profile));
        users.rates
    }

    /// The clients with a name that access a group, by their numbers here: where each was last, and
    /// how often it does in a second. Empty where they are too many to be counted one by one.
    pub(super) fn clients(&mut self, now: Duration, group: GroupKey) -> Vec<(u32, SiteId, f32)> {
        let profile = self.counter.as_mut().and_then(|one| one.profile(Tick::of(now), group));
        let clients = profile.into_iter().flat_map(|profile| {
            let clients = profile.clients(MEMORY_S);
            clients.map(|(of, site, rate)| (of.0, self.sites.site(site), rate))
        });
        let mut clients: Vec<_> = clients.collect();
        clients.sort_by(|a, b| b.2.total_cmp(&a.2));
        clients
    }

    /// From which sites groups are accessed that may be lent by themselves; without those that only
    /// `but` accesses.
    pub(super) fn lendable(
        &self,
        now: Duration,
        but: Option<SiteId>,
    ) -> impl Iterator<Item = (GroupKey, Users)> + '_ {
        self.lendable_if(now, but, |_, _| true)
    }

    /// The same of some of them.
    pub(super) fn lendable_if<'a>(
        &'a self,
        now: Duration,
        but: Option<SiteId>,
        is_meant: impl Fn(GroupKey, &Profile) -> bool + 'a,
    ) -> impl Iterator<Item = (GroupKey, Users)> + 'a {
        let (now, but) = (Tick::of(now), but.and_then(|site| self.sites.known(site)));
        let groups = self.counter.iter().flat_map(Counter::groups);
        let groups =
            groups.filter(move |(group, profile)| group.is_lendable() && is_meant(*group, profile));
        let is_wanted = move |profile: &Profile| {
            profile.rates(MEMORY_S).any(|(of, _)| but.is_none_or(|but| of.0 != but.0))
        };
        let users = groups.filter(move |(_, profile)| is_wanted(profile));
        let users = users.map(move |(group, profile)| {
            let (mut profile, mut users) = (*profile, Users::default());
            profile.fade(now, MEMORY_S);
            users.add(&self.sites, &profile);
            (group, users)
        });
        users.filter(|(_, users)| !users.rates.is_empty())
    }

    /// Whether all counts of a group fade by the same factor: votes end one by one.
    pub(super) fn fades_alike(&self) -> bool {
        !self.has_votes
    }

    /// A group has left the site.
    pub(super) fn leaves(&mut self, now: Duration, group: GroupKey) {
        if self.left.len() < GROUPS_LEFT_MAX || self.left.contains_key(&group) {
            self.left.entry(group).or_insert((now, 0)).1 += 1;
        }
        self.remove(now, group);
    }

    /// A group was found to be so large.
    pub(super) fn weighs(&mut self, now: Duration, group: GroupKey, bytes: u64) {
        let counter = self.counter.as_mut();
        if let Some(profile) = counter.and_then(|counter| counter.profile(Tick::of(now), group)) {
            profile.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// A group is not served here.
    pub(super) fn remove(&mut self, now: Duration, group: GroupKey) {
        self.counter.as_mut().and_then(|counter| counter.remove(Tick::of(now), group));
    }

    /// From which sites each slot is accessed, without groups that may be lent by themselves.
    pub(super) fn slots(&mut self, now: Duration) -> BTreeMap<u16, Users> {
        let mut slots: BTreeMap<u16, Users> = BTreeMap::new();
        let (Some(counter), now) = (self.counter.as_mut(), Tick::of(now)) else { return slots };
        for (group, profile) in counter.groups().filter(|(group, _)| !group.is_lendable()) {
            let mut profile = *profile;
            profile.fade(now, MEMORY_S);
            if profile.total() > 0.0 {
                slots.entry(group.slot()).or_default().add(&self.sites, &profile);
            }
        }
        for slot in 0..Slot::COUNT {
            let rest = counter.slot(now, slot);
            if rest.total() > 0.0 {
                slots.entry(slot).or_default().add(&self.sites, rest);
            }
        }
        slots
    }
}

/// From which sites a slot is accessed.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    /// Accesses per second.
    pub(super) rates: BTreeMap<SiteId, f32>,
    /// Of the groups that were written.
    bytes: u64,
    written: u64,
}

impl Users {
    fn add(&mut self, sites: &Sites, profile: &Profile) {
        for (origin, rate) in profile.rates(MEMORY_S) {
            *self.rates.entry(sites.site(Place(origin.0))).or_default() += rate;
        }
        self.bytes += u64::from(profile.bytes);
        self.written += u64::from(profile.bytes > 0);
    }

    /// The size of a group, by those that were written; `None`: none was.
    pub(super) fn mean_bytes(&self) -> Option<u64> {
        self.bytes.checked_div(self.written)
    }
}

/// Sites as profiles have them, numbered as they are seen first: after a recovery of the registry
/// ids are high.
#[derive(Clone, Debug, Default)]
struct Sites {
    all: Vec<SiteId>,
    numbers: BTreeMap<SiteId, Place>,
}

impl Sites {
    /// The number of a site; `None`: there are too many.
    fn number(&mut self, site: SiteId) -> Option<Place> {
        if let Some(known) = self.known(site) {
            return Some(known);
        }
        let next = u16::try_from(self.all.len()).ok().map(Place)?;
        self.all.push(site);
        self.numbers.insert(site, next);
        Some(next)
    }

    fn known(&self, site: SiteId) -> Option<Place> {
        self.numbers.get(&site).copied()
    }

    fn site(&self, number: Place) -> SiteId {
        self.all[usize::from(number.0)]
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    fn accesses(&self) -> &Accesses {
        self.machine.accesses()
    }

    /// A request that this site carries out enters here.
    pub(super) fn note_access(&self, origin: Origin, body: &Body) {
        if !self.accesses().is_on() {
            return;
        }
        let origin = match origin {
            Origin::Routed { id, .. } => self.global.routing.origin(id).unwrap_or(origin),
            origin => origin,
        };
        let entry = match origin {
            Origin::Site { site, .. } => Entry::Site(site),
            Origin::Client { direct: true, .. } => Entry::Unknown,
            Origin::Client { .. } | Origin::Doubtful(_) | Origin::Node { .. } => Entry::Here,
            _ => return,
        };
        let (client, sampler) = (origin.client_name(), &self.jobs.place.counting.sampler);
        let caller = Caller { entry, client, sampler };
        self.accesses().note(caller, || accessed(body, |keyspace| self.machine.spec(keyspace)));
    }

    /// When what was noted is to be counted, while any keyspace counts.
    pub(super) fn next_count(&self) -> Option<Duration> {
        let counts = self.accesses().is_on() && self.machine.membership().is_some();
        counts.then(|| self.jobs.place.counting.last_take + INTERVAL)
    }

    /// Counts what was noted, or sends it to where it is counted.
    pub(super) fn tick_counting(&mut self) {
        let now = self.now.monotonic;
        if !self.accesses().is_on() || !self.leads() {
            self.jobs.place.counting.forget();
        }
        if !self.accesses().is_on() {
            self.jobs.place.counting.last_take = now;
            return;
        }
        if now < self.jobs.place.counting.last_take + INTERVAL {
            return;
        }
        let elapsed = now.saturating_sub(self.jobs.place.counting.last_take);
        self.jobs.place.counting.last_take = now;
        let noted = self.accesses().take(elapsed);
        self.jobs.place.counting.dropped += noted.dropped;
        let own = self.machine.membership().map(|member| member.own);
        match (self.leads(), own, self.replica.raft.leader()) {
            (true, Some(own), _) => {
                let counting = &mut self.jobs.place.counting;
                counting.sampled_fades(elapsed);
                counting.sampled(sum(&noted.accesses), noted.one_of());
                let mut all = std::mem::take(&mut counting.sent);
                all.extend(noted.accesses);
                self.count_accesses(own, &merged(all));
            }
            (false, _, Some(leader)) if !noted.accesses.is_empty() => {
                self.send(leader, Content::Accesses(sent(&noted.accesses, noted.one_of())));
            }
            _ => {}
        }
    }

    /// What another node of this site has noted.
    pub(super) fn take_accesses(&mut self, counted: &CountedAccesses) {
        if !self.leads() || !self.accesses().is_on() {
            return;
        }
        let counting = &mut self.jobs.place.counting;
        let mut more = taken(counted);
        counting.sampled(sum(&more), counted.one_of);
        let room = limits::ACCESSES_NOTED_MAX.saturating_sub(counting.sent.len());
        counting.dropped += sum(more.get(room..).unwrap_or_default()) as u64;
        more.truncate(room);
        counting.sent.append(&mut more);
    }

    fn count_accesses(&mut self, own: SiteId, accesses: &[Access]) {
        let (now, noted) = (self.now.monotonic, self.machine.accesses());
        self.jobs.place.counting.count(now, own, accesses, |name| noted.client_of(name));
    }
}

/// How many accesses these stand for.
fn sum(accesses: &[Access]) -> f32 {
    accesses.iter().map(|one| one.count).sum()
}

fn sent(noted: &[Access], one_of: f32) -> CountedAccesses {
    CountedAccesses {
        one_of,
        groups: noted.iter().map(|one| one.group.number()).collect(),
        sites: noted.iter().map(|one| one.site.map_or(0, |site| site.0)).collect(),
        counts: noted.iter().map(|one| one.count).collect(),
        bytes: noted.iter().map(|one| one.bytes).collect(),
        clients: noted.iter().map(|one| one.client.number()).collect(),
    }
}

/// What makes sense of a message.
fn taken(counted: &CountedAccesses) -> Vec<Access> {
    let CountedAccesses { groups, sites, counts, bytes, clients, .. } = counted;
    let each = groups.iter().zip(clients).zip(sites).zip(counts.iter().zip(bytes));
    type Each<'a> = (((&'a u64, &'a u64), &'a u32), (&'a f32, &'a u32));
    let access = |(((group, client), site), (count, bytes)): Each<'_>| Access {
        group: GroupKey::of_number(*group),
        client: ClientName::of_number(*client),
        site: (*site != 0).then_some(SiteId(*site)),
        count: *count,
        bytes: *bytes,
    };
    let is_counted = |one: &Access| one.client != ClientName::UNCOUNTED;
    let is_sound = |one: &Access| one.count > 0.0 && one.count.is_finite() && is_counted(one);
    each.map(access).filter(is_sound).take(limits::ACCESSES_NOTED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SiteId = SiteId(1);
    const EAST: SiteId = SiteId(2);

    fn numbered(client: ClientName) -> Client {
        Client::of_hash(client.number())
    }

    #[test]
    fn a_site_that_joined_after_a_recovery_of_the_registry_counts() {
        let (group, late) = (GroupKey::new(7, 99 << 20), SiteId(1 << 23 | 5));
        let mut counting = Counting::new(1, 16, false);
        let access =
            Access { group, client: ClientName::NONE, site: Some(late), count: 30.0, bytes: 0 };
        counting.count(Duration::from_secs(5), OWN, &[access], numbered);
        assert_eq!(counting.users(Duration::from_secs(5), group), BTreeMap::from([(late, 3.0)]));
        let access = Access { site: None, ..access };
        counting.count(Duration::from_secs(5), late, &[access], numbered);
        assert_eq!(
            (counting.users(Duration::from_secs(5), group)[&late], counting.dropped()),
            (6.0, 0)
        );
    }

    /// From where a group is accessed after one access each second at home by a client, for a
    /// while, and then one by another client elsewhere.
    fn users_of(clients: [ClientName; 2], has_votes: bool) -> BTreeMap<SiteId, f32> {
        let group = GroupKey::new(7, 99 << 20);
        let mut counting = Counting::new(1, 16, has_votes);
        let last = Duration::from_secs(30);
        for second in 0..=last.as_secs() {
            let is_last = second == last.as_secs();
            let (site, client) =
                if is_last { (Some(EAST), clients[1]) } else { (None, clients[0]) };
            let access = Access { group, client, site, count: 1.0, bytes: 0 };
            counting.count(Duration::from_secs(second), OWN, &[access], numbered);
        }
        counting.users(last, group)
    }

    #[test]
    fn a_client_is_where_its_name_or_user_was_last() {
        let of = |user, name: &str| ClientName::of(user, name.as_bytes());
        let (car, bare) = (of(None, "car-7"), ClientName::NONE);
        let (ann, anns_car) = (of(Some("ann"), ""), of(Some("ann"), "car-7"));
        let anns_other = of(Some("ann"), "car-8");
        for (clients, has_votes, has_left) in [
            ([car, car], false, true),
            ([anns_car, anns_car], false, true),
            // The name of another user, and no name, are no name of this client.
            ([bare, bare], false, false),
            ([ann, ann], false, false),
            ([anns_car, car], false, false),
            ([anns_car, anns_other], false, false),
            // Where clients count alike a user is one, whatever names it makes up.
            ([anns_car, anns_other], true, true),
            ([ann, ann], true, true),
            ([car, car], true, true),
            ([car, anns_car], true, false),
            ([bare, bare], true, false),
        ] {
            let users = users_of(clients, has_votes);
            let sites: Vec<_> = users.keys().copied().collect();
            let expected = if has_left { vec![EAST] } else { vec![OWN, EAST] };
            assert_eq!(sites, expected, "{clients:?}, alike: {has_votes}");
        }
    }

    #[test]
    fn what_another_node_sends_counts_like_its_own() {
        let group = GroupKey::new(7, 99 << 20);
        let access = |site, count, bytes| {
            let client = ClientName::NONE;
            Access { group, client, site, count, bytes }
        };
        let noted = [access(None, 20.0, 0), access(Some(EAST), 60.0, 512)];
        assert_eq!(taken(&sent(&noted, 1.0)), noted);
        let named = Access { client: ClientName { user: 3, name: 9 }, ..noted[0] };
        assert_eq!(taken(&sent(&[named], 1.0)), [named]);
        let mut odd = sent(&noted, 1.0);
        odd.counts[0] = f32::NAN;
        odd.bytes.push(1);
        assert_eq!(taken(&odd), noted[1..], "what makes no sense is left out");
        let mut counting = Counting::new(1, 16, false);
        counting.count(Duration::from_secs(5), OWN, &noted, numbered);
        let rates = BTreeMap::from([(OWN, 2.0), (EAST, 6.0)]);
        assert_eq!(counting.users(Duration::from_secs(5), group), rates);
        let slots = counting.slots(Duration::from_secs(5));
        assert_eq!((&slots[&7].rates, slots[&7].mean_bytes()), (&rates, Some(512)));
        assert_eq!((slots.len(), counting.groups()), (1, (1, 0)));
    }
}
