//! What holds after any sequence of commands (the invariants in docs/ARCHITECTURE.md), and
//! each family of commands by example: given events, when command, then events.
//!
//! A sequence that fails is shrunk and printed (`harness/life.rs`).

mod families;
mod harness;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use harness::{Server, Step, in_any_life, live_images, random_life};
use spindle_core::command::{Claim, Compact, Lease, Select};
use spindle_core::job::{Cause, Label, OnDead, Scope};
use spindle_core::{Command, Event, Found, JobId, JobImage, ReadyBefore, Rejection, Status};

fn leased_by(outcome: &Result<Vec<Event>, Rejection>) -> Option<&spindle_core::event::Leased> {
    outcome.iter().flatten().find_map(|event| match event {
        Event::Leased(leased) => Some(leased),
        _ => None,
    })
}

#[test]
fn a_submitted_job_is_findable_or_its_end_was_told() {
    in_any_life(|life| {
        let server = random_life(life, |_| {});
        let mut logged = BTreeSet::new();
        let mut ended = BTreeSet::new();
        for (_, event) in &server.history {
            match event {
                Event::Submitted(image) if !image.foreground => {
                    logged.insert(image.id);
                }
                Event::Gone(gone) => ended.extend(gone.ids.iter().copied()),
                _ => {}
            }
        }
        for id in logged {
            let findable = server.state.job(JobId(id)).is_some();
            assert_ne!(findable, ended.contains(&id), "job {id}");
        }
    });
}

#[test]
fn a_job_has_one_live_lease_and_its_token_was_never_given_before() {
    in_any_life(|life| {
        let mut tokens: BTreeSet<(u64, u64, u32)> = BTreeSet::new();
        random_life(life, |step| {
            if let Command::Release { claim: Claim::Token { id, epoch, attempt }, cause } =
                step.command
                && *cause == Cause::Undone
                && step.outcome.is_ok()
            {
                // That token never left the server.
                tokens.remove(&(id.0, *epoch, *attempt));
            }
            if let Command::Release { claim: Claim::Unfinished { id }, .. } = step.command {
                tokens.retain(|(other, ..)| *other != id.0);
            }
            if let Event::Retried(image) = step.outcome.iter().flatten().next().unwrap_or(&NONE) {
                tokens.retain(|(other, ..)| *other != image.id);
            }
            let Some(leased) = leased_by(step.outcome) else { return };
            let held = step.before.iter().any(|job| job.id == leased.id && job.lease.is_some());
            assert!(!held, "{leased:?} while leased");
            let new = tokens.insert((leased.id, leased.lease.epoch, leased.attempts));
            assert!(new, "{leased:?} again");
        });
    });
}

/// Stands for no event.
const NONE: Event =
    Event::IdsReserved(spindle_core::event::IdsReserved { until: 0, returned: false });

#[test]
fn a_finish_with_a_token_that_is_not_the_live_leases_is_refused() {
    let refused = Cell::new(0);
    in_any_life(|life| {
        random_life(life, |step| {
            let Command::Finish(finish) = step.command else { return };
            let Claim::Token { id, epoch, attempt } = finish.claim else { return };
            let live = step.before.iter().any(|job| {
                let lease = job.lease.as_ref();
                job.id == id.0
                    && job.attempts == attempt
                    && lease.is_some_and(|lease| lease.epoch == epoch)
            });
            assert_eq!(live, step.outcome.is_ok(), "{:?}", step.command);
            refused.set(refused.get() + u32::from(!live));
        });
    });
    let refused = refused.get();
    assert!(refused > 20, "only {refused} stale tokens were tried");
}

#[test]
fn attempts_and_fails_never_pass_their_maximum() {
    in_any_life(|life| {
        random_life(life, |step| {
            let finished = step.outcome.iter().flatten().filter_map(|event| match event {
                Event::Finished(image) => Some(image.clone()),
                _ => None,
            });
            for job in live_images(step.server).into_iter().chain(finished) {
                let tries = step.server.state.tries_of(&job);
                let limit = |max: u32| if max > 0 { max } else { u32::MAX };
                let attempts_max = limit(tries.attempts_max.value);
                let fails_max = limit(tries.fails_max.value);
                let waits = !job.status().is_finished()
                    && job.status() != Status::Leased
                    && job.options().deletion.is_none();
                let spent = job.attempts == attempts_max || job.fails == fails_max;
                assert!(job.attempts <= attempts_max, "{job:?}");
                assert!(job.fails <= fails_max, "{job:?}");
                assert!(!(waits && spent), "{job:?} waits for nothing");
            }
        });
    });
}

