//! One connection: requests in, engine calls, replies out. It answers in the order of the requests,
//! one at a time, and holds no rule of the queue.

mod inspect;
mod offer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use rand::{RngCore, SeedableRng, rngs::SmallRng};
use spindle_access::{Denied, Login, Role, Target};
use spindle_core::command::{Claim, Extend, Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, JobImage, Rejection, Type};
use spindle_engine::{
    Answer, Audit, Caller, CommandLog, Engine, FetchError, Flow, Gated, LeaseRef, LeaseReply,
    LeasedJob, NewJob, Outbox, Payload, Refused, Session, Ticket, WorkResult,
};

use crate::needs::{About, needs};
use crate::refusal::{acknowledge, client_error, deny, refuse, server_error};
use crate::show;
use crate::shown_command::{described, outcome};
use crate::wire::{self, Decoder, ErrorText, Limits, Reject, Request, Uuid, encode};

/// Answers in the outbox above which further requests wait until the client has read some.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The same while answers wait for the log: a batch of them is to leave together.
const GATED_ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// This door's leases pass over larger payloads, which its clients cannot accept.
const LEASED_BYTES_MAX: u32 = 1024 * 1024;

/// What all sessions of the door share.
#[derive(Debug)]
pub(crate) struct Common {
    pub limits: Limits,
    pub started_ms: u64,
    pub clients: AtomicU64,
}

/// The request that a ticket's answer will be for.
#[derive(Debug)]
enum Waiting {
    Lease(Leasing),
    Result {
        id: Uuid,
    },
    Run {
        id: Uuid,
    },
    /// The request is dispatched once the log has room. Its time has counted since it came.
    Room {
        request: Box<Request>,
        came_ms: u64,
    },
    /// A malformed request that is held because of the client's rate limit.
    Refusal(ErrorText),
}

/// A `lease`, or an `offer`.
#[derive(Debug)]
struct Leasing {
    names: Vec<Bytes>,
    until_ms: u64,
    is_offer: bool,
}

/// One connection of this door.
pub struct WorkqSession {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    /// Who the client is.
    login: Login,
    /// The job that was leased to it last and that job's queue, until the next request about it.
    /// For a client that may use only some queues, this saves a look-up of the queue.
    leased: Option<(Uuid, Bytes)>,
    /// The job that was offered to it and that it has not taken.
    offered: Option<(Uuid, LeaseRef)>,
    decoder: Decoder,
    waiting: Option<(Ticket, Waiting)>,
    random: SmallRng,
    /// Its request waits because of its rate limit.
    is_held: bool,
    /// The client has closed its sending side: no request waits any longer.
    ended: bool,
    log: CommandLog,
}

impl WorkqSession {
    pub(crate) fn new(
        engine: Engine,
        common: Arc<Common>,
        caller: Caller,
        login: Login,
    ) -> WorkqSession {
        let decoder = Decoder::new(common.limits);
        let log = CommandLog::new("workq", caller.connection);
        WorkqSession {
            engine,
            common,
            caller,
            login,
            leased: None,
            offered: None,
            decoder,
            waiting: None,
            random: SmallRng::from_os_rng(),
            is_held: false,
            ended: false,
            log,
        }
    }

    /// Handles complete requests until one waits, the outbox is full, or the input is used up. `is_all`:
    /// the client sends no more than this.
    fn work(&mut self, input: &mut BytesMut, is_all: bool, out: &mut Outbox) -> Flow {
        loop {
            if !input.is_empty() {
                self.end_offer(out);
            }
            if self.waiting.is_some() {
                return self.flow();
            }
            let most = if out.is_gated() { GATED_ANSWER_BYTES_MAX } else { ANSWER_BYTES_MAX };
            if out.pending_bytes() > most {
                return Flow::Continue;
            }
            let decoded =
                if is_all { self.decoder.decode_at_eof(input) } else { self.decoder.decode(input) };
            match decoded {
                Ok(Some(request)) => {
                    let taken = if let Request::Take { id } = request { Some(id) } else { None };
                    self.give_back_unless(taken);
                    let before = out.pending_bytes();
                    self.log.begin(|| described(&request));
                    self.receive(request, out);
                    self.log_answer(before, out);
                }
                Ok(None) => return Flow::Continue,
                Err(Reject::Reply(text)) => {
                    self.give_back_unless(None);
                    self.refuse_malformed(text, out);
                }
                Err(Reject::Close) => return Flow::Close,
                Err(Reject::ReplyThenClose(text)) => {
                    client_error(out, text);
                    return Flow::Close;
                }
            }
        }
    }

