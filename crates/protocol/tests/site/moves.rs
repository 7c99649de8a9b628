//! Golden scripts of several sites: how slots change hands, step by step, and what a crash, a lost
//! message or an operator in between does to that. `UPDATE_GOLDENFILES=1` rewrites them.
//!
//! Shown are the messages between sites (⇒; ⇥ what is held, ✗ what is lost), what their leaders put
//! into their logs about a move, the owners of slots, clients, and crashes. Messages between the
//! nodes of one site are left out, and so are the ring and the registry. Links between sites take
//! 10 ms.
//!
//! | command | what it does |
//! | --- | --- |
//! | `sites west=3 east=1` | a deployment of these sites, with a keyspace `k`; its slots are where they belong, but that of `k2` at the first site; shows nothing |
//! | `home k1` | which site the slot of a key belongs to, and its number |
//! | `move k1 west east` | west hands the slot of a key to east |
//! | `order k1 east at=south/n1 number=7` | an operator asks a node of south to have all sites hand the slot to east |
//! | `pause west`, `resume west`, `takeback west` | of the last move that west began |
//! | `pause_job west handover`, `resume_job west handover` | an operator pauses a job of a site's leader |
//! | `put k1 v at=west/n1 [number=7]`, `add`, `get` | a client of a node asks; `number`: it numbers its write |
//! | `hold west east`, `deliver west east [3]`, `lose west east [3]`, `release west east` | messages from west to east |
//! | `refuse west east` | east is asked to refuse the last move that west began |
//! | `leave west` | an operator orders a site to leave |
//! | `sites_left` | the sites of the registry, as each one's leader has it |
//! | `run 100`, `skip 100` | lets so many milliseconds pass; `skip` shows nothing of them |
//! | `until west logs freeze` | lets time pass until a node of west puts that into its log |
//! | `until east hears chunk` | lets time pass until a message with that text reaches east |
//! | `until east holds` | lets time pass until slots are east's |
//! | `crash west/n1`, `crash west leader`, `restart west` | nodes die; all of a site that are down come back |
//! | `owners k1` | which sites hold, or hand over, the slot of a key |

#![expect(clippy::disallowed_methods, reason = "the scripts are files")]

use goldenscript::{Command as Line, Context, Runner};
use lab::link::Link;
use lab::simulation::{Down, NodeIndex, Settings, Simulation};
use model::{
    Answer, Body, ClientId, Command, Condition, DeploymentCommand, DeploymentId, DestinationStep,
    Expiry, GlobalCommand, KeyspaceId, KeyspaceSpec, MoveId, Query, ReadConsistency,
    RegistryChange, Request, RequestId, Slot, SlotSet, SourceStep, Write,
};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

type Failed = Box<dyn Error>;

/// How long one waits for something that must come.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer lines than this are cut.
const LINE_MAX: usize = 200;
/// A key whose slot is the first site's.
const KEY: &str = "k2";
/// A client that numbers its writes.
const CLIENT: ClientId = ClientId(77);

struct Script {
    world: Simulation,
    space: KeyspaceId,
    shown: usize,
    /// A time of which nothing was shown yet.
    at: Option<String>,
    /// Entries that were shown: those of a site go to each of its nodes.
    logged: BTreeSet<String>,
}

impl Script {
    fn new() -> Script {
        // Mirrors would be notified all the while; they are not the subject here.
        let world = Simulation::new(1, Settings { mirrors: false, ..Settings::default() });
        Script { world, space: KeyspaceId::DEFAULT, shown: 0, at: None, logged: BTreeSet::new() }
    }

    fn site(&self, name: Option<&str>) -> Result<usize, Failed> {
        let name = name.ok_or("which site?")?;
        let found = self.world.sites.iter().position(|site| site.name == name);
        found.ok_or_else(|| format!("there is no site {name}").into())
    }

    fn node(&self, name: &str) -> Result<NodeIndex, Failed> {
        let found = (0..self.world.nodes.len()).find(|node| self.world.name(*node) == name);
        found.ok_or_else(|| format!("there is no node {name}").into())
    }

    fn ask(&mut self, node: NodeIndex, body: Body) -> Result<(), Failed> {
        let request = Request::new(body);
        self.world.ask(node, request).ok_or("it is down")?;
        Ok(())
    }

