//! One node of a simulation: a disk, clocks, and the process that runs on it or does not.

use super::Settings;
use super::clock::Clock;
use crate::random::Random;
use model::{ClientId, NodeId, Time};
use protocol::global::proxy_reads::ProxyReads;
use protocol::placement::Sampler;
use protocol::replica::raft::Persist;
use protocol::replica::recovery::{self, RecoveryError};
use protocol::site::machine::Modes;
use protocol::site::{Options, ReadGate, Site, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;
use storage::disk::memory::{MemoryDisk, Survival};
use storage::log::{self, LogStart, Reader, Writer};
use storage::snapshot::{Folder, SnapshotHead};
use storage::state::memory::{MemoryState, MemoryView};
use wire::peer::Member;

pub(super) type SimulatedSite = Site<MemoryState, Reader, Folder>;

/// How a node goes down.
#[derive(Clone, Debug)]
pub enum Down {
    /// The process ends, the machine stays up: all that was written is there.
    Killed,
    /// The power goes: of what was not synced so much survives, and the state goes back to when
    /// its engine last made it durable by itself.
    PowerLost(Survival),
}

impl Down {
    /// One of all ways, with what survives.
    pub fn draw(random: &mut Random) -> Down {
        match random.below(5) {
            0 => Down::Killed,
            way => Down::PowerLost(survival(way, random)),
        }
    }

    /// The power goes, and of what was not synced anything may survive.
    pub fn draw_power_loss(random: &mut Random) -> Down {
        let way = 1 + random.below(4);
        Down::PowerLost(survival(way, random))
    }
}

fn survival(way: u64, random: &mut Random) -> Survival {
    match way {
        1 => Survival::Everything,
        2 => Survival::Nothing,
        3 => Survival::Bytes(random.below(4_096)),
        _ => Survival::Sectors((0..8).map(|_| random.chance(500)).collect()),
    }
}

/// A piece of work for the log's thread.
#[derive(Debug)]
pub(super) enum DiskJob {
    Persist(Persist),
    Cut(LogStart),
}

/// A piece of long work.
pub(super) enum BackgroundTask {
    Write { head: SnapshotHead, view: MemoryView },
    Finish { index: u64 },
    Load { head: SnapshotHead },
}

/// Groups of which a leader keeps a profile: a lab runs many sites at once.
const PROFILES_MAX: usize = 1 << 12;

/// What a process has that a crash takes away.
pub(super) struct Process {
    pub(super) site: SimulatedSite,
    pub(super) writer: Writer,
    pub(super) snapshots: Folder,
    pub(super) jobs: VecDeque<DiskJob>,
    /// The number of the last persist that is written and being synced.
    pub(super) syncing: Option<u64>,
    pub(super) disk_busy: bool,
    pub(super) disk_full: bool,
    pub(super) background: VecDeque<BackgroundTask>,
    pub(super) background_busy: bool,
    /// Which reads need not ask the core.
    pub(super) gate: ReadGate,
    /// Which accesses of its front are counted.
    pub(super) sampler: Sampler,
    /// Reads that passed the core by on their way to other sites.
    pub(super) proxy_reads: ProxyReads,
    /// Requests it was given and has not answered, and when it was.
    pub(super) tickets: BTreeMap<Ticket, Duration>,
}

/// Whether a node belongs to its site, by its identity file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// It begins the site.
    Begins,
    /// It asks to be taken in.
    Asks,
    /// It is a member, or was.
    Member,
}

/// A disk that lies beside its machine, and what is on it.
struct Aside {
    disk: MemoryDisk,
    state: MemoryState,
    incarnation: u64,
    member_since: u64,
    /// Whether it is the later one of the two.
    is_later: bool,
}

