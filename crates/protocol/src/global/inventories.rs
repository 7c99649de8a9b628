//! Inventories of other sites, gathered for a decision about slots: a failover, the return of a
//! restored site, slots that are frozen for a site which has left, and the departure of this one.
//!
//! How long a report stays true depends on what holds slots back meanwhile. So each decision states
//! itself which sites it asks, and when their reports are void.

use crate::job::Effect;
use model::{
    Answer, Ballot, Command, Failure, GlobalCommand, Group, Inventory, LoanClaim, Registry, SiteId,
    Slot,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long inventories are waited for before they are requested again.
const TIMEOUT: Duration = Duration::from_millis(1_500);

/// What sites have reported.
#[derive(Debug, Default)]
pub(crate) struct Inventories {
    pub(crate) of_sites: BTreeMap<SiteId, Inventory>,
    /// The highest loan that a site has a part in, of each group, by its slot.
    pub(crate) claims: BTreeMap<(Slot, Group), LoanClaim>,
}

/// Asks for what a site has of the slots of `lost`. It learns the registry with that.
pub(crate) fn request(registry: &Registry, lost: SiteId, failover: Option<Ballot>) -> Command {
    let registry = Box::new(registry.clone());
    Command::Global(GlobalCommand::Inventory { registry, lost, failover })
}

impl Inventories {
    /// Takes an inventory in. Returns whether the answer is one.
    pub(crate) fn take(&mut self, site: SiteId, answer: Answer) -> bool {
        let (inventory, claims) = match answer {
            Answer::Inventory(inventory) => (inventory, Vec::new()),
            Answer::InventoryOfLoans(inventory, claims) => (inventory, claims),
            _ => return false,
        };
        self.of_sites.insert(site, *inventory);
        for (group, claim) in claims {
            let at = (group.slot(), group);
            let known = self.claims.get(&at).copied();
            self.claims.extend(LoanClaim::higher(known, Some(claim)).map(|one| (at, one)));
        }
        true
    }
}

/// Questions for inventories of the slots of this site, which are repeated where the answer does
/// not come.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Nothing is asked before.
    pub(crate) not_before: Option<Duration>,
    asked: BTreeMap<u64, SiteId>,
    pub(crate) inventories: Inventories,
}

impl Questions {
    /// Whether the time for questions has come.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }

    /// How many sites that were asked have not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// Those of some sites that have not reported.
    pub(crate) fn missing(&self, sites: impl Iterator<Item = SiteId>) -> Vec<SiteId> {
        sites.filter(|site| !self.inventories.of_sites.contains_key(site)).collect()
    }

    /// Asks sites; an answer to an earlier question does not count any more.
    pub(crate) fn ask(
        &mut self,
        sites: Vec<SiteId>,
        (own, registry): (SiteId, &Registry),
        last_id: &mut u64,
        now: Duration,
    ) -> Vec<Effect> {
        self.not_before = Some(now + TIMEOUT);
        self.asked.clear();
        let ask = |to: SiteId| {
            *last_id += 1;
            self.asked.insert(*last_id, to);
            let command = request(registry, own, None);
            Effect::Ask { id: Some(*last_id), to, command, timeout: TIMEOUT }
        };
        sites.into_iter().map(ask).collect()
    }

    /// An answer, if it is to one of the questions.
    pub(crate) fn answered(&mut self, id: u64, outcome: Result<Answer, Failure>) {
        if let (Some(site), Ok(answer)) = (self.asked.remove(&id), outcome) {
            self.inventories.take(site, answer);
        }
    }
}
