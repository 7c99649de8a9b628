//! One vote for each client of a group, against liars.
//!
//! What clients state about their own accesses can be false, and one that names a group a million
//! times would have it. With equal weights each authenticated client of a group counts as much as
//! any other, so where half of a group's clients are, is an optimal place (in a metric): liars
//! cannot move a group away from a site that has as many honest clients of it.
//!
//! Portkey (§7) gives each client one vote over *all* that it names. Then a liar that names one
//! group has a whole vote there, and an honest client of sixteen groups a sixteenth of one in each.

use super::latencies::Origin;
use super::trial::{Bug, Planted};

/// What one client does with one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// Where it is.
    pub origin: Origin,
    /// Accesses per second.
    pub rate: f32,
    /// The part of all its accesses that these are. Only a planted bug looks at it.
    pub share: f32,
}

/// The accesses of a group whose clients weigh the same. Together they are the number of clients
/// times the median of their rates, the lower one of two, so that no claim of one makes the group
/// more important.
pub fn equal(clients: &[Use], planted: Planted) -> Vec<(Origin, f32)> {
    let mut rates: Vec<f32> = clients.iter().map(|client| client.rate).collect();
    rates.sort_by(f32::total_cmp);
    let Some(median) = rates.get(rates.len().saturating_sub(1) / 2) else { return Vec::new() };
    let weight = |client: &Use| match planted.is(Bug::VotesOverGroups) {
        true => client.share,
        false => *median,
    };
    clients.iter().map(|client| (client.origin, weight(client))).collect()
}
