//! What will be played: the world, the tracks of vehicles, and how fast time goes.

use std::{path::Path, time::Duration};

use lab::{
    mobility::{self, Track, trace},
    world::{Attach, Clients, Demo, World, ready},
};
use rand::{SeedableRng, rngs::StdRng};

use super::{Args, DemoError, clock::Clock};

/// Longest run: the timeline keeps a row a second for a day.
const LENGTH_MAX: Duration = Duration::from_secs(86_400);
const SPEED_MAX: f64 = 100_000.0;

/// Everything decided before the city starts.
#[derive(Debug)]
pub(super) struct Plan {
    /// Where.
    pub(super) world: World,
    /// One vehicle each.
    pub(super) tracks: Vec<Track>,
    /// How many that were.
    pub(super) vehicles: usize,
    /// What the vehicles do.
    pub(super) demo: Demo,
    /// Another site must be nearer by this much before a vehicle moves on to it.
    pub(super) margin_m: f64,
    /// From real time to the tracks'.
    pub(super) clock: Clock,
    /// The site that loses its leader: the first of those with most nodes, if that is three or
    /// more.
    pub(super) to_kill: Option<usize>,
    /// The site that joins while it runs, if one does.
    pub(super) to_join: Option<usize>,
    /// The site that leaves while it runs, if one does.
    pub(super) to_leave: Option<usize>,
    /// One line for people.
    pub(super) title: String,
    /// Where the vehicles are from, for people.
    pub(super) vehicles_from: String,
}

impl Plan {
    /// Reads the world and the trace, or makes vehicles up.
    pub(super) fn new(args: &Args) -> Result<Self, DemoError> {
        let world = match &args.world {
            Some(path) => World::load(path, None)?,
            None => ready::san_francisco(),
        };
        let (Some(demo), Some(group)) = (world.demo.clone(), world.clients.first()) else {
            return Err(DemoError::NoVehiclesInWorld { name: world.name });
        };
        let margin_m = match group.attach {
            Attach::Nearest { margin_m } => margin_m,
            _ => 0.0,
        };
        let (tracks, clock) = match &args.trace {
            Some(path) => recorded(path, args, group.count)?,
            None => made_up(args, &world, group)?,
        };
        let vehicles_from = match &args.trace {
            Some(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            None => "made up".to_owned(),
        };
        Ok(Self {
            to_kill: to_kill(&world),
            to_join: demo.joins.as_deref().and_then(|name| named(&world, name)),
            to_leave: demo.leaves.as_deref().and_then(|name| named(&world, name)),
            title: format!("{} · {} vehicles · {vehicles_from}", world.title, tracks.len()),
            vehicles: tracks.len(),
            demo,
            margin_m,
            world,
            tracks,
            clock,
            vehicles_from,
        })
    }
}

fn named(world: &World, name: &str) -> Option<usize> {
    world.sites.iter().position(|site| site.name.as_str() == name)
}

fn to_kill(world: &World) -> Option<usize> {
    let most = world.sites.iter().map(|site| site.nodes).max().filter(|most| *most >= 3)?;
    world.sites.iter().position(|site| site.nodes == most)
}

/// The trace's vehicles that are on the road while it is played, evenly thinned out to the number
/// asked for.
fn recorded(path: &Path, args: &Args, usual: usize) -> Result<(Vec<Track>, Clock), DemoError> {
    let all =
        trace::load(path).map_err(|source| DemoError::Trace { path: path.to_owned(), source })?;
    let no_vehicles = |window_s| DemoError::NoVehicles { path: path.to_owned(), window_s };
    let (from_s, to_s) = mobility::span_s(&all).ok_or_else(|| no_vehicles(0.0))?;
    // A trace of one instant still needs a length to go round in.
    let clock = Clock { from_s, to_s: to_s.max(from_s + 1.0), speed: args.speed };
    let (start_s, end_s) = clock.window_s(args.length);
    let mut tracks: Vec<Track> =
        all.into_iter().filter(|track| track.is_present(start_s, end_s)).collect();
    if tracks.is_empty() {
        return Err(no_vehicles(end_s - start_s));
    }
    let wanted = args.vehicles.map_or(usual, |count| count as usize).min(tracks.len());
    let present = tracks.len();
    let chosen = |index: usize| (index + 1) * wanted / present > index * wanted / present;
    let mut index = 0..;
    tracks.retain(|_| index.next().is_some_and(chosen));
    Ok((tracks, clock))
}

fn made_up(args: &Args, world: &World, group: &Clients) -> Result<(Vec<Track>, Clock), DemoError> {
    let to_s = (args.length.as_secs_f64() * args.speed).max(1.0);
    let count = args.vehicles.map_or(group.count, |count| count as usize);
    let mut rng = StdRng::seed_from_u64(args.seed);
    let still = mobility::Mobility::Still(mobility::Still::default());
    let mobility = group.mobility.as_ref().unwrap_or(&still);
    let tracks: Option<Vec<Track>> = (0..count)
        .map(|index| mobility.track(index.to_string(), &world.area, to_s, &mut rng))
        .collect();
    match tracks {
        Some(tracks) => Ok((tracks, Clock { from_s: 0.0, to_s, speed: args.speed })),
        None => Err(DemoError::TraceInWorld { name: world.name.clone() }),
    }
}

/// Parses `--speed`.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "a number, like 60".to_owned())?;
    if speed > 0.0 && speed <= SPEED_MAX {
        return Ok(speed);
    }
    Err(format!("above 0 and at most {SPEED_MAX}"))
}

