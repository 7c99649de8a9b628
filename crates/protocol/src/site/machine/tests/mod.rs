//! The machine from outside: commands in, answers out, and what the state must then look like.

mod backups;
mod causal;
mod causal_clear;
mod causal_cuts;
mod causal_expiry;
mod causal_held;
mod causal_interest;
mod causal_orders;
mod causal_rebuilds;
mod causal_regions;
mod causal_restored;
mod causal_retries;
mod causal_rmw;
mod causal_roots;
mod causal_standbys;
mod changes;
mod expiry;
mod hashes;
mod keyspaces;
mod loans;
mod loans_over;
mod loans_sent;
mod loans_taken;
mod moves;
mod orders;
mod placements;
mod queries;
mod registry;
mod requests;
mod restored;
mod sameness;
mod simple;
mod strings;
mod transactions;

use super::deployment::registrar::NOT_ALONE;
use super::records::Record;
use super::store::Store;
use super::{Committed, Machine, Modes, Stopped, tables};
use model::{
    Answer, Bytes, Change, Command, Condition, DeploymentCommand, Expiry, GlobalCommand,
    KeyspaceId, Query, Refusal, RequestId, Revision, SiteEntry, SiteId, SiteName, Write,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::Read;
use storage::state::memory::MemoryState;
use wire::entry::{Batch, take_varint};

/// One replica that applies what it is given, each command in an entry of its own.
struct Site {
    machine: Machine<MemoryState>,
    now_ms: u64,
}

const SPACE: KeyspaceId = KeyspaceId::DEFAULT;

impl Site {
    fn new() -> Site {
        Site { machine: Machine::open(MemoryState::new()).unwrap(), now_ms: 1_000 }
    }

    /// What a job sees of it.
    fn view(&self, now: std::time::Duration) -> crate::job::View<'_, MemoryState> {
        crate::job::View::of(&self.machine, now)
    }

    fn entry(&mut self, commands: Vec<Command>) -> Vec<Result<Answer, Refusal>> {
        let answers = self.entry_unchecked(commands);
        check_state(self.machine.state());
        answers
    }

    /// For so much that looking through all of it after each entry would take long.
    fn entry_unchecked(&mut self, commands: Vec<Command>) -> Vec<Result<Answer, Refusal>> {
        let batch = Batch { log_time_ms: self.now_ms, commands };
        let index = self.machine.applied().index + 1;
        let entry = Committed { index, term: 1, batch: Some(&batch), members: None };
        let mut answers = Vec::new();
        self.machine.apply(&[entry], &mut answers).unwrap();
        assert_eq!(answers.len(), batch.commands.len(), "one answer a command");
        answers
    }

    fn run(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.entry(vec![command]).pop().unwrap()
    }

    fn write_in(&mut self, keyspace: KeyspaceId, write: Write) -> Result<Answer, Refusal> {
        self.run(Command::Write { keyspace, write, request: None })
    }

    fn write(&mut self, write: Write) -> Result<Answer, Refusal> {
        self.write_in(SPACE, write)
    }

    fn write_as(&mut self, request: RequestId, write: Write) -> Result<Answer, Refusal> {
        self.run(Command::Write { keyspace: SPACE, write, request: Some(request) })
    }

    fn tick(&mut self) {
        self.run(Command::Tick).unwrap();
    }

    fn ask_in(&self, keyspace: KeyspaceId, query: Query) -> Result<Answer, Refusal> {
        refused(self.machine.reader().query(keyspace, &query))
    }

    fn ask(&self, query: Query) -> Result<Answer, Refusal> {
        self.ask_in(SPACE, query)
    }

    fn text(&self, key: &'static str) -> Option<String> {
        match self.ask(Query::Get { key: key.into() }).unwrap() {
            Answer::Value(value) => value.map(|v| String::from_utf8(v.value.to_vec()).unwrap()),
            other => panic!("no value: {other:?}"),
        }
    }

    fn version(&self, key: &'static str) -> Revision {
        match self.ask(Query::Versions { keys: vec![key.into()] }).unwrap() {
            Answer::Versions(versions) => versions[0],
            other => panic!("no versions: {other:?}"),
        }
    }

    fn count(&self) -> u64 {
        self.machine.reader().count(SPACE).unwrap()
    }

    fn changes(&self, keyspace: KeyspaceId, after: u64) -> Result<Vec<Change>, Refusal> {
        refused(self.machine.reader().changes(keyspace, Revision(after), 1_000_000))
    }

    /// As after a restart.
    fn reopen(&mut self) {
        let reopened = Machine::open(self.machine.state().clone()).unwrap();
        assert_eq!(reopened.applied(), self.machine.applied());
        assert_eq!(known(&reopened.modes), known(&self.machine.modes));
        self.machine = reopened;
    }

    /// How many rows a table has.
    fn rows(&self, table: u8) -> usize {
        super::rows(self.machine.state(), table).unwrap().len()
    }
}

/// What is in memory of the rows of modes, without what only readers of this process learn by.
fn known(modes: &Modes) -> String {
    let Modes { deployment, outgoing, copies, causal, loans, claims, orders, .. } = modes;
    let Modes { arrivals, mirrors, own_mirrors, given_up, owners, .. } = modes;
    let of_moves = (outgoing, orders, arrivals, copies, mirrors, own_mirrors, given_up, owners);
    let known = format!("{:#?}", (deployment, of_moves, causal, loans, claims));
    known.replace("has_changed: true", "has_changed: false")
}

