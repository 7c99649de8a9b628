//! Golden scripts: what nodes send to each other, as one reads it. `UPDATE_GOLDENFILES=1` rewrites
//! them. Heartbeats that contain nothing new are left out; links take 1 ms, an fsync 2 ms.
//!
//! | command | what it does |
//! | --- | --- |
//! | `site 3 [witness=true]` | n1 begins a site, the others join; shows nothing |
//! | `start`, `join n4` | begins a site of n1; adds a node |
//! | `put k v at=n1`, `add k at=n1`, `get k at=n1` | a client of n1 asks |
//! | `remove n2 at=n1 [force=true]`, `transfer n2 at=n1` | an operator asks n1 |
//! | `run 100` | lets so many milliseconds pass |
//! | `crash n1`, `restart n1`, `wipe n1` | a node crashes, comes back, comes back with an empty disk |
//! | `aside n1`, `exchange n1` | … with an empty disk, and the old one is kept; the kept one is put in |
//! | `second n1` | another machine with the id of n1 asks to be taken in |
//! | `cut n1 n2`, `isolate n1`, `heal` | links |
//! | `jump n1 3600000` | a wall clock, by so many milliseconds |
//! | `fill n1`, `room n1` | a disk |
//! | `states` | each node's role, term and how far it is |
//! | `voters n1` | the voters that n1 shows |

#![expect(clippy::disallowed_methods, reason = "the scripts are files")]

use crate::world::World;
use goldenscript::{Command, Context, Runner};
use lab::simulation::Down;
use model::{
    Body, Condition, Expiry, KeyspaceId, NodeId, OperatorCommand, Query, ReadConsistency, Request,
    Write,
};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

struct Script {
    world: World,
    shown: usize,
}

fn node(text: Option<&str>) -> Result<u64, Box<dyn Error>> {
    let text = text.ok_or("which node?")?;
    Ok(text.trim_start_matches('n').parse()?)
}

impl Script {
    fn site(&mut self, nodes: u64, witness: bool, snapshots: Option<(u64, u64)>) {
        self.world = World::new(1);
        if let Some(snapshots) = snapshots {
            self.world.set_snapshots(snapshots);
        }
        for id in 1..=nodes {
            self.world.add_node(witness && id == nodes);
        }
        self.world.run_until_whole();
        self.world.run(Duration::from_millis(20));
        self.shown = self.world.trace().len();
    }

    fn states(&self) -> String {
        let lines = self.world.ids().into_iter().map(|id| match self.world.status(id) {
            None => format!("n{id}: down\n"),
            Some(status) => format!(
                "n{id}: {:?} t{} log {}..={} committed {} applied {}\n",
                status.role,
                status.term,
                status.first_index,
                status.last_index,
                status.committed_index,
                status.applied_index
            ),
        });
        lines.collect()
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let asked = args.take_key("at").map(|at| node(Some(at))).transpose()?;
        let space = KeyspaceId::DEFAULT;
        let write =
            |write| Body::Write(model::Command::Write { keyspace: space, write, request: None });
        let body = match command.name.as_str() {
            "put" => {
                let key = args.next_pos().ok_or("which key?")?.to_owned().into();
                let value = args.next_pos().ok_or("which value?")?.to_owned();
                let repeat: usize = args.take_key("times").unwrap_or("1").parse()?;
                let expiry = match args.take_key("ttl_ms") {
                    Some(ms) => Expiry::AfterMs(ms.parse()?),
                    None => Expiry::Never,
                };
                let value = value.repeat(repeat).into();
                let condition = Condition::Always;
                Some(write(Write::Put { key, value, condition, expiry, return_old: false }))
            }
            "add" => {
                let key = args.next_pos().ok_or("which key?")?.to_owned().into();
                Some(write(Write::Add { key, delta: 1 }))
            }
            "get" => {
                let key = args.next_pos().ok_or("which key?")?.to_owned().into();
                let consistency = ReadConsistency::Linearizable;
                Some(Body::Read { keyspace: space, query: Query::Get { key }, consistency })
            }
            "remove" => {
                let node = NodeId(node(args.next_pos())?);
                let force = args.take_key("force").is_some();
                Some(Body::Operator(OperatorCommand::RemoveNode { node, force, id: None }))
            }
            "transfer" => Some(Body::TransferLeader { node: NodeId(node(args.next_pos())?) }),
            _ => None,
        };
        let world = &mut self.world;
        match (command.name.as_str(), body) {
            (_, Some(body)) => {
                let deadline_ms = args.take_key("deadline_ms").map(str::parse).transpose()?;
                let at = asked.ok_or("which node is asked? (at=n1)")?;
                world.ask(at, Request { deadline_ms, ..Request::new(body) }).ok_or("it is down")?;
            }
            ("site", _) => {
                let nodes = args.next_pos().ok_or("how many nodes?")?.parse()?;
                let witness = args.take_key("witness").is_some();
                let bytes = args.take_key("snapshot_bytes").map(str::parse).transpose()?;
                self.site(nodes, witness, bytes.map(|bytes| (bytes, 1)));
            }
            ("start", _) => world.add_node(false),
            ("join", _) => {
                if node(args.next_pos())? != world.ids().len() as u64 + 1 {
                    return Err("nodes join in order".into());
                }
                world.add_node(false);
            }
            ("run", _) => {
                let ms = args.next_pos().ok_or("for how long?")?.parse()?;
                world.run(Duration::from_millis(ms));
            }
            ("crash", _) => world.crash(node(args.next_pos())?, &Down::Killed),
            ("restart", _) => world.start(node(args.next_pos())?),
            ("wipe", _) => world.replace_disk(node(args.next_pos())?),
            ("aside", _) => world.put_disk_aside(node(args.next_pos())?),
            ("exchange", _) => world.exchange_disks(node(args.next_pos())?),
            ("pause", _) => {
                let id = node(args.next_pos())?;
                world.pause(id, args.next_pos().ok_or("for how long?")?.parse()?);
            }
            ("second", _) => world.ask_as_another(node(args.next_pos())?),
            ("cut", _) => world.cut(node(args.next_pos())?, node(args.next_pos())?),
            ("isolate", _) => world.isolate(node(args.next_pos())?),
            ("heal", _) => world.heal(),
            ("jump", _) => {
                let id = node(args.next_pos())?;
                world.jump(id, args.next_pos().ok_or("by how much?")?.parse()?);
            }
            ("fill", _) => world.node(node(args.next_pos())?).disk.set_capacity(Some(0)),
            ("room", _) => world.node(node(args.next_pos())?).disk.set_capacity(None),
            ("states", _) => return Ok(self.states()),
            ("voters", _) => {
                let id = node(args.next_pos())?;
                let status = world.status(id).ok_or("it is down")?;
                return Ok(format!("n{id}: shows voters {:?}\n", status.members.voters));
            }
            (other, _) => return Err(format!("there is no command {other}").into()),
        }
        args.reject_next()?;
        let shown = self.world.trace()[self.shown..].to_owned();
        self.shown = self.world.trace().len();
        Ok(shown)
    }
}

#[test]
fn scripts() {
    let folder = Path::new("tests/scripts");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("the scripts are there")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for path in names {
        let mut script = Script { world: World::new(1), shown: 0 };
        goldenscript::run(&mut script, &path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
