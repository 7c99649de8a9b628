//! The worlds that come with the program.

use std::path::Path;

use super::places::Files;
use super::{World, WorldError};

/// A world that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// What it is for, in a line.
    pub about: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! ready {
    ($($name:literal: $about:literal),+ $(,)?) => {
        [$(Ready {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../worlds/", $name, ".toml")),
        }),+]
    };
}

/// All of them, in the order of a list.
pub const ALL: [Ready; 29] = ready![
    "three-sites": "three sites of three nodes, thirty clients; what `explore` tries first",
    "one-site": "one site and few keys, asked fast: where two clients meet most often",
    "global": "three sites of three nodes with one truth, whose slots change hands",
    "lost-site": "the same, and a site is lost for good, its backup promoted, and comes back",
    "mixed": "seven sites, bad links, and everything goes wrong at once: sites lost and promoted, too",
    "failovers": "six small sites, lost and promoted in every order, while all else goes on",
    "lending": "five sites that lend each other groups of keys, while all else goes on",
    "residence": "the same, and it changes which sites groups may be lent to, and where they are pinned",
    "causal": "causal keys at three to five sites, sessions that move, sites that are away for too long",
    "retries": "the same, and puts without an answer are sent to a second site",
    "standbys": "causal keys, and the site that orders is lost while its standby is in sync",
    "rebuilds": "causal keys, and the site that orders is lost, and given up, without a standby",
    "regions": "causal keys in three regions, each with a site that orders, which take each other's writes",
    "regions-rebuilt": "the same with three sites in each, and roots are lost, and given up, without a standby",
    "flapping": "`regions`, over links that flap, with sites that come and go",
    "partial": "causal keys in one region, and of their keyspaces two are at some of the sites only",
    "fetched": "the same, and the other sites hold keys of these on demand",
    "witness": "two nodes and a witness, and a site of five",
    "pairs": "two nodes and a witness, one node after the other lost",
    "leases": "reads by lease under clocks that run fast and slow",
    "elections": "leaders that come and go, disks that are slow to remember",
    "city-grid": "Portkey's 25 access points, 400 m apart, three tiers of delay",
    "city-grid-sf": "the same on real cell sites in San Francisco (with --data; else at random)",
    "edgekv": "EdgeKV's three groups of three, the edge setting of its Table 3",
    "edgekv-cloud": "the same, the cloud setting",
    "grid5000": "Gesto's seven replicas and the delays of its Table I",
    "two-carriers": "SessionStore's tree of figure 2: a cloud, two cores, three edges",
    "melbourne": "125 base stations and 1,000 clients (real places with --data; else at random)",
    "ten-thousand": "10,000 sites of one node, a heartbeat a second each",
];

/// A ready world by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Ready> {
    ALL.iter().find(|ready| ready.name == name)
}

/// Reads a ready world; files that it names are looked for in `data`.
///
/// # Errors
/// There is none of this name, or a file that it cannot do without is not there.
pub fn load(name: &str, data: Option<&Path>) -> Result<World, WorldError> {
    let folders = data.map(Path::to_owned).into_iter().collect();
    match find(name) {
        Some(ready) => World::parse(&format!("{name}.toml"), ready.text, &Files { folders }),
        None => {
            let names: Vec<&str> = ALL.iter().map(|ready| ready.name).collect();
            Err(WorldError {
                file: name.to_owned(),
                line: 0,
                text: String::new(),
                message: format!(
                    "neither a file nor a world that comes with the program; those are {}",
                    names.join(", ")
                ),
            })
        }
    }
}

/// The world of `portolan demo`: nine sites over San Francisco.
///
/// # Panics
/// Never: a test reads it.
#[must_use]
pub fn san_francisco() -> World {
    let text = include_str!("../../worlds/san-francisco.toml");
    World::parse("san-francisco.toml", text, &Files { folders: Vec::new() })
        .expect("the built-in world is checked by a test")
}

#[cfg(test)]
mod tests {
    use super::super::Site;
    use super::*;

    #[test]
    fn all_ready_worlds_are_worlds() {
        for ready in &ALL {
            let world = load(ready.name, None).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(world.name.as_str(), ready.name);
            assert!(world.client_count() > 0, "{}", ready.name);
        }
        let error = load("atlantis", None).unwrap_err().to_string();
        assert!(error.contains("three-sites, one-site"), "{error}");
    }

    #[test]
    fn the_worlds_have_the_shapes_that_they_name() {
        let shape = |name| {
            let world = load(name, None).unwrap();
            let nodes: usize = world.sites.iter().map(|site| site.nodes).sum();
            (world.sites.len(), nodes, world.client_count())
        };
        assert_eq!(shape("three-sites"), (3, 9, 30));
        assert_eq!(shape("city-grid"), (25, 25, 32));
        assert_eq!(shape("edgekv"), (3, 9, 300));
        assert_eq!(shape("grid5000").0, 7);
        assert_eq!(shape("two-carriers"), (6, 6, 100));
        assert_eq!(shape("melbourne"), (125, 125, 1_000));
        let tree = load("two-carriers", None).unwrap();
        let parents: Vec<_> = tree.sites.iter().map(|site| site.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn the_demos_world_is_nine_sites_on_a_grid_and_one_has_three_nodes() {
        let world = san_francisco();
        assert_eq!(world.sites.len(), 9);
        let replicated: Vec<&Site> = world.sites.iter().filter(|site| site.nodes > 1).collect();
        assert_eq!(replicated.len(), 1);
        assert_eq!((replicated[0].name.as_str(), replicated[0].nodes), ("downtown", 3));
        assert!(world.sites.iter().all(|site| world.area.contains(site.at)));
        assert!(world.demo.is_some());
        for (row, column) in [(0, 0), (1, 1), (2, 1)] {
            let (here, east) = (&world.sites[row * 3 + column], &world.sites[row * 3 + column + 1]);
            let spacing_m = here.at.distance_m(east.at);
            assert!((3_000.0..4_000.0).contains(&spacing_m), "{spacing_m}");
        }
    }
}
