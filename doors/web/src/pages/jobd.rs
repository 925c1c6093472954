//! The jobd master: its workers, their targets, and what is wrong with them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::response::Response;
use maud::{Markup, html};
use spindle_access::Role;

use crate::ask::{Asked, Fault};
use crate::html::{Tab, button, cut, empty, grouped, number, pager, plural, shell, time, unseen};
use crate::page::Page;
use crate::pages::history::fitting;
use crate::query::Query;
use crate::shapes::{Jobd, JobdTarget, JobdWorker};

/// Workers of a page.
const LIMIT: &str = "50";
/// Targets that are shown of one worker.
const OF_WORKER_MAX: usize = 8;
/// For problems, targets and workers: the most rows, and the most bytes these may take, because
/// names may be long.
const WRONG_MAX: (usize, usize) = (12, 10_000);
const TARGETS_MAX: (usize, usize) = (50, 26_000);
const WORKERS_MAX: (usize, usize) = (50, 44_000);
/// The longest name that a link has room for.
const NAMED_BYTES_MAX: usize = 200;

/// The master's workers and targets.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("limit", LIMIT).with("cursor", cursor);
    let body = match page.ask.get::<Jobd>(&asked.to("/api/v1/jobd")).await {
        Ok(found) => of_master(&page, &query, &found),
        Err(fault) => without_master(fault)?,
    };
    Ok(shell(&page, Tab::Jobd, "jobd", body).await)
}

/// The page of a server without a master.
fn without_master(fault: Fault) -> Asked<Markup> {
    if fault.code != "no_jobd_master" {
        return Err(fault);
    }
    Ok(html! {
        h1 { "jobd" }
        (empty(
            "This server runs no master for workers of jobd: it was started with --jobd-master off. \
             With one, its workers and their targets are here.",
            Some("spindle serve --jobd-master 127.0.0.1:7081"),
        ))
    })
}

fn of_master(page: &Page, query: &Query, found: &Jobd) -> Markup {
    let may_change = page.may(Role::Manage);
    let (targets, now_ms) = (by_target(found), page.now_ms());
    let rows = targets.iter().map(|(name, at)| target_row(name, at, may_change)).collect();
    let (target_rows, more_targets) = fitting(rows, TARGETS_MAX.0, TARGETS_MAX.1);
    let rows = found.workers.iter().map(|it| worker_row(it, may_change, now_ms)).collect();
    let (worker_rows, more_workers) = fitting(rows, WORKERS_MAX.0, WORKERS_MAX.1);
    html! {
        // The page has to be reloaded at intervals, because workers tell the master nothing
        // unasked.
        div data-again {
            (head(found, &targets, may_change))
            (wrong(found, &targets, may_change, now_ms))
            @if found.workers.is_empty() {
                (nobody(page, found))
            } @else {
                h2 { "Targets" }
                table.list.queues {
                    thead { tr { th { "Target" } th { "State" } th.r { "Workers" } th { "Slots used" } th { (unseen("Actions")) } } }
                    tbody { @for row in target_rows { (row) } }
                }
                (not_shown(more_targets))
                h2 { "Workers" }
                table.list.queues {
                    thead { tr { th { "Worker" } th { "State" } th { "Targets" } th.r { "Registered" } th { (unseen("Actions")) } } }
                    tbody { @for row in worker_rows { (row) } }
                }
                (not_shown(more_workers))
            }
        }
        (pager("/jobd", query, found.next_cursor.as_deref()))
    }
}

fn not_shown(count: usize) -> Markup {
    html! {
        @if count > 0 { p.muted { (number(count as u64)) " more are not shown; the API lists them all." } }
    }
}

/// How many slots are used, and how many jobs at a worker wait for one.
#[derive(Clone, Copy, Default)]
struct Slots {
    used: u64,
    all: u64,
    waiting: u64,
}

impl Slots {
    fn of(target: &JobdTarget) -> Slots {
        let (jobs, all) = (target.jobs.unwrap_or_default(), target.concurrency.unwrap_or_default());
        Slots { used: jobs.min(all), all, waiting: jobs.saturating_sub(all) }
    }

    fn add(&mut self, more: Slots) {
        self.used = self.used.saturating_add(more.used);
        self.all = self.all.saturating_add(more.all);
        self.waiting = self.waiting.saturating_add(more.waiting);
    }

    /// `3 of 5`; `5 of 5, 2 waiting`.
    fn words(self) -> String {
        let used = format!("{} of {}", grouped(self.used), grouped(self.all));
        match self.waiting {
            0 => used,
            waiting => format!("{used}, {} waiting", grouped(waiting)),
        }
    }

    /// How many of them are used, as a bar; the words beside it say it too.
    fn bar(self) -> Markup {
        html! { meter min="0" max=(self.all.max(1)) value=(self.used) aria-hidden="true" {} }
    }
}

/// A target over the workers that serve it.
#[derive(Default)]
struct AtWorkers {
    workers: u64,
    /// Of those, the workers that have reported a status.
    reported: u64,
    paused: u64,
    slots: Slots,
}

