//! Commands about the connection itself: PING, HELLO, AUTH, CLIENT, SELECT and the like.

use super::scan::check_database;
use crate::redis::REDIS_VERSION;
use crate::redis::args::{Help, is, text, write_help};
use crate::redis::clients::Wanted;
use crate::redis::refused::Refused;
use crate::redis::session::Session;
use crate::redis::table::flag::{ALLOW_BUSY, FAST, LOADING, NO_AUTH, NOSCRIPT, STALE};
use crate::redis::table::{CommandSpec, Family, Own};
use bytes::Bytes;
use model::{ReadConsistency, limits};
use server::users::Right;
use wire::resp::{Encoder, Frame, Version, parse_i64};

const FLAGS: u16 = NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY;
/// The longest name that a client can set.
const LABEL_BYTES_MAX: usize = limits::CLIENT_NAME_BYTES_MAX;

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "connection",
    category: "@connection",
    commands: &[
        CommandSpec::local("ping", -1, FAST, "1.0.0", "Answers", ping),
        CommandSpec::local("echo", 2, LOADING | STALE | FAST, "1.0.0", "Answers its argument", echo),
        CommandSpec::own("hello", -1, FLAGS, "6.0.0", "Chooses the protocol version, may log in", Own::Hello),
        CommandSpec::own("auth", -2, FLAGS, "1.0.0", "Logs in", Own::Auth),
        CommandSpec::local("select", 2, LOADING | STALE | FAST, "1.0.0", "Chooses a database, of which there is one", select),
        CommandSpec::own("quit", -1, FLAGS, "1.0.0", "Ends the connection", Own::Quit),
        CommandSpec::own("reset", 1, FLAGS, "6.2.0", "Makes the connection as new", Own::Reset),
        CommandSpec::local("client", -2, 0, "2.4.0", "What a client states about itself", client),
        CommandSpec::local("readonly", 1, LOADING | STALE | FAST, "3.0.0", "Lets this connection's reads be stale", readonly),
        CommandSpec::local("readwrite", 1, LOADING | STALE | FAST, "3.0.0", "Makes this connection's reads linearizable", readwrite),
        CommandSpec::local("asking", 1, FAST, "3.0.0", "Lets the next command be done through this node", asking),
    ],
};

fn ping(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let word = match frame.len() {
        1 => None,
        2 => Some(frame.arg(1)),
        _ => return Err(Refused::arity("ping")),
    };
    if session.is_subscriber() {
        out.array(2);
        out.bulk(b"pong");
        out.bulk(word.unwrap_or_default());
    } else {
        match word {
            Some(word) => out.bulk(word),
            None => out.simple("PONG"),
        }
    }
    Ok(())
}

fn echo(_: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    out.bulk(frame.arg(1));
    Ok(())
}

fn select(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    if session.is_cluster() && frame.arg(1) != b"0" {
        return Err(Refused::because("ERR SELECT is not allowed in cluster mode"));
    }
    check_database(frame.arg(1))?;
    out.ok();
    Ok(())
}

fn readonly(session: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    session.consistency = ReadConsistency::Stale;
    out.ok();
    Ok(())
}

fn readwrite(session: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    session.consistency = ReadConsistency::Linearizable;
    out.ok();
    Ok(())
}

fn asking(session: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    if !session.is_cluster() {
        return Err(Refused::NO_CLUSTER);
    }
    session.ask();
    out.ok();
    Ok(())
}

