//! The report of a run: one HTML page that works offline, the same numbers as CSV, and the plots as
//! pictures.
//!
//! The page has no script and loads nothing: plots and map are inline SVG, colours follow the
//! reader's light or dark setting. The file is the whole report. Pictures that stand alone are
//! light; the PNGs are drawn with letters that the program carries, since a machine may have no
//! fonts.
//!
//! | file | what |
//! | --- | --- |
//! | `report.html` | the page |
//! | `operations.csv` | one row an operation: count, errors, percentiles in ms |
//! | `timeline.csv` | one row a second: rate, errors, retries, percentiles in ms |
//! | `events.csv` | what the marks and bands on the plots are |
//! | `latency.csv` | the points of the distributions: which share was answered within so many ms |
//! | `verdicts.csv` | one row a promise, if there was a judge |
//! | *name*`.csv` | one row a window, for each comparison over time |
//! | `expectations.csv` | one row an operation whose delay can be computed, if there are any |
//! | `plots/*.svg`, `plots/*.png` | each plot, and the map |
//!
//! What came of many runs is shown in the same manner by [`study`].

mod drawing;
mod figure;
mod font;
mod map;
mod over_time;
mod page;
mod palette;
mod plot;
#[cfg(feature = "simulation")]
mod ran;
#[cfg(feature = "simulation")]
mod raster;
mod sheets;
#[cfg(feature = "simulation")]
pub mod study;
mod tables;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    geo::{Bounds, Point},
    measure::Measure,
};

pub use over_time::{OverTime, Panel, Shape};

/// All that a report shows. What is empty is left out.
#[derive(Debug)]
pub struct Report {
    /// Headline.
    pub title: String,
    /// One or two sentences under it: what ran, where, for how long.
    pub summary: String,
    /// The few figures to see first.
    pub tiles: Vec<Tile>,
    /// Whether what was promised was kept.
    pub verdicts: Vec<Verdict>,
    /// What was measured.
    pub measure: Measure,
    /// What went wrong on purpose, and for how long.
    pub faults: Vec<Fault>,
    /// What is compared window by window, to see first.
    pub over_time: Vec<OverTime>,
    /// More distributions of latency than that by operation: by site, by store, by what was tried.
    pub distributions: Vec<Distribution>,
    /// What operations should take, by the delays of the links.
    pub expectations: Vec<Expectation>,
    /// Where it happened.
    pub map: Option<Map>,
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
    /// A longer text.
    pub note: String,
    /// Whether to colour it.
    pub tone: Tone,
}

impl Tile {
    /// A figure with its label and a longer text.
    #[must_use]
    pub fn new(label: &str, value: String, note: String, tone: Tone) -> Tile {
        Tile { label: label.to_owned(), value, note, tone }
    }
}

/// The colour of a figure or a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Neither.
    Plain,
    /// A promise kept.
    Good,
    /// A promise broken.
    Bad,
}

/// Whether a promise was kept.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What was promised.
    pub promise: String,
    /// The verdict, as a short text.
    pub verdict: String,
    /// Whether it is good or bad.
    pub tone: Tone,
    /// What was looked at: how many operations, keys, replicas.
    pub examined: String,
    /// What broke the promise, as text with lines; the smallest piece that shows it.
    pub violation: Option<String>,
}

/// Something that went wrong on purpose.
#[derive(Debug, Clone)]
pub struct Fault {
    /// When it began.
    pub from: Duration,
    /// When it was over.
    pub to: Duration,
    /// A short description.
    pub label: String,
}

/// Latencies of several things in one plot.
#[derive(Debug, Clone)]
pub struct Distribution {
    /// What is distinguished.
    pub title: String,
    /// A sentence on how to read it.
    pub about: String,
    /// For each thing its name and its points: a latency in ms, and the share at or below it.
    /// Rising, as [`crate::measure::Operation::distribution`] gives them.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// What an operation should take, and what it took.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The operation, and where it was asked.
    pub operation: String,
    /// What adds up to it: which links, how often.
    pub because: String,
    /// The sum, in ms.
    pub expected_ms: f64,
    /// The median, in ms; none if there was no such operation.
    pub measured_p50_ms: Option<f64>,
}

impl Expectation {
    /// By how much more it took than it should, in percent; none if one of the two is missing.
    #[must_use]
    pub fn difference_percent(&self) -> Option<f64> {
        let measured_ms = self.measured_p50_ms?;
        (self.expected_ms > 0.0).then(|| (measured_ms / self.expected_ms - 1.0) * 100.0)
    }
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
    /// Where clients went, and which site served them there.
    pub strokes: Vec<Stroke>,
    /// The ways of single clients, to be distinguished; better few than many.
    pub tracks: Vec<MapTrack>,
}

impl Map {
    /// An empty map.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            outline: Vec::new(),
            sites: Vec::new(),
            strokes: Vec::new(),
            tracks: Vec::new(),
        }
    }
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

