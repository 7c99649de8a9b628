//! What must hold in every state.

use super::scene::{Scene, bit, place};
use super::world::World;
use protocol::global::ownership::Token;

impl World {
    /// The first step by which these sites end a handover.
    fn goes_on(&self, scene: &Scene, up: &[usize]) -> Option<Scene> {
        let mut steps = Vec::new();
        for at in up {
            self.reclaim(scene, *at, &mut steps);
            if let Token::Frozen { epoch, to } = scene.sites[*at].holding.token
                && up.contains(&place(to))
            {
                self.end(scene, (*at, place(to)), epoch, &mut steps);
            }
        }
        if steps.is_empty() {
            self.installs(scene, &mut steps);
            steps.retain(|(_, (_, to, _))| up.contains(to));
        }
        steps.into_iter().next().map(|(next, _)| next)
    }

    /// What is wrong once some sites have come together, one of them being lost or none.
    fn heal(
        &self,
        scene: &Scene,
        lost: Option<usize>,
        must: u8,
        what: &'static str,
    ) -> Option<&'static str> {
        let mut scene = scene.clone();
        let up: Vec<usize> =
            (0..scene.sites.len()).filter(|at| scene.is_there(*at) && lost != Some(*at)).collect();
        if scene.global.chain.registry.failovers.open.is_some() {
            scene.global.close();
        }
        let all_learn = |scene: &mut Scene| {
            for _ in 0..2 {
                up.iter().for_each(|at| scene.learn(*at, self.planted));
            }
        };
        // Terms meet.
        all_learn(&mut scene);
        for at in &up {
            if !scene.sites[*at].kept.is_empty() {
                self.hand_in(&mut scene, *at);
            }
        }
        all_learn(&mut scene);
        if scene.global.removes {
            up.iter().for_each(|at| scene.returned(*at));
        }
        all_learn(&mut scene);
        if let Some(lost) = lost {
            scene.global.suspend(lost, bit(lost));
            all_learn(&mut scene);
            up.iter().for_each(|at| scene.inventory(*at));
            scene.decide(self.planted);
            all_learn(&mut scene);
        }
        for _ in 0..12 {
            let Some(next) = self.goes_on(&scene, &up) else { break };
            scene = next;
        }
        if scene.global.broken.is_some() {
            return scene.global.broken;
        }
        self.promote_an_empty_taker(&mut scene, &up);
        let must = must & !scene.global.named_lost;
        let mut serving = up.iter().filter(|at| scene.serves(**at));
        match (serving.next(), serving.next()) {
            // The loss took a slot of which no safe write existed.
            (None, _) if lost.is_some() && must == 0 => None,
            // It waits for the lost site, which is listed yet.
            (None, _) if lost.is_some() && up.iter().any(|at| scene.is_stranded(*at)) => None,
            (None, _) => Some(what),
            (Some(_), Some(_)) => Some("two sites serve after all have met"),
            (Some(at), None) if must & !scene.sites[*at].records != 0 => Some(match lost {
                Some(_) => "a mirrored write does not survive one loss",
                None => "an acknowledged write is not at the owner after all have met",
            }),
            _ => None,
        }
    }

    /// After a recovery the taker of a failover may lack what the decision names: it serves
    /// nothing, and is promoted itself.
    fn promote_an_empty_taker(&self, scene: &mut Scene, up: &[usize]) {
        let is_empty = |at: &&usize| matches!(scene.sites[**at].holding.token, Token::Gone { to, .. } if place(to) == **at);
        let Some(taker) = up.iter().find(is_empty).copied() else { return };
        if scene.global.recoveries == 0 || up.iter().any(|at| scene.serves(*at)) {
            return;
        }
        let others = || up.iter().copied().filter(|at| *at != taker);
        let lost = (0..scene.sites.len()).filter(|at| !up.contains(at));
        scene.global.suspend(taker, lost.fold(bit(taker), |mask, at| mask | bit(at)));
        others().for_each(|at| scene.learn(at, self.planted));
        others().for_each(|at| scene.inventory(at));
        scene.decide(self.planted);
        up.iter().for_each(|at| scene.learn(*at, self.planted));
    }

    pub(crate) fn fault_in(&self, scene: &Scene) -> Option<&'static str> {
        if scene.global.broken.is_some() {
            return scene.global.broken;
        }
        let must = scene.global.acknowledged & !scene.global.named_lost;
        let serving: Vec<usize> =
            (0..scene.sites.len()).filter(|at| scene.serves(*at) && !scene.is_stale(*at)).collect();
        if serving.iter().any(|at| must & !scene.sites[*at].records != 0) {
            return Some("an acknowledged write is not at the owner");
        }
        if serving.len() > 1 {
            return Some("two sites serve, and none is a stale owner that a failover names");
        }
        let acknowledged = scene.global.acknowledged;
        let fault = self.heal(scene, None, acknowledged, "no site serves when all are back");
        // A decision may be at one site only, until what a recovery has parted comes together.
        if !scene.has_met(0) {
            return fault;
        }
        let lose =
            |at: usize| self.heal(scene, Some(at), scene.global.mirrored, "no site can take over");
        fault.or_else(|| (0..scene.sites.len()).filter(|at| scene.is_there(*at)).find_map(lose))
    }
}
