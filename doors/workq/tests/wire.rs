//! What the decoder makes of a peer's bytes, one table per topic.

use bytes::{Bytes, BytesMut};
use spindle_core::{JobId, address::foreign_uuid};
use spindle_workq::wire::{Decoder, ErrorText, Limits, NewJob, Reject, Request, Run, Uuid};

const ID: &str = "00000001-0000-4000-8000-000000000001";

type Outcome = Result<Request, Reject>;

fn id(text: &str) -> Uuid {
    Uuid::parse(text.as_bytes()).expect("test ids are ids")
}

/// Everything that comes out of these bytes, up to a close, and what stays in the input.
fn decode_with(limits: Limits, bytes: &[u8]) -> (Vec<Outcome>, Bytes) {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::from(bytes);
    let mut outcomes = Vec::new();
    while let Some(outcome) = decoder.decode(&mut input).transpose() {
        let closes = matches!(outcome, Err(Reject::Close | Reject::ReplyThenClose(_)));
        outcomes.push(outcome);
        if closes {
            break;
        }
    }
    (outcomes, input.freeze())
}

fn decode(bytes: &[u8]) -> Vec<Outcome> {
    decode_with(Limits::default(), bytes).0
}

/// The one request in these bytes.
fn request(text: &str) -> Request {
    let (outcomes, rest) = decode_with(Limits::default(), text.as_bytes());
    assert!(rest.is_empty(), "{rest:?} is left of {text:?}");
    match <[Outcome; 1]>::try_from(outcomes) {
        Ok([Ok(request)]) => request,
        other => panic!("{text:?} gives {other:?}"),
    }
}

/// Each text gets one answer and nothing is left of it.
fn check_refused(table: &[(&str, ErrorText)]) {
    for (text, error) in table {
        let text = text.replace("$ID", ID);
        let (outcomes, rest) = decode_with(Limits::default(), text.as_bytes());
        assert_eq!(outcomes, [Err(Reject::Reply(*error))], "{text:?}");
        assert!(rest.is_empty(), "{rest:?} is left of {text:?}");
    }
}

fn job(name: &'static str, payload: &'static str) -> NewJob {
    NewJob::new(id(ID), Bytes::from(name), 1000, 60_000, Bytes::from(payload))
}

#[test]
fn the_documents_own_example_of_add_is_taken() {
    let text = "add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 1000 60000 4 -priority=10 \
                -max-attempts=3 -max-fails=1\r\npong\r\n";
    let expected = NewJob {
        id: id("6ba7b810-9dad-11d1-80b4-00c04fd430c4"),
        priority: 10,
        attempts_max: 3,
        fails_max: 1,
        ..job("ping", "pong")
    };
    assert_eq!(request(text), Request::Add(expected));
}

#[test]
fn each_command_gives_its_request() {
    let time_ms = 1_465_886_806_000;
    let run = Run {
        id: id(ID),
        name: "r".into(),
        ttr_ms: 1000,
        wait_timeout_ms: 60_000,
        priority: -1,
        payload: "ping".into(),
    };
    let page = |name: &'static str| (Bytes::from(name), 4, 10);
    let ((name, cursor_offset, limit), (name2, ..)) = (page("s"), page("t"));
    let table = [
        (
            "schedule $ID s 1000 60000 2016-06-14T06:46:46Z 4\r\npong\r\n",
            Request::Schedule { job: job("s", "pong"), time_ms },
        ),
        ("run $ID r 1000 60000 4 -priority=-1\r\nping\r\n", Request::Run(run)),
        ("result $ID 60000\r\n", Request::Result { id: id(ID), wait_timeout_ms: 60_000 }),
        (
            "lease a 86400000\r\n",
            Request::Lease { names: vec!["a".into()], wait_timeout_ms: 86_400_000 },
        ),
        (
            "lease a b a 0\r\n",
            Request::Lease { names: vec!["a".into(), "b".into(), "a".into()], wait_timeout_ms: 0 },
        ),
        ("complete $ID 4\r\npong\r\n", Request::Complete { id: id(ID), result: "pong".into() }),
        ("fail $ID 0\r\n\r\n", Request::Fail { id: id(ID), result: Bytes::new() }),
        ("delete $ID\r\n", Request::Delete { id: id(ID) }),
        ("extend $ID 86400000\r\n", Request::Extend { id: id(ID), ttr_ms: 86_400_000 }),
        ("inspect job $ID\r\n", Request::InspectJob { id: id(ID) }),
        ("inspect jobs s 4 10\r\n", Request::InspectJobs { name, cursor_offset, limit }),
        (
            "inspect scheduled-jobs t 4 10\r\n",
            Request::InspectScheduledJobs { name: name2, cursor_offset, limit },
        ),
        ("inspect queue ping\r\n", Request::InspectQueue { name: "ping".into() }),
        (
            "inspect queues 4294967295 100\r\n",
            Request::InspectQueues { cursor_offset: u32::MAX, limit: 100 },
        ),
        ("inspect server\r\n", Request::InspectServer),
        (
            "offer a b 5\r\n",
            Request::Offer { names: vec!["a".into(), "b".into()], wait_timeout_ms: 5 },
        ),
        ("offer a 0\r\n", Request::Offer { names: vec!["a".into()], wait_timeout_ms: 0 }),
        ("take $ID\r\n", Request::Take { id: id(ID) }),
        ("pass\r\n", Request::Pass),
    ];
    for (text, expected) in table {
        assert_eq!(request(&text.replace("$ID", ID)), expected, "{text:?}");
    }
}

