//! Questions about placement and pins over gRPC, and their answers: sites by name, latencies in
//! milliseconds.

use super::call::{Callee, deadline_ms};
use super::registry::{name_of, site_named};
use model::{
    Answer, Body, Bytes, Catalog, Failure, Group, GroupExplained, LoansLedger, Pin, PlacementBar,
    PlacementClient, PlacementExplained, PlacementLedger, PlacementReason, PlacementWindow,
    Refusal, Registry, RegistryChange, RegistryError, SiteId, Slot, limits,
};
use server::Outcome;
use std::time::{Duration, Instant};
use tonic::{Request, Status};
use wire::grpc::{Invalid, request_id, status, v1};

/// Pins whose states are asked for at once.
const PINS_AT_ONCE: usize = 128;
/// How long the states of all pins may take.
const STATES: Duration = Duration::from_secs(3);

impl Callee {
    /// The group of a key, by the keyspaces in this node's registry.
    fn group_of(&self, key: &Bytes) -> Group {
        Group::of_key(self.handle.catalog().of_key(key).id, key)
    }

    /// The owner of a slot, as far as this node has a record of it.
    async fn owner_of(&self, slot: Slot) -> Option<SiteId> {
        let map = self.handle.slot_map().await;
        map.into_iter().find(|(slots, _)| slots.contains(slot)).map(|(_, owner)| owner)
    }

    /// Why a key is where it is.
    pub(super) async fn explain(
        &self,
        deadline_ms: Option<u64>,
        key: Bytes,
    ) -> Result<v1::ExplainPlacementResponse, Status> {
        let registry = self.registry().await?;
        let catalog = self.handle.catalog();
        let model::Keyspace { id: keyspace, spec } = catalog.of_key(&key);
        if !spec.counts_accesses() {
            let what =
                format!("its keyspace {:?} has placement off: no accesses are counted", spec.name);
            return Err(Invalid::Value { field: "key", what }.into());
        }
        let pin = registry.pinned(&Group::of_key(*keyspace, &key));
        let body = Body::ExplainPlacement { keyspace: *keyspace, key };
        match self.handle.call(model::Request { deadline_ms, ..model::Request::new(body) }).await {
            Ok(Answer::Placement(one)) => Ok(explained(&registry, &spec.name, &one)),
            Ok(Answer::GroupPlacement(one)) => {
                Ok(group_explained(&registry, &spec.name, &one, pin))
            }
            Ok(_) => unreachable!("a question about a placement is answered with it"),
            Err(Failure::BorrowerUnreachable { slot, borrower }) => {
                let home = self.owner_of(slot).await;
                Ok(v1::ExplainPlacementResponse {
                    keyspace: spec.name.clone(),
                    slot: u32::from(slot.number()),
                    owner: borrower,
                    reason: "unreachable".to_owned(),
                    better: pin.map(|site| name_of(&registry, site)).unwrap_or_default(),
                    home: home.map(|site| name_of(&registry, site)).unwrap_or_default(),
                    ..v1::ExplainPlacementResponse::default()
                })
            }
            Err(failure) => Err(status(&failure)),
        }
    }

    /// Changes the pin of a key's group. `parts`: the key, the site (`None`: the pin is taken away)
    /// and the number.
    pub(super) async fn change_pin<T>(
        &self,
        request: Request<T>,
        parts: impl FnOnce(T) -> (Bytes, Option<String>, Option<v1::RequestId>),
    ) -> Result<(), Status> {
        self.administrator(&request)?;
        self.know_keyspaces(&request).await?;
        let deadline_ms = deadline_ms(&request);
        let (key, site, id) = parts(request.into_inner());
        let registry = self.registry().await?;
        let group = self.group_of(&key);
        let home = self.owner_of(group.slot()).await;
        let change = || match site {
            Some(site) => {
                let site = site_named(&registry, &site)?;
                may_be_pinned(&registry, &group, site, home)
                    .map_err(|error| status(&Refusal::Registry(error).into()))?;
                let Group { keyspace, tag } = group;
                Ok(RegistryChange::Pin(Pin { keyspace, tag, site }))
            }
            None => Ok(RegistryChange::Unpin { keyspace: group.keyspace, tag: group.tag }),
        };
        self.change_registry(&registry, request_id(id)?, deadline_ms, change).await
    }

