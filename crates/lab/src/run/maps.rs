//! After all faults: slots come to rest, and once none moves any more, every node's map soon has
//! the owners of all of them.

use std::time::Duration;

use model::{SiteId, Slot};
use protocol::global::map::{Fact, Facts, SlotMap, Source, runs_of};

use super::Run;
use super::form::TIMEOUT;

/// How soon after the last move all nodes are right.
const RIGHT_WITHIN: Duration = Duration::from_secs(5);
/// How soon after all faults the last move ends: twice as long as other things take, as the last
/// sites that came or went may only then have begun their moves.
const REST_WITHIN: Duration = TIMEOUT.saturating_mul(2);
/// How often that is looked at.
const STEP: Duration = Duration::from_millis(500);

impl Run<'_> {
    /// Waits until slots have come to rest, and then as long as maps may be wrong.
    pub(super) fn look_at_maps(&mut self) {
        if !self.is_deployment() {
            return;
        }
        let until = self.lab.now() + REST_WITHIN;
        let mut rests: Option<(u64, Duration)> = None;
        let mut under_way = String::new();
        // What has come to rest in time is judged to its end.
        while self.lab.now() < until || rests.is_some_and(|(_, since)| since < until) {
            if self.failed() {
                return;
            }
            match self.owners_at_rest() {
                Err(why) => (rests, under_way) = (None, why),
                Ok(owners) => {
                    "owners change".clone_into(&mut under_way);
                    let Some(wrong) = self.wrong_map(&owners) else { return };
                    let now = self.lab.now();
                    let digest = owners.digest();
                    let before = rests.filter(|(rested, _)| *rested == digest);
                    let (_, since) = *rests.insert(before.unwrap_or((digest, now)));
                    if since + RIGHT_WITHIN <= now {
                        let after = (now - since).as_secs_f64();
                        return self.fail(format!("{wrong}, {after:.1} s after the last move"));
                    }
                }
            }
            self.pass(STEP);
        }
        if !self.failed() {
            self.fail(format!("slots do not come to rest: {under_way}"));
        }
    }

    /// The owner of each slot, as the owners themselves report it.
    ///
    /// # Errors
    /// What is under way.
    fn owners_at_rest(&self) -> Result<Facts, String> {
        let mut owners = SlotMap::default();
        for site in self.sites_inside() {
            let label = || self.lab.label(site);
            let Some(leader) = self.lab.leader(site) else {
                return Err(format!("{} has no leader", label()));
            };
            if let Some(one) = self.lab.moves(leader).first() {
                let (slots, to) = (one.what.slots.len(), self.name_of(one.what.to));
                let (number, lag) = (one.number, one.lag);
                let how = if one.copied { "copied" } else { "being copied" };
                return Err(format!(
                    "{} moves {slots} slots to {to} (move {number}, {how}, {lag} changes behind)",
                    label()
                ));
            }
            let known = self.lab.sites[site].id.zip(self.lab.held_epochs(leader));
            let Some((owner, held)) = known else {
                return Err(format!("{} is in no deployment", label()));
            };
            let facts = held.runs().map(|(run, epoch)| (run, Fact { epoch, owner }));
            for run in runs_of(facts) {
                owners.learn(run, Source::Stored, Duration::ZERO);
            }
        }
        Ok(owners.facts().clone())
    }

    /// A node whose map has another owner for a slot that a site owns.
    fn wrong_map(&self, owners: &Facts) -> Option<String> {
        let nodes =
            self.sites_inside().into_iter().flat_map(|site| self.lab.sites[site].nodes.clone());
        for node in nodes.filter(|node| !self.lab.nodes[*node].witness) {
            let Some(known) = self.lab.slot_facts(node) else { continue };
            if known.digest() == owners.digest() {
                continue;
            }
            let is_wrong = |slot: &Slot| {
                owners
                    .of(*slot)
                    .is_some_and(|owner| known.of(*slot).is_none_or(|fact| fact != owner))
            };
            let wrong: Vec<Slot> = Slot::all().filter(is_wrong).collect();
            let Some(first) = wrong.first() else { continue };
            let name = |fact: Option<Fact>| match fact {
                Some(Fact { owner: SiteId(site), epoch }) => format!("s{site} at {epoch}"),
                None => "no site".to_owned(),
            };
            return Some(format!(
                "the map of slots at {} is wrong about {} slots: slot {first} is with {}, not {}",
                self.lab.name(node),
                wrong.len(),
                name(owners.of(*first)),
                name(known.of(*first)),
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use model::{Body, Command, GlobalCommand, Request, SlotSet, SourceStep};

    use super::*;
    use crate::run::Options;
    use crate::world::ready;

    #[test]
    fn slots_that_do_not_come_to_rest_fail_a_run() {
        let world = ready::load("global", None).unwrap();
        let options = Options::default();
        let mut run = Run::new(&world, &options);
        let ids = run.form().unwrap();
        run.clients = Some(crate::clients::Clients::new(&world, 1, Duration::ZERO, ids));
        run.look_at_maps();
        assert_eq!(run.failure, None);
        // A move to a site that cannot be reached goes on for ever.
        let (source, to) = (run.lab.leader(0).unwrap(), run.lab.sites[1].id.unwrap());
        let slots: SlotSet = run.lab.held_slots(source).0.into_iter().take(3).collect();
        run.lab.part_site(0);
        let step = SourceStep::Begin { slots, to, pinned: false };
        let body = Body::Write(Command::Global(GlobalCommand::Source { number: 0, step }));
        run.lab.ask(source, Request::new(body));
        run.lab.run(STEP);
        run.look_at_maps();
        let why = run.failure.unwrap_or_default();
        assert!(why.starts_with("slots do not come to rest: "), "{why}");
        assert!(why.contains("moves 3 slots"), "{why}");
    }
}
