use bytes::Bytes;
use spindle_core::job::{Backoff, HeldLease, JobOptions, Origin};
use spindle_core::{Limit, Source};

use super::*;

/// Three tries, and four attempts.
fn tries() -> Tries {
    fn limit<T>(value: T) -> Limit<T> {
        Limit { value, from: Source::Job }
    }
    Tries { attempts_max: limit(4), fails_max: limit(3), backoff: limit(Backoff::default()) }
}

fn outcome(error: &str, message: &str, code: &str) -> Option<Box<Outcome>> {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let (error, message, code) = (bytes(error), bytes(message), bytes(code));
    Some(Box::new(Outcome { error, message, code, ..Outcome::default() }))
}

/// A job after `attempts` attempts, the last of which ended in this way.
fn job(status: Status, attempts: u32, fails: u32, cause: Option<Cause>) -> JobImage {
    let mut job = JobImage { id: 7, status: status as i32, attempts, fails, ..JobImage::default() };
    job.finished_ms = status.is_finished().then_some(5);
    let ended = |cause: Cause| Attempt { cause: cause as i32, ended_ms: 5, ..Attempt::default() };
    job.history.extend(cause.map(ended));
    job
}

#[test]
fn every_status_says_why_and_what_to_do() {
    use Cause::{Damaged, Failed, HolderGone, Released, Timeout};
    use Status::{Dead, Done, Leased, Parked, Scheduled};
    let none = || None;
    let tray = || outcome("tray 2\n  at feed (tray.c:7)", "no paper\nat all", "exit_9");
    let (retry, now) = ("spindle retry 7", "spindle edit 7 --run-at now");
    for (status, attempts, fails, cause, outcome, text, command) in [
        (Scheduled, 0, 0, None, none(), "its time has not come", now),
        (
            Scheduled,
            1,
            1,
            Some(Failed),
            tray(),
            "it waits until its backoff is over, for try 2 of 3",
            now,
        ),
        (
            Scheduled,
            1,
            0,
            Some(Timeout),
            none(),
            "it waits until its backoff is over, for attempt 2 of 4",
            now,
        ),
        (Parked, 0, 0, None, none(), "it is kept aside until it is released", "spindle release 7"),
        (Leased, 1, 0, None, none(), "a worker has it", "spindle cancel 7"),
        (Done, 1, 0, None, none(), "it is done", retry),
        (
            Dead,
            3,
            3,
            Some(Failed),
            tray(),
            "no try is left: try 3 of 3 failed: \"tray 2\" (no paper, code exit_9)",
            retry,
        ),
        (
            Dead,
            4,
            1,
            Some(Failed),
            tray(),
            "no attempt is left: attempt 4 of 4 failed: \"tray 2\" (no paper, code exit_9)",
            retry,
        ),
        (Dead, 1, 1, Some(Failed), none(), "its worker failed it for good", retry),
        (
            Dead,
            4,
            0,
            Some(Timeout),
            outcome("", "4 of 4 attempts", "timeout"),
            "no attempt is left: attempt 4 of 4 timed out",
            retry,
        ),
        (
            Dead,
            4,
            0,
            Some(HolderGone),
            none(),
            "no attempt is left: the worker of attempt 4 of 4 was lost",
            retry,
        ),
        (
            Dead,
            4,
            0,
            Some(Released),
            none(),
            "no attempt is left: the worker of attempt 4 of 4 gave it back",
            retry,
        ),
        (Dead, 1, 0, Some(Damaged), none(), "its payload is damaged", retry),
        (Dead, 0, 0, None, outcome("", "", "cancelled"), "somebody cancelled it", retry),
        (Dead, 0, 0, None, none(), "it failed for good", retry),
    ] {
        let image = JobImage { outcome, ..job(status, attempts, fails, cause) };
        let reason = of_status(&image, &tries()).expect("it does not run");
        assert_eq!((reason.text.as_str(), reason.command.as_deref()), (text, Some(command)));
        assert!(reason.next.is_some_and(|next| !next.is_empty()), "{text}");
    }
    assert!(of_status(&job(Status::Ready, 0, 0, None), &tries()).is_none());
}

