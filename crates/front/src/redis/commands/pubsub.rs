//! SUBSCRIBE and related commands, for keyspace notifications ([`crate::redis::notifications`]).

use crate::redis::args::{Help, is, takes, write_help};
use crate::redis::notifications::{By, NO_PUBSUB, key_of_channel};
use crate::redis::refused::Refused;
use crate::redis::session::Session;
use crate::redis::table::flag::{FAST, LOADING, NOSCRIPT, PUBSUB, STALE};
use crate::redis::table::{CommandSpec, Family, Own};
use model::glob;
use wire::resp::{Encoder, Frame};

const FLAGS: u16 = PUBSUB | NOSCRIPT | LOADING | STALE;

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "pubsub",
    category: "@pubsub",
    commands: &[
        CommandSpec::own("subscribe", -2, FLAGS, "2.0.0", "Listens to notifications about keys", Own::Subscribe),
        CommandSpec::own("psubscribe", -2, FLAGS, "2.0.0", "Listens to notifications whose channel matches", Own::PSubscribe),
        CommandSpec::own("unsubscribe", -1, FLAGS, "2.0.0", "Stops listening to channels", Own::Unsubscribe),
        CommandSpec::own("punsubscribe", -1, FLAGS, "2.0.0", "Stops listening to patterns", Own::PUnsubscribe),
        CommandSpec::local("publish", 3, PUBSUB | LOADING | STALE | FAST, "2.0.0", "Not served: there are only notifications about keys", publish),
        CommandSpec::local("pubsub", -2, 0, "2.8.0", "Who listens to what at this node", pubsub),
    ],
};

fn publish(_: &mut Session, _: &Frame, _: &mut Encoder<'_>) -> Result<(), Refused> {
    Err(NO_PUBSUB)
}

const HELP: [Help; 3] = [
    ("CHANNELS [<pattern>]", "Return the channels that are listened to at this node."),
    ("NUMPAT", "Return how many patterns are listened to at this node."),
    ("NUMSUB [<channel> ...]", "Return how many listen to channels at this node."),
];

fn pubsub(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    let audience = &session.thread().shared.audience;
    let catalog = session.thread().handle.catalog();
    // The name of a channel may contain a key of a keyspace that this user may not read.
    let channels = || {
        let mut names = audience.names(By::Channel);
        names.retain(|(name, _)| {
            key_of_channel(name).is_none_or(|key| session.may_read(catalog.of_key(key)))
        });
        names
    };
    let what = frame.arg(1);
    if is(what, "channels") && frame.len() <= 3 {
        let pattern = (frame.len() == 3).then(|| frame.arg(2));
        let matches = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        let mut names = channels();
        names.retain(|(name, _)| matches(name));
        out.array(names.len());
        names.iter().for_each(|(name, _)| out.bulk(name));
    } else if is(what, "numsub") {
        let names = channels();
        out.array(2 * (frame.len() - 2));
        for asked in frame.args_from(2) {
            let count = names.iter().find(|(name, _)| name == asked).map_or(0, |(_, count)| *count);
            out.bulk(asked);
            out.integer(count as i64);
        }
    } else if is(what, "numpat") && frame.len() == 2 {
        out.integer(audience.names(By::Pattern).len() as i64);
    } else if is(what, "help") {
        takes(frame, 2, "pubsub|help")?;
        write_help("PUBSUB", &HELP, out);
    } else {
        return Err(Refused::unknown_subcommand("pubsub", frame));
    }
    Ok(())
}
