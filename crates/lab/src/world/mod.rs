//! A world: sites, links, clients and their work, faults; from one TOML file.
//!
//! A world describes what exists and how far apart it is, in the units of its field names. It holds
//! no behaviour: [`crate::mobility`] moves the clients, [`crate::link`] delays the bytes,
//! [`crate::simulation`] runs the sites. Unknown fields are refused, so that a misspelt one is
//! never silently ignored, and every error points at its line.
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`mod@file`] | the file as it is written: its types are the schema |
//! | [`tier`] | how far apart two ends are |
//! | `check` | whether what is written makes sense |
//! | `places` | sites, one by one, on a grid, from a CSV file |
//! | [`ready`] | the worlds that come with the program |
//!
//! ```
//! let world = lab::world::ready::load("three-sites", None).unwrap();
//! assert_eq!(world.sites.len(), 3);
//! ```

mod check;
pub mod file;
mod places;
pub mod ready;
pub mod tier;

use std::{collections::BTreeMap, path::Path, time::Duration};

use model::{KeyspaceSpec, SiteName};

pub use self::file::{Attach, Demo, WorldError};
use self::file::{NodeFile, Source, WorldFile};
use self::places::Files;
pub use self::tier::Tier;
use crate::{
    faults::{Fault, plan::Chances},
    geo::{Bounds, Grid, Point},
    link::Link,
    mobility::{Mobility, Track},
    workload::{Spec, pace::Pace},
};

/// Most sites in one world.
pub const SITES_MAX: usize = 20_000;
/// Most clients in one world.
pub const CLIENTS_MAX: usize = 100_000;

/// A whole world, checked.
#[derive(Debug, Clone)]
pub struct World {
    /// Short name, by the rule of site names.
    pub name: SiteName,
    /// One line for people.
    pub title: String,
    /// How long clients work.
    pub duration: Duration,
    /// What chance is drawn from, unless a run sets it.
    pub seed: u64,
    /// Where clients are drawn, and what maps show.
    pub area: Bounds,
    /// Sites in the file's order; at least one.
    pub sites: Vec<Site>,
    /// Where the sites' places are from, where that is worth a note.
    pub sites_note: Option<String>,
    /// How far apart things are.
    pub links: Links,
    /// What every node is like.
    pub node: NodeFile,
    /// Keyspaces besides the default one.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// The clients.
    pub clients: Vec<Clients>,
    /// Faults that come at random.
    pub chances: Option<Chances>,
    /// Of a thousand rare things, how many happen while there are random faults.
    pub rare_permille: u64,
    /// Faults at stated times.
    pub faults: Vec<Fault>,
    /// What the demo's vehicles do, where it has some.
    pub demo: Option<Demo>,
    /// A shore line for orientation on maps; may be empty.
    pub outline: Vec<Point>,
}

/// A place with one or more nodes that replicate for each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Unique in the world.
    pub name: SiteName,
    /// Where it stands.
    pub at: Point,
    /// 1 to 7.
    pub nodes: usize,
    /// Whether the last of them is a witness.
    pub witness: bool,
    /// The site above it, by its place in the world.
    pub parent: Option<usize>,
    /// How much it can hold, relative to others.
    pub capacity: f64,
    /// What it can fail together with.
    pub failure_domain: Option<model::SiteName>,
    /// The region that it is of.
    pub region: Option<model::SiteName>,
    /// How many bytes of other sites' groups it takes.
    pub borrowed_bytes_max: Option<u64>,
    /// Whether it is not there at first.
    pub spare: bool,
}

/// One tier of links for each kind of pair, and the exceptions.
#[derive(Debug, Clone)]
pub struct Links {
    /// A client and a site.
    pub client_site: Tier,
    /// Two sites.
    pub site_site: Tier,
    /// Two nodes of one site.
    pub node_node: Tier,
    /// Clients at a site that is an exception.
    at_site: BTreeMap<usize, Tier>,
    /// Pairs of sites, and sites whose nodes are, an exception; the lower one first.
    pairs: BTreeMap<(usize, usize), Tier>,
    /// Ways from one site to another that are an exception.
    ways: BTreeMap<(usize, usize), Tier>,
}