#[test]
fn a_job_runs_only_when_those_before_it_have_ended() {
    let (blocked, gone_on) = (Cell::new(0), Cell::new(0));
    in_any_life(|life| {
        random_life(life, |step| {
            for job in step.before {
                let Some(after) = &job.options().after else { continue };
                let is_live = |id: &u64| step.before.iter().any(|other| other.id == *id);
                let waits = |id: &u64| is_live(id) || after.on_dead() == OnDead::Wait;
                assert!(after.open.iter().all(waits), "{job:?} waits for nothing");
                let is_parked = job.status() == Status::Parked;
                let is_blocked = job.status() == Status::Blocked;
                assert!(is_parked || is_blocked != after.open.is_empty(), "{job:?}");
                blocked.set(blocked.get() + u32::from(is_blocked));
                gone_on.set(gone_on.get() + u32::from(!is_blocked && !is_parked));
            }
        });
    });
    assert!(blocked.get() > 500 && gone_on.get() > 500, "{blocked:?} {gone_on:?}");
}

/// What a lease has to give, by looking at every job.
fn eligible<'a>(step: &'a Step<'_>, lease: &Lease) -> Vec<&'a JobImage> {
    let blocked = |job: &JobImage| {
        job.options().labels.iter().any(|label| {
            let rule = step.server.state.constraints().find(|r| r.number == label.constraint);
            rule.is_some()
        })
    };
    step.before
        .iter()
        .filter(|job| job.status() == Status::Ready && lease.queues.contains(&job.queue))
        .filter(|job| !step.paused.contains(&job.queue))
        .filter(|job| job.payload.as_ref().map_or(0, |p| p.len) <= lease.payload_bytes_max)
        // Limits have a property of their own; only jobs without limits are looked at here.
        .filter(|job| !blocked(job))
        .collect()
}

#[test]
fn a_lease_gives_the_job_its_selection_names() {
    let judged = Cell::new(0);
    in_any_life(|life| {
        random_life(life, |step| {
            let Command::Lease(lease) = step.command else { return };
            let jobs = eligible(step, lease);
            let Some(leased) = leased_by(step.outcome) else {
                assert!(jobs.is_empty(), "nothing for {lease:?} of {jobs:?}");
                return;
            };
            let given = step.before.iter().find(|job| job.id == leased.id).expect("it was ready");
            let rank = |job: &JobImage| (std::cmp::Reverse(job.priority), job.order);
            let better = |job: &&&JobImage| rank(job) < rank(given);
            let overtaken = match &lease.select {
                Select::ByPriority => jobs.iter().find(better),
                Select::RandomQueue { .. } => {
                    jobs.iter().filter(|job| job.queue == given.queue).find(better)
                }
                Select::RoundRobin { after } => {
                    let place = |name: &Bytes| lease.queues.iter().position(|q| q == name);
                    let first = after.as_ref().and_then(place).map_or(0, |at| at + 1);
                    let count = lease.queues.len();
                    let turn = |job: &JobImage| {
                        let at = place(&job.queue).expect("it was asked for");
                        (at + count - first) % count
                    };
                    let rank =
                        |job: &JobImage| (std::cmp::Reverse(job.priority), turn(job), job.order);
                    jobs.iter().find(|job| rank(job) < rank(given))
                }
            };
            assert!(overtaken.is_none(), "{given:?} before {overtaken:?}");
            judged.set(judged.get() + 1);
        });
    });
    let judged = judged.get();
    assert!(judged > 500, "only {judged} leases were given");
}

#[test]
fn nothing_is_leased_from_a_paused_queue_or_outside_its_time() {
    in_any_life(|life| {
        random_life(life, |step| {
            let Some(leased) = leased_by(step.outcome) else { return };
            let job = step.before.iter().find(|job| job.id == leased.id).expect("it was there");
            let now_ms = step.server.now_ms;
            assert!(!step.paused.contains(&job.queue), "{job:?} is paused");
            assert!(job.options().run_at_ms.is_none_or(|at| at <= now_ms), "{job:?} early");
            assert!(job.expires_ms().is_none_or(|at| at > now_ms), "{job:?} late");
        });
    });
}

