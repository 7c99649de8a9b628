//! What came out, as a report: a plot and a table for each figure, each beside what was published.

use super::experiment::figure::{Across, Quantity};
use super::experiment::{copies, hops};
use super::result::findings::{self, CameOut, Finding};
use super::result::{bars, constants};
use super::{Figure, Keys, Results, Setting, Size};
use crate::report::study::{self, Card, Cell, Chart, Study, Table, heads, text};
use crate::report::{Tile, Tone};

/// Table 3: the links, one way in ms, and Mbit/s.
const LINKS: [[&str; 5]; 4] = [
    ["client – store", "5", "100", "50", "100"],
    ["store – store", "2", "1000", "0.05", "1000"],
    ["store – gateway", "2", "750", "0.05", "1000"],
    ["gateway – gateway", "10", "500", "0.05", "1000"],
];

/// The report. `again`: the command that makes it again.
#[must_use]
pub fn study(figures: &[Figure], results: &Results, size: Size, again: &str) -> Study {
    let bars = bars::all(results, size);
    let mut cards = vec![bars_card(&bars), links_card()];
    for figure in figures {
        cards.extend(figure_cards(*figure, results, size));
    }
    if figures.iter().any(|figure| figure.asks_for_constants()) {
        cards.push(constants_card(results, size));
    }
    cards.push(copies_card(results, size));
    cards.extend(hops_cards(size));
    let operations: u64 = results.values().map(|measured| measured.operations).sum();
    let quick = match size {
        Size::Paper => "",
        Size::Quick => " A quick pass with little load: not the paper's numbers.",
    };
    Study {
        title: "EdgeKV's evaluation, run again".to_owned(),
        summary: format!(
            "The experiments of Sonbol and others (2020) in virtual time: {} runs, {operations} \
             operations, every history judged.{quick}",
            results.len()
        ),
        tiles: bars.iter().map(tile).collect(),
        cards,
        notes: notes(again),
    }
}

fn tile(bar: &bars::Bar) -> Tile {
    let tone = if bar.met { Tone::Good } else { Tone::Bad };
    let value = bar.here.split(" (").next().unwrap_or_default();
    let value = match (value.strip_suffix(" lower"), value.strip_suffix(" higher")) {
        (Some(less), _) => format!("−{less}"),
        (_, Some(more)) => format!("+{more}"),
        _ => value.to_owned(),
    };
    Tile { label: bar.short.to_owned(), value, note: format!("goal: {}", bar.goal), tone }
}

fn bars_card(bars: &[bars::Bar]) -> Card {
    let rows = bars.iter().map(|bar| {
        let verdict = if bar.met { "met" } else { "not met" };
        let verdict = Cell::Verdict(verdict.to_owned(), bar.met);
        vec![text(bar.what), text(&bar.goal), text(&bar.here), verdict]
    });
    let rows = rows.collect();
    let heads = heads(&["what", "goal", "here", ""]);
    Card::Tables {
        title: "Goals".to_owned(),
        about:
            "With the usual load: 50 % of the operations global, zipfian keys. The remote ones are \
                asked by one thread a group, beside the sum of their links and disks."
                .to_owned(),
        wide: true,
        tables: vec![Table { file: "goals".to_owned(), heads, rows, words: true }],
    }
}

fn links_card() -> Card {
    let row = |row: &[&str; 5]| row.iter().map(|cell| text(cell)).collect();
    let heads = heads(&["link", "edge, ms", "Mbit/s", "cloud, ms", "Mbit/s"]);
    let rows = LINKS.iter().map(row).collect();
    Card::Tables {
        title: "The paper's links (Table 3)".to_owned(),
        about:
            "One way. Ours goes from store to store of another group, which is as far as the way \
                over both gateways: 14 ms."
                .to_owned(),
        wide: true,
        tables: vec![Table { file: "links".to_owned(), heads, rows, words: false }],
    }
}

