//! The errors of the Redis front.
//!
//! The first word of an error is its code; client libraries act on it. The codes for failures of
//! the service are chosen so that libraries react correctly:
//!
//! | failure | code | reaction of clients |
//! | --- | --- | --- |
//! | no leader is reachable; no effect | `CLUSTERDOWN` | try again (go-redis by itself) |
//! | too many requests wait; no effect | `TRYAGAIN` | try again later |
//! | this node has just started, is stopping, no member, or a witness; no effect | `LOADING` | try again, on another connection |
//! | the disk is full; no effect, reads still work | `MISCONF` | report it, as when Redis cannot
//! save |
//! | the site that owns a global key, or that it is lent to, cannot be reached; no effect | `CLUSTERDOWN` | try again |
//! | the site leaves and takes no writes of causal keys; no effect | `CLUSTERDOWN` | go to another site |
//! | the site lacks what the session has seen; no effect | `BEHIND` | try again, or go to another site |
//! | what the session wrote at another site has no position yet; no effect | `UNORDERED` | try again, or go back |
//! | what the session wrote is lost with its site; no effect | `LOST` | begin a new session |
//! | the token is none of this deployment; no effect | `BADTOKEN` | begin a new session |
//! | PORTOLAN.ONCE in a keyspace that has no such puts; no effect | `NOTONCE` | write it like any other |
//! | the outcome of a write is unknown | `UNKNOWN` | none: only the program can decide |
//!
//! Everything else has Redis's codes and, where Redis has the case, Redis's texts.

use model::{Failure, Refusal, SessionError, Slot};
use std::borrow::Cow;
use wire::resp::Frame;

/// Why a command failed: a code and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) Cow<'static, str>);

impl Refused {
    pub(super) const SYNTAX: Refused = Refused::because("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Refused =
        Refused::because("ERR value is not an integer or out of range");
    pub(super) const IN_TRANSACTION: Refused =
        Refused::because("ERR Command not allowed inside a transaction");
    pub(super) const CROSS_SLOT: Refused =
        Refused::because("CROSSSLOT Keys in request don't hash to the same slot");
    /// For keys of a slot that may be at two places at once.
    #[cfg_attr(not(test), expect(dead_code, reason = "slots are handed over whole so far"))]
    pub(super) const SPLIT_SLOT: Refused =
        Refused::because("TRYAGAIN Multiple keys request during rehashing of slot");
    pub(super) const NO_CLUSTER: Refused =
        Refused::because("ERR This instance has cluster support disabled");
    pub(super) const NOT_AUTHENTICATED: Refused =
        Refused::because("NOAUTH Authentication required.");

    pub(super) const fn because(text: &'static str) -> Refused {
        Refused(Cow::Borrowed(text))
    }

    pub(super) fn arity(name: &str) -> Refused {
        Refused(format!("ERR wrong number of arguments for '{name}' command").into())
    }

    /// Quotes the command, up to 128 bytes of name and of arguments, as Redis does.
    pub(super) fn unknown_command(frame: &Frame) -> Refused {
        const QUOTED_BYTES_MAX: usize = 128;
        let quoted = |arg: &[u8], max: usize| {
            String::from_utf8_lossy(&arg[..arg.len().min(max)]).into_owned()
        };
        let name = quoted(frame.arg(0), QUOTED_BYTES_MAX);
        let mut args = String::new();
        for arg in frame.args_from(1) {
            if args.len() >= QUOTED_BYTES_MAX {
                break;
            }
            args += &format!("'{}' ", quoted(arg, QUOTED_BYTES_MAX - args.len()));
        }
        Refused(format!("ERR unknown command '{name}', with args beginning with: {args}").into())
    }

    pub(super) fn unknown_subcommand(command: &str, frame: &Frame) -> Refused {
        let name = String::from_utf8_lossy(&frame.arg(1)[..frame.arg(1).len().min(128)]);
        let help = command.to_uppercase();
        Refused(format!("ERR unknown subcommand '{name}'. Try {help} HELP.").into())
    }

    /// The same error from an EXEC, which discards the transaction.
    pub(super) fn ends_transaction(self) -> Refused {
        let why = self.0.strip_prefix("ERR ").unwrap_or(&self.0);
        Refused(format!("EXECABORT Transaction discarded because of: {why}").into())
    }

    pub(super) fn expire_time(command: &str) -> Refused {
        Refused(format!("ERR invalid expire time in '{command}' command").into())
    }

    pub(super) fn two_keyspaces(one: &str, other: &str) -> Refused {
        Refused(
            format!(
                "CROSSSLOT keys of keyspaces '{one}' and '{other}' in one command or transaction: \
                 they are kept apart; ask for each by itself"
            )
            .into(),
        )
    }
}

/// The error for a failure.
pub(super) fn failure_text(failure: &Failure) -> Cow<'static, str> {
    let code = match failure {
        Failure::Refused(refusal) => return refusal_text(refusal),
        Failure::NoLeader => "CLUSTERDOWN",
        Failure::Overloaded { .. } => "TRYAGAIN",
        Failure::NotServing(_) => "LOADING",
        Failure::DiskFull(_) => "MISCONF",
        Failure::Unknown { .. } => "UNKNOWN",
        Failure::Membership(_) => "ERR",
        Failure::Session(SessionError::Behind { .. }) => "BEHIND",
        Failure::Session(SessionError::Unordered { .. }) => "UNORDERED",
        Failure::Session(SessionError::Lost { .. } | SessionError::Ended { .. }) => "LOST",
        Failure::Session(SessionError::Foreign) => "BADTOKEN",
        Failure::Unreachable { .. } | Failure::BorrowerUnreachable { .. } => "CLUSTERDOWN",
        Failure::Moved { slot, address } => return elsewhere("MOVED", *slot, address).into(),
        Failure::Ask { slot, address } => return elsewhere("ASK", *slot, address).into(),
    };
    format!("{code} {failure}").into()
}

