//! The parts of an OpenAPI document that types cannot give: bounds of integers, the formats that several
//! fields share, fields that go together, and the bodies of problems.
//!
//! Bounds stand beside their fields, in attributes. Attributes take literals only: where one
//! repeats a constant that is checked, a test compares the two.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::constraint::{ConditionBody, ConstraintBody};
use crate::problem::ProblemBody;

/// A JSON Pointer, as far as constraints take one.
const POINTER: &str = "^(/([^/~]|~[01])*){0,32}$";
/// The same, or the word for keys.
const PER: &str = "^((/([^/~]|~[01])*){0,32}|fair_key)$";
/// The longest value of a condition, in bytes.
const VALUE_BYTES_MAX: usize = 1024;

/// What is added to the document that a door's types give.
pub struct Supplement {
    /// The media types of bodies. Types are described with `application/json` only.
    pub bodies: &'static [&'static str],
    /// The media types of problems: the body of every answer from 400 that names no other.
    pub problems: &'static [&'static str],
    /// Each `format` of a field that is a name for keywords of JSON Schema, and those.
    pub formats: Vec<(&'static str, Value)>,
    /// Schemas, or places in them (`Name/properties/field`), and the keywords added there.
    pub schemas: Vec<(String, Value)>,
}

impl Supplement {
    /// Completes a document.
    pub fn complete(mut self, document: &mut Value) {
        self.formats.push((
            "constraint-pointer",
            json!({ "format": "json-pointer", "pattern": POINTER, "maxLength": 256 }),
        ));
        self.formats.push(("constraint-per", json!({ "pattern": PER, "maxLength": 256 })));
        self.schemas.extend(of_constraints());
        for operation in operations(document) {
            self.complete_operation(operation);
        }
        for (place, more) in &self.schemas {
            let place = format!("/components/schemas/{place}");
            // A document need not have all schemas that doors share.
            if let Some(schema) = document.pointer_mut(&place) {
                put(schema, more.clone());
            }
        }
        self.complete_schemas(document);
    }

    fn complete_operation(&self, operation: &mut Value) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            refine_parameter(&mut parameter["schema"]);
        }
        if let Some(content) = operation.pointer_mut("/requestBody/content") {
            if let Some(body) = content.get_mut("application/json") {
                refine_body(body);
            }
            self.in_all_types(content);
        }
        for (status, response) in entries(operation.get_mut("responses")) {
            match response.get_mut("content") {
                Some(content) => self.in_all_types(content),
                None if status.starts_with(['4', '5']) => {
                    let target = format!("#/components/schemas/{}", ProblemBody::name());
                    let body = json!({ "schema": { "$ref": target } });
                    response["content"] = in_types(self.problems, &body);
                }
                None => {}
            }
        }
    }

    fn in_all_types(&self, content: &mut Value) {
        if let Some(body) = content.get("application/json") {
            *content = in_types(self.bodies, body);
        }
    }

    /// Replaces formats by what they stand for, at any depth.
    fn complete_schemas(&self, value: &mut Value) {
        let known = self.formats.iter().find(|(name, _)| value["format"] == *name);
        match known {
            Some((_, keywords)) => replace_format(value, keywords),
            None => bound(value),
        }
        match value {
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.complete_schemas(value));
            }
            Value::Array(values) => {
                values.iter_mut().for_each(|value| self.complete_schemas(value));
            }
            _ => {}
        }
    }
}

fn in_types(types: &[&str], body: &Value) -> Value {
    types.iter().map(|kind| ((*kind).to_owned(), body.clone())).collect()
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = entries(document.get_mut("paths"));
    paths.flat_map(|(_, path)| entries(Some(path)).map(|(_, operation)| operation))
}

fn entries(map: Option<&mut Value>) -> impl Iterator<Item = (&str, &mut Value)> {
    let entries = map.and_then(Value::as_object_mut).into_iter().flatten();
    entries.map(|(name, value)| (name.as_str(), value))
}

/// An optional body may be left out, but not be null.
fn refine_body(body: &mut Value) {
    let Some(choices) = body.pointer_mut("/schema/oneOf").and_then(Value::as_array_mut) else {
        return;
    };
    choices.retain(|choice| choice["type"] != "null");
    if let [only] = &choices[..] {
        body["schema"] = only.clone();
    }
}

/// An optional parameter may be left out, but no text of it stands for null.
fn refine_parameter(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &types[..] {
            schema["type"] = only.clone();
        }
    }
}

