//! The API's description: as OpenAPI, and as one page that needs no network and no script.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::api::Api;
use spindle_http::Code;

/// The page loads nothing, and runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

pub(crate) async fn openapi(State(api): State<Api>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], api.openapi().to_owned()).into_response()
}

pub(crate) async fn docs(State(api): State<Api>) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let policy = HeaderValue::from_static(POLICY);
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, api.page().to_owned()).into_response()
}

/// The document for people.
pub(crate) fn page(document: &Value) -> String {
    let mut page = String::from(HEAD);
    for (path, operations) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            put_operation(&mut page, path, method, operation);
        }
    }
    page.push_str("<h2>Types</h2>");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        put_schema(&mut page, name, schema);
    }
    page.push_str("<h2>Problems</h2><table><tr><th>code<th>status<th>what it means</tr>");
    for code in Code::ALL {
        put(
            &mut page,
            &[
                "<tr><td><code>",
                code.as_str(),
                "</code><td>",
                code.status().as_str(),
                "<td>",
                code.title(),
                "</tr>",
            ],
        );
    }
    page.push_str("</table>");
    page
}

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Spindle API</title>\
<meta name=viewport content='width=device-width'><style>\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;\
margin:2rem auto;padding:0 1rem}code,pre{font-family:ui-monospace,monospace}\
h3{margin:2rem 0 0}h3 b{text-transform:uppercase;font-size:.8em}td,th{text-align:left;\
vertical-align:top;padding:.2rem 1rem .2rem 0}details{margin:.5rem 0}</style>\
<h1>Spindle API</h1><p>The same as a document for programs: \
<a href=/api/openapi.json>openapi.json</a>.";

/// Puts texts that are markup and texts that are not in turns: the odd ones are escaped.
fn put(page: &mut String, parts: &[&str]) {
    for (at, part) in parts.iter().enumerate() {
        if at % 2 == 0 {
            page.push_str(part);
        } else {
            put_escaped(page, part);
        }
    }
}

fn put_escaped(page: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '&' => page.push_str("&amp;"),
            '"' => page.push_str("&quot;"),
            other => page.push(other),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn put_operation(page: &mut String, path: &str, method: &str, operation: &Value) {
    put(
        page,
        &[
            "<h3><b>",
            method,
            "</b> <code>",
            path,
            "</code></h3><p>",
            text(&operation["summary"]),
            " ",
            text(&operation["description"]),
            "</p>",
        ],
    );
    let parameters = operation["parameters"].as_array();
    if parameters.is_some_and(|all| !all.is_empty()) {
        page.push_str("<table><tr><th>parameter<th>where<th></tr>");
        for parameter in parameters.into_iter().flatten() {
            put(
                page,
                &[
                    "<tr><td><code>",
                    text(&parameter["name"]),
                    "</code><td>",
                    text(&parameter["in"]),
                    "<td>",
                    text(&parameter["description"]),
                    "</tr>",
                ],
            );
        }
        page.push_str("</table>");
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if let Some(name) = type_name(body) {
        put(page, &["<p>Body: <code>", &name, "</code></p>"]);
    }
    page.push_str("<table>");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let schema = response["content"].as_object().and_then(|content| content.values().next());
        let name = schema.and_then(|content| type_name(&content["schema"])).unwrap_or_default();
        put(
            page,
            &[
                "<tr><td>",
                status,
                "<td>",
                text(&response["description"]),
                "<td><code>",
                &name,
                "</code></tr>",
            ],
        );
    }
    page.push_str("</table>");
}

/// The type of a value that may be anything.
const ANY: &str = "any JSON";

/// A schema in a few letters.
fn type_name(schema: &Value) -> Option<String> {
    if let Some(target) = schema["$ref"].as_str() {
        return target.rsplit('/').next().map(str::to_owned);
    }
    if schema["type"].is_null() {
        let all =
            ["oneOf", "allOf", "anyOf"].into_iter().filter_map(|word| schema[word].as_array());
        let names = all.flatten().filter_map(type_name);
        let names: Vec<String> = names.filter(|name| name != "null" && name != ANY).collect();
        if !names.is_empty() {
            return Some(names.join(" or "));
        }
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().map(text).filter(|name| *name != "null").collect();
            names.join(" or ")
        }
        _ if schema.is_object() => ANY.to_owned(),
        _ => return None,
    };
    if name == "array" {
        let items = type_name(&schema["items"]).unwrap_or_default();
        return Some(format!("list of {items}"));
    }
    Some(name)
}

fn put_schema(page: &mut String, name: &str, schema: &Value) {
    put(
        page,
        &[
            "<details><summary><code>",
            name,
            "</code> ",
            text(&schema["description"]),
            "</summary><table>",
        ],
    );
    let parts = schema["allOf"].as_array().into_iter().flatten();
    for part in parts.chain([schema]) {
        for (field, of) in part["properties"].as_object().into_iter().flatten() {
            let kind = type_name(of).unwrap_or_default();
            put(
                page,
                &[
                    "<tr><td><code>",
                    field,
                    "</code><td>",
                    &kind,
                    "<td>",
                    text(&of["description"]),
                    "</tr>",
                ],
            );
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<&str> = values.iter().map(text).collect();
        let _ = write!(page, "<tr><td>");
        put_escaped(page, &values.join(", "));
    }
    page.push_str("</table></details>");
}
