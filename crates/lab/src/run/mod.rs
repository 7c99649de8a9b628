//! A run: a world and a seed, from the first node to the verdicts.
//!
//! ```text
//! form        the sites are begun and their nodes taken in; keyspaces are made, keys loaded
//! work        clients work and move, faults come and go         for as long as the world sets
//! heal        all faults end; operators exchange what must be   16 s, if there were faults
//! rest        clients finish, what stayed lost is back; every site must be whole again    as long as it takes, within limits
//! audit       each key that was written is read once more       the last lines of the history
//! judge       the history, by the promises of the world's keyspaces
//! ```
//!
//! `form` is the first of these, `audit` (and `region`, of causal keys) the last but one, `judge`
//! the last; what they ask of sites goes through `ask`.
//!
//! Two runs of one world, seed and plan are the same to the byte: [`Ran::digest`] shows it.

mod ask;
mod audit;
mod deployment;
mod durations;
mod form;
mod judge;
mod loans;
mod lost;
mod maps;
mod owners;
mod pointers;
mod region;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use model::{Ballot, BySlot, Epoch, SlotSet};
pub use protocol::bugs::Bug;
use protocol::bugs::Planted;

use self::form::TIMEOUT;
use crate::clients::sessions::{self, Sessions, Unresolved};
use crate::clients::{self, Clients, Trail, arithmetic::Compared, gateways::Gateways};
use crate::faults::apply::{self, Begun};
use crate::faults::{Fault, Kind, plan};
use crate::history::{History, Mark, MarkKind, Owner};
use crate::measure::Measure;
use crate::simulation::site_lifecycle::{self, SiteLifecycle};
use crate::simulation::{Settings, Simulation, Stepped};
use crate::verdict::{Judged, Verdict};
use crate::world::World;

/// How long clients go on after all faults have ended: the verdict about liveness gives sites ten
/// seconds to recover and looks at what is asked after that.
const QUIET: Duration = Duration::from_secs(16);
/// How often operators look for disks that wait to be exchanged.
const TEND: Duration = Duration::from_millis(500);

/// What a run's own calls carry.
#[derive(Debug)]
pub enum Call {
    /// Something of a client's is due.
    Client(clients::Due),
    /// Something of a session's is due.
    Session(sessions::Due),
    /// A fault of the plan begins.
    Fault(usize),
    /// A fault of the plan goes on or ends; it began then.
    GoOn(usize, Duration),
    /// Operators look around.
    Tend,
}

type Lab = Simulation<Call>;

/// How to run a world.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What chance is drawn from; without it the world's own seed.
    pub seed: Option<u64>,
    /// How long clients work; without it for as long as the world sets.
    pub duration: Option<Duration>,
    /// Whether the world's random faults come.
    pub random_faults: bool,
    /// Of the plan's faults only these, by number.
    pub only: Option<Vec<usize>>,
    /// Whether to keep a trace.
    pub trace: bool,
    /// A bug to be found.
    pub bug: Option<Bug>,
    /// Requests about global keys go over gateways, as EdgeKV's do, instead of directly to the site
    /// that holds them.
    pub gateways: Option<Gateways>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// The seed.
    pub seed: u64,
    /// What clients asked and what came back.
    pub history: History,
    /// The verdicts, one for each promise.
    pub judged: Vec<Judged>,
    /// What must never happen at all, and did: a panic, a node that gave up, a site that did not
    /// recover.
    pub failure: Option<String>,
    /// The faults that were planned, and whether they were done.
    pub faults: Vec<(Fault, bool)>,
    /// Latencies.
    pub measure: Measure,
    /// Latencies beside what links and disks add up to.
    pub compared: Vec<Compared>,
    /// Latencies by the site that answered.
    pub by_site: Vec<(String, Vec<(f64, f64)>)>,
    /// Operations that each site answered.
    pub answered_by_site: Vec<u64>,
    /// Where clients were.
    pub trails: Vec<Trail>,
    /// How much happened.
    pub figures: Figures,
    /// A text trace of the run, if one was requested.
    pub trace: Option<String>,
}

/// How much happened in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Virtual time from the first node to the end.
    pub virtual_time: Duration,
    /// Events of nodes.
    pub events: u64,
    /// Operations of clients.
    pub operations: u64,
    /// Faults done.
    pub faults: u64,
    /// Times that a node became leader.
    pub elections: u64,
    /// Bytes sent between sites while clients worked, over links that have a bandwidth.
    pub inter_site_bytes: u64,
    /// Times that a site's pointers on the ring changed, and of those after how many the ring's
    /// invariant was judged.
    pub ring_changes: u64,
    /// See above.
    pub ring_judged: u64,
}

