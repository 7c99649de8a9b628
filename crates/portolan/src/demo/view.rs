//! The live view: the city with its vehicles on the left, rates and latencies on the right.

use std::{io, time::Duration};

use lab::{
    geo::{Bounds, Point},
    measure::{Event, Summary},
    world::World,
};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    symbols::Marker,
    text::{Line, Span},
    widgets::{
        Block, Gauge, Paragraph, Row, Table, Wrap,
        canvas::{Canvas, Line as Stroke, Points},
    },
};

use super::{
    comparison, course,
    picture::{Picture, Role, SiteLifecycle, SitePicture},
};

/// Distinct on a dark and on a light background; neighbours on the grid differ.
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
        let Input::Key(key) = event::read()? else { continue };
        let interrupt =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if key.kind == KeyEventKind::Press && (interrupt || quit) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How much there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Everything.
    Full,
    /// An ordinary terminal: all sites and the map, of the operations and events fewer.
    Ordinary,
    /// Too little for boxes: a few lines.
    Little,
}

/// The least for [`Room::Ordinary`].
const ORDINARY: (u16, u16) = (80, 24);
/// The side's width where there is room for everything, and where there is less.
const SIDE_FULL: u16 = 60;
const SIDE_ORDINARY: u16 = 50;
/// The least width of the map.
const MAP_MIN: u16 = 46;
/// Rows of the head and the foot.
const HEAD: u16 = 3;
const FOOT: u16 = 1;
/// Rows of the box of records, of that of their windows, and the fewest of that of events.
const RECORDS: u16 = 8;
const COURSE: u16 = course::ROWS + 2;
const EVENTS_MIN: u16 = 3;
/// Columns of the counters beside the progress bar, in an ordinary terminal.
const COUNTERS: u16 = 48;

impl Room {
    fn of(area: Rect, picture: &Picture) -> Room {
        let side = operations_rows(picture) + RECORDS + sites_rows(picture) + EVENTS_MIN;
        match area {
            _ if area.width >= SIDE_FULL + MAP_MIN && area.height >= HEAD + side + FOOT => {
                Room::Full
            }
            _ if area.width >= ORDINARY.0 && area.height >= ORDINARY.1 => Room::Ordinary,
            _ => Room::Little,
        }
    }
}

/// Rows of the box of operations: each, all of them, the counters, the head and the frame.
fn operations_rows(picture: &Picture) -> u16 {
    picture.operations.len() as u16 + 5
}

/// Rows of the box of sites: each, the head and the frame.
fn sites_rows(picture: &Picture) -> u16 {
    picture.sites.len() as u16 + 3
}

fn draw(frame: &mut Frame<'_>, title: &str, city: Bounds, outline: &[Point], picture: &Picture) {
    let room = Room::of(frame.area(), picture);
    if room == Room::Little {
        return draw_little(frame, picture);
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(HEAD), Constraint::Fill(1), Constraint::Length(FOOT)])
            .areas(frame.area());
    draw_head(frame, head, title, picture, room);
    draw_foot(frame, foot, picture, room);
    match room {
        Room::Full => {
            let [map, side] =
                Layout::horizontal([Constraint::Fill(1), Constraint::Length(SIDE_FULL)])
                    .areas(body);
            let [operations, records, sites, events] = Layout::vertical([
                Constraint::Length(operations_rows(picture)),
                Constraint::Length(RECORDS),
                Constraint::Length(sites_rows(picture)),
                Constraint::Min(EVENTS_MIN),
            ])
            .areas(side);
            let [map, course] =
                Layout::vertical([Constraint::Fill(1), Constraint::Length(COURSE)]).areas(map);
            draw_map(frame, map, city, outline, picture);
            draw_course(frame, course, picture);
            draw_operations(frame, operations, picture);
            draw_records(frame, records, picture);
            draw_sites(frame, sites, picture, room);
            draw_events(frame, events, picture);
        }
        _ => {
            let [left, side] =
                Layout::horizontal([Constraint::Fill(1), Constraint::Length(SIDE_ORDINARY)])
                    .areas(body);
            let [map, events] =
                Layout::vertical([Constraint::Fill(1), Constraint::Length(8)]).areas(left);
            let [operations, sites] =
                Layout::vertical([Constraint::Min(8), Constraint::Length(sites_rows(picture))])
                    .areas(side);
            draw_map(frame, map, city, outline, picture);
            draw_summary(frame, operations, picture);
            draw_sites(frame, sites, picture, room);
            draw_events(frame, events, picture);
        }
    }
}

