//! The command table: names, arities, places of keys.
//!
//! Each family of commands declares its own part next to the code that parses its arguments. The
//! table gives COMMAND's replies, the errors about arity and unknown names, and the function that
//! runs a command.

use super::commands::FAMILIES;
use super::refused::Refused;
use super::session::Session;
use super::step::Op;
use std::sync::LazyLock;
use wire::resp::{Encoder, Frame};

/// Properties of a command, as COMMAND reports them. Combined with `|`.
pub(super) mod flag {
    pub(in crate::redis) const WRITE: u16 = 1;
    pub(in crate::redis) const READONLY: u16 = 1 << 1;
    pub(in crate::redis) const DENYOOM: u16 = 1 << 2;
    pub(in crate::redis) const PUBSUB: u16 = 1 << 3;
    pub(in crate::redis) const NOSCRIPT: u16 = 1 << 4;
    pub(in crate::redis) const LOADING: u16 = 1 << 5;
    pub(in crate::redis) const STALE: u16 = 1 << 6;
    pub(in crate::redis) const FAST: u16 = 1 << 7;
    pub(in crate::redis) const NO_AUTH: u16 = 1 << 8;
    pub(in crate::redis) const ALLOW_BUSY: u16 = 1 << 9;
    pub(in crate::redis) const NO_MULTI: u16 = 1 << 10;

    /// Their names, in Redis's order.
    pub(in crate::redis) const NAMES: [(u16, &str); 11] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (PUBSUB, "pubsub"),
        (NOSCRIPT, "noscript"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (ALLOW_BUSY, "allow_busy"),
        (NO_MULTI, "no_multi"),
    ];
}

/// Which arguments are keys: the first, the last (negative: counted from the end) and the distance
/// between two of them. All 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) first: i8,
    pub(super) last: i8,
    pub(super) step: u8,
}

impl Keys {
    pub(super) const NONE: Keys = Keys { first: 0, last: 0, step: 0 };
    pub(super) const FIRST: Keys = Keys { first: 1, last: 1, step: 1 };
    pub(super) const ALL: Keys = Keys { first: 1, last: -1, step: 1 };
    pub(super) const PAIRS: Keys = Keys { first: 1, last: -1, step: 2 };
    /// Pairs behind a number, a site, a word and the name of another command.
    pub(super) const ONCE: Keys = Keys { first: 5, last: -1, step: 2 };

    /// The places of the keys in a command of `len` arguments.
    pub(super) fn places(self, len: usize) -> impl Iterator<Item = usize> {
        let last = match self.last {
            last @ 0.. => last as usize,
            from_end => len.saturating_sub(usize::from(from_end.unsigned_abs())),
        };
        let end = if self == Keys::NONE { 0 } else { (last + 1).min(len) };
        (self.first as usize..end).step_by(usize::from(self.step).max(1))
    }
}

/// How a command is run.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// A step on one keyspace.
    Data(fn(&Frame) -> Result<Op, Refused>),
    /// The session answers it without the site.
    Local(fn(&mut Session, &Frame, &mut Encoder<'_>) -> Result<(), Refused>),
    /// The connection has its own code for it; it is never part of a transaction.
    Own(Own),
}

impl Run {
    /// Whether it goes by the keyspaces that there are.
    pub(super) fn needs_keyspaces(self) -> bool {
        match self {
            Run::Data(_) => true,
            Run::Local(_) => false,
            Run::Own(own) => own.needs_keyspaces(),
        }
    }
}

/// The commands that are neither a step nor local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Auth,
    Hello,
    Quit,
    Reset,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Scan,
    Keys,
    DbSize,
    Flush,
    Subscribe,
    PSubscribe,
    Unsubscribe,
    PUnsubscribe,
    Cluster,
    Attach,
}

impl Own {
    fn needs_keyspaces(self) -> bool {
        use Own::*;
        match self {
            Watch | Scan | Keys | DbSize | Flush | Subscribe | PSubscribe | Attach => true,
            Auth | Hello | Quit | Reset | Multi | Exec | Discard | Unwatch | Unsubscribe
            | PUnsubscribe | Cluster => false,
        }
    }
}

/// One command.
pub(super) struct CommandSpec {
    /// In lower case.
    pub(super) name: &'static str,
    /// The number of arguments with the name; negative: at least so many.
    pub(super) arity: i8,
    pub(super) flags: u16,
    pub(super) keys: Keys,
    /// The first version of Redis with it.
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
    pub(super) run: Run,
}

/// A group of COMMAND DOCS, and its category in COMMAND INFO.
pub(super) struct Family {
    pub(super) group: &'static str,
    pub(super) category: &'static str,
    pub(super) commands: &'static [CommandSpec],
}

