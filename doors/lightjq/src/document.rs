//! The OpenAPI document, with what types cannot say.

use serde_json::{Value, json};
use spindle_http::document::{complete, put};
use utoipa::openapi::OpenApi;

/// A plain address: no user, no query, a port there is.
const URL: &str = "^http://([A-Za-z0-9.-]+|\\[[0-9a-f:.]+\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|\
                   6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?\
                   (/[A-Za-z0-9._~-]+)*/?$";

/// The document as JSON.
pub(crate) fn json(description: &OpenApi) -> String {
    let mut document =
        serde_json::to_value(description).expect("the document is made of texts and maps");
    complete(&mut document);
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for path in paths.into_iter().flatten().map(|(_, path)| path) {
        for operation in path.as_object_mut().into_iter().flatten().map(|(_, it)| it) {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                if parameter["name"] == "worker-id" {
                    put(&mut parameter["schema"], json!({ "format": "uuid" }));
                }
            }
        }
    }
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    for (name, schema) in schemas.into_iter().flatten() {
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (property, schema) in properties.into_iter().flatten() {
            if let Some(more) = of_property(name, property) {
                put(schema, more);
            }
        }
    }
    document.to_string()
}

fn of_property(schema: &str, property: &str) -> Option<Value> {
    Some(match (schema, property) {
        ("NewWorker", "url") => json!({ "pattern": URL }),
        ("NewWorker", "names") => {
            json!({ "items": { "type": "string", "minLength": 1, "maxLength": 512 } })
        }
        ("Done", "type") => json!({ "enum": ["success", "failure"] }),
        ("Done", "reason") => json!({ "enum": ["timeout", "other", null] }),
        ("Done", "finished_at") => json!({ "maxLength": 64 }),
        ("Done", "message") => json!({ "maxLength": 65536 }),
        ("Job", "status") => json!({ "enum": ["queued", "running", "retrying", "error", "done"] }),
        _ => return None,
    })
}