/// Puts the keywords in the place of the format that names them. A value that may be null still may be.
fn replace_format(schema: &mut Value, keywords: &Value) {
    let nullable = schema["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let Some(members) = schema.as_object_mut() else { return };
    members.remove("format");
    put(schema, keywords.clone());
    for (choices, null) in [("enum", Value::Null), ("anyOf", json!({ "type": "null" }))] {
        if let Some(choices) = schema.get_mut(choices).filter(|_| nullable) {
            choices.as_array_mut().into_iter().for_each(|choices| choices.push(null.clone()));
        }
    }
}

/// Integers get the bounds of their types, some of which `format` has no word for.
fn bound(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let is_unsigned = schema.get("minimum").is_some_and(|minimum| minimum.is_u64());
    let (least, most) = match (schema.get("format").and_then(Value::as_str), is_unsigned) {
        (Some("int64"), true) => (json!(0), json!(u64::MAX)),
        (Some("int32"), true) => (json!(0), json!(u32::MAX)),
        (Some("int64"), false) => (json!(i64::MIN), json!(i64::MAX)),
        (Some("int32"), false) => (json!(i32::MIN), json!(i32::MAX)),
        _ => return,
    };
    schema.remove("format");
    schema.entry("minimum").or_insert(least);
    schema.entry("maximum").or_insert(most);
}

fn of_constraints() -> [(String, Value); 2] {
    let queue_once = json!({ "anyOf": [unsaid(&["queue"]), unsaid(&["queue_glob"])] });
    let limits = json!({ "anyOf": [said("rate", "object"), said("running_max", "integer")] });
    [
        (ConstraintBody::name().into_owned(), json!({ "allOf": [limits, queue_once] })),
        (ConditionBody::name().into_owned(), json!({ "anyOf": condition() })),
    ]
}

/// What each operator takes.
fn condition() -> Vec<Value> {
    let scalar = |kinds: &[&str]| json!({ "type": kinds, "maxLength": VALUE_BYTES_MAX });
    let any = scalar(&["string", "number", "boolean", "null"]);
    let none = json!({ "type": "null" });
    let one = |ops: &[&str], value: Value| {
        let fields = json!({ "op": { "enum": ops }, "value": value, "values": none });
        branch(&["value"], fields)
    };
    let many = json!({ "type": "array", "items": any, "minItems": 1, "maxItems": 64 });
    vec![
        one(&["eq", "ne"], any),
        one(&["lt", "le", "gt", "ge"], scalar(&["string", "number"])),
        one(&["glob"], scalar(&["string"])),
        branch(&["values"], json!({ "op": { "enum": ["in"] }, "value": false, "values": many })),
        branch(
            &[],
            json!({ "op": { "enum": ["exists", "absent"] }, "value": false, "values": none }),
        ),
    ]
}

/// One way in which fields may go together.
pub fn branch(required: &[&str], properties: Value) -> Value {
    let mut branch = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        branch["required"] = json!(required);
    }
    branch
}

/// A field is there and is not null.
pub fn said(field: &str, kind: &str) -> Value {
    branch(&[field], json!({ field: { "type": kind } }))
}

/// Fields are not there, or null.
pub fn unsaid(fields: &[&str]) -> Value {
    let nulls = fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "null" })));
    branch(&[], Value::Object(nulls.collect::<Map<_, _>>()))
}

