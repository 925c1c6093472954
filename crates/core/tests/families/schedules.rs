//! Schedules: a time fires once, in one record with its job.

use prost::Message as _;
use spindle_core::command::{Compact, FireSchedule, Occasion, SetSchedule, Submit};
use spindle_core::event::ScheduleSet;
use spindle_core::job::JobId;
use spindle_core::schedule::{
    Due, MISSED_AFTER_MS, Missed, Outcome, Overlap, Progress, SCHEDULE_NAME_BYTES_MAX,
    SCHEDULE_PAYLOAD_BYTES_MAX, SCHEDULES_BYTES_MAX, SCHEDULES_MAX, Schedule, tag_of,
};
use spindle_core::{BytesRef, Command, Event, Place, Rejection, Status, Type};

use crate::harness::{START_MS, Server, complete};

const HOUR: u64 = 3_600_000;

fn due(due_ms: u64) -> Due {
    Due { due_ms, fire_ms: due_ms }
}

fn schedule(change: impl FnOnce(&mut Schedule)) -> Schedule {
    let mut schedule = Schedule {
        name: "report".to_owned(),
        expression: "@hourly".to_owned(),
        zone: "UTC".to_owned(),
        ..Schedule::default()
    };
    schedule.job.queue = b"mail".to_vec();
    change(&mut schedule);
    schedule
}

fn set(schedule: &Schedule, next: Option<Due>) -> Command {
    Command::SetSchedule(Box::new(SetSchedule { schedule: schedule.clone(), next }))
}

/// A server with a schedule that fires in an hour.
fn server_with(change: impl FnOnce(&mut Schedule)) -> Server {
    let mut server = Server::new();
    server.given(set(&schedule(change), Some(due(START_MS + HOUR))));
    server
}

fn progress(server: &Server) -> Progress {
    server.state.schedule("report").expect("it was set").progress.clone()
}

fn fire(server: &Server, id: u64, change: impl FnOnce(&mut FireSchedule)) -> Command {
    let known = server.state.schedule("report").expect("it was set");
    let mut job = known.schedule.job.submit("report", JobId(id), BytesRef::empty(Type::Bytes));
    job.constraints_revision = 0;
    let due_ms = known.progress.next.map_or(0, |next| next.due_ms);
    let occasion = Occasion::Due {
        following: Some(due(due_ms + HOUR)),
        resumed: Some(due((server.now_ms / HOUR + 1) * HOUR)),
    };
    let revision = known.progress.revision;
    let mut fire = FireSchedule { name: "report".to_owned(), revision, due_ms, occasion, job };
    change(&mut fire);
    Command::FireSchedule(Box::new(fire))
}

fn outcome(server: &Server) -> Outcome {
    progress(server).last.expect("it was looked at").outcome()
}

#[test]
fn a_time_fires_once() {
    let mut server = server_with(|_| {});
    let early = fire(&server, 1, |_| {});
    assert_eq!(server.refused(early), Rejection::NotDue);
    server.now_ms = START_MS + HOUR;
    let first = fire(&server, 1, |_| {});
    assert_eq!(server.then(first.clone()), ["Submitted", "ScheduleFired"]);
    let Command::FireSchedule(again) = first else { unreachable!("it is one") };
    let job = Submit { id: JobId(2), ..again.job.clone() };
    let again = Command::FireSchedule(Box::new(FireSchedule { job, ..*again }));
    assert_eq!(server.refused(again), Rejection::Stale);
    let job = server.image(1);
    assert_eq!((job.status(), &job.queue[..]), (Status::Ready, &b"mail"[..]));
    assert_eq!(job.options().tags, [tag_of("report").into_bytes()]);
    let now = progress(&server);
    assert_eq!((now.last_job, now.submitted), (Some(1), 1));
    assert_eq!(now.next, Some(due(START_MS + 2 * HOUR)));
    assert_eq!(server.state.next_firing(), Some(START_MS + 2 * HOUR));
}

