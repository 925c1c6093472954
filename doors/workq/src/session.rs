//! One connection: requests in, engine calls, replies out. It answers in the order of the requests,
//! one at a time, and holds no rule of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use rand::{RngCore, SeedableRng, rngs::SmallRng};
use spindle_core::command::{Claim, Command, Extend, Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, JobImage, Rejection, Type};
use spindle_engine::{
    Answer, Caller, Engine, FetchError, Flow, Gate, LeaseRef, LeaseReply, LeasedJob, NewJob,
    Outbox, Refused, Session, Ticket, WorkResult,
};

use crate::show;
use crate::wire::{self, Decoder, ErrorText, Limits, Reject, Request, Uuid, encode};

/// Answers in the outbox above which further requests wait until the client has read some.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The same while answers wait for the log: a batch of them is to leave together.
const GATED_ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Payloads that `inspect jobs` shows in one answer: fewer jobs are shown when they are larger.
const SHOWN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Larger payloads are passed over by this door's leases: its clients cannot take them.
const LEASED_BYTES_MAX: u32 = 1024 * 1024;

/// What all sessions of the door share.
#[derive(Debug)]
pub(crate) struct Common {
    pub limits: Limits,
    pub started_ms: u64,
    pub clients: AtomicU64,
}

/// What the answer to a ticket will answer.
#[derive(Debug)]
enum Waiting {
    Lease {
        names: Vec<Bytes>,
        until_ms: u64,
    },
    Result {
        id: Uuid,
    },
    Run {
        id: Uuid,
    },
    /// The request is tried again once the log has room.
    Room(Box<Request>),
}

/// One connection of this door.
pub struct WorkqSession {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    decoder: Decoder,
    waiting: Option<(Ticket, Waiting)>,
    random: SmallRng,
    /// The client has closed its sending side: no request waits any longer.
    ended: bool,
}

impl WorkqSession {
    pub(crate) fn new(engine: Engine, common: Arc<Common>, caller: Caller) -> WorkqSession {
        let decoder = Decoder::new(common.limits);
        WorkqSession {
            engine,
            common,
            caller,
            decoder,
            waiting: None,
            random: SmallRng::from_os_rng(),
            ended: false,
        }
    }

    /// Handles complete requests until one waits, the outbox is full, or the input is used up.
    fn work(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        loop {
            if self.waiting.is_some() {
                return Flow::Wait;
            }
            let most = if out.is_gated() { GATED_ANSWER_BYTES_MAX } else { ANSWER_BYTES_MAX };
            if out.pending_bytes() > most {
                return Flow::Continue;
            }
            let decoded = if self.ended {
                self.decoder.decode_at_eof(input)
            } else {
                self.decoder.decode(input)
            };
            match decoded {
                Ok(Some(request)) => self.answer(request, out),
                Ok(None) => return Flow::Continue,
                Err(Reject::Reply(text)) => client_error(out, Gate::OPEN, text),
                Err(Reject::Close) => return Flow::Close,
                Err(Reject::ReplyThenClose(text)) => {
                    client_error(out, Gate::OPEN, text);
                    return Flow::Close;
                }
            }
        }
    }

    fn answer(&mut self, request: Request, out: &mut Outbox) {
        let again = match request {
            Request::Add(job) => self.submit(Request::Add(job), out),
            Request::Schedule { .. } => self.submit(request, out),
            Request::Run(_) => self.run(request, out),
            Request::Complete { id, result } => self.finish(id, true, result, out),
            Request::Fail { id, result } => self.finish(id, false, result, out),
            Request::Lease { names, wait_timeout_ms } => {
                let until_ms = self.engine.now_ms().saturating_add(u64::from(wait_timeout_ms));
                self.lease(names, until_ms, out)
            }
            Request::Result { id, wait_timeout_ms } => {
                self.result(id, wait_timeout_ms, out);
                None
            }
            Request::Delete { id } => self.delete(id, out),
            Request::Extend { id, ttr_ms } => self.extend(id, ttr_ms, out),
            inspect => {
                self.inspect(&inspect, out);
                None
            }
        };
        if let Some(request) = again {
            self.wait_for_room(request);
        }
    }

    fn wait_for_room(&mut self, request: Request) {
        let ticket = self.engine.wait_for_room(&self.caller);
        self.waiting = Some((ticket, Waiting::Room(Box::new(request))));
    }

