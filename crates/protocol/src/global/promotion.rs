//! A backup that takes over from a site which is lost for good.
//!
//! An operator asks for it. The backup's leader first calls the lost site and all others. If the lost
//! one answers it is not lost. Without the operator's consent all that comes of it is what would be
//! lost. With it every other site is *fenced* ([`crate::site::machine::fences`] says why), and what
//! they hold tells which slots are there to be taken. The decision is one change of the registry. All of
//! this can be lost on the way: until the decision nothing has changed but fences, which are lifted when it
//! comes to nothing, and asking again goes through the same steps.

use crate::site::Origin;
use crate::site::machine::mirrors::Mirror;
use model::{
    Answer, BackupError, Body, Command, Epoch, Failure, Fenced, Fencing, Loss, Promotion, Refusal,
    Registry, RegistryChange, SiteId, Slot, SlotEpochs,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long sites that are called have to answer.
const CALL: Duration = Duration::from_millis(1_500);

/// How many may wait for one promotion.
const WAITING_MAX: usize = 64;

/// What the driver wants done.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A site is called; whether it answers is seen by others.
    Call(SiteId),
    /// A request to another site; the answer comes back under this number.
    Ask { id: u64, to: SiteId, body: Body },
    /// A change of the registry.
    Change { id: u64, change: RegistryChange },
    /// The same to this site.
    Here { id: u64, command: Command },
    /// The end, for whoever asked.
    Settle(Origin, Result<Answer, Failure>),
}

#[derive(Debug)]
enum Stage {
    /// Until then sites may answer the call.
    Calling { since: Duration, until: Duration },
    /// These have not said yet that they are fenced.
    Fencing { missing: BTreeSet<SiteId>, fenced: BTreeMap<SiteId, Fenced> },
    /// The decision is on its way.
    Deciding,
}

#[derive(Debug)]
struct Promoting {
    /// Who waits for it; the same one again, if the answer took long.
    origins: Vec<Origin>,
    loss: Loss,
    without: Vec<SiteId>,
    accept: bool,
    deadline: Duration,
    stage: Stage,
    number: u64,
    /// Who was asked to be fenced.
    to_lift: BTreeSet<SiteId>,
}

/// What an operator asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) origin: Origin,
    pub(crate) lost: SiteId,
    pub(crate) without: Vec<SiteId>,
    pub(crate) accept: bool,
    pub(crate) deadline: Duration,
}

/// What the driver must know of its site.
pub(crate) struct Sight<'a> {
    pub(crate) now: Duration,
    pub(crate) own: SiteId,
    pub(crate) registry: &'a Registry,
    pub(crate) mirror: Option<&'a Mirror>,
    pub(crate) revision: u64,
    /// When the mirror was last known to be in step, ms since 1970.
    pub(crate) in_step_ms: u64,
    /// Whether a site has said something since then.
    pub(crate) heard_since: &'a dyn Fn(SiteId, Duration) -> bool,
}

/// The promotions that this site's leader sees to: one at a time for each lost site.
#[derive(Debug, Default)]
pub(crate) struct Promotions {
    under_way: BTreeMap<SiteId, Promoting>,
    asked: BTreeMap<u64, (SiteId, SiteId)>,
    last_id: u64,
    last_number: u64,
}

