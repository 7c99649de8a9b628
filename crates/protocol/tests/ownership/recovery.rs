//! A recovery of the registry: some sites begin a new term of it, and the others may go on in the
//! one before.

use super::scene::{Chain, Global, Registry, Scene, bit, has, id};
use super::world::{OF_ENDED, Verb, World};
use model::{Ballot, Term};
use std::rc::Rc;

/// The first version of the term that a recovery begins.
fn recovered(by: usize) -> Ballot {
    Ballot { term: Term { number: 1, site: id(by) }, round: 1, site: id(by) }
}

impl Global {
    /// Exchanges the terms: what comes next is of the one that a recovery ended. `None`: there is
    /// none.
    fn exchanged(mut self) -> Option<Global> {
        let (ended, promised) = (*self.ended?).clone();
        self.ended = Some(Rc::new((std::mem::replace(&mut self.chain, ended), promised)));
        self.truth.reverse();
        Some(self)
    }
}

impl Scene {
    /// Whether a site has not heard of the recovery.
    pub(crate) fn is_behind(&self, at: usize) -> bool {
        self.sites[at].registry.version.term != self.newest().version.term
    }

    /// Whether all sites but these are in one term, and have handed in what they had of the one
    /// before.
    pub(crate) fn has_met(&self, without: u8) -> bool {
        let away = without | self.global.chain.registry.left;
        let mut listed = (0..self.sites.len()).filter(|at| !has(away, *at));
        listed.all(|at| !self.is_behind(at) && self.sites[at].kept.is_empty())
    }

    /// The registry of the newest term.
    fn newest(&self) -> &Rc<Registry> {
        let other = self.global.ended.as_ref().map(|ended| &ended.0.registry);
        let own = &self.global.chain.registry;
        other.filter(|other| other.version > own.version).unwrap_or(own)
    }

    /// Some sites, which hear nothing of the others, begin a new term of the registry. It goes on
    /// from the latest version that one of them has, or has accepted.
    pub(crate) fn recover(&mut self, mask: u8, has_accepted: bool) {
        let by = (0..self.sites.len()).find(|at| has(mask, *at)).expect("there is one");
        let latest = (0..self.sites.len()).filter(|at| has(mask, *at));
        let latest = latest.map(|at| &self.sites[at].registry).max_by_key(|copied| copied.version);
        let latest = latest.expect("there is one").clone();
        let registry = self.global.chain.registry.clone();
        let mut next = (*registry).clone();
        if !has_accepted {
            next.failovers.decided.clone_from(&latest.decided);
            next.version = latest.version;
        }
        let (base, version) = (next.version, recovered(by));
        (next.version, next.base, next.failovers.open) = (version, Some(base), None);
        next.brought = next.failovers.decided.iter().map(|one| (one.decided, version)).collect();
        let ended = std::mem::replace(&mut self.global.chain, Chain::of(Rc::new(next)));
        self.global.ended = Some(Rc::new((ended, mask)));
        self.global.truth.reverse();
        self.global.recoveries += 1;
    }
}

impl World {
    /// Some sites begin a new term, and those that have not heard of it go on in the one before.
    pub(crate) fn steps_of_recovery(
        &self,
        scene: &Scene,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let (sites, majority) = (scene.sites.len(), scene.sites.len() as u32 / 2 + 1);
        if scene.global.recoveries < self.bounds.recoveries {
            let current = scene.global.chain.registry.version;
            for mask in 1..bit(sites) - 1 {
                let mut recover = |has_accepted: bool, verb: Verb| {
                    let mut next = scene.clone();
                    next.recover(mask, has_accepted);
                    out.push((next, (verb, 0, mask.into())));
                };
                let mut there = (0..sites).filter(|at| has(mask, *at));
                let is_latest = there.any(|at| scene.sites[at].registry.version == current);
                // A majority has accepted what was chosen.
                if is_latest || mask.count_ones() < majority {
                    recover(false, Verb::Recover);
                }
                if !is_latest {
                    recover(true, Verb::RecoverAccepted);
                }
            }
        }
        for at in (0..sites).filter(|at| !scene.sites[*at].kept.is_empty()) {
            let mut next = scene.clone();
            self.hand_in(&mut next, at);
            out.push((next, (Verb::HandIn, at, 0)));
        }
        let Some(promised) = scene.global.ended.as_ref().map(|ended| ended.1) else { return };
        let Some(global) = scene.global.clone().exchanged() else { return };
        let before = Scene { global, ..scene.clone() };
        let behind: Vec<usize> = (0..sites).filter(|at| before.is_behind(*at)).collect();
        let mut steps = Vec::new();
        for at in &behind {
            if before.sites[*at].registry.version < before.global.chain.registry.version {
                let mut next = before.clone();
                next.learn(*at, self.planted);
                steps.push((next, (Verb::Learn, *at, 0)));
            }
        }
        if behind.iter().filter(|at| !has(promised, **at)).count() as u32 >= majority {
            self.steps_of_registry(&before, &mut steps);
        }
        for (mut next, (verb, one, other)) in steps {
            next.global = next.global.exchanged().expect("there are two terms");
            out.push((next, (verb, one + OF_ENDED, other)));
        }
    }

    /// A site hands in what it has of the term before.
    pub(crate) fn hand_in(&self, scene: &mut Scene, at: usize) {
        let kept = std::mem::take(&mut scene.sites[at].kept);
        if !self.hands_in_nothing {
            scene.global.change(|registry, version| registry.bring(version, &kept));
        }
    }
}