    /// Asks a site's leader, and waits for the answer.
    fn ask_and_wait(&mut self, site: usize, body: Body) -> Result<Answer, Failed> {
        let leader = self.world.leader(site).ok_or("no node leads")?;
        self.ask(leader, body)?;
        let has_answer = |world: &Simulation| !world.answered.is_empty();
        if !self.world.run_until(TIMEOUT, has_answer) {
            return Err("no answer".into());
        }
        Ok(self.world.answered.pop().ok_or("no answer")?.outcome?)
    }

    fn begin(&mut self, sites: Vec<(String, usize)>) -> Result<(), Failed> {
        *self = Script::new();
        for (place, (name, nodes)) in sites.iter().enumerate() {
            self.world.add_site(name.as_str(), Link::constant(1.0));
            for _ in 0..*nodes {
                self.world.add_node(place, false);
            }
        }
        for place in 0..sites.len() {
            if !self.world.run_until(TIMEOUT, |world| world.is_whole(place)) {
                return Err("a site did not form".into());
            }
        }
        let entry = |script: &Script, site| script.world.entry(site).ok_or("no name of a site");
        let found = Command::Deployment(DeploymentCommand::Found {
            deployment: DeploymentId(1),
            site: entry(self, 0)?,
        });
        self.ask_and_wait(0, Body::Write(found))?;
        for site in 1..sites.len() {
            let join = Command::Deployment(DeploymentCommand::ChangeRegistry(
                RegistryChange::Join(entry(self, site)?),
            ));
            let Answer::Registered { site: id, registry } =
                self.ask_and_wait(0, Body::Write(join))?
            else {
                return Err("joining was answered by something else".into());
            };
            self.ask_and_wait(
                site,
                Body::Write(Command::Deployment(DeploymentCommand::Enter { site: id, registry })),
            )?;
        }
        let spec = KeyspaceSpec::linearizable_global("k", "k");
        let made = self.ask_and_wait(0, Body::Write(Command::CreateKeyspace(spec)))?;
        let Answer::Keyspace(made) = made else { return Err("no keyspace".into()) };
        self.space = made.id;
        let settled = |world: &Simulation| {
            let held = (0..world.sites.len()).map(|site| {
                world.leader(site).map_or(0, |leader| world.held_slots(leader).0.len())
            });
            let held: Vec<usize> = held.collect();
            held.iter().sum::<usize>() == usize::from(Slot::COUNT)
                && held.iter().all(|held| *held > 0)
        };
        self.world.run(Duration::from_secs(3));
        if !self.world.run_until(TIMEOUT, settled) {
            return Err("slots did not arrive".into());
        }
        self.world.run(Duration::from_secs(2));
        let slots = slot(Some(KEY))?;
        let holds = |world: &Simulation, site| {
            let leader = world.leader(site);
            let held = leader.map(|leader| world.held_slots(leader).0);
            held.is_some_and(|held| slots.iter().all(|slot| held.contains(&slot)))
        };
        let to = self.world.sites[0].id.ok_or("it is in no deployment")?;
        if let Some(owner) = (1..sites.len()).find(|site| holds(&self.world, *site)) {
            let step = SourceStep::Begin { slots: slots.clone(), to, pinned: true };
            self.give(owner, 0, step)?;
            self.world.run(Duration::from_secs(2));
        }
        self.world.answered.clear();
        self.world.trace = Some(String::new());
        self.shown = 0;
        Ok(())
    }

    /// What was noted since this was called last, without what is not worth it.
    fn show(&mut self) -> String {
        let trace = self.world.trace.as_deref().unwrap_or_default();
        let (mut shown, at) = (String::new(), &mut self.at);
        let logged = &mut self.logged;
        for line in trace[self.shown..].lines() {
            if line.starts_with("@ ") {
                *at = Some(line.to_owned());
                continue;
            }
            if let Some(line) = worth(line, logged) {
                if let Some(at) = at.take() {
                    shown.push_str(&at);
                    shown.push('\n');
                }
                shown.push_str(&line);
                shown.push('\n');
            }
        }
        self.shown = trace.len();
        shown
    }

    /// Lets time pass until the trace has something new.
    fn until(&mut self, is_it: impl Fn(&str) -> bool) -> Result<(), Failed> {
        let (until, mut seen) = (self.world.now() + TIMEOUT, self.trace_len());
        while self.world.now() < until {
            let stepped = self.world.step(until);
            let trace = self.world.trace.as_deref().unwrap_or_default();
            let said = trace[seen..].lines().any(&is_it);
            seen = trace.len();
            if said || matches!(stepped, lab::simulation::Stepped::Nothing) {
                return if said { Ok(()) } else { Err("it never came to that".into()) };
            }
        }
        Err("it never came to that".into())
    }