impl Links {
    /// The link between two sites that stand there.
    fn between(&self, a: usize, b: usize, at: (Point, Point)) -> Link {
        let pair = || self.pairs.get(&(a.min(b), a.max(b)));
        let tier = self.ways.get(&(a, b)).or_else(pair).unwrap_or(&self.site_site);
        tier.link(at.0.distance_m(at.1), (a, b))
    }
}

/// Clients that are alike.
#[derive(Debug, Clone)]
pub struct Clients {
    /// What they are called; a number follows.
    pub name: String,
    /// How many.
    pub count: usize,
    /// How they move; `None`: not at all.
    pub mobility: Option<Mobility>,
    /// The tracks of a recorded trace, where they follow one: client `n` follows the `n`th, and
    /// they are used again when there are more clients.
    pub tracks: Vec<Track>,
    /// Which site a client uses.
    pub attach: Attach,
    /// The site of [`Attach::Site`], by its place in the world.
    pub home: Option<usize>,
    /// What they do.
    pub workload: Spec,
    /// When they do it.
    pub pace: Pace,
    /// The keyspace they use, by its place in [`World::keyspaces`]; `None`: the default one.
    pub keyspace: Option<usize>,
    /// Other keyspaces, to which some of their operations go.
    pub also: Vec<Also>,
    /// So many operations they do together, and then no more.
    pub operations: Option<u64>,
    /// Whether they number their writes and repeat them.
    pub repeat: bool,
    /// After how long what they put expires.
    pub expiry: Option<Duration>,
    /// Whether their reads may be stale.
    pub stale_reads: bool,
    /// Of a thousand operations, so many are about pairs of keys.
    pub pairs_permille: u32,
}

/// Another keyspace of the same clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Also {
    /// Which, by its place in [`World::keyspaces`].
    pub keyspace: usize,
    /// The share of operations that go there, 0 to 1.
    pub share: f64,
    /// Whether their reads there may be stale.
    pub stale_reads: bool,
}

impl Clients {
    /// The keyspaces they use, by their places in [`World::keyspaces`]; `None`: the default one.
    pub fn keyspaces(&self) -> impl Iterator<Item = Option<usize>> {
        std::iter::once(self.keyspace).chain(self.also.iter().map(|also| Some(also.keyspace)))
    }

    /// The keyspace of an operation: the one that `drawn`, from 0 to 1, falls to.
    pub fn draw_keyspace(&self, mut drawn: f64) -> Option<usize> {
        for also in &self.also {
            if drawn < also.share {
                return Some(also.keyspace);
            }
            drawn -= also.share;
        }
        self.keyspace
    }
}