#[test]
fn a_payload_may_hold_anything() {
    for payload in ["", "\r\n\r\n", "\n", "a\0b", "add x y 1 1 1\r\n"] {
        let text = format!("add {ID} ping 1000 60000 {}\r\n{payload}\r\n", payload.len());
        let Request::Add(job) = request(&text) else { panic!("{text:?} is no add") };
        assert_eq!(job.payload, payload.as_bytes());
    }
}

#[test]
fn spaces_zeros_signs_and_unknown_flags_are_taken_as_recorded() {
    let expected = Request::Add(job("ping", "a"));
    for text in [
        "add  $ID   ping 1000 60000 1 \r\na\r\n",
        "add $ID ping 01000 060000 01\r\na\r\n",
        "add $ID ping 1000 60000 +1\r\na\r\n",
        "add $ID ping 1000 60000 1 -nonsense=1\r\na\r\n",
        "add -a=1 $ID ping -b=2 1000 60000 1 -c=3\r\na\r\n",
        "add $ID ping 1000 60000 1 -max-attempts=0 -max-fails=000 -priority=+0\r\na\r\n",
    ] {
        assert_eq!(request(&text.replace("$ID", ID)), expected, "{text:?}");
    }
    let Request::Add(job) = request(&format!("add -priority=-3=9 {ID} -x 1 1 0\r\n\r\n")) else {
        panic!("no add")
    };
    assert_eq!((job.priority, job.name), (-3, Bytes::from("-x")));
    assert_eq!(request("inspect  server \r\n"), Request::InspectServer);
}

#[test]
fn the_ends_of_every_range_are_inside() {
    let text = format!(
        "add {ID} {} 86400000 18446744073709551615 1 -priority=-2147483648 -max-attempts=255 \
         -max-fails=255\r\na\r\n",
        "n".repeat(255)
    );
    let Request::Add(job) = request(&text) else { panic!("no add") };
    assert_eq!((job.ttr_ms, job.ttl_ms, job.priority), (86_400_000, u64::MAX, -2_147_483_648));
    assert_eq!((job.attempts_max, job.fails_max, job.name.len()), (255, 255, 255));
    for (priority, taken) in [(4_294_967_295i64, true), (4_294_967_296, false)] {
        for line in ["schedule $ID s 1 1 2030-01-01T00:00:00Z 0", "run $ID s 1 1 0"] {
            let text = format!("{} -priority={priority}\r\n\r\n", line.replace("$ID", ID));
            let outcome = decode(text.as_bytes()).remove(0);
            assert_eq!(outcome.is_ok(), taken, "{text:?} gives {outcome:?}");
        }
    }
}

