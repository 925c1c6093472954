//! Finds the constraints that apply to a queue, and how many of its jobs they hold back.

use crate::ask::Asked;
use crate::page::Page;
use crate::pages::constraints::held;
use crate::pages::named::CONSTRAINT;
use crate::query::Query;
use crate::shapes::{Constraint, ConstraintPage, HeldPage, QueueName};

/// Constraints of one answer: the most that the API gives.
const CONSTRAINTS_AT_ONCE: &str = "512";
/// For how many full constraints of more than one queue the waiting queues are requested, and the
/// most queues of each answer.
const ASKED_MAX: usize = 6;
const QUEUES_MAX: usize = 512;

/// The constraints, and who waits for some of them.
pub(crate) struct Limiting {
    pub constraints: Vec<Constraint>,
    /// The places of those that are full.
    full: Vec<usize>,
    /// The queues that wait for full constraints of more than one queue, by the constraint's name.
    waiting: Vec<(String, HeldPage)>,
}

impl Limiting {
    /// All constraints; those of one queue, if it is about one.
    pub async fn read(page: &Page, about: Option<&QueueName>) -> Asked<Limiting> {
        let mut constraints = all(page).await?;
        if let Some(queue) = about {
            constraints.retain(|it| it.may_match(queue));
        }
        let places = constraints.iter().enumerate().filter(|(_, it)| held(it) > 0);
        let full: Vec<usize> = places.map(|(place, _)| place).collect();
        let of_many = full.iter().map(|place| &constraints[*place]).filter(|it| it.queue.is_none());
        let mut waiting = Vec::new();
        for it in of_many.take(ASKED_MAX) {
            let path = format!("{}/held?limit={QUEUES_MAX}", CONSTRAINT.in_api(&it.name));
            // One that is gone meanwhile holds nobody back.
            if let Ok(found) = page.ask.get(&path).await {
                waiting.push((it.name.clone(), found));
            }
        }
        Ok(Limiting { constraints, full, waiting })
    }

    /// The constraints that are full.
    pub fn full(&self) -> impl Iterator<Item = &Constraint> {
        self.full.iter().map(|place| &self.constraints[*place])
    }

    /// How many jobs of a queue a constraint that is about it holds back. None: that is not known.
    pub fn held_of(&self, it: &Constraint, queue: &QueueName) -> Option<u64> {
        let held = held(it);
        if held == 0 || it.queue.is_some() {
            return Some(held);
        }
        let (_, found) = self.waiting.iter().find(|(name, _)| *name == it.name)?;
        match found.queues.iter().find(|held| held.queue == *queue) {
            Some(held) => Some(held.jobs),
            None => (!found.partial).then_some(0),
        }
    }

    /// The constraint that holds the most jobs of a queue back, and how many.
    pub fn holder(&self, queue: &QueueName) -> Option<(&Constraint, u64)> {
        let of_it = self.full().filter(|it| it.may_match(queue));
        let holding =
            of_it.filter_map(|it| Some((it, self.held_of(it, queue).filter(|n| *n > 0)?)));
        holding.max_by_key(|(_, jobs)| *jobs)
    }
}

async fn all(page: &Page) -> Asked<Vec<Constraint>> {
    let (mut constraints, mut cursor) = (Vec::new(), String::new());
    loop {
        let asked = Query::new().with("limit", CONSTRAINTS_AT_ONCE).with("cursor", &cursor);
        let found: ConstraintPage = page.ask.get(&asked.to("/api/v1/constraints")).await?;
        constraints.extend(found.constraints);
        match found.next_cursor {
            Some(next) => cursor = next,
            None => return Ok(constraints),
        }
    }
}
