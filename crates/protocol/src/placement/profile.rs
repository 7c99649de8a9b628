//! The profile of one group: where its accesses come from, in 64 bytes.
//!
//! While four clients make 90 % of the accesses, it has these four, each with the site it was last
//! at. One access from elsewhere then moves all that the client has counted, and the group can
//! follow at once: the main gain over counts by site, which have to fade first. With more clients
//! it has nine sites, and a remainder of unknown place. From time to time it tries clients again,
//! as those of a group change: the count of a site is then that of the first client that is seen
//! there.
//!
//! A name that is at several sites at once is no client with a place: that of a service, whose
//! processes all give the same, or one that another client has taken. Where a counting in three
//! finds it at another site than the one before, the profile counts by site, as without names.
//!
//! Counts fade with e^(−t/τ); a count over τ is a rate.
//!
//! Where clients count alike, whatever they claim, it has [`super::votes`] instead, of eight
//! clients.

use super::latencies::{Origin, Site};
use super::votes::{self, Words};
use std::time::Duration;

/// Clients that a profile has room for.
const CLIENTS_MAX: usize = 4;
/// Sites that it has room for.
const SITES_MAX: usize = 9;
/// The part of the accesses that may come from clients without an entry.
const REST_MAX: f32 = 0.1;
/// A count below this is none.
const LEAST: f32 = 0.05;
/// A profile by site is tried by client again after so many τ.
const RETRY_TAUS: f32 = 8.0;
/// Of which share of a client's last eight countings or so the site was another than before, in
/// 256ths: what one such adds, from where on the client has no place, and what is assumed of one
/// that is tried again.
const JUMP: u32 = 32;
const JUMPS_MAX: u32 = 80;
const JUMPS_RETRIED: u32 = 40;
/// A vote counts as so many accesses a second.
const VOTE_HZ: f32 = 1.0;

/// A client as profiles distinguish them: a number below 2^24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(pub u32);

const CLIENT_BITS: u32 = 24;
/// Clients without a name, of each site.
const UNNAMED: u32 = 0xFF_0000;
/// Some client at the site of its entry: the first one that is seen there.
const ANY_CLIENT: u32 = UNNAMED - 1;

impl Client {
    /// A client without a name: all of a site's count as one that never moves.
    pub fn of_site(site: Site) -> Client {
        Client(UNNAMED | u32::from(site.0))
    }

    /// A client with a name, by a hash of that.
    pub fn of_hash(hash: u64) -> Client {
        Client((hash % u64::from(ANY_CLIENT)) as u32)
    }

    fn has_name(self) -> bool {
        self.0 < ANY_CLIENT
    }
}

/// Time in steps of 10 ms, modulo 124 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick(u32);

impl Tick {
    const BITS: u32 = 30;
    const MASK: u32 = (1 << Tick::BITS) - 1;

    /// From a monotonic clock.
    pub fn from_ms(ms: u64) -> Tick {
        Tick((ms / 10) as u32 & Tick::MASK)
    }

    /// From a monotonic clock.
    pub fn of(now: Duration) -> Tick {
        Tick::from_ms(now.as_millis() as u64)
    }

    /// Whether it is earlier than another one.
    pub(super) fn is_before(self, other: Tick) -> bool {
        self.0.wrapping_sub(other.0) & Tick::MASK > Tick::MASK / 2
    }

    fn since_s(self, before: Tick) -> f32 {
        (self.0.wrapping_sub(before.0) & Tick::MASK) as f32 / 100.0
    }

    /// Periods of so many seconds since the clock began.
    fn periods(self, seconds: f32) -> u32 {
        (self.since_s(Tick(0)) / seconds) as u32
    }
}

/// What entries are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Four clients: ids, counts and sites.
    Clients,
    /// Nine sites, each with its count in units, and the unit.
    Sites,
    /// Eight clients that count alike.
    Votes,
}

/// Where the accesses of one group come from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(64))]
pub struct Profile {
    /// The group; 0: no group.
    pub(super) tag: u64,
    /// What they are depends on the form: see the functions that read them.
    words: Words,
    rest: f32,
    /// The size of the group.
    pub bytes: u32,
    /// The last tick, and above it the form.
    tick_and_form: u32,
}

