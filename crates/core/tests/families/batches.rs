//! Batches: jobs that belong together.

use bytes::Bytes;
use spindle_core::batch::{
    BATCH_DEPTH_MAX, BATCH_JOBS_MAX, BATCH_NAME_BYTES_MAX, BATCHES_MAX, Batch, BatchCounts,
};
use spindle_core::command::{OpenBatch, Submit};
use spindle_core::event::BatchSet;
use spindle_core::job::{OnDead, Origin};
use spindle_core::queue::QueueSettings;
use spindle_core::{Command, EVENTS_MAX, Event, JobId, Place, Rejection, Status};

use crate::harness::{START_MS, Server, after, dead, delete, done, retry, submit, submit_by};

const KEEP_MS: u64 = 60_000;

fn open(id: u64) -> Command {
    open_with(id, |_| {})
}

fn open_with(id: u64, change: impl FnOnce(&mut OpenBatch)) -> Command {
    let queue = Bytes::from_static(b"mail");
    let mut open = OpenBatch { id: JobId(id), queue, keep_ms: KEEP_MS, ..OpenBatch::default() };
    change(&mut open);
    Command::OpenBatch(Box::new(open))
}

fn within(parent: u64) -> impl FnOnce(&mut OpenBatch) {
    move |open| open.parent = Some(JobId(parent))
}

fn seal(id: u64) -> Command {
    Command::SealBatch { id: JobId(id) }
}

fn of(batch: u64) -> impl FnOnce(&mut Submit) {
    move |submit| submit.batch = Some(JobId(batch))
}

/// Batch 1 with the jobs 2 and 3, and the jobs 4 to 6 that wait for it, one for each `on_dead`.
fn with_two() -> Server {
    let mut server = Server::new();
    server.given(open(1));
    server.given(submit(2, "mail", of(1)));
    server.given(submit(3, "resize", of(1)));
    for (id, on_dead) in (4..).zip(OnDead::ALL) {
        server.given(submit(id, "bill", after(&[1], on_dead)));
    }
    server
}

/// Unfinished, done, dead, gone.
fn counts(server: &Server, id: u64) -> [u32; 4] {
    let BatchCounts { unfinished, done, dead, gone } =
        server.state.batch(JobId(id)).expect("the batch is there").counts;
    [unfinished, done, dead, gone]
}

fn ended(server: &Server, id: u64) -> bool {
    server.state.batch(JobId(id)).expect("the batch is there").ended_ms.is_some()
}

fn statuses<const N: usize>(server: &Server, ids: [u64; N]) -> [Option<Status>; N] {
    ids.map(|id| server.status(id))
}

#[test]
fn a_batch_counts_its_jobs_and_ends_when_it_is_sealed_and_all_have_ended() {
    let mut server = with_two();
    assert_eq!(counts(&server, 1), [2, 0, 0, 0]);
    assert_eq!(server.then(done(2)), ["Finished", "BatchesCounted"]);
    server.given(done(3));
    server.tick();
    assert_eq!((counts(&server, 1), ended(&server, 1)), ([0, 2, 0, 0], false));
    assert_eq!(statuses(&server, [4, 5, 6]), [Some(Status::Blocked); 3], "it is open");
    server.assert_folds();
    assert_eq!(server.then(seal(1)), ["BatchSet"]);
    assert!(ended(&server, 1));
    server.tick();
    assert_eq!(statuses(&server, [4, 5, 6]), [Some(Status::Ready); 3]);
    server.assert_folds();
}

#[test]
fn those_that_wait_for_a_batch_go_on_or_are_cancelled_as_after_a_job() {
    let [blocked, ready, cancelled] = [Status::Blocked, Status::Ready, Status::Dead].map(Some);
    for (end, expected) in [
        (done(3), [ready; 3]),
        (dead(3), [cancelled, ready, blocked]),
        (delete(3), [cancelled, ready, cancelled]),
    ] {
        let mut server = with_two();
        server.given(seal(1));
        server.given(done(2));
        server.tick();
        assert_eq!(statuses(&server, [4, 5, 6]), [blocked; 3]);
        server.assert_folds();
        server.given(end);
        server.tick();
        assert_eq!(statuses(&server, [4, 5, 6]), expected);
        server.assert_folds();
    }
    let mut server = with_two();
    server.given(seal(1));
    server.given(dead(2));
    server.given(dead(3));
    server.tick();
    let message = server.finished(4).outcome.expect("it was cancelled").message;
    assert_eq!(message, "batch 1, which it waited for, has jobs that are dead: 2");
}

