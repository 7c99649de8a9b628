//! What moving records to their users brings, added up over the ledgers of all sites.
//!
//! A site's ledger is of its present leader. When another one leads, or the site leaves, what the
//! ledger had before is kept here. Ledgers have windows that are over; what is moved meanwhile is
//! seen in the totals of the nodes that lead, which each keeps as long as it runs.

use indicatif::BinaryBytes;
use model::LoansLedger;

/// Of all sites.
#[derive(Debug)]
pub(super) struct Loans {
    sites: Vec<SiteLoans>,
    /// Moves that each node of each site has made as a leader.
    made: Vec<Vec<u64>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SiteLoans {
    lent: u64,
    /// By former leaders.
    before: Moved,
    /// By the present one.
    now: Moved,
    /// Number of the newest window of its ledger.
    newest: u64,
}

/// Moves, and what they brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Moved {
    /// Groups that were moved.
    pub(super) groups: u64,
    /// About how many bytes these were.
    pub(super) bytes: u64,
    /// The waiting that this saved, in microseconds; negative: users waited longer.
    pub(super) saved_us: i64,
}

impl Moved {
    fn plus(self, other: Moved) -> Moved {
        Moved {
            groups: self.groups + other.groups,
            bytes: self.bytes + other.bytes,
            saved_us: self.saved_us + other.saved_us,
        }
    }

    /// In a few words.
    pub(super) fn text(self) -> String {
        let saved_s = self.saved_us as f64 / 1e6;
        let bytes = BinaryBytes(self.bytes);
        format!("{} moves of {bytes} saved {saved_s:.1} s", self.groups)
    }
}

impl Loans {
    /// Of so many sites, none of which lends anything.
    pub(super) fn new(sites: usize) -> Self {
        Self { sites: vec![SiteLoans::default(); sites], made: vec![Vec::new(); sites] }
    }

    /// How many groups a site has moved since it was last asked this, by the totals of its nodes;
    /// none: the node does not lead.
    pub(super) fn made_since(&mut self, site: usize, totals: &[Option<u64>]) -> u64 {
        let made = &mut self.made[site];
        made.resize(made.len().max(totals.len()), 0);
        let each = made.iter_mut().zip(totals).map(|(made, total)| {
            let before = *made;
            *made = total.unwrap_or(before).max(before);
            *made - before
        });
        each.sum()
    }

    /// What a site answers now; an empty ledger if it is not there.
    pub(super) fn look(&mut self, site: usize, ledger: &LoansLedger) {
        let one = &mut self.sites[site];
        let newest = ledger.windows.last().map_or(0, |window| window.number);
        if newest < one.newest || ledger.windows.is_empty() {
            one.before = one.before.plus(one.now);
        }
        let windows = ledger.windows.iter().map(|window| Moved {
            groups: window.moves,
            bytes: window.bytes,
            saved_us: window.saved_us,
        });
        one.now = windows.fold(Moved::default(), Moved::plus);
        (one.lent, one.newest) = (ledger.lent_count, newest);
    }

    /// Groups that each site lends.
    pub(super) fn lent(&self, site: usize) -> u64 {
        self.sites[site].lent
    }

    /// What was moved, by all sites.
    pub(super) fn moved(&self) -> Moved {
        let each = self.sites.iter().map(|site| site.before.plus(site.now));
        each.fold(Moved::default(), Moved::plus)
    }
}

#[cfg(test)]
mod tests {
    use model::PlacementWindow;

    use super::*;

    fn ledger(lent_count: u64, windows: &[(u64, i64)]) -> LoansLedger {
        let window = |(number, saved_us): &(u64, i64)| PlacementWindow {
            number: *number,
            moves: 2,
            bytes: 100,
            saved_us: *saved_us,
            expected_us_per_s: 0,
            paused_us: 0,
        };
        let windows = windows.iter().map(window).collect();
        LoansLedger { lent_count, windows, ..LoansLedger::default() }
    }

    #[test]
    fn each_move_is_counted_once_under_all_leaders() {
        let mut loans = Loans::new(2);
        assert_eq!(loans.made_since(1, &[]), 0, "it has not come yet");
        assert_eq!(loans.made_since(0, &[Some(3), None]), 3);
        assert_eq!(loans.made_since(0, &[Some(5), None]), 2);
        // Another one leads, and then the first one again, whose total goes on.
        assert_eq!(loans.made_since(0, &[None, Some(1)]), 1);
        assert_eq!(loans.made_since(0, &[Some(0), Some(1)]), 0);
        assert_eq!(loans.made_since(0, &[Some(6), Some(1)]), 1);
        assert_eq!(loans.made_since(0, &[]), 0, "it has left");
        assert_eq!(loans.made_since(1, &[Some(4)]), 4);
    }

    #[test]
    fn what_a_former_leader_counted_stays() {
        let mut loans = Loans::new(2);
        loans.look(0, &ledger(3, &[(0, 5_000), (1, 7_000)]));
        loans.look(0, &ledger(4, &[(0, 5_000), (1, 7_000), (2, -1_000)]));
        assert_eq!((loans.lent(0), loans.lent(1)), (4, 0));
        assert_eq!(loans.moved(), Moved { groups: 6, bytes: 300, saved_us: 11_000 });
        // Another leader, which begins anew, and then a window of it.
        loans.look(0, &ledger(4, &[]));
        loans.look(0, &ledger(4, &[]));
        loans.look(0, &ledger(4, &[(0, 1_000)]));
        loans.look(1, &ledger(1, &[(5, 1_000)]));
        assert_eq!(loans.moved(), Moved { groups: 10, bytes: 500, saved_us: 13_000 });
        loans.look(1, &LoansLedger::default());
        loans.look(1, &LoansLedger::default());
        assert_eq!((loans.lent(1), loans.moved().saved_us), (0, 13_000));
        assert_eq!(loans.moved().text(), "10 moves of 500 B saved 0.0 s");
    }
}