fn refused<T>(result: Result<T, Stopped>) -> Result<T, Refusal> {
    match result {
        Ok(value) => Ok(value),
        Err(Stopped::Refused(refusal)) => Err(refusal),
        Err(Stopped::Failed(error)) => panic!("{error}"),
        Err(stopped @ Stopped::Due(_)) => panic!("{stopped}"),
    }
}

fn put(key: &'static str, value: &'static str) -> Write {
    put_with(key, value, Condition::Always, Expiry::Never)
}

fn put_with(key: &'static str, value: &'static str, condition: Condition, expiry: Expiry) -> Write {
    Write::Put { key: key.into(), value: value.into(), condition, expiry, return_old: false }
}

fn write(write: Write) -> Command {
    Command::Write { keyspace: SPACE, write, request: None }
}

/// Every row of a state.
fn dump(state: &impl Read) -> BTreeMap<Bytes, Bytes> {
    let mut rows = BTreeMap::new();
    let mut visit = |key, row| {
        assert!(rows.insert(key, row).is_none());
        true
    };
    state.scan(b"", None, &mut visit).unwrap();
    rows
}

/// What must hold of a state after every entry.
fn check_state(state: &impl Read) {
    let rows = dump(state);
    let table = |table: u8| rows.iter().filter(move |(key, _)| key[0] == table);

    let mut counted = BTreeMap::<u64, u64>::new();
    let garbage: Vec<_> =
        table(tables::GARBAGE).map(|(key, _)| take_varint(&key[1..]).unwrap().0).collect();
    let (mut expected, mut agreed) = (Vec::new(), BTreeSet::new());
    for (key, row) in table(tables::RECORDS) {
        let (generation, len) = take_varint(&key[1..]).unwrap();
        let record = Record::decode(row.clone()).unwrap();
        *counted.entry(generation).or_default() += u64::from(!record.is_vacant);
        if let Some(expiry) = record.agreed() {
            let moment = super::causal::of_expiry(expiry.ms, generation, &key[1 + len..]);
            // That of garbage may go before its record does.
            if !garbage.contains(&generation) || rows.contains_key(&moment[..]) {
                agreed.insert(moment);
            }
        } else if let Some(ms) = record.expires_ms {
            expected.push(Bytes::from(tables::expiry(ms, generation, &key[1 + len..])));
        }
    }
    expected.sort();
    let causal = super::causal::of_expiry(0, 0, b"");
    let moments = rows.keys().filter(|key| key.starts_with(&causal[..2])).map(|key| key.to_vec());
    assert_eq!(moments.collect::<BTreeSet<_>>(), agreed, "moments and records agree");
    let expiries: Vec<_> = table(tables::EXPIRIES).map(|(key, _)| key.clone()).collect();
    // An expiry of garbage may go before its record does, and no other one.
    expected.retain(|key| {
        let (_, generation, _) = tables::parse_expiry(key).unwrap();
        !garbage.contains(&generation) || expiries.contains(key)
    });
    assert_eq!(expiries, expected, "expiries and records agree");
    let mut expiring = BTreeMap::<u64, u64>::new();
    for key in &expiries {
        let (_, generation, _) = tables::parse_expiry(key).unwrap();
        *expiring.entry(generation).or_default() += 1;
    }
    let counts = table(tables::EXPIRING)
        .map(|(key, row)| (take_varint(&key[1..]).unwrap().0, take_varint(row).unwrap().0));
    assert_eq!(counts.collect::<BTreeMap<_, _>>(), expiring, "expiries are counted");

    let keyspaces = super::keyspaces::Keyspaces::load(state).unwrap();
    for (id, generation) in keyspaces.generations() {
        let count = counted.remove(&generation).unwrap_or(0);
        assert_eq!(keyspaces.count(id), count, "the count of {id}");
    }
    let stores = [tables::STORES, tables::STAGED, tables::MIRRORED, tables::COPIED];
    let resynced = rows.iter().filter(|(key, _)| key.starts_with(&super::causal::STAGED_ROWS));
    for (key, row) in stores.into_iter().flat_map(table).chain(resynced) {
        let Store { generation, count } = wire::row::decode(row).unwrap();
        assert_eq!(counted.remove(&generation).unwrap_or(0), count, "the count of {key:?}");
    }
    for (key, row) in table(tables::PARTS) {
        let part: super::global::loans::PartRow = wire::row::decode(row).unwrap();
        if part.generation != super::global::stores::EMPTY {
            let count = counted.remove(&part.generation).unwrap_or(0);
            assert_eq!(part.keys, count, "the count of {key:?}");
        }
    }
    for generation in counted.keys() {
        assert!(garbage.contains(generation), "generation {generation} belongs to no keyspace");
    }

    let mut changes = BTreeMap::<KeyspaceId, u64>::new();
    for (key, _) in table(tables::CHANGES) {
        *changes.entry(tables::parse_keyspace(key).unwrap()).or_default() += 1;
    }
    for (key, row) in table(tables::LOGS) {
        let (_, len) = take_varint(&row[1..]).unwrap();
        let (count, _) = take_varint(&row[1 + len..]).unwrap();
        let there = changes.remove(&tables::parse_keyspace(key).unwrap()).unwrap_or(0);
        assert_eq!(count, there, "a log counts its changes");
    }
    assert!(changes.is_empty(), "changes of no log: {changes:?}");
}

/// A site of a deployment, as it is stated when it joins.
fn entry(name: &str) -> SiteEntry {
    SiteEntry {
        id: SiteId(0),
        name: SiteName::new(name).unwrap(),
        incarnation: 1,
        capacity_percent: 100,
        leaving: false,
        failure_domain: None,
        borrowed_bytes_max: None,
        region: None,
        nodes: Vec::new(),
    }
}