    /// Logs the request that came last, unless it waits.
    fn log_answer(&mut self, before: usize, out: &Outbox) {
        if self.waiting.is_none() {
            self.log.end(|| outcome(out.put_since(before)));
        }
    }

    /// Whether the client may make a request.
    fn authorize(&mut self, request: &Request, out: &mut Outbox) -> Result<(), Denied> {
        let Some((role, about)) = needs(request) else { return Ok(()) };
        let jobs = self.engine.jobs();
        match about {
            About::Queue(name) => self.login.authorize(role, Target::Queue(name)),
            About::Queues(names) => {
                let mut names = names.iter().map(AsRef::as_ref);
                self.login.authorize(role, Target::Queues(&mut names))
            }
            About::Job(id) => {
                let leased = self.leased.take_if(|(leased, _)| role == Role::Work && *leased == id);
                let mut queue = || match &leased {
                    Some((_, queue)) => Some(queue.clone()),
                    None => out.open(jobs.queue_of(show::job_ref(id)?)),
                };
                self.login.authorize(role, Target::Job(&mut queue))
            }
            About::AllQueues => self.login.authorize(role, Target::AllQueues),
            About::Server => self.login.authorize(role, Target::Server),
        }
    }

    /// Checks again, after what may have been a long wait, whether the client may have the answer.
    /// A lease that it may not have is given back.
    fn authorize_answer(&mut self, answer: &Answer, waiting: &Waiting) -> Result<(), Denied> {
        let (role, queue) = match (answer, waiting) {
            (Answer::Leased(job), _) => (Role::Work, &job.queue),
            (Answer::Finished(image), Waiting::Run { .. }) => (Role::Submit, &image.queue),
            (Answer::Finished(image), _) => (Role::Inspect, &image.queue),
            _ => return Ok(()),
        };
        let allowed = self.login.authorize(role, Target::Queue(queue));
        if let (Err(_), Answer::Leased(job)) = (&allowed, answer) {
            self.engine.leases().undo(LeaseRef { job: job.id, attempt: job.attempt });
        }
        allowed
    }

    fn auth(&mut self, token: &[u8], out: &mut Outbox) {
        match self.login.present(token) {
            Ok(()) => out.put(encode::ok),
            Err(denied) => deny(out, denied),
        }
    }

    /// Takes a request that has come in. It is dispatched as soon as the client's rate limit allows
    /// it.
    fn receive(&mut self, request: Request, out: &mut Outbox) {
        let Some(ticket) = self.hold() else { return self.dispatch(request, None, out) };
        let came_ms = self.engine.now_ms();
        self.waiting = Some((ticket, Waiting::Room { request: Box::new(request), came_ms }));
    }

    /// Answers what is malformed, which counts as any request.
    fn refuse_malformed(&mut self, text: ErrorText, out: &mut Outbox) {
        let Some(ticket) = self.hold() else { return client_error(out, text) };
        self.waiting = Some((ticket, Waiting::Refusal(text)));
    }

    /// Counts a request against the client's rate limit. If the client has to wait, returns the
    /// ticket that is called when the wait is over.
    fn hold(&mut self) -> Option<Ticket> {
        let delay = self.login.delay()?;
        self.is_held = true;
        Some(self.engine.waits().after(&self.caller, delay))
    }

