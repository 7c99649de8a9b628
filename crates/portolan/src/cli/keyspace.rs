//! `keyspace`: what data needs, stated once.

use super::connect::{Connect, Listing, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use super::sites::no_site;
use clap::{ArgGroup, Args, Subcommand};
use client::{Client, KeyspaceInfo};
use model::{
    Alteration, Cache, Consistency, KeyspaceError, KeyspaceSpec, Miss, Placement, Rmw, Scope,
    SiteId, SiteName, limits,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Make, list, show, change or drop keyspaces
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a keyspace
    Create(Create),
    /// List all keyspaces
    List(Listing),
    /// Show one keyspace, and how many keys it holds
    Show(Show),
    /// Change what decides where the keys of a global keyspace are
    Alter(Alter),
    /// Remove a keyspace and everything in it
    Drop(Drop),
}

/// A keyspace to make.
#[derive(Args)]
#[command(after_help = "Example:\n  portolan keyspace create cars --prefix car:")]
pub(crate) struct Create {
    /// 1 to 64 of a-z, 0-9, - and _, starting with a letter
    name: String,
    /// Redis keys that begin with it belong here (the longest prefix wins)
    #[arg(long)]
    prefix: String,
    /// What it promises: linearizable, causal, session or eventual (this version
    /// serves linearizable, and causal with scope region)
    #[arg(long, default_value = "linearizable")]
    consistency: Consistency,
    /// Where the promise holds: site, global, region or tree (this version serves site and
    /// global, and region for causal)
    #[arg(long, default_value = "site")]
    scope: Scope,
    /// Let linearizable reads trust the leader's lease instead of asking a quorum
    #[arg(long)]
    lease_reads: bool,
    /// Copies that nodes keep of keys which other sites own, with scope global: off, validated (the
    /// owner confirms that a copy is still right) or stale (and stale reads are answered from it)
    #[arg(long, value_name = "WORD", default_value = "off")]
    cache: String,
    /// Bytes of copies that a node keeps; 8 MiB by default
    #[arg(long, value_name = "BYTES")]
    cache_bytes_max: Option<u64>,
    /// With --cache stale: milliseconds that a copy answers stale reads; 1000 by default
    #[arg(long, value_name = "MS")]
    cache_age_ms_max: Option<u64>,
    /// What decides where keys are, with scope global: off (the hash), adaptive (keys follow their
    /// users), or advise (the hash; owners count accesses, and `portolan placement` shows which
    /// moves would bring keys to their users)
    #[arg(long, value_name = "WORD", default_value = "off")]
    placement: Placement,
    #[command(flatten)]
    rules: Rules,
    /// What is done with writes that depend on the value they overwrite (INCR, APPEND, NX, WATCH),
    /// with consistency causal: refuse, or local (the asked site decides by what it shows; of two
    /// sites that write at the same time, one overwrites the other's result)
    #[arg(long, value_name = "WORD", default_value = "refuse")]
    rmw: Rmw,
    /// The sites that hold it, by name, separated by commas, with consistency causal; all by
    /// default. The region's root and its standby must be among them
    #[arg(long, value_name = "SITES", value_delimiter = ',', value_parser = listed_site)]
    sites: Vec<String>,
    /// What the other sites do with requests for it: forward (to the root, or another site that
    /// holds it), refuse, or fetch (they get the keys that are asked for from the root, and hold
    /// them from then on)
    #[arg(long, value_name = "WORD", default_value = "forward")]
    miss: Miss,
    /// With --miss fetch: bytes of keys and values that each of the other sites holds, about; what
    /// was read least lately goes first. 64 MiB by default
    #[arg(long, value_name = "BYTES")]
    held_bytes_max: Option<u64>,
    #[command(flatten)]
    connect: Connect,
}

/// The rules of groups that follow their users.
#[derive(Args)]
struct Rules {
    /// With placement adaptive: the sites that keys may be lent to, by name, separated by commas;
    /// or any: all sites. What others have goes home. The site that owns a key by the hash may
    /// always have it
    #[arg(long, value_name = "SITES", value_delimiter = ',', value_parser = lend_to_site)]
    lend_to: Vec<String>,
    /// With placement adaptive: what a millisecond of its users counts against those of other
    /// keyspaces when more is to move than may, 1 to 1000; 100 by default
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(limits::PRIORITY_MAX)))]
    priority: Option<u16>,
}

