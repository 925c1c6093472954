//! Each planted fault is found, and without one nothing is: a checker that cannot fail proves
//! nothing.

use clap::ValueEnum;
use spindle_sim::counts::Counts;
use spindle_sim::faults::{FaultName, Planted};
use spindle_sim::nodes;
use spindle_sim::run::Run;
use spindle_sim::workload::Profile;

/// A fault has to be found within this many seeds.
const SEEDS_MAX: u64 = 40;

/// Faults that only show with several records on their way.
const IN_FLIGHT: [FaultName; 3] = [
    FaultName::AcknowledgedOutOfOrder,
    FaultName::GateOpenedByEarlierBatch,
    FaultName::UnknownIsCommitted,
];

/// Faults that only show where several nodes share a log.
const OF_NODES: [FaultName; 6] = [
    FaultName::LeaseUnchecked,
    FaultName::SilenceSkipped,
    FaultName::EpochNotAwaited,
    FaultName::LaterTryProves,
    FaultName::LateAppendTaken,
    FaultName::FollowersAnswer,
];

#[track_caller]
fn is_found_among_nodes(fault: FaultName) {
    let found = (0..SEEDS_MAX).find(|seed| {
        nodes::run(*seed, Planted::one(fault), false).is_err()
            && nodes::run(*seed, Planted::default(), false).is_ok()
    });
    assert!(found.is_some(), "{fault:?} was not found in {SEEDS_MAX} seeds");
}

#[test]
fn a_lost_answer_that_is_taken_for_a_good_one_is_found_among_nodes() {
    is_found_among_nodes(FaultName::UnknownIsCommitted);
}

#[track_caller]
fn is_found(fault: FaultName) {
    if OF_NODES.contains(&fault) {
        return is_found_among_nodes(fault);
    }
    let profile = if IN_FLIGHT.contains(&fault) { Profile::InFlight } else { Profile::Mixed };
    let found = (0..SEEDS_MAX).find(|seed| {
        // It has to be this fault that is found, not another.
        Run::seed_of(profile, *seed, Planted::one(fault), false).is_err()
            && Run::seed_of(profile, *seed, Planted::default(), false).is_ok()
    });
    assert!(found.is_some(), "{fault:?} was not found in {SEEDS_MAX} seeds");
}

/// A test for each fault, so that they run side by side and a failing one has a name.
macro_rules! planted {
    ($($test:ident $fault:ident,)*) => {
        $(#[test]
        fn $test() {
            is_found(FaultName::$fault);
        })*

        #[test]
        fn each_fault_has_a_test() {
            let tested = [$(FaultName::$fault),*];
            let missing = FaultName::value_variants().iter().find(|fault| !tested.contains(fault));
            assert_eq!(missing, None);
        }
    };
}

