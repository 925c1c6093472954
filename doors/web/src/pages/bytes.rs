//! A payload, a result or output as a file.

use axum::extract::Path;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use spindle_http::{Code, Problem, work_on_bytes};

use crate::ask::{Asked, segment};
use crate::page::Page;
use crate::pages::job::of_json;
use crate::pages::output;
use crate::shapes::JobBytes;

/// The bytes as they are, as a file to save: nothing of them is shown or run by the browser.
pub(crate) async fn download(
    page: Page,
    Path((id, which)): Path<(String, String)>,
) -> Asked<Response> {
    let path = format!("/api/v1/jobs/{}", segment(id.as_bytes()));
    let found = match which.as_str() {
        "payload" => payload_or_result(&page, &path, payload).await?,
        "result" => payload_or_result(&page, &path, result).await?,
        "output" => Some(output::whole(&page, &path).await?).filter(|text| !text.is_empty()),
        _ => None,
    };
    let nothing = || Problem::new(Code::NotFound, "the job has no such bytes");
    let found = found.ok_or_else(nothing)?;
    let digits: String = id.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    let name = format!("attachment; filename=\"job-{digits}-{which}\"");
    let name = HeaderValue::try_from(name).map_err(|_| nothing())?;
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], found).into_response())
}

fn payload(parts: &JobBytes) -> Option<Vec<u8>> {
    of_json(parts.payload.as_deref(), parts.payload_base64.as_deref())
}

fn result(parts: &JobBytes) -> Option<Vec<u8>> {
    let result = parts.result.as_ref()?;
    of_json(result.value.as_deref(), result.base64.as_deref())
}

async fn payload_or_result(
    page: &Page,
    path: &str,
    which: fn(&JobBytes) -> Option<Vec<u8>>,
) -> Asked<Option<Vec<u8>>> {
    let answer = page.ask.send(Method::GET, path, None).await?;
    let found = work_on_bytes(answer.len(), move || {
        let parts: JobBytes = serde_json::from_slice(&answer).unwrap_or_default();
        Ok::<_, Problem>(which(&parts))
    });
    Ok(found.await?)
}
