//! The access rules of `docs/security.md`, written once more and as plainly as possible.

use std::slice::from_ref;

use bytes::Bytes;
use spindle_access::{Denied, Role};
use spindle_core::JobId;

use super::Model;

/// An entry of the tokens file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    /// The name of the entry, which is also its token.
    pub name: &'static str,
    /// As the entry has them.
    pub roles: Vec<Role>,
    /// Of queues; `*` alone is all of them.
    pub patterns: Vec<&'static str>,
    /// When it expires.
    pub expires_ms: Option<u64>,
}

/// The token that a caller presents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presented<'a> {
    /// No token.
    Nothing,
    /// A token that no entry has.
    Unknown,
    /// That of an entry.
    Token(&'a Person),
}

/// What a command is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum About {
    /// A queue, or several.
    Queues(Vec<Bytes>),
    /// A job, in the queue that it is in.
    Job(JobId),
    /// A job that goes to another queue.
    Move(JobId, Bytes),
    /// All queues.
    AllQueues,
    /// The server itself.
    Server,
}

/// Which other roles a role includes.
fn included(role: Role) -> &'static [Role] {
    match role {
        Role::Admin => Role::ALL,
        Role::Manage => &[Role::Inspect, Role::Read],
        Role::Inspect => &[Role::Read],
        Role::Read | Role::Submit | Role::Work => &[],
    }
}

/// Whether a name fits a pattern of letters and stars.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|from| fits(rest, &name[from..])),
        Some((letter, rest)) => name.first() == Some(letter) && fits(rest, &name[1..]),
    }
}

impl Model {
    /// Whether a caller may do something that needs this role.
    pub fn allows(
        &self,
        who: Presented<'_>,
        role: Role,
        about: &About,
        now_ms: u64,
    ) -> Result<(), Denied> {
        let person = match who {
            Presented::Nothing => return Err(Denied::NoToken),
            Presented::Unknown => return Err(Denied::UnknownToken),
            Presented::Token(person) => person,
        };
        if person.expires_ms.is_some_and(|end| end <= now_ms) {
            return Err(Denied::Expired);
        }
        let has = |given: &Role| *given == role || included(*given).contains(&role);
        if !person.roles.iter().any(has) {
            return Err(Denied::Role(role));
        }
        if person.patterns.contains(&"*") {
            return Ok(());
        }
        let all_fit = |queues: &[Bytes]| {
            let fit = |queue: &Bytes| person.patterns.iter().any(|p| fits(p.as_bytes(), queue));
            queues.iter().all(fit)
        };
        let own = |id: JobId| self.job(id).is_some_and(|job| all_fit(from_ref(&job.queue)));
        match about {
            About::Server => Ok(()),
            About::AllQueues => Err(Denied::AllQueues),
            About::Queues(queues) if all_fit(queues) => Ok(()),
            About::Job(id) if own(*id) => Ok(()),
            About::Move(id, to) if own(*id) && all_fit(from_ref(to)) => Ok(()),
            About::Move(id, _) if own(*id) => Err(Denied::Queue),
            About::Queues(_) => Err(Denied::Queue),
            About::Job(_) | About::Move(..) => Err(Denied::Job),
        }
    }
}