#[test]
fn an_empty_batch_is_done_when_it_is_sealed() {
    let mut server = Server::new();
    server.given(open(1));
    server.given(submit(2, "mail", after(&[1], OnDead::Cancel)));
    server.tick();
    assert_eq!(server.status(2), Some(Status::Blocked));
    server.given(seal(1));
    server.tick();
    assert_eq!((server.status(2), counts(&server, 1)), (Some(Status::Ready), [0; 4]));
}

#[test]
fn jobs_count_as_what_they_were_when_they_go() {
    let mut server = with_two();
    server.given(submit(7, "mail", of(1)));
    server.given(done(2));
    server.given(dead(3));
    assert_eq!(counts(&server, 1), [1, 1, 1, 0]);
    server.assert_folds();
    for (id, expected) in [(2, [1, 1, 1, 0]), (3, [1, 1, 0, 1]), (7, [0, 1, 0, 2])] {
        server.given(delete(id));
        assert_eq!(counts(&server, 1), expected, "after {id} went");
        server.assert_folds();
    }
    assert_eq!(server.state.members(JobId(1), JobId(0)).count(), 0);
}

#[test]
fn a_retried_job_of_an_ended_batch_opens_its_end_again() {
    let mut server = with_two();
    server.given(seal(1));
    server.given(done(2));
    server.given(dead(3));
    server.tick();
    assert_eq!(statuses(&server, [5, 6]), [Some(Status::Ready), Some(Status::Blocked)]);
    assert!(ended(&server, 1));
    server.given(retry(&server, 3));
    assert_eq!((counts(&server, 1), ended(&server, 1)), ([1, 1, 0, 0], false));
    server.assert_folds();
    server.given(done(3));
    server.tick();
    assert_eq!((counts(&server, 1), server.status(6)), ([0, 2, 0, 0], Some(Status::Ready)));
    server.given(retry(&server, 2));
    assert_eq!(counts(&server, 1), [1, 1, 0, 0]);
}

#[test]
fn a_deleted_job_counts_as_before_while_that_can_be_undone() {
    let mut server = with_two();
    server.given(seal(1));
    server.given(done(2));
    server.given(Command::DeleteLater { id: JobId(3), request: 7, undo_ms: 1_000 });
    assert_eq!((counts(&server, 1), ended(&server, 1)), ([1, 1, 0, 0], false));
    server.assert_folds();
    server.given(Command::Undelete { id: JobId(3) });
    server.given(Command::DeleteLater { id: JobId(3), request: 8, undo_ms: 1_000 });
    server.pass(1_000);
    assert_eq!((counts(&server, 1), ended(&server, 1)), ([0, 1, 0, 1], true));
}

#[test]
fn batches_in_a_batch_count_there_as_one_job_each() {
    let mut server = Server::new();
    server.given(open(1));
    server.given(open_with(2, within(1)));
    server.given(open_with(3, within(2)));
    server.given(submit(4, "mail", of(3)));
    assert_eq!([1, 2, 3].map(|id| counts(&server, id)), [[1, 0, 0, 0]; 3]);
    for id in [1, 2, 3] {
        server.given(seal(id));
    }
    server.assert_folds();
    assert_eq!(server.then(dead(4)), ["Finished", "BatchesCounted"]);
    assert_eq!([1, 2, 3].map(|id| counts(&server, id)), [[0, 0, 1, 0]; 3]);
    assert!([1, 2, 3].iter().all(|id| ended(&server, *id)));
    server.given(retry(&server, 4));
    assert_eq!([1, 2, 3].map(|id| counts(&server, id)), [[1, 0, 0, 0]; 3]);
    server.given(done(4));
    assert_eq!([1, 2, 3].map(|id| counts(&server, id)), [[0, 1, 0, 0]; 3]);
    server.assert_folds();
    let members: Vec<u64> = server.state.members(JobId(1), JobId(0)).map(|id| id.0).collect();
    assert_eq!(members, [2]);
}

#[test]
fn an_empty_batch_in_a_batch_is_done_when_it_is_sealed() {
    let mut server = Server::new();
    server.given(open(1));
    server.given(open_with(2, within(1)));
    server.given(seal(1));
    assert!(!ended(&server, 1));
    assert_eq!(server.then(seal(2)), ["BatchSet", "BatchesCounted"]);
    assert_eq!((counts(&server, 1), ended(&server, 1)), ([0, 1, 0, 0], true));
}

