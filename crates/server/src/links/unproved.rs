//! How many connections may be at proving what they are: each takes memory and a descriptor of this
//! node before anything is known of it.

use crate::desk::lock;
use model::limits;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Those that others have made and not proved yet, by address.
#[derive(Default)]
pub(super) struct Unproved(Mutex<HashMap<IpAddr, usize>>);

/// One of them, until it is dropped.
pub(super) struct Place {
    of: Arc<Unproved>,
    address: IpAddr,
}

impl Unproved {
    /// `None`: there are too many.
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
        assert!(lock(&unproved.0).is_empty(), "nothing is remembered of who has gone");
    }
}