#[test]
fn the_log_brings_job_and_step_back_together() {
    let mut server = server_with(|_| {});
    server.now_ms = START_MS + HOUR;
    let first = fire(&server, 1, |_| {});
    server.given(first.clone());
    server.restart();
    assert_eq!(server.refused(first), Rejection::Stale);
    assert_eq!(server.state.next_firing(), Some(START_MS + 2 * HOUR));
    assert_eq!(server.status(1), Some(Status::Ready));
}

#[test]
fn a_put_schedule_keeps_what_has_come_of_it_and_has_a_new_revision() {
    let mut server = server_with(|_| {});
    server.now_ms = START_MS + HOUR;
    let old = fire(&server, 1, |_| {});
    let changed = schedule(|it| it.job.priority = 7);
    server.given(set(&changed, Some(due(START_MS + HOUR))));
    assert_eq!(progress(&server).revision, 2);
    assert_eq!(server.refused(old), Rejection::Stale);
    let first = fire(&server, 1, |_| {});
    server.given(first);
    server.given(set(&schedule(|_| {}), Some(due(START_MS + 9 * HOUR))));
    let now = progress(&server);
    assert_eq!((now.revision, now.last_job, now.submitted), (3, Some(1), 1));
    assert_eq!(server.image(1).priority, 7);
    assert_eq!(server.state.next_firing(), Some(START_MS + 9 * HOUR));
}

#[test]
fn a_removed_schedule_fires_no_more() {
    let mut server = server_with(|_| {});
    server.now_ms = START_MS + HOUR;
    let old = fire(&server, 1, |_| {});
    let remove = Command::RemoveSchedule { name: "report".to_owned() };
    assert_eq!(server.then(remove.clone()), ["ScheduleRemoved"]);
    assert_eq!(server.state.next_firing(), None);
    assert_eq!(server.refused(remove), Rejection::NoSchedule);
    assert_eq!(server.refused(old.clone()), Rejection::NoSchedule);
    // A new schedule of the same name is another schedule.
    server.given(set(&schedule(|_| {}), Some(due(START_MS + HOUR))));
    assert_eq!(server.refused(old), Rejection::Stale);
    assert_eq!(progress(&server).last_job, None);
}

#[test]
fn a_paused_schedule_does_not_fire_and_runs_when_a_person_says_so() {
    let mut server = server_with(|it| it.paused = true);
    server.now_ms = START_MS + 2 * HOUR;
    assert_eq!(server.state.next_firing(), None);
    let paused = fire(&server, 1, |_| {});
    assert_eq!(server.refused(paused), Rejection::NotDue);
    let before = progress(&server).next;
    let now_ms = server.now_ms;
    let now = fire(&server, 1, |fire| (fire.occasion, fire.due_ms) = (Occasion::Now, now_ms));
    assert_eq!(server.then(now), ["Submitted", "ScheduleFired"]);
    assert_eq!(progress(&server).next, before);
}

/// Fires the times that are due five hours after the start. All but the last are missed.
fn missed(change: impl FnOnce(&mut Schedule)) -> (Vec<Outcome>, Progress) {
    let mut server = server_with(change);
    server.now_ms = START_MS + 5 * HOUR + 1;
    let mut outcomes = Vec::new();
    let mut id = 1;
    while server.state.next_firing().is_some_and(|at| at <= server.now_ms) {
        let next = fire(&server, id, |_| {});
        server.given(next);
        outcomes.push(outcome(&server));
        id += 1;
    }
    (outcomes, progress(&server))
}

#[test]
fn what_was_missed_is_skipped_or_made_up_as_asked() {
    use Outcome::{Missed as Passed, Submitted};
    let behind = (START_MS + 5 * HOUR) / HOUR * HOUR + HOUR;
    let (outcomes, now) = missed(|it| it.missed = Missed::Skip as i32);
    assert_eq!((outcomes, now.next), (vec![Passed], Some(due(behind))));
    let (outcomes, now) = missed(|it| it.missed = Missed::Once as i32);
    assert_eq!((outcomes, now.next), (vec![Submitted], Some(due(behind))));
    let all = |max| missed(|it| (it.missed, it.missed_max) = (Missed::All as i32, max));
    // The fifth is on time.
    assert_eq!(all(1_000).0, [Submitted; 5]);
    assert_eq!(all(2).0, [Submitted, Submitted, Passed]);
}

