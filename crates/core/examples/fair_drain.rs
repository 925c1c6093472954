//! What a lease and a completion cost in the core, in a queue whose keys take turns and in one that
//! is not fair: for callgrind, which counts instructions.
//!
//! ```sh
//! cargo build --release -p spindle-core --example fair_drain
//! valgrind --tool=callgrind --toggle-collect='*drain*' target/release/examples/fair_drain fair
//! ```
//!
//! The first argument is `fair` or `plain`, the second one how many keys (100,000), each of which has
//! two jobs.

#![expect(clippy::disallowed_types, reason = "it measures how long the core takes")]

use std::time::Instant;

use bytes::Bytes;
use spindle_core::command::{Claim, Finish, Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::queue::{Fair, QueueSettings};
use spindle_core::{
    BytesRef, Command, Decision, Defaults, Event, JobId, Place, State, Type, decide,
};

const JOBS_OF_A_KEY: u64 = 2;

struct Server {
    state: State,
    decision: Decision,
    position: u64,
}

impl Server {
    fn run(&mut self, command: &Command) -> &[(Event, bool)] {
        decide(&self.state, command, 1_000, &mut self.decision).expect("it is allowed");
        for (offset, (event, _)) in (0..).zip(&self.decision.events) {
            self.state.evolve(event, Place { position: self.position, offset });
        }
        self.position += 1;
        &self.decision.events
    }
}

/// Leases and completes all jobs, each of them alone.
#[inline(never)]
fn drain(server: &mut Server, jobs: u64) {
    let lease = Command::Lease(Lease {
        queues: vec![Bytes::from_static(b"q")],
        select: Select::ByPriority,
        holder: 1,
        bound: false,
        timeout_ms: None,
        payload_bytes_max: u32::MAX,
        worker: Bytes::from_static(b"w"),
        door: Origin::Workq,
    });
    for _ in 0..jobs {
        let leased = server.run(&lease).iter().find_map(|(event, _)| match event {
            Event::Leased(leased) => Some(leased.id),
            _ => None,
        });
        let claim = Claim::Unfinished { id: JobId(leased.expect("a job is ready")) };
        let finish = Finish {
            claim,
            success: true,
            retry: false,
            result: None,
            message: Bytes::new(),
            error: Bytes::new(),
            code: Bytes::new(),
            worker_finished_at: Bytes::new(),
        };
        server.run(&Command::Finish(Box::new(finish)));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let is_fair = arguments.next().is_some_and(|how| how == "fair");
    let keys: u64 = arguments.next().map_or(100_000, |keys| keys.parse().expect("a number"));
    let jobs = keys * JOBS_OF_A_KEY;
    let state = State::new(7, Defaults::default());
    let mut server = Server { state, decision: Decision::default(), position: 1 };
    server.run(&Command::ReserveIds { until: jobs + 1 });
    let name = Bytes::from_static(b"q");
    let fair = is_fair.then(Fair::default);
    let settings = QueueSettings { fair, ..QueueSettings::default() };
    server.run(&Command::SetQueue { name: name.clone(), settings });
    for id in 1..=jobs {
        let revision = server.state.server().constraints_revision;
        let payload = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(id), name.clone(), Origin::Workq, payload);
        // As tenants come: not in the order of their names.
        let key = (id % keys).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        submit.fair_key = Some(Bytes::from(format!("tenant-{key:016x}").into_bytes()));
        submit.constraints_revision = revision;
        server.run(&Command::Submit(Box::new(submit)));
    }
    let began = Instant::now();
    drain(&mut server, jobs);
    let each = began.elapsed().as_nanos() / u128::from(jobs);
    println!("{}: {each} ns a life cycle", if is_fair { "fair" } else { "plain" });
}
