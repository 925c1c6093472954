//! The callers: connections with tokens of several roles and queues, one with an unknown token, one
//! without a token. As in the doors, access is checked before each command.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_access::{Access, Denied, Digest, Faults, Login, Role, Target, Tokens};
use spindle_core::command::Claim;
use spindle_core::job::Cause;
use spindle_core::{Command, JobId};
use spindle_engine::{Clock, Engine, JobRef};
use spindle_testkit::ManualClock;

use super::people::unaudited;
use super::{Judged, Run, seen};
use crate::faults::Planted;
use crate::model::{About, Person, Presented};

/// The callers with a token. The first one may do everything; otherwise little would be done.
const NAMES: [&str; 6] = ["root", "ops", "mailer", "watcher", "pusher", "worker"];
/// After them: the connection with an unknown token, and the one without a token.
const NOBODY: usize = NAMES.len() + 1;

/// One of this many commands comes from a caller that may not be allowed to give it.
const OTHERS_EVERY: u32 = 4;
/// The tokens file changes after about this many of those.
const CHANGES_EVERY: u32 = 40;

/// The callers, and the tokens file.
pub(super) struct Callers {
    /// Separate from the run's generator, so that the choice of callers changes as little else as
    /// possible.
    rng: ChaCha8Rng,
    /// What the tokens file has.
    people: Vec<Person>,
    access: Access,
    connections: Vec<Login>,
    /// The caller of the current request.
    asking: usize,
    faults: Faults,
}

impl Callers {
    pub fn new(seed: u64, planted: Planted, now_ms: u64) -> Callers {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x00ac_ce55);
        let mut people: Vec<Person> =
            NAMES.iter().map(|name| person(&mut rng, name, now_ms)).collect();
        people[0] = Person {
            roles: vec![Role::Admin],
            patterns: vec!["*"],
            expires_ms: None,
            ..people[0].clone()
        };
        let (access, connections, asking) = (Access::open(), Vec::new(), 0);
        let faults = planted.access;
        Callers { rng, people, access, connections, asking, faults }
    }

    /// A server has started: all callers connect again and present their tokens.
    fn connect(&mut self, clock: Arc<ManualClock>) -> Judged {
        let now = move || UNIX_EPOCH + Duration::from_millis(clock.now_ms());
        let access = Access::of_tokens(tokens(&self.people)?).required(true);
        self.access = access.with_clock(now).planted(self.faults);
        let all = NAMES.iter().copied().map(Some).chain([Some("forged"), None]);
        self.connections = all
            .map(|token| {
                let mut login = self.access.login(None);
                // Whether that succeeded shows in the check before each command.
                token.map(|token| login.present(token.as_bytes()));
                login
            })
            .collect();
        Ok(())
    }

    fn presented(&self, who: usize) -> Presented<'_> {
        let entry =
            NAMES.get(who).and_then(|name| self.people.iter().find(|one| one.name == *name));
        match (entry, who) {
            (Some(person), _) => Presented::Token(person),
            (None, NOBODY) => Presented::Nothing,
            (None, _) => Presented::Unknown,
        }
    }

    /// An entry changes, goes or comes.
    fn change(&mut self, name: &'static str, now_ms: u64) -> Judged {
        self.people.retain(|person| person.name != name);
        if !self.rng.random_ratio(1, 4) {
            self.people.push(person(&mut self.rng, name, now_ms));
        }
        self.access.replace(tokens(&self.people)?);
        Ok(())
    }

    /// The check that a door makes before it does anything.
    fn authorize(
        &mut self,
        who: usize,
        role: Role,
        about: &About,
        engine: &Engine,
    ) -> (Result<(), Denied>, u64) {
        let login = &mut self.connections[who];
        let mut gate = 0;
        let mut queue_of = |id: JobId| {
            let (queue, of_queue) = seen(engine.jobs().queue_of(JobRef::Id(id)));
            gate = of_queue.0;
            queue
        };
        let answer = match about {
            About::Queues(queues) => {
                login.authorize(role, Target::Queues(&mut queues.iter().map(AsRef::as_ref)))
            }
            About::Job(id) => login.authorize(role, Target::Job(&mut || queue_of(*id))),
            About::Move(id, to) => login
                .authorize(role, Target::Job(&mut || queue_of(*id)))
                .and_then(|()| login.authorize(role, Target::Queue(to))),
            About::AllQueues => login.authorize(role, Target::AllQueues),
            About::Server => login.authorize(role, Target::Server),
        };
        (answer, gate)
    }
}

/// The entry that a caller has from now on.
fn person(rng: &mut impl Rng, name: &'static str, now_ms: u64) -> Person {
    const PATTERNS: [&str; 6] = ["*", "mail", "re*", "*il*", "*", "jobq"];
    let roles =
        Role::ALL.choose_multiple(rng, 2).copied().take(1 + usize::from(rng.random_ratio(1, 2)));
    let roles: Vec<Role> = roles.collect();
    let patterns = PATTERNS.choose_multiple(rng, 2).copied().collect();
    let expires_ms = rng.random_ratio(1, 3).then(|| now_ms + rng.random_range(0..300) * 1000);
    Person { name, roles, patterns, expires_ms }
}

