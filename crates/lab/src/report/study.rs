//! The report of a study: many runs, compared. One page in the manner of a run's, with a card for
//! each plot and each table; the tables as CSV and the plots as pictures beside it, if that is
//! wanted.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use super::figure::Figure;
use super::palette::Ink;
use super::plot::{Axis, Plot, Series};
use super::{Tile, escaped, page, raster, sheets};

/// All that the page shows.
#[derive(Debug, Clone)]
pub struct Study {
    /// Headline.
    pub title: String,
    /// One or two sentences under it.
    pub summary: String,
    /// The few figures to see first.
    pub tiles: Vec<Tile>,
    /// What was compared, from the top.
    pub cards: Vec<Card>,
    /// How to read it, how to do it again; each a paragraph.
    pub notes: Vec<String>,
}

/// A card of the page.
#[derive(Debug, Clone)]
pub enum Card {
    /// Lines or bars.
    Chart(Chart),
    /// Tables, one below the other.
    Tables {
        /// Its title.
        title: String,
        /// A sentence on how to read them.
        about: String,
        /// Whether it takes the page's whole width.
        wide: bool,
        /// The tables.
        tables: Vec<Table>,
    },
}

/// A plot of numbers over numbers, or over names.
#[derive(Debug, Clone)]
pub struct Chart {
    /// The name of its files, without what follows the dot.
    pub file: String,
    /// Its title.
    pub title: String,
    /// A sentence on how to read it.
    pub about: String,
    /// What the x axis is.
    pub x: Across,
    /// The y axis: what it counts. It begins at 0.
    pub y: &'static str,
    /// Each line, or each colour of bars: its name, and for each x a y.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// An x axis.
#[derive(Debug, Clone)]
pub enum Across {
    /// Numbers from 0, and what they count.
    Numbers(&'static str),
    /// The same on a logarithmic scale.
    Powers(&'static str),
    /// Names, numbered from 0, and what they name.
    Names(&'static str, Vec<String>),
}

/// A table: the first column names what a row is about.
#[derive(Debug, Clone)]
pub struct Table {
    /// The name of its file, without what follows the dot.
    pub file: String,
    /// Its heads.
    pub heads: Vec<String>,
    /// Its rows, each as long as the heads.
    pub rows: Vec<Vec<Cell>>,
    /// Whether it holds text and not numbers.
    pub words: bool,
}

/// What stands in a table.
#[derive(Debug, Clone)]
pub enum Cell {
    /// As it is.
    Text(String),
    /// A verdict: whether it is good.
    Verdict(String, bool),
}

impl Cell {
    fn text(&self) -> &str {
        match self {
            Cell::Text(text) | Cell::Verdict(text, _) => text,
        }
    }

    fn html(&self) -> String {
        match self {
            Cell::Text(text) => escaped(text),
            Cell::Verdict(text, good) => {
                let tone = if *good { "good" } else { "bad" };
                format!("<b class=\"{tone}\">{}</b>", escaped(text))
            }
        }
    }
}

/// Words as they are.
pub(crate) fn text(words: &str) -> Cell {
    Cell::Text(words.to_owned())
}

/// The heads of a table.
pub(crate) fn heads(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl Table {
    fn html(&self) -> String {
        let class = if self.words { " class=\"words wrap\"" } else { "" };
        let mut html = format!("<table{class}><thead><tr>");
        for head in &self.heads {
            let _ = write!(html, "<th>{}</th>", escaped(head));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (place, cell) in row.iter().enumerate() {
                let tag = if place == 0 { "th" } else { "td" };
                let _ = write!(html, "<{tag}>{}</{tag}>", cell.html());
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table>");
        html
    }

    fn csv(&self) -> io::Result<Vec<u8>> {
        let heads: Vec<&str> = self.heads.iter().map(String::as_str).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::text).collect());
        sheets::sheet::<&str>(&heads, rows)
    }
}

impl Chart {
    fn figure(&self) -> Figure {
        let all = || self.lines.iter().flat_map(|(_, points)| points);
        let highest = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
        let series = self.lines.iter().enumerate().map(|(index, (name, points))| Series {
            name: name.clone(),
            ink: Ink::Series(index),
            points: points.iter().map(|(x, y)| (*x, Some(*y))).collect(),
            filled: false,
        });
        let x = match &self.x {
            Across::Numbers(label) => Axis::linear(label, 0.0, highest(|point| point.0)),
            Across::Powers(label) => {
                let lowest = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
                Axis::logarithmic(label, lowest.min(1e9), highest(|point| point.0))
            }
            Across::Names(label, names) => Axis::named(label, names.clone()),
        };
        let plot = Plot {
            x,
            y: Axis::linear(self.y, 0.0, highest(|point| point.1) * 1.05),
            series: series.collect(),
            marks: Vec::new(),
            dots: true,
        };
        Figure::plot(&self.file, &self.title, &self.about, &plot)
    }
}

impl Study {
    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = page::begin(&self.title, &self.summary, &self.tiles);
        for card in &self.cards {
            match card {
                Card::Chart(chart) => page::draw(&mut html, &chart.figure()),
                Card::Tables { title, about, wide, tables } => {
                    let tables: Vec<String> = tables.iter().map(Table::html).collect();
                    page::table(&mut html, *wide, title, about, &tables.join(""));
                }
            }
        }
        page::end(&mut html, &self.notes);
        html
    }

    /// Writes each table as CSV, and each plot as SVG and PNG, into a directory, made if need be.
    ///
    /// # Errors
    /// The directory or a file cannot be written.
    pub fn write_pieces(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        for card in &self.cards {
            match card {
                Card::Chart(chart) => {
                    let picture = chart.figure().alone();
                    fs::write(directory.join(format!("{}.svg", chart.file)), picture.alone())?;
                    let pixels = raster::png(&picture)?;
                    fs::write(directory.join(format!("{}.png", chart.file)), pixels)?;
                }
                Card::Tables { tables, .. } => {
                    for table in tables {
                        fs::write(directory.join(format!("{}.csv", table.file)), table.csv()?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Tone, tests::assert_well_formed};
    use super::*;

    fn study() -> Study {
        let chart = |file: &str, x| {
            let points = vec![(0.0, 5.0), (1.0, 9.0)];
            Card::Chart(Chart {
                file: file.to_owned(),
                title: format!("A & {file}"),
                about: "How to <read> it.".to_owned(),
                x,
                y: "ms",
                lines: vec![("near".to_owned(), points.clone()), ("far".to_owned(), points)],
            })
        };
        let row = |text: &str, good| {
            vec![Cell::Text("a".to_owned()), Cell::Verdict(text.to_owned(), good)]
        };
        let table = Table {
            file: "table".to_owned(),
            heads: vec!["what".to_owned(), "is, here".to_owned()],
            rows: vec![row("kept", true), row("1 < 2", false)],
            words: true,
        };
        Study {
            title: "Many & more".to_owned(),
            summary: "Two runs.".to_owned(),
            tiles: vec![Tile::new("bar", "9 ms".to_owned(), String::new(), Tone::Bad)],
            cards: vec![
                chart("numbers", Across::Numbers("n")),
                chart("powers", Across::Powers("n")),
                chart("names", Across::Names("n", vec!["one".to_owned(), "two".to_owned()])),
                Card::Tables {
                    title: "Table".to_owned(),
                    about: String::new(),
                    wide: false,
                    tables: vec![table],
                },
            ],
            notes: vec!["Again.".to_owned()],
        }
    }

    #[test]
    fn the_page_is_whole_and_has_every_card() {
        let html = study().html();
        assert_well_formed(&html);
        for words in [
            "Many &amp; more",
            "A &amp; names",
            "How to &lt;read&gt; it.",
            "<b class=\"bad\">1 &lt; 2</b>",
            "<b class=\"good\">kept</b>",
        ] {
            assert!(html.contains(words), "{words}");
        }
        assert_eq!(html.matches("<svg").count(), 3);
        assert!(!html.contains("NaN") && !html.contains("inf"));
        let empty = Study { cards: Vec::new(), ..study() };
        assert_well_formed(&empty.html());
    }

    #[test]
    fn its_pieces_are_files() {
        let folder = tempfile::tempdir().unwrap();
        study().write_pieces(folder.path()).unwrap();
        for name in ["numbers", "powers", "names"] {
            let png = fs::read(folder.path().join(format!("{name}.png"))).unwrap();
            assert!(png.starts_with(b"\x89PNG"));
            assert!(folder.path().join(format!("{name}.svg")).exists());
        }
        let csv = fs::read_to_string(folder.path().join("table.csv")).unwrap();
        assert_eq!(csv, "what,\"is, here\"\na,kept\na,1 < 2\n");
    }
}
