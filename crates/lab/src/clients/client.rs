//! One client: where it is, what it is doing, what it has seen.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{ClientId, ClientName, KeyspaceId, KeyspaceSpec, Revision};

use super::asking::{Asked, Doing};
use super::gateways::Way;
use super::pairs::Second;
use super::stream;
use crate::geo::Point;
use crate::history::Outcome;
use crate::link::{Link, Pipe};
use crate::mobility::{Mobility, Still, Track};
use crate::random::Random;
use crate::workload::Step;
use crate::world::{Attach, World};

/// Places of a trail that are kept.
const TRAIL_MAX: usize = 300;
/// Keys whose values a client keeps, for compare-and-set.
const SEEN_MAX: usize = 64;

/// Where a client was, and at which site.
pub type Trail = Vec<(Point, usize)>;

/// A value that a client saw: itself, and its version.
pub(super) type Seen = (Option<String>, Revision);

pub(super) struct Client {
    pub(super) name: String,
    pub(super) group: usize,
    pub(super) number: usize,
    pub(super) id: ClientId,
    /// By what sites know it, where any keyspace follows its clients.
    pub(super) known_as: ClientName,
    pub(super) random: Random,
    /// What it draws for pairs of keys, and on how many it has done something.
    pub(super) pairs: Random,
    pub(super) pairs_asked: u64,
    /// The last write that it numbered.
    pub(super) sequence: u64,
    /// The last value that it made.
    pub(super) values: u64,
    track: Option<Track>,
    /// The track's second at which the run begins, and how many of its pass in one of the run's.
    replay: (f64, f64),
    at: Point,
    pub(super) site: usize,
    /// The site that it would be at, if it was there.
    pub(super) away_from: Option<usize>,
    /// The node it asks, by its place in the site.
    pub(super) node: usize,
    link: Link,
    up: Pipe,
    down: Pipe,
    pub(super) doing: Option<Doing>,
    /// The way of its request over gateways, if it takes one.
    pub(super) way: Option<Way>,
    pub(super) attempt: u32,
    /// Whether the node it asked led then.
    pub(super) at_leader: bool,
    /// When its next operation was to begin.
    pub(super) scheduled: Duration,
    pub(super) seen: BTreeMap<String, Seen>,
    pub(super) trail: Trail,
    trail_step_m: f64,
}

impl Client {
    pub(super) fn new(
        world: &World,
        group: usize,
        number: usize,
        seed: u64,
        duration: Duration,
        overall: usize,
    ) -> Client {
        let spec = &world.clients[group];
        let name = format!("{}-{}", spec.name, number + 1);
        let still = Mobility::Still(Still::default());
        let mut random = stream(seed, "mobility", overall);
        let mobility = spec.mobility.as_ref().unwrap_or(&still);
        // Long enough for the rest after the faults too.
        let span_s = duration.as_secs_f64() + 60.0;
        let moves = matches!(spec.attach, Attach::Nearest { .. }) || spec.mobility.is_some();
        let track = match mobility {
            _ if !moves => None,
            Mobility::Trace(_) => spec.tracks.get(number % spec.tracks.len().max(1)).cloned(),
            made => made.track(name.clone(), &world.area, span_s, &mut random),
        };
        let replay = match mobility {
            Mobility::Trace(replay) => {
                let first = crate::mobility::span_s(&spec.tracks).map_or(0.0, |(from, _)| from);
                (replay.from_s.unwrap_or(first), replay.speed)
            }
            _ => (0.0, 1.0),
        };
        let site = match (&spec.attach, spec.home) {
            (_, Some(home)) => home,
            (Attach::Nearest { margin_m }, _) => {
                let at = track.as_ref().and_then(|track| track.position(replay.0));
                at.map_or(overall % world.sites.len(), |at| world.attach(at, None, *margin_m))
            }
            _ => {
                let there = world.sites.iter().filter(|site| !site.spare).count().max(1);
                let sites = (0..world.sites.len()).filter(|site| !world.sites[*site].spare);
                sites.into_iter().nth(number % there).unwrap_or_default()
            }
        };
        let at = track.as_ref().and_then(|track| track.position(replay.0));
        let at = at.unwrap_or(world.sites[site].at);
        let (width_m, height_m) = world.area.size_m();
        let mut random = stream(seed, "client", overall);
        let is_followed = world.keyspaces.iter().any(KeyspaceSpec::counts_accesses);
        let known_as = match is_followed {
            true => ClientName::of(None, name.as_bytes()),
            false => ClientName::NONE,
        };
        Client {
            name,
            known_as,
            group,
            number,
            id: ClientId(random.draw()),
            sequence: 0,
            values: 0,
            track,
            replay,
            at,
            site,
            away_from: None,
            node: overall % world.sites[site].nodes,
            link: world.client_link(at, site),
            up: Pipe::default(),
            down: Pipe::default(),
            doing: None,
            way: None,
            attempt: 0,
            at_leader: false,
            scheduled: Duration::ZERO,
            seen: BTreeMap::new(),
            trail: vec![(at, site)],
            trail_step_m: width_m.hypot(height_m) / 200.0,
            random,
            pairs: stream(seed, "pairs", overall),
            pairs_asked: 0,
        }
    }

