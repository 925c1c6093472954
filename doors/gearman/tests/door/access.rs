//! Access to packets and lines: every one, of the draft too, against every role, and against
//! functions of others.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_access::Role;
use spindle_core::audit::{Action, Actor, ActorKind};
use spindle_core::job::Origin;
use spindle_engine::{Flow, Outbox};
use spindle_gearman::client::Encode;
use spindle_gearman::wire::admin::{Presented, QueueLimits};
use spindle_gearman::wire::draft::{self, JobKind, NewJob, Progress};
use spindle_gearman::wire::{AdminCommand, GrabKind, Priority, Request, SubmitKind};
use spindle_gearman::{GearmanDoor, Options};
use spindle_log::MemoryLog;
use spindle_testkit::{Audited, TokensFile, check_identity_is_required, is_enough, open_as};

use crate::harness::{Bench, Line, submit};

/// What a packet or line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// A function that it names, or all that its worker can do.
    Function,
    /// A job that it names, or that its worker has.
    Job,
    All,
    Nothing,
}

type Needs = (Option<Role>, About);

const FREE: Needs = (None, About::Nothing);
const WORK: Needs = (Some(Role::Work), About::Function);
const REPORT: Needs = (Some(Role::Work), About::Job);
const SUBMIT: Needs = (Some(Role::Submit), About::Function);
const LIST: Needs = (Some(Role::Read), About::All);

/// What each packet needs. A new one does not compile without a row here.
fn of_request(request: &Request) -> Needs {
    match request {
        Request::CanDo { .. }
        | Request::CanDoTimeout { .. }
        | Request::PreSleep
        | Request::Grab(_) => WORK,
        Request::CantDo { .. }
        | Request::ResetAbilities
        | Request::AllYours
        | Request::Echo { .. }
        | Request::SetClientId { .. }
        | Request::Option { .. } => FREE,
        Request::Submit(_) => SUBMIT,
        Request::WorkStatus { .. }
        | Request::WorkData { .. }
        | Request::WorkWarning { .. }
        | Request::WorkComplete { .. }
        | Request::WorkFail { .. }
        | Request::WorkException { .. } => REPORT,
        Request::GetStatus { .. } | Request::GetStatusUnique { .. } => {
            (Some(Role::Read), About::Job)
        }
    }
}

fn of_command(command: &AdminCommand) -> Needs {
    match command {
        AdminCommand::Status
        | AdminCommand::PriorityStatus
        | AdminCommand::Workers
        | AdminCommand::ShowJobs
        | AdminCommand::ShowUniqueJobs => LIST,
        AdminCommand::Getpid | AdminCommand::Verbose => (Some(Role::Read), About::Nothing),
        AdminCommand::Version | AdminCommand::Auth { .. } => FREE,
        AdminCommand::CancelJob { .. } => (Some(Role::Manage), About::Job),
        AdminCommand::CreateFunction { .. }
        | AdminCommand::DropFunction { .. }
        | AdminCommand::MaxQueue { .. } => (Some(Role::Manage), About::Function),
    }
}

fn of_draft(request: &draft::Request) -> Needs {
    match request {
        draft::Request::Noop | draft::Request::WorkerDisconnect => FREE,
        draft::Request::WorkerConnect { .. }
        | draft::Request::WorkerSleep
        | draft::Request::JobAssign => WORK,
        draft::Request::JobCreate(_) => SUBMIT,
        // Its worker has it already.
        draft::Request::JobStatusAnnounce(_) | draft::Request::JobCompleteAnnounce { .. } => {
            (Some(Role::Work), About::Nothing)
        }
        draft::Request::JobStatus { .. } => (Some(Role::Read), About::Job),
        draft::Request::JobComplete { .. } => (Some(Role::Inspect), About::Job),
    }
}

/// A packet or line about a function, and a job of it, as bytes.
type Sample = (String, Needs, Vec<u8>);

pub fn bytes_of(value: &impl Encode) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    value.encode(&mut bytes);
    bytes.to_vec()
}

