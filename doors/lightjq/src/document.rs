//! The OpenAPI document, with what types cannot say.

use serde_json::{Value, json};
use spindle_http::document::{complete, operations, parameters, properties, put, schemas};
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
    for (_, operation) in operations(&mut document) {
        for parameter in parameters(operation).filter(|it| it["name"] == "worker-id") {
            put(&mut parameter["schema"], json!({ "format": "uuid" }));
        }
    }
    for (name, schema) in schemas(&mut document) {
        for (property, schema) in properties(schema) {
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