#[test]
fn lines_that_are_no_command_are_answered() {
    use ErrorText::*;
    check_refused(&[
        ("\r\n", UnknownCommand),
        ("foo\r\n", UnknownCommand),
        ("ADD\r\n", UnknownCommand),
        (" add\r\n", UnknownCommand),
        ("-x=1 add\r\n", UnknownCommand),
        ("inspect\tserver\r\n", UnknownCommand),
        ("inspect foo\r\n", UnknownCommand),
        ("\0\u{1}\u{ff}\r\n", UnknownCommand),
        ("add\r\n", InvalidCommandArgs),
        ("add -x\r\n", InvalidCommandArgs),
        ("add -=1\r\n", InvalidCommandFlags),
        ("add -x=\r\n", InvalidCommandFlags),
        ("add -x=1 -x=2\r\n", InvalidCommandFlags),
        ("foo -x=\r\n", InvalidCommandFlags),
    ]);
}

#[test]
fn inspect_checks_words_and_flags_then_name_offset_and_limit() {
    use ErrorText::*;
    check_refused(&[
        ("inspect\r\n", InvalidCommandArgs),
        ("inspect server x\r\n", InvalidCommandArgs),
        ("inspect server -x=1\r\n", InvalidCommandArgs),
        ("inspect queues\r\n", InvalidCommandArgs),
        ("inspect queues 0\r\n", InvalidCommandArgs),
        ("inspect queues a 0\r\n", InvalidCursorOffset),
        ("inspect queues -1 1\r\n", InvalidCursorOffset),
        ("inspect queues 4294967296 1\r\n", InvalidCursorOffset),
        ("inspect queues 0 0\r\n", InvalidLimit),
        ("inspect queues 0 101\r\n", InvalidLimit),
        ("inspect queue\r\n", InvalidCommandArgs),
        ("inspect queue a b\r\n", InvalidCommandArgs),
        ("inspect queue a*b\r\n", InvalidName),
        ("inspect jobs ids\r\n", InvalidCommandArgs),
        ("inspect jobs a*b x 0\r\n", InvalidName),
        ("inspect jobs ids x 0\r\n", InvalidCursorOffset),
        ("inspect scheduled-jobs ids 0 0\r\n", InvalidLimit),
        ("inspect job\r\n", InvalidCommandArgs),
        ("inspect job x\r\n", InvalidId),
    ]);
}

#[test]
fn waiting_commands_check_the_wait_before_the_name() {
    use ErrorText::*;
    let long = format!("lease {} 10\r\n", "n".repeat(256));
    check_refused(&[
        ("lease\r\n", InvalidCommandArgs),
        ("lease x\r\n", InvalidCommandArgs),
        ("lease x 10 -p=1\r\n", InvalidCommandArgs),
        ("lease x y\r\n", InvalidWaitTimeout),
        ("lease x -1\r\n", InvalidWaitTimeout),
        ("lease x 86400001\r\n", InvalidWaitTimeout),
        ("lease a*b y\r\n", InvalidWaitTimeout),
        ("lease a*b 10\r\n", InvalidName),
        ("lease ok a*b ok 10\r\n", InvalidName),
        (&long, InvalidName),
        ("result\r\n", InvalidCommandArgs),
        ("result x\r\n", InvalidCommandArgs),
        ("result $ID 10 -x=1\r\n", InvalidCommandArgs),
        ("result x y\r\n", InvalidId),
        ("result $ID x\r\n", InvalidWaitTimeout),
        ("result $ID 86400001\r\n", InvalidWaitTimeout),
        ("delete\r\n", InvalidCommandArgs),
        ("delete $ID -x=1\r\n", InvalidCommandArgs),
        ("delete x\r\n", InvalidId),
        ("delete urn:uuid:11111111-1111-1111-1111\r\n", InvalidId),
        ("extend $ID\r\n", InvalidCommandArgs),
        ("offer q\r\n", InvalidCommandArgs),
        ("offer q x\r\n", InvalidWaitTimeout),
        ("offer q/r 0\r\n", InvalidName),
        ("take\r\n", InvalidCommandArgs),
        ("take x\r\n", InvalidId),
        ("pass now\r\n", InvalidCommandArgs),
        ("extend x 0\r\n", InvalidId),
        ("extend $ID 0\r\n", InvalidTtr),
        ("extend $ID 86400001\r\n", InvalidTtr),
    ]);
}

