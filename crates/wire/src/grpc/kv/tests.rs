//! Requests as commands, answers as responses.

use super::scan::after_prefix;
use super::*;
use model::Kind;

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn id(client: u64, sequence: u64, acknowledged_below: u64) -> Option<v1::RequestId> {
    Some(v1::RequestId { client, sequence, acknowledged_below })
}

#[test]
fn a_put_response_has_all_that_was_requested() {
    let request = v1::PutRequest {
        keyspace: "cars".into(),
        key: b("k"),
        value: b("v"),
        condition: v1::PutCondition::IfAbsent.into(),
        expiry: Some(v1::Expiry { when: Some(v1::expiry::When::AfterMs(5)) }),
        return_old: true,
        request: id(9, 3, 2),
    };
    let expected = Command::Write {
        keyspace: KeyspaceId(4),
        write: Write::Put {
            key: b("k"),
            value: b("v"),
            condition: Condition::IfAbsent,
            expiry: Expiry::AfterMs(5),
            return_old: true,
        },
        request: Some(RequestId { client: ClientId(9), sequence: 3, acknowledged_below: 2 }),
    };
    assert_eq!(put(KeyspaceId(4), request), Ok(expected));
}

#[test]
fn what_breaks_a_rule_names_its_field() {
    let good = || v1::PutRequest { key: b("k"), ..Default::default() };
    let refused = |request| put(KeyspaceId::DEFAULT, request).unwrap_err().to_string();
    assert_eq!(refused(v1::PutRequest::default()), "key is missing");
    let long = Bytes::from(vec![0; limits::KEY_BYTES_MAX + 1]);
    assert!(refused(v1::PutRequest { key: long, ..good() }).starts_with("key: has "));
    let long = Bytes::from(vec![0; limits::VALUE_BYTES_MAX + 1]);
    assert!(refused(v1::PutRequest { value: long, ..good() }).starts_with("value: "));
    assert!(refused(v1::PutRequest { condition: 7, ..good() }).starts_with("condition: 7"));
    let now = Some(v1::Expiry { when: Some(v1::expiry::When::AfterMs(0)) });
    assert!(refused(v1::PutRequest { expiry: now, ..good() }).starts_with("expiry.after_ms: "));
    for (request, named) in [
        (id(0, 1, 1), "request.client"),
        (id(1, 0, 0), "request.sequence"),
        (id(1, 4, 5), "request.acknowledged_below"),
    ] {
        assert!(refused(v1::PutRequest { request, ..good() }).starts_with(named));
    }
}

