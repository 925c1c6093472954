//! What people did: one entry for each request that changed something other than the caller's own
//! work.
//!
//! An entry is decided together with the change it describes, by
//! [`Command::Audited`](crate::Command::Audited), and both are in one record of the log, so neither
//! exists without the other. A request that changes many jobs one after the other has one entry
//! too; each further change updates the entry's count, so the count is exact however the request
//! ended.

use bytes::Bytes;

use crate::failure_text::cut_text;
use crate::job::Origin;
use crate::schedule::SCHEDULE_NAME_BYTES_MAX;

/// Names of tokens have up to 128 letters.
const NAME_BYTES_MAX: usize = 512;
/// An address as text: IPv6, with a scope.
const ADDRESS_BYTES_MAX: usize = 64;
/// Names of constraints have up to 255 bytes.
const CONSTRAINT_BYTES_MAX: usize = 255;
/// What changed, for people.
const DETAIL_BYTES_MAX: usize = 512;
/// Roughly how many bytes an entry takes in the log besides its texts.
const ENTRY_BYTES: u64 = 64;

/// How somebody proved who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum ActorKind {
    /// Not at all: the door does not ask.
    Nobody = 0,
    /// By a token.
    Token = 1,
    /// By a client certificate.
    Certificate = 2,
}

impl ActorKind {
    /// All of them.
    pub const ALL: [ActorKind; 3] = [ActorKind::Nobody, ActorKind::Token, ActorKind::Certificate];
}

/// Who did something, as far as the door knows. The token itself is not part of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Actor {
    /// How they proved who they are.
    #[prost(enumeration = "ActorKind", tag = "1")]
    pub kind: i32,
    /// The name of their entry in the tokens file; empty for nobody.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The client's IP address, as text; empty if it is not known.
    #[prost(string, tag = "3")]
    pub address: String,
    /// The door they came through.
    #[prost(enumeration = "Origin", tag = "4")]
    pub door: i32,
    /// They used the web pages, which ask the door on their behalf.
    #[prost(bool, tag = "5")]
    pub by_page: bool,
}

impl Actor {
    /// An actor, with its texts cut to the lengths that an entry may have.
    pub fn new(kind: ActorKind, name: &str, address: &str, door: Origin) -> Actor {
        Actor {
            kind: kind as i32,
            name: cut(name, NAME_BYTES_MAX),
            address: cut(address, ADDRESS_BYTES_MAX),
            door: door as i32,
            by_page: false,
        }
    }
}

/// What was done. Numbers are never reused. An action that has no command of its own changes only the audit log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Action {
    /// Nothing new: the event brings a new count for an existing entry.
    Counted = 0,
    /// A job was deleted.
    Delete = 1,
    /// A job was ended as dead.
    Cancel = 2,
    /// A finished job runs again.
    Retry = 3,
    /// A job was given another priority or time.
    Edit = 4,
    /// A job was moved to another queue.
    Move = 5,
    /// A job was kept aside.
    Park = 6,
    /// A parked job may run.
    Release = 7,
    /// A job's lease was given more time, by somebody who does not hold it.
    Extend = 8,
    /// A queue was paused.
    Pause = 9,
    /// A queue was resumed.
    Resume = 10,
    /// A queue was paused to be drained.
    Drain = 11,
    /// A queue's waiting jobs were deleted.
    Purge = 12,
    /// A queue's settings were changed.
    SetQueue = 13,
    /// A constraint was created or changed.
    PutConstraint = 14,
    /// A constraint was removed.
    RemoveConstraint = 15,
    /// A person confirmed that the wall clock is right.
    AcceptClock = 16,
    /// Somebody began to take a backup of the log, payloads and results included.
    Backup = 17,
    /// Somebody began to export jobs, with all that is kept of them.
    Export = 18,
    /// Somebody imported jobs from another server.
    Import = 19,
    /// A job's deletion was undone.
    Undo = 20,
    /// Somebody told workers of the jobd master to pause targets.
    PauseTargets = 21,
    /// Somebody told workers of the jobd master to continue with targets.
    ContinueTargets = 22,
    /// A schedule was created or changed.
    PutSchedule = 23,
    /// A schedule was removed.
    RemoveSchedule = 24,
    /// A schedule was paused.
    PauseSchedule = 25,
    /// A schedule was resumed.
    ResumeSchedule = 26,
    /// A job of a schedule was asked for.
    RunSchedule = 27,
    /// A batch and its jobs were cancelled.
    CancelBatch = 28,
    /// The node that led the log was asked to let another one lead.
    StepDown = 29,
    /// A queue was moved to another shard.
    MoveQueue = 30,
}

