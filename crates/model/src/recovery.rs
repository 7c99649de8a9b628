//! Recovery of a registry that has lost the majority of its registrars, and what sites hand in
//! afterwards.
//!
//! The new term lacks what only the excluded sites have chosen. When an excluded site receives the
//! new term, it keeps the decisions and joins beyond the end of its own term, and hands them in
//! unchanged.
//!
//! The value that the new term continues from need not have been chosen: only one of the sites that
//! answer may have accepted it, and the excluded sites may have chosen another one, in which the
//! same id is assigned to another site. So the new term also lacks sites and keyspaces that its
//! proposer does not have in a chosen value. A site that has them in its copy keeps them, as if it
//! had been excluded; they were chosen, so their ids are in use once.

use crate::{
    BackupChoice, Ballot, Bytes, Changed, DecidedFailover, IDS_SKIPPED, Keyspace, KeyspaceId,
    KeyspaceSpec, RegistrarSet, Registry, RegistryChange, SiteEntry, SiteId, Term, limits,
};

/// The state from which a term of the registry continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermBegan {
    /// The last version of the previous term that the new one contains.
    pub after: Ballot,
    /// The new term began without the sites of the previous one with this id or a higher one.
    pub site_next: u32,
    /// The same of keyspaces.
    pub keyspace_next: u32,
    /// The ids that the term assigns. `None`: an earlier build began it, and assigned others.
    pub ids: Option<TermIds>,
}

/// What a recovery did with ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermIds {
    /// The first id of a site that the term assigns.
    pub site_first: u32,
    /// The same of keyspaces.
    pub keyspace_first: u32,
    /// Sites of the last version of the previous term that the new one began without.
    pub sites_dropped: Vec<SiteId>,
    /// The same of keyspaces.
    pub keyspaces_dropped: Vec<KeyspaceId>,
}

/// The ids that a term assigns without meeting those of another one: 2^10.
const IDS_BITS: u32 = 10;
/// Half of the blocks of one number of a term are of the sites with lower ids, one each: 2^12.
const SITES_BITS: u32 = 12;
/// Terms with higher numbers have no blocks of their own.
const NUMBER_MAX: u32 = 510;

/// The first id of a term's block. Each number and recovering site has a block of its own,
/// whichever recoveries went before, as long as the site has one of the lower ids: it joined before
/// the first recovery. A site that joined later has a block by a hash of its id.
fn block(term: Term) -> u32 {
    let low = 1 << SITES_BITS;
    let place = match term.site.0 {
        site if site < low => site,
        site => low + (site.wrapping_mul(0x9e37_79b1) >> (u32::BITS - SITES_BITS)),
    };
    (term.number.min(NUMBER_MAX) << (SITES_BITS + 1) | place) << IDS_BITS
}

impl TermBegan {
    /// The first ids of a site and of a keyspace that the term assigns which began so. `end`: the
    /// ids that come next when it ends, or now.
    fn first(&self, term: Term, end: (u32, u32)) -> (u32, u32) {
        if let Some(ids) = &self.ids {
            return (ids.site_first, ids.keyspace_first);
        }
        let first = |skipped: u32| {
            (self.site_next.saturating_add(skipped), self.keyspace_next.saturating_add(skipped))
        };
        // Two earlier builds skipped so many.
        let place = term.site.0.wrapping_add(term.number.wrapping_mul(17)) % 1_024;
        let more = first(IDS_SKIPPED * (1 + place));
        if more.0 <= end.0 && more.1 <= end.1 { more } else { first(IDS_SKIPPED) }
    }
}

/// What a site has to hand in: what was chosen in its term beyond the end of that term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Sites that joined.
    pub joins: Vec<SiteEntry>,
    /// Keyspaces that were created.
    pub keyspaces: Vec<Keyspace>,
    /// Failovers that were decided.
    pub failovers: Vec<DecidedFailover>,
    /// The backups that were chosen for the sites that joined, and those that are one of these
    /// sites.
    pub choices: Vec<(SiteId, BackupChoice)>,
}

impl Retained {
    /// Whether there is nothing to hand in.
    pub fn is_empty(&self) -> bool {
        *self == Retained::default()
    }

    /// How many things there are to hand in.
    pub fn len(&self) -> usize {
        let Retained { joins, keyspaces, failovers, choices } = self;
        joins.len() + keyspaces.len() + failovers.len() + choices.len()
    }
}

