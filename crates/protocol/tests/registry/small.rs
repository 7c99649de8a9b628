//! A registry that is small: the commands that were applied, each with the version that it got.
//!
//! A [`Small`] is a number; what it stands for lies in a table of the thread. So a state of the search is
//! a few numbers.

use model::{Ballot, RegistrarSet, Registrars, SiteId};
use protocol::deployment::registry::Value;
use std::cell::RefCell;
use std::collections::HashMap;

/// More commands than that a value does not take.
const COMMANDS_MAX: usize = 5;

/// A command. What it does is defined by [`Rules`].
pub(crate) type Number = u8;
/// What is applied, and the version that it got.
pub(crate) type Applied = (Number, Ballot);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    pub(crate) version: Ballot,
    pub(crate) registrars: Registrars,
    pub(crate) sites: u8,
    pub(crate) applied: Vec<Applied>,
}

/// What commands do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Those that change the registrars.
    pub(crate) sets: Vec<(Number, RegistrarSet)>,
}

#[derive(Default)]
struct Table {
    contents: Vec<Content>,
    numbers: HashMap<Content, u32>,
    rules: Rules,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// A value of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Small(u32);

/// Begins a search: what commands do from now on.
pub(crate) fn begin(rules: Rules) {
    TABLE.with_borrow_mut(|table| *table = Table { rules, ..Table::default() });
}

/// Whether losing it must be named: a failover's decision.
pub(crate) fn is_decision(number: Number) -> bool {
    matches!(number, 1 | 6)
}

impl Small {
    pub(crate) fn of(content: Content) -> Small {
        TABLE.with_borrow_mut(|table| {
            if let Some(number) = table.numbers.get(&content) {
                return Small(*number);
            }
            let number = table.contents.len() as u32;
            table.contents.push(content.clone());
            table.numbers.insert(content, number);
            Small(number)
        })
    }

    pub(crate) fn content(self) -> Content {
        TABLE.with_borrow(|table| table.contents[self.0 as usize].clone())
    }

    fn with(&mut self, change: impl FnOnce(&mut Content, &Rules)) {
        let mut content = self.content();
        let rules = TABLE.with_borrow(|table| table.rules.clone());
        change(&mut content, &rules);
        *self = Small::of(content);
    }

    pub(crate) fn has(self, number: Number) -> bool {
        self.content().applied.iter().any(|(of, _)| *of == number)
    }

    /// Whether all of it, in order, is what the other one begins with.
    pub(crate) fn begins(self, other: Small) -> bool {
        other.content().applied.starts_with(&self.content().applied)
    }
}

impl Value for Small {
    type Id = Number;
    type Change = ();
    type Outcome = ();
    type Kept = Vec<Applied>;

    fn version(&self) -> Ballot {
        self.content().version
    }

    fn count(&self) -> u64 {
        self.content().applied.len() as u64
    }

    fn registrars(&self) -> Registrars {
        self.content().registrars
    }

    fn sites(&self) -> Vec<SiteId> {
        (1..=u32::from(self.content().sites)).map(SiteId).collect()
    }

    fn stamp(&mut self, version: Ballot) {
        self.with(|content, _| content.version = version);
    }

    fn set_registrars(&mut self, registrars: Registrars) {
        self.with(|content, _| content.registrars = registrars);
    }

    fn outcome(&self, id: Number) -> Option<()> {
        self.has(id).then_some(())
    }

    fn change(&mut self, id: Number, (): &(), version: Ballot) {
        self.with(|content, rules| {
            if content.applied.len() < COMMANDS_MAX {
                content.applied.push((id, version));
                if let Some((_, set)) = rules.sets.iter().find(|(number, _)| *number == id) {
                    content.registrars.set = *set;
                }
            }
        });
    }

    fn recover(&mut self, _: Ballot, _: &[SiteId]) {}

    fn choose(&self, there: &[SiteId]) -> RegistrarSet {
        let first = there.len().saturating_sub(3);
        there[first..].iter().copied().collect()
    }

    fn keep(&self, next: &Small, kept: &mut Vec<Applied>) {
        let next = next.content().applied;
        for one in self.content().applied {
            if is_decision(one.0) && !next.contains(&one) && !kept.contains(&one) {
                kept.push(one);
            }
        }
    }

    fn has_kept(&self, kept: &mut Vec<Applied>) {
        let applied = self.content().applied;
        kept.retain(|one| !applied.contains(one));
    }

    fn is_nothing(kept: &Vec<Applied>) -> bool {
        kept.is_empty()
    }

    fn hand_in(&mut self, kept: &Vec<Applied>, _: Ballot) {
        self.with(|content, _| {
            let room = COMMANDS_MAX - content.applied.len();
            content.applied.extend(kept.iter().take(room));
        });
    }
}
