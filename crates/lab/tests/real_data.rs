//! Worlds on real places, delays and traces, where those are at hand: they are not part of the
//! project. Without them these tests report it and pass.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::run::{Options, run};
use lab::world::{World, ready};

/// The folder with the data, if it is there.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: there is no {}", folder.display());
    None
}

fn short() -> Options {
    Options { duration: Some(Duration::from_secs(5)), ..Options::default() }
}

#[test]
fn ready_worlds_stand_on_their_real_places() {
    let Some(data) = data() else { return };
    for (name, sites) in [("melbourne", 125), ("city-grid-sf", 25)] {
        let world = ready::load(name, Some(&data)).unwrap();
        assert_eq!((world.sites.len(), &world.sites_note), (sites, &None), "{name}");
        let ran = run(&world, &short());
        assert_eq!(ran.wrongs(), [""; 0], "{name}");
        assert!(ran.figures.operations > 1_000, "{name}: {:?}", ran.figures);
    }
}

#[test]
fn clients_follow_recorded_cabs_over_measured_delays() {
    let Some(data) = data() else { return };
    let text = "name = 'cabs'\ntitle = 'Cabs over far links'\nduration_s = 30\n\
        [area]\nsouth = 37.700\nwest = -122.520\nnorth = 37.815\neast = -122.355\n\
        [links]\nclient_site = { base_ms = 5 }\nnode_node = { base_ms = 1 }\n\
        site_site = { matrix = { csv = 'seattle_rtt_median_ms.csv', unit = 'rtt_ms' } }\n\
        [grid]\nrows = 3\ncolumns = 3\nspacing_m = 3500\nprefix = 's'\n\
        center = { lat = 37.755, lon = -122.445 }\n\
        [[clients]]\nname = 'cab'\ncount = 60\nattach = { rule = 'nearest', margin_m = 150 }\n\
        mobility = { model = 'trace', file = 'sf_cabs_2008-05-21_0800-1000.csv.gz', speed = 120 }\n\
        workload = { kind = 'ycsb', variant = 'b', records = 20, value_bytes = 50 }\n\
        pace = { loop = 'closed', think = { exponential_ms = 500 } }\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cabs.toml");
    std::fs::write(&path, text).unwrap();
    let world = World::load(&path, Some(&data)).unwrap();
    // Half of the round trip in the first row's second number.
    assert_eq!(world.site_link(0, 1).latency.mean_ms(), 60.0);
    let ran = run(&world, &Options::default());
    assert_eq!(ran.wrongs(), [""; 0]);
    assert!(ran.measure.counters().moves > 30, "{:?}", ran.measure.counters());
    let error = World::load(&path, None).unwrap_err().to_string();
    assert!(error.contains("cannot find seattle_rtt_median_ms.csv"), "{error}");
}
