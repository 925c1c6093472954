//! What is drawn of recorded answers, on screens of several sizes.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend};
use serde_json::{Value, json};

use super::{
    app::{App, View},
    draw::draw,
    feed::{Body, Change, Order, Server, Update, Wanted},
    keys::press,
};
use crate::{output::is_shown, queue_name::QueueName};

fn app() -> App {
    let server: Server = serde_json::from_value(json!({
        "version": "0.1.0", "uptime_ms": 7_500_123, "status": "ok", "jobs": 1_204, "queues": 40,
        "log_bytes": 4_404_020,
    }))
    .unwrap();
    App::new("http://127.0.0.1:7420".to_owned(), server)
}

/// The lines of a screen of this size.
fn drawn(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let cells = &terminal.backend().buffer().content;
    let line = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    };
    cells.chunks(usize::from(width)).map(line).collect()
}

fn typed(app: &mut App, key: char) -> Option<Order> {
    press(app, KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
}

fn code(app: &mut App, code: KeyCode) -> Option<Order> {
    press(app, KeyEvent::new(code, KeyModifiers::NONE))
}

fn queue(name: &str, ready: u64, paused: bool) -> Value {
    json!({
        "name": name, "paused": paused, "next_ready_age_ms": 125_000,
        "jobs": {"scheduled": 12, "ready": ready, "leased": 2, "parked": 0, "done": 9_000, "dead": 3},
        "last_minute": {"submitted": 61, "leased": 60, "completed": 58, "requeued": 0, "died": 1},
    })
}

fn answer(app: &mut App, body: Body, next: Option<&str>) {
    let server = app.server.clone();
    app.update(Update::Page(app.wanted(), server, body, next.map(str::to_owned)));
}

fn with_queues(queues: Vec<Value>) -> App {
    let mut app = app();
    let queues = queues.into_iter().map(|queue| serde_json::from_value(queue).unwrap()).collect();
    answer(&mut app, Body::Queues(queues), None);
    app
}

fn with_jobs(jobs: Vec<Value>) -> App {
    let mut app = app();
    app.show(View::Jobs);
    let jobs = jobs.into_iter().map(|job| serde_json::from_value(job).unwrap()).collect();
    answer(&mut app, Body::Jobs(jobs), None);
    app
}

fn job(id: u64, payload: &str) -> Value {
    json!({
        "id": id, "queue": "mail", "status": "dead", "priority": 0, "attempts": 5, "fails": 5,
        "created_at": "2026-01-02T03:04:05.678Z", "fails_max": 5, "payload_type": "bytes",
        "payload_bytes": payload.len(), "payload_preview": payload,
    })
}

#[test]
fn queues_have_depth_rates_and_age_on_80_columns() {
    let mut app = with_queues(vec![queue("mail", 1_500, false), queue("resize", 7, true)]);
    let lines = drawn(&mut app, 80, 24);
    let head = "http://127.0.0.1:7420 ready up 2h 5m, 1,204 jobs, 40 queues, log 4.2 MiB";
    assert_eq!(lines[0], head);
    assert_eq!(lines[1], "queues: 1-2 of 2; no room for parked, done");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let heading = ["queue", "ready", "leased", "oldest", "in/m", "out/m", "dead", "sched"];
    assert_eq!(words(&lines[2]), heading);
    assert_eq!(words(&lines[3]), ["mail", "1,500", "2", "2m", "61", "59", "3", "12"]);
    assert_eq!(words(&lines[4]), ["resize", "7", "2", "paused", "2m", "61", "59", "3", "12"]);
    assert_eq!(lines[23], "q ends, ? explains the keys, Enter opens, Esc goes back");
}

#[test]
fn a_small_screen_has_what_matters_most_and_says_what_is_missing() {
    let queues = (0..30).map(|number| queue(&format!("queue-{number:02}"), 100 - number, false));
    let mut app = with_queues(queues.collect());
    let lines = drawn(&mut app, 40, 10);
    assert!(lines[1].starts_with("queues: 1-6 of 30; no room for oldest"), "{lines:#?}");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["queue", "ready", "leased"]);
    assert!(lines[3].starts_with("queue-00") && lines[8].starts_with("queue-05"), "{lines:#?}");
    code(&mut app, KeyCode::End);
    let lines = drawn(&mut app, 40, 10);
    assert!(lines[1].starts_with("queues: 25-30 of 30"), "{lines:#?}");
    assert!(lines[8].starts_with("queue-29"), "{lines:#?}");
}

#[test]
fn every_view_can_be_drawn_on_every_small_screen() {
    let mut views =
        [with_queues(vec![queue("mail", 1, false)]), with_jobs(vec![job(1, "x")]), app()];
    views[2].show(View::Job);
    let detail = serde_json::from_value(job(1, "x")).unwrap();
    answer(&mut views[2], Body::Job(Box::new(detail), vec!["it is dead".to_owned()]), None);
    for app in &mut views {
        for (width, height) in (1..12).flat_map(|width| (1..8).map(move |height| (width, height))) {
            assert_eq!(drawn(app, width, height).len(), usize::from(height));
            typed(app, '?');
            drawn(app, width, height);
            typed(app, '?');
        }
    }
    assert_eq!(drawn(&mut views[0], 1, 1), ["h"]);
}