fn waits_for(picture: &Picture) -> String {
    picture.waits_for.map_or(String::new(), |what| format!(" · waits for {what}"))
}

/// The picture in a few lines, the most important first.
fn draw_little(frame: &mut Frame<'_>, picture: &Picture) {
    let last = &picture.all.0;
    let mut lines = vec![
        Line::from(format!(
            "{} ops/s, p50 {:.1} ms, p99 {:.1} ms",
            last.count, last.p50_ms, last.p99_ms
        )),
        headline(picture),
        Line::from(picture.course.newest_whole().map(course::text).unwrap_or_default()),
        counters(picture),
        own_records(picture),
        trips_line(picture),
        slots_line(picture),
        Line::from(format!(
            "{} of {} s{}",
            picture.elapsed.as_secs(),
            picture.length.as_secs(),
            waits_for(picture)
        )),
        Line::from(format!("q stops; the map needs {} columns, {} rows", ORDINARY.0, ORDINARY.1))
            .dark_gray(),
    ];
    lines.extend(picture.events.iter().rev().map(event_line));
    frame.render_widget(Paragraph::new(lines), frame.area());
}

/// An ordinary terminal has the counters here, as its boxes have no room for them.
fn draw_head(frame: &mut Frame<'_>, area: Rect, title: &str, picture: &Picture, room: Room) {
    let [name, mut progress, compared] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    frame.render_widget(Paragraph::new(headline(picture)).centered(), compared);
    let line = Line::from(vec![" portolan demo ".bold().reversed(), format!("  {title}").into()]);
    frame.render_widget(Paragraph::new(line), name);
    let ratio = picture.elapsed.as_secs_f64() / picture.length.as_secs_f64().max(1e-9);
    let clock = picture.t_s as u64;
    let clock = format!("{:02}:{:02}:{:02}", clock / 3_600, clock / 60 % 60, clock % 60);
    let (elapsed, length) = (picture.elapsed.as_secs(), picture.length.as_secs());
    let label = match room {
        Room::Full => format!("{elapsed} of {length} s · trace time {clock}"),
        _ => format!("{elapsed} of {length} s · trace {clock}"),
    };
    if room != Room::Full {
        let columns = [Constraint::Fill(1), Constraint::Length(COUNTERS)];
        let [bar, right] = Layout::horizontal(columns).areas(progress);
        progress = bar;
        frame.render_widget(counters(picture).right_aligned(), right);
    }
    let gauge = Gauge::default()
        .gauge_style(Style::new().fg(Color::Blue).bg(Color::Black))
        .use_unicode(true)
        .label(label)
        .ratio(ratio.clamp(0.0, 1.0));
    frame.render_widget(gauge, progress);
}

/// An ordinary terminal has the vehicles' own records here.
fn draw_foot(frame: &mut Frame<'_>, area: Rect, picture: &Picture, room: Room) {
    let keys =
        if room == Room::Full { " q stops and reports what was seen so far" } else { "q stops" };
    let keys = Line::from(vec![keys.dark_gray(), waits_for(picture).yellow()]);
    if room == Room::Full {
        return frame.render_widget(keys, area);
    }
    let found = own_records(picture);
    let columns = [Constraint::Fill(1), Constraint::Length(found.width() as u16)];
    let [left, right] = Layout::horizontal(columns).areas(area);
    frame.render_widget(keys, left);
    frame.render_widget(found, right);
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

/// A square for each node (filled: leads; hollow: follows; cross: stopped; dot: not there), then
/// the site's name.
fn site_label(index: usize, site: &SitePicture) -> Line<'static> {
    let style = site_style(index, site).add_modifier(Modifier::BOLD);
    let mut spans = nodes(&site.nodes, style);
    spans.push(Span::styled(format!(" {}", site.name), style));
    Line::from(spans)
}