/// One of each packet and line of the published protocol.
fn published(function: &str, handle: &Bytes) -> Vec<Sample> {
    let name = function;
    let (function, handle) = (Bytes::copy_from_slice(name.as_bytes()), handle.clone());
    let data = Bytes::from_static(b"1");
    let requests = [
        Request::CanDo { function: function.clone() },
        Request::CanDoTimeout { function: function.clone(), timeout_ms: 9000 },
        Request::CantDo { function: "none".into() },
        Request::PreSleep,
        Request::AllYours,
        submit(SubmitKind::Background(Priority::Normal), name, "", "x"),
        Request::Grab(GrabKind::Uniq),
        Request::WorkStatus {
            handle: handle.clone(),
            numerator: data.clone(),
            denominator: data.clone(),
        },
        Request::WorkData { handle: handle.clone(), data: data.clone() },
        Request::WorkWarning { handle: handle.clone(), data: data.clone() },
        Request::WorkComplete { handle: handle.clone(), result: data.clone() },
        Request::WorkFail { handle: handle.clone() },
        Request::WorkException { handle: handle.clone(), data: data.clone() },
        Request::GetStatus { handle: handle.clone() },
        Request::GetStatusUnique { unique: "u".into() },
        Request::Echo { data: data.clone() },
        Request::SetClientId { id: data.clone() },
        Request::Option { name: "exceptions".into() },
        Request::ResetAbilities,
    ];
    let commands = [
        AdminCommand::Status,
        AdminCommand::PriorityStatus,
        AdminCommand::Workers,
        AdminCommand::Version,
        AdminCommand::Getpid,
        AdminCommand::Verbose,
        AdminCommand::ShowJobs,
        AdminCommand::ShowUniqueJobs,
        AdminCommand::CancelJob { handle },
        AdminCommand::CreateFunction { name: function.clone() },
        AdminCommand::DropFunction { name: function.clone() },
        AdminCommand::MaxQueue { function, limits: QueueLimits::default() },
        AdminCommand::Auth { token: Presented("admin".into()) },
    ];
    let of_request = |it: &Request| (format!("{it:?}"), of_request(it), bytes_of(it));
    let of_command = |it: &AdminCommand| (format!("{it:?}"), of_command(it), bytes_of(it));
    requests.iter().map(of_request).chain(commands.iter().map(of_command)).collect()
}

/// One of each packet of the draft.
fn drafted(function: &str, handle: &Bytes) -> Vec<Sample> {
    let name = Bytes::copy_from_slice(function.as_bytes());
    let job = NewJob {
        name: name.clone(),
        duplicate_key: Bytes::new(),
        flags: 0,
        kind: JobKind::Handle,
        payload: Bytes::new(),
    };
    let requests = [
        draft::Request::Noop,
        draft::Request::WorkerConnect { names: vec![name] },
        draft::Request::WorkerSleep,
        draft::Request::JobCreate(job),
        draft::Request::JobAssign,
        draft::Request::JobStatusAnnounce(Progress::default()),
        draft::Request::JobStatus { handle: handle.clone() },
        draft::Request::JobCompleteAnnounce { code: 0, result: Bytes::new() },
        draft::Request::JobComplete { handle: handle.clone() },
        draft::Request::WorkerDisconnect,
    ];
    requests.iter().map(|it| (format!("{it:?}"), of_draft(it), bytes_of(it))).collect()
}

fn guarded(tokens: &TokensFile, is_required: bool) -> Arc<Bench> {
    let options = Options { access: tokens.access(is_required), ..Options::default() };
    Bench::on(Arc::new(MemoryLog::new()), Default::default(), options)
}

/// Two requests a second: the third one waits, in each of the door's protocols.
#[test]
fn a_token_that_asks_too_fast_waits_its_turn() {
    let options = Options { access: TokensFile::of_all_roles().paced(2), ..Options::default() };
    let bench = Bench::on(Arc::new(MemoryLog::new()), Default::default(), options);
    let waits = || bench.engine.observe().gauges().waits;
    let echo = Request::Echo { data: Bytes::from_static(b"x") };
    let mut line = bench.open();
    auth(&mut line, "submit");
    for _ in 0..2 {
        line.ask(&echo);
    }
    line.send(&echo);
    line.hears_nothing();
    assert_eq!((waits(), line.input_bytes_max()), (1, 0));
    bench.open().ask(&echo);
    bench.pass(499);
    line.hears_nothing();
    bench.pass(1);
    line.hand_over();
    line.hear();
    assert!(line.input_bytes_max() > 0);

    let mut drafted = bench.open();
    auth(&mut drafted, "submit");
    let mut bytes = BytesMut::new();
    draft::Request::JobStatus { handle: Bytes::from_static(b"x") }.encode(&mut bytes);
    drafted.raw(&bytes);
    assert_eq!((drafted.all_heard().len(), waits()), (0, 1));
    bench.pass(1000);
    drafted.hand_over();
    assert!(!drafted.all_heard().is_empty());
    drafted.raw(&bytes);
    assert_eq!(waits(), 1);
    assert_eq!(drafted.shut_down(false), Flow::Close);
}

