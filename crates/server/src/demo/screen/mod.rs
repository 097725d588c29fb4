//! The screen: a row for each receiver, the narration, the link and the keys. It fits 80 × 24.
//!
//! **It only draws**: what is shown is decided by [`Scene`].

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table};

use super::receivers::{CAST, Mood};
use super::scene::{Kind, Panel, Row, Scene, State, Told};
use super::words::{latency, number, span, stopwatch, wrapped};
use super::{RETRIES, retries_last};

/// Less than this is too small for anything.
const SMALLEST: (u16, u16) = (64, 20);
/// From this width on there is a chart of deliveries.
const WIDE: u16 = 102;
const CHART_WIDTH: u16 = 20;
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Whether colours are used, and what the help says.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) is_coloured: bool,
    /// `--server … --key …`, for commands in another terminal.
    pub(super) connection: String,
}

impl Look {
    fn fg(&self, color: Color) -> Style {
        if self.is_coloured { Style::new().fg(color) } else { Style::new() }
    }

    fn dim(&self) -> Style {
        self.fg(Color::DarkGray)
    }

    fn bold(&self, color: Color) -> Style {
        self.fg(color).add_modifier(Modifier::BOLD)
    }

    fn state(&self, state: State) -> Style {
        match state {
            State::Enabled => self.fg(Color::Green),
            State::Disabled => self.bold(Color::Yellow),
            State::Frozen => self.bold(Color::Cyan),
        }
    }

    fn kind(&self, kind: Kind) -> Style {
        match kind {
            Kind::Note => Style::new(),
            Kind::Broken | Kind::Died => self.fg(Color::Red),
            Kind::Disabled => self.fg(Color::Yellow),
            Kind::Frozen => self.fg(Color::Cyan),
            Kind::Repaired | Kind::Recovered | Kind::Replayed => self.fg(Color::Green),
        }
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene, look: &Look) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text =
            format!("This window is too small: {} × {} at least. q quits.", SMALLEST.0, SMALLEST.1);
        return frame.render_widget(Paragraph::new(text), area);
    }
    let rows = u16::try_from(CAST.len()).unwrap_or(u16::MAX);
    let [title, clock, ledger, table, verdict, story, link, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(rows + 1),
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_title(frame, title, scene, look);
    frame.render_widget(Paragraph::new(time_words(scene)).style(look.dim()), clock);
    frame.render_widget(Paragraph::new(ledger_line(scene, look)), ledger);
    draw_receivers(frame, table, scene, look);
    frame.render_widget(Paragraph::new(scene.verdict()).style(look.bold(Color::Reset)), verdict);
    draw_story(frame, story, scene, look);
    let dashboard = Line::from(vec![
        Span::styled("Dashboard  ", look.dim()),
        Span::styled(scene.link.as_str(), look.fg(Color::Cyan).add_modifier(Modifier::UNDERLINED)),
    ]);
    frame.render_widget(Paragraph::new(dashboard), link);
    frame.render_widget(Paragraph::new(keys_line(scene, look)), keys);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, scene: &Scene, look: &Look) {
    let passed =
        format!("{} = {} of policy time ", stopwatch(scene.elapsed()), span(scene.policy_time()));
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let name = Line::from(vec![
        Span::styled(" postrider demo ", style.add_modifier(Modifier::BOLD)),
        Span::styled(format!("· time × {}", scene.time_scale()), style),
    ]);
    let base = if look.is_coloured { style.fg(Color::Cyan) } else { style };
    frame.render_widget(Paragraph::new(name).style(base), area);
    let width = u16::try_from(passed.chars().count()).unwrap_or(area.width).min(area.width);
    let right = Rect { x: area.x + area.width - width, width, ..area };
    frame.render_widget(Paragraph::new(passed).style(base).alignment(Alignment::Right), right);
}

/// What the faster clock means.
fn time_words(scene: &Scene) -> String {
    let scale = scene.time_scale().max(1);
    format!(
        "10 min pass in {}. A delivery has {RETRIES} retries ({}) here, 11 (48 h) by default.",
        span(scene.probe_interval()),
        span(retries_last() / scale),
    )
}

