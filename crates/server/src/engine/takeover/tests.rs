//! A site is created, stopped anywhere, and continued elsewhere, with a new core each time.

use super::super::fake::{Fake, Owner as FakeOwner};
use super::*;
use crate::config::Engine;
use model::{Answer, Command, Condition, Expiry, KeyspaceId, NodeId, Query, Write};
use storage::disk::real::RealDisk;
use storage::state::Read as _;
use storage::state::fjall;
use wire::entry;

/// The state of a site in one of several successive processes.
struct Process {
    kept: OwnedSite<FakeOwner>,
    replica: Recovery<Recorded<FjallState>>,
    recovered: Recovered,
    _data: tempfile::TempDir,
}

fn start(fake: &Fake, directory: u64, address: &str) -> Result<Process, StartError> {
    let data = tempfile::tempdir().unwrap();
    let etcd = EtcdConfig::default();
    let config = Config { engine: Engine::Etcd(etcd.clone()), ..Config::default() };
    let own = Identity::open(data.path(), &config.site, config.node, false, directory)?;
    let mut store = fake.own();
    let site = identify(&mut store, &config, &etcd, &own)?;
    let mut kept = OwnedSite { store, cut: CutRows::default(), recorder: Arc::default(), site };
    let state = FjallState::open(&data.path().join("state"), fjall::Options::default())?;
    let (_, mut writer, _) =
        storage::log::open(&RealDisk::shared(), &data.path().join("log")).unwrap();
    let state = kept.fill(state)?;
    let (recovered, replica) = kept.recover(state, address, &mut writer)?;
    Ok(Process { kept, replica, recovered, _data: data })
}

impl Process {
    /// Applies one more entry and flushes it to etcd if `flushed`.
    fn put(&mut self, key: &str, value: &[u8], flushed: bool) {
        let write = Write::Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value),
            condition: Condition::Always,
            expiry: Expiry::Never,
            return_old: false,
        };
        let command = Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None };
        let batch = entry::Batch { log_time_ms: 1, commands: vec![command] };
        let index = self.replica.machine.applied().index + 1;
        let entry = Committed { index, term: 9, batch: Some(&batch), members: None };
        self.replica.machine.apply(&[entry], &mut Vec::new()).unwrap();
        if flushed {
            let changes = self.kept.recorder.take();
            redo::flush(&mut self.kept.store, &mut self.kept.cut, &changes, &mut || {}).unwrap();
        }
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        let query = Query::Get { key: Bytes::copy_from_slice(key.as_bytes()) };
        match self.replica.machine.reader().query(KeyspaceId::DEFAULT, &query) {
            Ok(Answer::Value(found)) => found.map(|found| found.value),
            Ok(other) => panic!("{other:?}"),
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn the_next_process_has_what_was_flushed_and_is_the_same_node_elsewhere() {
    let fake = Fake::default();
    let long = vec![7; 3 << 20];
    let mut first = start(&fake, 70, "a:1").unwrap();
    first.put("short", b"1", true);
    first.put("long", &long, true);
    first.put("unflushed", b"1", false);
    let second = start(&fake, 71, "b:2").unwrap();
    assert_eq!(second.get("short").as_deref(), Some(&b"1"[..]));
    assert_eq!(second.get("long").as_deref(), Some(&long[..]));
    assert_eq!(second.get("unflushed"), None);
    let member = &second.replica.members.nodes[0];
    assert_eq!((member.incarnation, member.address.as_str()), (70, "b:2"));
    // Behind every durable entry, in a later term.
    let applied = second.replica.machine.applied();
    assert_eq!((applied.index, applied.term), (4, 10));
    assert_eq!(second.recovered.start, LogStart { index: 4, term: 10 });
    assert_eq!(second.recovered.hard_state.term, 10);
    // A start at the same place changes nothing.
    let again = start(&fake, 71, "b:2").unwrap();
    assert_eq!(again.replica.machine.applied(), applied);
    assert!(again.replica.state.get(b"za").unwrap().is_some());
}

#[test]
fn a_start_that_is_cut_off_anywhere_is_gone_on_with() {
    for done in [false, true] {
        for commit in 1.. {
            let fake = Fake::default();
            let mut store = fake.own();
            fake.kill_in(commit, done);
            let data = tempfile::tempdir().unwrap();
            let config = Config::default();
            let own = Identity::open(data.path(), &config.site, config.node, false, 7).unwrap();
            let cut = identify(&mut store, &config, &EtcdConfig::default(), &own).is_err();
            // The rest of the start runs in a process of its own, which is killed there.
            let mut finished = false;
            if !cut {
                let state = FjallState::open(&data.path().join("state"), fjall::Options::default())
                    .unwrap();
                let disk = RealDisk::shared();
                let (_, mut writer, _) =
                    storage::log::open(&disk, &data.path().join("log")).unwrap();
                let mut kept = OwnedSite {
                    store,
                    cut: CutRows::default(),
                    recorder: Arc::default(),
                    site: own,
                };
                finished = kept
                    .fill(state)
                    .and_then(|state| kept.recover(state, "a:1", &mut writer).map(drop))
                    .is_ok();
            }
            let mut process = start(&fake, 8, "a:1").unwrap();
            assert!(process.kept.site.member);
            process.put("key", b"1", true);
            assert!(start(&fake, 8, "a:1").unwrap().get("key").is_some());
            if finished {
                break;
            }
        }
    }
}

#[test]
fn another_sites_prefix_is_refused() {
    let fake = Fake::default();
    start(&fake, 1, "a:1").unwrap();
    let data = tempfile::tempdir().unwrap();
    let etcd = EtcdConfig::default();
    let config = Config { node: NodeId(2), ..Config::default() };
    let own = Identity::open(data.path(), &config.site, config.node, false, 7).unwrap();
    let refused = identify(&mut fake.own(), &config, &etcd, &own).unwrap_err().to_string();
    assert!(refused.contains("/portolan/site") && refused.contains("--node"), "{refused}");
}
