//! Asking sites that are silent whether they are there, and what such a sign of life has
//! ([`crate::deployment::failure_detector`]).

use super::Site;
use model::{NodeId, SiteId};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::{Alive, InterSite};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Asks all nodes of a site whether they are there.
    pub(super) fn ask_alive(&mut self, site: SiteId) {
        self.deployment.failure_detector.asked(site, self.now.monotonic);
        let alive = self.alive(true);
        for node in self.nodes_of(site) {
            self.send_inter_site(site, node, alive.clone());
        }
    }

    fn alive(&self, asks: bool) -> InterSite {
        let full = self.leads().then_some(self.replica.disk_full.is_some());
        InterSite::Alive(Alive { asks, full })
    }

    pub(super) fn take_alive(&mut self, site: SiteId, node: NodeId, alive: Alive) {
        if let Some(is_full) = alive.full {
            self.deployment.failure_detector.noted(site, is_full);
        }
        if alive.asks {
            self.send_inter_site(site, node, self.alive(false));
        }
    }

    pub(super) fn tick_reach(&mut self) {
        let now = self.now.monotonic;
        let Some(member) = self.machine.membership() else { return };
        let is_there = |site| member.registry.site(site).is_some();
        for site in self.deployment.failure_detector.next_to_ask(now, is_there) {
            self.ask_alive(site);
        }
        let is_full = self.leads() && self.replica.disk_full.is_some();
        if is_full && self.deployment.failure_detector.is_to_note(now) {
            for site in self.other_sites() {
                self.send_to_site(site, self.alive(false));
            }
        }
    }
}
