//! Every step that can come next.
//!
//! Being away is taking no step. Offers and installs are kept for ever and come at any time, late
//! or again; every other message brings a fact that stays true.

use super::scene::{
    ALL, GROUPS, INSTALLS_MAX, Install, OFFERS_MAX, Rules, SITES, Scene, Sent, Site, has, id,
    place, term,
};
use model::{SiteId, SlotCopy};
use protocol::global::ownership::lending::{FromBorrower, Part};
use protocol::global::ownership::{Records, Token, leaving};

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) groups: usize,
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) failovers: u8,
    pub(crate) lends: u8,
    pub(crate) returns: u8,
    pub(crate) backups: u8,
    pub(crate) leaves: u8,
}

/// A step: its verb, its sites and its group, if it is of one.
pub(crate) type Name = (&'static str, usize, usize, Option<usize>);
type Emit<'a> = &'a mut dyn FnMut(Scene, Name);
type Next = Option<(Scene, Name)>;

impl Rules {
    pub(crate) fn steps(&self, x: &Scene, bounds: Bounds, emit: Emit<'_>) {
        for at in (0..SITES).filter(|at| x.is_there(*at)) {
            self.site_steps(x, at, bounds, emit);
            if let Some((y, name)) = self.reclaim(x, at) {
                emit(y, name);
            }
            for other in (0..SITES).filter(|other| *other != at && x.is_there(*other)) {
                self.slot_steps(x, (at, other), bounds, emit);
                for group in 0..bounds.groups {
                    self.owner_steps(x, (at, other), group, bounds, emit);
                    self.borrower_steps(x, (at, other), group, emit);
                }
                for (y, name) in self.heals(x, at, other) {
                    emit(y, name);
                }
            }
        }
        self.registry_steps(x, bounds, emit);
        self.arrivals(x, ALL, emit);
    }

    /// The steps that two sites take by themselves when all is well.
    pub(crate) fn heals(
        &self,
        x: &Scene,
        at: usize,
        other: usize,
    ) -> impl Iterator<Item = (Scene, Name)> {
        let slot = [Self::end_handover, Self::receive].into_iter();
        let slot = slot.filter_map(move |step| step(self, x, at, other));
        slot.chain((0..GROUPS).flat_map(move |group| {
            let steps = [Self::mind_row, Self::end_loan].into_iter();
            steps.filter_map(move |step| step(self, x, (at, other), group))
        }))
    }

    /// What is frozen for a site that has left is served again when no site owns it.
    pub(crate) fn reclaim(&self, x: &Scene, at: usize) -> Next {
        let site = &x.sites[at];
        let Token::Frozen { epoch, to } = site.holding.token else { return None };
        let has_left = |other: SiteId| has(site.left, place(other));
        let others = || (0..SITES).filter(|other| *other != at && !has_left(id(*other)));
        let all_know = others().all(|other| x.sites[other].left == site.left);
        if !has_left(to) || !all_know || site.open.is_some() {
            return None;
        }
        let reports = others().map(|other| x.sites[other].holding.report(id(other), has_left));
        let again = leaving::reclaims(id(at), epoch, reports, has_left, self.planted)?;
        let mut y = *x;
        if !y.sites[at].holding.reclaim(again, &self.fences(site, at)) {
            return None;
        }
        y.sites[at].begin();
        self.settle(&mut y, at);
        Some((y, ("reclaim", at, at, None)))
    }

    /// What is frozen is served again, or released, when its destination has refused or had it.
    fn end_handover(&self, x: &Scene, at: usize, to: usize) -> Next {
        let Token::Frozen { epoch, to: towards } = x.sites[at].holding.token else { return None };
        let target = &x.sites[to].holding;
        if towards != id(to) {
            return None;
        }
        let mut y = *x;
        let site = &mut y.sites[at];
        let fences = self.fences(site, at);
        if target.has_refused(epoch.next(), id(at)) {
            if !site.holding.resume(&fences) {
                return None;
            }
            site.begin();
            self.settle(&mut y, at);
            return Some((y, ("resume", at, to, None)));
        }
        if target.token.epoch() < epoch.next() {
            return None;
        }
        let records = site.holding.release(&fences);
        Self::keep(site, x.global.second, records);
        Some((y, ("release", at, to, None)))
    }

    /// A site learns of the slot's owner: any message may name it, by its sender's token.
    fn receive(&self, x: &Scene, at: usize, from: usize) -> Next {
        let (epoch, owner) = match x.sites[from].holding.token {
            Token::Held(epoch) => (epoch, id(from)),
            Token::Gone { epoch, to } => (epoch, to),
            _ => return None,
        };
        if epoch <= x.sites[at].holding.token.epoch() {
            return None;
        }
        let mut y = *x;
        let site = &mut y.sites[at];
        let records = site.holding.learn(epoch, owner, &self.fences(&x.sites[at], at));
        Self::keep(site, x.global.second, records);
        (y.sites[at] != x.sites[at]).then_some((y, ("hear", at, from, None)))
    }

    /// The owner offers what its row names, or removes a row that its borrower is past.
    fn mind_row(&self, x: &Scene, (at, to): (usize, usize), group: usize) -> Next {
        let (owner, other) = (&x.sites[at], &x.sites[to]);
        let (token, lent) = (owner.holding.token, owner.own.lent(group));
        let row = lent.row.filter(|row| row.to == id(to))?;
        let fences = self.fences(owner, at);
        let mut y = *x;
        let mut cleared = lent;
        if !self.parts(x, at, to) && cleared.clear(token, &other.parts[group], &fences) {
            y.sites[at].own.change(|own| own.set(group, cleared));
            return Some((y, ("clear", at, to, Some(group))));
        }
        if other.parts[group].loan >= row.loan {
            return None;
        }
        let offer = lent.offer(token, &fences)?;
        let writes = owner.own.writes & x.global.of(group);
        y.send(Sent { group: group as u8, offer, writes });
        (y != *x).then_some((y, ("offer", at, to, Some(group))))
    }

    fn from_borrower(site: &Site, at: usize, group: usize) -> FromBorrower {
        let (borrowed, slot) = (site.parts[group], site.holding.token.epoch());
        FromBorrower { site: id(at), borrowed, slot }
    }

    /// The borrower gives the group back, has its row confirmed, or ends its part.
    fn end_loan(&self, x: &Scene, (at, to): (usize, usize), group: usize) -> Next {
        let (borrower, owner) = (&x.sites[at], &x.sites[to]);
        let (message, of) = (Self::from_borrower(borrower, at, group), x.global.of(group));
        let (token, part) = (owner.holding.token, message.borrowed.part);
        let Token::Held(epoch) = token else { return None };
        if self.parts(x, at, to) || part == Part::Never {
            return None;
        }
        let fences = self.fences(owner, to);
        let mut y = *x;
        let mut lent = owner.own.lent(group);
        if lent.take_home(token, message, &fences) {
            let writes = borrower.writes & of;
            y.sites[to].own.change(|own| {
                own.writes = own.writes & !of | writes;
                own.set(group, lent);
            });
            if !x.is_excused(at) && !x.is_excused(to) {
                y.mirror(writes);
            }
            return Some((y, ("return", at, to, Some(group))));
        }
        let site = &mut y.sites[at];
        if part == Part::Unconfirmed && lent.may_stream(token, message, &fences) {
            site.parts[group].confirm(epoch);
            return Some((y, ("confirm", at, to, Some(group))));
        }
        if epoch < message.slot {
            return None;
        }
        let ends = site.parts[group].release((&lent, epoch), &self.fences(borrower, at));
        Self::tidy(site, x.global.second);
        ends.then_some((y, ("end", at, to, Some(group))))
    }

    fn site_steps(&self, x: &Scene, at: usize, bounds: Bounds, emit: Emit<'_>) {
        let site = &x.sites[at];
        if x.has_news(at) {
            let mut y = *x;
            self.learn(&mut y, at);
            emit(y, ("learn", at, at, None));
        }
        if let (Some(_), Some(safe)) = (site.holding.copy, x.global.safe) {
            let mut holding = site.holding;
            if holding.superseded(safe, &self.fences(site, at)) {
                let mut y = *x;
                y.sites[at].holding = holding;
                Self::tidy(&mut y.sites[at], x.global.second);
                emit(y, ("drop", at, at, None));
            }
        }
        if let Some(y) = self.leave(x, at, bounds) {
            emit(y, ("leave", at, at, None));
        }
        for group in 0..bounds.groups {
            if x.global.writes < bounds.writes {
                self.write(x, at, group, emit);
            }
            let mut part = site.parts[group];
            if x.global.returns < bounds.returns && part.give_back(&self.fences(site, at)) {
                let mut y = *x;
                y.global.returns += 1;
                y.sites[at].parts[group] = part;
                emit(y, ("give back", at, at, Some(group)));
            }
            self.forget(x, at, group, emit);
        }
    }

    fn write(&self, x: &Scene, at: usize, group: usize, emit: Emit<'_>) {
        let (home, lent) = self.serves(x, at, group);
        if !home && !lent {
            return;
        }
        let write = 1 << x.global.writes;
        let mut y = *x;
        y.global.writes += 1;
        y.global.acknowledged |= write;
        y.global.second |= if group == 1 { write } else { 0 };
        if x.is_excused(at) {
            y.global.lost |= write;
        }
        if home {
            let mut y = y;
            y.sites[at].own.change(|own| own.writes |= write);
            emit(y, ("write home", at, at, Some(group)));
        }
        if lent {
            y.sites[at].writes |= write;
            emit(y, ("write lent", at, at, Some(group)));
        }
    }

    /// A site drops what it has given back once the owner's mirror is beyond it.
    fn forget(&self, x: &Scene, at: usize, group: usize, emit: Emit<'_>) {
        let site = &x.sites[at];
        for of in (0..SITES).filter(|of| x.is_there(*of)) {
            let owner = &x.sites[of];
            let Token::Held(epoch) = owner.holding.token else { continue };
            let is_apart = of != at && self.parts(x, at, of);
            if is_apart || epoch < site.holding.token.epoch() {
                continue;
            }
            let mirror = &x.sites[usize::from(owner.backup)];
            let is_complete = mirror
                .holding
                .copy
                .is_some_and(|copy| copy.tag == owner.tag() && copy.origin == id(of));
            let (copied, loan) = (&mirror.copied, site.parts[group].loan);
            let writes = site.writes & x.global.of(group);
            let is_beyond = copied.count > loan.count
                || copied.count == loan.count && writes & !copied.writes == 0;
            let is_safe = is_complete && is_beyond && !copied.lent(group).is(loan, id(at));
            let mut part = site.parts[group];
            if part.forget(&owner.own.lent(group), is_safe, &self.fences(site, at)) {
                let mut y = *x;
                y.sites[at].parts[group] = part;
                Self::tidy(&mut y.sites[at], x.global.second);
                emit(y, ("forget", at, of, Some(group)));
            }
        }
    }

    /// A site leaves, with the slot's copies and all parts at others.
    fn leave(&self, x: &Scene, at: usize, bounds: Bounds) -> Option<Scene> {
        let site = &x.sites[at];
        let may = x.global.leaves < bounds.leaves
            && x.global.open.is_none()
            && !x.has_news(at)
            && site.parts.iter().all(|part| part.may_leave(self.planted));
        if !may {
            return None;
        }
        let others = (0..SITES).filter(|other| *other != at && x.is_there(*other));
        let others: Vec<_> = others.map(|other| (id(other), x.sites[other].holding)).collect();
        // Those that can be reached.
        let may = |mask: u8| {
            let reached = others.iter().filter(|(other, _)| has(mask, place(*other))).copied();
            let reached: Vec<_> = reached.collect();
            !reached.is_empty() && leaving::may_leave(id(at), &site.holding, &reached, self.planted)
        };
        if !(1..=ALL).any(may) {
            return None;
        }
        let mut y = *x;
        y.global.leaves += 1;
        y.global.left |= 1 << at;
        for of in 0..SITES {
            if usize::from(y.global.backups[of]) == at {
                let backup = (0..SITES).find(|one| *one != of && y.is_there(*one)).unwrap_or(of);
                y.global.backups[of] = backup as u8;
            }
        }
        y.sites[at] = Site { left: y.global.left, ..Site::default() };
        Some(y)
    }

    fn slot_steps(&self, x: &Scene, (at, to): (usize, usize), bounds: Bounds, emit: Emit<'_>) {
        let (source, target) = (&x.sites[at], &x.sites[to]);
        let fences = self.fences(source, at);
        match source.holding.token {
            Token::Held(epoch) => {
                let mut y = *x;
                let is_due = x.global.moves < bounds.moves;
                if is_due && y.sites[at].holding.freeze(id(to), &fences) {
                    y.global.moves += 1;
                    let (epoch, from, slot) = (epoch.next(), at as u8, source.own);
                    let free = y.installs.iter_mut().find(|install| install.is_none());
                    *free.expect("there is room for every move") =
                        Some(Install { epoch, from, to: to as u8, slot });
                    emit(y, ("freeze", at, to, None));
                }
                if to == usize::from(source.backup) && !fences.part_from(id(to)) {
                    self.sync(x, (at, to), emit);
                }
            }
            Token::Frozen { epoch, to: towards } if towards == id(to) => {
                let mut y = *x;
                let next = epoch.next();
                let refuses = !fences.part_from(id(to))
                    && y.sites[to].holding.refuse(next, id(at), &self.fences(target, to));
                if refuses {
                    emit(y, ("refuse", to, at, None));
                }
            }
            _ => {}
        }
    }

    /// The owner's mirror reaches what the owner has.
    fn sync(&self, x: &Scene, (at, to): (usize, usize), emit: Emit<'_>) {
        let (source, target) = (&x.sites[at], &x.sites[to]);
        let tag = source.tag();
        let fences = self.fences(target, to);
        if !target.holding.may_be_fed(tag, id(at), &fences) {
            return;
        }
        let mut y = *x;
        let site = &mut y.sites[to];
        let records = site.holding.fed(tag, id(at), &fences);
        Self::keep(site, x.global.second, records);
        let position = source.own.position;
        site.holding.completed(SlotCopy { tag, origin: id(at), position });
        site.copied = source.own;
        if !x.is_excused(at) {
            y.mirror(source.own.writes);
        }
        // A fact that stays true, and may arrive at any time.
        y.global.safe = y.global.safe.max(Some((tag, position)));
        if y != *x {
            emit(y, ("sync", at, to, None));
        }
    }

    fn owner_steps(
        &self,
        x: &Scene,
        (at, to): (usize, usize),
        group: usize,
        bounds: Bounds,
        emit: Emit<'_>,
    ) {
        let (owner, other) = (&x.sites[at], &x.sites[to]);
        let token = owner.holding.token;
        let fences = self.fences(owner, at);
        let mut lent = owner.own.lent(group);
        if x.global.lends < bounds.lends
            && let Some(offer) = lent.lend(token, id(to), term(owner.known), &fences)
        {
            let mut y = *x;
            y.global.lends += 1;
            y.sites[at].own.change(|own| own.set(group, lent));
            y.send(Sent {
                group: group as u8,
                offer,
                writes: owner.own.writes & x.global.of(group),
            });
            emit(y, ("lend", at, to, Some(group)));
        }
        let row = owner.own.lent(group).row;
        let Some(row) = row.filter(|row| row.to == id(to)) else { return };
        let may = matches!(token, Token::Held(_)) && !self.parts(x, at, to);
        let mut y = *x;
        let part = &mut y.sites[to].parts[group];
        if may && part.refuse(row.loan, id(at), &self.fences(other, to)) {
            emit(y, ("refuse loan", to, at, Some(group)));
        }
    }

    fn borrower_steps(&self, x: &Scene, (at, to): (usize, usize), group: usize, emit: Emit<'_>) {
        let (borrower, owner) = (&x.sites[at], &x.sites[to]);
        let message = Self::from_borrower(borrower, at, group);
        let (token, lent) = (owner.holding.token, owner.own.lent(group));
        let may = message.borrowed.part == Part::Held
            && !self.parts(x, at, to)
            && lent.may_stream(token, message, &self.fences(owner, to));
        if !may {
            return;
        }
        let (mut y, writes) = (*x, borrower.writes & x.global.of(group));
        y.sites[to].own.change(|own| own.writes |= writes);
        y.sites[at].parts[group].confirm(token.epoch());
        if !x.is_excused(at) && !x.is_excused(to) {
            y.mirror(writes);
        }
        if y != *x {
            emit(y, ("stream", at, to, Some(group)));
        }
    }

    fn registry_steps(&self, x: &Scene, bounds: Bounds, emit: Emit<'_>) {
        let left = x.global.left;
        for at in (0..SITES).filter(|at| x.global.changes < bounds.backups && !has(left, *at)) {
            let is_other = |to: &usize| *to != at && usize::from(x.global.backups[at]) != *to;
            for to in (0..SITES).filter(|to| is_other(to) && !has(left, *to)) {
                let mut y = *x;
                y.global.changes += 1;
                y.global.backups[at] = to as u8;
                emit(y, ("backup", at, to, None));
            }
        }
        let Some(open) = x.global.open else {
            let may = |at: &usize| x.global.failovers < bounds.failovers && !has(left, *at);
            for lost in (0..SITES).filter(may) {
                for mask in (1..ALL).filter(|mask| has(*mask, lost) && mask & left == 0) {
                    if mask | left != ALL {
                        let mut y = *x;
                        y.suspend(lost, mask);
                        emit(y, ("suspend", lost, mask.into(), None));
                    }
                }
            }
            return;
        };
        let mut y = *x;
        y.close();
        emit(y, ("close", 0, 0, None));
        let done = open.mask | x.global.reported | left;
        for at in (0..SITES).filter(|at| !has(done, *at)) {
            if x.sites[at].open == Some(open) {
                let mut y = *x;
                self.inventory(&mut y, at);
                emit(y, ("inventory", at, at, None));
            }
        }
        if done == ALL {
            let mut y = *x;
            self.decide(&mut y);
            emit(y, ("decide", 0, 0, None));
        }
    }

    /// What is on its way arrives, at one of these sites.
    pub(crate) fn arrivals(&self, x: &Scene, up: u8, emit: Emit<'_>) {
        for at in 0..INSTALLS_MAX {
            let Some(install) = x.installs[at] else { continue };
            let (from, to) = (usize::from(install.from), usize::from(install.to));
            if !has(up, to) || !x.is_there(to) || !x.is_there(from) {
                continue;
            }
            let fences = self.fences(&x.sites[to], to);
            let mut holding = x.sites[to].holding;
            if holding.install(install.epoch, id(from), &fences).is_none() {
                continue;
            }
            let mut y = *x;
            let site = &mut y.sites[to];
            (site.holding, site.own) = (holding, install.slot);
            site.begin();
            Self::keep(site, x.global.second, Records::Install);
            self.settle(&mut y, to);
            let last = x.global.decisions.iter().flatten().last();
            if last.is_none_or(|last| install.epoch.failover >= term(last.term)) {
                y.mirror(install.slot.writes);
            }
            emit(y, ("install", to, from, None));
        }
        for at in 0..OFFERS_MAX {
            let Some(Sent { group, offer, writes }) = x.offers[at] else { continue };
            let (from, to) = (place(offer.from), place(offer.row.to));
            let site = &x.sites[to];
            let failed = x.global.last_failover(to, site);
            let group = usize::from(group);
            let (token, of) = (site.holding.token, x.global.of(group));
            let mut part = site.parts[group];
            let takes = has(up, to)
                && x.is_there(to)
                && part.install(offer, token, failed, &self.fences(site, to));
            if takes {
                let mut y = *x;
                y.sites[to].parts[group] = part;
                y.sites[to].writes = site.writes & !of | writes;
                if !x.is_excused(to) && !x.is_excused(from) {
                    y.mirror(writes);
                }
                emit(y, ("install loan", to, from, Some(group)));
            }
        }
    }
}