impl AtWorkers {
    fn add(&mut self, target: &JobdTarget) {
        self.workers += 1;
        self.reported += u64::from(target.paused.is_some());
        self.paused += u64::from(target.paused == Some(true));
        self.slots.add(Slots::of(target));
    }
}

type Targets<'a> = BTreeMap<&'a str, AtWorkers>;

fn by_target(found: &Jobd) -> Targets<'_> {
    let mut targets = Targets::new();
    for target in found.workers.iter().flat_map(|worker| &worker.targets) {
        targets.entry(&target.name).or_default().add(target);
    }
    targets
}

fn head(found: &Jobd, targets: &Targets<'_>, may_change: bool) -> Markup {
    let whole = |what: fn(&AtWorkers) -> u64| targets.values().map(what).sum::<u64>();
    let (served, paused) = (whole(|at| at.workers), whole(|at| at.paused));
    let mut slots = Slots::default();
    targets.values().for_each(|at| slots.add(at.slots));
    html! {
        div.head {
            div {
                h1 { "jobd" }
                p.sub {
                    "The master listens at " code { (found.address) } "."
                    @if !found.workers.is_empty() {
                        " " (plural(found.workers.len() as u64, "worker")) ", "
                        (plural(targets.len() as u64, "target")) ", "
                        (grouped(slots.used)) " of " (plural(slots.all, "slot")) " used"
                        @if slots.waiting > 0 { ", " (plural(slots.waiting, "job")) " waiting for one" }
                        "."
                    }
                }
            }
            @if may_change && served > 0 {
                div.acts {
                    @if paused < served { (button(&to("pause", None, None), "", "Pause all…")) }
                    @if paused > 0 { (button(&to("continue", None, None), "", "Continue all…")) }
                }
            }
        }
    }
}

/// The address of the question about targets: about all targets unless one is named, and at all
/// workers unless one is named.
pub(crate) fn to(action: &str, target: Option<&str>, worker: Option<u64>) -> String {
    let all = if target.is_none() && worker.is_none() { "yes" } else { "" };
    let worker = worker.map(|id| id.to_string()).unwrap_or_default();
    let query = Query::new().with("target", target.unwrap_or_default()).with("worker", &worker);
    query.with("all", all).to(&format!("/jobd/{action}"))
}

/// Whether a form can carry the name: forms change line ends, and drop empty values.
fn can_be_named(target: &str) -> bool {
    (1..=NAMED_BYTES_MAX).contains(&target.len()) && !target.contains(char::is_control)
}

/// What is wrong, the worst first, and what to do.
fn wrong(found: &Jobd, targets: &Targets<'_>, may_change: bool, now_ms: u64) -> Markup {
    let mut rows: Vec<Markup> =
        found.workers.iter().filter(|it| !it.answers).map(|it| silent(it, now_ms)).collect();
    rows.extend(found.workers.iter().filter_map(troubled));
    rows.extend(found.unserved.iter().map(|target| unserved(target)));
    rows.extend(found.workers.iter().filter_map(undecided));
    let paused = targets.iter().filter(|(_, at)| at.paused > 0);
    rows.extend(paused.map(|(name, at)| paused_row(name, at, may_change)));
    let (rows, more) = fitting(rows, WRONG_MAX.0, WRONG_MAX.1);
    let unnamed = found.unserved_count.saturating_sub(found.unserved.len() as u64);
    html! {
        @if rows.is_empty() {
            @if !found.workers.is_empty() {
                p.calm { span.dot.done {} "Nothing is wrong: every worker answers, no target is paused." }
            }
        } @else {
            div.attention { @for row in rows { (row) } }
        }
        @if more as u64 + unnamed > 0 { p.muted { "And " (grouped(more as u64 + unnamed)) " more." } }
    }
}

/// A row: a colour, whose it is, what it is, what to do.
fn row(status: &str, whose: &str, text: Markup, act: Markup) -> Markup {
    html! {
        div {
            span class={ "dot " (status) } {} " " b dir="auto" { (cut(whose, 60)) } " " span { (text) } " "
            span.acts { (act) }
        }
    }
}

fn silent(worker: &JobdWorker, now_ms: u64) -> Markup {
    let text = html! {
        "Does not answer"
        @if let Some(problem) = &worker.problem { ": " (cut(problem, 200)) }
        ". "
        @match &worker.reported_at {
            Some(at) => { "What is shown of it is from " (time(at, now_ms)) ". " }
            None => "It has told nothing of itself yet. ",
        }
        "See whether the process at " code { (worker.address) } " is well; one that is gone leaves this list."
    };
    row("dead", &worker.name, text, html! {})
}

fn troubled(worker: &JobdWorker) -> Option<Markup> {
    let trouble = worker.table_trouble.as_ref()?;
    let text = html! { "Cannot use its job table, and tries again: " (cut(trouble, 300)) };
    Some(row("dead", &worker.name, text, html! {}))
}

