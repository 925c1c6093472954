//! Puts the app on a screen of any size: parts that do not fit are left out, and the screen says
//! so.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span, Text},
    widgets::{Cell, Paragraph, Row, Table, TableState, Wrap},
};

use super::{
    app::{App, STATUSES, View},
    feed::Change,
    keys::HELP,
    sheet::Sheet,
};
use crate::{
    client::times::lasting,
    output::{escape, grouped},
    quantity::shown_size,
};

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let rows =
        [Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [head, title, body, foot] = frame.area().layout(&Layout::vertical(rows));
    frame.render_widget(Line::styled(headline(app), TITLE), head);
    frame.render_widget(footline(app), foot);
    if app.shows_help {
        frame.render_widget(Line::styled("keys; any key goes back", DIM), title);
        let lines = HELP.iter().map(|(keys, what)| Line::from(format!("{keys:<14} {what}")));
        frame.render_widget(Text::from_iter(lines), body);
        return;
    }
    match app.view {
        View::Job => draw_job(frame, app, title, body),
        _ => draw_list(frame, app, title, body),
    }
}

/// The server in one line.
fn headline(app: &App) -> String {
    let server = &app.server;
    let health = if server.status == "ok" { "ready" } else { &server.status };
    let up = lasting((server.uptime_ms / 1_000 * 1_000).max(1_000));
    format!(
        "{} {} up {up}, {} jobs, {} queues, log {}",
        app.place,
        escape(health),
        grouped(server.jobs),
        grouped(server.queues),
        shown_size(server.log_bytes),
    )
}

/// What a person is asked, what went wrong, what was done, or the keys.
fn footline(app: &App) -> Line<'_> {
    if let Some(change) = &app.question {
        let what = match change {
            Change::Pause(queue) => format!("pause queue {queue}"),
            Change::Resume(queue) => format!("let queue {queue} go on"),
            Change::Retry(id) => format!("let job {} run again", escape(id)),
            Change::Cancel(id) => format!("cancel job {}", escape(id)),
        };
        return Line::styled(format!("{what}? y, or any other key"), MARKED);
    }
    if let Some(failure) = &app.failure {
        return Line::styled(format!("tries again; the screen is old: {failure}"), MARKED);
    }
    match &app.notice {
        Some(notice) => Line::styled(notice.as_str(), TITLE),
        None => Line::styled("q ends, ? explains the keys, Enter opens, Esc goes back", DIM),
    }
}

fn draw_job(frame: &mut Frame<'_>, app: &mut App, title: Rect, body: Rect) {
    let height = usize::from(body.height);
    app.first = app.first.min(app.job.len().saturating_sub(1));
    let (from, to) = (app.first, (app.first + height).min(app.job.len()));
    let lines = app.job.get(from..to).unwrap_or_default();
    let widest = lines.iter().map(|line| Span::raw(line.as_str()).width()).max().unwrap_or(0);
    let mut what = format!("job {}", escape(&app.job_id));
    what += &place(from, to, app.job.len(), "lines", app.has_answer);
    if widest > usize::from(body.width) {
        what += ", long lines are wrapped";
    }
    frame.render_widget(Line::styled(what, DIM), title);
    let text = Text::from_iter(lines.iter().map(|line| Line::raw(line.as_str())));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), body);
}

fn draw_list(frame: &mut Frame<'_>, app: &mut App, title: Rect, body: Rect) {
    let (widths, hidden) = app.sheet.fitting(body.width);
    // The heading takes one.
    let height = usize::from(body.height.saturating_sub(1));
    let lowest = app.selected.saturating_sub(height.saturating_sub(1));
    app.first = app.first.clamp(lowest, app.selected);
    let count = app.sheet.rows.len();
    let (from, to) = (app.first, (app.first + height).min(count));
    let mut what = title_of(app) + &place(from, to, count, "", app.has_answer);
    if app.page() > 1 || app.next_page.is_some() {
        let more = if app.next_page.is_some() { ", more with >" } else { "" };
        what += &format!(", page {}{more}", app.page());
    }
    if !hidden.is_empty() {
        what += &format!("; no room for {}", hidden.join(", "));
    }
    frame.render_widget(Line::styled(what, DIM), title);
    // Only the rows on the screen are given to the table: its numbers begin with the first of them.
    let selected = (count > 0).then(|| app.selected.saturating_sub(from));
    let mut state = TableState::default().with_selected(selected);
    frame.render_stateful_widget(table(&app.sheet, &widths, from..to), body, &mut state);
}

fn title_of(app: &App) -> String {
    match app.view {
        View::Queues => "queues".to_owned(),
        View::Workers => "workers".to_owned(),
        View::Jobs | View::Job => {
            let status = STATUSES.get(app.status).copied().flatten();
            let of = app.queue.as_ref().map(|queue| format!(" of {queue}")).unwrap_or_default();
            format!(
                "{}jobs{of}, newest first",
                status.map(|it| format!("{it} ")).unwrap_or_default()
            )
        }
    }
}

/// Which part of a list is on the screen.
fn place(from: usize, to: usize, count: usize, of: &str, has_answer: bool) -> String {
    let of = if of.is_empty() { String::new() } else { format!(" {of}") };
    match (has_answer, count) {
        (false, _) => ": the server is asked".to_owned(),
        (true, 0) => ": none".to_owned(),
        (true, _) => format!(":{of} {}-{to} of {count}", (from + 1).min(to)),
    }
}

fn table<'a>(sheet: &'a Sheet, widths: &[u16], shown: std::ops::Range<usize>) -> Table<'a> {
    let columns = || sheet.columns.iter().take(widths.len());
    let aligned = |text: &'a str, is_right: bool| {
        let side = if is_right { Alignment::Right } else { Alignment::Left };
        Cell::from(Line::raw(text).alignment(side))
    };
    let heading = Row::new(columns().map(|column| aligned(column.title, column.is_right)));
    let rows = sheet.rows.get(shown).unwrap_or_default().iter().map(|row| {
        let cells = row.cells.iter().zip(columns());
        Row::new(cells.map(|(text, column)| aligned(text, column.is_right)))
    });
    Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)))
        .header(heading.style(TITLE))
        .column_spacing(1)
        .row_highlight_style(MARKED)
}
