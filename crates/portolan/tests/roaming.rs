//! Sessions of the Rust client over three real sites, each a process: one is killed with what it
//! was asked, and no session goes back behind what it has seen. How fast that is depends on the
//! machine and is not tested.

use client::{Batch, Options, Roaming, RoamingError, RoamingSession, ScanRange, Sites};
use field::deployment::{self, LIMIT};
use field::{Node, NodeOptions, eventually};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Three sites with the causal keyspace `cars`. The first is the root.
fn start(folder: &Path) -> Vec<Node> {
    let mut sites: Vec<Node> = Vec::new();
    for name in ["a", "b", "c"] {
        let mut options = deployment::options(folder, name, sites.last());
        options.program = env!("CARGO_BIN_EXE_portolan").into();
        sites.push(options.start());
    }
    deployment::create_causal(&sites);
    for site in &sites {
        let knows_root = eventually(LIMIT, || {
            let region = deployment::json(site, &["region", "show", "--json"])?;
            if region["root"] == "a" { Ok(()) } else { Err(region.to_string()) }
        });
        knows_root.expect("the first site is the root");
    }
    sites
}

fn connect(sites: &[Node], roaming: Roaming) -> Sites {
    let addresses = sites.iter().map(|site| {
        let NodeOptions { site, grpc, .. } = &site.options;
        (site.clone(), vec![grpc.to_string()])
    });
    Sites::connect(addresses, &Options::default(), roaming).unwrap()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

/// What a session of the test has written for certain, and what it may have.
struct Writer {
    session: RoamingSession,
    key: String,
    /// The last value that is certain; its reads may not be older.
    seen: u64,
    next: u64,
    /// Values of unknown outcome. Each may come late, over what was written meanwhile.
    unknown: BTreeSet<u64>,
}

impl Writer {
    /// Writes the next number, and reads: nothing older than what was seen before.
    async fn step(&mut self, unknown: &AtomicU64) {
        let cars = self.session.keyspace("cars");
        match cars.put(self.key.clone(), self.next.to_string()).await {
            Ok(_) => self.seen = self.next,
            Err(RoamingError::Unknown(_)) => {
                unknown.fetch_add(1, Ordering::Relaxed);
                self.unknown.insert(self.next);
            }
            Err(RoamingError::Unordered(_) | RoamingError::Behind(_) | RoamingError::NoSite(_)) => {
                // Its write has no place yet, as its site is away: nothing was done, and it calls
                // again.
            }
            Err(error) => panic!("{}: {error}", self.key),
        }
        self.next += 1;
        match cars.get(self.key.clone()).await {
            Ok(found) => {
                let found = found
                    .map_or(0, |found| std::str::from_utf8(&found.value).unwrap().parse().unwrap());
                let came_late = self.unknown.remove(&found);
                let went_back = found < self.seen && !came_late;
                assert!(!went_back, "{}: {found} after {}", self.key, self.seen);
                self.seen = found;
            }
            Err(RoamingError::Unordered(_) | RoamingError::Behind(_) | RoamingError::NoSite(_)) => {
            }
            Err(error) => panic!("{}: {error}", self.key),
        }
    }
}

/// How often a site did not serve a call of these sessions.
async fn repeats(sessions: &[RoamingSession]) -> u64 {
    let mut all = 0;
    for session in sessions {
        all += session.stats().await.repeats;
    }
    all
}

#[test]
fn no_session_goes_back_while_its_site_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut sites = start(folder.path());
    run(async {
        let roaming = Roaming { nearer: false, elsewhere: true, ..Roaming::default() };
        let shared = connect(&sites, roaming);
        let (ends, unknown) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (mut tasks, mut sessions) = (Vec::new(), Vec::new());
        for number in 0..9_usize {
            let home = ["a", "b", "c"][number % 3];
            let session = shared.session();
            sessions.push(session.clone());
            let cars = session.keyspace("cars");
            cars.move_to(home, Duration::from_secs(2)).await.unwrap();
            let key = format!("car:{number}");
            let unknown_values = BTreeSet::new();
            let mut writer = Writer { session, key, seen: 0, next: 1, unknown: unknown_values };
            let (ends, unknown) = (ends.clone(), unknown.clone());
            tasks.push(tokio::spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    writer.step(&unknown).await;
                }
                writer
            }));
        }
        // First a site that is not the root, then the root.
        for victim in [1_usize, 0] {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let mut missed = repeats(&sessions).await;
            for session in &sessions {
                missed += u64::from(
                    session.site().await.as_deref() == Some(&*sites[victim].options.site),
                );
            }
            sites[victim].kill();
            let began = Instant::now();
            // A session that wrote what the root does not have has to wait for the site.
            while repeats(&sessions).await < missed {
                assert!(began.elapsed() < LIMIT, "{missed} calls should have failed there");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            tokio::task::block_in_place(|| sites[victim].restart());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        ends.store(true, Ordering::Relaxed);
        for task in tasks {
            let mut writer = task.await.expect("its session did not go back");
            // Once all sites are there, all sessions go on.
            let began = Instant::now();
            let before = writer.next;
            while writer.seen < before {
                assert!(began.elapsed() < LIMIT, "{} does not go on", writer.key);
                writer.step(&unknown).await;
            }
            assert!(writer.seen > 1, "{}: {}", writer.key, writer.seen);
        }
        eprintln!("{} writes of unknown outcome", unknown.load(Ordering::Relaxed));
    });
}

