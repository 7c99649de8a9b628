//! Points on the earth, the metres between them, and a local grid of square zones.
//!
//! A city is small: within 100 km the error of treating it as a plane is far below that of a GPS
//! fix, so the grid uses the equirectangular projection about its origin. Distances use the
//! haversine formula on a sphere, which is within 0.6 % of the ellipsoid everywhere.
//!
//! Left out: anything across the antimeridian or at the poles.

use schemars::JsonSchema;
use serde::Deserialize;

/// Mean radius of the earth (IUGG), in metres.
const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// A place: degrees of WGS84.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Degrees north, −90 to 90.
    pub lat: f64,
    /// Degrees east, −180 to 180.
    pub lon: f64,
}

impl Point {
    /// A point from degrees north and degrees east.
    #[must_use]
    pub fn new(lat: f64, lon: f64) -> Self {
        Self { lat, lon }
    }

    /// Whether both degrees are numbers in their range.
    #[must_use]
    pub fn is_on_earth(self) -> bool {
        (-90.0..=90.0).contains(&self.lat) && (-180.0..=180.0).contains(&self.lon)
    }

    /// Great-circle distance in metres (haversine).
    #[must_use]
    pub fn distance_m(self, other: Self) -> f64 {
        let half_lat = (other.lat - self.lat).to_radians() / 2.0;
        let half_lon = (other.lon - self.lon).to_radians() / 2.0;
        let (lat_a, lat_b) = (self.lat.to_radians(), other.lat.to_radians());
        let chord = half_lat.sin().powi(2) + lat_a.cos() * lat_b.cos() * half_lon.sin().powi(2);
        2.0 * EARTH_RADIUS_M * chord.sqrt().min(1.0).asin()
    }

    /// The point `fraction` of the way to `other`: 0 is here, 1 is there. For points of one city.
    #[must_use]
    pub fn toward(self, other: Self, fraction: f64) -> Self {
        Self {
            lat: self.lat + (other.lat - self.lat) * fraction,
            lon: self.lon + (other.lon - self.lon) * fraction,
        }
    }
}

/// A rectangle of degrees.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Southern edge, degrees north.
    pub south: f64,
    /// Western edge, degrees east.
    pub west: f64,
    /// Northern edge, degrees north.
    pub north: f64,
    /// Eastern edge, degrees east.
    pub east: f64,
}

impl Bounds {
    /// Whether the point lies in the rectangle, edges included.
    #[must_use]
    pub fn contains(&self, point: Point) -> bool {
        (self.south..=self.north).contains(&point.lat)
            && (self.west..=self.east).contains(&point.lon)
    }

    /// The middle.
    #[must_use]
    pub fn center(&self) -> Point {
        Point::new((self.south + self.north) / 2.0, (self.west + self.east) / 2.0)
    }

    /// Width and height in metres, measured through the middle.
    #[must_use]
    pub fn size_m(&self) -> (f64, f64) {
        let center = self.center();
        (
            Point::new(center.lat, self.west).distance_m(Point::new(center.lat, self.east)),
            Point::new(self.south, center.lon).distance_m(Point::new(self.north, center.lon)),
        )
    }
}

/// One square of a [`Grid`]; negative south and west of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone {
    /// Squares east of the origin.
    pub column: i32,
    /// Squares north of the origin.
    pub row: i32,
}

impl std::fmt::Display for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.column, self.row)
    }
}

/// A local grid of square zones about an origin.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    origin: Point,
    zone_m: f64,
}

impl Grid {
    /// A grid whose zone (0, 0) has its south-west corner at `origin`; zones are `zone_m` wide.
    #[must_use]
    pub fn new(origin: Point, zone_m: f64) -> Self {
        Self { origin, zone_m }
    }

    /// Metres east and north of the origin.
    #[must_use]
    pub fn meters(&self, point: Point) -> (f64, f64) {
        let per_degree_m = EARTH_RADIUS_M.to_radians();
        (
            (point.lon - self.origin.lon) * self.origin.lat.to_radians().cos() * per_degree_m,
            (point.lat - self.origin.lat) * per_degree_m,
        )
    }

    /// The zone that holds the point.
    #[must_use]
    pub fn zone(&self, point: Point) -> Zone {
        let (east_m, north_m) = self.meters(point);
        Zone {
            column: (east_m / self.zone_m).floor() as i32,
            row: (north_m / self.zone_m).floor() as i32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_matches_known_pairs() {
        // One degree of a meridian is 1/360 of the circumference.
        let degree_m = 2.0 * std::f64::consts::PI * EARTH_RADIUS_M / 360.0;
        let one = Point::new(37.0, -122.0).distance_m(Point::new(38.0, -122.0));
        assert!((one - degree_m).abs() < 1.0, "{one}");
        // London to Paris: published great-circle distance 343.5 km.
        let far = Point::new(51.5074, -0.1278).distance_m(Point::new(48.8566, 2.3522));
        assert!((far - 343_500.0).abs() < 1_000.0, "{far}");
        assert_eq!(Point::new(1.0, 2.0).distance_m(Point::new(1.0, 2.0)), 0.0);
    }

    #[test]
    fn grid_agrees_with_distances_within_a_city() {
        let origin = Point::new(37.75, -122.45);
        let grid = Grid::new(origin, 500.0);
        for (lat, lon) in [(37.80, -122.40), (37.70, -122.50), (37.61, -122.38)] {
            let point = Point::new(lat, lon);
            let (east_m, north_m) = grid.meters(point);
            let true_m = origin.distance_m(point);
            assert!((east_m.hypot(north_m) / true_m - 1.0).abs() < 2e-3);
        }
    }

    #[test]
    fn zones_are_half_open_squares_around_the_origin() {
        let grid = Grid::new(Point::new(37.75, -122.45), 500.0);
        assert_eq!(grid.zone(Point::new(37.75, -122.45)), Zone { column: 0, row: 0 });
        assert_eq!(grid.zone(Point::new(37.7499, -122.4501)), Zone { column: -1, row: -1 });
        // 0.009 degrees of latitude are 1,000.75 m: the second row up.
        assert_eq!(grid.zone(Point::new(37.759, -122.45)).to_string(), "0.2");
    }
}
