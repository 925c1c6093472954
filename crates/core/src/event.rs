//! What happened. Events name ids and outcomes: folding them never searches and never decides.

use bytes::Bytes;

use crate::job::{JobImage, Label, Lease, Outcome};
use crate::payload::BytesRef;
use crate::queue::{BucketImage, Constraint, QueueSettings};

/// One event. In the log it is a protobuf message with exactly one of these fields set.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Event {
    /// A job came in.
    #[prost(message, tag = "1")]
    Submitted(JobImage),
    /// A worker has it.
    #[prost(message, tag = "2")]
    Leased(Leased),
    /// A lease lasts longer.
    #[prost(message, tag = "3")]
    Extended(Extended),
    /// A lease ended, or a try failed, and the job goes on.
    #[prost(message, tag = "4")]
    Requeued(Requeued),
    /// A job is done or dead: its whole image, so that a stub in memory can name it.
    #[prost(message, tag = "5")]
    Finished(JobImage),
    /// Jobs are gone.
    #[prost(message, tag = "6")]
    Gone(Gone),
    /// A finished job runs again.
    #[prost(message, tag = "7")]
    Retried(JobImage),
    /// A waiting job was changed.
    #[prost(message, tag = "8")]
    Edited(Edited),
    /// A finished job's result was read.
    #[prost(message, tag = "9")]
    ResultRead(ResultRead),
    /// A foreground job is logged from now on.
    #[prost(message, tag = "10")]
    Persisted(JobImage),
    /// Jobq's state or events grew.
    #[prost(message, tag = "11")]
    StateSet(StateSet),
    /// A queue was set.
    #[prost(message, tag = "12")]
    QueueSet(QueueSet),
    /// A constraint was put.
    #[prost(message, tag = "13")]
    ConstraintSet(ConstraintSet),
    /// A constraint was removed.
    #[prost(message, tag = "14")]
    ConstraintRemoved(ConstraintRemoved),
    /// A job falls under other constraints.
    #[prost(message, tag = "15")]
    Relabelled(Relabelled),
    /// A bucket's level, told by itself: carried, or taken from by a foreground job.
    #[prost(message, tag = "16")]
    BucketSet(BucketImage),
    /// A server began.
    #[prost(message, tag = "17")]
    Started(Started),
    /// Ids below this may be in use.
    #[prost(message, tag = "18")]
    IdsReserved(IdsReserved),
    /// Newer kinds of events may follow.
    #[prost(message, tag = "19")]
    FormatRaised(FormatRaised),
    /// A live or finished job, told again so that older records can go.
    #[prost(message, tag = "20")]
    Carried(JobImage),
    /// The server item, told again.
    #[prost(message, tag = "21")]
    ServerCarried(ServerCarried),
    /// A waiting job became ready by its time.
    #[prost(message, tag = "22")]
    Ready(Ready),
}

/// The message that holds one event in a record.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EventFrame {
    /// The event; absent only when a newer version wrote a kind this one does not know.
    #[prost(
        oneof = "Event",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22"
    )]
    pub event: Option<Event>,
}

/// See [`Event::Leased`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Leased {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its attempts now.
    #[prost(uint32, tag = "2")]
    pub attempts: u32,
    /// The lease.
    #[prost(message, required, tag = "3")]
    pub lease: Lease,
    /// Levels of the buckets it took from.
    #[prost(message, repeated, tag = "4")]
    pub buckets: Vec<BucketImage>,
}

/// See [`Event::Extended`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Extended {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// When it runs out now.
    #[prost(uint64, optional, tag = "2")]
    pub deadline_ms: Option<u64>,
    /// The epoch that vouches for it now.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}

/// See [`Event::Requeued`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Requeued {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Why its lease ended.
    #[prost(enumeration = "crate::job::Cause", tag = "2")]
    pub cause: i32,
    /// Its attempts now.
    #[prost(uint32, tag = "3")]
    pub attempts: u32,
    /// Its failures now.
    #[prost(uint32, tag = "4")]
    pub fails: u32,
    /// Its age now: as before, or a new one at the tail.
    #[prost(uint64, tag = "5")]
    pub order: u64,
    /// Ready only then.
    #[prost(uint64, optional, tag = "6")]
    pub run_at_ms: Option<u64>,
    /// The failure's result.
    #[prost(message, optional, tag = "7")]
    pub outcome: Option<Outcome>,
    /// When.
    #[prost(uint64, tag = "8")]
    pub at_ms: u64,
    /// It was parked and stays so.
    #[prost(bool, tag = "9")]
    pub parked: bool,
}

