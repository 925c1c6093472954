//! Queues that move between shards.

use bytes::Bytes;
use spindle_core::command::{FireSchedule, Occasion, OpenBatch, SetSchedule};
use spindle_core::job::{JOB_ID_SEQUENCE_END, OnDead, Origin, Scope};
use spindle_core::places::{Known, PLACED_MAX, Stage};
use spindle_core::queue::{Constraint, LimitScope, QueuePattern, QueueSettings};
use spindle_core::schedule::Schedule;
use spindle_core::seat::{JOBQ_QUEUE, Seat};
use spindle_core::{BytesRef, Command, JobId, Rejection, Type};

use crate::harness::{Server, after, delete, key, submit, submit_by};

/// A server of one of three shards, with ids to give.
fn shard(shard: u8) -> Server {
    let mut server = Server::empty();
    server.given(Command::Start { epoch: 1, seat: Seat { shard, shards: 3 } });
    let until = u64::from(shard) * JOB_ID_SEQUENCE_END + 1_000_000;
    server.given(Command::ReserveIds { until });
    server
}

/// A queue that is on this shard by its name.
fn queue_of(shard: u8) -> String {
    let seat = Seat { shard: 0, shards: 3 };
    let mut names = (0..).map(|number| format!("queue-{number}"));
    names.find(|name| seat.shard_of(name.as_bytes()) == shard).expect("one of many")
}

fn place(queue: &str, shard: u8) -> Command {
    Command::PlaceQueue { queue: queue.to_owned().into(), shard }
}

fn know(queue: &str, version: u64, shard: u8) -> Command {
    Command::KnowPlace { queue: queue.to_owned().into(), version, shard, settings: None }
}

/// A shard learns that a queue has moved to another one, which has opened it.
fn move_away(server: &mut Server, queue: &str, version: u64, shard: u8) {
    server.given(know(queue, version, shard));
    server.given(seal(queue, version));
}

fn seal(queue: &str, version: u64) -> Command {
    Command::SealQueue { queue: queue.to_owned().into(), version }
}

fn set(queue: &str, settings: QueueSettings) -> Command {
    Command::SetQueue { name: queue.to_owned().into(), settings }
}

fn stage(server: &Server, queue: &str) -> Option<Stage> {
    server.state.server().places.known(queue.as_bytes()).map(Known::stage)
}

fn leave(queue: &str, version: u64) -> Command {
    Command::LeaveQueue { queue: queue.to_owned().into(), version }
}

fn end_drain(queue: &str, version: u64) -> Command {
    Command::EndDrain { queue: queue.to_owned().into(), version }
}

/// Where the map has a queue, and the shard that drains.
fn on_map(server: &Server, queue: &str) -> Option<(u64, u32, Option<u32>)> {
    let placed = server.state.server().places.placed(queue.as_bytes())?;
    Some((placed.version, placed.shard, placed.drains))
}

#[test]
fn a_queue_that_moves_is_on_the_map_with_the_shard_that_may_have_jobs_of_it() {
    let mut server = shard(0);
    let (mail, bill) = (queue_of(1), queue_of(0));
    assert_eq!(server.then(place(&mail, 1)), [""; 0], "it is there");
    assert_eq!(server.then(place(&mail, 2)), ["QueuePlaced"]);
    assert_eq!(on_map(&server, &mail), Some((1, 2, Some(1))));
    assert_eq!(server.then(place(&mail, 2)), [""; 0]);
    for shard in [0, 1] {
        assert_eq!(server.refused(place(&mail, shard)), Rejection::Moves, "{shard}");
    }
    server.given(place(&bill, 1));
    assert_eq!(on_map(&server, &bill), Some((2, 1, Some(0))));
    assert_eq!(server.refused(end_drain(&mail, 2)), Rejection::Stale);
    assert_eq!(server.then(end_drain(&mail, 1)), ["QueuePlaced"]);
    assert_eq!(server.refused(end_drain(&mail, 1)), Rejection::Stale, "said twice");
    assert_eq!(on_map(&server, &mail), Some((1, 2, None)));

    server.given(place(&mail, 1));
    assert_eq!(on_map(&server, &mail), Some((3, 1, Some(2))));
    server.given(end_drain(&mail, 3));
    assert_eq!(on_map(&server, &mail), None, "it is where its name says");
    server.assert_folds();
    server.given(place(&mail, 0));
    assert_eq!(on_map(&server, &mail), Some((4, 0, Some(1))));
}

