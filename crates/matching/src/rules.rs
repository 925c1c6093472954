//! A compiled set of matchers: from a queue's name and a payload to labels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use spindle_core::Type;
use spindle_core::job::{LABELS_MAX, Label};
use spindle_core::queue::{Constraint, QueuePattern, UnreadableMatcher};

use crate::encoding::decode_matcher;
use crate::fields::{Found, Paths};
use crate::pointer::Pointer;
use crate::spec::{Matcher, PER_FAIR_KEY, Test};
use crate::value::key_value;
use crate::{json, msgpack};

/// Larger payloads are not read: all their fields count as absent.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// A payload, as matchers see it. Types are declared, never guessed.
#[derive(Clone, Copy, Debug)]
pub enum Document<'a> {
    /// Nothing to look into.
    Opaque,
    /// JSON.
    Json(&'a [u8]),
    /// MessagePack.
    Msgpack(&'a [u8]),
}

impl<'a> Document<'a> {
    /// A payload of this type.
    pub fn new(bytes: &'a [u8], kind: Type) -> Document<'a> {
        match kind {
            _ if bytes.len() > DOCUMENT_BYTES_MAX => Document::Opaque,
            Type::Bytes => Document::Opaque,
            Type::Json => Document::Json(bytes),
            Type::Msgpack => Document::Msgpack(bytes),
        }
    }
}

/// By what the jobs of one constraint are told apart that have limits of their own.
#[derive(Clone, Copy, Debug)]
enum Per {
    /// The field of this number.
    Field(usize),
    /// Their key, as in fair queues.
    FairKey,
}

/// One constraint's matcher.
#[derive(Debug)]
struct Rule {
    number: u32,
    name: Bytes,
    queue: QueuePattern,
    /// Numbers of fields, and what must hold of them.
    tests: Vec<(usize, Test)>,
    per: Option<Per>,
    /// It cannot be read: jobs keep its label if they have it, and no job gets it.
    unreadable: bool,
    left_out: Arc<AtomicU64>,
}

/// All constraints of one revision.
#[derive(Debug)]
pub struct RuleSet {
    revision: u64,
    /// By number.
    rules: Vec<Rule>,
    /// Queues that are fair by a field: its number.
    fair: BTreeMap<Bytes, usize>,
    paths: Paths,
}

/// What is found out about a new job from its payload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matched {
    /// Which constraint values it falls under, see [`RuleSet::labels`].
    pub labels: Vec<Label>,
    /// Its key, if it came without one, its queue is fair by a field, and that has one.
    pub fair_key: Option<Bytes>,
}

impl RuleSet {
    /// Compiles the matchers of constraints. Counts of jobs left out continue from the set
    /// `before`.
    pub fn new(revision: u64, constraints: &[Constraint], before: Option<&RuleSet>) -> RuleSet {
        let mut paths = Paths::default();
        let rules = constraints.iter().map(|constraint| {
            let known = before.and_then(|set| set.rule(constraint.number));
            let left_out = known.map_or_else(Arc::default, |rule| rule.left_out.clone());
            let read = decode_matcher(&constraint.matcher)
                .and_then(|matcher| prepare(&mut paths, matcher));
            if let Err(error) = &read
                && known.is_none_or(|rule| !rule.unreadable)
            {
                let name = constraint.name.escape_ascii();
                tracing::error!("constraint {name} matches no new job: {error}");
            }
            let unreadable = read.is_err();
            let (queue, tests, per) = read.unwrap_or_default();
            let (number, name) = (constraint.number, constraint.name.clone());
            Rule { number, name, queue, tests, per, unreadable, left_out }
        });
        let mut rules: Vec<Rule> = rules.collect();
        rules.sort_by_key(|rule| rule.number);
        RuleSet { revision, rules, fair: BTreeMap::new(), paths }
    }

    /// The same constraints, and queues that are fair by a field: their names, and JSON Pointers. A
    /// text that is not a pointer leads to no field.
    #[must_use]
    pub fn with_fair_queues(
        mut self,
        queues: impl IntoIterator<Item = (Bytes, String)>,
    ) -> RuleSet {
        for (queue, pointer) in queues {
            if let Some(pointer) = Pointer::read(&pointer) {
                self.fair.insert(queue, self.paths.add(&pointer));
            }
        }
        self
    }

    /// The revision of the constraint set it was made of.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether nothing has to be found out about new jobs.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.fair.is_empty()
    }

    /// Whether payloads of new jobs of this queue are read.
    pub fn reads(&self, queue: &[u8]) -> bool {
        self.fair.contains_key(queue) || self.asks_for_fields(queue)
    }

    /// Whether labels of this queue's jobs depend on their payloads.
    pub fn asks_for_fields(&self, queue: &[u8]) -> bool {
        let asks = |rule: &Rule| !rule.tests.is_empty() || matches!(rule.per, Some(Per::Field(_)));
        self.rules.iter().any(|rule| asks(rule) && rule.queue.takes(queue))
    }

    /// Which constraint values a job falls under, sorted. At most [`LABELS_MAX`]: the constraints
    /// that exist longest; the others count the job as left out. `key` is its key, empty if it has
    /// none. `current` are the labels the job has, of which those of constraints that cannot be read
    /// stay.
    pub fn labels(
        &self,
        queue: &[u8],
        key: &[u8],
        document: Document<'_>,
        current: &[Label],
    ) -> Vec<Label> {
        self.labels_by((queue, key), document, current, &mut None)
    }

    /// All that has to be found out about a new job. `given` is the key that it came with, if it
    /// did.
    pub fn matched(&self, queue: &[u8], given: Option<&[u8]>, document: Document<'_>) -> Matched {
        let mut found = None;
        let field = self.fair.get(queue).filter(|_| given.is_none());
        let fair_key = field.and_then(|field| {
            let found = found.get_or_insert_with(|| self.find(document));
            found.fields[*field].fair_key()
        });
        let key = given.or(fair_key.as_deref()).unwrap_or_default();
        let labels = self.labels_by((queue, key), document, &[], &mut found);
        Matched { labels, fair_key }
    }

    /// As [`RuleSet::labels`]; `found` is what was found in the payload, once it was looked into.
    fn labels_by<'p, 'a>(
        &'p self,
        (queue, key): (&[u8], &[u8]),
        document: Document<'a>,
        current: &[Label],
        found: &mut Option<Found<'p, 'a>>,
    ) -> Vec<Label> {
        let mut labels = Vec::new();
        for rule in &self.rules {
            if rule.unreadable {
                let kept = current.iter().filter(|label| label.constraint == rule.number);
                labels.extend(kept.take(LABELS_MAX - labels.len()).copied());
                continue;
            }
            if !rule.queue.takes(queue) {
                continue;
            }
            let mut passes = |(field, test): &(usize, Test)| {
                let found = found.get_or_insert_with(|| self.find(document));
                found.fields[*field].passes(test)
            };
            if !rule.tests.iter().all(&mut passes) {
                continue;
            }
            let value = match rule.per {
                None => 0,
                Some(Per::Field(field)) => {
                    let found = found.get_or_insert_with(|| self.find(document));
                    found.fields[field].label_value()
                }
                Some(Per::FairKey) => key_value(key),
            };
            if labels.len() < LABELS_MAX {
                labels.push(Label { constraint: rule.number, value });
            } else {
                rule.leave_out();
            }
        }
        labels
    }

    /// How often a job that fell under a constraint had no room for its label.
    pub fn left_out(&self, number: u32) -> u64 {
        self.rule(number).map_or(0, |rule| rule.left_out.load(Ordering::Relaxed))
    }

    fn rule(&self, number: u32) -> Option<&Rule> {
        let at = self.rules.binary_search_by_key(&number, |rule| rule.number).ok()?;
        self.rules.get(at)
    }

    fn find<'a>(&self, document: Document<'a>) -> Found<'_, 'a> {
        match document {
            Document::Opaque => Found::nothing(&self.paths),
            Document::Json(bytes) => json::find(&self.paths, bytes),
            Document::Msgpack(bytes) => msgpack::find(&self.paths, bytes),
        }
    }
}

impl Rule {
    fn leave_out(&self) {
        if self.left_out.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "constraint {} does not hold for a job that falls under {LABELS_MAX} older ones",
                self.name.escape_ascii()
            );
        }
    }
}

type Prepared = (QueuePattern, Vec<(usize, Test)>, Option<Per>);

fn prepare(paths: &mut Paths, matcher: Matcher) -> Result<Prepared, UnreadableMatcher> {
    let mut field = |pointer: &str| {
        Pointer::read(pointer).map(|pointer| paths.add(&pointer)).ok_or(UnreadableMatcher::Damaged)
    };
    let tests = matcher.conditions.into_iter();
    let tests = tests.map(|condition| Ok((field(&condition.pointer)?, condition.test)));
    let tests = tests.collect::<Result<Vec<_>, _>>()?;
    let per = match matcher.per.as_deref() {
        None => None,
        Some(PER_FAIR_KEY) => Some(Per::FairKey),
        Some(pointer) => Some(Per::Field(field(pointer)?)),
    };
    Ok((matcher.queue, tests, per))
}