/// In its colour while it is there.
fn site_style(index: usize, site: &SitePicture) -> Style {
    let is_there = !matches!(site.lifecycle, SiteLifecycle::Expected | SiteLifecycle::Left);
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

fn operation_row(name: &'static str, last: &Summary, total: &Summary) -> Row<'static> {
    let shown = |ms: f64| if last.count > 0 { format!("{ms:.1}") } else { "–".to_owned() };
    Row::new([
        name.to_owned(),
        last.count.to_string(),
        shown(last.p50_ms),
        shown(last.p99_ms),
        total.count.to_string(),
    ])
}

/// Each operation, and all of them together.
fn operations_table(picture: &Picture) -> Table<'static> {
    let head = Row::new(["", "ops/s", "p50 ms", "p99 ms", "total"]).style(Color::DarkGray);
    let each = picture.operations.iter();
    let mut rows: Vec<Row<'_>> =
        each.map(|(name, last, total)| operation_row(name, last, total)).collect();
    rows.push(operation_row("all", &picture.all.0, &picture.all.1).bold());
    Table::new(rows, [13, 7, 8, 8, 9].map(Constraint::Length)).header(head)
}

fn draw_operations(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let block = Block::bordered().title(" operations, last second ");
    let [top, bottom] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(block.inner(area));
    frame.render_widget(block, area);
    frame.render_widget(operations_table(picture), top);
    frame.render_widget(Paragraph::new(counters(picture)), bottom);
}

/// Both kinds of records, so far and window by window, and what is most important of all
/// operations, in one box.
fn draw_summary(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let last = &picture.all.0;
    let title =
        format!(" {} ops/s, p50 {:.1} ms, p99 {:.1} ms ", last.count, last.p50_ms, last.p99_ms);
    let block = Block::bordered().title(title).title_bottom(trips_title(picture));
    let rows = [Constraint::Fill(1), Constraint::Length(course::ROWS)];
    let [top, bottom] = Layout::vertical(rows).areas(block.inner(area));
    frame.render_widget(block, area);
    frame.render_widget(sides_table(picture), top);
    picture.course.draw(frame, bottom);
}

/// Both kinds of records window by window, in a box.
fn draw_course(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let title = format!(" records and groups moved, each {} ", picture.course.window());
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    picture.course.draw(frame, inner);
}

fn counters(picture: &Picture) -> Line<'static> {
    let counters = picture.counters;
    let alarm = |count: u64, color: Color| if count > 0 { color } else { Color::DarkGray };
    Line::from(vec![
        format!("moves {}  ", counters.moves).into(),
        format!("elections {}  ", counters.elections).into(),
        Span::styled(
            format!("retries {}  ", counters.retries),
            alarm(counters.retries, Color::Yellow),
        ),
        Span::styled(format!("errors {}", counters.errors), alarm(counters.errors, Color::Red)),
    ])
}

/// The comparison in a sentence.
fn headline(picture: &Picture) -> Line<'static> {
    Line::from(comparison::headline(&picture.sides).bold().green())
}

/// Records that follow their users, and records placed by hash: the run so far.
fn sides_table(picture: &Picture) -> Table<'static> {
    let head = Row::new(["so far", "p50 ms", "p99 ms", "at own site"]).style(Color::DarkGray);
    let rows = comparison::NAMES.iter().zip(picture.sides).map(|(name, side)| {
        let [p50, p99, part] = side.cells();
        Row::new([(*name).to_owned(), p50, p99, part])
    });
    Table::new(rows, [17, 8, 8, 11].map(Constraint::Length)).header(head)
}

