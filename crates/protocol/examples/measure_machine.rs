//! What the state machine costs: `cargo run --release -p protocol --example measure_machine`.
//!
//! Prints ns per put (applied in entries of 128) and per get, on the state in memory and on the
//! real one (in the folder given, or target/measure_machine), and beside it what of that is the
//! engine's. Processor time of this thread alone: the engine's own threads and other processes do
//! not count.

#![allow(clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use model::{Bytes, Command, Condition, Expiry, KeyspaceId, Query, Write};
use protocol::site::machine::{Committed, Machine};
use std::path::PathBuf;
use storage::state::fjall::{FjallState, Options};
use storage::state::memory::MemoryState;
use storage::state::{Batch, State};
use wire::entry;

const ENTRIES: u64 = 2_000;
const COMMANDS: u64 = 128;
const KEYS: u64 = 100_000;

/// Time that this thread has had on a processor.
fn busy_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn key(number: u64) -> Bytes {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
    Bytes::from(format!("key:{spread:012}"))
}

fn batch(index: u64) -> entry::Batch {
    let put = |i: u64| Write::Put {
        key: key(index * COMMANDS + i),
        value: Bytes::from(vec![b'x'; 100]),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    let command =
        |i| Command::Write { keyspace: KeyspaceId::DEFAULT, write: put(i), request: None };
    entry::Batch { log_time_ms: 1_000, commands: (0..COMMANDS).map(command).collect() }
}

fn measure(name: &str, state: impl State, engine: impl State) {
    let mut machine = Machine::open(state).expect("the state is fresh");
    let mut answers = Vec::new();
    let (mut put_ns, mut engine_ns) = (0, 0);
    for index in 1..=ENTRIES {
        let mut changes = Batch::default();
        for i in 0..COMMANDS {
            changes.put(key(index * COMMANDS + i), vec![b'x'; 107]);
        }
        let begin_ns = busy_ns();
        for key in changes.keys() {
            engine.get(key).expect("the state is readable");
        }
        engine.commit(changes).expect("the state is writable");
        engine_ns += busy_ns() - begin_ns;

        let batch = batch(index);
        answers.clear();
        let begin_ns = busy_ns();
        let entry = Committed { index, term: 1, batch: Some(&batch), members: None };
        machine.apply(&[entry], &mut answers).expect("the machine goes on");
        put_ns += busy_ns() - begin_ns;
    }

    let reader = machine.reader();
    let gets = 500_000;
    let queries: Vec<_> = (0..gets).map(|i| Query::Get { key: key(i) }).collect();
    let begin_ns = busy_ns();
    for query in &queries {
        reader.query(KeyspaceId::DEFAULT, query).expect("the state is readable");
    }
    let get_ns = busy_ns() - begin_ns;

    let commands = ENTRIES * COMMANDS;
    println!(
        "{name:>8}: put {:>5} ns (the engine's share {:>5} ns), get {:>5} ns",
        put_ns / commands,
        engine_ns / commands,
        get_ns / gets
    );
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/measure_machine".to_owned());
    measure("memory", MemoryState::new(), MemoryState::new());
    let open = |name: &str| {
        let path = PathBuf::from(&folder).join(name);
        FjallState::remove(&path).expect("the folder can be removed");
        FjallState::open(&path, Options::default()).expect("the folder can be used")
    };
    measure("fjall", open("machine"), open("engine"));
}
