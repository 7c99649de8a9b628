//! What came out, as a page and as JSON.

use serde_json::{Value, json};

use super::Size;
use super::experiment::{Point, Results, System};
use super::goals::NUMBER;
use super::result::{Finding, Shown};
use crate::baselines::Costs;
use crate::baselines::play::{Measured, quantile};
use crate::paper::bar::{self, Bar};
use crate::report::study::{Card, Cell, Study, Table, text};
use crate::report::{Tile, Tone};

/// All that is shown.
pub struct Outcome<'a> {
    /// The figures.
    pub figures: &'a [Shown],
    /// What our own causal keys are to reach.
    pub bars: &'a [Bar],
    /// What each run came to.
    pub results: &'a Results,
    /// How much was done.
    pub size: Size,
}

impl Outcome<'_> {
    /// The page. `again`: the command that makes it again.
    #[must_use]
    pub fn study(&self, again: &str) -> Study {
        let operations: u64 = self.results.values().map(|measured| measured.operations).sum();
        let quick = match self.size {
            Size::Paper => "",
            Size::Quick => " A quick pass: not the paper's numbers.",
        };
        let mut cards: Vec<Card> = vec![self.findings_card()];
        if !self.bars.is_empty() {
            let about = "Portolan's own causal keys in the paper's scenes, whole sites in virtual time. Eventual is taken with its \
                         commits, so that durability is equal.";
            cards.push(bar::card(self.bars, about));
        }
        cards.extend(self.figures.iter().flat_map(cards_of));
        Study {
            title: "Gesto's evaluation, run again".to_owned(),
            summary: format!(
                "The experiments of Afonso, Bravo and Rodrigues (2020) in virtual time, on models of the five \
                 stores, and on whole sites of Portolan: {} runs, {operations} measured operations.{quick}",
                self.results.len()
            ),
            tiles: self.tiles(),
            cards,
            notes: notes(again),
        }
    }

    fn tiles(&self) -> Vec<Tile> {
        let findings = || self.figures.iter().flat_map(|figure| &figure.findings);
        let (all, in_shape) = (findings().count(), findings().filter(|one| one.in_shape).count());
        let numbers = findings().filter(|one| one.in_value.is_some()).count();
        let in_value = findings().filter(|one| one.in_value == Some(true)).count();
        let tile =
            |label: &str, value, note: &str| Tile::new(label, value, note.to_owned(), Tone::Plain);
        vec![
            tile("came out in shape", format!("{in_shape} of {all}"), "published statements"),
            tile(
                "came out in value",
                format!("{in_value} of {numbers}"),
                "statements with a number",
            ),
        ]
    }

    fn findings_card(&self) -> Card {
        let row = |(figure, finding): (u8, &Finding)| {
            let name = if figure == 0 { "metadata".to_owned() } else { figure.to_string() };
            let good = finding.in_shape && finding.in_value != Some(false);
            vec![
                Cell::Text(name),
                text(finding.what),
                text(finding.published),
                text(&finding.here),
                Cell::Verdict(finding.sentence(), good),
            ]
        };
        let findings = self
            .figures
            .iter()
            .flat_map(|figure| figure.findings.iter().map(move |finding| (figure.number, finding)));
        let heads = ["figure", "compared", "published", "here", "came out"];
        let table = Table {
            file: "findings".to_owned(),
            heads: heads.map(str::to_owned).to_vec(),
            rows: findings.map(row).collect(),
            words: true,
        };
        Card::Tables {
            title: "Beside what was published".to_owned(),
            about: "The paper's plots have no numbers but those of its text.".to_owned(),
            wide: true,
            tables: vec![table],
        }
    }

    /// All of it, for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let run = |(point, one): (&Point, &Measured)| {
            let of = |values: &[u64]| {
                [0.5, 0.9, 0.99]
                    .map(|share| quantile(values, share))
                    .map(|us| us.is_finite().then_some(us))
            };
            // Nothing of this is counted of whole sites.
            let is_modelled = System::ALL.contains(&point.system);
            json!({
                "run": point.to_string(),
                "operations": one.operations,
                "rate_hz": is_modelled.then(|| one.rate_hz()),
                "per_cpu_s": is_modelled.then(|| one.per_cpu_s()),
                "metadata_bytes": is_modelled.then(|| one.metadata_bytes()),
                "messages": is_modelled.then_some(one.spent.messages),
                "queued_us_max": is_modelled.then_some(one.queued_us),
                "reads_us": of(&one.reads_us),
                "writes_us": of(&one.writes_us),
                "moves_us": of(&one.moves_us),
                "visible_us": of(&one.visible_us),
            })
        };
        let finding = |finding: &Finding| {
            json!({
                "what": finding.what,
                "published": finding.published,
                "here": finding.here,
                "in_value": finding.in_value,
                "in_shape": finding.in_shape,
                "sentence": finding.sentence(),
            })
        };
        let figure = |figure: &Shown| {
            json!({
                "figure": figure.number,
                "title": figure.title,
                "columns": figure.heads,
                "rows": figure.rows,
                "findings": figure.findings.iter().map(finding).collect::<Vec<_>>(),
            })
        };
        json!({
            "bars": bar::json(self.bars),
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
            "runs": self.results.iter().map(run).collect::<Vec<_>>(),
        })
    }
}

fn cards_of(shown: &Shown) -> Vec<Card> {
    let row = |(name, cells): &(String, Vec<String>)| {
        std::iter::once(text(name)).chain(cells.iter().map(|cell| text(cell))).collect()
    };
    let file = match shown.number {
        0 => "metadata".to_owned(),
        NUMBER => "own".to_owned(),
        number => format!("figure-{number}"),
    };
    let table = Table {
        file,
        heads: std::iter::once(String::new()).chain(shown.heads.iter().cloned()).collect(),
        rows: shown.rows.iter().map(row).collect(),
        words: false,
    };
    let tables = Card::Tables {
        title: shown.title.to_owned(),
        about: shown.about.to_owned(),
        wide: false,
        tables: vec![table],
    };
    shown.charts.iter().cloned().map(Card::Chart).chain([tables]).collect()
}

fn notes(again: &str) -> Vec<String> {
    let costs = Costs::default();
    vec![
        format!(
            "Time is virtual. What work costs is assumed, and the same for all stores, in microseconds of a core: \
             a read {}, a write {}, a remote write {}, a payload that waits {}, metadata of a write to export {}, to \
             import {}, to order {}, to check a dependency {}, to look at a write that waits {}, to attach {}. A site \
             has {} cores for these, and one each to export and to import. Metadata leaves a site every {} ms.",
            costs.read_us,
            costs.write_us,
            costs.apply_us,
            costs.payload_us,
            costs.export_us,
            costs.import_us,
            costs.order_us,
            costs.dependency_us,
            costs.waiting_us,
            costs.attach_us,
            costs.cores,
            costs.beat_us / 1_000,
        ),
        "The models are the protocols as their papers have them, in the setting of Gesto's evaluation. COPS is the \
         version that the authors evaluated, with lists of what a client itself has seen: it is not causal where a \
         site lacks a key in between. The published code of Gesto admits some clients sooner than its paper; the \
         model does as the paper."
            .to_owned(),
        format!("Run it again: {again}"),
    ]
}
