//! Logging in, in a browser with real cookies.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use spindle_testkit::{TokensFile, wait_until};

use crate::browser::Browser;
use crate::data::Served;

fn guarded(tokens: &TokensFile) -> Served {
    let path = tokens.path();
    Served::empty(&[
        "--require-auth",
        "--tokens",
        path.to_str().unwrap(),
        "--insecure",
        "jobd-master",
    ])
}

fn log_in(browser: &Browser, token: &str) {
    browser.open("/login");
    browser.type_into("input[name=token]", token);
    browser.press("Log in");
    wait_until("the first page", || browser.at() == "/");
}

#[test]
fn a_session_ends_with_its_token_and_the_page_asks_again() {
    let tokens = TokensFile::of_all_roles();
    let served = guarded(&tokens);
    let browser = Browser::of(&served.http);
    browser.open("/queues");
    assert_eq!(browser.at(), "/login?next=%2Fqueues");
    browser.type_into("input[name=token]", "wrong");
    browser.press("Log in");
    browser.says("token");
    log_in(&browser, "admin");
    browser.open("/audit");
    assert_eq!(browser.at(), "/audit");
    // No script can read the cookie.
    assert!(!browser.run("return document.cookie").as_str().unwrap().contains("session"));
    tokens.write(&TokensFile::entry("other", "admin", "*", ""));
    wait_until("the end of the session", || {
        browser.open("/queues");
        browser.at().starts_with("/login")
    });
    log_in(&browser, "other");
    browser.open("/queues");
    browser.click("header .bar form[action='/logout'] button");
    wait_until("the end of the session", || browser.at().starts_with("/login"));
    browser.open("/queues");
    assert!(browser.at().starts_with("/login"), "{}", browser.at());
}

#[test]
fn what_a_role_may_not_do_is_not_offered() {
    let tokens = TokensFile::of_all_roles();
    let served = guarded(&tokens);
    let browser = Browser::of(&served.http);
    log_in(&browser, "read");
    browser.open("/jobs");
    let text = browser.text();
    assert!(!text.contains("Audit") && !text.contains("Submit\n"), "{text}");
    browser.open("/audit");
    browser.says("403");
}

/// A page of another site: a form to the server, sent at once, and by a person's click as well.
fn foreign_site(form: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // One read has the request: browsers send it in one piece.
            let _ = stream.read(&mut [0; 16 << 10]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
            let _ = write!(stream, "{head}<main>{form}</main>");
        }
    });
    format!("http://localhost:{}/", address.port())
}

#[test]
fn a_form_of_another_site_changes_nothing() {
    let tokens = TokensFile::of_all_roles();
    let served = guarded(&tokens);
    let browser = Browser::of(&served.http);
    log_in(&browser, "admin");
    browser.open("/submit");
    browser.type_into("main input[name=queue]", "mail");
    browser.press("Submit");
    browser.says("Job 1");
    let form = format!(
        "<form method=post action='http://{}/queue/pause'><input name=queue value=mail>\
         <button>Win</button></form>",
        served.http
    );
    browser.open_url(&foreign_site(form));
    browser.press("Win");
    // The browser did not send the cookie, and the request came from another site.
    wait_until("the answer", || browser.at() == "/queue/pause");
    browser.open("/queue?queue=mail");
    browser.says("running");
    // The own page's form without its token is no better.
    browser.open("/queue/pause?queue=mail");
    browser.run("document.querySelector('main form input[name=form_token]').value = '00'");
    browser.press("Pause the queue");
    browser.says("403");
    browser.open("/queue?queue=mail");
    browser.says("running");
}
