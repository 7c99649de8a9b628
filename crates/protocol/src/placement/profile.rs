//! The profile of one group: where its accesses come from, in 64 bytes.
//!
//! While four clients make 90 % of the accesses, it has these four, each with the site it was last at. One access
//! from elsewhere then moves all that the client has counted, and the group can follow at once: the main gain
//! over counts by site, which have to fade first. With more clients it has four sites, and a remainder of
//! unknown place. From time to time it tries clients again, as those of a group change.
//!
//! Counts fade with e^(−t/τ); a count over τ is a rate.

use super::latencies::{Origin, Site};
use super::weights::Use;

/// The part of the accesses that may come from clients without an entry.
const REST_MAX: f32 = 0.1;
/// A count below this is none.
const LEAST: f32 = 0.05;
/// A profile by site is tried by client again after so many τ.
const RETRY_TAUS: f32 = 8.0;

/// A session or a user, as the origin's site numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(pub u32);

impl Client {
    /// A bare connection: all of a site's count as one client that never moves.
    pub fn of_site(site: Site) -> Client {
        Client(u32::MAX - u32::from(site.0))
    }
}

/// Time in steps of 10 ms, modulo 248 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick(u32);

impl Tick {
    const BITS: u32 = 31;

    /// From a monotonic clock.
    pub fn from_ms(ms: u64) -> Tick {
        Tick((ms / 10) as u32 & ((1 << Tick::BITS) - 1))
    }

    fn since_s(self, before: Tick) -> f32 {
        let ticks = self.0.wrapping_sub(before.0) & ((1 << Tick::BITS) - 1);
        ticks as f32 / 100.0
    }
}

/// Where the accesses of one group come from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(64))]
pub struct Profile {
    /// The group; 0: no group.
    pub(super) tag: u64,
    clients: [u32; 4],
    counts: [f32; 4],
    sites: [u16; 4],
    rest: f32,
    /// The size of the group.
    pub bytes: u32,
    /// What its users have waited longer than they would elsewhere, in ms: it goes along with the group.
    pub regret_ms: f32,
    /// The last tick, and whether the entries are of sites.
    tick_and_mode: u32,
}

const _: () = assert!(size_of::<Profile>() == 64);

const BY_SITE: u32 = 1 << Tick::BITS;

impl Profile {
    /// Nothing is counted yet.
    pub(super) fn new(tag: u64, now: Tick) -> Profile {
        Profile { tag, tick_and_mode: now.0, ..Profile::default() }
    }

    /// The same profile by another site's clock.
    pub(super) fn arrived(self, tag: u64, now: Tick) -> Profile {
        let tick_and_mode = self.tick_and_mode & BY_SITE | now.0;
        Profile { tag, tick_and_mode, ..self }
    }

    /// Whether its entries are sites: it has too many clients.
    pub fn is_by_site(&self) -> bool {
        self.tick_and_mode & BY_SITE != 0
    }

    /// What was counted and has not faded.
    pub fn total(&self) -> f32 {
        self.counts.iter().sum::<f32>() + self.rest
    }

    /// Counts fade until now.
    pub fn fade(&mut self, now: Tick, tau_s: f32) {
        let last = Tick(self.tick_and_mode & !BY_SITE);
        let elapsed_s = now.since_s(last);
        if elapsed_s <= 0.0 {
            return;
        }
        self.tick_and_mode = self.tick_and_mode & BY_SITE | now.0;
        self.scale((-elapsed_s / tau_s).exp());
        let period = |tick: Tick| (tick.since_s(Tick(0)) / (RETRY_TAUS * tau_s)) as u32;
        if period(now) != period(last) || self.total() < LEAST {
            // Each site's last client stands for all of it; if they are more, it is by site again soon.
            self.tick_and_mode &= !BY_SITE;
        }
    }

    pub(super) fn scale(&mut self, factor: f32) {
        for count in &mut self.counts {
            *count = if *count * factor < LEAST { 0.0 } else { *count * factor };
        }
        self.rest *= factor;
    }

    /// Accesses of a client at a site, by now.
    pub fn count(&mut self, now: Tick, tau_s: f32, client: Client, site: Site, weight: f32) {
        self.fade(now, tau_s);
        let is_by_site = self.is_by_site();
        let is_own = |index: usize, profile: &Profile| {
            let is_same = if is_by_site {
                profile.sites[index] == site.0
            } else {
                profile.clients[index] == client.0
            };
            is_same && profile.counts[index] > 0.0
        };
        let own = (0..4).find(|index| is_own(*index, self));
        let free = || (0..4).find(|index| self.counts[*index] <= 0.0);
        match own.or_else(free) {
            Some(index) => {
                let before = if own.is_some() { self.counts[index] } else { 0.0 };
                self.set(index, client, site, before + weight);
            }
            None => self.count_rest(client, site, weight),
        }
    }

    fn set(&mut self, index: usize, client: Client, site: Site, count: f32) {
        self.clients[index] = client.0;
        self.sites[index] = site.0;
        self.counts[index] = count;
    }

    /// An access of one that has no entry. It gets the least one's as soon as the rest outweighs that.
    fn count_rest(&mut self, client: Client, site: Site, weight: f32) {
        self.rest += weight;
        let lightest = |a: &usize, b: &usize| self.counts[*a].total_cmp(&self.counts[*b]);
        let Some(index) = (0..4).min_by(lightest) else { return };
        if self.rest > self.counts[index] {
            self.rest += self.counts[index] - weight;
            self.set(index, client, site, weight);
        }
        if !self.is_by_site() && self.rest > REST_MAX * self.total() {
            self.turn_by_site();
        }
    }

    fn turn_by_site(&mut self) {
        self.tick_and_mode |= BY_SITE;
        for index in 1..4 {
            let same = (0..index).find(|other| self.sites[*other] == self.sites[index]);
            if let Some(other) = same {
                self.counts[other] += std::mem::take(&mut self.counts[index]);
            }
        }
    }

    /// Another group's profile is added: it is not followed on its own any more.
    pub(super) fn absorb(&mut self, other: &Profile, now: Tick, tau_s: f32) {
        let mut other = *other;
        other.fade(now, tau_s);
        for index in (0..4).filter(|index| other.counts[*index] > 0.0) {
            let (client, site) = (Client(other.clients[index]), Site(other.sites[index]));
            self.count(now, tau_s, client, site, other.counts[index]);
        }
        self.rest += other.rest;
    }

    /// The accesses per second of each site. The remainder is of unknown place and not among them.
    pub fn rates(&self, tau_s: f32) -> impl Iterator<Item = (Origin, f32)> + '_ {
        let entries = self.sites.iter().zip(self.counts).filter(|(_, count)| *count > 0.0);
        entries.map(move |(site, count)| (Origin(*site), count / tau_s))
    }

    /// The same by client, for [equal weights](super::weights). `None`: it has too many clients for that.
    pub fn uses(&self, tau_s: f32) -> Option<Vec<Use>> {
        let of_client = |(origin, rate)| Use { origin, rate, share: 1.0 };
        (!self.is_by_site()).then(|| self.rates(tau_s).map(of_client).collect())
    }
}
