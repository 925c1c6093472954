//! The feed: what it shows, what it leaves out, how it is resumed and waited for.

use spindle_core::{Event, JobId};
use spindle_engine::{Answer, Committed, Engine, FeedError, FeedId, FeedPage, Options, Refused};
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use crate::harness::{Bench, START_MS, TakeApart, file_log, new_job, noise, plain};

type Names = Vec<(FeedId, &'static str)>;

fn named(page: &FeedPage) -> Names {
    page.events.iter().map(|(id, shown)| (*id, shown.event.name())).collect()
}

/// Everything after a place, page by page, and where it ends.
#[track_caller]
fn read_all(engine: &Engine, mut after: Option<FeedId>, limit: usize) -> (Names, FeedId) {
    let mut all = Vec::new();
    loop {
        let page = engine.feed().page(after, limit).expect("readable");
        assert!(page.events.len() <= limit);
        all.extend(named(&page));
        if after == Some(page.next) {
            assert!(page.events.is_empty());
            return (all, page.next);
        }
        after = Some(page.next);
    }
}

fn names(events: &Names) -> Vec<&'static str> {
    events.iter().map(|(_, name)| *name).collect()
}

/// The life of a job, some of it in one record and some in another.
fn live(bench: &Bench) -> JobId {
    let id = bench.add("q", b"payload");
    bench.lease("q").expect("it is ready");
    bench.commit();
    bench.finish(id, true, b"result").expect("unfinished");
    bench.commit();
    id
}

#[test]
fn a_jobs_life_is_told_in_order_with_the_time_of_its_records() {
    let bench = Bench::new();
    let (_, start) = read_all(&bench.engine, None, 100);
    let id = live(&bench);
    bench.pass(500);
    bench.delete(id);
    bench.commit();
    let page = bench.engine.feed().page(Some(start), 100).expect("readable");
    assert_eq!(names(&named(&page)), ["Submitted", "Leased", "Finished", "Gone"]);
    let times: Vec<u64> = page.events.iter().map(|(_, shown)| shown.at_ms).collect();
    assert_eq!(times, [START_MS, START_MS, START_MS, START_MS + 500]);
    let (_, first) = &page.events[0];
    assert!(matches!(&first.event, Event::Submitted(image) if image.id == id.0));
}

#[test]
fn it_is_resumed_exactly_whatever_the_page_and_after_a_restart() {
    let disk = SimDisk::new(1);
    // No record stays in memory: everything is read back from the log.
    let mut bench = Bench::on_disk(&disk);
    let mut before = Vec::new();
    for round in 0..3 {
        for _ in 0..5 {
            live(&bench);
        }
        let (all, end) = read_all(&bench.engine, None, 1000);
        assert!(all.starts_with(&before), "what was told once stays as it was");
        assert!(all.is_sorted() && all.len() >= (round + 1) * 15);
        for limit in 1..5 {
            assert_eq!(read_all(&bench.engine, None, limit), (all.clone(), end));
        }
        for (at, (id, _)) in all.iter().enumerate() {
            assert_eq!(read_all(&bench.engine, Some(*id), 3).0, all[at + 1..]);
        }
        bench = bench.restart(&disk);
        assert_eq!(names(&read_all(&bench.engine, Some(end), 10).0)[0], "Started");
        before = all;
    }
}

#[test]
fn what_only_keeps_the_server_going_is_not_told_but_counts_in_the_ids() {
    let bench = Bench::new();
    let page = bench.engine.feed().page(None, 100).expect("readable");
    // A start also reserves ids, in the same record.
    assert_eq!(named(&page), [(FeedId { position: 0, index: 1 }, "Started")]);
    assert_eq!(page.next, FeedId { position: 1, index: 0 });
    let mut foreground = plain("q");
    foreground.foreground = true;
    let id = bench.submit(foreground, b"x");
    bench.lease("q").expect("it is ready");
    bench.finish(id, true, b"").expect("unfinished");
    bench.add("q", b"x");
    bench.commit();
    assert_eq!(names(&read_all(&bench.engine, Some(page.next), 100).0), ["Submitted"]);
}

