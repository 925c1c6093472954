//! The text commands: lists for people and monitoring, and what people do to jobs and functions.
//!
//! A list is produced in steps, which make a *walk*. Each step looks at a bounded number of jobs or
//! queues in one short hold of the engine's lock. No step is taken while the client has not read
//! what is there, and after some steps other connections have a turn, even if there was nothing to
//! write. So `show jobs` of a million jobs needs little memory and delays nobody. Jobs and queues
//! that change during a walk may be missed or listed twice.

use std::vec::IntoIter;

use bytes::Bytes;
use spindle_core::address::from_gearman_handle;
use spindle_core::audit::Action;
use spindle_core::job::Origin;
use spindle_core::{JobId, Rejection};
use spindle_engine::{Audit, JobLine, Outbox, QueueLine, Refused};

use super::GearmanSession;
use super::naming::shown_unique;
use super::opening::answer_auth;
use crate::wire::{AdminCommand, AdminError, FUNCTION_BYTES_MAX, QueueLimits, admin};

/// Functions in one step of a list.
const FUNCTIONS_PER_STEP: usize = 256;
/// Functions in one step of `workers`.
const ABILITIES_PER_STEP: usize = 256;
/// Steps of a walk before others have a turn.
pub(super) const STEPS_PER_TURN: usize = 16;

/// The version that clients get: that of the gearmand whose behaviour this follows, then ours.
const VERSION: &str = concat!("2.0.0-spindle-", env!("CARGO_PKG_VERSION"));

/// A command that goes on over several steps.
#[derive(Debug)]
pub(super) enum Walk {
    /// `status` and `prioritystatus`, behind this function.
    Functions { after: Option<Bytes>, by_priority: bool },
    /// `workers`, behind this connection; or what is left of the line of that one.
    Workers { after: u64, line: Option<IntoIter<Bytes>> },
    /// `show jobs`, from this job on.
    Jobs { from: JobId },
    /// `show unique jobs`, from this job on.
    Uniques { from: JobId },
    /// `drop function`.
    Drop { name: Bytes, audit: Box<Audit> },
}

impl GearmanSession {
    pub(super) fn administer(&mut self, command: AdminCommand, out: &mut Outbox) {
        match command {
            AdminCommand::Status => {
                self.walk = Some(Walk::Functions { after: None, by_priority: false });
            }
            AdminCommand::PriorityStatus => {
                self.walk = Some(Walk::Functions { after: None, by_priority: true });
            }
            AdminCommand::ShowJobs => self.walk = Some(Walk::Jobs { from: JobId(0) }),
            AdminCommand::ShowUniqueJobs => self.walk = Some(Walk::Uniques { from: JobId(0) }),
            AdminCommand::Workers => self.walk = Some(Walk::Workers { after: 0, line: None }),
            AdminCommand::Auth { token } => answer_auth(&mut self.login, &token, out),
            AdminCommand::Version => put_value(out, VERSION.as_bytes()),
            AdminCommand::Getpid => put_value(out, std::process::id().to_string().as_bytes()),
            AdminCommand::Verbose => put_value(out, self.common.verbose.as_bytes()),
            AdminCommand::CancelJob { handle } => self.cancel(&handle, out),
            AdminCommand::CreateFunction { name } => {
                if name.len() > FUNCTION_BYTES_MAX || name.contains(&0) {
                    return put_error(out, &AdminError::BadFunctionName);
                }
                let name = Bytes::copy_from_slice(&name);
                self.common.registry.lock().note_function(&name);
                out.put(admin::ok);
            }
            AdminCommand::DropFunction { name } => self.begin_drop(&name, out),
            AdminCommand::MaxQueue { function, limits } => self.set_limits(&function, limits, out),
        }
    }

    fn cancel(&mut self, handle: &[u8], out: &mut Outbox) {
        let Some(id) = from_gearman_handle(handle) else {
            return put_error(out, &AdminError::UnknownJob);
        };
        let mut audit = Audit::new(self.login.actor(Origin::Gearman));
        match out.open(self.engine.people(&mut audit).cancel(id)) {
            Ok(()) => out.put(admin::ok),
            Err(_) => put_error(out, &AdminError::UnknownJob),
        }
    }

