//! What came out, as a page and as JSON.

use serde_json::{Value, json};

use super::experiment::Results;
use super::experiment::workload::Workload;
use super::result::Shown;
use super::result::bars::Others;
use super::{Point, Size};
use crate::paper::bar::{self, Bar};
use crate::report::study::{Across, Card, Cell, Chart, Study, Table, heads, text};
use crate::report::{Tile, Tone};

/// All that is shown.
pub struct Outcome<'a> {
    /// The figures.
    pub figures: &'a [Shown],
    /// The bars.
    pub bars: &'a [Bar],
    /// What each run came to.
    pub results: &'a Results,
    /// Runs of other kinds.
    pub others: &'a Others,
    /// How much was done.
    pub size: Size,
}

impl Outcome<'_> {
    /// The page. `again`: the command that makes it again.
    #[must_use]
    pub fn study(&self, again: &str) -> Study {
        let accesses: u64 = self.results.values().map(|measured| measured.accesses).sum();
        let quick = match self.size {
            Size::Paper => "",
            Size::Quick => " A quick pass: not the paper's numbers.",
        };
        let mut cards = vec![self.bars_card()];
        cards.extend(self.figures.iter().flat_map(figure_cards));
        cards.push(self.tight_card());
        Study {
            title: "Portkey's evaluation, run again".to_owned(),
            summary: format!(
                "The experiments of Noor, Srivastava and Netravali (2021) in virtual time, with ours among the \
                 strategies: {} runs, {accesses} measured accesses.{quick}",
                self.results.len()
            ),
            tiles: self.tiles(),
            cards,
            notes: notes(again),
        }
    }

    fn tiles(&self) -> Vec<Tile> {
        let goals = || self.bars.iter().filter(|bar| !bar.is_outside);
        let (set, met) = (goals().count(), goals().filter(|bar| bar.met).count());
        let tone = if met == set { Tone::Good } else { Tone::Bad };
        let findings = || self.figures.iter().flat_map(|figure| &figure.findings);
        let count = |of: fn(&super::result::Finding) -> bool| {
            findings().filter(|finding| of(finding)).count()
        };
        let all = findings().count();
        let tile =
            |label: &str, value, note: &str, tone| Tile::new(label, value, note.to_owned(), tone);
        vec![
            tile(
                "bars met",
                format!("{met} of {}", self.bars.len()),
                "the table states by how much others are missed",
                tone,
            ),
            tile(
                "came out in shape",
                format!("{} of {all}", count(|one| one.in_shape)),
                "published statements",
                Tone::Plain,
            ),
            tile(
                "came out in value",
                format!("{} of {all}", count(|one| one.in_value)),
                "published statements",
                Tone::Plain,
            ),
        ]
    }

    fn bars_card(&self) -> Card {
        let about = "Medians over the seeds; ours against the optimum of the same world, which is given places and \
                     rates of the future and pays for its moves.";
        bar::card(self.bars, about)
    }

    fn tight_card(&self) -> Card {
        let row = |tight: &super::experiment::capacity::Tight| -> Vec<Cell> {
            let percent = |value: f64| Cell::Text(format!("{value:.1}"));
            vec![
                Cell::Text(format!("{:.2}, {}", tight.room as f64 / 100.0, tight.strategy.name())),
                percent(tight.excess_percent),
                percent(tight.audit_percent),
                percent(tight.churn_percent),
            ]
        };
        let rows = self.others.tight.iter().map(row).collect();
        let heads = heads(&[
            "room × the data",
            "% above the bound",
            "the auditor's own",
            "% unchanged moved",
        ]);
        Card::Tables {
            title: "Sites with little room".to_owned(),
            about: "all-RW. The auditor is given where clients are; its bound is of the very second, and what a \
                    strategy has not yet learned counts against it."
                .to_owned(),
            wide: true,
            tables: vec![Table { file: "capacity".to_owned(), heads, rows, words: false }],
        }
    }

    /// All of it, for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let run = |(point, one): (&Point, &super::Measured)| {
            json!({
                "run": point.to_string(),
                "mean_ms": one.mean_ms,
                "p95_ms": one.p95_ms,
                "accesses": one.accesses,
                "moves": one.moves,
                "waited_ms": one.waited_ms,
                "misplaced": one.misplaced,
                "p95_floor_ms": one.p95_floor_ms,
                "residence_s": one.residence_s,
                "overhead": one.overhead,
            })
        };
        let figure = |figure: &Shown| {
            let finding = |finding: &super::result::Finding| {
                json!({
                    "what": finding.what,
                    "published": finding.published,
                    "here": finding.here,
                    "ours": finding.ours,
                    "in_value": finding.in_value,
                    "in_shape": finding.in_shape,
                    "sentence": finding.sentence(),
                })
            };
            json!({
                "figure": figure.number,
                "title": figure.title,
                "columns": figure.heads,
                "rows": figure.rows,
                "findings": figure.findings.iter().map(finding).collect::<Vec<_>>(),
            })
        };
        let tight = |tight: &super::experiment::capacity::Tight| {
            json!({
                "room_percent": tight.room,
                "strategy": tight.strategy.name(),
                "excess_percent": tight.excess_percent,
                "auditors_percent": tight.audit_percent,
                "unchanged_moved_percent": tight.churn_percent,
            })
        };
        json!({
            "bars": bar::json(self.bars),
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
            "capacity": self.others.tight.iter().map(tight).collect::<Vec<_>>(),
            "runs": self.results.iter().map(run).collect::<Vec<_>>(),
        })
    }
}