#[test]
fn a_time_is_missed_when_it_is_late_by_more_than_a_minute() {
    for (late_ms, expected) in
        [(MISSED_AFTER_MS, Outcome::Submitted), (MISSED_AFTER_MS + 1, Outcome::Missed)]
    {
        let mut server = server_with(|_| {});
        server.now_ms = START_MS + HOUR + late_ms;
        let late = fire(&server, 1, |_| {});
        server.given(late);
        assert_eq!(outcome(&server), expected, "late by {late_ms} ms");
    }
}

/// The second time comes while the first job is unfinished.
fn overlapping(overlap: Overlap) -> Server {
    let mut server = server_with(|it| it.overlap = overlap as i32);
    for id in 1..=2 {
        server.now_ms = START_MS + id * HOUR;
        let next = fire(&server, id, |_| {});
        server.given(next);
    }
    server
}

#[test]
fn a_time_that_overlaps_comes_is_passed_over_or_replaces_as_asked() {
    let server = overlapping(Overlap::Allow);
    assert_eq!((server.status(1), server.status(2)), (Some(Status::Ready), Some(Status::Ready)));
    let server = overlapping(Overlap::Skip);
    assert_eq!((outcome(&server), server.status(2)), (Outcome::Overlapped, None));
    let server = overlapping(Overlap::Replace);
    assert_eq!(server.status(2), Some(Status::Ready));
    assert_eq!(server.finished(1).outcome.expect("it ended").code, "cancelled");
}

#[test]
fn one_pending_job_comes_when_the_last_one_has_ended() {
    let mut server = overlapping(Overlap::QueueOne);
    assert_eq!((outcome(&server), server.status(2)), (Outcome::Pending, None));
    server.now_ms = START_MS + 3 * HOUR;
    let third = fire(&server, 2, |_| {});
    server.given(third);
    let first = START_MS + 2 * HOUR;
    assert_eq!(progress(&server).pending_ms, Some(first), "one, for the first of them");
    let pending = |fire: &mut FireSchedule| {
        (fire.occasion, fire.due_ms) = (Occasion::Pending, first);
    };
    let early = fire(&server, 2, pending);
    assert_eq!(server.refused(early), Rejection::NotDue);
    assert_eq!(server.state.next_firing(), Some(START_MS + 4 * HOUR));
    let (_, claim) = server.lease("mail").expect("the first job is ready");
    server.given(complete(claim));
    assert_eq!(server.state.next_firing(), Some(0));
    server.restart();
    assert_eq!(server.state.next_firing(), Some(0));
    let now = fire(&server, 2, pending);
    assert_eq!(server.then(now.clone()), ["Submitted", "ScheduleFired"]);
    assert_eq!(server.refused(now), Rejection::Stale);
    assert_eq!((progress(&server).pending_ms, server.status(2)), (None, Some(Status::Ready)));
    assert_eq!(server.state.next_firing(), Some(START_MS + 4 * HOUR));
}

#[test]
fn a_deleted_job_has_ended_even_if_that_can_be_undone() {
    let delete = Command::DeleteLater { id: JobId(1), request: 7, undo_ms: 24 * HOUR };
    let deleted = |overlap: Overlap| {
        let mut server = server_with(|it| it.overlap = overlap as i32);
        server.now_ms = START_MS + HOUR;
        let first = fire(&server, 1, |_| {});
        server.given(first);
        server.given(delete.clone());
        server.now_ms = START_MS + 2 * HOUR;
        let second = fire(&server, 2, |_| {});
        server.given(second);
        server
    };
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::Replace] {
        let mut server = deleted(overlap);
        let came = (outcome(&server), server.status(1), server.status(2));
        let parked = Some(Status::Parked);
        assert_eq!(came, (Outcome::Submitted, parked, Some(Status::Ready)), "{overlap:?}");
        server.given(Command::Undelete { id: JobId(1) });
        assert_eq!(server.status(1), Some(Status::Ready));
    }
    let mut server = overlapping(Overlap::QueueOne);
    let next = server.state.next_firing();
    assert!(next > Some(0));
    server.given(delete);
    assert_eq!(server.state.next_firing(), Some(0), "the pending job may come");
    server.given(Command::Undelete { id: JobId(1) });
    assert_eq!(server.state.next_firing(), next, "it has to wait again");
}