/// Lines that say who is there count before either protocol has begun: whoever guesses tokens waits.
#[test]
fn who_presents_tokens_too_fast_waits_before_the_protocol_is_known() {
    let options = Options { access: TokensFile::of_all_roles().paced(2), ..Options::default() };
    let bench = Bench::on(Arc::new(MemoryLog::new()), Default::default(), options);
    let waits = || bench.engine.observe().gauges().waits;
    let mut line = bench.open();
    // No token is known yet: the first line counts for no token.
    auth(&mut line, "submit");
    auth(&mut line, "submit");
    assert_eq!(line.text("auth guessed"), "ERR AUTHENTICATION_REQUIRED the+token+is+not+known\r\n");
    auth(&mut line, "submit");
    assert_eq!((line.text("auth submit"), waits(), line.input_bytes_max()), (String::new(), 1, 0));
    // The input after it waits, too.
    line.send(&Request::Echo { data: Bytes::from_static(b"x") });
    assert!(line.all_heard().is_empty());
    bench.pass(499);
    line.hand_over();
    assert!(line.all_heard().is_empty());
    bench.pass(1);
    line.hand_over();
    assert_eq!((line.all_heard(), line.input_bytes_max()), (b"OK\r\n".to_vec(), 0));
    bench.pass(1000);
    line.hand_over();
    line.hear();
    assert!(line.input_bytes_max() > 0);

    let mut held = bench.open();
    auth(&mut held, "submit");
    assert_eq!((held.text("auth submit"), waits()), (String::new(), 1));
    assert_eq!(held.shut_down(false), Flow::Close);
    held.close();
    assert_eq!(waits(), 0);
}

/// A packet that is malformed, and passed over, counts as any other.
#[test]
fn who_sends_malformed_packets_too_fast_waits() {
    let options = Options { access: TokensFile::of_all_roles().paced(2), ..Options::default() };
    let bench = Bench::on(Arc::new(MemoryLog::new()), Default::default(), options);
    let waits = || bench.engine.observe().gauges().waits;
    let mut line = bench.open();
    auth(&mut line, "submit");
    // CAN_DO of an empty name.
    let malformed = [&b"\0REQ"[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    for _ in 0..2 {
        line.raw(&malformed);
        assert_eq!(line.hear_error().0, "INVALID_FUNCTION_NAME");
    }
    line.raw(&malformed);
    assert!(line.all_heard().is_empty());
    assert_eq!((waits(), line.input_bytes_max()), (1, 0));
    bench.pass(500);
    line.hand_over();
    assert_eq!(line.hear_error().0, "INVALID_FUNCTION_NAME");
    assert!(waits() == 0 && line.input_bytes_max() > 0);
}

pub fn auth(line: &mut Line, token: &str) {
    assert_eq!(line.text(&format!("auth {token}")), "OK\r\n", "{token}");
}

/// A connection that has a job of a function and can do that function, as `admin`; and the handle.
fn worker(bench: &Arc<Bench>, function: &str, is_draft: bool) -> (Line, Bytes) {
    let mut line = bench.open();
    auth(&mut line, "admin");
    let mut client = bench.open();
    auth(&mut client, "admin");
    let handle = client.add(function, "u", "x");
    if is_draft {
        let names = vec![Bytes::copy_from_slice(function.as_bytes())];
        line.raw(bytes_of(&draft::Request::WorkerConnect { names }));
        line.raw(bytes_of(&draft::Request::JobAssign));
    } else {
        line.send(&Request::CanDo { function: Bytes::copy_from_slice(function.as_bytes()) });
        line.send(&Request::Grab(GrabKind::Plain));
    }
    assert!(!line.all_heard().is_empty());
    (line, handle)
}

fn has(heard: &[u8], part: &str) -> bool {
    heard.windows(part.len()).any(|window| window == part.as_bytes())
}

const DRAFT_DENIED: &str = "the token is missing, not known, expired, or not for this";

fn is_denied(heard: &[u8]) -> bool {
    ["PERMISSION_DENIED", "AUTHENTICATION_REQUIRED", DRAFT_DENIED].iter().any(|it| has(heard, it))
}

fn has_unknown_job(heard: &[u8]) -> bool {
    // The known flag of a STATUS_RES is the argument behind the handle or the unique.
    let unknown = ["JOB_NOT_FOUND", "ERR UNKNOWN_JOB", "unknown job", "\x000\x000\x00"];
    unknown.iter().any(|it| has(heard, it))
}

type Samples = fn(&str, &Bytes) -> Vec<Sample>;
/// A draft's connection cannot say who it is once it has begun: it says so first, and has no job.
const PROTOCOLS: [Samples; 2] = [published, drafted];

#[test]
fn every_packet_and_line_takes_the_roles_it_should_and_no_others() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let count = published("mine.a", &Bytes::new()).len();
    for at in 0..count {
        for had in Role::ALL {
            for is_limited in [false, true] {
                let token = if is_limited { format!("mine.{had}") } else { had.name().to_owned() };
                // Nobody's job but its own is to be had.
                let function = format!("mine.{at}.{token}");
                let (mut line, handle) = worker(&bench, &function, false);
                auth(&mut line, &token);
                let (what, (needed, about), bytes) = published(&function, &handle).remove(at);
                line.raw(bytes);
                let heard = line.all_heard();
                let enough = needed.is_none_or(|needed| is_enough(*had, needed))
                    && !(is_limited && about == About::All);
                let shown = heard.escape_ascii();
                assert_eq!(is_denied(&heard), !enough, "{what} as {token}: {shown}");
                assert!(!has(&heard, "JOB_NOT_FOUND"), "{what} as {token}: {shown}");
                line.close();
            }
        }
    }
}

#[test]
fn what_people_change_is_in_the_audit_log_and_nothing_else_is() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let admin = Actor::new(ActorKind::Token, "admin", "127.0.0.1", Origin::Gearman);
    for (samples, is_draft) in PROTOCOLS.into_iter().zip([false, true]) {
        for at in 0..samples("f", &Bytes::new()).len() {
            for (token, is_allowed) in [("work", false), ("admin", true)] {
                let (mut line, handle) = worker(&bench, &format!("f.{at}.{token}"), is_draft);
                let audited = Audited::from_now(&bench.engine);
                let (what, _, bytes) = samples("f", &handle).remove(at);
                if !is_draft {
                    auth(&mut line, token);
                }
                line.raw(bytes);
                line.all_heard();
                // A job has been submitted to the function by the time it is dropped.
                let changes = ["CancelJob", "DropFunction"].iter().any(|it| what.starts_with(it));
                audited.expect((changes && is_allowed).then_some(&admin), &what);
                line.close();
            }
        }
    }
    // Those above found nothing to change.
    let mut line = bench.open();
    auth(&mut line, "admin");
    let limits = Audited::from_now(&bench.engine);
    assert_eq!(line.text("maxqueue g 700"), "OK\r\n");
    limits.expect(Some(&admin), "maxqueue");
    assert_eq!(limits.entries()[0].detail, "jobs_max_by_class [700, 700, 700]");
    for number in 0..600 {
        line.add("g", &number.to_string(), "x");
    }
    let dropped = Audited::from_now(&bench.engine);
    assert_eq!(line.text("drop function g"), "OK\r\n");
    dropped.expect(Some(&admin), "drop function");
    let entry = &dropped.entries()[0];
    assert_eq!((entry.action(), entry.count), (Action::Purge, Some(600)));
    assert_eq!(entry.queue.as_deref(), Some(&b"g"[..]));
    let nothing = Audited::from_now(&bench.engine);
    line.text("drop function g");
    nothing.expect(None, "a function that is not there");
}