impl Registry {
    /// Continues in the term of this version. `known` is the newest copy of its proposer: chosen,
    /// in contrast to `self`.
    pub fn recover(&mut self, version: Ballot, known: &Registry) {
        self.failovers.open = None;
        let after = self.version;
        // Ids that were handed in are in use once, whichever value has them.
        let own_term = self.begun().last().filter(|_| after.term != known.version.term);
        let (site_next, keyspace_next) =
            own_term.map_or((known.site_next, known.keyspace_next), |(_, _, first)| first);
        // What was handed in may have higher ids.
        let is_site = |id: SiteId| id.0 < site_next || known.site(id).is_some();
        let is_keyspace =
            |id: KeyspaceId| id.0 < keyspace_next || known.keyspaces.iter().any(|one| one.id == id);
        let sites = self.sites.iter().map(|site| site.id);
        let sites_dropped: Vec<SiteId> = sites.filter(|id| !is_site(*id)).collect();
        let keyspaces = self.keyspaces.iter().map(|one| one.id);
        let keyspaces_dropped = keyspaces.filter(|id| !is_keyspace(*id)).collect();
        sites_dropped.iter().for_each(|id| self.backups.forget(*id));
        self.sites.retain(|site| is_site(site.id));
        self.keyspaces.retain(|one| is_keyspace(one.id));
        self.pins.retain(|pin| is_keyspace(pin.keyspace) && is_site(pin.site));
        // Asked for again, they get another id.
        self.outcomes.retain(|one| match one.outcome {
            Ok(Changed::Site(id)) => is_site(id),
            Ok(Changed::Keyspace(id)) => is_keyspace(id),
            _ => true,
        });
        // The excluded sites may have assigned ids that no remaining site has seen.
        let first = |next: u32| next.saturating_add(IDS_SKIPPED).max(block(version.term));
        self.site_next = first(self.site_next);
        self.keyspace_next = first(self.keyspace_next);
        let (site_first, keyspace_first) = (self.site_next, self.keyspace_next);
        if self.began.len() >= limits::TERMS_BEGAN_MAX {
            self.began.remove(0);
        }
        // Forgotten with the end of the term in which they were assigned.
        let oldest = self.began.first().map_or(site_next, |oldest| oldest.site_next);
        self.handed_in.retain(|site| site.0 >= oldest && !sites_dropped.contains(site));
        let ids = TermIds { site_first, keyspace_first, sites_dropped, keyspaces_dropped };
        self.began.push(TermBegan { after, site_next, keyspace_next, ids: Some(ids) });
        self.recover_regions(version);
        self.changes += u64::from(IDS_SKIPPED);
    }

    /// Whether a site was listed and has left for good. One that joined beyond the end of a term
    /// and has not handed that in does not count: it is listed again when it does.
    pub fn has_left(&self, site: SiteId) -> bool {
        let skipped =
            self.begun().any(|(began, _, (first, _))| (began.site_next..first).contains(&site.0));
        let was_listed = site.0 < self.site_next && !skipped || self.handed_in.contains(&site);
        was_listed && self.site(site).is_none()
    }

    /// Whether a keyspace that is not listed may be handed in: it was created by sites that a
    /// recovery did without.
    pub fn may_be_handed_in(&self, keyspace: KeyspaceId) -> bool {
        let is_listed = self.keyspaces.iter().any(|one| one.id == keyspace);
        let is_of = |(began, _, (_, first)): (&TermBegan, Term, (u32, u32))| {
            let ids = began.ids.as_ref();
            ids.is_some_and(|ids| ids.keyspaces_dropped.contains(&keyspace))
                || (began.keyspace_next..first).contains(&keyspace.0)
        };
        !is_listed && self.begun().any(is_of)
    }

    /// The registrars, chosen from the sites that answered a recovery; current registrars come
    /// first.
    pub fn choose_registrars(&self, there: &[SiteId]) -> RegistrarSet {
        let stays = |site: &&SiteId| self.staying().any(|one| one.id == **site);
        let mut able: Vec<SiteId> = there.iter().filter(stays).copied().collect();
        if able.is_empty() {
            able = there.to_vec();
        }
        able.sort_by_key(|site| (!self.registrars.set.contains(*site), *site));
        let size = RegistrarSet::size_for(able.len());
        able.into_iter().take(size).collect()
    }

