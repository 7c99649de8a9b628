//! Limits the connections that are not proved yet: each takes memory and a descriptor before
//! anything about it is known.

use crate::batcher::lock;
use model::limits;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Accepted connections that are not proved yet, by address.
#[derive(Default)]
pub(super) struct Unproved(Mutex<HashMap<IpAddr, usize>>);

/// The place of one such connection, until it is dropped.
pub(super) struct Place {
    of: Arc<Unproved>,
    address: IpAddr,
}

impl Unproved {
    /// Takes a place. `None`: there are too many.
    pub(super) fn enter(self: &Arc<Unproved>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut all = lock(&self.0);
        let count: usize = all.values().sum();
        let of_address = all.get(&address).copied().unwrap_or_default();
        if count >= limits::PEER_LINKS_UNPROVED_MAX
            || of_address >= limits::PEER_LINKS_UNPROVED_PER_ADDRESS_MAX
        {
            return None;
        }
        all.insert(address, of_address + 1);
        Some(Place { of: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = lock(&self.of.0);
        match all.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(all.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_by_address_and_altogether() {
        let unproved = Arc::new(Unproved::default());
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        let mut places = Vec::new();
        for _ in 0..limits::PEER_LINKS_UNPROVED_PER_ADDRESS_MAX {
            places.push(unproved.enter(address(1)).unwrap());
        }
        assert!(unproved.enter(address(1)).is_none());
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(unproved.enter(mapped).is_none(), "the same by another name");
        places.pop();
        assert!(unproved.enter(address(1)).is_some());
        for number in 2..=255 {
            places.extend(unproved.enter(address(number)));
        }
        for number in 2..=255 {
            places.extend(unproved.enter(address(number)));
        }
        assert_eq!(places.len(), limits::PEER_LINKS_UNPROVED_MAX);
        places.clear();
        assert!(lock(&unproved.0).is_empty(), "a closed connection leaves no entry");
    }
}
