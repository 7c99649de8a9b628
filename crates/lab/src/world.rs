//! A world file: sites, links, vehicles and their work, in TOML.
//!
//! A world says what exists and how far apart it is, in the units of its field names. It holds no
//! behaviour: [`crate::mobility`] moves the vehicles, [`crate::link`] delays the bytes. Unknown fields
//! are refused, so that a misspelt one is never silently ignored, and every error points at its line.
//!
//! ```
//! let world = lab::world::World::san_francisco();
//! assert_eq!(world.sites.len(), 9);
//! ```
//!
//! Left out for now: parents and capacities of sites, empirical link matrices, keyspaces, faults.

use std::{fmt, ops::Range, path::Path};

use model::{SiteName, limits::NODES_MAX};
use serde::Deserialize;
use toml::Spanned;

use crate::{
    geo::{Bounds, Grid, Point},
    link::{Latency, Link},
    mobility::waypoint::Waypoint,
};

/// Most sites in one world.
const SITES_MAX: usize = 10_000;
/// Most vehicles in one world.
const VEHICLES_MAX: usize = 100_000;
/// Longest one-way delay a link may have, in milliseconds.
const DELAY_MAX_MS: f64 = 10_000.0;
/// Highest rate of one vehicle's operation, per second.
const RATE_MAX_HZ: f64 = 10_000.0;

const SAN_FRANCISCO: &str = include_str!("../worlds/san-francisco.toml");

/// A whole world, checked.
#[derive(Debug, Clone)]
pub struct World {
    /// Short name, by the rule of site names.
    pub name: SiteName,
    /// One line for people.
    pub title: String,
    /// Where generated vehicles drive, and what maps show.
    pub city: Bounds,
    /// Sites in the file's order; at least one.
    pub sites: Vec<Site>,
    /// How far apart things are.
    pub links: Links,
    /// Who moves.
    pub vehicles: Vehicles,
    /// What they do.
    pub hazards: Hazards,
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
}

/// One tier of links for each kind of pair.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// A vehicle and a site.
    pub client_site: Tier,
    /// Two sites.
    pub site_site: Tier,
    /// Two nodes of one site.
    pub node_node: Tier,
}

/// A one-way delay that grows with distance.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// Delay at no distance, ms one way.
    pub base_ms: f64,
    /// More for each kilometre, ms one way.
    #[serde(default)]
    pub per_km_ms: f64,
    /// Uniform jitter of at most this much either way, ms.
    #[serde(default)]
    pub jitter_ms: f64,
}

impl Tier {
    /// The link between two ends this far apart.
    #[must_use]
    pub fn link(&self, distance_m: f64) -> Link {
        let delay_ms = (self.base_ms + self.per_km_ms * distance_m / 1_000.0).min(DELAY_MAX_MS);
        Link::of(match self.jitter_ms {
            0.0 => Latency::Constant { ms: delay_ms },
            jitter_ms => {
                Latency::Uniform { from_ms: delay_ms - jitter_ms, to_ms: delay_ms + jitter_ms }
            }
        })
    }
}

/// Who moves.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vehicles {
    /// How many, when the command line does not say.
    pub count: usize,
    /// Width of a zone, in metres.
    pub zone_m: f64,
    /// Another site must be nearer by this many metres before a vehicle moves on to it.
    pub roam_margin_m: f64,
    /// How they move without a trace.
    pub waypoint: Waypoint,
}

/// What each vehicle does, per second of real time.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hazards {
    /// Reads of all hazards in its zone.
    pub look_hz: f64,
    /// Reports of a new one.
    pub report_hz: f64,
    /// Who sees more than this many in a zone clears the oldest.
    pub zone_max: usize,
}

/// What is wrong with a world file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldError {
    /// The file's name.
    pub file: String,
    /// Line, from 1; 0 when the error is about the whole file.
    pub line: usize,
    /// That line's text.
    pub text: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file, self.message);
        }
        write!(f, "{}:{}: {}", self.file, self.line, self.message)?;
        write!(f, "\n{:>5} | {}", self.line, self.text)
    }
}

