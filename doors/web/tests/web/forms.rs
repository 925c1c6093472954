//! Logging in and out, and forms that are not from a page of this server.

use std::time::Duration;

use axum::http::header;
use serde_json::json;
use spindle_access::Look;
use spindle_testkit::TokensFile;
use spindle_web::Options;

use crate::harness::{Bench, Browser, Form, Html, encoded, form_request, request};

#[tokio::test]
async fn who_logs_in_gets_where_they_were_going() {
    let tokens = TokensFile::of_all_roles();
    let bench = Bench::guarded(tokens.access(true));
    let mut browser = Browser::new(&bench);
    let to = browser.get("/jobs?queue=x").await;
    let page = browser.page(to.header("location")).await;
    let mut form = page.form("/login");
    assert_eq!(form["next"], "/jobs?queue=x");
    for wrong in ["", "wrong", "expired", &"x".repeat(4_096)] {
        form.insert("token".to_owned(), wrong.to_owned());
        let reply = browser.post("/login", &form).await;
        assert_eq!(reply.status, 401, "{wrong}");
        assert!(reply.headers.get(header::SET_COOKIE).is_none());
        assert!(wrong.is_empty() || !reply.text().contains(&format!("\"{wrong}\"")));
    }
    form.insert("token".to_owned(), " read\n".to_owned());
    let reply = browser.post("/login", &form).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "/jobs?queue=x"));
    let cookie = reply.header("set-cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200"), "{cookie}");
    assert!(!cookie.contains("read"), "{cookie}");
    let page = browser.page("/queues").await;
    // Nobody is sent to another site.
    form.insert("next".to_owned(), "//evil.example".to_owned());
    form.insert("form_token".to_owned(), page.form("/logout")["form_token"].clone());
    assert_eq!(browser.post("/login", &form).await.header("location"), "/");
    // After the end of a session its name is worth nothing, wherever it was kept.
    let name = browser.cookie("spindle_session").unwrap().to_owned();
    let page = browser.page("/queues").await;
    assert_eq!(browser.post("/logout", &page.form("/logout")).await.status, 303);
    browser.set_cookie("spindle_session", &name);
    assert_eq!(browser.get("/queues").await.status, 303);
}

#[tokio::test]
async fn a_session_ends_with_its_time_and_with_its_token() {
    let tokens = TokensFile::of_all_roles();
    let at_once =
        Options { access: tokens.access(true), session_time: Duration::ZERO, ..Options::default() };
    let bench = Bench::with(at_once);
    let mut browser = Browser::with_token(&bench, "admin").await;
    assert_eq!(browser.get("/queues").await.status, 303);
    let access = tokens.access(true);
    let bench = Bench::guarded(access.clone());
    let mut browser = Browser::with_token(&bench, "admin").await;
    assert_eq!(browser.get("/queues").await.status, 200);
    tokens.write(&TokensFile::entry("read", "read", "*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    let reply = browser.get("/queues").await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "/login?next=%2Fqueues"));
}

#[tokio::test]
async fn a_form_that_no_page_made_changes_nothing() {
    let tokens = TokensFile::of_all_roles();
    let bench = Bench::guarded(tokens.access(false));
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let path = format!("/jobs/{id}/delete");
    let mut browser = Browser::with_token(&bench, "admin").await;
    let mut other = Browser::with_token(&bench, "manage").await;
    let own = browser.page(&path).await.form(&path);
    let with = |token: Option<&str>| -> Form {
        let token = token.map(|token| ("form_token".to_owned(), token.to_owned()));
        token.into_iter().collect()
    };
    let foreign = other.page(&path).await.form(&path);
    let anonymous = Browser::new(&bench).page(&path).await.form(&path);
    let cut = &own["form_token"][2..];
    for form in [with(None), with(Some("")), with(Some("zz")), with(Some(cut)), foreign, anonymous]
    {
        let reply = browser.post(&path, &form).await;
        assert_eq!(reply.status, 403, "{form:?}");
        Html::of(&reply).says("the form is not from a page of this server");
    }
    // With the right token, but from another site's page, or not as forms are sent.
    for (name, value, status) in [
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("content-type", "text/plain", 415),
        ("content-type", "application/json", 415),
    ] {
        let mut request = form_request(&path, &own).body(encoded(&own)).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(browser.send(request).await.status, status, "{name}: {value}");
    }
    let large: Form = [own.clone(), [("x".to_owned(), "x".repeat(3 << 20))].into()]
        .into_iter()
        .flatten()
        .collect();
    let refused = browser.post(&path, &large).await;
    assert_eq!(refused.status, 413);
    Html::of(&refused).says("413");
    // By its address alone nothing happens.
    assert_eq!(browser.get(&path).await.status, 200);
    let put = request("PUT", &path).body(Default::default()).unwrap();
    assert_eq!(browser.send(put).await.status, 405);
    assert_eq!(bench.status_of(id).await, "ready");
    assert_eq!(browser.post(&path, &own).await.status, 200);
    assert_eq!(bench.status_of(id).await, "parked", "it is deleted");
}

#[tokio::test]
async fn without_a_login_forms_are_sealed_to_the_browser() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let path = format!("/jobs/{id}/park");
    let (mut one, mut other) = (Browser::new(&bench), Browser::new(&bench));
    let form = one.page(&path).await.form(&path);
    let _ = other.page(&path).await;
    assert_eq!(other.post(&path, &form).await.status, 403);
    assert_eq!(one.post(&path, &form).await.status, 303);
    assert_eq!(bench.status_of(id).await, "parked");
}

#[tokio::test]
async fn who_asks_too_fast_is_asked_to_wait() {
    let tokens = TokensFile::of_all_roles();
    let bench = Bench::guarded(tokens.paced(3));
    let mut browser = Browser::with_token(&bench, "read").await;
    // A page asks the API more than once, and is one request all the same.
    for _ in 0..3 {
        assert_eq!(browser.get("/").await.status, 200);
    }
    let refused = browser.get("/").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "1"));
    Html::of(&refused).says("more than 3 requests a second of this token");
}
