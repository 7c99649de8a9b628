//! The page: what stands where. Numbers come from the neighbours, and so do drawings.

use std::fmt::Write as _;

use super::{
    Report, Tile, Tone, escaped,
    figure::{self, Figure, Room},
    palette, tables,
};

const STYLE: &str = include_str!("style.css");
/// With more rows than this, what happened is folded away.
const UNFOLDED_MAX: usize = 8;

/// Everything up to the cards.
pub(super) fn begin(title: &str, summary: &str, about: &[Tile]) -> String {
    let title = escaped(title);
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{}{STYLE}</style></head><body><main>\
         <header><span class=\"brand\">Portolan</span><h1>{title}</h1><p class=\"lead\">{}</p></header>",
        palette::css(),
        escaped(summary)
    );
    tiles(&mut html, about);
    html.push_str("<div class=\"cards\">");
    html
}

/// Everything after the cards.
pub(super) fn end(html: &mut String, notes: &[String]) {
    html.push_str("</div><footer>");
    for note in notes {
        let _ = write!(html, "<p>{}</p>", escaped(note));
    }
    html.push_str("</footer></main></body></html>\n");
}

pub(super) fn html(report: &Report) -> String {
    let mut html = begin(&report.title, &report.summary, &report.tiles);
    if !report.verdicts.is_empty() {
        let judged = "What was promised, and whether what clients saw agrees with it. Where \
                      nothing was examined, a promise is only unbroken.";
        table(&mut html, true, "Verdicts", judged, &tables::verdicts(report));
    }
    let figures = figure::all(report);
    for figure in &figures {
        draw(&mut html, figure);
    }
    let measured = "From the first attempt to the answer, as the client saw it, links included.";
    // It stands beside the last figure, or in a row of its own.
    let talls = figures.iter().filter(|figure| figure.room == Room::Tall).count();
    let alone = (figures.len() + talls).is_multiple_of(2);
    table(&mut html, alone, "Latency by operation", measured, &tables::operations(&report.measure));
    if !report.expectations.is_empty() {
        let added = "What the delays of the links on an operation's way add up to, beside what was \
                     measured.";
        let rows = tables::expectations(report);
        table(&mut html, true, "The arithmetic of the links", added, &rows);
    }
    if let Some(figure) = figure::of_map(report) {
        draw(&mut html, &figure);
    }
    if let Some(rows) = tables::happenings(report) {
        let count = report.happenings().len();
        let body = if count > UNFOLDED_MAX {
            format!("<details><summary>{count} of them</summary>{rows}</details>")
        } else {
            rows
        };
        table(&mut html, true, "What happened", "The marks and bands on the plots.", &body);
    }
    end(&mut html, &report.notes);
    html
}

fn tiles(html: &mut String, tiles: &[Tile]) {
    html.push_str("<div class=\"tiles\">");
    for tile in tiles {
        let tone = match tile.tone {
            Tone::Plain => "tile",
            Tone::Good => "tile good",
            Tone::Bad => "tile bad",
        };
        let _ = write!(
            html,
            "<div class=\"{tone}\"><span>{}</span><b>{}</b><small>{}</small></div>",
            escaped(&tile.label),
            escaped(&tile.value),
            escaped(&tile.note)
        );
    }
    html.push_str("</div>");
}

pub(super) fn card(html: &mut String, room: Room, title: &str, about: &str, body: &str) {
    let class = match room {
        Room::Half => "card",
        Room::Tall => "card tall",
        Room::Wide => "card wide",
    };
    let (title, about) = (escaped(title), escaped(about));
    let _ =
        write!(html, "<section class=\"{class}\"><h2>{title}</h2><p>{about}</p>{body}</section>");
}

pub(super) fn table(html: &mut String, wide: bool, title: &str, about: &str, table: &str) {
    let room = if wide { Room::Wide } else { Room::Half };
    card(html, room, title, about, &format!("<div class=\"scroll\">{table}</div>"));
}

pub(super) fn draw(html: &mut String, figure: &Figure) {
    let mut body = figure.drawing.on_page();
    if !figure.legend.is_empty() {
        body.push_str("<p class=\"legend\">");
        for (name, ink) in &figure.legend {
            let (color, name) = (ink.on_page(), escaped(name));
            let line = if ink.comes_again() { "dashed" } else { "solid" };
            let _ =
                write!(body, "<span><i style=\"border-top:3px {line} {color}\"></i>{name}</span>");
        }
        body.push_str("</p>");
    }
    card(html, figure.room, &figure.title, &figure.about, &body);
}
