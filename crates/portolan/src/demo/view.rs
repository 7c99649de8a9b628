//! The live view: the city with its vehicles on the left, rates and latencies on the right.

use std::{io, time::Duration};

use lab::{
    geo::{Bounds, Point},
    measure::Summary,
    world::World,
};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    symbols::Marker,
    text::{Line, Span},
    widgets::{
        Block, Gauge, Paragraph, Row, Table,
        canvas::{Canvas, Line as Stroke, Points},
    },
};

use super::picture::{Picture, Presence, Role, SitePicture};

/// Told apart on a dark and on a light background; neighbours on the grid differ.
const SITE_COLORS: [Color; 9] = [
    Color::LightBlue,
    Color::LightRed,
    Color::LightGreen,
    Color::Magenta,
    Color::Yellow,
    Color::Cyan,
    Color::LightMagenta,
    Color::Green,
    Color::Blue,
];

/// The terminal while it shows the demo; given back when dropped.
#[derive(Debug)]
pub(super) struct View {
    terminal: DefaultTerminal,
    title: String,
    city: Bounds,
    outline: Vec<Point>,
}

impl View {
    /// Takes the terminal.
    pub(super) fn open(world: &World, title: String) -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        Ok(Self { terminal, title, city: world.area, outline: world.outline.clone() })
    }

    /// Draws one moment; true when the user asks to stop.
    pub(super) fn show(&mut self, picture: &Picture) -> io::Result<bool> {
        let Self { title, city, outline, .. } = self;
        self.terminal.draw(|frame| draw(frame, title, *city, outline, picture))?;
        asked_to_stop()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn asked_to_stop() -> io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        let Event::Key(key) = event::read()? else { continue };
        let interrupt =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if key.kind == KeyEventKind::Press && (interrupt || quit) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn draw(frame: &mut Frame<'_>, title: &str, city: Bounds, outline: &[Point], picture: &Picture) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(10), Constraint::Length(1)])
            .areas(frame.area());
    let [map, side] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(54)]).areas(body);
    let [operations, records, sites, events] = Layout::vertical([
        Constraint::Length(picture.operations.len() as u16 + 5),
        Constraint::Length(4),
        Constraint::Length(picture.sites.len() as u16 + 3),
        Constraint::Min(3),
    ])
    .areas(side);
    draw_head(frame, head, title, picture);
    draw_map(frame, map, city, outline, picture);
    draw_operations(frame, operations, picture);
    draw_records(frame, records, picture);
    draw_sites(frame, sites, picture);
    draw_events(frame, events, picture);
    let keys = " q stops and reports what was seen so far".dark_gray();
    let waits = picture.waits_for.map_or(String::new(), |what| format!(" · waits for {what}"));
    frame.render_widget(Paragraph::new(Line::from(vec![keys, waits.yellow()])), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, title: &str, picture: &Picture) {
    let [name, progress] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let line = Line::from(vec![" portolan demo ".bold().reversed(), format!("  {title}").into()]);
    frame.render_widget(Paragraph::new(line), name);
    let ratio = picture.elapsed.as_secs_f64() / picture.length.as_secs_f64().max(1e-9);
    let clock = picture.t_s as u64;
    let label = format!(
        "{} of {} s · trace time {:02}:{:02}:{:02}",
        picture.elapsed.as_secs(),
        picture.length.as_secs(),
        clock / 3_600,
        clock / 60 % 60,
        clock % 60
    );
    let gauge = Gauge::default()
        .gauge_style(Style::new().fg(Color::Blue).bg(Color::Black))
        .use_unicode(true)
        .label(label)
        .ratio(ratio.clamp(0.0, 1.0));
    frame.render_widget(gauge, progress);
}

