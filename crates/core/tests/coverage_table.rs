//! The table of everything the core knows: each command and each event with the test that states
//! its property, the operation of the simulator that brings it about, and the rule of the model
//! that judges it. A new variant does not compile without a row, and a row whose test, operation or
//! rule does not exist fails.

use std::path::Path;

use spindle_core::{Command, Event};

/// Where a variant is covered.
struct Row {
    variant: &'static str,
    /// A test function in `tests/properties.rs` or `tests/families/`.
    property: &'static str,
    /// A text in the simulator's sources, at the place that brings it about.
    operation: &'static str,
    /// A function of the simulator's model.
    rule: &'static str,
}

macro_rules! table {
    ($rows:ident of $name:ident: $($variant:ident => $property:literal, $operation:literal,
        $rule:literal;)*) => {
        const $rows: &[Row] = &[$(Row {
            variant: stringify!($variant),
            property: $property,
            operation: $operation,
            rule: $rule,
        }),*];

        const _: fn(&$name) = |any| match any {
            $($name::$variant { .. } => {})*
        };
    };
}

table! { COMMANDS of Command:
    Submit => "a_submit_is_ready_scheduled_or_parked_as_asked", "fn submit(", "apply_submit";
    Lease => "a_lease_gives_the_job_its_selection_names", "fn lease(", "apply_lease";
    Extend => "extending_moves_the_deadline_of_the_live_lease_only", "Command::Extend(",
        "apply_extend";
    DropTimeout => "a_holder_that_drops_its_timeout_has_the_jobs_own_time",
        "Command::DropTimeout {", "apply_drop_timeout";
    Finish => "a_finish_with_a_token_that_is_not_the_live_leases_is_refused", "fn finish(",
        "apply_finish";
    Release => "a_released_jobs_old_token_does_not_fit_the_next_lease", "Command::Release {",
        "apply_release";
    HolderGone => "a_connection_that_goes_loses_exactly_the_leases_bound_to_it",
        "fn connection_gone(", "apply_holder_gone";
    Retry => "a_retried_job_starts_over", "fn retry(", "apply_retry";
    Edit => "edits_compare_the_revision_and_leave_leased_and_finished_jobs_alone", "fn edit(",
        "apply_edit";
    Cancel => "a_cancelled_job_is_dead_with_that_code_even_while_leased", "Command::Cancel {",
        "kill";
    Delete => "a_deleted_job_is_gone_whatever_its_status", "Command::Delete {", "refuse_absent";
    DeleteLater => "a_deletion_can_be_undone_until_its_time_is_over", "Command::DeleteLater {",
        "apply_deletion";
    Undelete => "an_undo_gives_back_where_a_waiting_job_stood", "Command::Undelete {", "apply_undo";
    ResultRead => "reading_a_result_shortens_its_retention_and_never_lengthens_it",
        "Command::ResultRead {", "apply_result_read";
    Persist => "a_persisted_foreground_job_survives_a_restart", "Command::Persist {",
        "apply_persist";
    PayloadDamaged => "a_damaged_payload_makes_its_job_dead", "Command::PayloadDamaged {", "kill";
    SetState => "a_state_advances_by_compare_and_set_and_events_add_up", "fn set_state(",
        "refuse_changed";
    AddEvent => "a_state_advances_by_compare_and_set_and_events_add_up", "Command::AddEvent {",
        "refuse_changed";
    SetQueue => "settings_are_remembered_and_default_ones_forgotten", "Command::SetQueue {",
        "settings";
    SetConstraint => "limits_are_never_exceeded", "fn set_constraint(", "apply_constraint";
    RemoveConstraint => "a_removed_constraint_holds_nothing_back", "Command::RemoveConstraint {",
        "forget_tokens";
    Relabel => "a_relabelled_job_counts_under_its_new_label", "Command::Relabel {", "apply_relabel";
    NoteRelabelled => "how_far_jobs_are_relabelled_survives_a_restart",
        "Command::NoteRelabelled {", "compare_server";
    Start => "a_start_raises_the_epoch_only", "Command::Start {", "lose_memory";
    Recover => "a_restart_ends_bound_leases_and_gives_the_others_time", "Command::Recover {",
        "apply_recover";
    ReserveIds => "ids_come_from_the_reserved_block_and_are_not_used_twice",
        "Command::ReserveIds {", "ids_until";
    ReturnIds => "ids_that_were_never_used_are_given_back_and_given_again",
        "Command::ReturnIds {", "ids_until";
    Tick => "due_jobs_come_in_bounded_steps_and_in_the_order_of_their_time",
        "fn happen_what_is_due(", "tick";
    Audited => "an_entry_comes_with_its_change_and_not_without_it", "fn audited(", "apply_audited";
    SetSchedule => "a_put_schedule_keeps_what_has_come_of_it_and_has_a_new_revision",
        "Command::SetSchedule(", "apply_schedule";
    RemoveSchedule => "a_removed_schedule_fires_no_more", "Command::RemoveSchedule {",
        "forget_schedule";
    FireSchedule => "a_time_fires_once", "fn firing(", "apply_firing";
    OpenBatch => "a_batch_counts_its_jobs_and_ends_when_it_is_sealed_and_all_have_ended",
        "Command::OpenBatch(", "apply_opening";
    SealBatch => "an_empty_batch_is_done_when_it_is_sealed", "Command::SealBatch {", "apply_seal";
    CancelBatch => "a_cancelled_batch_is_sealed_and_says_so", "Command::CancelBatch {",
        "apply_seal";
    PlaceQueue => "a_queue_that_moves_is_on_the_map_with_the_shard_that_may_have_jobs_of_it",
        "Command::PlaceQueue {", "apply_place";
    EndDrain => "a_queue_that_moves_is_on_the_map_with_the_shard_that_may_have_jobs_of_it",
        "Command::EndDrain {", "refuse_end_of_drain";
    KnowPlace => "a_shard_takes_the_jobs_and_the_settings_of_a_queue_that_it_knows_to_be_there",
        "Command::KnowPlace {", "refuse_known_place";
    SealQueue => "a_queue_that_is_offered_goes_on_with_settings_that_stay_until_it_is_sealed",
        "Command::SealQueue {", "refuse_step";
    LeaveQueue => "a_shard_leaves_a_queue_that_it_has_nothing_of_and_then_takes_nothing_of_it",
        "Command::LeaveQueue {", "refuse_step";
    MoveConsumer => "a_consumer_is_where_it_moved_last_and_a_move_to_there_is_none",
        "Command::MoveConsumer(", "apply_consumer";
    Compact => "the_fold_is_the_same_after_old_records_were_carried_forward_and_dropped",
        "fn compaction(", "apply_compaction";
    RaiseFormat => "formats_only_rise", "Command::RaiseFormat {", "compare_server";
}