impl World {
    /// Reads and checks a world file. Files that it names are looked for beside it, then in `data`.
    ///
    /// # Errors
    /// The file cannot be read, or it is not a world; the error names the line.
    pub fn load(path: &Path, data: Option<&Path>) -> Result<Self, WorldError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| WorldError {
            file: file.clone(),
            line: 0,
            text: String::new(),
            message: format!("cannot read the world file: {error}"),
        })?;
        let folders = path.parent().into_iter().chain(data).map(Path::to_owned).collect();
        Self::parse(&file, &text, &Files { folders })
    }

    fn parse(file: &str, text: &str, files: &Files) -> Result<Self, WorldError> {
        let source = Source { file, text };
        let written = source.read()?;
        check::check(&written, files).map_err(|wrong| source.locate(wrong))
    }

    /// The index of the site nearest to a point, and the metres to it.
    #[must_use]
    pub fn nearest_site(&self, point: Point) -> (usize, f64) {
        self.nearest_of(point, |site| !self.sites[site].spare)
            .or_else(|| self.nearest_of(point, |_| true))
            .expect("a checked world has a site")
    }

    /// The nearest of some sites, and how far it is; `None`: there is none of them.
    #[must_use]
    pub fn nearest_of(&self, point: Point, is_one: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
        self.sites
            .iter()
            .enumerate()
            .filter(|(index, _)| is_one(*index))
            .map(|(index, site)| (index, site.at.distance_m(point)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Where a client at `point`, now at site `current`, should be attached: the nearest site,
    /// unless that is nearer than the current one by less than the margin.
    #[must_use]
    pub fn attach(&self, point: Point, current: Option<usize>, margin_m: f64) -> usize {
        let (nearest, nearest_m) = self.nearest_site(point);
        match current {
            Some(site) if self.sites[site].at.distance_m(point) < nearest_m + margin_m => site,
            _ => nearest,
        }
    }

    /// The same, where not all sites are there. Where none is, it stays.
    #[must_use]
    pub fn attach_to(
        &self,
        point: Point,
        current: Option<usize>,
        margin_m: f64,
        is_open: impl Fn(usize) -> bool,
    ) -> usize {
        let current = current.filter(|site| is_open(*site));
        match (self.nearest_of(point, is_open), current) {
            (Some((_, nearest_m)), Some(site))
                if self.sites[site].at.distance_m(point) < nearest_m + margin_m =>
            {
                site
            }
            (Some((nearest, _)), _) => nearest,
            (None, _) => self.attach(point, current, margin_m),
        }
    }

    /// The grid of zones, anchored at the area's south-west corner.
    #[must_use]
    pub fn zones(&self, zone_m: f64) -> Grid {
        Grid::new(Point::new(self.area.south, self.area.west), zone_m)
    }

    /// The link between a client at a point and a site.
    #[must_use]
    pub fn client_link(&self, at: Point, site: usize) -> Link {
        let tier = self.links.at_site.get(&site).unwrap_or(&self.links.client_site);
        tier.link(self.sites[site].at.distance_m(at), (site, site))
    }

    /// The link between two nodes of a site.
    #[must_use]
    pub fn node_link(&self, site: usize) -> Link {
        let tier = self.links.pairs.get(&(site, site)).unwrap_or(&self.links.node_node);
        tier.link(0.0, (site, site))
    }

    /// The link between two sites.
    #[must_use]
    pub fn site_link(&self, a: usize, b: usize) -> Link {
        self.links.between(a, b, (self.sites[a].at, self.sites[b].at))
    }

    /// The same as something that can be kept: [`World::site_link`] of all pairs.
    pub fn site_links(&self) -> impl Fn(usize, usize) -> Link + 'static {
        let links = self.links.clone();
        let at: Vec<Point> = self.sites.iter().map(|site| site.at).collect();
        move |a, b| links.between(a, b, (at[a], at[b]))
    }

    /// Whether its sites form a deployment: some keyspace has the same keys at all of them.
    #[must_use]
    pub fn is_deployment(&self) -> bool {
        self.keyspaces.iter().any(|spec| spec.is_global() || spec.is_causal())
    }

    /// Whether some keyspace is causal.
    #[must_use]
    pub fn has_causal_keys(&self) -> bool {
        self.keyspaces.iter().any(model::KeyspaceSpec::is_causal)
    }

    /// Whether the keys of a keyspace, by its place, are the same at every site.
    #[must_use]
    pub fn is_global(&self, keyspace: Option<usize>) -> bool {
        keyspace.is_some_and(|place| self.keyspaces[place].is_global())
    }

    /// Whether a keyspace, by its place, is causal.
    #[must_use]
    pub fn is_causal(&self, keyspace: Option<usize>) -> bool {
        keyspace.is_some_and(|place| self.keyspaces[place].is_causal())
    }

    /// What the keys of a keyspace, by its place, begin with.
    #[must_use]
    pub fn prefix(&self, keyspace: Option<usize>) -> std::borrow::Cow<'_, str> {
        let prefix = keyspace.map(|place| &self.keyspaces[place].prefix);
        prefix.map_or_else(Default::default, |prefix| String::from_utf8_lossy(prefix))
    }

    /// How many clients there are.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.iter().map(|group| group.count).sum()
    }
}