    // ---- jobs in ----

    /// Returns the request if it must be tried again.
    fn submit(&mut self, request: Request, out: &mut Outbox) -> Option<Request> {
        let (job, time_ms) = match &request {
            Request::Add(job) => (job, None),
            Request::Schedule { job, time_ms } => (job, Some(*time_ms)),
            _ => return None,
        };
        let mut submit = self.plain_submit(job.id, &job.name, job.ttr_ms, job.priority);
        submit.ttl_ms = Some(job.ttl_ms);
        submit.run_at_ms = time_ms;
        submit.attempts_max = Some(u32::from(job.attempts_max)).filter(|max| *max > 0);
        submit.fails_max = Some(u32::from(job.fails_max)).filter(|max| *max > 0);
        let new = NewJob { submit, payload: job.payload.clone(), kind: Type::Bytes };
        match self.engine.submit(new) {
            Ok((_, gate)) => out.put(gate, encode::ok),
            Err(Refused::Busy) => return Some(request),
            Err(refused) => refuse(out, &refused),
        }
        None
    }

    fn plain_submit(&self, id: Uuid, name: &Bytes, ttr_ms: u32, priority: i64) -> Submit {
        let payload = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(0), name.clone(), Origin::Workq, payload);
        submit.uuid = Some(*id.as_bytes());
        submit.ttr_ms = Some(u64::from(ttr_ms));
        submit.priority = priority;
        submit
    }

    fn run(&mut self, request: Request, out: &mut Outbox) -> Option<Request> {
        let Request::Run(run) = &request else { return None };
        let mut submit = self.plain_submit(run.id, &run.name, run.ttr_ms, run.priority);
        submit.foreground = true;
        // When the TTR ends the client gets a timeout, and the job is gone.
        submit.attempts_max = Some(1);
        let new = NewJob { submit, payload: run.payload.clone(), kind: Type::Bytes };
        let wait_ms = if self.ended { 0 } else { u64::from(run.wait_timeout_ms) };
        match self.engine.submit_and_wait(&self.caller, new, wait_ms) {
            Ok(ticket) => self.waiting = Some((ticket, Waiting::Run { id: run.id })),
            Err(Refused::Busy) => return Some(request),
            Err(refused) => refuse(out, &refused),
        }
        None
    }

    // ---- jobs out ----

    fn lease(&mut self, names: Vec<Bytes>, until_ms: u64, out: &mut Outbox) -> Option<Request> {
        loop {
            let now_ms = self.engine.now_ms();
            let wait_ms = if self.ended { 0 } else { until_ms.saturating_sub(now_ms) };
            let wish = Lease {
                queues: names.clone(),
                select: Select::RandomQueue { draw: self.random.next_u64() },
                holder: self.caller.connection.0,
                bound: false,
                timeout_ms: None,
                door: Origin::Workq,
                worker: Bytes::new(),
                payload_bytes_max: LEASED_BYTES_MAX,
            };
            match self.engine.lease(&self.caller, wish, wait_ms) {
                Ok(LeaseReply::Leased(job, gate)) => {
                    if self.hand_out(&job, gate, out) {
                        return None;
                    }
                }
                Ok(LeaseReply::Nothing(gate)) => {
                    out.put(gate, encode::timeout);
                    return None;
                }
                Ok(LeaseReply::Waiting(ticket)) => {
                    self.waiting = Some((ticket, Waiting::Lease { names, until_ms }));
                    return None;
                }
                Err(Refused::Busy) => {
                    let left = u32::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX);
                    return Some(Request::Lease { names, wait_timeout_ms: left });
                }
                Err(refused) => {
                    refuse(out, &refused);
                    return None;
                }
            }
        }
    }

    /// Writes a leased job. Returns false if its payload turned out damaged: it is dead then, and
    /// another job may be there.
    fn hand_out(&mut self, job: &LeasedJob, gate: Gate, out: &mut Outbox) -> bool {
        let payload = match self.engine.leased_payload(job) {
            Ok(payload) => payload,
            Err(FetchError::Read(error)) => {
                self.engine.undo_lease(LeaseRef { job: job.id, attempt: job.attempt });
                out.put(Gate::OPEN, |out| encode::server_error(out, &error.to_string()));
                return true;
            }
            Err(FetchError::Damaged(_)) => return false,
            // The job went between its lease and this read; should it still be there, nobody may
            // hold it for a payload that nobody got.
            Err(FetchError::Moved) => {
                self.engine.undo_lease(LeaseRef { job: job.id, attempt: job.attempt });
                out.put(gate, encode::timeout);
                return true;
            }
        };
        let id = show::uuid_of(job.uuid, job.id);
        let ttr_ms = job.length_ms.unwrap_or_default();
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        out.put_lease(gate, lease, |out| encode::lease(out, id, &job.queue, ttr_ms, &payload));
        true
    }

    // ---- ends ----

    fn finish(
        &mut self,
        id: Uuid,
        success: bool,
        result: Bytes,
        out: &mut Outbox,
    ) -> Option<Request> {
        let Some(job_ref) = show::job_ref(id) else {
            out.put(Gate::OPEN, encode::not_found);
            return None;
        };
        let outcome =
            WorkResult { success, retry: true, bytes: result.clone(), ..Default::default() };
        match self.engine.finish_unfinished(job_ref, outcome, Type::Bytes) {
            Ok(gate) => out.put(gate, encode::ok),
            Err(Refused::Busy) if success => return Some(Request::Complete { id, result }),
            Err(Refused::Busy) => return Some(Request::Fail { id, result }),
            Err(refused) => refuse(out, &refused),
        }
        None
    }

    fn delete(&mut self, id: Uuid, out: &mut Outbox) -> Option<Request> {
        let Some(job_ref) = show::job_ref(id) else {
            out.put(Gate::OPEN, encode::not_found);
            return None;
        };
        match self.engine.delete(job_ref) {
            Ok(gate) => out.put(gate, encode::ok),
            Err(Refused::Busy) => return Some(Request::Delete { id }),
            Err(refused) => refuse(out, &refused),
        }
        None
    }

    fn extend(&mut self, id: Uuid, ttr_ms: u32, out: &mut Outbox) -> Option<Request> {
        let (found, gate) = match show::job_ref(id) {
            Some(job_ref) => self.engine.find(job_ref),
            None => (None, Gate::OPEN),
        };
        let Some((job, _)) = found else {
            out.put(gate, encode::not_found);
            return None;
        };
        let claim = Claim::Unfinished { id: job };
        let extend = Extend { claim, ttr_ms: u64::from(ttr_ms) };
        match self.engine.execute(&Command::Extend(extend)) {
            Ok(gate) => out.put(gate, encode::ok),
            Err(Refused::Busy) => return Some(Request::Extend { id, ttr_ms }),
            Err(Refused::Rejected(Rejection::NotFound, gate)) => out.put(gate, encode::not_found),
            Err(Refused::Rejected(_, gate)) => client_error(out, gate, ErrorText::NotLeased),
            Err(refused) => refuse(out, &refused),
        }
        None
    }

    // ---- results ----

    fn result(&mut self, id: Uuid, wait_timeout_ms: u32, out: &mut Outbox) {
        let Some(job_ref) = show::job_ref(id) else {
            out.put(Gate::OPEN, encode::not_found);
            return;
        };
        let wait_ms = if self.ended { 0 } else { u64::from(wait_timeout_ms) };
        loop {
            match self.engine.find(job_ref) {
                (None, gate) => return out.put(gate, encode::not_found),
                (Some((_, status)), _) if status.is_finished() => match self.engine.job(job_ref) {
                    Ok((Some(image), gate)) => return self.send_result(id, &image, gate, out),
                    Ok((None, gate)) => return out.put(gate, encode::not_found),
                    Err(error) => return server_error(out, &error.to_string()),
                },
                (Some(_), gate) if wait_ms == 0 => return out.put(gate, encode::timeout),
                (Some((job, _)), _) => {
                    match self.engine.wait_for_result(&self.caller, job, wait_ms, false) {
                        Ok(Some(ticket)) => {
                            self.waiting = Some((ticket, Waiting::Result { id }));
                            return;
                        }
                        // It ended in between: look again.
                        Ok(None) => {}
                        Err(refused) => return refuse(out, &refused),
                    }
                }
            }
        }
    }

    fn send_result(&mut self, id: Uuid, image: &JobImage, gate: Gate, out: &mut Outbox) {
        let outcome = image.outcome.clone().unwrap_or_default();
        let bytes = match &outcome.bytes {
            Some(place) => self.engine.bytes(place),
            None => Ok(Bytes::new()),
        };
        match bytes {
            Ok(bytes) => out.put(gate, |out| encode::result(out, id, outcome.success, &bytes)),
            // Carried to a newer place since the image was read: that place is in the new image.
            Err(FetchError::Moved) => {
                let found = show::job_ref(id).map(|job_ref| self.engine.job(job_ref));
                match found {
                    Some(Ok((Some(newer), gate))) if newer.outcome != image.outcome => {
                        self.send_result(id, &newer, gate, out);
                    }
                    _ => out.put(gate, encode::not_found),
                }
            }
            Err(error) => server_error(out, &error.to_string()),
        }
    }

    /// The end of a job somebody waited for.
    fn send_end(&mut self, id: Uuid, run: bool, image: &JobImage, gate: Gate, out: &mut Outbox) {
        let code = image.outcome.as_ref().map(|outcome| outcome.code.clone()).unwrap_or_default();
        match &code[..] {
            // There is no result: the time was up (`run`), or the job is cancelled.
            b"timeout" | b"worker_lost" if run => out.put(gate, encode::timeout),
            b"cancelled" if run => out.put(gate, encode::not_found),
            _ => self.send_result(id, image, gate, out),
        }
    }

    // ---- inspect ----

    fn inspect(&mut self, request: &Request, out: &mut Outbox) {
        match request {
            Request::InspectJob { id } => self.inspect_job(*id, out),
            Request::InspectJobs { name, cursor_offset, limit } => {
                let (skip, limit) = (*cursor_offset as usize, *limit as usize);
                let (jobs, gate) = self.engine.ready_jobs(name, skip, limit);
                self.show_jobs(jobs, gate, out);
            }
            Request::InspectScheduledJobs { name, cursor_offset, limit } => {
                let (skip, limit) = (*cursor_offset as usize, *limit as usize);
                let (jobs, gate) = self.engine.scheduled_jobs(name, skip, limit);
                self.show_jobs(jobs, gate, out);
            }
            Request::InspectQueue { name } => {
                let (queue, gate) = self.engine.queue(name);
                match queue {
                    Some(queue) => out.put(gate, |out| {
                        encode::count(out, 1);
                        encode::queue(out, &show::queue_info(&queue));
                    }),
                    None => out.put(gate, encode::not_found),
                }
            }
            Request::InspectQueues { cursor_offset, limit } => {
                let (skip, limit) = (*cursor_offset as usize, *limit as usize);
                let (queues, gate) = self.engine.queues(skip, limit, wire::is_name);
                out.put(gate, |out| {
                    encode::count(out, queues.len());
                    for queue in &queues {
                        encode::queue(out, &show::queue_info(queue));
                    }
                });
            }
            Request::InspectServer => self.inspect_server(out),
            _ => {}
        }
    }

    fn inspect_job(&mut self, id: Uuid, out: &mut Outbox) {
        let found = show::job_ref(id).map(|job_ref| self.engine.job(job_ref));
        match found {
            Some(Ok((Some(image), gate))) => match self.shown(&image) {
                Ok(job) => out.put(gate, |out| {
                    encode::count(out, 1);
                    encode::job(out, &job);
                }),
                Err(error) => server_error(out, &error.to_string()),
            },
            Some(Ok((None, gate))) => out.put(gate, encode::not_found),
            Some(Err(error)) => server_error(out, &error.to_string()),
            None => out.put(Gate::OPEN, encode::not_found),
        }
    }

    fn shown(&self, image: &JobImage) -> Result<wire::JobInfo, FetchError> {
        let payload = match &image.payload {
            Some(place) => self.engine.payload(JobId(image.id), place)?,
            None => Bytes::new(),
        };
        Ok(show::job_info(image, payload))
    }

    fn show_jobs(&mut self, jobs: Option<Vec<JobImage>>, gate: Gate, out: &mut Outbox) {
        let Some(jobs) = jobs else {
            out.put(gate, encode::not_found);
            return;
        };
        let mut shown = Vec::new();
        let mut bytes = 0;
        for image in jobs.iter().filter(|image| wire::is_name(&image.queue)) {
            // A job that went meanwhile, or whose payload is damaged, is left out.
            if let Ok(job) = self.shown(image) {
                bytes += job.payload.len();
                shown.push(job);
            }
            if bytes > SHOWN_BYTES_MAX {
                break;
            }
        }
        out.put(gate, |out| {
            encode::count(out, shown.len());
            for job in &shown {
                encode::job(out, job);
            }
        });
    }

    fn inspect_server(&self, out: &mut Outbox) {
        let info = wire::ServerInfo {
            active_clients: self.common.clients.load(Ordering::Relaxed),
            evicted_jobs: self.engine.stats().expired_unfinished,
            started_ms: self.common.started_ms,
        };
        out.put(Gate::OPEN, |out| encode::server(out, &info));
    }
}