/// Parses `--for`: a number with its unit, `ms`, `s`, `m` or `h`.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err("a number with its unit, like 30s, 5m or 1h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    let length_s = number * unit_s;
    if (1.0..=LENGTH_MAX.as_secs_f64()).contains(&length_s) {
        return Ok(Duration::from_secs_f64(length_s));
    }
    Err("between 1s and 24h".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use clap::Parser;
    use model::SiteName;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        demo: Args,
    }

    fn args(line: &[&str]) -> Args {
        Cli::try_parse_from([&["demo"], line].concat()).expect("valid arguments").demo
    }

    #[test]
    fn lengths_have_units() {
        assert_eq!(length("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(length("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(length("2000ms"), Ok(Duration::from_secs(2)));
        for wrong in ["30", "s", "-3s", "0s", "25h", "3 days", "nans"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
        assert!(speed("60").is_ok() && speed("0").is_err() && speed("nan").is_err());
    }

    #[test]
    fn a_trace_is_thinned_out_evenly_to_those_on_the_road() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.csv");
        let mut csv = "cab,t_s,lat,lon\n".to_owned();
        for cab in 0..10 {
            // Odd cabs come too late for the run below.
            let start = if cab % 2 == 1 { 9_000 } else { 1_000 };
            let _ = writeln!(csv, "{cab},{start},37.7,-122.4\n{cab},{},37.8,-122.4", start + 200);
        }
        std::fs::write(&path, csv).unwrap();
        let trace = path.to_str().unwrap();
        let names = |extra: &[&str]| -> Vec<String> {
            let line = [&["--trace", trace, "--for", "10s"], extra].concat();
            let plan = Plan::new(&args(&line)).unwrap();
            assert_eq!((plan.clock.from_s, plan.clock.to_s), (1_000.0, 9_200.0));
            plan.tracks.iter().map(|track| track.name().to_owned()).collect()
        };
        assert_eq!(names(&[]), ["0", "2", "4", "6", "8"]);
        assert_eq!(names(&["--vehicles", "2"]), ["4", "8"]);
        assert_eq!(names(&["--vehicles", "500"]).len(), 5);
    }

    #[test]
    fn made_up_vehicles_last_for_the_run_and_follow_the_seed() {
        let plan = |seed: &str| {
            Plan::new(&args(&["--vehicles", "3", "--for", "20s", "--seed", seed])).unwrap()
        };
        let tracks = plan("7").tracks;
        assert_eq!(tracks, plan("7").tracks);
        assert_ne!(tracks, plan("8").tracks);
        assert!(tracks.iter().all(|track| track.position(80.0).is_some()));
    }

    #[test]
    fn the_site_of_three_nodes_is_the_one_to_lose_its_leader() {
        let mut world = ready::san_francisco();
        assert_eq!(
            to_kill(&world).map(|site| world.sites[site].name.clone()),
            Some(SiteName::new("downtown").unwrap())
        );
        world.sites.iter_mut().for_each(|site| site.nodes = 1);
        assert_eq!(to_kill(&world), None);
    }

    #[test]
    fn the_world_names_the_sites_that_join_and_leave() {
        let plan = Plan::new(&args(&[])).unwrap();
        let name = |site: Option<usize>| plan.world.sites[site.unwrap()].name.to_string();
        assert_eq!(
            (name(plan.to_join), name(plan.to_leave)),
            ("mission".into(), "pacific-heights".into())
        );
        assert!(plan.demo.record_hz > 0.0);
    }

    #[test]
    fn problems_name_the_file() {
        let error = Plan::new(&args(&["--trace", "no/such.csv"])).unwrap_err().to_string();
        assert!(error.contains("no/such.csv"), "{error}");
        let error = Plan::new(&args(&["--world", "no/such.toml"])).unwrap_err().to_string();
        assert!(error.contains("no/such.toml"), "{error}");
    }
}