    /// Goes to a site that is open, as its own is not; or back to the one it would be at.
    pub(super) fn go_where_it_can(
        &mut self,
        world: &World,
        is_open: impl Fn(usize) -> bool,
    ) -> bool {
        if let Some(home) = self.away_from.filter(|home| is_open(*home)) {
            self.away_from = None;
            self.go_to(world, home);
            return true;
        }
        if is_open(self.site) {
            return false;
        }
        let Some((near, _)) = world.nearest_of(self.at, &is_open) else { return false };
        if !matches!(world.clients[self.group].attach, Attach::Nearest { .. }) {
            self.away_from.get_or_insert(self.site);
        }
        self.go_to(world, near);
        true
    }

    /// Moves along its track, and to another site if that is where it should be. Whether it did.
    pub(super) fn go_where_it_is(
        &mut self,
        world: &World,
        elapsed: Duration,
        is_open: impl Fn(usize) -> bool,
    ) -> bool {
        let t_s = self.replay.0 + elapsed.as_secs_f64() * self.replay.1;
        let found = self.track.as_ref().and_then(|track| track.position(t_s));
        let Some(at) = found.filter(|at| *at != self.at) else { return false };
        self.at = at;
        let spec = &world.clients[self.group];
        let site = match spec.attach {
            Attach::Nearest { margin_m } => world.attach_to(at, Some(self.site), margin_m, is_open),
            _ => self.site,
        };
        let moves = site != self.site;
        if moves {
            self.go_to(world, site);
        } else {
            self.link = world.client_link(at, site);
        }
        let last = self.trail.last();
        let far = last.is_none_or(|(before, _)| before.distance_m(at) >= self.trail_step_m);
        if (far || moves) && self.trail.len() < TRAIL_MAX {
            self.trail.push((at, site));
        }
        moves
    }

    /// Uses another site from now on.
    pub(super) fn go_to(&mut self, world: &World, site: usize) {
        self.site = site;
        self.node = self.number % world.sites[site].nodes;
        self.link = world.client_link(self.at, site);
        // Another connection, with nothing on its way.
        (self.up, self.down) = (Pipe::default(), Pipe::default());
    }

    /// Takes up a step of its workload, which has waited for a while because the one before was
    /// late.
    pub(super) fn take_up(
        &mut self,
        world: &World,
        (step, second): (Step, Option<Second>),
        keyspace: (Option<usize>, KeyspaceId),
        (now, waited): (Duration, Duration),
        life: u64,
    ) {
        let prefix = world.prefix(keyspace.0);
        let key = format!("{prefix}{}", step.key);
        let second = second.map(|second| second.under(&prefix));
        let asked = Asked {
            key,
            prefix_bytes: prefix.len(),
            operation: step.operation,
            second,
            keyspace,
            waited,
            life,
        };
        self.doing = Some(Doing::new(self, asked, &world.clients[self.group], now));
    }

    /// An attempt leaves: how long it travels, and how long its answer is waited for.
    pub(super) fn send(&mut self, now: Duration) -> Option<(Duration, Duration)> {
        let doing = self.doing.as_mut()?;
        doing.attempts += 1;
        let (bytes, timeout) = (doing.bytes(), doing.timeout(now));
        let due = self.up.due(now, bytes, &self.link, &mut self.random);
        Some((due - now, timeout))
    }

    /// How long a request of so many bytes travels.
    pub(super) fn delay_up(&mut self, now: Duration, bytes: usize) -> Duration {
        self.up.due(now, bytes, &self.link, &mut self.random) - now
    }

    /// How long an answer of so many bytes travels.
    pub(super) fn delay_down(&mut self, now: Duration, bytes: usize) -> Duration {
        self.down.due(now, bytes, &self.link, &mut self.random) - now
    }

    /// Stores what an operation returned; the second half of a read-modify-write, if it was the
    /// first.
    pub(super) fn saw(&mut self, done: &Doing, outcome: &Outcome) -> Option<Step> {
        let key = format!("{}#{}:{}", self.site, done.life, done.key);
        match outcome {
            Outcome::Value { value, version } => {
                let version = Revision(version.unwrap_or(0));
                if self.seen.len() < SEEN_MAX || self.seen.contains_key(&key) {
                    self.seen.insert(key, (value.clone(), version));
                }
            }
            _ => drop(self.seen.remove(&key)),
        }
        done.then.map(|operation| Step { key: done.step_key().to_owned(), operation })
    }
}
