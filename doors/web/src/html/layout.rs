//! What all pages have around them.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use spindle_access::{Role, Target};

use crate::enter::Theme;
use crate::html::{duration_us, grouped, hidden_form};
use crate::page::Page;
use crate::pages::login::own_path;
use crate::shapes::Server;

/// A page of the navigation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tab {
    Overview,
    Queues,
    Jobs,
    Dead,
    Scheduled,
    Workers,
    Schedules,
    Batches,
    Constraints,
    Jobd,
    Submit,
    Audit,
    Server,
    /// None of them.
    Other,
}

/// Word, address, letter of the keyboard, role, and whether it is about all queues.
type Row = (Tab, &'static str, &'static str, char, Role, bool);

const TABS: &[Row] = &[
    (Tab::Overview, "Overview", "/", 'o', Role::Read, true),
    (Tab::Queues, "Queues", "/queues", 'q', Role::Read, true),
    (Tab::Jobs, "Jobs", "/jobs", 'j', Role::Read, false),
    (Tab::Dead, "Dead", "/dead", 'd', Role::Read, false),
    (Tab::Scheduled, "Scheduled", "/scheduled", 't', Role::Read, false),
    (Tab::Workers, "Workers", "/workers", 'w', Role::Read, true),
    (Tab::Schedules, "Schedules", "/schedules", 'e', Role::Read, true),
    (Tab::Batches, "Batches", "/batches", 'h', Role::Read, true),
    (Tab::Constraints, "Constraints", "/constraints", 'c', Role::Read, true),
    (Tab::Jobd, "jobd", "/jobd", 'b', Role::Read, true),
    (Tab::Submit, "Submit", "/submit", 'n', Role::Submit, false),
    (Tab::Audit, "Audit", "/audit", 'a', Role::Admin, true),
    (Tab::Server, "Server", "/server", 's', Role::Read, false),
];

/// The tabs that the visitor may open.
fn tabs(page: &Page) -> impl Iterator<Item = &'static Row> {
    let mut login = page.ask.login.clone();
    TABS.iter().filter(move |(.., role, is_of_all)| {
        let target = if *is_of_all { Target::AllQueues } else { Target::Server };
        login.authorize(*role, target).is_ok()
    })
}

/// A page with what all pages have around them.
pub(crate) async fn shell(page: &Page, tab: Tab, title: &str, body: Markup) -> Response {
    let server = page.ask.get::<Server>("/api/v1/server").await.ok();
    respond(StatusCode::OK, document(page, tab, title, server.as_ref(), body))
}

/// An answer that is a page.
fn respond(status: StatusCode, document: Markup) -> Response {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    (status, [(header::CONTENT_TYPE, html)], document.into_string()).into_response()
}

fn document(page: &Page, tab: Tab, title: &str, server: Option<&Server>, body: Markup) -> Markup {
    let assets = page.web.assets();
    let theme = page.visit.theme;
    html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.name()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content=(color_scheme(theme));
                meta name="robots" content="noindex";
                title { (title) " · Spindle" }
                link rel="icon" href=(assets.icon.path()) type="image/svg+xml";
                link rel="stylesheet" href=(assets.style.path());
                @if server.is_some() { script src=(assets.script.path()) defer {} }
            }
            body {
                a.skip href="#main" { "Skip to the page" }
                header {
                    div.wrap {
                        (bar(page, server))
                        nav.tabs aria-label="Pages" {
                            @for (of, word, to, key, ..) in tabs(page) {
                                a href=(to) data-key=(key) aria-current=[(*of == tab).then_some("page")] {
                                    (word)
                                }
                                " "
                            }
                        }
                    }
                }
                main.wrap #main data-log-at=[page.log_at] { (body) }
                (foot(page, server))
                (keys(page))
            }
        }
    }
}

fn color_scheme(theme: Theme) -> &'static str {
    match theme {
        Theme::Auto => "light dark",
        Theme::Light => "light",
        Theme::Dark => "dark",
    }
}

/// The top bar: name, health, search, colours and the visitor's name.
fn bar(page: &Page, server: Option<&Server>) -> Markup {
    html! {
        div.bar {
            a.brand href="/" { "Spindle" }
            @if let Some(server) = server { (health(page, server)) (pace(server)) }
            @if page.may(Role::Read) {
                form.search action="/search" role="search" {
                    input type="search" name="q" placeholder="Job, batch or queue" maxlength="1024"
                        aria-label="Find a job or a batch by its number, or a queue by its name" data-slash;
                    kbd aria-hidden="true" { "/" }
                }
            }
            form.theme method="post" action="/theme" {
                (hidden_form(page))
                input type="hidden" name="next" value=(own_path(&page.visit.at));
                input type="hidden" name="theme" value=(page.visit.theme.next().name());
                @let next = page.visit.theme.next().name();
                @let label = format!("Colours: {}. Switch to {next}", page.visit.theme.name());
                button.icon type="submit" title=(label) aria-label=(label) { "◐" }
            }
            (who(page))
        }
    }
}

fn health(page: &Page, server: &Server) -> Markup {
    let is_well = server.status == "ok";
    let word = if is_well { "healthy" } else { server.status.as_str() };
    html! {
        a.health href="/server" {
            span.dot.done[is_well].dead[!is_well] {}
            (page.web.options().host) " · " (word)
        }
    }
}

/// How fast it is now.
fn pace(server: &Server) -> Markup {
    let now = &server.last_minute;
    html! {
        @if let Some(done) = now.a_minute(now.done) {
            span.pace title="In the last minute" { b { (grouped(done.round() as u64)) } " done/min" }
        }
        @if let Some(us) = now.commit_p99_us {
            span.pace title="99 of 100 commits of the last minute took no longer" {
                "p99 commit " b { (duration_us(us as f64)) }
            }
        }
    }
}

fn who(page: &Page) -> Markup {
    html! {
        @if let Some(name) = page.ask.login.name() {
            span.who title="The token or certificate you are known by" { (name) }
            @if page.visit.session.is_some() {
                form method="post" action="/logout" {
                    (hidden_form(page))
                    button.link type="submit" { "Log out" }
                }
            }
        } @else if page.web.options().has_tokens && !page.visit.at.starts_with("/login") {
            a.who href="/login" { "Log in" }
        }
    }
}

fn foot(page: &Page, server: Option<&Server>) -> Markup {
    html! {
        footer.wrap {
            @if let Some(server) = server {
                span { "Spindle " (server.version) }
                span #live hidden { "Live" }
                span.keys-hint hidden { kbd { "?" } " keys" }
            }
            @if page.may(Role::Read) { a href="/api/docs" { "API" } }
        }
        @if server.is_some() { button #news type="button" hidden { "Something changed: show it" } }
    }
}

/// The list of keys, which the script opens.
fn keys(page: &Page) -> Markup {
    html! {
        dialog #keys aria-label="Keys" {
            h2 { "Keys" }
            dl {
                dt { kbd { "/" } } dd { "search" }
                dt { kbd { "?" } } dd { "this list" }
                @for (_, word, _, key, ..) in tabs(page) {
                    dt { kbd { "g" } " " kbd { (key) } } dd { (word) }
                }
            }
            form method="dialog" { button.btn type="submit" { "Close" } }
        }
    }
}
