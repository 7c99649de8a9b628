//! `portolan demo`: a city on one laptop.
//!
//! All sites of a world run in this process as one deployment, on real disks and real sockets, as
//! far apart as the world's links. Vehicles drive a recorded trace or made-up ways, attach to the
//! nearest site, share the hazards of the zone they are in, which are its site's business, keep two
//! records of their own, which are global keys, and move on. One of the two follows them, the other
//! is placed by hash; the view shows both side by side. The records of their trips are causal keys,
//! and what they read of these is judged as it comes. Meanwhile a site joins, the site with most
//! nodes loses its leader, and a site leaves; what the vehicles notice of it is measured, shown,
//! and judged at the end by reading back what was acknowledged.
//!
//! | module | its one idea |
//! | --- | --- |
//! | [`plan`] | what will be played: world, tracks, clock, from the arguments |
//! | [`city`] | the sites in this process; [`distance`]: how far apart their nodes are |
//! | [`roster`] | which of them serve now |
//! | [`vehicle`] | one client on its way; [`resp`] is its protocol, [`hazards`], [`records`] and [`trips`] its data |
//! | [`comparison`] | both kinds of records side by side, [`course`]: window by window; [`loans`]: what moving them brings |
//! | [`director`] | what is done meanwhile; [`script`] has the times, [`story`] the results |
//! | [`scene`] | what is seen; [`picture`] is one moment of it, [`operation`] the kinds that are counted |
//! | [`view`], [`lines`] | the moment on a terminal, or as plain lines |
//! | [`recorder`] | what was asked and answered, as a history that can be judged |
//! | [`outcome`] | the judgement, the final table, the report |

mod city;
mod clock;
mod comparison;
mod course;
mod director;
pub(crate) mod distance;
mod files;
mod hazards;
mod lines;
mod loans;
mod operation;
mod outcome;
mod picture;
mod plan;
mod recorder;
mod records;
pub(crate) mod resp;
mod roster;
mod scene;
mod script;
mod story;
mod trips;
mod vehicle;
mod view;

use std::{
    fs::File,
    io::{self, BufWriter},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use lab::{
    history::{MarkKind, Promise},
    link::Link,
    mobility::trace::TraceError,
    relay::Relay,
    verdict::{Options, judge},
    world::WorldError,
};
use model::{Failure, SiteName};
use rand::{SeedableRng, rngs::StdRng};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use self::{
    city::{City, CityError},
    director::Director,
    outcome::Outcome,
    plan::Plan,
    roster::Roster,
    scene::Scene,
    vehicle::{Shared, Vehicle},
};

/// How long vehicles may take to finish what they are doing at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15);

/// Play a city on this machine: vehicles moving between nine sites, of which one joins and one
/// leaves
///
/// Sites run in this process with real disks and sockets; all links are delayed by distance.
/// Vehicles share the hazards of the zone they are in through the nearest site, and each keeps two
/// records of its own, global keys that it reads wherever it goes: one follows it from site to
/// site, the other is where the hash of its key puts it. A record of its trip is a causal key,
/// which every site holds; it takes its session along, and each read is judged. Meanwhile a site
/// joins, the site of three nodes loses its leader, and another site hands its slots over and
/// leaves.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Replay this trace: CSV with the columns cab,t_s,lat,lon first, plain or gzip [default:
    /// vehicles are made up]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Seconds of the trace in a second of the demo
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = plan::speed)]
    speed: f64,

    /// How long to play, like 30s, 5m or 1h
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = plan::length)]
    length: Duration,

    /// How many vehicles [default: the world's count, or as many as the trace has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    vehicles: Option<u32>,

    /// A world file in TOML: sites, links, work [default: nine sites over San Francisco]
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,

    /// Where to write report.html, the CSV files and history.jsonl
    #[arg(long, value_name = "DIR", default_value = "portolan-report")]
    report: PathBuf,

    /// Plain progress lines, as when the output is not a terminal
    #[arg(long)]
    headless: bool,

    /// Decides made-up ways, think times and jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Why the demo could not be played.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The world file is not right.
    #[error("{0}")]
    World(#[from] WorldError),
    /// The trace is not right.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The trace.
        path: PathBuf,
        /// What is wrong with it.
        source: TraceError,
    },
    /// The trace has no vehicles.
    #[error("{}: no vehicle is on the road in the first {window_s:.0} s of the trace", path.display())]
    NoVehicles {
        /// The trace.
        path: PathBuf,
        /// What would have been played of it.
        window_s: f64,
    },
    /// The world has no vehicles.
    #[error(
        "world {name} has no [demo] and [[clients]]: the demo needs both to know what vehicles do"
    )]
    NoVehiclesInWorld {
        /// The world.
        name: SiteName,
    },
    /// The world's vehicles follow a trace, which the demo takes from the command line.
    #[error("the first clients of world {name} follow a trace: give it with --trace")]
    TraceInWorld {
        /// The world.
        name: SiteName,
    },
    /// The sites did not start.
    #[error("cannot start the city: {0}")]
    City(#[from] CityError),
    /// Too many files would be open.
    #[error(
        "{needed} files would be open at once and this system allows {allowed}: \
         play fewer --vehicles, or raise `ulimit -n`"
    )]
    Files {
        /// Estimated.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    /// The report could not be written.
    #[error("cannot write the report into {}: {source}", directory.display())]
    Report {
        /// Where to.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A site did not begin to leave.
    #[error("{name} cannot leave: {failure}")]
    Leave {
        /// The site.
        name: SiteName,
        /// Its error.
        failure: Failure,
    },
    /// A promise was broken. The report has been written.
    #[error("{writes} acknowledged writes were lost, which must never happen: please report it")]
    Lost {
        /// How many.
        writes: usize,
    },
    /// A vehicle did not see its own last write. The report has been written.
    #[error(
        "{reads} times a vehicle did not see what it had last written, which must never happen: \
         please report it"
    )]
    Stale {
        /// How many.
        reads: u64,
    },
    /// A vehicle saw a trip that was older than what its session had seen. The report has been
    /// written.
    #[error(
        "{anomalies} times a vehicle read a trip that was older than what its session had seen, which must never \
         happen: please report it"
    )]
    Anomalies {
        /// How many.
        anomalies: u64,
    },
    /// What the vehicles saw cannot be explained. The report has been written.
    #[error("what the vehicles saw was not {promise}, which must never happen: please report it")]
    Broken {
        /// The promise that was broken.
        promise: Promise,
    },
    /// The terminal or a socket failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl DemoError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Plays the demo to its end.
