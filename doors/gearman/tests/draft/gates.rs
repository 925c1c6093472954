//! Which answers of the draft wait for the log: a session without a socket, and a log that stands
//! still until the test moves it.

use std::ops::Deref;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_engine::{Delivery, Engine, Flow, Outbox, Session};
use spindle_gearman::client::{Encode, decode_reply};
use spindle_gearman::wire::draft::{JobKind, Reply, Request};
use spindle_gearman::{GearmanDoor, Options, policies};
use spindle_log::MemoryLog;
use spindle_testkit::{ManualEngine, Sessions, commit_all};

use crate::client::{START_MS, create};

struct Line(Sessions<GearmanDoor>);

impl Deref for Line {
    type Target = Sessions<GearmanDoor>;

    fn deref(&self) -> &Sessions<GearmanDoor> {
        &self.0
    }
}

struct Talk {
    session: Box<dyn Session>,
    out: Outbox,
}

impl Line {
    fn new() -> Line {
        Line::with(spindle_engine::Options::default())
    }

    fn with(mut options: spindle_engine::Options) -> Line {
        options.defaults.policies = policies(0).into_iter().collect();
        let log = Arc::new(MemoryLog::new());
        let ManualEngine { engine, .. } = ManualEngine::open(log, START_MS, options);
        let door = GearmanDoor::new(engine.clone(), Options::default());
        Line(Sessions::new(&engine, door))
    }

    fn open(&self) -> Talk {
        Talk { session: self.0.open().1, out: Outbox::default() }
    }

    fn commit(&self) {
        commit_all(&self.engine);
    }
}

impl Talk {
    #[track_caller]
    fn send(&mut self, request: &Request) {
        assert_eq!(self.push(request), Flow::Continue);
    }

    fn push(&mut self, request: &Request) -> Flow {
        let mut input = BytesMut::new();
        request.encode(&mut input);
        self.session.on_bytes(&mut input, &mut self.out)
    }

    /// The packets that may leave now.
    fn released(&mut self, engine: &Engine) -> Vec<Reply> {
        let released = self.out.released(engine.durable()).to_vec();
        self.out.advance(released.len());
        let mut bytes = BytesMut::from(&released[..]);
        let next = || decode_reply(&mut bytes, 1 << 20).expect("packets");
        std::iter::from_fn(next).collect()
    }
}

#[test]
fn a_handle_is_told_when_its_job_is_durable() {
    let line = Line::new();
    let mut application = line.open();
    for kind in [JobKind::Handle, JobKind::ThrowAway] {
        application.send(&create(kind, "mail", "", "x"));
        assert_eq!(application.released(&line.engine), []);
        line.commit();
        let replies = application.released(&line.engine);
        assert!(matches!(replies[..], [Reply::JobCreated { .. }]), "{replies:?}");
    }
}

#[test]
fn a_sync_job_waits_for_no_sync_unless_one_that_must_last_joins_it() {
    let line = Line::new();
    let (mut waiter, mut other) = (line.open(), line.open());
    waiter.send(&create(JobKind::Sync, "mail", "k", "x"));
    assert_eq!(waiter.released(&line.engine), [Reply::JobCreated { handle: Bytes::new() }]);
    other.send(&create(JobKind::Handle, "mail", "k", "x"));
    assert_eq!(other.released(&line.engine), []);
    line.commit();
    assert_eq!(other.released(&line.engine).len(), 1);
}

#[test]
fn what_is_told_of_a_job_waits_for_what_it_reveals() {
    let line = Line::new();
    let (mut application, mut worker) = (line.open(), line.open());
    application.send(&create(JobKind::Handle, "mail", "", "x"));
    worker.send(&Request::WorkerConnect { names: vec![Bytes::from_static(b"mail")] });
    worker.send(&Request::JobAssign);
    // The job is not durable yet, so no client may be told of it.
    assert_eq!(worker.released(&line.engine), []);
    line.commit();
    assert_eq!(worker.released(&line.engine).len(), 1);
    let [Reply::JobCreated { handle }] = &application.released(&line.engine)[..] else {
        panic!("no handle")
    };
    worker.send(&Request::JobCompleteAnnounce { code: 0, result: Bytes::from_static(b"r") });
    application.send(&Request::JobComplete { handle: handle.clone() });
    assert_eq!(application.released(&line.engine), []);
    line.commit();
    let result = Bytes::from_static(b"r");
    let complete = Reply::JobComplete { elapsed_s: 1, code: 0, result };
    assert_eq!(application.released(&line.engine), [complete]);
}

#[test]
fn a_job_whose_bytes_never_left_is_another_workers() {
    let line = Line::new();
    let mut application = line.open();
    application.send(&create(JobKind::Handle, "mail", "", "x"));
    line.commit();
    let mut worker = line.open();
    worker.send(&Request::WorkerConnect { names: vec![Bytes::from_static(b"mail")] });
    worker.send(&Request::JobAssign);
    let unsent = worker.out.unsent_leases();
    assert_eq!(unsent.len(), 1);
    worker.session.on_closed(&unsent);
    let job =
        line.engine.inspect(|state| state.ready_jobs(b"mail", 0).next().map(|job| job.attempts()));
    assert_eq!(job, Some(0));
}

#[test]
fn what_the_log_has_no_room_for_is_done_when_it_has() {
    let options = spindle_engine::Options { undurable_bytes_max: 100, ..Default::default() };
    let line = Line::with(options);
    let mut application = line.open();
    application.send(&create(JobKind::Handle, "mail", "", &"x".repeat(200)));
    assert_eq!(application.push(&create(JobKind::Handle, "mail", "", "y")), Flow::Wait);
    line.commit();
    assert_eq!(application.released(&line.engine).len(), 1);
    let letters = line.letters.take();
    let [Delivery { ticket, answer, .. }] = &letters[..] else { panic!("{letters:?}") };
    let flow = application.session.on_answer(*ticket, answer.clone(), &mut application.out);
    assert_eq!(flow, Flow::Continue);
    line.commit();
    let replies = application.released(&line.engine);
    assert!(matches!(replies[..], [Reply::JobCreated { .. }]), "{replies:?}");
}