#[test]
fn wrong_counts_and_sizes_are_answered_without_waiting_for_a_payload() {
    use ErrorText::*;
    check_refused(&[
        ("add $ID ping 1000 60000\r\n", InvalidCommandArgs),
        ("add $ID ping 1000 60000 1 extra\r\n", InvalidCommandArgs),
        ("add $ID ping 1000 60000 1 -priority\r\n", InvalidCommandArgs),
        ("add $ID ping 1000 60000 1 -priority=\r\n", InvalidCommandFlags),
        ("add $ID ping 1000 60000 1 -priority=1 -priority=2\r\n", InvalidCommandFlags),
        ("add $ID ping 1000 60000 x\r\n", InvalidPayloadSize),
        ("add $ID ping 1000 60000 -1\r\n", InvalidPayloadSize),
        ("add $ID ping 1000 60000 1048577\r\n", InvalidPayloadSize),
        ("add x a*b 0 0 99999999999999999999999\r\n", InvalidPayloadSize),
        ("run $ID r 1000 10\r\n", InvalidCommandArgs),
        ("schedule $ID s 1000 60000 2030-01-01T00:00:00Z\r\n", InvalidCommandArgs),
        ("schedule $ID s 1000 60000 2030-01-01T00:00:00Z x\r\n", InvalidPayloadSize),
        ("complete\r\n", InvalidCommandArgs),
        ("complete x\r\n", InvalidCommandArgs),
        ("complete $ID x\r\n", InvalidPayloadSize),
        ("complete $ID -1\r\n", InvalidPayloadSize),
        ("complete $ID 1048577\r\n", InvalidPayloadSize),
        ("fail\r\n", InvalidCommandArgs),
        ("fail $ID x\r\n", InvalidResultSize),
        ("fail $ID -1\r\n", InvalidResultSize),
        ("fail $ID 1048577\r\n", InvalidResultSize),
    ]);
}

#[test]
fn other_argument_errors_take_the_payload_with_them() {
    use ErrorText::*;
    check_refused(&[
        ("add $ID ping 1000 60000 1 -a=1 -b=2 -c=3 -d=4\r\na\r\n", InvalidCommandArgs),
        ("add x ping 1000 60000 1\r\na\r\n", InvalidId),
        ("add 00000000-0000-0000-0000-000000000000 p 1 1 1\r\na\r\n", InvalidId),
        ("add 7370696e-646c-8000-8000-000000000001 p 1 1 1\r\na\r\n", InvalidId),
        ("add $ID a*b 1000 60000 1\r\na\r\n", InvalidName),
        ("add $ID ping 0 60000 1\r\na\r\n", InvalidTtr),
        ("add $ID ping -5 60000 1\r\na\r\n", InvalidTtr),
        ("add $ID ping +1000 60000 +1\r\na\r\n", InvalidTtr),
        ("add $ID ping 86400001 60000 1\r\na\r\n", InvalidTtr),
        ("add $ID ping 4294967296 60000 1\r\na\r\n", InvalidTtr),
        ("add $ID ping 1000 0 1\r\na\r\n", InvalidTtl),
        ("add $ID ping 1000 x 1\r\na\r\n", InvalidTtl),
        ("add $ID ping 1000 18446744073709551616 1\r\na\r\n", InvalidTtl),
        ("add $ID ping 1000 60000 1 -priority=x\r\na\r\n", InvalidPriority),
        ("add $ID ping 1000 60000 1 -priority=2147483648\r\na\r\n", InvalidPriority),
        ("add $ID ping 1000 60000 1 -max-attempts=256\r\na\r\n", InvalidMaxAttempts),
        ("add $ID ping 1000 60000 1 -max-attempts=-1\r\na\r\n", InvalidMaxAttempts),
        ("add $ID ping 1000 60000 1 -max-fails=256\r\na\r\n", InvalidMaxFails),
        ("schedule $ID s 1000 60000 notatime 1\r\na\r\n", InvalidTime),
        ("schedule $ID s 1000 60000 2030-01-01T00:00:00+01:00 1\r\na\r\n", InvalidTime),
        ("schedule $ID s 1000 0 2030-01-01T00:00:00Z 1\r\na\r\n", InvalidTtl),
        ("schedule x s 1000 60000 2030-01-01T00:00:00Z 1\r\na\r\n", InvalidId),
        ("run $ID r 1000 x 1\r\na\r\n", InvalidWaitTimeout),
        ("run $ID r 1000 86400001 1\r\na\r\n", InvalidWaitTimeout),
        ("run $ID r 0 10 1\r\na\r\n", InvalidTtr),
        ("run $ID r 1000 10 1 -a=1 -b=1\r\na\r\n", InvalidCommandArgs),
        ("run $ID r 1000 10 1 -priority=x\r\na\r\n", InvalidPriority),
        ("run x r 1000 10 1\r\na\r\n", InvalidId),
        ("run 7370696e-646c-8000-8000-000000000001 r 1 1 1\r\na\r\n", InvalidId),
        ("run $ID a*b 1000 10 1\r\na\r\n", InvalidName),
        ("complete x 0\r\n\r\n", InvalidId),
        ("complete $ID 1 -x=1\r\na\r\n", InvalidCommandArgs),
        ("fail x 0\r\n\r\n", InvalidId),
    ]);
}

