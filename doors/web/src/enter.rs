//! Finds out for each request who the visitor is, from its cookies, its certificate and its
//! address.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use spindle_access::Login;
use spindle_engine::Peer;
use spindle_http::{Answered, Code, Problem, THEME_COOKIE, Visitor, cookie_of, denied_anywhere};

use crate::cookie;
use crate::pages::job_table::Columns;
use crate::sessions::{SessionName, random_hex};
use crate::web::Web;

/// What a request tells about its visitor, mainly by its cookies.
#[derive(Clone)]
pub(crate) struct Visit {
    /// The session that is open, if one is.
    pub session: Option<SessionName>,
    /// The nonce that seals forms if none is open.
    nonce: String,
    /// The nonce is not in the browser yet.
    is_new: bool,
    pub theme: Theme,
    /// The columns of lists of jobs, if the visitor has chosen them.
    pub columns: Option<Columns>,
    /// The request came over TLS.
    pub is_encrypted: bool,
    /// The path with the query, to come back to.
    pub at: String,
}

/// The colours of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Theme {
    /// As set in the visitor's system.
    Auto,
    Light,
    Dark,
}

impl Theme {
    const ALL: [Theme; 3] = [Theme::Auto, Theme::Light, Theme::Dark];

    pub fn name(self) -> &'static str {
        match self {
            Theme::Auto => "auto",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    pub fn named(name: &str) -> Theme {
        Theme::ALL.into_iter().find(|theme| theme.name() == name).unwrap_or(Theme::Auto)
    }

    /// The choice that the switch changes to.
    pub fn next(self) -> Theme {
        match self {
            Theme::Auto => Theme::Dark,
            Theme::Dark => Theme::Light,
            Theme::Light => Theme::Auto,
        }
    }

    /// Has the browser remember it.
    pub fn keep(self, headers: &mut HeaderMap, encrypted: bool) {
        cookie::set(headers, THEME_COOKIE, self.name(), Some(cookie::CHOICE_TIME), encrypted);
    }
}

impl Visit {
    /// Reads from a request what it tells about its sender, and who that is.
    pub fn read(web: &Web, request: &Request) -> (Visit, Login) {
        let headers = request.headers();
        let peer = request.extensions().get::<Peer>();
        let session = cookie_of(headers, cookie::SESSION).and_then(SessionName::read);
        let found = session.and_then(|name| {
            let login = web.sessions().find(&name, Instant::now())?;
            Some((name, login))
        });
        let (session, login) = match found {
            Some((name, login)) => (Some(name), login),
            None => {
                let certificate = peer.and_then(|peer| peer.certificate.as_ref());
                (None, web.options().access.login(certificate))
            }
        };
        let is_encrypted = peer.is_some_and(|peer| peer.encrypted);
        let login = match peer {
            Some(peer) => login.at(peer.address.ip()),
            None => login,
        };
        let nonce = cookie_of(headers, cookie::VISIT).and_then(SessionName::read);
        let is_new = nonce.is_none();
        // The first layer that reads a request chooses the nonce, so that a page and its problem
        // page share one.
        let chosen = request.extensions().get::<Visit>().map(|visit| visit.nonce.clone());
        let nonce = nonce.map(|nonce| nonce.as_str().to_owned()).or(chosen);
        let nonce = nonce.unwrap_or_else(random_hex::<16>);
        let theme = Theme::named(cookie_of(headers, THEME_COOKIE).unwrap_or_default());
        let columns = Columns::named(cookie_of(headers, cookie::COLUMNS).unwrap_or_default());
        let at = request.uri().path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        (Visit { session, nonce, is_new, theme, columns, is_encrypted, at }, login)
    }

    /// That of a request that has come through [`enter`].
    pub fn of(extensions: &Extensions) -> Answered<Visit> {
        let visit = extensions.get::<Visit>().cloned();
        visit.ok_or_else(|| Problem::new(Code::Forbidden, "nobody may use this route"))
    }

    /// The text that its forms are sealed to.
    pub fn sealed_to(&self) -> &str {
        self.session.as_ref().map_or(&self.nonce, SessionName::as_str)
    }

    /// Stores the nonce that seals its forms in the browser.
    pub fn keep(&self, headers: &mut HeaderMap) {
        let is_set = headers.contains_key(header::SET_COOKIE);
        if self.is_new && self.session.is_none() && !is_set {
            cookie::set(headers, cookie::VISIT, &self.nonce, None, self.is_encrypted);
        }
    }
}

/// Finds out who the visitor is, and counts the request. A token in a header is for the API: it
/// opens no page.
pub(crate) async fn enter(State(web): State<Web>, mut request: Request, next: Next) -> Response {
    let (visit, login) = Visit::read(&web, &request);
    if let Err(denied) = login.count() {
        return denied_anywhere(denied);
    }
    request.extensions_mut().insert(Visitor(login));
    request.extensions_mut().insert(visit.clone());
    let mut response = next.run(request).await;
    visit.keep(response.headers_mut());
    response
}
