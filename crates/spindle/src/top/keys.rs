//! What each key does.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    app::{App, STATUSES, View},
    feed::{Change, Order},
};

/// The keys, for people: the most useful ones first.
pub const HELP: [(&str, &str); 12] = [
    ("q, Ctrl-C", "end"),
    ("1 2 3", "queues, workers, jobs of all queues"),
    ("up down j k", "the next row, or line of a job"),
    ("PgUp PgDn g G", "ten rows; the first and the last one"),
    ("< >", "the page of the list before and behind"),
    ("Enter", "jobs of a queue; one job with its payload and why it is not running"),
    ("Esc", "back"),
    ("s", "jobs of the next status"),
    ("p", "pause a queue, or let it go on"),
    ("r", "let a done or dead job run again"),
    ("c", "cancel a job"),
    ("?", "these keys"),
];

/// Rows of one page of the screen, whatever its height is.
const ROWS: isize = 10;

/// Does what a key means. Returns what the server is to be asked for then.
pub fn press(app: &mut App, key: KeyEvent) -> Option<Order> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        if key.code == KeyCode::Char('c') {
            app.end();
        }
        return None;
    }
    app.notice = None;
    if let Some(change) = app.question.take() {
        let is_meant = key.code == KeyCode::Char('y');
        if !is_meant {
            app.notice = Some("nothing was changed".to_owned());
        }
        return is_meant.then_some(Order::Do(change));
    }
    if app.shows_help {
        app.shows_help = false;
        return None;
    }
    match key.code {
        KeyCode::Char('q') => app.end(),
        KeyCode::Char('?') => app.shows_help = true,
        KeyCode::Up | KeyCode::Char('k') => app.go(-1),
        KeyCode::Down | KeyCode::Char('j') => app.go(1),
        KeyCode::PageUp => app.go(-ROWS),
        KeyCode::PageDown => app.go(ROWS),
        KeyCode::Home | KeyCode::Char('g') => app.go(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => app.go(isize::MAX),
        KeyCode::Char('1') => return Some(app.show(View::Queues)),
        KeyCode::Char('2') => return Some(app.show(View::Workers)),
        KeyCode::Char('3') => {
            app.queue = None;
            return Some(app.show(View::Jobs));
        }
        KeyCode::Char('>') => return app.next(),
        KeyCode::Char('<') => return app.previous(),
        KeyCode::Char('s') if app.view == View::Jobs => {
            app.status = (app.status + 1) % STATUSES.len();
            return Some(app.show(View::Jobs));
        }
        KeyCode::Enter => return open(app),
        KeyCode::Esc | KeyCode::Backspace => return back(app),
        KeyCode::Char('p') => app.question = pause(app),
        KeyCode::Char('r') => app.question = job(app).map(Change::Retry),
        KeyCode::Char('c') => app.question = job(app).map(Change::Cancel),
        _ => {}
    }
    None
}

/// Opens the selected row.
fn open(app: &mut App) -> Option<Order> {
    let row = app.row()?.clone();
    match app.view {
        View::Queues => {
            (app.queue, app.status) = (row.queue, 0);
            Some(app.show(View::Jobs))
        }
        View::Jobs => {
            (app.job_id, app.came_from) = (row.name, app.view);
            Some(app.show(View::Job))
        }
        // A worker's first job.
        View::Workers => {
            let id = row.cells.get(4)?.split(' ').next().filter(|id| !id.is_empty())?;
            (app.job_id, app.came_from) = (id.to_owned(), app.view);
            Some(app.show(View::Job))
        }
        View::Job => None,
    }
}

fn back(app: &mut App) -> Option<Order> {
    match app.view {
        View::Queues => None,
        View::Job => Some(app.show(app.came_from)),
        View::Jobs | View::Workers => Some(app.show(View::Queues)),
    }
}

/// The job that a key is about.
fn job(app: &App) -> Option<String> {
    match app.view {
        View::Job => Some(app.job_id.clone()),
        View::Jobs => app.row().map(|row| row.name.clone()),
        View::Queues | View::Workers => None,
    }
}

fn pause(app: &App) -> Option<Change> {
    let row = app.row().filter(|_| app.view == View::Queues)?;
    let queue = row.queue.clone()?;
    Some(if row.is_paused { Change::Resume(queue) } else { Change::Pause(queue) })
}
