//! Jobs come in, shaped as each door shapes them.

use bytes::Bytes;
use rand::Rng;
use rand::seq::IndexedRandom;
use spindle_core::command::Submit;
use spindle_core::job::{Backoff, Key, Label, OnDead, Origin, Scope, TraceParent, mix};
use spindle_core::{BytesRef, Command, JobId, Type};

use super::batches::join_or_wait;
use super::{View, Workload};

impl Workload {
    pub(super) fn submit(&mut self, view: View<'_>) -> Command {
        if self.next_id + 8 >= view.model.ids_until() && view.finished.is_some() {
            return Command::ReserveIds { until: view.model.ids_until() + 256 };
        }
        let id = self.submit_id(view);
        let mut submit = match self.rng.random_range(0..10) {
            0..3 => self.workq(id, view),
            3..5 => self.gearman(id, view),
            5 | 6 => self.api(id, view),
            7 | 8 => self.lightjq(id, view),
            _ => self.jobq(id, view),
        };
        submit.constraints_revision = view.model.constraints_revision;
        if self.one_in(40) {
            submit.constraints_revision = submit.constraints_revision.saturating_sub(1);
        }
        if view.finished.is_none() && !self.one_in(5) {
            submit.constraints_revision = Submit::UNMATCHED;
        } else {
            submit.labels = self.labels(view);
        }
        blockers(&mut submit, view);
        join_or_wait(&mut submit, view);
        if self.one_in(60) {
            let len = if self.one_in(2) { 0 } else { 513 };
            submit.queue = Bytes::from(vec![b'q'; len]);
        }
        Command::Submit(Box::new(submit))
    }

    /// The next id; seldom one that is in use or not reserved.
    fn submit_id(&mut self, view: View<'_>) -> JobId {
        match self.rng.random_range(0..60) {
            0 => JobId(view.model.ids_until()),
            1 if view.model.jobs().next().is_some() => {
                let ids: Vec<u64> = view.model.jobs().map(|job| job.id).collect();
                JobId(*ids.choose(&mut self.rng).expect("not empty"))
            }
            _ => {
                let id = self.next_id;
                self.next_id += 1;
                JobId(id)
            }
        }
    }

    /// Labels of existing constraints, `per` values included; sorted and distinct.
    pub(super) fn labels(&mut self, view: View<'_>) -> Vec<Label> {
        let mut labels = Vec::new();
        let numbers: Vec<u32> = view.model.rules().map(|rule| rule.number).collect();
        for number in numbers {
            if self.one_in(2) {
                let value = self.rng.random_range(0..3);
                labels.push(Label { constraint: number, value });
            }
        }
        if self.one_in(80) {
            labels = (0..9).map(|value| Label { constraint: 900, value }).collect();
        }
        labels
    }

    fn payload(&mut self, kind: Type) -> BytesRef {
        let len = match self.rng.random_range(0..12) {
            0 => 0,
            1 => 2_000_000,
            _ => self.rng.random_range(1..400),
        };
        let position = self.rng.random_range(1..1_000);
        if len == 0 { BytesRef::empty(kind) } else { BytesRef::logged(position, 64, len, kind) }
    }

    fn new_submit(&mut self, id: JobId, origin: Origin, kind: Type) -> Submit {
        let queue = self.queue();
        let payload = self.payload(kind);
        // Chosen by its number, so that the seed's draws stay the same.
        let trace = id.0.is_multiple_of(3).then(|| {
            Box::new(TraceParent { trace_high: 7, trace_low: id.0, span: id.0, flags: 1 })
        });
        // Jobs of any door: the engine takes keys from payloads.
        let key = ["", "", "k1", "k2", "k3"][(id.0 % 5) as usize];
        let fair_key = (!key.is_empty()).then(|| Bytes::from_static(key.as_bytes()));
        Submit { trace, fair_key, ..Submit::new(id, queue, origin, payload) }
    }

    fn make_foreground(&mut self, submit: &mut Submit) {
        submit.foreground = true;
        submit.payload = BytesRef::in_memory(Bytes::from_static(b"now"), Type::Bytes);
    }

