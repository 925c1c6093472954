//! Limits on unfinished jobs: of the server, of a queue, and on the bytes of a queue's payloads.

use bytes::Bytes;
use spindle_core::command::{Claim, Edit};
use spindle_core::job::{Cause, Origin, Scope};
use spindle_core::payload::BytesRef;
use spindle_core::queue::QueueSettings;
use spindle_core::{Command, Defaults, JobId, Rejection, Status, Type};

use crate::harness::{Server, complete, defaults, fail, key, submit, submit_by};

fn plain(id: u64) -> Command {
    submit(id, "mail", |_| {})
}

fn sized(id: u64, queue: &str, len: u32) -> Command {
    submit(id, queue, |job| job.payload = BytesRef::logged(1, 9, len, Type::Bytes))
}

fn set(queue: &'static str, settings: QueueSettings) -> Command {
    Command::SetQueue { name: Bytes::from_static(queue.as_bytes()), settings }
}

fn jobs_max(max: u64) -> QueueSettings {
    QueueSettings { jobs_max: Some(max), ..QueueSettings::default() }
}

fn bytes_max(max: u64) -> QueueSettings {
    QueueSettings { bytes_max: Some(max), ..QueueSettings::default() }
}

fn move_to(id: u64, queue: &'static str) -> Command {
    let queue = Some(Bytes::from_static(queue.as_bytes()));
    Command::Edit(Box::new(Edit { id: JobId(id), queue, ..Edit::default() }))
}

fn retry(server: &Server, id: u64) -> Command {
    Command::Retry { image: Box::new(server.finished(id)), payload: None }
}

fn held(server: &Server, queue: &[u8]) -> (usize, u64) {
    server.state.queue(queue).map_or((0, 0), |queue| (queue.unfinished(), queue.payload_bytes()))
}

#[test]
fn the_server_takes_jobs_up_to_its_limit_and_not_one_more() {
    let mut server = Server::with(Defaults { unfinished_max: 2, ..defaults() });
    server.given(plain(1));
    server.given(submit(2, "bill", |_| {}));
    assert_eq!(server.refused(submit(3, "resize", |_| {})), Rejection::ServerFull);
    // Those in memory only count as well.
    let foreground = submit_by(Origin::Gearman, 3, "resize", |job| {
        job.foreground = true;
        job.payload = BytesRef::in_memory(Bytes::from_static(b"p"), Type::Bytes);
    });
    assert_eq!(server.refused(foreground), Rejection::ServerFull);
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.refused(plain(3)), Rejection::ServerFull, "a leased job is not finished");
    server.given(complete(claim));
    server.given(plain(3));
    assert_eq!(server.state.unfinished_count(), 2);
    server.restart();
    assert_eq!(server.refused(plain(4)), Rejection::ServerFull);
}

#[test]
fn a_queue_without_a_limit_of_its_own_has_the_servers() {
    let mut server = Server::with(Defaults { queue_unfinished_max: 1, ..defaults() });
    server.given(plain(1));
    server.given(submit(2, "bill", |_| {}));
    assert_eq!(server.refused(plain(3)), Rejection::QueueFull);
    server.given(set("mail", jobs_max(2)));
    server.given(plain(3));
    assert_eq!(server.refused(plain(4)), Rejection::QueueFull);
    let classes = QueueSettings { jobs_max_by_class: vec![9, 9, 9], ..QueueSettings::default() };
    server.given(set("bill", classes));
    assert_eq!(server.refused(submit(4, "bill", |_| {})), Rejection::QueueFull);
    let mut closed = Server::with(Defaults { queue_unfinished_max: 0, ..defaults() });
    assert_eq!(closed.refused(plain(1)), Rejection::QueueFull);
}

