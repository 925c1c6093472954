//! The additional contract of a log that several nodes share.
//!
//! One node leads: it has won the append of a record of its epoch, and appends. The others follow:
//! they read what is committed, in order. Only the log decides who leads. What nodes announce to
//! each other outside the log is a hint, which may come late, twice or not at all.

use std::time::Duration;

use crate::contract::{Log, LogError, Position, ReadError};
use crate::health::LogHealth;

/// What a shared log is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Opening {
    /// To follow it and to lead. It is made when there is none.
    #[default]
    Node,
    /// To read what is committed now. Nothing is made or written, and a log that is not there is an error. What is
    /// appended later is not seen: open it again.
    Reader,
    /// To fill it with the records of a backup, of which the oldest has this position. It is made when there is none,
    /// and nodes refuse it until [`SharedLog::end_restore`]. A log that nodes have made is refused.
    Restore(Position),
}

/// Takes what other nodes announce. Called from a thread of the log: it must return at once.
pub type OnAnnouncement = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A log that several processes have open at the same time, see [`Log::is_exclusive`].
///
/// [`Log::next`] of a process that only reads is the end of what it knows to be committed:
/// [`refresh`](Self::refresh) and [`wait_beyond`](Self::wait_beyond) move it on. A process that
/// appends learns of others by [`Ack::Conflict`](crate::Ack::Conflict); after that, or an error of
/// [`Log::next_ack`], it MUST open the log anew.
pub trait SharedLog: Log {
    /// Asks the log itself where it ends, which is then [`Log::next`]. All records committed before
    /// the call, by any process, MUST be below that: this is how a node finds out that it has read
    /// everything. Not to be called by a process that has records on their way.
    fn refresh(&self) -> Result<Position, ReadError>;

    /// Waits until a record is known to be committed at `position` or behind it, at most `timeout`,
    /// and returns the end of what is known to be committed. May return early. What others append
    /// is noticed within about as long as an append takes, without asking the log all the time.
    fn wait_beyond(&self, position: Position, timeout: Duration) -> Result<Position, ReadError>;

    /// Tells all other processes that have this log open a few bytes, at most
    /// [`ANNOUNCEMENT_BYTES_MAX`]. Returns at once; what cannot be sent now is dropped.
    fn announce(&self, bytes: &[u8]);

    /// Sets the listener that is called with the announcements of others. There is only one, the
    /// newest; it may hear announcements of its own process, too.
    fn on_announcement(&self, listener: OnAnnouncement);

    /// Which log this is: a text that it got when it was made, and no other log has.
    fn log_id(&self) -> String;

    /// The health of the servers that keep it. Returns at once: a log that was opened for a node asks them every few
    /// seconds. For people; nothing is decided by it.
    fn health(&self) -> LogHealth;

    /// All records of a backup are in a log that was opened with [`Opening::Restore`]: nodes may open it from here on,
    /// durably. Nothing else is to be done with it here.
    fn end_restore(&self) -> Result<(), LogError>;
}

/// The longest announcement, in bytes.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 4096;