/// The tokens file.
fn tokens(people: &[Person]) -> Judged<Tokens> {
    let mut text = String::new();
    for Person { name, roles, patterns, expires_ms } in people {
        let digest = Digest::of(name.as_bytes()).ok_or("too long for a token")?;
        let roles: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        text += &format!(
            "[[token]]\nname = '{name}'\nsha256 = '{digest}'\nroles = {roles:?}\nqueues = {patterns:?}\n"
        );
        if let Some(end) = expires_ms {
            let end =
                i64::try_from(*end).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
            text += &format!("expires = '{}'\n", end.ok_or("an end beyond all times")?);
        }
    }
    Tokens::of_text(&text)
}

/// The role that a command needs, and what it is about; `None` if no caller gives it.
fn needs(command: &Command) -> Option<(Role, About)> {
    let of_queue = |queue: &Bytes| About::Queues(vec![queue.clone()]);
    let by_claim = |claim: &Claim| match claim {
        Claim::Unfinished { id } => (Role::Manage, About::Job(*id)),
        claim => (Role::Work, About::Job(claim.id())),
    };
    Some(match unaudited(command) {
        Command::Submit(submit) => (Role::Submit, of_queue(&submit.queue)),
        Command::Lease(lease) => (Role::Work, About::Queues(lease.queues.clone())),
        Command::Finish(finish) => by_claim(&finish.claim),
        Command::Extend(extend) => by_claim(&extend.claim),
        Command::DropTimeout { claim } | Command::Release { claim, cause: Cause::Released } => {
            by_claim(claim)
        }
        Command::ResultRead { id, .. } => (Role::Inspect, About::Job(*id)),
        Command::Delete { id, cause: Cause::Deleted }
        | Command::DeleteLater { id, .. }
        | Command::Undelete { id }
        | Command::Cancel { id } => (Role::Manage, About::Job(*id)),
        Command::Retry { image, .. } => (Role::Manage, About::Job(JobId(image.id))),
        Command::Edit(edit) => match &edit.queue {
            Some(to) => (Role::Manage, About::Move(edit.id, to.clone())),
            None => (Role::Manage, About::Job(edit.id)),
        },
        Command::SetQueue { name, .. } => (Role::Manage, of_queue(name)),
        Command::SetSchedule(set) => {
            (Role::Manage, About::Queues(vec![set.schedule.job.queue.clone().into()]))
        }
        Command::SetConstraint(..) | Command::RemoveConstraint { .. } => {
            (Role::Manage, About::AllQueues)
        }
        Command::PlaceQueue { .. } => (Role::Admin, About::Server),
        _ => return None,
    })
}

impl Run {
    /// All connect to the server that has just started.
    pub(super) fn connect(&mut self) -> Judged {
        self.callers.connect(self.server.clock.clone())
    }

    /// A caller gives a command. Returns whether it may be done.
    pub(super) fn is_allowed(&mut self, command: &Command) -> Judged<bool> {
        needs(command).map_or(Ok(true), |(role, about)| self.may(role, &about))
    }

    /// A caller asks for something that needs this role. Returns whether it may be done.
    pub(super) fn may(&mut self, role: Role, about: &About) -> Judged<bool> {
        let callers = &mut self.callers;
        callers.asking = 0;
        if callers.rng.random_ratio(1, OTHERS_EVERY) {
            callers.asking = callers.rng.random_range(1..=NOBODY);
            if callers.rng.random_ratio(1, CHANGES_EVERY) {
                let name = NAMES[callers.rng.random_range(1..NAMES.len())];
                callers.change(name, self.server.clock.now_ms())?;
            }
        }
        self.judge_allowed(self.callers.asking, role, about)
    }

    fn judge_allowed(&mut self, who: usize, role: Role, about: &About) -> Judged<bool> {
        let (answer, gate) = self.callers.authorize(who, role, about, self.server.engine());
        let presented = self.callers.presented(who);
        let right = self.model.allows(presented, role, about, self.server.now_ms());
        if answer != right {
            return Err(format!(
                "{presented:?} asks for {role} of {about:?}: {answer:?}, and should be {right:?}"
            ));
        }
        if let (Err(Denied::Job | Denied::Queue), About::Job(id) | About::Move(id, _)) =
            (&answer, about)
        {
            let needs = self.history.last_change(id.0);
            self.history.answered(gate, needs, || format!("that nobody may touch job {id}"));
        }
        let count = match answer {
            Ok(()) if who == 0 => return Ok(true),
            Ok(()) => &mut self.counts.allowed,
            Err(denied) if denied.is_unauthenticated() => &mut self.counts.unauthenticated,
            Err(Denied::Role(_)) => &mut self.counts.without_role,
            Err(_) => &mut self.counts.without_queue,
        };
        *count += 1;
        Ok(answer.is_ok())
    }
}