#[test]
fn every_packet_of_the_draft_takes_the_roles_it_should_and_no_others() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let handle = worker(&bench, "mine.a", false).1;
    for (what, (needed, _), bytes) in drafted("mine.a", &handle) {
        for had in Role::ALL {
            for token in [had.name().to_owned(), format!("mine.{had}")] {
                let mut line = bench.open();
                auth(&mut line, &token);
                line.raw(&bytes);
                let heard = line.all_heard();
                let enough = needed.is_none_or(|needed| is_enough(*had, needed));
                assert_eq!(is_denied(&heard), !enough, "{what} as {token}: {heard:?}");
                line.close();
            }
        }
    }
}

#[test]
fn what_others_have_is_refused_or_not_there() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    for (samples, is_draft) in PROTOCOLS.into_iter().zip([false, true]) {
        for at in 0..samples("other", &Bytes::new()).len() {
            let (mut line, handle) = worker(&bench, "other", false);
            let (what, (_, about), bytes) = samples("other", &handle).remove(at);
            if is_draft {
                line = bench.open();
                auth(&mut line, "mine.admin");
                // It can do nothing yet, so there is nothing of others in these.
                if what.starts_with("WorkerSleep") || what.starts_with("JobAssign") {
                    continue;
                }
            } else {
                auth(&mut line, "mine.admin");
            }
            line.raw(bytes);
            let heard = line.all_heard();
            let shown = heard.escape_ascii();
            match about {
                About::Function | About::All => assert!(is_denied(&heard), "{what}: {shown}"),
                About::Job => assert!(has_unknown_job(&heard), "{what}: {shown}"),
                About::Nothing => assert!(!is_denied(&heard), "{what}: {shown}"),
            }
        }
    }
}