/// What stands below a figure.
fn across_words(across: Across) -> &'static str {
    match across {
        Across::Global => "% of operations on global keys",
        Across::Keys => "choice of keys",
        Across::LocalClients => "client threads at one group",
        Across::Clients => "client threads at each group",
        Across::Rate => "operations a second asked for, each machine",
    }
}

/// The same as the head of a column.
fn head(across: Across) -> &'static str {
    match across {
        Across::Global => "% global",
        Across::Keys => "keys",
        Across::LocalClients | Across::Clients => "threads",
        Across::Rate => "asked a second",
    }
}

/// With local keys alone nothing goes over gateways, and ours is the same.
fn name(figure: Figure, setting: Setting) -> String {
    match (figure.across(), setting) {
        (Across::LocalClients, _) => setting.word().to_owned(),
        _ => setting.to_string(),
    }
}

fn figure_cards(figure: Figure, results: &Results, size: Size) -> [Card; 2] {
    let across = figure.across();
    let y = figure.unit();
    let about = match figure.quantity() {
        Quantity::Latency if across == Across::Rate => {
            "Mean latency of updates, from when they were due: one that waits since the one before is \
             late counts with its wait."
        }
        Quantity::Latency => "Mean latency of updates.",
        Quantity::Throughput => "Updates a second of one client machine, in virtual time.",
    };
    let lines: Vec<(Setting, Vec<(u32, f64)>)> = figure
        .settings()
        .iter()
        .map(|setting| (*setting, figure.line(*setting, results, size)))
        .collect();
    let file = format!("figure-{}", figure.number());
    let below = across_words(across);
    let chart = Chart {
        file: file.clone(),
        title: figure.title(),
        about: about.to_owned(),
        x: match across {
            Across::Keys => {
                study::Across::Names(below, Keys::ALL.iter().map(Keys::to_string).collect())
            }
            _ => study::Across::Numbers(below),
        },
        y,
        lines: lines
            .iter()
            .map(|(setting, line)| {
                let points = line.iter().map(|(place, value)| (f64::from(*place), *value));
                (name(figure, *setting), points.collect())
            })
            .collect(),
    };
    let columns = lines.iter().map(|(setting, _)| setting.word().to_owned());
    let heads = std::iter::once(head(across).to_owned()).chain(columns).collect();
    let rows = figure.places(size).into_iter().map(|place| {
        let values = lines.iter().map(|(_, line)| {
            let found = line.iter().find(|(there, _)| *there == place);
            found.map_or_else(|| text("–"), |(_, value)| format!("{value:.1}").into())
        });
        std::iter::once(figure.place_words(place).into()).chain(values).collect()
    });
    let rows = rows.collect();
    let measured = Table { file: file.clone(), heads, rows, words: false };
    let findings = findings::of(figure, results, size);
    let tables = Card::Tables {
        title: format!("Figure {}, beside what was published", figure.number()),
        about: format!(
            "{y}; below it what the paper states in words, and the same from these runs."
        ),
        wide: false,
        tables: std::iter::once(measured)
            .chain((across == Across::Rate).then(|| rates_table(figure, results, size)))
            .chain([findings_table(&file, &findings)])
            .collect(),
    };
    [Card::Chart(chart), tables]
}

/// Operations a second that machines came to: below what was asked for, what waits grows without
/// end.
fn rates_table(figure: Figure, results: &Results, size: Size) -> Table {
    let settings = figure.settings();
    let columns = settings.iter().map(|setting| format!("{}, reached", setting.word()));
    let heads = std::iter::once(head(figure.across()).to_owned()).chain(columns).collect();
    let row = |place: u32| {
        let reached = settings.iter().map(|setting| {
            let measured = results.get(&figure.point(*setting, place, size));
            measured.map_or_else(|| text("–"), |measured| format!("{:.0}", measured.rate_hz).into())
        });
        std::iter::once(figure.place_words(place).into()).chain(reached).collect()
    };
    let rows = figure.places(size).into_iter().map(row).collect();
    Table { file: format!("figure-{}-reached", figure.number()), heads, rows, words: false }
}

