//! The API's description: as OpenAPI, and as one page that needs no network and no script.

use std::fmt::{self, Write as _};

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
    for (path, operations) in members(&document["paths"]) {
        for (method, operation) in members(operations) {
            page += &operation_part(path, method, operation);
        }
    }
    page += "<h2>Types</h2>";
    for (name, schema) in members(&document["components"]["schemas"]) {
        page += &schema_part(name, schema);
    }
    page += "<h2>Problems</h2><table><tr><th>code<th>status<th>what it means</tr>";
    for code in Code::ALL {
        let (name, status, title) = (code.as_str(), code.status(), Text(code.title()));
        page += &format!("<tr><td><code>{name}</code><td>{}<td>{title}</tr>", status.as_str());
    }
    page + "</table>"
}

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Spindle API</title>\
<meta name=viewport content='width=device-width'><style>\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;\
margin:2rem auto;padding:0 1rem}code,pre{font-family:ui-monospace,monospace}\
h3{margin:2rem 0 0}h3 b{text-transform:uppercase;font-size:.8em}td,th{text-align:left;\
vertical-align:top;padding:.2rem 1rem .2rem 0}details{margin:.5rem 0}</style>\
<h1>Spindle API</h1><p>The same as a document for programs: \
<a href=/api/openapi.json>openapi.json</a>.";

/// A text in a page, its markup escaped.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            other => f.write_char(other),
        })
    }
}

fn text(value: &Value) -> Text<'_> {
    Text(value.as_str().unwrap_or_default())
}

fn members(map: &Value) -> impl Iterator<Item = (&str, &Value)> {
    map.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn operation_part(path: &str, method: &str, operation: &Value) -> String {
    let (summary, more) = (text(&operation["summary"]), text(&operation["description"]));
    let (method, path) = (Text(method), Text(path));
    let mut part = format!("<h3><b>{method}</b> <code>{path}</code></h3><p>{summary} {more}</p>");
    if items(&operation["parameters"]).next().is_some() {
        part += "<table><tr><th>parameter<th>where<th></tr>";
        for parameter in items(&operation["parameters"]) {
            let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
            let description = text(&parameter["description"]);
            part += &format!("<tr><td><code>{name}</code><td>{place}<td>{description}</tr>");
        }
        part += "</table>";
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if let Some(name) = type_name(body) {
        part += &format!("<p>Body: <code>{}</code></p>", Text(&name));
    }
    part += "<table>";
    for (status, response) in members(&operation["responses"]) {
        let content = members(&response["content"]).next();
        let name = content.and_then(|(_, content)| type_name(&content["schema"]));
        let name = name.unwrap_or_default();
        let (status, description) = (Text(status), text(&response["description"]));
        part += &format!("<tr><td>{status}<td>{description}<td><code>{}</code></tr>", Text(&name));
    }
    part + "</table>"
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
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
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

fn schema_part(name: &str, schema: &Value) -> String {
    let (name, description) = (Text(name), text(&schema["description"]));
    let mut part = format!("<details><summary><code>{name}</code> {description}</summary><table>");
    for of in items(&schema["allOf"]).chain([schema]) {
        for (field, of) in members(&of["properties"]) {
            let (kind, field) = (type_name(of).unwrap_or_default(), Text(field));
            let (kind, description) = (Text(&kind), text(&of["description"]));
            part += &format!("<tr><td><code>{field}</code><td>{kind}<td>{description}</tr>");
        }
    }
    if schema["enum"].is_array() {
        let values: Vec<&str> = items(&schema["enum"]).filter_map(Value::as_str).collect();
        part += &format!("<tr><td>{}", Text(&values.join(", ")));
    }
    part + "</table></details>"
}