#[test]
fn the_form_of_all_arguments_is_checked_before_any_range() {
    use ErrorText::*;
    check_refused(&[
        ("add x a*b y z 1 -priority=w\r\na\r\n", InvalidId),
        ("add $ID a*b y z 1 -priority=w\r\na\r\n", InvalidTtr),
        ("add $ID a*b 0 z 1 -priority=w\r\na\r\n", InvalidTtl),
        ("add $ID a*b 0 0 1 -priority=w -max-fails=v -max-attempts=u\r\na\r\n", InvalidMaxAttempts),
        ("add $ID a*b 0 0 1 -priority=w -max-fails=v\r\na\r\n", InvalidMaxFails),
        ("add $ID a*b 0 0 1 -priority=w\r\na\r\n", InvalidPriority),
        ("add $ID a*b 0 0 1\r\na\r\n", InvalidName),
        ("add $ID ok 0 0 1\r\na\r\n", InvalidTtr),
        ("schedule $ID a*b 0 0 notatime 1 -priority=w\r\na\r\n", InvalidTime),
        ("run $ID a*b 0 x 1\r\na\r\n", InvalidWaitTimeout),
        ("run $ID a*b 0 0 1\r\na\r\n", InvalidName),
    ]);
}

#[test]
fn any_uuid_is_an_id_and_junk_behind_one_is_not() {
    for form in [
        "61A444A0-6128-41C0-8078-CC757D3BD2D9",
        "61a444a0612841c08078cc757d3bd2d9",
        "{61a444a0-6128-41c0-8078-cc757d3bd2d9}",
        "urn:uuid:61a444a0-6128-41c0-8078-cc757d3bd2d9",
    ] {
        let expected = Request::Delete { id: id("61a444a0-6128-41c0-8078-cc757d3bd2d9") };
        assert_eq!(request(&format!("delete {form}\r\n")), expected, "{form}");
    }
    // A version 1 id, a version 5 id, and one of another variant.
    for form in [
        "6ba7b810-9dad-11d1-80b4-00c04fd430c4",
        "61a444a0-6128-51c0-8078-cc757d3bd2e1",
        "61a444a0-6128-41c0-c078-cc757d3bd2e0",
    ] {
        let Request::Add(job) = request(&format!("add {form} q 1 1 0\r\n\r\n")) else {
            panic!("no add")
        };
        assert_eq!(job.id.to_string(), form);
    }
    check_refused(&[(
        "delete 61a444a0-6128-41c0-8078-cc757d3bd2deTRAILING\r\n",
        ErrorText::InvalidId,
    )]);
}

#[test]
fn jobs_of_other_doors_can_be_named_but_not_made() {
    let foreign = Uuid::from_bytes(foreign_uuid(JobId(77)));
    assert!(foreign.is_foreign());
    check_refused(&[
        (&format!("add {foreign} ping 1000 60000 1\r\na\r\n"), ErrorText::InvalidId),
        (&format!("run {foreign} ping 1000 60000 1\r\na\r\n"), ErrorText::InvalidId),
    ]);
    assert_eq!(request(&format!("delete {foreign}\r\n")), Request::Delete { id: foreign });
    assert_eq!(request(&format!("inspect job {foreign}\r\n")), Request::InspectJob { id: foreign });
}

