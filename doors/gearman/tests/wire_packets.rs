//! Every packet type, byte by byte: what is taken, what is sent, what is refused.

use bytes::{Bytes, BytesMut};
use spindle_gearman::client::{Encode, ResponseError, decode_response};
use spindle_gearman::wire::{
    Assignment, Decoder, ErrorReply, GrabKind, Incoming, JobStatus, Limits, PacketType, Priority,
    Request, Response, Schedule, Submit, SubmitKind, WireError,
};

const LIMIT: usize = 1 << 20;

fn text(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

fn packet(magic: &[u8], number: u32, data: &[u8]) -> BytesMut {
    let mut packet = BytesMut::from(magic);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&(data.len() as u32).to_be_bytes());
    packet.extend_from_slice(data);
    packet
}

fn req(number: u32, data: &[u8]) -> BytesMut {
    packet(b"\0REQ", number, data)
}

fn decode(bytes: &[u8]) -> Result<Option<Incoming>, WireError> {
    Decoder::new(Limits::default()).decode(&mut BytesMut::from(bytes))
}

fn submit(kind: SubmitKind, unique: &'static [u8], payload: &'static [u8]) -> Request {
    let function = text(b"rev");
    Request::Submit(Submit { kind, function, unique: text(unique), payload: text(payload) })
}

