//! What people did: entries beside the changes that they describe, bounded by number and age.

use bytes::Bytes;
use spindle_core::audit::{Action, Actor, ActorKind, AuditEntry};
use spindle_core::command::{Audited, Compact};
use spindle_core::job::{Cause, Origin};
use spindle_core::queue::QueueSettings;
use spindle_core::{Command, Defaults, EVENTS_MAX, Event, JobId, Rejection};

use crate::harness::{Server, defaults, submit};

const DAY_MS: u64 = 24 * 3_600_000;

fn by(name: &str, action: Action) -> AuditEntry {
    let actor = Actor::new(ActorKind::Token, name, "192.0.2.7", Origin::Api);
    AuditEntry { actor: Some(actor), action: action as i32, ..AuditEntry::default() }
}

fn audited(command: Option<Command>, entry: AuditEntry) -> Command {
    Command::Audited(Box::new(Audited { command, entry }))
}

fn delete(id: u64, entry: AuditEntry) -> Command {
    audited(Some(Command::Delete { id: JobId(id), cause: Cause::Deleted }), entry)
}

/// An entry without a change of the state.
fn noted(name: &str) -> Command {
    audited(None, by(name, Action::AcceptClock))
}

/// Names and numbers of all entries, the newest first.
fn entries(server: &Server) -> Vec<(String, u64)> {
    let name = |entry: &AuditEntry| entry.actor.as_ref().map_or("", |it| &it.name).to_owned();
    let all = server.state.audit_entries(u64::MAX, server.now_ms);
    all.map(|entry| (name(entry), entry.seq)).collect()
}

fn compact_all(server: &mut Server, below: u64) {
    for item in server.state.items_needing(below) {
        server.given(Command::Compact(item));
    }
}

#[test]
fn an_entry_comes_with_its_change_and_not_without_it() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    assert_eq!(server.then(delete(1, by("ops", Action::Delete))), ["Gone", "Audited"]);
    assert_eq!(server.refused(delete(1, by("ops", Action::Delete))), Rejection::NotFound);
    let raise = |version| audited(Some(Command::RaiseFormat { version }), by("ops", Action::Edit));
    assert_eq!(server.then(raise(2)), ["FormatRaised", "Audited"]);
    assert_eq!(server.then(raise(2)), [""; 0], "it changes nothing");
    server.pass(50);
    assert_eq!(server.then(noted("clock")), ["Audited"]);
    assert_eq!(entries(&server), [("clock".into(), 3), ("ops".into(), 2), ("ops".into(), 1)]);
    let newest = server.state.audit_entries(u64::MAX, server.now_ms).next().cloned();
    assert_eq!(newest.map(|entry| entry.at_ms), Some(server.now_ms));
    server.restart();
    assert_eq!(entries(&server).len(), 3);
    assert_eq!(server.state.audit_entries(2, server.now_ms).count(), 1, "those before a number");
}

#[test]
fn a_request_for_many_jobs_has_one_entry_that_counts_them() {
    let mut server = Server::new();
    (1..=3).for_each(|id| drop(server.given(submit(id, "mail", |_| {}))));
    let mut entry = AuditEntry { count: Some(1), ..by("ops", Action::Purge) };
    server.given(delete(1, entry.clone()));
    server.given(noted("other"));
    entry.seq = 1;
    for (id, count) in [(2, 2), (3, 3)] {
        entry.count = Some(count);
        let events = server.given(delete(id, entry.clone()));
        let Some(Event::Audited(counted)) = events.last() else { panic!("{events:?}") };
        let only = AuditEntry { seq: 1, count: entry.count, ..AuditEntry::default() };
        assert_eq!(*counted, only, "nothing else is logged again");
    }
    let counted = |server: &Server| {
        server.state.audit_entries(2, server.now_ms).next().and_then(|entry| entry.count)
    };
    assert_eq!((counted(&server), entries(&server).len()), (Some(3), 2));
    let below = server.position;
    compact_all(&mut server, below);
    server.state = server.folded(below);
    assert_eq!((counted(&server), entries(&server).len()), (Some(3), 2));
}

#[test]
fn a_count_that_comes_when_its_entry_is_gone_brings_nothing_back() {
    let mut server = Server::with(Defaults { audit_entries_max: 1, ..defaults() });
    (1..=2).for_each(|id| drop(server.given(submit(id, "mail", |_| {}))));
    let entry = AuditEntry { count: Some(1), ..by("ops", Action::Purge) };
    server.given(delete(1, entry.clone()));
    server.given(noted("other"));
    server.given(delete(2, AuditEntry { seq: 1, count: Some(2), ..entry }));
    assert_eq!(entries(&server), [("other".into(), 2)]);
}

