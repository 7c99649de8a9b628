//! A world: sites, links, clients and their work, faults; from one TOML file.
//!
//! A world says what exists and how far apart it is, in the units of its field names. It holds no
//! behaviour: [`crate::mobility`] moves the clients, [`crate::link`] delays the bytes,
//! [`crate::simulation`] runs the sites. Unknown fields are refused, so that a misspelt one is never
//! silently ignored, and every error points at its line.
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`mod@file`] | the file as it is written: its types are the schema |
//! | [`tier`] | how far apart two ends are |
//! | `places` | sites, one by one, on a grid, from a CSV file |
//! | [`ready`] | the worlds that come with the program |
//!
//! ```
//! let world = lab::world::ready::load("three-sites", None).unwrap();
//! assert_eq!(world.sites.len(), 3);
//! ```

pub mod file;
mod places;
pub mod ready;
pub mod tier;

use std::{collections::BTreeMap, path::Path, time::Duration};

use model::{KeyspaceSpec, SiteName};

pub use self::file::{Attach, Demo, WorldError};
use self::file::{
    ClientsFile, FaultFile, FaultsFile, NodeFile, PairFile, Source, WorldFile, Wrong,
};
use self::places::Files;
pub use self::tier::Tier;
use crate::{
    faults::{Fault, Kind, plan::Chances},
    geo::{Bounds, Grid, Point},
    link::Link,
    mobility::{Mobility, Track, trace},
    workload::{Spec, pace::Pace},
};

/// Most sites in one world.
pub const SITES_MAX: usize = 20_000;
/// Most clients in one world.
pub const CLIENTS_MAX: usize = 100_000;
/// Most keyspaces in one world, besides the default one.
const KEYSPACES_MAX: usize = 16;
/// Longest run, in seconds: ten days.
const DURATION_MAX_S: f64 = 864_000.0;
/// Highest rate of one vehicle's operation in the demo, per second.
const RATE_MAX_HZ: f64 = 10_000.0;
/// The name of the clients' end of a link.
const CLIENTS: &str = "clients";

/// A whole world, checked.
#[derive(Debug, Clone)]
pub struct World {
    /// Short name, by the rule of site names.
    pub name: SiteName,
    /// One line for people.
    pub title: String,
    /// How long clients work.
    pub duration: Duration,
    /// What chance is drawn from, when nobody says.
    pub seed: u64,
    /// Where clients are drawn, and what maps show.
    pub area: Bounds,
    /// Sites in the file's order; at least one.
    pub sites: Vec<Site>,
    /// Where the sites' places are from, where that is worth a word.
    pub sites_note: Option<String>,
    /// How far apart things are.
    pub links: Links,
    /// What every node is like.
    pub node: NodeFile,
    /// Keyspaces besides the default one.
    pub keyspaces: Vec<KeyspaceSpec>,
    /// Who uses it.
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
    /// they are dealt out again when there are more clients.
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
    /// Whether they number their writes and repeat them.
    pub repeat: bool,
    /// Whether their reads may be stale.
    pub stale_reads: bool,
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
        check(&written, files).map_err(|wrong| source.locate(wrong))
    }

    /// The index of the site nearest to a point, and the metres to it.
    #[must_use]
    pub fn nearest_site(&self, point: Point) -> (usize, f64) {
        self.sites
            .iter()
            .enumerate()
            .map(|(index, site)| (index, site.at.distance_m(point)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("a checked world has a site")
    }

    /// Where a client at `point`, now at site `current`, should be attached: the nearest site, unless
    /// that is nearer than the current one by less than the margin.
    #[must_use]
    pub fn attach(&self, point: Point, current: Option<usize>, margin_m: f64) -> usize {
        let (nearest, nearest_m) = self.nearest_site(point);
        match current {
            Some(site) if self.sites[site].at.distance_m(point) < nearest_m + margin_m => site,
            _ => nearest,
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
        let tier = self.links.pairs.get(&(a.min(b), a.max(b))).unwrap_or(&self.links.site_site);
        tier.link(self.sites[a].at.distance_m(self.sites[b].at), (a, b))
    }

    /// How many clients there are.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.iter().map(|group| group.count).sum()
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

fn check(written: &WorldFile, files: &Files) -> Result<World, Wrong> {
    let name = site_name(&written.name).map_err(|why| Wrong::at("name", why))?;
    if !(0.001..=DURATION_MAX_S).contains(&written.duration_s) {
        let message = format!("duration_s is 0.001 to {DURATION_MAX_S}, is {}", written.duration_s);
        return Err(Wrong::at("duration_s", message));
    }
    check_area(&written.area)?;
    check_node(&written.node).map_err(|wrong| wrong.under("node"))?;
    let (sites, sites_note) = places::resolve(written, files)?;
    let links = check_links(written, &sites, files)?;
    let keyspaces = check_keyspaces(written)?;
    let clients = each("clients", &written.clients, |group| {
        let tracks = tracks(group, files)?;
        check_clients(group, &sites, written, tracks)
    })?;
    unique("clients", written.clients.iter().map(|group| &group.name))?;
    unique("keyspace", written.keyspace.iter().map(|keyspace| &keyspace.name))?;
    unique("keyspace", written.keyspace.iter().map(|keyspace| &keyspace.prefix))?;
    let count: usize = clients.iter().map(|group| group.count).sum();
    if count > CLIENTS_MAX {
        return Err(Wrong::at("clients", format!("at most {CLIENTS_MAX} clients, are {count}")));
    }
    let faults = each("fault", &written.fault, |fault| check_fault(fault, &sites))?;
    let chances = written.faults.as_ref().map(check_chances).transpose();
    let outline = written.map.as_ref().map_or(Ok(Vec::new()), |map| {
        let outline: Vec<Point> =
            map.outline.iter().map(|(lat, lon)| Point::new(*lat, *lon)).collect();
        match outline.iter().all(|point| point.is_on_earth()) {
            true => Ok(outline),
            false => {
                Err(Wrong::at("outline", "outline: a point is [lat, lon], in degrees").under("map"))
            }
        }
    })?;
    if let Some(demo) = &written.demo {
        check_demo(demo).map_err(|wrong| wrong.under("demo"))?;
    }
    Ok(World {
        name,
        title: written.title.clone(),
        duration: Duration::from_secs_f64(written.duration_s),
        seed: written.seed,
        area: written.area,
        sites,
        sites_note,
        links,
        node: written.node.clone(),
        keyspaces,
        clients,
        chances: chances.map_err(|wrong| wrong.under("faults"))?,
        rare_permille: written.faults.as_ref().map_or(0, |faults| faults.rare_permille),
        faults: crate::faults::plan::number(faults),
        demo: written.demo,
        outline,
    })
}

fn each<A, B>(
    key: &'static str,
    all: &[A],
    check: impl Fn(&A) -> Result<B, Wrong>,
) -> Result<Vec<B>, Wrong> {
    all.iter()
        .enumerate()
        .map(|(index, one)| check(one).map_err(|wrong| wrong.of(index).under(key)))
        .collect()
}

/// Who shares a name cannot be told apart in a history.
fn unique<'a>(key: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), Wrong> {
    let mut seen = std::collections::BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            let message = format!("{key}: there is already one of the name or prefix \"{name}\"");
            return Err(Wrong::at("name", message).of(index).under(key));
        }
    }
    Ok(())
}

