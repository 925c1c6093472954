//! Constraints as HTTP clients write and read them: the native API and LightJQ alike.

use std::fmt;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use spindle_core::queue::{self, LimitScope};
use spindle_engine::{
    Condition, ConstraintSpec, ConstraintView, Matcher, Opaque, QueuePattern, Relabelling, Scalar,
    Test,
};
use utoipa::ToSchema;

use crate::problem::{Answered, Problem};
use crate::whole::{whole, whole_or_null};

/// A constraint to put. It needs a rate, `running_max`, or both.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstraintBody {
    /// Only jobs of this queue.
    #[schema(example = "mail", min_length = 1, max_length = 512)]
    pub queue: Option<String>,
    /// Only jobs of queues whose name fits: `*` is any number of bytes, `?` one character, `\`
    /// takes what follows as it is.
    #[schema(example = "mail.*", min_length = 1, max_length = 512)]
    pub queue_glob: Option<String>,
    /// Only jobs whose payload says all of this.
    #[serde(default, rename = "where", deserialize_with = "objects")]
    #[schema(value_type = Vec<ConditionBody>, max_items = 16)]
    pub conditions: Vec<ConditionBody>,
    /// A JSON Pointer: every value of that field has limits of its own. Or `fair_key`: every key of
    /// the jobs has.
    #[schema(example = "/user/id", format = "constraint-per")]
    pub per: Option<String>,
    /// Most starts in time.
    #[serde(default, deserialize_with = "object")]
    #[schema(value_type = Option<RateBody>)]
    pub rate: Option<RateBody>,
    /// Most leased at once; 0 lets none start.
    #[serde(default, deserialize_with = "whole_or_null")]
    pub running_max: Option<u64>,
    /// Each shard limits its own jobs. Needed where queues that it takes may be on several shards.
    #[serde(default)]
    pub per_shard: bool,
}

/// What a field of the payload must be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionBody {
    /// A JSON Pointer to the field.
    #[schema(example = "/plan", format = "constraint-pointer")]
    pub pointer: String,
    /// How it compares.
    pub op: Op,
    /// With what: a number, text, true, false or null. Not with `in`, `exists` and `absent`.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, example = "free")]
    pub value: Option<Value>,
    /// With `in`: one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<Value>>,
}

/// How a field compares. All but `absent` need it to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Equal.
    Eq,
    /// Something else.
    Ne,
    /// Below.
    Lt,
    /// At most.
    Le,
    /// Above.
    Gt,
    /// At least.
    Ge,
    /// One of `values`.
    In,
    /// Text of this pattern.
    Glob,
    /// There, whatever it is.
    Exists,
    /// Not there.
    Absent,
}

/// An integer token bucket: `count` starts per `per_ms`, at most `burst` at once.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateBody {
    /// Starts that every period allows.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 2_147_483_648_u64)]
    pub count: u64,
    /// The period.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 2_147_483_648_u64)]
    pub per_ms: u64,
    /// Most starts at once; `count` by default.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1, maximum = 2_147_483_648_u64)]
    pub burst: Option<u64>,
}

/// A value that stands there, `null` included.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Objects only: a list would be taken for the fields in their order.
fn objects<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let maps = Vec::<Map<String, Value>>::deserialize(deserializer)?;
    maps.into_iter().map(|map| read(map).map_err(D::Error::custom)).collect()
}

fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let map = Option::<Map<String, Value>>::deserialize(deserializer)?;
    map.map(read).transpose().map_err(D::Error::custom)
}

fn read<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, impl fmt::Display> {
    serde_json::from_value::<T>(Value::Object(map))
}

impl ConstraintBody {
    /// What it limits where queues are on several shards.
    #[must_use]
    pub fn scope(&self) -> LimitScope {
        if self.per_shard { LimitScope::PerShard } else { LimitScope::Whole }
    }

    /// The engine's words for it.
    pub fn into_spec(self) -> Answered<ConstraintSpec> {
        let queue = match (self.queue, self.queue_glob) {
            (None, None) => QueuePattern::Any,
            (Some(name), None) => QueuePattern::Exact(name.into()),
            (None, Some(pattern)) => QueuePattern::Glob(pattern.into()),
            (Some(_), Some(_)) => {
                return Err(Problem::bad_field("give either queue or queue_glob, not both"));
            }
        };
        let conditions = self.conditions.into_iter().map(ConditionBody::into_condition);
        let matcher =
            Matcher { queue, conditions: conditions.collect::<Result<_, _>>()?, per: self.per };
        let rate = self.rate.map(|rate| queue::Rate {
            count: rate.count,
            per_ms: rate.per_ms,
            burst: rate.burst.unwrap_or(rate.count),
        });
        let spec = ConstraintSpec { matcher, rate, running_max: self.running_max };
        spec.check().map_err(|error| Problem::out_of_range(error.to_string()))?;
        Ok(spec)
    }
}

impl ConditionBody {
    fn into_condition(self) -> Answered<Condition> {
        let wrong = |what: &str| Problem::bad_field(format!("where: {what}"));
        let test = match (self.op, self.value, self.values) {
            (Op::In, None, Some(values)) => {
                Test::In(values.into_iter().map(scalar).collect::<Result<_, _>>()?)
            }
            (Op::In, ..) => return Err(wrong("in takes values")),
            (Op::Exists, None, None) => Test::Exists,
            (Op::Absent, None, None) => Test::Absent,
            (Op::Exists | Op::Absent, ..) => return Err(wrong("exists and absent take no value")),
            (op, Some(value), None) => {
                compared(op, scalar(value)?).ok_or_else(|| wrong("the value of glob is a text"))?
            }
            _ => return Err(wrong("the operator takes value")),
        };
        Ok(Condition { pointer: self.pointer, test })
    }

