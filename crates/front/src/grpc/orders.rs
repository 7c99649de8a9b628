//! An operator's order to move slots: it goes to all sites, and their answers are put together.
//!
//! Only the owner's token is certain, so every site is asked for its tokens, and begins at once to
//! hand its slots over. Of several answers about a slot the highest epoch counts. A slot that only
//! the hints contain is marked as such.

use super::registry::name_of;
use model::{
    Answer, Body, ClientId, Command, Epoch, Failure, GlobalCommand, Held, MoveError, Ordered,
    Registry, RequestId, SiteId, Slot, SlotSet, SourceStep,
};
use server::Outcome;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use wire::grpc::v1;

/// A number for an order that came without one: it is never repeated.
pub(super) fn own_number() -> RequestId {
    let client = ClientId(RandomState::new().hash_one(0) | 1);
    RequestId { client, sequence: 1, acknowledged_below: 1 }
}

/// The answer of one site.
pub(super) type SiteAnswer = (SiteId, Result<Ordered, Failure>);

/// An order as it goes to each site, with a deadline that leaves time to put the answers together.
pub(super) fn requests(
    registry: &Registry,
    id: RequestId,
    slots: &SlotSet,
    to: SiteId,
    deadline_ms: Option<u64>,
) -> Vec<model::Request> {
    let whole = deadline_ms.unwrap_or(model::limits::REQUEST_DEADLINE.as_millis() as u64);
    let deadline_ms = Some((whole * 2 / 3).max(1));
    let request = |site: &model::SiteEntry| {
        let step = SourceStep::Order { id, slots: slots.clone(), to };
        let command = Box::new(Command::Global(GlobalCommand::Source { number: 0, step }));
        let body = Body::AtSite { site: site.id, command };
        model::Request { deadline_ms, ..model::Request::new(body) }
    };
    registry.sites.iter().map(request).collect()
}

/// The sites' answers, in the order of the requests.
pub(super) fn answers(registry: &Registry, outcomes: Vec<Outcome>) -> Vec<SiteAnswer> {
    let sites = registry.sites.iter().map(|site| site.id);
    let ordered = |outcome| match outcome {
        Ok(Answer::Ordered(ordered)) => Ok(*ordered),
        Ok(_) => unreachable!("an order is answered with what came of it"),
        Err(failure) => Err(failure),
    };
    sites.zip(outcomes.into_iter().map(ordered)).collect()
}

/// Where a slot is, by the best answer.
#[derive(Clone, Copy)]
struct Claim {
    epoch: Epoch,
    owner: SiteId,
    confirmed: bool,
    going: Option<SiteId>,
}

impl Claim {
    /// The owner's answer counts more than that of a site that has given the slot away.
    fn rank(&self) -> (Epoch, bool) {
        (self.epoch, self.confirmed)
    }
}

