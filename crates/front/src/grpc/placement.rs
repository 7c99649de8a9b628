//! Answers about placement for gRPC: sites by name, latencies in milliseconds.

use super::registry::name_of;
use model::{
    Catalog, GroupExplained, LoansLedger, PlacementBar, PlacementClient, PlacementExplained,
    PlacementLedger, PlacementReason, PlacementWindow, Registry, SiteId,
};
use wire::grpc::v1;

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn bar(bar: PlacementBar) -> &'static str {
    match bar {
        PlacementBar::Leaves => "leaves",
        PlacementBar::LendTo => "lend-to",
        PlacementBar::Domain => "domain",
        PlacementBar::Pinned => "pinned",
    }
}

/// The groups that are pinned.
pub(super) fn pins(registry: &Registry, catalog: &Catalog) -> Vec<v1::Pin> {
    let pins = registry.pins.iter().map(|pin| v1::Pin {
        keyspace: catalog.by_id(pin.keyspace).map(|one| one.spec.name.clone()).unwrap_or_default(),
        tag: pin.tag.clone(),
        site: name_of(registry, pin.site),
    });
    pins.collect()
}

pub(super) fn explained(
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
pub(super) fn group_explained(
    registry: &Registry,
    keyspace: &str,
    one: &GroupExplained,
) -> v1::ExplainPlacementResponse {
    let home = name_of(registry, one.home);
    v1::ExplainPlacementResponse { home, ..explained(registry, keyspace, &one.placed) }
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
