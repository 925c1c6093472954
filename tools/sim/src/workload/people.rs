//! People and doors change, pause, limit, cancel, delete and retry.

use bytes::Bytes;
use rand::Rng;
use rand::seq::IndexedRandom;
use spindle_core::audit::{Action, Actor, ActorKind, AuditEntry};
use spindle_core::command::{Audited, Compact, Edit, Matched};
use spindle_core::job::{Backoff, Cause, Origin};
use spindle_core::queue::{Constraint, Fair, FairWeight, LimitScope, QueueSettings, Rate};
use spindle_core::{BytesRef, Command, JobId, JobImage, Status, Type};

use spindle_matching::{Matcher, QueuePattern, encode_matcher};

use super::{View, Workload};

impl Workload {
    /// What a person asks for, mostly with its entry in the audit log.
    pub(super) fn person(&mut self, view: View<'_>) -> Command {
        let command = self.plain_person(view);
        let is_audited = matches!(
            command,
            Command::Delete { cause: Cause::Deleted, .. }
                | Command::DeleteLater { .. }
                | Command::Undelete { .. }
                | Command::Cancel { .. }
                | Command::Edit(_)
                | Command::SetQueue { .. }
        );
        if is_audited && !self.one_in(4) { self.audited(Some(command), view) } else { command }
    }

    /// A request of its own, or one more change of the request before.
    fn audited(&mut self, command: Option<Command>, view: View<'_>) -> Command {
        let name = ["ops", "ci"][self.rng.random_range(0..2)];
        let goes_on = command.is_some() && self.one_in(2);
        let entry = AuditEntry {
            seq: if goes_on { view.model.last_audit } else { 0 },
            actor: Some(Actor::new(ActorKind::Token, name, "192.0.2.7", Origin::Api)),
            action: Action::AcceptClock as i32,
            count: (goes_on || self.one_in(2)).then(|| self.rng.random_range(0..9)),
            ..AuditEntry::default()
        };
        Command::Audited(Box::new(Audited { command, entry }))
    }

    fn plain_person(&mut self, view: View<'_>) -> Command {
        let waits = |status| matches!(status, Status::Scheduled | Status::Ready | Status::Parked);
        match self.rng.random_range(0..34) {
            0..4 => self.retry(view),
            4..10 => self.edit(view),
            10 => Command::Cancel { id: self.any_job(view, |job| waits(job.status())) },
            11 => Command::Cancel { id: self.any_job(view, |_| true) },
            12 => Command::Delete { id: self.any_job(view, |_| true), cause: Cause::Deleted },
            13 => Command::Delete {
                id: self.any_job(view, |job| job.status().is_finished()),
                cause: Cause::Consumed,
            },
            14 => self.abandon(view),
            15 | 16 => Command::ResultRead {
                id: self.any_job(view, |job| job.status().is_finished()),
                keep_read_ms: self.rng.random_range(0..400_000),
            },
            17 => Command::Persist {
                id: self.any_job(view, |job| job.foreground),
                payload: BytesRef::logged(9, 64, 3, Type::Bytes),
                keep_ms: self.some(&[3_600_000]),
            },
            18 if self.one_in(3) => Command::PayloadDamaged { id: self.any_job(view, |_| true) },
            18 | 19 => self.set_state(view),
            20 => Command::AddEvent {
                id: self.any_job(view, |job| job.options().state.is_some()),
                event: Bytes::from_static(b"[\"noted\"]"),
                page: self.page(),
            },
            21..24 => Command::SetQueue { name: self.queue(), settings: self.settings() },
            24 => self.set_constraint(view),
            25 => Command::RemoveConstraint { number: self.constraint(view) },
            26 | 27 => self.relabel(view),
            28 if self.one_in(4) => self.audited(None, view),
            30 | 31 => Command::DeleteLater {
                id: self.any_job(view, |_| true),
                request: view.model.last_audit + 1,
                undo_ms: self.rng.random_range(1..90_000),
            },
            32 | 33 => {
                let is_deleted = |job: &JobImage| job.options().deletion.is_some();
                Command::Undelete { id: self.any_job(view, is_deleted) }
            }
            _ => Command::Compact(self.compaction(view)),
        }
    }