    fn set_limits(&mut self, function: &Bytes, limits: QueueLimits, out: &mut Outbox) {
        let QueueLimits { high, normal, low } = limits;
        let by_class = match [high, normal, low].map(|limit| u64::from(limit.unwrap_or(0))) {
            [0, 0, 0] => Vec::new(),
            limits => limits.to_vec(),
        };
        let mut audit = Audit::new(self.login.actor(Origin::Gearman));
        let set =
            self.engine.people(&mut audit).change_queue(Action::SetQueue, function, |queue| {
                queue.jobs_max_by_class.clone_from(&by_class);
            });
        match out.open(set) {
            Ok(()) => out.put(admin::ok),
            Err(Refused::Rejected(Rejection::OutOfRange(_))) => {
                put_error(out, &AdminError::BadFunctionName);
            }
            Err(refused) => put_error(out, &no_room(&refused)),
        }
    }

    /// Deletes what waits in a function's queue, unless somebody works for it.
    fn begin_drop(&mut self, name: &Bytes, out: &mut Outbox) {
        let workers = self.common.registry.lock().workers(name);
        let queue = self.engine.queues().line(name);
        let error = match (workers, &queue) {
            (None, None) => AdminError::FunctionNotFound,
            (Some(1..), _) => AdminError::FunctionInUse,
            (_, Some(queue)) if queue.leased > 0 => AdminError::FunctionInUse,
            _ => {
                let name = Bytes::copy_from_slice(name);
                let actor = self.login.actor(Origin::Gearman);
                let audit = Audit::of_many(actor, Some(name.clone()), "drop function");
                self.walk = Some(Walk::Drop { name, audit: Box::new(audit) });
                return;
            }
        };
        put_error(out, &error);
    }

    // ---- walks ----

    /// Goes one step on with the command under way.
    pub(super) fn walk_on(&mut self, out: &mut Outbox) {
        self.walk = match self.walk.take() {
            Some(Walk::Functions { after, by_priority }) => {
                self.list_functions(after, by_priority, out)
            }
            Some(Walk::Workers { after, line }) => self.list_workers(after, line, out),
            Some(Walk::Jobs { from }) => {
                let (lines, next) = self.engine.jobs().lines(from);
                self.list_jobs(&lines, out);
                next.map(|from| Walk::Jobs { from })
            }
            Some(Walk::Uniques { from }) => {
                let (lines, next) = self.engine.jobs().lines(from);
                out.put(|out| {
                    for line in &lines {
                        admin::unique_line(out, &shown_unique(&line.keys));
                    }
                });
                next.map(|from| Walk::Uniques { from })
            }
            // It ends with its own answer.
            Some(Walk::Drop { name, audit }) => return self.go_on_dropping(name, audit, out),
            None => return,
        };
        if self.walk.is_none() {
            out.put(admin::end);
        }
    }

    /// Connections in the order they came. The functions of one connection are copied at once and
    /// written over several steps.
    fn list_workers(
        &self,
        mut after: u64,
        mut line: Option<IntoIter<Bytes>>,
        out: &mut Outbox,
    ) -> Option<Walk> {
        let mut left = ABILITIES_PER_STEP;
        while left > 0 {
            let Some(mut functions) = line.take() else {
                let entry = self.common.registry.lock().entry_after(after)?;
                out.put(|out| {
                    admin::worker_start(out, entry.number, entry.address, entry.id.as_deref());
                });
                (after, line) = (entry.number, Some(entry.functions.into_iter()));
                left -= 1;
                continue;
            };
            out.put(|out| {
                let some = functions.by_ref().take(left).inspect(|_| left -= 1);
                some.for_each(|name| admin::worker_functions(out, [&name[..]]));
                if functions.len() == 0 {
                    admin::worker_end(out);
                }
            });
            line = Some(functions).filter(|functions| functions.len() > 0);
        }
        Some(Walk::Workers { after, line })
    }

    fn list_jobs(&self, lines: &[JobLine], out: &mut Outbox) {
        out.put(|out| {
            for line in lines {
                let handle = self.common.handles.handle(line.id.0);
                let retries = u64::from(line.retries);
                let is_background = !line.foreground;
                admin::job_line(out, handle.as_bytes(), retries, line.abandoned, is_background);
            }
        });
    }

