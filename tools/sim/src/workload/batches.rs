//! Batches are opened, sealed and cancelled; jobs are added to them and wait for them.

use bytes::Bytes;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::command::{Compact, OpenBatch, Submit};
use spindle_core::job::mix;
use spindle_core::{Command, JobId};

use super::{View, Workload};
use crate::model::Model;

/// A separate generator, so that batches change as little else as possible.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    rng: ChaCha8Rng,
    /// Some seeds have none.
    every: Option<u32>,
}

impl Batches {
    pub fn new(seed: u64) -> Batches {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0xba7c_4e50);
        let every = rng.random_ratio(2, 3).then(|| rng.random_range(4..30));
        Batches { rng, every }
    }
}

impl Workload {
    /// An action on batches beside the next step, or none.
    pub fn batches(&mut self, view: View<'_>) -> Option<Command> {
        let every = self.batches.every?;
        if !self.batches.rng.random_ratio(1, every) {
            return None;
        }
        let ids: Vec<JobId> = view.model.batches().map(|batch| batch.opened.id).collect();
        let rng = &mut self.batches.rng;
        let any = ids.choose(rng).copied().unwrap_or(JobId(1));
        Some(match rng.random_range(0..20) {
            0..8 => self.open_batch(view),
            8..16 => Command::SealBatch { id: any },
            16 => Command::SealBatch { id: JobId(any.0 + 1) },
            17 if view.finished.is_some() => Command::Compact(Compact::Batch(any)),
            _ => Command::CancelBatch { id: any },
        })
    }

    fn open_batch(&mut self, view: View<'_>) -> Command {
        if self.next_id + 8 >= view.model.ids_until() && view.finished.is_some() {
            return Command::ReserveIds { until: view.model.ids_until() + 256 };
        }
        let id = JobId(self.next_id);
        self.next_id += 1;
        let rng = &mut self.batches.rng;
        let open: Vec<JobId> = open_batches(view.model);
        let parent = open.choose(rng).copied().filter(|_| rng.random_ratio(1, 3));
        let key = if rng.random_ratio(1, 4) { vec![b'a' + rng.random_range(0..4)] } else { vec![] };
        Command::OpenBatch(Box::new(OpenBatch {
            id,
            queue: Bytes::from_static(b"mail"),
            name: "a batch".to_owned(),
            key: key.into(),
            parent,
            keep_ms: *[0, 1_000, 60_000, 100_000_000].choose(rng).expect("not empty"),
        }))
    }
}

fn open_batches(model: &Model) -> Vec<JobId> {
    model.batches().filter(|batch| !batch.is_sealed).map(|batch| batch.opened.id).collect()
}

/// Some jobs belong to a batch, and some wait for one, depending on their number. Rarely it is a
/// batch that takes no more jobs, or does not exist.
pub(super) fn join_or_wait(submit: &mut Submit, view: View<'_>) {
    let draw = mix(submit.id.0 ^ 0xba7c);
    let all: Vec<JobId> = view.model.batches().map(|batch| batch.opened.id).collect();
    if all.is_empty() || submit.foreground {
        return;
    }
    let of = |ids: &[JobId]| ids.get((draw >> 16) as usize % ids.len().max(1)).copied();
    match draw % 24 {
        0..8 => submit.batch = of(&open_batches(view.model)),
        8 => submit.batch = of(&all),
        9 => submit.batch = Some(submit.id),
        _ => {}
    }
    if (draw >> 8).is_multiple_of(5) {
        submit.after.extend(of(&all));
    }
}
