//! The deployment: its sites and the slots they hold. Needs the right `admin` on `*`, where there
//! are users.
//!
//! Moves of slots, leaving, backups and promotions bear numbers: such a call is sent again, to
//! another node if need be, until its outcome is known, and done once. A recovery of the registry
//! is sent again, too, and needs no number: what it is to bring about is seen from the registry.

use crate::call::{Caller, Repeat, deployment};
use crate::order::MoveOrder;
use crate::{Error, v1};
use model::SlotSet;
use std::sync::Arc;

/// The administration of a deployment, through one of its sites.
#[derive(Clone)]
pub struct Deployment {
    caller: Arc<Caller>,
}

impl Deployment {
    pub(crate) fn new(caller: Arc<Caller>) -> Deployment {
        Deployment { caller }
    }

    /// The sites, as recorded at the node in use.
    pub async fn sites(&self) -> Result<v1::ListSitesResponse, Error> {
        let list = |channel, request| async move { deployment(channel).list_sites(request).await };
        Ok(self.caller.call(Repeat::Read, v1::ListSitesRequest {}, list).await?.into_inner())
    }

    /// The owners of slots, and the moves of the site in use.
    pub async fn slots(&self) -> Result<v1::ListSlotsResponse, Error> {
        let list = |channel, request| async move { deployment(channel).list_slots(request).await };
        Ok(self.caller.call(Repeat::Read, v1::ListSlotsRequest {}, list).await?.into_inner())
    }