/// East and north in equal units, so that the city keeps its shape.
fn flat(point: Point, city: Bounds) -> (f64, f64) {
    (point.lon * city.center().lat.to_radians().cos(), point.lat)
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, city: Bounds, outline: &[Point], picture: &Picture) {
    let (west, south) = flat(Point::new(city.south, city.west), city);
    let (east, north) = flat(Point::new(city.north, city.east), city);
    // A cell is twice as high as wide; the smaller scale of both directions fits the whole city.
    let (cells_wide, cells_high) =
        (f64::from(area.width.max(3)), f64::from(area.height.max(3)) * 2.0);
    let cell = ((east - west) / cells_wide).max((north - south) / cells_high);
    let (middle_x, middle_y) = ((west + east) / 2.0, (south + north) / 2.0);
    let half = |cells: f64| cells * cell / 2.0;
    let canvas = Canvas::default()
        .block(Block::bordered().title(format!(" {} vehicles ", picture.vehicles.len())))
        .marker(Marker::Braille)
        .x_bounds([middle_x - half(cells_wide), middle_x + half(cells_wide)])
        .y_bounds([middle_y - half(cells_high), middle_y + half(cells_high)])
        .paint(|context| {
            for pair in outline.windows(2) {
                let ((x1, y1), (x2, y2)) = (flat(pair[0], city), flat(pair[1], city));
                context.draw(&Stroke { x1, y1, x2, y2, color: Color::DarkGray });
            }
            context.layer();
            for (index, _) in picture.sites.iter().enumerate() {
                let here = picture.vehicles.iter().filter(|(_, site)| *site == index);
                let coords: Vec<(f64, f64)> = here.map(|(at, _)| flat(*at, city)).collect();
                context.draw(&Points { coords: &coords, color: site_color(index) });
            }
            context.layer();
            for (index, site) in picture.sites.iter().enumerate() {
                let (x, y) = flat(site.at, city);
                context.print(x, y, site_label(index, site));
            }
        });
    frame.render_widget(canvas, area);
}

fn site_color(index: usize) -> Color {
    SITE_COLORS[index % SITE_COLORS.len()]
}

/// A square for each node (filled: leads; hollow: follows; cross: stopped; dot: not there), then the
/// site's name.
fn site_label(index: usize, site: &SitePicture) -> Line<'static> {
    let style = site_style(index, site).add_modifier(Modifier::BOLD);
    let mut spans = nodes(&site.nodes, style);
    spans.push(Span::styled(format!(" {}", site.name), style));
    Line::from(spans)
}

/// In its colour while it is there.
fn site_style(index: usize, site: &SitePicture) -> Style {
    let is_there = !matches!(site.presence, Presence::Expected | Presence::Left);
    Style::new().fg(if is_there { site_color(index) } else { Color::DarkGray })
}

fn nodes(roles: &[Role], style: Style) -> Vec<Span<'static>> {
    let span = |role: &Role| match role {
        Role::Leader => Span::styled("■", style),
        Role::Follower => Span::styled("□", style),
        Role::Down => Span::styled("×", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)),
        Role::Absent => Span::styled("·", Style::new().fg(Color::DarkGray)),
    };
    roles.iter().map(span).collect()
}

fn draw_operations(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let head = Row::new(["", "ops/s", "p50 ms", "p99 ms", "total"]).style(Color::DarkGray);
    let row = |name: &'static str, last: &Summary, total: &Summary| {
        let shown = |ms: f64| if last.count > 0 { format!("{ms:.1}") } else { "–".to_owned() };
        Row::new([
            name.to_owned(),
            last.count.to_string(),
            shown(last.p50_ms),
            shown(last.p99_ms),
            total.count.to_string(),
        ])
    };
    let mut rows: Vec<Row<'_>> =
        picture.operations.iter().map(|(name, last, total)| row(name, last, total)).collect();
    rows.push(row("all", &picture.all.0, &picture.all.1).bold());
    let widths = [
        Constraint::Length(13),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(9),
    ];
    let block = Block::bordered().title(" operations, last second ");
    let [top, bottom] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(block.inner(area));
    frame.render_widget(block, area);
    frame.render_widget(Table::new(rows, widths).header(head), top);
    let counters = picture.counters;
    let alarm = |count: u64, color: Color| if count > 0 { color } else { Color::DarkGray };
    let line = Line::from(vec![
        format!("moves {}  ", counters.moves).into(),
        format!("elections {}  ", counters.elections).into(),
        Span::styled(
            format!("retries {}  ", counters.retries),
            alarm(counters.retries, Color::Yellow),
        ),
        Span::styled(format!("errors {}", counters.errors), alarm(counters.errors, Color::Red)),
    ]);
    frame.render_widget(Paragraph::new(line), bottom);
}

/// Global keys: where they are, and whether vehicles find their own.
fn draw_records(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let found = picture.found;
    let verdict = format!("{} wrong", found.wrong);
    let verdict = if found.wrong > 0 { verdict.red().bold() } else { verdict.green() };
    let own = Line::from(vec![
        format!("own records read after moving {}, ", found.after_moving).into(),
        verdict,
    ]);
    let (slots, moves) = picture.on_their_way();
    let holders = picture.sites.iter().filter(|site| site.holding.slots > 0).count();
    let slots = match moves {
        0 => Line::from(format!("slots at {holders} sites, none on its way")),
        _ => Line::from(vec![
            format!("slots at {holders} sites, ").into(),
            format!("{slots} on their way in {moves} moves").yellow(),
        ]),
    };
    let block = Block::bordered().title(" global keys ");
    frame.render_widget(Paragraph::new(vec![own, slots]).block(block), area);
}

