//! Finding jobs by status, door and queue.

use bytes::Bytes;
use spindle_core::command::Claim;
use spindle_core::job::{Cause, Origin};
use spindle_core::state::{ScanFilter, Walk};
use spindle_core::{Command, JobId, State, Status};

use crate::harness::{Server, complete, lease_of, submit, submit_by};

const EVERYTHING: usize = usize::MAX;

/// The numbers found on the whole way, in stretches that look at about so many jobs.
fn found(state: &mut State, filter: &ScanFilter, limit: usize, jobs_max: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut from = Some(JobId(0));
    while let Some(start) = from {
        let stretch = state.scan(Walk::Up(start), filter, limit, jobs_max);
        assert!(stretch.found.len() <= limit);
        assert!(stretch.next.is_none_or(|next| next > start), "every stretch gets further");
        ids.extend(stretch.found.iter().map(|id| id.0));
        from = stretch.next;
    }
    ids
}

/// The same from the newest to the oldest, in the order of their numbers.
fn found_back(state: &mut State, filter: &ScanFilter, limit: usize, jobs_max: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut below = Some(JobId(u64::MAX));
    while let Some(end) = below {
        let stretch = state.scan(Walk::Down(end), filter, limit, jobs_max);
        assert!(stretch.found.len() <= limit);
        assert!(stretch.next.is_none_or(|next| next < end), "every stretch gets further");
        ids.extend(stretch.found.iter().map(|id| id.0));
        below = stretch.next;
    }
    assert!(ids.is_sorted_by(|one, other| one > other), "{ids:?}");
    ids.reverse();
    ids
}

fn by_status(status: Status) -> ScanFilter {
    ScanFilter { statuses: vec![status], ..ScanFilter::default() }
}

fn in_queue(name: &'static str) -> ScanFilter {
    ScanFilter { queue: Some(Bytes::from_static(name.as_bytes())), ..ScanFilter::default() }
}

/// A thousand jobs in `mail`, with one in two hundred in `options`, parked, of another door.
fn crowd() -> Server {
    let mut server = Server::new();
    for id in 1..=1000 {
        server.given(match id % 200 {
            0 => submit_by(Origin::Gearman, id, "seldom", |job| job.parked = true),
            _ => submit(id, "mail", |_| {}),
        });
    }
    server
}

#[test]
fn few_among_many_are_found_by_what_they_are() {
    let mut server = crowd();
    let options = [200, 400, 600, 800, 1000];
    let state = &mut server.state;
    for (limit, jobs_max) in [(EVERYTHING, EVERYTHING), (2, EVERYTHING), (EVERYTHING, 1), (3, 130)]
    {
        assert_eq!(found(state, &by_status(Status::Parked), limit, jobs_max), options);
        assert_eq!(found(state, &in_queue("seldom"), limit, jobs_max), options);
        let door = ScanFilter { door: Some(Origin::Gearman), ..ScanFilter::default() };
        assert_eq!(found(state, &door, limit, jobs_max), options);
        assert_eq!(found(state, &ScanFilter::default(), limit, jobs_max).len(), 1000);
        assert_eq!(found(state, &in_queue("mail"), limit, jobs_max).len(), 995);
        assert_eq!(found(state, &by_status(Status::Dead), limit, jobs_max), [0; 0]);
        assert_eq!(found(state, &in_queue("nowhere"), limit, jobs_max), [0; 0]);
        let both = ScanFilter { statuses: vec![Status::Ready], ..in_queue("seldom") };
        assert_eq!(found(state, &both, limit, jobs_max), [0; 0]);
        let all = [by_status(Status::Parked), in_queue("mail"), in_queue("nowhere"), door, both];
        for filter in all.iter().chain([&ScanFilter::default()]) {
            let forth = found(state, filter, limit, jobs_max);
            assert_eq!(found_back(state, filter, limit, jobs_max), forth, "{filter:?}");
        }
    }
}

#[test]
fn what_changes_is_found_as_what_it_is_by_then() {
    let mut server = crowd();
    let leased = by_status(Status::Leased);
    assert_eq!(found(&mut server.state, &leased, EVERYTHING, EVERYTHING), [0; 0]);
    for _ in 0..3 {
        server.given(lease_of(&["mail"]));
    }
    assert_eq!(found(&mut server.state, &leased, EVERYTHING, EVERYTHING), [1, 2, 3]);
    server.given(complete(Claim::Unfinished { id: JobId(2) }));
    assert_eq!(found(&mut server.state, &leased, EVERYTHING, EVERYTHING), [1, 3]);
    server.given(Command::Cancel { id: JobId(400) });
    server.given(Command::Delete { id: JobId(600), cause: Cause::Deleted });
    let statuses = vec![Status::Done, Status::Dead];
    let finished = ScanFilter { statuses, ..ScanFilter::default() };
    assert_eq!(found(&mut server.state, &finished, EVERYTHING, EVERYTHING), [2, 400]);
    let dead_here = ScanFilter { statuses: vec![Status::Dead], ..in_queue("seldom") };
    assert_eq!(found(&mut server.state, &dead_here, EVERYTHING, EVERYTHING), [400]);
    assert_eq!(found(&mut server.state, &in_queue("seldom"), EVERYTHING, EVERYTHING).len(), 4);
    // A walk has looked at every chunk by now: what comes later must be marked anew.
    server.given(Command::Edit(Box::new(spindle_core::command::Edit {
        id: JobId(5),
        queue: Some(Bytes::from_static(b"other")),
        parked: Some(true),
        ..Default::default()
    })));
    assert_eq!(found(&mut server.state, &in_queue("other"), EVERYTHING, EVERYTHING), [5]);
    let parked = by_status(Status::Parked);
    assert_eq!(found(&mut server.state, &parked, EVERYTHING, EVERYTHING), [5, 200, 800, 1000]);
}

#[test]
fn finished_jobs_of_a_door_are_among_what_is_found() {
    let mut server = crowd();
    for id in [200, 201] {
        server.given(complete(Claim::Unfinished { id: JobId(id) }));
    }
    let door = ScanFilter {
        statuses: vec![Status::Done],
        door: Some(Origin::Gearman),
        ..ScanFilter::default()
    };
    // 201 lies in the same chunk and is done too: only its image knows its door.
    let found = found(&mut server.state, &door, EVERYTHING, EVERYTHING);
    assert!(found.contains(&200), "{found:?}");
}

#[test]
fn a_walk_for_few_among_many_does_not_look_at_all() {
    let mut server = crowd();
    let parked = by_status(Status::Parked);
    found(&mut server.state, &parked, EVERYTHING, EVERYTHING);
    // Five chunks with 128 jobs each have one; the other three are passed over.
    let stretch = server.state.scan(Walk::Up(JobId(0)), &parked, EVERYTHING, 5 * 128 + 1);
    assert_eq!(stretch.next, None, "{stretch:?}");
    let back = server.state.scan(Walk::Down(JobId(u64::MAX)), &parked, EVERYTHING, 5 * 128 + 1);
    assert_eq!((back.next, back.found.len()), (None, stretch.found.len()), "{back:?}");
    let below = server.state.scan(Walk::Down(JobId(600)), &parked, 1, EVERYTHING);
    assert_eq!((below.found, below.next), (vec![JobId(400)], Some(JobId(201))));
}