impl Rules {
    /// The sites, if they are stated at all.
    fn lend_to(&self, names: &BTreeMap<u32, String>) -> Result<Option<Vec<SiteId>>, Failed> {
        match self.lend_to.as_slice() {
            [] => Ok(None),
            [any] if any == ANY => Ok(Some(Vec::new())),
            sites => {
                sites.iter().map(|name| id_of(name, names)).collect::<Result<_, _>>().map(Some)
            }
        }
    }

    /// Whether the list can be meant.
    fn check(&self) -> Result<(), Failed> {
        let has_any = self.lend_to.iter().any(|name| name == ANY);
        match has_any && self.lend_to.len() > 1 {
            true => Err(Failed::usage(
                "--lend-to takes names of sites, separated by commas, or any for all sites; not both",
            )),
            false => Ok(()),
        }
    }

    /// Whether sites are named.
    fn has_names(&self) -> bool {
        self.lend_to.iter().any(|name| name != ANY)
    }
}

/// All sites.
const ANY: &str = "any";

/// One keyspace.
#[derive(Args)]
pub(crate) struct Show {
    /// Its name
    name: String,
    #[command(flatten)]
    showing: Showing,
}

/// A keyspace to change.
#[derive(Args)]
#[command(after_help = "\
With adaptive the keys of one request must share a tag (car:{7}:plan, car:{7}:place), and still must later with off or \
advise. What other sites serve comes home by itself when it is not adaptive any more, or is at a site that it may not be lent \
to any more: `portolan placement ledger` shows what is still lent.

Examples:
  portolan keyspace alter cars --placement adaptive
  portolan keyspace alter cars --lend-to pier-39,harbour --priority 300
  portolan keyspace alter cars --lend-to any")]
#[command(group = ArgGroup::new("what").args(["placement", "lend_to", "priority"]).required(true).multiple(true))]
pub(crate) struct Alter {
    /// Its name
    name: String,
    /// What decides where keys are from now on: off (the hash), adaptive (keys follow their users),
    /// or advise (the hash; owners count accesses, and `portolan placement` shows which moves would
    /// bring keys to their users)
    #[arg(long, value_name = "WORD")]
    placement: Option<Placement>,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    connect: Connect,
}

/// A keyspace to drop.
#[derive(Args)]
pub(crate) struct Drop {
    /// Its name
    name: String,
    /// Confirm that everything in it may go
    #[arg(long, required = true)]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::Create(create) => create.run(),
            Command::List(asked) => list(asked),
            Command::Show(show) => show.run(),
            Command::Alter(Alter { name, placement, rules, connect }) => {
                rules.check()?;
                connect.run(|client| async move {
                    let names = names_of_sites(&client, rules.has_names()).await?;
                    let lend_to = rules.lend_to(&names)?;
                    let by = Alteration { placement, lend_to, priority: rules.priority };
                    client.cluster().alter_keyspace(&name, by).await?;
                    Ok(())
                })
            }
            Command::Drop(drop) => drop
                .connect
                .run(|client| async move { Ok(client.cluster().drop_keyspace(&drop.name).await?) }),
        }
    }
}

impl Create {
    fn run(self) -> Result<(), Failed> {
        self.rules.check()?;
        let cache = Cache::of(&self.cache, self.cache_bytes_max, self.cache_age_ms_max);
        let spec = KeyspaceSpec {
            cache: cache.map_err(Failed::usage)?,
            consistency: self.consistency,
            scope: self.scope,
            lease_reads: self.lease_reads,
            placement: self.placement,
            rmw: self.rmw,
            miss: miss_of(self.miss, self.held_bytes_max)?,
            priority: self.rules.priority.unwrap_or(limits::PRIORITY_DEFAULT),
            ..KeyspaceSpec::linearizable_site(self.name, self.prefix)
        };
        // The ids of the sites are not known yet.
        let some = |are_named: bool| if are_named { vec![SiteId(1)] } else { Vec::new() };
        let sites = some(!self.sites.is_empty() && spec.is_causal());
        let lend_to = some(self.rules.has_names());
        KeyspaceSpec { sites, lend_to, ..spec.clone() }.check().map_err(Failed::usage)?;
        if !self.sites.is_empty() && spec.consistency != Consistency::Causal {
            return Err(Failed::usage(KeyspaceError::SitesConsistency(spec.name)));
        }
        self.connect.run(|client| async move {
            let are_named = !self.sites.is_empty() || self.rules.has_names();
            let names = names_of_sites(&client, are_named).await?;
            let sites = self.sites.iter().map(|name| id_of(name, &names));
            let sites = sites.collect::<Result<_, _>>()?;
            let lend_to = self.rules.lend_to(&names)?.unwrap_or_default();
            client.cluster().create_keyspace(&KeyspaceSpec { sites, lend_to, ..spec }).await?;
            Ok(())
        })
    }
}

