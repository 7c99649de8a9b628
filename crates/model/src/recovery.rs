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
    BackupChoice, Ballot, Changed, DecidedFailover, IDS_SKIPPED, Keyspace, KeyspaceId,
    RegistrarSet, Registry, RegistryChange, SiteEntry, SiteId, Term, limits,
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
        // The first recovery with a term that is not in this copy ended the copy's own term; others
        // may have followed.
        let known: Vec<Term> = self.terms().collect();
        let ended = next.begun().find(|(_, term, _)| !known.contains(term));
        let Some((began, ..)) = ended else { return };
        // What was handed in has an id, or a version, of before the term in which it was handed in.
        let is_beyond = self.version > began.after;
        // What this copy lists and the last version of its term does not was removed since.
        let dropped = began.ids.as_ref().filter(|_| !is_beyond);
        let joined = |site: &&SiteEntry| match dropped {
            Some(ids) => ids.sites_dropped.contains(&site.id),
            None => site.id.0 >= began.site_next || is_beyond && self.handed_in.contains(&site.id),
        };
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

    /// Removes from `kept` what the registry has, or has had, and keyspaces with a name that
    /// another one uses.
    pub fn has_kept(&self, kept: &mut Retained) {
        kept.joins.retain(|one| !(self.site(one.id).is_some() || self.handed_in.contains(&one.id)));
        let joins = |id: SiteId| kept.joins.iter().any(|one| one.id == id);
        kept.choices.retain(|(of, choice)| match choice {
            BackupChoice::At(at) => joins(*of) || joins(*at),
            _ => joins(*of),
        });
        kept.keyspaces.retain(|one| {
            let is_same = |there: &&Keyspace| {
                there.id == one.id
                    || there.spec.name == one.spec.name
                    || there.spec.prefix == one.spec.prefix
            };
            !self.keyspaces.iter().any(|there| is_same(&there))
        });
        kept.failovers.retain(|one| {
            let known = |there: &DecidedFailover| there.decided == one.decided;
            !self.failovers.decided.iter().any(known)
        });
    }

    /// Adds what another term had and this one lacks. A site with a name that another one has by
    /// now is not listed, and counts as one that has left.
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
        self.keyspaces.extend(kept.keyspaces.iter().cloned());
        self.keyspaces.sort_by_key(|keyspace| keyspace.id);
        self.failovers.add_decided(&kept.failovers);
        // Beyond the decisions, which are dropped once all sites have them.
        for one in kept.failovers.iter().filter(|one| self.sites.iter().any(|at| at.id == one.lost))
        {
            self.failovers.note_last(one.lost, one.decided);
        }
        self.changes += 1;
    }
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
mod tests {
    use super::*;
    use crate::{DeploymentId, KeyspaceSpec, SiteName};

    fn at(number: u32, round: u64) -> Ballot {
        let site = SiteId(1);
        let term = if number == 0 { Term::default() } else { Term { number, site } };
        Ballot { term, round, site }
    }

    fn entry(registry: &mut Registry) {
        let id = SiteId(registry.site_next);
        registry.site_next += 1;
        registry.sites.push(SiteEntry::new(id, SiteName::new(id.to_string()).unwrap()));
    }

    fn keyspace(registry: &mut Registry) {
        let id = KeyspaceId(registry.keyspace_next);
        registry.keyspace_next += 1;
        let name = format!("k{}", id.0);
        let spec = KeyspaceSpec::linearizable_global(name.clone(), format!("{name}:"));
        registry.keyspaces.push(Keyspace { id, spec });
    }

    fn registry() -> Registry {
        let mut registry = Registry::empty(DeploymentId(7), 1);
        registry.site_next = 1;
        (0..2).for_each(|_| entry(&mut registry));
        registry.version = at(0, 1);
        registry
    }

    fn recovered(registry: &Registry, number: u32) -> Registry {
        let mut next = registry.clone();
        next.recover(at(number, 0), registry);
        next.version = at(number, 0);
        next
    }