/// See [`Event::Gone`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Gone {
    /// Which jobs.
    #[prost(uint64, repeated, tag = "1")]
    pub ids: Vec<u64>,
    /// Why.
    #[prost(enumeration = "crate::job::Cause", tag = "2")]
    pub cause: i32,
}

/// See [`Event::Edited`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Edited {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its queue, if that changed.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub queue: Option<Bytes>,
    /// Its priority now.
    #[prost(sint64, tag = "3")]
    pub priority: i64,
    /// Where it stands now.
    #[prost(enumeration = "crate::job::Status", tag = "4")]
    pub status: i32,
    /// When it may run.
    #[prost(uint64, optional, tag = "5")]
    pub run_at_ms: Option<u64>,
    /// Its age.
    #[prost(uint64, tag = "6")]
    pub order: u64,
}

/// See [`Event::Ready`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ready {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its age.
    #[prost(uint64, tag = "2")]
    pub order: u64,
}

/// See [`Event::ResultRead`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResultRead {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// When it goes now.
    #[prost(uint64, tag = "2")]
    pub kept_until_ms: u64,
}

/// See [`Event::StateSet`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct StateSet {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its state now, if that changed, as JSON text.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub state: Option<Bytes>,
    /// What was appended to its events, as JSON text.
    #[prost(bytes = "bytes", tag = "3")]
    pub event: Bytes,
}

/// See [`Event::QueueSet`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct QueueSet {
    /// Which queue.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// All its settings.
    #[prost(message, required, tag = "2")]
    pub settings: QueueSettings,
}

/// See [`Event::ConstraintSet`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConstraintSet {
    /// The constraint.
    #[prost(message, required, tag = "1")]
    pub constraint: Constraint,
    /// The revision of the set of constraints now.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
}

/// See [`Event::ConstraintRemoved`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConstraintRemoved {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The revision of the set of constraints now.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
}

/// See [`Event::Relabelled`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Relabelled {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its labels now, sorted.
    #[prost(message, repeated, tag = "2")]
    pub labels: Vec<Label>,
}

/// See [`Event::Started`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Started {
    /// Leases of older epochs hold only as far as they were recovered.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
}

/// See [`Event::IdsReserved`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct IdsReserved {
    /// All ids below this may be in use.
    #[prost(uint64, tag = "1")]
    pub until: u64,
}

/// See [`Event::FormatRaised`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct FormatRaised {
    /// The version.
    #[prost(uint32, tag = "1")]
    pub version: u32,
}

/// See [`Event::ServerCarried`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerCarried {
    /// Ids below this may be in use.
    #[prost(uint64, tag = "1")]
    pub ids_until: u64,
    /// The epoch.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The format's version.
    #[prost(uint32, tag = "3")]
    pub format: u32,
    /// The next order number.
    #[prost(uint64, tag = "4")]
    pub next_order: u64,
    /// The next constraint's number.
    #[prost(uint32, tag = "5")]
    pub next_constraint: u32,
    /// The revision of the set of constraints.
    #[prost(uint64, tag = "6")]
    pub constraints_revision: u64,
}

impl Event {
    /// A variant's name, for tests that count them and for people.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Submitted(_) => "Submitted",
            Event::Leased(_) => "Leased",
            Event::Extended(_) => "Extended",
            Event::Requeued(_) => "Requeued",
            Event::Finished(_) => "Finished",
            Event::Gone(_) => "Gone",
            Event::Retried(_) => "Retried",
            Event::Edited(_) => "Edited",
            Event::ResultRead(_) => "ResultRead",
            Event::Persisted(_) => "Persisted",
            Event::StateSet(_) => "StateSet",
            Event::QueueSet(_) => "QueueSet",
            Event::ConstraintSet(_) => "ConstraintSet",
            Event::ConstraintRemoved(_) => "ConstraintRemoved",
            Event::Relabelled(_) => "Relabelled",
            Event::BucketSet(_) => "BucketSet",
            Event::Started(_) => "Started",
            Event::IdsReserved(_) => "IdsReserved",
            Event::FormatRaised(_) => "FormatRaised",
            Event::Carried(_) => "Carried",
            Event::ServerCarried(_) => "ServerCarried",
            Event::Ready(_) => "Ready",
        }
    }

    /// The bytes an event refers to move with it: where its payload is, if it names one.
    pub fn payload(&self) -> Option<&BytesRef> {
        match self {
            Event::Submitted(image)
            | Event::Finished(image)
            | Event::Retried(image)
            | Event::Persisted(image)
            | Event::Carried(image) => image.payload.as_ref(),
            _ => None,
        }
    }
}