fn id_of(name: &str, names: &BTreeMap<u32, String>) -> Result<SiteId, Failed> {
    let found = names.iter().find(|(_, there)| *there == name);
    found.map(|(id, _)| SiteId(*id)).ok_or_else(|| no_site(name))
}

/// One name of a list, with blanks around it.
fn listed_site(text: &str) -> Result<String, String> {
    SiteName::new(text.trim()).map(|name| name.to_string())
}

/// The same of a list that may be `any`.
fn lend_to_site(text: &str) -> Result<String, String> {
    listed_site(text).map_err(|why| format!("{why}; or state any for all sites"))
}

/// What is done elsewhere, with the bytes that a site holds if it fetches.
fn miss_of(miss: Miss, bytes_max: Option<u64>) -> Result<Miss, Failed> {
    match (miss, bytes_max) {
        (Miss::Fetch { .. }, Some(held_bytes_max)) => Ok(Miss::Fetch { held_bytes_max }),
        (miss, None) => Ok(miss),
        (Miss::Forward | Miss::Refuse, Some(_)) => {
            Err(Failed::usage("--held-bytes-max is for keyspaces with --miss fetch"))
        }
    }
}

/// The names of the deployment's sites, by id, if they are needed.
async fn names_of_sites(
    client: &Client,
    are_needed: bool,
) -> Result<BTreeMap<u32, String>, Failed> {
    if !are_needed {
        return Ok(BTreeMap::new());
    }
    let sites = client.deployment().sites().await?.sites;
    Ok(sites.into_iter().map(|site| (site.id, site.name)).collect())
}

/// The names of sites. One that is gone has none any more.
fn named(sites: &[SiteId], names: &BTreeMap<u32, String>) -> Vec<String> {
    let name = |site: &SiteId| names.get(&site.0).cloned().unwrap_or_else(|| site.to_string());
    sites.iter().map(name).collect()
}

/// Whether a keyspace names sites.
fn has_sites(spec: &KeyspaceSpec) -> bool {
    !spec.sites.is_empty() || !spec.lend_to.is_empty()
}

fn sites_words(spec: &KeyspaceSpec, names: &BTreeMap<u32, String>) -> String {
    match (spec.sites.is_empty(), spec.consistency) {
        (true, Consistency::Causal) => "all".to_owned(),
        (true, _) => "-".to_owned(),
        (false, _) => named(&spec.sites, names).join(", "),
    }
}

fn lend_to_words(spec: &KeyspaceSpec, names: &BTreeMap<u32, String>) -> String {
    match spec.lend_to.is_empty() {
        true => ANY.to_owned(),
        false => named(&spec.lend_to, names).join(", "),
    }
}