impl Promotions {
    /// An operator asks.
    pub(crate) fn want(&mut self, wanted: Wanted, sight: &Sight<'_>) -> Vec<Wish> {
        let Wanted { origin, lost, without, accept, deadline } = wanted;
        if let Some(promotion) = sight.registry.backups.promotion(lost) {
            return vec![refuse(origin, BackupError::Promoted(promotion.by))];
        }
        if lost == sight.own {
            return vec![refuse(origin, BackupError::Answers(lost))];
        }
        if let Some(one) = self.under_way.get_mut(&lost) {
            if (one.accept, &one.without) != (accept, &without) || one.origins.len() >= WAITING_MAX
            {
                return vec![refuse(origin, BackupError::Fenced(sight.own))];
            }
            one.origins.push(origin);
            return Vec::new();
        }
        let mut loss = Loss::of(lost, sight.own);
        describe(&mut loss, sight);
        let stage = Stage::Calling { since: sight.now, until: sight.now + CALL };
        let (number, to_lift) = (0, BTreeSet::new());
        let one = Promoting {
            origins: vec![origin],
            loss,
            without,
            accept,
            deadline,
            stage,
            number,
            to_lift,
        };
        let calls = sight.registry.sites.iter().map(|site| site.id);
        let calls = calls.filter(|site| *site != sight.own).map(Wish::Call).collect();
        self.under_way.insert(lost, one);
        calls
    }

    /// Those of which something is to be seen to.
    pub(crate) fn lost_sites(&self) -> Vec<SiteId> {
        self.under_way.keys().copied().collect()
    }

    /// Goes on with one.
    pub(crate) fn advance(&mut self, lost: SiteId, sight: &Sight<'_>) -> Vec<Wish> {
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        if one.deadline <= sight.now {
            let failure = match one.stage {
                Stage::Deciding => Failure::Unknown {
                    why: "its deadline passed before the registry's change was answered",
                },
                _ => Failure::NotServing("the promotion took too long"),
            };
            return self.end(lost, sight.own, Err(failure));
        }
        let Stage::Calling { since, until } = one.stage else { return Vec::new() };
        if sight.now < until {
            return Vec::new();
        }
        describe(&mut one.loss, sight);
        one.loss.answers = (sight.heard_since)(lost, since);
        let is_asked = |site: &SiteId| {
            *site != lost
                && *site != sight.own
                && !sight.registry.is_lost(*site)
                && !one.without.contains(site)
        };
        let others = sight.registry.sites.iter().map(|site| site.id).filter(is_asked);
        let (there, silent): (BTreeSet<_>, BTreeSet<_>) =
            others.partition(|site| (sight.heard_since)(*site, since));
        one.loss.silent = silent.iter().copied().collect();
        if !one.accept {
            let answer = Answer::Loss(Box::new(one.loss.clone()));
            return self.end(lost, sight.own, Ok(answer));
        }
        if one.loss.answers {
            return self.end(lost, sight.own, Err(failed(BackupError::Answers(lost))));
        }
        if !silent.is_empty() {
            let name = |site: &SiteId| match sight.registry.site(*site) {
                Some(entry) => entry.name.to_string(),
                None => site.to_string(),
            };
            let names = silent.iter().map(name).collect::<Vec<_>>().join(", ");
            return self.end(lost, sight.own, Err(failed(BackupError::Silent(names))));
        }
        self.last_number = sight.revision.max(self.last_number + 1);
        one.number = self.last_number;
        let missing: BTreeSet<SiteId> = there.into_iter().chain([sight.own]).collect();
        one.to_lift = missing.clone();
        one.stage = Stage::Fencing { missing: missing.clone(), fenced: BTreeMap::new() };
        let (by, number) = (sight.own, one.number);
        let mut wishes = Vec::new();
        for site in missing {
            let command = Command::Fence { lost, by, number, step: Fencing::Set };
            let id = self.next_id(lost, site);
            wishes.push(match site == by {
                true => Wish::Here { id, command },
                false => Wish::Ask { id, to: site, body: Body::Write(command) },
            });
        }
        wishes
    }

    fn next_id(&mut self, lost: SiteId, site: SiteId) -> u64 {
        self.last_id += 1;
        self.asked.insert(self.last_id, (lost, site));
        self.last_id
    }

    /// Which promotion an answer is about.
    pub(crate) fn lost_of(&self, id: u64) -> Option<SiteId> {
        self.asked.get(&id).map(|(lost, _)| *lost)
    }

