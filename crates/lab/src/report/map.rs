//! The map: shore, the ways of clients coloured by the site that served them, and the sites.
//!
//! North is up; a plate carrée about the middle latitude is true enough for a city.

use super::{
    Map, MapSite,
    drawing::{Anchor, Drawing, Lettering, Look, Path, Pen},
    palette::Ink,
    tables::grouped,
};
use crate::geo::Point;

const WIDTH_MAX: f64 = 1_080.0;
const HEIGHT_MAX: f64 = 1_080.0;
/// A map is never thinner than this, however long the area is.
const SIDE_MIN: f64 = 120.0;
/// Sites that are named; more would cover each other.
const SITES_NAMED_MAX: usize = 40;
/// With more tracks than this, their names would hide the map.
const NAMES_MAX: usize = 20;

struct Projection<'a> {
    map: &'a Map,
    width: f64,
    height: f64,
}

impl Projection<'_> {
    fn place(&self, point: Point) -> (f64, f64) {
        let bounds = &self.map.bounds;
        (
            (point.lon - bounds.west) / (bounds.east - bounds.west) * self.width,
            (bounds.north - point.lat) / (bounds.north - bounds.south) * self.height,
        )
    }

    fn places(&self, points: &[Point]) -> Vec<(f64, f64)> {
        points.iter().map(|point| self.place(*point)).collect()
    }
}

pub(super) fn draw(map: &Map) -> Drawing {
    let (width_m, height_m) = map.bounds.size_m();
    let scale = (WIDTH_MAX / width_m).min(HEIGHT_MAX / height_m);
    let width = (width_m * scale).round().max(SIDE_MIN);
    let height = (height_m * scale).round().max(SIDE_MIN);
    let projection = Projection { map, width, height };
    let mut drawing = Drawing::new(width, height, "map");
    drawing.path(Path::rectangle((0.0, 0.0), width, height), Look::fill(Ink::Sea));
    if map.outline.is_empty() {
        drawing.path(Path::rectangle((0.0, 0.0), width, height), Look::fill(Ink::Land));
    } else {
        let land = Look { pen: Some(Pen::new(Ink::Rule, 1.0)), ..Look::fill(Ink::Land) };
        drawing.path(Path::closed(projection.places(&map.outline)), land);
    }
    for stroke in &map.strokes {
        let look = Look { opacity: 0.3, ..Look::line(Ink::Way(stroke.site), 1.1) };
        drawing.path(Path::open(projection.places(&stroke.points)), look);
    }
    tracks(&mut drawing, &projection);
    let busiest = map.sites.iter().map(|site| site.operations).max().unwrap_or(0).max(1);
    let crowded = map.sites.len() > SITES_NAMED_MAX;
    for (index, site) in map.sites.iter().enumerate() {
        let place = projection.place(site.at);
        draw_site(&mut drawing, place, Ink::Site(index), site, (busiest, crowded));
    }
    scale_bar(&mut drawing, width_m);
    drawing
}

/// Each client's way: a ring where it began, a dot where it ended, its name there if there are few.
fn tracks(drawing: &mut Drawing, projection: &Projection) {
    let tracks = &projection.map.tracks;
    for (index, track) in tracks.iter().enumerate() {
        let places = projection.places(&track.points);
        let (Some(first), Some(last)) = (places.first().copied(), places.last().copied()) else {
            continue;
        };
        let ink = Ink::Series(index);
        drawing.path(Path::open(places), Look { opacity: 0.75, ..Look::line(ink, 1.6) });
        let ring = Look { pen: Some(Pen::new(ink, 1.6)), ..Look::fill(Ink::Card) };
        drawing.circle(first, 3.4, ring);
        drawing.circle(last, 3.8, Look::fill(ink));
    }
    if tracks.len() > NAMES_MAX {
        return;
    }
    for (index, track) in tracks.iter().enumerate() {
        let Some(last) = track.points.last() else { continue };
        let (x, y) = projection.place(*last);
        let name = Lettering {
            halo: Some(Ink::Land),
            ..Lettering::new(Ink::Series(index), 11.5, Anchor::Start)
        };
        drawing.words((x + 6.0, y + 4.0), &track.name, name);
    }
}

