//! What was set as a goal, and what came out.

use serde_json::{Value, json};

use crate::report::study::{Card, Cell, Table, heads, text};

/// A goal, and whether it was reached. Nothing is fitted to it; one that is missed states by how
/// much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// What is compared.
    pub what: String,
    /// What it should be.
    pub goal: String,
    /// What it is.
    pub here: String,
    /// Whether that will do.
    pub met: bool,
    /// By how much it is missed; empty: it is met.
    pub missed_by: String,
    /// It is no goal where this was measured: what it is there is shown.
    pub is_outside: bool,
}

impl Bar {
    /// At least so much; `unit` begins with a space, if anything.
    pub(super) fn at_least(what: impl Into<String>, (value, goal): (f64, f64), unit: &str) -> Bar {
        Bar::new(what.into(), ("≥", value, goal), value >= goal, unit)
    }

    /// At most so much.
    pub(super) fn at_most(what: impl Into<String>, (value, goal): (f64, f64), unit: &str) -> Bar {
        Bar::new(what.into(), ("≤", value, goal), value <= goal, unit)
    }

    fn new(what: String, (sign, value, goal): (&str, f64, f64), met: bool, unit: &str) -> Bar {
        let number = |number: f64| match number.abs() {
            size if size >= 100.0 => format!("{number:.0}"),
            size if size >= 1.0 => format!("{number:.1}"),
            _ => format!("{number:.2}"),
        };
        let apart = if unit == " %" { " points" } else { unit };
        Bar {
            what,
            goal: format!("{sign} {}{unit}", trimmed(&number(goal))),
            here: format!("{}{unit}", number(value)),
            met,
            missed_by: match met {
                true => String::new(),
                false => format!("{}{apart}", number((value - goal).abs())),
            },
            is_outside: false,
        }
    }

    /// With more about what it is.
    pub(super) fn with(mut self, more: &str) -> Bar {
        self.here.push_str(more);
        self
    }

    /// Where it is no goal.
    pub(super) fn outside(self) -> Bar {
        Bar { met: true, missed_by: String::new(), is_outside: true, ..self }
    }

    /// `met`, or by how much it is missed, or that it is no goal there.
    #[must_use]
    pub fn verdict(&self) -> String {
        if self.is_outside {
            return "no goal here".to_owned();
        }
        if self.met { "met".to_owned() } else { format!("missed by {}", self.missed_by) }
    }
}

fn trimmed(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Goals as a card of a report.
pub(super) fn card(bars: &[Bar], about: &str) -> Card {
    let row = |bar: &Bar| {
        let verdict = Cell::Verdict(bar.verdict(), bar.met);
        vec![text(&bar.what), text(&bar.goal), text(&bar.here), verdict]
    };
    let rows = bars.iter().map(row).collect();
    Card::Tables {
        title: "Goals".to_owned(),
        about: about.to_owned(),
        wide: true,
        tables: vec![Table {
            file: "goals".to_owned(),
            heads: heads(&["what", "goal", "here", ""]),
            rows,
            words: true,
        }],
    }
}

/// Goals as JSON.
pub(super) fn json(bars: &[Bar]) -> Value {
    let of = |bar: &Bar| {
        let Bar { what, goal, here, met, missed_by, is_outside } = bar;
        json!({
            "what": what,
            "goal": goal,
            "here": here,
            "met": met,
            "missed_by": missed_by,
            "is_outside": is_outside,
        })
    };
    bars.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_by_how_much_it_is_missed() {
        let bar = |bar: Bar| (bar.goal.clone(), bar.here.clone(), bar.verdict());
        let of = |goal: &str, here: &str, verdict: &str| {
            (goal.to_owned(), here.to_owned(), verdict.to_owned())
        };
        let points = Bar::at_least("reduction", (89.96, 90.0), " %");
        assert_eq!(bar(points), of("≥ 90 %", "90.0 %", "missed by 0.04 points"));
        assert_eq!(
            bar(Bar::at_most("pause", (12.04, 22.0), " ms")),
            of("≤ 22 ms", "12.0 ms", "met")
        );
        let pace = Bar::at_least("a second", (1_999.0, 2_000.0), "").with(", in all");
        assert_eq!(bar(pace), of("≥ 2000", "1999, in all", "missed by 1.0"));
        assert_eq!(bar(Bar::at_most("moves", (0.0, 1.0), "")), of("≤ 1", "0.00", "met"));
    }
}