const _: () = assert!(size_of::<Profile>() == 64);
const _: () = assert!(CLIENTS_MAX * 10 <= size_of::<Words>() && SITES_MAX < size_of::<Words>() / 4);
/// Of a word by site: the site, and above it the count.
const SITE_BITS: u32 = 16;
const UNITS_MAX: f32 = 65_535.0;

impl Profile {
    /// Nothing is counted yet.
    pub(super) fn new(tag: u64, now: Tick, has_votes: bool) -> Profile {
        let mut profile = Profile { tag, tick_and_form: now.0, ..Profile::default() };
        profile.set_form(if has_votes { Form::Votes } else { Form::Clients });
        profile
    }

    fn form(&self) -> Form {
        match self.tick_and_form >> Tick::BITS {
            0 => Form::Clients,
            1 => Form::Sites,
            _ => Form::Votes,
        }
    }

    fn set_form(&mut self, form: Form) {
        self.tick_and_form = self.tick_and_form & Tick::MASK | (form as u32) << Tick::BITS;
    }

    /// Whether its entries are sites: it has too many clients.
    pub fn is_by_site(&self) -> bool {
        self.form() == Form::Sites
    }

    /// The entries that it has room for; none of votes.
    fn len(&self) -> usize {
        match self.form() {
            Form::Clients => CLIENTS_MAX,
            Form::Sites => SITES_MAX,
            Form::Votes => 0,
        }
    }

    /// By client the first words are counts, then come sites, two a word, then clients.
    fn count_at(&self, index: usize) -> f32 {
        match self.form() {
            Form::Sites => (self.words[index] >> SITE_BITS) as f32 * self.unit(),
            _ => f32::from_bits(self.words[index]),
        }
    }

    fn site_at(&self, index: usize) -> u16 {
        match self.form() {
            Form::Sites => self.words[index] as u16,
            _ => (self.words[CLIENTS_MAX + index / 2] >> (index % 2 * 16)) as u16,
        }
    }

    /// By client: which it is, and above that how often it jumps.
    fn client_at(&self, index: usize) -> Client {
        Client(self.words[CLIENTS_MAX + CLIENTS_MAX / 2 + index] & ((1 << CLIENT_BITS) - 1))
    }

    fn jumps_at(&self, index: usize) -> u32 {
        self.words[CLIENTS_MAX + CLIENTS_MAX / 2 + index] >> CLIENT_BITS
    }

    /// How often a client jumps that is seen at a site now.
    fn jumps_by_now(&self, index: usize, site: Site) -> u32 {
        let (jumps, has_jumped) = (self.jumps_at(index), self.site_at(index) != site.0);
        jumps - jumps.div_ceil(8) + if has_jumped { JUMP } else { 0 }
    }

    fn set_client(&mut self, index: usize, client: Client, jumps: u32) {
        let client = client.0 & ((1 << CLIENT_BITS) - 1);
        self.words[CLIENTS_MAX + CLIENTS_MAX / 2 + index] = client | jumps << CLIENT_BITS;
    }

    fn set(&mut self, index: usize, (client, jumps): (Client, u32), site: Site, count: f32) {
        if self.is_by_site() {
            self.words[index] = u32::from(site.0);
            return self.set_units(index, count);
        }
        self.words[index] = count.to_bits();
        let word = &mut self.words[CLIENTS_MAX + index / 2];
        let shift = index % 2 * 16;
        *word = *word & !(0xFFFF << shift) | u32::from(site.0) << shift;
        self.set_client(index, client, jumps);
    }

    /// What a count by site is in.
    fn unit(&self) -> f32 {
        f32::from_bits(self.words[SITES_MAX])
    }