fn site_name(name: &str) -> Result<SiteName, String> {
    SiteName::new(name.to_owned()).map_err(|error| error.to_string())
}

fn find_site(sites: &[Site], name: &str, field: &'static str) -> Result<usize, Wrong> {
    sites.iter().position(|site| site.name.as_str() == name).ok_or_else(|| {
        Wrong::at(field, format!("{field}: there is no site \"{name}\" in this world"))
    })
}

fn check_area(area: &Bounds) -> Result<(), Wrong> {
    let Bounds { south, west, north, east } = *area;
    let on_earth = Point::new(south, west).is_on_earth() && Point::new(north, east).is_on_earth();
    if on_earth && south < north && west < east {
        return Ok(());
    }
    Err(Wrong::at("area", "area: degrees with south < north and west < east"))
}

fn check_node(node: &NodeFile) -> Result<(), Wrong> {
    for (field, (shortest, longest)) in
        [("sync_ms", node.sync_ms), ("snapshot_ms", node.snapshot_ms)]
    {
        if !(0.0..=60_000.0).contains(&shortest) || !(shortest..=60_000.0).contains(&longest) {
            let message = format!("node: {field} is [shortest, longest], 0 to 60000 ms");
            return Err(Wrong::at(field, message));
        }
    }
    if !(4 << 10..=1 << 30).contains(&node.log_segment_bytes) {
        let message = "node: log_segment_bytes is 4096 to 1073741824";
        return Err(Wrong::at("log_segment_bytes", message));
    }
    if node.state_persist_permille > 1_000 {
        let message = "node: state_persist_permille is 0 to 1000";
        return Err(Wrong::at("state_persist_permille", message));
    }
    Ok(())
}

