//! Runs over two servers that answer by TCP as Redis 7.0 does.

use super::*;
use crate::cluster::Access;
use crate::left::LeftSlots;
use bytes::BytesMut;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wire::resp::{Encoder, Frame, RequestParser, Version};

const IDS: [&str; 2] =
    ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"];
const MIB: u64 = 1 << 20;
/// A connection of another run.
const OTHER: &str = "id=1 addr=1.1.1.1:5 name=portolan-place-9-a cmd=client";

/// Two masters; the first owns all slots at first.
#[derive(Default)]
struct World {
    ports: Vec<u16>,
    /// The slots of the second master. Both learn of changes at once.
    moved: SlotSet,
    /// By server, slot and key: sizes.
    keys: [BTreeMap<Slot, BTreeMap<String, u64>>; 2],
    migrating: [BTreeMap<Slot, usize>; 2],
    importing: [BTreeMap<Slot, usize>; 2],
    /// The second server is gone when this key is to come.
    deadly: Option<String>,
    is_gone: bool,
    /// A connection of another run, in each list.
    other: String,
    /// It gets its name with the first order.
    other_unnamed: Option<String>,
    /// Of the first server's last claim, which the second one does not know yet for so many
    /// answers.
    epoch: u64,
    uninformed: usize,
    /// The `MIGRATE` and `SETSLOT` commands.
    orders: Vec<String>,
    /// How often the size of a key was asked for.
    sizes: usize,
}

enum Answer {
    Ok,
    Null,
    Number(u64),
    Text(String),
    List(Vec<String>),
    Error(&'static str),
}

impl World {
    fn owner(&self, slot: Slot) -> usize {
        usize::from(self.moved.contains(slot))
    }

    fn nodes(&self, me: usize) -> String {
        let line = |n: usize| {
            let owned: SlotSet = Slot::all().filter(|slot| self.owner(*slot) == n).collect();
            let owned = if owned.is_empty() { String::new() } else { owned.to_string() };
            let (port, own) = (self.ports[n], if n == me { "myself," } else { "" });
            let slots = owned.replace(',', " ");
            let is_known = me == 0 || self.uninformed == 0;
            let epoch = if n == 1 { 1 } else { u64::from(is_known) * self.epoch };
            let id = IDS[n];
            let mut line = format!("{id} 127.0.0.1:{port}@1 {own}master - 0 0 {epoch} connected");
            let mut words = vec![slots];
            if n == me {
                let migrating = self.migrating[n].iter();
                words.extend(migrating.map(|(slot, to)| format!("[{slot}->-{}]", IDS[*to])));
                let importing = self.importing[n].iter();
                words.extend(importing.map(|(slot, from)| format!("[{slot}-<-{}]", IDS[*from])));
            }
            for word in words.iter().filter(|word| !word.is_empty()) {
                line += &format!(" {word}");
            }
            line
        };
        [line(0), line(1)].join("\n")
    }