    /// Sets a count by site. Where it is not a whole number of units it is rounded by chance, or
    /// many small counts beside a large one would come to nothing.
    fn set_units(&mut self, index: usize, count: f32) {
        if count > UNITS_MAX * self.unit() {
            let counts: Vec<f32> = self.counts().collect();
            self.words[SITES_MAX] = (2.0 * count / UNITS_MAX).to_bits();
            for other in (0..SITES_MAX).filter(|other| *other != index && counts[*other] > 0.0) {
                self.set_units(other, counts[other]);
            }
        }
        let sum = self.words.iter().fold(self.rest.to_bits(), |sum, word| sum.wrapping_add(*word));
        let chance = (sum.wrapping_mul(0x9E37_79B9) >> 8) as f32 / (1 << 24) as f32;
        let units = (count / self.unit() + chance) as u32;
        let site = self.words[index] & ((1 << SITE_BITS) - 1);
        self.words[index] = site | units.min(UNITS_MAX as u32) << SITE_BITS;
    }

    fn counts(&self) -> impl Iterator<Item = f32> + '_ {
        (0..self.len()).map(|index| self.count_at(index))
    }

    /// When something was counted last, or counts were last made to fade.
    pub(super) fn faded_at(&self) -> Tick {
        Tick(self.tick_and_form & Tick::MASK)
    }

    /// What was counted and has not faded.
    pub fn total(&self) -> f32 {
        match self.form() {
            Form::Votes => votes::sites(&self.words).count() as f32,
            _ => self.counts().sum::<f32>() + self.rest,
        }
    }

    /// Counts fade until now.
    pub fn fade(&mut self, now: Tick, tau_s: f32) {
        let last = self.faded_at();
        let elapsed_s = now.since_s(last);
        if elapsed_s <= 0.0 {
            return;
        }
        self.tick_and_form = self.tick_and_form & !Tick::MASK | now.0;
        if self.form() == Form::Votes {
            let (then, now) = (last.periods(tau_s), now.periods(tau_s));
            votes::age(&mut self.words, now.saturating_sub(then));
            return;
        }
        self.scale((-elapsed_s / tau_s).exp());
        let is_due = now.periods(RETRY_TAUS * tau_s) != last.periods(RETRY_TAUS * tau_s);
        if self.is_by_site() && (is_due || self.total() < LEAST) {
            self.turn_by_client();
        }
    }

    pub(super) fn scale(&mut self, factor: f32) {
        for index in 0..self.len() {
            let count = self.count_at(index) * factor;
            match self.form() {
                _ if count < LEAST => self.words[index] = 0,
                Form::Sites => {}
                _ => self.words[index] = count.to_bits(),
            }
        }
        if self.is_by_site() {
            self.words[SITES_MAX] = (self.unit() * factor).to_bits();
        }
        self.rest *= factor;
    }

    /// Accesses of a client at a site, by now.
    pub fn count(&mut self, now: Tick, tau_s: f32, client: Client, site: Site, weight: f32) {
        self.fade(now, tau_s);
        if self.form() == Form::Votes {
            let fingerprint = votes::fingerprint(self.tag, client.0);
            return votes::cast(&mut self.words, fingerprint, site);
        }
        let used = |index: &usize| self.count_at(*index) > 0.0;
        let is_here = |index: &usize| self.site_at(*index) == site.0;
        let own = if self.is_by_site() {
            (0..SITES_MAX).find(|index| used(index) && is_here(index))
        } else {
            let is = |index: &usize, id: Client| used(index) && self.client_at(*index) == id;
            let same = (0..CLIENTS_MAX).find(|index| is(index, client));
            let any = |index: &usize| is(index, Client(ANY_CLIENT)) && is_here(index);
            same.or_else(|| (0..CLIENTS_MAX).find(any))
        };
        let free = || (0..self.len()).find(|index| !used(index));
        let jumps = match own {
            Some(index) if !self.is_by_site() => self.jumps_by_now(index, site),
            _ => 0,
        };
        if let Some(index) = own.filter(|_| jumps >= JUMPS_MAX) {
            // At which of its sites it made which accesses is not known any more.
            let half = self.count_at(index) / 2.0;
            self.words[index] = half.to_bits();
            self.turn_by_site();
            return self.count(now, tau_s, client, site, half + weight);
        }
        match own.or_else(free) {
            Some(index) => {
                let before = if own.is_some() { self.count_at(index) } else { 0.0 };
                self.set(index, (client, jumps), site, before + weight);
            }
            None => self.count_rest(client, site, weight),
        }
    }

    /// An access of one that has no entry. It gets the least one's as soon as the rest outweighs
    /// that.
    fn count_rest(&mut self, client: Client, site: Site, weight: f32) {
        self.rest += weight;
        let lightest = |a: &usize, b: &usize| self.count_at(*a).total_cmp(&self.count_at(*b));
        let Some(index) = (0..self.len()).min_by(lightest) else { return };
        let count = self.count_at(index);
        if self.rest > count {
            self.rest += count - weight;
            self.set(index, (client, 0), site, weight);
        }
        if !self.is_by_site() && self.rest > REST_MAX * self.total() {
            self.turn_by_site();
        }
    }

    fn take_entries(&mut self) -> Vec<(u16, f32)> {
        let entry = |index: usize| (self.site_at(index), self.count_at(index));
        let mut entries: Vec<(u16, f32)> =
            (0..self.len()).map(entry).filter(|(_, count)| *count > 0.0).collect();
        entries.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.words = Words::default();
        entries
    }

    fn turn_by_site(&mut self) {
        let entries = self.take_entries();
        self.set_form(Form::Sites);
        let mut free = 0;
        for (site, count) in entries {
            let same = (0..free).find(|index| self.site_at(*index) == site);
            let (index, before) = same.map_or((free, 0.0), |index| (index, self.count_at(index)));
            self.set(index, (Client::default(), 0), Site(site), before + count);
            free += usize::from(same.is_none());
        }
    }

    /// Unless its accesses come from too many sites to be of four clients.
    fn turn_by_client(&mut self) {
        let mut counts: Vec<f32> = self.counts().collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        if counts[..CLIENTS_MAX].iter().sum::<f32>() < (1.0 - REST_MAX) * self.total() {
            return;
        }
        let entries = self.take_entries();
        self.set_form(Form::Clients);
        for (index, (site, count)) in entries.into_iter().take(CLIENTS_MAX).enumerate() {
            self.set(index, (Client(ANY_CLIENT), JUMPS_RETRIED), Site(site), count);
        }
    }

    /// Another group's profile is added: it is not followed on its own any more.
    pub(super) fn absorb(&mut self, other: &Profile, now: Tick, tau_s: f32) {
        let mut other = *other;
        other.fade(now, tau_s);
        if other.form() == Form::Votes {
            // The ids of its clients are not known.
            let votes = votes::sites(&other.words);
            return votes.for_each(|site| self.count(now, tau_s, Client::of_site(site), site, 1.0));
        }
        for index in (0..other.len()).filter(|index| other.count_at(*index) > 0.0) {
            let site = Site(other.site_at(index));
            let client = match other.form() {
                Form::Clients => other.client_at(index),
                _ => Client::of_site(site),
            };
            self.count(now, tau_s, client, site, other.count_at(index));
        }
        self.rest += other.rest;
    }

    /// The clients with a name, while it counts by client: each with the site that it was last at,
    /// and its accesses per second.
    pub fn clients(&self, tau_s: f32) -> impl Iterator<Item = (Client, Site, f32)> + '_ {
        let by_client = (self.form() == Form::Clients).then_some(0..CLIENTS_MAX);
        let entries = by_client.into_iter().flatten().map(move |index| {
            (self.client_at(index), Site(self.site_at(index)), self.count_at(index) / tau_s)
        });
        entries.filter(|(client, _, rate)| client.has_name() && *rate > 0.0)
    }

    /// The accesses per second of each site, one vote as one. The remainder is of unknown place and
    /// not among them.
    pub fn rates(&self, tau_s: f32) -> impl Iterator<Item = (Origin, f32)> + '_ {
        let entries = (0..self.len()).map(|index| (self.site_at(index), self.count_at(index)));
        let used = entries.filter(|(_, count)| *count > 0.0);
        let counted = used.map(move |(site, count)| (Origin(site), count / tau_s));
        let has_votes = self.form() == Form::Votes;
        let votes = has_votes.then(|| votes::sites(&self.words)).into_iter().flatten();
        counted.chain(votes.map(|site| (Origin(site.0), VOTE_HZ)))
    }
}