    #[test]
    fn a_site_that_may_hand_its_join_in_has_not_left() {
        let mut own = registry();
        entry(&mut own);
        own.sites.remove(0);
        assert!(own.has_left(SiteId(1)) && !own.has_left(SiteId(3)) && !own.has_left(SiteId(4)));
        let next = recovered(&own, 1);
        assert!(next.has_left(SiteId(1)));
        assert!(!next.has_left(SiteId(4)), "it may have joined at a site that was not asked");
        assert!(next.site_next > 4);
    }

    #[test]
    fn a_site_that_has_handed_its_join_in_and_left_has_left() {
        let first = registry();
        let mut own = first.clone();
        entry(&mut own);
        own.version = at(0, 2);
        let joined = own.sites[2].id;
        let mut next = recovered(&first, 1);
        let mut kept = Retained::default();
        own.keep(&next, &mut kept);
        next.hand_in(&kept);
        assert!(next.site(joined).is_some() && !next.has_left(joined));
        next.change(&RegistryChange::Remove(joined)).unwrap();
        assert!(next.has_left(joined), "what is frozen for it would wait for ever");
        // Another site has kept the same join.
        let mut again = Retained::default();
        own.keep(&next, &mut again);
        assert!(again.is_empty(), "it would be listed again: {again:?}");
        // As long as the end of that term is known.
        for number in 2..=limits::TERMS_BEGAN_MAX as u32 + 2 {
            next = recovered(&next, number);
            assert!(next.has_left(joined));
        }
        assert!(next.handed_in.is_empty());
    }

    #[test]
    fn a_copy_two_terms_behind_keeps_what_its_own_term_lost() {
        let first = registry();
        let mut own = first.clone();
        entry(&mut own);
        keyspace(&mut own);
        own.version = at(0, 2);
        let mut second = recovered(&first, 1);
        entry(&mut second);
        second.version = at(1, 1);
        let third = recovered(&second, 2);
        let mut kept = Retained::default();
        own.keep(&third, &mut kept);
        assert_eq!((&kept.joins, &kept.keyspaces), (&vec![own.sites[2].clone()], &own.keyspaces));
        // The same for a copy that is one term behind; a copy with nothing beyond the end of its
        // term keeps nothing.
        for (copy, has_any) in [(&own, true), (&first, false)] {
            let mut kept = Retained::default();
            copy.keep(&second, &mut kept);
            assert_eq!(!kept.is_empty(), has_any);
        }
        // Both recoveries continued from the same version, each without the other.
        let mut other = recovered(&first, 1);
        entry(&mut other);
        other.version = Ballot { term: Term { number: 1, site: SiteId(2) }, ..at(1, 1) };
        other.sites[2].id = SiteId(9_000);
        other.sites[2].name = SiteName::new("other").unwrap();
        let mut kept = Retained::default();
        other.keep(&second, &mut kept);
        assert_eq!(kept.joins, [other.sites[2].clone()]);
        let mut kept = Retained::default();
        second.keep(&third, &mut kept);
        assert!(kept.is_empty(), "{kept:?}");
    }

    #[test]
    fn what_only_another_recovery_went_on_from_is_kept() {
        let first = registry();
        let decided = |round| {
            let (opened, lost) = (at(0, round), SiteId(2));
            let (without, taken, returned) = (Vec::new(), Vec::new(), false);
            DecidedFailover { decided: at(0, round), opened, lost, without, taken, returned }
        };
        // Both were accepted, neither was chosen; two recoveries went on from one each.
        let with = |round| {
            let mut next = first.clone();
            next.version = at(0, round);
            next.failovers.decided.push(decided(round));
            next
        };
        let own = recovered(&with(2), 1);
        let mut next = recovered(&with(3), 1);
        next.version.term.site = SiteId(2);
        let mut kept = Retained::default();
        own.keep(&next, &mut kept);
        assert_eq!(kept.failovers, [decided(2)]);
    }

