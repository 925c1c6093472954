//! Matchers tried on any payload: `serde_json` says what is where, and a payload must give the same
//! in JSON and in MessagePack. The fuzz target `constraint_matchers` checks the same with more
//! bytes.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;
use spindle_core::Type;

use crate::path::MatchPath;
use crate::{Condition, Matcher, Scalar, Test};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-300..300_i64).prop_map(Value::from),
        // Numbers that text and bytes both hold to the last digit.
        any::<i32>().prop_map(|halves| Value::from(f64::from(halves) / 2.0)),
        "[a-c~/0-9é\"\\\\ ]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 20, |inner| {
        let key = "[ab~/012é]{0,3}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..18).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..18)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// All places in a value, as JSON Pointers.
fn places(value: &Value, pointer: &str, all: &mut Vec<String>) {
    all.push(pointer.to_owned());
    match value {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                places(item, &format!("{pointer}/{place}"), all);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(member, &format!("{pointer}/{key}"), all);
            }
        }
        _ => {}
    }
}

/// A value as MessagePack.
fn packed(value: &Value, out: &mut Vec<u8>) {
    let head = |out: &mut Vec<u8>, code: u8, count: usize| {
        out.push(code);
        out.extend_from_slice(&(count as u32).to_be_bytes());
    };
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(flag) => out.push(0xc2 + u8::from(*flag)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number @ -32..128), _) => out.push(number as u8),
            (Some(number), _) => {
                out.push(0xd3);
                out.extend_from_slice(&number.to_be_bytes());
            }
            (None, Some(number)) => {
                out.push(0xcf);
                out.extend_from_slice(&number.to_be_bytes());
            }
            (None, None) => {
                out.push(0xcb);
                out.extend_from_slice(&number.as_f64().unwrap().to_be_bytes());
            }
        },
        Value::String(text) => {
            head(out, 0xdb, text.len());
            out.extend_from_slice(text.as_bytes());
        }
        Value::Array(items) => {
            head(out, 0xdd, items.len());
            items.iter().for_each(|item| packed(item, out));
        }
        Value::Object(members) => {
            head(out, 0xdf, members.len());
            for (key, member) in members {
                packed(&Value::from(key.as_str()), out);
                packed(member, out);
            }
        }
    }
}

/// What a matcher would say to find exactly this value; none for lists and objects.
fn scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Null => Scalar::Null,
        Value::Bool(flag) => Scalar::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Scalar::Int(number),
            (None, Some(number)) => Scalar::Uint(number),
            (None, None) => Scalar::Float(number.as_f64()?),
        },
        Value::String(text) => Scalar::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

fn matcher(pointer: &str, test: Test) -> Matcher {
    let conditions = vec![Condition { pointer: pointer.to_owned(), test }];
    Matcher { conditions, per: Some(pointer.to_owned()), ..Matcher::default() }
}

/// A field is there, is not, and is this.
fn three(pointer: &str, value: Option<&Value>) -> MatchPath {
    let mut matchers = vec![matcher(pointer, Test::Exists), matcher(pointer, Test::Absent)];
    matchers.extend(value.and_then(scalar).map(|value| matcher(pointer, Test::Eq(value))));
    MatchPath::new(&matchers).unwrap()
}

fn numbers(labels: &[(u32, u64)]) -> Vec<u32> {
    labels.iter().map(|(number, _)| *number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_field_is_where_its_pointer_leads_in_json_and_messagepack(
        value in any_json(),
        place in any::<prop::sample::Index>(),
        elsewhere in "(/[ab~012é-]{0,3}){0,4}",
    ) {
        let mut all = Vec::new();
        places(&value, "", &mut all);
        let there = all[place.index(all.len())].clone();
        let json = value.to_string();
        let mut msgpack = Vec::new();
        packed(&value, &mut msgpack);
        for pointer in [there, elsewhere] {
            let field = value.pointer(&pointer);
            // In a pointer a tilde stands before 0 or 1; a text with any other tilde is not a
            // pointer.
            let is_pointer =
                pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            let Some(path) = is_pointer.then(|| three(&pointer, field)) else {
                prop_assert!(MatchPath::new(&[matcher(&pointer, Test::Exists)]).is_err());
                continue;
            };
            let labels = path.labels(b"q", json.as_bytes(), Type::Json);
            let expected: &[u32] = match field {
                None => &[2],
                Some(Value::Array(_) | Value::Object(_)) => &[1],
                Some(_) => &[1, 3],
            };
            prop_assert_eq!(numbers(&labels), expected, "{} in {}", pointer, json);
            prop_assert_eq!(path.labels(b"q", &msgpack, Type::Msgpack), labels);
            prop_assert_eq!(numbers(&path.labels(b"q", json.as_bytes(), Type::Bytes)), [2]);
        }
    }

    #[test]
    fn spoilt_payloads_are_read_or_have_no_fields(
        value in any_json(),
        place in any::<prop::sample::Index>(),
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut all = Vec::new();
        places(&value, "", &mut all);
        let path = three(&all[place.index(all.len())], None);
        let mut msgpack = Vec::new();
        packed(&value, &mut msgpack);
        for (mut bytes, kind) in [(value.to_string().into_bytes(), Type::Json),
            (msgpack, Type::Msgpack)] {
            for (at, byte) in &spoilt {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            // However much of it is left, the field is either there or not.
            prop_assert_eq!(path.labels(b"q", &bytes, kind).len(), 1);
            if kind == Type::Json && serde_json::from_slice::<IgnoredAny>(&bytes).is_err() {
                prop_assert_eq!(numbers(&path.labels(b"q", &bytes, kind)), [2]);
            }
            bytes.truncate(cut.index(bytes.len()));
            prop_assert_eq!(path.labels(b"q", &bytes, kind).len(), 1);
        }
    }

    #[test]
    fn any_bytes_are_a_payload(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let path = three("/a/0", None);
        for kind in [Type::Bytes, Type::Json, Type::Msgpack] {
            prop_assert_eq!(path.labels(b"q", &bytes, kind).len(), 1);
        }
    }
}