fn ledger_line(scene: &Scene, look: &Look) -> Line<'static> {
    let ledger = scene.ledger();
    let mut spans = vec![Span::styled(
        format!("{} accepted", number(ledger.accepted)),
        look.bold(Color::Reset),
    )];
    let parts = [
        (ledger.delivered, "delivered", look.fg(Color::Green)),
        (ledger.queued + ledger.in_flight, "moving", Style::new()),
        (ledger.waiting, "waiting", look.fg(Color::Yellow)),
        (ledger.dead, "dead", look.fg(Color::Red)),
        (ledger.cancelled, "cancelled", Style::new()),
    ];
    let shown = parts.into_iter().filter(|(count, name, _)| *count > 0 || *name != "cancelled");
    for (n, (count, name, style)) in shown.enumerate() {
        spans.push(Span::raw(if n == 0 { " = " } else { " + " }));
        spans.push(Span::styled(format!("{} {name}", number(count)), style));
    }
    Line::from(spans)
}

fn draw_receivers(frame: &mut Frame<'_>, area: Rect, scene: &Scene, look: &Look) {
    let is_wide = area.width >= WIDE;
    let mut widths = vec![
        Constraint::Length(10),
        Constraint::Length(22),
        Constraint::Min(19),
        Constraint::Length(4),
        Constraint::Length(5),
        Constraint::Length(7),
        Constraint::Length(7),
    ];
    let right = |text: &str| Cell::from(Line::from(text.to_owned()).alignment(Alignment::Right));
    let mut head = vec![
        Cell::from("  RECEIVER"),
        Cell::from("MOOD"),
        Cell::from("STATE"),
        right("OK/S"),
        right("SLOTS"),
        right("P99"),
        right("WAITING"),
    ];
    if is_wide {
        widths.push(Constraint::Length(CHART_WIDTH));
        head.push(Cell::from("DELIVERED, 20 S"));
    }
    let rows = scene.rows().iter().enumerate();
    let rows =
        rows.map(|(n, row)| receiver(row, n == scene.selected, scene.elapsed(), is_wide, look));
    let table =
        Table::new(rows, widths).header(TableRow::new(head).style(look.dim())).column_spacing(1);
    frame.render_widget(table, area);
}

fn receiver(
    row: &Row,
    is_selected: bool,
    now: Duration,
    is_wide: bool,
    look: &Look,
) -> TableRow<'static> {
    let right = |text: String, style: Style| {
        Cell::from(Line::styled(text, style).alignment(Alignment::Right))
    };
    let mark = if is_selected { "▸ " } else { "  " };
    let name = Style::new().add_modifier(Modifier::BOLD);
    let mood = if row.mood.is_down() { look.fg(Color::Red) } else { Style::new() };
    let chart = row.chart(now);
    let last = chart.last().copied().unwrap_or(0);
    let is_slow = |time: &Duration| *time >= Duration::from_secs(1);
    let p99 = row.p99();
    let p99_style = match p99 {
        Some(time) if is_slow(&time) => look.fg(Color::Red),
        Some(_) | None => Style::new(),
    };
    let waiting = if row.waiting() > 0 { look.fg(Color::Yellow) } else { look.dim() };
    let open = if row.mood == Mood::Hanging && row.open > 1 {
        look.bold(Color::Red)
    } else {
        Style::new()
    };
    let mut cells = vec![
        Cell::from(Line::styled(format!("{mark}/{}", row.name), name)),
        Cell::from(Line::styled(row.mood.words(), mood)),
        Cell::from(Line::styled(state_words(row), look.state(row.state))),
        right(last.to_string(), if last > 0 { Style::new() } else { look.dim() }),
        right(row.open.to_string(), open),
        right(p99.map_or_else(|| "–".to_owned(), latency), p99_style),
        right(number(row.waiting()), waiting),
    ];
    if is_wide {
        cells.push(Cell::from(Line::styled(bars(&chart), look.fg(Color::Green))));
    }
    TableRow::new(cells)
}

