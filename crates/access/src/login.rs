//! One connection's permissions, checked at each request.

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
    /// No queue: the server itself, or something the connection has already.
    Server,
    /// A queue.
    Queue(&'a [u8]),
    /// All of these queues.
    Queues(&'a mut dyn Iterator<Item = &'q [u8]>),
    /// A job, by the queue it is in. The queue is only looked up for identities that are limited to
    /// some queues; none: there is no such job.
    Job(&'a mut dyn FnMut() -> Option<Bytes>),
    /// Everything, whatever its queue.
    AllQueues,
}

/// What a connection has presented, and the identity that belongs to it.
///
/// The identity is kept. It is looked up again when the tokens file has been read anew; one load of
/// a counter tells that.
#[derive(Clone)]
pub struct Login {
    access: Access,
    presented: Presented,
    standing: Standing,
    generation: u64,
    /// The client's address; none: on this machine, as far as is known.
    address: Option<IpAddr>,
    /// The queue that fitted a pattern of the identity last: most connections are about one queue.
    fitted: Vec<u8>,
    /// An identity that was in force has belonged to what was presented, now or before.
    has_been_known: bool,
}

/// What proves who somebody is.
#[derive(Clone)]
enum Presented {
    Nothing,
    /// None: the text is too long to be a token.
    Token(Option<Digest>),
    /// The common name of a certificate that was verified.
    Certificate(Arc<str>),
}

/// What the connection may do by what it has presented.
#[derive(Clone)]
enum Standing {
    /// Everything is allowed: the door does not require an identity, and nothing was presented.
    Open,
    Denied(Denied),
    Known(Arc<Identity>),
}

impl Login {
    pub(crate) fn new(access: Access, certificate: Option<&Arc<str>>) -> Login {
        let presented =
            certificate.map_or(Presented::Nothing, |name| Presented::Certificate(Arc::clone(name)));
        let standing = Standing::Denied(Denied::NoToken);
        let mut login = Login {
            access,
            presented,
            standing,
            generation: 0,
            address: None,
            fitted: Vec::new(),
            has_been_known: false,
        };
        login.look_up();
        login
    }

    /// The same for a client at this address: its requests are counted there, and the audit log has it.
    #[must_use]
    pub fn at(self, address: IpAddr) -> Login {
        Login { address: Some(address), ..self }
    }

    /// Counts a request. Doors whose clients understand a refusal call it once for each request,
    /// before anything else.
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

    /// A token is presented, in place of what was before. After a token that is not known, the
    /// connection may do nothing.
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

    /// As [`Login::present`], with the digest of a token: as passed on by the node of the cluster that was shown
    /// the token. Text that is not a digest stands for a token that nobody has.
    pub fn present_digest(&mut self, digest: &str) {
        self.presented = Presented::Token(Digest::parse(digest));
        self.look_up();
    }

    /// What another node of the cluster is told about this identity, besides its certificate: the digest of its
    /// token, or nothing.
    pub fn digest(&self) -> String {
        match &self.presented {
            // The text was too long to be a token, so it has no digest.
            Presented::Token(digest) => digest.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            Presented::Nothing | Presented::Certificate(_) => String::new(),
        }
    }

    /// Whether a request that needs this role may be done on this target.
    ///
    /// # Errors
    ///
    /// Why not. The identity is checked first, then the role, then the queue.
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

    /// Whether the door requires an identity, and this connection has never had one: then it is closed
    /// when its time to log in is over. One that was known once is not closed, whatever became of its
    /// entry: it may do what its entry says, or nothing.
    pub fn lacks_identity(&mut self) -> bool {
        if !self.access.is_required() || self.has_been_known {
            return false;
        }
        if self.generation != self.access.generation() {
            self.look_up();
        }
        !self.has_been_known
    }

    /// Whether everything is allowed: nothing was presented, and the door does not require an
    /// identity.
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

    /// Who it is, for the audit log. To be called when a request is authorized, for that request.
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
        // The generation first: anything read after it is at least as new.
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
            // A certificate without roles only secures the connection; it claims no identity.
            Presented::Certificate(name) => {
                self.access.by_certificate(name).map_or_else(nothing, Standing::Known)
            }
        };
        if let Standing::Known(identity) = &self.standing {
            self.has_been_known |= !identity.has_expired(self.access.now());
        }
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
