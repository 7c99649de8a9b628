//! Asking sites that are silent whether they are there ([`crate::deployment::failure_detector`]).

use super::Site;
use model::SiteId;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::{Alive, InterSite};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Asks all nodes of a site whether they are there.
    pub(super) fn ask_alive(&mut self, site: SiteId) {
        self.deployment.failure_detector.asked(site, self.now.monotonic);
        for node in self.nodes_of(site) {
            self.send_inter_site(site, node, InterSite::Alive(Alive { asks: true }));
        }
    }

    pub(super) fn tick_reach(&mut self) {
        let now = self.now.monotonic;
        let Some(member) = self.machine.membership() else { return };
        let is_there = |site| member.registry.site(site).is_some();
        for site in self.deployment.failure_detector.next_to_ask(now, is_there) {
            self.ask_alive(site);
        }
    }
}
