//! Retries.

use super::*;
use crate::machine::requests::ClientKey;
use model::{ClientId, Guard, Step, limits};

fn request(client: u64, sequence: u64, acknowledged_below: u64) -> RequestId {
    RequestId { client: ClientId(client), sequence, acknowledged_below }
}

fn add() -> Write {
    Write::Add { key: "n".into(), delta: 1 }
}

#[test]
fn a_retry_gets_the_first_answer_and_changes_nothing() {
    let mut site = Site::new();
    assert_eq!(site.write_as(request(7, 1, 1), add()), Ok(Answer::Integer(1)));
    assert_eq!(site.write_as(request(8, 1, 1), add()), Ok(Answer::Integer(2)));
    let before = dump(site.machine.state());
    assert_eq!(site.write_as(request(7, 1, 1), add()), Ok(Answer::Integer(1)));
    site.reopen();
    assert_eq!(site.write_as(request(7, 1, 1), add()), Ok(Answer::Integer(1)));
    let mut after = dump(site.machine.state());
    after.insert(tables::HEAD.into(), before[tables::HEAD].clone());
    assert_eq!(after, before, "nothing but the index moved on");
    assert_eq!(site.machine.revision(), Revision(2));
}

#[test]
fn a_retry_in_the_same_entry_is_one_too() {
    let mut site = Site::new();
    let command = Command::Write { keyspace: SPACE, write: add(), request: Some(request(7, 1, 1)) };
    let answers = site.entry(vec![command.clone(), command]);
    assert_eq!(answers, [Ok(Answer::Integer(1)), Ok(Answer::Integer(1))]);
}

#[test]
fn refusals_and_transactions_are_remembered_too() {
    let mut site = Site::new();
    site.write(put("n", "x")).unwrap();
    let refused = site.write_as(request(7, 1, 1), add());
    assert_eq!(refused, Err(Refusal::NotAnInteger));
    site.write(put("n", "1")).unwrap();
    assert_eq!(site.write_as(request(7, 1, 1), add()), refused);

    let guards = vec![Guard { key: "n".into(), version: site.version("n"), absent_since: None }];
    let transaction = Command::Transaction {
        keyspace: SPACE,
        guards,
        steps: vec![Step::Write(add()), Step::Read(Query::Count)],
        request: Some(request(7, 2, 1)),
    };
    let done = Ok(Answer::Steps(vec![Ok(Answer::Integer(2)), Ok(Answer::Integer(1))]));
    assert_eq!(site.run(transaction.clone()), done);
    assert_eq!(site.run(transaction), done, "though its guard does not hold any more");
}

#[test]
fn what_a_client_has_seen_is_forgotten() {
    let mut site = Site::new();
    for sequence in [1, 2, 4, 3] {
        site.write_as(request(7, sequence, 1), add()).unwrap();
    }
    assert_eq!(site.rows(tables::ANSWERS), 4);
    site.write_as(request(7, 5, 4), add()).unwrap();
    assert_eq!(site.rows(tables::ANSWERS), 2, "4 and 5");
    assert_eq!(site.write_as(request(7, 3, 1), add()), Err(Refusal::RequestForgotten));
    site.reopen();
    assert_eq!(site.write_as(request(7, 3, 1), add()), Err(Refusal::RequestForgotten));
    assert_eq!(site.write_as(request(7, 4, 4), add()), Ok(Answer::Integer(3)));
    assert_eq!(site.text("n").as_deref(), Some("5"));
}

#[test]
fn an_idle_client_is_forgotten_by_log_time() {
    let mut site = Site::new();
    site.write_as(request(7, 1, 1), add()).unwrap();
    site.now_ms += limits::CLIENT_REMEMBERED_MS - 1;
    site.write_as(request(8, 1, 1), add()).unwrap();
    assert_eq!(site.rows(tables::CLIENTS), 2);
    site.now_ms += 1;
    site.tick();
    assert_eq!(site.rows(tables::CLIENTS), 1);
    assert_eq!(site.rows(tables::ANSWERS), 1);
    assert_eq!(site.write_as(request(8, 1, 1), add()), Ok(Answer::Integer(2)));
}

#[test]
fn an_answer_too_long_to_remember_is_never_a_licence_to_repeat() {
    let mut site = Site::new();
    let value = Bytes::from(vec![b'x'; limits::ANSWER_REMEMBERED_BYTES_MAX]);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let put = Write::Put { key: "n".into(), value, condition, expiry, return_old: false };
    site.write(put).unwrap();
    let take = Write::Take { key: "n".into() };
    assert!(matches!(site.write_as(request(7, 1, 1), take.clone()), Ok(Answer::Value(Some(_)))));
    site.write(super::put("n", "again")).unwrap();
    assert_eq!(site.write_as(request(7, 1, 1), take), Err(Refusal::RequestForgotten));
    assert_eq!(site.text("n").as_deref(), Some("again"));
}

#[test]
fn a_client_has_so_many_answers_remembered() {
    let mut site = Site::new();
    let many = limits::REQUESTS_REMEMBERED_PER_CLIENT_MAX as u64 + 2;
    for first in (1..=many).step_by(limits::BATCH_COMMANDS_MAX) {
        let commands = (first..=many).take(limits::BATCH_COMMANDS_MAX).map(|sequence| {
            let request = Some(request(7, sequence, 1));
            Command::Write { keyspace: SPACE, write: add(), request }
        });
        site.entry_unchecked(commands.collect());
    }
    assert_eq!(site.rows(tables::ANSWERS) as u64, many - 2);
    assert_eq!(site.write_as(request(7, 2, 1), add()), Err(Refusal::RequestForgotten));
    assert_eq!(site.write_as(request(7, 3, 1), add()), Ok(Answer::Integer(3)));
}

#[test]
fn the_client_idle_longest_goes_first() {
    let mut site = Site::new();
    site.write_as(request(0, 1, 1), add()).unwrap();
    site.now_ms += 1;
    for first in (1..limits::CLIENTS_REMEMBERED_MAX as u64).step_by(limits::BATCH_COMMANDS_MAX) {
        let clients = (first..limits::CLIENTS_REMEMBERED_MAX as u64)
            .take(limits::BATCH_COMMANDS_MAX)
            .map(|client| Command::Write {
                keyspace: SPACE,
                write: add(),
                request: Some(request(client, 1, 1)),
            });
        site.entry_unchecked(clients.collect());
    }
    assert_eq!(site.rows(tables::CLIENTS), limits::CLIENTS_REMEMBERED_MAX);
    site.write_as(request(u64::MAX, 1, 1), add()).unwrap();
    assert_eq!(site.rows(tables::CLIENTS), limits::CLIENTS_REMEMBERED_MAX);
    let gone = tables::client(ClientKey::own(None, ClientId(0)));
    assert!(!dump(site.machine.state()).contains_key(&gone[..]));
}
