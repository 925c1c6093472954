//! Each planted fault is found, and without one nothing is: a checker that cannot fail proves
//! nothing.

use spindle_sim::counts::Counts;
use spindle_sim::faults::{FaultName, Planted};
use spindle_sim::run::Run;

/// A fault has to be found within so many seeds.
const SEEDS_MAX: u64 = 40;

#[track_caller]
fn is_found(fault: FaultName) {
    let found = (0..SEEDS_MAX).find(|seed| {
        // It has to be this fault that is found, not another.
        Run::seed(*seed, Planted::one(fault), false).is_err()
            && Run::seed(*seed, Planted::default(), false).is_ok()
    });
    assert!(found.is_some(), "{fault:?} was not found in {SEEDS_MAX} seeds");
}

#[test]
fn an_answer_before_its_sync_is_found() {
    is_found(FaultName::AnswerBeforeSync);
}

#[test]
fn a_ghost_frame_behind_a_cut_tail_is_found() {
    is_found(FaultName::GhostFrame);
}

#[test]
fn a_trim_before_its_commit_is_found() {
    is_found(FaultName::TrimBeforeCommit);
}

#[test]
fn a_token_of_another_epoch_is_found() {
    is_found(FaultName::StaleEpochToken);
}

#[test]
fn a_duplicate_answered_early_is_found() {
    is_found(FaultName::DuplicateAnsweredEarly);
}

#[test]
fn one_attempt_too_many_is_found() {
    is_found(FaultName::AttemptsOffByOne);
}

#[test]
fn a_lease_from_a_paused_queue_is_found() {
    is_found(FaultName::PausedQueueLeased);
}

#[test]
fn a_lease_of_a_job_that_is_still_to_be_matched_is_found() {
    is_found(FaultName::UnmatchedLeased);
}

#[test]
fn a_durable_lease_answered_before_its_own_record_is_found() {
    is_found(FaultName::LeaseAnsweredEarly);
}

#[test]
fn a_join_answered_before_its_job_is_logged_is_found() {
    is_found(FaultName::JoinAnsweredEarly);
}

#[test]
fn a_seed_is_long_enough_crashes_and_trims_and_is_the_same_each_time() {
    let run = || Run::seed(3, Planted::default(), false);
    let counts: Counts = run().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(counts.commands >= 2_000 && counts.crashes >= 3 && counts.trims >= 1, "{counts:?}");
    assert_eq!(run().ok(), Some(counts));
}
