//! Several doors' routes behind one guard.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use spindle_access::Access;
use spindle_engine::Peer;
use spindle_http::{Answered, BodyLimits, Names, Site, read_body};
use spindle_limits::RequestRates;
use tower::ServiceExt;

use crate::site;

const LIMITS: BodyLimits = BodyLimits { bytes_max: 10, time: Duration::from_millis(50) };

async fn echo(request: Request) -> Answered<Bytes> {
    Ok(read_body(request, LIMITS).await?)
}

async fn own_405() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, "a form of its own").into_response()
}

fn doors() -> Site {
    let one = Router::new().route("/echo", post(echo));
    let other = Router::new().route("/job", get(async || "job").fallback(own_405));
    site(one.merge(other))
}

fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, "localhost")
}

async fn shown(request: Request) -> (u16, String) {
    let response = doors().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Somebody may have typed it in a wrong place.
#[tokio::test]
async fn a_problem_quotes_no_token() {
    let token = format!("spindle_{}", "x".repeat(43));
    let bent = Request::builder().uri("/no").header(header::HOST, &token);
    for (request, part) in [
        (request(Method::GET, &format!("/{token}/a")), "there is nothing at /spindle_…/a;"),
        (bent, "the name `spindle_…`:"),
    ] {
        let (_, body) = shown(request.body(Body::empty()).unwrap()).await;
        assert!(body.contains(part) && !body.contains(&token), "{body}");
    }
}

#[tokio::test]
async fn every_door_is_behind_the_guard() {
    for (method, path) in [(Method::POST, "/echo"), (Method::GET, "/job"), (Method::GET, "/no")] {
        let bent = Request::builder().method(method).uri(path).header(header::HOST, "evil.example");
        let (status, body) = shown(bent.body(Body::empty()).unwrap()).await;
        assert_eq!(status, 421, "{path}");
        assert!(body.contains("unknown_host"), "{body}");
    }
    let foreign = request(Method::POST, "/echo").header(header::ORIGIN, "https://evil.example");
    assert_eq!(shown(foreign.body(Body::empty()).unwrap()).await.0, 403);
}

#[tokio::test]
async fn what_no_door_has_is_told_once_for_all() {
    let empty = |method, path| request(method, path).body(Body::empty()).unwrap();
    let (status, body) = shown(empty(Method::GET, "/nowhere")).await;
    assert_eq!(status, 404);
    assert!(body.contains("\"code\":\"not_found\""), "{body}");
    let (status, body) = shown(empty(Method::GET, "/echo")).await;
    assert_eq!(status, 405);
    assert!(body.contains("\"code\":\"method_not_allowed\""), "{body}");
    let (status, body) = shown(empty(Method::DELETE, "/job")).await;
    assert_eq!((status, body.as_str()), (405, "a form of its own"));
}

#[tokio::test]
async fn requests_that_come_to_no_door_are_counted_as_any_other() {
    let calm = || request(Method::GET, "/nowhere");
    let evil = || Request::builder().uri("/job").header(header::HOST, "evil.example");
    let foreign = || request(Method::POST, "/echo").header(header::ORIGIN, "https://evil.example");
    let nowhere = || Router::new().fallback(async || StatusCode::IM_A_TEAPOT);
    let asked: [(&dyn Fn() -> axum::http::request::Builder, u16); 4] =
        [(&calm, 404), (&evil, 421), (&foreign, 403), (&|| request(Method::GET, "/echo"), 405)];
    for (ask, expected) in asked {
        for has_own_answer in [false, true] {
            let rates = RequestRates::with_clock(None, Some(2), || Duration::ZERO).map(Arc::new);
            let access = Access::open().with_rates(rates);
            let routes = Router::new().route("/echo", post(echo));
            let names = Names::new("127.0.0.1".parse().unwrap());
            let mut site = Site::with(routes, names, access, None);
            if has_own_answer {
                site = site.with_fallback(nowhere());
            }
            let expected = if has_own_answer && expected == 404 { 418 } else { expected };
            let mut statuses = Vec::new();
            let mut retry_after = None;
            for _ in 0..3 {
                let peer = Peer::plain("192.0.2.1:5".parse().unwrap());
                let asked = ask().extension(peer).body(Body::empty()).unwrap();
                let response = site.clone().oneshot(asked).await.unwrap();
                statuses.push(response.status().as_u16());
                retry_after = response.headers().get(header::RETRY_AFTER).cloned();
            }
            assert_eq!(statuses, [expected, expected, 429]);
            assert_eq!(retry_after.unwrap(), "1");
        }
    }
}

/// As `docs/limits.md` says.
#[tokio::test]
async fn a_body_has_16_mib_and_not_one_byte_more() {
    for (bytes, fits) in [(16 << 20, true), ((16 << 20) + 1, false)] {
        // Of a length that is not said beforehand.
        let body = StreamBody::new(futures_util::stream::iter([Ok::<_, std::io::Error>(
            http_body::Frame::data(Bytes::from(vec![b'x'; bytes])),
        )]));
        let request = request(Method::POST, "/echo").body(Body::new(body)).unwrap();
        let read = read_body(request, BodyLimits::default()).await;
        assert_eq!(read.map(|body| body.len()).ok(), fits.then_some(bytes));
    }
}

#[tokio::test]
async fn a_body_comes_whole_in_time_and_within_its_limit() {
    let whole = request(Method::POST, "/echo").body(Body::from("ten bytes!")).unwrap();
    assert_eq!(shown(whole).await, (200, "ten bytes!".to_owned()));
    let long = request(Method::POST, "/echo").body(Body::from("eleven byte")).unwrap();
    let (status, body) = shown(long).await;
    assert_eq!(status, 413);
    assert!(body.contains("\"bytes_max\":10"), "{body}");
    let announced = request(Method::POST, "/echo").header(header::CONTENT_LENGTH, "11");
    assert_eq!(shown(announced.body(Body::empty()).unwrap()).await.0, 413);
    let never = futures_util::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>();
    let slow = request(Method::POST, "/echo").body(Body::new(StreamBody::new(never))).unwrap();
    let (status, body) = shown(slow).await;
    assert_eq!(status, 408);
    assert!(body.contains("body_timeout"), "{body}");
}