    fn of(condition: &Condition) -> ConditionBody {
        let (op, value, values) = match &condition.test {
            Test::Eq(value) => (Op::Eq, Some(shown(value)), None),
            Test::Ne(value) => (Op::Ne, Some(shown(value)), None),
            Test::Lt(value) => (Op::Lt, Some(shown(value)), None),
            Test::Le(value) => (Op::Le, Some(shown(value)), None),
            Test::Gt(value) => (Op::Gt, Some(shown(value)), None),
            Test::Ge(value) => (Op::Ge, Some(shown(value)), None),
            Test::In(values) => (Op::In, None, Some(values.iter().map(shown).collect())),
            Test::Glob(pattern) => (Op::Glob, Some(pattern.as_str().into()), None),
            Test::Exists => (Op::Exists, None, None),
            Test::Absent => (Op::Absent, None, None),
        };
        ConditionBody { pointer: condition.pointer.clone(), op, value, values }
    }
}

fn compared(op: Op, value: Scalar) -> Option<Test> {
    Some(match (op, value) {
        (Op::Eq, value) => Test::Eq(value),
        (Op::Ne, value) => Test::Ne(value),
        (Op::Lt, value) => Test::Lt(value),
        (Op::Le, value) => Test::Le(value),
        (Op::Gt, value) => Test::Gt(value),
        (Op::Ge, value) => Test::Ge(value),
        (Op::Glob, Scalar::Text(pattern)) => Test::Glob(pattern),
        (Op::Glob | Op::In | Op::Exists | Op::Absent, _) => return None,
    })
}

fn scalar(value: Value) -> Answered<Scalar> {
    Ok(match value {
        Value::Null => Scalar::Null,
        Value::Bool(value) => Scalar::Bool(value),
        Value::String(text) => Scalar::Text(text),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => Scalar::Int(number),
            (_, Some(number), _) => Scalar::Uint(number),
            (.., number) => Scalar::Float(number.unwrap_or(f64::NAN)),
        },
        Value::Array(_) | Value::Object(_) => {
            let detail = "where: a value is a number, a text, true, false or null";
            return Err(Problem::bad_field(detail));
        }
    })
}

fn shown(value: &Scalar) -> Value {
    match value {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => (*value).into(),
        Scalar::Int(number) => (*number).into(),
        Scalar::Uint(number) => (*number).into(),
        Scalar::Float(number) => (*number).into(),
        Scalar::Text(text) => text.as_str().into(),
        Scalar::Bin(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}

/// A constraint as it is shown.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Constraint)]
pub struct ConstraintShown {
    /// Its name.
    pub name: String,
    /// Changes with every put; its entity tag.
    pub revision: u64,
    /// Only jobs of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Only jobs of queues whose name fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_glob: Option<String>,
    /// Only jobs whose payload says all of this.
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<ConditionBody>,
    /// Every value of this field has limits of its own, or with `fair_key` every key of the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<String>,
    /// Most starts in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateBody>,
    /// Most leased at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    running_max: Option<u64>,
    /// Each shard limits its own jobs: the queues that it takes may be on several.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    per_shard: bool,
    /// Why it matches no new job: a later version of the server wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    /// So many values have a bucket: unfinished jobs, or tokens that are not back yet.
    buckets_count: usize,
    /// So often since the start a job fell under it that had eight labels of older constraints
    /// already: it does not hold for those jobs.
    left_out: u64,
    /// Jobs that were there before the newest change of any constraint and got other labels.
    relabelled: u64,
    /// Unfinished jobs that were there before and are still to be looked at.
    remaining: u64,
    /// What people should know of it: payloads it cannot read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// What to do about payloads that a constraint asks for fields and that have none.
fn note(opaque: &Opaque) -> String {
    let of = match opaque {
        Opaque::Queue(name) => format!("of queue {}", String::from_utf8_lossy(name)),
        Opaque::Queues => "of queues without a bytes_type".to_owned(),
    };
    format!(
        "payloads {of} that come as bytes (Workq, Gearman) are not read: none of their fields is \
         there. If they are JSON or MessagePack, say so in the queue's settings: bytes_type"
    )
}

impl ConstraintShown {
    /// A constraint, and how far jobs that were there have been matched.
    pub fn of(view: &ConstraintView, relabelling: Relabelling) -> ConstraintShown {
        let spec = view.spec.as_ref().ok();
        let matcher = spec.map(|spec| spec.matcher.clone()).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (queue, queue_glob) = match &matcher.queue {
            QueuePattern::Any => (None, None),
            QueuePattern::Exact(name) => (Some(text(name)), None),
            QueuePattern::Glob(pattern) => (None, Some(text(pattern))),
        };
        let rate = spec.and_then(|spec| spec.rate).map(|rate| RateBody {
            count: rate.count,
            per_ms: rate.per_ms,
            burst: Some(rate.burst),
        });
        ConstraintShown {
            name: view.name.clone(),
            revision: view.revision,
            queue,
            queue_glob,
            conditions: matcher.conditions.iter().map(ConditionBody::of).collect(),
            per: matcher.per,
            rate,
            running_max: spec.and_then(|spec| spec.running_max),
            per_shard: view.scope == LimitScope::PerShard,
            unreadable: view.spec.as_ref().err().map(ToString::to_string),
            buckets_count: view.buckets,
            left_out: view.left_out,
            relabelled: relabelling.relabelled,
            remaining: relabelling.remaining,
            notes: view.opaque.iter().map(note).collect(),
        }
    }
}