fn client(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let what = frame.arg(1);
    let takes = |name: &str, len: usize| match frame.len() == len {
        true => Ok(()),
        false => Err(Refused::arity(&format!("client|{name}"))),
    };
    match () {
        () if is(what, "id") => {
            takes("id", 2)?;
            out.integer(session.id());
        }
        () if is(what, "getname") => {
            takes("getname", 2)?;
            let name = &session.labels.name;
            out.bulk_or_null((!name.is_empty()).then_some(&name[..]));
        }
        () if is(what, "setname") => {
            takes("setname", 3)?;
            session.set_name(label(frame.arg(2), CLIENT_NAMES)?);
            out.ok();
        }
        () if is(what, "setinfo") => {
            takes("setinfo", 4)?;
            set_info(session, frame)?;
            out.ok();
        }
        // There is no eviction, so the option has no effect.
        () if is(what, "no-evict") => {
            takes("no-evict", 3)?;
            is_on(frame.arg(2))?;
            out.ok();
        }
        // As keys stay where they are in the order of eviction elsewhere, they stay at their sites.
        () if is(what, "no-touch") => {
            takes("no-touch", 3)?;
            session.count(!is_on(frame.arg(2))?);
            out.ok();
        }
        () if is(what, "info") => {
            takes("info", 2)?;
            session.publish();
            let thread = session.thread();
            let own = thread.shared.clients.line(session.id(), thread.handle.clock().monotonic());
            out.verbatim("txt", &own.unwrap_or_default());
        }
        () if is(what, "list") => {
            session.publish();
            let wanted = read_list(frame)?;
            session.check_right_everywhere(Right::Admin)?;
            let thread = session.thread();
            let now = thread.handle.clock().monotonic();
            out.verbatim("txt", &thread.shared.clients.lines(&wanted, now));
        }
        () if is(what, "help") => {
            takes("help", 2)?;
            write_help("CLIENT", &HELP, out);
        }
        () => return Err(Refused::unknown_subcommand("client", frame)),
    }
    Ok(())
}

const CLIENT_NAMES: Refused =
    Refused::because("ERR Client names cannot contain spaces, newlines or special characters.");

/// Copies a name without blanks and control characters.
fn label(name: &[u8], refused: Refused) -> Result<Bytes, Refused> {
    let is_fine = name.len() <= LABEL_BYTES_MAX && name.iter().all(|b| (b'!'..=b'~').contains(b));
    if is_fine { Ok(Bytes::copy_from_slice(name)) } else { Err(refused) }
}

fn set_info(session: &mut Session, frame: &Frame) -> Result<(), Refused> {
    let (what, value) = (frame.arg(2), frame.arg(3));
    let refused = |what: &str| {
        let rule = "cannot contain spaces, newlines or special characters.";
        Refused(format!("ERR {what} {rule}").into())
    };
    if is(what, "lib-name") {
        session.labels.lib_name = label(value, refused("lib-name"))?;
    } else if is(what, "lib-ver") {
        session.labels.lib_version = label(value, refused("lib-ver"))?;
    } else {
        return Err(Refused(format!("ERR Unrecognized option '{}'", text(what)).into()));
    }
    Ok(())
}

const HELP: [Help; 8] = [
    ("GETNAME", "Return the name of this connection."),
    ("ID", "Return the id of this connection."),
    ("INFO", "Return what is known of this connection."),
    (
        "LIST [ID <id> ...|TYPE (NORMAL|MASTER|REPLICA|PUBSUB)]",
        "Return the connections of this port.",
    ),
    ("NO-EVICT (ON|OFF)", "Accepted: nothing is evicted."),
    (
        "NO-TOUCH (ON|OFF)",
        "Whether keys stay where they are, however often this connection uses them.",
    ),
    ("SETINFO <option> <value>", "Set LIB-NAME or LIB-VER of this connection."),
    ("SETNAME <name>", "Set the name of this connection."),
];

/// An argument that is ON or OFF.
fn is_on(arg: &[u8]) -> Result<bool, Refused> {
    match () {
        () if is(arg, "on") => Ok(true),
        () if is(arg, "off") => Ok(false),
        () => Err(Refused::SYNTAX),
    }
}

