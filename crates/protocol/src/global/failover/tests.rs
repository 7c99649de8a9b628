//! What counts in a failover, and what only counted in an earlier one.

use super::plan::tests::{B, C, LOST, mirror, slots};
use super::*;
use model::{Inventory, Revision};

fn registry() -> Registry {
    let mut registry = Registry::empty(model::DeploymentId(1), 1);
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let name = model::SiteName::new(name).unwrap();
        registry.sites.push(model::SiteEntry {
            id: SiteId(id),
            name,
            incarnation: 1,
            capacity_percent: 100,
            leaving: false,
            failure_domain: None,
            borrowed_bytes_max: None,
            region: None,
            nodes: Vec::new(),
        });
    }
    registry.site_next = 4;
    registry
}

/// What B sees, to which LOST has not answered for long.
fn view(registry: &Registry, now: Duration) -> Context<'_> {
    let contact_since = &|site: SiteId, _| site != LOST;
    Context { now, own: B, registry, caught_up_ms: 0, contact_since }
}

/// B is to take over for LOST.
fn wanted(accept: bool, now: Duration) -> Wanted {
    Wanted {
        origin: Origin::Discard,
        lost: LOST,
        by: B,
        without: Vec::new(),
        accept,
        reported: None,
        deadline: now + Duration::from_secs(10),
        id: None,
    }
}

fn asked_of(effects: &[Effect], site: SiteId) -> u64 {
    let id = effects.iter().find_map(|effect| match effect {
        Effect::Ask { id, to, .. } if *to == site => *id,
        _ => None,
    });
    id.unwrap()
}

/// C answers an earlier failover with what it had before this one's fences.
#[test]
fn what_a_site_told_an_earlier_failover_is_not_its_inventory_in_this_one() {
    let registry = registry();
    let mut after = registry.clone();
    let second = Duration::from_secs(1);
    let mut now = Duration::ZERO;
    let mut jobs = FailoverJobs::default();
    let reported = |inventory: &Inventory| Ok(Answer::Inventory(Box::new(inventory.clone())));
    let before = Inventory {
        owners: vec![(LOST, slots("0-16383", 2))],
        copies: vec![mirror("0-16383", 2, 7)],
        ..Inventory::default()
    };
    // The first one ends before C has answered.
    jobs.want(wanted(false, now), &view(&registry, now));
    now += 2 * second;
    let effects = jobs.advance(LOST, &view(&registry, now));
    let late = asked_of(&effects, C);
    now += 10 * second;
    jobs.advance(LOST, &view(&registry, now));
    assert!(jobs.under_way.is_empty());
    // The second one gets as far as its inventories.
    jobs.want(wanted(true, now), &view(&registry, now));
    now += 2 * second;
    let effects = jobs.advance(LOST, &view(&registry, now));
    for site in [B, C] {
        let id = asked_of(&effects, site);
        let more = jobs.take_answer(id, reported(&before), &view(&registry, now));
        if let Some(effect) = more.into_iter().next() {
            let Effect::Change { id, change, .. } = effect else { panic!("{effect:?}") };
            let version = Ballot { round: 9, ..registry.version };
            after.change_at(&change, version).unwrap();
            after.version = version;
            let effects =
                jobs.take_answer(id.unwrap(), Ok(Answer::Done(Revision(1))), &view(&after, now));
            let own = asked_of(&effects, B);
            asked_of(&effects, C);
            assert!(jobs.take_answer(own, reported(&before), &view(&after, now)).is_empty());
            // Meanwhile the lost site had handed its slots to C, which has not reported that
            // yet.
            let effects = jobs.take_answer(late, reported(&before), &view(&after, now));
            assert!(effects.is_empty(), "decided without C's inventory: {effects:?}");
            return;
        }
    }
    panic!("it was not opened");
}

