//! Random commands: realistic mixes in small name spaces, so that commands meet.

mod batches;
mod consumers;
mod people;
mod places;
mod schedules;
mod submits;
mod workers;

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::seat::Seat;
use spindle_core::{Command, JobId, JobImage};

use crate::model::Model;
use batches::Batches;
use consumers::Consumers;
use places::Moves;
use schedules::Schedules;

/// What a seed does most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Everything.
    #[default]
    Mixed,
    /// Many schedules fire often, over the same crashes and clocks.
    Schedules,
    /// Everything, with several records on their way to the log.
    InFlight,
}

/// What happens next.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Step {
    /// Time passes.
    Advance(u64),
    /// A command.
    Ask(Command),
    /// The server restarts.
    Restart,
    /// Old records are compacted and dropped.
    Trim,
}

/// What the workload may know.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The state of the server.
    pub model: &'a Model,
    /// Images of finished jobs, as the log has them; else those of the model are used.
    pub finished: Option<&'a BTreeMap<u64, JobImage>>,
    /// The time.
    pub now_ms: u64,
}

impl<'a> View<'a> {
    fn finished_image(&self, id: JobId) -> Option<&'a JobImage> {
        match self.finished {
            Some(images) => images.get(&id.0),
            None => self.model.job(id).filter(|job| job.status().is_finished()),
        }
    }
}

/// One seed's stream of steps.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: ChaCha8Rng,
    next_id: u64,
    mix: Mix,
    schedules: Schedules,
    batches: Batches,
    moves: Moves,
    consumers: Consumers,
}

/// How a seed differs from others besides its draws.
#[derive(Clone, Copy, Debug)]
struct Mix {
    queues: usize,
    submits: u32,
    leases: u32,
    finishes: u32,
    people: u32,
    advances: u32,
    step_ms: u64,
}

impl Mix {
    fn everything(rng: &mut ChaCha8Rng) -> Mix {
        Mix {
            queues: rng.random_range(1..=5),
            submits: rng.random_range(10..40),
            leases: rng.random_range(10..40),
            finishes: rng.random_range(10..40),
            people: rng.random_range(2..25),
            advances: rng.random_range(3..20),
            step_ms: *[5, 200, 2_000, 30_000].choose(rng).expect("not empty"),
        }
    }

    /// Time passes in steps of which each brings several times of most schedules.
    fn passing_time(rng: &mut ChaCha8Rng) -> Mix {
        Mix {
            queues: rng.random_range(1..=5),
            submits: rng.random_range(2..8),
            leases: rng.random_range(4..12),
            finishes: rng.random_range(4..12),
            people: rng.random_range(1..5),
            advances: rng.random_range(20..40),
            step_ms: *[2_000, 30_000, 90_000].choose(rng).expect("not empty"),
        }
    }
}

/// How many holders there are: connections and registered workers.
const HOLDERS: u64 = 5;

/// The names of queues: in each run some of them.
const QUEUES: [&[u8]; 5] = [b"mail", b"resize", b"bill", b"\xff\0raw", b"jobq"];

impl Workload {
    /// The stream of a seed.
    pub fn new(seed: u64, profile: Profile) -> Workload {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mix = match profile {
            Profile::Mixed | Profile::InFlight => Mix::everything(&mut rng),
            Profile::Schedules => Mix::passing_time(&mut rng),
        };
        Workload {
            rng,
            next_id: 1,
            mix,
            schedules: Schedules::new(seed, profile),
            batches: Batches::new(seed),
            moves: Moves::new(seed),
            consumers: Consumers::new(seed),
        }
    }

    /// What happens next.
    pub fn step(&mut self, view: View<'_>) -> Step {
        if let Some(command) = self.move_step(view) {
            return Step::Ask(command);
        }
        if let Some(command) = self.consumers.step() {
            return Step::Ask(command);
        }
        let mix = self.mix;
        let options = 3;
        let all = mix.submits + mix.leases + mix.finishes + mix.people + mix.advances + options;
        let mut draw = self.rng.random_range(0..all);
        let mut falls = |weight: u32| {
            let hit = draw < weight;
            draw = draw.wrapping_sub(weight);
            hit
        };
        if falls(mix.submits) {
            Step::Ask(self.submit(view))
        } else if falls(mix.leases) {
            Step::Ask(self.lease(view))
        } else if falls(mix.finishes) {
            Step::Ask(self.worker(view))
        } else if falls(mix.people) {
            Step::Ask(self.person(view))
        } else if falls(mix.advances) {
            Step::Advance(self.passing_ms(view))
        } else {
            self.housekeeping(view)
        }
    }

