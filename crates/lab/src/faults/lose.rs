//! A site is lost, its backup is promoted, and it comes back as a stale owner.
//!
//! That is the one fault that may lose what was acknowledged, so it is done with care: while all
//! other sites are well, the site's mirror is whole, and no other site is lost. How far the mirror
//! lags is what may be lost, and the run declares it.

use std::time::Duration;

use model::{Ballot, Failovers, Promotion, Request, SiteId};

use super::Fault;
use super::apply::{Begun, all_vote};
use crate::random::Random;
use crate::simulation::{Down, Simulation};

/// How soon the operator notices, and asks.
const NOTICED: Duration = Duration::from_secs(2);
/// How long one attempt to promote may take.
const ATTEMPT: Duration = Duration::from_secs(4);
/// A mirror that lags more is not promoted.
const LAG_MAX: Duration = Duration::from_secs(2);
/// The lost site comes back after this at the latest, promoted or not.
const BACK_MAX: Duration = Duration::from_secs(25);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Whether the site loses power, or only its links.
fn loses_power(fault: &Fault) -> bool {
    Random::new(fault.draw).chance(500)
}

fn is_well<C>(simulation: &Simulation<C>, fault: &Fault) -> bool {
    let Some(leader) = simulation.leader(fault.site) else { return false };
    let Some(mirror) = simulation.status(leader).and_then(|status| status.mirror) else {
        return false;
    };
    let is_near = mirror.caught_up_ago.is_some_and(|ago| ago <= LAG_MAX);
    let registry = simulation.registry(leader);
    // The newest decision outlasts its site.
    let nobody_is_lost = registry.as_ref().is_some_and(|registry| {
        let Failovers { open, decided, last } = &registry.failovers;
        let is_listed = |(site, _): &(SiteId, Ballot)| registry.site(*site).is_some();
        open.is_none() && decided.is_empty() && !last.iter().any(is_listed)
    });
    is_near
        && mirror.complete == mirror.holds
        && mirror.holds > 0
        && nobody_is_lost
        && (0..simulation.sites.len()).all(|site| {
            let version = simulation.leader(site).and_then(|leader| simulation.registry(leader));
            all_vote(simulation, site)
                && !simulation.is_parted(site)
                && version.map(|one| one.version) == registry.as_ref().map(|one| one.version)
        })
}

/// Loses the site, if that can be survived now.
pub(super) fn begin<C>(simulation: &mut Simulation<C>, fault: &Fault) -> Begun {
    if !is_well(simulation, fault) {
        return Begun::Skipped;
    }
    if loses_power(fault) {
        let mut random = Random::new(fault.draw);
        for node in simulation.sites[fault.site].nodes.clone() {
            simulation.crash(node, &Down::draw_power_loss(&mut random));
        }
    } else {
        simulation.part_site(fault.site);
    }
    Begun::For(NOTICED)
}

/// Whether this site is lost, and not back, by the registry of any other site.
fn is_promoted<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let Some(id) = simulation.sites[site].id else { return false };
    let others = (0..simulation.sites.len()).filter(|other| *other != site);
    others
        .filter_map(|other| simulation.registry(simulation.leader(other)?))
        .any(|registry| registry.is_lost(id))
}

fn bring_back<C>(simulation: &mut Simulation<C>, fault: &Fault) {
    if loses_power(fault) {
        for node in simulation.sites[fault.site].nodes.clone() {
            simulation.start(node);
        }
    } else {
        simulation.rejoin_site(fault.site);
    }
}

/// Goes on: the operator asks until it is done; then the site comes back; then it learns of the
/// failover.
pub(super) fn go_on<C>(simulation: &mut Simulation<C>, fault: &Fault, since: Duration) -> Begun {
    let comes_back = fault.span.max(NOTICED + ATTEMPT);
    let promoted = is_promoted(simulation, fault.site);
    let is_back = simulation.leader(fault.site).is_some() && !simulation.is_parted(fault.site);
    if since >= comes_back && (promoted || since >= BACK_MAX) && !is_back {
        bring_back(simulation, fault);
        return Begun::For(LOOK_AGAIN);
    }
    if is_back {
        // A stale owner, until every site has confirmed that it has learned of the failover; or
        // another order has brought it back, and what the operator asked for may still be done.
        let may_be_promoted = since < BACK_MAX + 2 * ATTEMPT;
        return if promoted || may_be_promoted { Begun::For(LOOK_AGAIN) } else { Begun::Over };
    }
    // Once: a site that is back and has no leader for a moment is not lost again.
    let began = simulation.now().saturating_sub(since);
    let was_promoted = |lost| simulation.promotions_of(lost, began).next().is_some();
    if let Some(lost) = simulation.sites[fault.site].id.filter(|lost| !was_promoted(*lost)) {
        let asked = (0..simulation.sites.len()).find(|site| *site != fault.site);
        if let Some(leader) = asked.and_then(|site| simulation.leader(site)) {
            let deadline_ms = Some(ATTEMPT.as_millis() as u64);
            let request = Request::new(Promotion::of(lost).into());
            simulation.ask(leader, Request { deadline_ms, ..request });
        }
        return Begun::For(ATTEMPT);
    }
    Begun::For(LOOK_AGAIN)
}