fn draw_sites(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let rows = picture.sites.iter().enumerate().map(|(index, site)| {
        let style = site_style(index, site);
        Row::new([
            Line::from(nodes(&site.nodes, style)),
            Line::styled(site.name.clone(), style),
            Line::from(site.attached.to_string()),
            Line::from(site.operations.to_string()),
            slots(site),
        ])
    });
    let widths = [
        Constraint::Length(5),
        Constraint::Length(16),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(11),
    ];
    let head = Row::new(["nodes", "site", "vehicles", "answered", "slots"]).style(Color::DarkGray);
    let block = Block::bordered().title(" sites ");
    frame.render_widget(Table::new(rows, widths).header(head).block(block), area);
}

/// What a site holds, and what is happening to it.
fn slots(site: &SitePicture) -> Line<'static> {
    let held = site.holding.slots;
    match site.presence {
        Presence::Expected => Line::from("to come".dark_gray()),
        Presence::Left => Line::from("left".dark_gray()),
        Presence::Joining => Line::from(format!("{held} joins").green()),
        Presence::Leaving => Line::from(format!("{held} leaves").yellow()),
        Presence::Here if site.holding.going > 0 => Line::from(format!("{held} →").yellow()),
        Presence::Here => Line::from(held.to_string()),
    }
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let lines: Vec<Line<'_>> = picture
        .events
        .iter()
        .map(|event| {
            let at = format!("{:>6.1} s  ", event.at.as_secs_f64());
            Line::from(vec![at.dark_gray(), event.label.clone().into()])
        })
        .collect();
    let block = Block::bordered().title(" events ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use lab::measure::{Counters, Event as Mark};
    use ratatui::{Terminal, backend::TestBackend};

    use super::super::{city::Holding, records::Found};
    use super::*;

    #[test]
    fn the_screen_shows_sites_rates_and_events() {
        let world = lab::world::ready::san_francisco();
        let summary = Summary { count: 42, p50_ms: 9.5, p90_ms: 11.0, p99_ms: 12.5, max_ms: 20.0 };
        let presences = [Presence::Expected, Presence::Joining, Presence::Leaving, Presence::Left];
        let sites = world.sites.iter().enumerate().map(|(index, site)| SitePicture {
            name: site.name.to_string(),
            at: site.at,
            nodes: if site.nodes == 3 {
                vec![Role::Down, Role::Leader, Role::Follower]
            } else {
                vec![Role::Leader]
            },
            attached: 1,
            operations: 77,
            presence: presences.get(index).copied().unwrap_or_default(),
            holding: match index {
                1 => Holding { slots: 901, going: 0, moves: 0 },
                2 => Holding { slots: 1_902, going: 300, moves: 2 },
                4 => Holding { slots: 1_904, going: 12, moves: 1 },
                _ => Holding { slots: 1_900, going: 0, moves: 0 },
            },
        });
        let picture = Picture {
            elapsed: Duration::from_secs(15),
            length: Duration::from_secs(60),
            t_s: 29_700.0,
            operations: vec![("look", summary, summary)],
            all: (summary, summary),
            counters: Counters { moves: 5, retries: 2, ..Counters::default() },
            events: vec![Mark { at: Duration::from_secs(14), label: "it happened".to_owned() }],
            vehicles: world.sites.iter().map(|site| site.at).zip(0..).collect(),
            sites: sites.collect(),
            waits_for: Some("a site that joins"),
            found: Found { after_moving: 31, late: 0, wrong: 0 },
        };
        for (width, height) in [(120, 40), (80, 24), (20, 5)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal
                .draw(|frame| draw(frame, "San Francisco", world.area, &world.outline, &picture))
                .unwrap();
            let screen = terminal.backend().to_string();
            if width >= 120 {
                for text in [
                    "×■□ downtown",
                    "9 vehicles",
                    "08:15:00",
                    "12.5",
                    "moves 5",
                    "it happened",
                    "own records read after moving 31, 0 wrong",
                    "312 on their way in 3 moves",
                    "to come",
                    "901 joins",
                    "1902 leaves",
                    "1904 →",
                    "waits for a site that joins",
                ] {
                    assert!(screen.contains(text), "{text:?} in\n{screen}");
                }
            }
        }
    }
}