#[test]
fn what_cannot_move_is_refused() {
    let mail = queue_of(1);
    let mut only = Server::empty();
    only.given(Command::Start { epoch: 1, seat: Seat::default() });
    let alone = Rejection::OtherSeat(Seat::default());
    for command in [place("mail", 0), know("mail", 1, 0)] {
        assert_eq!(only.refused(command), alone);
    }
    assert_eq!(shard(1).refused(place(&mail, 2)), Rejection::OtherShard(0));
    let mut server = shard(0);
    assert_eq!(server.refused(place(&mail, 3)), Rejection::OutOfRange("shard"));
    assert_eq!(server.refused(know(&mail, 1, 3)), Rejection::OutOfRange("shard"));
    let jobq = String::from_utf8_lossy(JOBQ_QUEUE).into_owned();
    assert_eq!(server.refused(place(&jobq, 1)), Rejection::StaysPut);
    let tagged = place("{mail}.fast", 1);
    assert_eq!(server.refused(tagged), Rejection::StaysTogether);
    for name in [String::new(), "x".repeat(513)] {
        assert_eq!(server.refused(place(&name, 1)), Rejection::OutOfRange("queue name"));
    }
    let names = (0..).map(|number| format!("q{number}"));
    let seat = Seat { shard: 0, shards: 3 };
    let mut on_first = names.filter(|name| seat.shard_of(name.as_bytes()) == 0);
    for name in on_first.by_ref().take(PLACED_MAX) {
        server.given(place(&name, 1));
    }
    let one_more = place(&on_first.next().expect("one of many"), 1);
    assert_eq!(server.refused(one_more), Rejection::OutOfRange("number of moved queues"));
}

#[test]
fn one_limit_of_several_shards_is_refused() {
    let name = |name: &'static str| Bytes::from_static(name.as_bytes());
    let rule = |queue: &QueuePattern| {
        let mut matcher = Vec::new();
        queue.encode(&mut matcher);
        Constraint { matcher: matcher.into(), running_max: Some(1), ..Constraint::default() }
    };
    let several = [QueuePattern::Any, QueuePattern::Glob(name("mail.*"))];
    let one = [QueuePattern::Exact(name("mail")), QueuePattern::Glob(name("{mail}.*"))];
    let (mut shared, mut alone) = (shard(1), Server::new());
    for queue in &several {
        let put = Command::SetConstraint(rule(queue), LimitScope::Whole);
        assert_eq!(shared.refused(put.clone()), Rejection::SpansShards, "{queue:?}");
        assert_eq!(alone.then(put), ["ConstraintSet"], "{queue:?}");
        let put = Command::SetConstraint(rule(queue), LimitScope::PerShard);
        assert_eq!(shared.then(put), ["ConstraintSet"], "{queue:?}");
    }
    for queue in &one {
        let put = Command::SetConstraint(rule(queue), LimitScope::Whole);
        assert_eq!(shared.then(put), ["ConstraintSet"], "{queue:?}");
    }
    let unreadable = Constraint { matcher: name("m"), ..rule(&one[0]) };
    let put = Command::SetConstraint(unreadable, LimitScope::Whole);
    assert_eq!(shared.then(put), ["ConstraintSet"], "it takes no queue");
}

#[test]
fn a_shard_takes_the_jobs_and_the_settings_of_a_queue_that_it_knows_to_be_there() {
    let mut server = shard(1);
    let (mail, id) = (queue_of(2), JOB_ID_SEQUENCE_END);
    assert_eq!(server.refused(submit(id + 1, &mail, |_| {})), Rejection::OtherShard(2));
    let settings = QueueSettings { paused: true, ..QueueSettings::default() };
    let opens = Command::KnowPlace {
        queue: mail.clone().into(),
        version: 5,
        shard: 1,
        settings: Some(Box::new(settings.clone())),
    };
    assert_eq!(server.then(opens), ["QueueSet", "PlaceKnown"]);
    assert_eq!(stage(&server, &mail), Some(Stage::Open));
    server.given(submit(id + 1, &mail, |_| {}));
    assert!(server.lease(&mail).is_none(), "it is paused here, too");
    server.given(set(&mail, QueueSettings::default()));
    for version in [4, 5] {
        assert_eq!(server.refused(know(&mail, version, 2)), Rejection::Stale);
    }
    assert_eq!(server.refused(seal(&mail, 5)), Rejection::Stale, "it is here");
    assert_eq!(server.refused(leave(&mail, 5)), Rejection::Stale, "it is here");
    server.assert_folds();
    server.given(submit(id + 2, &mail, |_| {}));
}

