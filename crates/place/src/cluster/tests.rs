//! URLs, surveys of servers with hostnames, and what answers hold.

use super::*;

#[test]
fn a_cluster_is_given_by_some_of_its_servers() {
    let read = |url| Access::parse(url, Duration::from_secs(1));
    let access = read("redis://10.0.0.1:7001,pier:7002").unwrap();
    let seeds: Vec<String> = access.seeds.iter().map(Address::to_string).collect();
    assert_eq!(seeds, ["10.0.0.1:7001", "pier:7002"]);
    assert!(access.credentials.is_none());
    let login = read("redis://ann:s@cret@pier:7002/").unwrap().credentials.unwrap();
    assert_eq!((&*login.user, &*login.password), ("ann", "s@cret"));
    let login = |url| read(url).unwrap().credentials.map(|one| (one.user, one.password));
    let is = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
    assert_eq!(login("redis://:secret@pier:1"), is("", "secret"));
    assert_eq!(login("redis://ann@pier:1"), is("ann", ""));
    assert_eq!(login("redis://a%3An%40n:s%2F%25%C3%A9+@pier:1"), is("a:n@n", "s/%é+"));
    // What is no encoded byte stays as it is.
    assert_eq!(login("redis://ann:100%@pier:1"), is("ann", "100%"));
    assert!(read("redis://ann:%FF@pier:1").is_err());
    assert!(!read("valkey://pier:1").unwrap().is_secret);
    assert!(read("rediss://pier:1").unwrap().is_secret);
    for wrong in ["pier:7002", "redis://", "redis://pier", "redis://a:1,", "http://a:1"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

/// Of Redis 7.0 with `cluster-preferred-endpoint-type hostname`. The third server announces no
/// hostname: `CLUSTER SLOTS` and `SHARDS` have `?` for it.
const NAMED: &str = "\
b30031a4b27ab86d83d7d65701b3037f7d944232 127.0.0.1:47103@47203 master - 0 1795859908343 3 connected 10923-16383
1181733b86c85a275fe601eb5f32d740b9ca923c 127.0.0.1:47101@47201,pier-1.example myself,master - 0 1795859908000 1 connected 0-5460
28c71b333a1fd03cd19cc2fac12df931ab673472 127.0.0.1:47102@47202,pier-2.example master - 0 1795859909347 2 connected 5461-10922
";

const IDS: [&str; 3] = [
    "1181733b86c85a275fe601eb5f32d740b9ca923c",
    "28c71b333a1fd03cd19cc2fac12df931ab673472",
    "b30031a4b27ab86d83d7d65701b3037f7d944232",
];

/// The text as each of the three servers reports it.
fn reported(text: &str) -> Survey {
    let text = text.replace("myself,", "");
    let of = |id: &str| {
        let own = text.lines().find(|line| line.starts_with(id)).unwrap();
        let marked = own.replace(" master", " myself,master");
        (NodeId::from(id), View::parse(&text.replace(own, &marked)).unwrap())
    };
    Survey { views: IDS.map(of).into(), ..Survey::default() }
}

#[test]
fn a_master_is_found_by_each_of_its_addresses() {
    let found = |text: &str| {
        let found = reported(text).masters_by_address();
        let shown = |(at, id): (Address, NodeId)| format!("{at} {id}");
        found.into_iter().map(shown).collect::<Vec<_>>()
    };
    let by_ip =
        ["127.0.0.1:47101 1181733b", "127.0.0.1:47102 28c71b33", "127.0.0.1:47103 b30031a4"];
    let by_name = ["pier-1.example:47101 1181733b", "pier-2.example:47102 28c71b33"];
    assert_eq!(found(NAMED), [&by_ip[..], &by_name].concat());
    assert_eq!(reported(NAMED).shown(&NodeId::from(IDS[0])), "127.0.0.1:47101");
    // A hostname that leads to any of them is none of a server, unless the ports differ.
    let proxy = NAMED.replace("pier-2.example", "pier-1.example");
    assert_eq!(found(&proxy)[4], "pier-1.example:47102 28c71b33");
    let proxy = proxy.replace("127.0.0.1:47102@", "127.0.0.2:47101@");
    let expected =
        ["127.0.0.1:47101 1181733b", "127.0.0.1:47103 b30031a4", "127.0.0.2:47101 28c71b33"];
    assert_eq!(found(&proxy), expected);
    // Before it has met another one a server does not have its own IP address; the others do.
    let mut survey = reported(NAMED);
    let own = View::parse(
        "b30031a4b27ab86d83d7d65701b3037f7d944232 :47103@47203 myself,master - 0 0 3 connected",
    );
    survey.views.insert(NodeId::from(IDS[2]), own.unwrap());
    assert_eq!(survey.shown(&NodeId::from(IDS[2])), "127.0.0.1:47103");
}

#[test]
fn a_claim_may_lose_until_all_servers_have_the_last_epoch_of_each_master() {
    let mut survey = reported(NAMED);
    assert_eq!(survey.unsettled(&[]), None);
    let [first, second, third] = IDS.map(NodeId::from);
    let uninformed = |server: &NodeId| {
        Some(Unsettled::Uninformed { server: server.clone(), master: IDS[1].into() })
    };
    let claim = |survey: &mut Survey, at: &NodeId, epoch| {
        let known = survey.views.get_mut(at).and_then(|view| view.peers.get_mut(&second));
        known.unwrap().epoch = epoch;
    };
    claim(&mut survey, &second, 7);
    assert_eq!(survey.unsettled(&[]), uninformed(&first));
    claim(&mut survey, &first, 7);
    assert_eq!(survey.unsettled(&[]), uninformed(&third));
    claim(&mut survey, &third, 7);
    assert_eq!(survey.unsettled(&[]), None);
    // A replica, too, may assign a slot to a former owner; what it has of itself is no claim.
    let replica = "c 127.0.0.1:4@5 myself,slave 28c71b333a1fd03cd19cc2fac12df931ab673472 0 0 9 \
                   connected\n28c71b333a1fd03cd19cc2fac12df931ab673472 127.0.0.1:47102@47202 \
                   master - 0 0 2 connected 5461-10922";
    survey.views.insert("c".into(), View::parse(replica).unwrap());
    assert_eq!(survey.unsettled(&[]), None, "no other server hears of it");
    let known = Peer { epoch: 7, ..survey.views[&first].peers[&second].clone() };
    let first_view = survey.views.get_mut(&first).unwrap();
    first_view.peers.insert("c".into(), Peer { replica_of: Some(second.clone()), ..known });
    assert_eq!(survey.unsettled(&[]), uninformed(&"c".into()));
    survey.views.get_mut(&first).unwrap().peers.get_mut(&"c".into()).unwrap().is_failing = true;
    assert_eq!(survey.unsettled(&[]), None);
    assert_eq!(survey.unsettled(&[&"c".into()]), uninformed(&"c".into()), "it is to own a slot");
    // The two are about to have different ones.
    for view in survey.views.values_mut() {
        view.peers.entry(third.clone()).and_modify(|peer| peer.epoch = 7);
    }
    assert_eq!(survey.unsettled(&[]), Some(Unsettled::Tied(second, third)));
}

#[test]
fn a_server_is_reached_where_it_was_given_then_by_its_new_addresses() {
    let access = Access::parse("redis://seed:1", Duration::from_secs(1)).unwrap();
    let seed = Some(access.seeds[0].clone());
    let (mut cluster, ids) = (Cluster::new(access), IDS.map(NodeId::from));
    cluster.nodes.insert(ids[0].clone(), Node { seed, ..Node::default() });
    let mut reached = |text: &str| {
        cluster.take(&mut Survey::default(), View::parse(text).unwrap());
        let at = |id: &NodeId| cluster.nodes[id].reached_at();
        let all = ids.iter().flat_map(at).map(|at| at.to_string());
        all.collect::<Vec<_>>().join(" ")
    };
    let known = "seed:1 127.0.0.1:47101 pier-1.example:47101 127.0.0.1:47102 pier-2.example:47102 127.0.0.1:47103";
    assert_eq!(reached(NAMED), known);
    // A server that comes back elsewhere keeps its id and its hostname.
    assert_eq!(
        reached(&NAMED.replace("127.0.0.1", "10.0.0.9")),
        known.replace("127.0.0.1", "10.0.0.9")
    );
}

#[test]
fn a_server_may_bound_its_memory() {
    let info = "# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nmaxmemory:";
    assert_eq!(memory(&format!("{info}0\r\n")), Some((1_000, None)));
    assert_eq!(memory(&format!("{info}5000\r\n")), Some((1_000, Some(5_000))));
    assert_eq!(memory("# Memory\r\n"), None);
}

#[test]
fn an_older_run_is_seen_by_the_name_of_its_connection() {
    let list = "id=3 addr=1.1.1.1:5 name= cmd=ping\n\
                id=4 addr=1.1.1.1:6 name=portolan-place-1-a cmd=client\n\
                id=9 addr=1.1.1.1:7 name=portolan-place-2-b cmd=client\n";
    assert_eq!(older_run(list, "portolan-place-1-a"), None);
    assert_eq!(older_run(list, "portolan-place-2-b"), Some("1.1.1.1:6".to_owned()));
    assert_eq!(older_run(list, "portolan-place-3-c"), Some("1.1.1.1:6".to_owned()));
}

#[test]
fn a_server_that_cannot_answer_now_is_absent_and_one_that_refuses_is_an_error() {
    let access = Access::parse("redis://seed:1", Duration::from_secs(1)).unwrap();
    let (mut cluster, id) = (Cluster::new(access), NodeId::from(IDS[0]));
    cluster.take(&mut Survey::default(), View::parse(NAMED).unwrap());
    let understood =
        |text: &'static str| cluster.understood(&id, Ok(vec![Reply::Error(text.into())]));
    for passing in [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ] {
        let absent = CallError::Refused(passing.to_owned());
        assert_eq!(understood(passing), Ok(Err(absent)));
    }
    for refused in [
        "NOAUTH Authentication required.",
        "NOPERM User ann has no permissions to run the 'cluster|nodes' command",
        "BUSYGROUP Consumer Group name already exists",
    ] {
        assert!(matches!(understood(refused), Err(ClusterError::Call { .. })), "{refused}");
    }
}

#[test]
fn the_successor_of_a_target_that_is_away_was_its_replica() {
    let access = Access::parse("redis://seed:1", Duration::from_secs(1)).unwrap();
    let (source, target, third) = ("aaaa 1.1.1.1:1@2", "bbbb 1.1.1.1:2@3", "cccc 1.1.1.1:3@4");
    let link = "- 0 0 1 connected";
    let ids = ["aaaa", "bbbb", "cccc"].map(NodeId::from);
    let slot = Slot::new(7).unwrap();
    // The views of those that answer, after the same servers were asked before.
    let surveyed = |cluster: &mut Cluster, lines: [String; 3], answering: &[&str]| {
        let text = lines.join("\n");
        let view = |id: &&str| {
            let own = text.lines().find(|line| line.starts_with(id)).unwrap();
            let words: Vec<&str> = own.splitn(3, ' ').collect();
            let marked = format!("{} {} myself,{}", words[0], words[1], words[2]);
            // Marks are in a server's own line only.
            let others = text.lines().filter(|line| *line != own);
            let others = others.map(|line| line.split(" [").next().unwrap());
            let all: Vec<&str> = others.chain([&*marked]).collect();
            (NodeId::from(*id), View::parse(&all.join("\n")).unwrap())
        };
        let mut survey =
            Survey { views: answering.iter().map(view).collect(), ..Survey::default() };
        let silent = ids.iter().filter(|id| !survey.views.contains_key(*id)).cloned();
        survey.absent = silent.map(|id| (id, "down".to_owned())).collect();
        cluster.follow_failovers(&mut survey);
        survey.state(slot, &BTreeMap::new()).successors
    };
    let marked = |mark: &str| format!("{source} master {link} 0-99 [7->-{mark}]");
    let before = [
        marked("bbbb"),
        format!("{target} master {link} 100-16383"),
        format!("{third} slave bbbb 0 0 1 connected"),
    ];
    let away = |slots: &str| {
        [
            marked("bbbb"),
            format!("{target} master,fail {link}"),
            format!("{third} master {link} {slots}").trim_end().to_owned(),
        ]
    };
    let all = ["aaaa", "bbbb", "cccc"];
    let is_third: BTreeMap<NodeId, NodeId> = [(ids[1].clone(), ids[2].clone())].into();
    let mut cluster = Cluster::new(access.clone());
    assert_eq!(surveyed(&mut cluster, before.clone(), &all), [].into());
    assert_eq!(surveyed(&mut cluster, away("100-16383"), &["aaaa", "cccc"]), is_third);
    // It has been emptied, not failed over to.
    assert_eq!(surveyed(&mut cluster, away(""), &["aaaa", "cccc"]), [].into());
    // It has become a master beside its own.
    let apart = [
        marked("bbbb"),
        format!("{target} master {link}"),
        format!("{third} master {link} 100-16383"),
    ];
    assert_eq!(surveyed(&mut cluster, apart, &all), [].into());
    assert_eq!(surveyed(&mut cluster, away("100-16383"), &["aaaa", "cccc"]), [].into());
    // A program that starts later has not seen it as a replica.
    let mut later = Cluster::new(access);
    assert_eq!(surveyed(&mut later, away("100-16383"), &["aaaa", "cccc"]), [].into());
    // The former target is back: it reports its master.
    let back = [
        marked("bbbb"),
        format!("{target} slave cccc 0 0 1 connected"),
        format!("{third} master {link} 100-16383"),
    ];
    assert_eq!(surveyed(&mut later, back.clone(), &all), is_third);
    // And gone again: the others report it.
    assert_eq!(surveyed(&mut later, back, &["aaaa", "cccc"]), is_third);
}
