//! Tokens whose entries change while their clients are connected.

use std::sync::Arc;

use bytes::Bytes;
use spindle_access::{Access, Look};
use spindle_core::command::{Command, Edit};
use spindle_core::job::Cause;
use spindle_engine::Flow;
use spindle_gearman::Options;
use spindle_gearman::wire::draft::{self, JobKind, NewJob};
use spindle_gearman::wire::{GrabKind, JobStatus, Request};
use spindle_log::MemoryLog;
use spindle_testkit::TokensFile;

use crate::access::{auth, bytes_of};
use crate::harness::{Bench, Line, id_of, known};

/// A server whose doors do not ask for tokens, and the file that says what tokens may do.
fn asking(tokens: &TokensFile) -> (Access, Arc<Bench>) {
    let access = tokens.access(false);
    let options = Options { access: access.clone(), ..Options::default() };
    (access, Bench::on(Arc::new(MemoryLog::new()), Default::default(), options))
}

#[test]
fn a_client_hears_nothing_more_of_its_jobs_when_its_token_is_gone() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let options = Options { access: access.clone(), ..Options::default() };
    let bench = Bench::on(Arc::new(MemoryLog::new()), Default::default(), options);
    let mut client = bench.open();
    auth(&mut client, "mine.submit");
    let handle = client.run("mine.a", "", "x");
    let mut worker = bench.open();
    auth(&mut worker, "mine.work");
    worker.send(&Request::CanDo { function: "mine.a".into() });
    worker.send(&Request::Grab(GrabKind::Plain));
    assert!(!worker.all_heard().is_empty());
    tokens.write(&TokensFile::entry("mine.work", "work", "mine.*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    worker.send(&Request::WorkComplete { handle, result: "secret".into() });
    worker.hears_nothing();
    client.hears_nothing();
    assert_eq!(client.flow, Flow::Abort);
}

#[test]
fn a_worker_whose_functions_are_not_its_own_any_more_gets_no_job() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let options = Options { access: access.clone(), ..Options::default() };
    let bench = Bench::on(Arc::new(MemoryLog::new()), Default::default(), options);
    let mut worker = bench.open();
    auth(&mut worker, "mine.work");
    worker.send(&Request::CanDo { function: "mine.a".into() });
    tokens.write(&TokensFile::entry("mine.work", "work", "mine.b", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    for request in [Request::Grab(GrabKind::All), Request::PreSleep] {
        worker.send(&request);
        assert_eq!(worker.hear_error().0, "PERMISSION_DENIED");
    }
}

/// What becomes of a job while its client waits.
type Turn = fn(&Bench, &mut Line, &Bytes);

const TURNS: [(&str, Turn); 6] = [
    ("progress", |_, worker, handle| worker.progress(handle, "1", "2")),
    ("data", |_, worker, handle| worker.data(handle, "secret")),
    ("end", |_, worker, handle| worker.complete(handle, "secret")),
    ("failure", |_, worker, handle| worker.fail(handle)),
    ("deletion", |bench, _, handle| {
        bench.execute(Command::Delete { id: id_of(handle), cause: Cause::Deleted });
    }),
    ("data at once with the end", |_, worker, handle| {
        worker.data(handle, "secret");
        worker.complete(handle, "");
    }),
];

/// A client that waits for a job of a function, as `mine.submit`; a worker that has the job; its
/// handle.
fn waiting(bench: &Arc<Bench>, function: &str, is_draft: bool) -> (Line, Line, Bytes) {
    let mut client = bench.open();
    auth(&mut client, "mine.submit");
    if is_draft {
        let create = draft::Request::JobCreate(NewJob {
            name: Bytes::copy_from_slice(function.as_bytes()),
            duplicate_key: Bytes::new(),
            flags: 0,
            kind: JobKind::Sync,
            payload: Bytes::new(),
        });
        client.raw(bytes_of(&create));
        assert!(!client.all_heard().is_empty());
    } else {
        client.run(function, "", "");
    }
    let mut worker = bench.open();
    worker.can_do(function);
    let handle = worker.take();
    (client, worker, handle)
}

#[test]
fn a_client_hears_nothing_more_of_a_job_whose_function_is_not_its_own_any_more() {
    for is_draft in [false, true] {
        for (what, turn) in TURNS {
            for (patterns, hears) in [("mine.?", true), ("mine.b", false)] {
                let tokens = TokensFile::of_all_roles();
                let (access, bench) = asking(&tokens);
                let (mut client, mut worker, handle) = waiting(&bench, "mine.a", is_draft);
                tokens.write(&TokensFile::entry("mine.submit", "submit", patterns, ""));
                assert!(matches!(access.look_again(), Look::Read(1)));
                turn(&bench, &mut worker, &handle);
                worker.hears_nothing();
                let heard = client.all_heard();
                // The draft has no packet for pieces of a result.
                let has_packet = !is_draft || what != "data";
                assert_eq!(!heard.is_empty(), hears && has_packet, "{what} {is_draft} {patterns}");
                let is_cut = client.flow == Flow::Abort;
                assert_eq!(is_cut, !hears, "{what} {is_draft} {patterns}");
            }
        }
    }
}

/// As with a result that is waited for at the other doors: the queue that the job is in counts.
#[test]
fn a_client_hears_nothing_more_of_a_job_that_was_moved_into_a_queue_of_others() {
    for is_draft in [false, true] {
        for (what, turn) in TURNS.into_iter().take(4) {
            for (queue, hears) in [("mine.b", true), ("other", false)] {
                let tokens = TokensFile::of_all_roles();
                let (_, bench) = asking(&tokens);
                let (mut client, worker, handle) = waiting(&bench, "mine.a", is_draft);
                // Only a job that nobody has can be moved.
                worker.close();
                let (id, to) = (id_of(&handle), Some(Bytes::from_static(queue.as_bytes())));
                bench.execute(Command::Edit(Box::new(Edit { id, queue: to, ..Edit::default() })));
                let mut worker = bench.open();
                worker.can_do(queue);
                assert_eq!(worker.take(), handle);
                turn(&bench, &mut worker, &handle);
                worker.hears_nothing();
                client.all_heard();
                assert_eq!(client.flow == Flow::Abort, !hears, "{what} {is_draft} {queue}");
            }
        }
    }
}

#[test]
fn of_a_unique_the_first_job_is_told_that_the_client_may_see() {
    let tokens = TokensFile::of_all_roles();
    let (_, bench) = asking(&tokens);
    let mut submitter = bench.open();
    // In the order of their functions, the first and the last are of others.
    for function in ["a", "mine.b", "mine.c", "z"] {
        submitter.add(function, "u", "x");
    }
    let mut worker = bench.open();
    worker.can_do("mine.b");
    worker.take();
    submitter.add("a", "of others", "x");
    for (token, sees) in [("mine.read", known(true)), ("read", known(false))] {
        let mut client = bench.open();
        auth(&mut client, token);
        assert_eq!(client.status_unique("u"), (sees, 0), "{token}");
        let others = if token == "read" { known(false) } else { JobStatus::default() };
        assert_eq!(client.status_unique("of others"), (others, 0), "{token}");
        assert_eq!(client.status_unique("nobody's"), (JobStatus::default(), 0), "{token}");
    }
    let mut other = bench.open();
    auth(&mut other, "mine.submit");
    other.send(&Request::GetStatusUnique { unique: "u".into() });
    assert_eq!(other.hear_error().0, "PERMISSION_DENIED");
}