    #[test]
    fn a_failover_that_was_handed_in_stays_the_last_one_of_its_site() {
        let mut registry = registry();
        let decided = |lost, round| DecidedFailover {
            decided: at(0, round),
            opened: at(0, round - 1),
            lost,
            without: Vec::new(),
            taken: Vec::new(),
            returned: false,
        };
        let failovers = vec![decided(SiteId(2), 3), decided(SiteId(2), 5), decided(SiteId(99), 7)];
        registry.hand_in(&Retained { failovers, ..Retained::default() });
        for round in [3, 5, 7] {
            assert!(registry.failovers.forget(at(0, round)));
        }
        assert_eq!(registry.failovers.last_of(SiteId(2)), at(0, 5));
        assert_eq!(registry.failovers.last_of(SiteId(99)), Ballot::FIRST, "it is not listed");
    }

    #[test]
    fn what_was_handed_in_is_kept_when_a_further_recovery_lacks_it() {
        let first = registry();
        let mut beyond = first.clone();
        entry(&mut beyond);
        keyspace(&mut beyond);
        beyond.version = at(0, 2);
        let second = recovered(&first, 1);
        let mut kept = Retained::default();
        beyond.keep(&second, &mut kept);
        let mut own = second.clone();
        own.hand_in(&kept);
        own.version = at(1, 1);
        // It goes on from before that.
        let third = recovered(&second, 2);
        let mut again = Retained::default();
        own.keep(&third, &mut again);
        assert_eq!(again, kept);
        let mut third = recovered(&own, 2);
        third.sites.pop();
        let mut none = Retained::default();
        own.keep(&third, &mut none);
        assert!(none.is_empty(), "it was removed since: {none:?}");
    }

    #[test]
    fn a_term_begins_without_sites_that_may_never_have_been_chosen() {
        let first = registry();
        // One site has accepted this; the others may have chosen another site in its place.
        let mut accepted = first.clone();
        entry(&mut accepted);
        keyspace(&mut accepted);
        accepted.version = at(0, 2);
        let mut chosen = first.clone();
        entry(&mut chosen);
        chosen.sites[2].name = SiteName::new("other").unwrap();
        chosen.version = at(0, 3);
        let mut next = accepted.clone();
        next.recover(at(1, 0), &first);
        next.version = at(1, 0);
        assert_eq!((&next.sites, &next.keyspaces), (&first.sites, &Vec::new()));
        assert!(!next.has_left(SiteId(3)));
        for copy in [&chosen, &accepted] {
            let mut kept = Retained::default();
            copy.keep(&next, &mut kept);
            assert_eq!(kept.joins, [copy.sites[2].clone()], "whichever was chosen is handed in");
        }
        // A copy of the term before is enough to go on with what that term began with.
        let mut second = next.clone();
        entry(&mut second);
        second.version = at(1, 1);
        let mut third = second.clone();
        third.recover(at(2, 0), &first);
        assert_eq!(third.sites, first.sites);
        assert!(third.began[1].site_next > third.began[0].site_next);
    }

    #[test]
    fn a_term_begins_with_sites_that_were_handed_in_with_high_ids() {
        let first = registry();
        let mut own = first.clone();
        entry(&mut own);
        // Of a term that skipped more ids than this one.
        own.sites[2].id = SiteId(900_000_000);
        own.keyspaces.push(Keyspace {
            id: KeyspaceId(900_000_000),
            spec: KeyspaceSpec::linearizable_global("late", "late:"),
        });
        let kept = Retained { joins: vec![own.sites[2].clone()], ..Retained::default() };
        let kept = Retained { keyspaces: own.keyspaces.clone(), ..kept };
        let mut second = recovered(&first, 1);
        assert!(second.site_next < 900_000_000);
        second.hand_in(&kept);
        second.version = at(1, 1);
        let third = recovered(&second, 2);
        assert_eq!((&third.sites, &third.keyspaces), (&second.sites, &second.keyspaces));
        assert!(!third.has_left(SiteId(900_000_000)));
        // The proposer has no copy with them: they are handed in again.
        let mut third = second.clone();
        third.recover(at(2, 0), &recovered(&first, 1));
        third.version = at(2, 0);
        assert!(third.site(SiteId(900_000_000)).is_none());
        let mut again = Retained::default();
        second.keep(&third, &mut again);
        assert_eq!((again.joins, again.keyspaces), (kept.joins, kept.keyspaces));
    }

