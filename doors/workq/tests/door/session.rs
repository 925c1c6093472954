//! One session without a socket: what it says, when that may leave, and who is told of its end.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::ops::Deref;
use std::sync::Arc;

use bytes::BytesMut;
use spindle_core::Status;
use spindle_engine::{Committed, ConnectionId, Delivery, Flow, JobRef, Options, Outbox, Session};
use spindle_log::MemoryLog;
use spindle_testkit::{ManualClock, ManualEngine, Sessions, opened};
use spindle_workq::WorkqDoor;
use spindle_workq::wire::Limits;

use crate::harness::{Job, START_MS, id_bytes, job, with_ids};

struct Bench {
    clock: Arc<ManualClock>,
    sessions: Sessions<WorkqDoor>,
}

impl Deref for Bench {
    type Target = Sessions<WorkqDoor>;

    fn deref(&self) -> &Sessions<WorkqDoor> {
        &self.sessions
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Options::default())
    }

    fn with(mut options: Options) -> Bench {
        options.defaults.policies = [spindle_workq::policy()].into_iter().collect();
        let log = Arc::new(MemoryLog::new());
        let ManualEngine { engine, clock } = ManualEngine::open(log, START_MS, options);
        let door = WorkqDoor::new(engine.clone(), Limits::default());
        Bench { clock, sessions: Sessions::new(&engine, door) }
    }

    fn open(&mut self) -> Line {
        let (id, session) = self.sessions.open();
        Line { id, session, input: BytesMut::new(), out: Outbox::default() }
    }

    /// What the line may send now.
    fn released(&self, line: &mut Line) -> String {
        let released = line.out.released(self.engine.durable());
        let text = String::from_utf8(released.to_vec()).unwrap();
        line.out.advance(text.len());
        text
    }

    /// Hands the line what was delivered for it, as a reactor does.
    fn hand_over(&self, line: &mut Line) -> Flow {
        let mut flow = Flow::Wait;
        for Delivery { ticket, answer, .. } in self.letters.take_for(line.id) {
            flow = line.session.on_answer(ticket, answer, &mut line.out);
            if flow == Flow::Continue && !line.input.is_empty() {
                flow = line.session.on_bytes(&mut line.input, &mut line.out);
            }
        }
        flow
    }

    fn status(&self, number: u64) -> Option<Status> {
        opened(self.engine.jobs().find(JobRef::Uuid(id_bytes(number)))).map(|(_, status)| status)
    }
}

struct Line {
    id: ConnectionId,
    session: Box<dyn Session>,
    input: BytesMut,
    out: Outbox,
}

impl Line {
    fn hear(&mut self, text: &str) -> Flow {
        self.input.extend_from_slice(with_ids(text).as_bytes());
        self.session.on_bytes(&mut self.input, &mut self.out)
    }

    fn end(mut self) {
        let unsent = self.out.unsent_leases();
        self.session.on_closed(&unsent);
    }
}

const ADD: &str = "add #1 q 1000 60000 1\r\na\r\n";
const LEASED: &str = "+OK 1\r\n#1 q 1000 1\r\na\r\n";

