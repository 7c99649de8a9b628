//! Every value comes back as it was, format 1 stays as it is, and no bytes do harm.

use super::*;
use model::{
    AcceptedLoss, Body, Cache, ClientId, Condition, Consistency, Epoch, Expiring, Expiry,
    ExpiryCondition, Guard, Item, Keyspace, KeyspaceError, KeyspaceId, KeyspaceSpec, Kind,
    MembershipError, Miss, NodeId, OperatorCommand, Placement, PlacementBar, Promotion, Query,
    ReadConsistency, ReadPoint, RequestId, Revision, Rmw, ScanFilter, Scope, SiteId, Slot, Step,
    Taken, Versioned, Write,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn bytes() -> impl Strategy<Value = Bytes> + Clone {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn list() -> impl Strategy<Value = Vec<Bytes>> {
    vec(bytes(), 0..4)
}

fn pairs() -> impl Strategy<Value = Vec<(Bytes, Bytes)>> {
    vec((bytes(), bytes()), 0..4)
}

fn read_point() -> impl Strategy<Value = ReadPoint> {
    (revision(), any::<u64>())
        .prop_map(|(revision, epoch)| ReadPoint { revision, epoch: model::Epoch::counted(epoch) })
}

fn revision() -> impl Strategy<Value = Revision> + Clone {
    any::<u64>().prop_map(Revision)
}

fn keyspace_id() -> impl Strategy<Value = KeyspaceId> {
    any::<u32>().prop_map(KeyspaceId)
}

fn node() -> impl Strategy<Value = NodeId> {
    any::<u64>().prop_map(NodeId)
}

fn request_id() -> impl Strategy<Value = Option<RequestId>> {
    let id = any::<(u64, u64, u64)>().prop_map(|(client, sequence, acknowledged_below)| {
        RequestId { client: ClientId(client), sequence, acknowledged_below }
    });
    option::of(id)
}

fn consistency() -> impl Strategy<Value = Consistency> {
    use Consistency::*;
    select(vec![Linearizable, Causal, Session, Eventual])
}

fn scope() -> impl Strategy<Value = Scope> {
    select(vec![Scope::Site, Scope::Global, Scope::Region, Scope::Tree])
}

fn spec() -> impl Strategy<Value = KeyspaceSpec> {
    let placement = select(vec![
        (Placement::Off, false),
        (Placement::Off, true),
        (Placement::Advise, false),
        (Placement::Advise, true),
        (Placement::Adaptive, false),
    ]);
    let cache = prop_oneof![
        Just(Cache::Off),
        any::<u64>().prop_map(|bytes_max| Cache::Validated { bytes_max }),
        any::<(u64, u64)>()
            .prop_map(|(bytes_max, age_ms_max)| Cache::Stale { bytes_max, age_ms_max }),
    ];
    let rmw = select(vec![Rmw::Refuse, Rmw::Local]);
    let fetch = any::<u64>().prop_map(|held_bytes_max| Miss::Fetch { held_bytes_max });
    let miss = prop_oneof![Just(Miss::Forward), Just(Miss::Refuse), fetch];
    let rules = (vec(any::<u32>().prop_map(SiteId), 0..4), prop_oneof![Just(100), any::<u16>()]);
    let held = (vec(any::<u32>().prop_map(SiteId), 0..4), miss, rules);
    (any::<String>(), bytes(), consistency(), scope(), placement, any::<bool>(), cache, rmw, held)
        .prop_map(|(name, prefix, consistency, scope, placement, lease_reads, cache, rmw, held)| {
            let ((sites, miss, rules), (placement, was_adaptive)) = (held, placement);
            let (lend_to, priority) = rules;
            let of_site = KeyspaceSpec::linearizable_site(name, prefix);
            let promise = KeyspaceSpec { consistency, scope, placement, ..of_site };
            let promise = KeyspaceSpec { lend_to, priority, ..promise };
            KeyspaceSpec { was_adaptive, lease_reads, cache, rmw, sites, miss, ..promise }
        })
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Never),
        Just(Expiry::Keep),
        any::<u64>().prop_map(Expiry::AfterMs),
        any::<u64>().prop_map(Expiry::AtMs),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent),
        revision().prop_map(Condition::IfVersion),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    use ExpiryCondition::*;
    let expiry_condition = select(vec![Always, IfNone, IfSome, IfLater, IfEarlier, IfSomeEarlier]);
    prop_oneof![
        (bytes(), bytes(), condition(), expiry(), any::<bool>()).prop_map(
            |(key, value, condition, expiry, return_old)| Write::Put {
                key,
                value,
                condition,
                expiry,
                return_old
            }
        ),
        (pairs(), any::<bool>())
            .prop_map(|(pairs, if_all_absent)| Write::PutMany { pairs, if_all_absent }),
        (bytes(), bytes()).prop_map(|(key, suffix)| Write::Append { key, suffix }),
        (bytes(), any::<i64>()).prop_map(|(key, delta)| Write::Add { key, delta }),
        list().prop_map(|keys| Write::Delete { keys }),
        (bytes(), revision()).prop_map(|(key, version)| Write::DeleteIf { key, version }),
        bytes().prop_map(|key| Write::Take { key }),
        (bytes(), expiry(), expiry_condition)
            .prop_map(|(key, expiry, condition)| Write::SetExpiry { key, expiry, condition }),
        (bytes(), pairs()).prop_map(|(key, fields)| Write::HashSet { key, fields }),
        (bytes(), bytes(), bytes()).prop_map(|(key, field, value)| Write::HashSetIfAbsent {
            key,
            field,
            value
        }),
        (bytes(), list()).prop_map(|(key, fields)| Write::HashDelete { key, fields }),
        (bytes(), bytes(), any::<i64>()).prop_map(|(key, field, delta)| Write::HashAdd {
            key,
            field,
            delta
        }),
        (bytes(), expiry()).prop_map(|(key, expiry)| Write::GetAndExpire { key, expiry }),
        Just(Write::Clear),
        Just(Write::ClearAll),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    select(vec![Kind::String, Kind::Hash])
}

fn query() -> impl Strategy<Value = Query> {
    let filter = (option::of(bytes()), option::of(kind()))
        .prop_map(|(glob, kind)| ScanFilter { glob, kind });
    prop_oneof![
        bytes().prop_map(|key| Query::Get { key }),
        list().prop_map(|keys| Query::GetMany { keys }),
        list().prop_map(|keys| Query::Exists { keys }),
        bytes().prop_map(|key| Query::Expiry { key }),
        bytes().prop_map(|key| Query::Kind { key }),
        bytes().prop_map(|key| Query::Length { key }),
        list().prop_map(|keys| Query::Versions { keys }),
        list().prop_map(|keys| Query::Watch { keys }),
        (bytes(), bytes()).prop_map(|(key, field)| Query::HashGet { key, field }),
        (bytes(), list()).prop_map(|(key, fields)| Query::HashGetMany { key, fields }),
        bytes().prop_map(|key| Query::HashGetAll { key }),
        (bytes(), bytes()).prop_map(|(key, field)| Query::HashExists { key, field }),
        bytes().prop_map(|key| Query::HashLen { key }),
        Just(Query::Count),
        (bytes(), option::of(bytes()), any::<usize>(), filter, any::<bool>()).prop_map(
            |(from, until, examine_max, filter, with_values)| Query::Scan {
                from,
                until,
                examine_max,
                filter,
                with_values
            }
        ),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let guard = (bytes(), revision(), proptest::option::of(read_point()))
        .prop_map(|(key, version, absent_since)| Guard { key, version, absent_since });
    let read_in = (keyspace_id(), query());
    let step = prop_oneof![
        query().prop_map(Step::Read),
        write().prop_map(Step::Write),
        read_in.prop_map(|(keyspace, query)| Step::ReadIn { keyspace, query }),
    ];
    prop_oneof![
        (keyspace_id(), write(), request_id())
            .prop_map(|(keyspace, write, request)| Command::Write { keyspace, write, request }),
        (keyspace_id(), vec(guard, 0..3), vec(step, 0..4), request_id()).prop_map(
            |(keyspace, guards, steps, request)| Command::Transaction {
                keyspace,
                guards,
                steps,
                request
            }
        ),
        Just(Command::ClearAll),
        spec().prop_map(Command::CreateKeyspace),
        any::<String>().prop_map(|name| Command::DropKeyspace { name }),
        (any::<String>(), keyspace_id(), revision()).prop_map(|(name, keyspace, position)| {
            Command::SetCursor { name, keyspace, position }
        }),
        (any::<String>(), keyspace_id())
            .prop_map(|(name, keyspace)| Command::DropCursor { name, keyspace }),
        Just(Command::Tick),
    ]
}

fn operator_command() -> impl Strategy<Value = OperatorCommand> {
    let site = || any::<u32>().prop_map(SiteId);
    let id = || any::<u64>().prop_map(operator_number);
    let reported = option::of((0u64..9, any::<u64>())).prop_map(|from| {
        let from = from.map(|(count, position)| (Epoch::counted(count), position));
        vec![Taken { by: SiteId(3), slots: "0-9,12".parse().unwrap(), from }]
    });
    let accepts = prop_oneof![
        Just(AcceptedLoss::Nothing),
        option::of(id()).prop_map(|id| AcceptedLoss::AsFound { id }),
        (id(), reported).prop_map(|(id, reported)| AcceptedLoss::AsReported { id, reported }),
    ];
    prop_oneof![
        (node(), ".{0,20}", any::<bool>(), any::<bool>(), option::of(id())).prop_map(
            |(node, address, witness, force, id)| OperatorCommand::AddNode {
                node,
                address,
                witness,
                force,
                id
            }
        ),
        (node(), any::<bool>(), option::of(id()))
            .prop_map(|(node, force, id)| OperatorCommand::RemoveNode { node, force, id }),
        (site(), option::of(site()), vec(site(), 0..3), accepts).prop_map(
            |(lost, by, without, accepts)| {
                OperatorCommand::Promote(Promotion { lost, by, without, accepts })
            }
        ),
    ]
}

fn operator_number(sequence: u64) -> RequestId {
    RequestId { client: ClientId(7), sequence, acknowledged_below: 1 }
}

fn request() -> impl Strategy<Value = Request> {
    let consistency = select(vec![ReadConsistency::Linearizable, ReadConsistency::Stale]);
    let body = prop_oneof![
        (keyspace_id(), query(), consistency)
            .prop_map(|(keyspace, query, consistency)| Body::Read { keyspace, query, consistency }),
        command().prop_map(Body::Write),
        operator_command().prop_map(Body::Operator),
        node().prop_map(|node| Body::TransferLeader { node }),
        Just(Body::ListJobs),
        Just(Body::ShowPlacementLedger),
        (keyspace_id(), bytes())
            .prop_map(|(keyspace, key)| Body::ExplainPlacement { keyspace, key }),
        (select(model::JobName::ALL.to_vec()), any::<bool>())
            .prop_map(|(job, paused)| Body::SwitchJob { job, paused }),
    ];
    (body, option::of(any::<u64>()))
        .prop_map(|(body, deadline_ms)| Request { deadline_ms, ..Request::new(body) })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let keyspace_error = prop_oneof![
        any::<String>().prop_map(KeyspaceError::Name),
        any::<String>().prop_map(KeyspaceError::Prefix),
        any::<String>().prop_map(KeyspaceError::RmwConsistency),
        any::<String>().prop_map(KeyspaceError::SitesConsistency),
        any::<String>().prop_map(KeyspaceError::FetchSites),
        any::<String>().prop_map(KeyspaceError::HeldBytes),
        any::<String>().prop_map(KeyspaceError::RulesPlacement),
        any::<String>().prop_map(KeyspaceError::Priority),
        (any::<String>(), consistency(), scope()).prop_map(|(name, consistency, scope)| {
            KeyspaceError::NotServed { name, consistency, scope }
        }),
    ];
    prop_oneof![
        Just(Refusal::WrongType),
        Just(Refusal::NotAnInteger),
        Just(Refusal::Overflow),
        any::<usize>().prop_map(Refusal::KeyTooLong),
        any::<usize>().prop_map(Refusal::ValueTooLong),
        any::<String>().prop_map(Refusal::NoKeyspace),
        keyspace_error.prop_map(Refusal::Keyspace),
        any::<String>().prop_map(|name| Refusal::KeyspaceExists { name }),
        Just(Refusal::DefaultKeyspace),
        any::<usize>().prop_map(|max| Refusal::TooMany { what: "cursors", max }),
        Just(Refusal::RequestForgotten),
        any::<u64>().prop_map(|oldest| Refusal::ChangesTrimmed { oldest }),
        Just(Refusal::AnswerTooLong),
    ]
}

fn plain_answer() -> impl Strategy<Value = Answer> {
    let versioned = (bytes(), revision()).prop_map(|(value, version)| Versioned { value, version });
    let expiring = prop_oneof![
        Just(Expiring::Absent),
        Just(Expiring::Never),
        any::<u64>().prop_map(Expiring::AtMs),
        (any::<u64>(), any::<u64>())
            .prop_map(|(wall_ms, left_ms)| Expiring::At { wall_ms, left_ms }),
    ];
    let item = (bytes(), kind(), revision(), option::of(bytes()))
        .prop_map(|(key, kind, version, value)| Item { key, kind, version, value });
    let keyspace = (keyspace_id(), spec())
        .prop_map(|(id, spec)| Answer::Keyspace(Box::new(Keyspace { id, spec })));
    prop_oneof![
        revision().prop_map(Answer::Done),
        option::of(versioned).prop_map(Answer::Value),
        vec(option::of(bytes()), 0..4).prop_map(Answer::Values),
        any::<i64>().prop_map(Answer::Integer),
        any::<bool>().prop_map(Answer::Flag),
        pairs().prop_map(Answer::Fields),
        option::of(kind()).prop_map(Answer::Kind),
        expiring.prop_map(Answer::Expiry),
        vec(revision(), 0..4).prop_map(Answer::Versions),
        (vec(revision(), 0..4), read_point())
            .prop_map(|(versions, point)| Answer::Watched { versions, point }),
        (any::<bool>(), revision(), option::of(bytes()))
            .prop_map(|(applied, version, old)| Answer::Put { applied, version, old }),
        (vec(item, 0..4), option::of(bytes()))
            .prop_map(|(items, next)| Answer::Page { items, next }),
        Just(Answer::Aborted),
        keyspace,
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let step = prop_oneof![plain_answer().prop_map(Ok), refusal().prop_map(Err)];
    prop_oneof![4 => plain_answer(), 1 => vec(step, 0..4).prop_map(Answer::Steps)]
}

fn failure() -> impl Strategy<Value = Failure> {
    let membership = prop_oneof![
        Just(MembershipError::InProgress),
        node().prop_map(MembershipError::NotAMember),
        node().prop_map(MembershipError::AlreadyAMember),
        Just(MembershipError::TooManyNodes),
        node().prop_map(MembershipError::LastVoter),
        node().prop_map(MembershipError::CannotLead),
        node().prop_map(MembershipError::NotHandedOver),
        Just(MembershipError::KeptInEtcd),
        (node(), ".{0,20}").prop_map(|(node, address)| MembershipError::IdInUse { node, address }),
        (node(), any::<u64>(), any::<u64>()).prop_map(|(node, voters, reachable)| {
            MembershipError::FewerReachable { node, voters, reachable }
        }),
    ];
    prop_oneof![
        refusal().prop_map(Failure::Refused),
        Just(Failure::NoLeader),
        Just(Failure::Overloaded { what: "keyspaces" }),
        any::<String>().prop_map(Failure::DiskFull),
        Just(Failure::Unknown { why: "cursors" }),
        Just(Failure::NotServing("cursors")),
        Just(Failure::BorrowerUnreachable { slot: Slot::LAST, borrower: "pier".into() }),
        membership.prop_map(Failure::Membership),
    ]
}

proptest! {
    #[test]
    fn a_batch_comes_back(log_time_ms in any::<u64>(), commands in vec(command(), 0..5)) {
        let batch = Batch { log_time_ms, commands };
        let bytes = encode(&batch);
        prop_assert_eq!(decode(bytes.clone()).unwrap(), batch);
        check_any(&bytes);
    }

    #[test]
    fn a_request_and_its_reply_come_back(
        request in request(),
        answer in answer(),
        failure in failure(),
        refusal in refusal(),
    ) {
        prop_assert_eq!(decode_request(encode_request(&request)).unwrap(), request);
        for reply in [Ok(answer.clone()), Err(failure)] {
            prop_assert_eq!(decode_reply(encode_reply(&reply)).unwrap(), reply);
        }
        for outcome in [Ok(answer), Err(refusal)] {
            prop_assert_eq!(decode_outcome(encode_outcome(&outcome)).unwrap(), outcome);
        }
    }

    #[test]
    fn what_is_cut_is_short_and_never_something_else(command in command(), cut in any::<usize>()) {
        let bytes = encode_command(&command);
        prop_assert_eq!(&decode_command(bytes.clone()).unwrap(), &command);
        let len = cut % bytes.len();
        prop_assert_eq!(decode_command(bytes.slice(..len)), Err(EntryError::Short));
    }

    #[test]
    fn no_bytes_do_harm(mut bytes in vec(any::<u8>(), 0..200), has_format in any::<bool>()) {
        if has_format && !bytes.is_empty() {
            bytes[0] = FORMAT;
        }
        check_any(&bytes);
    }

    #[test]
    fn no_change_of_good_bytes_does_harm(
        commands in vec(command(), 1..4),
        answer in answer(),
        at in any::<usize>(),
        to in any::<u8>(),
    ) {
        for good in [encode(&Batch { log_time_ms: 1, commands }), encode_reply(&Ok(answer))] {
            let mut bytes = good.to_vec();
            let at = at % bytes.len();
            bytes[at] = to;
            check_any(&bytes);
        }
    }
}

#[test]
fn format_1_stays_as_it_is() {
    let put = Write::Put {
        key: "car:7".into(),
        value: "here".into(),
        condition: Condition::IfVersion(Revision(300)),
        expiry: Expiry::AfterMs(1_000),
        return_old: true,
    };
    let batch = Batch {
        log_time_ms: 0x0102_0304,
        commands: vec![
            Command::Write {
                keyspace: KeyspaceId(2),
                write: put,
                request: Some(RequestId {
                    client: ClientId(9),
                    sequence: 4,
                    acknowledged_below: 3,
                }),
            },
            Command::Transaction {
                keyspace: KeyspaceId(0),
                guards: vec![Guard { key: "a".into(), version: Revision(0), absent_since: None }],
                steps: vec![
                    Step::Read(Query::Count),
                    Step::Write(Write::Add { key: "n".into(), delta: -1 }),
                ],
                request: None,
            },
            Command::CreateKeyspace(KeyspaceSpec::linearizable_site("cars", "car:")),
            Command::SetCursor {
                name: "w".to_string(),
                keyspace: KeyspaceId(1),
                position: Revision(5),
            },
            Command::Tick,
        ],
    };
    let expected: &[&[u8]] = &[
        b"\x01\x04\x03\x02\x01\x00\x00\x00\x00",
        b"\x01\x02\x01\x05car:7\x04here\x03\xac\x02\x02\xe8\x07\x01\x01\x09\x04\x03",
        b"\x02\x00\x01\x01a\x00\x00\x02\x01\x0d\x02\x04\x01n\x01\x00",
        b"\x04\x04cars\x04car:\x01\x01\x01\x00\x00\x01\x01\x00\x01",
        b"\x06\x01w\x01\x05",
        b"\x08",
    ];
    assert_eq!(encode(&batch), expected.concat());
    assert_eq!(decode(encode(&batch)), Ok(batch));

    let page = Answer::Page {
        items: vec![Item {
            key: "k".into(),
            kind: Kind::String,
            version: Revision(1),
            value: Some("v".into()),
        }],
        next: None,
    };
    let steps =
        Answer::Steps(vec![Ok(page), Err(Refusal::TooMany { what: "cursors", max: 1_024 })]);
    let expected =
        b"\x01\x01\x0c\x02\x01\x0b\x01\x01k\x01\x01\x01\x01v\x00\x00\x0a\x07cursors\x80\x08";
    assert_eq!(&encode_outcome(&Ok(steps))[..], expected);
    let unknown = Err(Failure::Unknown { why: "cursors" });
    assert_eq!(&encode_reply(&unknown)[..], b"\x01\x00\x05\x07cursors");
}

#[test]
fn format_1_of_a_keyspace_stays_as_it_is() {
    let global = KeyspaceSpec::linearizable_global("cars", "car:");
    let causal = KeyspaceSpec::causal_region("cars", "car:");
    let head = b"\x01\x07\x04cars\x04car:";
    let cache = Cache::Stale { bytes_max: 5_000, age_ms_max: 70 };
    let (sites, miss) = (vec![SiteId(2), SiteId(300)], Miss::Refuse);
    let ruled = global.clone();
    for (spec, rest) in [
        (global.clone(), &b"\x01\x02\x01\x00\x00\x01\x01\x00\x01"[..]),
        (
            KeyspaceSpec { cache, lease_reads: true, ..global.clone() },
            b"\x01\x02\x01\x00\x01\x03\x88\x27\x46\x01\x00\x01",
        ),
        (
            KeyspaceSpec { cache: Cache::Validated { bytes_max: 5_000 }, ..global },
            b"\x01\x02\x01\x00\x00\x02\x88\x27\x01\x00\x01",
        ),
        (
            KeyspaceSpec { rmw: Rmw::Local, sites: sites.clone(), miss, ..causal.clone() },
            b"\x02\x03\x01\x00\x00\x01\x02\x02\x02\xac\x02\x02",
        ),
        (
            KeyspaceSpec { sites, miss: Miss::Fetch { held_bytes_max: 5_000 }, ..causal },
            b"\x02\x03\x01\x00\x00\x01\x01\x02\x02\xac\x02\x03\x88\x27",
        ),
        // With rules; the others are read as they were before there were any.
        (
            KeyspaceSpec {
                placement: Placement::Adaptive,
                lend_to: vec![SiteId(2), SiteId(300)],
                ..ruled.clone()
            },
            b"\x01\x02\x02\x02\x00\x01\x01\x00\x01\x02\x02\xac\x02\x64",
        ),
        (
            KeyspaceSpec { was_adaptive: true, priority: 300, ..ruled },
            b"\x01\x02\x01\x03\x00\x01\x01\x00\x01\x00\xac\x02",
        ),
    ] {
        let keyspace = Keyspace { id: KeyspaceId(7), spec };
        let written = Bytes::from([head, rest].concat());
        assert_eq!(encode_keyspace(&keyspace), written);
        assert_eq!(decode_keyspace(written), Ok(keyspace));
    }
    let no_cache = [head, &b"\x01\x02\x01\x00\x00\x09\x01\x00\x01"[..]].concat();
    assert!(matches!(decode_keyspace(no_cache.into()), Err(EntryError::Malformed { .. })));
    let later = [head, &b"\x01\x02\x01\x04\x00\x01\x01\x00\x01"[..]].concat();
    assert!(matches!(decode_keyspace(later.into()), Err(EntryError::Malformed { .. })));
}

#[test]
fn commands_may_be_gathered_one_by_one() {
    let mut encoder = BatchEncoder::new();
    assert!(encoder.is_empty());
    for _ in 0..limits::BATCH_COMMANDS_MAX {
        assert!(!encoder.is_full());
        encoder.push(&Command::Tick);
    }
    assert!(encoder.is_full());
    assert_eq!(encoder.len_bytes(), HEAD_BYTES + limits::BATCH_COMMANDS_MAX);
    let commands = vec![Command::Tick; encoder.len()];
    assert_eq!(decode(encoder.finish(7)), Ok(Batch { log_time_ms: 7, commands }));
}

#[test]
fn decoded_keys_and_values_lie_in_the_input() {
    let write = Write::Append { key: "key".into(), suffix: "suffix".into() };
    let command = Command::Write { keyspace: KeyspaceId(0), write, request: None };
    let bytes = encode_command(&command);
    let Ok(Command::Write { write: Write::Append { key, suffix }, .. }) =
        decode_command(bytes.clone())
    else {
        panic!("it was encoded as one");
    };
    let range = bytes.as_ptr_range();
    assert!(range.contains(&key.as_ptr()) && range.contains(&suffix.as_ptr()));
}

#[test]
fn a_lie_about_a_count_costs_nothing() {
    // A delete of 2^20 keys, of which none is there.
    let claim = Bytes::from_static(b"\x01\x01\x00\x05\x80\x80\x40");
    assert_eq!(decode_command(claim), Err(EntryError::Short));
    let max = limits::COMMAND_ARGS_MAX;
    let claim = Bytes::from_static(b"\x01\x01\x00\x05\x81\x80\x40");
    assert_eq!(decode_command(claim), Err(EntryError::TooMany { what: "items of one list", max }));
    // A key of 2^63 bytes.
    let claim = Bytes::from_static(b"\x01\x01\x00\x07\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01");
    assert_eq!(decode_command(claim), Err(EntryError::Short));
}

#[test]
fn answers_do_not_nest() {
    let steps = Answer::Steps(vec![Ok(Answer::Steps(vec![Ok(Answer::Aborted)]))]);
    let decoded = decode_outcome(encode_outcome(&Ok(steps)));
    assert!(matches!(decoded, Err(EntryError::Malformed { .. })), "{decoded:?}");
    // As deep as bytes allow: refused at the second level, not with the stack.
    let mut deep = vec![FORMAT];
    for _ in 0..100_000 {
        deep.extend_from_slice(&[1, 12, 1]);
    }
    assert!(decode_outcome(deep.into()).is_err());
}

#[test]
fn another_format_and_bytes_left_over_are_errors() {
    let tick = encode_command(&Command::Tick);
    let newer = Bytes::from([&[2], &tick[1..]].concat());
    assert_eq!(decode_command(newer), Err(EntryError::Version { found: 2 }));
    let longer = Bytes::from([&tick[..], b"x"].concat());
    assert_eq!(decode_command(longer), Err(EntryError::Trailing { offset: 2 }));
    let many = vec![Command::Tick; limits::BATCH_COMMANDS_MAX + 1];
    let many = encode(&Batch { log_time_ms: 0, commands: many });
    let max = limits::BATCH_COMMANDS_MAX;
    assert_eq!(decode(many), Err(EntryError::TooMany { what: "commands of one entry", max }));
}

#[test]
fn an_unknown_phrase_points_to_the_log() {
    let reply = Err(Failure::Unknown { why: "a phrase of a later version" });
    let read = decode_reply(encode_reply(&reply)).unwrap().unwrap_err();
    assert_eq!(
        read.to_string(),
        "the outcome is unknown (see the log of the node that answered): a write may or may not \
         have been applied"
    );
}

#[test]
fn format_1_of_a_guard_stays_as_it_is() {
    let point = ReadPoint { revision: Revision(300), epoch: model::Epoch::counted(2) };
    let transaction = |version, absent_since| Command::Transaction {
        keyspace: KeyspaceId(0),
        guards: vec![Guard { key: "a".into(), version: Revision(version), absent_since }],
        steps: Vec::new(),
        request: None,
    };
    for (command, guard) in [
        (transaction(7, None), &b"\x01a\x07\x00"[..]),
        (transaction(0, Some(point)), b"\x01a\x00\x01\xac\x02\x02"),
    ] {
        let expected = [b"\x01\x02\x00\x01", guard, b"\x00\x00"].concat();
        assert_eq!(encode_command(&command), expected);
        assert_eq!(decode_command(expected.into()), Ok(command));
    }
}

/// An earlier version writes a truth value.
#[test]
fn why_a_site_is_excluded_stays_as_it_is() {
    for (bar, byte) in [
        (None, 0),
        (Some(PlacementBar::Leaves), 1),
        (Some(PlacementBar::LendTo), 2),
        (Some(PlacementBar::Domain), 3),
        (Some(PlacementBar::Pinned), 4),
    ] {
        let mut out = Vec::new();
        model::PlacementCandidate { site: SiteId(2), mean_us: None, bar }.put(&mut out);
        assert_eq!(out, [2, 0, byte]);
    }
}

#[test]
fn answers_about_placement_survive_the_way() {
    let (a, b) = (model::SiteId(1), model::SiteId(2));
    let slot = model::Slot::of_key(b"car:7");
    let reasons = [
        model::PlacementReason::Unused,
        model::PlacementReason::Best,
        model::PlacementReason::UnknownHere,
        model::PlacementReason::NoCandidate,
        model::PlacementReason::WithinMargin { to: b, gain_us: 1, needed_us: 2 },
        model::PlacementReason::WithinNoise { to: b, gain_us: 1, needed_us: 2 },
        model::PlacementReason::Waits { to: b, gain_us: 1 },
        model::PlacementReason::Advised { to: b, gain_us: 1 },
        model::PlacementReason::Moves { to: b, gain_us: 1 },
        model::PlacementReason::TooLarge,
        model::PlacementReason::Pinned { to: b },
    ];
    let barred = |site, mean_us, bar| model::PlacementCandidate { site, mean_us, bar };
    let candidate = |site, mean_us| barred(site, mean_us, None);
    let explained = reasons.map(|why| model::PlacementExplained {
        slot,
        owner: a,
        bytes: 5_000,
        key_users: vec![(b, 48_810)],
        key_clients: vec![model::PlacementClient {
            number: 0xFD_0007,
            site: b,
            per_1000_s: 48_810,
        }],
        slot_users: vec![(b, 50_000), (a, 7)],
        candidates: vec![
            candidate(b, Some(1_530)),
            candidate(a, None),
            barred(b, None, Some(PlacementBar::Leaves)),
            barred(b, None, Some(PlacementBar::LendTo)),
            barred(b, None, Some(PlacementBar::Domain)),
            barred(b, None, Some(PlacementBar::Pinned)),
        ],
        alone_us: 0,
        why,
    });
    let group = model::GroupExplained { placed: explained[0].clone(), home: b };
    let explained = explained.map(|one| Answer::Placement(Box::new(one)));
    let ledger = model::PlacementLedger {
        advised: vec![model::AdvisedMove {
            slot,
            from: a,
            to: b,
            gain_us_per_s: 9,
            bytes: 5_000,
            for_ms: 70,
        }],
        windows: vec![model::PlacementWindow {
            number: 3,
            moves: 1,
            bytes: 5_000,
            expected_us_per_s: 9,
            saved_us: -4,
            paused_us: 11,
        }],
        groups: 2,
        dropped: 1,
    };
    let (keyspace, tag) = (model::KeyspaceId(1), Bytes::from("7"));
    let loans = model::LoansLedger {
        lent: vec![model::LentGroup { keyspace, tag: tag.clone(), to: b }],
        lent_count: 3,
        borrowed: vec![model::BorrowedGroup { keyspace, tag, from: b, saves_us_per_s: -5 }],
        borrowed_count: 1,
        windows: ledger.windows.clone(),
    };
    let others = [
        Answer::GroupPlacement(Box::new(group)),
        Answer::LedgerOfLoans(Box::new(ledger.clone()), Box::new(loans)),
        Answer::PlacementLedger(Box::new(ledger)),
    ];
    for answer in explained.into_iter().chain(others) {
        assert_eq!(decode_reply(encode_reply(&Ok(answer.clone()))), Ok(Ok(answer)));
    }
}
