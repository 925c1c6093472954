//! Whether anything is wrong, where, and what to do.

use axum::response::Response;
use maud::{Markup, html};
use spindle_access::Role;

use crate::ask::Asked;
use crate::html::{
    Tab, bytes, cut, duration_ms, grouped, job_link, plural, queue_link, queue_path, shell, since,
};
use crate::page::Page;
use crate::pages::constraint::constraint_link;
use crate::pages::constraints::{held, may_change};
use crate::pages::history::fitting;
use crate::pages::job_table::error_of;
use crate::pages::limiting::Limiting;
use crate::pages::named::path_of;
use crate::pages::schedules::schedule_link;
use crate::pages::{history, jobs, queues};
use crate::query::Query;
use crate::shapes::{Constraint, Job, JobPage, Queue, QueuePage, Schedule, SchedulePage, Server};

/// Queues that are looked at, and those that are shown.
const QUEUES_LOOKED_AT: &str = "512";
const QUEUES_MAX: usize = 25;
const ATTENTION_MAX: usize = 12;
/// How many dead jobs are examined for their errors, and how many are shown.
const DEAD_LOOKED_AT: &str = "60";
const DEAD_MAX: usize = 5;
/// The outcomes of a schedule's newest time that left no job, and how many such schedules are
/// examined.
const NO_JOB: &str = "refused,overlapped,pending";
const SCHEDULES_LOOKED_AT: &str = "60";
/// The most bytes for the rows of problems and for the names of the queues below; names may be
/// long.
const ATTENTION_BYTES_MAX: usize = 16_000;
const NAMES_BYTES_MAX: usize = 2_500;
/// A ready job that waits this long is listed.
const OLD_MS: u64 = 5 * 60_000;

/// The overview.
pub(crate) async fn show(page: Page) -> Asked<Response> {
    let path = Query::new().with("limit", QUEUES_LOOKED_AT).to("/api/v1/queues");
    let mut found: QueuePage = page.ask.get(&path).await?;
    let server: Server = page.ask.get("/api/v1/server").await?;
    let limiting = Limiting::read(&page, None).await?;
    let path =
        Query::new().with("status", "dead").with("order", "desc").with("limit", DEAD_LOOKED_AT);
    let mut dead: JobPage = page.ask.get(&path.to("/api/v1/jobs")).await?;
    let span = history::span(&page);
    let path = Query::new().with("outcome", NO_JOB).with("limit", SCHEDULES_LOOKED_AT);
    let schedules: SchedulePage = page.ask.get(&path.to("/api/v1/schedules")).await?;
    let charts = history::of_server(&page, span).await;
    history::trends(&page, &mut found.queues).await;
    let failures = history::failures(&page, span).await;
    let wrong = Attention {
        queues: &found.queues,
        limiting: &limiting,
        dead: &dead.jobs,
        schedules: &schedules.schedules,
        may_manage: page.may(Role::Manage),
        may_limit: may_change(&page),
        now_ms: page.now_ms(),
    };
    let (wrong, more_wrong) = fitting(wrong.rows(&server), ATTENTION_MAX, ATTENTION_BYTES_MAX);
    dead.jobs.truncate(DEAD_MAX);
    let mut busiest: Vec<&Queue> = found.queues.iter().collect();
    busiest.sort_by_key(|queue| {
        std::cmp::Reverse(queue.jobs.ready + queue.jobs.leased + queue.jobs.dead)
    });
    let mut names_bytes = 0;
    let fits = |queue: &&Queue| {
        names_bytes += queue.name.field().1.len();
        names_bytes <= NAMES_BYTES_MAX
    };
    let shown: Vec<&Queue> = busiest.into_iter().take(QUEUES_MAX).take_while(fits).collect();
    let more_queues = found.next_cursor.is_some();
    let body = html! {
        h1 { "Needs attention" }
        @if wrong.is_empty() && more_queues {
            p.calm { span.dot.done {} "Nothing in the queues that were looked at." }
        } @else if wrong.is_empty() {
            p.calm { span.dot.done {} "Nothing: no queue waits for a worker, none is paused, no job is dead." }
        } @else {
            div.attention { @for row in wrong { (row) } }
            @if more_wrong > 0 {
                p.muted { "And " (more_wrong) " more. " a href="/queues" { "All queues" } }
            }
        }
        @if more_queues {
            p.muted {
                "Only the first " (grouped(found.queues.len() as u64)) " queues, by name, were looked at. "
                a href="/queues" { "All queues" }
            }
        }
        (charts)
        h2 { "Queues" }
        @if found.queues.is_empty() {
            (queues::none())
        } @else {
            (queues::table(shown.iter().copied(), page.now_ms()))
            @if found.queues.len() > shown.len() {
                p { a href="/queues" { "All queues" } }
            }
        }
        @if !failures.is_empty() { (history::failures_table(&page, &failures, span)) }
        @if !dead.jobs.is_empty() {
            h2 { "Latest dead jobs" }
            (jobs::table(&dead.jobs, page.now_ms(), true))
            p { a href="/dead" { "All dead jobs" } }
        }
    };
    Ok(shell(&page, Tab::Overview, "Overview", body).await)
}