/// Whether vehicles find their own.
fn own_records(picture: &Picture) -> Line<'static> {
    let found = picture.found;
    let verdict = format!("{} wrong", found.wrong);
    let verdict = if found.wrong > 0 { verdict.red().bold() } else { verdict.green() };
    Line::from(vec![
        format!("own records read after moving {}, ", found.after_moving).into(),
        verdict,
    ])
}

/// How long sessions of trips waited at the sites that they came to, and whether they went back.
fn trips_line(picture: &Picture) -> Line<'static> {
    let (found, attach) = picture.trips;
    let [waits, anomalies] = found.text(&attach);
    let verdict = if found.anomalies > 0 { anomalies.red().bold() } else { anomalies.green() };
    Line::from(vec![waits.into(), verdict])
}

fn trips_title(picture: &Picture) -> Line<'static> {
    let mut line = trips_line(picture);
    line.spans.insert(0, " ".into());
    line.spans.push(" ".into());
    line
}

/// Where global keys are.
fn slots_line(picture: &Picture) -> Line<'static> {
    let (slots, moves) = picture.on_their_way();
    let owners = picture.sites.iter().filter(|site| site.holding.slots > 0).count();
    match moves {
        0 => Line::from(format!("slots at {owners} sites, none on its way")),
        _ => Line::from(vec![
            format!("slots at {owners} sites, ").into(),
            format!("{slots} on their way in {moves} moves").yellow(),
        ]),
    }
}

/// Vehicles' records: how soon both kinds are answered, what moving them brings, and whether
/// vehicles find their own.
fn draw_records(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let block =
        Block::bordered().title(" records: global keys ").title_bottom(trips_title(picture));
    let [top, bottom] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(3)]).areas(block.inner(area));
    frame.render_widget(block, area);
    frame.render_widget(sides_table(picture), top);
    let moved = Line::from(picture.moved.text());
    let lines = vec![moved, own_records(picture), slots_line(picture)];
    frame.render_widget(Paragraph::new(lines), bottom);
}

/// The sites; what each has answered only where there is room for everything.
fn draw_sites(frame: &mut Frame<'_>, area: Rect, picture: &Picture, room: Room) {
    let rows = picture.sites.iter().enumerate().map(|(index, site)| {
        let style = site_style(index, site);
        let answered = Line::from(site.operations.to_string());
        let mut cells = vec![
            Line::from(nodes(&site.nodes, style)),
            Line::styled(site.name.clone(), style),
            Line::from(site.attached.to_string()),
        ];
        cells.extend((room == Room::Full).then_some(answered));
        cells.extend([slots(site), Line::from(site.lent.to_string())]);
        Row::new(cells)
    });
    let (heads, widths) = match room {
        Room::Full => {
            let heads = vec!["nodes", "site", "vehicles", "answered", "slots", "lends"];
            (heads, vec![5, 16, 8, 8, 11, 5])
        }
        _ => (vec!["nodes", "site", "cars", "slots", "lends"], vec![5, 16, 5, 11, 5]),
    };
    let head = Row::new(heads).style(Color::DarkGray);
    let widths = widths.into_iter().map(Constraint::Length);
    let block = match room {
        Room::Full => Block::bordered().title(" sites "),
        _ => {
            let mut slots = slots_line(picture);
            slots.spans.insert(0, " ".into());
            slots.spans.push(" ".into());
            let moved = format!(" {} ", picture.moved.text());
            Block::bordered().title(slots).title_bottom(moved)
        }
    };
    frame.render_widget(Table::new(rows, widths).header(head).block(block), area);
}

/// What a site holds, and what is happening to it.
fn slots(site: &SitePicture) -> Line<'static> {
    let held = site.holding.slots;
    match site.lifecycle {
        SiteLifecycle::Expected => Line::from("to come".dark_gray()),
        SiteLifecycle::Left => Line::from("left".dark_gray()),
        SiteLifecycle::Joining => Line::from(format!("{held} joins").green()),
        SiteLifecycle::Leaving => Line::from(format!("{held} leaves").yellow()),
        SiteLifecycle::Here if site.holding.going > 0 => Line::from(format!("{held} →").yellow()),
        SiteLifecycle::Here => Line::from(held.to_string()),
    }
}