    fn answer(&mut self, me: usize, words: &[&str]) -> Option<Answer> {
        if self.is_gone && me == 1 {
            return None;
        }
        let slot = |text: &str| Slot::new(text.parse().unwrap()).unwrap();
        let n = |id: &str| IDS.iter().position(|one| *one == id).unwrap();
        let none = BTreeMap::new();
        Some(match words {
            ["CLUSTER", "MYID"] => Answer::Text(IDS[me].to_owned()),
            ["CLUSTER", "NODES"] => {
                let nodes = self.nodes(me);
                self.uninformed = self.uninformed.saturating_sub(me);
                Answer::Text(nodes)
            }
            ["CLIENT", "LIST"] => Answer::Text(self.other.clone()),
            ["CLUSTER", "COUNTKEYSINSLOT", text] => {
                Answer::Number(self.keys[me].get(&slot(text)).map_or(0, BTreeMap::len) as u64)
            }
            ["CLUSTER", "GETKEYSINSLOT", text, count] => {
                let keys = self.keys[me].get(&slot(text)).unwrap_or(&none).keys();
                Answer::List(keys.take(count.parse().unwrap()).cloned().collect())
            }
            ["MEMORY", "USAGE", key] => {
                self.sizes += 1;
                let size = self.keys[me].values().find_map(|keys| keys.get(*key));
                size.map_or(Answer::Null, |bytes| Answer::Number(*bytes))
            }
            ["CLUSTER", "SETSLOT", text, what @ ..] => {
                self.orders.push(format!("SETSLOT {text} {}", what[0]));
                let is_claim = *what == ["NODE", IDS[1]] && me == 1;
                assert!(!is_claim || self.uninformed == 0, "of an epoch that may lose");
                self.other.extend(self.other_unnamed.take());
                let slot = slot(text);
                match what {
                    ["IMPORTING", from] => drop(self.importing[me].insert(slot, n(from))),
                    ["MIGRATING", to] => drop(self.migrating[me].insert(slot, n(to))),
                    ["NODE", owner] if n(owner) == 1 => {
                        self.moved.insert(slot);
                        self.importing[me].remove(&slot);
                        self.migrating[me].remove(&slot);
                    }
                    _ => return Some(Answer::Error("ERR not here")),
                }
                Answer::Ok
            }
            ["MIGRATE", rest @ ..] => {
                let keys = rest.iter().skip_while(|word| **word != "KEYS").skip(1);
                let keys: Vec<String> = keys.map(|key| (*key).to_owned()).collect();
                self.orders.push(format!("MIGRATE {}", keys.join(" ")));
                if self.deadly.as_ref().is_some_and(|deadly| keys.contains(deadly)) {
                    self.is_gone = true;
                    return Some(Answer::Error(
                        "IOERR error or timeout writing to target instance",
                    ));
                }
                for key in keys {
                    let with = self.keys[me].iter_mut();
                    let mut found = with.filter_map(|(slot, k)| Some((*slot, k.remove(&key)?)));
                    let (slot, bytes) = found.next().unwrap();
                    drop(found);
                    self.keys[1 - me].entry(slot).or_default().insert(key, bytes);
                }
                Answer::Ok
            }
            ["COMMAND", ..] => Answer::Null,
            _ => Answer::Ok,
        })
    }
}

async fn serve(world: Arc<Mutex<World>>, me: usize, mut socket: TcpStream) {
    let (mut parser, mut frame) = (RequestParser::new(), Frame::default());
    let (mut inbound, mut out) = (BytesMut::new(), BytesMut::new());
    while socket.read_buf(&mut inbound).await.is_ok_and(|read| read > 0) {
        while parser.next(&mut inbound, &mut frame).unwrap() {
            let words: Vec<&str> =
                frame.args_from(0).map(|word| std::str::from_utf8(word).unwrap()).collect();
            let answer = world.lock().unwrap().answer(me, &words);
            let Some(answer) = answer else { return };
            let mut encoder = Encoder::new(&mut out, Version::Resp2);
            match answer {
                Answer::Ok => encoder.ok(),
                Answer::Null => encoder.null(),
                Answer::Number(number) => encoder.integer(number as i64),
                Answer::Text(text) => encoder.bulk(text.as_bytes()),
                Answer::Error(text) => encoder.error(text),
                Answer::List(all) => {
                    encoder.array(all.len());
                    all.iter().for_each(|text| encoder.bulk(text.as_bytes()));
                }
            }
        }
        if socket.write_all(&out.split()).await.is_err() {
            return;
        }
    }
}

/// Starts both servers, with these keys at the first one.
async fn started(keys: &[(u16, &str, u64)]) -> (Arc<Mutex<World>>, Cluster) {
    started_with(keys, Duration::from_secs(5)).await
}

/// The same; each answer is waited for so long.
async fn started_with(
    keys: &[(u16, &str, u64)],
    deadline: Duration,
) -> (Arc<Mutex<World>>, Cluster) {
    let mut world = World::default();
    for (number, key, bytes) in keys {
        let of_slot = world.keys[0].entry(slot(*number)).or_default();
        of_slot.insert((*key).to_owned(), *bytes);
    }
    let world = Arc::new(Mutex::new(world));
    for me in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        world.lock().unwrap().ports.push(listener.local_addr().unwrap().port());
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&world), me, socket));
            }
        });
    }
    let url = format!("redis://127.0.0.1:{}", world.lock().unwrap().ports[0]);
    let access = Access::parse(&url, deadline).unwrap();
    (world, Cluster::new(access))
}

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

/// Moves slots to the second server.
async fn moved(cluster: &mut Cluster, slots: &[u16]) -> (Outcome, Result<(), ClusterError>) {
    let goals: Vec<_> = slots.iter().map(|number| (slot(*number), IDS[1].into())).collect();
    let mut outcome = Outcome::default();
    let done = Mover::new(cluster, &mut |_| {}).run(&goals, &mut outcome).await;
    (outcome, done)
}

#[tokio::test]
async fn a_slot_with_a_key_too_large_for_the_timeout_is_not_begun() {
    let keys = [(1, "small", 100), (2, "b", 100), (2, "large", 107 * MIB), (3, "fits", 106 * MIB)];
    let (world, mut cluster) = started(&keys).await;
    let (outcome, done) = moved(&mut cluster, &[1, 2, 3]).await;
    assert_eq!(done, Ok(()));
    assert_eq!(outcome.arrived.to_string(), "1,3");
    let why = &outcome.left[&slot(2)];
    assert!(why.contains("the key \"large\" has 107 MiB"), "{why}");
    assert!(why.contains("above 106 MiB (two thirds of --timeout, at 32 MiB/s)"), "{why}");
    let orders = world.lock().unwrap().orders.join("; ");
    assert!(!orders.contains("SETSLOT 2") && !orders.contains("large"), "{orders}");
}

