//! One job: where it is and why, its attempts, its payload and its result.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use spindle_access::Role;

use crate::actions::undo::{offer_of, tag};
use crate::ask::{Asked, segment};
use crate::decode::{self, View};
use crate::html::{
    Tab, batch_link, button, bytes, cut, duration_ms, fact, facts, grouped, queue_link, queue_path,
    shell, status_badge, time,
};
use crate::page::Page;
use crate::pages::named::path_of;
use crate::pages::{attempts, before, output, related};
use crate::query::Query;
use crate::shapes::{Job, JobBytes, Reason, Why};

/// The most bytes of a payload and of a result that are read; a page shows fewer.
const BYTES_MAX: usize = 32_768;

/// A job.
pub(crate) async fn show(page: Page, Path(id): Path<String>) -> Asked<Response> {
    let path = format!("/api/v1/jobs/{}", segment(id.as_bytes()));
    let answer: Box<serde_json::value::RawValue> =
        page.ask.get(&format!("{path}?bytes_max={BYTES_MAX}")).await?;
    let (job, parts) = (read::<Job>(answer.get())?, read::<JobBytes>(answer.get())?);
    let why: Option<Why> = page.ask.get(&format!("{path}/why")).await.ok();
    let view = View::named(page.query().get("view"));
    let related = related::of(&page, &job).await;
    let flow = before::flow(&page, job.id).await?;
    let may_inspect = page.may(Role::Inspect);
    let output = if may_inspect {
        output::end(&page, job.id).await
    } else {
        html! {}
    };
    let now_ms = page.now_ms();
    let body = html! {
        (head(&page, &job))
        (attempts::way(&job))
        @if let Some(why) = &why { (reasons(&page, &job, why)) }
        (flow)
        div.two {
            div {
                (error(&job))
                (attempts::table(&job, now_ms))
                (output)
                @if may_inspect {
                    (payload(&job, &parts, view))
                    (result(&job, &parts, view))
                } @else {
                    h2 { "Payload" }
                    p.muted {
                        (bytes(job.payload_bytes)) ". Payloads, results and output are shown to who has the role "
                        code { "inspect" } "."
                    }
                }
            }
            aside {
                (about(&page, &job))
                (before::list(&job, may_inspect))
                (related)
            }
        }
    };
    Ok(shell(&page, Tab::Jobs, &format!("Job {}", job.id), body).await)
}

/// Reads an answer of the API that was kept as text: parts of it are raw JSON.
pub(crate) fn read<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Asked<T> {
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("the API's answer is not what the page expects: {error}");
        spindle_http::Problem::new(spindle_http::Code::Unreadable, detail).into()
    })
}

fn head(page: &Page, job: &Job) -> Markup {
    html! {
        div.head data-feed={ "/live?job=" (job.id) } {
            div {
                h1 { "Job " span.mono { (job.id) } }
                p.sub {
                    (status_badge(&job.status)) (tag(job)) " in " (queue_link(&job.queue))
                    " · " (tries(job)) " · came in by " (job.origin)
                }
            }
            @if page.may(Role::Manage) {
                @if job.deletion.is_some() {
                    (offer_of(page, job.id, job.deletion.as_ref()))
                } @else {
                    div.acts { (buttons(job)) }
                }
            }
        }
    }
}

/// How many tries it had, and may have.
fn tries(job: &Job) -> String {
    let of = |count: u32, max: u32| {
        format!("{} of {} tries", grouped(count.into()), grouped(max.into()))
    };
    match (job.fails_max, job.attempts_max) {
        (0, 0) => format!("{} tries", grouped(job.attempts.into())),
        (0, max) => of(job.attempts, max),
        (max, _) if job.fails == 0 => format!("up to {} tries", grouped(max.into())),
        (max, _) => of(job.fails, max) + " failed",
    }
}

/// What can be done to it as it is now.
fn buttons(job: &Job) -> Markup {
    let to = |action: &str| format!("/jobs/{}/{action}", job.id);
    html! {
        @match job.status.as_str() {
            "done" | "dead" => { (button(&to("retry"), "primary", "Retry…")) },
            "parked" => { (button(&to("release"), "primary", "Release…")) (button(&to("move"), "", "Move…")) },
            "ready" | "scheduled" | "blocked" => { (button(&to("park"), "", "Park…")) (button(&to("move"), "", "Move…")) },
            _ => { (button(&to("cancel"), "", "Cancel…")) },
        }
        (button(&to("delete"), "danger", "Delete…"))
    }
}