/// Adds keywords to a schema; those replace its own.
pub fn put(schema: &mut Value, more: Value) {
    if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
        schema.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use spindle_core::RATE_MAX;
    use utoipa::PartialSchema;

    use super::*;
    use crate::constraint::RateBody;

    fn completed(mut document: Value) -> Value {
        let (bodies, problems) = (&["application/json"], &["application/problem+json"]);
        let formats = vec![("colour", json!({ "enum": ["red"] }))];
        Supplement { bodies, problems, formats, schemas: Vec::new() }.complete(&mut document);
        document
    }

    #[test]
    fn integers_have_the_bounds_of_their_types_and_parameters_are_not_null() {
        let number = json!({ "type": ["integer", "null"], "format": "int64", "minimum": 0 });
        let signed = json!({ "type": "integer", "format": "int32" });
        let document = completed(json!({
            "paths": { "/x": { "get": { "parameters": [{ "name": "limit", "schema": number }] } } },
            "components": { "schemas": {
                "X": { "properties": { "count": number, "rank": signed } },
            } },
        }));
        let bounded = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
        assert_eq!(document["paths"]["/x"]["get"]["parameters"][0]["schema"], bounded);
        let properties = &document["components"]["schemas"]["X"]["properties"];
        assert_eq!(properties["count"]["maximum"], u64::MAX);
        assert_eq!(properties["count"]["type"], json!(["integer", "null"]));
        let bounds = (&properties["rank"]["minimum"], &properties["rank"]["maximum"]);
        assert_eq!(bounds, (&json!(i32::MIN), &json!(i32::MAX)));
    }

    #[test]
    fn a_body_that_may_be_left_out_is_not_null() {
        let one = json!({ "$ref": "#/components/schemas/X" });
        let document =
            completed(json!({ "paths": { "/x": { "post": { "requestBody": { "content": {
            "application/json": { "schema": { "oneOf": [{ "type": "null" }, one] } },
        } } } } } }));
        let body = document.pointer("/paths/~1x/post/requestBody/content/application~1json");
        assert_eq!(body.unwrap(), &json!({ "schema": one }));
    }

    #[test]
    fn a_format_gives_way_to_its_keywords_and_null_stays_allowed() {
        let texts = ["string", "null"];
        let document = completed(json!({ "components": { "schemas": { "X": { "properties": {
            "must": { "type": "string", "format": "colour" },
            "may": { "type": texts, "format": "colour" },
            "many": { "type": "array", "items": { "type": "string", "format": "colour" } },
        } } } } }));
        let properties = &document["components"]["schemas"]["X"]["properties"];
        let red = json!({ "type": "string", "enum": ["red"] });
        assert_eq!((&properties["must"], &properties["many"]["items"]), (&red, &red));
        assert_eq!(properties["may"], json!({ "type": texts, "enum": ["red", null] }));
    }

    #[test]
    fn errors_without_a_body_are_problems_and_bodies_are_in_all_types() {
        let mut document = json!({ "paths": { "/x": { "get": { "responses": {
            "200": { "content": { "application/json": { "schema": 1 } } },
            "204": {}, "409": { "content": { "text/plain": {} } }, "4XX": {},
        } } } } });
        let (bodies, problems) = (&["application/json", "application/x"], &["application/x"]);
        let (formats, schemas) = (Vec::new(), Vec::new());
        Supplement { bodies, problems, formats, schemas }.complete(&mut document);
        let responses = &document["paths"]["/x"]["get"]["responses"];
        let problem = json!({ "schema": { "$ref": "#/components/schemas/ProblemBody" } });
        assert_eq!(responses["4XX"], json!({ "content": { "application/x": problem } }));
        assert_eq!(responses["200"]["content"]["application/x"], json!({ "schema": 1 }));
        assert_eq!(responses["204"], json!({}));
        assert_eq!(responses["409"], json!({ "content": { "text/plain": {} } }));
    }

    #[test]
    fn the_bounds_of_a_rate_are_those_that_are_checked() {
        let rate = serde_json::to_value(RateBody::schema()).unwrap();
        for field in ["count", "per_ms", "burst"] {
            assert_eq!(rate["properties"][field]["maximum"], RATE_MAX, "{field}");
        }
    }

    /// The server takes what the document allows, and refuses one more.
    #[test]
    fn the_bounds_of_a_matcher_are_those_that_are_checked() {
        let body = serde_json::to_value(ConstraintBody::schema()).unwrap();
        let most = |field: &str, word: &str| {
            let bound = body["properties"][field][word].as_u64();
            usize::try_from(bound.unwrap()).unwrap()
        };
        let is_taken = |put: &dyn Fn(&mut Value)| {
            let mut constraint = json!({ "running_max": 1 });
            put(&mut constraint);
            let body: ConstraintBody = serde_json::from_value(constraint).unwrap();
            body.into_spec().is_ok()
        };
        for more in [0, 1] {
            for field in ["queue", "queue_glob"] {
                let name = "q".repeat(most(field, "maxLength") + more);
                assert_eq!(is_taken(&|body| body[field] = json!(name)), more == 0, "{field}");
            }
            let condition = json!({ "pointer": "/a", "op": "exists" });
            let conditions = vec![condition; most("where", "maxItems") + more];
            assert_eq!(is_taken(&|body| body["where"] = json!(conditions)), more == 0);
        }
        assert!(!is_taken(&|body| body["queue"] = json!("")));
    }
}
