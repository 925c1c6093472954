//! The server: doors, health, how much there is, what is set.

use axum::response::Response;
use maud::{Markup, html};
use spindle_access::{Role, Target};

use crate::ask::Asked;
use crate::html::{Tab, bytes, cut, fact, facts, grouped, number, shell, time};
use crate::page::Page;
use crate::shapes::Server;

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
            thead { tr { th { "Door" } th { "Address" } th.r { "Connections" } } }
            tbody {
                @for door in &server.doors {
                    tr {
                        td.name { (door.name) }
                        td.mono { (door.address) }
                        td.r { @match door.connections { Some(count) => (number(count)), None => span.zero { "–" } } }
                    }
                }
            }
        }
    }
}

fn amounts(page: &Page, server: &Server) -> Markup {
    let settings = &page.web.options().settings;
    let set =
        |name: &str| settings.iter().find(|line| line.name == name).map(|line| line.value.as_str());
    // A count is read more easily with its digits in groups; `off` is no limit.
    let shown = |max: &str| max.parse().map_or_else(|_| max.to_owned(), grouped);
    let of = |max: Option<&str>| {
        html! {
            @if let Some(max) = max.filter(|max| *max != "off") { span.soft { " of " (shown(max)) } }
        }
    };
    let open: u64 = server.doors.iter().filter_map(|door| door.connections).sum();
    html! {
        h2 { "How much there is" }
        (facts(html! {
            (fact("Unfinished jobs", html! { (grouped(server.jobs.saturating_sub(server.jobs_finished))) (of(set("unfinished-jobs-max"))) }))
            (fact("Finished, kept", html! { (grouped(server.jobs_finished)) (of(set("finished-max"))) }))
            (fact("Queues", number(server.queues)))
            (fact("Log", html! { (bytes(server.log_bytes)) (of(set("log-bytes-max"))) }))
            (fact("Connections", html! { (grouped(open)) (of(set("connections-max"))) }))
            (fact("Clients waiting", number(server.waits)))
        }))
    }
}

/// Settings in force. Who may only read sees none: they name files of the machine.
fn settings(page: &Page) -> Markup {
    let is_admin = page.ask.login.clone().authorize(Role::Admin, Target::Server).is_ok();
    let settings = &page.web.options().settings;
    html! {
        @if is_admin && !settings.is_empty() {
            h2 { "Settings" }
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
}