fn event_line(event: &Event) -> Line<'static> {
    let at = format!("{:>6.1} s  ", event.at.as_secs_f64());
    Line::from(vec![at.dark_gray(), event.label.clone().into()])
}

/// The newest events that there is room for, the newest last.
fn draw_events(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let block = Block::bordered().title(" events ");
    let inner = block.inner(area);
    let rows = |line: &Line<'_>| line.width().div_ceil(usize::from(inner.width.max(1))).max(1);
    let mut left = usize::from(inner.height);
    let mut lines: Vec<Line<'_>> = picture.events.iter().map(event_line).collect();
    let fits = lines.iter().rev().take_while(|line| {
        let (before, taken) = (left, rows(line));
        left = left.saturating_sub(taken);
        before >= taken
    });
    let lines = lines.split_off(lines.len() - fits.count());
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::super::picture::tests::{crowded, crowded_world};
    use super::*;

    fn screen(width: u16, height: u16) -> String {
        let world = crowded_world();
        let picture = crowded(&world);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(frame, "San Francisco", world.area, &world.outline, &picture))
            .unwrap();
        terminal.backend().to_string()
    }

    #[track_caller]
    fn assert_shows(screen: &str, texts: &[&str]) {
        for text in texts {
            assert!(screen.contains(text), "{text:?} in\n{screen}");
        }
    }

    /// What must be seen on every screen that has boxes.
    const EVERYWHERE: [&str; 23] = [
        "×■□",
        "9 vehicles",
        "08:15:00",
        "12.5",
        "moves 12345  elections 0  retries 123  errors 12",
        "data that follows: p50 10 ms; placed by hash: 1041 ms",
        "data that follows 9.5      12.5     83 %",
        "placed by hash    1041.2   12.5     9 %",
        "12345 moves of 1.18 MiB saved 1234.6 s",
        "p50 follows █▆▃ ▁▁ ",
        "p50 by hash ███ ██ ",
        "groups/2 s   ▁▁ ▁█ ",
        "1041 ms",
        "own records read after moving 31, 0 wrong",
        " trips: attach p50 12, p99 1234 ms; 0 anomalies ",
        "slots at 9 sites, 312 on their way in 3 moves",
        "to come",
        "901 joins",
        "1902 leaves",
        "1904 →",
        "waits for a site that joins",
        "it happened",
        "q stops",
    ];

    #[test]
    fn the_screen_shows_sites_rates_and_events() {
        let screen = screen(120, 43);
        assert_shows(&screen, &EVERYWHERE);
        assert_shows(&screen, &["×■□ downtown", "answered", "fixed-read", "1234567"]);
    }

    #[test]
    fn an_ordinary_terminal_shows_every_site_and_what_matters() {
        let screen = screen(80, 24);
        assert_shows(&screen, &EVERYWHERE);
        let world = crowded_world();
        let names = world.sites.iter().map(|site| site.name.to_string());
        // Once on the map, perhaps, and once in the table.
        names.for_each(|name| assert_shows(&screen, &[&format!("{name:<16} 1 ")]));
        assert_shows(&screen, &["42 ops/s, p50 9.5 ms, p99 12.5 ms", "lends", " 1234 "]);
        assert!(!screen.contains("answered"), "no room for it:\n{screen}");
    }

    #[test]
    fn a_little_room_shows_a_few_lines() {
        assert_shows(
            &screen(60, 11),
            &[
                "42 ops/s",
                "moves 12345",
                "0 wrong",
                "0 anomalies",
                "placed by hash: 1041 ms",
                "8 to 10 s: p50 follows 9.5 ms, by hash 1041.2 ms",
                "15 of 60 s",
                "80 columns",
                "it happened",
            ],
        );
        for (width, height) in [(20, 5), (1, 1), (79, 24), (80, 23), (300, 3), (3, 100)] {
            screen(width, height);
        }
    }
}
