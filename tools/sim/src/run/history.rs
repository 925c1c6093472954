//! Past states, and the answers that revealed them. With these the checker knows after a crash
//! which state has to be there, and whether an answer revealed more than that.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;

use spindle_core::{JobImage, State};

use crate::model::Model;

/// The model after all commands up to a number, whose records are below a position of the log.
#[derive(Clone, Debug)]
struct Mark {
    number: u64,
    tail: u64,
    model: Model,
    torn: Option<Torn>,
}

/// Changes of many jobs whose events began in one record and ended in a later one: a crash between the two leaves a
/// part of them.
#[derive(Clone, Debug)]
struct Torn {
    numbers: RangeInclusive<u64>,
    /// The versions that the first of them went through; the last version is the complete change.
    versions: Vec<Model>,
    /// The same for changes that the model learned of later, though the engine made them at once.
    later: Vec<Model>,
}

/// What a crash left.
pub struct Survived {
    /// All changes up to some time.
    pub model: Model,
    /// What jobs may look like instead: the next change is one of many jobs, and a part of it may be there.
    pub versions: Vec<Model>,
    /// Or after those that came with it.
    later: Vec<Model>,
}

impl Survived {
    /// The model of a state that came back: it has to be this one, or one with a part of the next change.
    pub fn judge(mut self, state: &State, now_ms: u64) -> Result<Model, String> {
        self.model.lose_memory();
        let Err(why) = self.model.compare(state, now_ms) else { return Ok(self.model) };
        if self.versions.is_empty() {
            return Err(why);
        }
        self.versions.iter_mut().for_each(Model::lose_memory);
        self.versions.insert(0, self.model);
        let whole = self.versions.last().map(|last| last.in_part(&self.versions, state));
        let part = whole.unwrap_or_default();
        let Err(in_part) = part.compare(state, now_ms) else { return Ok(part) };
        self.later.iter_mut().for_each(Model::lose_memory);
        self.versions.append(&mut self.later);
        // State outside of jobs may be from before or after any of them.
        let parts = self.versions.iter().rev().map(|base| base.in_part(&self.versions, state));
        let mut fitting = parts.filter(|part| part.compare(state, now_ms).is_ok());
        fitting.next().ok_or_else(|| format!("{why}; in part: {in_part}"))
    }
}

/// An answer, the position it waits for, and the change it reveals.
#[derive(Clone, Debug)]
struct Answered {
    gate: u64,
    needs: u64,
    what: String,
}

/// Whether the two look the same from outside. The time at which a finished job will go does not
/// count, because a crash may undo it: the core does not know which event shortened it last.
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
    /// The change in which each batch ended last, or went.
    batches_ended: BTreeMap<u64, u64>,
    answers: Vec<Answered>,
    /// Where the log ended when its beginning was last dropped: the dropped state had been written
    /// again by then.
    trimmed_at: u64,
}

impl History {
    pub fn new(model: &Model) -> History {
        let mark = Mark { number: 0, tail: 0, model: model.clone(), torn: None };
        History {
            number: 0,
            marks: VecDeque::from([mark]),
            changed: BTreeMap::new(),
            born: BTreeMap::new(),
            batches_ended: BTreeMap::new(),
            answers: Vec::new(),
            trimmed_at: 0,
        }
    }

    /// The log has dropped its beginning, and ends at `tail`.
    pub fn trimmed(&mut self, tail: u64) {
        self.trimmed_at = tail;
    }

    /// Records a change, or none, whose records are all below `tail`. `versions` are the steps of a
    /// change of many jobs.
    pub fn record(&mut self, before: &Model, after: &Model, versions: Vec<Model>, tail: u64) {
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
        for batch in before.batches().filter(|batch| batch.ended_ms().is_none()) {
            let id = batch.opened.id;
            if after.batch(id).is_none_or(|batch| batch.ended_ms().is_some()) {
                self.batches_ended.insert(id.0, self.number);
            }
        }
        let (number, model) = (self.number, after.clone());
        let is_long = self.is_last_long();
        let torn = Torn { numbers: number..=number, versions, later: Vec::new() };
        let torn = (!torn.versions.is_empty()).then_some(torn);
        match self.marks.back_mut() {
            Some(last) if last.tail >= tail => {
                (last.number, last.model) = (number, model);
                // The engine made both changes at once, and the model learns of them one after the
                // other.
                if let Some(more) = torn.filter(|_| is_long) {
                    match &mut last.torn {
                        None => last.torn = Some(more),
                        Some(torn) => {
                            torn.numbers = *torn.numbers.start()..=number;
                            torn.later.extend(more.versions);
                        }
                    }
                }
            }
            _ => self.marks.push_back(Mark { number, tail, model, torn }),
        }
    }

