//! What the order of causal keys costs: `cargo run --release -p protocol --example measure_order`.
//!
//! Prints ns for each write of others that a root orders, imports into its own records and trims,
//! and that another site imports: in batches as they travel, on the state in memory and on the real
//! one (in the folder given, or target/measure_order). Processor time of this thread alone: the
//! engine's own threads, the log and the network do not count.

#![allow(clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use model::{
    Bytes, CausalCommand, CausalWrite, Command, DeploymentCommand, DeploymentId, Effect, Import,
    KeyspaceId, KeyspaceSpec, Offer, Position, Registry, RegistryChange, Revision, SiteEntry,
    SiteId, SiteName,
};
use protocol::site::machine::{Committed, Machine};
use std::path::PathBuf;
use storage::state::State;
use storage::state::fjall::{FjallState, Options};
use storage::state::memory::MemoryState;
use wire::entry;

const OFFERS: u64 = 400;
/// What fits an offer, with values of this size.
const WRITES: u64 = 1_024;
const VALUE_BYTES: usize = 100;
const KEYS: u64 = 100_000;
const CARS: KeyspaceId = KeyspaceId(1);
const ROOT: SiteId = SiteId(1);
const ORIGIN: SiteId = SiteId(2);
const OTHER: SiteId = SiteId(3);

/// Time that this thread has had on a processor.
fn busy_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

struct Site<S: State> {
    machine: Machine<S>,
    index: u64,
}

impl<S: State> Site<S> {
    fn open(state: S) -> Site<S> {
        Site { machine: Machine::open(state).expect("the state is fresh"), index: 0 }
    }

    fn run(&mut self, command: Command) {
        self.index += 1;
        let batch = entry::Batch { log_time_ms: 1_000, commands: vec![command] };
        let entry = Committed { index: self.index, term: 1, batch: Some(&batch), members: None };
        let mut answers = Vec::new();
        self.machine.apply(&[entry], &mut answers).expect("the machine goes on");
        answers.pop().expect("an answer a command").expect("it is done");
    }

    /// ns of this thread that a command takes.
    fn timed(&mut self, command: CausalCommand) -> u64 {
        let begin_ns = busy_ns();
        self.run(Command::Causal(command));
        busy_ns() - begin_ns
    }

    fn registry(&self) -> Registry {
        (*self.machine.membership().expect("it is a member").registry).clone()
    }
}

fn site(name: &str) -> SiteEntry {
    SiteEntry {
        id: SiteId(0),
        name: SiteName::new(name).expect("a site's name"),
        incarnation: 1,
        capacity_percent: 100,
        leaving: false,
        failure_domain: None,
        region: None,
        borrowed_bytes_max: None,
        nodes: Vec::new(),
    }
}

fn change<S: State>(site: &mut Site<S>, change: RegistryChange) {
    site.run(Command::Deployment(DeploymentCommand::ChangeRegistry(change)));
}

fn write(revision: u64) -> CausalWrite {
    let spread = revision.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
    let key = Bytes::from(format!("car:{spread:012}"));
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    CausalWrite {
        revision: Revision(revision),
        seen: Position(0),
        keyspace: CARS,
        effects: vec![Effect::Put { key, value }],
    }
}

fn measure(name: &str, root: impl State, other: impl State) {
    let (mut root, mut other) = (Site::open(root), Site::open(other));
    let found = DeploymentCommand::Found { deployment: DeploymentId(7), site: site("root") };
    root.run(Command::Deployment(found));
    change(&mut root, RegistryChange::Join(site("origin")));
    change(&mut root, RegistryChange::Join(site("other")));
    root.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("cars", "car:")));
    let registry = Box::new(root.registry());
    other.run(Command::Deployment(DeploymentCommand::Enter { site: OTHER, registry }));
    let [mut order_ns, mut import_ns, mut trim_ns, mut other_ns] = [0; 4];
    let mut from = Position(0);
    for offer in 0..OFFERS {
        let first = offer * WRITES;
        let writes: Vec<_> = (1..=WRITES).map(|number| write(first + number)).collect();
        let offer = Offer { site: ORIGIN, after: Revision(first), writes };
        order_ns += root.timed(CausalCommand::Order { epoch: 1, offer });
        let upto = root.machine.causal().order_last();
        let ordered = root.machine.ordered(from, usize::MAX).expect("the state is readable");
        let entries = ordered.into_iter();
        let entries =
            entries.map(|(position, site, write)| Import::Other { position, site, write });
        let import = CausalCommand::Import { from, upto, entries: entries.collect() };
        import_ns += root.timed(import.clone());
        other_ns += other.timed(import);
        trim_ns += root.timed(CausalCommand::Trim { upto });
        from = upto;
    }
    assert_eq!(root.machine.causal().applied(), other.machine.causal().applied());
    assert!(root.machine.is_root() && ROOT != OTHER);
    let [order, import, trim, other] =
        [order_ns, import_ns, trim_ns, other_ns].map(|ns| ns / (OFFERS * WRITES));
    println!(
        "{name:>8}: a write of {VALUE_BYTES} B: order {order:>5} ns, import {import:>5} ns, trim \
         {trim:>5} ns: {:>7} a second; import at another site {other:>5} ns",
        1_000_000_000 / (order + import + trim).max(1),
    );
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/measure_order".to_owned());
    measure("memory", MemoryState::new(), MemoryState::new());
    let open = |name: &str| {
        let path = PathBuf::from(&folder).join(name);
        FjallState::remove(&path).expect("the folder can be removed");
        FjallState::open(&path, Options::default()).expect("the folder can be used")
    };
    measure("fjall", open("root"), open("other"));
}