/// Why it is where it is: what matters most first.
fn reasons(page: &Page, job: &Job, why: &Why) -> Markup {
    let title = match job.status.as_str() {
        "done" | "leased" => return html! {},
        _ if why.runnable => "What it waits for:",
        _ => "Why it does not run:",
    };
    html! {
        section class={ "why " (job.status) } aria-label="Why" {
            @for (number, reason) in why.reasons.iter().enumerate() {
                p {
                    @if number == 0 { b { (title) } " " }
                    (said(page, job, reason, number > 0))
                }
            }
        }
    }
}

/// With a capital letter.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// A reason, as a sentence of its own or behind a title, with links to what it mentions.
fn said(page: &Page, job: &Job, reason: &Reason, begins: bool) -> Markup {
    let text = cut(&reason.text, 600);
    let text = if begins { sentence(&text) } else { text };
    let next = reason.next.as_deref().map(sentence);
    html! {
        span dir="auto" {
            @if reason.code == "blocked" { (before::linked(job, &text)) } @else { (text) }
        }
        @if let Some(until) = &reason.until { ", " (time(until, page.now_ms())) }
        "."
        @if let Some(name) = &reason.constraint {
            " " a href=(path_of("/constraint", name)) { "See the constraint" }
        }
        @if let Some(next) = next {
            @match next_path(page, job, reason) {
                Some(to) => { " " a href=(to) { (next) } "." },
                None => { " " (next) "." },
            }
        }
        @if reason.code == "nobody_waits" { " " a href="/workers" { "See the workers" } }
    }
}

/// The address of the page for the action that a reason suggests.
fn next_path(page: &Page, job: &Job, reason: &Reason) -> Option<String> {
    let of_job = |action: &str| format!("/jobs/{}/{action}", job.id);
    match reason.code.as_str() {
        "blocked" => before::first_path(job, page.sees_all()),
        _ if !page.may(Role::Manage) => None,
        "paused" => Some(queue_path("/queue/resume", &job.queue)),
        "parked" => Some(of_job("release")),
        "dead" => Some(of_job("retry")),
        _ => None,
    }
}

fn payload(job: &Job, parts: &JobBytes, view: View) -> Markup {
    if job.payload_damaged {
        return html! { h2 { "Payload" } p.notice.bad { "It failed its checksum and is lost." } };
    }
    let whole = of_json(parts.payload.as_deref(), parts.payload_base64.as_deref());
    let beginning = || match (&parts.payload_preview, &parts.payload_preview_base64) {
        (Some(text), _) => Some(text.clone().into_bytes()),
        (None, base64) => of_json(None, base64.as_deref()),
    };
    let is_whole = whole.is_some();
    let found = whole.or_else(beginning).unwrap_or_default();
    section(job, "Payload", &found, &job.payload_type, job.payload_bytes, is_whole, view)
}

/// What its worker said when it failed.
fn error(job: &Job) -> Markup {
    let Some(result) = job.result.as_ref().filter(|result| !result.success) else {
        return html! {};
    };
    let said = [&result.code, &result.error, &result.message];
    let mut said: Vec<&str> = said.into_iter().map(String::as_str).collect();
    said.retain(|text| !text.is_empty());
    said.dedup();
    html! {
        @if !said.is_empty() {
            h2 { "Error" }
            (decode::shown(said.join("\n").as_bytes(), "bytes", true, View::Raw).body)
        }
    }
}

fn result(job: &Job, parts: &JobBytes, view: View) -> Markup {
    let Some(result) = &job.result else { return html! {} };
    let found = parts.result.as_ref();
    let found = found.and_then(|it| of_json(it.value.as_deref(), it.base64.as_deref()));
    html! {
        @if let Some(found) = found {
            (section(job, "Result", &found, &result.kind, result.bytes, true, view))
        } @else if result.bytes > 0 {
            h2 { "Result " span.soft { "· " (bytes(result.bytes)) } }
            p.muted { "Too long to show here. " (download(job, "Result")) }
        } @else if result.success && !result.message.is_empty() {
            h2 { "Result" }
            (decode::shown(result.message.as_bytes(), "bytes", true, View::Raw).body)
        }
    }
}

