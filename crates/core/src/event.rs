//! What happened. Events name ids and outcomes: folding them never searches and never decides.

use bytes::Bytes;
use prost::{DecodeError, Message};

use crate::audit::AuditEntry;
use crate::batch::{Batch, BatchCounts};
use crate::consumer::{Consumer, Consumers};
use crate::fast_encode::{FIXED_BYTES_MAX, Put, message, uint};
use crate::job::{Deletion, HeldLease, JobImage, Label, Outcome};
use crate::payload::BytesRef;
use crate::places::{Known, Placed, Places};
use crate::queue::{BucketImage, Constraint, QueueSettings};
use crate::schedule::{Progress, Schedule};
use crate::seat::Seat;

/// Makes the events of a table: what each is, the byte that says which it is, its message.
macro_rules! events {
    ($($(#[$doc:meta])* $number:literal $name:ident($message:ident),)*) => {
        /// One event. In the log it is one byte that says which, then a protobuf message.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Event {
            $($(#[$doc])* $name($message),)*
        }

        impl Event {
            /// How many kinds there are, or were: the number of the newest.
            pub const KINDS: u8 = [$($number),*][[$($number),*].len() - 1];

            /// The byte that says which kind it is.
            pub(crate) fn kind(&self) -> u8 {
                match self {
                    $(Event::$name(_) => $number,)*
                }
            }

            /// Appends the message that follows that byte, as prost writes it.
            pub(crate) fn encode_plainly(&self, out: &mut Vec<u8>) {
                match self {
                    $(Event::$name(message) => message.encode_raw(out),)*
                }
            }

            /// Reads an event back, by prost alone. None for a kind this version does not know.
            pub fn decode(mut bytes: Bytes) -> Result<Option<Event>, DecodeError> {
                let Some(kind) = bytes.first().copied() else { return Ok(None) };
                bytes::Buf::advance(&mut bytes, 1);
                Ok(Some(match kind {
                    $($number => Event::$name($message::decode(bytes)?),)*
                    _ => return Ok(None),
                }))
            }

            /// A variant's name, for tests that count them and for people.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Event::$name(_) => stringify!($name),)*
                }
            }
        }
    };
}

// Numbers are never used again.
events! {
    /// A job came in.
    1 Submitted(JobImage),
    /// A worker has it.
    2 Leased(Leased),
    /// A lease lasts longer.
    3 Extended(Extended),
    /// A lease ended, or a try failed, and the job goes on.
    4 Requeued(Requeued),
    /// A job is done or dead: its whole image, to which memory only refers from then on.
    5 Finished(JobImage),
    /// Jobs are gone.
    6 Gone(Gone),
    /// A finished job runs again.
    7 Retried(JobImage),
    /// A waiting job was changed.
    8 Edited(Edited),
    /// A finished job's result was read.
    9 ResultRead(ResultRead),
    /// A foreground job is logged from now on.
    10 Persisted(JobImage),
    /// A user set a job's state, or appended an event to the job.
    11 StateSet(StateSet),
    /// A queue was set.
    12 QueueSet(QueueSet),
    /// A constraint was set.
    13 ConstraintSet(ConstraintSet),
    /// A constraint was removed.
    14 ConstraintRemoved(ConstraintRemoved),
    /// A job falls under other constraints.
    15 Relabelled(Relabelled),
    /// A bucket's level by itself: compacted, or after the start of a foreground job.
    16 BucketSet(BucketImage),
    /// A server began.
    17 Started(Started),
    /// Ids below this may be in use.
    18 IdsReserved(IdsReserved),
    /// Newer kinds of events may follow.
    19 FormatRaised(FormatRaised),
    /// A live or finished job, appended again so that older records can be dropped.
    20 Compacted(JobImage),
    /// The server item, appended again.
    21 ServerCompacted(Server),
    /// A waiting job became ready by its time.
    22 Ready(Ready),
    /// A page of a job's events was copied, so that older records can be dropped.
    23 PageMoved(PageMoved),
    /// A person's request changed something: the entry in full, or its new count (`seq` and `count`
    /// only).
    24 Audited(AuditEntry),
    /// A job was deleted, and that can be undone until it goes.
    25 Deleted(Deleted),
    /// A job's deletion was undone.
    26 Undeleted(Undeleted),
    /// A schedule was set, or appended again.
    27 ScheduleSet(ScheduleSet),
    /// A schedule was removed.
    28 ScheduleRemoved(ScheduleRemoved),
    /// A schedule's time came. The job, if one came of it, is in the same record.
    29 ScheduleFired(ScheduleFired),
    /// Jobs that another one waits for have ended, and it goes on, waiting for fewer or none.
    30 BlockerEnded(BlockerEnded),
    /// A batch was opened, sealed or cancelled, or appended again.
    31 BatchSet(BatchSet),
    /// Batches have other counts, by the event before this one, which is in the same record.
    32 BatchesCounted(BatchesCounted),
    /// Batches are gone.
    33 BatchesGone(BatchesGone),
    /// The map has another place for a queue, or fewer shards that drain.
    34 QueuePlaced(Placed),
    /// This shard knows of another place of a queue, or has nothing of it any more.
    35 PlaceKnown(Known),
    /// A consumer of the feed has come so far.
    36 ConsumerMoved(Consumer),
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
    pub lease: HeldLease,
    /// Levels of the buckets it took from.
    #[prost(message, repeated, tag = "4")]
    pub buckets: Vec<BucketImage>,
}

impl Put for Leased {
    fn put(&self, out: &mut Vec<u8>) {
        out.reserve(FIXED_BYTES_MAX);
        uint(out, 1, self.id);
        uint(out, 2, self.attempts.into());
        message(out, 3, |out| self.lease.put(out));
        for bucket in &self.buckets {
            message(out, 4, |out| bucket.put(out));
        }
    }
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
    /// The epoch of its token.
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
    #[prost(message, optional, boxed, tag = "7")]
    pub outcome: Option<Box<Outcome>>,
    /// When.
    #[prost(uint64, tag = "8")]
    pub at_ms: u64,
    /// It was parked and stays so.
    #[prost(bool, tag = "9")]
    pub parked: bool,
    /// Its queue ages its jobs, and it went to the tail: it begins to wait now.
    #[prost(bool, tag = "40")]
    pub waits_anew: bool,
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

/// See [`Event::Deleted`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Deleted {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// When. A lease it had ended then.
    #[prost(fixed64, tag = "2")]
    pub at_ms: u64,
    /// Until when, by whom, and whether it was parked.
    #[prost(message, required, tag = "3")]
    pub deletion: Deletion,
}

/// See [`Event::Undeleted`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Undeleted {
    /// Which job. A finished job is done or dead as before, and the other fields say nothing.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Where it stands now.
    #[prost(enumeration = "crate::job::Status", tag = "2")]
    pub status: i32,
    /// When it may run.
    #[prost(uint64, optional, tag = "3")]
    pub run_at_ms: Option<u64>,
    /// Its age.
    #[prost(uint64, tag = "4")]
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

/// See [`Event::BlockerEnded`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockerEnded {
    /// The job that waited.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Those that it no longer waits for, ascending.
    #[prost(uint64, repeated, tag = "2")]
    pub ended: Vec<u64>,
    /// Where it stands now.
    #[prost(enumeration = "crate::job::Status", tag = "3")]
    pub status: i32,
    /// When it may run.
    #[prost(uint64, optional, tag = "4")]
    pub run_at_ms: Option<u64>,
    /// Its age.
    #[prost(uint64, tag = "5")]
    pub order: u64,
    /// The job is deleted, and if that is undone it is cancelled because of this one; 0 otherwise.
    #[prost(uint64, tag = "6")]
    pub cancelled_by: u64,
}