table! { EVENTS of Event:
    Submitted => "a_submitted_job_is_findable_or_its_end_was_told", "fn submit(", "apply_submit";
    Leased => "a_job_has_one_live_lease_and_its_token_was_never_given_before", "fn judge_lease(",
        "lease_choices";
    Extended => "extending_moves_the_deadline_of_the_live_lease_only", "Command::Extend(",
        "apply_extend";
    Requeued => "attempts_and_fails_never_pass_their_maximum", "fn worker(", "give_back";
    Finished => "a_completed_job_keeps_its_result_as_long_as_asked", "fn finish(", "end_job";
    Gone => "nothing_outlives_its_ttl_or_its_retention", "Answer::Gone(", "goes_ms";
    Retried => "a_retried_job_leaves_its_unique_name_to_a_younger_holder", "fn retry(",
        "apply_retry";
    Edited => "a_moved_job_is_in_its_new_queue_only", "fn edit(", "apply_edit";
    ResultRead => "reading_a_result_shortens_its_retention_and_never_lengthens_it",
        "Command::ResultRead {", "apply_result_read";
    Persisted => "a_persisted_foreground_job_survives_a_restart", "Command::Persist {",
        "apply_persist";
    StateSet => "a_state_advances_by_compare_and_set_and_events_add_up", "fn set_state(",
        "refuse_changed";
    QueueSet => "a_paused_queue_gives_nothing_until_resumed", "Command::SetQueue {", "settings";
    ConstraintSet => "a_changed_constraint_keeps_its_number_and_raises_the_revision",
        "fn set_constraint(", "apply_constraint";
    ConstraintRemoved => "a_removed_constraint_holds_nothing_back",
        "Command::RemoveConstraint {", "forget_tokens";
    Relabelled => "a_relabelled_job_counts_under_its_new_label", "Command::Relabel {",
        "apply_relabel";
    BucketSet => "a_foreground_lease_under_a_rate_logs_what_it_took", "fn judge_lease(",
        "take_tokens";
    Started => "a_start_raises_the_epoch_only", "fn begin_epoch(", "apply_recover";
    IdsReserved => "ids_come_from_the_reserved_block_and_are_not_used_twice",
        "Command::ReserveIds {", "ids_until";
    FormatRaised => "formats_only_rise", "Command::RaiseFormat {", "compare_server";
    Compacted => "a_carried_job_needs_only_its_new_record", "fn compaction(", "fold_difference";
    ServerCompacted => "settings_limits_and_the_server_are_carried_whole", "fn compaction(",
        "fold_difference";
    Ready => "nothing_is_leased_from_a_paused_queue_or_outside_its_time",
        "fn happen_what_is_due(", "next_due";
    PageMoved => "a_page_of_events_moves_without_changing_its_job", "Compact::Page {", "apply_compaction";
    Audited => "a_request_for_many_jobs_has_one_entry_that_counts_them", "fn audited(",
        "audit_kept";
    Deleted => "a_deletion_can_be_undone_until_its_time_is_over", "Command::DeleteLater {",
        "apply_deletion";
    Undeleted => "what_is_deleted_and_undone_survives_compaction_and_restarts",
        "Command::Undelete {", "apply_undo";
    ScheduleSet => "a_compacted_schedule_is_as_it_was", "Compact::Schedule(", "compare_schedules";
    ScheduleRemoved => "a_removed_schedule_fires_no_more", "Command::RemoveSchedule {",
        "forget_schedule";
    ScheduleFired => "what_was_missed_is_skipped_or_made_up_as_asked", "fn judge_firing(",
        "outcome_of";
    BatchSet => "the_fold_knows_a_batch_whose_first_records_are_gone", "fn open_batch(",
        "compare_batches";
    BatchesCounted => "jobs_count_as_what_they_were_when_they_go", "fn join_or_wait(",
        "count_batches";
    BatchesGone => "an_ended_batch_is_kept_as_long_as_asked_and_a_dead_one_in_another_counts_as_gone",
        "fn batches(", "forget_batches";
    QueuePlaced => "what_cannot_move_is_refused", "Command::PlaceQueue {", "compare_places";
    PlaceKnown => "a_shard_that_a_queue_leaves_takes_only_what_belongs_to_its_jobs",
        "Command::KnowPlace {", "taken_by";
    ConsumerMoved => "consumers_survive_compaction", "Command::MoveConsumer(", "compare_consumers";
    BlockerEnded => "a_job_runs_only_when_those_before_it_have_ended", "fn blockers(",
        "settle_dependents";
}

/// All Rust sources below a folder of the repository, one after the other.
fn sources(folder: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut text = String::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).expect("a source is text"));
            }
        }
    }
    text
}

#[test]
fn every_command_and_event_has_its_test_its_operation_and_its_rule() {
    let tests = sources("crates/core/tests/families")
        + &std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/properties.rs"),
        )
        .expect("the properties are there");
    let operations = sources("tools/sim/src/run") + &sources("tools/sim/src/workload");
    let rules = sources("tools/sim/src/model");
    let mut missing = Vec::new();
    for (kind, rows) in [("command", COMMANDS), ("event", EVENTS)] {
        for row in rows {
            let Row { variant, property, operation, rule } = row;
            if !tests.contains(&format!("#[test]\nfn {property}()")) {
                missing.push(format!("{kind} {variant}: test {property}"));
            }
            if !operations.contains(operation) {
                missing.push(format!("{kind} {variant}: operation `{operation}`"));
            }
            if !rules.contains(&format!("fn {rule}(")) {
                missing.push(format!("{kind} {variant}: rule {rule}"));
            }
        }
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}
