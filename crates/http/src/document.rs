//! What an OpenAPI document cannot take from types: bounds of integers, fields that go together,
//! and all that about constraints, whose bodies two doors share.

use serde_json::{Map, Value, json};
use spindle_core::RATE_MAX;

/// A JSON Pointer, as far as constraints take one.
const POINTER: &str = "^(/([^/~]|~[01])*){0,32}$";
/// The longest value of a condition, in bytes.
const VALUE_BYTES_MAX: usize = 1024;

/// Tells what a document says of constraints, and bounds the integers of all its schemas and
/// parameters.
pub fn complete(document: &mut Value) {
    for (_, operation) in operations(document) {
        parameters(operation).filter_map(|it| it.get_mut("schema")).for_each(plain);
    }
    for (name, schema) in schemas(document) {
        for (property, schema) in properties(schema) {
            bound(schema);
            if let Some(more) = of_constraint(name, property) {
                put(schema, more);
            }
        }
        match name {
            "ConstraintBody" => {
                let queue_once = json!({ "anyOf": [unsaid(&["queue"]), unsaid(&["queue_glob"])] });
                let limits = [said("rate", "object"), said("running_max", "integer")];
                put(schema, json!({ "allOf": [{ "anyOf": limits }, queue_once] }));
            }
            "ConditionBody" => put(schema, json!({ "anyOf": condition() })),
            _ => {}
        }
    }
}

/// All operations of a document, each with its path.
pub fn operations(document: &mut Value) -> impl Iterator<Item = (&str, &mut Value)> {
    let paths = entries(document.get_mut("paths"));
    paths.flat_map(|(path, item)| entries(Some(item)).map(move |(_, it)| (path, it)))
}

/// The parameters of an operation.
pub fn parameters(operation: &mut Value) -> impl Iterator<Item = &mut Value> {
    operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten()
}

/// The named schemas of a document.
pub fn schemas(document: &mut Value) -> impl Iterator<Item = (&str, &mut Value)> {
    entries(document.pointer_mut("/components/schemas"))
}

/// The properties of a schema.
pub fn properties(schema: &mut Value) -> impl Iterator<Item = (&str, &mut Value)> {
    entries(schema.get_mut("properties"))
}

fn entries(map: Option<&mut Value>) -> impl Iterator<Item = (&str, &mut Value)> {
    let entries = map.and_then(Value::as_object_mut).into_iter().flatten();
    entries.map(|(name, value)| (name.as_str(), value))
}

/// A parameter is there or not; no text of it is null.
fn plain(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &types[..] {
            schema["type"] = only.clone();
        }
    }
    bound(schema);
}

/// Integers are told with the bounds of their types, some of which `format` has no word for.
fn bound(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let is_unsigned = schema.get("minimum").is_some_and(|minimum| *minimum == 0);
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

fn of_constraint(schema: &str, property: &str) -> Option<Value> {
    Some(match (schema, property) {
        ("ConstraintBody", "queue" | "queue_glob") => json!({ "minLength": 1, "maxLength": 512 }),
        ("ConstraintBody", "per") | ("ConditionBody", "pointer") => {
            json!({ "format": "json-pointer", "pattern": POINTER, "maxLength": 256 })
        }
        ("ConstraintBody", "where") => json!({ "maxItems": 16 }),
        ("RateBody", _) => json!({ "minimum": 1, "maximum": RATE_MAX }),
        _ => return None,
    })
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

/// Adds keywords to a schema, before those that are there.
pub fn put(schema: &mut Value, more: Value) {
    if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
        schema.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_bounds_of_their_types_and_parameters_are_not_null() {
        let number = json!({ "type": ["integer", "null"], "format": "int64", "minimum": 0 });
        let signed = json!({ "type": "integer", "format": "int32" });
        let mut document = json!({
            "paths": { "/x": { "get": { "parameters": [{ "name": "limit", "schema": number }] } } },
            "components": { "schemas": {
                "X": { "properties": { "count": number, "rank": signed } },
            } },
        });
        complete(&mut document);
        let bounded = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
        assert_eq!(document["paths"]["/x"]["get"]["parameters"][0]["schema"], bounded);
        let properties = &document["components"]["schemas"]["X"]["properties"];
        assert_eq!(properties["count"]["maximum"], u64::MAX);
        assert_eq!(properties["count"]["type"], json!(["integer", "null"]));
        let bounds = (&properties["rank"]["minimum"], &properties["rank"]["maximum"]);
        assert_eq!(bounds, (&json!(i32::MIN), &json!(i32::MAX)));
    }
}
