//! A world file as it is written: plain types, whose documentation becomes the schema, and errors
//! that point at a line.
//!
//! The file is read twice. Once into the types below, by which unknown and misspelt fields are
//! refused; and once into a tree that keeps where everything stands. A check that fails names
//! the place by its path ([`Wrong`]), and the tree has the line.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::tier::TierFile;
use crate::faults::Kind;
use crate::geo::{Bounds, Point};
use crate::mobility::Mobility;
use crate::workload::{Spec, pace::Pace};

/// A deployment, its users, and what goes wrong: one world of the lab.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldFile {
    /// Short name, by the rule of site names.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// How long clients work, in seconds of virtual time.
    #[serde(default = "minute")]
    pub duration_s: f64,
    /// What chance is drawn from, unless the command line sets it.
    #[serde(default = "one")]
    pub seed: u64,
    /// The part of the earth in which sites and clients are drawn and maps are shown.
    pub area: Bounds,
    /// Sites one by one.
    #[serde(default)]
    pub site: Vec<SiteFile>,
    /// Sites on a grid.
    pub grid: Option<GridFile>,
    /// Sites from a CSV file.
    pub sites_from: Option<SitesFromFile>,
    /// How far apart things are.
    pub links: LinksFile,
    /// Exceptions: pairs that are another distance apart.
    #[serde(default)]
    pub link: Vec<PairFile>,
    /// What every node is like.
    #[serde(default)]
    pub node: NodeFile,
    /// Keyspaces besides the default one.
    #[serde(default)]
    pub keyspace: Vec<KeyspaceFile>,
    /// The clients.
    #[serde(default)]
    pub clients: Vec<ClientsFile>,
    /// Faults that come at random: `explore` always has them, `run` with `--faults`.
    pub faults: Option<FaultsFile>,
    /// Faults at stated times: they are part of the world.
    #[serde(default)]
    pub fault: Vec<FaultFile>,
    /// What the vehicles of `portolan demo` do.
    pub demo: Option<Demo>,
    /// What else a map shows.
    pub map: Option<MapFile>,
}

fn minute() -> f64 {
    60.0
}

fn one() -> u64 {
    1
}

/// A place with one or more nodes that replicate for each other.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteFile {
    /// Unique in the world.
    pub name: String,
    /// Degrees north.
    pub lat: f64,
    /// Degrees east.
    pub lon: f64,
    /// How many nodes, 1 to 7.
    #[serde(default = "one_node")]
    pub nodes: usize,
    /// Whether the last of its nodes is a witness: it votes and holds no data.
    #[serde(default)]
    pub witness: bool,
    /// The site above it: edge, core, cloud.
    pub parent: Option<String>,
    /// How much it can hold, relative to others.
    #[serde(default = "whole")]
    pub capacity: f64,
    /// What it can fail together with, by the name that other sites give, too.
    pub failure_domain: Option<String>,
    /// The region that it is of: sites of one name order their causal writes together.
    pub region: Option<String>,
    /// How many bytes of other sites' groups it takes.
    pub borrowed_bytes_max: Option<u64>,
    /// Whether it is not there at first, and comes while the world runs, by a fault `join_site`.
    #[serde(default)]
    pub spare: bool,
}

fn one_node() -> usize {
    1
}

fn whole() -> f64 {
    1.0
}

/// Sites on a grid, named by prefix, row and column: `ap-0-3`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GridFile {
    /// Rows, from south to north.
    pub rows: usize,
    /// Columns, from west to east.
    pub columns: usize,
    /// Metres between neighbours.
    pub spacing_m: f64,
    /// Where the grid's middle is.
    pub center: Point,
    /// How many nodes each has, 1 to 7.
    #[serde(default = "one_node")]
    pub nodes: usize,
    /// What names begin with.
    pub prefix: String,
}