#[test]
fn the_newest_entries_stay_up_to_their_number() {
    let mut server = Server::with(Defaults { audit_entries_max: 3, ..defaults() });
    let bytes = |server: &Server| server.state.audit_bytes();
    (0..3).for_each(|_| drop(server.given(noted("a"))));
    let full = bytes(&server);
    assert_eq!(entries(&server).len(), 3);
    server.given(noted("b"));
    assert_eq!(entries(&server), [("b".into(), 4), ("a".into(), 3), ("a".into(), 2)]);
    assert_eq!(bytes(&server), full, "what an entry took is taken off with it");
    server.restart();
    assert_eq!(entries(&server)[0], ("b".into(), 4));
    assert_eq!(entries(&server).len(), 3);
}

#[test]
fn an_entry_stays_as_long_as_it_is_not_too_old() {
    let mut server = Server::with(Defaults { audit_ms: 90 * DAY_MS, ..defaults() });
    server.given(noted("a"));
    server.pass(90 * DAY_MS - 1);
    assert_eq!(entries(&server).len(), 1);
    server.pass(1);
    assert_eq!(entries(&server), []);
    let (below, all) = (server.position, server.state.audit_bytes());
    compact_all(&mut server, below);
    let folded = server.folded(below);
    assert_eq!(folded.audit_bytes(), 0, "it is not carried on");
    assert_eq!(folded.dump(server.now_ms), server.state.dump(server.now_ms));
    server.given(noted("b"));
    assert_eq!(server.state.audit_bytes(), all, "the next entry takes it out of memory");
    assert_eq!(entries(&server), [("b".into(), 2)], "no number is used twice");
    server.state = server.folded(below);
    assert_eq!(entries(&server), [("b".into(), 2)]);
}

#[test]
fn entries_are_carried_in_bounded_steps_whatever_order_that_leaves_them_in() {
    let mut server = Server::with(Defaults { audit_entries_max: 400, ..defaults() });
    (0..300).for_each(|_| drop(server.given(noted("old"))));
    let below = server.position;
    (0..5).for_each(|_| drop(server.given(noted("young"))));
    let carry = |from| Command::Compact(Compact::Audit { from, below });
    let first = server.given(carry(0));
    assert_eq!(first.len(), EVENTS_MAX);
    assert_eq!(server.given(carry(257)).len(), 300 - EVENTS_MAX);
    let expected = entries(&server);
    assert_eq!(expected.len(), 305);
    server.state = server.folded(below);
    assert_eq!(entries(&server), expected, "the young ones stand in front in the log");
    assert_eq!(server.given(carry(0)).len(), 0);
    (0..200).for_each(|_| drop(server.given(noted("new"))));
    assert_eq!((entries(&server).len(), entries(&server)[399].1), (400, 106));
    assert_eq!(server.folded(below).dump(server.now_ms), server.state.dump(server.now_ms));
}

#[test]
fn texts_are_cut_between_letters_and_longer_ones_are_refused() {
    let long = "é".repeat(400);
    let actor = Actor::new(ActorKind::Certificate, &long, &long, Origin::Workq);
    assert_eq!((actor.name.len(), actor.address.len()), (512, 64));
    let mut entry = by("ops", Action::SetQueue);
    entry.set_detail(&format!("x{long}"));
    assert_eq!(entry.detail.len(), 511);
    let mut server = Server::new();
    let set = |entry| {
        let settings = QueueSettings { paused: true, ..QueueSettings::default() };
        audited(Some(Command::SetQueue { name: Bytes::from_static(b"q"), settings }), entry)
    };
    let queue = Some(Bytes::from(vec![b'q'; 512]));
    let constraint = Some("c".repeat(255));
    let fits = AuditEntry { queue, constraint, actor: Some(actor.clone()), ..entry };
    let with = |change: fn(&mut AuditEntry)| {
        let mut entry = fits.clone();
        change(&mut entry);
        set(entry)
    };
    for too_long in [
        with(|entry| entry.queue = Some(Bytes::from(vec![b'q'; 513]))),
        with(|entry| entry.constraint = Some("c".repeat(256))),
        with(|entry| entry.detail = "d".repeat(513)),
        with(|entry| entry.actor = Some(Actor { name: "n".repeat(513), ..Actor::default() })),
        with(|entry| entry.actor = Some(Actor { address: "a".repeat(65), ..Actor::default() })),
    ] {
        assert_eq!(server.refused(too_long), Rejection::OutOfRange("audit entry"));
    }
    assert!(server.state.queue(b"q").is_none(), "nothing is done without its entry");
    assert_eq!(server.then(set(fits)), ["QueueSet", "Audited"]);
}

#[test]
fn what_an_entry_takes_is_what_its_event_takes_about() {
    let mut server = Server::new();
    let mut entry = by("somebody", Action::SetQueue);
    entry.queue = Some(Bytes::from(vec![b'q'; 400]));
    entry.set_detail(&"d".repeat(500));
    let events = server.given(audited(None, entry));
    let mut bytes = Vec::new();
    events[0].encode(&mut bytes);
    let (taken, is) = (server.state.audit_bytes(), bytes.len() as u64);
    assert!(taken >= is && taken < is + 64, "{taken} for {is}");
    let read = Event::decode(Bytes::from(bytes)).expect("it is well-formed");
    assert_eq!(read.as_ref(), events.first());
}