#[test]
fn hostile_names_and_payloads_are_spelled_out() {
    let name = "\u{1b}[2J\u{202e}漢字<script>";
    let mut queues = with_queues(vec![queue(name, 1, false)]);
    let mut jobs = with_jobs(vec![job(7, "\u{1b}]0;title\u{7}\u{2066}\r\nx\u{feff}")]);
    let mut failed = app();
    failed.update(Update::Failed(name.to_owned()));
    let mut workers = app();
    workers.show(View::Workers);
    let worker = json!({"name": name, "door": "api", "queues": [name], "jobs": [{"id": name}]});
    answer(&mut workers, Body::Workers(vec![worker]), None);
    for app in [&mut queues, &mut jobs, &mut failed, &mut workers] {
        let text = drawn(app, 120, 8).join("");
        assert!(text.chars().all(is_shown), "{text:?}");
        assert!(text.contains("\\x1b") || text.contains("\\u{1b}"), "{text}");
    }
    // A wide letter takes two cells, and the column behind it stays where it is.
    assert!(drawn(&mut queues, 120, 8)[3].contains("漢 字 <script>"));
}

#[test]
fn a_server_that_is_gone_is_named_and_what_was_known_stays() {
    let mut app = with_queues(vec![queue("mail", 1, false)]);
    app.update(Update::Failed("cannot connect to http://127.0.0.1:7420".to_owned()));
    let lines = drawn(&mut app, 80, 8);
    assert!(lines[3].starts_with("mail"));
    assert!(lines[7].starts_with("tries again; the screen is old: cannot connect"), "{lines:#?}");
    answer(&mut app, Body::Queues(Vec::new()), None);
    assert!(drawn(&mut app, 80, 8)[7].starts_with("q ends"));
    assert!(drawn(&mut app, 80, 8)[1].starts_with("queues: none"));
}

#[test]
fn nothing_is_changed_unless_y_is_typed() {
    let mut app = with_queues(vec![queue("mail", 9, false), queue("held", 1, true)]);
    assert_eq!(typed(&mut app, 'p'), None);
    assert_eq!(drawn(&mut app, 80, 8)[7], "pause queue mail? y, or any other key");
    assert_eq!(typed(&mut app, 'n'), None);
    assert_eq!(drawn(&mut app, 80, 8)[7], "nothing was changed");
    typed(&mut app, 'p');
    let mail = QueueName::of("mail");
    assert_eq!(typed(&mut app, 'y'), Some(Order::Do(Change::Pause(mail))));
    typed(&mut app, 'j');
    typed(&mut app, 'p');
    let held = QueueName::of("held");
    assert_eq!(typed(&mut app, 'y'), Some(Order::Do(Change::Resume(held))));
    let mut jobs = with_jobs(vec![job(7, "x")]);
    typed(&mut jobs, 'r');
    assert_eq!(typed(&mut jobs, 'y'), Some(Order::Do(Change::Retry("7".to_owned()))));
    typed(&mut jobs, 'c');
    assert_eq!(typed(&mut jobs, 'y'), Some(Order::Do(Change::Cancel("7".to_owned()))));
    jobs.update(Update::Done("job 7 is cancelled".to_owned()));
    assert_eq!(drawn(&mut jobs, 80, 8)[7], "job 7 is cancelled");
}

#[test]
fn keys_go_from_queues_to_jobs_to_one_job_and_back() {
    let mut app = with_queues(vec![queue("mail", 9, false)]);
    let of_mail = |status| {
        let queue = Some(QueueName::of("mail"));
        Some(Order::Show(Wanted::Jobs { queue, status, cursor: None }))
    };
    assert_eq!(code(&mut app, KeyCode::Enter), of_mail(None));
    assert_eq!(typed(&mut app, 's'), of_mail(Some("ready")));
    assert_eq!(drawn(&mut app, 80, 8)[1], "ready jobs of mail, newest first: the server is asked");
    let listed = serde_json::from_value(job(7, "x")).unwrap();
    answer(&mut app, Body::Jobs(vec![listed]), Some("next"));
    assert!(drawn(&mut app, 80, 8)[1].contains(": 1-1 of 1, page 1, more with >"));
    let behind = Wanted::Jobs {
        queue: Some(QueueName::of("mail")),
        status: Some("ready"),
        cursor: Some("next".to_owned()),
    };
    assert_eq!(typed(&mut app, '>'), Some(Order::Show(behind)));
    assert_eq!(typed(&mut app, '<'), of_mail(Some("ready")));
    let listed = serde_json::from_value(job(7, "x")).unwrap();
    answer(&mut app, Body::Jobs(vec![listed]), None);
    assert_eq!(code(&mut app, KeyCode::Enter), Some(Order::Show(Wanted::Job("7".to_owned()))));
    assert_eq!(code(&mut app, KeyCode::Esc), of_mail(Some("ready")));
    assert_eq!(code(&mut app, KeyCode::Esc), Some(Order::Show(Wanted::Queues(None))));
    typed(&mut app, 'q');
    assert!(app.is_over());
}

#[test]
fn an_answer_to_an_older_question_is_not_shown_and_the_selected_row_stays_selected() {
    let mut app = with_queues(vec![queue("a", 3, false), queue("b", 2, false)]);
    typed(&mut app, 'j');
    let read = |queues: Vec<Value>| {
        Body::Queues(
            queues.into_iter().map(|queue| serde_json::from_value(queue).unwrap()).collect(),
        )
    };
    answer(&mut app, read(vec![queue("a", 3, false), queue("b", 9, false)]), None);
    assert_eq!(app.row().unwrap().name, "b");
    let server = app.server.clone();
    app.update(Update::Page(Wanted::Workers(None), server, Body::Workers(Vec::new()), None));
    assert_eq!(app.sheet.rows.len(), 2);
}