    /// Functions somebody has named here, and queues of other doors that have jobs, in order of
    /// their names.
    fn list_functions(
        &self,
        after: Option<Bytes>,
        by_priority: bool,
        out: &mut Outbox,
    ) -> Option<Walk> {
        let named =
            self.common.registry.lock().functions_after(after.as_deref(), FUNCTIONS_PER_STEP);
        let queues = self.engine.queues().lines(after.as_deref(), FUNCTIONS_PER_STEP);
        // Where one of the two lists was cut off, lines behind its end would be incomplete, so both
        // stop there.
        let cut_named = named.last().filter(|_| named.len() == FUNCTIONS_PER_STEP);
        let cut_queues = queues.last().filter(|_| queues.len() == FUNCTIONS_PER_STEP);
        let until = [cut_named.map(|(name, _)| name), cut_queues.map(|queue| &queue.name)];
        let until = until.into_iter().flatten().min().cloned();
        let is_known = |name: &Bytes| until.as_ref().is_none_or(|until| name <= until);
        let mut named = named.into_iter().filter(|(name, _)| is_known(name)).peekable();
        let mut queues = queues.into_iter().filter(|queue| is_known(&queue.name)).peekable();
        out.put(|out| {
            loop {
                let (queue, workers) = match (queues.peek(), named.peek()) {
                    (None, None) => return,
                    (Some(queue), Some((name, _))) if queue.name == name => {
                        let workers = named.next().map_or(0, |(_, workers)| workers);
                        (queues.next(), workers)
                    }
                    (Some(queue), Some((name, _))) if queue.name > name => idle_line(named.next()),
                    (None, Some(_)) => idle_line(named.next()),
                    (Some(_), _) => (queues.next().filter(|queue| queue.total > 0), 0),
                };
                if let Some(queue) = queue {
                    put_line(out, &queue, workers, by_priority);
                }
            }
        });
        until.map(|until| Walk::Functions { after: Some(until), by_priority })
    }

    fn go_on_dropping(&mut self, name: Bytes, mut audit: Box<Audit>, out: &mut Outbox) {
        for _ in 0..STEPS_PER_TURN {
            if !self.engine.has_room() {
                break;
            }
            match out.open(self.engine.people(&mut audit).empty_queue(&name, 0)) {
                Ok(0) => {
                    // The function's limits are removed with it; if none are set this changes
                    // nothing. The answer waits for that too.
                    let people = self.engine.people(&mut audit);
                    let cleared = people.change_queue(Action::Purge, &name, |queue| {
                        queue.jobs_max_by_class.clear();
                    });
                    if out.open(cleared).is_err() {
                        break;
                    }
                    self.common.registry.lock().forget_function(&name);
                    return out.put(admin::ok);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let room = match self.engine.wait_for_room(&self.caller, 0) {
            Ok(room) => room,
            Err(refused) => return put_error(out, &no_room(&refused)),
        };
        self.walk = Some(Walk::Drop { name, audit });
        let ticket = room.unwrap_or_else(|| self.engine.waits().after_others(&self.caller));
        self.room = Some((ticket, None));
    }
}

fn idle_line(named: Option<(Bytes, u64)>) -> (Option<QueueLine>, u64) {
    match named {
        Some((name, workers)) => {
            (Some(QueueLine { name, total: 0, leased: 0, waiting: [0; 3] }), workers)
        }
        None => (None, 0),
    }
}

fn put_line(out: &mut bytes::BytesMut, queue: &QueueLine, workers: u64, by_priority: bool) {
    if by_priority {
        let [high, normal, low] = queue.waiting.map(|count| count as u64);
        admin::priority_status_line(out, &queue.name, high, normal, low, workers);
    } else {
        let (total, running) = (queue.total as u64, queue.leased as u64);
        admin::status_line(out, &queue.name, total, running, workers);
    }
}

fn put_value(out: &mut Outbox, value: &[u8]) {
    out.put(|out| admin::value(out, value));
}

/// Why nothing more may be appended, in the words of the text protocol.
pub(super) fn no_room(refused: &Refused) -> AdminError {
    match refused {
        Refused::LogCannotGrow => AdminError::LogCannotGrow,
        _ => AdminError::DiskFull,
    }
}

fn put_error(out: &mut Outbox, error: &AdminError) {
    out.put(|out| error.encode(out));
}
