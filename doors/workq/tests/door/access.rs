//! Who may make which request: every request against every role, and against queues of others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use spindle_access::{Access, Look, Role};
use spindle_core::audit::{Actor, ActorKind};
use spindle_core::job::Origin;
use spindle_engine::{Flow, Options, Outbox};
use spindle_log::MemoryLog;
use spindle_testkit::{
    Audited, ManualEngine, TokensFile, check_identity_is_required, is_enough, open_as,
};
use spindle_workq::WorkqDoor;
use spindle_workq::wire::{Decoder, Limits, Request};

use crate::harness::{START_MS, TestServer, id};

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Queue,
    Job,
    All,
    Nothing,
}

/// A request with `QUEUE`, `JOB` (one that is there) and `NEW` (an id of no job) in it.
type Row = (&'static str, Option<Role>, About);

const TABLE: [Row; 19] = [
    ("add NEW QUEUE 1000 60000 1\r\nx\r\n", Some(Role::Submit), About::Queue),
    (
        "schedule NEW QUEUE 1000 60000 2030-01-01T00:00:00Z 1\r\nx\r\n",
        Some(Role::Submit),
        About::Queue,
    ),
    ("run NEW QUEUE 1000 0 1\r\nx\r\n", Some(Role::Submit), About::Queue),
    ("result JOB 0\r\n", Some(Role::Inspect), About::Job),
    ("lease QUEUE 0\r\n", Some(Role::Work), About::Queue),
    ("complete JOB 1\r\nx\r\n", Some(Role::Work), About::Job),
    ("fail JOB 1\r\nx\r\n", Some(Role::Work), About::Job),
    ("delete JOB\r\n", Some(Role::Manage), About::Job),
    ("extend JOB 1000\r\n", Some(Role::Work), About::Job),
    ("inspect job JOB\r\n", Some(Role::Inspect), About::Job),
    ("inspect jobs QUEUE 0 1\r\n", Some(Role::Inspect), About::Queue),
    ("inspect scheduled-jobs QUEUE 0 1\r\n", Some(Role::Inspect), About::Queue),
    ("inspect queue QUEUE\r\n", Some(Role::Read), About::Queue),
    ("inspect queues 0 1\r\n", Some(Role::Read), About::All),
    ("inspect server\r\n", Some(Role::Read), About::Nothing),
    ("auth admin\r\n", None, About::Nothing),
    ("offer QUEUE 0\r\n", Some(Role::Work), About::Queue),
    ("take JOB\r\n", Some(Role::Work), About::Job),
    ("pass\r\n", Some(Role::Work), About::Nothing),
];

/// Where a request stands in the table. A new one does not compile without a row.
fn place(request: &Request) -> usize {
    match request {
        Request::Add(_) => 0,
        Request::Schedule { .. } => 1,
        Request::Run(_) => 2,
        Request::Result { .. } => 3,
        Request::Lease { .. } => 4,
        Request::Complete { .. } => 5,
        Request::Fail { .. } => 6,
        Request::Delete { .. } => 7,
        Request::Extend { .. } => 8,
        Request::InspectJob { .. } => 9,
        Request::InspectJobs { .. } => 10,
        Request::InspectScheduledJobs { .. } => 11,
        Request::InspectQueue { .. } => 12,
        Request::InspectQueues { .. } => 13,
        Request::InspectServer => 14,
        Request::Auth { .. } => 15,
        Request::Offer { .. } => 16,
        Request::Take { .. } => 17,
        Request::Pass => 18,
    }
}

const TOKEN: &str = "-CLIENT-ERROR this needs a token, and none was presented\r\n";
const EXPIRED: &str = "-CLIENT-ERROR the token has expired\r\n";
const UNKNOWN: &str = "-CLIENT-ERROR the token is not known\r\n";
const FOREIGN: &str = "-CLIENT-ERROR the token is not for this queue\r\n";
const ALL: &str =
    "-CLIENT-ERROR this shows or changes all queues, and needs a token for the queues `*`\r\n";

fn lacks(role: Role) -> String {
    format!("-CLIENT-ERROR this needs the role `{role}`, which the token does not have\r\n")
}

/// A row's request about a queue, and a job of it that is there for that.
fn prepared(server: &TestServer, request: &str, queue: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let [job, new] = [(); 2]
        .map(|()| format!("6ba7b810-9dad-11d1-80b4-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let add = format!("auth admin\r\nadd {job} {queue} 1000 600000 1\r\nx\r\n");
    assert_eq!(server.answers(&add), "+OK\r\n+OK\r\n");
    request.replace("QUEUE", queue).replace("JOB", &job).replace("NEW", &new)
}

fn answer(server: &TestServer, token: Option<&str>, request: &str, queue: &str) -> String {
    let request = prepared(server, request, queue);
    let Some(token) = token else { return server.answers(&request) };
    let heard = server.answers(&format!("auth {token}\r\n{request}"));
    heard.split_once("\r\n").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

#[test]
fn who_deletes_is_in_the_audit_log_and_no_other_request_is() {
    let server = TestServer::guarded(TokensFile::of_all_roles().access(true));
    let admin = Actor::new(ActorKind::Token, "admin", "127.0.0.1", Origin::Workq);
    for (request, needed, _) in TABLE {
        for (token, is_allowed) in [("admin", true), ("work", false)] {
            let audited = Audited::from_now(&server.engine);
            answer(&server, Some(token), request, "mine.a");
            let manages = needed == Some(Role::Manage) && is_allowed;
            audited.expect(manages.then_some(&admin), request);
        }
    }
}

fn is_refusal(heard: &str) -> bool {
    ["this ", "the token"].iter().any(|start| heard.starts_with(&format!("-CLIENT-ERROR {start}")))
}

#[test]
fn the_rows_stand_in_their_places() {
    for (at, (request, ..)) in TABLE.iter().enumerate() {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        let line = request.replace("QUEUE", "q").replace("JOB", id).replace("NEW", id);
        let request = Decoder::new(Limits::default()).decode(&mut line.as_bytes().into());
        assert_eq!(place(&request.unwrap().unwrap()), at, "{line}");
    }
}

#[test]
fn every_request_takes_the_roles_it_should_and_no_others() {
    let server = TestServer::guarded(TokensFile::of_all_roles().access(true));
    for (request, needed, about) in TABLE {
        for had in Role::ALL {
            for (token, is_limited) in
                [(had.name().to_owned(), false), (format!("mine.{had}"), true)]
            {
                let heard = answer(&server, Some(&token), request, "mine.a");
                let refusal = match needed {
                    Some(needed) if !is_enough(*had, needed) => Some(lacks(needed)),
                    Some(_) if is_limited && about == About::All => Some(ALL.to_owned()),
                    _ => None,
                };
                match refusal {
                    Some(refusal) => assert_eq!(heard, refusal, "{request} as {token}"),
                    None => assert!(!is_refusal(&heard), "{request} as {token}: {heard}"),
                }
                assert!(!heard.starts_with("-NOT-FOUND"), "{request} as {token}");
            }
        }
    }
}

/// Two requests a second: the third one waits, and the client with it.
#[test]
fn a_token_that_asks_too_fast_waits_its_turn_and_is_not_read_on() {
    let server = TestServer::guarded(TokensFile::of_all_roles().paced(2));
    let id = |n: u32| format!("6ba7b810-9dad-11d1-80b4-{n:012x}");
    let add = |n| format!("add {} q 1000 600000 1\r\nx\r\n", id(n));
    let (mut fast, mut other) = (server.client(), server.client());
    fast.send("auth submit\r\n");
    fast.expect("+OK\r\n");
    fast.send(add(1) + &add(2));
    fast.expect("+OK\r\n+OK\r\n");
    fast.send(add(3));
    server.until("the wait", |server| server.engine.observe().gauges().waits == 1);
    let read = || server.net.counters().bytes_in.load(Ordering::Relaxed);
    let before = read();
    fast.send(add(4).repeat(100));
    // Others are served meanwhile, and what the fast one sends is not read.
    let asked = add(99);
    other.send(&asked);
    other.expect("+OK\r\n");
    assert_eq!(read() - before, asked.len() as u64);
    server.pass(499);
    assert_eq!(server.engine.observe().gauges().jobs, 3);
    server.pass(1);
    fast.expect("+OK\r\n");
    // The fourth came a second too early.
    server.until("the wait", |server| server.engine.observe().gauges().waits == 1);
    server.pass(1000);
    fast.expect("+OK\r\n");
    // A server that stops does not wait for it.
    server.until("the wait", |server| server.engine.observe().gauges().waits == 1);
    server.stop();
    fast.expect_closed();
}

/// A command that is malformed counts as any other.
#[test]
fn who_sends_malformed_commands_too_fast_waits() {
    let server = TestServer::guarded(TokensFile::of_all_roles().paced(2));
    let mut fast = server.client();
    fast.send("auth submit\r\n");
    fast.expect("+OK\r\n");
    fast.send("what\r\n".repeat(3));
    fast.expect("-CLIENT-ERROR Unknown command\r\n".repeat(2));
    server.until("the wait", |server| server.engine.observe().gauges().waits == 1);
    server.pass(499);
    assert_eq!(server.engine.observe().gauges().waits, 1);
    server.pass(1);
    fast.expect("-CLIENT-ERROR Unknown command\r\n");
    // Whoever has closed its sending side gets its answer all the same.
    fast.send("what\r\n");
    fast.end_sending();
    server.until("the wait", |server| server.engine.observe().gauges().waits == 1);
    server.pass(1000);
    fast.expect("-CLIENT-ERROR Unknown command\r\n");
    fast.expect_closed();
}

#[test]
fn what_is_in_queues_of_others_is_refused_or_not_there() {
    let server = TestServer::guarded(TokensFile::of_all_roles().access(true));
    for (request, _, about) in TABLE {
        let heard = answer(&server, Some("mine.admin"), request, "other");
        match about {
            About::Queue => assert_eq!(heard, FOREIGN, "{request}"),
            About::Job => assert_eq!(heard, "-NOT-FOUND\r\n", "{request}"),
            About::All => assert_eq!(heard, ALL, "{request}"),
            About::Nothing => assert!(heard.starts_with('+'), "{request}: {heard}"),
        }
    }
    let mixed = "lease mine.a other 0\r\n";
    assert_eq!(answer(&server, Some("mine.work"), mixed, "other"), FOREIGN);
}

#[test]
fn who_presents_nothing_or_something_wrong_comes_nowhere() {
    let server = TestServer::guarded(TokensFile::of_all_roles().access(true));
    let long = "x".repeat(4096);
    for (request, needed, _) in TABLE.into_iter().filter(|(_, needed, _)| needed.is_some()) {
        assert_eq!(answer(&server, None, request, "q"), TOKEN, "{request} {needed:?}");
        for token in ["admi", "adminx", "Admin", &long] {
            assert_eq!(answer(&server, Some(token), request, "q"), UNKNOWN, "{request} {token}");
        }
        let expired = answer(&server, Some("expired"), request, "q");
        assert_eq!(expired, EXPIRED, "{request}");
    }
    assert_eq!(server.answers("auth wrong\r\n"), UNKNOWN);
    for line in ["auth\r\n", "auth a b\r\n"] {
        assert_eq!(server.answers(line), "-CLIENT-ERROR Invalid command args\r\n");
    }
}

#[test]
fn where_nobody_is_asked_a_token_binds_all_the_same() {
    let server = TestServer::guarded(TokensFile::of_all_roles().access(false));
    for (request, needed, _) in TABLE {
        let heard = answer(&server, None, request, "q");
        assert!(!is_refusal(&heard), "{request}: {heard}");
        let Some(needed) = needed else { continue };
        let other = if needed == Role::Submit { Role::Work } else { Role::Submit };
        let heard = answer(&server, Some(other.name()), request, "q");
        assert_eq!(heard, lacks(needed), "{request}");
        assert_eq!(answer(&server, Some("wrong"), request, "q"), UNKNOWN, "{request}");
    }
    // Without a tokens file no token is known.
    assert_eq!(TestServer::new().answers("auth admin\r\n"), UNKNOWN);
}

/// A server, and the tokens that it reads again when the test has changed them.
fn changing() -> (TokensFile, Access, TestServer) {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let server = TestServer::guarded(access.clone());
    (tokens, access, server)
}

#[test]
fn a_lease_that_was_waited_for_is_given_back_when_the_token_is_gone() {
    let (tokens, access, server) = changing();
    let mut worker = server.client();
    worker.send("auth mine.work\r\nlease mine.a 60000\r\n");
    worker.expect("+OK\r\n");
    server.until("it waits", |server| server.engine.observe().gauges().waits == 1);
    tokens.write(&TokensFile::entry("new", "admin", "*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    let add = "add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 mine.a 1000 600000 1\r\nx\r\n";
    assert_eq!(server.answers(add), "+OK\r\n");
    worker.expect(UNKNOWN);
    let leased = "auth new\r\nlease mine.a 0\r\n";
    assert!(server.answers(leased).starts_with("+OK\r\n+OK 1\r\n"));
    // And what follows on the old connection.
    worker.send("inspect server\r\n");
    worker.expect(UNKNOWN);
}

#[test]
fn an_offer_that_may_not_be_taken_any_more_is_given_back() {
    let (tokens, access, server) = changing();
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let add = format!("add {id} mine.a 1000 600000 1 -max-attempts=1\r\nx\r\n");
    assert_eq!(server.answers(&add), "+OK\r\n");
    let mut worker = server.client();
    let offered = format!("+OK 1\r\n{id} mine.a 1000 1\r\nx\r\n");
    worker.ask("auth mine.work\r\noffer mine.a 0\r\n", "+OK\r\n".to_owned() + &offered);
    tokens.write(&TokensFile::entry("new", "admin", "*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    worker.ask(format!("take {id}\r\n"), UNKNOWN);
    assert_eq!(server.answers("auth new\r\nlease mine.a 0\r\n"), "+OK\r\n".to_owned() + &offered);
}

#[test]
fn a_result_that_was_waited_for_is_not_told_when_the_token_is_gone() {
    let (tokens, access, server) = changing();
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let mut client = server.client();
    client.send(format!(
        "add {id} mine.a 1000 600000 1\r\nx\r\nauth inspect\r\nresult {id} 60000\r\n"
    ));
    client.expect("+OK\r\n+OK\r\n");
    server.until("it waits", |server| server.engine.observe().gauges().waits == 1);
    tokens.write(&TokensFile::entry("new", "admin", "*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    assert_eq!(server.answers(&format!("complete {id} 6\r\nsecret\r\n")), "+OK\r\n");
    client.expect(UNKNOWN);
}

/// A job that was leased to the client needs no look at its queue: no other does without.
#[test]
fn a_worker_of_some_queues_ends_what_was_leased_to_it() {
    let server = TestServer::guarded(TokensFile::of_all_roles().access(true));
    let (mut admin, mut worker) = (server.client(), server.client());
    admin.ask("auth admin\r\n", "+OK\r\n");
    worker.ask("auth mine.work\r\n", "+OK\r\n");
    for number in [1, 2] {
        let add = format!("add {} mine.a 1000 600000 1\r\nx\r\n", id(number));
        admin.ask(add, "+OK\r\n");
        worker.ask("lease mine.a 0\r\n", format!("+OK 1\r\n{} mine.a 1000 1\r\nx\r\n", id(number)));
    }
    let complete = |number| format!("complete {} 1\r\nx\r\n", id(number));
    admin.ask(format!("add {} other 1000 600000 1\r\nx\r\n", id(3)), "+OK\r\n");
    for number in [3, 2, 1] {
        let answer = if number == 3 { "-NOT-FOUND\r\n" } else { "+OK\r\n" };
        worker.ask(complete(number), answer);
    }
    // The same id in a queue of others.
    admin.ask(format!("delete {}\r\n", id(2)), "+OK\r\n");
    admin.ask(format!("add {} other 1000 600000 1\r\nx\r\n", id(2)), "+OK\r\n");
    worker.ask(complete(2), "-NOT-FOUND\r\n");
    // The token has the role for work only.
    admin.ask(format!("add {} mine.a 1000 600000 1\r\nx\r\n", id(4)), "+OK\r\n");
    worker.ask("lease mine.a 0\r\n", format!("+OK 1\r\n{} mine.a 1000 1\r\nx\r\n", id(4)));
    worker.ask(format!("inspect job {}\r\n", id(4)), lacks(Role::Inspect));
}

#[test]
fn a_lease_that_was_waited_for_is_given_back_when_the_token_has_expired() {
    let end = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    let now = Arc::new(Mutex::new(end - Duration::from_nanos(1)));
    let shown = Arc::clone(&now);
    let more = "expires = 2030-03-17T17:46:40Z";
    let entries = TokensFile::entry("short", "work", "mine.*", more)
        + &TokensFile::entry("long", "admin", "*", "");
    let access = TokensFile::of(&entries).access(false).with_clock(move || *shown.lock().unwrap());
    let server = TestServer::guarded(access);
    let mut worker = server.client();
    worker.send("auth short\r\nlease mine.a 60000\r\n");
    worker.expect("+OK\r\n");
    server.until("it waits", |server| server.engine.observe().gauges().waits == 1);
    *now.lock().unwrap() = end;
    let add = "add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 mine.a 1000 600000 1\r\nx\r\n";
    assert_eq!(server.answers(add), "+OK\r\n");
    worker.expect(EXPIRED);
    assert!(server.answers("auth long\r\nlease mine.a 0\r\n").starts_with("+OK\r\n+OK 1\r\n"));
    worker.send("lease mine.a 0\r\n");
    worker.expect(EXPIRED);
}

#[test]
fn nothing_shows_a_token_by_mistake() {
    let request = Decoder::new(Limits::default()).decode(&mut (&b"auth sesame\r\n"[..]).into());
    let Some(Request::Auth { token }) = request.unwrap() else { panic!("it is auth") };
    assert_eq!(token.0, Bytes::from_static(b"sesame"));
    assert!(!format!("{:?}", Request::Auth { token }).contains("sesame"));
}

#[test]
fn a_client_lacks_an_identity_until_it_presents_one_where_it_must() {
    let ManualEngine { engine, .. } =
        ManualEngine::open(Arc::new(MemoryLog::new()), START_MS, Options::default());
    let door = |access| WorkqDoor::new(engine.clone(), Limits::default()).with_access(access);
    let access = check_identity_is_required(door);
    let (mut session, mut out) = (open_as(&door(access), None), Outbox::default());
    for (said, lacks) in [
        ("", true),
        ("inspect server\r\n", true),
        ("auth wrong\r\n", true),
        ("auth known\r\n", false),
        ("auth wrong\r\n", false),
    ] {
        assert_eq!(session.on_bytes(&mut said.as_bytes().into(), &mut out), Flow::Continue);
        assert_eq!(session.lacks_identity(), lacks, "{said}");
    }
}