    #[test]
    fn terms_that_begin_from_one_version_assign_different_ids() {
        let first = registry();
        let begun = |number, site| {
            let term = Term { number, site: SiteId(site) };
            let mut next = first.clone();
            next.recover(Ballot { term, round: 0, site: SiteId(site) }, &first);
            (next.site_next, next.keyspace_next)
        };
        for (one, other) in [((1, 1), (1, 2)), ((1, 1), (2, 1)), ((1, 3), (2, 1))] {
            let (one, other) = (begun(one.0, one.1), begun(other.0, other.1));
            assert!(one.0.abs_diff(other.0) >= IDS_SKIPPED);
            assert!(one.1.abs_diff(other.1) >= IDS_SKIPPED);
        }
    }

    #[test]
    fn chains_of_recoveries_without_each_other_assign_different_ids() {
        let term = |number, site| Term { number, site: SiteId(site) };
        let chain = |terms: &[Term]| {
            let mut next = registry();
            for term in terms {
                let version = Ballot { term: *term, round: 0, site: term.site };
                let known = next.clone();
                next.recover(version, &known);
                next.version = version;
            }
            (next.site_next, next.keyspace_next)
        };
        // Sites 1 and 2 let each other out, as often as they like, and so does a site that joined
        // in one of their terms.
        let late = chain(&[term(1, 1)]).0;
        let chains = [
            vec![term(1, 1)],
            vec![term(1, 1), term(2, 1)],
            vec![term(3, 3)],
            vec![term(1, 1), term(3, 1)],
            vec![term(1, 2), term(2, 2), term(3, 2)],
            vec![term(2, 4_000)],
            vec![term(1, 1), term(2, late)],
            vec![term(1, 2), term(2, late + 1)],
            vec![term(500, 1)],
            vec![term(500, 2)],
        ];
        for (at, one) in chains.iter().enumerate() {
            for other in &chains[..at] {
                let (ids, others) = (chain(one), chain(other));
                assert!(ids.0.abs_diff(others.0) >= IDS_SKIPPED, "{one:?} {other:?} {ids:?}");
                assert!(ids.1.abs_diff(others.1) >= IDS_SKIPPED, "{one:?} {other:?} {ids:?}");
            }
        }
    }

    #[test]
    fn what_was_removed_before_the_end_of_its_term_is_not_handed_in() {
        // The recovering site has this.
        let first = registry();
        let mut joined = first.clone();
        entry(&mut joined);
        keyspace(&mut joined);
        joined.version = at(0, 2);
        // And has accepted this.
        let mut removed = joined.clone();
        removed.change(&RegistryChange::Remove(SiteId(3))).unwrap();
        removed.change(&RegistryChange::DropKeyspace("k1".into())).unwrap();
        entry(&mut removed);
        removed.version = at(0, 3);
        let mut next = removed.clone();
        next.recover(at(1, 0), &first);
        next.version = at(1, 0);
        let mut kept = Retained::default();
        joined.keep(&next, &mut kept);
        assert!(kept.is_empty(), "{kept:?}");
        // What the recovery dropped is handed in by those that know it chosen.
        removed.keep(&next, &mut kept);
        assert_eq!((&kept.joins[..], &kept.keyspaces[..]), (&removed.sites[2..], &[][..]));
    }