#[test]
fn a_queue_that_is_offered_goes_on_with_settings_that_stay_until_it_is_sealed() {
    let mut server = shard(0);
    let mail = queue_of(0);
    let settings = QueueSettings { jobs_max: Some(7), ..QueueSettings::default() };
    server.given(set(&mail, settings.clone()));
    assert_eq!(server.then(know(&mail, 1, 2)), ["PlaceKnown"]);
    let told = |server: &Server| {
        let known = server.state.server().places.known(mail.as_bytes()).expect("it moves");
        known.settings.clone()
    };
    assert_eq!((stage(&server, &mail), told(&server)), (Some(Stage::Offered), Some(settings)));
    server.given(submit(1, &mail, |_| {}));
    assert_eq!(server.refused(set(&mail, QueueSettings::default())), Rejection::Moves);
    assert_eq!(server.refused(leave(&mail, 1)), Rejection::Stale, "nobody else takes its jobs yet");
    assert_eq!(server.refused(seal(&mail, 2)), Rejection::Stale, "it knows of the first move only");
    // The queue is moved elsewhere, before any shard has opened it.
    server.given(know(&mail, 2, 1));
    assert_eq!(stage(&server, &mail), Some(Stage::Offered));
    assert_eq!(server.then(seal(&mail, 2)), ["PlaceKnown"]);
    assert_eq!((stage(&server, &mail), told(&server)), (Some(Stage::Sealed), None));
    assert_eq!(server.refused(seal(&mail, 2)), Rejection::Stale);
    assert_eq!(server.refused(submit(2, &mail, |_| {})), Rejection::OtherShard(1));
    // It is moved elsewhere again: a sealed queue stays sealed, and one that was left stays left.
    server.given(know(&mail, 3, 2));
    assert_eq!(server.refused(submit(2, &mail, |_| {})), Rejection::OtherShard(2));
    server.given(delete(1));
    server.given(leave(&mail, 3));
    server.given(know(&mail, 4, 1));
    assert_eq!(stage(&server, &mail), Some(Stage::Left));
    server.assert_folds();
}

#[test]
fn a_shard_that_never_had_a_queue_has_nothing_to_leave() {
    let mut server = shard(1);
    let mail = queue_of(2);
    server.given(know(&mail, 1, 0));
    assert_eq!(stage(&server, &mail), Some(Stage::Left));
}

#[test]
fn a_shard_that_a_queue_leaves_takes_only_what_belongs_to_its_jobs() {
    let mut server = shard(0);
    let mail = queue_of(0);
    let named = |job: &mut spindle_core::command::Submit| {
        job.keys = vec![key(Origin::Api, b"k", Scope::WhileUnfinished)];
    };
    server.given(submit(1, &mail, named));
    let batch =
        OpenBatch { id: JobId(2), queue: mail.clone().into(), keep_ms: 10, ..OpenBatch::default() };
    server.given(Command::OpenBatch(Box::new(batch.clone())));
    move_away(&mut server, &mail, 1, 2);

    let other = Rejection::OtherShard(2);
    assert_eq!(server.refused(submit(3, &mail, |_| {})), other);
    assert_eq!(server.refused(submit(3, &mail, named)), Rejection::KeyTaken(JobId(1)));
    let opens = OpenBatch { id: JobId(3), ..batch };
    assert_eq!(server.refused(Command::OpenBatch(Box::new(opens.clone()))), other);
    server.given(set(&mail, QueueSettings { ttr_default_ms: Some(5), ..QueueSettings::default() }));

    server.given(submit(3, &mail, after(&[1], OnDead::Cancel)));
    server.given(submit(4, &mail, |job| job.batch = Some(JobId(2))));
    let nested = OpenBatch { id: JobId(5), parent: Some(JobId(2)), ..opens };
    server.given(Command::OpenBatch(Box::new(nested)));
    let (first, _) = server.lease(&mail).expect("what is here is worked here");
    assert_eq!(first, 1);
    // The job that it replaces is here.
    server.given(submit(6, &mail, |job| {
        job.keys = vec![key(Origin::Api, b"l", Scope::WhileUnfinished)];
        job.after = vec![JobId(1)];
    }));
    server.given(submit(7, &mail, |job| {
        job.keys = vec![key(Origin::Api, b"l", Scope::WhileUnfinished)];
        job.replaces = true;
    }));
    // LightJQ's clients know one shard only.
    server.given(submit_by(Origin::Lightjq, 8, &mail, |_| {}));
    server.assert_folds();
}

