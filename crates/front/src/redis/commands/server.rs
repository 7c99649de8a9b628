//! Commands about the server: INFO, COMMAND, CONFIG, TIME, ROLE.

use crate::redis::REDIS_VERSION;
use crate::redis::args::{Help, is, takes, text, write_help};
use crate::redis::refused::Refused;
use crate::redis::session::Session;
use crate::redis::table::flag::{self, FAST, LOADING, NOSCRIPT, STALE};
use crate::redis::table::{CommandSpec, Family, Run, table};
use model::{glob, limits};
use server::Role;
use std::fmt::Write as _;
use std::time::Duration;
use wire::resp::{Encoder, Frame};

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "server",
    category: "@dangerous",
    commands: &[
        CommandSpec::local("info", -1, LOADING | STALE, "1.0.0", "What this node is and does", info),
        CommandSpec::local("command", -1, LOADING | STALE, "2.8.13", "What commands there are", command),
        CommandSpec::local("config", -2, 0, "2.0.0", "What clients want to know of the settings", config),
        CommandSpec::local("time", 1, LOADING | STALE | FAST, "2.6.0", "This node's clock", time),
        CommandSpec::local("role", 1, NOSCRIPT | LOADING | STALE | FAST, "2.8.12", "What this node is to its clients", role),
    ],
};