/// All answers, put together. `hints`: this node's map, for slots that are in no answer.
pub(super) fn reported(
    registry: &Registry,
    wanted: &SlotSet,
    to: SiteId,
    answers: &[SiteAnswer],
    hints: &[(SlotSet, SiteId)],
) -> v1::MoveSlotsResponse {
    let mut claims: BTreeMap<Slot, Claim> = BTreeMap::new();
    let hinted = hints.iter().flat_map(|(slots, owner)| slots.iter().map(|slot| (slot, *owner)));
    for (slot, owner) in hinted.filter(|(slot, _)| wanted.contains(*slot)) {
        claims
            .insert(slot, Claim { epoch: Epoch::counted(0), owner, confirmed: false, going: None });
    }
    let mut moves = Vec::new();
    for (site, ordered) in answers {
        let Ok(ordered) = ordered else { continue };
        for one in &ordered.moves {
            moves.push(v1::BegunMove {
                from: name_of(registry, *site),
                number: one.number,
                slots: one.slots.to_string(),
                over: one.gone.is_some(),
                gone: one.gone.as_ref().map(listed).unwrap_or_default(),
            });
        }
        for holding in &ordered.holdings {
            let (owner, confirmed, going) = match holding.held {
                Held::Here => (*site, true, None),
                Held::Leaving(to, _) => (*site, true, Some(to)),
                Held::Gone(to) => (to, false, None),
            };
            let claim = Claim { epoch: holding.epoch, owner, confirmed, going };
            for slot in holding.slots.iter() {
                let known = claims.entry(slot).or_insert(claim);
                if known.rank() < claim.rank() {
                    *known = claim;
                }
            }
        }
    }
    let mut there = Vec::new();
    let mut elsewhere: BTreeMap<Group, Vec<Slot>> = BTreeMap::new();
    for slot in wanted.iter() {
        match claims.get(&slot) {
            Some(claim) if claim.owner == to && claim.confirmed && claim.going.is_none() => {
                there.push(slot);
            }
            claim => {
                elsewhere.entry(group(registry, answers, slot, to, claim)).or_default().push(slot);
            }
        }
    }
    let elsewhere = elsewhere.into_iter().map(|(group, slots)| v1::SlotsElsewhere {
        slots: slots.into_iter().collect::<SlotSet>().to_string(),
        site: group.owner.map(|site| name_of(registry, site)).unwrap_or_default(),
        confirmed: group.confirmed,
        going_to: group.going.map(|site| name_of(registry, site)).unwrap_or_default(),
        why: group.why,
        again: group.again,
    });
    let silent = answers.iter().filter_map(|(site, ordered)| {
        let why = ordered.as_ref().err()?.to_string();
        Some(v1::SilentSite { site: name_of(registry, *site), why })
    });
    v1::MoveSlotsResponse {
        moves,
        there: listed(&there.into_iter().collect()),
        elsewhere: elsewhere.collect(),
        silent: silent.collect(),
    }
}

/// Slots as they are written; nothing for none.
fn listed(slots: &SlotSet) -> String {
    if slots.is_empty() { String::new() } else { slots.to_string() }
}

/// Slots that are at the same place for the same reason.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    owner: Option<SiteId>,
    confirmed: bool,
    going: Option<SiteId>,
    why: String,
    again: bool,
}