impl Ran {
    /// The violations, and the failure if there is one: what is wrong, a sentence each.
    #[must_use]
    pub fn wrongs(&self) -> Vec<String> {
        let broken = self.judged.iter().filter_map(|judged| match &judged.verdict {
            Verdict::Broken(violation) => Some(violation.what.clone()),
            // A promise that cannot be judged is not a promise kept.
            Verdict::Undecided { why } => Some(format!("{}: undecided: {why}", judged.promise)),
            Verdict::Holds { .. } => None,
        });
        self.failure.iter().cloned().chain(broken).collect()
    }

    /// A digest of the history and the trace: equal for equal runs.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut bytes = Vec::new();
        let written = self.history.write(&mut bytes);
        debug_assert!(written.is_ok(), "memory takes all that is written to it");
        bytes.extend_from_slice(self.trace.as_deref().unwrap_or_default().as_bytes());
        digest(&bytes)
    }
}

/// FNV-1a of 64 bits, in hex: distinguishes runs and states, and is no defence against attacks.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Whether bugs can be planted in this build.
#[must_use]
pub fn bugs_can_be_planted() -> bool {
    Planted::is_possible()
}

/// The faults of a run, in order.
#[must_use]
pub fn plan_of(world: &World, options: &Options) -> Vec<Fault> {
    let seed = options.seed.unwrap_or(world.seed);
    let end = options.duration.unwrap_or(world.duration);
    let mut faults = world.faults.clone();
    if options.random_faults
        && let Some(chances) = &world.chances
    {
        let nodes: Vec<usize> = world.sites.iter().map(|site| site.nodes).collect();
        let mut chances = chances.clone();
        let is_deployment = world.is_deployment();
        chances.weights.retain(|kind, _| is_deployment || !kind.needs_deployment());
        faults.extend(plan::draw(seed, &nodes, &chances, end));
    }
    plan::number(faults)
}

/// Runs a world.
#[must_use]
pub fn run(world: &World, options: &Options) -> Ran {
    let mut run = Run::new(world, options);
    let ran = catch_unwind(AssertUnwindSafe(|| run.play()));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        run.fail(format!("a core panicked: {}", text.unwrap_or("without a message")));
    }
    run.finish()
}

struct Run<'w> {
    world: &'w World,
    options: &'w Options,
    seed: u64,
    duration: Duration,
    lab: Lab,
    clients: Option<Clients<'w>>,
    sessions: Option<Sessions<'w>>,
    /// Audits of causal keys.
    unresolved: Vec<Unresolved>,
    plan: Vec<Fault>,
    done: Vec<bool>,
    history: History,
    elections: u64,
    inter_site_bytes: u64,
    /// Which site was seen to hold a slot at an epoch.
    owners: BTreeMap<Epoch, BySlot<deployment::Serving>>,
    /// Sites that are lost one at a time, and since when.
    losing: BTreeMap<usize, Duration>,
    /// The failovers of epochs, in the order in which they were seen. The first stands for none.
    failovers: Vec<Ballot>,
    /// What sites recorded of their backups.
    known: Vec<lost::Observed>,
    /// How far log times may be.
    durations: durations::Durations,
    /// What was seen of loans of groups.
    loans: loans::Seen,
    /// The highest term in which a node of each life of a site was seen to lead.
    terms: BTreeMap<(usize, u64), u64>,
    /// The ring while the clients work.
    pointers: pointers::Pointers,
    /// Slots that a site took while the other sites that have them could not be determined.
    unsure: SlotSet,
    /// The faults that have begun and are not over, by their numbers.
    under_way: BTreeSet<usize>,
    /// Whether who serves which group could not be determined.
    groups_unsure: bool,
    failure: Option<String>,
}