impl CommandSpec {
    /// A command that is one step.
    pub(super) const fn data(
        name: &'static str,
        arity: i8,
        flags: u16,
        keys: Keys,
        since: &'static str,
        summary: &'static str,
        parse: fn(&Frame) -> Result<Op, Refused>,
    ) -> CommandSpec {
        CommandSpec { name, arity, flags, keys, since, summary, run: Run::Data(parse) }
    }

    /// A command that needs no site.
    pub(super) const fn local(
        name: &'static str,
        arity: i8,
        flags: u16,
        since: &'static str,
        summary: &'static str,
        answer: fn(&mut Session, &Frame, &mut Encoder<'_>) -> Result<(), Refused>,
    ) -> CommandSpec {
        let run = Run::Local(answer);
        CommandSpec { name, arity, flags, keys: Keys::NONE, since, summary, run }
    }

    /// A command for which the connection has its own code.
    pub(super) const fn own(
        name: &'static str,
        arity: i8,
        flags: u16,
        since: &'static str,
        summary: &'static str,
        own: Own,
    ) -> CommandSpec {
        let keys = if let Own::Watch = own { Keys::ALL } else { Keys::NONE };
        CommandSpec { name, arity, flags, keys, since, summary, run: Run::Own(own) }
    }

    /// Whether it may have `len` arguments, the name included.
    pub(super) fn takes(&self, len: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { len >= arity } else { len == arity }
    }

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A command's index in the table, for counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandNumber(pub(super) u16);

/// All commands, found by name in any case.
pub(super) struct Table {
    commands: Vec<(&'static CommandSpec, &'static Family)>,
    /// Indexes by length, first and last letter of the name; each bucket has few.
    buckets: Vec<Vec<u16>>,
}

const NAME_BYTES_MAX: usize = 16;
const BUCKETS: usize = NAME_BYTES_MAX * 32;

fn bucket_of(name: &[u8]) -> usize {
    // The low five bits of a letter are the same in upper and lower case.
    let (first, last) = (name[0] & 31, name[name.len() - 1] & 31);
    name.len() * 32 + usize::from(first.wrapping_mul(7).wrapping_add(last) & 31)
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let commands: Vec<_> = FAMILIES
        .iter()
        .flat_map(|family| family.commands.iter().map(move |command| (command, *family)))
        .collect();
    let mut buckets = vec![Vec::<u16>::new(); BUCKETS];
    for (number, (command, _)) in commands.iter().enumerate() {
        buckets[bucket_of(command.name.as_bytes())].push(number as u16);
    }
    Table { commands, buckets }
});

/// The table.
pub(super) fn table() -> &'static Table {
    &TABLE
}

impl Table {
    /// The command of this name, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<(CommandNumber, &'static CommandSpec)> {
        if name.is_empty() || name.len() >= NAME_BYTES_MAX {
            return None;
        }
        self.buckets[bucket_of(name)].iter().find_map(|number| {
            let (command, _) = self.commands[usize::from(*number)];
            let is_it = command.name.as_bytes().eq_ignore_ascii_case(name);
            is_it.then_some((CommandNumber(*number), command))
        })
    }

    /// All of them, family by family.
    pub(super) fn all(&self) -> &[(&'static CommandSpec, &'static Family)] {
        &self.commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for (command, _) in table().all() {
            assert!(command.name.len() < NAME_BYTES_MAX);
            let mixed: String = (command.name.chars().enumerate())
                .map(|(at, c)| if at % 2 == 0 { c.to_ascii_uppercase() } else { c })
                .collect();
            for name in [command.name, &command.name.to_uppercase(), &mixed] {
                let found = table().find(name.as_bytes()).map(|(_, found)| found.name);
                assert_eq!(found, Some(command.name), "{name}");
            }
        }
        for name in ["", "gett", "ge", "averyveryverylongname"] {
            assert!(table().find(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<_> = table().all().iter().map(|(command, _)| command.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn keys_are_where_the_table_puts_them() {
        let places = |keys: Keys, len| keys.places(len).collect::<Vec<_>>();
        assert!(places(Keys::NONE, 5).is_empty());
        assert_eq!(places(Keys::FIRST, 5), [1]);
        assert_eq!(places(Keys::ALL, 4), [1, 2, 3]);
        assert_eq!(places(Keys::PAIRS, 5), [1, 3]);
        assert_eq!(places(Keys::ONCE, 9), [5, 7]);
    }

    #[test]
    fn arity_is_exact_or_a_minimum() {
        let (_, get) = table().find(b"get").unwrap();
        let (_, del) = table().find(b"del").unwrap();
        assert!(get.takes(2) && !get.takes(1) && !get.takes(3));
        assert!(del.takes(2) && del.takes(9) && !del.takes(1));
    }
}