#[test]
fn nothing_outlives_its_ttl_or_its_retention() {
    in_any_life(|life| {
        random_life(life, |step| {
            let now_ms = step.server.now_ms;
            for found in step.server.state.jobs_from(JobId(0)) {
                let ends_ms = match found {
                    Found::Live(job) => job.expires_ms(),
                    Found::Finished(finished) => finished.kept_until_ms(),
                };
                // What a command ended at once goes with the next tick.
                let overdue = ends_ms.is_some_and(|at| at < now_ms);
                assert!(!overdue, "{found} should have gone at {ends_ms:?}");
            }
        });
    });
}

#[test]
fn a_queue_keeps_no_more_finished_jobs_than_it_may_and_those_that_ended_last() {
    let dropped = Cell::new(0);
    in_any_life(|life| {
        let mut server = random_life(life, |_| {});
        server.tick();
        for name in server.state.queues_from(b"", false).map(|queue| queue.name) {
            let queue = server.state.queue(&name).expect("it is listed");
            let count = queue.count(Status::Done) + queue.count(Status::Dead);
            let max = queue.settings().finished_max.unwrap_or(u64::MAX);
            assert!(count as u64 <= max, "{name:?} keeps {count} of {max}");
        }
        dropped.set(dropped.get() + judge_dropped(&server.history));
    });
    let dropped = dropped.get();
    assert!(dropped > 100, "only {dropped} jobs were too many");
}

/// A finished job that a cap drops ended no later than any that its queue keeps. How many were.
fn judge_dropped(history: &[(u64, Event)]) -> usize {
    let mut kept: BTreeMap<u64, (Bytes, u64)> = BTreeMap::new();
    let mut dropped = 0;
    for (_, event) in history {
        match event {
            Event::Finished(image) if !image.foreground => {
                let ended_s = image.finished_ms.expect("it ended") / 1_000;
                kept.insert(image.id, (image.queue.clone(), ended_s));
            }
            Event::Retried(image) => drop(kept.remove(&image.id)),
            Event::Gone(gone) => {
                let gone_now: Vec<_> = gone.ids.iter().filter_map(|id| kept.remove(id)).collect();
                if gone.cause() != Cause::Limit {
                    continue;
                }
                dropped += gone_now.len();
                for (queue, ended_s) in gone_now {
                    let earlier = kept
                        .values()
                        .find(|(other, other_s)| *other == queue && *other_s < ended_s);
                    assert!(earlier.is_none(), "{queue:?} kept {earlier:?}");
                }
            }
            _ => {}
        }
    }
    dropped
}

#[test]
fn a_full_queue_takes_no_submit_of_that_priority() {
    let full = Cell::new(0);
    in_any_life(|life| {
        random_life(life, |step| {
            let Command::Submit(submit) = step.command else { return };
            let Some(queue) = step.server.state.queue(&submit.queue) else { return };
            let class = (1 - submit.priority.signum()) as usize;
            let Some(max) = queue.settings().jobs_max_by_class.get(class) else { return };
            let waiting = step.before.iter().filter(|job| job.queue == submit.queue).count();
            let over = waiting as u64 >= *max;
            assert!(!(over && step.outcome.is_ok()), "{waiting} of {max}");
            full.set(full.get() + u32::from(*step.outcome == Err(Rejection::QueueFull)));
        });
    });
    let full = full.get();
    assert!(full > 20, "only {full} submits found their queue full");
}

