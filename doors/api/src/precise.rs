//! What the types of the handlers cannot say: which texts are names of jobs, tokens and places, how
//! large numbers may be, which fields go together. Tables, so that the OpenAPI document promises
//! what the handlers take, and nothing else.

use serde_json::{Value, json};
use spindle_http::document::{complete, operations, parameters, properties, put, schemas};

use crate::backoff::FACTOR_MAX;
use crate::together;

/// A job by its number, its Gearman handle or its UUID.
const JOB: &str = "^([1-9][0-9]{0,14}|H:[A-Za-z0-9._-]{1,64}:[1-9][0-9]{0,14}|\
                   [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$";
/// Twenty bytes in base64 without padding: the last letter has two bits left over.
const TOKEN: &str = "^[A-Za-z0-9_-]{26}[AEIMQUYcgkosw048]$";
/// Standard base64 with padding; what is left over in the last letter is zero.
pub(crate) const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|\
                                 [A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
/// The same of 1 to 512 bytes: the name of a queue.
const NAME_BASE64: &str = "^([A-Za-z0-9+/]{4}){0,170}([A-Za-z0-9+/]{4}|\
                           [A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)$";
/// An empty one is none.
const FEED: &str = "^([0-9]{1,15}\\.[0-9]{1,9})?$";
const FEED_OR_OLDEST: &str = "^(oldest|[0-9]{1,15}\\.[0-9]{1,9})$";
const TAG: &str = "^(\\*|(W/)?\"[!#-~]*\")$";
const KEY: &str = "^[!-~]([ -~]{0,253}[!-~])?$";
const STATUSES: &str = "^(scheduled|ready|leased|parked|done|dead)\
                        (,(scheduled|ready|leased|parked|done|dead))*$";
const DOORS: [&str; 6] = ["api", "workq", "gearman", "gearman_draft", "lightjq", "jobq"];

/// Makes a document say it.
pub(crate) fn precise(document: &mut Value) {
    complete(document);
    for (path, operation) in operations(document) {
        for parameter in parameters(operation) {
            let name = parameter["name"].as_str().unwrap_or_default();
            let more = of_parameter(path, name);
            if let (Some(schema), Some(more)) = (parameter.get_mut("schema"), more) {
                put(schema, more);
            }
        }
        if let Some(body) = operation.pointer_mut("/requestBody/content/application~1json") {
            refine_body(body);
        }
    }
    for (name, schema) in schemas(document) {
        for (property, schema) in properties(schema) {
            if let Some(more) = of_property(name, property) {
                put(schema, more);
            }
        }
        if let Some(more) = together::of_schema(name, schema) {
            put(schema, more);
        }
    }
}

/// A body that may be left out is left out, and not null.
fn refine_body(body: &mut Value) {
    let Some(choices) = body.pointer_mut("/schema/oneOf").and_then(Value::as_array_mut) else {
        return;
    };
    choices.retain(|choice| choice["type"] != "null");
    if let [only] = &choices[..] {
        body["schema"] = only.clone();
    }
}

fn of_parameter(path: &str, name: &str) -> Option<Value> {
    let is_of = |part: &str| path.contains(part);
    Some(match name {
        "id" => json!({ "pattern": JOB }),
        "token" => json!({ "pattern": TOKEN }),
        "name" if is_of("/queues/") => json!({ "minLength": 1, "maxLength": 512 }),
        "name" => json!({ "minLength": 1, "maxLength": 255 }),
        "limit" if path == "/api/v1/jobs" => json!({ "minimum": 1, "maximum": 1000 }),
        "limit" => json!({ "minimum": 1, "maximum": 512 }),
        "cursor" if path == "/api/v1/jobs" => json!({ "pattern": "^[0-9]{1,15}$" }),
        "cursor" if path == "/api/v1/queues" => json!({ "pattern": BASE64 }),
        "cursor" if path == "/api/v1/workers" => json!({ "maximum": u32::MAX }),
        "cursor" if is_of("/buckets") => json!({ "pattern": "^[0-9a-fA-F]{16}$" }),
        "wait_s" => json!({ "minimum": 0, "maximum": 300 }),
        "after" => json!({ "pattern": FEED_OR_OLDEST }),
        "Last-Event-ID" => {
            json!({ "format": "feed-id", "pattern": FEED, "examples": ["16.0"] })
        }
        "Idempotency-Key" => json!({ "pattern": KEY, "examples": ["order-4711"] }),
        "If-Match" => {
            json!({ "format": "entity-tag", "pattern": TAG, "examples": ["\"7\""] })
        }
        "If-None-Match" => json!({ "enum": ["*"] }),
        "queue" => json!({ "minLength": 1, "maxLength": 512 }),
        "queue_base64" => json!({ "pattern": NAME_BASE64 }),
        "unique_key" | "idempotency_key" => json!({ "minLength": 1, "maxLength": 255 }),
        "text" => json!({ "minLength": 1, "maxLength": 1024 }),
        "status" => json!({ "pattern": STATUSES }),
        "door" => json!({ "enum": DOORS }),
        "created_from" | "created_before" => time_or_now(),
        _ => return None,
    })
}

/// What is said of a field here goes before what its type says.
fn of_property(schema: &str, property: &str) -> Option<Value> {
    Some(match (schema, property) {
        ("JobFilter", "created_from" | "created_before")
        | ("NewJobBody" | "EditBody" | "BulkBody", "run_at") => time_or_now_or_null(),
        ("JobFilter", "unique_key" | "idempotency_key") => {
            json!({ "minLength": 1, "maxLength": 255 })
        }
        ("JobFilter", "text") => json!({ "minLength": 1, "maxLength": 1024 }),
        ("JobFilter", "status") => json!({ "pattern": STATUSES }),
        ("JobFilter", "door") => {
            let words = DOORS.into_iter().map(Value::from).chain([Value::Null]);
            json!({ "enum": words.collect::<Value>() })
        }
        (_, "queue_base64" | "name_base64") => json!({ "pattern": NAME_BASE64 }),
        (_, "payload_base64" | "result_base64" | "base64") => {
            json!({ "contentEncoding": "base64", "pattern": BASE64 })
        }
        ("NewJobBody" | "EditBody" | "BulkBody" | "JobFilter", "queue") => {
            json!({ "minLength": 1, "maxLength": 512 })
        }
        ("NewJobBody", "tags") => {
            json!({ "maxItems": 64,
                "items": { "type": "string", "minLength": 1, "maxLength": 128 } })
        }
        ("NewJobBody", "ttr_ms") => json!({ "minimum": 1, "maximum": u32::MAX - 1 }),
        ("NewJobBody", "ttl_ms") => json!({ "minimum": 1 }),
        ("Unique", "key") => json!({ "minLength": 1, "maxLength": 255 }),
        ("BulkBody", "cursor") => json!({ "pattern": "^[0-9]{1,15}-[0-9]{1,15}$" }),
        ("BatchBody", "jobs") => {
            let job = json!({ "$ref": "#/components/schemas/NewJobBody" });
            let other = json!({ "description": "Refused for itself" });
            json!({ "minItems": 1, "maxItems": 1000, "items": { "anyOf": [job, other] } })
        }
        ("LeaseBody", "queues") => {
            json!({ "maxItems": 1024,
                "items": { "type": "string", "minLength": 1, "maxLength": 512 } })
        }
        ("LeaseBody", "queues_base64") => {
            json!({ "maxItems": 1024, "items": { "type": "string", "pattern": NAME_BASE64 } })
        }
        ("LeaseBody", "wait_s") => json!({ "maximum": 300 }),
        ("LeaseBody", "timeout_ms") => json!({ "minimum": 1 }),
        ("LeaseBody", "worker") => json!({ "maxLength": 256 }),
        ("ExtendBody", "ttr_ms") => json!({ "minimum": 1, "maximum": 2_678_400_000_u64 }),
        ("FailBody", "message" | "error") => json!({ "maxLength": 4096 }),
        ("FailBody", "code") => json!({ "maxLength": 64 }),
        ("Backoff", "factor") => {
            json!({ "minimum": 1, "maximum": FACTOR_MAX, "multipleOf": 0.001, "default": 1 })
        }
        ("Backoff", "jitter") => {
            json!({ "minimum": 0, "maximum": 1, "multipleOf": 0.001, "default": 0 })
        }
        ("Backoff", "cap_ms") => json!({ "default": 3_600_000 }),
        ("Settings", "ttr_default_ms") => json!({ "minimum": 1 }),
        _ => return None,
    })
}

/// RFC 3339, or the word.
fn time_or_now() -> Value {
    json!({ "anyOf": [{ "format": "date-time" }, { "const": "now" }] })
}

fn time_or_now_or_null() -> Value {
    json!({ "anyOf": [
        { "type": "string", "format": "date-time" }, { "const": "now" }, { "type": "null" },
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_tells_what_a_name_is_and_how_far_numbers_go() {
        let number = json!({ "type": ["integer", "null"], "format": "int64", "minimum": 0 });
        let mut document = json!({ "paths": { "/api/v1/jobs": { "get": { "parameters": [
            { "name": "limit", "schema": number }, { "name": "door", "schema": {} },
        ] } } } });
        precise(&mut document);
        let parameters = document.pointer("/paths/~1api~1v1~1jobs/get/parameters").unwrap();
        assert_eq!(
            parameters[0]["schema"],
            json!({ "type": "integer", "minimum": 1, "maximum": 1000 })
        );
        assert_eq!(parameters[1]["schema"]["enum"][0], "api");
    }

    #[test]
    fn a_body_that_may_be_left_out_is_not_null() {
        let one = json!({ "$ref": "#/components/schemas/X" });
        let mut document = json!({ "paths": { "/x": { "post": { "requestBody": { "content": {
            "application/json": { "schema": { "oneOf": [{ "type": "null" }, one] } },
        } } } } } });
        precise(&mut document);
        let body = document.pointer("/paths/~1x/post/requestBody/content/application~1json");
        assert_eq!(body.unwrap(), &json!({ "schema": one }));
    }
}