#[test]
fn a_session_moves_and_takes_all_that_it_has_seen_along() {
    let folder = tempfile::tempdir().unwrap();
    let mut sites = start(folder.path());
    run(async {
        let shared = connect(&sites, Roaming::default());
        let session = shared.session();
        let cars = session.keyspace("cars");
        for round in 0..12_usize {
            let site = ["a", "b", "c"][round % 3];
            eventually_moved(&cars, site).await;
            assert_eq!(session.site().await.as_deref(), Some(site));
            if round > 0 {
                let found = cars.get("car:1").await.unwrap().expect("it was written");
                assert_eq!(found.value, (round - 1).to_string());
                let mut scan = cars.scan(ScanRange { with_values: true, ..ScanRange::default() });
                let item = scan.next().await.unwrap().unwrap();
                assert_eq!(item.value.as_deref(), Some((round - 1).to_string().as_bytes()));
                scan.next().await.unwrap().expect("the other one");
                assert_eq!(scan.next().await.unwrap(), None);
            }
            let value = round.to_string();
            cars.batch(Batch::new().put("car:1", value.clone()).put("car:2", value)).await.unwrap();
        }
        // Another process goes on with it.
        let token = session.token().await;
        let other = shared.session_of_token(token);
        let found = other.keyspace("cars").get("car:2").await.unwrap().expect("it was written");
        assert_eq!(found.value, "11");
        assert!(cars.delete("car:1").await.unwrap());
        assert_eq!(cars.get("car:1").await.unwrap(), None);

        // The errors have their names.
        let foreign = shared.session_of_token(vec![7; 53]);
        let refused = foreign.keyspace("cars").get("car:1").await;
        assert!(matches!(refused, Err(RoamingError::BadToken(_))), "{refused:?}");
        foreign.begin_anew().await;
        foreign.keyspace("cars").get("car:1").await.unwrap();
        let nowhere = cars.move_to("d", Duration::from_secs(1)).await;
        assert!(matches!(nowhere, Err(RoamingError::Refused(_))), "{nowhere:?}");

        // Its site is killed. All that it has seen has a place in the order.
        eventually_moved(&cars, "b").await;
        sites[1].kill();
        let began = Instant::now();
        let found = loop {
            match cars.get("car:2").await {
                Ok(found) => break found,
                Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
            }
        };
        assert_eq!(found.expect("it was written").value, "11");
        assert!(session.site().await.is_some_and(|site| site != "b"));

        // All are away: nothing was done, and the session is kept.
        for site in &mut sites {
            site.kill();
        }
        let none = cars.get("car:2").await;
        assert!(matches!(none, Err(RoamingError::NoSite(_))), "{none:?}");
        assert!(!session.token().await.is_empty());
    });
}

/// What the root has not ordered yet cannot move.
async fn eventually_moved(cars: &client::RoamingKeyspace, site: &str) {
    let began = Instant::now();
    loop {
        match cars.move_to(site, Duration::from_secs(2)).await {
            Ok(()) => return,
            Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
        }
    }
}

#[test]
fn a_site_without_what_a_session_has_seen_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let mut sites = start(folder.path());
    run(async {
        let shared =
            connect(&sites, Roaming { nearer: false, elsewhere: true, ..Roaming::default() });
        let session = shared.session();
        let cars = session.keyspace("cars");
        sites[2].kill();
        eventually_moved(&cars, "b").await;
        cars.put("car:1", "seen").await.unwrap();
        // At the root the write has its place.
        eventually_moved(&cars, "a").await;
        assert_eq!(cars.get("car:1").await.unwrap().unwrap().value, "seen");
        sites[0].kill();
        sites[1].kill();
        tokio::task::block_in_place(|| sites[2].restart());
        let lacks = cars.get("car:1").await;
        assert!(matches!(lacks, Err(RoamingError::Behind(_))), "{lacks:?}");
        let put = cars.put("car:1", "later").await;
        assert!(matches!(put, Err(RoamingError::Behind(_))), "nothing was done: {put:?}");
        tokio::task::block_in_place(|| sites[0].restart());
        let began = Instant::now();
        loop {
            match cars.get("car:1").await {
                Ok(found) => break assert_eq!(found.unwrap().value, "seen"),
                Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
            }
        }
    });
}