    /// Collects what a site has to hand in when it replaces its copy `self` with `next`, of another
    /// term.
    pub fn keep(&self, next: &Registry, kept: &mut Retained) {
        let Some(began) = self.ended(next) else { return };
        // What was handed in has an id, or a version, of before the term in which it was handed in.
        let is_beyond = self.version > began.after;
        // What this copy lists and the last version of its term does not was removed since.
        let dropped = began.ids.as_ref().filter(|_| !is_beyond);
        let joined = |site: &&SiteEntry| self.is_beyond_end(began, site.id);
        kept.joins.extend(self.sites.iter().filter(joined).cloned());
        kept.choices.extend(self.backups.chosen.iter().copied());
        let handed_in = |id: KeyspaceId| {
            let mut begun = self.begun();
            begun.any(|(began, _, (_, first))| (began.keyspace_next..first).contains(&id.0))
        };
        let made = |one: &&Keyspace| match dropped {
            Some(ids) => ids.keyspaces_dropped.contains(&one.id),
            None => one.id.0 >= began.keyspace_next || is_beyond && handed_in(one.id),
        };
        kept.keyspaces.extend(self.keyspaces.iter().filter(made).cloned());
        if is_beyond {
            // Also earlier ones that `next` lacks: another recovery may have gone on from a value
            // that was accepted and not chosen, which the end of the term does not contain.
            kept.failovers.extend(self.failovers.decided.iter().cloned());
        }
        self.dedup(kept);
        next.has_kept(kept);
    }

    /// Whether `next`, of another term, comes of a recovery that began without a site which this
    /// copy lists.
    pub fn is_begun_without(&self, next: &Registry, site: SiteId) -> bool {
        let is_without = |began: &TermBegan| self.is_beyond_end(began, site);
        self.site(site).is_some() && self.ended(next).is_some_and(is_without)
    }

    /// How this copy's own term ended, by one of another term: by the first recovery that is not in
    /// this copy. Others may have followed.
    fn ended<'a>(&self, next: &'a Registry) -> Option<&'a TermBegan> {
        let known: Vec<Term> = self.terms().collect();
        let mut begun = next.begun().filter(|(_, term, _)| !known.contains(term));
        begun.next().map(|(began, ..)| began)
    }

    /// Whether a site that this copy lists joined beyond the end of its term.
    fn is_beyond_end(&self, began: &TermBegan, site: SiteId) -> bool {
        let is_beyond = self.version > began.after;
        match began.ids.as_ref().filter(|_| !is_beyond) {
            Some(ids) => ids.sites_dropped.contains(&site),
            None => site.0 >= began.site_next || is_beyond && self.handed_in.contains(&site),
        }
    }

    /// The terms of its history, as far as they are remembered, and its own.
    fn terms(&self) -> impl Iterator<Item = Term> {
        let before = self.began.iter().map(|began| began.after.term);
        before.chain([self.version.term])
    }

    /// How each term began that is remembered, which, and the first ids that it assigns.
    fn begun(&self) -> impl Iterator<Item = (&TermBegan, Term, (u32, u32))> {
        let ends = self.began.iter().skip(1).map(|next| (next.site_next, next.keyspace_next));
        let ends = ends.chain([(self.site_next, self.keyspace_next)]);
        let begun = self.began.iter().zip(self.terms().skip(1)).zip(ends);
        begun.map(|((began, term), end)| (began, term, began.first(term, end)))
    }

    fn dedup(&self, kept: &mut Retained) {
        kept.joins.sort_by_key(|site| site.id);
        kept.joins.dedup_by_key(|site| site.id);
        kept.keyspaces.sort_by_key(|keyspace| keyspace.id);
        kept.keyspaces.dedup_by_key(|keyspace| keyspace.id);
        kept.failovers.sort_by_key(|one| one.decided);
        kept.failovers.dedup_by_key(|one| one.decided);
        // The latest is the last one.
        kept.choices.reverse();
        kept.choices.sort_by_key(|(of, _)| *of);
        kept.choices.dedup_by_key(|(of, _)| *of);
    }

    /// Removes from `kept` what the registry has, or has had.
    pub fn has_kept(&self, kept: &mut Retained) {
        kept.joins.retain(|one| !(self.site(one.id).is_some() || self.handed_in.contains(&one.id)));
        let joins = |id: SiteId| kept.joins.iter().any(|one| one.id == id);
        kept.choices.retain(|(of, choice)| match choice {
            BackupChoice::At(at) => joins(*of) || joins(*at),
            _ => joins(*of),
        });
        kept.keyspaces.retain(|one| !self.keyspaces.iter().any(|there| there.id == one.id));
        kept.failovers.retain(|one| {
            let known = |there: &DecidedFailover| there.decided == one.decided;
            !self.failovers.decided.iter().any(known)
        });
    }

    /// Adds what another term had and this one lacks. A site with a name that another one has by
    /// now is not listed, and counts as one that has left. A keyspace with a name or a prefix that
    /// another one has by now gets a free one: it has keys.
    pub fn hand_in(&mut self, kept: &Retained) {
        for joined in &kept.joins {
            if self.site_named(joined.name.as_str()).is_none() {
                self.sites.push(joined.clone());
            }
        }
        self.sites.sort_by_key(|site| site.id);
        self.handed_in.extend(kept.joins.iter().map(|site| site.id));
        self.handed_in.sort_unstable();
        for (of, choice) in &kept.choices {
            // Also refused if a site of it has left since.
            if self.backups.choice(*of) == BackupChoice::Next {
                let _ = self.change(&RegistryChange::Backup(*of, *choice));
            }
        }
        for keyspace in &kept.keyspaces {
            let free = self.free_names(keyspace);
            self.keyspaces.push(free);
        }
        self.keyspaces.sort_by_key(|keyspace| keyspace.id);
        self.failovers.add_decided(&kept.failovers);
        // Beyond the decisions, which are dropped once all sites have them.
        for one in kept.failovers.iter().filter(|one| self.sites.iter().any(|at| at.id == one.lost))
        {
            self.failovers.note_last(one.lost, one.decided);
        }
        self.changes += 1;
    }

    /// A keyspace with a name and a prefix that no other one has.
    fn free_names(&self, keyspace: &Keyspace) -> Keyspace {
        let mut free = keyspace.clone();
        let default = KeyspaceSpec::default_keyspace();
        let specs = || self.keyspaces.iter().map(|one| &one.spec).chain([&default]);
        if specs().any(|one| one.name == free.spec.name) {
            let names = (0..=limits::KEYSPACES_MAX).map(|again| renamed(keyspace, again));
            let mut names = names.filter(|name| !specs().any(|one| one.name == *name));
            free.spec.name = names.next().unwrap_or_else(|| free.spec.name.clone());
        }
        if specs().any(|one| one.prefix == free.spec.prefix) {
            let name = &free.spec.name;
            let prefixes = (1..=NULS_MAX).map(|nuls| unused_prefix(name, nuls));
            let mut prefixes = prefixes.filter(|prefix| !specs().any(|one| one.prefix == *prefix));
            free.spec.prefix = prefixes.next().unwrap_or_else(|| free.spec.prefix.clone());
        }
        free
    }
}