impl<'w> Run<'w> {
    fn new(world: &'w World, options: &'w Options) -> Run<'w> {
        let seed = options.seed.unwrap_or(world.seed);
        let ms = |(from, to): (f64, f64)| {
            (Duration::from_secs_f64(from / 1e3), Duration::from_secs_f64(to / 1e3))
        };
        let settings = Settings {
            sync: ms(world.node.sync_ms),
            background: ms(world.node.snapshot_ms),
            state_persist_permille: world.node.state_persist_permille,
            log_bytes_before_snapshot: world.node.log_bytes_before_snapshot,
            log_entries_kept: world.node.log_entries_kept,
            causal_kept_bytes_max: world.node.causal_kept_bytes_max,
            causal_resync_bytes_max: world.node.causal_resync_bytes_max,
            mirrors: world.node.mirrors,
            equal_clients: false,
            log: storage::log::Options {
                segment_bytes: world.node.log_segment_bytes,
                grow_bytes: world.node.log_segment_bytes / 8,
                reserve_bytes: 0,
            },
            answer_at_front: true,
            notes_order: world.has_causal_keys(),
            notes_groups: world.keyspaces.iter().any(model::KeyspaceSpec::lends),
            answers_token: None,
            planted: options.bug.map_or_else(Planted::default, Planted::of),
            rare_permille: if options.random_faults { world.rare_permille } else { 0 },
        };
        let mut lab = Simulation::new(seed, settings);
        lab.trace = options.trace.then(String::new);
        let plan = plan_of(world, options);
        Run {
            world,
            options,
            seed,
            duration: options.duration.unwrap_or(world.duration),
            lab,
            clients: None,
            sessions: None,
            unresolved: Vec::new(),
            done: vec![false; plan.len()],
            plan,
            history: History::default(),
            elections: 0,
            inter_site_bytes: 0,
            owners: BTreeMap::new(),
            losing: BTreeMap::new(),
            failovers: vec![Ballot::FIRST],
            known: Vec::new(),
            durations: durations::Durations::default(),
            loans: loans::Seen::default(),
            terms: BTreeMap::new(),
            unsure: SlotSet::default(),
            under_way: BTreeSet::new(),
            groups_unsure: false,
            pointers: pointers::Pointers::default(),
            failure: None,
        }
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    fn failed(&mut self) -> bool {
        if let Some(why) = self.lab.failure.take() {
            self.fail(why);
        }
        self.failure.is_some()
    }

    fn play(&mut self) {
        let ids = match self.form() {
            Ok(ids) => ids,
            Err(why) => return self.fail(why),
        };
        let mut sessions = Sessions::new(self.world, self.seed, self.duration, ids.clone());
        let mut clients = Clients::new(self.world, self.seed, self.duration, ids);
        if let Some(gateways) = self.options.gateways {
            clients.go_over(gateways, self.owner_of_each_slot());
        }
        clients.begin(&mut self.lab);
        sessions.begin(&mut self.lab);
        (self.clients, self.sessions) = (Some(clients), Some(sessions));
        for fault in &self.plan {
            let asked = self.options.only.as_ref().is_none_or(|only| only.contains(&fault.number));
            if asked && fault.at < self.duration {
                self.lab.call_after(fault.at, Call::Fault(fault.number));
            }
        }
        self.lab.call_after(TEND, Call::Tend);
        let before = self.lab.inter_site_bytes;
        self.pass_unless(self.duration, |clients| clients.is_done());
        self.inter_site_bytes = self.lab.inter_site_bytes - before;
        if !self.plan.is_empty() {
            apply::end_all(&mut self.lab);
            // A site that comes then has its keys to get first.
            let mut entered = u64::MAX;
            while entered != self.lab.sites_entered {
                entered = self.lab.sites_entered;
                let at_us = self.now_us();
                let text = "all faults have ended".to_owned();
                self.history.marks.push(Mark { at_us, kind: MarkKind::Healed, text });
                self.pass(QUIET);
            }
        }
        self.finish_clients();
        let all: Vec<_> = (0..self.lab.nodes.len()).collect();
        apply::bring_back(&mut self.lab, &all);
        if !self.failed() {
            self.wait_until_whole();
        }
        if !self.failed() {
            self.look_at_maps();
        }
        if !self.failed() {
            self.audit_region();
        }
        if !self.failed() {
            self.audit();
            self.look_at_states();
            self.look_at_ring();
            self.look_at_slots();
            self.look_at_groups();
        }
        self.note_owners();
    }

    /// The sites that are there, and not on their way.
    fn sites_inside(&self) -> Vec<usize> {
        let sites = 0..self.lab.sites.len();
        sites.filter(|site| self.lab.sites[*site].lifecycle == SiteLifecycle::Inside).collect()
    }

