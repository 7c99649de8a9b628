//! Failovers for gRPC: which sites took which slots, and the writes that were lost.

use super::registry::{name_of, names_of};
use model::{
    BackupError, Ballot, Catalog, DecidedFailover, Failure, LostReport, LostWrite, LostWrites,
    Refusal, Registry, SiteId, SlotCopy, Taken,
};
use tonic::Status;
use wire::grpc::{Invalid, Reason, change_kind, status, v1};

/// The id of a failover.
pub(super) fn parse(id: &str) -> Result<Ballot, Invalid> {
    id.parse().map_err(|()| {
        let what = format!("{id:?} is no id of a failover; one is written as in 7@s2");
        Invalid::Value { field: "failover", what }
    })
}

/// A failover that was decided; `known`: which sites have which failovers.
pub(super) fn decided(
    registry: &Registry,
    one: &DecidedFailover,
    known: &[(Ballot, Vec<SiteId>)],
) -> v1::Failover {
    let known = known.iter().find(|(decided, _)| *decided == one.decided);
    let known = known.map(|(_, sites)| &sites[..]).unwrap_or_default();
    let listed = registry.sites.iter().map(|site| site.id);
    let (confirmed, unconfirmed): (Vec<SiteId>, _) = listed.partition(|site| known.contains(site));
    let taken = |taken: &Taken| {
        let (epoch, position) = taken.from.unwrap_or_default();
        v1::TakenSlots {
            by: name_of(registry, taken.by),
            slots: taken.slots.to_string(),
            empty: taken.from.is_none(),
            epoch: epoch.to_string(),
            position,
            complete: position == SlotCopy::COMPLETE,
        }
    };
    v1::Failover {
        id: one.decided.to_string(),
        lost: name_of(registry, one.lost),
        without: names_of(registry, &one.without),
        open: false,
        taken: one.taken.iter().map(taken).collect(),
        returned: one.returned,
        confirmed: names_of(registry, &confirmed),
        unconfirmed: names_of(registry, &unconfirmed),
    }
}

/// Writes that failovers lost of a site.
pub(super) fn lost_writes(lost: LostWrites, catalog: &Catalog) -> v1::ListLostWritesResponse {
    let report = |one: LostReport| v1::LostReport {
        failover: one.failover.to_string(),
        slots: one.slots.slots().to_string(),
        keys: one.keys,
        trimmed: one.trimmed.0,
        more: one.more,
    };
    let write = |one: LostWrite| {
        let keyspace = catalog.by_id(one.keyspace);
        v1::LostWrite {
            keyspace: keyspace
                .map_or_else(|| one.keyspace.to_string(), |keyspace| keyspace.spec.name.clone()),
            key: one.key,
            revision: one.revision.0,
            change: change_kind(one.kind).into(),
        }
    };
    v1::ListLostWritesResponse {
        reports: lost.reports.into_iter().map(report).collect(),
        writes: lost.writes.into_iter().map(write).collect(),
        next_page: lost.next,
    }
}

/// Why no site takes over. What a core states of a site has its number; an operator knows its name.
pub(super) fn refused(registry: &Registry, failure: &Failure) -> Status {
    let status = status(failure);
    let Failure::Refused(Refusal::Backup(
        BackupError::Fenced(site) | BackupError::Promoted(site) | BackupError::Answers(site),
    )) = failure
    else {
        return status;
    };
    let name = name_of(registry, *site);
    Reason::Deployment.status(status.message().replacen(&site.to_string(), &name, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeploymentId, SiteEntry, SiteName};

    #[test]
    fn a_refusal_names_the_site() {
        let mut registry = Registry::empty(DeploymentId(1), 0);
        registry.sites.push(SiteEntry::new(SiteId(2), SiteName::new("north").unwrap()));
        let refused = |error: BackupError| refused(&registry, &Refusal::from(error).into());
        let promoted = refused(BackupError::Promoted(SiteId(2)));
        assert!(promoted.message().starts_with("north has taken over"), "{promoted}");
        assert_eq!(Reason::of(&promoted), Some(Reason::Deployment));
        let unlisted = refused(BackupError::Answers(SiteId(7)));
        assert!(unlisted.message().starts_with("s7 answers"), "{unlisted}");
        assert!(refused(BackupError::Worse).message().starts_with("more would be lost"));
    }
}