    fn workq(&mut self, id: JobId, view: View<'_>) -> Submit {
        let mut submit = self.new_submit(id, Origin::Workq, Type::Bytes);
        submit.uuid = Some([self.rng.random_range(1..40); 16]);
        submit.ttr_ms = Some(self.rng.random_range(1..60_000));
        submit.ttl_ms = Some(match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1..20_000),
            1 => u64::MAX,
            _ => self.rng.random_range(20_000..2_592_000_000),
        });
        submit.attempts_max = self.some(&[0, 1, 2, 3]);
        submit.fails_max = self.some(&[1, 2, 3]);
        submit.priority = self.rng.random_range(-1..=1);
        if self.one_in(4) {
            submit.run_at_ms = Some(view.now_ms + self.rng.random_range(0..20_000));
        }
        if self.one_in(6) {
            self.make_foreground(&mut submit);
        }
        submit
    }

    fn gearman(&mut self, id: JobId, view: View<'_>) -> Submit {
        let mut submit = self.new_submit(id, Origin::Gearman, Type::Bytes);
        if self.one_in(2) {
            let mut name = submit.queue.to_vec();
            name.extend([0, self.rng.random_range(b'a'..b'g')]);
            submit.keys.push(Key {
                namespace: Origin::Gearman as i32,
                name: name.into(),
                scope: Scope::WhileUnfinished as i32,
            });
        }
        submit.priority = self.rng.random_range(-1..=1);
        if self.one_in(8) {
            submit.run_at_ms = Some(view.now_ms + self.rng.random_range(1..10) * 1_000);
        }
        if self.one_in(2) {
            self.make_foreground(&mut submit);
        }
        submit
    }

    fn api(&mut self, id: JobId, view: View<'_>) -> Submit {
        let mut submit = self.new_submit(id, Origin::Api, Type::Json);
        if self.one_in(4) {
            submit.keys.push(Key {
                namespace: Origin::Api as i32,
                name: Bytes::copy_from_slice(&[self.rng.random_range(b'0'..=b'9')]),
                scope: Scope::WhileKept as i32,
            });
        }
        submit.priority = self.rng.random_range(-4..4);
        submit.attempts_max = self.some(&[0, 1, 4]);
        submit.fails_max = self.some(&[0, 1, 4]);
        submit.backoff = self.some(&[
            Backoff::NONE,
            Backoff {
                base_ms: 500,
                factor_thousandths: 3_000,
                cap_ms: 9_000,
                jitter_thousandths: 500,
            },
        ]);
        submit.ttl_ms = self.some(&[1, 5_000, 900_000]);
        submit.ttr_ms = self.some(&[1, 1_000, 45_000]);
        submit.keep_ms = self.some(&[0, 2_000, 100_000_000]);
        submit.parked = self.one_in(5);
        if self.one_in(5) {
            let ahead = self.rng.random_range(0..8_000);
            submit.run_at_ms = Some((view.now_ms + ahead).saturating_sub(2_000));
        }
        submit
    }

    fn lightjq(&mut self, id: JobId, _view: View<'_>) -> Submit {
        let mut submit = self.new_submit(id, Origin::Lightjq, Type::Msgpack);
        submit.priority = self.rng.random_range(-3..3);
        let tries = self.rng.random_range(1..4);
        submit.attempts_max = Some(tries);
        submit.fails_max = Some(tries);
        submit.ttr_ms = Some(self.rng.random_range(1..30) * 1_000);
        submit.drop_result = self.one_in(2);
        submit.keep_ms = Some(if submit.drop_result { 300_000 } else { 86_400_000 });
        submit.keep_read_ms = Some(300_000);
        submit
    }

    fn jobq(&mut self, id: JobId, _view: View<'_>) -> Submit {
        let mut submit = self.new_submit(id, Origin::Jobq, Type::Json);
        submit.parked = !self.one_in(4);
        submit.state = Some(Bytes::from_static(b"[\"CREATED\"]"));
        submit.event = Some(Bytes::from_static(b"[\"job_created\"]"));
        submit
    }
}

/// Some jobs wait for others, depending on their number, so that the seed's draws stay the same.
/// Rarely it is a job that does not exist.
fn blockers(submit: &mut Submit, view: View<'_>) {
    let draw = mix(submit.id.0);
    if !draw.is_multiple_of(4) || submit.foreground {
        return;
    }
    let ids: Vec<u64> = view.model.jobs().map(|job| job.id).collect();
    if ids.is_empty() {
        return;
    }
    // The youngest jobs are the ones most likely not to have ended.
    let young = &ids[ids.len().saturating_sub(12)..];
    let count = 1 + (draw >> 8) % 3;
    let pick = |at: u64| JobId(young[(mix(draw ^ at) % young.len() as u64) as usize]);
    submit.after = (0..count).map(pick).collect();
    if (draw >> 16).is_multiple_of(16) {
        submit.after.push(JobId(submit.id.0 + 1_000));
    }
    submit.on_dead = OnDead::ALL[((draw >> 24) % 3) as usize];
}