/// A ring for each node; the disc's area shows how much of the work was done here. Where there are
/// many sites the discs are smaller and have no names, which would cover each other.
fn draw_site(
    drawing: &mut Drawing,
    (x, y): (f64, f64),
    ink: Ink,
    site: &MapSite,
    (busiest, crowded): (u64, bool),
) {
    let scale = if crowded { 0.5 } else { 1.0 };
    let radius = scale * (6.0 + 16.0 * (site.operations as f64 / busiest as f64).sqrt());
    for ring in (1..site.nodes).rev() {
        let look = Look { pen: Some(Pen::new(ink, 2.2)), ..Look::fill(Ink::Card) };
        drawing.circle((x, y), radius + 5.0 * ring as f64, look);
    }
    let disc = Look { pen: Some(Pen::new(Ink::Card, 1.5)), ..Look::fill(ink) };
    drawing.circle((x, y), radius, disc);
    if crowded {
        return;
    }
    let nodes = if site.nodes > 1 { format!(" · {} nodes", site.nodes) } else { String::new() };
    let below = y + radius + 5.0 * site.nodes.saturating_sub(1) as f64 + 15.0;
    let name = Lettering {
        bold: true,
        halo: Some(Ink::Land),
        ..Lettering::new(Ink::Text, 12.5, Anchor::Middle)
    };
    drawing.words((x, below), format!("{}{nodes}", site.name), name);
    let count = Lettering { bold: false, size: 11.5, ..name };
    drawing.words((x, below + 14.0), grouped(site.operations), count);
}

fn scale_bar(drawing: &mut Drawing, width_m: f64) {
    let bar_m = [100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 50_000.0, 200_000.0]
        .into_iter()
        .rfind(|bar_m| *bar_m < width_m / 4.0)
        .unwrap_or(100.0);
    let length = bar_m / width_m * drawing.width;
    let y = drawing.height - 16.0;
    let label =
        if bar_m < 1_000.0 { format!("{bar_m} m") } else { format!("{} km", bar_m / 1_000.0) };
    let bar = vec![(14.0, y - 5.0), (14.0, y), (14.0 + length, y), (14.0 + length, y - 5.0)];
    drawing.path(Path::open(bar), Look::line(Ink::Soft, 1.4));
    let words = Lettering::new(Ink::Soft, 12.0, Anchor::Start);
    drawing.words((length + 22.0, y + 3.0), label, words);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        geo::Bounds,
        report::{MapTrack, Stroke},
    };

    fn map(bounds: Bounds) -> Map {
        let (home, away) = (Point::new(37.75, -122.45), Point::new(37.79, -122.40));
        Map {
            sites: vec![MapSite { name: "home".to_owned(), at: home, nodes: 3, operations: 9 }],
            strokes: vec![Stroke { site: 0, points: vec![home, away] }],
            tracks: vec![MapTrack { name: "c1".to_owned(), points: vec![away, home] }],
            ..Map::new(bounds)
        }
    }

    const CITY: Bounds = Bounds { south: 37.70, west: -122.52, north: 37.82, east: -122.35 };

    fn words(drawing: &Drawing) -> Vec<&str> {
        let words = drawing.shapes.iter().filter_map(|shape| match shape {
            super::super::drawing::Shape::Words { words, .. } => Some(words.as_str()),
            _ => None,
        });
        words.collect()
    }

    #[test]
    fn sites_and_few_clients_are_named() {
        let few = draw(&map(CITY));
        assert_eq!(words(&few), ["c1", "home · 3 nodes", "9", "2 km"]);
        let mut many = map(CITY);
        many.tracks = vec![many.tracks[0].clone(); NAMES_MAX + 1];
        assert!(!words(&draw(&many)).contains(&"c1"));
    }

    #[test]
    fn a_long_area_fits_too() {
        let tall = draw(&map(Bounds { south: 30.0, north: 45.0, ..CITY }));
        assert!(
            tall.height <= HEIGHT_MAX && tall.width >= SIDE_MIN,
            "{} {}",
            tall.width,
            tall.height
        );
        let wide = draw(&map(Bounds { west: -130.0, east: -100.0, ..CITY }));
        assert!(wide.width <= WIDTH_MAX && wide.height >= SIDE_MIN);
        let usual = draw(&map(CITY));
        assert!((usual.width / usual.height / (14.95 / 13.34) - 1.0).abs() < 0.01);
    }
}