impl Action {
    /// All that an entry may have.
    pub const ALL: [Action; 30] = [
        Action::Delete,
        Action::Cancel,
        Action::Retry,
        Action::Edit,
        Action::Move,
        Action::Park,
        Action::Release,
        Action::Extend,
        Action::Pause,
        Action::Resume,
        Action::Drain,
        Action::Purge,
        Action::SetQueue,
        Action::PutConstraint,
        Action::RemoveConstraint,
        Action::AcceptClock,
        Action::Backup,
        Action::Export,
        Action::Import,
        Action::Undo,
        Action::PauseTargets,
        Action::ContinueTargets,
        Action::PutSchedule,
        Action::RemoveSchedule,
        Action::PauseSchedule,
        Action::ResumeSchedule,
        Action::RunSchedule,
        Action::CancelBatch,
        Action::StepDown,
        Action::MoveQueue,
    ];
}

/// One request of a person; see [`Event::Audited`](crate::Event::Audited).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AuditEntry {
    /// Its number among all, from 1. In a command, 0 asks for a new one.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// When its first change was made.
    #[prost(uint64, tag = "2")]
    pub at_ms: u64,
    /// Who did it.
    #[prost(message, optional, tag = "3")]
    pub actor: Option<Actor>,
    /// What they did.
    #[prost(enumeration = "Action", tag = "4")]
    pub action: i32,
    /// To which job, if it is about one.
    #[prost(uint64, optional, tag = "5")]
    pub job: Option<u64>,
    /// The queue that it is about, or the job's before the change.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub queue: Option<Bytes>,
    /// The constraint that it is about.
    #[prost(string, optional, tag = "7")]
    pub constraint: Option<String>,
    /// What changed, briefly, for people; nothing from payloads.
    #[prost(string, tag = "8")]
    pub detail: String,
    /// How many jobs it changed, if it was about many.
    #[prost(uint64, optional, tag = "9")]
    pub count: Option<u64>,
    /// The schedule that it is about.
    #[prost(string, optional, tag = "10")]
    pub schedule: Option<String>,
}

impl AuditEntry {
    /// Sets what changed, cut to the length that an entry may have.
    pub fn set_detail(&mut self, detail: &str) {
        self.detail = cut(detail, DETAIL_BYTES_MAX);
    }

    /// Whether its texts keep to their bounds.
    pub(crate) fn fits(&self) -> bool {
        let actor = self.actor.as_ref();
        let fits = |text: Option<&str>, max| text.is_none_or(|text| text.len() <= max);
        fits(actor.map(|actor| &actor.name[..]), NAME_BYTES_MAX)
            && fits(actor.map(|actor| &actor.address[..]), ADDRESS_BYTES_MAX)
            && fits(self.constraint.as_deref(), CONSTRAINT_BYTES_MAX)
            && fits(self.schedule.as_deref(), SCHEDULE_NAME_BYTES_MAX)
            && fits(Some(&self.detail), DETAIL_BYTES_MAX)
            && self.queue.as_ref().is_none_or(|it| it.len() <= crate::queue::QUEUE_NAME_BYTES_MAX)
    }

    /// Roughly how many bytes it takes in the log.
    pub(crate) fn bytes(&self) -> u64 {
        let actor = self.actor.as_ref().map_or(0, |actor| actor.name.len() + actor.address.len());
        let names = self.queue.as_ref().map_or(0, Bytes::len)
            + self.constraint.as_ref().map_or(0, String::len)
            + self.schedule.as_ref().map_or(0, String::len);
        ENTRY_BYTES + (actor + names + self.detail.len()) as u64
    }
}

/// The beginning of a text, with no character cut in two.
fn cut(text: &str, bytes_max: usize) -> String {
    String::from_utf8_lossy(cut_text(text.as_bytes(), bytes_max)).into_owned()
}