#[test]
fn a_shard_leaves_a_queue_that_it_has_nothing_of_and_then_takes_nothing_of_it() {
    let mut server = shard(0);
    let mail = queue_of(0);
    server.given(submit(1, &mail, |_| {}));
    let paused = QueueSettings { paused: true, ..QueueSettings::default() };
    server.given(set(&mail, paused));
    assert_eq!(server.refused(leave(&mail, 1)), Rejection::Stale, "nobody moves it");
    server.given(schedule_of("report", &mail));
    let batch = OpenBatch { id: JobId(2), queue: mail.clone().into(), ..OpenBatch::default() };
    server.given(Command::OpenBatch(Box::new(batch)));
    move_away(&mut server, &mail, 1, 2);
    server.given(schedule_of("report", &mail));
    assert_eq!(server.refused(schedule_of("other", &mail)), Rejection::OtherShard(2));
    assert_eq!(
        server.refused(leave(&mail, 2)),
        Rejection::Stale,
        "it knows of the first move only"
    );

    assert_eq!(server.refused(leave(&mail, 1)), Rejection::InUse, "a job");
    server.given(delete(1));
    assert_eq!(server.refused(leave(&mail, 1)), Rejection::InUse, "a schedule");
    server.given(Command::RemoveSchedule { name: "report".to_owned() });
    assert_eq!(server.refused(leave(&mail, 1)), Rejection::InUse, "a batch");
    server.given(Command::SealBatch { id: JobId(2) });
    server.pass(1);
    assert_eq!(server.then(leave(&mail, 1)), ["QueueSet", "PlaceKnown"]);
    assert_eq!(server.refused(leave(&mail, 1)), Rejection::Stale, "said twice");
    assert!(server.state.queue(mail.as_bytes()).is_none(), "its settings are gone, too");
    server.assert_folds();

    server.given(submit(3, &queue_of_another(&mail), |_| {}));
    let bound = submit(4, &mail, after(&[3], OnDead::Cancel));
    assert_eq!(server.refused(bound), Rejection::OtherShard(2));
    // And back.
    server.given(know(&mail, 2, 0));
    server.given(submit(4, &mail, |_| {}));
}

#[test]
fn a_schedule_goes_on_where_it_is() {
    let mut server = shard(0);
    let mail = queue_of(0);
    server.given(schedule_of("report", &mail));
    move_away(&mut server, &mail, 1, 2);
    let known = server.state.schedule("report").expect("it was set");
    let mut job = known.schedule.job.submit("report", JobId(1), BytesRef::empty(Type::Bytes));
    job.constraints_revision = 0;
    let (name, revision) = ("report".to_owned(), known.progress.revision);
    let fire = FireSchedule { name, revision, due_ms: 0, occasion: Occasion::Now, job };
    let events = server.then(Command::FireSchedule(Box::new(fire)));
    assert_eq!(events, ["Submitted", "ScheduleFired"]);
    assert!(server.lease(&mail).is_some());
}

fn schedule_of(name: &str, queue: &str) -> Command {
    let mut schedule = Schedule {
        name: name.to_owned(),
        expression: "@hourly".to_owned(),
        zone: "UTC".to_owned(),
        ..Schedule::default()
    };
    schedule.job.queue = queue.as_bytes().to_vec();
    Command::SetSchedule(Box::new(SetSchedule { schedule, next: None }))
}

/// Another queue that is on the first shard.
fn queue_of_another(than: &str) -> String {
    let seat = Seat { shard: 0, shards: 3 };
    let mut names = (0..).map(|number| format!("queue-{number}"));
    names.find(|name| seat.shard_of(name.as_bytes()) == 0 && name != than).expect("one of many")
}
