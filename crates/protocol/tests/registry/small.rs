//! The real registry, numbered, beside the commands that were applied to it.
//!
//! A [`Small`] is a number; what it stands for lies in a table of the thread. So a state of the
//! search is a few numbers. What commands, recoveries and hand-ins do is done by
//! [`model::Registry`].

use model::{
    Ballot, DecidedFailover, DeploymentId, Epoch, KeyspaceId, KeyspaceSpec, OpenFailover,
    RegistrarSet, Registrars, Registry, RegistryChange, Retained, SiteEntry, SiteId, SiteName,
    SlotSet, Taken,
};
use protocol::deployment::registry::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A command. What it does is defined by [`Rules`].
pub(crate) type Number = u8;
/// What is applied, and the version that it got.
pub(crate) type Applied = (Number, Ballot);

/// What sites had kept of another term was handed in.
const HANDED_IN: Number = 0;
/// A failover was decided of which the registry had a decision.
const DECIDED_AGAIN: Number = u8::MAX;
/// A failover of the last site is opened, and decided.
pub(crate) const DECISION: Number = 1;
/// Decides the failover that was open from the beginning.
pub(crate) const DECIDE: Number = 6;
/// Calls that failover off.
pub(crate) const CLOSE: Number = 7;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) registry: Arc<Registry>,
    pub(crate) applied: Vec<Applied>,
}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A registry as a whole cannot be hashed.
        (self.registry.version, &self.registry.failovers, &self.applied).hash(state);
    }
}

/// A bug of the registry's contents, to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slip {
    /// A recovery leaves an open failover open.
    LeftOpen,
    /// A recovery assigns the ids after those that it has read.
    IdsNotSkipped,
    /// A recovery goes on with what may never have been chosen.
    UnchosenStays,
    /// Two recoveries from one version assign the same ids.
    TermsAlike,
    /// A registry remembers the end of its last term only.
    LastEndOnly,
    /// What a site had to hand in before is dropped when a further term begins.
    KeptOnce,
    /// What is there by now is handed in again.
    HandedInTwice,
    /// A hand-in renames what another term has decided.
    DecidedAnew,
}

impl Slip {
    pub(crate) const ALL: [Slip; 8] = [
        Slip::LeftOpen,
        Slip::IdsNotSkipped,
        Slip::UnchosenStays,
        Slip::TermsAlike,
        Slip::LastEndOnly,
        Slip::KeptOnce,
        Slip::HandedInTwice,
        Slip::DecidedAnew,
    ];
}

/// What commands do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Those that change the registrars to any set.
    pub(crate) sets: Vec<(Number, RegistrarSet)>,
    /// Those by which a site offers itself as a registrar.
    pub(crate) offers: Vec<(Number, SiteId)>,
    pub(crate) slip: Option<Slip>,
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

/// What must not get lost without being named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Failover(Ballot),
    Keyspace(KeyspaceId, String),
}

impl Fact {
    /// Whether this is the other one, or has its name.
    pub(crate) fn stands_for(&self, other: &Fact) -> bool {
        match (self, other) {
            (Fact::Keyspace(_, name), Fact::Keyspace(_, named)) => name == named,
            _ => self == other,
        }
    }
}

fn facts<'a>(
    decided: &'a [DecidedFailover],
    keyspaces: &'a [model::Keyspace],
) -> impl Iterator<Item = Fact> + 'a {
    let decided = decided.iter().map(|one| Fact::Failover(one.decided));
    decided.chain(keyspaces.iter().map(|one| Fact::Keyspace(one.id, one.spec.name.clone())))
}

/// What a site has to hand in.
pub(crate) fn facts_kept(kept: &Retained) -> impl Iterator<Item = Fact> {
    facts(&kept.failovers, &kept.keyspaces)
}

