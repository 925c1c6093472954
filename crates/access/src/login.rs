//! One connection's right to do something, asked at each request.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use spindle_core::audit::{Actor, ActorKind};
use spindle_core::job::Origin;

use crate::access::Access;
use crate::denied::Denied;
use crate::identity::Identity;
use crate::role::Role;
use crate::token::Digest;

/// What a request is about.
pub enum Target<'a, 'q> {
    /// No queue: the server itself, or what the connection has already.
    Server,
    /// A queue.
    Queue(&'a [u8]),
    /// All of these queues.
    Queues(&'a mut dyn Iterator<Item = &'q [u8]>),
    /// A job, by the queue it is in. It is only looked up for identities that are limited to some
    /// queues; none: there is no such job.
    Job(&'a mut dyn FnMut() -> Option<Bytes>),
    /// What there is, whatever its queue.
    AllQueues,
}

/// What a connection has presented, and who that is.
///
/// The identity is kept. It is looked up again when the tokens file has been read anew, which one
/// load of a counter tells.
#[derive(Clone)]
pub struct Login {
    access: Access,
    presented: Presented,
    standing: Standing,
    generation: u64,
    /// Where the client is; none: on this machine, as far as is known.
    address: Option<IpAddr>,
    /// The queue that fitted a pattern of the identity last: most connections are about one queue.
    fitted: Vec<u8>,
}

/// What proves who somebody is.
#[derive(Clone)]
enum Presented {
    Nothing,
    /// None: too long for a token, so that it is none.
    Token(Option<Digest>),
    /// The common name of a certificate that was verified.
    Certificate(Arc<str>),
}

/// What the presented amounts to.
#[derive(Clone)]
enum Standing {
    /// Everything is allowed: the door asks nobody, and nothing was presented.
    Open,
    Denied(Denied),
    Known(Arc<Identity>),
}

impl Login {
    pub(crate) fn new(access: Access, certificate: Option<&Arc<str>>) -> Login {
        let presented =
            certificate.map_or(Presented::Nothing, |name| Presented::Certificate(Arc::clone(name)));
        let standing = Standing::Denied(Denied::NoToken);
        let mut login =
            Login { access, presented, standing, generation: 0, address: None, fitted: Vec::new() };
        login.look_up();
        login
    }

    /// The same for a client at this address: its requests are counted there, and the audit log has it.
    #[must_use]
    pub fn at(self, address: IpAddr) -> Login {
        Login { address: Some(address), ..self }
    }

    /// Counts a request. To be asked once for each, before anything else, by doors whose clients
    /// understand a refusal.
    ///
    /// # Errors
    ///
    /// [`Denied::TooFast`].
    pub fn count(&self) -> Result<(), Denied> {
        let Some(rates) = self.access.rates() else { return Ok(()) };
        rates.count(self.identity(), self.counted_address()).map_err(Denied::TooFast)
    }

    /// Counts a request, as [`Login::count`] does, for doors whose clients understand waiting better:
    /// how long it is to be held, if it is.
    pub fn delay(&self) -> Option<Duration> {
        let delay = self.access.rates()?.delay(self.identity(), self.counted_address());
        (!delay.is_zero()).then_some(delay)
    }

    fn counted_address(&self) -> IpAddr {
        self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn identity(&self) -> Option<&Arc<str>> {
        match &self.standing {
            Standing::Known(identity) => Some(identity.shared_name()),
            Standing::Open | Standing::Denied(_) => None,
        }
    }

    /// A token is presented, in place of what was before. One that is not known binds the
    /// connection all the same: to nothing.
    ///
    /// # Errors
    ///
    /// It is not known, or has expired.
    pub fn present(&mut self, token: &[u8]) -> Result<(), Denied> {
        self.presented = Presented::Token(Digest::of(token));
        self.look_up();
        match &self.standing {
            Standing::Known(identity) if identity.has_expired(self.access.now()) => {
                Err(Denied::Expired)
            }
            Standing::Known(_) | Standing::Open => Ok(()),
            Standing::Denied(denied) => Err(*denied),
        }
    }

    /// As [`Login::present`], with the digest of a token: for a node of the cluster that was shown the token. Text
    /// that is no digest is that of a token that nobody has.
    pub fn present_digest(&mut self, digest: &str) {
        self.presented = Presented::Token(Digest::parse(digest));
        self.look_up();
    }

    /// What another node of the cluster is to be told of who this is, beside its certificate: the digest of its
    /// token, or nothing.
    pub fn digest(&self) -> String {
        match &self.presented {
            // Of what is too long to be one, no digest was made.
            Presented::Token(digest) => digest.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            Presented::Nothing | Presented::Certificate(_) => String::new(),
        }
    }

    /// Whether a request may be done that needs this role, for what it is about.
    ///
    /// # Errors
    ///
    /// Why not: first who it is, then the role, then the queue.
    pub fn authorize(&mut self, role: Role, target: Target<'_, '_>) -> Result<(), Denied> {
        let faults = self.access.faults();
        if faults.unasked {
            return Ok(());
        }
        if self.generation != self.access.generation() && !faults.tokens_kept {
            self.look_up();
        }
        let identity = match &self.standing {
            Standing::Open => return Ok(()),
            Standing::Denied(denied) => return Err(*denied),
            Standing::Known(identity) => identity,
        };
        let now = || if faults.expiry_unseen { UNIX_EPOCH } else { self.access.now() };
        identity.has(role, now)?;
        if identity.is_unlimited() || faults.queue_unasked {
            return Ok(());
        }
        let fitted = &mut self.fitted;
        let mut check = |queue: &[u8], denied| {
            if queue == *fitted && !queue.is_empty() {
                return Ok(());
            }
            if !identity.may_touch(queue) {
                return Err(denied);
            }
            fitted.clear();
            fitted.extend_from_slice(queue);
            Ok(())
        };
        match target {
            Target::Server => Ok(()),
            Target::Queue(queue) => check(queue, Denied::Queue),
            Target::Queues(queues) => {
                for queue in queues {
                    check(queue, Denied::Queue)?;
                }
                Ok(())
            }
            Target::Job(queue) => check(&queue().ok_or(Denied::Job)?, Denied::Job),
            Target::AllQueues => Err(Denied::AllQueues),
        }
    }

    /// Whether everything is allowed: nothing was presented, and the door does not ask.
    pub fn is_open(&self) -> bool {
        matches!(self.standing, Standing::Open)
    }

    /// Whether it may touch some queues only, so that a job's queue has to be known.
    pub fn is_limited(&self) -> bool {
        matches!(&self.standing, Standing::Known(identity) if !identity.is_unlimited())
    }

    /// Who it is, if that is known: for logs.
    pub fn name(&self) -> Option<&str> {
        match &self.standing {
            Standing::Known(identity) => Some(identity.name()),
            Standing::Open | Standing::Denied(_) => None,
        }
    }

    /// Who it is, for the audit log. To be asked when a request is authorized: it is for that one.
    pub fn actor(&self, door: Origin) -> Actor {
        let kind = match (&self.standing, &self.presented) {
            (Standing::Known(_), Presented::Token(_)) => ActorKind::Token,
            (Standing::Known(_), Presented::Certificate(_)) => ActorKind::Certificate,
            _ => ActorKind::Nobody,
        };
        let address = self.address.map(|address| address.to_canonical().to_string());
        let name = self.name().unwrap_or_default();
        Actor::new(kind, name, &address.unwrap_or_default(), door)
    }

    fn look_up(&mut self) {
        // First the generation: what is read after it is at least as new.
        self.generation = self.access.generation();
        self.fitted.clear();
        let nothing = || {
            if self.access.is_required() {
                Standing::Denied(Denied::NoToken)
            } else {
                Standing::Open
            }
        };
        self.standing = match &self.presented {
            Presented::Nothing => nothing(),
            Presented::Token(digest) => digest
                .and_then(|digest| self.access.by_digest(digest))
                .map_or(Standing::Denied(Denied::UnknownToken), Standing::Known),
            // A certificate that nobody gave roles is what the connection is made with, not a claim.
            Presented::Certificate(name) => {
                self.access.by_certificate(name).map_or_else(nothing, Standing::Known)
            }
        };
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