/// Sites from a CSV file with a header, looked for beside the world file and in the folder given
/// with `--data`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SitesFromFile {
    /// The file.
    pub csv: std::path::PathBuf,
    /// Its column of degrees north.
    pub lat: String,
    /// Its column of degrees east.
    pub lon: String,
    /// What names begin with; a number from 1 follows.
    pub prefix: String,
    /// How many nodes each site has, 1 to 7.
    #[serde(default = "one_node")]
    pub nodes: usize,
    /// At most so many sites, the first ones that lie in the area.
    pub count_max: usize,
    /// When the file is not there: place `count_max` sites at random in the area instead of
    /// refusing.
    #[serde(default)]
    pub or_random: bool,
}

/// One tier of links for each kind of pair.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinksFile {
    /// A client and a site.
    pub client_site: TierFile,
    /// Two sites.
    pub site_site: TierFile,
    /// Two nodes of one site.
    pub node_node: TierFile,
}

/// A pair that is another distance apart.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairFile {
    /// Two sites; one twice: the nodes of that site; `"clients"` and a site: the clients at it.
    pub between: (String, String),
    /// Only the way from the first of two sites to the second.
    #[serde(default)]
    pub one_way: bool,
    /// What the link is like.
    pub tier: TierFile,
}

/// What every node is like.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeFile {
    /// How long an fsync takes: shortest and longest, ms.
    pub sync_ms: (f64, f64),
    /// How long it takes to write or load a snapshot: shortest and longest, ms.
    pub snapshot_ms: (f64, f64),
    /// A snapshot is made after so many bytes of log.
    pub log_bytes_before_snapshot: u64,
    /// So many entries of the log are kept behind a snapshot.
    pub log_entries_kept: u64,
    /// Bytes of one file of the log.
    pub log_segment_bytes: u64,
    /// Of a thousand commits, after how many the state's engine makes itself durable.
    pub state_persist_permille: u64,
    /// How long it works on a request of a client, ms: one after the other, before anything else
    /// comes of it.
    pub request_ms: f64,
    /// Whether the sites of a deployment have their global keys mirrored by their backups.
    pub mirrors: bool,
    /// Bytes of the order of causal keys that its root keeps for sites that are away.
    pub causal_kept_bytes_max: u64,
    /// Bytes of one chunk of the causal keys that a site gets anew.
    pub causal_resync_bytes_max: usize,
}

impl Default for NodeFile {
    fn default() -> NodeFile {
        NodeFile {
            sync_ms: (1.0, 1.0),
            snapshot_ms: (5.0, 5.0),
            log_bytes_before_snapshot: 1 << 20,
            log_entries_kept: 1_000,
            log_segment_bytes: 64 << 10,
            state_persist_permille: 0,
            request_ms: 0.0,
            mirrors: true,
            causal_kept_bytes_max: model::limits::CAUSAL_ORDER_KEPT_BYTES_MAX,
            causal_resync_bytes_max: model::limits::CAUSAL_RESYNC_BYTES_MAX,
        }
    }
}

/// A keyspace.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceFile {
    /// Its name.
    pub name: String,
    /// What its clients' keys begin with.
    pub prefix: String,
    /// What it promises: `linearizable`, or `causal` with scope `region`.
    #[serde(default = "linearizable")]
    pub consistency: String,
    /// For which sites: `site`, each for itself; `global`, all of them together; `region`, all of
    /// them, each from its own disk.
    #[serde(default = "site")]
    pub scope: String,
    /// Whether a leader may answer reads by its lease.
    #[serde(default)]
    pub lease_reads: bool,
    /// With consistency `causal`: `local` if writes may depend on what they overwrite, else
    /// `refuse`.
    #[serde(default = "refuse")]
    pub rmw: String,
    /// With consistency `causal`: the sites that hold it; all by default.
    #[serde(default)]
    pub sites: Vec<String>,
    /// With consistency `causal`: what the others do with requests, `forward`, `refuse` or `fetch`.
    #[serde(default = "forward")]
    pub miss: String,
    /// With `fetch`: bytes that each of the others holds.
    #[serde(default)]
    pub held_bytes_max: Option<u64>,
    /// Copies that nodes keep of other sites' keys, with scope `global`: `off`, `validated` or
    /// `stale`.
    #[serde(default = "off")]
    pub cache: String,
    /// Bytes of copies that a node keeps.
    #[serde(default)]
    pub cache_bytes_max: Option<u64>,
    /// How long a copy answers stale reads, with `stale`.
    #[serde(default)]
    pub cache_age_ms_max: Option<u64>,
    /// What decides where keys are, with scope `global`: `off` (the hash), `advise` (the hash;
    /// owners count accesses) or `adaptive` (groups are lent to where their clients are).
    #[serde(default = "off")]
    pub placement: String,
}