/// A row: a colour, whose it is, what it is, what to do.
struct Row {
    status: &'static str,
    shown: Markup,
}

fn row(status: &'static str, whose: Markup, text: Markup, act: Markup) -> Row {
    let shown = html! {
        div {
            span class={ "dot " (status) } {} " " b { (whose) } " " span { (text) } " "
            span.acts { (act) }
        }
    };
    Row { status, shown }
}

/// The data in which problems are looked for.
struct Attention<'a> {
    queues: &'a [Queue],
    limiting: &'a Limiting,
    /// The latest dead jobs, the newest first.
    dead: &'a [Job],
    /// The schedules whose newest time left no job.
    schedules: &'a [Schedule],
    /// The visitor may manage queues, and constraints.
    may_manage: bool,
    may_limit: bool,
    now_ms: u64,
}

impl Attention<'_> {
    /// What is wrong, the worst first: of the server; jobs that nobody works, that are dead, or that a
    /// schedule could not submit; jobs that wait; queues that somebody has paused.
    fn rows(&self, server: &Server) -> Vec<Markup> {
        let mut rows = Vec::new();
        rows.extend(self.queues.iter().filter_map(|queue| self.stuck(queue)));
        let named: Vec<&str> =
            self.queues.iter().filter_map(|queue| Some(&*self.holder(queue)?.0.name)).collect();
        let others = self.limiting.full().filter(|it| !named.contains(&it.name.as_str()));
        rows.extend(others.map(|it| self.full(it)));
        rows.extend(self.queues.iter().filter_map(|queue| self.died(queue)));
        rows.extend(self.schedules.iter().filter_map(no_job));
        rows.sort_by_key(|row| {
            ["dead", "leased"].iter().position(|it| *it == row.status).unwrap_or(2)
        });
        of_server(server).into_iter().chain(rows).map(|row| row.shown).collect()
    }

    /// The constraint that the row of a queue names as holding back its jobs, and how many jobs.
    fn holder(&self, queue: &Queue) -> Option<(&Constraint, u64)> {
        let waits = queue.jobs.ready > 0 && !queue.paused;
        waits.then(|| self.limiting.holder(&queue.name)).flatten()
    }

    /// A constraint that is full, where no row of a queue says so.
    fn full(&self, constraint: &Constraint) -> Row {
        let jobs = plural(held(constraint), "job");
        let text = html! { "Full: " (jobs) " cannot start for now." };
        let act = html! {
            a href=(path_of("/constraint", &constraint.name)) { "See who waits" }
            (self.change_limit(constraint))
        };
        let whose = html! { span.soft { "Constraint " } (constraint_link(&constraint.name)) };
        row("leased", whose, text, act)
    }

    fn change_limit(&self, constraint: &Constraint) -> Markup {
        let to = path_of("/constraint/edit", &constraint.name);
        html! { @if self.may_limit { a href=(to) { "Change the limit" } } }
    }

    /// What keeps a queue's ready jobs waiting, if something does.
    fn stuck(&self, queue: &Queue) -> Option<Row> {
        let whose = || queue_link(&queue.name);
        let ready = queue.jobs.ready;
        let jobs = || plural(ready, "job");
        let age = queue.next_ready_age_ms.unwrap_or_default();
        let open = || html! { a href=(queue_path("/queue", &queue.name)) { "Open" } };
        if queue.paused {
            let waiting = if ready == 0 { "Nothing waits".to_owned() } else { jobs() + " ready" };
            let text = html! { "Paused. " (waiting) "." };
            let act = html! {
                (open())
                @if self.may_manage { a href=(queue_path("/queue/resume", &queue.name)) { "Resume" } }
            };
            return Some(row("parked", whose(), text, act));
        }
        if let Some((it, held)) = self.holder(queue) {
            let text = html! {
                @if age >= 1_000 { "The next ready job waits " (duration_ms(age)) ". " }
                "Constraint "
                (constraint_link(&it.name)) " is full: " (plural(held, "job"))
                " cannot start for now."
            };
            let act = html! { (open()) (self.change_limit(it)) };
            return Some(row("leased", whose(), text, act));
        }
        let nobody_works = queue.waiting_leases == 0 && queue.jobs.leased == 0;
        if ready > 0 && nobody_works && queue.last_minute.leased == 0 {
            let since = queue.last_asked_at.as_deref().and_then(|at| since(at, self.now_ms));
            let text = html! {
                @match (&queue.last_asked_at, since) {
                    (None, _) => "No worker since the server started. ",
                    (Some(_), Some(ms)) if ms >= 1_000 => { "No worker for " (duration_ms(ms)) ". " },
                    _ => "No worker. ",
                }
                (jobs()) " ready"
                @if age >= 1_000 { ", the next waits " (duration_ms(age)) }
                "."
            };
            return Some(row("dead", whose(), text, html! { a href="/workers" { "Workers" } }));
        }
        waits_long(queue).then(|| {
            let text =
                html! { "The next ready job waits " (duration_ms(age)) "; " (jobs()) " ready." };
            row("leased", whose(), text, open())
        })
    }

    /// A queue's dead jobs, and what the latest of them died of.
    fn died(&self, queue: &Queue) -> Option<Row> {
        let dead = queue.jobs.dead;
        let (field, name) = queue.name.field();
        let of_it = Query::new().with(field, &name);
        let lately = queue.trend.as_ref().map_or(0, |trend| trend.died);
        let latest = self.dead.iter().find(|job| job.queue == queue.name);
        let latest = latest.and_then(|job| Some((job.id, error_of(job)?)));
        let text = html! {
            (plural(dead, "job"))
            @if lately == dead { " died in the last hour." }
            @else {
                (if dead == 1 { " is" } else { " are" }) " dead"
                @if lately > 0 { ", " (grouped(lately)) " died in the last hour" }
                "."
            }
            @if let Some((id, error)) = latest {
                " The latest: " a.mono href={ "/jobs/" (id) } dir="auto" { (error) }
            }
        };
        let retry = of_it.clone().with("status", "dead").to("/jobs/all/retry");
        let act = html! {
            a href=(of_it.to("/dead")) { "Open" }
            @if self.may_manage { a href=(retry) { "Retry " (grouped(dead)) } }
        };
        (dead > 0).then(|| row("dead", queue_link(&queue.name), text, act))
    }
}