/// A node.
pub struct Node {
    /// Its id in its site, from 1.
    pub id: u64,
    /// Which site, by its place in the simulation.
    pub site: usize,
    /// It votes and holds no data.
    pub witness: bool,
    /// What its site can fail together with.
    pub(super) failure_domain: Option<model::SiteName>,
    /// How many bytes of others' groups its site takes.
    pub(super) borrowed_bytes_max: Option<u64>,
    /// Its disk; what is done to it happens at once.
    pub disk: MemoryDisk,
    /// Its state's engine.
    pub state: MemoryState,
    /// Whether it is a member.
    pub belongs: Belongs,
    /// Whether its process runs (or asks to be taken in).
    pub up: bool,
    /// Its disk takes this much longer for an fsync.
    pub slow: Duration,
    /// Its next fsync does nothing and reports success.
    pub lies: bool,
    /// Its disk is to be exchanged: once it is down it does not start on this one any more.
    pub doomed: bool,
    /// It does not start before an explicit order.
    pub stays_down: bool,
    /// Its links to the others of its site stay cut until then.
    pub stays_cut_off: bool,
    /// Why it does not start: its disk holds what must not be served. It waits for an operator.
    pub refused: Option<String>,
    /// A disk of it that is not in the machine.
    aside: Option<Aside>,
    pub(super) name: String,
    pub(super) incarnation: u64,
    /// The log index since which this life is a member; 0: it has not been one yet.
    pub(super) member_since: u64,
    /// How often it has started: what was meant for an earlier life does not reach it.
    pub(super) life: u64,
    pub(super) process: Option<Process>,
    pub(super) clock: Clock,
    /// Nothing happens in it before.
    pub(super) paused_until: Duration,
    /// When it is going to be woken, if it is.
    pub(super) wakes_at: Option<Duration>,
    /// The term in which it was last seen to lead.
    pub(super) led_term: u64,
    /// How often its process was last seen to have changed its pointers on the ring.
    pub(super) ring_changes: u64,
    /// How often its process was last seen to have changed its loans.
    pub(super) loan_changes: u64,
    pub(super) random: Random,
}

impl Node {
    pub(super) fn new(site: usize, id: u64, name: String, witness: bool, random: Random) -> Node {
        let mut random = random;
        Node {
            id,
            site,
            witness,
            failure_domain: None,
            borrowed_bytes_max: None,
            disk: MemoryDisk::new(),
            state: MemoryState::new(),
            belongs: if id == 1 { Belongs::Begins } else { Belongs::Asks },
            up: false,
            slow: Duration::ZERO,
            lies: false,
            doomed: false,
            stays_down: false,
            stays_cut_off: false,
            refused: None,
            aside: None,
            name,
            incarnation: random.draw() | 1,
            member_since: 0,
            life: 0,
            process: None,
            clock: Clock::new(super::EPOCH_MS),
            paused_until: Duration::ZERO,
            wakes_at: None,
            led_term: 0,
            ring_changes: 0,
            loan_changes: 0,
            random,
        }
    }

    pub(super) fn member(&self) -> Member {
        Member {
            node: self.id,
            address: format!("n{}", self.id),
            incarnation: self.incarnation,
            witness: self.witness,
            since: 0,
        }
    }

    /// Starts the process of a node that needs no other's answer. What was repaired is reported to
    /// `warn`.
    pub(super) fn start(
        &mut self,
        now: Time,
        settings: &Settings,
        warn: &mut dyn FnMut(String),
    ) -> Result<(), RecoveryError> {
        let disk = self.disk.shared();
        let (mut recovered, mut writer, reader) =
            log::open_with(&disk, Path::new("log"), settings.log)?;
        let snapshots = Folder::open(&disk, Path::new("snapshots"), 0)?;
        if self.belongs == Belongs::Begins {
            recovery::begin_site::<_, Modes>(self.member(), &mut writer, &snapshots, &self.state)?;
            self.belongs = Belongs::Member;
        }
        let state = self.state.clone();
        let replica = recovery::recover(&mut recovered, &mut writer, &snapshots, state, warn)?;
        let (client, seed) = (ClientId(self.random.draw()), self.random.draw());
        let options = Options {
            incarnation: self.incarnation,
            member_since: self.member_since,
            witness: self.witness,
            failure_domain: self.failure_domain.clone(),
            borrowed_bytes_max: self.borrowed_bytes_max,
            log_bytes_before_snapshot: settings.log_bytes_before_snapshot,
            log_entries_kept: settings.log_entries_kept,
            causal_kept_bytes_max: settings.causal_kept_bytes_max,
            causal_resync_bytes_max: settings.causal_resync_bytes_max,
            mirrors: settings.mirrors,
            profiles_max: PROFILES_MAX,
            equal_clients: settings.equal_clients,
            planted: settings.planted,
            rare_permille: settings.rare_permille,
            ..Options::new(NodeId(self.id), client, seed)
        };
        let site = Site::new(options, now, &recovered, reader, snapshots.clone(), replica);
        let proxy_reads = site.proxy_reads();
        self.process = Some(Process {
            site,
            writer,
            snapshots,
            jobs: VecDeque::new(),
            syncing: None,
            disk_busy: false,
            disk_full: false,
            background: VecDeque::new(),
            background_busy: false,
            gate: ReadGate::Closed,
            sampler: Sampler::new(seed),
            proxy_reads,
            tickets: BTreeMap::new(),
        });
        Ok(())
    }