    fn relabel(&mut self, view: View<'_>) -> Command {
        let revision = view.model.constraints_revision;
        if self.one_in(6) {
            let below = JobId(self.some(&[u64::MAX]).unwrap_or(self.next_id));
            return Command::NoteRelabelled { revision, below };
        }
        let id = self.any_job(view, |job| !job.status().is_finished());
        let known = view.model.job(id).map_or(0, |job| job.revision);
        let wrong = u32::from(self.one_in(6));
        let revision = self.one_in(2).then_some(known.wrapping_add(wrong));
        Command::Relabel { id, revision, matched: self.matched(view) }
    }

    fn matched(&mut self, view: View<'_>) -> Matched {
        let wrong = u64::from(self.one_in(30));
        let constraints_revision = view.model.constraints_revision + wrong;
        Matched { labels: self.labels(view), constraints_revision }
    }

    fn retry(&mut self, view: View<'_>) -> Command {
        let id = self.any_job(view, |job| job.status().is_finished());
        let Some(image) = view.finished_image(id) else { return Command::Cancel { id } };
        let payload = self.one_in(4).then(|| BytesRef::logged(11, 64, 30, Type::Json));
        Command::Retry { image: Box::new(image.clone()), payload }
    }

    fn edit(&mut self, view: View<'_>) -> Command {
        let id =
            self.any_job(view, |job| !job.status().is_finished() && job.status() != Status::Leased);
        let revision = view.model.job(id).map_or(0, |job| job.revision);
        let wrong = u32::from(self.one_in(6));
        let mut edit = Edit { id, ..Edit::default() };
        edit.revision = (!self.one_in(3)).then_some(revision.wrapping_sub(wrong));
        edit.queue = self.one_in(4).then(|| self.queue());
        // The engine matches by itself.
        if view.finished.is_some() && edit.queue.is_some() && self.one_in(2) {
            edit.matched = Some(self.matched(view));
        }
        edit.priority = self.one_in(3).then(|| self.rng.random_range(-2..3));
        edit.parked = self.some(&[true, false]);
        if self.one_in(3) {
            let ahead = self.rng.random_range(1..9_000);
            edit.run_at_ms = self.some(&[0, view.now_ms + ahead]);
        }
        Command::Edit(Box::new(edit))
    }

    /// The last client stops waiting for a foreground job that was not started.
    fn abandon(&mut self, view: View<'_>) -> Command {
        let fits = view.model.jobs().find(|job| job.foreground && job.status() == Status::Ready);
        let id = fits.map_or(JobId(self.next_id), |job| JobId(job.id));
        Command::Delete { id, cause: Cause::Abandoned }
    }

    fn set_state(&mut self, view: View<'_>) -> Command {
        let id = self.any_job(view, |job| job.options().state.is_some());
        let revision = view.model.job(id).map_or(0, |job| job.revision);
        let wrong = u32::from(self.one_in(4));
        Command::SetState {
            id,
            revision: self.one_in(2).then_some(revision.wrapping_add(wrong)),
            state: Bytes::from(format!("[\"STEP\",{}]", self.rng.random_range(0..4))),
            event: Bytes::from_static(b"[\"job_state_advanced\"]"),
            page: self.page(),
        }
    }

    /// A place for the events so far. Pages are always written after the records that their job
    /// needs.
    fn page(&mut self) -> Option<BytesRef> {
        self.one_in(8).then(|| BytesRef::logged(1 << 40, 64, 2, Type::Bytes))
    }