/// A keyspace's name with its id, and a count from the second attempt on.
fn renamed(keyspace: &Keyspace, again: usize) -> String {
    let mut end = format!("-{}", keyspace.id.0);
    if again > 0 {
        end += &format!("-{again}");
    }
    let name = &keyspace.spec.name;
    let kept = name.len().min(limits::KEYSPACE_NAME_BYTES_MAX - end.len());
    format!("{}{end}", &name[..kept])
}

/// How many prefixes are tried.
const NULS_MAX: usize = limits::PREFIX_BYTES_MAX - limits::KEYSPACE_NAME_BYTES_MAX - 1;

/// A prefix that takes no keys from another keyspace: hardly any key begins with NUL.
fn unused_prefix(name: &str, nuls: usize) -> Bytes {
    format!("{}{name}:", "\0".repeat(nuls)).into()
}

/// The registry, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryView {
    /// The version that the asked site has.
    pub version: Ballot,
    /// The number of changes applied to it.
    pub changes: u64,
    /// The sites that hold it.
    pub registrars: Vec<RegistrarView>,
    /// Changes that wait at the asked site.
    pub waiting: u32,
    /// The number of entries of another term that the asked site has to hand in.
    pub to_hand_in: u32,
    /// Sites that do not answer and are not named as lost.
    pub silent: Vec<SiteId>,
    /// Sites that are named as lost and answer.
    pub answering: Vec<SiteId>,
    /// Whether enough registrars answer to change the registry.
    pub has_majority: bool,
    /// Whether a recovery took place.
    pub recovered: bool,
}

/// A registrar, as shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrarView {
    /// Its id.
    pub site: SiteId,
    /// Whether it answers.
    pub answers: bool,
}

#[cfg(test)]
mod tests;
