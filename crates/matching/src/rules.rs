//! A compiled set of matchers: from a queue's name and a payload to labels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use spindle_core::Type;
use spindle_core::job::{LABELS_MAX, Label};
use spindle_core::queue::{Constraint, QueuePattern, UnreadableMatcher};

use crate::encoding::decode_matcher;
use crate::fields::{Found, Paths};
use crate::pointer::Pointer;
use crate::spec::{Matcher, Test};
use crate::{json, msgpack};

/// Larger payloads are not read: none of their fields are there.
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

/// One constraint's matcher.
#[derive(Debug)]
struct Rule {
    number: u32,
    name: Bytes,
    queue: QueuePattern,
    /// Numbers of fields, and what must hold of them.
    tests: Vec<(usize, Test)>,
    per: Option<usize>,
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
    paths: Paths,
}

impl RuleSet {
    /// Compiles the matchers of constraints. Counts of jobs left out go on from the set `before`.
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
        RuleSet { revision, rules, paths }
    }

    /// The revision of the constraint set it was made of.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether there are no constraints.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether labels of this queue's jobs depend on their payloads.
    pub fn asks_for_fields(&self, queue: &[u8]) -> bool {
        let asks = |rule: &Rule| !rule.tests.is_empty() || rule.per.is_some();
        self.rules.iter().any(|rule| asks(rule) && rule.queue.takes(queue))
    }

    /// Which constraint values a job falls under, sorted. At most [`LABELS_MAX`]: the constraints
    /// that exist longest; the others count the job as left out. `current` are the labels the
    /// job has, of which those of constraints that cannot be read stay.
    pub fn labels(&self, queue: &[u8], document: Document<'_>, current: &[Label]) -> Vec<Label> {
        let mut labels = Vec::new();
        let mut found = None;
        for rule in &self.rules {
            if rule.unreadable {
                let kept = current.iter().filter(|label| label.constraint == rule.number);
                labels.extend(kept.take(LABELS_MAX - labels.len()).copied());
                continue;
            }
            if !rule.queue.takes(queue) {
                continue;
            }
            let value = if rule.tests.is_empty() && rule.per.is_none() {
                0
            } else {
                let found = found.get_or_insert_with(|| self.find(document));
                if !rule.tests.iter().all(|(field, test)| found.fields[*field].passes(test)) {
                    continue;
                }
                rule.per.map_or(0, |field| found.fields[field].label_value())
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

type Prepared = (QueuePattern, Vec<(usize, Test)>, Option<usize>);

fn prepare(paths: &mut Paths, matcher: Matcher) -> Result<Prepared, UnreadableMatcher> {
    let mut field = |pointer: &str| {
        Pointer::read(pointer).map(|pointer| paths.add(&pointer)).ok_or(UnreadableMatcher::Damaged)
    };
    let tests = matcher.conditions.into_iter();
    let tests = tests.map(|condition| Ok((field(&condition.pointer)?, condition.test)));
    let tests = tests.collect::<Result<Vec<_>, _>>()?;
    let per = matcher.per.as_deref().map(&mut field).transpose()?;
    Ok((matcher.queue, tests, per))
}