/// The state, and what happens to it next.
fn state_words(row: &Row) -> String {
    match (row.state, row.probe_in) {
        (State::Enabled, _) => "enabled".to_owned(),
        (State::Disabled, Some(left)) if left > Duration::from_millis(500) => {
            format!("disabled, probe {}", span(left))
        }
        (State::Disabled, _) => "disabled, probing".to_owned(),
        (State::Frozen, _) => "frozen".to_owned(),
    }
}

fn bars(chart: &[u64]) -> String {
    let most = chart.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| {
        let height = usize::try_from((count * 8).div_ceil(most)).unwrap_or(0);
        BARS.get(height).copied().unwrap_or("█")
    };
    chart.iter().map(bar).collect()
}

fn draw_story(frame: &mut Frame<'_>, area: Rect, scene: &Scene, look: &Look) {
    let title = match &scene.panel {
        None => " What happens ",
        Some(Panel::Explanation(_)) => " A delivery explained · Esc closes ",
        Some(Panel::Help) => " From another terminal · Esc closes ",
    };
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(look.dim())
        .title(Span::styled(title, look.bold(Color::Reset)));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let (width, height) = (usize::from(inside.width), usize::from(inside.height));
    let lines = match &scene.panel {
        None => narration(scene, width, height, look),
        Some(Panel::Explanation(paragraphs)) => explained(paragraphs, width, look),
        Some(Panel::Help) => help(look, width),
    };
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The last sentences that fit, the newest at the bottom.
fn narration(scene: &Scene, width: usize, height: usize, look: &Look) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for told in scene.told().rev() {
        let mut these = sentence(told, width, look);
        if lines.len() + these.len() > height {
            break;
        }
        these.append(&mut lines);
        lines = these;
    }
    lines
}

/// A sentence with its time; further lines are indented.
fn sentence(told: &Told, width: usize, look: &Look) -> Vec<Line<'static>> {
    let style = look.kind(told.kind);
    let lines = wrapped(&told.text, width.saturating_sub(7)).into_iter().enumerate();
    let time = |n: usize| if n == 0 { stopwatch(told.at) } else { String::new() };
    lines
        .map(|(n, text)| {
            Line::from(vec![
                Span::styled(format!("{:>5}  ", time(n)), look.dim()),
                Span::styled(text, style),
            ])
        })
        .collect()
}

fn explained(paragraphs: &[String], width: usize, look: &Look) -> Vec<Line<'static>> {
    let lines = paragraphs.iter().enumerate().flat_map(|(n, paragraph)| {
        let style = match n {
            0 => look.dim(),
            1 => look.bold(Color::Reset),
            _ => Style::new(),
        };
        wrapped(paragraph, width).into_iter().map(move |line| Line::styled(line, style))
    });
    lines.collect()
}

fn help(look: &Look, width: usize) -> Vec<Line<'static>> {
    let commands = ["tail", "destinations list", "deliveries list --state dead"];
    let mut lines = vec![Line::raw("Every command works on this server, with these two flags:")];
    lines.extend(
        wrapped(&look.connection, width)
            .into_iter()
            .map(|line| Line::styled(line, look.fg(Color::Cyan))),
    );
    lines.push(Line::raw(""));
    lines.extend(commands.map(|command| Line::raw(format!("  postrider {command}"))));
    lines
}

fn keys_line(scene: &Scene, look: &Look) -> Line<'static> {
    let selected = scene.rows().get(scene.selected);
    let verb = if selected.is_some_and(|row| row.mood.is_down()) { "repair" } else { "break" };
    let name = selected.map_or("", |row| row.name);
    let keys = [
        ("↑↓", "select".to_owned()),
        ("b", format!("{verb} /{name}")),
        ("x", "explain a delivery".to_owned()),
        ("?", "help".to_owned()),
        ("q", "quit".to_owned()),
    ];
    let spans = keys.into_iter().flat_map(|(key, what)| {
        [
            Span::styled(format!(" {key} "), Style::new().add_modifier(Modifier::REVERSED)),
            Span::styled(format!(" {what} "), look.dim()),
        ]
    });
    Line::from(spans.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
