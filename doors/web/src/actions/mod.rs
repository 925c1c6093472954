//! What people do from pages. Each action takes two requests: one for a page that says what would
//! be done and to how many, and one, by that page's form, that does it. Both ask the API, which
//! checks who asks and leaves the entry in the audit log.

pub(crate) mod batch;
pub(crate) mod constraint;
pub(crate) mod fields;
pub(crate) mod job;
pub(crate) mod jobd;
pub(crate) mod many;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod schedule_form;
pub(crate) mod settings;
pub(crate) mod times;
pub(crate) mod undo;

use axum::response::Response;
use maud::{Markup, html};
use spindle_http::{Code, Problem};

use crate::ask::{Asked, Fault};
use crate::html::{Tab, button, hidden_form, shell};
use crate::page::Page;

/// A question before something is done.
struct Question<'a> {
    tab: Tab,
    title: &'a str,
    /// What happens, and what does not.
    about: Markup,
    /// More fields of the form.
    fields: Markup,
    /// What the button says: the verb, and how many.
    button: &'a str,
    is_dangerous: bool,
    /// Where the form goes.
    to: &'a str,
    /// Where to go instead.
    back: &'a str,
}

impl Question<'_> {
    async fn ask(&self, page: &Page) -> Response {
        let kind = if self.is_dangerous { "btn danger" } else { "btn primary" };
        let body = html! {
            div.narrow {
                h1 dir="auto" { (self.title) }
                div.about { (self.about) }
                form.stack method="post" action=(self.to) {
                    (hidden_form(page))
                    (self.fields)
                    div.acts {
                        button class=(kind) type="submit" { (self.button) }
                        a.btn href=(self.back) { "Back" }
                    }
                }
            }
        };
        shell(page, self.tab, self.title, body).await
    }
}

/// What was done.
async fn done(page: &Page, tab: Tab, title: &str, about: Markup, to: &str, word: &str) -> Response {
    let body = html! {
        div.narrow {
            h1 { (title) }
            div.about { (about) }
            p { (button(to, "", word)) }
        }
    };
    shell(page, tab, title, body).await
}

fn no_action() -> Fault {
    Problem::new(Code::NotFound, "there is no such action").into()
}

type Answer = Asked<Response>;