/// A piece of a client's way.
#[derive(Debug, Clone)]
pub struct Stroke {
    /// Index of the site that served it.
    pub site: usize,
    /// At least two points.
    pub points: Vec<Point>,
}

/// The way of one client.
#[derive(Debug, Clone)]
pub struct MapTrack {
    /// The client's name.
    pub name: String,
    /// Its way, from its start.
    pub points: Vec<Point>,
}

/// One thing that happened.
struct Happening<'a> {
    from: Duration,
    /// None: it was over at once.
    to: Option<Duration>,
    what: &'a str,
}

impl Report {
    /// A report of what was measured, and nothing else yet.
    #[must_use]
    pub fn new(title: impl Into<String>, summary: impl Into<String>, measure: Measure) -> Self {
        Self {
            title: title.into(),
            summary: summary.into(),
            tiles: Vec::new(),
            verdicts: Vec::new(),
            measure,
            faults: Vec::new(),
            over_time: Vec::new(),
            distributions: Vec::new(),
            expectations: Vec::new(),
            map: None,
            notes: Vec::new(),
        }
    }

    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        page::html(self)
    }

    /// Writes the page, the CSV files and the pictures into a directory, made if need be; returns
    /// the page's path.
    ///
    /// # Errors
    /// The directory or a file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        let plots = directory.join("plots");
        fs::create_dir_all(&plots)?;
        let page = directory.join("report.html");
        fs::write(&page, self.html())?;
        for (file, sheet) in sheets::all(self)? {
            fs::write(directory.join(file), sheet)?;
        }
        for figure in figure::all(self).into_iter().chain(figure::of_map(self)) {
            let picture = figure.alone();
            fs::write(plots.join(format!("{}.svg", figure.file)), picture.alone())?;
            #[cfg(feature = "simulation")]
            fs::write(plots.join(format!("{}.png", figure.file)), raster::png(&picture)?)?;
        }
        Ok(page)
    }

    /// Events and faults together, in order of their start.
    fn happenings(&self) -> Vec<Happening<'_>> {
        let events = self.measure.events().iter();
        let events = events.map(|event| Happening { from: event.at, to: None, what: &event.label });
        let faults = self.faults.iter().map(|fault| Happening {
            from: fault.from,
            to: Some(fault.to),
            what: &fault.label,
        });
        let mut all: Vec<Happening<'_>> = events.chain(faults).collect();
        all.sort_by_key(|happening| happening.from);
        all
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
pub(super) mod tests {
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

    const SECOND: Duration = Duration::from_secs(1);

    /// A report as the demo makes it: without a judge.
    fn report(measure: Measure) -> Report {
        let (home, away) = (Point::new(37.75, -122.45), Point::new(37.79, -122.40));
        let bounds = Bounds { south: 37.70, west: -122.52, north: 37.82, east: -122.35 };
        Report {
            tiles: vec![Tile {
                label: "errors".to_owned(),
                value: "0".to_owned(),
                note: String::new(),
                tone: Tone::Good,
            }],
            map: Some(Map {
                outline: vec![home, away, Point::new(37.71, -122.40)],
                sites: vec![MapSite { name: "home".to_owned(), at: home, nodes: 3, operations: 9 }],
                strokes: vec![Stroke { site: 0, points: vec![home, away] }],
                ..Map::new(bounds)
            }),
            notes: vec!["Run it again.".to_owned()],
            ..Report::new("A city & its cabs", "Thirty < sixty seconds.", measure)
        }
    }

    /// A report with everything.
    fn judged(measure: Measure) -> Report {
        let verdict = |promise: &str, verdict: &str, tone, violation: Option<&str>| Verdict {
            promise: promise.to_owned(),
            verdict: verdict.to_owned(),
            tone,
            examined: "3 000 operations on 8 keys".to_owned(),
            violation: violation.map(str::to_owned),
        };
        let steps = |factor: f64| vec![(factor, 0.0), (2.0 * factor, 0.9), (9.0 * factor, 1.0)];
        let expectation = |operation: &str, expected_ms, measured_p50_ms| Expectation {
            operation: operation.to_owned(),
            because: "2 × 3.5 ms to the site".to_owned(),
            expected_ms,
            measured_p50_ms,
        };
        let mut report = report(measure);
        report.verdicts = vec![
            verdict("linearizable", "violated", Tone::Bad, Some("c1: put \"1\"\nc2: get → <none>")),
            verdict("durable", "holds", Tone::Good, None),
        ];
        report.faults =
            vec![Fault { from: 8 * SECOND, to: 12 * SECOND, label: "a, b | c cut off".to_owned() }];
        report.over_time = vec![over_time::tests::over_time()];
        report.distributions = vec![Distribution {
            title: "Reads by site".to_owned(),
            about: "Nearer is faster.".to_owned(),
            series: vec![("home".to_owned(), steps(4.0)), ("away & out".to_owned(), steps(30.0))],
        }];
        report.expectations = vec![
            expectation("get at home", 7.0, Some(7.7)),
            expectation("put at home", 0.0, Some(3.0)),
            expectation("scan", 9.0, None),
        ];
        let map = report.map.as_mut().expect("it has one");
        map.tracks = vec![MapTrack { name: "c1".to_owned(), points: map.outline.clone() }];
        report
    }

