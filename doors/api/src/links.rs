//! Links between operations in the OpenAPI document: from the answers that give a number or a token
//! to the requests that take one.

use serde_json::{Map, Value, json};

struct Link {
    /// The answer, as a JSON Pointer into the document.
    answer: &'static str,
    /// The field of its body.
    gives: &'static str,
    /// The parameter it is for.
    parameter: &'static str,
    /// The operations that take it.
    operations: &'static [&'static str],
}

const LINKS: [Link; 3] = [
    Link {
        answer: "/paths/~1api~1v1~1jobs/post/responses/201",
        gives: "id",
        parameter: "id",
        operations: &[
            "show_job",
            "edit_job",
            "delete_job",
            "cancel_job",
            "park_job",
            "release_job",
            "retry_job",
            "wait_for_job",
            "explain_job",
        ],
    },
    Link {
        answer: "/paths/~1api~1v1~1lease/post/responses/200",
        gives: "lease_token",
        parameter: "token",
        operations: &["extend_lease", "complete_lease", "fail_lease", "release_lease"],
    },
    Link {
        answer: "/paths/~1api~1v1~1lease/post/responses/200",
        gives: "id",
        parameter: "id",
        operations: &["extend_job", "show_job", "cancel_job"],
    },
];

/// Puts the links into a document.
pub(crate) fn link(document: &mut Value) {
    for Link { answer, gives, parameter, operations } in LINKS {
        let Some(answer) = document.pointer_mut(answer).and_then(Value::as_object_mut) else {
            continue;
        };
        let links = answer.entry("links").or_insert_with(|| Value::Object(Map::new()));
        for operation in operations {
            links[*operation] = json!({
                "operationId": operation,
                "parameters": { parameter: format!("$response.body#/{gives}") },
            });
        }
    }
}