#[test]
fn a_payload_longer_than_announced_loses_two_bytes_more_than_its_size() {
    let text = format!("add {ID} ping 1000 60000 3\r\nabcdefg\r\ninspect server\r\n");
    let expected = [
        Err(Reject::Reply(ErrorText::InvalidPayloadSize)),
        Err(Reject::Reply(ErrorText::UnknownCommand)),
        Ok(Request::InspectServer),
    ];
    assert_eq!(decode(text.as_bytes()), expected);
    // What is left is a lone LF, and that is no line end.
    let text = format!("add {ID} ping 1000 60000 3\r\nabcd\r\n");
    let expected = [Err(Reject::Reply(ErrorText::InvalidPayloadSize)), Err(Reject::Close)];
    assert_eq!(decode(text.as_bytes()), expected);
    let text = format!("fail {ID} 3\r\nabcde");
    assert_eq!(decode(text.as_bytes()), [Err(Reject::Reply(ErrorText::InvalidResultSize))]);
    // The wrong size is what is told, whatever else is wrong with the line.
    let text = "add x ping 1000 60000 3\r\nabcde".to_owned();
    assert_eq!(decode(text.as_bytes()), [Err(Reject::Reply(ErrorText::InvalidPayloadSize))]);
}

#[test]
fn a_payload_shorter_than_announced_is_waited_for() {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::from(format!("add {ID} p 1 1 10\r\nabc\r\n").as_bytes());
    assert_eq!(decoder.decode(&mut input), Ok(None));
    assert_eq!(decoder.bytes_wanted(&input), 12);
    input.extend_from_slice(b"xxxxx\r");
    assert_eq!(decoder.decode(&mut input), Ok(None), "the CR alone is no error");
    input.extend_from_slice(b"\n");
    let Ok(Some(Request::Add(job))) = decoder.decode(&mut input) else { panic!("no add") };
    assert_eq!(job.payload, &b"abc\r\nxxxxx"[..]);
    assert!(input.is_empty());
}

#[test]
fn a_payload_shares_the_bytes_that_were_read() {
    let payload = vec![b'p'; 1024 * 1024];
    let mut input = BytesMut::from(format!("complete {ID} 1048576\r\n").as_bytes());
    input.extend_from_slice(&payload);
    input.extend_from_slice(b"\r\n");
    let read = input.as_ptr_range();
    let Ok(Some(Request::Complete { result, .. })) =
        Decoder::new(Limits::default()).decode(&mut input)
    else {
        panic!("no complete")
    };
    assert_eq!(result, payload);
    assert!(read.contains(&result.as_ptr()));
}

