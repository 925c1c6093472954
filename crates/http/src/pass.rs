//! Who makes a request, and whether they may: found out before it comes to its handler.
//!
//! A door puts its routes behind an [`Entrance`], with a [`Table`] that says what each of them needs. What
//! the route alone determines is checked here. Only the door knows the queues and jobs that a request
//! names: the extractor or handler that reads such a name asks the request's [`Pass`].

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use spindle_access::{Access, Denied, Login, Role, Target};
use spindle_core::audit::Actor;
use spindle_core::job::Origin;
use spindle_engine::{Audit, JobRef, Peer};
use spindle_limits::Excess;

use crate::bridge::EngineBridge;
use crate::problem::{Answered, Code, Problem};
use crate::request::Notes;
use crate::words::door_word;

/// What a route needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing: it is for everybody.
    Nothing,
    /// A role, for something that is in no queue.
    Server(Role),
    /// A role, for all queues.
    All(Role),
    /// A role, for the queues or the job that the request names. The code that reads the name asks the
    /// [`Pass`].
    Named(Role),
}

/// What the routes of a door need: method, path as the router has it, needs. HEAD is GET. A
/// method `*` is any other. What is not in it is for `admin` only.
pub type Table = &'static [(&'static str, &'static str, Needs)];

/// The client of a request, if it was found out and counted before the request comes to an [`Entrance`].
/// It is an extension of requests that the web pages let in by a session, and of those that they make to
/// the API on behalf of the session. No client can set it.
#[derive(Clone, Debug)]
pub struct Visitor(pub Login);

/// The layer in front of a door's routes: it checks whether a request may use its route, and whether the
/// door can answer.
pub struct Entrance {
    /// Whose routes they are.
    pub door: Origin,
    /// Who may use the server.
    pub access: Access,
    /// What the routes need.
    pub table: Table,
    /// Where the routes are nested: what stands before the table's paths.
    pub base: &'static str,
    /// Says a refusal in the door's own form.
    pub refuse: fn(Denied) -> Response,
    /// Says why a request that is allowed cannot be answered. One layer does both checks, because each
    /// layer costs every request copies of what is behind it.
    pub check: fn(&Request) -> Answered<()>,
}

impl Entrance {
    /// Puts the routes behind it.
    pub fn admit(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::new(self), admitted))
    }

    /// The client that looks at pages of another node. That node makes this request, and has counted it.
    fn visitor(&self, request: &Request) -> Option<Login> {
        let peer = request.extensions().get::<Peer>()?;
        let digest = peer.page_of.as_ref()?;
        let mut login = self.access.login(peer.certificate.as_ref()).at(peer.address.ip());
        if !digest.is_empty() {
            login.present_digest(digest);
        }
        Some(login)
    }

    fn pass_for(&self, mut login: Login, request: &Request) -> Result<Pass, Denied> {
        if login.is_open() {
            return Ok(Pass::new(login, Role::Admin));
        }
        let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let Some(path) = path.and_then(|path| path.strip_prefix(self.base)) else {
            // No route has this path: everybody may learn that.
            return Ok(Pass::new(login, Role::Admin));
        };
        let (role, target) = match self.needs(request.method(), path) {
            Needs::Nothing => return Ok(Pass::new(login, Role::Admin)),
            Needs::Server(role) | Needs::Named(role) => (role, Target::Server),
            Needs::All(role) => (role, Target::AllQueues),
        };
        login.authorize(role, target)?;
        Ok(Pass::new(login, role))
    }

    fn needs(&self, method: &Method, path: &str) -> Needs {
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        let is_row =
            |(of, at, _): &&(&str, &str, Needs)| (*of == method || *of == "*") && *at == path;
        let row = self.table.iter().find(is_row);
        row.map_or(Needs::Server(Role::Admin), |(_, _, needs)| *needs)
    }
}