    fn housekeeping(&mut self, view: View<'_>) -> Step {
        match self.rng.random_range(0..9) {
            0..2 => Step::Restart,
            8 => Step::Ask(Command::ReturnIds { from: self.unused_from(view) }),
            2..4 => Step::Trim,
            4 => Step::Ask(Command::Start { epoch: view.model.epoch, seat: Seat::default() }),
            5 => Step::Ask(Command::RaiseFormat { version: self.rng.random_range(0..4) }),
            _ => Step::Ask(Command::Tick { hold_expiry: self.one_in(2) }),
        }
    }

    /// The first id that no job has; seldom another one.
    fn unused_from(&mut self, view: View<'_>) -> u64 {
        match self.rng.random_range(0..8) {
            0 => 0,
            1 => view.model.ids_until().saturating_add(self.rng.random_range(0..2)),
            2 => self.rng.random_range(1..self.next_id + 2),
            _ => {
                let jobs = view.model.jobs().map(|job| job.id);
                let batches = view.model.batches().map(|batch| batch.opened.id.0);
                let last = jobs.chain(batches).max();
                last.map_or(1, |id| id + 1).max(self.next_id)
            }
        }
    }

    /// Mostly a little, sometimes just to where something is due, seldom far beyond.
    fn passing_ms(&mut self, view: View<'_>) -> u64 {
        let firings = view.model.schedules().filter_map(|it| it.progress.next);
        let batches = view.model.batches().filter_map(|batch| batch.gone_ms());
        let due: Vec<u64> = view
            .model
            .jobs()
            .flat_map(|job| {
                let lease = job.lease.as_ref().and_then(|lease| lease.deadline_ms);
                let deletion = job.options().deletion.as_ref().map(|deletion| deletion.gone_ms);
                [job.options().run_at_ms, job.expires_ms(), job.kept_until_ms, lease, deletion]
            })
            .flatten()
            .chain(firings.map(|next| next.fire_ms))
            .chain(batches)
            .filter(|at| *at > view.now_ms && *at < view.now_ms + 400_000_000)
            .collect();
        match (self.rng.random_range(0..20), due.choose(&mut self.rng)) {
            (0..8, Some(due)) => {
                let to = due - view.now_ms;
                [to, to - 1, to + 1][self.rng.random_range(0..3)]
            }
            (8, _) => self.rng.random_range(0..5_000_000),
            _ => self.rng.random_range(0..=self.mix.step_ms),
        }
    }

    /// Whether something that happens one time in `times` happens.
    fn one_in(&mut self, times: u32) -> bool {
        self.rng.random_ratio(1, times)
    }

    fn queue(&mut self) -> Bytes {
        Bytes::from_static(QUEUES[self.rng.random_range(0..self.mix.queues)])
    }

    fn holder(&mut self) -> u64 {
        self.rng.random_range(1..=HOLDERS)
    }

    /// A job that is there, seldom one that is not.
    fn any_job(&mut self, view: View<'_>, wanted: impl Fn(&JobImage) -> bool) -> JobId {
        let fits: Vec<u64> =
            view.model.jobs().filter(|job| wanted(job)).map(|job| job.id).collect();
        let all: Vec<u64> = view.model.jobs().map(|job| job.id).collect();
        let pick = match self.rng.random_range(0..20) {
            0 => None,
            1 | 2 => all.choose(&mut self.rng).copied(),
            _ => fits.choose(&mut self.rng).copied(),
        };
        JobId(pick.unwrap_or_else(|| self.rng.random_range(1..self.next_id + 2)))
    }

    fn some<T>(&mut self, choices: &[T]) -> Option<T>
    where
        T: Copy,
    {
        if self.one_in(2) { None } else { choices.choose(&mut self.rng).copied() }
    }
}
