//! Logging in and out.

use std::borrow::Cow;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use spindle_access::hidden;

use crate::cookie;
use crate::form::Form;
use crate::html::{Tab, hidden_form, shell};
use crate::page::Page;

/// The longest address to return to after the login.
const PATH_BYTES_MAX: usize = 4_096;

/// The form for a token.
pub(crate) async fn show(page: Page) -> Response {
    let next = page.query().get("next").unwrap_or("/").to_owned();
    form(&page, &next, None).await
}

/// The form, with what was wrong.
pub(crate) async fn form(page: &Page, next: &str, wrong: Option<&str>) -> Response {
    let body = html! {
        div.narrow {
            h1 { "Log in" }
            @if let Some(wrong) = wrong { p.notice.bad role="alert" { (wrong) } }
            form method="post" action="/login" {
                (hidden_form(page))
                input type="hidden" name="next" value=(own_path(next));
                // People do not fill this in; password managers store the token under this name.
                input type="text" name="username" value="token" autocomplete="username" hidden;
                label for="token" { "Token" }
                input #token type="password" name="token" required autofocus autocomplete="current-password"
                    maxlength="512" spellcheck="false";
                button.btn.primary type="submit" { "Log in" }
            }
            p.muted {
                "Whoever runs this server makes tokens with " code { "spindle token new" } ". "
                "What you may see and do is what your token's roles allow."
            }
        }
    };
    shell(page, Tab::Other, "Log in", body).await
}

/// Begins a session for a visitor with a known token.
pub(crate) async fn begin(page: Page, asked: Form) -> Response {
    let next = own_path(asked.field("next"));
    let mut login = page.ask.login.clone();
    if let Err(denied) = login.present(asked.field("token").trim().as_bytes()) {
        let mut response = form(&page, next, Some(&denied.to_string())).await;
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return response;
    }
    // The session from before the login becomes invalid.
    end_session(&page);
    let sessions = page.web.sessions();
    let name = sessions.begin(login, Instant::now());
    let mut response = Redirect::to(next).into_response();
    let (headers, encrypted) = (response.headers_mut(), page.visit.is_encrypted);
    cookie::set(headers, cookie::SESSION, name.as_str(), Some(sessions.time()), encrypted);
    response
}

/// Ends the session.
pub(crate) async fn end(page: Page, _: Form) -> Response {
    end_session(&page);
    let mut response = Redirect::to("/").into_response();
    let gone = Some(std::time::Duration::ZERO);
    cookie::set(response.headers_mut(), cookie::SESSION, "", gone, page.visit.is_encrypted);
    response
}

fn end_session(page: &Page) {
    if let Some(name) = &page.visit.session {
        page.web.sessions().end(name);
    }
}

/// An address of this site without a token in it, or else its first page, so that a login never
/// redirects to another site, and no page quotes a token.
pub(crate) fn own_path(path: &str) -> &str {
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_own = path.starts_with('/') && !path.starts_with("//");
    let is_safe = matches!(hidden(path), Cow::Borrowed(_));
    if is_own && is_plain && is_safe && path.len() <= PATH_BYTES_MAX { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for path in ["/", "/jobs?queue=a%20b"] {
            assert_eq!(own_path(path), path);
        }
        for path in
            ["", "jobs", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb"]
        {
            assert_eq!(own_path(path), "/", "{path}");
        }
        let long = |len: usize| format!("/{}", "a".repeat(len - 1));
        assert_eq!(own_path(&long(PATH_BYTES_MAX)).len(), PATH_BYTES_MAX);
        assert_eq!(own_path(&long(PATH_BYTES_MAX + 1)), "/");
        assert_eq!(own_path(&format!("/spindle_{}", "x".repeat(43))), "/");
    }
}
