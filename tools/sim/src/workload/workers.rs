//! Workers lease, finish, release and disconnect.

use bytes::Bytes;
use rand::Rng;
use spindle_core::command::{Claim, Extend, Finish, Lease, Select};
use spindle_core::job::{Cause, Origin};
use spindle_core::{BytesRef, Command, JobId, Status, Type};

use super::{View, Workload};

impl Workload {
    pub(super) fn lease(&mut self, _view: View<'_>) -> Command {
        let mut queues: Vec<Bytes> = Vec::new();
        for _ in 0..self.rng.random_range(1..=4) {
            let queue = self.queue();
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        let (door, select, bound) = match self.rng.random_range(0..5) {
            0 | 1 => (Origin::Workq, Select::RandomQueue { draw: self.rng.random() }, false),
            2 | 3 => {
                let after = (!self.one_in(3)).then(|| self.queue());
                (Origin::Gearman, Select::RoundRobin { after }, true)
            }
            _ => (Origin::Api, Select::ByPriority, false),
        };
        let payload_bytes_max = if door == Origin::Workq { 1 << 20 } else { u32::MAX };
        Command::Lease(Lease {
            queues,
            select,
            holder: self.holder(),
            bound,
            timeout_ms: self.some(&[1, 1_500, 70_000]),
            door,
            worker: Bytes::from_static(b"w"),
            payload_bytes_max,
        })
    }

    /// What a worker does besides asking for work.
    pub(super) fn worker(&mut self, view: View<'_>) -> Command {
        match self.rng.random_range(0..20) {
            0..13 => self.finish(view),
            13 => Command::DropTimeout { claim: self.claim(view) },
            14 => Command::Extend(Extend {
                claim: self.claim(view),
                ttr_ms: self.rng.random_range(1..90_000),
            }),
            15 | 16 => Command::Release { claim: self.claim(view), cause: Cause::Released },
            17 => Command::Release { claim: self.claim(view), cause: Cause::Undone },
            18 => Command::Release { claim: self.claim(view), cause: Cause::HolderGone },
            _ => Command::HolderGone { holder: self.holder() },
        }
    }

    fn finish(&mut self, view: View<'_>) -> Command {
        let success = self.one_in(2);
        let claim = if self.one_in(3) {
            let id = self.any_job(view, |job| !job.status().is_finished());
            Claim::Unfinished { id }
        } else {
            self.claim(view)
        };
        let len = self.rng.random_range(0..80);
        let result = (len > 0).then(|| BytesRef::logged(7, 64, len, Type::Bytes));
        Command::Finish(Box::new(Finish {
            claim,
            success,
            retry: !self.one_in(5),
            result,
            message: if success { Bytes::new() } else { self.words(256) },
            error: if success { Bytes::new() } else { self.words(256) },
            code: if success { Bytes::new() } else { self.words(64) },
            worker_finished_at: Bytes::new(),
        }))
    }

    /// What a worker reports: mostly short, sometimes about as long as is kept of it, or longer.
    fn words(&mut self, about: usize) -> Bytes {
        let letter = ["x", "\u{e9}", "\u{1f980}", "\u{7f}"][self.rng.random_range(0..4)];
        let len = match self.rng.random_range(0..6) {
            0 => 0,
            1 => self.rng.random_range(about - 4..about + 5),
            2 => 3 * about,
            _ => self.rng.random_range(0..12),
        };
        let mut text = letter.repeat(len / letter.len() + 1).into_bytes();
        if self.one_in(4) {
            // This is not text: other doors accept any bytes.
            text.insert(0, 0xff);
        }
        text.truncate(if self.one_in(2) { len } else { text.len() });
        text.into()
    }

    /// A live lease's token; seldom one that is too old, or from another epoch.
    fn claim(&mut self, view: View<'_>) -> Claim {
        let id = self.any_job(view, |job| job.status() == Status::Leased);
        if self.one_in(12) {
            return Claim::Unfinished { id };
        }
        let job = view.model.job(id);
        let epoch = job.and_then(|job| job.lease.as_ref()).map_or(1, |lease| lease.epoch);
        let attempt = job.map_or(1, |job| job.attempts);
        match self.rng.random_range(0..14) {
            0 => Claim::Token { id, epoch: epoch.wrapping_sub(1), attempt },
            1 => Claim::Token { id, epoch, attempt: attempt.wrapping_sub(1) },
            2 => Claim::Token { id: JobId(id.0 + 1), epoch, attempt },
            _ => Claim::Token { id, epoch, attempt },
        }
    }
}