    /// The groups that are pinned, and whether they are where they are to be.
    pub(super) async fn pins(&self, deadline_ms: Option<u64>) -> Result<Vec<v1::Pin>, Status> {
        // What was published last may be of before a pin that was just made: this publishes anew.
        self.handle.slot_map().await;
        let registry = self.registry().await?;
        let mut pins = pins(&registry, &self.handle.catalog());
        let whole = deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let late = Instant::now() + (whole * 2 / 3).min(STATES);
        let asked: Vec<_> = pins.iter_mut().filter(|(_, shown)| shown.state.is_empty()).collect();
        let mut asked = asked.into_iter().peekable();
        while asked.peek().is_some() {
            let some: Vec<_> = asked.by_ref().take(PINS_AT_ONCE).collect();
            let left = late.saturating_duration_since(Instant::now()).as_millis() as u64;
            let request = |pin: &Pin| {
                // A tag has itself as its tag.
                let body = Body::ExplainPlacement { keyspace: pin.keyspace, key: pin.tag.clone() };
                model::Request { deadline_ms: Some(left.max(1)), ..model::Request::new(body) }
            };
            let requests = some.iter().map(|(pin, _)| request(pin)).collect();
            let outcomes = self.handle.call_many(requests).await;
            for ((pin, shown), outcome) in some.into_iter().zip(outcomes) {
                shown.state = state_of(pin.site, &outcome).to_owned();
            }
        }
        Ok(pins.into_iter().map(|(_, shown)| shown).collect())
    }
}

/// Whether a group may be pinned to a site. Its home always has it, whatever its keyspace is lent
/// to: the registry does not know the home, so it is asked here.
fn may_be_pinned(
    registry: &Registry,
    group: &Group,
    site: SiteId,
    home: Option<SiteId>,
) -> Result<(), RegistryError> {
    let found = registry.keyspaces.iter().find(|one| one.id == group.keyspace);
    // What is no keyspace, or not adaptive, is refused by the registry.
    let Some(spec) = found.map(|one| &one.spec).filter(|spec| spec.is_adaptive()) else {
        return Ok(());
    };
    match registry.site(site) {
        Some(entry) if home != Some(site) && !spec.may_lend_to(site) => {
            let (keyspace, site) = (spec.name.clone(), entry.name.clone());
            Err(RegistryError::PinLendTo { keyspace, site })
        }
        _ => Ok(()),
    }
}

/// The groups that are pinned, without those of keyspaces that are gone. The state is stated where
/// nothing needs to be asked for it.
fn pins(registry: &Registry, catalog: &Catalog) -> Vec<(Pin, v1::Pin)> {
    let pins = registry.pins.iter().filter_map(|pin| {
        let spec = &catalog.by_id(pin.keyspace)?.spec;
        let state = if spec.is_adaptive() { "" } else { "not-adaptive" };
        let shown = v1::Pin {
            keyspace: spec.name.clone(),
            tag: pin.tag.clone(),
            site: name_of(registry, pin.site),
            state: state.to_owned(),
        };
        Some((pin.clone(), shown))
    });
    pins.collect()
}

/// Whether a pinned group is at its site, by the answer of the site that serves it.
fn state_of(site: SiteId, outcome: &Outcome) -> &'static str {
    let Ok(Answer::GroupPlacement(one)) = outcome else { return "unknown" };
    let candidate = one.placed.candidates.iter().find(|candidate| candidate.site == site);
    match candidate.and_then(|candidate| candidate.bar) {
        _ if one.placed.owner == site => "there",
        _ if one.placed.why == PlacementReason::TooLarge => "too-large",
        Some(PlacementBar::LendTo) => "not-lent",
        Some(PlacementBar::Leaves) => "away",
        Some(PlacementBar::Domain | PlacementBar::Pinned | PlacementBar::NoRoom) | None => {
            "on-the-way"
        }
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn bar(bar: PlacementBar) -> &'static str {
    match bar {
        PlacementBar::Leaves => "leaves",
        PlacementBar::LendTo => "lend-to",
        PlacementBar::Domain => "domain",
        PlacementBar::Pinned => "pinned",
        PlacementBar::NoRoom => "no-room",
    }
}

