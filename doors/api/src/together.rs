//! Rules between the fields of a body, such as which of two fields for the same value may be given,
//! what an action needs and what an operator takes. The document states them as far as JSON Schema
//! can.

use serde_json::{Value, json};
use spindle_core::job::AFTER_MAX;
use spindle_core::queue::{FAIR_KEY_BYTES_MAX, FAIR_WEIGHT_MAX, FAIR_WEIGHTS_MAX};
use spindle_http::document::{branch, put, said, unsaid};
use utoipa::{PartialSchema, ToSchema};

use crate::fair::Fair;
use crate::filter::JobFilter;
use crate::portable::Portable;
use crate::routes::batches::NewBatch;
use crate::routes::bulk::BulkBody;
use crate::routes::jobs::{EditBody, RetryBody};
use crate::routes::leases::{CompleteBody, FailBody, LeaseBody};
use crate::routes::submit::BatchBody;
use crate::routes::transfer::ImportBody;
use crate::submit::NewJobBody;

/// The rules for schemas as a whole, and for the jobs of a batch.
pub(crate) fn of_schemas() -> Vec<(String, Value)> {
    let one_queue = json!({ "oneOf": [said("queue", "string"), said("queue_base64", "string")] });
    let queue_once = json!({ "anyOf": [unsaid(&["queue"]), unsaid(&["queue_base64"])] });
    let new_job = json!({ "allOf": [one_queue.clone(), { "oneOf": bytes("payload") }] });
    let job = json!({ "$ref": format!("#/components/schemas/{}", NewJobBody::name()) });
    let portable = json!({ "$ref": format!("#/components/schemas/{}", Portable::name()) });
    let [any, imported] = [job, portable]
        .map(|job| json!({ "anyOf": [job, { "description": "Refused for itself" }] }));
    let of = |name: std::borrow::Cow<'static, str>, more| (name.into_owned(), more);
    vec![
        of(NewJobBody::name(), new_job),
        of(NewBatch::name(), one_queue.clone()),
        of(RetryBody::name(), json!({ "oneOf": bytes("payload") })),
        of(CompleteBody::name(), json!({ "oneOf": bytes("result") })),
        of(FailBody::name(), json!({ "oneOf": bytes("result") })),
        of(EditBody::name(), queue_once),
        of(BulkBody::name(), json!({ "anyOf": bulk() })),
        of(JobFilter::name(), json!({ "anyOf": any_field() })),
        of(LeaseBody::name(), json!({ "anyOf": lists_of_queues() })),
        (format!("{}/properties/weights", Fair::name()), weights()),
        (format!("{}/properties/after", NewJobBody::name()), json!({ "maxItems": AFTER_MAX })),
        (format!("{}/properties/jobs", BatchBody::name()), json!({ "items": any })),
        (format!("{}/properties/jobs", ImportBody::name()), json!({ "items": imported })),
    ]
}

/// A job that is submitted alone names others by their numbers: a `ref` is for jobs of a batch.
pub(crate) fn name_by_number_alone(document: &mut Value) {
    let body = "/paths/~1api~1v1~1jobs/post/requestBody/content/application~1json/schema";
    let Some(schema) = document.pointer_mut(body) else { return };
    let number = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
    let numbers = json!({ "properties": { "after": { "items": number } } });
    *schema = json!({ "allOf": [schema.take(), numbers] });
}

fn weights() -> Value {
    json!({
        "maxProperties": FAIR_WEIGHTS_MAX,
        "propertyNames": { "maxLength": FAIR_KEY_BYTES_MAX },
        "additionalProperties": { "type": "integer", "minimum": 1, "maximum": FAIR_WEIGHT_MAX },
    })
}

/// A filter has at least one field.
fn any_field() -> Vec<Value> {
    let filter = serde_json::to_value(JobFilter::schema()).unwrap_or_default();
    let fields = filter["properties"].as_object().into_iter().flatten();
    fields.map(|(field, _)| said(field, "string")).collect()
}

/// A lease names queues in one list or in two.
fn lists_of_queues() -> [Value; 3] {
    let lists = |plain: [u32; 2], coded: [u32; 2]| {
        let list = |[least, most]: [u32; 2]| json!({ "minItems": least, "maxItems": most });
        json!({ "queues": list(plain), "queues_base64": list(coded) })
    };
    [
        branch(&["queues"], lists([1, 1024], [0, 0])),
        branch(&["queues_base64"], lists([0, 0], [1, 1024])),
        branch(&["queues", "queues_base64"], lists([1, 512], [1, 512])),
    ]
}

/// Bytes come as JSON, in base64, or not at all, and their type goes with that. JSON in base64 is
/// taken as well; no schema can say which that is, so this promises less.
fn bytes(name: &str) -> Vec<Value> {
    let (coded, kind) = (format!("{name}_base64"), format!("{name}_type"));
    let none = json!({ "type": "null" });
    let text = json!({ "type": "string", "format": "base64" });
    vec![
        branch(&[name], json!({ &coded: none, &kind: { "enum": ["json", null] } })),
        branch(
            &[&coded],
            json!({ name: false, &coded: text, &kind: { "enum": ["bytes", "msgpack", null] } }),
        ),
        branch(&[], json!({ name: false, &coded: none, &kind: none })),
    ]
}

/// Only the action `edit` has fields to change, and it has at least one.
fn bulk() -> Vec<Value> {
    let edit = |field: &str, kind: &str, others: &[&str]| {
        let mut way = unsaid(others);
        put(&mut way["properties"], json!({ field: { "type": kind } }));
        put(&mut way["properties"], json!({ "action": { "const": "edit" } }));
        way["required"] = json!([field]);
        way
    };
    let mut others = unsaid(&["queue", "queue_base64", "priority", "run_at"]);
    others["properties"]["action"] =
        json!({ "enum": ["cancel", "delete", "retry", "park", "release", "undo"] });
    vec![
        edit("queue", "string", &["queue_base64"]),
        edit("queue_base64", "string", &["queue"]),
        edit("priority", "integer", &["queue", "queue_base64"]),
        edit("run_at", "string", &["queue", "queue_base64", "priority"]),
        others,
    ]
}
