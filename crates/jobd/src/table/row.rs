//! What travels between a worker and its job table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The `id` of a row. Databases with unsigned 64-bit ids are fine up to `i64::MAX`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct RowId(pub i64);

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The `status` of a row, by the words of the specification's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// A background job that no worker has taken.
    Waiting,
    /// A foreground job that no client has asked for yet.
    Manual,
    /// A worker has it in its queue.
    Accepted,
    /// Its process runs.
    Running,
    /// Its process has ended.
    Done,
    /// A worker refused it.
    Ignored,
    /// A word the specification does not know; the table's owner may have added one.
    Other(String),
}

impl Status {
    /// The word in the table's `status` column.
    pub fn word(&self) -> &str {
        match self {
            Self::Waiting => "waiting",
            Self::Manual => "manual",
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Done => "done",
            Self::Ignored => "ignored",
            Self::Other(word) => word,
        }
    }

    /// The status a word of the table's `status` column means.
    pub fn from_word(word: &str) -> Self {
        use Status::{Accepted, Done, Ignored, Manual, Running, Waiting};
        let mut known = [Waiting, Manual, Accepted, Running, Done, Ignored].into_iter();
        known.find(|known| known.word() == word).unwrap_or_else(|| Self::Other(word.to_owned()))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether a row was `waiting` or `manual` before it was accepted: what it becomes again when it
/// is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was `waiting`: any poll may take it again.
    Background,
    /// It was `manual`: only a client's `run-manual` may start it again.
    Manual,
}

/// The mark of one worker, ten ASCII characters: the first stands for the [`Origin`], nine
/// lower-case letters and digits for the worker.
///
/// A worker that was killed must find its own accepted rows and no other worker's. The row itself
/// is the only place that changes in the same transaction as its status, so the mark stands in the
/// `sig` column (which means nothing before a job has ended) from `accepted` until `done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    owner: String,
}

impl Mark {
    /// How many characters stand for the worker.
    pub const OWNER_CHARS: usize = 9;

    /// The mark of the owner with these nine lower-case letters and digits, or `None` when they
    /// are not that.
    pub fn new(owner: &str) -> Option<Self> {
        let fits = owner.len() == Self::OWNER_CHARS
            && owner.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        fits.then(|| Self { owner: owner.to_owned() })
    }

    /// Whose rows carry the mark.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// What stands in `sig` of an accepted or running row of this origin.
    pub fn text(&self, origin: Origin) -> String {
        match origin {
            Origin::Background => format!("#{}", self.owner),
            Origin::Manual => format!("@{}", self.owner),
        }
    }

    /// The origin in `sig`, when the row carries this mark. Trailing spaces of a `char(10)`
    /// do not matter.
    pub fn origin_of(&self, sig: &str) -> Option<Origin> {
        let sig = sig.trim_end();
        if sig.strip_prefix('#') == Some(&self.owner) {
            return Some(Origin::Background);
        }
        (sig.strip_prefix('@') == Some(&self.owner)).then_some(Origin::Manual)
    }
}

/// Which rows a claim looks at.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// Rows that are `waiting` for one of the targets, lowest id first, at most `limit`. Rows that
    /// another worker has locked are passed over where the database can.
    Waiting {
        /// The targets, at least one.
        targets: &'a [String],
        /// The most rows to look at.
        limit: u32,
    },
    /// The rows with these ids, whatever their status. Ids that do not exist are simply not among
    /// the answers. There may be thousands.
    Ids(&'a [RowId]),
}

/// A row as a claim sees it under its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its `id`.
    pub id: RowId,
    /// Its `target`, without the padding of a fixed-length column.
    pub target: String,
    /// Its `status` before the claim.
    pub status: Status,
}

/// What the worker decides about a row it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It becomes `accepted` and carries the worker's mark with this origin.
    Accept(Origin),
    /// It becomes `running` at once and carries the worker's mark: there is a slot for it, and a
    /// second commit before its process may start would only cost time.
    Start {
        /// What the row was before.
        origin: Origin,
        /// `time_started`, in seconds since 1970.
        started_s: i64,
    },
    /// It becomes `ignored`.
    Ignore,
    /// It stays as it is.
    Leave,
}

/// How the worker decides about the rows of a claim. (A name of its own because `async_trait`
/// would give the reference inside a lifetime of the caller's.)
pub type Judge<'a> = dyn Fn(&Found) -> Verdict + Send + Sync + 'a;

/// A row and what the worker decided about it, committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The row as it was found.
    pub row: Found,
    /// The verdict the claim committed.
    pub verdict: Verdict,
}

/// The end of a job, as its row stores it. The row becomes `done`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// Which row.
    pub id: RowId,
    /// `time_finished`, in seconds since 1970.
    pub finished_s: i64,
    /// `result`: `ok` when true, else `fail`.
    pub success: bool,
    /// `return_code`; `None` (NULL) when a signal ended the process or it never started.
    pub code: Option<u8>,
    /// `sig`: the name of the signal that ended the process, such as `SIGKILL`; else NULL.
    pub signal: Option<String>,
    /// `stdout`, decoded, already cut at `max_output_buffer`.
    pub stdout: String,
    /// `stderr`, decoded, already cut at `max_output_buffer`.
    pub stderr: String,
}

/// What a [`JobTable::write`](super::JobTable::write) changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The ids to start that are now `running` and carry the mark. An id that is missing was
    /// deleted or changed meanwhile: the worker does not run it.
    pub started: Vec<RowId>,
    /// The ids of the finishes that were written. One that is missing was deleted, belongs to
    /// another worker by now, or had been written by an earlier try.
    pub finished: Vec<RowId>,
}

/// A row that carries the worker's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its `id`.
    pub id: RowId,
    /// Its `target`.
    pub target: String,
    /// Whether it is `running`; else it is `accepted`.
    pub running: bool,
    /// Its `time_started`, if that is a number other than 0.
    pub started_s: Option<i64>,
}