    /// Every tag that is opened is closed, in order.
    pub(super) fn assert_well_formed(html: &str) {
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
        for report in [report(measure()), judged(measure())] {
            let html = report.html();
            assert_well_formed(&html);
            for outside in ["http://", "https://", "<script", "<link", "@import", "url(", "src="] {
                assert!(!html.contains(outside), "{outside}");
            }
            assert!(html.contains("A city &amp; its cabs"));
            assert!(html.contains("Thirty &lt; sixty seconds."));
            assert!(html.contains("leader &lt;killed&gt;") && !html.contains("<killed>"));
            assert!(!html.contains("NaN") && !html.contains("inf"));
        }
    }

    #[test]
    fn what_there_is_nothing_of_has_no_section() {
        let (plain, judged) = (report(measure()).html(), judged(measure()).html());
        for heading in [
            "Verdicts",
            "The arithmetic of the links",
            "Records &amp; moves",
            "Reads by site",
            "until",
        ] {
            let heading = format!(">{heading}</");
            assert!(judged.contains(&heading), "{heading}");
            assert!(!plain.contains(&heading) || heading.contains("until"), "{heading}");
        }
        let bare = Report::new("t", "s", Measure::new(&["look"], SECOND)).html();
        assert_well_formed(&bare);
        assert!(!bare.contains("Where it happened") && !bare.contains("What happened"));
        assert!(!bare.contains("NaN") && !bare.contains("inf"));
    }

    #[test]
    fn a_violation_is_shown_as_text() {
        let html = judged(measure()).html();
        assert!(
            html.contains("<pre>c1: put &quot;1&quot;\nc2: get → &lt;none&gt;</pre>"),
            "{html}"
        );
        assert!(html.contains("<b class=\"bad\">violated</b>"));
        assert!(html.contains("<b class=\"good\">holds</b>"));
    }

    #[test]
    fn a_difference_needs_both_numbers() {
        let report = judged(measure());
        let differences: Vec<Option<i64>> = report
            .expectations
            .iter()
            .map(|row| row.difference_percent().map(|percent| percent.round() as i64))
            .collect();
        assert_eq!(differences, [Some(10), None, None]);
        assert!(report.html().contains("<td>+10.0 %</td>"));
    }

    #[test]
    fn an_empty_run_is_a_page_too() {
        let mut report = report(Measure::new(&["look"], SECOND));
        let map = report.map.as_mut().expect("it has one");
        map.strokes.clear();
        map.outline.clear();
        let html = report.html();
        assert_well_formed(&html);
        assert!(!html.contains("NaN") && !html.contains("inf"));
        let directory = tempfile::tempdir().unwrap();
        assert!(report.write(directory.path()).unwrap().exists());
    }

    #[test]
    fn files_hold_what_was_measured() {
        let directory = tempfile::tempdir().unwrap();
        let page = judged(measure()).write(&directory.path().join("new")).unwrap();
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
        assert_eq!(
            read("events.csv"),
            "at_s,until_s,event\n\
             8.000,12.000,\"a, b | c cut off\"\n\
             15.000,,leader <killed>\n"
        );
        assert_eq!(read("records.csv").lines().count(), 4);
        let latency = read("latency.csv");
        assert!(latency.contains("\nReads by site,home,8.000,0.900000\n"), "{latency}");
        assert!(latency.contains("\nby operation,look,"), "{latency}");
        assert_eq!(
            read("verdicts.csv"),
            "promise,verdict,examined,violation\n\
             linearizable,violated,3 000 operations on 8 keys,\
             \"c1: put \"\"1\"\"\nc2: get → <none>\"\n\
             durable,holds,3 000 operations on 8 keys,\n"
        );
        assert_eq!(
            read("expectations.csv").lines().nth(1),
            Some("get at home,2 × 3.5 ms to the site,7.000,7.700,10.000")
        );
    }

    #[test]
    fn each_plot_is_a_picture_that_needs_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        judged(measure()).write(directory.path()).unwrap();
        for name in ["records", "latency", "throughput", "distribution", "distribution-1", "map"] {
            let path = directory.path().join("plots").join(name);
            let svg = fs::read_to_string(path.with_extension("svg")).unwrap();
            assert_well_formed(&svg);
            assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
            for outside in ["var(", "class=", "NaN", "href"] {
                assert!(!svg.contains(outside), "{name}: {outside}");
            }
            let png = fs::read(path.with_extension("png")).unwrap();
            assert!(png.starts_with(b"\x89PNG\r\n") && png.len() > 3_000, "{name}");
        }
        let files = fs::read_dir(directory.path().join("plots")).unwrap().count();
        assert_eq!(files, 12);
        // Without a judge the report does not mention one.
        report(measure()).write(&directory.path().join("plain")).unwrap();
        assert!(!directory.path().join("plain/verdicts.csv").exists());
    }
}
