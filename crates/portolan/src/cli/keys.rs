//! `get`, `put`, `del`, `scan`, `watch`: keys from a shell.

use super::connect::Connect;
use super::failed::Failed;
use super::show::{self, Length, Table};
use clap::Args;
use client::{Client, Found, Keyspace, ScanRange};
use model::{Bytes, Condition, Expiry, Kind, Revision};
use serde_json::{Map, Value};
use std::io::{self, Read as _, Write as _};

/// Which keyspace, and how it is read.
#[derive(Args)]
struct Where {
    /// The keyspace
    #[arg(long, short, value_name = "NAME", default_value = "default", env = "PORTOLAN_KEYSPACE")]
    keyspace: String,
}

/// How fresh.
#[derive(Args)]
struct Freshness {
    /// Read what the asked node has, perhaps old, without waiting for the others
    #[arg(long)]
    stale: bool,
}

impl Freshness {
    fn keys(&self, client: &Client, at: Where) -> Keyspace {
        let keyspace = client.keyspace(at.keyspace);
        if self.stale { keyspace.stale() } else { keyspace }
    }
}

/// Read a key
///
/// Prints its value, of a hash its fields; ends with code 1 if there is none.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  portolan get car:7\n  portolan get car:7 --json | jq .version"
)]
pub(crate) struct Get {
    /// The key
    key: String,
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    freshness: Freshness,
    /// Print key, value and version as JSON, of a hash its fields
    #[arg(long)]
    json: bool,
    /// Print the value and nothing else, not even a newline
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Get {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let keys = self.freshness.keys(&client, self.at);
            let (found, age) = keys.get_any(self.key.clone()).await?;
            if let Some(age) = age {
                let ms = age.as_millis();
                let why = "its site cannot be reached; this is from that site's backup";
                writeln!(io::stderr(), "portolan: {why}, caught up {ms} ms ago")?;
            }
            let Some(found) = found else {
                return Err(Failed::no(None));
            };
            if self.json {
                let mut object = found_as_json(self.key.as_bytes(), &found);
                if let Some(age) = age {
                    object.insert("backup_age_ms".into(), (age.as_millis() as u64).into());
                }
                return Ok(show::print(Value::from(object))?);
            }
            match found {
                Found::Hash(_) if self.raw => Err(Failed::refused(format!(
                    "{} holds a hash, which has no value of its own: leave --raw out to see its \
                     fields, or use --json",
                    show::line(self.key.as_bytes())
                ))),
                Found::Hash(fields) => Ok(show::print(as_table(&fields))?),
                Found::String(found) => {
                    let mut out = io::stdout().lock();
                    out.write_all(&found.value)?;
                    if !self.raw {
                        out.write_all(b"\n")?;
                    }
                    Ok(out.flush()?)
                }
            }
        })
    }
}

/// What a key holds.
fn found_as_json(key: &[u8], found: &Found) -> Map<String, Value> {
    match found {
        Found::String(found) => as_json(key, Some(&found.value), Some(found.version)),
        Found::Hash(fields) => {
            let mut object = as_json(key, None, None);
            let field = |(name, value): &(Bytes, Bytes)| {
                let mut field = Map::new();
                show::put_bytes(&mut field, "field", name);
                show::put_bytes(&mut field, "value", value);
                Value::from(field)
            };
            object.insert("kind".into(), "hash".into());
            object.insert("fields".into(), fields.iter().map(field).collect());
            object
        }
    }
}

/// The fields of a hash.
fn as_table(fields: &[(Bytes, Bytes)]) -> Table {
    let mut table = Table::new(["field", "value"]);
    fields.iter().for_each(|(name, value)| table.row([show::line(name), show::line(value)]));
    table
}

/// Write a key
///
/// Prints its new version; ends with code 1 if a condition did not hold.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  portolan put car:7 'Pier 39'\n  portolan put lock me --if-absent --ttl 30s\n  \
                  portolan put picture - < picture.png\n  portolan put car:7 'Pier 41' --if-version 12"
)]
pub(crate) struct Put {
    /// The key
    key: String,
    /// Its value; `-` reads it from the standard input
    #[arg(allow_negative_numbers = true)]
    value: String,
    #[command(flatten)]
    at: Where,
    /// Only if the key is absent
    #[arg(long, group = "condition", help_heading = "Conditions")]
    if_absent: bool,
    /// Only if the key is there
    #[arg(long, group = "condition", help_heading = "Conditions")]
    if_present: bool,
    /// Only if the key still has this version (0: is absent)
    #[arg(long, group = "condition", value_name = "VERSION", help_heading = "Conditions")]
    if_version: Option<u64>,
    /// Let the key disappear after this long
    #[arg(long, value_name = "TIME", value_parser = show::length)]
    ttl: Option<Length>,
    #[command(flatten)]
    connect: Connect,
}

impl Put {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let value = match self.value.as_str() {
            "-" => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).map_err(|error| {
                    Failed::usage(format!("cannot read the value from the standard input: {error}"))
                })?;
                Bytes::from(bytes)
            }
            _ => Bytes::from(self.value),
        };
        let condition = match (self.if_absent, self.if_present, self.if_version) {
            (true, ..) => Condition::IfAbsent,
            (_, true, _) => Condition::IfPresent,
            (.., Some(version)) => Condition::IfVersion(Revision(version)),
            _ => Condition::Always,
        };
        let expiry = match self.ttl {
            Some(Length(ttl)) => Expiry::AfterMs(ttl.as_millis() as u64),
            None => Expiry::Never,
        };
        self.connect.run(|client| async move {
            let put = client::Put { condition, expiry, return_old: false };
            let done = client.keyspace(self.at.keyspace).put_with(self.key, value, put).await?;
            match (done.applied, done.version.0) {
                (true, version) => Ok(show::print(version)?),
                (false, 0) => Err(Failed::no(Some("not written: the key is absent".into()))),
                (false, version) => {
                    let what = format!("not written: the key is there, with version {version}");
                    Err(Failed::no(Some(what)))
                }
            }
        })
    }
}

