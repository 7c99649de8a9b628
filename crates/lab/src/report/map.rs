//! The map: shore, the vehicles' ways coloured by the site that served them, and the sites.
//!
//! North is up; a plate carrée about the middle latitude is true enough for a city.

use std::fmt::Write as _;

use super::{Map, MapSite, escaped, tables::grouped};
use crate::geo::Point;

const WIDTH: f64 = 1_080.0;

struct Projection<'a> {
    map: &'a Map,
    height: f64,
}

impl Projection<'_> {
    fn place(&self, point: Point) -> (f64, f64) {
        let bounds = &self.map.bounds;
        (
            (point.lon - bounds.west) / (bounds.east - bounds.west) * WIDTH,
            (bounds.north - point.lat) / (bounds.north - bounds.south) * self.height,
        )
    }

    fn path(&self, points: &[Point]) -> String {
        let mut path = String::new();
        for (index, point) in points.iter().enumerate() {
            let (x, y) = self.place(*point);
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        path
    }
}

pub(super) fn svg(map: &Map) -> String {
    let (width_m, height_m) = map.bounds.size_m();
    let height = (WIDTH * height_m / width_m).round();
    let projection = Projection { map, height };
    let mut svg = format!(
        "<svg class=\"map\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"map\">\
         <rect class=\"sea\" width=\"{WIDTH}\" height=\"{height}\"/>"
    );
    if !map.outline.is_empty() {
        let _ = write!(svg, "<path class=\"land\" d=\"{}Z\"/>", projection.path(&map.outline));
    }
    svg.push_str("<g class=\"tracks\">");
    for stroke in &map.strokes {
        let hue = hue(stroke.site);
        let path = projection.path(&stroke.points);
        let _ = write!(svg, "<path style=\"--hue:{hue}\" d=\"{path}\"/>");
    }
    svg.push_str("</g>");
    let busiest = map.sites.iter().map(|site| site.operations).max().unwrap_or(0).max(1);
    for (index, site) in map.sites.iter().enumerate() {
        draw_site(&mut svg, projection.place(site.at), hue(index), site, busiest);
    }
    scale_bar(&mut svg, height, width_m);
    svg.push_str("</svg>");
    svg
}

/// Neighbours in the file get hues far apart: the golden angle never repeats.
fn hue(site: usize) -> u32 {
    (site as f64 * 137.508 + 205.0) as u32 % 360
}

/// A ring for each node; the disc's area says how much of the work was done here.
fn draw_site(svg: &mut String, (x, y): (f64, f64), hue: u32, site: &MapSite, busiest: u64) {
    let radius = 6.0 + 16.0 * (site.operations as f64 / busiest as f64).sqrt();
    let _ = write!(svg, "<g class=\"site\" style=\"--hue:{hue}\">");
    for ring in (0..site.nodes).rev() {
        let _ = write!(
            svg,
            "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\"/>",
            if ring == 0 { "disc" } else { "ring" },
            radius + 5.0 * ring as f64
        );
    }
    let nodes = if site.nodes > 1 { format!(" · {} nodes", site.nodes) } else { String::new() };
    let below = y + radius + 5.0 * (site.nodes - 1) as f64 + 15.0;
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{below:.1}\">{}{nodes}</text>\
         <text class=\"count\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>",
        escaped(&site.name),
        below + 14.0,
        grouped(site.operations)
    );
}

fn scale_bar(svg: &mut String, height: f64, width_m: f64) {
    let bar_m = [100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0]
        .into_iter()
        .rfind(|bar_m| *bar_m < width_m / 4.0)
        .unwrap_or(100.0);
    let length = bar_m / width_m * WIDTH;
    let y = height - 16.0;
    let label =
        if bar_m < 1_000.0 { format!("{bar_m} m") } else { format!("{} km", bar_m / 1_000.0) };
    let _ = write!(
        svg,
        "<path class=\"scale\" d=\"M14 {:.1}v5h{length:.1}v-5\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
        y - 5.0,
        length + 22.0,
        y + 3.0
    );
}