    fn trace_len(&self) -> usize {
        self.world.trace.as_ref().map_or(0, String::len)
    }

    /// The last move that a site began, by what its leader has logged.
    fn last_move(&self, site: usize) -> Result<u64, Failed> {
        let leader = self.world.leader(site).ok_or("no node leads")?;
        let moves = self.world.moves(leader);
        moves.last().map(|one| one.number).ok_or_else(|| "it has no move".into())
    }

    fn give(&mut self, site: usize, number: u64, step: SourceStep) -> Result<(), Failed> {
        let leader = self.world.leader(site).ok_or("no node leads")?;
        self.ask(leader, Body::Write(Command::Global(GlobalCommand::Source { number, step })))
    }

    fn owners(&self, key: &str) -> String {
        let slot = Slot::of_key(key.as_bytes());
        let mut text = String::new();
        for (place, site) in self.world.sites.iter().enumerate() {
            let leader = self.world.leader(place);
            let token = leader.and_then(|leader| self.world.token(leader, slot));
            let token = token.unwrap_or_else(|| "no node leads".to_owned());
            text.push_str(&format!("{}: {token}\n", site.name));
        }
        text
    }
}

/// A line of the trace as it is shown; nothing, if it is not worth it.
fn worth(line: &str, shown: &mut BTreeSet<String>) -> Option<String> {
    let inter_site = [" ⇒ ", " ⇥ ", " ✗ "].iter().any(|arrow| line.contains(arrow));
    if inter_site {
        let of_registry =
            ["  Registry", "  Forward promise", "  Forward accept", "  Forward learn"];
        let of_registrars = ["promised, has", "Answered accepted", "refused, has promised"];
        let mut dull = ["  Ring", "None"].iter().chain(&of_registry).chain(&of_registrars);
        let dull = dull.any(|words| line.contains(words));
        return (!dull && line.contains('/')).then(|| line.to_owned());
    }
    if let Some((node, logged)) = line.split_once(": persists ") {
        // Which commands about moves are in it.
        let begin = logged.find('[')?;
        let end = logged.rfind(']')?;
        let site = node.split('/').next().unwrap_or_default();
        let entries = logged.get(begin + 1..end)?.split(", ");
        let moves = entries.filter(|one| one.contains("give ") || one.contains("receive "));
        let new = moves.filter(|one| shown.insert(format!("{site} {one}")));
        let moves: Vec<&str> =
            new.map(|one| one.split_once(' ').map_or(one, |(_, what)| what)).collect();
        return (!moves.is_empty()).then(|| format!("{node}: logs {}", moves.join(", ")));
    }
    let reported = [": asked #", ": answers #", ": holds ", ": starts", ": crashes"];
    let is_reported = reported.iter().any(|word| line.contains(word));
    is_reported.then(|| match line.len() {
        0..=LINE_MAX => line.to_owned(),
        // All slots of a site.
        _ => format!("{} ...", line.chars().take(40).collect::<String>()),
    })
}

fn slot(key: Option<&str>) -> Result<SlotSet, Failed> {
    let key = key.ok_or("the slot of which key?")?;
    Ok([Slot::of_key(key.as_bytes())].into_iter().collect())
}

/// A line of a script.
struct Said<'a> {
    name: &'a str,
    words: Vec<String>,
    at: Option<String>,
    number: Option<u64>,
}

impl Said<'_> {
    fn word(&self, place: usize) -> Option<&str> {
        self.words.get(place).map(String::as_str)
    }

    fn key(&self) -> Result<model::Bytes, Failed> {
        Ok(self.word(0).ok_or("which key?")?.to_owned().into())
    }

    fn at(&self) -> Result<&str, Failed> {
        Ok(self.at.as_deref().ok_or("which node is asked? (at=west/n1)")?)
    }

    fn request(&self) -> Option<RequestId> {
        let numbered = |sequence| RequestId { client: CLIENT, sequence, acknowledged_below: 0 };
        self.number.map(numbered)
    }
}

/// What becomes of a line, by those who know its command.
enum Done {
    /// The trace shows it.
    Traced,
    Shown(String),
    /// Another has to know it.
    NotKnown,
}