#[test]
fn a_job_that_is_refused_does_not_hold_its_schedule_up() {
    let mut server = server_with(|it| it.overlap = Overlap::Replace as i32);
    server.now_ms = START_MS + HOUR;
    let first = fire(&server, 1, |_| {});
    server.given(first);
    let settings = spindle_core::queue::QueueSettings { jobs_max: Some(0), ..Default::default() };
    server.given(Command::SetQueue { name: "mail".into(), settings });
    server.now_ms = START_MS + 2 * HOUR;
    let second = fire(&server, 2, |_| {});
    assert_eq!(server.then(second), ["ScheduleFired"]);
    let last = progress(&server).last.expect("it was looked at");
    assert_eq!((last.outcome(), &last.reason[..]), (Outcome::Refused, "the queue is full"));
    assert_eq!(server.status(1), Some(Status::Ready), "what it would replace stays");
    assert_eq!(progress(&server).next, Some(due(START_MS + 3 * HOUR)));
    // Outdated labels can be made anew, and a person is told why there is no job.
    server.now_ms = START_MS + 3 * HOUR;
    let stale = fire(&server, 2, |fire| fire.job.constraints_revision = 5);
    assert_eq!(server.refused(stale), Rejection::StaleConstraints);
    let now = fire(&server, 2, |fire| fire.occasion = Occasion::Now);
    assert_eq!(server.refused(now), Rejection::QueueFull);
}

