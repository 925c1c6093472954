//! Planted faults, by name.

use spindle_engine::Faults;

/// A fault that the simulator has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum FaultName {
    /// Answers leave when their record is written, before it is synced.
    AnswerBeforeSync,
    /// What lies behind a cut tail is left there.
    GhostFrame,
    /// Old records go before the images that replace them are committed.
    TrimBeforeCommit,
    /// A lease token of another epoch is taken for the live one.
    StaleEpochToken,
    /// "Duplicate" is answered before the job it speaks of is durable.
    DuplicateAnsweredEarly,
    /// A job at its last attempt is given out once more.
    AttemptsOffByOne,
    /// A paused queue gives out jobs.
    PausedQueueLeased,
    /// Jobs that are not matched yet start in spite of a constraint that lets none start.
    UnmatchedLeased,
    /// "You joined that job" leaves before the record that keeps the job for whoever joined it.
    JoinAnsweredEarly,
    /// The folder of the log is never synced: a crash may take new files.
    FolderNotSynced,
    /// That the log has ended is believed after a crash, however it went on meanwhile.
    EndBelieved,
    /// Any lease token is taken for the live one.
    TokenUnchecked,
    /// A start forgets which keys are taken.
    KeysForgotten,
    /// A start forgets when unfinished jobs expire.
    ExpiryForgotten,
    /// A lease leaves before the record without which a crash would give its attempt again.
    LeaseNotAwaited,
    /// Compaction loses parked jobs.
    ParkedNotCompacted,
    /// Compaction loses the settings of queues.
    SettingsNotCompacted,
    /// Compaction loses how full the buckets of constraints are.
    FillNotCompacted,
    /// A lease that timed out still counts among the running jobs of a constraint.
    RunningKeptOnTimeout,
    /// A job that failed as often as it may is tried once more.
    FailsOffByOne,
    /// A try that failed is followed by the next one at once.
    BackoffIgnored,
    /// An attempt that never left the server counts.
    GivenBackCounts,
    /// A parked job whose lease ends is parked no more.
    ParkedRequeued,
    /// A job with a time to run at is ready at once.
    ScheduledAtOnce,
}

/// What is planted in a run: nothing, or one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    pub(crate) engine: Faults,
    pub(crate) ghost_frame: bool,
    pub(crate) folder_not_synced: bool,
    pub(crate) end_believed: bool,
    /// In the door, not in the engine: it does not wait for the gate it was given.
    pub(crate) join_answered_early: bool,
}

impl Planted {
    /// One fault.
    pub fn one(name: FaultName) -> Planted {
        let mut planted = Planted::default();
        let Faults { core, .. } = &mut planted.engine;
        match name {
            FaultName::AnswerBeforeSync => planted.engine.answer_before_sync = true,
            FaultName::GhostFrame => planted.ghost_frame = true,
            FaultName::TrimBeforeCommit => planted.engine.trim_before_commit = true,
            FaultName::StaleEpochToken => core.stale_epoch_token = true,
            FaultName::DuplicateAnsweredEarly => planted.engine.duplicate_answered_early = true,
            FaultName::AttemptsOffByOne => core.attempts_off_by_one = true,
            FaultName::PausedQueueLeased => core.paused_queue_leased = true,
            FaultName::UnmatchedLeased => core.unmatched_leased = true,
            FaultName::JoinAnsweredEarly => planted.join_answered_early = true,
            FaultName::FolderNotSynced => planted.folder_not_synced = true,
            FaultName::EndBelieved => planted.end_believed = true,
            FaultName::TokenUnchecked => core.token_unchecked = true,
            FaultName::KeysForgotten => planted.engine.keys_forgotten = true,
            FaultName::ExpiryForgotten => planted.engine.expiry_forgotten = true,
            FaultName::LeaseNotAwaited => planted.engine.lease_not_awaited = true,
            FaultName::ParkedNotCompacted => core.parked_not_compacted = true,
            FaultName::SettingsNotCompacted => core.settings_not_compacted = true,
            FaultName::FillNotCompacted => core.fill_not_compacted = true,
            FaultName::RunningKeptOnTimeout => core.running_kept_on_timeout = true,
            FaultName::FailsOffByOne => core.fails_off_by_one = true,
            FaultName::BackoffIgnored => core.backoff_ignored = true,
            FaultName::GivenBackCounts => core.given_back_counts = true,
            FaultName::ParkedRequeued => core.parked_requeued = true,
            FaultName::ScheduledAtOnce => core.scheduled_at_once = true,
        }
        planted
    }
}
