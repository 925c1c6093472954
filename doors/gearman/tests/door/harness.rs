//! Sessions without sockets: connections that say exactly what they are told, and an engine whose
//! log and clock stand still until a test moves them.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::ops::Deref;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_core::command::{Claim, Command, Lease, Submit};
use spindle_core::job::Origin;
use spindle_core::{JobId, Type};
use spindle_engine::{
    Answer, ConnectionId, Delivery, Flow, JobRef, LeaseReply, LeasedJob, Mailbox, Outbox, Payload,
    Session, WorkResult,
};
use spindle_gearman::client::{Encode, decode_response};
use spindle_gearman::wire::{
    Assignment, GrabKind, JobStatus, Priority, Request, Response, SubmitKind,
};
use spindle_gearman::{GearmanDoor, Options, policies};
use spindle_log::{Log, MemoryLog};
use spindle_testkit::{
    ManualClock, ManualEngine, Sessions, commit_all, lease_from, new_job, opened, submit_to,
};

/// When the clocks of these tests start: 2016-08-22 01:50:51 UTC, a Monday.
pub const START_MS: u64 = 1_471_830_651_000;

/// The connection of another door's worker.
const FOREIGN: ConnectionId = ConnectionId(999);

/// An engine with this one door.
pub struct Bench {
    pub clock: Arc<ManualClock>,
    sessions: Sessions<GearmanDoor>,
}

impl Deref for Bench {
    type Target = Sessions<GearmanDoor>;

    fn deref(&self) -> &Sessions<GearmanDoor> {
        &self.sessions
    }
}

impl Bench {
    pub fn new() -> Arc<Bench> {
        Bench::with(spindle_engine::Options::default())
    }

    pub fn with(options: spindle_engine::Options) -> Arc<Bench> {
        Bench::on(Arc::new(MemoryLog::new()), options, Options::default())
    }

    /// As with `--gearman-job-retries`.
    pub fn with_attempts_max(attempts_max: u32) -> Arc<Bench> {
        Bench::start(
            Arc::new(MemoryLog::new()),
            Default::default(),
            Default::default(),
            attempts_max,
        )
    }

    pub fn on(
        log: Arc<dyn Log>,
        options: spindle_engine::Options,
        door_options: Options,
    ) -> Arc<Bench> {
        Bench::start(log, options, door_options, 0)
    }

    fn start(
        log: Arc<dyn Log>,
        mut options: spindle_engine::Options,
        door_options: Options,
        attempts_max: u32,
    ) -> Arc<Bench> {
        options.defaults.policies = policies(attempts_max).into_iter().collect();
        let ManualEngine { engine, clock } = ManualEngine::open(log, START_MS, options);
        let door = GearmanDoor::new(engine.clone(), door_options);
        Arc::new(Bench { clock, sessions: Sessions::new(&engine, door) })
    }

    /// A new connection.
    pub fn open(self: &Arc<Bench>) -> Line {
        let (id, session) = self.sessions.open();
        Line {
            bench: self.clone(),
            id,
            session,
            input: BytesMut::new(),
            out: Outbox::default(),
            heard: BytesMut::new(),
            flow: Flow::Continue,
        }
    }

    pub fn commit(&self) {
        commit_all(&self.engine);
    }

    /// Lets time pass, and runs what is due.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
    }

    // ---- another door ----

    /// A job of another door.
    pub fn add_foreign(&self, queue: &str, payload: &str) -> JobId {
        self.submit_foreign(self.foreign(queue), payload)
    }

    pub fn foreign(&self, queue: &str) -> Submit {
        submit_to(queue, Origin::Api)
    }

    pub fn submit_foreign(&self, submit: Submit, payload: &str) -> JobId {
        opened(self.engine.jobs().submit(new_job(submit, payload.as_bytes()))).unwrap()
    }

    /// A worker of another door takes a job.
    pub fn lease_foreign(&self, queue: &str) -> Option<LeasedJob> {
        self.lease_foreign_waiting(queue, 0)
    }

    /// A worker of another door takes a job, or waits for one.
    pub fn lease_foreign_waiting(&self, queue: &str, wait_ms: u64) -> Option<LeasedJob> {
        let lease = Lease { holder: FOREIGN.0, ..lease_from(queue, Origin::Api) };
        let mailbox = self.letters.clone() as Arc<dyn Mailbox>;
        let caller = spindle_engine::Caller { connection: FOREIGN, mailbox };
        match opened(self.engine.leases().take(&caller, lease, wait_ms)).unwrap() {
            LeaseReply::Leased(job) => Some(*job),
            _ => None,
        }
    }

    /// The job the worker of another door was handed since the last look.
    pub fn handed_foreign(&self) -> Option<JobId> {
        let letters = self.letters.take_for(FOREIGN).into_iter();
        match &letters.map(|letter| opened(letter.answer)).collect::<Vec<_>>()[..] {
            [] => None,
            [Answer::Leased(job)] => Some(job.id),
            other => panic!("expected a job and got {other:?}"),
        }
    }

    /// A worker of another door ends a job.
    pub fn finish_foreign(&self, id: JobId, success: bool, result: &str) {
        let result = Payload::new(Bytes::copy_from_slice(result.as_bytes()), Type::Bytes);
        let shown = WorkResult { success, retry: true, result, ..WorkResult::default() };
        opened(self.engine.leases().finish(Claim::Unfinished { id }, shown)).unwrap();
    }

    pub fn execute(&self, command: Command) {
        opened(self.engine.jobs().execute(&command)).unwrap();
    }

    /// The result that is kept of a job, whoever reads it.
    pub fn kept_result(&self, handle: &Bytes) -> Option<Bytes> {
        let id = id_of(handle);
        let image = opened(self.engine.jobs().get(JobRef::Id(id)).unwrap())?;
        let place = image.outcome?.bytes?;
        Some(self.engine.jobs().bytes(&place).unwrap())
    }
}