fn time(session: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let now_ms = session.thread().handle.clock().now().wall_ms;
    out.array(2);
    out.bulk((now_ms / 1000).to_string().as_bytes());
    out.bulk((now_ms % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// To a client every node is a master: each accepts reads and writes and forwards them.
fn role(session: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    out.array(3);
    out.bulk(b"master");
    out.integer(session.thread().handle.status().revision.0 as i64);
    out.array(0);
    Ok(())
}

type Section = (&'static str, fn(&Session) -> String);

/// INFO's sections.
const SECTIONS: [Section; 7] = [
    ("Server", |session| {
        format!(
            "redis_version:{REDIS_VERSION}\r\nportolan_version:{}\r\nredis_mode:{}\r\n\
             os:{} {}\r\narch_bits:{}\r\nprocess_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            if session.is_cluster() { "cluster" } else { "standalone" },
            std::env::consts::OS,
            std::env::consts::ARCH,
            usize::BITS,
            std::process::id(),
            session.thread().shared.port,
            session.thread().handle.clock().monotonic().as_secs(),
        )
    }),
    ("Clients", |session| {
        let shared = &session.thread().shared;
        format!("connected_clients:{}\r\nmaxclients:{}\r\n", shared.open(), shared.connections_max)
    }),
    ("Persistence", |session| {
        let handle = &session.thread().handle;
        let status = handle.status();
        format!(
            "loading:{}\r\naof_enabled:1\r\naof_last_write_status:{}\r\n",
            i32::from(!handle.is_ready()),
            if status.disk_full.is_none() { "ok" } else { "err" },
        )
    }),
    ("Replication", |session| {
        let others = session.thread().handle.status().members.nodes.len().saturating_sub(1);
        format!("role:master\r\nconnected_slaves:{others}\r\n")
    }),
    ("Portolan", |session| {
        let handle = &session.thread().handle;
        let status = handle.status();
        let role = match status.role {
            Role::Leader => "leader",
            _ => "follower",
        };
        let mut info =
            format!("site:{}\r\nnode:{}\r\nraft_role:{role}\r\n", handle.site(), status.node);
        if let Some(leader) = status.leader {
            let _ = write!(info, "raft_leader:{leader}\r\n");
        }
        let _ = write!(info, "raft_term:{}\r\nrevision:{}\r\n", status.term, status.revision.0);
        info
    }),
    ("Cluster", |session| format!("cluster_enabled:{}\r\n", u8::from(session.is_cluster()))),
    ("Keyspace", |session| match session.thread().handle.key_count() {
        0 => String::new(),
        keys => {
            let expires = session.thread().handle.expiring_count().min(keys);
            format!("db0:keys={keys},expires={expires},avg_ttl=0\r\n")
        }
    }),
];

fn info(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let is_wanted = |section: &str| {
        let everything = ["all", "everything", "default"];
        frame.len() == 1
            || frame
                .args_from(1)
                .any(|word| is(word, section) || everything.iter().any(|every| is(word, every)))
    };
    let sections = SECTIONS.iter().filter(|(name, _)| is_wanted(name));
    let sections: Vec<String> =
        sections.map(|(name, text)| format!("# {name}\r\n{}", text(session))).collect();
    out.verbatim("txt", &sections.join("\r\n"));
    Ok(())
}

const CONFIG_HELP: [Help; 2] = [
    ("GET <pattern>", "Return settings that match the glob-like <pattern>."),
    ("SET notify-keyspace-events <value>", "Accepted: notifications are always on."),
];

const COMMAND_HELP: [Help; 7] = [
    ("(no subcommand)", "Return details about all commands."),
    ("COUNT", "Return how many commands there are."),
    ("LIST", "Return the names of all commands."),
    ("LIST FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)", "Return some of them."),
    ("INFO [<command-name> ...]", "Return details about some commands."),
    ("DOCS [<command-name> ...]", "Return what commands do."),
    ("GETKEYS <full-command>", "Return the keys of a command."),
];

/// The settings that CONFIG GET shows, as they are in effect here.
fn settings(session: &Session) -> [(&'static str, String); 12] {
    let shared = &session.thread().shared;
    let clients = session.thread().handle.clients();
    let seconds = |span: Option<Duration>| span.map_or(0, |span| span.as_secs()).to_string();
    [
        ("appendfsync", "always".into()),
        ("appendonly", "yes".into()),
        ("cluster-enabled", if session.is_cluster() { "yes" } else { "no" }.into()),
        ("databases", "1".into()),
        ("maxclients", shared.connections_max.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("notify-keyspace-events", "AKE".into()),
        ("proto-max-bulk-len", limits::VALUE_BYTES_MAX.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", seconds(clients.keepalive)),
        ("timeout", seconds(clients.idle_timeout)),
    ]
}

fn config(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let what = frame.arg(1);
    if is(what, "get") {
        if frame.len() < 3 {
            return Err(Refused::arity("config|get"));
        }
        let mut found = settings(session).to_vec();
        found.retain(|(name, _)| {
            frame
                .args_from(2)
                .any(|glob| glob::matches(&glob.to_ascii_lowercase(), name.as_bytes()))
        });
        out.map(found.len());
        for (name, value) in &found {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
        return Ok(());
    }
    if is(what, "set") {
        if frame.len() < 4 || !frame.len().is_multiple_of(2) {
            return Err(Refused::arity("config|set"));
        }
        // Notifications are always on, so enabling them succeeds.
        let fixed = |at: &usize| !is(frame.arg(*at), "notify-keyspace-events");
        if let Some(at) = (2..frame.len()).step_by(2).find(fixed) {
            let name = text(frame.arg(at));
            return Err(Refused(
                format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - settings are \
                     made in the configuration file of portolan serve"
                )
                .into(),
            ));
        }
        out.ok();
        return Ok(());
    }
    if is(what, "help") {
        takes(frame, 2, "config|help")?;
        write_help("CONFIG", &CONFIG_HELP, out);
        return Ok(());
    }
    Err(Refused::unknown_subcommand("config", frame))
}

fn command(_: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    if frame.len() == 1 || (frame.len() == 2 && is(frame.arg(1), "info")) {
        out.array(table().all().len());
        table().all().iter().for_each(|(spec, family)| write_info(spec, family, out));
        return Ok(());
    }
    let what = frame.arg(1);
    if is(what, "count") {
        takes(frame, 2, "command|count")?;
        out.integer(table().all().len() as i64);
    } else if is(what, "help") {
        takes(frame, 2, "command|help")?;
        write_help("COMMAND", &COMMAND_HELP, out);
    } else if is(what, "list") {
        let names = list(frame)?;
        out.array(names.len());
        names.iter().for_each(|name| out.bulk(name.as_bytes()));
    } else if is(what, "info") {
        out.array(frame.len() - 2);
        for name in frame.args_from(2) {
            match table().find(name) {
                Some((number, _)) => {
                    let (spec, family) = table().all()[usize::from(number.0)];
                    write_info(spec, family, out);
                }
                None => out.null(),
            }
        }
    } else if is(what, "docs") {
        let wanted = |spec: &CommandSpec| {
            frame.len() == 2 || frame.args_from(2).any(|name| is(name, spec.name))
        };
        let found: Vec<_> = table().all().iter().filter(|(spec, _)| wanted(spec)).collect();
        out.map(found.len());
        for (spec, family) in found {
            out.bulk(spec.name.as_bytes());
            out.map(3);
            for (name, value) in
                [("summary", spec.summary), ("since", spec.since), ("group", family.group)]
            {
                out.bulk(name.as_bytes());
                out.bulk(value.as_bytes());
            }
        }
    } else if is(what, "getkeys") {
        if frame.len() < 4 {
            return Err(Refused::arity("command|getkeys"));
        }
        write_keys(frame, out)?;
    } else {
        return Err(Refused::unknown_subcommand("command", frame));
    }
    Ok(())
}

/// Selects commands by their family.
type Wanted = Box<dyn Fn(&CommandSpec, &Family) -> bool>;

/// The commands that COMMAND LIST selects.
fn list(frame: &Frame) -> Result<Vec<&'static str>, Refused> {
    let is_wanted: Wanted = match frame.len() {
        2 => Box::new(|_, _| true),
        5 if is(frame.arg(2), "filterby") => {
            let (by, what) = (frame.arg(3), frame.arg(4).to_ascii_lowercase());
            match () {
                () if is(by, "pattern") => {
                    Box::new(move |spec, _| glob::matches(&what, spec.name.as_bytes()))
                }
                () if is(by, "aclcat") => Box::new(move |spec, family| {
                    let mut categories = categories(spec, family).into_iter();
                    categories.any(|category| category.as_bytes()[1..] == what[..])
                }),
                // There are no modules.
                () if is(by, "module") => Box::new(|_, _| false),
                () => return Err(Refused::SYNTAX),
            }
        }
        _ => return Err(Refused::SYNTAX),
    };
    let wanted = table().all().iter().filter(|(spec, family)| is_wanted(spec, family));
    Ok(wanted.map(|(spec, _)| spec.name).collect())
}

/// The categories of a command.
fn categories(spec: &CommandSpec, family: &Family) -> Vec<&'static str> {
    let kind = match (spec.has(flag::WRITE), spec.has(flag::READONLY)) {
        (true, _) => Some("@write"),
        (_, true) => Some("@read"),
        _ => None,
    };
    let speed = if spec.has(FAST) { "@fast" } else { "@slow" };
    kind.into_iter().chain([family.category, speed]).collect()
}

fn write_info(spec: &CommandSpec, family: &Family, out: &mut Encoder<'_>) {
    out.array(10);
    out.bulk(spec.name.as_bytes());
    out.integer(i64::from(spec.arity));
    let names = flag::NAMES.iter().filter(|(flag, _)| spec.has(*flag));
    let names: Vec<&str> = names.map(|(_, name)| *name).collect();
    out.set(names.len());
    names.iter().for_each(|name| out.simple(name));
    out.integer(i64::from(spec.keys.first));
    out.integer(i64::from(spec.keys.last));
    out.integer(i64::from(spec.keys.step));
    let categories = categories(spec, family);
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(category));
    // Tips, key specifications and subcommands: clients work without them.
    out.array(0);
    out.array(0);
    out.array(0);
}

fn write_keys(frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let Some((_, spec)) = table().find(frame.arg(2)) else {
        return Err(Refused::because("ERR Invalid command specified"));
    };
    let len = frame.len() - 2;
    let places: Vec<usize> = spec.keys.places(len).collect();
    if matches!(spec.run, Run::Local(_)) || spec.keys.first == 0 {
        return Err(Refused::because("ERR The command has no key arguments"));
    }
    if !spec.takes(len) {
        return Err(Refused::because("ERR Invalid number of arguments specified for command"));
    }
    out.array(places.len());
    places.iter().for_each(|place| out.bulk(frame.arg(place + 2)));
    Ok(())
}
