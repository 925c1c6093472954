//! The running queue: one core, one log, and everybody who waits.
//!
//! A call locks the core, decides, folds, appends the events to the open batch, and unlocks: a few
//! microseconds, no thread in between. The log thread takes the batch, writes and syncs it, and
//! publishes how far the log is durable; while it does, the next batch grows. Every answer carries
//! a [`Gate`], the position it must not leave before: nothing that leaves the process can be taken
//! back by a crash.
//!
//! Doors are written against [`door`]; [`Engine`] has the calls they make. Nothing here knows of
//! tokio, and every thread is a loop around a step that can be called by hand: so the simulator
//! runs the whole engine on one thread, with a clock it moves itself.

pub mod door;
pub mod record;

mod answer;
mod caps;
mod carry;
mod clock;
mod commit;
mod constraints;
mod damage;
mod engine;
mod feed;
mod gauges;
mod handoff;
mod held;
mod inner;
mod jobq;
mod join;
mod listing;
mod many;
mod matched;
mod matching;
mod meters;
mod options;
mod preview;
mod read;
mod recent;
mod relabel;
mod retry;
mod room;
mod seek;
mod sleep;
mod start;
mod survey;
mod threading;
mod threads;
mod traffic;
mod waits;
mod watch;
mod workers;

pub use answer::{Answer, LeasedJob, News};
pub use clock::{Clock, ManualClock, SystemClock};
pub use commit::Committed;
pub use constraints::{
    BucketLine, ConstraintView, Expected, Held, Opaque, PutConstraint, held_back,
};
pub use damage::{DamagedBytes, DamagedJob};
pub use door::{
    ConnectionId, Delivery, Door, Flow, Gate, LeaseRef, Mailbox, Outbox, Session, Ticket,
};
pub use engine::{Engine, Failure, LeaseReply, NewJob, Refused, RetryError, WorkResult};
pub use feed::{FeedError, FeedEvent, FeedId, FeedIdError, FeedPage};
pub use gauges::Gauges;
pub use inner::Stats;
pub use jobq::{Before, JobqChange, JobqChanges, Touch, Touched};
pub use join::Joined;
pub use listing::{JobLine, QueueLine};
pub use many::Taken;
#[doc(hidden)]
pub use matching::MatchPath;
pub use matching::{
    Condition, ConstraintSpec, Matcher, QueuePattern, Scalar, SpecError, Test, UnreadableMatcher,
    decode_matcher, encode_matcher,
};
pub use meters::{MeterReadings, Readings};
pub use options::{Faults, Options};
pub use read::{FetchError, Which};
pub use relabel::{Relabelling, Step as RelabelStep};
pub use seek::{Sighted, Sightings};
pub use sleep::Slept;
pub use start::{StartError, fold_state};
pub use survey::{Counts, Survey};
pub use threading::Threading;
pub use traffic::{QueueTraffic, Tally};
pub use waits::Caller;
pub use watch::Standing;
pub use workers::WorkerView;