fn explained(
    registry: &Registry,
    keyspace: &str,
    one: &PlacementExplained,
) -> v1::ExplainPlacementResponse {
    let rate = |(site, per_1000_s): &(SiteId, u64)| v1::SiteRate {
        site: name_of(registry, *site),
        per_s: *per_1000_s as f64 / 1_000.0,
    };
    let client = |client: &PlacementClient| v1::ClientRate {
        number: client.number,
        site: name_of(registry, client.site),
        per_s: client.per_1000_s as f64 / 1_000.0,
    };
    let candidates = one.candidates.iter().map(|candidate| v1::PlacementCandidate {
        site: name_of(registry, candidate.site),
        mean_ms: candidate.mean_us.map(ms),
        barred: candidate.bar.is_some(),
        bar: candidate.bar.map(bar).unwrap_or_default().to_owned(),
    });
    let (reason, better, gain_us, needed_us) = match one.why {
        PlacementReason::Unused => ("unused", None, 0, 0),
        PlacementReason::Best => ("best", None, 0, 0),
        PlacementReason::UnknownHere => ("unknown", None, 0, 0),
        PlacementReason::NoCandidate => ("no-candidate", None, 0, 0),
        PlacementReason::WithinMargin { to, gain_us, needed_us } => {
            ("within-margin", Some(to), gain_us, needed_us)
        }
        PlacementReason::WithinNoise { to, gain_us, needed_us } => {
            ("within-noise", Some(to), gain_us, needed_us)
        }
        PlacementReason::Waits { to, gain_us } => ("waits", Some(to), gain_us, 0),
        PlacementReason::Advised { to, gain_us } => ("advised", Some(to), gain_us, 0),
        PlacementReason::Moves { to, gain_us } => ("moves", Some(to), gain_us, 0),
        PlacementReason::TooLarge => ("too-large", None, 0, 0),
        PlacementReason::Pinned { to } => ("pinned", Some(to), 0, 0),
    };
    v1::ExplainPlacementResponse {
        keyspace: keyspace.to_owned(),
        slot: u32::from(one.slot.number()),
        owner: name_of(registry, one.owner),
        bytes: one.bytes,
        key_users: one.key_users.iter().map(rate).collect(),
        slot_users: one.slot_users.iter().map(rate).collect(),
        candidates: candidates.collect(),
        alone_ms: ms(one.alone_us),
        reason: reason.to_owned(),
        better: better.map(|site| name_of(registry, site)).unwrap_or_default(),
        gain_ms: ms(gain_us),
        needed_ms: ms(needed_us),
        home: String::new(),
        key_clients: one.key_clients.iter().map(client).collect(),
    }
}

/// The same of a group that may be lent.
fn group_explained(
    registry: &Registry,
    keyspace: &str,
    one: &GroupExplained,
    pin: Option<SiteId>,
) -> v1::ExplainPlacementResponse {
    let home = name_of(registry, one.home);
    let mut shown = explained(registry, keyspace, &one.placed);
    if let (PlacementReason::TooLarge, Some(pin)) = (one.placed.why, pin) {
        shown.better = name_of(registry, pin);
    }
    v1::ExplainPlacementResponse { home, ..shown }
}

fn window(one: &PlacementWindow) -> v1::PlacementWindow {
    v1::PlacementWindow {
        number: one.number,
        moves: one.moves,
        bytes: one.bytes,
        expected_ms_per_s: ms(one.expected_us_per_s),
        saved_ms: one.saved_us as f64 / 1_000.0,
        paused_ms: ms(one.paused_us),
    }
}

pub(super) fn loans(
    registry: &Registry,
    catalog: &Catalog,
    loans: &LoansLedger,
) -> v1::LoansLedger {
    let keyspace = |id| catalog.by_id(id).map(|one| one.spec.name.clone()).unwrap_or_default();
    let lent = loans.lent.iter().map(|one| v1::LentGroup {
        keyspace: keyspace(one.keyspace),
        tag: one.tag.clone(),
        to: name_of(registry, one.to),
    });
    let borrowed = loans.borrowed.iter().map(|one| v1::BorrowedGroup {
        keyspace: keyspace(one.keyspace),
        tag: one.tag.clone(),
        from: name_of(registry, one.from),
        saves_ms_per_s: one.saves_us_per_s as f64 / 1_000.0,
    });
    v1::LoansLedger {
        lent: lent.collect(),
        lent_count: loans.lent_count,
        borrowed: borrowed.collect(),
        borrowed_count: loans.borrowed_count,
        windows: loans.windows.iter().map(window).collect(),
    }
}