    /// Slots that are to be handed to a site from all their owners. Nothing is done before
    /// [`MoveOrder::ask`].
    pub fn move_slots(&self, slots: &SlotSet, to: &str) -> MoveOrder<'_> {
        MoveOrder::new(&self.caller, slots.to_string(), to.to_owned())
    }

    /// Pauses or resumes a move of the site in use.
    pub async fn pause_move(&self, number: u64, paused: bool) -> Result<(), Error> {
        let message = v1::PauseMoveRequest { number, paused };
        let pause = |channel, request| async move { deployment(channel).pause_move(request).await };
        // A flag that is set again is as it was.
        self.caller.call(Repeat::Numbered, message, pause).await.map(drop)
    }

    /// Has a site hand everything over and leave; returns when that has begun.
    pub async fn leave_site(&self, site: &str) -> Result<(), Error> {
        self.leave_site_and_discard(site, &[]).await
    }

    /// The same; mirrors that the site keeps of these others are given up, with what only they
    /// have.
    pub async fn leave_site_and_discard(
        &self,
        site: &str,
        discard: &[String],
    ) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let (request, discard) = (Some(number.id()), discard.to_vec());
        let message = v1::LeaveSiteRequest { site: site.to_owned(), request, discard };
        let leave = |channel, request| async move { deployment(channel).leave_site(request).await };
        self.caller.call(Repeat::Numbered, message, leave).await.map(drop)
    }

    /// Sets the site that keeps a site's mirror.
    pub async fn set_backup(
        &self,
        site: &str,
        choice: v1::set_backup_request::Choice,
    ) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let request = Some(number.id());
        let message = v1::SetBackupRequest { site: site.to_owned(), choice: Some(choice), request };
        let set = |channel, request| async move { deployment(channel).set_backup(request).await };
        self.caller.call(Repeat::Numbered, message, set).await.map(drop)
    }

    /// Has a site's backup take over from it for good, or (without `accept_loss`) returns what
    /// would be lost by that.
    pub async fn promote_backup(
        &self,
        mut message: v1::PromoteBackupRequest,
    ) -> Result<v1::PromoteBackupResponse, Error> {
        let number = message.accept_loss.then(|| self.caller.sequence.begin());
        message.request = number.as_ref().map(|number| number.id());
        let repeat = if number.is_some() { Repeat::Numbered } else { Repeat::Read };
        let promote =
            |channel, request| async move { deployment(channel).promote_backup(request).await };
        Ok(self.caller.call(repeat, message, promote).await?.into_inner())
    }

    /// Why a key is where it is, by its owner.
    pub async fn explain_placement(
        &self,
        key: &[u8],
    ) -> Result<v1::ExplainPlacementResponse, Error> {
        let explain =
            |channel, request| async move { deployment(channel).explain_placement(request).await };
        let message = v1::ExplainPlacementRequest { key: key.to_vec().into() };
        Ok(self.caller.call(Repeat::Read, message, explain).await?.into_inner())
    }

    /// Has the group of a key stay at a site, or go there.
    pub async fn pin_group(&self, key: &[u8], site: &str) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let (key, request) = (key.to_vec().into(), Some(number.id()));
        let message = v1::PinGroupRequest { key, site: site.to_owned(), request };
        let pin = |channel, request| async move { deployment(channel).pin_group(request).await };
        self.caller.call(Repeat::Numbered, message, pin).await.map(drop)
    }

    /// Has the group of a key go where it is used again.
    pub async fn unpin_group(&self, key: &[u8]) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let (key, request) = (key.to_vec().into(), Some(number.id()));
        let message = v1::UnpinGroupRequest { key, request };
        let unpin =
            |channel, request| async move { deployment(channel).unpin_group(request).await };
        self.caller.call(Repeat::Numbered, message, unpin).await.map(drop)
    }

    /// The groups that are pinned, ordered by keyspace and tag.
    pub async fn pins(&self) -> Result<Vec<v1::Pin>, Error> {
        let list = |channel, request| async move { deployment(channel).list_pins(request).await };
        let message = v1::ListPinsRequest {};
        Ok(self.caller.call(Repeat::Read, message, list).await?.into_inner().pins)
    }

    /// The moves that the site in use advises.
    pub async fn placement_ledger(&self) -> Result<v1::ShowPlacementLedgerResponse, Error> {
        let show = |channel, request| async move {
            deployment(channel).show_placement_ledger(request).await
        };
        let message = v1::ShowPlacementLedgerRequest {};
        Ok(self.caller.call(Repeat::Read, message, show).await?.into_inner())
    }

    /// The failover that is under way, and those that some site may not have learned of yet.
    pub async fn failovers(&self) -> Result<Vec<v1::Failover>, Error> {
        let list =
            |channel, request| async move { deployment(channel).list_failovers(request).await };
        let message = v1::ListFailoversRequest {};
        Ok(self.caller.call(Repeat::Read, message, list).await?.into_inner().failovers)
    }

    /// A page of the writes that a failover lost of a site, or, without a failover, which lists of
    /// such writes the site has. `site`: empty for the site in use.
    pub async fn lost_writes(
        &self,
        site: &str,
        failover: &str,
        page: u32,
    ) -> Result<v1::ListLostWritesResponse, Error> {
        let list =
            |channel, request| async move { deployment(channel).list_lost_writes(request).await };
        let (site, failover) = (site.to_owned(), failover.to_owned());
        let message = v1::ListLostWritesRequest { site, failover, page };
        Ok(self.caller.call(Repeat::Read, message, list).await?.into_inner())
    }

    /// The regions of causal keyspaces, and how far the asked node is in the order of its own.
    pub async fn region(&self) -> Result<v1::ShowRegionResponse, Error> {
        let show = |channel, request| async move { deployment(channel).show_region(request).await };
        Ok(self.caller.call(Repeat::Read, v1::ShowRegionRequest {}, show).await?.into_inner())
    }

    /// Sets which site is to be the root of its region.
    pub async fn move_root(&self, to: &str) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let request = Some(number.id());
        let message = v1::MoveRootRequest { to: to.to_owned(), request };
        let ask = |channel, request| async move { deployment(channel).move_root(request).await };
        self.caller.call(Repeat::Numbered, message, ask).await.map(drop)
    }

    /// Sets which site is to be the standby of the region's root, and whether that takes over by an
    /// operator's command only. `region`: its name, or `none`; empty: that of the site that is
    /// named, or else of the asked one.
    pub async fn set_standby(
        &self,
        choice: v1::set_standby_request::Choice,
        by_hand: bool,
        region: &str,
    ) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let request = Some(number.id());
        let message = v1::SetStandbyRequest {
            choice: Some(choice),
            by_hand,
            request,
            region: region.to_owned(),
        };
        let ask = |channel, request| async move { deployment(channel).set_standby(request).await };
        self.caller.call(Repeat::Numbered, message, ask).await.map(drop)
    }

    /// Has the order of causal keys go on without its root, which is lost. `to`: the site that is
    /// to look after it; empty: the asked one. `region`: its name, or `none`; empty: that of the
    /// asked site. Returns the lost root's name; empty: not known, as the answer came to a
    /// repetition.
    pub async fn rebuild_region(
        &self,
        to: &str,
        force: bool,
        region: &str,
    ) -> Result<String, Error> {
        let number = self.caller.sequence.begin();
        let request = Some(number.id());
        let message = v1::RebuildRegionRequest {
            to: to.to_owned(),
            force,
            request,
            region: region.to_owned(),
        };
        let ask =
            |channel, request| async move { deployment(channel).rebuild_region(request).await };
        let answer = self.caller.call(Repeat::Numbered, message, ask).await?;
        Ok(answer.into_inner().lost)
    }

    /// The sites that hold the registry, and whether they answer the asked one.
    pub async fn registry(&self) -> Result<v1::ShowRegistryResponse, Error> {
        let show =
            |channel, request| async move { deployment(channel).show_registry(request).await };
        Ok(self.caller.call(Repeat::Read, v1::ShowRegistryRequest {}, show).await?.into_inner())
    }

    /// Continues with the registry without sites that are lost, or (without `accept`) returns the
    /// state of the sites.
    pub async fn recover_registry(
        &self,
        without: &[String],
        accept: bool,
    ) -> Result<v1::ShowRegistryResponse, Error> {
        let message = v1::RecoverRegistryRequest { without: without.to_vec(), accept };
        let recover =
            |channel, request| async move { deployment(channel).recover_registry(request).await };
        // It needs no number: what a recovery is to bring about is seen from the registry, and a
        // second one goes on from all that the first one chose.
        let repeat = if accept { Repeat::Numbered } else { Repeat::Read };
        Ok(self.caller.call(repeat, message, recover).await?.into_inner())
    }
}