    /// Answers a request that the client may make, once the log has room for what it may change.
    /// `came_ms` is when it came in, if it had to wait.
    fn dispatch(&mut self, request: Request, came_ms: Option<u64>, out: &mut Outbox) {
        if let Err(denied) = self.authorize(&request, out) {
            self.give_back_unless(None);
            return deny(out, denied);
        }
        if request.is_change() {
            match self.engine.wait_for_room(&self.caller, request.brought_bytes()) {
                Ok(None) => {}
                Ok(Some(ticket)) => {
                    let request = Box::new(request);
                    let came_ms = came_ms.unwrap_or_else(|| self.engine.now_ms());
                    self.waiting = Some((ticket, Waiting::Room { request, came_ms }));
                    return;
                }
                Err(refused) => return refuse(out, &refused),
            }
        }
        match request {
            Request::Add(job) => self.submit(job, None, out),
            Request::Schedule { job, time_ms } => self.submit(job, Some(time_ms), out),
            Request::Run(run) => self.run(run, out),
            Request::Complete { id, result } => self.finish(id, true, result, out),
            Request::Fail { id, result } => self.finish(id, false, result, out),
            Request::Lease { names, wait_timeout_ms } => {
                self.begin_lease((names, wait_timeout_ms, false), came_ms, out);
            }
            Request::Offer { names, wait_timeout_ms } => {
                self.begin_lease((names, wait_timeout_ms, true), came_ms, out);
            }
            Request::Take { id } => self.take(id, out),
            Request::Pass => out.put(encode::ok),
            Request::Result { id, wait_timeout_ms } => self.result(id, wait_timeout_ms, out),
            Request::Delete { id } => self.delete(id, out),
            Request::Extend { id, ttr_ms } => self.extend(id, ttr_ms, out),
            Request::Auth { token } => self.auth(&token.0, out),
            inspect => self.inspect(&inspect, out),
        }
    }

    // ---- jobs in ----

    fn submit(&mut self, job: wire::NewJob, time_ms: Option<u64>, out: &mut Outbox) {
        let mut submit = self.plain_submit(job.id, job.name, job.ttr_ms, job.priority);
        submit.ttl_ms = Some(job.ttl_ms);
        submit.run_at_ms = time_ms;
        submit.attempts_max = Some(u32::from(job.attempts_max)).filter(|max| *max > 0);
        submit.fails_max = Some(u32::from(job.fails_max)).filter(|max| *max > 0);
        let payload = Payload::new(job.payload, Type::Bytes);
        let submitted = self.engine.jobs().submit(NewJob { submit, payload });
        acknowledge(out, submitted.map(|submitted| submitted.map(drop)));
    }