#[test]
fn who_presents_nothing_or_something_wrong_comes_nowhere() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    for samples in PROTOCOLS {
        for (what, (needed, _), bytes) in samples("mine.a", &"H:localhost:1".into()) {
            for token in [None, Some("wrong"), Some("expired"), Some("admi"), Some("")] {
                let mut line = bench.open();
                if let Some(token) = token {
                    let answer = line.text(&format!("auth {token}"));
                    assert!(
                        answer.starts_with("ERR AUTHENTICATION_REQUIRED the+token"),
                        "{answer}"
                    );
                }
                line.raw(&bytes);
                let heard = line.all_heard();
                assert_eq!(is_denied(&heard), needed.is_some(), "{what} {token:?}: {heard:?}");
            }
        }
    }
    let mut line = bench.open();
    line.send(&Request::Grab(GrabKind::Plain));
    assert_eq!(line.hear_error().0, "AUTHENTICATION_REQUIRED");
    let refused = line.text("status");
    assert_eq!(
        refused,
        "ERR AUTHENTICATION_REQUIRED this+needs+a+token,+and+none+was+presented\r\n"
    );
}

#[test]
fn where_nobody_is_asked_a_token_binds_all_the_same() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    let mut line = bench.open();
    line.add("other", "", "x");
    auth(&mut line, "mine.submit");
    line.send(&submit(SubmitKind::Background(Priority::Normal), "other", "", "x"));
    assert_eq!(line.hear_error().0, "PERMISSION_DENIED");
    line.add("mine.a", "", "x");
    assert!(line.text("auth wrong").starts_with("ERR"));
    line.send(&Request::GetStatus { handle: "H:localhost:1".into() });
    assert_eq!(line.hear_error().0, "AUTHENTICATION_REQUIRED");
}

#[test]
fn a_token_is_presented_before_either_protocol_however_the_line_is_cut() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    for samples in PROTOCOLS {
        let (_, _, packet) = samples("mine.a", &Bytes::new()).remove(1);
        let mut line = bench.open();
        for byte in b"AUTH wrong\r\nauth work\n" {
            line.raw([*byte]);
        }
        line.raw(packet);
        let heard = String::from_utf8(line.all_heard()).unwrap();
        assert_eq!(heard, "ERR AUTHENTICATION_REQUIRED the+token+is+not+known\r\nOK\r\n");
    }
    // A line without an end closes the connection, as every other.
    let mut line = bench.open();
    line.raw(b"auth ");
    line.raw(vec![b'x'; 1023 - 5]);
    assert_eq!(line.flow, Flow::Continue);
    line.raw(b"xx");
    assert_ne!(line.flow, Flow::Continue);
}

#[test]
fn nothing_shows_a_token_by_mistake() {
    let command = AdminCommand::parse(&Bytes::from_static(b"auth sesame")).unwrap();
    assert_eq!(command, AdminCommand::Auth { token: Presented("sesame".into()) });
    assert!(!format!("{command:?}").contains("sesame"));
}

#[test]
fn a_client_lacks_an_identity_until_it_presents_one_where_it_must() {
    let bench = Bench::new();
    let door = |access| {
        let options = Options { access, ..Options::default() };
        GearmanDoor::new(bench.engine.clone(), options)
    };
    let access = check_identity_is_required(door);
    // What the client speaks is not known before its first request that is no `auth`.
    let sleep = bytes_of(&draft::Request::WorkerSleep);
    for (first, second) in [
        (&b"auth wrong\n"[..], &b"auth known\n"[..]),
        (b"version\n", b"auth known\n"),
        (b"auth wrong\nversion\n", b"auth known\n"),
        (&sleep, b""),
    ] {
        let (mut session, mut out) = (open_as(&door(access.clone()), None), Outbox::default());
        assert!(session.lacks_identity());
        assert_eq!(session.on_bytes(&mut first.into(), &mut out), Flow::Continue);
        assert!(session.lacks_identity(), "{}", first.escape_ascii());
        assert_eq!(session.on_bytes(&mut second.into(), &mut out), Flow::Continue);
        assert_eq!(session.lacks_identity(), second.is_empty(), "{}", first.escape_ascii());
    }
    let (mut session, mut out) = (open_as(&door(access), None), Outbox::default());
    let known = [b"auth known\n", &sleep[..]].concat();
    assert_eq!(session.on_bytes(&mut known[..].into(), &mut out), Flow::Continue);
    assert!(!session.lacks_identity());
}