#[test]
fn no_command_fills_a_queue_beyond_its_limits() {
    let grown = Cell::new(0);
    let refused = Cell::new(0);
    in_any_life(|life| {
        random_life(life, |step| {
            refused.set(refused.get() + u32::from(*step.outcome == Err(Rejection::QueueFull)));
            let after = live_images(step.server);
            for queue in step.server.state.queues_from(b"", false) {
                let queue = step.server.state.queue(&queue.name).expect("it is listed");
                let (before, after) = (held(step.before, queue.name()), held(&after, queue.name()));
                assert_eq!(after, (queue.unfinished() as u64, queue.payload_bytes()));
                let settings = queue.settings();
                if after.0 > before.0 && step.outcome.is_ok() {
                    grown.set(grown.get() + 1);
                    assert!(settings.jobs_max.is_none_or(|max| after.0 <= max), "{after:?}");
                    assert!(settings.bytes_max.is_none_or(|max| after.1 <= max), "{after:?}");
                }
            }
        });
    });
    assert!(grown.get() > 1_000 && refused.get() > 100, "{grown:?} {refused:?}");
}

/// The jobs of a queue, and the bytes of their payloads.
fn held(jobs: &[JobImage], queue: &[u8]) -> (u64, u64) {
    let payload_len = |job: &JobImage| job.payload.as_ref().map_or(0, |payload| payload.len);
    let held = jobs.iter().filter(|job| job.queue == queue);
    held.fold((0, 0), |(jobs, bytes), job| (jobs + 1, bytes + u64::from(payload_len(job))))
}

#[test]
fn limits_are_never_exceeded() {
    let counted = Cell::new(0);
    in_any_life(|life| {
        let mut starts: BTreeMap<Label, Vec<u64>> = BTreeMap::new();
        random_life(life, |step| {
            if let Some(leased) = leased_by(step.outcome) {
                let job = step.before.iter().find(|job| job.id == leased.id).expect("there");
                for label in &job.options().labels {
                    starts.entry(*label).or_default().push(step.server.now_ms);
                }
            }
            if !matches!(step.command, Command::Lease(_)) {
                return;
            }
            for rule in step.server.state.constraints() {
                for value in 0..2 {
                    let label = Label { constraint: rule.number, value };
                    let taken = starts.get(&label).map_or(&[][..], Vec::as_slice);
                    if let Some(rate) = rule.rate {
                        for (at, from) in taken.iter().enumerate() {
                            let window_ms = taken[taken.len() - 1] - from;
                            let allowed = rate.burst + window_ms * rate.count / rate.per_ms;
                            let count = (taken.len() - at) as u64;
                            assert!(count <= allowed, "{rule:?} {taken:?}");
                            counted.set(counted.get() + 1);
                        }
                    }
                }
            }
        });
    });
    let counted = counted.get();
    assert!(counted > 100, "only {counted} windows were looked at");
}

#[test]
fn running_jobs_stay_below_the_limit_when_they_start() {
    in_any_life(|life| {
        random_life(life, |step| {
            let Some(leased) = leased_by(step.outcome) else { return };
            let job = step.before.iter().find(|job| job.id == leased.id).expect("it was there");
            for label in &job.options().labels {
                let rule = step.server.state.constraints().find(|r| r.number == label.constraint);
                let Some(max) = rule.and_then(|rule| rule.running_max) else { continue };
                let running = step
                    .before
                    .iter()
                    .filter(|job| job.lease.is_some() && job.options().labels.contains(label))
                    .count() as u64;
                assert!(running < max, "{running} ran when {leased:?}");
            }
        });
    });
}

#[test]
fn a_key_in_scope_names_at_most_one_job() {
    in_any_life(|life| {
        random_life(life, |step| {
            let mut names = BTreeMap::new();
            let images = live_images(step.server).into_iter();
            for job in images.filter(|job| job.options().deletion.is_none()) {
                for key in job.options().keys.clone() {
                    let found = step.server.state.job_by_key(&key).map(|found| found.id());
                    assert_eq!(found, Some(JobId(job.id)), "{key:?}");
                    let other = names.insert((key.namespace, key.name.clone()), job.id);
                    assert_eq!(other, None, "{key:?} of job {}", job.id);
                }
            }
            if let (Command::Submit(submit), Err(Rejection::KeyTaken(id))) =
                (step.command, step.outcome)
            {
                let holder = step.server.status(id.0).expect("a key is held by a job");
                let unique = submit.keys.iter().any(|key| key.scope() == Scope::WhileUnfinished);
                assert!(!(unique && holder.is_finished()), "job {id} let go of it");
            }
        });
    });
}