    fn now_us(&self) -> u64 {
        self.lab.now().as_micros() as u64
    }

    // ---- work -----------------------------------------------------------------------------------

    /// Lets a span of time pass for clients and nodes.
    fn pass(&mut self, span: Duration) {
        self.pass_unless(span, |_| false);
    }

    /// Lets a span of time pass, or less if something holds before.
    fn pass_unless(&mut self, span: Duration, holds: impl Fn(&Clients<'_>) -> bool) {
        let until = self.lab.now() + span;
        while let Some(clients) = self.clients.as_mut().filter(|clients| !holds(clients)) {
            let stepped = self.lab.step(until);
            match stepped {
                Stepped::Nothing => break,
                Stepped::Something => {}
                Stepped::Call(Call::Client(due)) => clients.take(&mut self.lab, due),
                Stepped::Call(Call::Session(due)) => {
                    if let Some(sessions) = &mut self.sessions {
                        sessions.take(&mut self.lab, due, &mut clients.measure);
                    }
                }
                Stepped::Call(Call::Fault(number)) => self.begin_fault(number),
                Stepped::Call(Call::GoOn(number, began)) => {
                    let since = self.lab.now() - began;
                    let goes_on = apply::go_on(&mut self.lab, &self.plan[number], since);
                    self.under_way.remove(&number);
                    if let Begun::For(more) = goes_on {
                        self.under_way.insert(number);
                        self.lab.call_after(more, Call::GoOn(number, began));
                    }
                    self.note_return(number, goes_on == Begun::Over);
                }
                Stepped::Call(Call::Tend) => {
                    apply::tend(&mut self.lab);
                    self.note_backups();
                    self.note_loans();
                    self.judge_unsure();
                    self.judge_durations();
                    self.lab.call_after(TEND, Call::Tend);
                }
            }
            let has_answers = !self.lab.answered.is_empty() || !self.lab.lost.is_empty();
            if has_answers && let Some(sessions) = &mut self.sessions {
                sessions.take_answers(&mut self.lab);
            }
            if has_answers && let Some(clients) = &mut self.clients {
                clients.take_answers(&mut self.lab);
            }
            if !self.lab.led.is_empty() {
                self.note_leaders();
            }
            if !self.lab.held.is_empty() {
                self.note_owners();
            }
            if std::mem::take(&mut self.lab.ring_changed) {
                self.judge_pointers();
            }
            if std::mem::take(&mut self.lab.loans_changed) {
                self.note_loans();
                self.judge_groups();
            }
        }
    }

    fn begin_fault(&mut self, number: usize) {
        apply::aim(&self.lab, &mut self.plan[number]);
        if self.must_wait(number) {
            return;
        }
        self.note_backups();
        self.note_loans();
        let fault = &self.plan[number];
        let begun = apply::begin(&mut self.lab, fault);
        if begun == Begun::Skipped {
            return;
        }
        self.done[number] = true;
        let (kind, place, span) =
            (fault.kind, fault.place(&self.world.sites), fault.span.as_millis());
        let text = match span {
            0 => format!("#{number} {kind} at {place}"),
            span => format!("#{number} {kind} at {place}, {span} ms"),
        };
        let at_us = self.now_us();
        self.history.marks.push(Mark { at_us, kind: MarkKind::Fault, text });
        self.note_losing(number);
        if let Begun::For(span) = begun {
            let now = self.lab.now();
            self.under_way.insert(number);
            self.lab.call_after(span, Call::GoOn(number, now));
        }
    }

    fn note_leaders(&mut self) {
        for led in std::mem::take(&mut self.lab.led) {
            self.elections += 1;
            let site = self.lab.nodes[led.node].site;
            let term = self.terms.entry((site, self.lab.sites[site].life)).or_default();
            *term = led.term.max(*term);
            let site = self.lab.label(self.lab.nodes[led.node].site);
            self.history.owners.push(Owner {
                at_us: led.at.as_micros() as u64,
                unit: format!("{site}/leader"),
                epoch: led.term,
                owner: self.lab.name(led.node).to_owned(),
            });
        }
    }

    // ---- rest -----------------------------------------------------------------------------------

    fn finish_clients(&mut self) {
        if let (Some(clients), Some(sessions)) = (&mut self.clients, &mut self.sessions) {
            clients.stop();
            sessions.stop();
        }
        let until = self.lab.now() + 2 * clients::OPERATION_MAX;
        while !self.are_clients_idle() && self.lab.now() < until && self.lab.failure.is_none() {
            self.pass(TEND);
        }
        if !self.are_clients_idle() {
            self.failed();
            self.fail("a client was left without an answer past its deadline".to_owned());
        }
    }

    fn are_clients_idle(&self) -> bool {
        self.clients.as_ref().is_none_or(Clients::is_idle)
            && self.sessions.as_ref().is_none_or(Sessions::is_idle)
    }

    fn wait_until_whole(&mut self) {
        let until = self.lab.now() + TIMEOUT;
        let on_their_way = |lab: &Lab| (0..lab.sites.len()).find(|site| lab.is_on_its_way(*site));
        while (on_their_way(&self.lab).is_some() || self.is_one_to_come())
            && self.lab.now() < until
            && self.lab.failure.is_none()
        {
            self.pass(site_lifecycle::STEP);
        }
        if let Some(site) = on_their_way(&self.lab).filter(|_| !self.failed()) {
            let (label, lifecycle) = (self.lab.label(site), self.lab.sites[site].lifecycle);
            self.fail(format!("{label} does not come to an end of {lifecycle:?} after all faults"));
        }
        for site in self.sites_inside() {
            let until = self.lab.now() + TIMEOUT;
            while !self.lab.is_whole(site) && self.lab.now() < until && self.lab.failure.is_none() {
                self.pass(Duration::from_millis(50));
            }
            if !self.lab.is_whole(site) && !self.failed() {
                let name = &self.world.sites[site].name;
                let nodes = self.describe(site);
                self.fail(format!("{name} did not become whole again after all faults: {nodes}"));
            }
        }
        self.note_leaders();
    }

    /// Whether a site that is outside comes back by a fault that is not over.
    fn is_one_to_come(&self) -> bool {
        self.under_way.iter().map(|number| &self.plan[*number]).any(|fault| {
            matches!(fault.kind, Kind::LeaveSite | Kind::RebuildRoot)
                && !self.lab.is_there(fault.site)
        })
    }

    /// The nodes of a site, a short text each.
    fn describe(&self, site: usize) -> String {
        let nodes = self.lab.sites[site].nodes.iter().map(|node| {
            let name = self.lab.name(*node);
            let one = &self.lab.nodes[*node];
            match (self.lab.status(*node), &one.refused) {
                (Some(status), _) => format!(
                    "{name} {:?} in term {}, log {}..={}, applied {}, leader {}, voters {:?}",
                    status.role,
                    status.term,
                    status.first_index,
                    status.last_index,
                    status.applied_index,
                    status.leader.map_or_else(|| "unknown".to_owned(), |node| node.to_string()),
                    status.members.voters,
                ),
                (None, Some(why)) => format!("{name} does not start: {why}"),
                (None, None) if one.up => format!("{name} asks to be taken in"),
                (None, None) => format!("{name} is down"),
            }
        });
        nodes.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Outcome;
    use crate::world::ready;

    fn three_sites(options: &Options) -> Ran {
        run(&ready::load("three-sites", None).unwrap(), options)
    }

    #[test]
    fn a_calm_run_is_answered_and_keeps_its_promises() {
        let duration = Some(Duration::from_secs(20));
        let ran = three_sites(&Options { duration, ..Options::default() });
        assert_eq!(ran.wrongs(), [""; 0]);
        assert!(ran.figures.operations > 500, "{:?}", ran.figures);
        assert_eq!(ran.figures.faults, 0);
        assert!(
            ran.history.operations.iter().all(|one| !matches!(
                one.outcome,
                Outcome::Failed { .. } | Outcome::Unknown { .. }
            ))
        );
        assert!(ran.compared.len() >= 8, "{:?}", ran.compared);
        for line in &ran.compared {
            assert!(line.difference().abs() < 0.02, "{line:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let options = Options {
            seed: Some(3),
            duration: Some(Duration::from_secs(8)),
            random_faults: true,
            trace: true,
            ..Options::default()
        };
        let (first, second) = (three_sites(&options), three_sites(&options));
        assert!(first.figures.faults > 3, "{:?}", first.figures);
        assert!(first.trace == second.trace, "two traces");
        assert_eq!(first.history, second.history);
        assert_eq!(first.digest(), second.digest());
        let other = three_sites(&Options { seed: Some(4), ..options });
        assert_ne!(first.digest(), other.digest());
    }
}
