//! The text commands: what is understood, and the exact lines that are answered.

use bytes::{Bytes, BytesMut};
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{
    AdminCommand, AdminError, Decoder, Incoming, Limits, Protocol, QueueLimits, Request, admin,
};

#[track_caller]
fn command(line: &str) -> AdminCommand {
    AdminCommand::parse(&Bytes::copy_from_slice(line.as_bytes())).expect("a command")
}

#[track_caller]
fn refusal(line: &str) -> String {
    let error =
        AdminCommand::parse(&Bytes::copy_from_slice(line.as_bytes())).expect_err("no command");
    written(|out| error.encode(out))
}

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).expect("text")
}

fn worker_line(
    number: u64,
    address: std::net::IpAddr,
    id: Option<&[u8]>,
    functions: &[&[u8]],
) -> String {
    written(|out| {
        admin::worker_start(out, number, address, id);
        admin::worker_functions(out, functions.iter().copied());
        admin::worker_end(out);
    })
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn commands_are_understood_in_any_case_and_with_words_behind_them() {
    let simple = [
        ("status", AdminCommand::Status),
        ("prioritystatus", AdminCommand::PriorityStatus),
        ("workers", AdminCommand::Workers),
        ("version", AdminCommand::Version),
        ("getpid", AdminCommand::Getpid),
        ("verbose", AdminCommand::Verbose),
    ];
    for (name, expected) in simple {
        assert_eq!(command(name), expected);
        assert_eq!(command(&name.to_uppercase()), expected);
        assert_eq!(command(&format!("{name} extra args a b c d")), expected);
        assert_eq!(command(&format!("  {name} ")), expected);
    }
    assert_eq!(command("show jobs"), AdminCommand::ShowJobs);
    assert_eq!(command("Show Unique JOBS"), AdminCommand::ShowUniqueJobs);
    assert_eq!(command("cancel job H:h:1"), AdminCommand::CancelJob { handle: bytes("H:h:1") });
    let create = AdminCommand::CreateFunction { name: bytes("CaseFn") };
    assert_eq!(command("create function CaseFn"), create);
    assert_eq!(command("drop function a"), AdminCommand::DropFunction { name: bytes("a") });
}

#[test]
fn refusals_are_gearmands_lines() {
    let unknown = "ERR UNKNOWN_COMMAND Unknown+server+command";
    for (line, word) in [
        ("", ""),
        (" ", ""),
        ("nonsense", "nonsense"),
        ("nonsense with args", "nonsense"),
        ("show", "show"),
        ("cancel", "cancel"),
        ("cancel job", "cancel"),
        ("shutdown", "shutdown"),
        ("shutdown graceful", "shutdown"),
        ("statusx", "statusx"),
    ] {
        assert_eq!(refusal(line), format!("{unknown}{word}\r\n"));
    }
    for line in ["show x", "show unique", "show jobs x", "show unique jobs x", "show unique x"] {
        assert_eq!(refusal(line), "ERR UNKNOWN_SHOW_ARGUMENTS\r\n");
    }
    assert_eq!(refusal("cancel foo bar"), "ERR UNKNOWN_ERROR\r\n");
    for line in [
        "maxqueue",
        "create",
        "create function",
        "create function f1 x",
        "create foo bar",
        "drop",
        "drop function",
        "drop function f1 x",
    ] {
        let word = line.split(' ').next().unwrap();
        let text = "An+incomplete+set+of+arguments+was+sent+to+this+command";
        assert_eq!(refusal(line), format!("ERR INVALID_ARGUMENTS {text}+{word}\r\n"));
    }
    let by_the_session = [
        (AdminError::UnknownJob, "ERR UNKNOWN_JOB\r\n"),
        (AdminError::FunctionNotFound, "ERR function not found\r\n"),
        (
            AdminError::FunctionInUse,
            "ERR there are still connected workers or executing clients\r\n",
        ),
    ];
    for (error, line) in by_the_session {
        assert_eq!(written(|out| error.encode(out)), line);
    }
}

#[test]
fn maxqueue_has_one_limit_or_three() {
    let limits = |line: &str| match command(line) {
        AdminCommand::MaxQueue { function, limits } => {
            assert_eq!(function, "mq");
            [limits.high, limits.normal, limits.low]
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(limits("maxqueue mq"), [None; 3]);
    assert_eq!(limits("maxqueue mq 10"), [Some(10); 3]);
    assert_eq!(limits("maxqueue mq 3 2 1"), [Some(3), Some(2), Some(1)]);
    assert_eq!(limits("maxqueue mq 3 0 1"), [Some(3), None, Some(1)]);
    assert_eq!(limits("maxqueue mq 99999999999"), [Some(u32::MAX); 3]);
    for none in ["0", "-1", "abc"] {
        assert_eq!(limits(&format!("maxqueue mq {none}")), [None; 3]);
    }
}

#[test]
fn answers_are_gearmands_lines() {
    assert_eq!(written(admin::ok), "OK\r\n");
    assert_eq!(written(admin::end), ".\n");
    assert_eq!(written(|out| admin::value(out, b"2.0.0")), "OK 2.0.0\n");
    assert_eq!(written(|out| admin::status_line(out, b"rev", 3, 1, 2)), "rev\t3\t1\t2\n");
    let line = written(|out| admin::priority_status_line(out, b"pr", 1, 2, 3, 4));
    assert_eq!(line, "pr\t1\t2\t3\t4\n");
    let line = written(|out| admin::job_line(out, b"H:h:1", 2, true, false));
    assert_eq!(line, "H:h:1\t2\t1\t0\n");
    assert_eq!(written(|out| admin::unique_line(out, b"u1")), "u1\n");
    assert_eq!(written(|out| admin::unique_line(out, b"")), "\n");

    let here = "127.0.0.1".parse().unwrap();
    let line = |id: Option<&[u8]>, functions: &[&[u8]]| worker_line(38, here, id, functions);
    assert_eq!(line(None, &[]), "38 127.0.0.1 - :\n");
    assert_eq!(line(Some(b""), &[]), "38 127.0.0.1  :\n");
    assert_eq!(line(Some(b"my id"), &[b"second", b"rev"]), "38 127.0.0.1 my id : second rev\n");
}

#[test]
fn no_name_breaks_a_line_or_a_field_or_moves_a_cursor() {
    let name = b"a\tb\rc\nd\0e\x1b[2K";
    let shown = r"a\x09b\x0dc\x0ad\x00e\x1b[2K";
    let line = written(|out| admin::status_line(out, name, 1, 0, 0));
    assert_eq!(line, format!("{shown}\t1\t0\t0\n"));
    let line = written(|out| admin::priority_status_line(out, name, 1, 2, 3, 4));
    assert_eq!(line, format!("{shown}\t1\t2\t3\t4\n"));
    let line = written(|out| admin::job_line(out, name, 1, true, false));
    assert_eq!(line, format!("{shown}\t1\t1\t0\n"));
    assert_eq!(written(|out| admin::unique_line(out, name)), format!("{shown}\n"));
    assert_eq!(written(|out| admin::value(out, name)), format!("OK {shown}\n"));
    let line = worker_line(1, "::1".parse().unwrap(), Some(name), &[name]);
    assert_eq!(line, format!("1 ::1 {shown} : {shown}\n"));
    let quoted = AdminError::UnknownCommand(Bytes::from_static(b"a\0b\x1b"));
    assert_eq!(
        written(|out| quoted.encode(out)),
        "ERR UNKNOWN_COMMAND Unknown+server+commanda\\x00b\\x1b\r\n"
    );
}

#[test]
fn an_unknown_command_is_quoted_unless_it_is_a_token() {
    let token = format!("spindle_{}", "aB3-_".repeat(9).split_at(43).0);
    let quoted = |word: &[u8]| {
        let error = AdminCommand::parse(&Bytes::copy_from_slice(word)).unwrap_err();
        written(|out| error.encode(out))
    };
    let answer = |word: &str| format!("ERR UNKNOWN_COMMAND Unknown+server+command{word}\r\n");
    for word in ["spindle_", "spindle_jobs_total", "größe", &token[..token.len() - 1]] {
        assert_eq!(quoted(word.as_bytes()), answer(word));
    }
    assert_eq!(quoted(token.as_bytes()), answer("spindle_…"));
    assert_eq!(quoted(&[b"\xff", token.as_bytes(), b" auth"].concat()), answer("\\xffspindle_…"));
}

#[test]
fn no_unique_ends_the_list_of_uniques() {
    assert_eq!(written(|out| admin::unique_line(out, b".")), "\\x2e\n");
    assert_eq!(written(|out| admin::unique_line(out, b"..")), "..\n");
    assert_eq!(written(|out| admin::unique_line(out, b"a\n.\n")), "a\\x0a.\\x0a\n");
}

#[test]
fn names_are_read_as_lists_show_them() {
    let name = Bytes::from_static(b"my fn\t\x1b");
    let drop = AdminCommand::DropFunction { name: name.clone() };
    assert_eq!(command(r"drop function my\x20fn\x09\x1b"), drop);
    let create = AdminCommand::CreateFunction { name };
    assert_eq!(command(r"create function my\x20fn\x09\x1B"), create);
    for plain in [r"App\Mailer", r"\x", r"\xg0", r"a\x0"] {
        let create = AdminCommand::CreateFunction { name: bytes(plain) };
        assert_eq!(command(&format!("create function {plain}")), create);
    }
    let limited = AdminCommand::MaxQueue {
        function: bytes(r"\x41"),
        limits: QueueLimits { high: Some(1), normal: Some(1), low: Some(1) },
    };
    assert_eq!(command(r"maxqueue \x5cx41 1"), limited);
}

#[test]
fn lines_end_in_lf_or_cr_lf_and_mix_with_packets() {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::from(&b"version\r\nstatus\n\0REQ\0\0\0\x10\0\0\0\x02hivers"[..]);
    let mut next = || decoder.decode(&mut input);
    assert_eq!(next(), Ok(Some(Incoming::Admin(Ok(AdminCommand::Version)))));
    assert_eq!(next(), Ok(Some(Incoming::Admin(Ok(AdminCommand::Status)))));
    let echo = Request::Echo { data: Bytes::from_static(b"hi") };
    assert_eq!(next(), Ok(Some(Incoming::Request(echo))));
    assert_eq!(next(), Ok(None));
    input.extend_from_slice(b"ion\r");
    assert_eq!(decoder.decode(&mut input), Ok(None));
    input.extend_from_slice(b"\n");
    let version = decoder.decode(&mut input);
    assert_eq!(version, Ok(Some(Incoming::Admin(Ok(AdminCommand::Version)))));
    assert_eq!(decoder.decode(&mut input), Ok(None));
}

#[test]
fn every_line_is_answered_empty_ones_too() {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::from(&b"status\n\n\r\nstatus\n"[..]);
    let empty = || Ok(Some(Incoming::Admin(Err(AdminError::UnknownCommand(Bytes::new())))));
    let status = || Ok(Some(Incoming::Admin(Ok(AdminCommand::Status))));
    for expected in [status(), empty(), empty(), status(), Ok(None)] {
        assert_eq!(decoder.decode(&mut input), expected);
    }
}

#[test]
fn commands_are_read_as_they_were_written() {
    let limits = QueueLimits { high: Some(3), normal: None, low: Some(1) };
    for command in [
        AdminCommand::Status,
        AdminCommand::PriorityStatus,
        AdminCommand::Workers,
        AdminCommand::Version,
        AdminCommand::Getpid,
        AdminCommand::Verbose,
        AdminCommand::ShowJobs,
        AdminCommand::ShowUniqueJobs,
        AdminCommand::CancelJob { handle: bytes("H:h:1") },
        AdminCommand::CreateFunction { name: bytes("f") },
        AdminCommand::DropFunction { name: bytes("f") },
        AdminCommand::MaxQueue { function: bytes("f"), limits },
    ] {
        let mut input = BytesMut::new();
        command.encode(&mut input);
        let decoded = Decoder::new(Limits::default()).decode(&mut input);
        assert_eq!(decoded, Ok(Some(Incoming::Admin(Ok(command)))));
    }
}

#[test]
fn the_first_bytes_tell_the_protocol() {
    for published in ["\0", "\0REQ", "version\n", "get", "GETPID\n", "getpid\n", "P\n", "\n", "z"] {
        assert_eq!(Protocol::of(published.as_bytes()), Some(Protocol::Published), "{published:?}");
    }
    for draft in ["\x01", "\x01SPD", "\x01XXX"] {
        assert_eq!(Protocol::of(draft.as_bytes()), Some(Protocol::Draft));
    }
    for stranger in [
        "GET / HTTP/1.1\r\n",
        "POST /",
        "PUT /",
        "HEAD /",
        "OPTIONS *",
        "DELETE /",
        "CONNECT h:1",
        "PATCH /",
        "TRACE /",
        "PRI * HTTP/2.0",
        "\x16\x03\x01",
    ] {
        assert_eq!(Protocol::of(stranger.as_bytes()), Some(Protocol::Stranger), "{stranger}");
    }
    for too_short in ["", "G", "GET", "P", "PO", "POST", "CONNEC", "\x16"] {
        assert_eq!(Protocol::of(too_short.as_bytes()), None, "{too_short}");
    }
}