#[test]
fn the_fold_of_the_log_is_the_state() {
    in_any_life(|life| {
        let server = random_life(life, |_| {});
        let folded = server.folded(0);
        let now_ms = server.now_ms;
        assert_eq!(
            text(&folded.dump(now_ms)),
            text(&server.state.dump(now_ms)),
            "the fold is another state"
        );
    });
}

#[test]
fn the_fold_is_the_same_after_old_records_were_carried_forward_and_dropped() {
    in_any_life(|life| {
        let mut server = random_life(life, |_| {});
        server.tick();
        let below = server.position;
        compact_all(&mut server, below);
        let folded = server.folded(below);
        let now_ms = server.now_ms;
        let (was, is) = (server.state.dump(now_ms), folded.dump(now_ms));
        assert_eq!(text(&is), text(&was));
        let oldest = folded.jobs_from(JobId(0)).filter_map(|job| job.oldest_record()).min();
        assert!(oldest.is_none_or(|oldest_record| oldest_record >= below), "{oldest:?} < {below}");
        assert!(folded.items_needing(below).is_empty());
    });
}

fn text(dump: &[u8]) -> String {
    String::from_utf8_lossy(dump).into_owned()
}

/// Emits everything again that needs a record below a position.
fn compact_all(server: &mut Server, below: u64) {
    let mut items = server.state.items_needing(below);
    let old =
        |job: &Found<'_>| job.oldest_record().is_some_and(|oldest_record| oldest_record < below);
    for found in server.state.jobs_from(JobId(0)).filter(old) {
        let id = found.id();
        items.push(match found {
            Found::Live(job) => {
                let mut payload = job.payload();
                payload.position = server.position;
                Compact::Job { id, revision: job.revision(), payload: Some(payload), result: None }
            }
            Found::Finished(_) => {
                let mut image = server.finished(id.0);
                if let Some(payload) = image.payload.as_mut() {
                    payload.position = server.position;
                }
                Compact::Finished(Box::new(image))
            }
        });
    }
    for item in items {
        server.given(Command::Compact(item));
    }
}

#[test]
fn a_connection_that_goes_loses_exactly_the_leases_bound_to_it() {
    let lost = Cell::new(0);
    in_any_life(|life| {
        random_life(life, |step| {
            let Command::HolderGone { holder } = step.command else { return };
            for job in step.before {
                let Some(lease) = &job.lease else { continue };
                let now = step.server.state.image(JobId(job.id));
                let holds = now.is_some_and(|now| now.lease.as_ref() == Some(lease));
                let theirs = lease.bound && lease.holder == *holder;
                assert_eq!(holds, !theirs, "{job:?}");
                lost.set(lost.get() + u32::from(theirs));
            }
        });
    });
    let lost = lost.get();
    assert!(lost > 20, "only {lost} leases were bound to holders that went");
}

#[test]
fn a_refused_command_changes_nothing() {
    in_any_life(|life| {
        random_life(life, |step| {
            if step.outcome.is_err() {
                assert_eq!(live_images(step.server), step.before);
            }
        });
    });
}

#[test]
fn counts_of_queues_are_the_jobs_in_them() {
    in_any_life(|life| {
        let server = random_life(life, |_| {});
        let listed: usize = server
            .state
            .queues_from(b"", false)
            .map(|queue| queue.counts.iter().sum::<usize>())
            .sum();
        assert_eq!(listed, server.state.jobs_count());
        for queue in server.state.queues_from(b"", false) {
            let ready = server.state.ready_jobs(&queue.name, 0).count();
            assert_eq!(ready, queue.counts[Status::Ready as usize]);
            for (before, job) in server.state.ready_jobs(&queue.name, 0).enumerate() {
                let place = ReadyBefore { count: before, at_least: false };
                assert_eq!(server.state.ready_before(job.id()), Some(place));
            }
            let scheduled = server.state.scheduled_jobs(&queue.name).count();
            assert_eq!(scheduled, queue.counts[Status::Scheduled as usize]);
            let jobs = server.state.ready_jobs(&queue.name, 0);
            let mut waiting = [0; 3];
            for job in jobs.chain(server.state.scheduled_jobs(&queue.name)) {
                waiting[(1 - job.priority().signum()) as usize] += 1;
            }
            assert_eq!(server.state.queue(&queue.name).expect("listed").waiting(), waiting);
        }
    });
}
