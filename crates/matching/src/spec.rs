//! The vocabulary of constraints, and their limits.

use bytes::Bytes;
use spindle_core::queue::{QUEUE_NAME_BYTES_MAX, QueuePattern, Rate};

use crate::pointer::Pointer;

/// Names of constraints are 1 to this many bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Conditions of one matcher.
const CONDITIONS_MAX: usize = 16;
/// What `per` says in the place of a pointer: every key of the jobs has limits of its own. No JSON
/// Pointer looks like this.
pub const PER_FAIR_KEY: &str = "fair_key";
/// Values of one `in`.
const VALUES_MAX: usize = 64;
/// Bytes of one value or text pattern.
const VALUE_BYTES_MAX: usize = 1024;

/// A constraint, as a person sets it: which jobs, and how many of them at once or in time.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstraintSpec {
    /// Which jobs.
    pub matcher: Matcher,
    /// Most starts in time.
    pub rate: Option<Rate>,
    /// Most leased at once; 0 lets none start.
    pub running_max: Option<u64>,
}

/// Which jobs a constraint is for, and which of them share a limit.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Matcher {
    /// In which queues.
    pub queue: QueuePattern,
    /// Tests of their payloads; all must hold.
    pub conditions: Vec<Condition>,
    /// A JSON Pointer (RFC 6901): every value of that field has limits of its own. Or
    /// [`PER_FAIR_KEY`].
    pub per: Option<String>,
}

impl Matcher {
    /// Whether what falls under it depends on payloads.
    #[must_use]
    pub fn asks_for_fields(&self) -> bool {
        !self.conditions.is_empty() || self.per_field().is_some()
    }

    /// The field of which every value has limits of its own.
    fn per_field(&self) -> Option<&String> {
        self.per.as_ref().filter(|per| *per != PER_FAIR_KEY)
    }
}

/// One test of a payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// A JSON Pointer (RFC 6901) to a field.
    pub pointer: String,
    /// What holds of the field.
    pub test: Test,
}

/// What must hold of a field. All but `Absent` need the field to be there.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// It is this.
    Eq(Scalar),
    /// It is something else.
    Ne(Scalar),
    /// A number or text below this one.
    Lt(Scalar),
    /// A number or text at most this one.
    Le(Scalar),
    /// A number or text above this one.
    Gt(Scalar),
    /// A number or text at least this one.
    Ge(Scalar),
    /// It is one of these.
    In(Vec<Scalar>),
    /// A text of this pattern; see [`QueuePattern::Glob`].
    Glob(String),
    /// It is there, whatever it is.
    Exists,
    /// It is not there. Fields of a payload that is not typed are not there.
    Absent,
}

/// A value that a field is compared with. Whole numbers and fractions compare as numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number, perhaps too large for the other one.
    Uint(u64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes, which only MessagePack has.
    Bin(Bytes),
}

/// Why a constraint is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The name is too short or too long.
    #[error("a constraint's name is 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// It would limit nothing.
    #[error("a constraint needs a rate, running_max, or both")]
    NoLimit,
    /// A part of the rate is 0 or too large.
    #[error("count, per_ms and burst of a rate are 1 to 2147483648")]
    Rate,
    /// A queue's name or pattern is too short or too long.
    #[error("a queue's name or pattern is 1 to {QUEUE_NAME_BYTES_MAX} bytes")]
    Queue,
    /// Too many conditions.
    #[error("a constraint has at most {CONDITIONS_MAX} conditions")]
    Conditions,
    /// Not a JSON Pointer.
    #[error("`{0}` is no JSON Pointer of at most 256 bytes and 32 steps, such as `/user/id`")]
    Pointer(String),
    /// A value that is too long.
    #[error("a value of a condition is at most {VALUE_BYTES_MAX} bytes")]
    Value,
    /// `lt` and the like need a value that has an order.
    #[error("lt, le, gt and ge compare numbers or texts")]
    NoOrder,
    /// `in` without values, or with too many.
    #[error("in takes 1 to {VALUES_MAX} values")]
    Values,
}

impl ConstraintSpec {
    /// Checks all limits of a constraint.
    pub fn check(&self) -> Result<(), SpecError> {
        use spindle_core::RATE_MAX;
        if self.rate.is_none() && self.running_max.is_none() {
            return Err(SpecError::NoLimit);
        }
        let fits = |part: u64| (1..=RATE_MAX).contains(&part);
        if let Some(rate) = &self.rate
            && !(fits(rate.count) && fits(rate.per_ms) && fits(rate.burst))
        {
            return Err(SpecError::Rate);
        }
        self.matcher.check()
    }
}

/// Whether a constraint may have this name.
pub fn check_name(name: &str) -> Result<(), SpecError> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(SpecError::Name) }
}

impl Matcher {
    fn check(&self) -> Result<(), SpecError> {
        if let QueuePattern::Exact(name) | QueuePattern::Glob(name) = &self.queue
            && !(1..=QUEUE_NAME_BYTES_MAX).contains(&name.len())
        {
            return Err(SpecError::Queue);
        }
        if self.conditions.len() > CONDITIONS_MAX {
            return Err(SpecError::Conditions);
        }
        let pointers = self.conditions.iter().map(|condition| &condition.pointer);
        for pointer in pointers.chain(self.per_field()) {
            Pointer::read(pointer).ok_or_else(|| SpecError::Pointer(pointer.clone()))?;
        }
        self.conditions.iter().try_for_each(|condition| condition.test.check())
    }
}

impl Test {
    fn check(&self) -> Result<(), SpecError> {
        match self {
            Test::Eq(value) | Test::Ne(value) => value.check(),
            Test::Lt(value) | Test::Le(value) | Test::Gt(value) | Test::Ge(value) => {
                let ordered = match value {
                    Scalar::Null | Scalar::Bool(_) | Scalar::Bin(_) => false,
                    Scalar::Int(_) | Scalar::Uint(_) | Scalar::Text(_) => true,
                    Scalar::Float(number) => !number.is_nan(),
                };
                if ordered { value.check() } else { Err(SpecError::NoOrder) }
            }
            Test::In(values) if values.is_empty() || values.len() > VALUES_MAX => {
                Err(SpecError::Values)
            }
            Test::In(values) => values.iter().try_for_each(Scalar::check),
            Test::Glob(pattern) if pattern.len() > VALUE_BYTES_MAX => Err(SpecError::Value),
            Test::Glob(_) | Test::Exists | Test::Absent => Ok(()),
        }
    }
}

impl Scalar {
    fn check(&self) -> Result<(), SpecError> {
        let bytes = match self {
            Scalar::Text(text) => text.len(),
            Scalar::Bin(bytes) => bytes.len(),
            _ => 0,
        };
        if bytes <= VALUE_BYTES_MAX { Ok(()) } else { Err(SpecError::Value) }
    }
}