#[test]
fn a_replaced_job_makes_room_for_the_one_that_replaces_it() {
    let mut server = server_with(|it| it.overlap = Overlap::Replace as i32);
    let settings = spindle_core::queue::QueueSettings { jobs_max: Some(1), ..Default::default() };
    server.given(Command::SetQueue { name: "mail".into(), settings });
    for id in 1..=2 {
        server.now_ms = START_MS + id * HOUR;
        let next = fire(&server, id, |_| {});
        server.given(next);
    }
    assert_eq!((outcome(&server), server.status(2)), (Outcome::Submitted, Some(Status::Ready)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut server = Server::new();
    let long = "x".repeat(SCHEDULE_NAME_BYTES_MAX + 1);
    let changes: [fn(&mut Schedule); 8] = [
        |it| it.name.clear(),
        |it| it.job.queue.clear(),
        |it| it.job.payload = vec![0; 64 * 1024 + 1],
        |it| it.job.ttr_ms = Some(0),
        |it| it.jitter_ms = HOUR + 1,
        |it| it.missed = Missed::All as i32,
        |it| (it.missed, it.missed_max) = (Missed::All as i32, 1_001),
        |it| it.expression = "x".repeat(256),
    ];
    for change in changes {
        let refused = server.refused(set(&schedule(change), None));
        assert!(matches!(refused, Rejection::OutOfRange(_)), "{refused}");
    }
    let refused = server.refused(set(&schedule(|it| it.name = long), None));
    assert!(matches!(refused, Rejection::OutOfRange(_)), "{refused}");
}

#[test]
fn what_just_fits_is_taken() {
    let mut server = Server::new();
    let changes: [fn(&mut Schedule); 5] = [
        |it| it.name = "x".repeat(SCHEDULE_NAME_BYTES_MAX),
        |it| it.job.payload = vec![0; SCHEDULE_PAYLOAD_BYTES_MAX],
        |it| it.jitter_ms = HOUR,
        |it| (it.missed, it.missed_max) = (Missed::All as i32, 1_000),
        |it| it.expression = "x".repeat(255),
    ];
    for change in changes {
        server.given(set(&schedule(change), None));
    }
}

/// A server on which the schedules 0 to `last` - 1 were set, each with so much payload.
fn with_schedules(last: usize, payload: usize) -> Server {
    let mut server = Server::new();
    for n in 0..last {
        let schedule = numbered(n, payload);
        let set = ScheduleSet {
            schedule: Some(Box::new(schedule)),
            progress: Some(Box::new(Progress::default())),
        };
        let at = Place { position: server.position, offset: 0 };
        server.state.evolve(&Event::ScheduleSet(set), at);
        server.position += 1;
    }
    server
}

fn numbered(n: usize, payload: usize) -> Schedule {
    schedule(|it| {
        it.name = format!("{n:05}");
        it.job.payload = vec![b'p'; payload];
    })
}

#[test]
fn as_many_schedules_are_kept_as_fit_and_one_more_is_refused() {
    let mut server = with_schedules(SCHEDULES_MAX - 1, 0);
    server.given(set(&numbered(SCHEDULES_MAX - 1, 0), None));
    let refused = server.refused(set(&numbered(SCHEDULES_MAX, 0), None));
    assert_eq!(refused, Rejection::OutOfRange("the number of schedules"));
    server.given(set(&numbered(7, 10), None));
    server.given(Command::RemoveSchedule { name: "00007".to_owned() });
    server.given(set(&numbered(SCHEDULES_MAX, 0), None));
}

#[test]
fn schedules_are_kept_up_to_their_bytes_and_one_byte_more_is_refused() {
    let mut server = with_schedules(1_023, SCHEDULE_PAYLOAD_BYTES_MAX);
    let room = SCHEDULES_BYTES_MAX - server.state.schedules_bytes();
    assert!(room < SCHEDULE_PAYLOAD_BYTES_MAX as u64, "{room}");
    // The length of this payload takes as many bytes as that of the real one.
    let around = numbered(1_023, 20_000).encoded_len() as u64 - 20_000;
    let payload = usize::try_from(room - around).expect("it is small");
    assert!((16_384..=SCHEDULE_PAYLOAD_BYTES_MAX).contains(&payload), "{payload}");
    let refused = server.refused(set(&numbered(1_023, payload + 1), None));
    assert_eq!(refused, Rejection::OutOfRange("the bytes of all schedules"));
    server.given(set(&numbered(1_023, payload), None));
    assert_eq!(server.state.schedules_bytes(), SCHEDULES_BYTES_MAX);
}

#[test]
fn a_compacted_schedule_is_as_it_was() {
    let mut server = overlapping(Overlap::QueueOne);
    let first = server.position;
    let before = (progress(&server), server.state.schedules_bytes());
    let items = server.state.items_needing(first);
    assert!(items.contains(&Compact::Schedule("report".to_owned())));
    for item in items {
        server.given(Command::Compact(item));
    }
    let folded = server.folded(first);
    let now = folded.schedule("report").expect("it was compacted");
    assert_eq!((now.progress.clone(), folded.schedules_bytes()), before);
    assert_eq!(folded.server().schedules_revision, 1);
    let unknown = Compact::Schedule("unknown".to_owned());
    assert_eq!(server.refused(Command::Compact(unknown)), Rejection::NoSchedule);
}

#[test]
fn schedules_come_in_the_order_of_their_names_and_fire_in_that_of_their_times() {
    let mut server = Server::new();
    for (name, at) in [("b", 3), ("c", 1), ("a", 2)] {
        let named = schedule(|it| it.name = name.to_owned());
        server.given(set(&named, Some(due(START_MS + at))));
    }
    let names = |views: Vec<spindle_core::state::ScheduleView<'_>>| -> Vec<String> {
        views.iter().map(|view| view.schedule.name.clone()).collect()
    };
    assert_eq!(names(server.state.schedules(None).collect()), ["a", "b", "c"]);
    assert_eq!(names(server.state.schedules(Some("a")).collect()), ["b", "c"]);
    assert_eq!(names(server.state.due_schedules(START_MS + 2).collect()), ["c", "a"]);
    let is_event = |event: &Event| matches!(event, Event::ScheduleSet(_));
    assert_eq!(server.log.iter().filter(|(_, event)| is_event(event)).count(), 3);
}