fn list(asked: Listing) -> Result<(), Failed> {
    asked.connect.run(|client| async move {
        let keyspaces = client.cluster().keyspaces().await?;
        let some = keyspaces.iter().any(|one| has_sites(&one.spec));
        let names = names_of_sites(&client, some).await?;
        if asked.json {
            let list: Vec<Value> = keyspaces.iter().map(|one| as_json(one, &names)).collect();
            return Ok(show::print_json(&list.into())?);
        }
        let mut table = Table::new([
            ">id",
            "name",
            "prefix",
            "consistency",
            "scope",
            "placement",
            "cache",
            "sites",
            "lend-to",
            ">priority",
        ]);
        for KeyspaceInfo { id, spec } in keyspaces {
            let prefix = show::line(&spec.prefix);
            let promise = (spec.consistency.to_string(), spec.scope.to_string());
            let cache = spec.cache.to_string();
            let sites = sites_words(&spec, &names);
            let placement = match spec.is_global() {
                true => spec.placement.to_string(),
                false => "-".to_owned(),
            };
            let (lend_to, priority) = match spec.lends() {
                true => (lend_to_words(&spec, &names), spec.priority.to_string()),
                false => ("-".to_owned(), "-".to_owned()),
            };
            let (id, (consistency, scope)) = (id.to_string(), promise);
            let name = spec.name;
            table.row([
                id,
                name,
                prefix,
                consistency,
                scope,
                placement,
                cache,
                sites,
                lend_to,
                priority,
            ]);
        }
        Ok(show::print(table)?)
    })
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        self.showing.connect.run(|client| async move {
            let (keyspace, keys) = client.cluster().keyspace(&self.name).await?;
            let names = names_of_sites(&client, has_sites(&keyspace.spec)).await?;
            if self.showing.json {
                let mut object = as_json(&keyspace, &names);
                object["keys"] = keys.into();
                return Ok(show::print_json(&object)?);
            }
            let spec = keyspace.spec;
            let reads = if spec.lease_reads { "by lease" } else { "by quorum" };
            let mut table = Table::new(["keyspace", ""]);
            let of_causal = [
                ("rmw", spec.rmw.to_string()),
                ("sites", sites_words(&spec, &names)),
                ("miss", miss_words(spec.miss)),
            ];
            let of_lent = [
                ("lend-to", lend_to_words(&spec, &names)),
                ("priority", spec.priority.to_string()),
            ];
            let lends = spec.lends();
            let of_lent = of_lent.into_iter().filter(|_| lends);
            let of_causal =
                of_causal.into_iter().filter(|_| spec.consistency == Consistency::Causal);
            let rows = [
                ("name", spec.name),
                ("id", keyspace.id.to_string()),
                ("prefix", show::line(&spec.prefix)),
                ("promise", format!("{}/{}", spec.consistency, spec.scope)),
                ("reads", reads.into()),
                ("cache", cache_words(spec.cache)),
                ("placement", placement_words(spec.placement, spec.was_adaptive)),
                ("keys", keys.map_or_else(|| "unknown here".to_owned(), |keys| keys.to_string())),
            ];
            for (name, value) in rows.into_iter().chain(of_causal).chain(of_lent) {
                table.row([name.into(), value]);
            }
            Ok(show::print(table)?)
        })
    }
}

fn placement_words(placement: Placement, was_adaptive: bool) -> String {
    match was_adaptive {
        true => format!("{placement}; it was adaptive: the keys of a request share a tag"),
        false => placement.to_string(),
    }
}

fn cache_words(cache: Cache) -> String {
    match cache {
        Cache::Off => "off".to_owned(),
        Cache::Validated { bytes_max } => format!("validated, {bytes_max} bytes a node"),
        Cache::Stale { bytes_max, age_ms_max } => {
            format!("stale for {age_ms_max} ms, {bytes_max} bytes a node")
        }
    }
}

fn miss_words(miss: Miss) -> String {
    match miss {
        Miss::Fetch { held_bytes_max } => format!("fetch, {held_bytes_max} bytes a site"),
        miss => miss.to_string(),
    }
}

fn as_json(keyspace: &KeyspaceInfo, names: &BTreeMap<u32, String>) -> Value {
    let spec = &keyspace.spec;
    let mut object = Map::new();
    object.insert("id".into(), keyspace.id.into());
    object.insert("name".into(), spec.name.clone().into());
    show::put_bytes(&mut object, "prefix", &spec.prefix);
    object.insert("consistency".into(), spec.consistency.to_string().into());
    object.insert("scope".into(), spec.scope.to_string().into());
    object.insert("lease_reads".into(), spec.lease_reads.into());
    object.insert("cache".into(), spec.cache.to_string().into());
    object.insert("placement".into(), spec.placement.to_string().into());
    object.insert("was_adaptive".into(), spec.was_adaptive.into());
    object.insert("rmw".into(), spec.rmw.to_string().into());
    object.insert("lend_to".into(), named(&spec.lend_to, names).into());
    object.insert("priority".into(), spec.priority.into());
    object.insert("sites".into(), named(&spec.sites, names).into());
    object.insert("miss".into(), spec.miss.to_string().into());
    if let Miss::Fetch { held_bytes_max } = spec.miss {
        object.insert("held_bytes_max".into(), held_bytes_max.into());
    }
    if spec.cache.is_on() {
        object.insert("cache_bytes_max".into(), spec.cache.bytes_max().into());
    }
    if let Some(age_ms_max) = spec.cache.age_ms_max() {
        object.insert("cache_age_ms_max".into(), age_ms_max.into());
    }
    object.into()
}
