//! Random commands in small name spaces, so that they meet.

use bytes::Bytes;
use spindle_core::audit::{Action, AuditEntry};
use spindle_core::command::{Audited, Claim, Edit, Extend, Matched, Select};
use spindle_core::job::{Cause, Label, OnDead, Origin, Scope, TraceParent};
use spindle_core::payload::BytesRef;
use spindle_core::queue::{Constraint, LimitScope, QueueSettings, Rate};
use spindle_core::{Command, Found, JobId, Status, Type};

use super::{Draw, Server, finish, key, lease_with, submit_by};

const QUEUES: [&str; 3] = ["mail", "bill", "resize"];

/// The next command of a random life. What a person asks for may have its entry in the audit log.
pub fn command(draw: &mut Draw<'_>, server: &Server, next_id: &mut u64) -> Command {
    let command = plain_command(draw, server, next_id);
    let is_of_a_person = matches!(
        command,
        Command::Delete { .. }
            | Command::DeleteLater { .. }
            | Command::Undelete { .. }
            | Command::Cancel { .. }
            | Command::Edit(_)
            | Command::SetQueue { .. }
    );
    if !is_of_a_person || draw.one_in(2) {
        return command;
    }
    let last = server.state.server().last_audit;
    let action = Action::Delete as i32;
    let seq = if draw.one_in(3) { last } else { 0 };
    let entry = AuditEntry { seq, action, count: Some(draw.below(9)), ..AuditEntry::default() };
    Command::Audited(Box::new(Audited { command: Some(command), entry }))
}

fn plain_command(draw: &mut Draw<'_>, server: &Server, next_id: &mut u64) -> Command {
    match draw.below(45) {
        0..13 => {
            *next_id += 1;
            random_submit(draw, server, *next_id)
        }
        13..23 => random_lease(draw),
        23..29 => {
            let success = draw.one_in(2);
            let retry = !draw.one_in(6);
            finish(random_claim(draw, server), |finish| {
                finish.success = success;
                finish.retry = retry;
            })
        }
        29 | 40..43 => Command::HolderGone { holder: draw.below(4) },
        30 => Command::Release { claim: random_claim(draw, server), cause: Cause::Undone },
        31 if draw.one_in(3) => Command::DropTimeout { claim: random_claim(draw, server) },
        31 => Command::Extend(Extend {
            claim: random_claim(draw, server),
            ttr_ms: 1 + draw.below(9_000),
        }),
        32 | 33 => random_edit(draw, server),
        34 if draw.one_in(2) => {
            let id = random_job(draw, server);
            let request = server.state.server().last_audit + 1;
            Command::DeleteLater { id, request, undo_ms: 1 + draw.below(9_000) }
        }
        34 => Command::Delete { id: random_job(draw, server), cause: Cause::Deleted },
        43 | 44 => Command::Undelete { id: random_deleted(draw, server) },
        35 => Command::Cancel { id: random_job(draw, server) },
        36 => random_retry(draw, server),
        37 => Command::SetQueue {
            name: Bytes::from_static(draw.pick(&QUEUES).as_bytes()),
            settings: QueueSettings {
                paused: draw.one_in(2),
                finished_max: draw.one_in(3).then(|| draw.below(4)),
                jobs_max: draw.one_in(4).then(|| draw.below(12)),
                bytes_max: draw.one_in(4).then(|| draw.below(12) * 2_000_000),
                jobs_max_by_class: if draw.one_in(3) { vec![9, 12, 6] } else { Vec::new() },
                ..QueueSettings::default()
            },
        },
        38 => Command::ResultRead { id: random_job(draw, server), keep_read_ms: 5_000 },
        _ => random_limit(draw, server),
    }
}

fn random_job(draw: &mut Draw<'_>, server: &Server) -> JobId {
    let count = server.state.jobs_count().max(1) as u64;
    let at = draw.below(count) as usize;
    server.state.jobs_from(JobId(0)).nth(at).map_or(JobId(1), |found| found.id())
}

/// A job whose deletion can be undone, or any if there is none.
fn random_deleted(draw: &mut Draw<'_>, server: &Server) -> JobId {
    let ids = server.state.jobs_from(JobId(0)).map(|found| found.id());
    let deleted: Vec<JobId> = ids.filter(|id| server.state.deletion(*id).is_some()).collect();
    if deleted.is_empty() { random_job(draw, server) } else { draw.pick(&deleted) }
}

