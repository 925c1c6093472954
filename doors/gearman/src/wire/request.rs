//! What clients and workers ask for.

use bytes::Bytes;

use super::Schedule;

/// Gearman's three priorities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// After all others.
    Low,
    /// The priority of a submit that names none.
    #[default]
    Normal,
    /// Before all others.
    High,
}

/// Which of the submits it is, with what only it carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubmitKind {
    /// The client waits for the result.
    Foreground(Priority),
    /// The client only wants to know that the job is taken.
    Background(Priority),
    /// In the background, once, at the next minute that matches.
    Scheduled(Schedule),
    /// In the background, not before this time.
    Epoch {
        /// Seconds since 1970; what is no number counts as 0, which is at once.
        at_s: u64,
    },
    /// With the name of a reducer, which a worker that asks with GRAB_JOB_ALL gets.
    Reduce {
        /// The function that joins the results, 64 bytes at most.
        reducer: Bytes,
        /// The fourth argument of libgearman, which is passed on to no one.
        aggregator: Bytes,
        /// Whether the client does not wait.
        is_background: bool,
    },
}

/// A new job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submit {
    /// Which of the submits it is.
    pub kind: SubmitKind,
    /// The function, 1 to 512 bytes.
    pub function: Bytes,
    /// The unique, up to 64 bytes; empty is none, `-` stands for the payload.
    pub unique: Bytes,
    /// What the worker gets.
    pub payload: Bytes,
}

impl Submit {
    /// Whether the client waits for the result.
    #[must_use]
    pub fn is_foreground(&self) -> bool {
        matches!(
            self.kind,
            SubmitKind::Foreground(_) | SubmitKind::Reduce { is_background: false, .. }
        )
    }

    /// The priority, normal where the packet cannot say.
    #[must_use]
    pub fn priority(&self) -> Priority {
        match self.kind {
            SubmitKind::Foreground(priority) | SubmitKind::Background(priority) => priority,
            SubmitKind::Scheduled(_) | SubmitKind::Epoch { .. } | SubmitKind::Reduce { .. } => {
                Priority::Normal
            }
        }
    }
}

/// What a worker wants to get with its job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrabKind {
    /// Handle, function and payload.
    Plain,
    /// The unique too.
    Uniq,
    /// Unique and reducer; a job without a reducer comes as for [`GrabKind::Uniq`].
    All,
}

/// One packet of a client or worker. Functions have 1 to 512 bytes, uniques and handles up to 64.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the protocol's own names")]
pub enum Request {
    /// The worker can do this function.
    CanDo { function: Bytes },
    /// The same, and a job of it takes at most this long. The time is as sent: 0 (or no number) is
    /// no limit; what is below a second counts as a second.
    CanDoTimeout { function: Bytes, timeout_ms: u64 },
    /// The worker no longer does this function.
    CantDo { function: Bytes },
    /// The worker does nothing for now.
    ResetAbilities,
    /// The worker wants a NOOP when there is work.
    PreSleep,
    /// The worker takes jobs from this server only; nobody ever made use of it.
    AllYours,
    /// A new job.
    Submit(Submit),
    /// The worker wants a job.
    Grab(GrabKind),
    /// How far the worker is. The numbers are the worker's text: clients get them as they are,
    /// and [`super::parse_number`] reads them.
    WorkStatus { handle: Bytes, numerator: Bytes, denominator: Bytes },
    /// A part of the result.
    WorkData { handle: Bytes, data: Bytes },
    /// The worker's warning to the clients.
    WorkWarning { handle: Bytes, data: Bytes },
    /// Done, with the result or its last part.
    WorkComplete { handle: Bytes, result: Bytes },
    /// Failed, without any data.
    WorkFail { handle: Bytes },
    /// Failed, with an exception.
    WorkException { handle: Bytes, data: Bytes },
    /// How far is this job?
    GetStatus { handle: Bytes },
    /// How far is the job of this unique?
    GetStatusUnique { unique: Bytes },
    /// Send this data back.
    Echo { data: Bytes },
    /// The name of the connection in `workers`: any bytes.
    SetClientId { id: Bytes },
    /// Switch something on; the one option known is `exceptions`. The name is as sent, for the
    /// answer.
    Option { name: Bytes },
}

impl Request {
    /// Whether this is the OPTION_REQ that switches exceptions on, in any case, with or without
    /// a NUL at its end, as gearmand reads it.
    #[must_use]
    pub fn is_exceptions_option(name: &[u8]) -> bool {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"exceptions")
    }
}
