//! A server without engine or disk: time, a log in memory, and the core between them.

mod draw;
mod life;
mod random;

use bytes::Bytes;
use spindle_core::command::{Claim, Compact, Finish, Lease, Select, Submit};
use spindle_core::job::{Backoff, Cause, Key, OnDead, Origin, Scope};
use spindle_core::payload::BytesRef;
use spindle_core::seat::Seat;
use spindle_core::state::Place;
use spindle_core::{
    Command, Decision, Defaults, EVENTS_MAX, Event, JobId, JobImage, Policy, Rejection, Requeue,
    State, Status, Type, decide,
};

pub use draw::Draw;
pub use life::{Step, in_any_life, live_images, random_life};
pub use random::command;

/// The time every test begins at.
pub const START_MS: u64 = 1_000_000;

/// Doors that differ in all that a policy says.
pub fn defaults() -> Defaults {
    let gearman = Policy { on_lost_lease: Requeue::ToTail, ..Policy::ONCE };
    let lightjq = Policy {
        attempts_max: 11,
        fails_max: 11,
        backoff: Backoff { base_ms: 1000, factor_thousandths: 2000, ..Policy::RETRIED.backoff },
        error_type: Type::Msgpack,
        ..Policy::ONCE
    };
    let kept = Policy { keep_ms: None, ..Policy::ONCE };
    let declared = [
        (Origin::Workq, kept),
        (Origin::Gearman, gearman),
        (Origin::Lightjq, lightjq),
        (Origin::Jobq, kept),
    ];
    Defaults { policies: declared.into_iter().collect(), ..Defaults::default() }
}

/// A state, its log, and what time it is.
pub struct Server {
    pub state: State,
    pub now_ms: u64,
    pub log: Vec<(Place, Event)>,
    /// Everything that happened, foreground jobs included, with its time.
    pub history: Vec<(u64, Event)>,
    pub position: u64,
    decision: Decision,
}

impl Server {
    /// A server that never ran, with ids to give.
    pub fn new() -> Server {
        Server::with(defaults())
    }

    /// A server that never ran, and has reserved no ids.
    pub fn empty() -> Server {
        Server {
            state: State::new(7, defaults()),
            now_ms: START_MS,
            log: Vec::new(),
            history: Vec::new(),
            position: 1,
            decision: Decision::default(),
        }
    }

    pub fn with(defaults: Defaults) -> Server {
        let mut server = Server { state: State::new(7, defaults), ..Server::empty() };
        server.when(Command::ReserveIds { until: 1_000_000 }).expect("nothing reserved yet");
        server
    }

    /// What a command causes, after everything due was done.
    pub fn when(&mut self, command: Command) -> Result<Vec<Event>, Rejection> {
        self.tick();
        self.run(&command)
    }

    /// A command that has to be accepted.
    pub fn given(&mut self, command: Command) -> Vec<Event> {
        self.when(command.clone()).unwrap_or_else(|rejection| panic!("{command:?}: {rejection}"))
    }

    /// The names of what a command causes.
    pub fn then(&mut self, command: Command) -> Vec<&'static str> {
        self.given(command).iter().map(Event::name).collect()
    }

    /// Why a command is refused.
    pub fn refused(&mut self, command: Command) -> Rejection {
        self.when(command).expect_err("it has to be refused")
    }

    fn run(&mut self, command: &Command) -> Result<Vec<Event>, Rejection> {
        self.state.wake_buckets(self.now_ms);
        let mut outcome = decide(&self.state, command, self.now_ms, &mut self.decision);
        // A hint may bring better jobs to light, so a decision with hints is not final.
        while !self.decision.blocked.is_empty() {
            self.state.apply_hints(&self.decision, self.now_ms);
            outcome = decide(&self.state, command, self.now_ms, &mut self.decision);
        }
        outcome?;
        let events = std::mem::take(&mut self.decision.events);
        let is_counting = |event: &Event| matches!(event, Event::BatchesCounted(_));
        let count = events.iter().filter(|(event, _)| !is_counting(event)).count();
        assert!(count <= EVENTS_MAX, "{command:?} caused {count} events");
        for (offset, (event, logged)) in (0u32..).zip(&events) {
            let place = Place { position: self.position, offset };
            self.state.evolve(event, place);
            self.history.push((self.now_ms, event.clone()));
            if *logged {
                self.log.push((place, event.clone()));
            }
        }
        self.position += 1;
        Ok(events.into_iter().map(|(event, _)| event).collect())
    }

    /// Does what is due.
    pub fn tick(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while self.state.has_surplus()
            || self.state.next_deadline(false).is_some_and(|due| due <= self.now_ms)
        {
            let events =
                self.run(&Command::Tick { hold_expiry: false }).expect("ticks are never refused");
            if events.is_empty() {
                break;
            }
            all.extend(events);
        }
        all
    }

    /// Time passes, and what it brings happens.
    pub fn pass(&mut self, ms: u64) -> Vec<&'static str> {
        self.now_ms += ms;
        self.tick().iter().map(Event::name).collect()
    }

    pub fn status(&self, id: u64) -> Option<Status> {
        self.state.status(JobId(id))
    }

    /// An unfinished job.
    pub fn image(&self, id: u64) -> JobImage {
        self.state.image(JobId(id)).expect("the job is unfinished")
    }

    /// The image a finishing event brought, the newest of this job.
    pub fn finished(&self, id: u64) -> JobImage {
        let newest = self.history.iter().rev().find_map(|(_, event)| match event {
            Event::Finished(image) if image.id == id => Some(image.clone()),
            _ => None,
        });
        newest.expect("the job finished")
    }

    /// The fold of what was logged from a position on.
    pub fn folded(&self, first: u64) -> State {
        let mut state = State::new(self.position, self.state.defaults().clone());
        for (place, event) in self.log.iter().filter(|(place, _)| place.position >= first) {
            state.evolve(event, *place);
        }
        state
    }

    /// Checks that the log folds to the same state after everything was appended again.
    pub fn assert_folds(&mut self) {
        assert_eq!(self.folded(0).dump(self.now_ms), self.state.dump(self.now_ms));
        let first = self.position;
        // The highest first: those that wait come before those that they wait for.
        let ids: Vec<JobId> = self.state.jobs_from(JobId(0)).map(|job| job.id()).collect();
        for id in ids.into_iter().rev() {
            let item = match self.state.image(id) {
                Some(image) => {
                    let payload = image.payload;
                    Compact::Job { id, revision: image.revision, payload, result: None }
                }
                None => Compact::Finished(Box::new(self.finished(id.0))),
            };
            self.given(Command::Compact(item));
        }
        for item in self.state.items_needing(first) {
            self.given(Command::Compact(item));
        }
        assert_eq!(self.folded(first).dump(self.now_ms), self.state.dump(self.now_ms));
        self.state = self.folded(first);
        assert_eq!(self.tick(), [], "nobody is told of an end that was none");
    }

    /// The server goes and the next one starts on its log.
    pub fn restart(&mut self) {
        self.state = self.folded(0);
        let epoch = self.state.server().epoch + 1;
        self.run(&Command::Start { epoch, seat: Seat::default() }).expect("the epoch is newer");
        let mut from = JobId(0);
        loop {
            let next = self.state.jobs_from(from).nth(EVENTS_MAX).map(|job| job.id());
            self.run(&Command::Recover { from, grace_ms: 30_000 }).expect("never refused");
            let Some(next) = next else { return };
            from = next;
        }
    }

    /// Leases from a queue by priority; the job and its token.
    pub fn lease(&mut self, queue: &str) -> Option<(u64, Claim)> {
        let events = self.when(lease_of(&[queue])).ok()?;
        events.iter().find_map(|event| match event {
            Event::Leased(leased) => {
                let (id, epoch) = (JobId(leased.id), leased.lease.epoch);
                Some((leased.id, Claim::Token { id, epoch, attempt: leased.attempts }))
            }
            _ => None,
        })
    }
}