impl Script {
    /// What clients do.
    fn client(&mut self, line: &Said<'_>) -> Result<Done, Failed> {
        let (keyspace, request) = (self.space, line.request());
        let write = |write| Body::Write(Command::Write { keyspace, write, request });
        let body = match line.name {
            "put" => write(Write::Put {
                key: line.key()?,
                value: line.word(1).ok_or("which value?")?.to_owned().into(),
                condition: Condition::Always,
                expiry: Expiry::Never,
                return_old: false,
            }),
            "add" => write(Write::Add { key: line.key()?, delta: 1 }),
            "get" => Body::Read {
                keyspace,
                query: Query::Get { key: line.key()? },
                consistency: ReadConsistency::Linearizable,
            },
            _ => return Ok(Done::NotKnown),
        };
        let node = self.node(line.at()?)?;
        self.ask(node, body)?;
        Ok(Done::Traced)
    }

    /// What operators do.
    fn operator(&mut self, line: &Said<'_>) -> Result<Done, Failed> {
        match line.name {
            "move" => {
                let (from, to) = (self.site(line.word(1))?, self.site(line.word(2))?);
                let to = self.world.sites[to].id.ok_or("it is in no deployment")?;
                self.give(
                    from,
                    0,
                    SourceStep::Begin { slots: slot(line.word(0))?, to, pinned: true },
                )?;
            }
            "order" => {
                let (slots, to) = (slot(line.word(0))?, self.site(line.word(1))?);
                let to = self.world.sites[to].id.ok_or("it is in no deployment")?;
                let node = self.node(line.at()?)?;
                let id = line.request().ok_or("under which number? (number=7)")?;
                let sites: Vec<_> = self.world.sites.iter().filter_map(|site| site.id).collect();
                for site in sites {
                    let step = SourceStep::Order { id, slots: slots.clone(), to };
                    let command =
                        Box::new(Command::Global(GlobalCommand::Source { number: 0, step }));
                    self.ask(node, Body::AtSite { site, command })?;
                }
            }
            "pause" | "resume" | "takeback" => {
                let site = self.site(line.word(0))?;
                let number = self.last_move(site)?;
                let step = match line.name {
                    "pause" => SourceStep::Pause(true),
                    "resume" => SourceStep::Pause(false),
                    _ => SourceStep::Abort { refused: false },
                };
                self.give(site, number, step)?;
            }
            "pause_job" | "resume_job" => {
                let job = line.word(1).and_then(|name| name.parse().ok()).ok_or("which job?")?;
                let leader = self.world.leader(self.site(line.word(0))?).ok_or("no node leads")?;
                let paused = line.name == "pause_job";
                self.ask(leader, Body::SwitchJob { job, paused })?;
            }
            "refuse" => {
                let (from, to) = (self.site(line.word(0))?, self.site(line.word(1))?);
                let number = self.last_move(from)?;
                let from = self.world.sites[from].id.ok_or("it is in no deployment")?;
                let id = MoveId { from, number };
                let refuse = Command::Global(GlobalCommand::Destination {
                    id,
                    step: DestinationStep::Refuse,
                });
                let leader = self.world.leader(to).ok_or("no node leads")?;
                self.ask(leader, Body::Write(refuse))?;
            }
            "leave" => {
                let site = self.site(line.word(0))?;
                let id = self.world.sites[site].id.ok_or("it is in no deployment")?;
                let leader = self.world.leader(site).ok_or("no node leads")?;
                let leave = Command::Deployment(DeploymentCommand::ChangeRegistry(
                    RegistryChange::Leave(id),
                ));
                self.ask(leader, Body::Write(leave))?;
            }
            _ => return Ok(Done::NotKnown),
        }
        Ok(Done::Traced)
    }