planted! {
    an_answer_before_its_sync_is_found AnswerBeforeSync,
    an_acknowledgement_that_overtakes_another_is_found AcknowledgedOutOfOrder,
    a_gate_that_an_earlier_batch_opens_is_found GateOpenedByEarlierBatch,
    a_lost_answer_that_is_taken_for_a_good_one_is_found UnknownIsCommitted,
    a_leader_that_answers_without_the_lease_is_found LeaseUnchecked,
    an_epoch_record_that_is_not_awaited_is_found EpochNotAwaited,
    a_new_leader_that_is_not_silent_is_found SilenceSkipped,
    a_later_try_that_proves_its_own_time_is_found LaterTryProves,
    a_late_append_that_is_folded_is_found LateAppendTaken,
    a_follower_that_answers_is_found FollowersAnswer,
    a_ghost_frame_behind_a_cut_tail_is_found GhostFrame,
    a_trim_before_its_commit_is_found TrimBeforeCommit,
    a_token_of_another_epoch_is_found StaleEpochToken,
    a_duplicate_answered_early_is_found DuplicateAnsweredEarly,
    one_attempt_too_many_is_found AttemptsOffByOne,
    a_lease_from_a_paused_queue_is_found PausedQueueLeased,
    a_lease_of_a_job_that_is_still_to_be_matched_is_found UnmatchedLeased,
    a_durable_lease_answered_before_its_own_record_is_found LeaseAnsweredEarly,
    a_join_answered_before_its_job_is_logged_is_found JoinAnsweredEarly,
    a_folder_that_is_never_synced_is_found FolderNotSynced,
    an_end_that_is_believed_after_a_crash_is_found EndBelieved,
    a_token_that_nobody_checks_is_found TokenUnchecked,
    keys_that_a_start_forgets_are_found KeysForgotten,
    ttls_that_a_start_forgets_are_found ExpiryForgotten,
    a_lease_that_leaves_before_its_record_is_found LeaseNotAwaited,
    parked_jobs_that_compaction_loses_are_found ParkedNotCompacted,
    settings_that_compaction_loses_are_found SettingsNotCompacted,
    entries_of_the_audit_log_that_compaction_loses_are_found AuditNotCompacted,
    fills_that_compaction_loses_are_found FillNotCompacted,
    an_undo_that_is_forgotten_is_found UndoNotLogged,
    schedules_that_compaction_loses_are_found ScheduleNotCompacted,
    a_schedule_that_fires_twice_after_a_crash_is_found FiringNotLogged,
    times_that_a_start_forgets_are_found SchedulesForgotten,
    a_job_that_goes_on_before_all_have_ended_is_found UnblockedEarly,
    a_dead_job_that_counts_as_done_is_found DeadCountsAsDone,
    a_cancelled_job_that_cancels_nobody_is_found CascadeForgotten,
    a_job_that_waits_for_one_that_is_gone_is_found GoneGoesUnnoticed,
    a_job_of_a_batch_that_goes_uncounted_is_found GoneMemberUncounted,
    compaction_that_loses_batches_is_found BatchNotCompacted,
    a_job_in_a_sealed_batch_is_found AddedToSealedBatch,
    waits_that_a_start_forgets_are_found FlowsForgotten,
    a_key_that_does_not_lose_its_turn_is_found TurnNotTaken,
    a_key_that_saves_up_turns_is_found IdleKeySavesTurns,
    weights_that_do_not_count_are_found WeightIgnored,
    waiting_that_a_start_forgets_is_found AgingForgotten,
    a_sealed_queue_that_takes_jobs_is_found SealedTakesJobs,
    a_queue_that_is_left_with_its_jobs_is_found LeftWithJobs,
    places_that_compaction_loses_are_found PlacesNotCompacted,
    consumers_that_compaction_loses_are_found ConsumersNotCompacted,
    a_timeout_that_frees_no_bucket_is_found RunningKeptOnTimeout,
    one_failure_too_many_is_found FailsOffByOne,
    a_try_without_backoff_is_found BackoffIgnored,
    an_attempt_that_counts_though_it_was_given_back_is_found GivenBackCounts,
    a_parked_job_that_runs_is_found ParkedRequeued,
    a_scheduled_job_that_is_ready_at_once_is_found ScheduledAtOnce,
    a_tail_cut_one_record_early_is_found TailCutEarly,
    a_lost_oldest_segment_that_nobody_misses_is_found FirstUnchecked,
    a_lost_end_that_nobody_misses_is_found EndUnchecked,
    lost_bounds_that_nobody_misses_are_found BoundsUnchecked,
    a_failed_read_that_is_taken_for_the_end_is_found ReadErrorIsEnd,
    a_clock_that_is_believed_whatever_it_says_is_found ClockBelieved,
    leases_that_end_when_the_clock_is_set_right_are_found LeasesSetForward,
    a_repair_that_drops_a_sound_record_is_found RepairCutsMore,
    a_dropped_record_that_a_repair_does_not_list_is_found DroppedUnlisted,
    a_moved_record_that_a_second_repair_does_not_list_is_found MovedUnlisted,
    a_door_that_asks_nobody_is_found AccessUnasked,
    a_door_that_forgets_queues_is_found QueueUnasked,
    tokens_that_never_expire_are_found ExpiryUnseen,
    a_changed_tokens_file_that_nobody_reads_is_found TokensKept,
}

#[test]
fn a_seed_is_long_enough_crashes_and_trims_and_is_the_same_each_time() {
    let run = || Run::seed(3, Planted::default(), false);
    let counts: Counts = run().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(counts.commands >= 2_000 && counts.crashes >= 3 && counts.trims >= 1, "{counts:?}");
    assert_eq!(run().ok(), Some(counts));
}