fn random_submit(draw: &mut Draw<'_>, server: &Server, id: u64) -> Command {
    let origin = draw.pick(&[Origin::Api, Origin::Workq, Origin::Gearman, Origin::Lightjq]);
    let queue = draw.pick(&QUEUES);
    submit_by(origin, id, queue, |submit| {
        submit.priority = draw.below(5) as i64 - 2;
        submit.foreground = origin == Origin::Gearman && draw.one_in(2);
        submit.payload = if submit.foreground {
            BytesRef::in_memory(Bytes::from_static(b"p"), Type::Bytes)
        } else {
            BytesRef::logged(server.position, 9, 1 + draw.below(2) as u32 * 2_000_000, Type::Bytes)
        };
        if origin == Origin::Workq {
            submit.uuid = Some([1 + draw.below(30) as u8; 16]);
        }
        submit.keys = match origin {
            Origin::Gearman if draw.one_in(2) => {
                vec![key(origin, &[draw.below(9) as u8], Scope::WhileUnfinished)]
            }
            _ => Vec::new(),
        };
        if draw.one_in(2) {
            submit.attempts_max = Some(draw.below(4) as u32);
            submit.fails_max = Some(draw.below(4) as u32);
        }
        if draw.one_in(3) {
            submit.ttl_ms = Some(1 + draw.below(60_000));
            submit.ttr_ms = Some(1 + draw.below(5_000));
        }
        if draw.one_in(5) {
            submit.run_at_ms = Some(server.now_ms + draw.below(9_000));
        } else {
            submit.parked = draw.one_in(8);
        }
        if id.is_multiple_of(3) {
            let trace = TraceParent { trace_high: id, trace_low: 2, span: 3, flags: 1 };
            submit.trace = Some(Box::new(trace));
        }
        if id.is_multiple_of(4) && !submit.foreground {
            submit.after = vec![random_job(draw, server), JobId(id - 1)];
            submit.after.retain(|id| can_be_waited_for(server, *id));
            submit.on_dead = draw.pick(&OnDead::ALL);
        }
        submit.labels = random_labels(draw, server);
        submit.constraints_revision = server.state.server().constraints_revision;
    })
}

fn can_be_waited_for(server: &Server, id: JobId) -> bool {
    let state = &server.state;
    state.job(id).is_some() && state.deletion(id).is_none() && !state.is_foreground(id)
}

fn random_labels(draw: &mut Draw<'_>, server: &Server) -> Vec<Label> {
    let numbers: Vec<u32> = server.state.constraints().map(|rule| rule.number).collect();
    let mut labels = Vec::new();
    for constraint in numbers {
        if draw.one_in(2) {
            labels.push(Label { constraint, value: draw.below(2) });
        }
    }
    labels
}

fn random_lease(draw: &mut Draw<'_>) -> Command {
    let first = draw.below(3) as usize;
    let count = 1 + draw.below(3) as usize;
    let queues: Vec<&str> = (first..first + count).map(|at| QUEUES[at % 3]).collect();
    let (door, select) = match draw.below(3) {
        0 => (Origin::Workq, Select::RandomQueue { draw: draw.bits() }),
        1 => {
            let after = Some(Bytes::from_static(draw.pick(&QUEUES).as_bytes()));
            (Origin::Gearman, Select::RoundRobin { after })
        }
        _ => (Origin::Api, Select::ByPriority),
    };
    lease_with(&queues, |lease| {
        lease.door = door;
        lease.select = select;
        lease.bound = door == Origin::Gearman;
        lease.holder = draw.below(4);
        lease.timeout_ms = draw.one_in(3).then(|| 1 + draw.below(4_000));
        if door == Origin::Workq {
            lease.payload_bytes_max = 1 << 20;
        }
    })
}

/// A leased job's token, sometimes not quite.
fn random_claim(draw: &mut Draw<'_>, server: &Server) -> Claim {
    let leases: Vec<Claim> = server
        .state
        .jobs_from(JobId(0))
        .filter_map(|found| match found {
            Found::Live(job) => {
                let (id, attempt) = (job.id(), job.attempts());
                job.lease().map(|lease| Claim::Token { id, epoch: lease.epoch, attempt })
            }
            Found::Finished(_) => None,
        })
        .collect();
    if leases.is_empty() || draw.one_in(8) {
        return Claim::Unfinished { id: random_job(draw, server) };
    }
    match draw.pick(&leases) {
        Claim::Token { id, epoch, attempt } if draw.one_in(8) => {
            Claim::Token { id, epoch: epoch.wrapping_sub(1), attempt }
        }
        claim => claim,
    }
}

fn random_edit(draw: &mut Draw<'_>, server: &Server) -> Command {
    let mut edit = Edit { id: random_job(draw, server), ..Edit::default() };
    edit.priority = draw.one_in(2).then(|| draw.below(5) as i64 - 2);
    edit.queue = draw.one_in(3).then(|| Bytes::from_static(draw.pick(&QUEUES).as_bytes()));
    edit.parked = draw.one_in(2).then(|| draw.one_in(2));
    edit.run_at_ms = draw.one_in(4).then(|| server.now_ms + draw.below(5_000));
    Command::Edit(Box::new(edit))
}

fn random_retry(draw: &mut Draw<'_>, server: &Server) -> Command {
    let id = random_job(draw, server);
    if server.status(id.0).is_some_and(Status::is_finished) {
        return Command::Retry { image: Box::new(server.finished(id.0)), payload: None };
    }
    Command::Cancel { id }
}

fn random_limit(draw: &mut Draw<'_>, server: &Server) -> Command {
    // A constraint once set stays as it is: so what it allowed can be counted afterwards.
    if server.state.constraints().count() >= 2 {
        let constraints_revision = server.state.server().constraints_revision;
        let matched = Matched { labels: random_labels(draw, server), constraints_revision };
        return Command::Relabel { id: random_job(draw, server), revision: None, matched };
    }
    let rate =
        Rate { count: 1 + draw.below(3), per_ms: 1 + draw.below(3_000), burst: 1 + draw.below(3) };
    Command::SetConstraint(
        Constraint {
            number: 0,
            name: Bytes::from_static(b"limit"),
            matcher: Bytes::new(),
            rate: draw.one_in(2).then_some(rate),
            running_max: Some(1 + draw.below(3)),
        },
        LimitScope::Whole,
    )
}
