//! A site of real nodes in one process: real sockets, real disks, real time.

use model::{
    Answer, Body, Bytes, ClientName, Command, Condition, Expiry, Failure, KeyspaceId, NodeId,
    OperatorCommand, Query, ReadConsistency, Request, Write,
};
use server::config::Config;
use server::{Handle, Node, Role};
use std::path::Path;
use std::time::Duration;

fn config(data: &Path, node: u64, join: &[String]) -> Config {
    let mut config =
        Config { data: data.join(format!("n{node}")), node: NodeId(node), ..Config::default() };
    config.ports.peer.set_port(0);
    config.join = join.to_vec();
    config.disk.reserve_bytes = 1 << 20;
    config
}

fn put(key: &str, value: &str) -> Request {
    let write = Write::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    Request::write(Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None })
}

fn get(key: &str) -> Request {
    let query = Query::Get { key: Bytes::copy_from_slice(key.as_bytes()) };
    Request::read(KeyspaceId::DEFAULT, query, ReadConsistency::Linearizable)
}

async fn value(handle: &Handle, key: &str) -> Option<Bytes> {
    match handle.call(get(key)).await {
        Ok(Answer::Value(found)) => found.map(|found| found.value),
        other => panic!("{other:?}"),
    }
}

/// Waits without a deadline: the test runner ends a hang.
async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn one_node_keeps_what_it_acknowledged() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(&config(data.path(), 1, &[])).unwrap();
    on_runtime(async {
        let handle = node.handle();
        let requests = (0..1000).map(|nth| put(&format!("k{nth}"), &format!("v{nth}"))).collect();
        for outcome in handle.call_many(requests).await {
            outcome.unwrap();
        }
        assert_eq!(value(&handle, "k999").await.as_deref(), Some(&b"v999"[..]));
        assert_eq!(value(&handle, "none").await, None);
        let query = Query::Get { key: Bytes::from_static(b"k7") };
        let here = handle.answer_here(
            KeyspaceId::DEFAULT,
            &query,
            ReadConsistency::Linearizable,
            (false, ClientName::NONE),
        );
        assert!(matches!(here, Some(Ok(Answer::Value(Some(_))))), "{here:?}");
    });
    node.stop();
    // The second time as after a start that damage to the state ended: it is rebuilt from the log.
    for opening_ended in [true, false] {
        if !opening_ended {
            std::fs::write(data.path().join("n1/state.rebuild"), "").unwrap();
        }
        let node = Node::start(&config(data.path(), 1, &[])).unwrap();
        on_runtime(async {
            let handle = node.handle();
            assert_eq!(value(&handle, "k123").await.as_deref(), Some(&b"v123"[..]));
        });
        node.stop();
    }
}

#[test]
fn three_nodes_survive_their_leader_and_take_a_wiped_node_back() {
    let data = tempfile::tempdir().unwrap();
    let first = Node::start(&config(data.path(), 1, &[])).unwrap();
    let join = [first.peer_address().to_string()];
    let second = Node::start(&config(data.path(), 2, &join)).unwrap();
    let third = Node::start(&config(data.path(), 3, &join)).unwrap();
    on_runtime(async {
        let handles = [first.handle(), second.handle(), third.handle()];
        until(|| handles[0].status().members.voters.len() == 3).await;
        // Any node accepts any request.
        for (nth, handle) in handles.iter().enumerate() {
            handle.call(put(&format!("via{nth}"), "x")).await.unwrap();
        }
        for handle in &handles {
            for nth in 0..3 {
                assert_eq!(value(handle, &format!("via{nth}")).await.as_deref(), Some(&b"x"[..]));
            }
        }
        assert_eq!(handles[0].status().role, Role::Leader);
    });
    first.stop();
    on_runtime(async {
        let handle = second.handle();
        handle.call(put("after", "y")).await.unwrap();
        assert_eq!(value(&third.handle(), "after").await.as_deref(), Some(&b"y"[..]));
    });
    // The old leader comes back with an empty disk, under its old id.
    std::fs::remove_dir_all(data.path().join("n1")).unwrap();
    let join = [second.peer_address().to_string(), third.peer_address().to_string()];
    let first = Node::start(&config(data.path(), 1, &join)).unwrap();
    on_runtime(async {
        let handle = first.handle();
        until(|| handle.status().members.voters.contains(&1)).await;
        assert_eq!(value(&handle, "after").await.as_deref(), Some(&b"y"[..]));
        let remove = OperatorCommand::RemoveNode { node: NodeId(3), force: false, id: None };
        handle.call(Request::new(Body::Operator(remove))).await.unwrap();
        until(|| handle.status().members.nodes.len() == 2).await;
        let gone = third.handle().call(put("x", "x")).await;
        assert!(matches!(gone, Err(Failure::NotServing(_) | Failure::NoLeader)), "{gone:?}");
    });
    for node in [first, second, third] {
        node.stop();
    }
}