/// Remove keys
///
/// Prints how many there were; ends with code 1 if there was none.
#[derive(Args)]
pub(crate) struct Del {
    /// The keys
    #[arg(required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    connect: Connect,
}

impl Del {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let keys = client.keyspace(self.at.keyspace);
            let mut deleted = 0;
            for key in self.keys {
                deleted += u64::from(keys.delete(key).await?);
            }
            show::print(deleted)?;
            if deleted == 0 { Err(Failed::no(None)) } else { Ok(()) }
        })
    }
}

/// List keys in order, as a table or as JSON lines
#[derive(Args)]
#[command(
    after_help = "Examples:\n  portolan scan car:\n  portolan scan --match 'car:*:speed' --values\n  \
                  portolan scan --json | jq -r .key"
)]
pub(crate) struct Scan {
    /// Only keys that begin with this
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    at: Where,
    #[command(flatten)]
    freshness: Freshness,
    /// Only keys that match this glob, as in Redis
    #[arg(long = "match", value_name = "GLOB", default_value = "", hide_default_value = true)]
    glob: String,
    /// With the values, but for the fields of hashes: `get` shows those
    #[arg(long)]
    values: bool,
    /// Stop after this many keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What stands for the value of a hash: its fields may be many.
const HASH_VALUE: &str = "(fields: `portolan get` shows them)";
/// Rows that are aligned with one another; more would make the first wait for the last.
const ROWS_ALIGNED: usize = 1_000;

impl Scan {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let mut scan = self.freshness.keys(&client, self.at).scan(ScanRange {
                prefix: self.prefix.into(),
                glob: self.glob.into(),
                with_values: self.values,
                limit: self.limit.unwrap_or(0),
                ..ScanRange::default()
            });
            let heads = || Table::new([">version", "kind", "key", "value"]);
            let (mut table, mut rows) = (heads(), 0);
            while let Some(item) = scan.next().await? {
                let kind = match item.kind {
                    Kind::String => "string",
                    Kind::Hash => "hash",
                };
                if self.json {
                    let mut object = as_json(&item.key, item.value.as_deref(), Some(item.version));
                    object.insert("kind".into(), kind.into());
                    show::print(Value::from(object))?;
                    continue;
                }
                let value = match item.kind {
                    Kind::Hash if self.values => HASH_VALUE.to_owned(),
                    _ => item.value.as_deref().map(show::line).unwrap_or_default(),
                };
                table.row([item.version.0.to_string(), kind.into(), show::line(&item.key), value]);
                rows += 1;
                if rows == ROWS_ALIGNED {
                    show::print(std::mem::replace(&mut table, heads()))?;
                    rows = 0;
                }
            }
            if rows > 0 {
                show::print(table)?;
            }
            Ok(())
        })
    }
}

/// Follow changes as they happen, until interrupted
#[derive(Args)]
#[command(
    after_help = "Examples:\n  portolan watch car:\n  portolan watch --after 1200 --values --json"
)]
pub(crate) struct Watch {
    /// Only keys that begin with this
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    at: Where,
    /// Begin after this revision instead of now
    #[arg(long, value_name = "REVISION")]
    after: Option<u64>,
    /// With the key's value when the change is reported
    #[arg(long)]
    values: bool,
    /// End after this many changes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Watch {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let keys = client.keyspace(self.at.keyspace);
            let after = self.after.map(Revision);
            let mut watch = keys.watch_after(self.prefix, after, self.values).await?;
            let mut left = self.limit.unwrap_or(u64::MAX);
            while left > 0 {
                for change in watch.next().await?.changes.into_iter().take(left as usize) {
                    left -= 1;
                    print_change(&change, self.json)?;
                }
            }
            Ok(())
        })
    }
}

fn print_change(change: &client::Change, json: bool) -> io::Result<()> {
    let kind = kebab(&format!("{:?}", change.kind));
    if !json {
        let value = change.now.as_ref().map(|now| show::line(&now.value)).unwrap_or_default();
        let line = format!("{:>10}  {kind:<12}  {}", change.revision.0, show::line(&change.key));
        return show::print(format!("{line}  {value}").trim_end());
    }
    let now = change.now.as_ref();
    let mut object =
        as_json(&change.key, now.map(|now| &now.value[..]), now.map(|now| now.version));
    object.insert("revision".into(), change.revision.0.into());
    object.insert("change".into(), kind.into());
    show::print(Value::from(object))
}

/// A key and what is known of it.
fn as_json(key: &[u8], value: Option<&[u8]>, version: Option<Revision>) -> Map<String, Value> {
    let mut object = Map::new();
    show::put_bytes(&mut object, "key", key);
    if let Some(value) = value {
        show::put_bytes(&mut object, "value", value);
    }
    if let Some(version) = version {
        object.insert("version".into(), version.0.into());
    }
    object
}

/// `SetExpiry` as `set-expiry`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(letter.to_lowercase());
    }
    kebab
}
