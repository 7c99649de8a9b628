//! A slot and two groups of it at three sites, the registry, and what has gone wrong so far.
//!
//! The rules are the real ones (`protocol::global::ownership`). Writes go to the groups only: a bit
//! each. A site's copy of the registry is the count of decided failovers that it has, the open
//! failover, the backups and the sites that left; the version of a decision is its place among
//! them.

use model::{Ballot, Epoch, OpenFailover, SiteId, SlotCopy, Tag};
use protocol::global::ownership::lending::{Borrowed, Claim, Lent, Offer, Part, Row};
use protocol::global::ownership::lending::{Settled, TakenFrom};
use protocol::global::ownership::trial::Planted;
use protocol::global::ownership::{Fences, Found, Holding, Records, Token};

pub(crate) const SITES: usize = 3;
pub(crate) const ALL: u8 = 7;
pub(crate) const GROUPS: usize = 2;
/// One more than a search opens: the check of a state opens one.
pub(crate) const FAILOVERS_MAX: usize = 3;
pub(crate) const INSTALLS_MAX: usize = 3;
pub(crate) const OFFERS_MAX: usize = 8;

pub(crate) fn id(at: usize) -> SiteId {
    SiteId(at as u32 + 1)
}

pub(crate) fn place(site: SiteId) -> usize {
    site.0 as usize - 1
}

pub(crate) fn has(mask: u8, at: usize) -> bool {
    mask >> at & 1 == 1
}

/// Above every version of the registry.
const ANY: Ballot = Ballot { round: u64::MAX, ..Ballot::FIRST };

/// The version of the registry that decided a failover: the first, the second, … 0: none.
pub(crate) fn term(count: u8) -> Ballot {
    match count {
        0 => Ballot::FIRST,
        _ => Ballot { round: 100 + u64::from(count), ..Ballot::FIRST },
    }
}

/// The records of the slot: the writes to all groups, and their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) writes: u8,
    /// The count of changes. It begins anew with each epoch, within which alone it is compared.
    pub(crate) position: u64,
    rows: [Option<Row>; GROUPS],
    /// The count of loans.
    pub(crate) count: u64,
}

impl Slot {
    pub(crate) fn lent(&self, group: usize) -> Lent {
        Lent { row: self.rows[group], count: self.count }
    }

    pub(crate) fn set(&mut self, group: usize, lent: Lent) {
        (self.rows[group], self.count) = (lent.row, lent.count);
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Slot)) {
        let before = *self;
        change(self);
        self.position += u64::from(*self != before);
    }
}

/// An open failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Open {
    pub(crate) lost: u8,
    /// All sites that it fences.
    pub(crate) mask: u8,
    /// Which of all failovers that were opened.
    pub(crate) number: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    /// How many decided failovers it has learned of.
    pub(crate) known: u8,
    pub(crate) open: Option<Open>,
    pub(crate) backup: u8,
    pub(crate) left: u8,
    pub(crate) holding: Holding,
    /// The records of its own, if the slot is.
    pub(crate) own: Slot,
    /// Which stream to its backup.
    pub(crate) generation: u8,
    /// The records of its copy, if it has one.
    pub(crate) copied: Slot,
    pub(crate) parts: [Borrowed; GROUPS],
    /// The records of its parts.
    pub(crate) writes: u8,
}

impl Site {
    /// The tag of its stream.
    pub(crate) fn tag(&self) -> Tag {
        Tag { epoch: self.holding.token.epoch(), generation: self.generation.into() }
    }

    /// Begins an epoch as the slot's owner.
    pub(crate) fn begin(&mut self) {
        (self.own.position, self.generation) = (0, 0);
    }
}

/// The slot on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Install {
    pub(crate) epoch: Epoch,
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) slot: Slot,
}

/// A loan on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    pub(crate) group: u8,
    pub(crate) offer: Offer,
    pub(crate) writes: u8,
}

/// A decision that takes the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Decision {
    pub(crate) term: u8,
    pub(crate) taker: u8,
    pub(crate) from: (Epoch, u64),
    pub(crate) claims: [Option<Claim>; GROUPS],
}

