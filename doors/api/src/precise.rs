//! What the types of the handlers cannot say: which texts are names of jobs, tokens and places, how
//! large numbers may be. One table, so that the OpenAPI document promises what the handlers take.

use serde_json::{Map, Value, json};

/// A job by its number, its Gearman handle or its UUID.
const JOB: &str = "^([1-9][0-9]{0,14}|H:[A-Za-z0-9._-]{1,64}:[1-9][0-9]{0,14}|\
                   [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$";
/// Twenty bytes in base64 without padding: the last letter has two bits left over.
const TOKEN: &str = "^[A-Za-z0-9_-]{26}[AEIMQUYcgkosw048]$";
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
const FEED: &str = "^[0-9]{1,15}\\.[0-9]{1,9}$";
const FEED_OR_OLDEST: &str = "^(oldest|[0-9]{1,15}\\.[0-9]{1,9})$";
const TAG: &str = "^(\\*|\"[0-9]{1,9}\")$";
const KEY: &str = "^[!-~]{1,255}$";
const TIME: &str = "^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):\
                    [0-5][0-9]:[0-5][0-9](\\.[0-9]{1,3})?Z$";
const STATUSES: &str = "^(scheduled|ready|leased|parked|done|dead)\
                        (,(scheduled|ready|leased|parked|done|dead)){0,5}$";
const DOORS: [&str; 6] = ["api", "workq", "gearman", "gearman_draft", "lightjq", "jobq"];

/// Makes a document say it.
pub(crate) fn precise(document: &mut Value) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, operations) in paths.into_iter().flatten() {
        for operation in operations.as_object_mut().into_iter().flatten().map(|(_, it)| it) {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                refine_parameter(path, parameter);
            }
        }
    }
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    for (name, schema) in schemas.into_iter().flatten() {
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (property, schema) in properties.into_iter().flatten() {
            refine_number(schema);
            if let Some(more) = of_property(name, property) {
                put(schema, more);
            }
        }
        if let Some(more) = of_schema(name) {
            put(schema, more);
        }
    }
}

fn refine_parameter(path: &str, parameter: &mut Value) {
    let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(schema) = parameter.get_mut("schema") else { return };
    // A parameter is there or not; no text of it is null.
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &types[..] {
            schema["type"] = only.clone();
        }
    }
    refine_number(schema);
    if let Some(more) = of_parameter(path, &name) {
        put(schema, more);
    }
}

/// Unsigned numbers are told as signed ones of 64 bits, which have another maximum.
fn refine_number(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let is_unsigned = schema.get("minimum").is_some_and(|minimum| *minimum == 0);
    let most = match schema.get("format").and_then(Value::as_str) {
        Some("int64") if is_unsigned => json!(u64::MAX),
        Some("int32") if is_unsigned => json!(u32::MAX),
        _ => return,
    };
    schema.remove("format");
    schema.entry("maximum").or_insert(most);
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
        "cursor" if is_of("/buckets") => json!({ "pattern": "^[0-9a-fA-F]{16}$" }),
        "wait_s" => json!({ "minimum": 0, "maximum": 300 }),
        "after" => json!({ "pattern": FEED_OR_OLDEST }),
        "Last-Event-ID" => json!({ "pattern": FEED }),
        "Idempotency-Key" => json!({ "pattern": KEY }),
        "If-Match" => json!({ "pattern": TAG }),
        "queue" | "unique_key" | "idempotency_key" | "text" => {
            json!({ "minLength": 1, "maxLength": 255 })
        }
        "queue_base64" => json!({ "pattern": BASE64, "minLength": 4, "maxLength": 680 }),
        "status" => json!({ "pattern": STATUSES }),
        "door" => json!({ "enum": DOORS }),
        "created_from" | "created_before" => json!({ "format": "date-time", "pattern": TIME }),
        _ => return None,
    })
}

