//! Whether a world that was written makes sense, and the world that it is.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{KeyspaceSpec, Miss, Scope, SiteId, SiteName};

use super::file::{
    AlsoFile, ClientsFile, FaultFile, FaultsFile, NodeFile, PairFile, WorldFile, Wrong,
};
use super::places::{self, Files};
use super::{Also, Attach, CLIENTS_MAX, Clients, Demo, Links, Site, World, tier};
use crate::{
    faults::{Fault, Kind, plan::Chances},
    geo::{Bounds, Point},
    mobility::{Mobility, Track, trace},
    workload::Spec,
};

/// Most keyspaces in one world, besides the default one.
const KEYSPACES_MAX: usize = 16;
/// Longest run, in seconds: ten days.
const DURATION_MAX_S: f64 = 864_000.0;
/// Highest rate of one vehicle's operation in the demo, per second.
const RATE_MAX_HZ: f64 = 10_000.0;
/// The name of the clients' end of a link.
const CLIENTS: &str = "clients";

pub(super) fn check(written: &WorldFile, files: &Files) -> Result<World, Wrong> {
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
        check_demo(demo, &sites).map_err(|wrong| wrong.under("demo"))?;
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
        demo: written.demo.clone(),
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

/// A history cannot distinguish those that share a name.
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

pub(super) fn site_name(name: &str) -> Result<SiteName, String> {
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
    if !(0.0..=60_000.0).contains(&node.request_ms) {
        let message = format!("node: request_ms is 0 to 60000, is {}", node.request_ms);
        return Err(Wrong::at("request_ms", message));
    }
    if !(1..=model::limits::CAUSAL_RESYNC_BYTES_MAX).contains(&node.causal_resync_bytes_max) {
        let most = model::limits::CAUSAL_RESYNC_BYTES_MAX;
        let message = format!("node: causal_resync_bytes_max is 1 to {most}");
        return Err(Wrong::at("causal_resync_bytes_max", message));
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
        ways: BTreeMap::new(),
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
                if pair.one_way { (Some(a), b) } else { (Some(a.min(b)), a.max(b)) }
            }
        };
        if pair.one_way && (ends.0.is_none() || ends.0 == Some(ends.1)) {
            return Err(Wrong::at("one_way", "one_way: a way is from one site to another"));
        }
        let tier = pair.tier.resolve(&read).map_err(|wrong| wrong.under("tier"))?;
        Ok((ends, pair.one_way, tier))
    })?
    .into_iter()
    .for_each(|((first, second), one_way, tier)| match first {
        None => drop(links.at_site.insert(second, tier)),
        Some(first) if one_way => drop(links.ways.insert((first, second), tier)),
        Some(first) => drop(links.pairs.insert((first, second), tier)),
    });
    Ok(links)
}

