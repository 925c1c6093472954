//! MessagePack and JSON into each other.

use proptest::prelude::*;
use rmpv::Value as Packed;
use serde_json::{Value, json};
use spindle_lightjq::wire::{DEPTH_MAX, WireError, from_json, to_json};

fn pack(value: &Packed) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e15..1e15f64).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 60, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::btree_map(".{0,9}", inner, 0..20)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_comes_back_as_it_went(value in json_value()) {
        let packed = from_json(value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(to_json(&packed).unwrap(), value);
    }

    #[test]
    fn what_json_becomes_is_what_another_library_reads(value in json_value()) {
        let packed = from_json(value.to_string().as_bytes()).unwrap();
        let mut rest = &packed[..];
        let read = rmpv::decode::read_value(&mut rest).unwrap();
        prop_assert!(rest.is_empty());
        // Written again by that library it is the same: every value is in its shortest form.
        prop_assert_eq!(pack(&read), packed);
    }
}

#[test]
fn what_json_does_not_have_is_told_by_the_table() {
    for (packed, answer) in [
        (Packed::F64(f64::NAN), Value::Null),
        (Packed::F32(f32::INFINITY), Value::Null),
        (Packed::F32(0.5), json!(0.5)),
        (Packed::Binary(vec![1, 2, 255]), json!("AQL/")),
        (Packed::Ext(-1, vec![0, 0, 0, 1]), json!({"ext_type": -1, "data": "AAAAAQ=="})),
        (Packed::from(u64::MAX), json!(u64::MAX)),
        (Packed::from(i64::MIN), json!(i64::MIN)),
    ] {
        assert_eq!(to_json(&pack(&packed)), Ok(answer), "{packed}");
    }
    assert_eq!(to_json(b"\xa2\xffa"), Ok(json!("\u{fffd}a")));
}

#[test]
fn keys_that_are_no_texts_become_texts_and_of_equal_ones_the_last_holds() {
    let map = Packed::Map(vec![
        (Packed::from(1), Packed::from("a")),
        (Packed::Nil, Packed::from("b")),
        (Packed::Array(vec![Packed::from(true)]), Packed::from("c")),
        (Packed::from("1"), Packed::from("d")),
    ]);
    assert_eq!(to_json(&pack(&map)), Ok(json!({"1": "d", "null": "b", "kcM=": "c"})));
}

#[test]
fn numbers_beyond_64_bits_become_floats() {
    let packed = from_json(b"[18446744073709551615, 18446744073709551616, -9223372036854775808]");
    let packed = packed.unwrap();
    let expected = json!([u64::MAX, 18446744073709551616.0, i64::MIN]);
    assert_eq!(to_json(&packed), Ok(expected));
}

#[test]
fn depth_ends_where_it_ends_in_both_directions() {
    let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
    assert!(to_json(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(to_json(&nested(DEPTH_MAX + 1)), Err(WireError::TooDeep));
    assert_eq!(to_json(&nested(1_000_000)), Err(WireError::TooDeep));
    let text = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(from_json(text(DEPTH_MAX - 1).as_bytes()).is_ok());
    let refused = from_json(text(1_000_000).as_bytes());
    assert!(matches!(refused, Err(WireError::BadJson(_))), "{refused:?}");
}
