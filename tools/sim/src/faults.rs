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
    /// With durable leases, a lease is answered before its own record is durable.
    LeaseAnsweredEarly,
    /// "You joined that job" leaves before the record that keeps the job for whoever joined it.
    JoinAnsweredEarly,
}

/// What is planted in a run: nothing, or one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    pub(crate) engine: Faults,
    pub(crate) ghost_frame: bool,
    /// In the door, not in the engine: it does not wait for the gate it was given.
    pub(crate) join_answered_early: bool,
}

impl Planted {
    /// One fault.
    pub fn one(name: FaultName) -> Planted {
        let mut planted = Planted::default();
        match name {
            FaultName::AnswerBeforeSync => planted.engine.answer_before_sync = true,
            FaultName::GhostFrame => planted.ghost_frame = true,
            FaultName::TrimBeforeCommit => planted.engine.trim_before_commit = true,
            FaultName::StaleEpochToken => planted.engine.core.stale_epoch_token = true,
            FaultName::DuplicateAnsweredEarly => planted.engine.duplicate_answered_early = true,
            FaultName::AttemptsOffByOne => planted.engine.core.attempts_off_by_one = true,
            FaultName::PausedQueueLeased => planted.engine.core.paused_queue_leased = true,
            FaultName::UnmatchedLeased => planted.engine.core.unmatched_leased = true,
            FaultName::LeaseAnsweredEarly => planted.engine.lease_answered_early = true,
            FaultName::JoinAnsweredEarly => planted.join_answered_early = true,
        }
        planted
    }
}