#[test]
fn a_queue_holds_payloads_up_to_its_limit_and_not_a_byte_more() {
    let mut server = Server::new();
    server.given(set("mail", bytes_max(100)));
    server.given(sized(1, "mail", 60));
    assert_eq!(server.refused(sized(2, "mail", 41)), Rejection::QueueFull);
    server.given(sized(2, "mail", 40));
    assert_eq!(held(&server, b"mail"), (2, 100));
    // One without a payload takes none of it, and other queues have limits of their own.
    server.given(sized(3, "mail", 0));
    server.given(sized(4, "bill", 1_000));
    assert_eq!(server.refused(sized(5, "mail", 1)), Rejection::QueueFull);
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(held(&server, b"mail"), (3, 100), "a leased job is not finished");
    server.given(complete(claim));
    assert_eq!(held(&server, b"mail"), (2, 40));
    server.given(sized(5, "mail", 60));
    server.restart();
    assert_eq!(held(&server, b"mail"), (3, 100));
    for id in [2, 3, 5] {
        server.given(Command::Delete { id: JobId(id), cause: Cause::Deleted });
    }
    assert_eq!(held(&server, b"mail"), (0, 0));
}

#[test]
fn a_job_that_takes_the_place_of_another_needs_no_room_but_the_difference() {
    let mut server = Server::with(Defaults { unfinished_max: 2, ..defaults() });
    server.given(set("mail", bytes_max(100)));
    let keyed = |id: u64, name: &'static [u8], len: u32| {
        submit(id, "mail", move |job| {
            job.keys = vec![key(Origin::Api, name, Scope::WhileUnfinished)];
            job.replaces = true;
            job.payload = BytesRef::logged(1, 9, len, Type::Bytes);
        })
    };
    server.given(keyed(1, b"a", 50));
    server.given(keyed(2, b"b", 20));
    assert_eq!(server.refused(keyed(3, b"c", 1)), Rejection::ServerFull);
    assert_eq!(server.refused(keyed(3, b"a", 81)), Rejection::QueueFull);
    server.given(keyed(3, b"a", 80));
    assert_eq!(held(&server, b"mail"), (2, 100));
}

#[test]
fn a_job_that_ended_comes_back_only_where_there_is_room() {
    let mut server = Server::new();
    server.given(set("mail", jobs_max(1)));
    server.given(sized(1, "mail", 7));
    server.given(Command::Cancel { id: JobId(1) });
    server.given(sized(2, "mail", 7));
    let again = retry(&server, 1);
    assert_eq!(server.refused(again.clone()), Rejection::QueueFull);
    assert_eq!(server.status(1), Some(Status::Dead), "it stays as it is");
    server.given(set("mail", bytes_max(13)));
    assert_eq!(server.refused(again.clone()), Rejection::QueueFull);
    server.given(set("mail", bytes_max(14)));
    server.given(again);
    assert_eq!(held(&server, b"mail"), (2, 14));
    let mut server = Server::with(Defaults { unfinished_max: 1, ..defaults() });
    server.given(plain(1));
    server.given(Command::Cancel { id: JobId(1) });
    server.given(plain(2));
    let again = retry(&server, 1);
    assert_eq!(server.refused(again), Rejection::ServerFull);
}

#[test]
fn a_job_moves_only_into_a_queue_that_has_room() {
    let mut server = Server::with(Defaults { unfinished_max: 3, ..defaults() });
    server.given(sized(1, "mail", 50));
    server.given(sized(2, "bill", 50));
    server.given(sized(3, "bill", 50));
    server.given(set("bill", jobs_max(2)));
    assert_eq!(server.refused(move_to(1, "bill")), Rejection::QueueFull);
    server.given(set("bill", bytes_max(149)));
    assert_eq!(server.refused(move_to(1, "bill")), Rejection::QueueFull);
    // An edit within the queue adds nothing to it, however full it is.
    server.given(set("bill", jobs_max(1)));
    server.given(move_to(2, "bill"));
    server.given(set("bill", bytes_max(150)));
    server.given(move_to(1, "bill"));
    assert_eq!((held(&server, b"mail"), held(&server, b"bill")), ((0, 0), (3, 150)));
}

#[test]
fn what_is_counted_stays_whatever_the_limit_becomes() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.fails_max = Some(3)));
    server.given(plain(2));
    server.given(set("mail", QueueSettings { bytes_max: Some(0), ..jobs_max(0) }));
    let (id, claim) = server.lease("mail").expect("ready");
    assert_eq!((id, server.then(fail(claim))), (1, vec!["Requeued"]));
    server.restart();
    assert_eq!(held(&server, b"mail").0, 2);
    let claim = Claim::Unfinished { id: JobId(2) };
    server.given(complete(claim));
    assert_eq!(server.refused(plain(3)), Rejection::QueueFull);
}