impl std::error::Error for WorldError {}

impl World {
    /// The ready world of the demo: nine sites over San Francisco.
    #[must_use]
    pub fn san_francisco() -> Self {
        Self::parse("san-francisco.toml", SAN_FRANCISCO)
            .expect("the built-in world is checked by a test")
    }

    /// Reads and checks a world file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not a world; the error names the line.
    pub fn load(path: &Path) -> Result<Self, WorldError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| WorldError {
            file: file.clone(),
            line: 0,
            text: String::new(),
            message: format!("cannot read the world file: {error}"),
        })?;
        Self::parse(&file, &text)
    }

    /// Checks the text of a world; `file` is for messages.
    ///
    /// # Errors
    /// The text is not a world; the error names the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, WorldError> {
        let source = Source { file, text };
        let raw: RawWorld = toml::from_str(text)
            .map_err(|error| source.error(error.span().unwrap_or(0..0), error.message()))?;
        source.check(raw)
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
    /// that is nearer than the current one by less than the roaming margin.
    #[must_use]
    pub fn attach(&self, point: Point, current: Option<usize>) -> usize {
        let (nearest, nearest_m) = self.nearest_site(point);
        match current {
            Some(site)
                if self.sites[site].at.distance_m(point)
                    < nearest_m + self.vehicles.roam_margin_m =>
            {
                site
            }
            _ => nearest,
        }
    }

    /// The grid of zones, anchored at the city's south-west corner.
    #[must_use]
    pub fn zones(&self) -> Grid {
        Grid::new(Point::new(self.city.south, self.city.west), self.vehicles.zone_m)
    }
}