#[test]
fn several_commands_in_one_packet_are_several_requests() {
    let text = format!("complete {ID} 1\r\na\r\nnonsense\r\nfail {ID} 1\r\nb\r\ndelete {ID}\r\nle");
    let (outcomes, rest) = decode_with(Limits::default(), text.as_bytes());
    let expected = [
        Ok(Request::Complete { id: id(ID), result: "a".into() }),
        Err(Reject::Reply(ErrorText::UnknownCommand)),
        Ok(Request::Fail { id: id(ID), result: "b".into() }),
        Ok(Request::Delete { id: id(ID) }),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(rest, &b"le"[..]);
}

#[test]
fn a_line_that_ends_in_a_bare_lf_closes() {
    for text in ["inspect server\n", "\n", "\r\r\n\n"] {
        assert_eq!(decode(text.as_bytes()).last(), Some(&Err(Reject::Close)), "{text:?}");
    }
}

#[test]
fn nothing_is_decoded_after_a_close() {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::from("\ninspect server\r\n");
    assert_eq!(decoder.decode(&mut input), Err(Reject::Close));
    assert_eq!(decoder.decode(&mut input), Err(Reject::Close));
    assert_eq!(decoder.decode_at_eof(&mut input), Err(Reject::Close));
}

#[test]
fn browsers_and_tls_are_strangers_on_a_fresh_connection_only() {
    for start in [
        "GET ",
        "POST ",
        "PUT ",
        "HEAD ",
        "OPTIONS ",
        "DELETE ",
        "CONNECT ",
        "PATCH ",
        "TRACE ",
        "\u{16}\u{3}",
    ] {
        assert_eq!(decode(start.as_bytes()), [Err(Reject::Close)], "{start:?}");
        let later = format!("inspect server\r\n{start}/\r\n");
        let expected = [Ok(Request::InspectServer), Err(Reject::Reply(ErrorText::UnknownCommand))];
        assert_eq!(decode(later.as_bytes()), expected, "{start:?}");
    }
    assert_eq!(decode(b"GET\r\n"), [Err(Reject::Reply(ErrorText::UnknownCommand))]);
    let lower_case = format!("delete {ID}\r\n");
    assert_eq!(decode(lower_case.as_bytes()), [Ok(Request::Delete { id: id(ID) })]);
}

#[test]
fn a_line_over_the_limit_closes_before_it_ends() {
    let limits = Limits { line_bytes_max: 32, ..Limits::default() };
    let fits = format!("{:<30}\r\n", "inspect server");
    assert_eq!(decode_with(limits, fits.as_bytes()).0, [Ok(Request::InspectServer)]);
    let long = format!("{:<31}\r\n", "inspect server");
    assert_eq!(decode_with(limits, long.as_bytes()).0, [Err(Reject::Close)]);
    assert_eq!(decode_with(limits, &[b'x'; 31]).0, []);
    assert_eq!(decode_with(limits, &[b'x'; 32]).0, [Err(Reject::Close)]);
}

/// As `docs/limits.md` says.
#[test]
fn a_line_has_272_kib_and_not_one_byte_more() {
    for (bytes, expected) in
        [(272 * 1024, Ok(Request::InspectServer)), (272 * 1024 + 1, Err(Reject::Close))]
    {
        let spaces = " ".repeat(bytes - "inspect server\r\n".len());
        let line = format!("inspect server{spaces}\r\n");
        assert_eq!(decode(line.as_bytes()), [expected], "{bytes}");
    }
}

#[test]
fn a_lease_takes_as_many_long_names_as_the_engine_waits_for() {
    let name = "n".repeat(255);
    let lease = |count: usize| format!("lease {} 10\r\n", vec![name.as_str(); count].join(" "));
    let Request::Lease { names, .. } = request(&lease(1024)) else { panic!("no lease") };
    assert_eq!(names.len(), 1024);
    assert!(names.iter().all(|leased| *leased == name.as_bytes()));
    let short = format!("lease {}10\r\n", "n ".repeat(1025));
    let expected = [Err(Reject::Reply(ErrorText::InvalidCommandArgs))];
    assert_eq!(decode(short.as_bytes()), expected);
}

#[test]
fn the_end_of_input_answers_a_cut_payload_and_nothing_else() {
    let at_eof = |text: String| {
        let mut decoder = Decoder::new(Limits::default());
        let mut input = BytesMut::from(text.as_bytes());
        let mut outcomes = Vec::new();
        loop {
            let outcome = decoder.decode_at_eof(&mut input);
            let goes_on = matches!(outcome, Ok(Some(_)) | Err(Reject::Reply(_)));
            outcomes.push(outcome);
            if !goes_on {
                return outcomes;
            }
        }
    };
    let cut = |text| [Err(Reject::ReplyThenClose(text))];
    assert_eq!(at_eof(String::new()), [Err(Reject::Close)]);
    assert_eq!(at_eof("inspect ser".into()), [Err(Reject::Close)]);
    for rest in ["", "abc", "abcdefghij", "abcdefghij\r", "abcdefghijk"] {
        let text = format!("add {ID} p 1 1 10\r\n{rest}");
        assert_eq!(at_eof(text), cut(ErrorText::InvalidPayloadSize), "{rest:?}");
    }
    assert_eq!(at_eof(format!("fail {ID} 4\r\n")), cut(ErrorText::InvalidResultSize));
    assert_eq!(at_eof("complete x 4\r\nab".into()), cut(ErrorText::InvalidPayloadSize));
    let expected = [
        Ok(Some(Request::InspectServer)),
        Err(Reject::ReplyThenClose(ErrorText::InvalidPayloadSize)),
    ];
    assert_eq!(at_eof(format!("inspect server\r\nadd {ID} p 1 1 1\r\n")), expected);
}
