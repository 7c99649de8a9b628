//! PORTOLAN.TOKEN and PORTOLAN.ATTACH: how a client takes its session with causal keyspaces to
//! another connection, node or site. [`crate::causal`] is the session. [`super::once`] is a put that
//! may be sent to several sites.

use super::once::once;
use crate::causal::CausalSession;
use crate::redis::args::is;
use crate::redis::refused::{Refused, failure_text};
use crate::redis::session::Session;
use crate::redis::table::flag::{DENYOOM, FAST, LOADING, NO_MULTI, NOSCRIPT, STALE, WRITE};
use crate::redis::table::{CommandSpec, Family, Keys, Own};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use model::{Catalog, Failure, KeyspaceId, SessionError, limits};
use server::Handle;
use wire::resp::{Encoder, Frame, parse_i64};

const FLAGS: u16 = NOSCRIPT | LOADING | STALE | FAST;

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "module",
    category: "@connection",
    commands: &[
        CommandSpec::local("portolan.token", 1, FLAGS, "0.1.0", "What this connection has seen of causal keyspaces", token),
        CommandSpec::own("portolan.attach", -2, FLAGS, "0.1.0", "Waits until this site has what a token has seen", Own::Attach),
        CommandSpec::data("portolan.once", -7, WRITE | DENYOOM | NOSCRIPT | NO_MULTI, Keys::ONCE, "0.1.0", "Puts strings, as one of several attempts at several sites", once),
    ],
};

fn token(session: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    check_port(session)?;
    let sealed = session.thread().handle.seal_session(&session.causal.carried());
    let sealed = sealed.ok_or(NO_DEPLOYMENT)?;
    out.bulk(BASE64_URL_SAFE_NO_PAD.encode(sealed).as_bytes());
    Ok(())
}

/// The arguments of PORTOLAN.ATTACH.
pub(in crate::redis) struct Attach {
    /// As PORTOLAN.TOKEN returned it, or as gRPC carries it.
    sealed: Vec<u8>,
    /// When to give up; `None`: as for any other request.
    pub(in crate::redis) within_ms: Option<u64>,
    /// Nothing is waited for: each command of the connection waits by itself.
    pub(in crate::redis) is_later: bool,
}

impl Attach {
    pub(in crate::redis) fn of(frame: &Frame) -> Result<Attach, Refused> {
        let (within_ms, is_later) = match frame.len() {
            2 => (None, false),
            3 if is(frame.arg(2), "later") => (None, true),
            4 if is(frame.arg(2), "within") => (Some(within_ms(frame.arg(3))?), false),
            _ => return Err(Refused::SYNTAX),
        };
        let text = frame.arg(1);
        if text.len() > limits::SESSION_TOKEN_BYTES_MAX {
            return Err(foreign());
        }
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| foreign())?;
        Ok(Attach { sealed, within_ms, is_later })
    }

    /// What its session had seen.
    pub(in crate::redis) fn open(&self, handle: &Handle) -> Result<CausalSession, Refused> {
        let opened = handle.open_session(&self.sealed);
        opened.as_ref().and_then(CausalSession::of).ok_or_else(foreign)
    }
}

fn within_ms(arg: &[u8]) -> Result<u64, Refused> {
    let max = limits::REQUEST_DEADLINE.as_millis() as u64;
    let ms = parse_i64(arg).and_then(|ms| u64::try_from(ms).ok());
    ms.filter(|ms| (1..=max).contains(ms))
        .ok_or_else(|| Refused(format!("ERR WITHIN is 1 to {max} milliseconds").into()))
}

fn foreign() -> Refused {
    Refused(failure_text(&Failure::Session(SessionError::Foreign)))
}

/// A causal keyspace: all of them have one order, so it does not matter which.
pub(in crate::redis) fn causal_keyspace(
    session: &Session,
    catalog: &Catalog,
) -> Result<KeyspaceId, Refused> {
    check_port(session)?;
    let causal = catalog.all().into_iter().find(|keyspace| keyspace.spec.is_causal());
    causal.map(|keyspace| keyspace.id).ok_or(NO_KEYSPACE)
}

fn check_port(session: &Session) -> Result<(), Refused> {
    if session.is_cluster() { Err(NOT_HERE) } else { Ok(()) }
}

const NO_DEPLOYMENT: Refused =
    Refused::because("ERR this site belongs to no deployment, so it has no causal keyspaces");
const NO_KEYSPACE: Refused =
    Refused::because("ERR there is no causal keyspace: no session has seen anything");
pub(in crate::redis) const HAS_SESSION: Refused = Refused::because(
    "ERR this connection has a session already: RESET begins a new one, and without LATER this \
     one is attached to it",
);
const NOT_HERE: Refused =
    Refused::because("ERR the port of the Redis Cluster protocol serves no causal keyspaces");

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(args: &[&[u8]]) -> Result<Attach, Refused> {
        let args: Vec<&[u8]> =
            [&b"portolan.attach"[..]].into_iter().chain(args.iter().copied()).collect();
        Attach::of(&Frame::of(&args))
    }

    #[test]
    fn a_token_comes_with_a_deadline_or_without() {
        let plain = attach(&[b"AQID"]).unwrap();
        assert_eq!((&plain.sealed[..], plain.within_ms), (&[1, 2, 3][..], None));
        assert_eq!(attach(&[b"AQID", b"Within", b"250"]).unwrap().within_ms, Some(250));
        assert!(!plain.is_later && attach(&[b"AQID", b"Later"]).unwrap().is_later);
        for wrong in [&b"0"[..], b"-1", b"10001", b"soon"] {
            let Refused(text) = attach(&[b"AQID", b"WITHIN", wrong]).err().unwrap();
            assert_eq!(text, "ERR WITHIN is 1 to 10000 milliseconds");
        }
        for wrong in
            [&[&b"AQID"[..], b"WITHIN"][..], &[b"AQID", b"AFTER", b"1"], &[b"AQID", b"LATER", b"1"]]
        {
            assert_eq!(attach(wrong).err(), Some(Refused::SYNTAX));
        }
    }

    #[test]
    fn what_is_no_token_is_refused_at_once() {
        for wrong in [&b"?"[..], b"AQI=", &[b'A'; 2000]] {
            let Refused(text) = attach(&[wrong]).err().unwrap();
            assert!(text.starts_with("BADTOKEN "), "{text}");
        }
    }
}