    /// What is asked of the world: how it is, and that time passes.
    fn observer(&mut self, line: &Said<'_>) -> Result<Done, Failed> {
        match line.name {
            "home" => {
                let slots = slot(line.word(0))?;
                let mut owners = self.owners(line.word(0).unwrap_or_default());
                owners.insert_str(0, &format!("slot {slots}\n"));
                return Ok(Done::Shown(owners));
            }
            "owners" => return Ok(Done::Shown(self.owners(line.word(0).ok_or("which key?")?))),
            "sites_left" => {
                let names = |registry: &model::Registry| {
                    let names = registry.sites.iter().map(|site| site.name.to_string());
                    names.collect::<Vec<_>>().join(", ")
                };
                let sites = self.world.sites.iter().enumerate().map(|(place, site)| {
                    let leader = self.world.leader(place);
                    let registry = leader.and_then(|leader| self.world.registry(leader));
                    let names = registry.map_or_else(String::new, |registry| names(&registry));
                    format!("{} lists {names}\n", site.name)
                });
                return Ok(Done::Shown(sites.collect()));
            }
            "skip" => {
                let ms = line.word(0).ok_or("for how long?")?.parse()?;
                self.world.run(Duration::from_millis(ms));
                drop(self.show());
            }
            "run" => {
                let ms = line.word(0).ok_or("for how long?")?.parse()?;
                self.world.run(Duration::from_millis(ms));
            }
            "until" => {
                let site = format!("{}/", line.word(0).ok_or("which site?")?);
                let what = line.words.get(2..).unwrap_or_default().join(" ");
                match line.word(1) {
                    Some("logs") => self.until(|noted| {
                        noted.starts_with(&site)
                            && noted.contains(" persists")
                            && noted.contains(&what)
                    })?,
                    Some("hears") => self.until(|noted| {
                        noted.contains(&format!(" ⇒ {site}")) && noted.contains(&what)
                    })?,
                    Some("holds") => {
                        self.until(|noted| noted.starts_with(&site) && noted.contains(": holds "))?
                    }
                    _ => return Err("logs, hears or holds".into()),
                }
            }
            _ => return Ok(Done::NotKnown),
        }
        Ok(Done::Traced)
    }

    /// What happens to nodes and links.
    fn fault(&mut self, line: &Said<'_>) -> Result<Done, Failed> {
        match line.name {
            "hold" | "deliver" | "lose" | "release" => {
                let (from, to) = (self.site(line.word(0))?, self.site(line.word(1))?);
                let count = line.word(2).map(str::parse).transpose()?.unwrap_or(usize::MAX);
                match line.name {
                    "hold" => self.world.hold_sites(from, to),
                    "deliver" => drop(self.world.deliver_held(from, to, count)),
                    "lose" => drop(self.world.drop_held(from, to, count)),
                    _ => drop(self.world.release_sites(from, to)),
                }
            }
            "crash" => {
                let node = match line.word(1) {
                    Some("leader") => {
                        let site = self.site(line.word(0))?;
                        self.world.leader(site).ok_or("no node leads")?
                    }
                    _ => self.node(line.word(0).ok_or("which node?")?)?,
                };
                self.world.crash(node, &Down::Killed);
            }
            "restart" => {
                let site = self.site(line.word(0))?;
                for node in self.world.sites[site].nodes.clone() {
                    self.world.start(node);
                }
            }
            _ => return Ok(Done::NotKnown),
        }
        Ok(Done::Traced)
    }
}

impl Runner for Script {
    type Command = Line;

    fn run(&mut self, line: &Line, _: &Context) -> Result<String, Failed> {
        let mut args = line.consume_args();
        if line.name == "sites" {
            let mut sites = Vec::new();
            while let Some((name, nodes)) = args.next_key() {
                sites.push((name.to_owned(), nodes.parse()?));
            }
            self.begin(sites)?;
            return Ok(String::new());
        }
        let at = args.take_key("at").map(str::to_owned);
        let number = args.take_key("number").map(str::parse).transpose()?;
        let mut words = Vec::new();
        while let Some(word) = args.next_pos() {
            words.push(word.to_owned());
        }
        args.reject_next()?;
        let line = Said { name: &line.name, words, at, number };
        let mut done = Done::NotKnown;
        for does in [Script::client, Script::operator, Script::observer, Script::fault] {
            if matches!(done, Done::NotKnown) {
                done = does(self, &line)?;
            }
        }
        match done {
            Done::Shown(text) => return Ok(text),
            Done::NotKnown => return Err(format!("there is no command {}", line.name).into()),
            Done::Traced => {}
        }
        if let Some(why) = &self.world.failure {
            return Err(why.clone().into());
        }
        Ok(self.show())
    }
}

#[test]
fn scripts_of_moves() {
    let folder = Path::new("tests/moves");
    let entries = std::fs::read_dir(folder).expect("the scripts are there");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    names.sort();
    assert!(!names.is_empty());
    for path in names {
        goldenscript::run(&mut Script::new(), &path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
