//! All doors' routes as one site.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::handler::Handler;
use axum::http::{Request, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use spindle_access::Access;
use spindle_engine::spans::SpanSink;
use tower::{BoxError, Service, ServiceExt};

use crate::names::Names;
use crate::pass::{count_stranger, counted, denied_anywhere};
use crate::problem::{Code, Problem};
use crate::{guard, request};

/// The routes of all doors, merged, behind the guard. A request for no door's path gets a problem with
/// code `not_found`; a door that answers wrong methods in a form of its own has set that up in its
/// routes.
///
/// The guard and what every request has (an id, a line of the log, a span) wrap the router and are not
/// layers of it: a layer of a router is boxed and copied for each request, and the layers below with it.
#[derive(Clone)]
pub struct Site {
    routes: Router,
    common: Arc<Common>,
}

struct Common {
    names: Names,
    /// Counts the requests that come to no door: the doors count their own.
    access: Access,
    spans: Option<Arc<dyn SpanSink>>,
}

impl Site {
    /// These routes, called by these names.
    pub fn new(routes: Router, names: Names) -> Site {
        Site::with(routes, names, Access::open(), None)
    }

    /// The same for the clients that `access` knows, with a sink for the spans of requests.
    pub fn with(
        routes: Router,
        names: Names,
        access: Access,
        spans: Option<Arc<dyn SpanSink>>,
    ) -> Site {
        let counts = from_fn_with_state(access.clone(), count_stranger);
        let lost = Router::new().fallback(nothing_here).layer(counts.clone());
        let wrong_method = wrong_method.layer(counts);
        let routes = routes.fallback_service(lost).method_not_allowed_fallback(wrong_method);
        Site { routes, common: Arc::new(Common { names, access, spans }) }
    }

    /// The same with another answer to requests for no door's path.
    #[must_use]
    pub fn with_fallback(self, lost: Router) -> Site {
        let counts = from_fn_with_state(self.common.access.clone(), count_stranger);
        Site { routes: self.routes.fallback_service(lost.layer(counts)), ..self }
    }

    /// The answer to a request whose head is too long. It has come to no door.
    pub(crate) fn answer_long_head<B>(&self, request: &Request<B>) -> Response {
        match counted(&self.common.access, request) {
            Ok(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response(),
            Err(denied) => denied_anywhere(denied),
        }
    }

    /// Answers one request.
    pub(crate) async fn answer<B>(self, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Site { routes, common } = self;
        let answer = async |request: Request<Body>| {
            let answered = match guard::check(&request, &common.names) {
                Ok(()) => match routes.oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
                Err(problem) => match counted(&common.access, &request) {
                    Ok(_) => problem.into_response(),
                    Err(denied) => denied_anywhere(denied),
                },
            };
            guard::closed_to_others(answered)
        };
        request::observed(common.spans.as_ref(), request.map(Body::new), answer).await
    }
}

/// For tests, which ask without a listener.
impl Service<Request<Body>> for Site {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let site = self.clone();
        Box::pin(async { Ok(site.answer(request).await) })
    }
}

/// The answer to a request for no door's path.
pub async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(Code::NotFound, format!("there is nothing at {}; see /api/docs", uri.path()))
}

async fn wrong_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path does not take that method; see Allow")
}
