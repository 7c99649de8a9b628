//! What is measured: the rows of the table, the systems in each, and the bar it sets for us.

use super::systems::System;

/// Keys in the rows that drive a load; all of them exist before anything is measured.
pub(super) const KEYS: u64 = 10_000;

/// The row about memory and start-up.
pub(super) const COST: &str = "million";
/// The row about a killed leader.
pub(super) const FAILOVER: &str = "failover";

/// How many nodes stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    Three,
}

/// In the order in which they are visited.
pub(super) const SHAPES: [Shape; 2] = [Shape::Three, Shape::One];

/// The protocol that `load` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp,
    Etcd,
    Portolan,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Etcd => "etcd",
            Self::Portolan => "portolan",
        }
    }
}

/// A system by one of its protocols.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    pub(super) label: &'static str,
    pub(super) system: System,
    pub(super) protocol: Protocol,
}

/// What our figure must be, compared with the other system's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
    /// At least so many times its throughput.
    Throughput(f64),
    /// The same, and a 99th percentile that is no worse.
    ThroughputAndP99(f64),
    /// A median latency that is no worse.
    Latency,
}

/// A row that drives a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) shape: Shape,
    pub(super) clients: usize,
    pub(super) pipeline: usize,
    /// Gets only, or puts only.
    pub(super) gets: bool,
    pub(super) value_bytes: usize,
    /// Ours first; the last one sets the bar.
    pub(super) contestants: &'static [Contestant],
    pub(super) bar: Bar,
}

const REDIS: Contestant =
    Contestant { label: "Portolan, Redis", system: System::Portolan, protocol: Protocol::Resp };
const GRPC: Contestant =
    Contestant { label: "Portolan, gRPC", system: System::Portolan, protocol: Protocol::Portolan };
const ETCD: Contestant =
    Contestant { label: "etcd, gRPC", system: System::Etcd, protocol: Protocol::Etcd };
const VALKEY: Contestant =
    Contestant { label: "Valkey, Redis", system: System::Valkey, protocol: Protocol::Resp };

const BESIDE_ETCD: Load = Load {
    name: "",
    title: "",
    shape: Shape::Three,
    clients: 256,
    pipeline: 1,
    gets: false,
    value_bytes: 256,
    contestants: &[REDIS, GRPC, ETCD],
    bar: Bar::Latency,
};

const BESIDE_VALKEY: Load = Load {
    name: "",
    title: "",
    shape: Shape::One,
    clients: 50,
    contestants: &[REDIS, VALKEY],
    ..BESIDE_ETCD
};

/// All rows that drive a load, in the order of the table.
pub(super) const LOADS: [Load; 7] = [
    Load {
        name: "puts-256",
        title: "three nodes, linearizable puts, 256 B, 256 clients",
        bar: Bar::ThroughputAndP99(4.0),
        ..BESIDE_ETCD
    },
    Load {
        name: "puts-1",
        title: "three nodes, linearizable puts, 256 B, 1 client",
        clients: 1,
        ..BESIDE_ETCD
    },
    Load {
        name: "gets-256",
        title: "three nodes, linearizable gets, 256 B, 256 clients",
        gets: true,
        bar: Bar::Throughput(4.0),
        ..BESIDE_ETCD
    },
    Load {
        name: "set-p1",
        title: "one node, SET with fsync, 256 B, 50 clients, pipeline 1",
        bar: Bar::Throughput(1.0),
        ..BESIDE_VALKEY
    },
    Load {
        name: "set-p16",
        title: "one node, SET with fsync, 256 B, 50 clients, pipeline 16",
        pipeline: 16,
        bar: Bar::Throughput(1.2),
        ..BESIDE_VALKEY
    },
    Load {
        name: "get-p1",
        title: "one node, GET, 256 B, 50 clients, pipeline 1",
        gets: true,
        bar: Bar::Throughput(0.95),
        ..BESIDE_VALKEY
    },
    Load {
        name: "get-p16",
        title: "one node, GET, 256 B, 50 clients, pipeline 16",
        pipeline: 16,
        gets: true,
        bar: Bar::Throughput(1.1),
        ..BESIDE_VALKEY
    },
];

/// Names of all rows.
pub(super) fn names() -> Vec<&'static str> {
    LOADS.iter().map(|row| row.name).chain([COST, FAILOVER]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own_and_a_rival() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LOADS.len() + 2);
        for row in LOADS {
            assert_eq!(row.contestants[0].system, System::Portolan, "{}", row.name);
            assert_ne!(row.contestants.last().unwrap().system, System::Portolan, "{}", row.name);
        }
    }
}