/// The file as written; spans are kept where a check may have to point.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorld {
    name: Spanned<String>,
    title: String,
    city: Spanned<Bounds>,
    links: RawLinks,
    vehicles: Spanned<Vehicles>,
    hazards: Spanned<Hazards>,
    #[serde(default)]
    site: Vec<RawSite>,
    map: Option<RawMap>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLinks {
    client_site: Spanned<Tier>,
    site_site: Spanned<Tier>,
    node_node: Spanned<Tier>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    name: Spanned<String>,
    lat: Spanned<f64>,
    lon: Spanned<f64>,
    #[serde(default)]
    nodes: Option<Spanned<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMap {
    outline: Spanned<Vec<(f64, f64)>>,
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> WorldError {
        let start = span.start.min(self.text.len());
        let line = self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
        WorldError {
            file: self.file.to_owned(),
            line: line + 1,
            text: self.text.lines().nth(line).unwrap_or_default().to_owned(),
            message: message.into(),
        }
    }

    fn check(&self, raw: RawWorld) -> Result<World, WorldError> {
        let name = self.check_name("name", &raw.name)?;
        self.check_city(&raw.city)?;
        for tier in [&raw.links.client_site, &raw.links.site_site, &raw.links.node_node] {
            self.check_tier(tier)?;
        }
        self.check_vehicles(&raw.vehicles)?;
        self.check_hazards(&raw.hazards)?;
        let sites = self.check_sites(&raw.site)?;
        let outline = raw.map.map_or(Ok(Vec::new()), |map| self.check_outline(&map.outline))?;
        Ok(World {
            name,
            title: raw.title,
            city: raw.city.into_inner(),
            sites,
            links: Links {
                client_site: raw.links.client_site.into_inner(),
                site_site: raw.links.site_site.into_inner(),
                node_node: raw.links.node_node.into_inner(),
            },
            vehicles: raw.vehicles.into_inner(),
            hazards: raw.hazards.into_inner(),
            outline,
        })
    }

    fn check_name(&self, what: &str, name: &Spanned<String>) -> Result<SiteName, WorldError> {
        SiteName::new(name.get_ref().clone())
            .map_err(|error| self.error(name.span(), format!("{what}: {error}")))
    }

    fn check_city(&self, city: &Spanned<Bounds>) -> Result<(), WorldError> {
        let Bounds { south, west, north, east } = *city.get_ref();
        let on_earth =
            Point::new(south, west).is_on_earth() && Point::new(north, east).is_on_earth();
        if on_earth && south < north && west < east {
            return Ok(());
        }
        Err(self.error(city.span(), "city: degrees with south < north and west < east"))
    }

    fn check_tier(&self, tier: &Spanned<Tier>) -> Result<(), WorldError> {
        let Tier { base_ms, per_km_ms, jitter_ms } = *tier.get_ref();
        let in_range = |ms: f64| (0.0..=DELAY_MAX_MS).contains(&ms);
        if ![base_ms, per_km_ms, jitter_ms].into_iter().all(in_range) {
            let message = format!("link: each of its numbers is 0 to {DELAY_MAX_MS} ms");
            return Err(self.error(tier.span(), message));
        }
        if jitter_ms > base_ms {
            let message = "link: jitter_ms above base_ms would deliver before sending";
            return Err(self.error(tier.span(), message));
        }
        Ok(())
    }

    fn check_vehicles(&self, vehicles: &Spanned<Vehicles>) -> Result<(), WorldError> {
        let refuse = |message: String| Err(self.error(vehicles.span(), message));
        let Vehicles { count, zone_m, roam_margin_m, waypoint } = *vehicles.get_ref();
        if !(1..=VEHICLES_MAX).contains(&count) {
            return refuse(format!("vehicles: count is 1 to {VEHICLES_MAX}, is {count}"));
        }
        if !(10.0..=100_000.0).contains(&zone_m) {
            return refuse(format!("vehicles: zone_m is 10 to 100000 metres, is {zone_m}"));
        }
        if !(0.0..=100_000.0).contains(&roam_margin_m) {
            return refuse(format!("vehicles: roam_margin_m is 0 to 100000, is {roam_margin_m}"));
        }
        waypoint.check().or_else(refuse)
    }

    fn check_hazards(&self, hazards: &Spanned<Hazards>) -> Result<(), WorldError> {
        let Hazards { look_hz, report_hz, zone_max } = *hazards.get_ref();
        let in_range = |hz: f64| (0.0..=RATE_MAX_HZ).contains(&hz);
        if !in_range(look_hz) || !in_range(report_hz) || look_hz + report_hz == 0.0 {
            let message = format!("hazards: rates are 0 to {RATE_MAX_HZ} Hz, and not both 0");
            return Err(self.error(hazards.span(), message));
        }
        if !(1..=1_000).contains(&zone_max) {
            let message = format!("hazards: zone_max is 1 to 1000, is {zone_max}");
            return Err(self.error(hazards.span(), message));
        }
        Ok(())
    }

    fn check_sites(&self, raw: &[RawSite]) -> Result<Vec<Site>, WorldError> {
        if raw.is_empty() || raw.len() > SITES_MAX {
            let message = format!("a world has 1 to {SITES_MAX} [[site]]s, is {}", raw.len());
            return Err(WorldError { line: 0, ..self.error(0..0, message) });
        }
        let mut sites: Vec<Site> = Vec::with_capacity(raw.len());
        for site in raw {
            let name = self.check_name("site", &site.name)?;
            if sites.iter().any(|earlier| earlier.name == name) {
                let message = format!("there is already a site named \"{name}\"");
                return Err(self.error(site.name.span(), message));
            }
            let at = Point::new(*site.lat.get_ref(), *site.lon.get_ref());
            if !at.is_on_earth() {
                let message = format!("site \"{name}\": lat is −90 to 90 and lon −180 to 180");
                return Err(self.error(site.lat.span(), message));
            }
            let nodes = site.nodes.as_ref().map_or(1, |nodes| *nodes.get_ref());
            if !(1..=NODES_MAX).contains(&nodes) {
                let message = format!("site \"{name}\": nodes is 1 to {NODES_MAX}, is {nodes}");
                let span = site.nodes.as_ref().map_or(0..0, Spanned::span);
                return Err(self.error(span, message));
            }
            sites.push(Site { name, at, nodes });
        }
        Ok(sites)
    }

    fn check_outline(&self, outline: &Spanned<Vec<(f64, f64)>>) -> Result<Vec<Point>, WorldError> {
        let points: Vec<Point> =
            outline.get_ref().iter().map(|(lat, lon)| Point::new(*lat, *lon)).collect();
        if points.iter().all(|point| point.is_on_earth()) {
            return Ok(points);
        }
        Err(self.error(outline.span(), "outline: a point is [lat, lon], in degrees"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces one piece of the built-in world and returns the error, which must point at that line.
    fn broken(from: &str, to: &str) -> String {
        let start = SAN_FRANCISCO.find(from).expect("the piece is in the file");
        let line = SAN_FRANCISCO[..start].matches('\n').count() + 1;
        let text = SAN_FRANCISCO.replacen(from, to, 1);
        let error = World::parse("w.toml", &text).expect_err("must be refused");
        assert_eq!(error.text, text.lines().nth(line - 1).unwrap(), "{error}");
        let prefix = format!("w.toml:{line}: ");
        error.to_string().strip_prefix(&prefix).expect("the line's number").to_owned()
    }

    #[test]
    fn the_ready_world_is_nine_sites_on_a_grid_and_one_has_three_nodes() {
        let world = World::san_francisco();
        assert_eq!(world.sites.len(), 9);
        let replicated: Vec<&Site> = world.sites.iter().filter(|site| site.nodes > 1).collect();
        assert_eq!(replicated.len(), 1);
        assert_eq!((replicated[0].name.as_str(), replicated[0].nodes), ("downtown", 3));
        assert!(world.sites.iter().all(|site| world.city.contains(site.at)));
        for (row, column) in [(0, 0), (1, 1), (2, 1)] {
            let (here, east) = (&world.sites[row * 3 + column], &world.sites[row * 3 + column + 1]);
            let spacing_m = here.at.distance_m(east.at);
            assert!((3_000.0..4_000.0).contains(&spacing_m), "{spacing_m}");
        }
    }

    #[test]
    fn errors_point_at_the_line() {
        let nodes = broken("nodes = 3", "nodes = 9");
        assert!(nodes.starts_with("site \"downtown\": nodes is 1 to 7, is 9\n"), "{nodes}");
        assert!(nodes.ends_with(" | nodes = 9"), "{nodes}");
        assert!(broken("nodes = 3", "node = 3").starts_with("unknown field `node`"));
        assert!(broken("lat = 37.790", "lat = 97.790").starts_with("site \"richmond\": lat"));
        assert!(!broken("zone_max = 8 ", "zone_max = ").is_empty());
        assert!(broken("name = \"sunset\"", "name = \"richmond\"").contains("already a site"));
        let empty = World::load(Path::new("no/such/world.toml")).unwrap_err();
        assert_eq!(empty.line, 0);
    }

    #[test]
    fn a_link_grows_with_distance() {
        let tier = Tier { base_ms: 3.0, per_km_ms: 0.5, jitter_ms: 0.25 };
        assert_eq!(tier.link(4_000.0).latency, Latency::Uniform { from_ms: 4.75, to_ms: 5.25 });
        assert_eq!(tier.link(0.0).latency.mean_ms(), 3.0);
    }

    #[test]
    fn a_vehicle_moves_on_only_past_the_margin() {
        let world = World::san_francisco();
        let (west, east) = (world.sites[0].at, world.sites[1].at);
        let just_past_the_middle = west.toward(east, 0.51);
        assert_eq!(world.attach(just_past_the_middle, None), 1);
        assert_eq!(world.attach(just_past_the_middle, Some(0)), 0);
        assert_eq!(world.attach(west.toward(east, 0.55), Some(0)), 1);
    }
}