#[tokio::test]
async fn an_open_slot_with_such_a_key_is_left_at_once_and_not_while_it_waits() {
    let (world, mut cluster) = started(&[(2, "large", 200 * MIB)]).await;
    world.lock().unwrap().migrating[0].insert(slot(2), 1);
    world.lock().unwrap().importing[1].insert(slot(2), 0);
    let (outcome, done) = moved(&mut cluster, &[2]).await;
    assert!(done.is_ok() && outcome.left[&slot(2)].contains("large"), "{outcome:?}");
    // It is not tried again.
    assert_eq!(world.lock().unwrap().sizes, 1);
    let (mut ignored, mut outcome) = (|_: Event<'_>| {}, Outcome::default());
    let mover = Mover::new(&mut cluster, &mut ignored).except([slot(2)].into_iter().collect());
    let goals = [(slot(2), IDS[1].into())];
    assert_eq!({ mover }.run(&goals, &mut outcome).await, Ok(()));
    assert_eq!(outcome, Outcome::default());
    let world = world.lock().unwrap();
    assert_eq!((world.sizes, &*world.orders.join("; ")), (1, ""));
}

/// A claim of an epoch that is not the highest one loses the slot with its keys.
#[tokio::test]
async fn no_slot_is_claimed_before_all_servers_know_the_last_claims() {
    let (world, mut cluster) = started(&[(1, "a", 100), (2, "b", 100)]).await;
    assert_eq!(moved(&mut cluster, &[1]).await.1, Ok(()));
    {
        let mut world = world.lock().unwrap();
        (world.epoch, world.uninformed) = (7, 5);
    }
    let (outcome, done) = moved(&mut cluster, &[2]).await;
    assert_eq!((done, outcome.arrived.to_string()), (Ok(()), "2".to_owned()));
    assert_eq!(world.lock().unwrap().uninformed, 0);
}

#[tokio::test]
async fn what_has_arrived_outlives_an_error() {
    let (world, mut cluster) = started(&[(1, "a", 100), (2, "b", 100), (3, "c", 100)]).await;
    world.lock().unwrap().deadly = Some("b".to_owned());
    let (outcome, done) = moved(&mut cluster, &[1, 2, 3]).await;
    assert!(matches!(done, Err(ClusterError::Call { .. })), "{done:?}");
    assert_eq!((outcome.arrived.to_string(), outcome.keys), ("1".to_owned(), 1));
    assert!(outcome.left.contains_key(&slot(2)));
}

#[tokio::test]
async fn each_run_looks_for_another_one() {
    let (world, mut cluster) = started(&[]).await;
    assert_eq!(moved(&mut cluster, &[1]).await.1, Ok(()));
    // Its connection is older and had no name at first.
    world.lock().unwrap().other = OTHER.to_owned();
    let (outcome, done) = moved(&mut cluster, &[2]).await;
    assert_eq!(done, Err(ClusterError::Busy("1.1.1.1:5".to_owned())));
    assert!(outcome.arrived.is_empty());
}

/// Both looked for other runs before the older connection had its name.
#[tokio::test]
async fn a_run_looks_once_more_for_one_that_began_with_it() {
    let deadline = Duration::from_secs(2);
    let (world, mut cluster) = started_with(&[], deadline).await;
    world.lock().unwrap().other_unnamed = Some(OTHER.to_owned());
    let goals = [1, 2].map(|number| (slot(number), IDS[1].into()));
    let (mut ignored, mut outcome) = (|_: Event<'_>| {}, Outcome::default());
    // The first slot takes longer than the deadline.
    let mover = Mover::new(&mut cluster, &mut ignored).pace(deadline / 2);
    let done = { mover }.run(&goals, &mut outcome).await;
    assert_eq!(done, Err(ClusterError::Busy("1.1.1.1:5".to_owned())));
    assert_eq!(outcome.arrived.to_string(), "1");
}

#[tokio::test]
async fn the_slots_of_a_server_that_is_down_do_not_wait_when_it_is_back() {
    let (world, mut cluster) = started(&[]).await;
    assert_eq!(moved(&mut cluster, &[5]).await.1, Ok(()));
    world.lock().unwrap().is_gone = true;
    let (outcome, done) = moved(&mut cluster, &[1]).await;
    assert!(matches!(done, Err(ClusterError::Silent(_))), "{done:?}");
    assert!(outcome.left.contains_key(&slot(5)), "{outcome:?}");
    let mut left = LeftSlots::default();
    left.take(&outcome);
    assert!(left.waiting().is_empty());
}