#[test]
fn nothing_is_said_of_a_change_before_it_is_durable() {
    let mut bench = Bench::new();
    // Every one of these reveals the job that was added before it, to another connection.
    for (request, answer) in [
        ("add #1 q 1000 60000 1\r\nb\r\n", "-CLIENT-ERROR Duplicate job\r\n".to_owned()),
        ("lease q 0\r\n", LEASED.to_owned()),
        ("result #1 0\r\n", "-TIMEOUT\r\n".to_owned()),
        ("inspect job #1\r\n", format!("+OK 1\r\n{}", job(1, "q"))),
        ("inspect jobs q 0 10\r\n", format!("+OK 1\r\n{}", job(1, "q"))),
        ("inspect queue q\r\n", "+OK 1\r\nq 2\r\nready-len 1\r\nscheduled-len 0\r\n".to_owned()),
        ("inspect queues 0 1\r\n", "+OK 1\r\nq 2\r\nready-len 1\r\nscheduled-len 0\r\n".to_owned()),
        ("complete #1 0\r\n\r\n", "+OK\r\n".to_owned()),
        ("delete #1\r\n", "+OK\r\n".to_owned()),
    ] {
        let (mut adder, mut asker) = (bench.open(), bench.open());
        assert_eq!(adder.hear(ADD), Flow::Continue);
        assert_eq!(asker.hear(request), Flow::Continue, "{request}");
        assert_eq!(bench.released(&mut adder), "", "{request}");
        assert_eq!(bench.released(&mut asker), "", "{request}");
        assert_eq!(bench.engine.commit_once(), Committed::Some);
        assert_eq!(bench.released(&mut adder), "+OK\r\n");
        assert_eq!(bench.released(&mut asker), with_ids(&answer), "{request}");
        asker.hear("delete #1\r\n");
        bench.engine.commit_once();
        bench.released(&mut asker);
    }
}

#[test]
fn a_job_that_is_gone_is_denied_only_when_that_is_durable() {
    let mut bench = Bench::new();
    let (mut deleter, mut asker) = (bench.open(), bench.open());
    deleter.hear(ADD);
    bench.engine.commit_once();
    assert_eq!(bench.released(&mut deleter), "+OK\r\n");
    deleter.hear("delete #1\r\n");
    for request in ["inspect job #1\r\n", "result #1 0\r\n", "lease q 0\r\n", "inspect queue q\r\n"]
    {
        asker.hear(request);
        assert_eq!(bench.released(&mut asker), "", "{request}");
    }
    bench.engine.commit_once();
    assert_eq!(
        bench.released(&mut asker),
        "-NOT-FOUND\r\n-NOT-FOUND\r\n-TIMEOUT\r\n-NOT-FOUND\r\n"
    );
}

#[test]
fn the_order_holds_when_a_later_answer_needs_nothing() {
    let mut bench = Bench::new();
    let mut line = bench.open();
    line.hear("nonsense\r\nadd #1 q 1000 60000 1\r\na\r\nnonsense\r\ninspect server\r\nadd x\r\n");
    assert_eq!(bench.released(&mut line), "-CLIENT-ERROR Unknown command\r\n");
    bench.engine.commit_once();
    assert_eq!(
        bench.released(&mut line),
        "+OK\r\n-CLIENT-ERROR Unknown command\r\n+OK 1\r\nserver 3\r\nactive-clients 1\r\n\
         evicted-jobs 0\r\nstarted 2016-08-22T01:50:51Z\r\n-CLIENT-ERROR Invalid command args\r\n"
    );
}

#[test]
fn a_lease_of_a_durable_job_leaves_at_once_unless_its_attempt_must_count() {
    let mut bench = Bench::new();
    let mut line = bench.open();
    line.hear(ADD);
    line.hear("add #2 counted 1000 60000 1 -max-attempts=2\r\na\r\n");
    bench.engine.commit_once();
    assert_eq!(bench.released(&mut line), "+OK\r\n+OK\r\n");
    line.hear("lease q 0\r\n");
    assert_eq!(bench.released(&mut line), with_ids(LEASED));
    line.hear("lease counted 0\r\n");
    assert_eq!(bench.released(&mut line), "");
    bench.engine.commit_once();
    assert_eq!(bench.released(&mut line), with_ids("+OK 1\r\n#2 counted 1000 1\r\na\r\n"));
}

#[test]
fn a_run_needs_no_disk_at_all() {
    let mut bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    assert_eq!(client.hear("run #1 q 1000 500 1\r\na\r\n"), Flow::Wait);
    assert_eq!(worker.hear("lease q 0\r\n"), Flow::Continue);
    assert_eq!(bench.released(&mut worker), with_ids(LEASED));
    worker.hear("complete #1 1\r\nb\r\n");
    assert_eq!(bench.released(&mut worker), "+OK\r\n");
    assert_eq!(bench.hand_over(&mut client), Flow::Continue);
    assert_eq!(bench.released(&mut client), with_ids("+OK 1\r\n#1 1 1\r\nb\r\n"));
    assert_eq!(bench.engine.commit_once(), Committed::Nothing);
}

