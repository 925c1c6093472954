//! Several doors' routes behind one guard.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use spindle_http::{Answered, BodyLimits, Site, read_body};
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