fn off() -> String {
    "off".to_owned()
}

fn forward() -> String {
    "forward".to_owned()
}

fn refuse() -> String {
    "refuse".to_owned()
}

fn linearizable() -> String {
    "linearizable".to_owned()
}

fn site() -> String {
    "site".to_owned()
}

/// Clients that are alike.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientsFile {
    /// What they are called; a number from 1 follows.
    pub name: String,
    /// How many.
    pub count: usize,
    /// How they move. Without it they do not.
    pub mobility: Option<Mobility>,
    /// Which site a client uses.
    pub attach: Attach,
    /// What they do.
    pub workload: Spec,
    /// When they do it.
    pub pace: Pace,
    /// The keyspace they use; without it the default one.
    pub keyspace: Option<String>,
    /// Other keyspaces, to which some of their operations go, drawn one by one.
    #[serde(default)]
    pub also: Vec<AlsoFile>,
    /// So many operations all of them do together, and then no more; without it they go on until
    /// the time is over. A run in which no client has anything left to do ends.
    pub operations: Option<u64>,
    /// Whether they number their writes and repeat them until they are answered, as our own client
    /// does. Without it a write that gets no answer is unknown, as with a plain Redis client.
    #[serde(default = "yes")]
    pub repeat: bool,
    /// Whether their reads may be stale.
    #[serde(default)]
    pub stale_reads: bool,
    /// What they put expires after so many seconds; at least 600, as a history contains no expiry.
    pub expires_s: Option<f64>,
    /// Of a thousand of their operations, so many are about two keys of one slot, which are written
    /// and read together, each time in one atomic request.
    #[serde(default)]
    pub pairs_permille: u32,
}

/// Another keyspace of the same clients.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlsoFile {
    /// Its name.
    pub keyspace: String,
    /// The share of operations that go there, 0 to 1.
    pub share: f64,
    /// Whether their reads there may be stale.
    #[serde(default)]
    pub stale_reads: bool,
}

fn yes() -> bool {
    true
}

/// Which site a client uses.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum Attach {
    /// The nearest one.
    Nearest {
        /// Another site must be nearer by this many metres before a client moves on to it.
        #[serde(default)]
        margin_m: f64,
    },
    /// This one.
    Site {
        /// Its name.
        site: String,
    },
    /// Clients are distributed to all sites in turn.
    Spread,
}

/// Faults that come at random.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultsFile {
    /// The mean time between two faults of one site, in seconds.
    pub every_s: f64,
    /// None come before this.
    #[serde(default)]
    pub calm_s: f64,
    /// How often each kind comes, relative to the others; a kind that is not named does not come.
    /// Without it all kinds come alike, but for those that only come where they are asked for.
    pub weights: Option<std::collections::BTreeMap<Kind, f64>>,
    /// Of a thousand faults that may, so many last until all faults end.
    #[serde(default)]
    pub never_permille: u64,
    /// Whether each seed has about half of the kinds only, drawn from it.
    #[serde(default)]
    pub some_kinds: bool,
    /// Of a thousand places in the code at which something rare could happen, at how many it does.
    /// Only builds with the feature `trial` have such places.
    #[serde(default)]
    pub rare_permille: u64,
}

