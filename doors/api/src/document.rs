//! The OpenAPI document: what types describe, and what they cannot say.

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};
use spindle_core::audit::Action;
use spindle_core::job::Origin;
use spindle_http::document::Supplement;
use spindle_http::door_word;
use utoipa::openapi::OpenApi;

use crate::links::link;
use crate::routes::audit::{WEB, action_word};
use crate::together;

/// A job by its number, its Gearman handle or its UUID.
const JOB: &str = "^([1-9][0-9]{0,14}|H:[A-Za-z0-9._-]{1,64}:[1-9][0-9]{0,14}|\
                   [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$";
/// Numbers of jobs, parted by commas.
const NUMBERS: &str = "^[0-9]{1,15}(,[0-9]{1,15}){0,511}$";
/// Numbers of requests, parted by commas.
const REQUESTS: &str = "^[0-9]{1,15}(,[0-9]{1,15}){0,63}$";
/// A JSON Pointer, and a value: fewer steps and shorter than the server takes.
const FIELD: &str = "^/[A-Za-z0-9_./-]{0,30}(=.{0,200})?$";
/// Twenty bytes in base64 without padding: the last letter has two bits left over.
const TOKEN: &str = "^[A-Za-z0-9_-]{26}[AEIMQUYcgkosw048]$";
/// Standard base64 with padding; what is left over in the last letter is zero.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|\
                                 [A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
/// Base64 of 1 to 512 bytes: the name of a queue.
const NAME_BASE64: &str = "^([A-Za-z0-9+/]{4}){0,170}([A-Za-z0-9+/]{4}|\
                           [A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)$";
/// An empty one is none.
const FEED: &str = "^([0-9]{1,15}\\.[0-9]{1,9})?$";
const OFFSET: &str = "^([0-9]{1,19})?$";
const TAG: &str = "^(\\*|(W/)?\"[!#-~]*\")$";
const KEY: &str = "^[!-~]([ -~]{0,253}[!-~])?$";
const STATUSES: &str = "^(scheduled|ready|leased|parked|blocked|done|dead)\
                        (,(scheduled|ready|leased|parked|blocked|done|dead))*$";

const OUTCOMES: &str = "^(submitted|missed|overlapped|pending|refused)\
                        (,(submitted|missed|overlapped|pending|refused))*$";

/// The document as text: its paths in the order of the routes, which is that of reading.
pub(crate) fn text(description: &OpenApi) -> String {
    let mut rest = document(description);
    let mut paths = rest["paths"].take();
    rest.as_object_mut().expect("a document is an object").remove("paths");
    let order = description.paths.paths.keys();
    let paths = order.map(|path| (path.clone(), paths[path].take())).collect();
    serde_json::to_string(&Document { rest, paths }).expect("texts and maps are JSON")
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    rest: Value,
    paths: IndexMap<String, Value>,
}

/// The document as JSON.
fn document(description: &OpenApi) -> Value {
    let mut document =
        serde_json::to_value(description).expect("the document is made of texts and maps");
    let supplement = Supplement {
        bodies: &["application/json"],
        problems: &["application/problem+json"],
        formats: formats().into(),
        schemas: together::of_schemas(),
    };
    supplement.complete(&mut document);
    together::name_by_number_alone(&mut document);
    link(&mut document);
    plain_summaries(&mut document);
    // A token is needed only where the server asks for one; naming the scheme lets a page offer a
    // field for it.
    document["components"]["securitySchemes"] = json!({ "token": {
        "type": "http", "scheme": "bearer", "description": "A token of the server's tokens file",
    } });
    document["security"] = json!([{}, { "token": [] }]);
    document
}

/// Makes summaries plain text: viewers show them as they are, with any backquotes.
fn plain_summaries(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut());
    for operation in operations {
        if let Some(Value::String(summary)) = operation.get_mut("summary") {
            summary.retain(|c| c != '`');
        }
    }
}

/// Version 00 of W3C Trace Context, which is what the server writes.
const TRACEPARENT: &str = "^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$";