    /// An answer has come.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        sight: &Sight<'_>,
    ) -> Vec<Wish> {
        let Some((lost, site)) = self.asked.remove(&id) else { return Vec::new() };
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        match (&mut one.stage, outcome) {
            (Stage::Fencing { missing, fenced }, Ok(Answer::Fenced(said))) => {
                missing.remove(&site);
                fenced.insert(site, *said);
                if missing.is_empty() { self.decide(lost, sight) } else { Vec::new() }
            }
            // This site has followed it by now.
            (Stage::Deciding, Ok(_)) => {
                one.loss.done = true;
                let answer = Answer::Loss(Box::new(one.loss.clone()));
                self.end(lost, sight.own, Ok(answer))
            }
            (_, Err(failure)) => self.end(lost, sight.own, Err(failure)),
            (_, Ok(_)) => {
                let failure = Failure::NotServing("a site does not know how to be fenced");
                self.end(lost, sight.own, Err(failure))
            }
        }
    }

    fn decide(&mut self, lost: SiteId, sight: &Sight<'_>) -> Vec<Wish> {
        let Some(one) = self.under_way.get_mut(&lost) else { return Vec::new() };
        let stage = std::mem::replace(&mut one.stage, Stage::Deciding);
        let Stage::Fencing { fenced, .. } = stage else { return Vec::new() };
        let is_there = |site| sight.registry.site(site).is_some() && !sight.registry.is_lost(site);
        let which = (lost, sight.own, one.number);
        let promotion = plan(which, sight.mirror, &fenced, is_there, !one.without.is_empty());
        let slots = promotion.taken.slots();
        one.loss.empty = (slots.len() - promotion.mirrored.len()) as u32;
        one.loss.mirrored = promotion.mirrored.len() as u32;
        let id = self.next_id(lost, sight.own);
        vec![Wish::Change { id, change: RegistryChange::Promote(promotion) }]
    }

    /// It is over, one way or the other.
    fn end(&mut self, lost: SiteId, own: SiteId, outcome: Result<Answer, Failure>) -> Vec<Wish> {
        let Some(one) = self.under_way.remove(&lost) else { return Vec::new() };
        let mut wishes = vec![];
        // What was decided, or may have been, lifts them by itself.
        let is_open = matches!(one.stage, Stage::Calling { .. } | Stage::Fencing { .. });
        if is_open || matches!(outcome, Err(Failure::Refused(_))) {
            for site in one.to_lift {
                let number = one.number;
                let command = Command::Fence { lost, by: own, number, step: Fencing::Lift };
                wishes.push(match site == own {
                    true => Wish::Here { id: 0, command },
                    false => Wish::Ask { id: 0, to: site, body: Body::Write(command) },
                });
            }
        }
        let each = one.origins.into_iter().map(|origin| Wish::Settle(origin, outcome.clone()));
        wishes.extend(each);
        wishes
    }

    /// This node leads no more: whoever asked asks the next leader.
    pub(crate) fn drop_all(&mut self) -> Vec<Wish> {
        self.asked.clear();
        let why =
            "the leader that was promoting was lost; `portolan site list` shows what came of it";
        let all = std::mem::take(&mut self.under_way).into_values();
        let origins = all.flat_map(|one| one.origins);
        origins.map(|origin| Wish::Settle(origin, Err(Failure::Unknown { why }))).collect()
    }
}

fn failed(error: BackupError) -> Failure {
    Failure::Refused(Refusal::Backup(error))
}

fn refuse(origin: Origin, error: BackupError) -> Wish {
    Wish::Settle(origin, Err(failed(error)))
}

fn describe(loss: &mut Loss, sight: &Sight<'_>) {
    if let Some(mirror) = sight.mirror {
        loss.holds = mirror.holds;
        loss.mirrored = mirror.whole.len() as u32;
        loss.keys = mirror.keys();
        loss.revision = model::Revision(mirror.revision);
        loss.in_step_ms = sight.in_step_ms;
    }
}

