//! The states that were, and the answers that revealed them: so that after a crash the checker
//! knows which state has to be there, and whether an answer revealed more than that.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use spindle_core::JobImage;

use crate::model::Model;

/// The model after all commands up to a number, which stand in the log below a position.
#[derive(Clone, Debug)]
struct Mark {
    number: u64,
    tail: u64,
    model: Model,
}

/// An answer, the position it waits for, and the change it reveals.
#[derive(Clone, Debug)]
struct Answered {
    gate: u64,
    needs: u64,
    what: String,
}

/// Whether the two look the same from outside. When a finished job will go is a plan that a crash
/// may undo: the core does not know which event shortened it last.
fn looks_the_same(before: &Rc<JobImage>, after: &Rc<JobImage>) -> bool {
    let same_plan =
        |before: &JobImage| JobImage { kept_until_ms: after.kept_until_ms, ..before.clone() };
    let both_finished = before.status().is_finished() && after.status().is_finished();
    Rc::ptr_eq(before, after) || (both_finished && same_plan(before) == **after)
}

/// Numbered changes since the last crash.
#[derive(Clone, Debug)]
pub struct History {
    number: u64,
    marks: VecDeque<Mark>,
    /// The last change of each logged job, and the one that made it.
    changed: BTreeMap<u64, u64>,
    born: BTreeMap<u64, u64>,
    answers: Vec<Answered>,
}

impl History {
    pub fn new(model: &Model) -> History {
        let mark = Mark { number: 0, tail: 0, model: model.clone() };
        History {
            number: 0,
            marks: VecDeque::from([mark]),
            changed: BTreeMap::new(),
            born: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    /// A change, or none: all of it stands below `tail`.
    pub fn record(&mut self, before: &Model, after: &Model, tail: u64) {
        self.number += 1;
        for (id, job) in &after.jobs {
            let known = before.jobs.get(id);
            if job.foreground || known.is_some_and(|known| looks_the_same(known, job)) {
                continue;
            }
            if known.is_none_or(|known| known.foreground) {
                self.born.insert(*id, self.number);
            }
            self.changed.insert(*id, self.number);
        }
        for (id, job) in &before.jobs {
            if !job.foreground && !after.jobs.contains_key(id) {
                self.changed.insert(*id, self.number);
            }
        }
        let mark = Mark { number: self.number, tail, model: after.clone() };
        match self.marks.back_mut() {
            Some(last) if last.tail >= tail => *last = Mark { tail: last.tail, ..mark },
            _ => self.marks.push_back(mark),
        }
    }

    /// The number of the change made last.
    pub fn now(&self) -> u64 {
        self.number
    }

    /// What an answer about a job reveals: its last change.
    pub fn last_change(&self, id: u64) -> u64 {
        self.changed.get(&id).copied().unwrap_or(0)
    }

    /// What an answer reveals that only says a job is there.
    pub fn birth(&self, id: u64) -> u64 {
        self.born.get(&id).copied().unwrap_or(0)
    }

    /// An answer leaves once `gate` is durable, and reveals the change `needs`.
    pub fn answered(&mut self, gate: u64, needs: u64, what: impl FnOnce() -> String) {
        if needs > self.durable_number(gate) {
            // Only an answer that may leave before what it reveals can ever be taken back.
            self.answers.push(Answered { gate, needs, what: what() });
        }
    }

    /// The last change that is durable when everything below a position is.
    fn durable_number(&self, durable: u64) -> u64 {
        let below = self.marks.iter().rev().find(|mark| mark.tail <= durable);
        below.map_or(0, |mark| mark.number)
    }

    /// Forgets what no crash can take back.
    pub fn prune(&mut self, durable: u64) {
        let safe = self.durable_number(durable);
        self.answers.retain(|answer| answer.needs > safe);
        while self.marks.get(1).is_some_and(|next| next.tail <= durable) {
            self.marks.pop_front();
        }
    }

    /// After a crash everything below `next` is there and nothing else: the state of that time, if
    /// no answer whose gate was open at `durable` revealed more.
    pub fn survived(&self, durable: u64, next: u64) -> Result<Model, String> {
        let mark = self.marks.iter().rev().find(|mark| mark.tail <= next);
        let mark = mark.ok_or_else(|| format!("the log ends at {next}, which is durable since"))?;
        let is_broken = |answer: &&Answered| answer.gate <= durable && answer.needs > mark.number;
        match self.answers.iter().find(is_broken) {
            Some(answer) => Err(format!(
                "{} was answered (gate {}, durable {durable}), and the crash took it back: change {} \
                 of {}",
                answer.what, answer.gate, answer.needs, mark.number
            )),
            None => Ok(mark.model.clone()),
        }
    }

    /// Begins anew from a state that is durable below `tail`.
    pub fn restart(&mut self, model: &Model, tail: u64) {
        self.number += 1;
        self.marks = VecDeque::from([Mark { number: self.number, tail, model: model.clone() }]);
        self.changed.clear();
        self.born.clear();
        self.answers.clear();
    }
}