fn of_property(schema: &str, property: &str) -> Option<Value> {
    Some(match (schema, property) {
        (_, "queue_base64") => json!({ "pattern": BASE64, "minLength": 4, "maxLength": 680 }),
        (_, "payload_base64" | "result_base64") => json!({ "pattern": BASE64 }),
        (_, "created_from" | "created_before") => json!({ "pattern": TIME }),
        ("NewJobBody" | "EditBody" | "BulkBody", "run_at") => json!({ "pattern": TIME }),
        ("NewJobBody" | "EditBody" | "BulkBody" | "JobFilter", "queue") => {
            json!({ "minLength": 1, "maxLength": 512 })
        }
        ("JobFilter", "status") => json!({ "pattern": STATUSES }),
        ("NewJobBody", "tags") => {
            json!({ "maxItems": 64,
                "items": { "type": "string", "minLength": 1, "maxLength": 128 } })
        }
        ("NewJobBody", "ttr_ms") => json!({ "minimum": 1, "maximum": u32::MAX }),
        ("Unique", "key") => json!({ "minLength": 1, "maxLength": 255 }),
        ("BulkBody", "cursor") => json!({ "pattern": "^[0-9]{1,15}-[0-9]{1,15}$" }),
        ("BatchBody", "jobs") => json!({ "minItems": 1, "maxItems": 1000 }),
        ("LeaseBody", "queues") => {
            json!({ "maxItems": 1024,
                "items": { "type": "string", "minLength": 1, "maxLength": 512 } })
        }
        ("LeaseBody", "queues_base64") => {
            let name = json!({ "type": "string", "pattern": BASE64, "minLength": 4 });
            json!({ "maxItems": 1024, "items": name })
        }
        ("LeaseBody", "wait_s") => json!({ "maximum": 300 }),
        ("LeaseBody", "timeout_ms") => json!({ "minimum": 1 }),
        ("LeaseBody", "worker") => json!({ "maxLength": 256 }),
        ("ExtendBody", "ttr_ms") => json!({ "minimum": 1, "maximum": 2_678_400_000_u64 }),
        ("FailBody", "message" | "error") => json!({ "maxLength": 4096 }),
        ("FailBody", "code") => json!({ "maxLength": 64 }),
        ("Settings", "ttr_default_ms") => json!({ "minimum": 1 }),
        _ => return None,
    })
}

/// Of two fields that say the same in two ways one may be there, or must.
fn of_schema(schema: &str) -> Option<Value> {
    Some(match schema {
        "NewJobBody" => json!({ "oneOf": [has("queue"), has("queue_base64")] }),
        "JobFilter" => json!({ "minProperties": 1 }),
        _ => return None,
    })
}

fn has(field: &str) -> Value {
    let mut properties = Map::new();
    properties.insert(field.to_owned(), json!({ "type": "string" }));
    json!({ "required": [field], "properties": properties })
}

fn put(schema: &mut Value, more: Value) {
    if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
        schema.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_tells_what_a_name_is_and_how_far_numbers_go() {
        let number = json!({ "type": ["integer", "null"], "format": "int64", "minimum": 0 });
        let mut document = json!({
            "paths": { "/api/v1/jobs": { "get": { "parameters": [
                { "name": "limit", "schema": number }, { "name": "door", "schema": {} },
            ] } } },
            "components": { "schemas": { "X": { "properties": { "count": number } } } },
        });
        precise(&mut document);
        let parameters = document.pointer("/paths/~1api~1v1~1jobs/get/parameters").unwrap();
        assert_eq!(
            parameters[0]["schema"],
            json!({ "type": "integer", "minimum": 1, "maximum": 1000 })
        );
        assert_eq!(parameters[1]["schema"]["enum"][0], "api");
        let count = document.pointer("/components/schemas/X/properties/count").unwrap();
        assert_eq!(count["maximum"], u64::MAX);
        assert_eq!(count["type"], json!(["integer", "null"]));
    }
}