#[test]
fn an_ended_batch_is_kept_as_long_as_asked_and_a_dead_one_in_another_counts_as_gone() {
    let mut server = Server::new();
    server.given(open_with(1, |open| open.keep_ms = 10 * KEEP_MS));
    server.given(open_with(2, within(1)));
    server.given(submit(3, "mail", of(2)));
    server.given(submit(4, "bill", after(&[1], OnDead::Wait)));
    server.given(submit(5, "bill", after(&[2], OnDead::Wait)));
    server.given(seal(1));
    server.given(seal(2));
    server.given(dead(3));
    assert_eq!(server.pass(KEEP_MS - 1), [""; 0]);
    assert_eq!(server.pass(1)[..2], ["BatchesGone", "BatchesCounted"]);
    assert_eq!(server.state.batch(JobId(2)), None);
    assert_eq!(counts(&server, 1), [0, 0, 0, 1]);
    assert_eq!(statuses(&server, [4, 5]), [Some(Status::Dead); 2], "it can be done no more");
    let outcome = server.finished(5).outcome.expect("it was cancelled");
    assert_eq!(outcome.message, "job 2, which it waited for, is gone");
    server.assert_folds();
    server.given(retry(&server, 3));
    assert_eq!(counts(&server, 1), [0, 0, 0, 1], "its batch is gone");
    server.pass(10 * KEEP_MS);
    assert_eq!(server.state.batches_count(), 0);
}

#[test]
fn a_batch_that_goes_together_with_its_dead_job_counts_once_as_gone() {
    let mut server = Server::new();
    let keep_ms = server.state.defaults().keep_dead_ms;
    server.given(open_with(1, |open| open.keep_ms = 10 * keep_ms));
    for id in [2, 4] {
        server.given(open_with(id, |open| {
            within(1)(open);
            open.keep_ms = keep_ms;
        }));
        server.given(submit(id + 1, "mail", of(id)));
        server.given(seal(id));
        server.given(dead(id + 1));
        server.pass(10);
    }
    assert_eq!(counts(&server, 1), [0, 0, 2, 0]);
    assert_eq!(server.pass(keep_ms - 20), ["Gone", "BatchesCounted", "BatchesGone"]);
    assert_eq!(counts(&server, 1), [0, 0, 1, 1]);
}