#[test]
fn what_a_worker_said_is_one_phrase() {
    for (error, message, code, expected) in [
        ("", "", "", ""),
        ("", "", "net", "code net"),
        ("", "no paper", "", "\"no paper\""),
        ("", "no paper", "9", "\"no paper\" (code 9)"),
        ("tray 2", "", "", "\"tray 2\""),
        (
            "550 mailbox unavailable",
            "mailbox unavailable",
            "exit 69",
            "\"550 mailbox unavailable\" (code exit 69)",
        ),
        (" a\u{7}b ", "c", "", "\"a b\" (c)"),
        ("\n550 unknown \r\n  at send\n  at main", "", "", "\"550 unknown\""),
    ] {
        let outcome = outcome(error, message, code).expect("there is one");
        assert_eq!(said(&JobImage::default(), &outcome), expected);
    }
    for (len, kept) in [(WORD_BYTES_MAX, WORD_BYTES_MAX), (WORD_BYTES_MAX + 1, WORD_BYTES_MAX)] {
        assert_eq!(line(&"x".repeat(len)).len(), kept);
    }
}

#[test]
fn what_is_not_in_the_job_says_what_to_do_too() {
    let held = |running_max, unmatched| HeldBack {
        constraint: "smtp".to_owned(),
        running_max,
        frees_ms: Some(1_767_323_045_678),
        unmatched,
    };
    let until = Some("2026-01-02T03:04:05.678Z");
    for (reason, text, command, ends) in [
        (paused(b"mail"), "its queue is paused", Some("spindle resume mail"), None),
        (paused(b"a b"), "its queue is paused", None, None),
        (paused(b"-x"), "its queue is paused", None, None),
        (
            constrained(held(None, false)),
            "constraint smtp: no more jobs may start for now",
            Some("spindle constraint show smtp"),
            until,
        ),
        (
            constrained(held(Some(3), false)),
            "constraint smtp: 3 of its jobs run, and no more may",
            Some("spindle constraint show smtp"),
            None,
        ),
        (
            constrained(held(Some(0), true)),
            "constraint smtp lets none of its jobs start, and whether this job is one of them is still to be found out",
            Some("spindle constraint show smtp"),
            None,
        ),
        (
            workers(0, false),
            "no worker waits for its queue right now",
            Some("spindle workers"),
            None,
        ),
    ] {
        assert_eq!((reason.text.as_str(), reason.command.as_deref()), (text, command));
        assert_eq!((reason.until.as_deref(), reason.next.is_some()), (ends, true), "{text}");
    }
    let line = |count, at_least| placed(ReadyBefore { count, at_least });
    let share = |key: &'static str, count, keys, weight| {
        let before = ReadyBefore { count, at_least: false };
        takes_turns(FairPlace { key: key.into(), before, keys, weight })
    };
    for (reason, text) in [
        (line(0, false), "it is the next of its queue"),
        (line(1, false), "1 ready job of its queue comes before it"),
        (line(2, false), "2 ready jobs of its queue come before it"),
        (line(9, true), "at least 9 ready jobs of its queue come before it"),
        (share("", 0, 1, 1), "it is number 1 of the jobs without key; no other key has ready jobs"),
        (
            share("acme", 2, 12, 5),
            "it is number 3 of key \"acme\", 5 jobs in a turn; 12 keys take turns",
        ),
        (workers(1, false), "1 client waits for its queue"),
        (workers(2, true), "2 clients wait for its queue"),
        (workers(0, true), "workers sleep until its queue has work"),
    ] {
        assert_eq!((reason.text.as_str(), reason.next), (text, None), "there is nothing to do");
    }
}

#[test]
fn an_end_that_a_job_goes_on_after_is_said() {
    let of = |cause, fails, outcome| {
        let image = JobImage { outcome, ..job(Status::Ready, 1, fails, cause) };
        last_attempt(&image).map(|reason| reason.text)
    };
    for (cause, fails, outcome, text) in [
        (Some(Cause::Failed), 1, outcome("late", "", ""), "the last attempt failed: \"late\""),
        (
            Some(Cause::Failed),
            1,
            outcome("", "", ""),
            "the last attempt failed: its worker did not say why",
        ),
        (Some(Cause::Timeout), 0, None, "the last attempt timed out"),
        (Some(Cause::Restarted), 0, None, "the worker of the last attempt was lost"),
        (Some(Cause::Released), 0, None, "the last worker gave it back"),
    ] {
        assert_eq!(of(cause, fails, outcome).as_deref(), Some(text));
    }
    assert_eq!(of(None, 0, None), None);
    let lease = HeldLease {
        started_ms: 0,
        worker: Bytes::from_static(b"w1"),
        door: Origin::Api as i32,
        ..HeldLease::default()
    };
    let image = JobImage {
        lease: Some(Box::new(lease)),
        options: Some(Box::new(JobOptions::default())),
        ..job(Status::Leased, 1, 0, None)
    };
    let reason = leased(&image);
    assert_eq!(reason.text, "a worker of the api door has it since 1970-01-01T00:00:00.000Z");
    assert_eq!(reason.worker.as_deref(), Some("w1"));
}