/// The schemas that fields and parameters name by their `format`.
fn formats() -> [(&'static str, Value); 19] {
    let doors = Origin::ALL.map(door_word);
    let time = json!({ "type": "string", "format": "date-time" });
    [
        ("job", json!({ "pattern": JOB })),
        ("job-numbers", json!({ "pattern": NUMBERS })),
        ("request-numbers", json!({ "pattern": REQUESTS })),
        ("payload-field", json!({ "pattern": FIELD })),
        ("lease-token", json!({ "pattern": TOKEN })),
        ("base64", json!({ "contentEncoding": "base64", "pattern": BASE64 })),
        ("queue-base64", json!({ "pattern": NAME_BASE64 })),
        ("statuses", json!({ "pattern": STATUSES })),
        ("door", json!({ "enum": doors })),
        ("audit-door", json!({ "enum": ([&doors[..], &[WEB]].concat()) })),
        ("audit-action", json!({ "enum": Action::ALL.map(action_word) })),
        ("time-or-now", json!({ "anyOf": [time, { "const": "now" }] })),
        ("feed-id", json!({ "format": "feed-id", "pattern": FEED, "examples": ["16.0"] })),
        ("offset", json!({ "format": "offset", "pattern": OFFSET, "examples": ["512"] })),
        ("schedule-outcomes", json!({ "pattern": OUTCOMES, "examples": ["refused"] })),
        ("idempotency-key", json!({ "pattern": KEY, "examples": ["order-4711"] })),
        ("entity-tag", json!({ "format": "entity-tag", "pattern": TAG, "examples": ["\"7\""] })),
        ("traceparent", json!({ "pattern": TRACEPARENT })),
        ("star", json!({ "enum": ["*"] })),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use spindle_core::queue::QUEUE_NAME_BYTES_MAX;
    use spindle_engine::FINGERPRINT_CHARS_MAX;
    use utoipa::PartialSchema;

    use super::*;
    use crate::backoff::{Backoff, FACTOR_MAX};
    use crate::filter::{JobFilter, TEXT_CHARS_MAX};
    use crate::keys::KEY_CHARS_MAX;
    use crate::numbers::WAIT_S_MAX;
    use crate::reading::SHOW_BYTES_MAX;
    use crate::router::described;
    use crate::routes::bulk::BulkBody;
    use crate::routes::jobd::{self, SelectionBody};
    use crate::routes::jobs::EditBody;
    use crate::routes::leases::{self, ExtendBody, FailBody, LeaseBody};
    use crate::routes::submit::{BATCH_MAX, BatchBody};
    use crate::routes::{audit, constraints, failures, history, list, queues};
    use crate::submit::{NewJobBody, TAG_CHARS_MAX, TAGS_MAX, Unique};

    /// Holds a bound in a type's schema, at a place below its properties, against a constant.
    #[track_caller]
    fn is_checked<T: PartialSchema>(place: &str, checked: impl Into<Value>) {
        let schema = serde_json::to_value(T::schema()).unwrap();
        let said = schema.pointer(&format!("/properties/{place}"));
        assert_eq!(said, Some(&checked.into()), "{place}");
    }

    #[test]
    fn the_bounds_of_bodies_are_those_that_are_checked() {
        is_checked::<NewJobBody>("queue/maxLength", QUEUE_NAME_BYTES_MAX);
        is_checked::<EditBody>("queue/maxLength", QUEUE_NAME_BYTES_MAX);
        is_checked::<BulkBody>("queue/maxLength", QUEUE_NAME_BYTES_MAX);
        is_checked::<JobFilter>("queue/maxLength", QUEUE_NAME_BYTES_MAX);
        is_checked::<LeaseBody>("queues/items/maxLength", QUEUE_NAME_BYTES_MAX);
        is_checked::<NewJobBody>("tags/maxItems", TAGS_MAX);
        is_checked::<NewJobBody>("tags/items/maxLength", TAG_CHARS_MAX);
        is_checked::<NewJobBody>("ttr_ms/maximum", u32::MAX - 1);
        is_checked::<Unique>("key/maxLength", KEY_CHARS_MAX);
        is_checked::<JobFilter>("unique_key/maxLength", KEY_CHARS_MAX);
        is_checked::<JobFilter>("idempotency_key/maxLength", KEY_CHARS_MAX);
        is_checked::<JobFilter>("text/maxLength", TEXT_CHARS_MAX);
        is_checked::<JobFilter>("fingerprint/maxLength", FINGERPRINT_CHARS_MAX);
        is_checked::<BatchBody>("jobs/maxItems", BATCH_MAX);
        is_checked::<LeaseBody>("queues/maxItems", leases::QUEUES_MAX);
        is_checked::<LeaseBody>("queues_base64/maxItems", leases::QUEUES_MAX);
        is_checked::<LeaseBody>("wait_s/maximum", WAIT_S_MAX);
        is_checked::<LeaseBody>("worker/maxLength", leases::WORKER_CHARS_MAX);
        is_checked::<ExtendBody>("ttr_ms/maximum", leases::EXTEND_MS_MAX);
        is_checked::<FailBody>("message/maxLength", leases::MESSAGE_CHARS_MAX);
        is_checked::<FailBody>("error/maxLength", leases::MESSAGE_CHARS_MAX);
        is_checked::<FailBody>("code/maxLength", leases::CODE_CHARS_MAX);
        is_checked::<Backoff>("factor/maximum", FACTOR_MAX);
        is_checked::<SelectionBody>("targets/maxItems", jobd::NAMED_MAX);
        is_checked::<SelectionBody>("workers/maxItems", jobd::NAMED_MAX);
    }

    /// A parameter's schema in the document.
    fn parameter(path: &str, name: &str) -> Value {
        let mut document = document(&described().split_for_parts().1);
        let parameters = document["paths"][path]["get"]["parameters"].as_array_mut().unwrap();
        parameters.iter_mut().find(|it| it["name"] == name).unwrap()["schema"].take()
    }

    #[test]
    fn a_document_tells_what_a_name_is_and_how_far_numbers_go() {
        let whole = |maximum: usize| json!({ "type": "integer", "minimum": 1, "maximum": maximum });
        assert_eq!(parameter("/api/v1/jobs", "limit"), whole(list::LIMIT_MAX));
        assert_eq!(parameter("/api/v1/queues", "limit"), whole(queues::LIMIT_MAX));
        let bytes_max = &parameter("/api/v1/jobs/{id}", "bytes_max");
        assert_eq!(bytes_max["maximum"], SHOW_BYTES_MAX);
        assert_eq!(parameter("/api/v1/constraints", "limit"), whole(constraints::LIMIT_MAX));
        assert_eq!(parameter("/api/v1/audit", "limit"), whole(audit::LIMIT_MAX));
        assert_eq!(parameter("/api/v1/history", "points"), whole(history::POINTS_MAX));
        assert_eq!(parameter("/api/v1/history/queues", "limit"), whole(history::LIMIT_MAX));
        assert_eq!(parameter("/api/v1/failures", "limit"), whole(failures::LIMIT_MAX));
        assert_eq!(parameter("/api/v1/jobd", "limit"), whole(jobd::LIMIT_MAX));
        let buckets = "/api/v1/constraints/{name}/buckets";
        assert_eq!(parameter(buckets, "limit"), whole(constraints::LIMIT_MAX));
        let preview = parameter("/api/v1/jobs", "payload_preview");
        assert_eq!(preview["maximum"], list::PREVIEW_BYTES_MAX);
        let wait_s = parameter("/api/v1/jobs/{id}/wait", "wait_s");
        assert_eq!(wait_s["maximum"], WAIT_S_MAX);
        let name = parameter("/api/v1/queues/{name}", "name");
        assert_eq!(name["maxLength"], QUEUE_NAME_BYTES_MAX);
        assert_eq!(parameter("/api/v1/jobs", "door")["enum"][0], "api");
        assert_eq!(parameter("/api/v1/jobs/{id}", "id")["pattern"], JOB);
    }

    #[test]
    fn summaries_have_no_marks_that_a_page_would_show() {
        let document = document(&described().split_for_parts().1);
        let paths = document["paths"].as_object().unwrap().values();
        let operations = paths.flat_map(|path| path.as_object().unwrap().values());
        let summaries: Vec<_> = operations.filter_map(|it| it["summary"].as_str()).collect();
        assert!(summaries.len() > 40, "{summaries:?}");
        assert!(summaries.iter().all(|summary| !summary.contains('`')), "{summaries:?}");
    }

    #[test]
    fn each_action_of_a_bulk_has_its_fields() {
        let document = document(&described().split_for_parts().1);
        let schemas = &document["components"]["schemas"];
        let branches = schemas["BulkBody"]["anyOf"].as_array().unwrap().iter();
        let named = branches.flat_map(|it| {
            let action = &it["properties"]["action"];
            let listed = action["enum"].as_array().into_iter().flatten();
            listed.chain(action.get("const")).filter_map(Value::as_str)
        });
        let named: BTreeSet<_> = named.collect();
        let actions = schemas["Action"]["enum"].as_array().unwrap().iter();
        let actions: BTreeSet<_> = actions.filter_map(Value::as_str).collect();
        assert!(actions.contains("undo"), "{actions:?}");
        assert_eq!(named, actions);
    }

    #[test]
    fn every_schema_that_is_added_to_is_in_the_document() {
        let document = document(&described().split_for_parts().1);
        for (place, _) in together::of_schemas() {
            let schema = document.pointer(&format!("/components/schemas/{place}"));
            assert!(schema.is_some(), "{place}");
        }
        let text = document.to_string();
        for (format, keywords) in formats() {
            let left = text.contains(&format!("\"format\":\"{format}\""));
            assert_eq!(left, keywords["format"] == format, "{format}");
        }
    }
}