impl Session for WorkqSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, out)
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Answer, gate: Gate, out: &mut Outbox) -> Flow {
        let Some((_, waiting)) = self.waiting.take_if(|(expected, _)| *expected == ticket) else {
            return if self.waiting.is_some() { Flow::Wait } else { Flow::Continue };
        };
        match (answer, waiting) {
            (Answer::Leased(job), Waiting::Lease { names, until_ms }) => {
                if !self.hand_out(&job, gate, out)
                    && let Some(request) = self.lease(names, until_ms, out)
                {
                    self.wait_for_room(request);
                }
            }
            (Answer::Finished(image), Waiting::Run { id }) => {
                self.send_end(id, true, &image, gate, out);
            }
            (Answer::Finished(image), Waiting::Result { id }) => {
                self.send_end(id, false, &image, gate, out);
            }
            (Answer::Room, Waiting::Room(request)) => {
                self.answer(*request, out);
            }
            (Answer::Gone(_), Waiting::Run { .. } | Waiting::Result { .. }) => {
                out.put(gate, encode::not_found);
            }
            _ => out.put(gate, encode::timeout),
        }
        if self.waiting.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // A client that has closed its sending side waits for nothing. Its complete requests are
        // still handled and answered: some clients close only that side.
        self.ended = true;
        let room = |(_, waiting): &mut (Ticket, Waiting)| !matches!(waiting, Waiting::Room(_));
        if let Some((ticket, _)) = self.waiting.take_if(room) {
            self.engine.cancel_wait(&self.caller, ticket);
            // Answered as if the end had come before the request: each request has its answer.
            out.put(Gate::OPEN, encode::timeout);
        }
        // A busy log or a full outbox only delays what is left.
        self.work(input, out)
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        match &self.waiting {
            Some(_) if !last => Flow::Wait,
            Some(_) => {
                if let Some((ticket, _)) = self.waiting.take() {
                    self.engine.cancel_wait(&self.caller, ticket);
                }
                out.put(Gate::OPEN, encode::timeout);
                Flow::Close
            }
            None => Flow::Close,
        }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        self.common.clients.fetch_sub(1, Ordering::Relaxed);
        for lease in unsent {
            self.engine.undo_lease(*lease);
        }
        let waiting = self.waiting.take().map(|(ticket, _)| ticket);
        self.engine.connection_gone(self.caller.connection, waiting);
    }

    fn input_bytes_max(&self) -> usize {
        self.common.limits.input_bytes_max()
    }
}

fn client_error(out: &mut Outbox, gate: Gate, text: ErrorText) {
    out.put(gate, |out| encode::client_error(out, text.as_str()));
}

fn server_error(out: &mut Outbox, text: &str) {
    out.put(Gate::OPEN, |out| encode::server_error(out, text));
}

/// A refusal in Workq's words.
fn refuse(out: &mut Outbox, refused: &Refused) {
    match refused {
        Refused::Rejected(rejection, gate) => match rejection {
            Rejection::NotFound => out.put(*gate, encode::not_found),
            Rejection::KeyTaken(_) => client_error(out, *gate, ErrorText::DuplicateJob),
            Rejection::Finished => client_error(out, *gate, ErrorText::DuplicateResult),
            // The only limit of the core that the decoder does not check before.
            Rejection::OutOfRange("ttl") => client_error(out, *gate, ErrorText::InvalidTime),
            other => {
                let text = other.to_string();
                out.put(*gate, |out| encode::client_error(out, &text));
            }
        },
        Refused::Stopping => out.put(Gate::OPEN, encode::timeout),
        other => server_error(out, &other.to_string()),
    }
}
