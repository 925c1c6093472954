//! Planted faults, by name.

use spindle_engine::Faults;

/// What is planted in a run: nothing, or one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    pub(crate) engine: Faults,
    pub(crate) log: spindle_log::Faults,
    pub(crate) folder_not_synced: bool,
    pub(crate) followers_answer: bool,
    /// The simulator's door does not wait for the gate it was given.
    pub(crate) join_answered_early: bool,
    pub(crate) access: spindle_access::Faults,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $Name:ident => $($place:ident).+;)*) => {
        /// A fault that the simulator has to find.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
        pub enum FaultName {
            $($(#[$doc])* $Name,)*
        }

        impl Planted {
            /// One fault.
            pub fn one(name: FaultName) -> Planted {
                let mut planted = Planted::default();
                match name {
                    $(FaultName::$Name => planted.$($place).+ = true,)*
                }
                planted
            }
        }
    };
}

faults! {
    /// Answers leave when their record is written, before it is synced.
    AnswerBeforeSync => engine.answer_before_sync;
    /// The durable position moves to a record whose answer came before that of an earlier one.
    AcknowledgedOutOfOrder => engine.acknowledged_out_of_order;
    /// An answer opens the gates of all batches that are on their way.
    GateOpenedByEarlierBatch => engine.gate_opened_by_earlier_batch;
    /// A lost answer is taken for a good one.
    UnknownIsCommitted => engine.unknown_is_committed;
    /// A leader answers whether it holds the lease or not.
    LeaseUnchecked => engine.lease_unchecked;
    /// A new leader does not wait until its epoch record is committed, and is not silent.
    EpochNotAwaited => engine.epoch_not_awaited;
    /// A new leader answers while the lease of the one before it may run.
    SilenceSkipped => engine.silence_skipped;
    /// An append that is tried again proves the time of the later try.
    LaterTryProves => engine.later_try_proves;
    /// What a deposed leader has appended behind its successor's epoch record is folded.
    LateAppendTaken => engine.late_append_taken;
    /// A node that follows answers by what it has read.
    FollowersAnswer => followers_answer;
    /// What lies behind a cut tail is left there.
    GhostFrame => log.tail_left;
    /// Old records go before the images that replace them are committed.
    TrimBeforeCommit => engine.trim_before_commit;
    /// A lease token of another epoch is taken for the live one.
    StaleEpochToken => engine.core.stale_epoch_token;
    /// "Duplicate" is answered before the job it speaks of is durable.
    DuplicateAnsweredEarly => engine.duplicate_answered_early;
    /// A job at its last attempt is given out once more.
    AttemptsOffByOne => engine.core.attempts_off_by_one;
    /// A paused queue gives out jobs.
    PausedQueueLeased => engine.core.paused_queue_leased;
    /// Jobs that are not matched yet start in spite of a constraint that lets none start.
    UnmatchedLeased => engine.core.unmatched_leased;
    /// With durable leases, a lease is answered before its own record is durable.
    LeaseAnsweredEarly => engine.lease_answered_early;
    /// "You joined that job" leaves before the record that keeps the job for whoever joined it.
    JoinAnsweredEarly => join_answered_early;
    /// The folder of the log is never synced: a crash may take new files.
    FolderNotSynced => folder_not_synced;
    /// That the log has ended is believed after a crash, however it went on meanwhile.
    EndBelieved => log.end_kept;
    /// Any lease token is taken for the live one.
    TokenUnchecked => engine.core.token_unchecked;
    /// A start forgets which keys are taken.
    KeysForgotten => engine.keys_forgotten;
    /// A start forgets when unfinished jobs expire.
    ExpiryForgotten => engine.expiry_forgotten;
    /// A lease leaves before the record without which a crash would give its attempt again.
    LeaseNotAwaited => engine.lease_not_awaited;
    /// Compaction loses parked jobs.
    ParkedNotCompacted => engine.core.parked_not_compacted;
    /// Compaction loses the settings of queues.
    SettingsNotCompacted => engine.core.settings_not_compacted;
    /// Compaction loses entries of the audit log.
    AuditNotCompacted => engine.core.audit_not_compacted;
    /// Compaction loses how full the buckets of constraints are.
    FillNotCompacted => engine.core.fill_not_compacted;
    /// The undo of a deletion is not logged: a restart deletes the job again.
    UndoNotLogged => engine.core.undo_not_logged;
    /// Compaction loses schedules.
    ScheduleNotCompacted => engine.core.schedule_not_compacted;
    /// A schedule fires, and the log has its job only: after a crash it fires twice.
    FiringNotLogged => engine.core.firing_not_logged;
    /// A start forgets when schedules fire: a missed time is lost.
    SchedulesForgotten => engine.schedules_forgotten;
    /// A job that waits for others goes on when the first of them ends.
    UnblockedEarly => engine.core.unblocked_early;
    /// A dead job counts as done for those that wait for it.
    DeadCountsAsDone => engine.core.dead_counts_as_done;
    /// Nobody hears of the end of a job that was cancelled because of another.
    CascadeForgotten => engine.core.cascade_forgotten;
    /// Nobody hears that a job is gone that they wait for.
    GoneGoesUnnoticed => engine.core.gone_goes_unnoticed;
    /// A start forgets which jobs wait for which.
    FlowsForgotten => engine.flows_forgotten;
    /// A job of a batch that goes without having been done is not counted.
    GoneMemberUncounted => engine.core.gone_member_uncounted;
    /// Compaction loses batches.
    BatchNotCompacted => engine.core.batch_not_compacted;
    /// A job is added to a sealed batch.
    AddedToSealedBatch => engine.core.added_to_sealed_batch;
    /// The turn of a key does not move on when one of its jobs is leased.
    TurnNotTaken => engine.core.turn_not_taken;
    /// A key that comes back takes the turns that it missed.
    IdleKeySavesTurns => engine.core.idle_key_saves_turns;
    /// All keys of a fair queue have the same weight.
    WeightIgnored => engine.core.weight_ignored;
    /// A start orders the jobs of a queue as if waiting did not count.
    AgingForgotten => engine.core.aging_forgotten;
    /// A shard that a queue is leaving takes new jobs of it.
    SealedTakesJobs => engine.core.sealed_takes_jobs;
    /// A shard leaves a queue that it has jobs of.
    LeftWithJobs => engine.core.left_with_jobs;
    /// Compaction loses where queues have moved to.
    PlacesNotCompacted => engine.core.places_not_compacted;
    /// Compaction loses who follows the feed.
    ConsumersNotCompacted => engine.core.consumers_not_compacted;
    /// A lease that timed out still counts among the running jobs of a constraint.
    RunningKeptOnTimeout => engine.core.running_kept_on_timeout;
    /// A job that failed as often as it may is tried once more.
    FailsOffByOne => engine.core.fails_off_by_one;
    /// A try that failed is followed by the next one at once.
    BackoffIgnored => engine.core.backoff_ignored;
    /// An attempt that never left the server counts.
    GivenBackCounts => engine.core.given_back_counts;
    /// A parked job whose lease ends is parked no more.
    ParkedRequeued => engine.core.parked_requeued;
    /// A job with a time to run at is ready at once.
    ScheduledAtOnce => engine.core.scheduled_at_once;
    /// A start cuts the tail one record early: the last one goes, which is whole.
    TailCutEarly => log.record_cut;
    /// A start does not miss the oldest segment.
    FirstUnchecked => log.first_unchecked;
    /// A start does not miss the newest segment, nor records at the end.
    EndUnchecked => log.end_unchecked;
    /// A start does not miss the file that says where the log must begin and end.
    BoundsUnchecked => log.bounds_unchecked;
    /// Where the log cannot be read, it is taken to end.
    ReadErrorIsEnd => log.read_error_ends;
    /// Any clock is believed, however far it is from the log's time.
    ClockBelieved => engine.clock_believed;
    /// When the clock is set right, leases lose as much time as it goes forward.
    LeasesSetForward => engine.leases_set_forward;
    /// A repair drops the last record before the damage, too.
    RepairCutsMore => log.repair_cuts_more;
    /// A repair does not list the first record that it drops.
    DroppedUnlisted => log.dropped_unlisted;
    /// A repair does not list what an interrupted one before it has moved.
    MovedUnlisted => log.moved_unlisted;
    /// Nobody is asked whether a command may be done.
    AccessUnasked => access.unasked;
    /// The role is asked for, and not whether the queue fits a pattern.
    QueueUnasked => access.queue_unasked;
    /// Tokens do not expire.
    ExpiryUnseen => access.expiry_unseen;
    /// A changed tokens file does not count for connections that are open.
    TokensKept => access.tokens_kept;
}