/// The bytes that an answer has as JSON or in base64.
pub(crate) fn of_json(
    json: Option<&serde_json::value::RawValue>,
    base64: Option<&str>,
) -> Option<Vec<u8>> {
    use base64::Engine as _;
    match (json, base64) {
        (Some(json), _) => Some(json.get().as_bytes().to_vec()),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD.decode(text).ok(),
        (None, None) => None,
    }
}

fn section(
    job: &Job,
    name: &str,
    found: &[u8],
    kind: &str,
    len: u64,
    is_whole: bool,
    view: View,
) -> Markup {
    if len == 0 {
        return html! { h2 { (name) } p.muted { "Empty." } };
    }
    let shown = decode::shown(found, kind, is_whole, view);
    let to = |view: View| {
        let name = if view == View::Decoded { "" } else { view.name() };
        Query::new().with("view", name).to(&format!("/jobs/{}", job.id))
    };
    html! {
        h2 id=(name.to_lowercase()) { (name) " " span.soft { "· " (shown.kind) " · " (bytes(len)) } }
        nav.views aria-label={ "How to show it: " (name) } {
            @for it in View::ALL {
                a href=(to(it)) aria-current=[(it == view).then_some("true")] {
                    (match it { View::Decoded => shown.kind, View::Raw => "Raw", View::Hex => "Hex" })
                }
            }
            (download(job, name))
        }
        (shown.body)
        @if shown.is_cut { p.muted { "Only the beginning is shown." } }
    }
}

fn download(job: &Job, name: &str) -> Markup {
    let to = format!("/jobs/{}/bytes/{}", job.id, name.to_lowercase());
    html! { a href=(to) download { "Download" } }
}

/// What else there is to know of it.
fn about(page: &Page, job: &Job) -> Markup {
    let now_ms = page.now_ms();
    let audit = Query::new().with("job", &job.id.to_string()).to("/audit");
    let when = |name: &str, at: &Option<String>| {
        html! {
            @if let Some(at) = at { (fact(name, time(at, now_ms))) }
        }
    };
    let how_long = |name: &str, ms: Option<u64>| {
        html! {
            @if let Some(ms) = ms { (fact(name, html! { (duration_ms(ms)) })) }
        }
    };
    html! {
        h2 { "Facts" }
        (facts(html! {
            (fact("Submitted", time(&job.created_at, now_ms)))
            (when("Runs", &job.run_at))
            (when("Finished", &job.finished_at))
            (when("Removed", &job.kept_until))
            (when("Expires", &job.expires_at))
            @if let Some(lease) = &job.lease {
                (fact("Worker", html! {
                    span.mono { (cut(if lease.worker.is_empty() { "unnamed" } else { &lease.worker }, 60)) }
                    " by " (lease.door)
                }))
                (when("Lease ends", &lease.deadline_at))
            }
            @if let Some(batch) = job.batch { (fact("Belongs to", batch_link(batch))) }
            (fact("Priority", html! { (job.priority) }))
            (fact("Leases", html! { (job.attempts) " of " (if job.attempts_max == 0 { "any number".to_owned() } else { grouped(job.attempts_max.into()) }) }))
            (how_long("Time to run", job.ttr_ms))
            (how_long("Time to live", job.ttl_ms))
            (how_long("Kept when done", job.keep_ms))
            @if !job.tags.is_empty() {
                (fact("Tags", html! {
                    @for tag in job.tags.iter().take(16) {
                        a.tag href=(Query::new().with("tag", tag).to("/jobs")) { (cut(tag, 40)) } " "
                    }
                }))
            }
            @if let Some(key) = &job.fair_key {
                (fact("Fair key", html! { span.mono dir="auto" { (cut(key, 255)) } }))
            }
            @if let Some(key) = &job.unique_key {
                (fact("Unique key", html! { span.mono dir="auto" { (cut(key, 255)) } }))
            }
            @if job.foreground { (fact("Kept", html! { "in memory only, while its client waits" })) }
            @if let Some(trace) = &job.traceparent { (fact("Trace", html! { span.mono { (trace) } })) }
            @if page.sees_audit() {
                (fact("Changed by people", html! { span.sentence { a href=(audit) { "see the audit log" } } }))
            }
            (fact("UUID", html! { span.mono { (job.uuid) } }))
            (fact("Handle", html! { span.mono { (cut(&job.handle, 100)) } }))
        }))
    }
}
