//! What holds in every state.

use super::scene::{ALL, FAILOVERS_MAX, GROUPS, Rules, SITES, Scene, has, place};
use protocol::global::ownership::Token;

impl Rules {
    /// What is wrong with a state.
    pub(crate) fn fault(&self, x: &Scene) -> Option<&'static str> {
        if x.global.broken.is_some() {
            return x.global.broken;
        }
        for group in 0..GROUPS {
            let owed = x.global.acknowledged & !x.global.lost & x.global.of(group);
            let mut serving = 0;
            for at in (0..SITES).filter(|at| !x.is_excused(*at)) {
                let (home, lent) = self.serves(x, at, group);
                for (serves, has) in [(home, x.sites[at].own.writes), (lent, x.sites[at].writes)] {
                    serving += u8::from(serves);
                    if serves && owed & !has != 0 {
                        return Some("an acknowledged write is not where the group is served");
                    }
                }
            }
            if serving > 1 {
                return Some("two sites serve the group, and no failover names one");
            }
        }
        let mut found = self.meet(*x, None);
        let has_room = usize::from(x.global.failovers) < FAILOVERS_MAX;
        for lost in (0..SITES).filter(|lost| has_room && x.is_there(*lost)) {
            found = found.or_else(|| self.meet(*x, Some(lost)));
        }
        found
    }

    /// All sites come together, or all but one, which the others fail over.
    fn meet(&self, mut x: Scene, lost: Option<usize>) -> Option<&'static str> {
        let up = ALL & !x.global.left & !lost.map_or(0, |lost| 1 << lost);
        let sites = || (0..SITES).filter(|at| has(up, *at));
        let must = if lost.is_some() { x.global.mirrored } else { x.global.acknowledged };
        if x.global.open.is_some() {
            x.close();
        }
        sites().for_each(|at| self.learn(&mut x, at));
        if let Some(lost) = lost {
            x.suspend(lost, 1 << lost);
            sites().for_each(|at| self.learn(&mut x, at));
            sites().for_each(|at| self.inventory(&mut x, at));
            self.decide(&mut x);
            sites().for_each(|at| self.learn(&mut x, at));
        }
        let mut rounds = 0;
        while let Some(next) = self.heal(&x, up) {
            (x, rounds) = (next, rounds + 1);
            if rounds > 30 {
                return Some("sites that meet do not come to rest");
            }
        }
        if x.global.broken.is_some() {
            return x.global.broken;
        }
        (0..GROUPS).find_map(|group| self.is_served(&x, (up, group), must, lost))
    }

    /// Whether one of these sites serves a group, with all that it must have.
    fn is_served(
        &self,
        x: &Scene,
        (up, group): (u8, usize),
        must: u8,
        lost: Option<usize>,
    ) -> Option<&'static str> {
        let mut serving = Vec::new();
        for at in (0..SITES).filter(|at| has(up, *at)) {
            let (home, lent) = self.serves(x, at, group);
            serving.extend(home.then_some(x.sites[at].own.writes));
            serving.extend(lent.then_some(x.sites[at].writes));
        }
        let owed = must & !x.global.lost & x.global.of(group);
        // It waits for the lost site, which is listed yet.
        let is_stranded = |at: usize| {
            let token = x.sites[at].holding.token;
            has(up, at) && matches!(token, Token::Frozen { to, .. } if !x.is_there(place(to)))
        };
        match (serving.as_slice(), lost) {
            ([], Some(_)) if owed == 0 || (0..SITES).any(is_stranded) => None,
            ([], Some(_)) => Some("no site can take over"),
            ([], None) => Some("no site serves when all are back"),
            ([has], _) if owed & !has == 0 => None,
            ([_], Some(_)) => Some("a mirrored write does not survive the loss of one site"),
            ([_], None) => Some("an acknowledged write is gone when all are back"),
            _ => Some("two sites serve when all are back"),
        }
    }

    /// The first step that these sites take by themselves.
    fn heal(&self, x: &Scene, up: u8) -> Option<Scene> {
        let sites = || (0..SITES).filter(|at| has(up, *at));
        for at in sites() {
            if let Some((next, _)) = self.reclaim(x, at) {
                return Some(next);
            }
            for other in sites().filter(|other| *other != at) {
                if let Some((next, _)) = self.heals(x, at, other).next() {
                    return Some(next);
                }
            }
        }
        let mut found = None;
        self.arrivals(x, up, &mut |next, _| found = found.or(Some(next)));
        found
    }
}