/// What no site has: the registry, the counts of steps, and what must be true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Global {
    pub(crate) open: Option<Open>,
    /// The count of decided failovers, and of each: the failed site, all fenced sites, what it
    /// takes.
    pub(crate) decided: u8,
    pub(crate) failed: [u8; FAILOVERS_MAX],
    pub(crate) masks: [u8; FAILOVERS_MAX],
    pub(crate) decisions: [Option<Decision>; FAILOVERS_MAX],
    /// The inventories of the open failover.
    pub(crate) reported: u8,
    pub(crate) found: Found,
    pub(crate) claims: [Option<Claim>; GROUPS],
    /// The highest copy that an owner reported as safe.
    pub(crate) safe: Option<(Tag, u64)>,
    pub(crate) backups: [u8; SITES],
    pub(crate) left: u8,
    /// Which writes went to the second group.
    pub(crate) second: u8,
    pub(crate) changes: u8,
    pub(crate) leaves: u8,
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) failovers: u8,
    pub(crate) lends: u8,
    pub(crate) returns: u8,
    pub(crate) acknowledged: u8,
    /// Writes that a failover names as lost.
    pub(crate) lost: u8,
    /// Writes that one lost site must not take along.
    pub(crate) mirrored: u8,
    pub(crate) broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scene {
    pub(crate) sites: [Site; SITES],
    pub(crate) installs: [Option<Install>; INSTALLS_MAX],
    pub(crate) offers: [Option<Sent>; OFFERS_MAX],
    pub(crate) global: Global,
}

/// The rules as a site applies them.
pub(crate) struct Rules {
    pub(crate) planted: Planted,
    /// By the failed site and the mask.
    opens: Vec<OpenFailover>,
}

impl Global {
    /// The writes to a group.
    pub(crate) fn of(&self, group: usize) -> u8 {
        if group == 0 { !self.second } else { self.second }
    }

    /// The last failover of a site, by the registry that another one has.
    pub(crate) fn last_failover(&self, site: usize, by: &Site) -> Ballot {
        let known = by.known;
        if has(by.left, site) {
            return ANY;
        }
        let last = (0..usize::from(known)).rev().find(|f| usize::from(self.failed[*f]) == site);
        term(last.map_or(0, |f| f as u8 + 1))
    }
}

impl Scene {
    /// The first site owns the slot, and the second has its mirror.
    pub(crate) fn begin() -> Scene {
        let epoch = Epoch::counted(1);
        let mut first = Scene::default();
        first.global.backups = [1, 2, 0];
        for (at, site) in first.sites.iter_mut().enumerate() {
            site.holding.token = Token::Gone { epoch, to: id(0) };
            site.backup = first.global.backups[at];
        }
        first.sites[0].holding.token = Token::Held(epoch);
        let copy = SlotCopy { tag: Tag { epoch, generation: 0 }, origin: id(0), position: 0 };
        first.sites[1].holding.copy = Some(copy);
        first
    }

    /// Whether a failover that this site has not learned of names what it serves as lost.
    pub(crate) fn is_excused(&self, at: usize) -> bool {
        (usize::from(self.sites[at].known)..FAILOVERS_MAX).any(|f| has(self.global.masks[f], at))
    }

    pub(crate) fn has_news(&self, at: usize) -> bool {
        let (site, global) = (&self.sites[at], &self.global);
        let newest = (global.decided, global.open, global.backups[at], global.left);
        (site.known, site.open, site.backup, site.left) != newest
    }

    pub(crate) fn is_there(&self, at: usize) -> bool {
        !has(self.global.left, at)
    }

    pub(crate) fn mirror(&mut self, writes: u8) {
        self.global.mirrored |= writes & !self.global.lost;
    }

    pub(crate) fn close(&mut self) {
        let global = &mut self.global;
        global.open = None;
        (global.reported, global.found, global.claims) = (0, Found::default(), [None; GROUPS]);
    }

    pub(crate) fn suspend(&mut self, lost: usize, mask: u8) {
        self.global.failovers += 1;
        self.global.open = Some(Open { lost: lost as u8, mask, number: self.global.failovers });
    }

    /// Sends a loan, unless just that is on its way.
    pub(crate) fn send(&mut self, sent: Sent) {
        let is_there = |known: &Option<Sent>| {
            known.is_some_and(|known| (known.group, known.offer) == (sent.group, sent.offer))
        };
        if !self.offers.iter().any(is_there) {
            let free = self.offers.iter_mut().find(|known| known.is_none());
            *free.expect("there is room for every loan at every epoch") = Some(sent);
        }
    }
}

impl Rules {
    pub(crate) fn new(planted: Planted) -> Rules {
        let open = |lost: usize, mask: u8| OpenFailover {
            opened: term(1),
            lost: id(lost),
            without: (0..SITES).filter(|at| has(mask, *at) && *at != lost).map(id).collect(),
        };
        let opens = (0..SITES).flat_map(|lost| (0..=ALL).map(move |mask| open(lost, mask)));
        Rules { planted, opens: opens.collect() }
    }