pub(super) fn ledger(
    registry: &Registry,
    site: &str,
    ledger: &PlacementLedger,
) -> v1::ShowPlacementLedgerResponse {
    let advised = ledger.advised.iter().map(|one| v1::AdvisedMove {
        slot: u32::from(one.slot.number()),
        from: name_of(registry, one.from),
        to: name_of(registry, one.to),
        saves_ms_per_s: ms(one.gain_us_per_s),
        bytes: one.bytes,
        for_ms: one.for_ms,
    });
    let windows = ledger.windows.iter().map(window);
    v1::ShowPlacementLedgerResponse {
        site: site.to_owned(),
        advised: advised.collect(),
        windows: windows.collect(),
        groups: ledger.groups,
        dropped: ledger.dropped,
        loans: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        DeploymentId, Keyspace, KeyspaceId, KeyspaceSpec, Placement, PlacementCandidate, SiteEntry,
        SiteName,
    };

    const CARS: KeyspaceId = KeyspaceId(1);
    const HOME: SiteId = SiteId(1);
    const PIN: SiteId = SiteId(2);

    /// Two sites, and an adaptive keyspace that is lent to a third one.
    fn registry() -> Registry {
        let entry =
            |id: SiteId| SiteEntry::new(id, SiteName::new(format!("site-{}", id.0)).unwrap());
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let (placement, lend_to) = (Placement::Adaptive, vec![SiteId(3)]);
        let spec = KeyspaceSpec { placement, lend_to, ..spec };
        Registry {
            sites: vec![entry(HOME), entry(PIN)],
            keyspaces: vec![Keyspace { id: CARS, spec }],
            ..Registry::empty(DeploymentId(7), 1)
        }
    }

    fn group() -> Group {
        Group { keyspace: CARS, tag: Bytes::from_static(b"7") }
    }

    #[test]
    fn a_group_may_be_pinned_to_its_home_and_where_its_keyspace_is_lent() {
        let mut registry = registry();
        let pinned = |registry: &Registry, home| may_be_pinned(registry, &group(), PIN, home);
        for home in [Some(HOME), None] {
            let refused = pinned(&registry, home);
            assert!(matches!(refused, Err(RegistryError::PinLendTo { .. })), "{refused:?}");
        }
        assert_eq!(pinned(&registry, Some(PIN)), Ok(()));
        registry.keyspaces[0].spec.lend_to.push(PIN);
        assert_eq!(pinned(&registry, Some(HOME)), Ok(()));
    }

    #[test]
    fn pins_of_keyspaces_that_are_gone_are_not_listed() {
        let mut registry = registry();
        let Group { keyspace, tag } = group();
        registry.pins = vec![Pin { keyspace, tag, site: PIN }];
        let listed = |registry: &Registry, keyspaces: Vec<Keyspace>| {
            let pins = pins(registry, &Catalog::new(keyspaces));
            pins.into_iter().map(|(_, pin)| (pin.keyspace, pin.state)).collect::<Vec<_>>()
        };
        let mut all = registry.keyspaces.clone();
        assert_eq!(listed(&registry, all.clone()), [("cars".to_owned(), String::new())]);
        all[0].spec.placement = Placement::Off;
        assert_eq!(listed(&registry, all), [("cars".to_owned(), "not-adaptive".to_owned())]);
        assert_eq!(listed(&registry, Vec::new()), []);
    }

    fn answer(owner: SiteId, bar: Option<PlacementBar>, why: PlacementReason) -> Answer {
        let candidate = PlacementCandidate { site: PIN, mean_us: None, bar };
        let placed = PlacementExplained {
            slot: group().slot(),
            owner,
            bytes: 1,
            key_users: Vec::new(),
            key_clients: Vec::new(),
            slot_users: Vec::new(),
            candidates: vec![candidate],
            alone_us: 0,
            why,
        };
        Answer::GroupPlacement(Box::new(GroupExplained { placed, home: HOME }))
    }

    #[test]
    fn the_state_of_a_pin_is_what_the_site_that_has_its_group_answers() {
        let pinned = PlacementReason::Pinned { to: PIN };
        for (owner, bar, why, state) in [
            (PIN, None, pinned, "there"),
            (HOME, None, pinned, "on-the-way"),
            (HOME, Some(PlacementBar::LendTo), pinned, "not-lent"),
            (HOME, Some(PlacementBar::Leaves), pinned, "away"),
            (HOME, None, PlacementReason::TooLarge, "too-large"),
        ] {
            assert_eq!(state_of(PIN, &Ok(answer(owner, bar, why))), state);
        }
        assert_eq!(state_of(PIN, &Err(Failure::NoLeader)), "unknown");
    }

    #[test]
    fn a_group_that_is_too_large_names_its_pin_too() {
        let Answer::GroupPlacement(one) = answer(HOME, None, PlacementReason::TooLarge) else {
            unreachable!()
        };
        let better = |pin| group_explained(&registry(), "cars", &one, pin).better;
        assert_eq!((better(Some(PIN)), better(None)), ("site-2".to_owned(), String::new()));
    }
}