fn findings_table(file: &str, findings: &[Finding]) -> Table {
    let has_ours = findings.iter().any(|finding| !finding.ours.is_empty());
    let mut titles = heads(&["", "published", "here", "came out"]);
    titles.extend(has_ours.then(|| "ours".to_owned()));
    let rows = findings.iter().map(|finding| {
        let mut row = vec![text(finding.what), text(finding.published), text(&finding.here)];
        row.push(match finding.came_out {
            CameOut::Yes => Cell::Verdict(CameOut::Yes.words().to_owned(), true),
            CameOut::No => Cell::Verdict(CameOut::No.words().to_owned(), false),
            other => text(other.words()),
        });
        row.extend(has_ours.then(|| text(&finding.ours)));
        row
    });
    let rows = rows.collect();
    Table { file: format!("{file}-published"), heads: titles, rows, words: true }
}

fn constants_card(results: &Results, size: Size) -> Card {
    let rows = constants::rows(results, size).into_iter();
    let rows = rows.map(|row| row.map(Cell::from).into_iter().collect()).collect();
    Card::Tables {
        title: "What hangs on the work of a request".to_owned(),
        about: "Which setting's latency grows first (figure 11) is decided by the model's constant, 0.1 ms \
                that a node works on a request: without it neither does. Figure 5's bend does not hang on \
                it, nor all of figure 12's at the edge: 2,000 clients have five operations each there, and \
                wait for the slowest in the end."
            .to_owned(),
        wide: true,
        tables: vec![Table {
            file: "constants".to_owned(),
            heads: heads(&constants::HEADS),
            rows,
            words: false,
        }],
    }
}

fn copies_card(results: &Results, size: Size) -> Card {
    let row = |row: copies::Row| row.cells().map(Cell::from).into_iter().collect();
    let rows = copies::all(results, size).into_iter().map(row).collect();
    Card::Tables {
        title: "Copies of remote keys".to_owned(),
        about: "The usual load, and with nearly only reads. Where half of the operations are updates, most \
                copies have been overwritten when they are asked for again. A validated copy saves bytes and no way: the \
                owner is asked all the same. A stale one saves the way of reads that may be stale, \
                and answers with what was there at most a second ago. Updates gain nothing but what \
                reads leave to them."
            .to_owned(),
        wide: true,
        tables: vec![Table {
            file: "copies".to_owned(),
            heads: heads(&copies::HEADS),
            rows,
            words: false,
        }],
    }
}

fn hops_cards(size: Size) -> Vec<Card> {
    let all = hops::all(size);
    let line = |name: &str, of: fn(&hops::Hops) -> f64| {
        let points = all.iter().map(|one| (one.count as f64, of(one)));
        (name.to_owned(), points.collect::<Vec<_>>())
    };
    let chart = |file: &str, title: &str, about: &str, y, lines| {
        Card::Chart(Chart {
            file: file.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            x: study::Across::Powers("gateways"),
            y,
            lines,
        })
    };
    let rows = all.iter().map(|one| {
        let mut row: Vec<Cell> = vec![one.count.to_string().into()];
        for ways in [one.chord, one.ours] {
            row.push(format!("{:.2}", ways.mean).into());
            row.push(ways.most.to_string().into());
            row.push(format!("{:.1}", ways.pointers).into());
        }
        row
    });
    let rows = rows.collect();
    let heads =
        heads(&["gateways", "Chord, hops", "most", "pointers", "ours, hops", "most", "pointers"]);
    let table = Table { file: "hops".to_owned(), heads, rows, words: false };
    vec![
        chart(
            "hops",
            "Hops by the number of gateways",
            "Gateways that are asked until it is known whose a key is. The paper states O(log m).",
            "asked, mean",
            vec![
                line("Chord, one point each (the paper's)", |one| one.chord.mean),
                line("ring of sites (ours, owner not known)", |one| one.ours.mean),
                line("ours, owner known", |_| 0.0),
            ],
        ),
        chart(
            "state",
            "State by the number of gateways",
            "Pointers that each keeps for it. The paper states O(log m).",
            "pointers, mean",
            vec![
                line("Chord, one point each (the paper's)", |one| one.chord.pointers),
                line("ring of sites (ours)", |one| one.ours.pointers),
            ],
        ),
        Card::Tables {
            title: "Hops and state".to_owned(),
            about: "Two thousand ways through each ring, left in peace. Ours has eight points a site and \
                    lists of successors, which make ways shorter and state larger. EdgeKV's program \
                    asks each gateway on the way twice."
                .to_owned(),
            wide: true,
            tables: vec![table],
        },
    ]
}