#[test]
fn a_batch_that_goes_together_with_its_surplus_job_counts_once_as_gone() {
    let mut server = Server::new();
    let settings = QueueSettings { finished_max: Some(0), ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    server.given(open(1));
    server.given(open_with(2, |open| {
        within(1)(open);
        open.keep_ms = 0;
    }));
    server.given(submit(3, "mail", of(2)));
    server.given(seal(2));
    server.given(dead(3));
    server.tick();
    assert_eq!((server.status(3), server.state.batch(JobId(2))), (None, None));
    assert_eq!(counts(&server, 1), [0, 0, 0, 1]);
}

#[test]
fn batches_that_go_together_count_once_each() {
    let mut server = Server::new();
    server.given(open(1));
    // The innermost one is kept.
    for id in 2..6 {
        server.given(open_with(id, |open| {
            within(id - 1)(open);
            open.keep_ms = if id == 5 { KEEP_MS } else { 0 };
        }));
    }
    server.given(submit(6, "mail", of(5)));
    server.given(dead(6));
    for id in [2, 3, 4, 5] {
        server.given(seal(id));
    }
    assert_eq!(counts(&server, 1), [0, 0, 1, 0]);
    assert_eq!(server.pass(0), ["BatchesGone", "BatchesCounted"]);
    let left: Vec<u64> = server.state.batches_from(JobId(0)).map(|batch| batch.id).collect();
    assert_eq!((left, counts(&server, 1)), (vec![1, 5], [0, 0, 0, 1]));
}

#[test]
fn a_cancelled_batch_is_sealed_and_says_so() {
    let mut server = with_two();
    assert_eq!(server.then(Command::CancelBatch { id: JobId(1) }), ["BatchSet"]);
    assert_eq!(server.then(Command::CancelBatch { id: JobId(1) }), [""; 0]);
    let refused = server.refused(submit(7, "mail", of(1)));
    assert_eq!(refused, Rejection::BatchSealed(JobId(1)));
    for id in [2, 3] {
        server.given(Command::Cancel { id: JobId(id) });
    }
    server.tick();
    assert!(ended(&server, 1));
    let batch = server.state.batch(JobId(1)).expect("it is kept");
    assert!(batch.is_cancelled);
    server.assert_folds();
    let mut server = with_two();
    server.given(seal(1));
    server.given(Command::CancelBatch { id: JobId(1) });
    assert!(server.state.batch(JobId(1)).expect("it is kept").is_cancelled);
}

#[test]
fn what_cannot_be_added_or_opened_is_refused() {
    let mut server = with_two();
    let no_batch = |id| Rejection::NoBatch(JobId(id));
    // 2 is a job.
    for id in [0, 2, 99] {
        assert_eq!(server.refused(submit(9, "mail", of(id))), no_batch(id));
        assert_eq!(server.refused(seal(id)), no_batch(id));
        assert_eq!(server.refused(Command::CancelBatch { id: JobId(id) }), no_batch(id));
        assert_eq!(server.refused(open_with(9, within(id))), no_batch(id));
    }
    for id in [0, 1, 2, 1_000_000] {
        assert_eq!(server.refused(open(id)), Rejection::IdNotReserved, "{id}");
    }
    assert_eq!(server.refused(submit(1, "mail", |_| {})), Rejection::IdNotReserved);
    assert_eq!(
        server.refused(submit_by(Origin::Gearman, 9, "mail", |submit| {
            submit.foreground = true;
            submit.batch = Some(JobId(1));
        })),
        Rejection::OutOfRange("batch")
    );
    server.given(seal(1));
    assert_eq!(server.refused(seal(1)), Rejection::BatchSealed(JobId(1)));
    assert_eq!(server.refused(submit(9, "mail", of(1))), Rejection::BatchSealed(JobId(1)));
    assert_eq!(server.refused(open_with(9, within(1))), Rejection::BatchSealed(JobId(1)));

    let text = |len| "n".repeat(len);
    let name = |len| open_with(9, |open| open.name = text(len));
    let key = |len| open_with(10, |open| open.key = Bytes::from(text(len)));
    for (limit, at) in
        [(BATCH_NAME_BYTES_MAX, &name as &dyn Fn(usize) -> Command), (BATCH_NAME_BYTES_MAX, &key)]
    {
        assert!(matches!(server.refused(at(limit + 1)), Rejection::OutOfRange(_)));
        server.given(at(limit));
    }
    let taken = Rejection::KeyTaken(JobId(10));
    assert_eq!(
        server.refused(open_with(12, |open| open.key = Bytes::from(text(BATCH_NAME_BYTES_MAX)))),
        taken
    );
    assert_eq!(
        server.refused(open_with(12, |open| open.queue = Bytes::new())),
        Rejection::OutOfRange("queue name")
    );
}

#[test]
fn a_batch_has_ten_thousand_jobs_and_lies_ten_deep() {
    let mut server = Server::new();
    server.given(open(1));
    let last = 1 + u64::from(BATCH_JOBS_MAX);
    for id in 2..=last {
        server.given(submit(id, "mail", of(1)));
    }
    let full = Rejection::BatchFull(JobId(1));
    assert_eq!(server.refused(submit(last + 1, "mail", of(1))), full);
    assert_eq!(server.refused(open_with(last + 1, within(1))), full);
    server.given(done(2));
    assert_eq!(server.refused(submit(last + 1, "mail", of(1))), full, "it counts what has ended");

    let mut server = Server::new();
    server.given(open(1));
    let deepest = BATCH_DEPTH_MAX as u64;
    for id in 2..=deepest {
        server.given(open_with(id, within(id - 1)));
    }
    let refused = server.refused(open_with(deepest + 1, within(deepest)));
    assert_eq!(refused, Rejection::OutOfRange("the depth of the batch"));
}

/// Batch 1, and job 2 that waits for it.
fn with_follower() -> Server {
    let mut server = Server::new();
    server.given(open(1));
    server.given(submit(2, "bill", after(&[1], OnDead::Run)));
    server
}

fn of_and_after(batch: u64, ids: &[u64]) -> impl FnOnce(&mut Submit) {
    move |submit| {
        of(batch)(submit);
        after(ids, OnDead::Run)(submit);
    }
}

#[test]
fn a_job_that_would_wait_for_itself_is_refused() {
    let mut server = with_follower();
    let circle = |server: &mut Server, batch, id| {
        let refused = server.refused(submit(90, "mail", of_and_after(batch, &[id])));
        assert_eq!(refused, Rejection::Circle, "of {batch} after {id}");
    };
    circle(&mut server, 1, 1);
    circle(&mut server, 1, 2);
    // Through a job that waits for the waiting job.
    server.given(submit(3, "bill", after(&[2], OnDead::Run)));
    circle(&mut server, 1, 3);
    // Through a batch with a waiting job.
    server.given(open(4));
    server.given(submit(5, "bill", of_and_after(4, &[3])));
    circle(&mut server, 1, 4);
    // Through the batch that the batch is in.
    server.given(open_with(6, within(1)));
    for id in [1, 2, 3, 4] {
        circle(&mut server, 6, id);
    }
    // The other way round there is no circle.
    server.given(submit(7, "mail", of(1)));
    server.given(submit(8, "mail", of_and_after(1, &[6, 7])));
    server.given(submit(9, "mail", of_and_after(4, &[1])));
    for id in [7, 8] {
        server.given(done(id));
        server.tick();
    }
    server.given(seal(6));
    server.given(seal(1));
    server.tick();
    assert_eq!(statuses(&server, [2, 9]), [Some(Status::Ready); 2]);
}

#[test]
fn a_retried_job_does_not_wait_for_what_waits_for_it() {
    let mut server = Server::new();
    server.given(open(1));
    server.given(open(2));
    server.given(submit(3, "mail", of_and_after(2, &[1])));
    server.given(seal(2));
    server.given(Command::Cancel { id: JobId(3) });
    // Nobody waits for batch 1 now, so a job of it may wait for batch 2, which has ended.
    server.given(submit(4, "mail", of_and_after(1, &[2])));
    server.given(retry(&server, 3));
    assert_eq!(server.image(3).options().open(), [1]);
    server.given(dead(4));
    server.given(retry(&server, 4));
    assert_eq!(
        server.status(4),
        Some(Status::Ready),
        "batch 2 waits for job 3, which waits for it"
    );
    server.given(seal(1));
    server.given(done(4));
    server.tick();
    assert_eq!(server.status(3), Some(Status::Ready));
    server.assert_folds();
}

#[test]
fn so_much_behind_a_batch_that_a_circle_is_hard_to_see_refuses_what_waits() {
    let mut server = Server::new();
    server.given(open(1));
    server.given(submit(2, "mail", |_| {}));
    let last = 2 + 10_000;
    for id in 3..=last {
        server.given(submit(id, "bill", after(&[1], OnDead::Run)));
    }
    server.given(submit(last + 1, "mail", of_and_after(1, &[2])));
    server.given(submit(last + 2, "bill", after(&[1], OnDead::Run)));
    let refused = server.refused(submit(last + 3, "mail", of_and_after(1, &[2])));
    assert_eq!(refused, Rejection::FlowTooLarge);
    server.given(submit(last + 3, "mail", of(1)));
}

#[test]
fn as_many_batches_are_kept_as_fit_and_one_more_is_refused() {
    let mut server = Server::new();
    let first = open(1);
    server.given(first);
    let opened = server.state.batch(JobId(1)).expect("just opened").clone();
    // Opening each would take a minute.
    for id in 2..BATCHES_MAX as u64 {
        let batch = Some(Box::new(Batch { id, ..opened.clone() }));
        let at = Place { position: server.position, offset: 0 };
        server.state.evolve(&Event::BatchSet(BatchSet { batch }), at);
        server.position += 1;
    }
    let last = BATCHES_MAX as u64;
    server.given(open(last));
    let refused = server.refused(open(last + 1));
    assert_eq!(refused, Rejection::OutOfRange("the number of batches"));
}

#[test]
fn many_ends_in_one_step_are_counted_in_bounded_steps() {
    let mut server = Server::new();
    let jobs = 3 * EVENTS_MAX as u64;
    // A batch for each job, and one around all of them.
    server.given(open(1));
    for id in (2..2 * jobs).step_by(2) {
        server.given(open_with(id, within(1)));
        server.given(submit(id + 1, "mail", |submit| {
            of(id)(submit);
            submit.ttl_ms = Some(500);
        }));
        server.given(seal(id));
    }
    server.given(seal(1));
    server.restart();
    server.pass(500);
    assert_eq!(counts(&server, 1), [0, 0, 0, jobs as u32 - 1]);
    assert_eq!(server.folded(0).dump(server.now_ms), server.state.dump(server.now_ms));
}

#[test]
fn the_fold_knows_a_batch_whose_first_records_are_gone() {
    let mut server = with_two();
    let first = server.position;
    for item in server.state.items_needing(first) {
        server.given(Command::Compact(item));
    }
    // From here on the log has only the ends of 2 and 3.
    server.given(delete(2));
    server.given(done(3));
    let folded = server.folded(first);
    assert_eq!(folded.batch(JobId(1)), server.state.batch(JobId(1)));
    let opened = |event: &Event| matches!(event, Event::BatchSet(_));
    assert!(server.log.iter().any(|(place, event)| place.position >= first && opened(event)));
    assert!(folded.batch(JobId(1)).expect("it is there").opened_ms == START_MS);
}