/// A fault at a stated time.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFile {
    /// When, in seconds since the clients began.
    pub at_s: f64,
    /// How long it lasts; without it a moment.
    #[serde(default)]
    pub for_s: f64,
    /// What.
    pub kind: Kind,
    /// Where.
    pub site: String,
    /// Which node, from 1.
    #[serde(default = "one_node")]
    pub node: usize,
    /// The other node, where it takes two; without it the next one.
    pub other: Option<usize>,
    /// The other site, where it takes two; without it the next one.
    pub other_site: Option<String>,
}

/// What the vehicles of `portolan demo` do, per second of real time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demo {
    /// Width of a zone whose hazards are kept together, in metres.
    pub zone_m: f64,
    /// Reads of all hazards in the zone.
    pub look_hz: f64,
    /// Reports of a new one.
    pub report_hz: f64,
    /// A vehicle that sees more than this many in a zone clears the oldest.
    pub zone_max: usize,
    /// Writes and reads of vehicles' own records, which are global keys.
    #[serde(default)]
    pub record_hz: f64,
    /// The site that joins while the demo runs, by its name; the first one in the file begins.
    #[serde(default)]
    pub joins: Option<String>,
    /// The site that leaves while the demo runs, by its name.
    #[serde(default)]
    pub leaves: Option<String>,
}

/// What else a map shows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapFile {
    /// A shore line, as `[lat, lon]` pairs; nothing is computed from it.
    pub outline: Vec<(f64, f64)>,
}

/// Something in a file that makes no sense, and the path to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// From the place itself outwards.
    path: Vec<Step>,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Key(&'static str),
    Index(usize),
}

impl Wrong {
    pub(super) fn here(message: impl Into<String>) -> Wrong {
        Wrong { path: Vec::new(), message: message.into() }
    }

    pub(super) fn at(key: &'static str, message: impl Into<String>) -> Wrong {
        Wrong::here(message).under(key)
    }

    pub(super) fn under(mut self, key: &'static str) -> Wrong {
        self.path.push(Step::Key(key));
        self
    }

    pub(super) fn of(mut self, index: usize) -> Wrong {
        self.path.push(Step::Index(index));
        self
    }
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

/// A text and its name.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn read(&self) -> Result<WorldFile, WorldError> {
        toml::from_str(self.text)
            .map_err(|error| self.error(error.span().map_or(0, |span| span.start), error.message()))
    }

    /// An error of a check, with its line.
    pub(super) fn locate(&self, wrong: Wrong) -> WorldError {
        let mut place = 0;
        if let Ok(root) = DeTable::parse(self.text) {
            let root = toml::Spanned::new(root.span(), DeValue::Table(root.into_inner()));
            let mut value = &root;
            // As far as the path leads: a field that is missing is reported at what lacks it.
            for step in wrong.path.iter().rev() {
                let next = match (value.get_ref(), step) {
                    (DeValue::Table(table), Step::Key(key)) => table.get(*key),
                    (DeValue::Array(array), Step::Index(index)) => array.get(*index),
                    _ => None,
                };
                let Some(next) = next else { break };
                value = next;
                place = value.span().start;
            }
        }
        match place {
            0 => WorldError { line: 0, ..self.error(0, wrong.message) },
            place => self.error(place, wrong.message),
        }
    }

    fn error(&self, place: usize, message: impl Into<String>) -> WorldError {
        let place = place.min(self.text.len());
        let line = self.text.as_bytes()[..place].iter().filter(|byte| **byte == b'\n').count();
        // What is missing at the end of the text is missing in its last line.
        let line = line.min(self.text.lines().count().saturating_sub(1));
        WorldError {
            file: self.file.to_owned(),
            line: line + 1,
            text: self.text.lines().nth(line).unwrap_or_default().to_owned(),
            message: message.into(),
        }
    }
}