fn notes(again: &str) -> Vec<String> {
    vec![
        "Time is virtual: links take what Table 3 states, an fsync takes 10 ms (the paper's machines have \
         hard disks) and is shared by the writes that wait for it, and a node works 0.1 ms on each \
         request of its clients. Nothing else takes any time. So the throughput of a machine is that \
         of its threads asking one after the other, until its group is busy all the time."
            .to_owned(),
        "All settings run the same sites; over gateways, a request about a global key goes the way that \
         EdgeKV's program sends it, each leg over that leg's link. Published milliseconds are not in \
         the text of the paper, and contain what is not modelled here (processors, gRPC, the program \
         that asks): compare who is ahead, and by how much with care."
            .to_owned(),
        "Figures tell of updates, which no copy makes faster. In closed loops, more of them are done a \
         second where reads take less time. Stale reads are not linearizable, and are left out of \
         that verdict; all others are judged."
            .to_owned(),
        format!("Run it again: {again}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_figure_has_its_plot_and_its_tables() {
        let figures = [Figure::new(7).unwrap()];
        let points = crate::paper::edgekv::points(&figures, Size::Quick);
        let results: Results =
            points.into_iter().map(|point| (point, point.run().unwrap())).collect();
        let study = study(&figures, &results, Size::Quick, "portolan lab paper edgekv --figure 7");
        let html = study.html();
        // Three choices of keys in five settings, and the plots of hops and state.
        assert_eq!(html.matches("<svg").count(), 3);
        for words in [
            "Figure 7: write latency by the choice of keys, 50 % global",
            "22 % to 28 % lower",
            "<th>zipfian</th>",
            "<th>ours</th>",
            "<th>cached</th>",
            "Copies of remote keys",
            "Goals",
            "A quick pass",
        ] {
            assert!(html.contains(words), "{words}");
        }
        assert!(!html.contains("<td>–</td>"), "everything was measured");
        let bars = bars::all(&results, Size::Quick);
        assert!(bars.iter().skip(3).all(|bar| bar.met), "{bars:?}");
    }

    #[test]
    fn requests_over_gateways_take_the_sum_of_their_legs() {
        use crate::paper::edgekv::Point;
        let usual = Point::usual(Setting::Edge, Size::Quick);
        let alone = Point { global_percent: 100, threads: 1, operations: 40, ..usual };
        let (read_ms, update_ms) = alone.run().unwrap().remote_ms.unwrap();
        // To the client's node, to its gateway and back, to the gateway, to the other one, to its
        // leader, a round of its nodes, and back. Half of the keys need two questions more.
        let known = 2.0 * 5.0 + 4.0 + 4.0 + 20.0 + 4.0 + 4.0 + 0.1;
        let asked = known + 2.0 * 20.0;
        let is_one_of = |ms: f64| [known, asked].iter().any(|sum| (ms / sum - 1.0).abs() < 0.01);
        assert!(is_one_of(read_ms) && is_one_of(update_ms - 10.0), "{read_ms} {update_ms}");
    }
}