/// The redirection to another address for a slot: from now on (`MOVED`), or for the next command
/// only (`ASK`). Clients parse this: nothing may follow the address, and its host is without
/// brackets even if it is an IPv6 address.
fn elsewhere(code: &str, slot: Slot, address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    format!("{code} {slot} {}:{port}", bare(host))
}

/// A host without the brackets of an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The error for a refusal.
pub(super) fn refusal_text(refusal: &Refusal) -> Cow<'static, str> {
    match refusal {
        Refusal::WrongType => {
            "WRONGTYPE Operation against a key holding the wrong kind of value".into()
        }
        Refusal::NotAnInteger => Refused::NOT_AN_INTEGER.0,
        Refusal::Overflow => "ERR increment or decrement would overflow".into(),
        Refusal::CrossSlot => Refused::CROSS_SLOT.0,
        Refusal::NotHeld(_) | Refusal::Lent { .. } | Refusal::Unordered(_) => {
            format!("TRYAGAIN {refusal}").into()
        }
        Refusal::Leaving => format!("CLUSTERDOWN {refusal}").into(),
        // It may have been applied when it was first asked.
        Refusal::RequestForgotten => format!("UNKNOWN the outcome is unknown ({refusal})").into(),
        other => format!("ERR {other}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_quoted_as_redis_quotes_it() {
        let frame = Frame::of(&[b"lpush", b"list", b"1"]);
        let Refused(text) = Refused::unknown_command(&frame);
        assert_eq!(text, "ERR unknown command 'lpush', with args beginning with: 'list' '1' ");
        let long = Frame::of(&[b"x", &[b'a'; 300], b"b"]);
        let Refused(text) = Refused::unknown_command(&long);
        assert!(text.ends_with(&format!("'{}' ", "a".repeat(128))), "{text}");
    }

    #[test]
    fn redirections_are_written_as_clients_parse_them() {
        let slot = Slot::of_key(b"foo");
        let moved = |address: &str| failure_text(&Failure::Moved { slot, address: address.into() });
        assert_eq!(moved("10.0.0.7:7382"), "MOVED 12182 10.0.0.7:7382");
        assert_eq!(moved("[::1]:7382"), "MOVED 12182 ::1:7382");
        assert_eq!(elsewhere("ASK", slot, "pier-39:7382"), "ASK 12182 pier-39:7382");
    }

    #[test]
    fn keys_of_different_slots_are_refused_by_cause() {
        let text = refusal_text(&Refusal::NotHeld(Slot::of_key(b"foo")));
        assert!(text.starts_with("TRYAGAIN "), "{text}");
        let Refused(text) = Refused::SPLIT_SLOT;
        assert_eq!(text, "TRYAGAIN Multiple keys request during rehashing of slot");
        let text = refusal_text(&Refusal::CrossSlot);
        assert_eq!(text, "CROSSSLOT Keys in request don't hash to the same slot");
    }

    #[test]
    fn what_may_have_happened_is_never_said_to_be_tried_again() {
        let text = failure_text(&Failure::Unknown { why: "the deadline passed" });
        assert!(text.starts_with("UNKNOWN the outcome is unknown"), "{text}");
        let text = failure_text(&Failure::Refused(Refusal::RequestForgotten));
        assert!(text.starts_with("UNKNOWN the outcome is unknown"), "{text}");
        let text = failure_text(&Failure::DiskFull("no space left".into()));
        assert!(text.starts_with("MISCONF the disk refuses writes"), "{text}");
    }
}
