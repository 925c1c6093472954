//! A payload or a result as a file.

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use spindle_http::{Code, Problem, work_on_bytes};

use crate::ask::{Asked, segment};
use crate::page::Page;
use crate::pages::job::of_json;
use crate::shapes::JobBytes;

/// The bytes as they are, as a file to save: nothing of them is shown or run by the browser.
pub(crate) async fn download(
    page: Page,
    Path((id, which)): Path<(String, String)>,
) -> Asked<Response> {
    let path = format!("/api/v1/jobs/{}", segment(id.as_bytes()));
    let answer = page.ask.send(axum::http::Method::GET, &path, None).await?;
    let is_result = which == "result";
    let found = work_on_bytes(answer.len(), move || {
        let parts: JobBytes = serde_json::from_slice(&answer).unwrap_or_default();
        let result = parts.result.as_ref();
        Ok::<_, Problem>(match is_result {
            true => result.and_then(|it| of_json(it.value.as_deref(), it.base64.as_deref())),
            false => of_json(parts.payload.as_deref(), parts.payload_base64.as_deref()),
        })
    });
    let nothing = || Problem::new(Code::NotFound, "the job has no such bytes");
    let found = found.await?.filter(|_| is_result || which == "payload").ok_or_else(nothing)?;
    let digits: String = id.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    let name = format!("attachment; filename=\"job-{digits}-{which}\"");
    let name = HeaderValue::try_from(name).map_err(|_| nothing())?;
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], found).into_response())
}
