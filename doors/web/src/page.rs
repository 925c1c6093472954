//! One request for a page: who the visitor is, and how to ask the API for them.

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use spindle_access::{Login, Role, Target};
use spindle_engine::Peer;
use spindle_http::{Answered, Pass};

use crate::ask::Ask;
use crate::enter::Visit;
use crate::query::Query;
use crate::web::Web;

/// The visitor of a page, where they come from, and the API to ask.
pub(crate) struct Page {
    pub web: Web,
    pub visit: Visit,
    pub ask: Ask,
    /// How far the log was when the page was requested: it shows at least that state. `None` for
    /// the answer to a form, which cannot be reloaded.
    pub log_at: Option<u64>,
}

impl FromRequestParts<Web> for Page {
    type Rejection = spindle_http::Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Answered<Page> {
        let visit = Visit::of(&parts.extensions)?;
        let login = Pass::of(parts)?.into_login();
        let peer = parts.extensions.get().cloned();
        Ok(Page::new(web.clone(), visit, (login, peer), &parts.method))
    }
}

impl Page {
    /// A page for a visitor, and the connection they use.
    pub fn new(
        web: Web,
        visit: Visit,
        (login, peer): (Login, Option<Peer>),
        method: &Method,
    ) -> Page {
        let ask = Ask { api: web.api(), login, peer };
        let log_at = (*method == Method::GET).then(|| web.pulse().position());
        Page { web, visit, ask, log_at }
    }

    /// Whether the visitor has a role, which decides what the page offers. Rights are checked again
    /// when they act.
    pub fn may(&self, role: Role) -> bool {
        self.ask.login.clone().authorize(role, Target::Server).is_ok()
    }

    /// Whether the visitor may see all queues.
    pub fn sees_all(&self) -> bool {
        self.ask.login.clone().authorize(Role::Read, Target::AllQueues).is_ok()
    }

    /// Whether the visitor may see the audit log.
    pub fn sees_audit(&self) -> bool {
        self.ask.login.clone().authorize(Role::Admin, Target::AllQueues).is_ok()
    }

    /// The token of its forms.
    pub fn form_token(&self) -> String {
        self.web.seal().token(self.visit.sealed_to())
    }

    /// The current time by the server's clock.
    pub fn now_ms(&self) -> u64 {
        self.web.bridge().engine().now_ms()
    }

    /// The query of its address.
    pub fn query(&self) -> Query {
        Query::read(self.visit.at.split_once('?').map_or("", |(_, query)| query))
    }
}
