//! A registry that goes on without a majority of its registrars, and what sites hand in afterwards.
//!
//! What only the sites that were done without have chosen is not in the new term. When they learn of it
//! they keep the decisions and joins beyond the end of their term, and hand them in, unchanged.

use crate::{Ballot, IDS_SKIPPED, Keyspace, Promotion, RegistrarSet, Registry, SiteEntry, SiteId};

/// What the term of a registry went on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermBegan {
    /// The last version of the term before that is in it.
    pub after: Ballot,
    /// Sites with this id or a higher one joined beyond it.
    pub site_next: u32,
    /// Keyspaces with this id or a higher one were made beyond it.
    pub keyspace_next: u32,
}

/// What a site has to hand in: what was chosen in its term beyond that term's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Sites that joined.
    pub joins: Vec<SiteEntry>,
    /// Keyspaces that were made.
    pub keyspaces: Vec<Keyspace>,
    /// What was promoted.
    pub promotions: Vec<Promotion>,
}

impl Kept {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Kept::default()
    }
}

impl Registry {
    /// Goes on in a new term, without some sites.
    pub fn recover(&mut self, _without: &[SiteId]) {
        self.began = Some(TermBegan {
            after: self.version,
            site_next: self.site_next,
            keyspace_next: self.keyspace_next,
        });
        // The sites that are done without may have given ids that nobody here knows of.
        self.site_next = self.site_next.saturating_add(IDS_SKIPPED);
        self.keyspace_next = self.keyspace_next.saturating_add(IDS_SKIPPED);
        self.changes += u64::from(IDS_SKIPPED);
    }

    /// The registrars, of sites that answered a recovery: those that are ones already come first.
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

    /// What a site whose copy this was has to hand in, now that it takes over a copy of another term.
    pub fn keep(&self, next: &Registry, kept: &mut Kept) {
        let beyond = next.began.filter(|began| self.version > began.after);
        let Some(began) = beyond else { return };
        let joined = self.sites.iter().filter(|site| site.id.0 >= began.site_next);
        kept.joins.extend(joined.cloned());
        let made = self.keyspaces.iter().filter(|one| one.id.0 >= began.keyspace_next);
        kept.keyspaces.extend(made.cloned());
        let lost = |one: &&Promotion| next.backups.promotion(one.lost).is_none();
        kept.promotions.extend(self.backups.promotions.iter().filter(lost).cloned());
        self.dedup(kept);
        next.has_kept(kept);
    }

    fn dedup(&self, kept: &mut Kept) {
        kept.joins.sort_by_key(|site| site.id);
        kept.joins.dedup_by_key(|site| site.id);
        kept.keyspaces.sort_by_key(|keyspace| keyspace.id);
        kept.keyspaces.dedup_by_key(|keyspace| keyspace.id);
        kept.promotions.sort_by_key(|one| (one.lost, one.number));
        kept.promotions.dedup_by_key(|one| (one.lost, one.number));
    }

    /// Removes what is here already, and what cannot be any more: its name is another one's.
    pub fn has_kept(&self, kept: &mut Kept) {
        kept.joins.retain(|one| {
            self.site(one.id).is_none() && self.site_named(one.name.as_str()).is_none()
        });
        kept.keyspaces.retain(|one| {
            let is_same = |there: &&Keyspace| {
                there.id == one.id
                    || there.spec.name == one.spec.name
                    || there.spec.prefix == one.spec.prefix
            };
            !self.keyspaces.iter().any(|there| is_same(&there))
        });
        kept.promotions.retain(|one| {
            self.site(one.lost).is_some() && self.backups.promotion(one.lost).is_none()
        });
    }

    /// Adds what another term had and this one lacks.
    pub fn hand_in(&mut self, kept: &Kept) {
        self.sites.extend(kept.joins.iter().cloned());
        self.sites.sort_by_key(|site| site.id);
        self.keyspaces.extend(kept.keyspaces.iter().cloned());
        self.keyspaces.sort_by_key(|keyspace| keyspace.id);
        for promotion in &kept.promotions {
            self.backups.promote(promotion.clone());
        }
        self.changes += 1;
    }
}

/// The registry, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryView {
    /// The version that the asked site has.
    pub version: Ballot,
    /// How many changes it has seen.
    pub changes: u64,
    /// The sites that hold it.
    pub registrars: Vec<RegistrarView>,
    /// Changes that wait at the asked site.
    pub waiting: u32,
    /// What the asked site has to hand in of another term.
    pub to_hand_in: u32,
    /// Sites that are not named and do not answer.
    pub silent: Vec<SiteId>,
    /// Sites that are to be done without and answer.
    pub answering: Vec<SiteId>,
    /// Whether enough registrars answer to change it.
    pub has_majority: bool,
    /// Whether a recovery was done.
    pub recovered: bool,
}

/// A site that holds the registry, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrarView {
    /// Which.
    pub site: SiteId,
    /// Whether it answers.
    pub answers: bool,
}