    /// Ends the process; the requests that it takes with it.
    pub(super) fn stop(&mut self, down: &Down) -> BTreeSet<Ticket> {
        let process = self.process.take();
        self.up = false;
        self.life += 1;
        self.wakes_at = None;
        self.paused_until = Duration::ZERO;
        match down {
            Down::Killed => self.disk.kill(),
            Down::PowerLost(survival) => {
                self.disk.crash(survival);
                self.state.crash();
            }
        }
        process.map(|process| process.tickets.into_keys().collect()).unwrap_or_default()
    }

    /// Its site begins anew: an empty disk, and its first node begins it.
    pub(super) fn begin_anew(&mut self) {
        self.wipe();
        self.belongs = if self.id == 1 { Belongs::Begins } else { Belongs::Asks };
        self.led_term = 0;
        (self.stays_down, self.stays_cut_off) = (false, false);
    }

    /// Puts a new, empty disk in, and keeps the one that was there.
    pub(super) fn put_aside(&mut self) {
        let (disk, state) = (self.disk.clone(), self.state.clone());
        let (incarnation, member_since) = (self.incarnation, self.member_since);
        let aside = Aside { disk, state, incarnation, member_since, is_later: false };
        self.wipe();
        self.aside = Some(aside);
    }

    /// Exchanges the disk in the machine, which is down, for the one that lies beside it.
    pub(super) fn exchange(&mut self) {
        let Some(aside) = &mut self.aside else { return };
        std::mem::swap(&mut self.disk, &mut aside.disk);
        std::mem::swap(&mut self.state, &mut aside.state);
        std::mem::swap(&mut self.incarnation, &mut aside.incarnation);
        std::mem::swap(&mut self.member_since, &mut aside.member_since);
        aside.is_later = !aside.is_later;
        self.refused = None;
    }

    /// Throws the disk away that lies beside it.
    pub(super) fn discard(&mut self) {
        self.aside = None;
    }

    /// Whether it has a disk beside it.
    #[must_use]
    pub fn has_disk_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Whether the disk that lies beside it is the one that belongs in.
    #[must_use]
    pub fn is_on_old_disk(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.is_later)
    }

    /// Its site is gone: nothing waits for its disk any more.
    pub(super) fn retire(&mut self) {
        (self.refused, self.doomed, self.lies) = (None, false, false);
    }

    /// Puts a new, empty disk in.
    pub(super) fn wipe(&mut self) {
        self.disk = MemoryDisk::new();
        self.state = MemoryState::new();
        self.incarnation = self.random.draw() | 1;
        self.member_since = 0;
        self.belongs = Belongs::Asks;
        (self.refused, self.aside) = (None, None);
        self.doomed = false;
        self.lies = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_loss_leaves_any_part_of_what_was_not_synced() {
        let mut random = Random::new(1);
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            seen.insert(match Down::draw_power_loss(&mut random) {
                Down::PowerLost(Survival::Everything) => "everything",
                Down::PowerLost(Survival::Nothing) => "nothing",
                Down::PowerLost(Survival::Bytes(_)) => "bytes",
                Down::PowerLost(Survival::Sectors(_)) => "sectors",
                Down::Killed => "killed",
            });
        }
        assert_eq!(seen, BTreeSet::from(["bytes", "everything", "nothing", "sectors"]));
    }
}
