//! How far compaction has come.

use spindle_core::JobId;
use spindle_core::command::Compact;

use crate::gate::Gate;

/// Where a round of compaction stands.
#[derive(Debug, Default)]
pub(crate) struct Compactor {
    pub(super) round: Option<Round>,
    pub(super) weighed: Weighed,
    /// Rounds that ended with a trim, for people and tests.
    pub(super) trims: u64,
}

/// How much data was last found to need the oldest part of the log. Weighing it is a walk over all
/// jobs, and on a full disk every step asks; so the longer the walk was, the more steps its answer
/// counts for.
#[derive(Debug, Default)]
pub(super) struct Weighed {
    pub(super) target: u64,
    pub(super) bytes: usize,
    pub(super) steps_left: usize,
    /// This step went by an older answer.
    pub(super) is_stale: bool,
}

#[derive(Debug)]
pub(super) struct Round {
    /// Every item that needs a record below this is appended again.
    pub(super) target: u64,
    /// Jobs below this number are done.
    pub(super) from: JobId,
    /// On a full disk, about how many bytes it still has to append. `None`: it began while there was
    /// room, and how much it needs was not asked.
    pub(super) needed: Option<usize>,
    pub(super) stage: Stage,
}

impl Round {
    pub(super) fn new(target: u64, needed: Option<usize>) -> Round {
        Round { target, from: JobId(0), needed, stage: Stage::Jobs }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    Jobs,
    Items(Vec<Compact>),
    /// All is appended; the log is trimmed to the target once this is durable.
    Trim(Gate),
}