///
/// # Errors
/// See [`DemoError`]. That vehicles saw errors is a result, not an error.
pub(crate) fn run(args: &Args) -> Result<(), DemoError> {
    let plan = Plan::new(args)?;
    files::allow(plan.tracks.len(), &plan.world)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(DemoError::io("cannot start the runtime"))?;
    let played = runtime.block_on(play(plan, args));
    // A site whose start was under way when the user stopped may go on trying to join for ever.
    runtime.shutdown_background();
    played
}

async fn play(mut plan: Plan, args: &Args) -> Result<(), DemoError> {
    let mut city = City::start(&plan.world, args.seed, plan.to_join).await?;
    let roster = Roster::new(plan.world.sites.len());
    for site in (0..plan.world.sites.len()).filter(|site| Some(*site) != plan.to_join) {
        roster.open(site, city.endpoints(site));
    }
    let tracks = std::mem::take(&mut plan.tracks);
    let sites = plan.world.sites.iter().map(|site| site.name.to_string()).collect();
    let shared = Arc::new(Shared {
        world: plan.world.clone(),
        demo: plan.demo.clone(),
        margin_m: plan.margin_m,
        clock: plan.clock,
        roster,
        scene: Scene::new(sites, tracks.len(), args.length),
    });
    let (stop, stopped) = watch::channel(false);
    let mut driving = JoinSet::new();
    for (index, track) in tracks.into_iter().enumerate() {
        let seed = args.seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        // Where it leads, and how far, is set by the vehicle when it has chosen a site.
        let radio = Relay::open(Link::constant(0.0), seed)
            .await
            .map_err(DemoError::io("cannot open a relay"))?;
        let rng = StdRng::seed_from_u64(seed);
        let vehicle = Vehicle::new(index, shared.clone(), track, radio, rng);
        driving.spawn(vehicle.drive(stopped.clone()));
    }
    let director = Director::new(&mut city, &shared, &plan, args.length);
    let (story, audited) = director.direct(args).await?;
    let length = shared.scene.elapsed();
    let _ = stop.send(true);
    let finish = async { while driving.join_next().await.is_some() {} };
    if timeout(FINISH_TIMEOUT, finish).await.is_err() {
        driving.shutdown().await;
    }
    shared.scene.lock().recorder.mark(
        MarkKind::Note,
        "the vehicles have stopped".to_owned(),
        length,
    );
    let audit = outcome::audit(&shared, audited).await;
    city.stop().await;
    let history = {
        let at = shared.scene.elapsed();
        shared.scene.lock().recorder.take(plan.world.name.to_string(), args.seed, at)
    };
    let judged = judge(&history, &[], &Options::default());
    let outcome =
        Outcome { plan: &plan, shared: &shared, length, story, audit, history: &history, judged };
    outcome.print(io::stdout().lock()).map_err(DemoError::io("cannot write the result"))?;
    let cannot = |source| DemoError::Report { directory: args.report.clone(), source };
    let page = outcome.report().write(&args.report).map_err(cannot)?;
    let file = File::create(args.report.join("history.jsonl")).map_err(cannot)?;
    history.write(BufWriter::new(file)).map_err(cannot)?;
    outcome::point_at(&page, io::stdout().lock())
        .map_err(DemoError::io("cannot write the result"))?;
    let (wrong, anomalies) = {
        let seen = shared.scene.lock();
        (seen.records.found().wrong, seen.trips.found().anomalies)
    };
    match (audit.lost(), wrong, anomalies, outcome.broken()) {
        (0, 0, 0, None) => Ok(()),
        (0, 0, 0, Some(promise)) => Err(DemoError::Broken { promise }),
        (0, 0, anomalies, _) => Err(DemoError::Anomalies { anomalies }),
        (0, reads, ..) => Err(DemoError::Stale { reads }),
        (writes, ..) => Err(DemoError::Lost { writes }),
    }
}