/// What sites that were fenced know of one slot, together.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// The highest epoch at which somebody holds it, or has given it to a site that is there, other
    /// than the lost one. Fences are not one moment: whoever gets it may have been asked before.
    elsewhere: Epoch,
    /// The highest at which the lost site, or one that is gone, may hold it.
    lost: Epoch,
    /// Who could hold it again, and the epoch it has with the lost site.
    copy: Option<(Epoch, SiteId)>,
}

/// What is taken: whatever is nowhere else. When somebody was not asked, only what the mirror or a giver has:
/// the rest may be with whoever was left out.
///
/// What a giver has handed to the lost site, or was about to, the mirror may have at the same epoch: then it
/// has arrived, and what was written there since is in the mirror alone. If the mirror does not have
/// it, its giver holds it again.
fn plan(
    (lost, by, number): (SiteId, SiteId, u64),
    mirror: Option<&Mirror>,
    fenced: &BTreeMap<SiteId, Fenced>,
    is_there: impl Fn(SiteId) -> bool,
    somebody_was_left_out: bool,
) -> Promotion {
    let mut words: BTreeMap<Slot, Word> = BTreeMap::new();
    for (site, said) in fenced {
        for (slot, epoch) in said.held.iter() {
            let word = words.entry(slot).or_default();
            word.elsewhere = word.elsewhere.max(epoch);
        }
        for (to, slots) in &said.given {
            let is_elsewhere = *to != lost && is_there(*to);
            for (slot, epoch) in slots.iter() {
                let word = words.entry(slot).or_default();
                let heard = if is_elsewhere { &mut word.elsewhere } else { &mut word.lost };
                *heard = epoch.max(*heard);
            }
        }
        for (slot, epoch) in said.kept.iter() {
            let word = words.entry(slot).or_default();
            word.lost = word.lost.max(epoch);
            word.copy = word.copy.max(Some((epoch, *site)));
        }
    }
    let (mut taken, mut mirrored) = (Vec::new(), Vec::new());
    let mut kept: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
    for slot in Slot::all() {
        let word = words.get(&slot).copied().unwrap_or_default();
        let whole = mirror.and_then(|mirror| mirror.whole.get(&slot)).copied();
        let highest = word.lost.max(whole.unwrap_or_default());
        if word.elsewhere > highest {
            continue;
        }
        // What is of a lower epoch has been elsewhere since.
        match (whole.filter(|epoch| *epoch == highest), word.copy) {
            (Some(_), _) => mirrored.push(slot),
            (None, Some((epoch, site))) if epoch == highest => {
                kept.entry(site).or_default().push((slot, epoch.far_on()));
                continue;
            }
            (None, _) if somebody_was_left_out => continue,
            (None, _) => {}
        }
        taken.push((slot, highest.far_on()));
    }
    let (taken, mirrored) = (SlotEpochs::gather(taken), mirrored.into_iter().collect());
    let kept = kept.into_iter().map(|(site, slots)| (site, SlotEpochs::gather(slots))).collect();
    Promotion { lost, by, number, taken, mirrored, kept }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, SlotSet};

    fn slots(text: &str, epoch: u64) -> SlotEpochs {
        SlotEpochs(vec![(text.parse().unwrap(), Epoch(epoch))])
    }

    /// Of a site that holds some slots at epoch 2, and has given others away.
    fn fenced(held: &str, given: Vec<(SiteId, SlotEpochs)>) -> Fenced {
        let registry = Registry::of_before(DeploymentId(7), 9);
        let kept = SlotEpochs::default();
        Fenced { held: slots(held, 2), given, kept, registry: Box::new(registry) }
    }

    const LOST: SiteId = SiteId(1);
    const BY: SiteId = SiteId(2);
    const OTHERS: [SiteId; 2] = [SiteId(3), SiteId(4)];
    const GONE: SiteId = SiteId(9);

    /// What is planned if the mirror has slots 0 to 9 at epoch 3.
    fn planned(all: &[(SiteId, Fenced)], somebody_was_left_out: bool) -> Promotion {
        let mut mirror = Mirror::default();
        mirror.whole = slots("0-9", 3).iter().collect();
        let all = all.iter().cloned().collect();
        let is_there = |site| site != GONE;
        plan((LOST, BY, 5), Some(&mirror), &all, is_there, somebody_was_left_out)
    }

    fn set(text: &str) -> SlotSet {
        text.parse().unwrap()
    }

    #[test]
    fn what_nobody_holds_is_taken_and_what_the_mirror_lacks_begins_empty() {
        let all = [
            (BY, fenced("20-16383", Vec::new())),
            // Slot 5 was here after the mirror had it, and went back to the lost site.
            (OTHERS[0], fenced("15-19", vec![(LOST, slots("5", 6))])),
        ];
        let planned = planned(&all, false);
        assert_eq!(planned.taken.slots(), set("0-14"));
        assert_eq!(planned.mirrored, set("0-4,6-9"));
        let of = |slot: u16| {
            let wanted = Slot::new(slot).unwrap();
            planned.taken.iter().find(|(slot, _)| *slot == wanted).unwrap().1
        };
        assert_eq!(
            (of(0), of(5), of(12)),
            (Epoch(3).far_on(), Epoch(6).far_on(), Epoch(0).far_on())
        );
    }

    #[test]
    fn what_a_giver_could_hold_again_is_its_own_if_the_mirror_lacks_it() {
        // On their way to the lost site, all of them; it has installed some.
        for (epoch, mirrored, kept) in [(3, "0-9", "10-12"), (4, "0-4", "5-12")] {
            let giver =
                Fenced { kept: slots("5-12", epoch), ..fenced("20", vec![(LOST, slots("0", 2))]) };
            let planned = planned(&[(OTHERS[0], giver)], true);
            assert_eq!(planned.taken.slots(), set(mirrored));
            assert_eq!(planned.mirrored, set(mirrored));
            let again = SlotEpochs(vec![(set(kept), Epoch(epoch).far_on())]);
            assert_eq!(planned.kept, [(OTHERS[0], again)]);
        }
    }

    #[test]
    fn the_highest_epoch_counts_whoever_says_it_first() {
        for (giver, holder) in [(OTHERS[0], OTHERS[1]), (OTHERS[1], OTHERS[0])] {
            // It has not heard that slots 5 and 12 have arrived; both have gone on from there.
            let gave = Fenced { kept: slots("5,12", 3), ..fenced("20", Vec::new()) };
            let holds = Fenced { held: slots("5,12", 4), ..fenced("21", Vec::new()) };
            let planned = planned(&[(giver, gave), (holder, holds)], false);
            assert_eq!(planned.taken.slots(), set("0-4,6-11,13-19,21-16383"));
            assert!(planned.kept.is_empty());
        }
    }

    #[test]
    fn what_is_on_its_way_between_others_is_theirs() {
        // Who gets it was asked before it came, and who gave it after it went.
        let gave = |to| fenced("20-16383", vec![(to, slots("5,12", 6))]);
        let all = |to| [(OTHERS[0], gave(to)), (OTHERS[1], fenced("19", Vec::new()))];
        assert_eq!(planned(&all(OTHERS[1]), false).taken.slots(), set("0-4,6-11,13-18"));
        // Whoever has left gave it to somebody else, who is not among those that were asked.
        assert_eq!(planned(&all(GONE), false).taken.slots(), set("0-18"));
        assert_eq!(planned(&all(GONE), false).mirrored, set("0-4,6-9"));
    }

    #[test]
    fn who_is_left_out_may_hold_what_the_mirror_lacks() {
        let all = [(BY, fenced("20-16383", vec![(LOST, slots("5", 6))]))];
        assert_eq!(planned(&all, true).taken.slots(), set("0-4,6-9"));
        let none = plan((LOST, BY, 5), None, &all.into(), |_| true, true);
        assert_eq!(none.taken.slots().len(), 0);
    }
}