#[test]
fn nothing_that_is_not_durable_is_shown() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let (_, start) = read_all(&bench.engine, None, 100);
    // Large enough for several records, sealed and open ones.
    for seed in 0..5 {
        bench.add("q", &noise(seed, 15_000));
    }
    assert_eq!(read_all(&bench.engine, Some(start), 100), (vec![], start));
    bench.commit();
    assert_eq!(read_all(&bench.engine, Some(start), 100).0.len(), 5);

    let (_, end) = read_all(&bench.engine, Some(start), 100);
    let ticket = bench.engine.feed().wait(&bench.caller(1), end).expect("room");
    bench.add("q", b"lost");
    disk.fail(Operation::Sync, 0, Fault::InputOutput);
    assert_eq!(bench.engine.commit_once(), Committed::Failed);
    assert_eq!(read_all(&bench.engine, Some(start), 100).0.len(), 5);
    assert!(bench.answers().is_empty(), "{ticket:?} has nothing to hear");
}

#[test]
fn what_was_trimmed_is_a_gap() {
    check_gap(0);
    // Also while it is still in memory.
    check_gap(Options::default().payload_memory_bytes);
}

#[track_caller]
fn check_gap(payload_memory_bytes: usize) {
    let options = Options { payload_memory_bytes, ..Options::default() };
    let bench = Bench::on(file_log(&SimDisk::new(3)), START_MS, options);
    let kept = bench.add("kept", b"payload");
    bench.commit();
    let (_, early) = read_all(&bench.engine, None, 100);
    for seed in 0..50 {
        let id = bench.add("q", &noise(seed, 10_000));
        bench.delete(id);
        bench.commit();
    }
    bench.compaction();
    let first = bench.log.first().0;
    assert!(first > early.position);
    for (after, gap) in [(early, true), (FeedId { position: first, index: 0 }, false)] {
        match bench.engine.feed().page(Some(after), 10) {
            Err(FeedError::Gap { first: oldest }) => assert!(gap && oldest == first),
            other => assert!(!gap && other.is_ok(), "{other:?}"),
        }
    }
    // The kept job was compacted meanwhile, which is no news.
    let (rest, end) = read_all(&bench.engine, None, 7);
    assert!(rest.iter().all(|(id, name)| id.position >= first && *name != "Compacted"));
    bench.finish(kept, true, b"").expect("unfinished");
    bench.commit();
    assert_eq!(names(&read_all(&bench.engine, Some(end), 7).0), ["Finished"]);
    // A client that waits for what is behind the gap is answered at once, and then told of the gap.
    bench.engine.feed().wait(&bench.caller(1), early).expect("room");
    assert_eq!(bench.answers().len(), 1);
}

#[test]
fn a_place_behind_the_end_is_refused() {
    let bench = Bench::new();
    bench.add("q", b"x");
    let end = bench.engine.durable().0;
    let beyond = FeedId { position: end, index: 1 };
    let refused = bench.engine.feed().page(Some(beyond), 1);
    assert!(
        matches!(refused, Err(FeedError::Ahead { end: newest }) if newest == end),
        "{refused:?}"
    );
}

#[test]
fn one_call_looks_through_a_bounded_part_of_the_log() {
    let bench = Bench::new();
    for _ in 0..1100 {
        bench.add("q", b"x");
        bench.commit();
    }
    let page = bench.engine.feed().page(None, usize::MAX).expect("readable");
    assert_eq!(page.next, FeedId { position: 1024, index: 0 });
    assert_eq!(read_all(&bench.engine, None, usize::MAX).0.len(), 1101);
    for seed in 0..10 {
        bench.add("q", &noise(seed, 1_000_000));
        bench.commit();
    }
    let page =
        bench.engine.feed().page(Some(FeedId { position: 1101, index: 0 }), 100).expect("readable");
    assert_eq!(page.events.len(), 5, "five reach over 4 MiB");
}