/// The leader that drove a failover was lost as it decided, and the operator repeats the command
/// under its number. The decision is chosen before the second inventories are there, or after them.
#[test]
fn a_repeated_failover_reports_what_its_first_attempt_has_decided() {
    let id = RequestId { client: model::ClientId(5), sequence: 1, acknowledged_below: 0 };
    let slots_taken = || "0-16383".parse().unwrap();
    let from = Some((Epoch::counted(2), 7));
    let outcome = |is_chosen_late: bool| {
        let mut registry = registry();
        let at = |round| Ballot { round, ..Ballot::FIRST };
        let open = RegistryChange::OpenFailover { lost: LOST, without: Vec::new() };
        registry.change_at(&open, at(20)).unwrap();
        let mut after = registry.clone();
        let taken = vec![Taken { by: B, slots: slots_taken(), from }];
        let decide = RegistryChange::DecideFailover { opened: at(20), taken };
        after.change_once(id, &decide, at(21)).unwrap();
        let (mut now, second) = (Duration::ZERO, Duration::from_secs(1));
        let mut jobs = FailoverJobs::default();
        let wanted = Wanted { id: Some(id), ..wanted(true, now) };
        jobs.want(wanted, &view(&registry, now));
        now += 2 * second;
        let asked = jobs.advance(LOST, &view(&registry, now));
        let inventory = |owner, count, copies| Inventory {
            owners: vec![(owner, slots("0-16383", count))],
            copies,
            ..Inventory::default()
        };
        let report =
            |jobs: &mut FailoverJobs, asked: &[Effect], inventory: &Inventory, registry| {
                let mut last = Vec::new();
                for site in [B, C] {
                    let reported = Ok(Answer::Inventory(Box::new(inventory.clone())));
                    last = jobs.take_answer(asked_of(asked, site), reported, &view(registry, now));
                }
                last
            };
        if !is_chosen_late {
            return report(&mut jobs, &asked, &inventory(B, 3, Vec::new()), &after);
        }
        let before = inventory(LOST, 2, vec![mirror("0-16383", 2, 7)]);
        let opening = report(&mut jobs, &asked, &before, &registry);
        let [Effect::Change { id: Some(number), change, .. }] = &opening[..] else {
            panic!("{opening:?}")
        };
        after.change_at(change, at(22)).unwrap();
        let opened = Ok(Answer::Done(Revision(1)));
        let asked = jobs.take_answer(*number, opened, &view(&after, now));
        let effects = report(&mut jobs, &asked, &before, &after);
        let closes = |effect: &Effect| {
            let Effect::Change { change, .. } = effect else { return false };
            *change == RegistryChange::CloseFailover(at(22))
        };
        assert!(effects.iter().any(closes), "the second one stays open: {effects:?}");
        effects
    };
    for is_chosen_late in [false, true] {
        let effects = outcome(is_chosen_late);
        let Some(Effect::Settle(_, Ok(Answer::Loss(loss)))) = effects.last() else {
            panic!("{effects:?}")
        };
        assert_eq!((loss.done, loss.by, loss.revision), (true, B, Revision(7)));
    }
}

/// The preview has B's copy up to 7; meanwhile that copy is gone.
#[test]
fn a_failover_is_not_opened_if_more_would_be_lost_than_its_operator_was_told() {
    let registry = registry();
    let outcome = |reported: Option<Vec<Taken>>, position: u64| {
        let mut jobs = FailoverJobs::default();
        let (mut now, second) = (Duration::ZERO, Duration::from_secs(1));
        let view = |now| view(&registry, now);
        let wanted = Wanted { reported, ..wanted(true, now) };
        jobs.want(wanted, &view(now));
        now += 2 * second;
        let effects = jobs.advance(LOST, &view(now));
        let inventory = Inventory {
            owners: vec![(LOST, slots("0-16383", 2))],
            copies: vec![mirror("0-16383", 2, position)],
            ..Inventory::default()
        };
        let mut last = Vec::new();
        for site in [B, C] {
            let reported = Ok(Answer::Inventory(Box::new(inventory.clone())));
            last = jobs.take_answer(asked_of(&effects, site), reported, &view(now));
        }
        last.pop().expect("an effect")
    };
    let reported = || {
        let from = Some((Epoch::counted(2), 7));
        Some(vec![Taken { by: B, slots: "0-16383".parse().unwrap(), from }])
    };
    let is_opened = |effect: &Effect| {
        let Effect::Change { change, .. } = effect else { return false };
        matches!(change, RegistryChange::OpenFailover { .. })
    };
    assert!(is_opened(&outcome(reported(), 7)) && is_opened(&outcome(reported(), 8)));
    let worse = outcome(reported(), 6);
    let is_refused = matches!(
        &worse,
        Effect::Settle(_, Err(Failure::Refused(Refusal::Backup(BackupError::Worse))))
    );
    assert!(is_refused, "{worse:?}");
    assert!(is_opened(&outcome(None, 6)), "the preview had no more");
}
