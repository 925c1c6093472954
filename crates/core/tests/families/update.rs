//! Jobq's states and events.

use bytes::Bytes;
use spindle_core::command::{Compact, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, Command, JobId, Rejection, Type};

use crate::harness::{Server, submit_by};

fn created(id: u64) -> Command {
    submit_by(Origin::Jobq, id, "jobq", |job: &mut Submit| {
        job.parked = true;
        job.state = Some(Bytes::from_static(b"[\"CREATED\"]"));
        job.event = Some(Bytes::from_static(b"1"));
    })
}

fn set(revision: Option<u32>, state: &'static [u8]) -> Command {
    let (state, event) = (Bytes::from_static(state), Bytes::from_static(b"2"));
    Command::SetState { id: JobId(1), revision, state, event, page: None }
}

fn add(id: u64, event: Bytes, page: Option<BytesRef>) -> Command {
    Command::AddEvent { id: JobId(id), event, page }
}

#[test]
fn a_state_advances_by_compare_and_set_and_events_add_up() {
    let mut server = Server::new();
    server.given(created(1));
    let revision = server.image(1).revision;
    assert_eq!(server.then(set(Some(revision), b"[\"A\"]")), ["StateSet"]);
    assert_eq!(server.refused(set(Some(revision), b"[\"B\"]")), Rejection::Stale);
    assert_eq!(server.then(add(1, Bytes::from_static(b"3"), None)), ["StateSet"]);
    let image = server.image(1);
    assert_eq!(image.options().state.clone().expect("set"), "[\"A\"]");
    assert_eq!(image.options().events, ["1", "2", "3"]);
}

#[test]
fn each_change_has_a_higher_number_than_all_before_and_the_time_it_was_made() {
    let mut server = Server::new();
    server.given(created(1));
    server.given(created(2));
    let update_seq = |server: &Server, id| server.image(id).options().update_seq;
    let submitted = [update_seq(&server, 1), update_seq(&server, 2)];
    assert!(0 < submitted[0] && submitted[0] < submitted[1], "{submitted:?}");
    assert_eq!(server.image(1).options().updated_ms, 0);
    server.pass(5_000);
    server.given(set(None, b"[\"A\"]"));
    assert!(update_seq(&server, 1) > update_seq(&server, 2));
    let image = server.image(1);
    assert_eq!(image.options().updated_ms, image.created_ms + 5_000);
}

#[test]
fn a_full_page_of_events_must_go_to_the_log_before_the_next_one() {
    let mut server = Server::new();
    server.given(created(1));
    for event in 2..=1_000 {
        assert_eq!(server.state.full_page(JobId(1)), None);
        server.given(add(1, Bytes::from(event.to_string()), None));
    }
    assert_eq!(server.state.full_page(JobId(1)).map(<[Bytes]>::len), Some(1_000));
    let next = Bytes::from_static(b"1001");
    let refused = Rejection::OutOfRange("page of events");
    assert_eq!(server.refused(add(1, next.clone(), None)), refused);
    let page = BytesRef::logged(7, 64, 4_000, Type::Bytes);
    server.given(add(1, next, Some(page.clone())));
    let image = server.image(1);
    assert_eq!((image.options().events.len(), &image.options().pages[..]), (1, &[page][..]));
    assert_eq!(server.state.full_page(JobId(1)), None);
}

#[test]
fn long_events_fill_a_page_by_their_bytes_and_too_long_ones_are_refused() {
    let mut server = Server::new();
    server.given(created(1));
    let long = Bytes::from(vec![b' '; 256 * 1024]);
    let longer = Bytes::from(vec![b' '; 256 * 1024 + 1]);
    assert_eq!(server.refused(add(1, longer.clone(), None)), Rejection::OutOfRange("event"));
    server.given(add(1, long.clone(), None));
    assert_eq!(server.state.full_page(JobId(1)).map(<[Bytes]>::len), Some(2));
    let set = Command::SetState {
        id: JobId(1),
        revision: None,
        state: long.slice(..64 * 1024 + 1),
        event: Bytes::new(),
        page: Some(BytesRef::empty(Type::Bytes)),
    };
    assert_eq!(server.refused(set), Rejection::OutOfRange("state"));
}

#[test]
fn a_job_has_a_bounded_number_of_pages() {
    let mut server = Server::new();
    server.given(created(1));
    let page = || Some(BytesRef::logged(7, 64, 4, Type::Bytes));
    for _ in 0..100 {
        server.given(add(1, Bytes::from_static(b"e"), page()));
    }
    let refused = server.refused(add(1, Bytes::from_static(b"e"), page()));
    assert_eq!(refused, Rejection::OutOfRange("number of events"));
}

#[test]
fn a_page_of_events_moves_without_changing_its_job() {
    let mut server = Server::new();
    server.given(created(1));
    let old = BytesRef::logged(7, 64, 4_000, Type::Bytes);
    server.given(add(1, Bytes::from_static(b"2"), Some(old.clone())));
    let before = server.image(1);
    let new = BytesRef { position: 9, ..old.clone() };
    let compaction = |old, new| Command::Compact(Compact::Page { id: JobId(1), old, new });
    assert_eq!(server.then(compaction(old.clone(), new.clone())), ["PageMoved"]);
    let mut expected = before.clone();
    expected.options_mut().pages = vec![new.clone()];
    assert_eq!(server.image(1), expected);
    assert_eq!(server.refused(compaction(old, new)), Rejection::Stale);
}