#[test]
fn a_delete_may_ask_for_a_version() {
    let write = |if_version| {
        let request = v1::DeleteRequest { key: b("k"), if_version, ..Default::default() };
        match delete(KeyspaceId::DEFAULT, request) {
            Ok(Command::Write { write, .. }) => write,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(write(None), Write::Delete { keys: vec![b("k")] });
    assert_eq!(write(Some(0)), Write::DeleteIf { key: b("k"), version: Revision(0) });
    let deleted = |answer| was_deleted(answer).unwrap().deleted;
    assert!(deleted(Answer::Integer(1)) && deleted(Answer::Flag(true)));
    assert!(!deleted(Answer::Integer(0)) && !deleted(Answer::Flag(false)));
}

#[test]
fn a_number_of_another_kind_of_request_is_refused() {
    let put = || Answer::Put { applied: true, version: Revision(4), old: None };
    let errors = [
        was_put(Answer::Integer(1)).unwrap_err(),
        was_put(Answer::Aborted).unwrap_err(),
        was_deleted(put()).unwrap_err(),
        was_deleted(Answer::Steps(Vec::new())).unwrap_err(),
        was_batched(put()).unwrap_err(),
        was_batched(Answer::Flag(true)).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().starts_with("request: "), "{error}");
    }
}

#[test]
fn a_batch_keeps_its_order() {
    use v1::step::Step as Asked;
    let steps = [
        Asked::Get(b("a")),
        Asked::Put(v1::PutStep { key: b("a"), value: b("1"), ..Default::default() }),
        Asked::Delete(v1::DeleteStep { key: b("b") }),
    ];
    let request = v1::BatchRequest {
        guards: vec![
            v1::Guard { key: b("g"), version: 7, absent_since: None },
            v1::Guard {
                key: b("h"),
                version: 0,
                absent_since: Some(v1::ReadPoint {
                    revision: 9,
                    epoch: 2,
                    failover: Default::default(),
                }),
            },
        ],
        steps: steps.map(|step| v1::Step { step: Some(step) }).into(),
        ..Default::default()
    };
    let Ok(Command::Transaction { guards, steps, .. }) = batch(KeyspaceId(2), request) else {
        panic!("a transaction was asked for");
    };
    let point = ReadPoint { revision: Revision(9), epoch: Epoch::counted(2) };
    let expected = [
        Guard { key: b("g"), version: Revision(7), absent_since: None },
        Guard { key: b("h"), version: Revision(0), absent_since: Some(point) },
    ];
    assert_eq!(guards, expected);
    assert!(matches!(&steps[0], Step::Read(Query::Get { .. })));
    assert!(matches!(&steps[1], Step::Write(Write::Put { .. })));
    assert!(matches!(&steps[2], Step::Write(Write::Delete { .. })));

    let empty = batch(KeyspaceId(2), v1::BatchRequest::default());
    assert_eq!(empty, Err(Invalid::Missing("steps")));
    let many = vec![v1::Step::default(); limits::TRANSACTION_STEPS_MAX + 1];
    let many = v1::BatchRequest { steps: many, ..Default::default() };
    assert!(batch(KeyspaceId(2), many).unwrap_err().to_string().contains("at most 10000"));
}

#[test]
fn a_batch_answers_step_by_step() {
    use v1::step_result::Result as Did;
    let answer = Answer::Steps(vec![
        Ok(Answer::Value(Some(Versioned { value: b("1"), version: Revision(3) }))),
        Ok(Answer::Put { applied: true, version: Revision(4), old: None }),
        Ok(Answer::Integer(0)),
        Err(model::Refusal::WrongType),
    ]);
    let response = was_batched(answer).unwrap();
    let did: Vec<_> = response.results.into_iter().map(|step| step.result.unwrap()).collect();
    assert!(matches!(&did[0], Did::Get(got) if got.found.as_ref().unwrap().version == 3));
    assert!(matches!(&did[1], Did::Put(put) if put.applied && put.version == 4));
    assert!(matches!(&did[2], Did::Delete(delete) if !delete.deleted));
    assert!(matches!(&did[3], Did::Refused(why) if why.contains("another kind")));
    assert!(!was_batched(Answer::Aborted).unwrap().applied);
}

#[test]
fn a_scan_covers_its_prefix_and_stops_at_its_limit() {
    let request = v1::ScanRequest { prefix: b("car:"), limit: 3, ..Default::default() };
    let mut plan = ScanPlan::new(request).unwrap();
    assert_eq!((&plan.from, &plan.until), (&b("car:"), &Some(b("car;"))));
    assert!(matches!(plan.page(100), Query::Scan { examine_max: 3, .. }));

    let page = |keys: &[&'static str], next: Option<&'static str>| Answer::Page {
        items: keys
            .iter()
            .map(|key| model::Item {
                key: b(key),
                kind: Kind::String,
                version: Revision(1),
                value: None,
            })
            .collect(),
        next: next.map(b),
    };
    let (response, more) = plan.take(page(&["car:1", "car:2"], Some("car:3")));
    assert_eq!((response.items.len(), &response.next[..], more), (2, &b"car:3"[..], true));
    assert!(matches!(plan.page(100), Query::Scan { from, .. } if from == "car:3"));
    let (response, more) = plan.take(page(&["car:3", "car:4"], None));
    assert_eq!((response.items.len(), &response.next[..], more), (1, &b"car:4"[..], false));
}

#[test]
fn a_scan_is_cut_by_prefix_and_by_bounds() {
    let cut = |prefix, from, until| {
        let request = v1::ScanRequest {
            prefix: b(prefix),
            from: b(from),
            until: b(until),
            ..Default::default()
        };
        let plan = ScanPlan::new(request).unwrap();
        (plan.from, plan.until)
    };
    assert_eq!(cut("", "", ""), (b(""), None));
    assert_eq!(cut("b", "a", "z"), (b("b"), Some(b("c"))));
    assert_eq!(cut("b", "bb", "bz"), (b("bb"), Some(b("bz"))));
    assert_eq!(after_prefix(&[7, 255, 255]), Some(Bytes::from_static(&[8])));
    assert_eq!(after_prefix(&[255, 255]), None);
}