/// See [`Event::ResultRead`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResultRead {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// When it goes now, or would go if its deletion were undone.
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
    /// What was appended to its events, as the door wrote it.
    #[prost(bytes = "bytes", tag = "3")]
    pub event: Bytes,
    /// When.
    #[prost(fixed64, tag = "4")]
    pub at_ms: u64,
    /// The number of this change among all of the server's; see `update` of
    /// [`JobOptions`](crate::job::JobOptions).
    #[prost(uint64, tag = "5")]
    pub update_seq: u64,
    /// All events before this one were moved here.
    #[prost(message, optional, tag = "6")]
    pub page: Option<BytesRef>,
}

/// See [`Event::PageMoved`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct PageMoved {
    /// Which job.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Where the page was.
    #[prost(message, required, tag = "2")]
    pub old: BytesRef,
    /// Where it is now.
    #[prost(message, required, tag = "3")]
    pub new: BytesRef,
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
    /// The revision of the rules that jobs are labelled by now. The type of the queue's `bytes`
    /// payloads is part of them.
    #[prost(uint64, tag = "3")]
    pub constraints_revision: u64,
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
    /// When. A bucket that was full then is full under the new rule.
    #[prost(uint64, tag = "3")]
    pub at_ms: u64,
    /// The revision it was set with, when it is compacted; 0 says that it is set now.
    #[prost(uint64, tag = "4")]
    pub put_revision: u64,
    /// It lets none of its jobs start (`running_max` 0), and jobs numbered below this are still to
    /// be matched against it; 0 says that there are none, or that the constraint lets jobs start.
    #[prost(uint64, tag = "5")]
    pub unmatched_below: u64,
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
    /// Which of several logs it is.
    #[prost(uint32, tag = "2")]
    pub shard: u32,
    /// Of how many; 0 of a log that is the only one.
    #[prost(uint32, tag = "3")]
    pub shards: u32,
}