/// Sites that there are from the beginning, and a failover of the last one that is open or not.
pub(crate) fn first(sites: u32, registrars: Registrars, is_open: bool) -> Content {
    let mut registry = Registry::empty(DeploymentId(7), 0);
    registry.version = Ballot::default();
    registry.registrars = registrars;
    for id in 1..=sites {
        let name = SiteName::new(format!("s{id}")).expect("a name");
        registry.sites.push(SiteEntry::new(SiteId(id), name));
    }
    registry.site_next = sites + 1;
    if is_open {
        let (opened, without) = (Ballot::default(), Vec::new());
        registry.failovers.open = Some(OpenFailover { opened, lost: SiteId(sites), without });
    }
    Content { registry: Arc::new(registry), applied: Vec::new() }
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

    fn slips(slip: Slip) -> bool {
        TABLE.with_borrow(|table| table.rules.slip == Some(slip))
    }

    pub(crate) fn has(self, number: Number) -> bool {
        self.content().applied.iter().any(|(of, _)| *of == number)
    }

    /// Whether all of it, in order, is what the other one begins with.
    pub(crate) fn begins(self, other: Small) -> bool {
        other.content().applied.starts_with(&self.content().applied)
    }

    /// What it decides and creates.
    pub(crate) fn facts(self) -> Vec<Fact> {
        let registry = self.content().registry;
        facts(&registry.failovers.decided, &registry.keyspaces).collect()
    }

    /// What is wrong with it, whatever else there is.
    pub(crate) fn fault(self) -> Option<&'static str> {
        let Content { registry, applied } = self.content();
        if applied.iter().any(|(number, _)| *number == DECIDED_AGAIN) {
            return Some("a failover is decided again whose decision was handed in");
        }
        for (at, one) in applied.iter().enumerate().filter(|(_, one)| one.0 != HANDED_IN) {
            let same = |other: &&Applied| other.0 == one.0 && other.1.term == one.1.term;
            if applied[..at].iter().any(|other| same(&other)) {
                return Some("a command took effect twice");
            }
        }
        // One of another term was handed in as it was.
        let own = |one: &&DecidedFailover| one.decided.term == registry.version.term;
        for one in registry.failovers.decided.iter().filter(own) {
            let decides = |of: &Applied| [DECISION, DECIDE].contains(&of.0) && of.1 == one.decided;
            if !applied.iter().any(decides) {
                return Some("a decision has a version that decided nothing");
            }
        }
        for (at, one) in registry.keyspaces.iter().enumerate() {
            let is_same = |other: &model::Keyspace| other.id == one.id || other.spec == one.spec;
            if registry.keyspaces[..at].iter().any(is_same) {
                return Some("two keyspaces have one id, or one name");
            }
        }
        None
    }

    /// What is wrong between two chosen values of any terms.
    pub(crate) fn fault_with(self, other: Small) -> Option<&'static str> {
        let (one, other) = (self.content(), other.content());
        for first in &one.applied {
            if other.applied.iter().any(|second| first.1 == second.1 && first.0 != second.0) {
                return Some("one version names two changes");
            }
        }
        for first in &one.registry.failovers.decided {
            for second in &other.registry.failovers.decided {
                if first.decided == second.decided && first != second {
                    return Some("one version names two decisions");
                }
            }
        }
        let (created, others) = (&one.registry.keyspaces, &other.registry.keyspaces);
        let is_other = |one: &model::Keyspace, other: &model::Keyspace| {
            one.id == other.id && one.spec != other.spec
        };
        if created.iter().any(|one| others.iter().any(|other| is_other(one, other))) {
            return Some("one id names two keyspaces");
        }
        None
    }
}

/// The name of the keyspace that a command creates.
fn keyspace(number: Number) -> String {
    format!("k{number}")
}

/// The failover that a command decides: the site that takes is the one that asks for it.
fn taken(by: SiteId) -> Vec<Taken> {
    vec![Taken { by, slots: SlotSet::default(), from: Some((Epoch::counted(1), 1)) }]
}

impl Value for Small {
    type Id = Number;
    /// The site that asks for it.
    type Change = SiteId;
    type Outcome = ();
    type Retained = Retained;

    fn version(&self) -> Ballot {
        self.content().registry.version
    }

    fn count(&self) -> u64 {
        self.content().applied.len() as u64
    }

    fn registrars(&self) -> Registrars {
        self.content().registry.registrars
    }

