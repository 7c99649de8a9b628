//! Groups that are pinned to a site: they stay there, or go there, whether they are used or not.
//!
//! The home lends a pinned group to its pin, and a borrower that is not the pin gives it back. No
//! other rule moves it. While the pin cannot take it the group stays where it is: nothing is gained
//! by a move that is not the last one.

use super::sites::Sites;
use crate::global::borrowers::Homes;
use crate::job::View;
use crate::placement::{Chosen, GroupKey, Rules};
use model::{Group, PlacementBar, Registry, SiteId};
use std::collections::BTreeMap;
use storage::state::State;

/// Where a group is that this site serves.
enum At {
    Home,
    Borrowed { home: SiteId },
}

fn served_here<S: State>(view: &View<'_, S>, group: &Group) -> Option<At> {
    let machine = view.machine;
    if machine.serves_borrowed(group) {
        let part = machine.part(group)?;
        return Some(At::Borrowed { home: machine.lender(group, &part) });
    }
    let is_home = machine.serves(group.slot()) && machine.borrower_of(group).is_none();
    is_home.then_some(At::Home)
}

/// The pinned groups of adaptive keyspaces, by the keys that their accesses are counted by.
pub(super) fn pinned<S: State>(
    view: &View<'_, S>,
    registry: &Registry,
) -> BTreeMap<GroupKey, (Group, SiteId)> {
    let accesses = view.machine.accesses();
    let is_adaptive = |group: &Group| {
        view.machine.spec(group.keyspace).is_some_and(model::KeyspaceSpec::is_adaptive)
    };
    let groups = registry.pins.iter().map(|pin| (pin.group(), pin.site));
    let groups = groups.filter(|(group, _)| is_adaptive(group));
    let named = groups
        .map(|(group, site)| (accesses.group_of(group.keyspace, true, &group.tag), (group, site)));
    named.collect()
}

/// The moves that bring pinned groups nearer to their pins. `rests`: not now.
pub(super) fn moves<S: State>(
    view: &View<'_, S>,
    (own, registry): (SiteId, &Registry),
    (sites, rules): (&Sites, &Rules),
    pinned: &BTreeMap<GroupKey, (Group, SiteId)>,
    rests: impl Fn(&GroupKey) -> bool,
) -> Vec<Chosen> {
    let (mut moves, homes) = (Vec::new(), Homes::of(registry));
    for (key, (group, site)) in pinned.iter().filter(|(key, _)| !rests(key)) {
        let Some(to) = sites.place(*site).filter(|_| *site != own) else { continue };
        // It leaves, is lost or silent, or has refused a group lately.
        if rules.is_barred(to) || rules.is_refusing(to) {
            continue;
        }
        let home = match served_here(view, group) {
            Some(At::Home) => own,
            Some(At::Borrowed { home }) => home,
            None => continue,
        };
        if sites.place(home).is_none_or(|home| home.0 != to.0 && rules.is_barred(home)) {
            continue;
        }
        let Some(spec) = view.machine.spec(group.keyspace) else { continue };
        let bar = homes.borrowers(home).bar(spec, group, *site);
        if bar.is_none_or(|bar| bar == PlacementBar::Pinned) {
            moves.push(Chosen { group: *key, to, gain: 0.0, rate: 0.0, waits_ms: 0.0 });
        }
    }
    moves
}