    #[test]
    fn a_site_that_is_handed_in_has_the_backups_that_were_chosen() {
        let first = registry();
        let mut own = first.clone();
        entry(&mut own);
        own.version = at(0, 2);
        let choose = |registry: &mut Registry, of, choice| {
            registry.change(&RegistryChange::Backup(SiteId(of), choice)).unwrap();
        };
        choose(&mut own, 3, BackupChoice::Off);
        choose(&mut own, 1, BackupChoice::At(SiteId(3)));
        choose(&mut own, 2, BackupChoice::At(SiteId(3)));
        // The recovering site has accepted it, and does not know it chosen.
        let mut next = own.clone();
        next.recover(at(1, 0), &first);
        next.version = at(1, 0);
        assert!(next.backups.is_empty());
        let mut kept = Retained::default();
        own.keep(&next, &mut kept);
        // Chosen since.
        choose(&mut next, 2, BackupChoice::At(SiteId(1)));
        next.has_kept(&mut kept);
        next.hand_in(&kept);
        let chosen = [1, 2, 3].map(|site| next.backups.choice(SiteId(site)));
        let at = |site| BackupChoice::At(SiteId(site));
        assert_eq!(chosen, [at(3), at(1), BackupChoice::Off]);
        next.has_kept(&mut kept);
        assert!(kept.is_empty(), "{kept:?}");
    }

    #[test]
    fn a_site_with_a_name_that_another_one_has_by_now_has_left() {
        let first = registry();
        let mut own = first.clone();
        entry(&mut own);
        own.version = at(0, 2);
        let mut next = recovered(&first, 1);
        entry(&mut next);
        next.sites[2].name = own.sites[2].name.clone();
        let joined = own.sites[2].id;
        let mut kept = Retained::default();
        own.keep(&next, &mut kept);
        assert_eq!(kept.joins.len(), 1);
        assert!(!next.has_left(joined), "it does not know it yet");
        next.hand_in(&kept);
        assert_eq!(next.sites.len(), 3);
        assert!(next.has_left(joined), "what is frozen for it would wait for ever");
        next.has_kept(&mut kept);
        assert!(kept.is_empty(), "{kept:?}");
    }

    #[test]
    fn a_term_that_an_earlier_build_began_has_skipped_what_that_build_skipped() {
        let mut next = registry();
        next.version = at(1, 0);
        let (site_next, keyspace_next) = (next.site_next, next.keyspace_next);
        next.began.push(TermBegan { after: at(0, 1), site_next, keyspace_next, ids: None });
        next.site_next += IDS_SKIPPED;
        next.keyspace_next += IDS_SKIPPED;
        entry(&mut next);
        let joined = next.sites[2].id;
        next.change(&RegistryChange::Remove(joined)).unwrap();
        assert!(next.has_left(joined), "what is frozen for it would wait for ever");
        assert!(!next.has_left(SiteId(joined.0 - 1)), "it may have joined at an excluded site");
        // The same of the next build, which skipped more: 1,024 for the site and each number.
        let mut next = registry();
        next.version = at(1, 0);
        next.began.push(TermBegan { after: at(0, 1), site_next, keyspace_next, ids: None });
        next.site_next += IDS_SKIPPED * 19;
        next.keyspace_next += IDS_SKIPPED * 19;
        assert!(!next.has_left(SiteId(next.site_next - 1)));
    }

    #[test]
    fn recoveries_without_end_go_on_with_higher_ids() {
        let mut last = registry();
        for number in (500..700).chain([u32::MAX]) {
            let next = recovered(&last, number);
            assert!(next.site_next >= last.site_next + IDS_SKIPPED);
            last = next;
        }
    }

    #[test]
    fn so_many_ends_of_terms_are_known_and_no_more() {
        let mut last = registry();
        for number in 1..=limits::TERMS_BEGAN_MAX as u32 + 3 {
            last = recovered(&last, number);
        }
        assert_eq!(last.began.len(), limits::TERMS_BEGAN_MAX);
        assert_eq!(last.began[0].after, at(3, 0));
    }
}