    fn sites(&self) -> Vec<SiteId> {
        self.content().registry.sites()
    }

    fn stamp(&mut self, version: Ballot) {
        self.with(|content, _| content.registry.stamp(version));
    }

    fn set_registrars(&mut self, registrars: Registrars) {
        self.with(|content, _| content.registry.set_registrars(registrars));
    }

    fn outcome(&self, id: Number) -> Option<()> {
        self.has(id).then_some(())
    }

    fn change(&mut self, id: Number, by: &SiteId, version: Ballot) {
        self.with(|content, rules| {
            content.applied.push((id, version));
            let registry = Arc::make_mut(&mut content.registry);
            if let Some((_, set)) = rules.sets.iter().find(|(number, _)| *number == id) {
                registry.registrars.set = *set;
                return;
            }
            let offer = rules.offers.iter().find(|(number, _)| *number == id);
            let changes = match (id, offer) {
                (_, Some((_, site))) => vec![RegistryChange::Registrar(*site)],
                (DECISION, _) => {
                    let last = registry.sites.last().map_or(*by, |site| site.id);
                    let (lost, without, taken) = (last, Vec::new(), taken(*by));
                    let open = RegistryChange::OpenFailover { lost, without };
                    vec![open, RegistryChange::DecideFailover { opened: version, taken }]
                }
                (DECIDE, _) => {
                    let (opened, taken) = (Ballot::default(), taken(*by));
                    vec![RegistryChange::DecideFailover { opened, taken }]
                }
                (CLOSE, _) => vec![RegistryChange::CloseFailover(Ballot::default())],
                _ => {
                    let name = keyspace(id);
                    let spec = KeyspaceSpec::linearizable_global(name.clone(), format!("{name}:"));
                    vec![RegistryChange::CreateKeyspace(spec)]
                }
            };
            for change in changes {
                // What is refused changes nothing, and is an outcome all the same.
                let _ = registry.change_at(&change, version);
            }
            let decided = &registry.failovers.decided;
            let is_known = |opened| decided.iter().filter(|one| one.opened == opened).count() > 1;
            if decided.iter().any(|one| one.decided == version && is_known(one.opened)) {
                content.applied.push((DECIDED_AGAIN, version));
            }
        });
    }

    fn recover(&mut self, version: Ballot, known: &Small) {
        let known = known.content().registry;
        self.with(|content, rules| {
            let before = content.registry.clone();
            let (version, known) = match rules.slip {
                Some(Slip::UnchosenStays) => (version, &before),
                Some(Slip::TermsAlike) => (Ballot::default(), &known),
                _ => (version, &known),
            };
            content.registry.recover(version, known);
            let registry = Arc::make_mut(&mut content.registry);
            match rules.slip {
                Some(Slip::LeftOpen) => registry.failovers.open = before.failovers.open.clone(),
                Some(Slip::IdsNotSkipped) => {
                    registry.site_next = known.site_next;
                    registry.keyspace_next = known.keyspace_next;
                }
                Some(Slip::LastEndOnly) => {
                    let last = registry.began.len() - 1;
                    registry.began.drain(..last);
                }
                _ => {}
            }
        });
    }

    fn choose(&self, there: &[SiteId]) -> RegistrarSet {
        self.content().registry.choose(there)
    }

    fn keep(&self, next: &Small, kept: &mut Retained) {
        if Small::slips(Slip::KeptOnce) {
            *kept = Retained::default();
        }
        self.content().registry.keep(&next.content().registry, kept);
    }

    fn has_kept(&self, kept: &mut Retained) {
        if !Small::slips(Slip::HandedInTwice) {
            self.content().registry.has_kept(kept);
        }
    }

    fn is_nothing(kept: &Retained) -> bool {
        kept.is_empty()
    }

    fn hand_in(&mut self, kept: &Retained, version: Ballot) {
        let mut kept = kept.clone();
        if Small::slips(Slip::DecidedAnew) {
            kept.failovers.iter_mut().for_each(|one| one.decided = version);
        }
        self.with(|content, _| {
            content.applied.push((HANDED_IN, version));
            content.registry.hand_in(&kept, version);
        });
    }
}
