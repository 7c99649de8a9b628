//! Why a group is where it is.

use super::groups::Groups;
use super::latencies::{Origin, Site};
use super::rules::Bar;
use super::scan::Scan;
use super::solver::Solver;

/// A place where the group could be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The place.
    pub site: Site,
    /// The mean latency of an access there; `None`: unknown.
    pub mean_ms: Option<f32>,
    /// The price of the site for this group, in ms of an access.
    pub price_ms: f32,
    /// Why the group must not go there.
    pub bar: Option<Bar>,
}

/// Why the group is where it is, or what is to become of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// No other site costs less.
    Best,
    /// It has no users.
    Unused,
    /// It is pinned here.
    Pinned,
    /// A latency to the place where it is is unknown, so no gain can be stated.
    UnknownHere,
    /// Every other site is excluded.
    NoCandidate,
    /// Another site is better, by less than the margin.
    WithinMargin {
        /// That site.
        to: Site,
        /// What an access gains there.
        gain_ms: f32,
        /// What it would have to gain.
        needed_ms: f32,
    },
    /// Another site is better, by less than the accesses that were counted can show.
    WithinNoise {
        /// That site.
        to: Site,
        /// What an access gains there.
        gain_ms: f32,
        /// What it would have to gain.
        noise_ms: f32,
    },
    /// Another site is better, and the users of the group have not yet waited as long as a move
    /// costs.
    Waits {
        /// That site.
        to: Site,
        /// What an access gains there.
        gain_ms: f32,
        /// What they have waited longer than they would there.
        lost_ms: f32,
        /// What a move costs.
        needed_ms: f32,
    },
    /// Another site is better.
    Moves {
        /// That site.
        to: Site,
        /// What an access gains there.
        gain_ms: f32,
    },
}

/// What an operator sees of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Its owner.
    pub owner: Site,
    /// Its size.
    pub bytes: u32,
    /// Accesses per second of each origin, the most first.
    pub accesses: Vec<(Origin, f32)>,
    /// Where it could be, the cheapest first (with prices), the excluded ones last.
    pub candidates: Vec<Candidate>,
    /// What an access would cost if each origin had the group to itself. What a candidate is above
    /// this is lost because the group has several users.
    pub alone_ms: f32,
    /// Why it is where it is.
    pub why: Why,
}

/// Explains the place of a group. A gain below this share of the cost is not worth a move: 0.1 is
/// 10 %.
pub fn explain(solver: &Solver<'_>, groups: &Groups, group: usize, margin: f32) -> Explanation {
    let (owner, bytes) = (groups.owner(group), groups.bytes(group));
    let profile = groups.accesses(group);
    let rate = profile.rate();
    let per_access = |cost: f32| if rate > 0.0 { cost / rate } else { 0.0 };
    let mut accesses: Vec<_> = profile.iter().collect();
    accesses.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut scan = Scan::new(solver.matrix());
    solver.fill(&mut scan, groups, group);
    let mut candidates: Vec<_> = (0..groups.sites_known())
        .map(|index| {
            let site = Site(index as u16);
            let cost = solver.cost(groups, group, site);
            let unknown = (cost == f32::INFINITY).then_some(Bar::Unknown);
            Candidate {
                site,
                mean_ms: cost.is_finite().then(|| per_access(cost)),
                price_ms: match solver.price_of(groups, group, site) {
                    price if price.is_finite() => per_access(price),
                    _ => 0.0,
                },
                bar: solver.rules().forbids(group, site).or(unknown),
            }
        })
        .collect();
    let net = |candidate: &Candidate| {
        let mean_ms = candidate.mean_ms.unwrap_or(f32::INFINITY);
        (candidate.bar.is_some(), mean_ms + candidate.price_ms)
    };
    candidates.sort_by(|a, b| {
        let ((a_bar, a_ms), (b_bar, b_ms)) = (net(a), net(b));
        // Of equal ones the owner is named first, as it is chosen.
        let by_owner = (b.site == owner).cmp(&(a.site == owner));
        a_bar.cmp(&b_bar).then(a_ms.total_cmp(&b_ms)).then(by_owner)
    });
    let why = why(solver, groups, group, &candidates, margin);
    let alone_ms = per_access(solver.near().floor(profile));
    Explanation { owner, bytes, accesses, candidates, alone_ms, why }
}

fn why(
    solver: &Solver<'_>,
    groups: &Groups,
    group: usize,
    candidates: &[Candidate],
    margin: f32,
) -> Why {
    let owner = groups.owner(group);
    if solver.rules().pinned(group) == Some(owner) {
        return Why::Pinned;
    }
    let is_free = solver.rules().pinned(group).is_none();
    if is_free && groups.accesses(group).is_empty() {
        return Why::Unused;
    }
    let here = candidates.iter().find(|candidate| candidate.site == owner);
    let at_owner_ms = here.and_then(|candidate| candidate.mean_ms);
    let (Some(here), Some(at_owner_ms)) = (here, at_owner_ms) else { return Why::UnknownHere };
    let Some(best) = candidates.first().filter(|best| best.bar.is_none()) else {
        return Why::NoCandidate;
    };
    if best.site == owner {
        return Why::Best;
    }
    let best_ms = best.mean_ms.unwrap_or(f32::INFINITY);
    let gain_ms = at_owner_ms + here.price_ms - best_ms - best.price_ms;
    let needed_ms = margin * at_owner_ms;
    let is_forced = here.bar.is_some();
    match gain_ms < needed_ms && !is_forced {
        true => Why::WithinMargin { to: best.site, gain_ms, needed_ms },
        false => Why::Moves { to: best.site, gain_ms },
    }
}
