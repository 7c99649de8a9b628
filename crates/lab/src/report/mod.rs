//! The report of a run: one HTML page that works offline, and the same numbers as CSV.
//!
//! The page has no script and loads nothing: plots and map are inline SVG, colours follow the reader's
//! light or dark setting. Whoever has the file has the report.
//!
//! | file | what |
//! | --- | --- |
//! | `report.html` | the page |
//! | `operations.csv` | one row an operation: count, errors, percentiles in ms |
//! | `timeline.csv` | one row a second: rate, errors, retries, percentiles in ms |
//! | `events.csv` | what the marks on the plots are |

mod map;
mod page;
mod plot;
mod tables;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    geo::{Bounds, Point},
    measure::Measure,
};

/// All that a report shows.
#[derive(Debug)]
pub struct Report {
    /// Headline.
    pub title: String,
    /// One or two sentences under it: what ran, where, for how long.
    pub summary: String,
    /// The few figures to see first.
    pub tiles: Vec<Tile>,
    /// What was measured.
    pub measure: Measure,
    /// Where it happened.
    pub map: Map,
    /// How to read it, how to run it again; each a paragraph.
    pub notes: Vec<String>,
}

/// One figure to see first.
#[derive(Debug, Clone)]
pub struct Tile {
    /// What it is.
    pub label: String,
    /// The figure with its unit.
    pub value: String,
    /// A few words more.
    pub note: String,
    /// Whether to colour it.
    pub tone: Tone,
}

/// The colour of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A figure.
    Plain,
    /// A promise kept.
    Good,
    /// A promise broken.
    Bad,
}

/// Where it happened.
#[derive(Debug, Clone)]
pub struct Map {
    /// What to show; all else is clipped.
    pub bounds: Bounds,
    /// The shore; may be empty.
    pub outline: Vec<Point>,
    /// Where the sites stand.
    pub sites: Vec<MapSite>,
    /// Where vehicles drove, and which site served them there.
    pub strokes: Vec<Stroke>,
}

/// A site on the map.
#[derive(Debug, Clone)]
pub struct MapSite {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub at: Point,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many operations it answered.
    pub operations: u64,
}

/// A piece of a vehicle's way.
#[derive(Debug, Clone)]
pub struct Stroke {
    /// Index of the site that served it.
    pub site: usize,
    /// At least two points.
    pub points: Vec<Point>,
}

impl Report {
    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        page::html(self)
    }

    /// Writes the page and the CSV files into a directory, made if need be; returns the page's path.
    ///
    /// # Errors
    /// The directory or a file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let page = directory.join("report.html");
        fs::write(&page, self.html())?;
        fs::write(directory.join("operations.csv"), tables::operations_csv(&self.measure))?;
        fs::write(directory.join("timeline.csv"), tables::timeline_csv(&self.measure))?;
        fs::write(directory.join("events.csv"), tables::events_csv(&self.measure))?;
        Ok(page)
    }
}

/// Text made safe to stand in HTML or SVG.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::Outcome;

    fn measure() -> Measure {
        let mut measure = Measure::new(&["look", "report"], Duration::from_millis(500));
        for step in 0..3_000_u32 {
            let at = Duration::from_millis(u64::from(step) * 10);
            let latency = Duration::from_micros(u64::from(8_000 + step % 97 * 100));
            measure.record(at, (step % 2) as usize, latency, Outcome::Ok);
        }
        measure.record(Duration::from_secs(12), 1, Duration::ZERO, Outcome::Error);
        measure.mark(Duration::from_secs(15), "leader <killed>");
        measure.advance(Duration::from_secs(30));
        measure
    }

    fn report(measure: Measure) -> Report {
        let (home, away) = (Point::new(37.75, -122.45), Point::new(37.79, -122.40));
        Report {
            title: "A city & its cabs".to_owned(),
            summary: "Thirty seconds.".to_owned(),
            tiles: vec![Tile {
                label: "errors".to_owned(),
                value: "0".to_owned(),
                note: String::new(),
                tone: Tone::Good,
            }],
            measure,
            map: Map {
                bounds: Bounds { south: 37.70, west: -122.52, north: 37.82, east: -122.35 },
                outline: vec![home, away, Point::new(37.71, -122.40)],
                sites: vec![MapSite { name: "home".to_owned(), at: home, nodes: 3, operations: 9 }],
                strokes: vec![Stroke { site: 0, points: vec![home, away] }],
            },
            notes: vec!["Run it again.".to_owned()],
        }
    }

    /// Every tag that is opened is closed, in order.
    fn assert_well_formed(html: &str) {
        let mut open = Vec::new();
        for tag in html.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
            if tag.starts_with('!') || tag.ends_with('/') || tag.starts_with("meta") {
                continue;
            }
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "in {tag:?}"),
                None => open.push(tag.split_whitespace().next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let measure = measure();
        let html = report(measure).html();
        assert_well_formed(&html);
        for outside in ["http://", "https://", "<script", "<link", "@import", "url(http"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("A city &amp; its cabs"));
        assert!(html.contains("leader &lt;killed&gt;") && !html.contains("<killed>"));
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }

    #[test]
    fn an_empty_run_is_a_page_too() {
        let measure = Measure::new(&["look"], Duration::from_secs(1));
        let mut report = report(measure);
        report.map.strokes.clear();
        report.map.outline.clear();
        let html = report.html();
        assert_well_formed(&html);
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }

    #[test]
    fn files_hold_what_was_measured() {
        let directory = tempfile::tempdir().unwrap();
        let measure = measure();
        let page = report(measure).write(&directory.path().join("new")).unwrap();
        assert!(page.ends_with("new/report.html") && page.exists());
        let read = |name| fs::read_to_string(page.with_file_name(name)).unwrap();
        let operations = read("operations.csv");
        assert_eq!(
            operations.lines().next(),
            Some("operation,count,errors,p50_ms,p90_ms,p99_ms,max_ms")
        );
        assert!(operations.lines().nth(2).unwrap().starts_with("report,1500,1,"), "{operations}");
        let timeline = read("timeline.csv");
        assert_eq!(timeline.lines().count(), 31);
        assert!(timeline.lines().nth(1).unwrap().starts_with("0,100,0,0,"), "{timeline}");
        assert_eq!(read("events.csv"), "at_s,event\n15.000,\"leader <killed>\"\n");
    }
}
