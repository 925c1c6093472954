//! Schedules are put, paused, removed and, in the core alone, fired.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::command::{Compact, Occasion, SetSchedule};
use spindle_core::schedule::{JobTemplate, Missed, Overlap, Schedule};
use spindle_core::{BytesRef, Command, JobId, Type};

use super::{Profile, View, Workload};
use crate::model::{EXPRESSIONS, Scheduled, time_after};

const NAMES: [&str; 8] = ["daily", "report", "sweep", "ping", "bill", "clean", "poll", "sync"];
/// How many of the names are used, unless schedules fire often; then all are.
const NAMES_MIXED: usize = 4;
/// How many of the expressions are used where schedules fire often.
const EXPRESSIONS_OFTEN: usize = 2;

/// A separate generator, so that schedules change as little else as possible.
#[derive(Clone, Debug)]
pub(super) struct Schedules {
    rng: ChaCha8Rng,
    /// Some seeds have none.
    every: Option<u32>,
    profile: Profile,
}

impl Schedules {
    pub fn new(seed: u64, profile: Profile) -> Schedules {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5c4e_d01e);
        let every = match profile {
            Profile::Mixed | Profile::InFlight => {
                rng.random_ratio(1, 2).then(|| rng.random_range(5..40))
            }
            Profile::Schedules => Some(rng.random_range(5..20)),
        };
        Schedules { rng, every, profile }
    }

    /// How many names and expressions there are to choose from.
    fn choices(&self) -> (usize, usize) {
        match self.profile {
            Profile::Mixed | Profile::InFlight => (NAMES_MIXED, EXPRESSIONS.len()),
            Profile::Schedules => (NAMES.len(), EXPRESSIONS_OFTEN),
        }
    }

    /// How long jobs of a schedule live, if there is a limit. Where many come, all of them go soon;
    /// otherwise the queues would fill up.
    fn ttl_ms(&mut self) -> Option<u64> {
        let (many, ttl_max_ms) = match self.profile {
            Profile::Mixed | Profile::InFlight => (1, 100_000),
            Profile::Schedules => (4, 20_000),
        };
        self.rng.random_ratio(many, 4).then(|| self.rng.random_range(1..ttl_max_ms))
    }
}

impl Workload {
    /// An action on schedules beside the next step, or none.
    pub fn schedules(&mut self, view: View<'_>) -> Option<Command> {
        let every = self.schedules.every?;
        if !self.schedules.rng.random_ratio(1, every) {
            return None;
        }
        let known: Vec<&Scheduled> = view.model.schedules().collect();
        let rng = &mut self.schedules.rng;
        let any = known.choose(rng).copied();
        let due = view.model.due_schedule(view.now_ms).or(any);
        Some(match (rng.random_range(0..24), any) {
            (0, Some(it)) => Command::RemoveSchedule { name: it.schedule.name.clone() },
            (1, _) => Command::RemoveSchedule { name: "unknown".to_owned() },
            (2..4, Some(it)) => set(paused_or_resumed(it), view.now_ms),
            (4, Some(it)) if view.finished.is_some() => {
                Command::Compact(Compact::Schedule(it.schedule.name.clone()))
            }
            (5..20, _) if view.finished.is_some() && due.is_some() => self.firing(due?, view),
            _ => set(self.new_schedule(view.now_ms), view.now_ms),
        })
    }

    fn new_schedule(&mut self, now_ms: u64) -> Schedule {
        const QUEUES: [&[u8]; 3] = [b"mail", b"resize", b"bill"];
        const OVERLAPS: [Overlap; 4] =
            [Overlap::Allow, Overlap::Skip, Overlap::QueueOne, Overlap::Replace];
        const MISSED: [Missed; 3] = [Missed::Skip, Missed::Once, Missed::All];
        let (names, expressions) = self.schedules.choices();
        let rng = &mut self.schedules.rng;
        let (expression, _) = EXPRESSIONS[rng.random_range(0..expressions)];
        let queue = QUEUES[rng.random_range(0..QUEUES.len())];
        let ends = rng.random_ratio(1, 4);
        let job = JobTemplate {
            queue: queue.to_vec(),
            priority: rng.random_range(-1..2),
            ttl_ms: self.schedules.ttl_ms(),
            ..JobTemplate::default()
        };
        let rng = &mut self.schedules.rng;
        Schedule {
            name: NAMES[rng.random_range(0..names)].to_owned(),
            expression: expression.to_owned(),
            zone: "UTC".to_owned(),
            job,
            overlap: OVERLAPS[rng.random_range(0..4)] as i32,
            missed: MISSED[rng.random_range(0..3)] as i32,
            missed_max: rng.random_range(0..5),
            end_ms: ends.then(|| now_ms + rng.random_range(0..2_000_000)),
            ..Schedule::default()
        }
    }

    /// Mostly what is due, seldom something else.
    fn firing(&mut self, it: &Scheduled, view: View<'_>) -> Command {
        let mut fire = view.model.firing(it, view.now_ms);
        let id = JobId(self.next_id);
        self.next_id += 1;
        let rng = &mut self.schedules.rng;
        fire.job = it.schedule.job.submit(&it.schedule.name, id, BytesRef::empty(Type::Bytes));
        fire.job.constraints_revision = view.model.constraints_revision;
        match rng.random_range(0..16) {
            0 => fire.due_ms += 1,
            1 => fire.revision += 1,
            2 => fire.job.constraints_revision += 1,
            3 => fire.occasion = Occasion::Now,
            4 => fire.occasion = Occasion::Pending,
            5 => fire.name = "unknown".to_owned(),
            _ => {}
        }
        Command::FireSchedule(Box::new(fire))
    }
}

fn paused_or_resumed(it: &Scheduled) -> Schedule {
    Schedule { paused: !it.schedule.paused, ..it.schedule.clone() }
}

fn set(schedule: Schedule, now_ms: u64) -> Command {
    let next = time_after(&schedule, now_ms);
    Command::SetSchedule(Box::new(SetSchedule { schedule, next }))
}