    /// Whether a crash may leave a part of a change whose records are below this position: because
    /// it went into a new record since the last change, or the last change went into several.
    pub fn may_be_torn(&self, tail: u64) -> bool {
        self.marks.back().is_none_or(|last| last.tail < tail) || self.is_last_long()
    }

    /// Whether what was changed last stands in more than one record.
    fn is_last_long(&self) -> bool {
        let mut tails = self.marks.iter().rev().map(|mark| mark.tail);
        matches!((tails.next(), tails.next()), (Some(last), Some(before)) if last > before + 1)
    }

    /// The number of the change made last.
    pub fn now(&self) -> u64 {
        self.number
    }

    /// What an answer about a job reveals: its last change.
    pub fn last_change(&self, id: u64) -> u64 {
        self.changed.get(&id).copied().unwrap_or(0)
    }

    /// What an answer about the end of a batch reveals.
    pub fn batch_end(&self, id: u64) -> u64 {
        self.batches_ended.get(&id).copied().unwrap_or(0)
    }

    /// What an answer reveals that only says a job is there.
    pub fn birth(&self, id: u64) -> u64 {
        self.born.get(&id).copied().unwrap_or(0)
    }

    /// An answer leaves once `gate` is durable, and reveals the change `needs`.
    pub fn answered(&mut self, gate: u64, needs: u64, what: impl FnOnce() -> String) {
        if needs > self.durable_number(gate) {
            // Only an answer that may leave before the change it reveals is durable can be
            // contradicted later.
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

    /// After a crash exactly the records below `next` are there. Returns the state at that point,
    /// if no answer whose gate was open at `durable` revealed more.
    pub fn survived(&self, durable: u64, next: u64) -> Result<Survived, String> {
        let at = self.marks.iter().rposition(|mark| mark.tail <= next);
        let at = at.ok_or_else(|| format!("the log ends at {next}, which is durable since"))?;
        let (mark, torn) =
            (&self.marks[at], self.marks.get(at + 1).and_then(|it| it.torn.as_ref()));
        let is_broken = |answer: &&Answered| {
            // The part of the next change that it revealed stands below its gate.
            let is_torn = torn.is_some_and(|torn| torn.numbers.contains(&answer.needs));
            answer.gate <= durable && answer.needs > mark.number && !is_torn
        };
        match self.answers.iter().find(is_broken) {
            Some(answer) => Err(format!(
                "{} was answered (gate {}, durable {durable}), and the crash took it back: change {} \
                 of {}",
                answer.what, answer.gate, answer.needs, mark.number
            )),
            None => Ok(Survived {
                model: mark.model.clone(),
                versions: torn.map_or_else(Vec::new, |torn| torn.versions.clone()),
                later: torn.map_or_else(Vec::new, |torn| torn.later.clone()),
            }),
        }
    }

    /// The state below a position, if it is still known. It is not known for a position where the
    /// log ended before its last trim: records from below it may have been rewritten behind it
    /// since.
    pub fn at(&self, position: u64) -> Option<Survived> {
        self.survived(0, position).ok().filter(|_| position >= self.trimmed_at)
    }

    /// Begins anew from a state that is durable below `tail`.
    pub fn restart(&mut self, model: &Model, tail: u64) {
        self.number += 1;
        self.marks =
            VecDeque::from([Mark { number: self.number, tail, model: model.clone(), torn: None }]);
        self.changed.clear();
        self.born.clear();
        self.answers.clear();
    }
}