fn group(
    registry: &Registry,
    answers: &[SiteAnswer],
    slot: Slot,
    to: SiteId,
    claim: Option<&Claim>,
) -> Group {
    let Some(&Claim { owner, confirmed, going, .. }) = claim else {
        let why = "no site that answers has them".to_owned();
        return Group { owner: None, confirmed: false, going: None, why, again: true };
    };
    let answer = answers.iter().find(|(site, _)| *site == owner).map(|(_, ordered)| ordered);
    let (why, again) = match (answer, going) {
        (None, _) => ("the asked node does not know that site".to_owned(), true),
        (Some(Err(failure)), _) => (format!("it does not answer: {failure}"), false),
        (Some(Ok(_)), Some(next)) if next == to => ("they are on their way".to_owned(), false),
        (Some(Ok(_)), Some(next)) => {
            (format!("another move hands them over to {}", name_of(registry, next)), true)
        }
        (Some(Ok(_)), None) if !confirmed => ("they changed hands meanwhile".to_owned(), true),
        (Some(Ok(ordered)), None) => {
            let is_back = ordered.moves.iter().any(|one| one.slots.contains(slot));
            match (&ordered.refused, is_back) {
                (_, true) => ("the move was called off".to_owned(), true),
                (Some(error @ (MoveError::TooManyMoves | MoveError::NotReady(_))), _) => {
                    (error.to_string(), true)
                }
                (Some(error), _) => (error.to_string(), false),
                (None, _) => ("they came there meanwhile".to_owned(), true),
            }
        }
    };
    Group { owner: Some(owner), confirmed, going, why, again }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, Holding, OrderedMove, SiteEntry, SiteName};

    const A: SiteId = SiteId(1);
    const B: SiteId = SiteId(2);
    const C: SiteId = SiteId(3);

    fn registry() -> Registry {
        let site = |(id, name): (SiteId, &str)| SiteEntry {
            id,
            name: SiteName::new(name).unwrap(),
            incarnation: 0,
            capacity_percent: 100,
            leaving: false,
            failure_domain: None,
            region: None,
            borrowed_bytes_max: None,
            nodes: Vec::new(),
        };
        let sites = [(A, "a"), (B, "b"), (C, "c")].map(site).to_vec();
        Registry { sites, ..Registry::empty(DeploymentId(7), 1) }
    }

    fn slots(text: &str) -> SlotSet {
        text.parse().unwrap()
    }

    fn holding(text: &str, epoch: u64, held: Held) -> Holding {
        Holding { slots: slots(text), epoch: Epoch::counted(epoch), held }
    }

    fn holds(holdings: Vec<Holding>) -> Result<Ordered, Failure> {
        Ok(Ordered { holdings, ..Ordered::default() })
    }

    fn places(response: &v1::MoveSlotsResponse) -> Vec<(&str, &str, bool, &str, bool)> {
        response
            .elsewhere
            .iter()
            .map(|one| {
                let (slots, site, to) = (&*one.slots, &*one.site, &*one.going_to);
                (slots, site, one.confirmed, to, one.again)
            })
            .collect()
    }

    #[test]
    fn the_highest_epoch_locates_a_slot_and_hints_do_not() {
        let answers = [
            (A, holds(vec![holding("0-4", 2, Held::Gone(C)), holding("5-9", 1, Held::Here)])),
            (B, holds(vec![holding("0-1", 3, Held::Here)])),
            (C, holds(vec![holding("0-1", 3, Held::Gone(B)), holding("2-4", 2, Held::Here)])),
        ];
        let response = reported(&registry(), &slots("0-10"), B, &answers, &[(slots("0-10"), B)]);
        assert_eq!(response.there, "0-1");
        assert_eq!(
            places(&response),
            [
                ("5-9", "a", true, "", true),
                // Only a hint names b as their owner.
                ("10", "b", false, "", true),
                ("2-4", "c", true, "", true),
            ]
        );
    }

    #[test]
    fn moves_under_way_and_silent_sites_are_reported() {
        let moving = |gone| OrderedMove { number: 7, slots: slots("0-4"), gone };
        let ordered = |gone, held| {
            let holdings = vec![holding("0-4", 1, held)];
            Ok(Ordered { moves: vec![moving(gone)], refused: None, holdings })
        };
        let away = Failure::NotServing("the other site cannot be reached");
        let wanted = slots("0-6");
        let hints = [(slots("5-6"), C)];
        let answers =
            [(A, ordered(None, Held::Leaving(B, 7))), (B, holds(Vec::new())), (C, Err(away))];
        let response = reported(&registry(), &wanted, B, &answers, &hints);
        assert_eq!((&*response.there, response.moves[0].over), ("", false));
        assert_eq!(
            places(&response),
            [("0-4", "a", true, "b", false), ("5-6", "c", false, "", false)]
        );
        assert_eq!(response.silent[0].site, "c");
        // Called off, and it was begun for nothing.
        let answers = [(A, ordered(Some(SlotSet::default()), Held::Here)), answers[1].clone()];
        let response = reported(&registry(), &slots("0-4"), B, &answers, &[]);
        assert_eq!((response.moves[0].over, &*response.moves[0].gone), (true, ""));
        assert_eq!(response.elsewhere[0].why, "the move was called off");
    }

    #[test]
    fn a_refusal_for_good_is_not_asked_again() {
        let refused = |error| {
            let holdings = vec![holding("0-4", 1, Held::Here)];
            Ok(Ordered { moves: Vec::new(), refused: Some(error), holdings })
        };
        let again = |error| {
            let answers = [(A, refused(error)), (B, holds(Vec::new()))];
            reported(&registry(), &slots("0-4"), B, &answers, &[]).elsewhere[0].again
        };
        assert!(again(MoveError::TooManyMoves));
        assert!(again(MoveError::NotReady("a failover is under way")));
        assert!(!again(MoveError::NoDestination));
    }
}
