//! The running queue: one core, one log, and the clients that wait.
//!
//! A call locks the core, decides, appends the events to the open batch, folds them, unlocks: a few
//! microseconds, no thread in between. A reactor, or the log thread for callers without one, takes the batch, writes
//! and syncs it, and publishes how far the log is durable; meanwhile the next batch grows. Every answer that a crash
//! could take back is a [`Gated`] value, closed until the log is durable up to its [`Gate`]. Numbers for people, pages
//! of the feed and tickets are plain values.
//!
//! Doors are written against [`door`]; [`Engine`] has the calls they make, in groups: `jobs`,
//! `leases`, `waits`, `queues`, `constraints`, `schedules`, `feed`, `observe`, `replica`, `audit`, and `people` for
//! what people do. Start with `engine.rs` (the path of a call) and `inner.rs` (the state behind the lock). The modules:
//!
//! - `call`: calls that change jobs; `read`: queries; `wait`: clients that wait
//! - `commit`: from decision to disk; `compaction`: keeps the log small
//! - `schedules`: jobs submitted by the clock
//! - `audit`: who did what; `constraints`: limits and labels; `observe`: numbers; `replica`: changes of one door's jobs
//!
//! Nothing here knows of tokio, and every thread is a loop around a step that can be called by
//! hand. So the simulator can run the whole engine on one thread, with a clock that it moves
//! itself.

pub mod door;
pub mod gate;
pub mod spans;

mod admission;
mod answer;
mod audit;
mod batches;
mod call;
mod clock;
mod command_log;
mod commit;
mod compaction;
mod constraints;
mod consumers;
mod damage;
mod engine;
mod fence;
mod inner;
mod lead;
mod observe;
mod options;
mod places;
mod read;
mod replica;
mod schedules;
mod start;
mod threads;
mod views;
mod wait;

pub use admission::Room;
pub use answer::{Answer, Failure, LeaseReply, LeasedJob, News, Refused};
pub use audit::{Audit, AuditFilter, AuditPage, People};
pub use call::{Before, JobUpdate, Joined, NewJob, RetryError, Updated, WorkResult, WorkerRef};
pub use clock::{Clock, SystemClock};
pub use command_log::{COMMANDS, CommandLog, ShownName, logs_commands};
pub use commit::{Committed, Payload, Submitted, cohort, record};
pub use constraints::{
    BucketLine, ConstraintView, Expected, HeldBack, HeldQueues, JobNow, Opaque, PutConstraint,
    RelabelStep, Relabelling,
};
pub use damage::{DamagedBytes, DamagedJob};
pub use door::{
    Committer, ConnectionId, Delivery, Door, Flow, LeaseRef, Mailbox, Outbox, Peer, Session,
    TLS_REQUIRED, Ticket, Unread,
};
pub use engine::{Engine, Turn};
pub use fence::Fence;
pub use gate::{Gate, Gated};
pub use observe::{
    FINGERPRINT_CHARS_MAX, FailedAttempts, Gauges, MeterReadings, QueueTraffic, Readings, Stats,
    Tally, WorkerView, failure_words, fingerprint_of,
};
pub use options::{Faults, Options};
pub use places::PlacesBoard;
pub use read::{
    BlockerNow, Counts, EventSummary, Explanation, FeedError, FeedEvent, FeedId, FeedIdError,
    FeedPage, FetchError, FlowNode, JobFlow, JobLine, JobProgress, JobRef, QueueLine, QueueView,
    ScanPage, ScannedJob, Survey,
};
pub use replica::{Change, Changes};
pub use schedules::{PutSchedule, ScheduleNow, SchedulePage};
pub use spindle_log::Room as DiskRoom;
pub use spindle_log::copy::{FORMAT as LOG_FORMAT, SegmentReader};
pub use spindle_matching::{
    Condition, ConstraintSpec, Matcher, QueuePattern, Scalar, SpecError, Test, UnreadableMatcher,
};
pub use spindle_schedule::{Timing, TimingError};
pub use start::{Each, Fold, StartError, Takeover, fold_state};
pub use views::{
    AuditLog, Batches, Constraints, Feed, Jobs, Leases, Moves, Observe, Queues, Replica, Schedules,
    Waits,
};
pub use wait::{Activity, Caller, Progress, SleepReply};
pub use wait::{OUTPUT_BYTES_MAX, OUTPUT_PIECE_BYTES_MAX, OutputFrom, OutputPage, OutputPiece};