    fn settings(&mut self) -> QueueSettings {
        if self.one_in(3) {
            return QueueSettings::default();
        }
        let ten_seconds = Backoff {
            base_ms: 10_000,
            factor_thousandths: 1_000,
            cap_ms: 10_000,
            jitter_thousandths: 0,
        };
        // By the number of jobs, so that what a seed draws stays as it is.
        let weights = [FairWeight { key: Bytes::from_static(b"k2"), weight: 3 }];
        let weights = if self.next_id.is_multiple_of(2) { weights.to_vec() } else { Vec::new() };
        let fair = Fair { field: String::new(), weights };
        QueueSettings {
            paused: self.one_in(2),
            attempts_max: self.some(&[2, 5]),
            fails_max: self.some(&[2, 5]),
            backoff: self.some(&[ten_seconds]),
            ttr_default_ms: self.some(&[3_000]),
            keep_ms: self.some(&[1_000, 50_000_000]),
            keep_dead_ms: self.some(&[4_000]),
            jobs_max: self.some(&[3, 40]),
            bytes_max: if self.one_in(5) { self.some(&[2_000, 5_000_000]) } else { None },
            finished_max: self.some(&[0, 2, 6]),
            bytes_type: self.some(&[Type::Json as i32, Type::Msgpack as i32]),
            jobs_max_by_class: self
                .some(&[[9, 0, 4], [2, 6, 0]])
                .map(Vec::from)
                .unwrap_or_default(),
            aging_ms: [None, None, Some(900), Some(40)][(self.next_id % 4) as usize],
            fair: (!self.next_id.is_multiple_of(3)).then_some(fair),
        }
    }

    fn set_constraint(&mut self, view: View<'_>) -> Command {
        let known = view.model.rules().count();
        let most = if self.one_in(4) { 10 } else { 3 };
        let new = known == 0 || (known < most && self.one_in(2));
        let number = if new { 0 } else { self.constraint(view) };
        let rate = Rate {
            count: self.rng.random_range(1..4),
            per_ms: self.rng.random_range(1..5_000),
            burst: self.rng.random_range(1..5),
        };
        let rule = Constraint {
            number,
            name: Bytes::from(format!("limit-{}", self.rng.random_range(0..9))),
            matcher: self.matcher(),
            rate: self.some(&[rate]),
            running_max: self.some(&[0, 1, 2, 5]),
        };
        let scopes = [LimitScope::Whole, LimitScope::PerShard];
        Command::SetConstraint(rule, scopes[(self.next_id % 2) as usize])
    }

    /// For one queue, for all, or in words of a later version.
    fn matcher(&mut self) -> Bytes {
        let queue = match self.rng.random_range(0..8) {
            0 => return Bytes::from_static(b"m"),
            1 | 2 => QueuePattern::Any,
            _ => QueuePattern::Exact(self.queue()),
        };
        encode_matcher(&Matcher { queue, ..Matcher::default() })
    }

    fn constraint(&mut self, view: View<'_>) -> u32 {
        let numbers: Vec<u32> = view.model.rules().map(|rule| rule.number).collect();
        numbers.choose(&mut self.rng).copied().unwrap_or(77)
    }

    fn compaction(&mut self, view: View<'_>) -> Compact {
        let id = self.any_job(view, |_| true);
        match (self.rng.random_range(0..6), view.model.job(id), view.finished_image(id)) {
            (0, ..) => Compact::Queue(self.queue()),
            (1, ..) => Compact::Constraint { number: self.constraint(view), from: 0 },
            (2, ..) if self.one_in(2) => Compact::Audit { from: 0, below: u64::MAX },
            (2, ..) => Compact::Server,
            (_, Some(job), Some(image)) if job.status().is_finished() => {
                Compact::Finished(Box::new(image.clone()))
            }
            (3, Some(job), _) if !job.options().pages.is_empty() => {
                let old = job.options().pages[0].clone();
                let new = BytesRef { offset: self.rng.random_range(64..99), ..old.clone() };
                Compact::Page { id, old, new }
            }
            (_, Some(job), _) => Compact::Job {
                id,
                revision: job.revision.wrapping_sub(u32::from(self.one_in(5))),
                payload: job.payload.clone(),
                result: job.outcome.as_ref().and_then(|outcome| outcome.bytes.clone()),
            },
            _ => Compact::Server,
        }
    }
}