async fn admitted(
    State(entrance): State<Arc<Entrance>>,
    mut request: Request,
    next: Next,
) -> Response {
    let visitor = request.extensions_mut().remove::<Visitor>();
    let visitor = visitor.map(|Visitor(login)| login).or_else(|| entrance.visitor(&request));
    let by_page = visitor.is_some();
    let login = visitor.map_or_else(|| counted(&entrance.access, &request), Ok);
    let notes = request.extensions().get::<Arc<Notes>>().cloned();
    if let Some(notes) = &notes {
        notes.set_route(
            door_word(entrance.door),
            request.extensions().get::<MatchedPath>().cloned(),
        );
    }
    let mut response = match login.and_then(|login| entrance.pass_for(login, &request)) {
        Ok(pass) => {
            let pass = Pass { notes, by_page, ..pass };
            request.extensions_mut().insert(pass);
            match (entrance.check)(&request) {
                Ok(()) => next.run(request).await,
                Err(problem) => problem.into_response(),
            }
        }
        Err(denied) => {
            let mut response = (entrance.refuse)(denied);
            say_when(denied, &mut response);
            response
        }
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        let how = HeaderValue::from_static("Bearer realm=\"spindle\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
    }
    response
}

/// Finds out who makes a request, and counts it: to be called once for each request.
///
/// # Errors
///
/// [`Denied::TooFast`].
pub(crate) fn counted<B>(access: &Access, request: &HttpRequest<B>) -> Result<Login, Denied> {
    let peer = request.extensions().get::<Peer>();
    let mut login = access.login(peer.and_then(|peer| peer.certificate.as_ref()));
    if let Some(peer) = peer {
        login = login.at(peer.address.ip());
    }
    if let Some(token) = bearer(request.headers()) {
        // Whether the token is known is checked with the route's needs: some routes have none.
        login.present(token).ok();
    }
    login.count()?;
    Ok(login)
}

/// Lets a request on that comes to no [`Entrance`], once it is counted.
pub(crate) async fn count_stranger(
    State(access): State<Access>,
    request: Request,
    next: Next,
) -> Response {
    match counted(&access, &request) {
        Ok(_) => next.run(request).await,
        Err(denied) => denied_anywhere(denied),
    }
}

/// The answer to a request that is refused before it has come to any door.
pub fn denied_anywhere(denied: Denied) -> Response {
    let mut response = Problem::from(denied).into_response();
    say_when(denied, &mut response);
    response
}

/// Tells a client that has asked too fast when there is room again.
fn say_when(denied: Denied, response: &mut Response) {
    if let Denied::TooFast(Excess { wait, .. }) = denied {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
}

/// The token of a request (RFC 6750, 2.1). Other schemes are not for this server. Two tokens in a
/// request count as a wrong one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut tokens = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, rest) = value.as_bytes().split_at_checked(BEARER.len())?;
        let is_whole = rest.first().is_none_or(u8::is_ascii_whitespace);
        (is_whole && scheme.eq_ignore_ascii_case(BEARER)).then(|| rest.trim_ascii())
    });
    let first = tokens.next()?;
    Some(if tokens.next().is_some() { b"" } else { first })
}

const BEARER: &[u8] = b"Bearer";

/// What one request may do.
#[derive(Clone, Debug)]
pub struct Pass {
    login: Login,
    /// What its route needs.
    role: Role,
    /// Where it is noted which queue the request is about.
    notes: Option<Arc<Notes>>,
    /// Whether the web pages make the request, on behalf of a session.
    by_page: bool,
}

impl Pass {
    fn new(login: Login, role: Role) -> Pass {
        Pass { login, role, notes: None, by_page: false }
    }

    /// The pass of a request.
    ///
    /// # Errors
    ///
    /// Its route is not behind an [`Entrance`], so that nobody may use it.
    pub fn of(parts: &Parts) -> Answered<Pass> {
        let pass = parts.extensions.get::<Pass>().cloned();
        pass.ok_or_else(|| Problem::new(Code::Forbidden, "nobody may use this route"))
    }

    /// Whether the request may do what its route does with this. To be asked again after a wait.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn allows(&mut self, target: Target<'_, '_>) -> Result<(), Denied> {
        self.allows_as(self.role, target)
    }

    /// As [`Pass::allows`], with a role beside that of the route.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn allows_as(&mut self, role: Role, target: Target<'_, '_>) -> Result<(), Denied> {
        if let (Some(notes), Target::Queue(queue)) = (&self.notes, &target) {
            notes.set_queue(queue);
        }
        self.login.authorize(role, target)
    }

    /// Who asks, for the audit log.
    pub fn actor(&self, door: Origin) -> Actor {
        Actor { by_page: self.by_page, ..self.login.actor(door) }
    }

    /// The request, for the audit log.
    pub fn audit(&self, door: Origin) -> Audit {
        Audit::new(self.actor(door))
    }

    /// Whether the client may use some queues only, so that the queue of a job it names has to be known.
    pub fn is_limited(&self) -> bool {
        self.login.is_limited()
    }

    /// As [`Pass::allows`] for a job, by the queue it is in now. It is looked up only if that
    /// matters.
    ///
    /// # Errors
    ///
    /// Why not; a job of a queue that is not the token's is not there.
    pub async fn allows_job(&mut self, bridge: &EngineBridge, job: JobRef) -> Result<(), Denied> {
        if !self.is_limited() {
            return self.allows(Target::Server);
        }
        let queue = bridge.durable(bridge.engine().jobs().queue_of(job)).await;
        self.allows(Target::Job(&mut || queue.clone()))
    }

    /// The client's login, for work that goes on after the request is answered.
    pub fn into_login(self) -> Login {
        self.login
    }
}

impl<S: Sync> FromRequestParts<S> for Pass {
    type Rejection = Problem;

    fn from_request_parts(parts: &mut Parts, _: &S) -> impl Future<Output = Answered<Self>> + Send {
        ready(Pass::of(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_stands_behind_bearer() {
        let token = |values: &[&'static str]| {
            let name = || header::AUTHORIZATION;
            let headers: HeaderMap =
                values.iter().map(|it| (name(), it.parse().unwrap())).collect();
            bearer(&headers).map(|token| String::from_utf8(token.to_vec()).unwrap())
        };
        for (values, expected) in [
            (&[][..], None),
            (&["Basic c2VzYW1l"], None),
            (&["Bearer"], Some("")),
            (&["Bearersesame"], None),
            (&["Bearer sesame"], Some("sesame")),
            (&["bEARER   sesame "], Some("sesame")),
            (&["Bearer "], Some("")),
            (&["Basic x", "Bearer sesame"], Some("sesame")),
            (&["Bearer sesame", "Bearer sesame"], Some("")),
        ] {
            assert_eq!(token(values).as_deref(), expected, "{values:?}");
        }
    }
}