fn check_links(written: &WorldFile, sites: &[Site], files: &Files) -> Result<Links, Wrong> {
    let read = |file: &tier::MatrixFile| files.matrix(file);
    let tier = |tier: &tier::TierFile, field| {
        tier.resolve(&read).map_err(|wrong| wrong.under(field).under("links"))
    };
    let mut links = Links {
        client_site: tier(&written.links.client_site, "client_site")?,
        site_site: tier(&written.links.site_site, "site_site")?,
        node_node: tier(&written.links.node_node, "node_node")?,
        at_site: BTreeMap::new(),
        pairs: BTreeMap::new(),
    };
    each("link", &written.link, |pair: &PairFile| {
        let (first, second) = (&pair.between.0, &pair.between.1);
        let ends = match (first == CLIENTS, second == CLIENTS) {
            (true, true) => {
                return Err(Wrong::at("between", "between: clients do not speak to each other"));
            }
            (true, false) => (None, find_site(sites, second, "between")?),
            (false, true) => (None, find_site(sites, first, "between")?),
            (false, false) => {
                let (a, b) =
                    (find_site(sites, first, "between")?, find_site(sites, second, "between")?);
                (Some(a.min(b)), a.max(b))
            }
        };
        Ok((ends, pair.tier.resolve(&read).map_err(|wrong| wrong.under("tier"))?))
    })?
    .into_iter()
    .for_each(|((first, second), tier)| match first {
        None => drop(links.at_site.insert(second, tier)),
        Some(first) => drop(links.pairs.insert((first, second), tier)),
    });
    Ok(links)
}

fn check_keyspaces(written: &WorldFile) -> Result<Vec<KeyspaceSpec>, Wrong> {
    if written.keyspace.len() > KEYSPACES_MAX {
        return Err(Wrong::at("keyspace", format!("at most {KEYSPACES_MAX} keyspaces")));
    }
    each("keyspace", &written.keyspace, |keyspace| {
        if (keyspace.consistency.as_str(), keyspace.scope.as_str()) != ("linearizable", "site") {
            return Err(Wrong::at(
                "consistency",
                format!(
                    "keyspace \"{}\" asks for {}/{}; the lab runs what a site serves today: \
                     linearizable/site",
                    keyspace.name, keyspace.consistency, keyspace.scope
                ),
            ));
        }
        let prefix = keyspace.prefix.clone().into_bytes();
        let mut spec = KeyspaceSpec::linearizable_site(keyspace.name.clone(), prefix);
        spec.lease_reads = keyspace.lease_reads;
        spec.check().map_err(|error| Wrong::at("name", error.to_string()))?;
        Ok(spec)
    })
}

fn check_clients(
    group: &ClientsFile,
    sites: &[Site],
    written: &WorldFile,
    tracks: Vec<Track>,
) -> Result<Clients, Wrong> {
    site_name(&group.name).map_err(|why| Wrong::at("name", format!("clients: {why}")))?;
    if group.count == 0 {
        return Err(Wrong::at("count", "clients: count is at least 1"));
    }
    if let Some(mobility) = &group.mobility {
        mobility.check().map_err(|why| Wrong::at("mobility", why))?;
    }
    group.workload.check().map_err(|why| Wrong::at("workload", why))?;
    group.pace.check().map_err(|why| Wrong::at("pace", why))?;
    let home = match &group.attach {
        Attach::Site { site } => {
            Some(find_site(sites, site, "site").map_err(|wrong| wrong.under("attach"))?)
        }
        Attach::Nearest { margin_m } if !(0.0..=100_000.0).contains(margin_m) => {
            let message = format!("attach: margin_m is 0 to 100000 metres, is {margin_m}");
            return Err(Wrong::at("margin_m", message).under("attach"));
        }
        Attach::Nearest { .. } | Attach::Spread => None,
    };
    let keyspace = group.keyspace.as_ref().map(|name| {
        let found = written.keyspace.iter().position(|keyspace| keyspace.name == *name);
        let message = format!("clients: there is no [[keyspace]] named \"{name}\"");
        found.ok_or_else(|| Wrong::at("keyspace", message))
    });
    Ok(Clients {
        name: group.name.clone(),
        count: group.count,
        mobility: group.mobility.clone(),
        tracks,
        attach: group.attach.clone(),
        home,
        workload: group.workload.clone(),
        pace: group.pace,
        keyspace: keyspace.transpose()?,
        repeat: group.repeat,
        stale_reads: group.stale_reads,
    })
}

/// The tracks of the trace that clients follow, of those who are there while it is replayed.
fn tracks(group: &ClientsFile, files: &Files) -> Result<Vec<Track>, Wrong> {
    let Some(Mobility::Trace(replay)) = &group.mobility else { return Ok(Vec::new()) };
    let wrong = |why: String| Wrong::at("file", format!("mobility: {why}")).under("mobility");
    let path = files.find(&replay.file).map_err(wrong)?;
    let all = trace::load(&path).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
    let (from_s, to_s) =
        (replay.from_s.unwrap_or(f64::NEG_INFINITY), replay.to_s.unwrap_or(f64::INFINITY));
    let there: Vec<Track> =
        all.into_iter().filter(|track| track.is_present(from_s, to_s)).collect();
    match there.is_empty() {
        true => Err(wrong(format!("{}: nobody is there in that time", path.display()))),
        false => Ok(there),
    }
}