impl Started {
    /// An epoch begins on this log.
    #[must_use]
    pub fn new(epoch: u64, seat: Seat) -> Started {
        let shards = if seat.shards == 1 { 0 } else { u32::from(seat.shards) };
        Started { epoch, shard: u32::from(seat.shard), shards }
    }

    /// Which log it says that it is.
    #[must_use]
    pub fn seat(&self) -> Seat {
        seat_from(self.shard, self.shards)
    }
}

/// A seat as it is written: without shards, it is the only one.
fn seat_from(shard: u32, shards: u32) -> Seat {
    let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    Seat { shard: byte(shard), shards: byte(shards).max(1) }
}

/// See [`Event::IdsReserved`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct IdsReserved {
    /// All ids below this may be in use.
    #[prost(uint64, tag = "1")]
    pub until: u64,
    /// The ids from `until` on were reserved before and never used: they are given back. A server
    /// that does not know this field skips them, as after a crash.
    #[prost(bool, tag = "2")]
    pub returned: bool,
}

/// See [`Event::FormatRaised`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct FormatRaised {
    /// The version.
    #[prost(uint32, tag = "1")]
    pub version: u32,
}

/// See [`Event::ScheduleSet`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScheduleSet {
    /// The schedule. Always there: a box can only be an optional field.
    #[prost(message, optional, boxed, tag = "1")]
    pub schedule: Option<Box<Schedule>>,
    /// How far it has come. Always there.
    #[prost(message, optional, boxed, tag = "2")]
    pub progress: Option<Box<Progress>>,
}

/// See [`Event::ScheduleRemoved`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScheduleRemoved {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// See [`Event::ScheduleFired`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScheduleFired {
    /// Which schedule.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How far it has come by this. Always there.
    #[prost(message, optional, boxed, tag = "2")]
    pub progress: Option<Box<Progress>>,
}

/// See [`Event::BatchSet`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchSet {
    /// The batch, whole. Always there: a box can only be an optional field.
    #[prost(message, optional, boxed, tag = "1")]
    pub batch: Option<Box<Batch>>,
}