#[test]
fn a_busy_log_delays_requests_and_loses_none() {
    let options = Options { undurable_bytes_max: 1, ..Options::default() };
    let mut bench = Bench::with(options);
    let mut line = bench.open();
    line.hear(ADD);
    // Over the limit now: each of these waits for room, in turn.
    let flow = line.hear(
        "add #2 q 1000 60000 1\r\nb\r\nlease q 0\r\nextend #1 5000\r\ncomplete #1 1\r\nx\r\n\
         fail #2 1\r\ny\r\ndelete #1\r\nresult #2 0\r\nlease q 0\r\n",
    );
    assert_eq!(flow, Flow::Wait);
    let mut said = bench.released(&mut line);
    assert_eq!(said, "");
    for _ in 0..20 {
        bench.engine.commit_once();
        bench.hand_over(&mut line);
        said += &bench.released(&mut line);
    }
    assert_eq!(
        said,
        with_ids(
            "+OK\r\n+OK\r\n+OK 1\r\n#1 q 1000 1\r\na\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n\
             +OK 1\r\n#2 0 1\r\ny\r\n-TIMEOUT\r\n"
        )
    );
    assert!(line.input.is_empty());
}

#[test]
fn a_busy_log_only_delays_what_a_client_that_sends_no_more_had_asked() {
    let options = Options { undurable_bytes_max: 1, ..Options::default() };
    let mut bench = Bench::with(options);
    let mut line = bench.open();
    line.hear(ADD);
    assert_eq!(line.hear("add #2 q 1000 60000 1\r\nb\r\ndelete #1\r\n"), Flow::Wait);
    assert_eq!(line.session.on_end_of_input(&mut line.input, &mut line.out), Flow::Wait);
    let mut said = String::new();
    for _ in 0..6 {
        bench.engine.commit_once();
        if bench.hand_over(&mut line) == Flow::Continue {
            line.session.on_end_of_input(&mut line.input, &mut line.out);
        }
        said += &bench.released(&mut line);
    }
    assert_eq!(said, "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(bench.status(2), Some(Status::Ready));
}

#[test]
fn shutdown_ends_waits_in_two_phases() {
    let mut bench = Bench::new();
    let (mut lease, mut run, mut idle) = (bench.open(), bench.open(), bench.open());
    lease.hear("lease q 1000\r\n");
    run.hear("run #1 r 1000 500 1\r\na\r\n");
    idle.hear("inspect queue q\r\n");
    bench.engine.stop_leasing();
    assert_eq!(idle.session.on_shutdown(false, &mut idle.out), Flow::Close);
    // Its answer is on the way.
    assert_eq!(lease.session.on_shutdown(false, &mut lease.out), Flow::Wait);
    assert_eq!(bench.hand_over(&mut lease), Flow::Continue);
    assert_eq!(bench.released(&mut lease), "-TIMEOUT\r\n");
    assert_eq!(run.session.on_shutdown(false, &mut run.out), Flow::Wait);
    assert_eq!(bench.hand_over(&mut run), Flow::Wait);
    assert_eq!(bench.status(1), Some(Status::Ready));
    assert_eq!(run.session.on_shutdown(true, &mut run.out), Flow::Close);
    assert_eq!(bench.released(&mut run), "-TIMEOUT\r\n");
    assert_eq!(bench.status(1), None);
}

#[test]
fn jobs_are_not_leased_while_the_server_stops() {
    let mut bench = Bench::new();
    let mut line = bench.open();
    line.hear(ADD);
    bench.engine.commit_once();
    bench.released(&mut line);
    bench.engine.stop_leasing();
    line.hear("lease q 1000\r\n");
    assert_eq!(bench.released(&mut line), "-TIMEOUT\r\n");
    assert_eq!(bench.status(1), Some(Status::Ready));
}

#[test]
fn inspect_jobs_stays_bounded_whatever_is_asked_at_once() {
    let mut bench = Bench::new();
    let mut line = bench.open();
    let payload = "x".repeat(1 << 20);
    for number in 1..=6 {
        line.hear(&format!("add #{number} big 1000 60000 1048576\r\n{payload}\r\n"));
        bench.engine.commit_once();
        bench.released(&mut line);
    }
    // Ten answers of five mebibytes each: the session stops behind the first.
    let flow = line.hear(&"inspect jobs big 0 100\r\n".repeat(10));
    assert_eq!(flow, Flow::Continue);
    let shown = Job { payload: &payload, ..job(1, "big") }.to_string().len();
    assert!(line.out.pending_bytes() < 6 * shown, "{}", line.out.pending_bytes());
    for left in (0..10).rev() {
        let answer = bench.released(&mut line);
        assert!(answer.starts_with("+OK 5\r\n"), "with {left} left");
        line.session.on_bytes(&mut line.input, &mut line.out);
    }
    assert!(line.input.is_empty());
    assert_eq!(bench.released(&mut line), "");
}

#[test]
fn a_job_handed_to_a_session_that_waits_no_longer_is_given_back() {
    // The engine answers a lease in the very moment its connection ends, in each of the ways.
    for ending in ["end of input", "shutdown", "closed"] {
        let mut bench = Bench::new();
        let (mut worker, mut client) = (bench.open(), bench.open());
        worker.hear("lease q 1000\r\n");
        client.hear(ADD);
        assert_eq!(bench.status(1), Some(Status::Leased));
        match ending {
            "end of input" => {
                worker.session.on_end_of_input(&mut worker.input, &mut worker.out);
            }
            "shutdown" => {
                worker.session.on_shutdown(true, &mut worker.out);
            }
            _ => {}
        }
        bench.hand_over(&mut worker);
        if ending == "closed" {
            // It was written into the outbox, and never left.
            worker.end();
        }
        assert_eq!(bench.status(1), Some(Status::Ready), "{ending}");
        let image = opened(bench.engine.jobs().get(JobRef::Uuid(id_bytes(1))).unwrap()).unwrap();
        assert_eq!(image.attempts, 0, "{ending}");
    }
}

#[test]
fn a_lease_is_handed_on_when_its_first_taker_went() {
    let mut bench = Bench::new();
    let (mut first, mut second, mut client) = (bench.open(), bench.open(), bench.open());
    first.hear("lease q 1000\r\n");
    second.hear("lease q 1000\r\n");
    client.hear(ADD);
    bench.hand_over(&mut first);
    first.end();
    bench.engine.commit_once();
    assert_eq!(bench.hand_over(&mut second), Flow::Continue);
    assert_eq!(bench.released(&mut second), with_ids(LEASED));
}

#[test]
fn part_of_a_lease_that_left_counts_as_unsent_and_all_of_it_as_sent() {
    for (sent, status) in [(10, Status::Ready), (LEASED.len() + 34, Status::Leased)] {
        let mut bench = Bench::new();
        let mut worker = bench.open();
        worker.hear(ADD);
        worker.hear("lease q 0\r\n");
        bench.engine.commit_once();
        let released = worker.out.released(bench.engine.durable()).len();
        assert_eq!(released, "+OK\r\n".len() + with_ids(LEASED).len());
        worker.out.advance("+OK\r\n".len() + sent.min(with_ids(LEASED).len()));
        worker.end();
        assert_eq!(bench.status(1), Some(status));
    }
}

#[test]
fn a_lease_wait_that_meets_a_busy_log_is_still_answered() {
    let options = Options { undurable_bytes_max: 1, ..Options::default() };
    let mut bench = Bench::with(options);
    let (mut line, mut other) = (bench.open(), bench.open());
    other.hear(ADD);
    assert_eq!(line.hear("lease q 1000\r\n"), Flow::Wait);
    bench.clock.advance(400);
    bench.engine.commit_once();
    assert_eq!(bench.hand_over(&mut line), Flow::Continue);
    assert_eq!(bench.released(&mut line), with_ids(LEASED));
}
