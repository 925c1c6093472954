//! The server: doors, health, how much there is, what is set.

use axum::response::Response;
use maud::{Markup, html};
use spindle_access::{Role, Target};

use crate::ask::Asked;
use crate::html::{
    Tab, bytes, cut, duration_us, fact, facts, grouped, number, plural, shell, time,
};
use crate::page::Page;
use crate::past::Point;
use crate::shapes::{Budget, Server};
use crate::web::SettingLine;

/// The server.
pub(crate) async fn show(page: Page) -> Asked<Response> {
    let server: Server = page.ask.get("/api/v1/server").await?;
    let now_ms = page.now_ms();
    let body = html! {
        h1 { "Server" }
        p.sub {
            span.st.done[server.status == "ok"].dead[server.status != "ok"] {
                (if server.status == "ok" { "healthy" } else { &server.status })
            }
            " · Spindle " (server.version) " on " (page.web.options().host)
            " · started " (time(&server.started_at, now_ms))
        }
        @if server.disk_full {
            p.notice.bad { "New jobs are refused: the disk has no room, or the log is as large as it may be. Leased jobs can be finished." }
        }
        @if server.log_cannot_grow {
            p.notice.bad { "New jobs are refused: the log cannot be made longer. The server's own log says why. Leased jobs can be finished." }
        }
        @if server.clock_held {
            p.notice.bad {
                "Nothing expires: the machine's clock and the log disagree. If the clock is right, say so with "
                code { "spindle clock accept" } "."
            }
        }
        div.two {
            div { (doors(&server)) (settings(&page)) }
            aside { (amounts(&page, &server)) }
        }
    };
    Ok(shell(&page, Tab::Server, "Server", body).await)
}

fn doors(server: &Server) -> Markup {
    html! {
        h2 { "Doors" }
        table.list {
            thead { tr { th { "Door" } th { "Address" } th.r { "Connections" } th.r { "Refused" } } }
            tbody {
                @for door in &server.doors {
                    tr {
                        td.name { (door.name) }
                        td.mono { (door.address) }
                        @match door.connections {
                            Some(count) => td.r data-label="open" { (number(count)) },
                            None => td.r.none { span.zero { "–" } },
                        }
                        td.r data-label="refused" { (number(door.refused)) }
                    }
                }
            }
        }
    }
}

/// The limits, and how much of each is used.
fn amounts(page: &Page, server: &Server) -> Markup {
    let settings = &page.web.options().settings;
    let set =
        |name: &str| settings.iter().find(|line| line.name == name).map(|line| line.value.as_str());
    let open: u64 = server.doors.iter().filter_map(|door| door.connections).sum();
    let unfinished = server.jobs.saturating_sub(server.jobs_finished);
    html! {
        h2 { "How much there is" }
        (facts(html! {
            (fact("New jobs", html! {
                @if server.disk_full || server.log_cannot_grow { span.dead { "refused" } }
                @else { "taken" }
            }))
            (fact("Commit, last minute", commits(&server.last_minute)))
            (fact("Unfinished jobs", counted(unfinished, set("unfinished-jobs-max"))))
            (fact("Finished, kept", counted(server.jobs_finished, set("finished-max"))))
            (fact("Queues", number(server.queues)))
            (fact("Log", html! {
                (bytes(server.log_bytes))
                @if let Some(max) = set("log-bytes-max").filter(|max| *max != "off") {
                    span.soft { " of " (max) }
                }
            }))
            @if let Some(disk) = server.limits.iter().find(|limit| limit.name == "disk_bytes") {
                (fact("Disk", html! {
                    (bytes(disk.used)) " used"
                    span.soft { " of " (bytes(disk.max)) } (share(disk.used, disk.max))
                }))
            }
            (fact("Connections", counted(open, set("connections-max"))))
            (fact("Clients waiting", number(server.waits)))
            @for budget in &server.budgets { (fact(budget_words(&budget.name), held(budget))) }
        }))
    }
}

/// How long half of the commits took at most, and 99 of 100.
fn commits(point: &Point) -> Markup {
    match (point.commit_p50_us, point.commit_p99_us) {
        (Some(p50), Some(p99)) => html! {
            "p50 " (duration_us(p50 as f64)) span.soft { ", p99 " } (duration_us(p99 as f64))
        },
        _ => html! { span.zero { "none" } },
    }
}

/// A count, with its maximum if that is a number.
fn counted(count: u64, max: Option<&str>) -> Markup {
    let max: Option<u64> = max.and_then(|max| max.parse().ok());
    html! {
        (grouped(count))
        @if let Some(max) = max { span.soft { " of " (grouped(max)) } (share(count, max)) }
    }
}

fn budget_words(name: &str) -> &str {
    match name {
        "unfinished_input" => "Requests coming in",
        "unread_output" => "Answers not read",
        other => other,
    }
}

fn held(budget: &Budget) -> Markup {
    html! {
        (bytes(budget.bytes)) span.soft { " of " (bytes(budget.bytes_max)) }
        (share(budget.bytes, budget.bytes_max))
        @if budget.closed > 0 { span.leased { (plural(budget.closed, "connection")) " closed for it" } }
    }
}

/// How much of a limit is used; the words beside it say it too.
fn share(used: u64, max: u64) -> Markup {
    html! { meter min="0" max=(max) high=(max / 10 * 9) value=(used.min(max)) aria-hidden="true" {} }
}

/// Settings in force: first those that were set explicitly, then the rest. Only admins see them,
/// because they name files of the machine.
fn settings(page: &Page) -> Markup {
    let is_admin = page.ask.login.clone().authorize(Role::Admin, Target::Server).is_ok();
    let settings = &page.web.options().settings;
    let (set, usual): (Vec<_>, Vec<_>) = settings.iter().partition(|line| !line.from.is_empty());
    html! {
        @if is_admin && !settings.is_empty() {
            h2 { "Settings" }
            @if !set.is_empty() { (table(&set)) }
            details.rest {
                summary { (plural(usual.len() as u64, "setting")) " as by default" }
                (table(&usual))
            }
        }
    }
}

fn table(settings: &[&SettingLine]) -> Markup {
    html! {
        table.list {
            thead { tr { th { "Setting" } th { "Value" } th { "From" } } }
            tbody {
                @for line in settings {
                    tr {
                        td.mono { (line.name) }
                        td.mono.what { (cut(&line.value, 200)) }
                        td { @if line.from.is_empty() { span.zero { "default" } } @else { (line.from) } }
                    }
                }
            }
        }
    }
}