/// Whatever is read as a world is one, or is refused with a sentence and a line that is there: for
/// fuzzing.
///
/// # Panics
/// If it is neither.
pub fn check_any(text: &str) {
    match World::parse("any.toml", text, &Files { folders: Vec::new() }) {
        Ok(world) => {
            assert!((1..=SITES_MAX).contains(&world.sites.len()));
            assert!(world.client_count() <= CLIENTS_MAX);
            for (place, site) in world.sites.iter().enumerate() {
                assert!(site.at.is_on_earth() && site.parent.is_none_or(|parent| parent < place));
                let links = [world.node_link(place), world.client_link(site.at, place)];
                assert!(links.iter().all(|link| link.latency.mean_ms().is_finite()));
            }
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            assert!(error.line <= text.lines().count().max(1), "{error}");
        }
    }
}

/// The schema of world files, as JSON Schema.
///
/// # Panics
/// Never: the schema is made of plain types.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(WorldFile);
    serde_json::to_string_pretty(&schema).expect("a schema is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Kind;

    const SMALL: &str = "name = \"small\"
title = \"One site\"
duration_s = 10

[area]
south = 1
west = 1
north = 2
east = 2

[links.client_site]
base_ms = 5
[links.site_site]
base_ms = 10
[links.node_node]
base_ms = 1

[[site]]
name = \"a\"
lat = 1.5
lon = 1.5
nodes = 3

[[clients]]
name = \"c\"
count = 2
attach = { rule = \"spread\" }
workload = { kind = \"check\" }
pace = { loop = \"closed\" }

[[fault]]
at_s = 2
kind = \"crash\"
site = \"a\"
";

    fn parse(text: &str) -> Result<World, WorldError> {
        World::parse("w.toml", text, &Files { folders: Vec::new() })
    }

    /// Replaces one piece of a good world and returns the error, which must point at that line.
    fn broken(from: &str, to: &str) -> String {
        let start = SMALL.find(from).expect("the piece is in the file");
        let line = SMALL[..start].matches('\n').count() + 1;
        let text = SMALL.replacen(from, to, 1);
        let error = parse(&text).expect_err("must be refused");
        assert_eq!(error.text, text.lines().nth(line - 1).unwrap(), "{error}");
        let prefix = format!("w.toml:{line}: ");
        error.to_string().strip_prefix(&prefix).expect("the line's number").to_owned()
    }

    #[test]
    fn a_small_world_is_read() {
        let world = parse(SMALL).unwrap();
        assert_eq!((world.sites.len(), world.sites[0].nodes, world.client_count()), (1, 3, 2));
        assert_eq!(world.node_link(0), Link::constant(1.0));
        assert_eq!(world.faults[0].kind, Kind::Crash);
        assert!(world.chances.is_none());
    }

    #[test]
    fn errors_point_at_the_line() {
        let nodes = broken("nodes = 3", "nodes = 9");
        assert!(nodes.starts_with("site \"a\": nodes is 1 to 7, is 9\n"), "{nodes}");
        assert!(nodes.ends_with(" | nodes = 9"), "{nodes}");
        assert!(broken("nodes = 3", "node = 3").starts_with("unknown field `node`"));
        assert!(broken("lat = 1.5", "lat = 91.5").starts_with("site \"a\": lat"));
        assert!(broken("base_ms = 10", "base_ms = -1").starts_with("link: each of its numbers"));
        assert!(broken("kind = \"crash\"", "kind = \"crush\"").contains("unknown variant"));
        assert!(broken("site = \"a\"", "site = \"b\"").contains("no site \"b\""));
        let alone = broken("kind = \"crash\"", "kind = \"part_site\"");
        assert!(alone.starts_with("fault: part_site needs a world of several sites"), "{alone}");
        assert!(broken("count = 2", "count = 0").starts_with("clients: count"));
        assert!(broken("duration_s = 10", "duration_s = 0").starts_with("duration_s is"));
        assert!(broken("title = \"One site\"", "title = ").len() > 5);
        let missing = World::load(Path::new("no/such/world.toml"), None).unwrap_err();
        assert_eq!(missing.line, 0);
    }

    #[test]
    fn the_demo_names_sites_that_can_join_and_leave() {
        let more = "\n[[site]]\nname = \"b\"\nlat = 1.2\nlon = 1.2\n\
            [[site]]\nname = \"c\"\nlat = 1.2\nlon = 1.2\n\
            [demo]\nzone_m = 500\nlook_hz = 1\nreport_hz = 1\nzone_max = 8\n";
        let demo = |names: &str| parse(&format!("{SMALL}{more}{names}"));
        let world = demo("joins = \"c\"\nleaves = \"a\"\nrecord_hz = 2").unwrap();
        let said = world.demo.unwrap();
        assert_eq!((said.joins.as_deref(), said.leaves.as_deref()), (Some("c"), Some("a")));
        assert_eq!(demo("").unwrap().demo.unwrap().record_hz, 0.0);
        let refused = |names: &str| demo(names).unwrap_err().to_string();
        assert!(refused("joins = \"d\"").contains("demo: no site \"d\""));
        assert!(refused("joins = \"a\"").contains("the first site begins"));
        assert!(refused("joins = \"b\"\nleaves = \"b\"").contains("another site than"));
        assert!(refused("record_hz = -1").contains("record_hz is 0 to"));
        let alone =
            "[demo]\nzone_m = 500\nlook_hz = 1\nreport_hz = 1\nzone_max = 8\nleaves = \"a\"";
        let error = parse(&format!("{SMALL}{alone}")).unwrap_err().to_string();
        assert!(error.contains("needs another site"), "{error}");
    }

    #[test]
    fn exceptions_to_links_count_both_ways() {
        let more = "\n[[site]]\nname = \"b\"\nlat = 1.2\nlon = 1.2\n\
            [[link]]\nbetween = [\"b\", \"a\"]\ntier = { base_ms = 77 }\n\
            [[link]]\nbetween = [\"a\", \"a\"]\ntier = { base_ms = 7 }\n\
            [[link]]\nbetween = [\"clients\", \"b\"]\ntier = { base_ms = 0.5, mbps = 10 }\n";
        let world = parse(&format!("{SMALL}{more}")).unwrap();
        assert_eq!(world.site_link(0, 1), Link::constant(77.0));
        assert_eq!(world.site_link(1, 0), Link::constant(77.0));
        assert_eq!(world.site_links()(1, 0), Link::constant(77.0));
        assert_eq!(
            (world.node_link(0), world.node_link(1)),
            (Link::constant(7.0), Link::constant(1.0))
        );
        let at = Point::new(1.3, 1.3);
        assert_eq!(world.client_link(at, 0), Link::constant(5.0));
        assert_eq!(world.client_link(at, 1), Link { mbps: Some(10.0), ..Link::constant(0.5) });
    }

    #[test]
    fn a_fault_between_sites_names_the_other_one() {
        let more = "\n[[site]]\nname = \"b\"\nlat = 1.2\nlon = 1.2\n\
            [[site]]\nname = \"c\"\nlat = 1.2\nlon = 1.2\n\
            [[fault]]\nat_s = 3\nkind = \"part_sites\"\nsite = \"c\"\n";
        let place = |other: &str| {
            let world = parse(&format!("{SMALL}{more}{other}"))?;
            Ok::<_, WorldError>(world.faults[1].place(&world.sites))
        };
        assert_eq!(place("").unwrap(), "c and a");
        assert_eq!(place("other_site = \"b\"").unwrap(), "c and b");
        let error = place("other_site = \"c\"").unwrap_err().to_string();
        assert!(error.contains("fault: other_site: another one than \"c\""), "{error}");
        assert!(place("other_site = \"d\"").unwrap_err().to_string().contains("no site \"d\""));
    }

    #[test]
    fn clients_can_have_other_keyspaces_and_an_end() {
        let more = "\n[[keyspace]]\nname = \"x\"\nprefix = \"x:\"\nscope = \"global\"\n\
            [[keyspace]]\nname = \"z\"\nprefix = \"z:\"\n\
            [[clients]]\nname = \"d\"\ncount = 1\nattach = { rule = \"spread\" }\n\
            workload = { kind = \"check\" }\npace = { loop = \"closed\" }\noperations = 50\n";
        let world = |also: &str| parse(&format!("{SMALL}{more}also = [{also}]\n"));
        let read = world("{ keyspace = \"x\", share = 0.25 }").unwrap();
        let group = &read.clients[1];
        assert_eq!(group.also, [Also { keyspace: 0, share: 0.25, stale_reads: false }]);
        assert_eq!(group.operations, Some(50));
        assert_eq!(group.keyspaces().collect::<Vec<_>>(), [None, Some(0)]);
        assert!(read.is_global(Some(0)) && !read.is_global(None));
        assert_eq!((read.prefix(Some(0)).as_ref(), read.prefix(None).as_ref()), ("x:", ""));
        let three = "{ keyspace = \"x\", share = 0.25 }, { keyspace = \"z\", share = 0.5 }";
        let read = world(three).unwrap();
        let group = &read.clients[1];
        assert_eq!(group.keyspaces().collect::<Vec<_>>(), [None, Some(0), Some(1)]);
        let drawn = [0.0, 0.24, 0.25, 0.74, 0.75, 0.99].map(|drawn| group.draw_keyspace(drawn));
        assert_eq!(drawn, [Some(0), Some(0), Some(1), Some(1), None, None]);
        let wrong = |also: &str| world(also).unwrap_err().message;
        let all = "{ keyspace = \"x\", share = 0.7 }, { keyspace = \"z\", share = 0.5 }";
        assert!(wrong(all).starts_with("also: the shares are more than 1 together"));
        let twice = "{ keyspace = \"x\", share = 0.2 }, { keyspace = \"x\", share = 0.2 }";
        assert!(wrong(twice).starts_with("also: keyspace \"x\" is there twice"));
        assert!(wrong("{ keyspace = \"x\", share = 1.5 }").starts_with("also: share is 0 to 1"));
        assert!(wrong("{ keyspace = \"y\", share = 0.5 }").contains("named \"y\""));
        assert!(parse(&SMALL.replace("[[site]]", "[node]\nrequest_ms = -1\n[[site]]")).is_err());
    }

    #[test]
    fn a_client_moves_on_only_past_the_margin() {
        let world = ready::san_francisco();
        let (west, east) = (world.sites[0].at, world.sites[1].at);
        let just_past_the_middle = west.toward(east, 0.51);
        assert_eq!(world.attach(just_past_the_middle, None, 150.0), 1);
        assert_eq!(world.attach(just_past_the_middle, Some(0), 150.0), 0);
        assert_eq!(world.attach(west.toward(east, 0.55), Some(0), 150.0), 1);
    }

    #[test]
    fn the_schema_has_and_describes_every_part_of_a_world() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        for part in ["site", "links", "clients", "faults", "fault", "keyspace", "demo"] {
            assert!(properties.contains_key(part), "{part}");
        }
        assert_eq!(schema["additionalProperties"], false);
        assert!(properties["duration_s"]["description"].as_str().unwrap().contains("seconds"));
    }

    #[test]
    fn any_text_is_a_world_or_is_refused() {
        // Found by fuzzing: the error is behind the end of the text.
        check_any("'''\n");
        let mut random = crate::random::Random::new(1);
        let lines: Vec<&str> = SMALL.lines().collect();
        let bits =
            ["-1", "0", "1e308", "nan", "inf", "\"\"", "[]", "{}", "true", "=", "]]", "\u{0}"];
        let mut worlds = 0;
        for _ in 0..3_000 {
            let mut text = String::new();
            for line in &lines {
                match random.below(60) {
                    0 => {}
                    1 => text.push_str(random.pick::<&str>(&lines)),
                    2 => {
                        let (name, _) = line.split_once('=').unwrap_or((line, ""));
                        text.push_str(&format!("{name}= {}", random.pick::<&str>(&bits)));
                    }
                    _ => text.push_str(line),
                }
                text.push('\n');
            }
            check_any(&text);
            worlds += u32::from(parse(&text).is_ok());
        }
        assert!((100..2_900).contains(&worlds), "{worlds}");
    }

    #[test]
    fn sites_have_as_many_nodes_as_are_allowed() {
        assert_eq!(model::limits::NODES_MAX, 7, "the file's documentation states that");
    }
}