fn check_keyspaces(written: &WorldFile) -> Result<Vec<KeyspaceSpec>, Wrong> {
    if written.keyspace.len() > KEYSPACES_MAX {
        return Err(Wrong::at("keyspace", format!("at most {KEYSPACES_MAX} keyspaces")));
    }
    each("keyspace", &written.keyspace, |keyspace| {
        let is_causal = keyspace.consistency == "causal";
        let served = match keyspace.consistency.as_str() {
            "causal" => keyspace.scope == "region",
            "linearizable" => ["site", "global"].contains(&keyspace.scope.as_str()),
            _ => false,
        };
        if !served {
            return Err(Wrong::at(
                "consistency",
                format!(
                    "keyspace \"{}\" asks for {}/{}; the lab runs what a site serves today: \
                     linearizable/site, linearizable/global and causal/region",
                    keyspace.name, keyspace.consistency, keyspace.scope
                ),
            ));
        }
        let prefix = keyspace.prefix.clone().into_bytes();
        let mut spec = match is_causal {
            true => KeyspaceSpec::causal_region(keyspace.name.clone(), prefix),
            false => KeyspaceSpec::linearizable_site(keyspace.name.clone(), prefix),
        };
        spec.lease_reads = keyspace.lease_reads;
        spec.rmw = keyspace.rmw.parse().map_err(|why: String| Wrong::at("rmw", why))?;
        spec.miss = keyspace.miss.parse().map_err(|why: String| Wrong::at("miss", why))?;
        if let (Miss::Fetch { held_bytes_max }, Some(bytes)) =
            (&mut spec.miss, keyspace.held_bytes_max)
        {
            *held_bytes_max = bytes;
        }
        // Sites get their ids in the order in which they are written; spare ones join later.
        let inside = || written.site.iter().filter(|site| !site.spare);
        for name in &keyspace.sites {
            let place = inside().position(|site| site.name == *name);
            let place = place.ok_or_else(|| {
                Wrong::at("sites", format!("there is no site \"{name}\", or it is spare"))
            })?;
            spec.sites.push(SiteId(place as u32 + 1));
        }
        if keyspace.scope == "global" {
            spec.scope = Scope::Global;
        }
        let (bytes_max, age_ms_max) = (keyspace.cache_bytes_max, keyspace.cache_age_ms_max);
        spec.cache = model::Cache::of(&keyspace.cache, bytes_max, age_ms_max)
            .map_err(|why| Wrong::at("cache", why))?;
        spec.placement =
            keyspace.placement.parse().map_err(|why: String| Wrong::at("placement", why))?;
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
    let find = |name: &String| {
        let found = written.keyspace.iter().position(|keyspace| keyspace.name == *name);
        let message = format!("clients: there is no [[keyspace]] named \"{name}\"");
        found.ok_or_else(|| Wrong::at("keyspace", message))
    };
    let also = |also: &AlsoFile| {
        if !(0.0..=1.0).contains(&also.share) {
            let message = format!("also: share is 0 to 1, is {}", also.share);
            return Err(Wrong::at("share", message));
        }
        let keyspace = find(&also.keyspace)?;
        Ok(Also { keyspace, share: also.share, stale_reads: also.stale_reads })
    };
    let others: Result<Vec<_>, _> = group.also.iter().map(also).collect();
    let others = others.and_then(|others| apart(others, &group.also));
    let others = others.map_err(|wrong| wrong.under("also"))?;
    let is_causal = |name: &String| {
        let mut all = written.keyspace.iter();
        all.any(|keyspace| keyspace.name == *name && keyspace.consistency == "causal")
    };
    let of_sessions = matches!(group.workload, Spec::Causal(_));
    if group.keyspace.as_ref().is_some_and(is_causal) != of_sessions {
        let message = "workload: kind \"causal\" is for causal keyspaces, and these take no other";
        return Err(Wrong::at("workload", message));
    }
    if group.also.iter().any(|also| of_sessions || is_causal(&also.keyspace)) {
        let message = "also: causal keyspaces have clients of their own";
        return Err(Wrong::at("keyspace", message).under("also"));
    }
    if group.pairs_permille > 1_000 || (of_sessions && group.pairs_permille > 0) {
        let message = "pairs_permille is 0 to 1000, and 0 for sessions of causal keys";
        return Err(Wrong::at("pairs_permille", message));
    }
    if group.expires_s.is_some_and(|seconds| !(600.0..=DURATION_MAX_S).contains(&seconds)) {
        let message = "expires_s is 600 or more: what a run sees must not have expired";
        return Err(Wrong::at("expires_s", message));
    }
    Ok(Clients {
        name: group.name.clone(),
        count: group.count,
        mobility: group.mobility.clone(),
        tracks,
        attach: group.attach.clone(),
        home,
        workload: group.workload.clone(),
        pace: group.pace,
        keyspace: group.keyspace.as_ref().map(find).transpose()?,
        also: others,
        operations: group.operations,
        repeat: group.repeat,
        expiry: group.expires_s.map(Duration::from_secs_f64),
        stale_reads: group.stale_reads,
        pairs_permille: group.pairs_permille,
    })
}

/// Other keyspaces of clients, each once, with at most all of their operations.
fn apart(others: Vec<Also>, written: &[AlsoFile]) -> Result<Vec<Also>, Wrong> {
    for (nth, also) in others.iter().enumerate() {
        if others[..nth].iter().any(|other| other.keyspace == also.keyspace) {
            let message = format!("also: keyspace \"{}\" is there twice", written[nth].keyspace);
            return Err(Wrong::at("keyspace", message));
        }
    }
    if others.iter().map(|also| also.share).sum::<f64>() > 1.0 {
        return Err(Wrong::at("share", "also: the shares are more than 1 together"));
    }
    Ok(others)
}

/// The tracks of the trace that clients follow, of those that are there while it is replayed.
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
        true => Err(wrong(format!("{}: no client is there in that time", path.display()))),
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
        .unwrap_or_else(|| Kind::by_default().map(|kind| (kind, 1.0)).collect());
    if !weights.values().all(|weight| (0.0..=1e6).contains(weight)) {
        return Err(Wrong::at("weights", "faults: a weight is 0 to 1000000"));
    }
    if faults.never_permille > 1_000 {
        return Err(Wrong::at("never_permille", "faults: never_permille is 0 to 1000"));
    }
    Ok(Chances {
        never_permille: faults.never_permille,
        some_kinds: faults.some_kinds,
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
    if sites.len() == 1 && fault.kind.is_between_sites() {
        let message = format!("fault: {} needs a world of several sites", fault.kind);
        return Err(Wrong::at("kind", message));
    }
    let other_site = match &fault.other_site {
        None => (site + 1) % sites.len(),
        Some(name) => find_site(sites, name, "other_site")?,
    };
    if fault.other_site.is_some() && other_site == site {
        let message = format!("fault: other_site: another one than \"{}\"", fault.site);
        return Err(Wrong::at("other_site", message));
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
        other_site,
        at_leader: false,
        draw: (fault.at_s * 1_000.0) as u64,
    })
}

fn check_demo(demo: &Demo, sites: &[Site]) -> Result<(), Wrong> {
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
    if !in_range(demo.record_hz) {
        let message = format!("demo: record_hz is 0 to {RATE_MAX_HZ} Hz, is {}", demo.record_hz);
        return Err(Wrong::at("record_hz", message));
    }
    let place = |key: &'static str, name: &Option<String>| {
        let Some(name) = name else { return Ok(None) };
        let place = sites.iter().position(|site| site.name.as_str() == name);
        let missing = || Wrong::at(key, format!("demo: no site {name:?}"));
        place.map(Some).ok_or_else(missing)
    };
    let (joins, leaves) = (place("joins", &demo.joins)?, place("leaves", &demo.leaves)?);
    if joins == Some(0) {
        return Err(Wrong::at("joins", "demo: the first site begins, another one can join it"));
    }
    if leaves.is_some() && leaves == joins {
        return Err(Wrong::at("leaves", "demo: another site than the one that joins"));
    }
    if leaves.is_some() && sites.len() - usize::from(joins.is_some()) < 2 {
        return Err(Wrong::at(
            "leaves",
            "demo: a site that leaves needs another site to hand over to",
        ));
    }
    Ok(())
}
