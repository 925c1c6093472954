//! The bytes of a matcher in its constraint: protobuf, so that later versions can add to it.

use bytes::Bytes;
use prost::Message as _;
use spindle_core::queue::{QueuePattern, UnreadableMatcher};

use crate::spec::{Condition, Matcher, Scalar, Test};

/// The tests of payloads. The same message has the matcher's [`QueuePattern`] in its first three
/// fields, which the core reads and writes.
#[derive(Clone, PartialEq, prost::Message)]
struct KeptMatcher {
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<KeptCondition>,
    #[prost(string, optional, tag = "5")]
    per: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeptCondition {
    #[prost(string, tag = "1")]
    pointer: String,
    #[prost(enumeration = "Operator", tag = "2")]
    operator: i32,
    #[prost(message, repeated, tag = "3")]
    values: Vec<KeptScalar>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
enum Operator {
    /// Absent in the bytes.
    None = 0,
    Eq = 1,
    Ne = 2,
    Lt = 3,
    Le = 4,
    Gt = 5,
    Ge = 6,
    In = 7,
    Glob = 8,
    Exists = 9,
    Absent = 10,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeptScalar {
    #[prost(oneof = "KeptValue", tags = "1, 2, 3, 4, 5, 6, 7")]
    value: Option<KeptValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum KeptValue {
    #[prost(bool, tag = "1")]
    Null(bool),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sint64, tag = "3")]
    Int(i64),
    #[prost(uint64, tag = "4")]
    Uint(u64),
    #[prost(double, tag = "5")]
    Float(f64),
    #[prost(string, tag = "6")]
    Text(String),
    #[prost(bytes = "bytes", tag = "7")]
    Bin(Bytes),
}

/// The bytes of a matcher in its constraint.
#[must_use]
pub fn encode_matcher(matcher: &Matcher) -> Bytes {
    let mut bytes = Vec::new();
    matcher.queue.encode(&mut bytes);
    let conditions = matcher.conditions.iter().map(keep).collect();
    KeptMatcher { conditions, per: matcher.per.clone() }.encode_raw(&mut bytes);
    bytes.into()
}

/// Reads a matcher back.
pub fn decode_matcher(bytes: &Bytes) -> Result<Matcher, UnreadableMatcher> {
    let queue = QueuePattern::decode(bytes)?;
    let kept = KeptMatcher::decode(bytes.clone()).map_err(|_| UnreadableMatcher::Damaged)?;
    let conditions = kept.conditions.into_iter().map(read).collect::<Option<_>>();
    let conditions = conditions.ok_or(UnreadableMatcher::Damaged)?;
    Ok(Matcher { queue, conditions, per: kept.per })
}

fn keep(condition: &Condition) -> KeptCondition {
    let (operator, values) = match &condition.test {
        Test::Eq(value) => (Operator::Eq, vec![keep_value(value)]),
        Test::Ne(value) => (Operator::Ne, vec![keep_value(value)]),
        Test::Lt(value) => (Operator::Lt, vec![keep_value(value)]),
        Test::Le(value) => (Operator::Le, vec![keep_value(value)]),
        Test::Gt(value) => (Operator::Gt, vec![keep_value(value)]),
        Test::Ge(value) => (Operator::Ge, vec![keep_value(value)]),
        Test::In(values) => (Operator::In, values.iter().map(keep_value).collect()),
        Test::Glob(pattern) => (Operator::Glob, vec![keep_value(&Scalar::Text(pattern.clone()))]),
        Test::Exists => (Operator::Exists, Vec::new()),
        Test::Absent => (Operator::Absent, Vec::new()),
    };
    let pointer = condition.pointer.clone();
    KeptCondition { pointer, operator: operator as i32, values }
}

fn keep_value(value: &Scalar) -> KeptScalar {
    let value = match value {
        Scalar::Null => KeptValue::Null(true),
        Scalar::Bool(value) => KeptValue::Bool(*value),
        Scalar::Int(number) => KeptValue::Int(*number),
        Scalar::Uint(number) => KeptValue::Uint(*number),
        Scalar::Float(number) => KeptValue::Float(*number),
        Scalar::Text(text) => KeptValue::Text(text.clone()),
        Scalar::Bin(bytes) => KeptValue::Bin(bytes.clone()),
    };
    KeptScalar { value: Some(value) }
}

fn read(kept: KeptCondition) -> Option<Condition> {
    let operator = Operator::try_from(kept.operator).ok()?;
    let mut values: Vec<Scalar> = kept.values.into_iter().map(read_value).collect::<Option<_>>()?;
    let test = match (operator, values.len()) {
        (Operator::In, 1..) => Test::In(values),
        (Operator::Exists, 0) => Test::Exists,
        (Operator::Absent, 0) => Test::Absent,
        (_, 1) => one(operator, values.pop()?)?,
        _ => return None,
    };
    Some(Condition { pointer: kept.pointer, test })
}

/// The operators that take one value.
fn one(operator: Operator, value: Scalar) -> Option<Test> {
    Some(match operator {
        Operator::Eq => Test::Eq(value),
        Operator::Ne => Test::Ne(value),
        Operator::Lt => Test::Lt(value),
        Operator::Le => Test::Le(value),
        Operator::Gt => Test::Gt(value),
        Operator::Ge => Test::Ge(value),
        Operator::Glob => match value {
            Scalar::Text(pattern) => Test::Glob(pattern),
            _ => return None,
        },
        Operator::None | Operator::In | Operator::Exists | Operator::Absent => return None,
    })
}

fn read_value(kept: KeptScalar) -> Option<Scalar> {
    Some(match kept.value? {
        KeptValue::Null(_) => Scalar::Null,
        KeptValue::Bool(value) => Scalar::Bool(value),
        KeptValue::Int(number) => Scalar::Int(number),
        KeptValue::Uint(number) => Scalar::Uint(number),
        KeptValue::Float(number) => Scalar::Float(number),
        KeptValue::Text(text) => Scalar::Text(text),
        KeptValue::Bin(bytes) => Scalar::Bin(bytes),
    })
}