/// A submit by the API with an empty payload.
pub fn submit(id: u64, queue: &str, change: impl FnOnce(&mut Submit)) -> Command {
    submit_by(Origin::Api, id, queue, change)
}

pub fn submit_by(
    origin: Origin,
    id: u64,
    queue: &str,
    change: impl FnOnce(&mut Submit),
) -> Command {
    let queue = Bytes::copy_from_slice(queue.as_bytes());
    let mut submit = Submit::new(JobId(id), queue, origin, BytesRef::empty(Type::Bytes));
    submit.constraints_revision = 0;
    change(&mut submit);
    Command::Submit(Box::new(submit))
}

/// A lease by priority, unbound, for a worker of the API.
pub fn lease_of(queues: &[&str]) -> Command {
    lease_with(queues, |_| {})
}

pub fn lease_with(queues: &[&str], change: impl FnOnce(&mut Lease)) -> Command {
    let mut lease = Lease {
        queues: queues.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect(),
        select: Select::ByPriority,
        holder: 1,
        bound: false,
        timeout_ms: None,
        door: Origin::Api,
        worker: Bytes::from_static(b"w"),
        payload_bytes_max: u32::MAX,
    };
    change(&mut lease);
    Command::Lease(lease)
}

pub fn complete(claim: Claim) -> Command {
    finish(claim, |_| {})
}

/// A failure that may be tried again.
pub fn fail(claim: Claim) -> Command {
    finish(claim, |finish| finish.success = false)
}

pub fn finish(claim: Claim, change: impl FnOnce(&mut Finish)) -> Command {
    let mut finish = Finish {
        claim,
        success: true,
        retry: true,
        result: None,
        message: Bytes::new(),
        error: Bytes::new(),
        code: Bytes::new(),
        worker_finished_at: Bytes::new(),
    };
    change(&mut finish);
    Command::Finish(Box::new(finish))
}

pub fn key(namespace: Origin, name: &[u8], scope: Scope) -> Key {
    Key { namespace: namespace as i32, name: Bytes::copy_from_slice(name), scope: scope as i32 }
}

/// A job is done, whoever has it.
pub fn done(id: u64) -> Command {
    complete(Claim::Unfinished { id: JobId(id) })
}

/// A job is dead, whatever tries it has left.
pub fn dead(id: u64) -> Command {
    finish(Claim::Unfinished { id: JobId(id) }, |finish| {
        finish.success = false;
        finish.retry = false;
    })
}

pub fn delete(id: u64) -> Command {
    Command::Delete { id: JobId(id), cause: Cause::Deleted }
}

pub fn retry(server: &Server, id: u64) -> Command {
    let payload = Some(BytesRef::empty(Type::Bytes));
    Command::Retry { image: Box::new(server.finished(id)), payload }
}

/// A job waits for these.
pub fn after(ids: &[u64], on_dead: OnDead) -> impl FnOnce(&mut Submit) {
    move |submit| {
        submit.after = ids.iter().copied().map(JobId).collect();
        submit.on_dead = on_dead;
    }
}