/// See [`Event::BatchesCounted`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchesCounted {
    /// Each batch that changed.
    #[prost(message, repeated, tag = "1")]
    pub counts: Vec<BatchCount>,
}

/// The counts of a batch now.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BatchCount {
    /// Which batch.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its jobs.
    #[prost(message, required, tag = "2")]
    pub counts: BatchCounts,
    /// When it ended, if it has.
    #[prost(fixed64, optional, tag = "3")]
    pub ended_ms: Option<u64>,
}

/// See [`Event::BatchesGone`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchesGone {
    /// Which batches, ascending.
    #[prost(uint64, repeated, tag = "1")]
    pub ids: Vec<u64>,
}

/// The server item; see [`Event::ServerCompacted`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Server {
    /// All ids below this may be in use.
    #[prost(uint64, tag = "1")]
    pub ids_until: u64,
    /// The epoch of the server that wrote last.
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
    /// Counts changes of the rules that jobs are labelled by.
    #[prost(uint64, tag = "6")]
    pub constraints_revision: u64,
    /// Existing jobs were labelled for this revision ...
    #[prost(uint64, tag = "7")]
    pub relabelled_revision: u64,
    /// ... as far as their number is below this; the highest number means all.
    #[prost(uint64, tag = "8")]
    pub relabelled_below: u64,
    /// The number of the newest entry of the audit log.
    #[prost(uint64, tag = "9")]
    pub last_audit: u64,
    /// The revision of the schedule that was set last.
    #[prost(uint64, tag = "10")]
    pub schedules_revision: u64,
    /// Which of several logs it is.
    #[prost(uint32, tag = "11")]
    pub shard: u32,
    /// Of how many; 0 of a log that is the only one.
    #[prost(uint32, tag = "12")]
    pub shards: u32,
    /// Where the moved queues are.
    #[prost(message, required, tag = "13")]
    pub places: Places,
    /// The consumers of the feed, and how far each has come.
    #[prost(message, required, tag = "14")]
    pub consumers: Consumers,
}

impl Server {
    /// Which log it is; none as long as no server has begun on it.
    #[must_use]
    pub fn seat(&self) -> Option<Seat> {
        (self.epoch > 0).then(|| seat_from(self.shard, self.shards))
    }
}

/// An event without effect, as a placeholder.
impl Default for Event {
    fn default() -> Event {
        Event::Gone(Gone::default())
    }
}

impl Event {
    /// Appends the event.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind());
        match (self, self.image()) {
            (_, Some(image)) => image.put(out),
            (Event::Leased(leased), _) => leased.put(out),
            _ => self.encode_plainly(out),
        }
    }

    /// The byte of [`Event::Leased`].
    pub(crate) const LEASED: u8 = 2;

    /// Makes an event that brings a job's whole image, if this byte says that it is one.
    pub(crate) fn of_image(kind: u8) -> Option<fn(JobImage) -> Event> {
        Some(match kind {
            1 => Event::Submitted,
            5 => Event::Finished,
            7 => Event::Retried,
            10 => Event::Persisted,
            20 => Event::Compacted,
            _ => return None,
        })
    }

    /// The whole image of a job, if the event brings one.
    pub fn image(&self) -> Option<&JobImage> {
        match self {
            Event::Submitted(image)
            | Event::Finished(image)
            | Event::Retried(image)
            | Event::Persisted(image)
            | Event::Compacted(image) => Some(image),
            _ => None,
        }
    }

    pub(crate) fn image_mut(&mut self) -> Option<&mut JobImage> {
        match self {
            Event::Submitted(image)
            | Event::Finished(image)
            | Event::Retried(image)
            | Event::Persisted(image)
            | Event::Compacted(image) => Some(image),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_images_stay_small_enough_to_be_moved_about() {
        let sizes = (size_of::<JobImage>(), size_of::<Event>());
        assert!(sizes.0 <= 304 && sizes.1 <= 312, "{sizes:?}");
    }
}