fn check_chances(faults: &FaultsFile) -> Result<Chances, Wrong> {
    if !(0.01..=86_400.0).contains(&faults.every_s) {
        let message = format!("faults: every_s is 0.01 to 86400, is {}", faults.every_s);
        return Err(Wrong::at("every_s", message));
    }
    if !(0.0..=DURATION_MAX_S).contains(&faults.calm_s) {
        return Err(Wrong::at("calm_s", "faults: calm_s is a number of seconds"));
    }
    if faults.rare_permille > 1_000 {
        return Err(Wrong::at("rare_permille", "faults: rare_permille is 0 to 1000"));
    }
    let weights = faults
        .weights
        .clone()
        .unwrap_or_else(|| Kind::ALL.into_iter().map(|kind| (kind, 1.0)).collect());
    if !weights.values().all(|weight| (0.0..=1e6).contains(weight)) {
        return Err(Wrong::at("weights", "faults: a weight is 0 to 1000000"));
    }
    Ok(Chances {
        every: Duration::from_secs_f64(faults.every_s),
        calm: Duration::from_secs_f64(faults.calm_s),
        weights,
    })
}

fn check_fault(fault: &FaultFile, sites: &[Site]) -> Result<Fault, Wrong> {
    let site = find_site(sites, &fault.site, "site")?;
    for (field, seconds) in [("at_s", fault.at_s), ("for_s", fault.for_s)] {
        if !(0.0..=DURATION_MAX_S).contains(&seconds) {
            return Err(Wrong::at(field, format!("fault: {field} is a number of seconds")));
        }
    }
    let count = sites[site].nodes;
    for (field, node) in [("node", fault.node), ("other", fault.other.unwrap_or(1))] {
        if !(1..=count).contains(&node) {
            let message = format!("fault: {field}: \"{}\" has nodes 1 to {count}", fault.site);
            return Err(Wrong::at(field, message));
        }
    }
    if count == 1 && fault.kind.needs_several() {
        let message = format!("fault: {} needs a site of several nodes", fault.kind);
        return Err(Wrong::at("kind", message));
    }
    let node = fault.node - 1;
    Ok(Fault {
        number: 0,
        at: Duration::from_secs_f64(fault.at_s),
        span: Duration::from_secs_f64(fault.for_s),
        kind: fault.kind,
        site,
        node,
        other: fault.other.map_or((node + 1) % count, |other| other - 1),
        at_leader: false,
        draw: (fault.at_s * 1_000.0) as u64,
    })
}

fn check_demo(demo: &Demo) -> Result<(), Wrong> {
    if !(10.0..=100_000.0).contains(&demo.zone_m) {
        let message = format!("demo: zone_m is 10 to 100000 metres, is {}", demo.zone_m);
        return Err(Wrong::at("zone_m", message));
    }
    let in_range = |hz: f64| (0.0..=RATE_MAX_HZ).contains(&hz);
    if !in_range(demo.look_hz) || !in_range(demo.report_hz) || demo.look_hz + demo.report_hz == 0.0
    {
        let message = format!("demo: rates are 0 to {RATE_MAX_HZ} Hz, and not both 0");
        return Err(Wrong::at("look_hz", message));
    }
    if !(1..=1_000).contains(&demo.zone_max) {
        let message = format!("demo: zone_max is 1 to 1000, is {}", demo.zone_max);
        return Err(Wrong::at("zone_max", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(broken("count = 2", "count = 0").starts_with("clients: count"));
        assert!(broken("duration_s = 10", "duration_s = 0").starts_with("duration_s is"));
        assert!(broken("title = \"One site\"", "title = ").len() > 5);
        let missing = World::load(Path::new("no/such/world.toml"), None).unwrap_err();
        assert_eq!(missing.line, 0);
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
        assert_eq!(
            (world.node_link(0), world.node_link(1)),
            (Link::constant(7.0), Link::constant(1.0))
        );
        let at = Point::new(1.3, 1.3);
        assert_eq!(world.client_link(at, 0), Link::constant(5.0));
        assert_eq!(world.client_link(at, 1), Link { mbps: Some(10.0), ..Link::constant(0.5) });
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
    fn the_schema_knows_every_part_of_a_world_and_says_what_it_is() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        for part in ["site", "links", "clients", "faults", "fault", "keyspace", "demo"] {
            assert!(properties.contains_key(part), "{part}");
        }
        assert_eq!(schema["additionalProperties"], false);
        assert!(properties["duration_s"]["description"].as_str().unwrap().contains("seconds"));
    }

    #[test]
    fn sites_have_as_many_nodes_as_are_allowed() {
        assert_eq!(model::limits::NODES_MAX, 7, "the file's documentation says so");
    }
}
