//! What went wrong, as a page.

use axum::http::StatusCode;
use axum::response::Response;
use maud::html;

use crate::face::ProblemText;
use crate::html::{Tab, cut, shell};
use crate::page::Page;

/// A problem, with advice where its kind allows it.
pub(crate) async fn shown(page: &Page, status: StatusCode, text: &ProblemText) -> Response {
    let advice = match status {
        StatusCode::NOT_FOUND => {
            "It may have been deleted, or have come to its end and been removed."
        }
        StatusCode::FORBIDDEN => {
            "If your token is for some queues only, open one of them by its name with the search above."
        }
        StatusCode::PAYLOAD_TOO_LARGE => "Send less at once, or use the API.",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            "Wait a moment, and load the page again."
        }
        _ => "",
    };
    let body = html! {
        div.fault {
            p.code { (status.as_u16()) }
            h1 { (text.title) }
            @if !text.detail.is_empty() { p { (cut(&text.detail, 1_000)) } }
            @if !advice.is_empty() { p.muted { (advice) } }
        }
    };
    shell(page, Tab::Other, &text.title, body).await
}