    pub(crate) fn fences(&self, site: &Site, at: usize) -> Fences<'_> {
        let open = site.open.map(|open| {
            &self.opens[usize::from(open.lost) * (usize::from(ALL) + 1) + usize::from(open.mask)]
        });
        Fences::new(id(at), open, self.planted)
    }

    /// Whether one of two sites has a fence between them.
    pub(crate) fn parts(&self, x: &Scene, at: usize, to: usize) -> bool {
        self.fences(&x.sites[at], at).part_from(id(to))
            || self.fences(&x.sites[to], to).part_from(id(at))
    }

    /// Whether a site serves a group as the slot's owner, and as its borrower.
    pub(crate) fn serves(&self, x: &Scene, at: usize, group: usize) -> (bool, bool) {
        let site = &x.sites[at];
        let fences = self.fences(site, at);
        let lent = site.own.lent(group);
        (lent.is_served(site.holding.token, &fences), site.parts[group].is_served(&fences))
    }

    /// Does to the slot's records what its holding demands.
    pub(crate) fn keep(site: &mut Site, second: u8, records: Records) {
        match records {
            Records::Retain => site.copied = site.own,
            Records::Take => site.own = site.copied,
            Records::Drop | Records::Stay | Records::BeginEmpty | Records::Install => {}
        }
        Self::tidy(site, second);
    }

    /// Removes records that nothing holds. `second`: the writes to the second group.
    pub(crate) fn tidy(site: &mut Site, second: u8) {
        if !site.holding.token.is_own() {
            (site.own, site.generation) = (Slot::default(), 0);
        }
        if site.holding.copy.is_none() {
            site.copied = Slot::default();
        }
        for (part, of) in site.parts.iter_mut().zip([!second, second]) {
            if part.part == Part::Never {
                *part = Borrowed { loan: part.loan, ..Borrowed::default() };
                site.writes &= !of;
            }
        }
    }

    /// Settles the rows by the registry that the site itself has.
    pub(crate) fn settle(&self, x: &mut Scene, at: usize) {
        let global = x.global;
        let site = &mut x.sites[at];
        let by = *site;
        let failed = |other| global.last_failover(place(other), &by);
        let fences = self.fences(&by, at);
        for group in 0..GROUPS {
            let (mut lent, of) = (site.own.lent(group), global.of(group));
            let part = &mut site.parts[group];
            let joins = lent.settle(by.holding.token, part, failed, &fences) == Settled::Join;
            let writes = if joins { site.writes } else { site.own.writes };
            site.own.change(|own| {
                own.writes = own.writes & !of | writes & of;
                own.set(group, lent);
            });
        }
        Self::tidy(site, global.second);
    }

    /// A site takes the registry over.
    pub(crate) fn learn(&self, x: &mut Scene, at: usize) {
        let global = x.global;
        let site = &mut x.sites[at];
        let before = usize::from(site.known);
        let is_other = site.backup != global.backups[at];
        (site.open, site.known) = (global.open, global.decided);
        (site.backup, site.left) = (global.backups[at], global.left);
        site.generation += u8::from(is_other && site.holding.token.is_own());
        let fences = self.fences(site, at);
        for decision in global.decisions[before..].iter().flatten() {
            let decided = term(decision.term);
            site.parts.iter_mut().for_each(|part| part.taken(decided, &fences));
            if !Self::follow(site, at, (decision, global.second), &fences) {
                x.global.broken = Some("the taker has lost the copy that it reported");
            }
        }
        let failed = global.last_failover(at, site);
        site.parts.iter_mut().for_each(|part| part.failed(failed, &fences));
        Self::tidy(site, global.second);
        self.settle(x, at);
    }

    /// Follows a decision that takes the slot. Returns whether a taker has what it reported.
    fn follow(
        site: &mut Site,
        at: usize,
        (decision, second): (&Decision, u8),
        fences: &Fences<'_>,
    ) -> bool {
        let decided = Epoch::of_failover(term(decision.term));
        if site.holding.token.epoch() >= decided {
            return true;
        }
        let (token, copy) = (site.holding.token, site.holding.copy);
        let taker = usize::from(decision.taker);
        let records = site.holding.follow(decided, (id(taker), Some(decision.from)), fences);
        let copied = copy.filter(|_| records == Records::Take).map(|copy| copy.tag.epoch);
        let from = copied.unwrap_or(token.epoch());
        Self::keep(site, second, records);
        let takes = site.holding.token == Token::Held(decided);
        if takes {
            let from = TakenFrom { failover: from.failover, count: site.own.count };
            for (group, claim) in decision.claims.iter().enumerate() {
                let mut lent = site.own.lent(group);
                if let Some(claim) = claim {
                    lent.adopt(*claim, from, decided.failover, fences);
                }
                site.own.set(group, lent);
            }
            site.begin();
        }
        takes || taker != at
    }

    pub(crate) fn inventory(&self, x: &mut Scene, at: usize) {
        let Some(open) = x.global.open else { return };
        let site = &x.sites[at];
        let lost = id(open.lost.into());
        let fences = self.fences(site, at);
        let left = site.left;
        let report = site.holding.report(id(at), |to| to == lost || has(left, place(to)));
        let global = &mut x.global;
        global.reported |= 1 << at;
        global.found.add(id(at), &report, lost);
        for (known, part) in global.claims.iter_mut().zip(&site.parts) {
            *known = Claim::higher(*known, part.claim(&fences));
        }
    }

    pub(crate) fn decide(&self, x: &mut Scene) {
        let Some(open) = x.global.open else { return };
        let lost = usize::from(open.lost);
        let (taker, claims) = (x.global.found.taker(id(lost), self.planted), x.global.claims);
        x.close();
        let at = usize::from(x.global.decided);
        x.global.decided += 1;
        (x.global.masks[at], x.global.failed[at]) = (open.mask, open.lost);
        let (mirrored, named) = (x.global.mirrored, x.global.lost);
        if let Some((taker, copy)) = taker {
            let from = (copy.tag.epoch, copy.position);
            let slot = Self::taken(&x.sites[place(taker)], from.0);
            let had = |group: usize| {
                Self::had(x, group, &slot, from.0.failover, claims[group]) & x.global.of(group)
            };
            let had = had(0) | had(1);
            let (term, taker) = (x.global.decided, place(taker) as u8);
            x.global.decisions[at] = Some(Decision { term, taker, from, claims });
            x.global.mirrored &= slot.writes;
            x.global.lost |= x.global.acknowledged & !had;
        } else {
            (0..GROUPS).for_each(|group| Self::name_lent(x, group, lost));
        }
        let global = &mut x.global;
        if open.mask == 1 << lost && mirrored & global.lost & !named != 0 {
            global.broken = Some("a mirrored write is lost by one failed site");
        }
        global.mirrored &= !global.lost;
    }

    /// What the taker goes on from: the writes of its records, or of a borrower that these name or
    /// have not seen. Stated apart from the rule that is checked.
    fn had(x: &Scene, group: usize, slot: &Slot, copied: Ballot, claim: Option<Claim>) -> u8 {
        match Self::borrower(group, slot, copied, claim) {
            Some((at, true)) => x.sites[at].writes,
            _ => slot.writes,
        }
    }

    /// The borrower once the slot goes on from these records, and whether it has reported its part.
    fn borrower(
        group: usize,
        slot: &Slot,
        copied: Ballot,
        claim: Option<Claim>,
    ) -> Option<(usize, bool)> {
        let row = slot.rows[group];
        let is_claimed = |claim: &Claim| {
            row.is_some_and(|row| (row.loan, row.to) == (claim.loan, claim.to))
                || claim.confirmed > copied
                || claim.confirmed == copied && claim.loan.count > slot.count
        };
        match claim.filter(is_claimed) {
            Some(claim) => Some((place(claim.to), true)),
            None => row.map(|row| (place(row.to), false)),
        }
    }

    /// The records of the slot's owner, and the borrower by them. A taker may have to learn of that
    /// yet.
    fn served(x: &Scene, group: usize) -> Option<(Slot, Option<usize>)> {
        let own = x.sites.iter().filter(|site| site.holding.token.is_own());
        let owner = own.max_by_key(|site| site.holding.token.epoch());
        let last = x.global.decisions.iter().flatten().last();
        let waits = last.filter(|last| {
            let decided = Epoch::of_failover(term(last.term));
            x.sites[usize::from(last.taker)].holding.token.epoch() < decided
        });
        let Some(Decision { taker, from, claims, .. }) = waits else {
            return owner.map(|site| (site.own, site.own.rows[group].map(|row| place(row.to))));
        };
        let slot = Self::taken(&x.sites[usize::from(*taker)], from.0);
        let borrower = Self::borrower(group, &slot, from.0.failover, claims[group]);
        Some((slot, borrower.map(|(at, _)| at)))
    }

    /// What a taker goes on from, by the epoch of that.
    fn taken(site: &Site, from: Epoch) -> Slot {
        let is_own = site.holding.token.is_own() && site.holding.token.epoch() == from;
        if is_own { site.own } else { site.copied }
    }

    /// Names what only a failed borrower has of a group.
    fn name_lent(x: &mut Scene, group: usize, lost: usize) {
        let of = x.global.of(group);
        if let Some((slot, Some(borrower))) = Self::served(x, group)
            && borrower == lost
        {
            x.global.lost |= x.global.acknowledged & of & !slot.writes;
        }
        let others = (0..SITES).filter(|at| *at != lost).map(|at| &x.sites[at]);
        let elsewhere = others.fold(0, |all, site| all | site.own.writes | site.writes);
        x.global.lost |= x.sites[lost].writes & of & !elsewhere;
    }
}
