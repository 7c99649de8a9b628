//! Which sites serve vehicles now, and where: the map of every vehicle.
//!
//! A site that joins enters the map when it serves; one that is about to leave is removed before it
//! hands anything over. Its endpoints stay, for vehicles that are still attached.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
};

use lab::{geo::Point, world::World};

/// Where one node of a site listens for Redis clients.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// Its address.
    pub(super) address: SocketAddr,
    /// Whether its site owns a global key, by the node's map.
    pub(super) holds: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.address).finish()
    }
}

/// All sites of the world, in its order.
#[derive(Debug)]
pub(super) struct Roster {
    places: RwLock<Vec<Place>>,
}

#[derive(Debug, Clone, Default)]
struct Place {
    is_open: bool,
    endpoints: Vec<Endpoint>,
}

impl Roster {
    /// Of so many sites, none of which serves.
    pub(super) fn new(sites: usize) -> Self {
        Self { places: RwLock::new(vec![Place::default(); sites]) }
    }

    /// A site begins to serve.
    pub(super) fn open(&self, site: usize, endpoints: Vec<Endpoint>) {
        self.change(site, |place| *place = Place { is_open: !endpoints.is_empty(), endpoints });
    }

    /// No vehicle is to go to a site any more.
    pub(super) fn close(&self, site: usize) {
        self.change(site, |place| place.is_open = false);
    }

    /// Where the nodes of a site are; empty: it has never served.
    pub(super) fn addresses(&self, site: usize) -> Vec<SocketAddr> {
        self.with(|places| places[site].endpoints.iter().map(|endpoint| endpoint.address).collect())
    }

    /// One node of a site, of which there is at least one; they are counted round and round.
    pub(super) fn endpoint(&self, site: usize, node: usize) -> Option<Endpoint> {
        self.with(|places| {
            let endpoints = &places[site].endpoints;
            endpoints.get(node % endpoints.len().max(1)).cloned()
        })
    }

    /// The sites that serve.
    pub(super) fn open_sites(&self) -> Vec<usize> {
        self.with(|places| (0..places.len()).filter(|site| places[*site].is_open).collect())
    }

    /// Where a vehicle at `at`, now at site `current`, should be attached: the nearest site that
    /// serves, unless that is nearer than the current one by less than the margin. None: no site
    /// does.
    pub(super) fn attach(
        &self,
        world: &World,
        at: Point,
        current: Option<usize>,
        margin_m: f64,
    ) -> Option<usize> {
        let far_m = |site: usize| world.sites[site].at.distance_m(at);
        let open = self.open_sites();
        let nearest = open.iter().copied().min_by(|a, b| far_m(*a).total_cmp(&far_m(*b)))?;
        match current {
            Some(site) if open.contains(&site) && far_m(site) < far_m(nearest) + margin_m => {
                Some(site)
            }
            _ => Some(nearest),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&[Place]) -> T) -> T {
        look(&self.places.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, site: usize, change: impl FnOnce(&mut Place)) {
        change(&mut self.places.write().unwrap_or_else(PoisonError::into_inner)[site]);
    }
}

#[cfg(test)]
mod tests {
    use lab::world::ready;

    use super::*;

    #[test]
    fn vehicles_go_to_the_nearest_site_that_serves() {
        let world = ready::san_francisco();
        let place = |name: &str| world.sites.iter().position(|site| site.name.as_str() == name);
        let (downtown, mission) = (place("downtown").unwrap(), place("mission").unwrap());
        let roster = Roster::new(world.sites.len());
        let at = world.sites[mission].at;
        assert_eq!(roster.attach(&world, at, None, 150.0), None);
        let endpoint = |port| Endpoint {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            holds: Arc::new(|key| key == "car:1"),
        };
        roster.open(downtown, vec![endpoint(1), endpoint(2)]);
        assert_eq!(roster.attach(&world, at, None, 150.0), Some(downtown));
        roster.open(mission, vec![endpoint(3)]);
        assert_eq!(roster.attach(&world, at, Some(downtown), 150.0), Some(mission));
        // Half way there the margin keeps it where it is.
        let here = world.sites[downtown].at;
        let half = Point::new((at.lat + here.lat) / 2.0 - 1e-6, at.lon);
        assert_eq!(roster.attach(&world, half, Some(downtown), 150.0), Some(downtown));
        assert_eq!(roster.attach(&world, half, None, 150.0), Some(mission));
        // A site that is closed is left, however near it is.
        roster.close(mission);
        assert_eq!(roster.attach(&world, at, Some(mission), 150.0), Some(downtown));
        assert_eq!(roster.open_sites(), [downtown]);
        let ports: Vec<u16> = roster.addresses(mission).iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [3]);
        assert_eq!(roster.endpoint(downtown, 3).unwrap().address.port(), 2);
        assert!(roster.endpoint(0, 0).is_none());
        assert!((roster.endpoint(mission, 0).unwrap().holds)("car:1"));
    }
}