fn undecided(worker: &JobdWorker) -> Option<Markup> {
    let count = worker.undecided.filter(|count| *count > 0)?;
    let text = html! {
        (plural(count, "row")) " of its table had begun when it was killed. "
        code { "jobctl status" } " at it lists them; a person decides whether they run again."
    };
    Some(row("leased", &worker.name, text, html! {}))
}

fn unserved(target: &str) -> Markup {
    let text = html! {
        "Was poked, and no worker serves it. The next worker that registers with it starts at once."
    };
    row("dead", target, text, html! {})
}

fn paused_row(name: &str, at: &AtWorkers, may_change: bool) -> Markup {
    let text = html! {
        "Paused" (where_paused(at)) ": none of its jobs is started there until it is continued."
    };
    let act = html! {
        @if may_change && can_be_named(name) { a href=(to("continue", Some(name), None)) { "Continue" } }
    };
    row("parked", name, text, act)
}

/// Names the workers where it is paused, unless it is all of them.
fn where_paused(at: &AtWorkers) -> String {
    if at.paused == at.workers {
        String::new()
    } else {
        format!(" at {} of {} workers", grouped(at.paused), grouped(at.workers))
    }
}

fn target_row(name: &str, at: &AtWorkers, may_change: bool) -> Markup {
    html! {
        tr data-key={ "t " (cut(name, 60)) } {
            td.name dir="auto" { (cut(name, 60)) }
            td.nowrap {
                @match (at.paused, at.reported) {
                    (0, 0) => span.zero { "not known" },
                    (0, _) => span.st.done { "running" },
                    _ => span.st.parked { "paused" (where_paused(at)) },
                }
            }
            td.r data-label=(if at.workers == 1 { "worker" } else { "workers" }) { (number(at.workers)) }
            td {
                @if at.reported > 0 { span data-label="slots" { (at.slots.words()) } (at.slots.bar()) }
                @else { span.zero { "–" } }
            }
            td.r { (acts(may_change && can_be_named(name), Some(name), None, at.paused, at.workers)) }
        }
    }
}

/// Buttons for what can be done: some of so many targets are paused.
fn acts(
    may_change: bool,
    target: Option<&str>,
    worker: Option<u64>,
    paused: u64,
    count: u64,
) -> Markup {
    html! {
        @if may_change {
            div.acts {
                @if paused < count { (button(&to("pause", target, worker), "", "Pause…")) }
                @if paused > 0 { (button(&to("continue", target, worker), "", "Continue…")) }
            }
        }
    }
}

fn worker_row(worker: &JobdWorker, may_change: bool, now_ms: u64) -> Markup {
    let paused = worker.targets.iter().filter(|it| it.paused == Some(true)).count() as u64;
    let name = if worker.name.is_empty() { "unnamed" } else { &worker.name };
    html! {
        tr data-key={ "w " (worker.id) } {
            td.name dir="auto" { (cut(name, 60)) div.soft.mono { (worker.address) } }
            td {
                @if worker.answers { span.st.done { "answers" } }
                @else { span.st.dead { "does not answer" } }
            }
            td.what {
                @for target in worker.targets.iter().take(OF_WORKER_MAX) {
                    (of_worker(target, worker.id, may_change))
                }
                @if worker.targets_count > OF_WORKER_MAX {
                    span.soft { "and " (grouped((worker.targets_count - OF_WORKER_MAX) as u64)) " more" }
                }
            }
            td.r.nowrap { (time(&worker.registered_at, now_ms)) }
            td.r { (acts(may_change, None, Some(worker.id), paused, worker.targets_count as u64)) }
        }
    }
}

fn of_worker(target: &JobdTarget, worker: u64, may_change: bool) -> Markup {
    let is_paused = target.paused == Some(true);
    let action = if is_paused { "continue" } else { "pause" };
    html! {
        div.held {
            span dir="auto" { (cut(&target.name, 60)) }
            @if target.jobs.is_some() { span.soft { " " (Slots::of(target).words()) } }
            @if is_paused { " " span.tag.parked { "paused" } }
            @if may_change && target.paused.is_some() && can_be_named(&target.name) {
                " " a href=(to(action, Some(&target.name), Some(worker))) { (action) }
            }
        }
    }
}

/// Shown without any worker: how to connect one.
fn nobody(page: &Page, found: &Jobd) -> Markup {
    let address: Option<SocketAddr> = found.address.parse().ok();
    let host = match address.map(|address| address.ip()) {
        Some(ip) if !ip.is_unspecified() => ip.to_string(),
        _ => page.web.options().host.clone(),
    };
    let port = address.map_or(7081, |address| address.port());
    let command = format!(
        "jobd -o master_host={host} -o master_port={port} -o launcher='/srv/mail.sh {{id}}' \
         -o targets.mail=5"
    );
    empty(
        "Workers of jobd are here once they register at the master, with the targets that they serve.",
        Some(&command),
    )
}