/// Number, data and meaning.
type Packet = (u32, &'static [u8], Request);

/// Each packet that a client or worker sends, in the one spelling that the tests' client writes.
fn requests() -> Vec<Packet> {
    let (handle, function) = (text(b"H:h:1"), text(b"rev"));
    let mut requests: Vec<Packet> = vec![
        (1, b"rev", Request::CanDo { function: function.clone() }),
        (2, b"rev", Request::CantDo { function: function.clone() }),
        (3, b"", Request::ResetAbilities),
        (4, b"", Request::PreSleep),
        (9, b"", Request::Grab(GrabKind::Plain)),
        (
            12,
            b"H:h:1\x001\x0010",
            Request::WorkStatus {
                handle: handle.clone(),
                numerator: text(b"1"),
                denominator: text(b"10"),
            },
        ),
        (
            13,
            b"H:h:1\0ol\0leh",
            Request::WorkComplete { handle: handle.clone(), result: text(b"ol\0leh") },
        ),
        (14, b"H:h:1", Request::WorkFail { handle: handle.clone() }),
        (15, b"H:h:1", Request::GetStatus { handle: handle.clone() }),
        (16, b"a\0b", Request::Echo { data: text(b"a\0b") }),
        (22, b"worker 1", Request::SetClientId { id: text(b"worker 1") }),
        (23, b"rev\x001500", Request::CanDoTimeout { function, timeout_ms: 1500 }),
        (24, b"", Request::AllYours),
        (
            25,
            b"H:h:1\0boom",
            Request::WorkException { handle: handle.clone(), data: text(b"boom") },
        ),
        (26, b"exceptions", Request::Option { name: text(b"exceptions") }),
        (28, b"H:h:1\0part", Request::WorkData { handle: handle.clone(), data: text(b"part") }),
        (29, b"H:h:1\0warn", Request::WorkWarning { handle, data: text(b"warn") }),
        (30, b"", Request::Grab(GrabKind::Uniq)),
        (39, b"", Request::Grab(GrabKind::All)),
        (41, b"u1", Request::GetStatusUnique { unique: text(b"u1") }),
    ];
    requests.extend(submits());
    requests
}

/// Those that submit a job.
fn submits() -> Vec<Packet> {
    use Priority::{High, Low, Normal};
    use SubmitKind::{Background, Foreground};
    let schedule =
        Schedule::new([Some(5), Some(14), Some(31), Some(12), Some(6)]).expect("in range");
    let reduce = |aggregator, is_background| SubmitKind::Reduce {
        reducer: text(b"sum"),
        aggregator: text(aggregator),
        is_background,
    };
    vec![
        (7, b"rev\0u1\0hello", submit(Foreground(Normal), b"u1", b"hello")),
        (7, b"rev\0\0a\0b\0c", submit(Foreground(Normal), b"", b"a\0b\0c")),
        (18, b"rev\0\0", submit(Background(Normal), b"", b"")),
        (21, b"rev\0u\0p", submit(Foreground(High), b"u", b"p")),
        (32, b"rev\0u\0p", submit(Background(High), b"u", b"p")),
        (33, b"rev\0u\0p", submit(Foreground(Low), b"u", b"p")),
        (34, b"rev\0u\0p", submit(Background(Low), b"u", b"p")),
        (
            35,
            b"rev\0u\x005\x0014\x0031\x0012\x006\0p",
            submit(SubmitKind::Scheduled(schedule), b"u", b"p"),
        ),
        (
            35,
            b"rev\0u\0\0\0\0\0\0p",
            submit(SubmitKind::Scheduled(Schedule::default()), b"u", b"p"),
        ),
        (
            36,
            b"rev\0u\x001790000000\0p",
            submit(SubmitKind::Epoch { at_s: 1_790_000_000 }, b"u", b"p"),
        ),
        (37, b"rev\0u\0sum\0\0p", submit(reduce(b"", false), b"u", b"p")),
        (38, b"rev\0u\0sum\0agg\0p", submit(reduce(b"agg", true), b"u", b"p")),
    ]
}

#[test]
fn every_packet_of_clients_and_workers_is_read_and_written() {
    for (number, data, request) in requests() {
        let bytes = req(number, data);
        assert_eq!(decode(&bytes), Ok(Some(Incoming::Request(request.clone()))), "type {number}");
        let mut written = BytesMut::new();
        request.encode(&mut written);
        assert_eq!(written, bytes, "type {number}");
    }
}

fn responses() -> Vec<(u32, &'static [u8], Response)> {
    let handle = text(b"H:h:1");
    let assignment = Assignment {
        handle: handle.clone(),
        function: text(b"rev"),
        unique: None,
        reducer: None,
        payload: text(b"a\0b"),
    };
    let with_unique = Assignment { unique: Some(text(b"u")), ..assignment.clone() };
    let with_reducer = Assignment { reducer: Some(text(b"sum")), ..with_unique.clone() };
    let status =
        JobStatus { is_known: true, is_running: true, numerator: 3, denominator: 4_000_000_000 };
    vec![
        (6, b"", Response::Noop),
        (8, b"H:h:1", Response::JobCreated { handle: handle.clone() }),
        (10, b"", Response::NoJob),
        (11, b"H:h:1\0rev\0a\0b", Response::JobAssign(assignment)),
        (
            12,
            b"H:h:1\x001\x0010",
            Response::WorkStatus {
                handle: handle.clone(),
                numerator: text(b"1"),
                denominator: text(b"10"),
            },
        ),
        (
            13,
            b"H:h:1\0\0done",
            Response::WorkComplete { handle: handle.clone(), result: text(b"\0done") },
        ),
        (14, b"H:h:1", Response::WorkFail { handle: handle.clone() }),
        (17, b"a\0b", Response::Echo { data: text(b"a\0b") }),
        (
            19,
            b"QUEUE_ERROR\0Job queue is full",
            Response::Error { code: text(b"QUEUE_ERROR"), text: text(b"Job queue is full") },
        ),
        (
            20,
            b"H:h:1\x001\x001\x003\x004000000000",
            Response::Status { handle: handle.clone(), status },
        ),
        (
            20,
            b"nonsense\x000\x000\x000\x000",
            Response::Status { handle: text(b"nonsense"), status: JobStatus::default() },
        ),
        (
            25,
            b"H:h:1\0boom",
            Response::WorkException { handle: handle.clone(), data: text(b"boom") },
        ),
        (27, b"EXCEPTIONS", Response::Option { name: text(b"EXCEPTIONS") }),
        (28, b"H:h:1\0part", Response::WorkData { handle: handle.clone(), data: text(b"part") }),
        (29, b"H:h:1\0warn", Response::WorkWarning { handle, data: text(b"warn") }),
        (31, b"H:h:1\0rev\0u\0a\0b", Response::JobAssign(with_unique)),
        (40, b"H:h:1\0rev\0u\0sum\0a\0b", Response::JobAssign(with_reducer)),
        (
            42,
            b"u\x001\x001\x003\x004000000000\x002",
            Response::StatusUnique { unique: text(b"u"), status, clients: 2 },
        ),
    ]
}

#[test]
fn every_packet_of_a_server_is_written_and_read() {
    for (number, data, response) in responses() {
        let mut bytes = packet(b"\0RES", number, data);
        let mut written = BytesMut::new();
        response.encode(&mut written);
        assert_eq!(written, bytes, "type {number}");
        assert_eq!(decode_response(&mut bytes, LIMIT), Ok(Some(response)), "type {number}");
        assert!(bytes.is_empty());
    }
}

#[test]
fn the_two_tables_cover_all_types_but_the_unused_one() {
    let mut numbers: Vec<u32> = requests().iter().map(|it| it.0).collect();
    numbers.extend(responses().iter().map(|it| it.0));
    numbers.extend([PacketType::Unused.number()]);
    for number in 1..=42 {
        assert!(numbers.contains(&number), "type {number}");
        assert_eq!(PacketType::from_number(number).map(PacketType::number), Some(number));
    }
    assert_eq!(PacketType::from_number(0), None);
    assert_eq!(PacketType::from_number(43), None);
}

#[test]
fn types_of_the_server_are_refused_and_the_conversation_goes_on() {
    for number in [5, 6, 8, 10, 11, 17, 19, 20, 27, 31, 40, 42] {
        let mut decoder = Decoder::new(Limits::default());
        let mut input = req(number, b"whatever");
        input.extend_from_slice(&req(16, b"alive?"));
        let error = decoder.decode(&mut input).unwrap_err();
        assert_eq!(error, WireError::UnexpectedType(PacketType::from_number(number).unwrap()));
        assert_eq!(error.reply(), Some(ErrorReply::CommandNotExpected));
        let echo = Request::Echo { data: text(b"alive?") };
        assert_eq!(decoder.decode(&mut input), Ok(Some(Incoming::Request(echo))));
    }
}

#[test]
fn types_that_do_not_exist_close_the_connection() {
    for number in [0, 43, 99, 0x7fff_ffff, 0x8000_0000, 4_000_000_000, u32::MAX] {
        let mut decoder = Decoder::new(Limits::default());
        let mut input = req(number, b"");
        let error = decoder.decode(&mut input).unwrap_err();
        assert_eq!(error, WireError::UnknownType(number));
        assert!(error.closes());
        assert_eq!(error.reply(), Some(ErrorReply::CommandNotExpected));
        let mut more = req(16, b"alive?");
        assert_eq!(decoder.decode(&mut more), Err(WireError::Closed));
    }
}

#[test]
fn a_response_is_passed_over_and_junk_closes() {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = packet(b"\0RES", 16, b"hi");
    input.extend_from_slice(&req(16, b"alive?"));
    assert_eq!(decoder.decode(&mut input), Err(WireError::ResponseMagic));
    assert!(matches!(decoder.decode(&mut input), Ok(Some(Incoming::Request(_)))));
    for junk in [&b"\0XXX"[..], b"\0X", b"\0REX", b"\0\0\0\0", b"\0res"] {
        let error = decode(junk).unwrap_err();
        assert_eq!((error, error.reply()), (WireError::WrongMagic, None), "{junk:?}");
        assert!(error.closes());
    }
}

#[test]
fn a_missing_nul_is_told_at_once_and_the_packet_passed_over() {
    let short: [(u32, &[u8]); 20] = [
        (7, b""),
        (7, b"abc"),
        (7, b"abc\0"),
        (18, b"abc\0u"),
        (21, b"abc"),
        (32, b"abc"),
        (33, b"abc"),
        (34, b"abc"),
        (12, b"H:h:1"),
        (12, b"H:h:1\x001"),
        (13, b"H:h:1"),
        (25, b"H:h:1"),
        (28, b""),
        (29, b"H:h:1"),
        (23, b"rev"),
        (35, b"rev\0\x001\x001\x001\x001\x001"),
        (36, b"rev\0\x0017"),
        (37, b"rev\0u\0reducer\0data"),
        (38, b"rev\0u\0reducer\0data"),
        (37, b"rev\0u"),
    ];
    for (number, data) in short {
        let mut decoder = Decoder::new(Limits::default());
        let mut input = req(number, data);
        input.extend_from_slice(&req(3, b""));
        let error = decoder.decode(&mut input).unwrap_err();
        let kind = PacketType::from_number(number).unwrap();
        assert_eq!(error, WireError::ArgumentMissing(kind), "{}", data.escape_ascii());
        assert_eq!(error.reply(), Some(ErrorReply::ArgumentMissing));
        let next = decoder.decode(&mut input);
        assert_eq!(next, Ok(Some(Incoming::Request(Request::ResetAbilities))));
    }
}

#[test]
fn responses_with_missing_nuls_are_told() {
    let short: [(u32, &[u8]); 8] = [
        (11, b"H:h:1\0rev"),
        (31, b"H:h:1\0rev\0u"),
        (40, b"H:h:1\0rev\0u\0r"),
        (12, b"H:h:1\x001"),
        (13, b"H:h:1"),
        (19, b"CODE"),
        (20, b"H:h:1\x001\x001\x001"),
        (42, b"u\x001\x001\x001\x001"),
    ];
    for (number, data) in short {
        let kind = PacketType::from_number(number).unwrap();
        let outcome = decode_response(&mut packet(b"\0RES", number, data), LIMIT);
        assert_eq!(outcome, Err(ResponseError::ArgumentMissing(kind)));
    }
    let mut request = packet(b"\0RES", 7, b"rev\0\0x");
    assert_eq!(decode_response(&mut request, LIMIT), Err(ResponseError::UnexpectedType(7)));
    let mut unknown = packet(b"\0RES", 43, b"");
    assert_eq!(decode_response(&mut unknown, LIMIT), Err(ResponseError::UnexpectedType(43)));
    let mut magic = packet(b"\0REQ", 8, b"H:h:1");
    assert_eq!(decode_response(&mut magic, LIMIT), Err(ResponseError::WrongMagic));
    let mut long = packet(b"\0RES", 13, b"H:h:1\0x");
    assert_eq!(decode_response(&mut long, 6), Err(ResponseError::TooLong { bytes: 7 }));
    assert!(decode_response(&mut long, 7).unwrap().is_some());
}

#[test]
fn names_uniques_and_handles_have_limits() {
    let of = |length: usize, rest: &[u8]| [&b"x".repeat(length)[..], rest].concat();
    let unique = |length: usize| [b"rev\0", &of(length, b"\0data")[..]].concat();
    let reducer = |length: usize| [b"rev\0u\0", &of(length, b"\0\0data")[..]].concat();
    let limits: [(u32, Vec<u8>, Vec<u8>, WireError); 11] = [
        (1, of(512, b""), of(513, b""), WireError::FunctionTooLong),
        (2, of(512, b""), of(513, b""), WireError::FunctionTooLong),
        (23, of(512, b"\x001"), of(513, b"\x001"), WireError::FunctionTooLong),
        (18, of(512, b"\0\0x"), of(513, b"\0\0x"), WireError::FunctionTooLong),
        (18, unique(64), unique(65), WireError::UniqueTooLong),
        (37, reducer(64), reducer(65), WireError::UniqueTooLong),
        (41, of(64, b""), of(65, b""), WireError::UniqueTooLong),
        (14, of(64, b""), of(65, b""), WireError::HandleTooLong),
        (15, of(64, b""), of(65, b""), WireError::HandleTooLong),
        (13, of(64, b"\0x"), of(65, b"\0x"), WireError::HandleTooLong),
        (12, of(64, b"\x001\x001"), of(65, b"\x001\x001"), WireError::HandleTooLong),
    ];
    for (number, longest, longer, error) in limits {
        assert!(decode(&req(number, &longest)).is_ok(), "type {number}");
        assert_eq!(decode(&req(number, &longer)), Err(error), "type {number}");
        assert!(error.reply().is_some() && !error.closes());
    }
}

#[test]
fn function_names_are_neither_empty_nor_broken_by_a_nul() {
    for (number, data) in
        [(1, &b""[..]), (2, b""), (23, b"\x001000"), (7, b"\0\0x"), (1, b"re\0v"), (2, b"rev\0")]
    {
        assert_eq!(decode(&req(number, data)), Err(WireError::BadFunctionName), "type {number}");
    }
    let odd = b"\xff\t\n \x01";
    let request = Request::CanDo { function: text(odd) };
    assert_eq!(decode(&req(1, odd)), Ok(Some(Incoming::Request(request))));
}

#[test]
fn a_nul_behind_a_last_handle_or_unique_is_no_part_of_it() {
    let last: [(u32, &[u8], Request); 4] = [
        (14, b"H:h:1\0", Request::WorkFail { handle: text(b"H:h:1") }),
        (15, b"H:h:1\0", Request::GetStatus { handle: text(b"H:h:1") }),
        (41, b"u\0", Request::GetStatusUnique { unique: text(b"u") }),
        (15, b"", Request::GetStatus { handle: Bytes::new() }),
    ];
    for (number, data, request) in last {
        assert_eq!(decode(&req(number, data)), Ok(Some(Incoming::Request(request))));
    }
}

#[test]
fn what_a_packet_without_arguments_carries_is_ignored() {
    for (number, request) in [
        (9, Request::Grab(GrabKind::Plain)),
        (4, Request::PreSleep),
        (3, Request::ResetAbilities),
        (24, Request::AllYours),
        (39, Request::Grab(GrabKind::All)),
    ] {
        assert_eq!(decode(&req(number, b"junk")), Ok(Some(Incoming::Request(request))));
    }
}

#[test]
fn numbers_are_read_as_gearmand_reads_them_without_running_over() {
    let timeouts: [(&[u8], u64); 8] = [
        (b"0", 0),
        (b"500", 500),
        (b"x", 0),
        (b"-5", 0),
        (b"", 0),
        (b"12ab", 12),
        (b"18446744073709551615", u64::MAX),
        (b"99999999999999999999999", u64::MAX),
    ];
    for (number, timeout_ms) in timeouts {
        let request = Request::CanDoTimeout { function: text(b"tv"), timeout_ms };
        let bytes = req(23, &[b"tv\0", number].concat());
        assert_eq!(decode(&bytes), Ok(Some(Incoming::Request(request))));
        let expected = submit(SubmitKind::Epoch { at_s: timeout_ms }, b"", b"x");
        let bytes = req(36, &[b"rev\0\0", number, b"\0x"].concat());
        assert_eq!(decode(&bytes), Ok(Some(Incoming::Request(expected))));
    }
}

#[test]
fn a_schedule_that_can_never_match_is_refused() {
    for fields in ["60\x001\x001\x001\x001", "1\0x\x001\x001\x001", "1\x001\x000\x001\x001"] {
        let data = format!("rev\0\0{fields}\0x");
        assert_eq!(decode(&req(35, data.as_bytes())), Err(WireError::BadSchedule));
    }
}

#[test]
fn packets_and_lines_have_limits() {
    let limits = Limits { packet_bytes_max: 10, line_bytes_max: 8 };
    let decode = |bytes: &[u8]| Decoder::new(limits).decode(&mut BytesMut::from(bytes));
    assert!(decode(&req(16, b"0123456789")).unwrap().is_some());
    let error = decode(&req(16, b"01234567890")).unwrap_err();
    assert_eq!(error, WireError::PacketTooLong { bytes: 11 });
    assert!(error.closes() && error.reply() == Some(ErrorReply::PacketTooLarge));
    // A length is refused when it is announced, not when its bytes have come.
    let header = b"\0REQ\0\0\0\x10\xff\xff\xff\xff";
    assert_eq!(decode(header), Err(WireError::PacketTooLong { bytes: u32::MAX }));

    assert!(decode(b"1234567\n").unwrap().is_some());
    assert_eq!(decode(b"1234567"), Ok(None));
    assert_eq!(decode(b"12345678"), Err(WireError::LineTooLong));
    assert_eq!(decode(b"12345678\n"), Err(WireError::LineTooLong));
    assert_eq!(limits.input_bytes_max(), 22);
}

/// As `docs/limits.md` says: the longest payload, and room for the arguments before it.
#[test]
fn a_packet_has_64_mib_and_a_kib_and_not_one_byte_more() {
    let most = 64 * 1024 * 1024 + 1024;
    let mut input = req(16, &vec![b'x'; most]);
    let echo = Decoder::new(Limits::default()).decode(&mut input).unwrap().unwrap();
    let Incoming::Request(Request::Echo { data }) = echo else { panic!("no echo") };
    assert_eq!(data.len(), most);
    let mut header = BytesMut::from(&b"\0REQ\0\0\0\x10"[..]);
    let bytes = u32::try_from(most + 1).unwrap();
    header.extend_from_slice(&bytes.to_be_bytes());
    assert_eq!(decode(&header), Err(WireError::PacketTooLong { bytes }));
}

#[test]
fn error_packets_are_gearmands_own() {
    let known: [(ErrorReply, &[u8]); 9] = [
        (ErrorReply::WorkResultJobNotFound, b"JOB_NOT_FOUND\0Job given in work result not found"),
        (ErrorReply::WorkDataJobNotFound, b"JOB_NOT_FOUND\0Job does not exist on server"),
        (
            ErrorReply::WorkExceptionJobNotFound,
            b"JOB_NOT_FOUND\0An exception was received for a job that does not exist",
        ),
        (ErrorReply::QueueFull, b"QUEUE_ERROR\0Job queue is full"),
        (ErrorReply::UnknownOption, b"UNKNOWN_OPTION\0Server does not recognize given option"),
        (ErrorReply::UniqueTooLarge, b"ARGUMENT_TOO_LARGE\0Unique value too large"),
        (
            ErrorReply::HandleTooLarge,
            b"ARGUMENT_TOO_LARGE\0Error occurred due to GEARMAND_JOB_HANDLE_SIZE being too small \
              from snprintf",
        ),
        (ErrorReply::CommandNotExpected, b"INVALID_COMMAND\0Command not expected"),
        (ErrorReply::RequestMagicExpected, b"INVALID_MAGIC\0Request magic expected"),
    ];
    for (reply, data) in known {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        assert_eq!(out, packet(b"\0RES", 19, data));
    }
}

#[test]
fn progress_from_another_door_is_written_as_numbers() {
    let mut out = BytesMut::new();
    let (numerator, denominator) = ("0", &*u64::MAX.to_string());
    Response::WorkStatus { handle: "H:h:1", numerator, denominator }.encode(&mut out);
    assert_eq!(out, packet(b"\0RES", 12, b"H:h:1\x000\x0018446744073709551615"));
}

#[test]
fn the_exceptions_option_is_known_in_any_case() {
    for name in [&b"exceptions"[..], b"EXCEPTIONS", b"exceptions\0"] {
        assert!(Request::is_exceptions_option(name));
    }
    for name in [&b""[..], b"nosuch", b"exception", b"exceptionsx", b"\0exceptions"] {
        assert!(!Request::is_exceptions_option(name));
    }
}