/// The used share of a limit from which on it is listed.
const NEAR_PERCENT: u64 = 90;

fn of_server(server: &Server) -> Vec<Row> {
    let see_server = || html! { a href="/server" { "Server" } };
    let its_row =
        |status: &'static str, text: Markup| row(status, html! { "Server" }, text, see_server());
    let mut rows = Vec::new();
    if server.disk_full {
        rows.push(its_row("dead", html! { "New jobs are refused: the disk or the log is full." }));
    }
    if server.log_cannot_grow {
        let text = html! { "New jobs are refused: the log cannot be made longer." };
        rows.push(its_row("dead", text));
    }
    if server.clock_held {
        let text = html! { "Nothing expires: the machine's clock and the log disagree." };
        rows.push(its_row("leased", text));
    }
    let limits = server.limits.iter().map(|limit| (limit.name.as_str(), limit.used, limit.max));
    let budgets = server.budgets.iter().map(|it| (it.name.as_str(), it.bytes, it.bytes_max));
    rows.extend(limits.chain(budgets).filter_map(|(name, used, max)| {
        let percent = used.saturating_mul(100).checked_div(max)?;
        (percent >= NEAR_PERCENT).then(|| its_row("leased", near(name, used, max)))
    }));
    rows
}

/// What is nearly full, and what to do.
fn near(name: &str, used: u64, max: u64) -> Markup {
    match name {
        "disk_bytes" => html! {
            "The disk is nearly full: " (bytes(max.saturating_sub(used))) " of " (bytes(max))
            " are free. Make room, or move the data; without room new jobs are refused."
        },
        "log_bytes" => html! {
            "The log is nearly as large as it may be: " (bytes(used)) " of " (bytes(max))
            ". Purge what nobody needs, keep done jobs for less long, or raise " code { "log-bytes-max" } "."
        },
        "unfinished_jobs" => html! {
            "Nearly as many jobs are unfinished as may be: " (grouped(used)) " of " (grouped(max))
            ". Add workers, purge queues, or raise " code { "unfinished-jobs-max" } "."
        },
        "unfinished_input" => html! {
            "Requests that come in take nearly all memory they may: " (bytes(used)) " of " (bytes(max))
            ". Beyond it the client with the most is closed."
        },
        "unread_output" => html! {
            "Answers that clients do not read take nearly all memory they may: " (bytes(used)) " of "
            (bytes(max)) ". Beyond it the client with the most is closed."
        },
        other => html! { (cut(other, 40)) ": " (grouped(used)) " of " (grouped(max)) " are used." },
    }
}

/// Why a schedule's newest time left no job, if that still holds.
fn no_job(schedule: &Schedule) -> Option<Row> {
    let last = schedule.last.as_ref().filter(|_| !schedule.paused)?;
    let unfinished = schedule.last_job.filter(|_| schedule.is_running);
    let (status, text) = match (last.outcome.as_str(), unfinished) {
        ("refused", _) => {
            let reason = cut(&last.reason, 200);
            (
                "dead",
                html! { "The job of its newest time was refused: " span dir="auto" { (reason) } "." },
            )
        }
        (_, Some(id)) => {
            let text = html! {
                "Held up: its last job, " (job_link(id)) ", was unfinished when its newest time came."
            };
            ("leased", text)
        }
        (_, None) => return None,
    };
    let open = html! { a href=(path_of("/schedule", &schedule.name)) { "Open" } };
    Some(row(status, html! { (schedule_link(&schedule.name)) }, text, open))
}

fn waits_long(queue: &Queue) -> bool {
    queue.jobs.ready > 0 && queue.next_ready_age_ms.is_some_and(|age| age >= OLD_MS)
}
