//! After all faults: once no slot moves any more, every node's map soon has the owners of all of
//! them.

use std::time::Duration;

use model::{SiteId, Slot};
use protocol::global::map::{Fact, Facts, SlotMap, Source, runs_of};

use super::Run;
use super::form::TIMEOUT;

/// How soon after the last move all nodes are right.
const RIGHT_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at.
const STEP: Duration = Duration::from_millis(500);

impl Run<'_> {
    /// Waits until slots have come to rest, and then as long as maps may be wrong.
    pub(super) fn look_at_maps(&mut self) {
        if !self.is_deployment() {
            return;
        }
        let until = self.lab.now() + TIMEOUT;
        let mut rests: Option<(u64, Duration)> = None;
        while self.lab.now() < until && !self.failed() {
            match self.owners_at_rest() {
                None => rests = None,
                Some(owners) => {
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
    }

    /// The owner of each slot, as the owners themselves report it; `None`: some are on their way.
    fn owners_at_rest(&self) -> Option<Facts> {
        let mut owners = SlotMap::default();
        for site in self.sites_inside() {
            let leader = self.lab.leader(site)?;
            if !self.lab.moves(leader).is_empty() {
                return None;
            }
            let owner = self.lab.sites[site].id?;
            let held = self.lab.held_epochs(leader)?;
            let facts = held.runs().map(|(run, epoch)| (run, Fact { epoch, owner }));
            for run in runs_of(facts) {
                owners.learn(run, Source::Stored, Duration::ZERO);
            }
        }
        Some(owners.facts().clone())
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