/// Parses the selection of CLIENT LIST.
fn read_list(frame: &Frame) -> Result<Wanted, Refused> {
    match frame.len() {
        2 => Ok(Wanted::All),
        4 if is(frame.arg(2), "type") => {
            let kind = frame.arg(3);
            match () {
                () if is(kind, "normal") => Ok(Wanted::Normal),
                () if is(kind, "pubsub") => Ok(Wanted::Subscribers),
                // To clients each node is a master, and nodes do not use this port.
                () if ["master", "replica", "slave"].iter().any(|one| is(kind, one)) => {
                    Ok(Wanted::None)
                }
                () => Err(Refused(format!("ERR Unknown client type '{}'", text(kind)).into())),
            }
        }
        4.. if is(frame.arg(2), "id") => {
            let ids = frame.args_from(3).map(parse_i64).collect::<Option<Vec<i64>>>();
            let ids = ids.ok_or(Refused::because("ERR Invalid client ID"))?;
            Ok(Wanted::Ids(ids))
        }
        _ => Err(Refused::SYNTAX),
    }
}

/// A connection's line in CLIENT LIST after its id, address and age.
pub(in crate::redis) fn describe(session: &Session) -> String {
    let labels = &session.labels;
    let user = session.user.as_ref().map_or("(none)", |user| user.name());
    let resp = protocol_number(session.version);
    format!(
        "name={} db=0 sub={} multi={} watch={} resp={resp} user={user} lib-name={} lib-ver={}",
        text(&labels.name),
        session.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.len()),
        session.transaction.as_ref().map_or(-1, |transaction| transaction.len() as i64),
        i32::from(session.watched.is_some()),
        text(&labels.lib_name),
        text(&labels.lib_version),
    )
}

fn protocol_number(version: Version) -> i64 {
    match version {
        Version::Resp2 => 2,
        Version::Resp3 => 3,
    }
}

/// A name and a password.
pub(in crate::redis) struct Credentials {
    pub(in crate::redis) user: String,
    pub(in crate::redis) password: Vec<u8>,
}

impl Credentials {
    fn new(user: &[u8], password: &[u8]) -> Credentials {
        let user = String::from_utf8_lossy(user).into_owned();
        Credentials { user, password: password.to_vec() }
    }

    /// Reads AUTH. With a password alone the user is `default`.
    pub(in crate::redis) fn of_auth(frame: &Frame) -> Result<Credentials, Refused> {
        match frame.len() {
            2 => Ok(Credentials::new(b"default", frame.arg(1))),
            3 => Ok(Credentials::new(frame.arg(1), frame.arg(2))),
            _ => Err(Refused::SYNTAX),
        }
    }
}

/// The options of HELLO.
pub(in crate::redis) struct Hello {
    pub(in crate::redis) version: Option<Version>,
    pub(in crate::redis) credentials: Option<Credentials>,
    pub(in crate::redis) name: Option<Bytes>,
}

impl Hello {
    pub(in crate::redis) fn of(frame: &Frame) -> Result<Hello, Refused> {
        let mut hello = Hello { version: None, credentials: None, name: None };
        if frame.len() == 1 {
            return Ok(hello);
        }
        hello.version = Some(match parse_i64(frame.arg(1)) {
            Some(2) => Version::Resp2,
            Some(3) => Version::Resp3,
            Some(_) => return Err(Refused::because("NOPROTO unsupported protocol version")),
            None => {
                return Err(Refused::because(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        });
        let mut at = 2;
        while at < frame.len() {
            let left = frame.len() - at - 1;
            if is(frame.arg(at), "auth") && left >= 2 {
                hello.credentials = Some(Credentials::new(frame.arg(at + 1), frame.arg(at + 2)));
                at += 3;
            } else if is(frame.arg(at), "setname") && left >= 1 {
                hello.name = Some(label(frame.arg(at + 1), CLIENT_NAMES)?);
                at += 2;
            } else {
                let option = text(frame.arg(at));
                return Err(Refused(format!("ERR Syntax error in HELLO option '{option}'").into()));
            }
        }
        Ok(hello)
    }
}

/// Writes the reply to HELLO.
pub(in crate::redis) fn write_hello(session: &Session, out: &mut Encoder<'_>) {
    out.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.integer(protocol_number(session.version));
    out.bulk(b"id");
    out.integer(session.id());
    let mode = if session.is_cluster() { "cluster" } else { "standalone" };
    for (name, value) in [("mode", mode), ("role", "master")] {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
}