fn figure_cards(shown: &Shown) -> Vec<Card> {
    let file = format!("figure-{}", shown.number);
    let mut cards = Vec::new();
    if !shown.lines.is_empty() {
        let names: Vec<String> = shown.rows.iter().map(|(name, _)| name.clone()).collect();
        let line = |(name, values): &(String, Vec<f64>)| {
            let points = values.iter().enumerate().filter(|(_, value)| value.is_finite());
            (name.clone(), points.map(|(place, value)| (place as f64, *value)).collect())
        };
        // Twelve names do not fit below one plot: the means and the tails apart.
        let parts: Vec<(&str, std::ops::Range<usize>)> = match shown.number {
            // What accesses waited is in the table.
            8 => vec![
                (", mean", 0..Workload::ALL.len()),
                (", p95", Workload::ALL.len()..2 * Workload::ALL.len()),
            ],
            _ => vec![("", 0..names.len())],
        };
        for (part, range) in parts {
            let cut = |values: &Vec<f64>| values.get(range.clone()).unwrap_or_default().to_vec();
            let lines: Vec<(String, Vec<f64>)> =
                shown.lines.iter().map(|(name, values)| (name.clone(), cut(values))).collect();
            let word = |name: &String| name.split(',').next().unwrap_or_default().to_owned();
            let below = names[range.clone()].iter();
            cards.push(Card::Chart(Chart {
                file: format!("{file}{}", part.replace(", ", "-")),
                title: format!("{}{part}", shown.title),
                about: shown.about.to_owned(),
                x: Across::Names("", below.map(word).collect()),
                y: if matches!(shown.number, 8 | 11) { "% of random" } else { "times" },
                lines: lines.iter().map(line).collect(),
            }));
        }
    }
    let row = |(name, cells): &(String, Vec<String>)| {
        std::iter::once(text(name)).chain(cells.iter().map(|cell| text(cell))).collect()
    };
    let columns = std::iter::once(String::new()).chain(shown.heads.iter().cloned()).collect();
    let values = Table {
        file: file.clone(),
        heads: columns,
        rows: shown.rows.iter().map(row).collect(),
        words: false,
    };
    let finding = |finding: &super::result::Finding| {
        let sentence = finding.sentence();
        vec![
            text(&finding.what),
            text(&finding.published),
            text(&finding.here),
            text(&finding.ours),
            Cell::Verdict(sentence, finding.in_shape),
        ]
    };
    let findings = Table {
        file: format!("{file}-findings"),
        heads: heads(&["compared", "published", "here", "ours", "came out"]),
        rows: shown.findings.iter().map(finding).collect(),
        words: true,
    };
    cards.push(Card::Tables {
        title: format!("Figure {}, beside what was published", shown.number),
        about: shown.about.to_owned(),
        wide: true,
        tables: vec![values, findings],
    });
    cards
}

fn notes(again: &str) -> Vec<String> {
    vec![
        "Time is virtual. All strategies see the same accesses in the same world; accesses to a key that is on \
         its way wait until it has arrived (a round trip between the two sites, two commits of 1 ms, its bytes \
         over both links), and count with that. How a request finds the owner of its key is left out for all \
         strategies alike."
            .to_owned(),
        "The oracle is the paper's optimal: each second it sees the accesses to come and moves for nothing. The \
         optimal that pays is given places and rates of the future, not the moments of accesses. Windows of \
         heuristics and of Portkey's greedy are of 10 s, and they know latencies exactly; ours decides each \
         second by profiles of four clients, or nine sites, a key, and by published latencies."
            .to_owned(),
        "Ours, all clients: the same with a count for each client in place of four. What is between the two is \
         what the bounded profile of 64 bytes costs."
            .to_owned(),
        format!("Run it again: {again}"),
    ]
}
