//! The OpenAPI document, with what types cannot say.

use serde_json::{Value, json};
use spindle_http::document::Supplement;
use utoipa::openapi::OpenApi;

/// A plain address: no user, no query, a port there is.
const URL: &str = "^http://([A-Za-z0-9.-]+|\\[[0-9a-f:.]+\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|\
                   6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?\
                   (/[A-Za-z0-9._~-]+)*/?$";

/// The document as JSON.
pub(crate) fn json(description: &OpenApi) -> String {
    let mut document =
        serde_json::to_value(description).expect("the document is made of texts and maps");
    let supplement = Supplement {
        bodies: &["application/json", "application/msgpack"],
        problems: &["application/msgpack", "application/problem+json"],
        formats: formats().into(),
        schemas: Vec::new(),
    };
    supplement.complete(&mut document);
    document.to_string()
}

/// The schemas that fields name by their `format`.
fn formats() -> [(&'static str, Value); 4] {
    [
        ("worker-url", json!({ "pattern": URL })),
        ("job-status", json!({ "enum": ["queued", "running", "retrying", "error", "done"] })),
        ("outcome", json!({ "enum": ["success", "failure"] })),
        ("failure-reason", json!({ "enum": ["timeout", "other"] })),
    ]
}

#[cfg(test)]
mod tests {
    use spindle_limits::WORKER_NAMES_MAX;
    use utoipa::PartialSchema;

    use super::*;
    use crate::routes::schema::{Done, NewJob, NewWorker};
    use crate::wire::message::{
        JOBS_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX, TIME_CHARS_MAX, URL_BYTES_MAX, WORKER_BYTES_MAX,
    };

    /// Holds a bound in a type's schema, at a place below its properties, against a constant.
    #[track_caller]
    fn is_checked<T: PartialSchema>(place: &str, checked: usize) {
        let schema = serde_json::to_value(T::schema()).unwrap();
        let said = schema.pointer(&format!("/properties/{place}"));
        assert_eq!(said, Some(&json!(checked)), "{place}");
    }

    #[test]
    fn the_bounds_of_bodies_are_those_that_are_checked() {
        is_checked::<NewJob>("name/maxLength", NAME_BYTES_MAX);
        is_checked::<NewWorker>("name/maxLength", WORKER_BYTES_MAX);
        is_checked::<NewWorker>("max_jobs/maximum", usize::try_from(JOBS_MAX).unwrap());
        is_checked::<NewWorker>("names/maxItems", WORKER_NAMES_MAX);
        is_checked::<NewWorker>("url/maxLength", URL_BYTES_MAX);
        is_checked::<NewWorker>("names/items/maxLength", NAME_BYTES_MAX);
        is_checked::<Done>("finished_at/maxLength", TIME_CHARS_MAX);
        is_checked::<Done>("message/maxLength", TEXT_BYTES_MAX);
    }
}