#[test]
fn a_wait_is_answered_once_when_something_newer_is_durable() {
    let bench = Bench::new();
    let (_, end) = read_all(&bench.engine, None, 100);
    let tickets: Vec<_> = (1..4)
        .map(|connection| bench.engine.feed().wait(&bench.caller(connection), end).expect("room"))
        .collect();
    bench.engine.waits().cancel(&bench.caller(2), tickets[1]);
    bench.add("q", b"x");
    assert!(bench.answers().is_empty(), "it is not durable yet");
    bench.commit();
    let answers = bench.answers();
    assert!(answers.iter().all(|(_, answer)| matches!(answer, Answer::FeedMoved)), "{answers:?}");
    let heard: Vec<_> = answers.into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(heard, [tickets[0], tickets[2]]);
    bench.add("q", b"x");
    bench.commit();
    assert!(bench.answers().is_empty(), "once is enough");
}

#[test]
fn a_wait_behind_what_is_durable_already_is_answered_at_once() {
    let bench = Bench::new();
    let (_, start) = read_all(&bench.engine, None, 100);
    bench.add("q", b"x");
    bench.add("q", b"x");
    bench.commit();
    let (events, end) = read_all(&bench.engine, Some(start), 100);
    // The first event's place has another one behind it in the same record; the last one's has not.
    for (after, at_once) in [(start, 1), (events[0].0, 1), (events[1].0, 0), (end, 0)] {
        bench.engine.feed().wait(&bench.caller(1), after).expect("room");
        assert_eq!(bench.answers().len(), at_once, "{after}");
    }
    bench.add("q", b"x");
    bench.commit();
    assert_eq!(bench.answers().len(), 2);
}

#[test]
fn a_record_that_tells_nothing_wakes_nobody() {
    let bench = Bench::new();
    let (_, end) = read_all(&bench.engine, None, 100);
    bench.engine.feed().wait(&bench.caller(1), end).expect("room");
    let until = bench.engine.inspect(|state| state.server().ids_until) + 1000;
    let before = bench.log.next();
    bench.execute(spindle_core::Command::ReserveIds { until });
    bench.commit();
    assert!(bench.log.next() > before && bench.answers().is_empty());
    // Nor does waiting again from the old place, which it has passed.
    bench.engine.feed().wait(&bench.caller(1), end).expect("room");
    assert!(bench.answers().is_empty());
    bench.add("q", b"x");
    bench.commit();
    assert_eq!(bench.answers().len(), 2);
}

#[test]
fn a_wait_ends_although_a_long_stretch_that_tells_nothing_lies_before_the_news() {
    let bench = Bench::new();
    let (_, end) = read_all(&bench.engine, None, 100);
    let until = bench.engine.inspect(|state| state.server().ids_until);
    for n in 1..1100 {
        bench.execute(spindle_core::Command::ReserveIds { until: until + n });
        bench.commit();
    }
    bench.add("q", b"x");
    bench.commit();
    let page = bench.engine.feed().page(Some(end), 1).expect("readable");
    assert!(page.events.is_empty() && page.next > end, "one page does not reach the news");
    bench.engine.feed().wait(&bench.caller(1), end).expect("room");
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(names(&read_all(&bench.engine, Some(end), 1).0), ["Submitted"]);
}

#[test]
fn waits_for_the_feed_count_and_go_with_their_connection() {
    let options = Options { waits_max: 2, ..Options::default() };
    let bench = Bench::with(options);
    let (_, end) = read_all(&bench.engine, None, 100);
    let wait = |connection| bench.engine.feed().wait(&bench.caller(connection), end);
    wait(1).expect("room");
    wait(2).expect("room");
    assert_eq!(wait(3), Err(Refused::TooMany("waiting clients")));
    bench.engine.waits().connection_gone(bench.caller(1).connection, None);
    let third = wait(3).expect("room again");
    bench.engine.jobs().submit(new_job(plain("q"), b"x")).value().expect("taken");
    bench.commit();
    assert_eq!(bench.answers().last().map(|(ticket, _)| *ticket), Some(third));
    assert!(bench.log.next().0 > 0);
}