/// The job of a handle.
pub fn id_of(handle: &Bytes) -> JobId {
    spindle_core::address::from_gearman_handle(handle).unwrap()
}

/// One connection. It hears only what its outbox releases.
pub struct Line {
    pub bench: Arc<Bench>,
    pub id: ConnectionId,
    session: Box<dyn Session>,
    input: BytesMut,
    pub out: Outbox,
    heard: BytesMut,
    pub flow: Flow,
}

impl Line {
    pub fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.input.extend_from_slice(bytes.as_ref());
        if self.flow == Flow::Continue {
            self.flow = self.session.on_bytes(&mut self.input, &mut self.out);
        }
    }

    pub fn send(&mut self, request: &Request) {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        self.raw(&bytes);
    }

    /// Hands over what the engine has for this connection, as a reactor does.
    pub fn hand_over(&mut self) {
        for Delivery { ticket, answer, .. } in self.bench.letters.take_for(self.id) {
            let flow = self.session.on_answer(ticket, answer, &mut self.out);
            if !matches!(self.flow, Flow::Close | Flow::Abort) {
                self.flow = flow;
            }
        }
    }

    /// Takes what may leave now.
    fn release(&mut self) {
        let released = self.out.released(self.bench.engine.durable()).to_vec();
        self.out.advance(released.len());
        self.heard.extend_from_slice(&released);
        if self.flow == Flow::Continue && self.out.pending_bytes() == 0 && !self.input.is_empty() {
            self.flow = self.session.on_bytes(&mut self.input, &mut self.out);
        }
    }

    /// Lets the log and the reactor work until nothing comes of it any more.
    fn settle(&mut self) {
        loop {
            let before = (self.heard.len(), self.input.len(), self.out.pending_bytes());
            self.hand_over();
            self.bench.commit();
            self.hand_over();
            self.release();
            if before == (self.heard.len(), self.input.len(), self.out.pending_bytes()) {
                return;
            }
        }
    }

    /// Everything that is said without waiting for the log.
    pub fn heard_at_once(&mut self) -> usize {
        self.hand_over();
        self.release();
        self.heard.len()
    }

    /// The next packet.
    #[track_caller]
    pub fn hear(&mut self) -> Response {
        self.settle();
        let packet = decode_response(&mut self.heard, usize::MAX).unwrap();
        packet.expect("a packet was to come")
    }

    #[track_caller]
    pub fn hears_nothing(&mut self) {
        self.settle();
        assert!(self.heard.is_empty(), "came: {}", self.heard.escape_ascii());
    }

    #[track_caller]
    pub fn ask(&mut self, request: &Request) -> Response {
        self.send(request);
        self.hear()
    }

    /// A line, and all that comes of it.
    #[track_caller]
    pub fn text(&mut self, line: &str) -> String {
        self.raw(format!("{line}\n"));
        self.settle();
        String::from_utf8(self.heard.split().to_vec()).unwrap()
    }

    /// All that comes.
    pub fn all_heard(&mut self) -> Vec<u8> {
        self.settle();
        self.heard.split().to_vec()
    }

    /// The code of the ERROR that comes.
    #[track_caller]
    pub fn hear_error(&mut self) -> (String, String) {
        match self.hear() {
            Response::Error { code, text } => {
                let text = String::from_utf8(text.to_vec()).unwrap();
                (String::from_utf8(code.to_vec()).unwrap(), text)
            }
            other => panic!("expected an ERROR and got {other:?}"),
        }
    }

    /// The connection breaks off.
    pub fn close(mut self) {
        self.flow = self.session.on_end_of_input(&mut self.input, &mut self.out);
        self.hand_over();
        self.session.on_closed(&self.out.unsent_leases());
    }

    /// The peer sends no more, and reads on.
    pub fn end_sending(&mut self) -> Flow {
        self.session.on_end_of_input(&mut self.input, &mut self.out)
    }

    pub fn is_engaged(&self) -> bool {
        self.session.is_engaged()
    }

    pub fn input_bytes_max(&self) -> usize {
        self.session.input_bytes_max()
    }

    pub fn shut_down(&mut self, last: bool) -> Flow {
        self.session.on_shutdown(last, &mut self.out)
    }

    // ---- clients ----

    /// Submits in the foreground and hears the handle.
    #[track_caller]
    pub fn run(&mut self, function: &str, unique: &str, payload: &str) -> Bytes {
        self.submit(SubmitKind::Foreground(Priority::Normal), function, unique, payload)
    }

    /// Submits in the background and hears the handle.
    #[track_caller]
    pub fn add(&mut self, function: &str, unique: &str, payload: &str) -> Bytes {
        self.submit(SubmitKind::Background(Priority::Normal), function, unique, payload)
    }

    #[track_caller]
    pub fn submit(
        &mut self,
        kind: SubmitKind,
        function: &str,
        unique: &str,
        payload: &str,
    ) -> Bytes {
        match self.ask(&submit(kind, function, unique, payload)) {
            Response::JobCreated { handle } => handle,
            other => panic!("expected JOB_CREATED and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn status(&mut self, handle: &Bytes) -> JobStatus {
        match self.ask(&Request::GetStatus { handle: handle.clone() }) {
            Response::Status { handle: same, status } if same == *handle => status,
            other => panic!("expected STATUS_RES and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn status_unique(&mut self, unique: &str) -> (JobStatus, u64) {
        let unique = Bytes::copy_from_slice(unique.as_bytes());
        match self.ask(&Request::GetStatusUnique { unique: unique.clone() }) {
            Response::StatusUnique { unique: same, status, clients } if same == unique => {
                (status, clients)
            }
            other => panic!("expected STATUS_RES_UNIQUE and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn hears_complete(&mut self, handle: &Bytes, result: &str) {
        let result = Bytes::copy_from_slice(result.as_bytes());
        assert_eq!(self.hear(), Response::WorkComplete { handle: handle.clone(), result });
    }

    #[track_caller]
    pub fn hears_fail(&mut self, handle: &Bytes) {
        assert_eq!(self.hear(), Response::WorkFail { handle: handle.clone() });
    }

    // ---- workers ----

    pub fn can_do(&mut self, function: &str) {
        self.send(&Request::CanDo { function: Bytes::copy_from_slice(function.as_bytes()) });
    }

    pub fn can_do_timeout(&mut self, function: &str, timeout_ms: u64) {
        let function = Bytes::copy_from_slice(function.as_bytes());
        self.send(&Request::CanDoTimeout { function, timeout_ms });
    }

    pub fn cant_do(&mut self, function: &str) {
        self.send(&Request::CantDo { function: Bytes::copy_from_slice(function.as_bytes()) });
    }

    /// Grabs; none is NO_JOB.
    #[track_caller]
    pub fn grab(&mut self, kind: GrabKind) -> Option<Assignment> {
        match self.ask(&Request::Grab(kind)) {
            Response::JobAssign(job) => Some(job),
            Response::NoJob => None,
            other => panic!("expected a job or none and got {other:?}"),
        }
    }

    /// Grabs a job that must be there.
    #[track_caller]
    pub fn take(&mut self) -> Bytes {
        self.grab(GrabKind::Plain).expect("a job was to be there").handle
    }

    /// Grabs a job that must be there, and tells its payload.
    #[track_caller]
    pub fn take_payload(&mut self) -> String {
        let job = self.grab(GrabKind::Plain).expect("a job was to be there");
        String::from_utf8(job.payload.to_vec()).unwrap()
    }

    pub fn complete(&mut self, handle: &Bytes, result: &str) {
        let result = Bytes::copy_from_slice(result.as_bytes());
        self.send(&Request::WorkComplete { handle: handle.clone(), result });
    }

    pub fn fail(&mut self, handle: &Bytes) {
        self.send(&Request::WorkFail { handle: handle.clone() });
    }

    pub fn except(&mut self, handle: &Bytes, data: &str) {
        let data = Bytes::copy_from_slice(data.as_bytes());
        self.send(&Request::WorkException { handle: handle.clone(), data });
    }

    pub fn progress(&mut self, handle: &Bytes, numerator: &str, denominator: &str) {
        let [numerator, denominator] =
            [numerator, denominator].map(|text| Bytes::copy_from_slice(text.as_bytes()));
        self.send(&Request::WorkStatus { handle: handle.clone(), numerator, denominator });
    }

    pub fn data(&mut self, handle: &Bytes, data: &str) {
        let data = Bytes::copy_from_slice(data.as_bytes());
        self.send(&Request::WorkData { handle: handle.clone(), data });
    }
}

/// A client that wants exceptions.
#[track_caller]
pub fn wants_exceptions(line: &mut Line) {
    let name = Bytes::from_static(b"exceptions");
    let answer = line.ask(&Request::Option { name: name.clone() });
    assert_eq!(answer, Response::Option { name });
}

pub fn submit(kind: SubmitKind, function: &str, unique: &str, payload: &str) -> Request {
    let [function, unique, payload] =
        [function, unique, payload].map(|text| Bytes::copy_from_slice(text.as_bytes()));
    Request::Submit(spindle_gearman::wire::Submit { kind, function, unique, payload })
}

/// A job that is known, and whether it runs.
pub fn known(is_running: bool) -> JobStatus {
    JobStatus { is_known: true, is_running, numerator: 0, denominator: 0 }
}