    fn plain_submit(&self, id: Uuid, name: Bytes, ttr_ms: u32, priority: i64) -> Submit {
        let payload = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(0), name, Origin::Workq, payload);
        submit.uuid = Some(*id.as_bytes());
        submit.ttr_ms = Some(u64::from(ttr_ms));
        submit.priority = priority;
        submit
    }

    fn run(&mut self, run: wire::Run, out: &mut Outbox) {
        let mut submit = self.plain_submit(run.id, run.name, run.ttr_ms, run.priority);
        submit.foreground = true;
        // When the TTR ends the client gets a timeout, and the job is gone.
        submit.attempts_max = Some(1);
        let new = NewJob { submit, payload: Payload::new(run.payload, Type::Bytes) };
        let wait_ms = if self.ended { 0 } else { u64::from(run.wait_timeout_ms) };
        match out.open(self.engine.jobs().submit_and_wait(&self.caller, new, wait_ms)) {
            Ok(ticket) => self.waiting = Some((ticket, Waiting::Run { id: run.id })),
            Err(refused) => refuse(out, &refused),
        }
    }

    // ---- jobs out ----

    fn begin_lease(
        &mut self,
        (names, wait_timeout_ms, is_offer): (Vec<Bytes>, u32, bool),
        came_ms: Option<u64>,
        out: &mut Outbox,
    ) {
        let now_ms = self.engine.now_ms();
        let until_ms = came_ms.unwrap_or(now_ms).saturating_add(wait_timeout_ms.into());
        self.lease(Leasing { names, until_ms, is_offer }, now_ms, out);
    }

    fn lease(&mut self, leasing: Leasing, mut now_ms: u64, out: &mut Outbox) {
        let Leasing { names, until_ms, is_offer } = leasing;
        let mut request = Lease {
            queues: names,
            select: Select::ByPriority,
            holder: self.caller.connection.0,
            bound: false,
            timeout_ms: None,
            door: Origin::Workq,
            worker: Bytes::new(),
            payload_bytes_max: LEASED_BYTES_MAX,
        };
        loop {
            request.select = Select::RandomQueue { draw: self.random.next_u64() };
            let wait_ms = if self.ended { 0 } else { until_ms.saturating_sub(now_ms) };
            match out.open(self.engine.leases().take(&self.caller, &request, wait_ms)) {
                Ok(LeaseReply::Leased(job)) => {
                    if self.hand_out(&job, is_offer, out) {
                        return;
                    }
                    now_ms = self.engine.now_ms();
                }
                Ok(LeaseReply::Nothing) => return out.put(encode::timeout),
                Ok(LeaseReply::Waiting(ticket)) => {
                    let names = request.queues;
                    let leasing = Leasing { names, until_ms, is_offer };
                    self.waiting = Some((ticket, Waiting::Lease(leasing)));
                    return;
                }
                Err(refused) => return refuse(out, &refused),
            }
        }
    }

    /// Writes a leased job. Returns false if its payload cannot be read; there may be another job.
    fn hand_out(&mut self, job: &LeasedJob, is_offer: bool, out: &mut Outbox) -> bool {
        let payload = match self.engine.leases().payload(job) {
            Ok(Some(payload)) => payload,
            Ok(None) => return false,
            Err(error) => {
                server_error(out, &error.to_string());
                return true;
            }
        };
        let id = show::uuid_of(job.uuid, job.id);
        let ttr_ms = job.length_ms.unwrap_or_default();
        if self.login.is_limited() {
            self.leased = Some((id, job.queue.clone()));
        }
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        self.offered = is_offer.then_some((id, lease));
        out.put_lease(lease, |out| encode::lease(out, id, &job.queue, ttr_ms, &payload));
        true
    }

    /// Whether input stays unread meanwhile. Not for an offer, whose client may change its mind.
    fn flow(&self) -> Flow {
        let is_kept = self.waiting.as_ref().is_some_and(|(_, waiting)| !waiting.is_for_offer());
        if is_kept { Flow::Wait } else { Flow::Continue }
    }

    // ---- ends ----

    fn finish(&mut self, id: Uuid, success: bool, result: Bytes, out: &mut Outbox) {
        let Some(job) = show::job_ref(id) else { return out.put(encode::not_found) };
        let result = Payload::new(result, Type::Bytes);
        let result = WorkResult { success, retry: true, result, ..WorkResult::default() };
        acknowledge(out, self.engine.jobs().finish_unfinished(job, result));
    }

    fn delete(&mut self, id: Uuid, out: &mut Outbox) {
        let Some(job) = show::job_ref(id) else { return out.put(encode::not_found) };
        let mut audit = Audit::new(self.login.actor(Origin::Workq));
        acknowledge(out, self.engine.people(&mut audit).delete(job));
    }

    fn extend(&mut self, id: Uuid, ttr_ms: u32, out: &mut Outbox) {
        let found = show::job_ref(id).map(|job| out.open(self.engine.jobs().find(job)));
        let Some((job, _)) = found.flatten() else { return out.put(encode::not_found) };
        let claim = Claim::Unfinished { id: job };
        let extended = self.engine.leases().extend(Extend { claim, ttr_ms: u64::from(ttr_ms) });
        match out.open(extended) {
            Ok(()) => out.put(encode::ok),
            Err(Refused::Rejected(Rejection::NotFound)) => out.put(encode::not_found),
            Err(Refused::Rejected(_)) => client_error(out, ErrorText::NotLeased),
            Err(refused) => refuse(out, &refused),
        }
    }

    // ---- results ----

    fn result(&mut self, id: Uuid, wait_timeout_ms: u32, out: &mut Outbox) {
        let Some(job_ref) = show::job_ref(id) else { return out.put(encode::not_found) };
        let wait_ms = if self.ended { 0 } else { u64::from(wait_timeout_ms) };
        loop {
            match out.open(self.engine.jobs().find(job_ref)) {
                None => return out.put(encode::not_found),
                Some((_, status)) if status.is_finished() => {
                    return match self.engine.jobs().get(job_ref) {
                        Ok(image) => match out.open(image) {
                            Some(image) => self.send_result(id, &image, out),
                            None => out.put(encode::not_found),
                        },
                        Err(error) => server_error(out, &error.to_string()),
                    };
                }
                Some(_) if wait_ms == 0 => return out.put(encode::timeout),
                Some((job, _)) => {
                    match self.engine.waits().for_result(&self.caller, job, wait_ms, false) {
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

    fn send_result(&mut self, id: Uuid, image: &JobImage, out: &mut Outbox) {
        let success = image.outcome.as_ref().is_some_and(|outcome| outcome.success);
        match self.engine.jobs().result(image) {
            Ok(bytes) => {
                let bytes = out.open(bytes);
                out.put(|out| encode::result(out, id, success, &bytes));
            }
            Err(FetchError::Moved) => out.put(encode::not_found),
            Err(error) => server_error(out, &error.to_string()),
        }
    }

    /// The end of a job somebody waited for.
    fn send_end(&mut self, id: Uuid, run: bool, image: &JobImage, out: &mut Outbox) {
        let code = image.outcome.as_ref().map(|outcome| outcome.code.clone()).unwrap_or_default();
        match &code[..] {
            // There is no result: the time was up (`run`), or the job is cancelled.
            b"timeout" | b"worker_lost" if run => out.put(encode::timeout),
            b"cancelled" if run => out.put(encode::not_found),
            _ => self.send_result(id, image, out),
        }
    }
}

impl Session for WorkqSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // Even if the client has closed its side, this may be only part of what it sent before.
        self.work(input, false, out)
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        let Some((_, waiting)) = self.waiting.take_if(|(expected, _)| *expected == ticket) else {
            return self.flow();
        };
        self.is_held = false;
        let before = out.pending_bytes();
        let answer = out.open(answer);
        if let Err(denied) = self.authorize_answer(&answer, &waiting) {
            deny(out, denied);
            self.log_answer(before, out);
            return Flow::Continue;
        }
        match (answer, waiting) {
            (Answer::Leased(job), Waiting::Lease(leasing)) => {
                if !self.hand_out(&job, leasing.is_offer, out) {
                    self.lease(leasing, self.engine.now_ms(), out);
                }
            }
            (Answer::Finished(image), Waiting::Run { id }) => {
                self.send_end(id, true, &image, out);
            }
            (Answer::Finished(image), Waiting::Result { id }) => {
                self.send_end(id, false, &image, out);
            }
            (Answer::Room, Waiting::Room { request, came_ms }) => {
                self.dispatch(*request, Some(came_ms), out);
            }
            (Answer::Room, Waiting::Refusal(text)) => client_error(out, text),
            (Answer::Gone(_), Waiting::Run { .. } | Waiting::Result { .. }) => {
                out.put(encode::not_found);
            }
            _ => out.put(encode::timeout),
        }
        self.log_answer(before, out);
        self.flow()
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // A client that has closed its sending side waits for nothing. Its complete requests are
        // still handled and answered: some clients close only that side.
        self.ended = true;
        let is_for_others = |(_, waiting): &mut (Ticket, Waiting)| {
            !matches!(waiting, Waiting::Room { .. } | Waiting::Refusal(_))
        };
        if let Some((ticket, _)) = self.waiting.take_if(is_for_others) {
            self.engine.waits().cancel(&self.caller, ticket);
            // Answered as if the end had come before the request: each request has its answer.
            out.put(encode::timeout);
            self.log.end(|| "timeout");
        }
        // A busy log or a full outbox only delays what is left.
        self.work(input, true, out)
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        match &self.waiting {
            // A held request has not been started.
            Some(_) if self.is_held => Flow::Close,
            Some(_) if !last => Flow::Wait,
            Some(_) => {
                if let Some((ticket, _)) = self.waiting.take() {
                    self.engine.waits().cancel(&self.caller, ticket);
                }
                out.put(encode::timeout);
                Flow::Close
            }
            None => Flow::Close,
        }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        self.common.clients.fetch_sub(1, Ordering::Relaxed);
        // Each lease is undone only once: after it is given back, another client may have the job
        // as the same attempt.
        self.offered.take_if(|(_, offered)| unsent.contains(offered));
        self.give_back_unless(None);
        for lease in unsent {
            self.engine.leases().undo(*lease);
        }
        let waiting = self.waiting.take().map(|(ticket, _)| ticket);
        self.engine.waits().connection_gone(self.caller.connection, waiting);
    }

    fn input_bytes_max(&self) -> usize {
        // A client that asks too fast is not read further: what it sends waits on its side.
        if self.is_held { 0 } else { self.common.limits.input_bytes_max() }
    }

    fn is_engaged(&self) -> bool {
        self.waiting.is_some() || self.offered.is_some()
    }

    fn lacks_identity(&mut self) -> bool {
        self.login.lacks_identity()
    }
}
