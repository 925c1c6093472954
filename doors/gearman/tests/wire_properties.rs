//! Properties that hold for all bytes, all packets and all cuts.

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, option, prelude::*};
use spindle_core::{JobId, address::from_gearman_handle};
use spindle_gearman::client::{Encode, decode_reply, decode_response};
use spindle_gearman::wire::{
    AdminCommand, AdminError, Assignment, Decoder, GrabKind, HandlePrefix, Incoming, JobStatus,
    Limits, Priority, Protocol, Request, Response, Schedule, Submit, SubmitKind, WireError, draft,
};

/// Short, so that random bytes reach them.
const LIMITS: Limits = Limits { packet_bytes_max: 80, line_bytes_max: 40 };
const DRAFT_LIMITS: draft::Limits = draft::Limits {
    packet_bytes_max: 60,
    duplicate_key_bytes_max: 4,
    names_max: 3,
    names_bytes_max: 60,
};
const PACKET_BYTES_MAX: usize = 1 << 20;

/// Feeds the pieces one after the other and takes all that comes out.
fn decode_pieces<'a>(
    limits: Limits,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Result<Incoming, WireError>>, Bytes) {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(outcome) = decoder.decode(&mut input).transpose() {
            let closes = matches!(outcome, Err(error) if error.closes());
            outcomes.push(outcome);
            if closes {
                return (outcomes, Bytes::new());
            }
        }
    }
    (outcomes, input.freeze())
}

fn decode_draft_pieces<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Result<draft::Request, draft::DraftError>>, Bytes) {
    let mut decoder = draft::Decoder::new(DRAFT_LIMITS);
    let mut input = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(outcome) = decoder.decode(&mut input).transpose() {
            let closes = outcome.is_err();
            outcomes.push(outcome);
            if closes {
                return (outcomes, Bytes::new());
            }
        }
    }
    (outcomes, input.freeze())
}

fn any_text(bytes_max: usize) -> impl Strategy<Value = Bytes> {
    vec(1..=255u8, 0..=bytes_max).prop_map(Bytes::from)
}

fn any_function() -> impl Strategy<Value = Bytes> {
    vec(1..=255u8, 1..=20).prop_map(Bytes::from)
}

fn any_data() -> impl Strategy<Value = Bytes> {
    vec(prop_oneof![Just(0), Just(b'\n'), any::<u8>()], 0..40).prop_map(Bytes::from)
}

fn any_priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)]
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    let fields = (0..=59u8, 0..=23u8, 1..=31u8, 1..=12u8, 0..=6u8);
    (fields, any::<[bool; 5]>()).prop_map(|((minute, hour, day, month, weekday), given)| {
        let mut fields = [Some(minute), Some(hour), Some(day), Some(month), Some(weekday)];
        for (field, is_given) in fields.iter_mut().zip(given) {
            *field = field.filter(|_| is_given);
        }
        Schedule::new(fields).expect("in range")
    })
}

fn any_submit() -> impl Strategy<Value = Request> {
    let reduce = (any_text(64), any_text(20), any::<bool>());
    let kind = prop_oneof![
        any_priority().prop_map(SubmitKind::Foreground),
        any_priority().prop_map(SubmitKind::Background),
        any_schedule().prop_map(SubmitKind::Scheduled),
        any::<u64>().prop_map(|at_s| SubmitKind::Epoch { at_s }),
        reduce.prop_map(|(reducer, aggregator, is_background)| SubmitKind::Reduce {
            reducer,
            aggregator,
            is_background
        }),
    ];
    (kind, any_function(), any_text(64), any_data()).prop_map(
        |(kind, function, unique, payload)| {
            Request::Submit(Submit { kind, function, unique, payload })
        },
    )
}

fn any_request() -> impl Strategy<Value = Request> {
    let work = (0..5, any_text(64), any_data()).prop_map(|(which, handle, data)| match which {
        0 => Request::WorkData { handle, data },
        1 => Request::WorkWarning { handle, data },
        2 => Request::WorkComplete { handle, result: data },
        3 => Request::WorkException { handle, data },
        _ => Request::WorkFail { handle },
    });
    let ask = (0..4, any_text(64), any_data()).prop_map(|(which, name, data)| match which {
        0 => Request::GetStatus { handle: name },
        1 => Request::GetStatusUnique { unique: name },
        2 => Request::Echo { data },
        _ => Request::SetClientId { id: data },
    });
    let able =
        (0..3, any_function(), any::<u64>()).prop_map(
            |(which, function, timeout_ms)| match which {
                0 => Request::CanDo { function },
                1 => Request::CantDo { function },
                _ => Request::CanDoTimeout { function, timeout_ms },
            },
        );
    prop_oneof![
        4 => any_submit(),
        2 => work,
        2 => ask,
        2 => able,
        1 => (any_text(64), any_text(9), any_data()).prop_map(
            |(handle, numerator, denominator)| Request::WorkStatus {
                handle,
                numerator,
                denominator
            }
        ),
        1 => prop::sample::select(vec![
            Request::ResetAbilities,
            Request::PreSleep,
            Request::AllYours,
            Request::Grab(GrabKind::Plain),
            Request::Grab(GrabKind::Uniq),
            Request::Grab(GrabKind::All),
        ]),
        1 => any_data().prop_map(|name| Request::Option { name }),
    ]
}

fn any_response() -> impl Strategy<Value = Response> {
    let status = (any::<bool>(), any::<bool>(), any::<u64>(), any::<u64>()).prop_map(
        |(is_known, is_running, numerator, denominator)| JobStatus {
            is_known,
            is_running,
            numerator,
            denominator,
        },
    );
    let assignment = (any_text(64), any_text(20), option::of(any_text(20)), any_data());
    let packet = (0..13, any_text(64), any_text(9), any_data(), status, any::<u64>());
    prop_oneof![
        1 => (assignment, option::of(any_text(20))).prop_map(
            |((handle, function, unique, payload), reducer)| {
                let reducer = reducer.filter(|_| unique.is_some());
                Response::JobAssign(Assignment { handle, function, unique, reducer, payload })
            }
        ),
        4 => packet.prop_map(|(which, handle, numerator, data, status, clients)| match which {
            0 => Response::JobCreated { handle: data },
            1 => Response::NoJob,
            2 => Response::Noop,
            3 => Response::WorkStatus { handle, numerator, denominator: data },
            4 => Response::WorkData { handle, data },
            5 => Response::WorkWarning { handle, data },
            6 => Response::WorkComplete { handle, result: data },
            7 => Response::WorkException { handle, data },
            8 => Response::Status { handle, status },
            9 => Response::StatusUnique { unique: handle, status, clients },
            10 => Response::Echo { data },
            11 => Response::Option { name: data },
            _ => Response::Error { code: handle, text: data },
        }),
        1 => any_data().prop_map(|handle| Response::WorkFail { handle }),
    ]
}

fn any_draft_request() -> impl Strategy<Value = draft::Request> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>());
    let kinds = vec![draft::JobKind::Sync, draft::JobKind::Handle, draft::JobKind::ThrowAway];
    let job = (any_function(), any_text(9), any::<u8>(), prop::sample::select(kinds), any_data());
    prop_oneof![
        vec(any_function(), 0..5).prop_map(|names| draft::Request::WorkerConnect { names }),
        job.prop_map(|(name, duplicate_key, flags, kind, payload)| {
            draft::Request::JobCreate(draft::NewJob { name, duplicate_key, flags, kind, payload })
        }),
        numbers.prop_map(|(numerator, denominator, remaining_s)| {
            draft::Request::JobStatusAnnounce(draft::Progress {
                numerator,
                denominator,
                remaining_s,
            })
        }),
        any_data().prop_map(|handle| draft::Request::JobStatus { handle }),
        any_data().prop_map(|handle| draft::Request::JobComplete { handle }),
        (any::<u8>(), any_data())
            .prop_map(|(code, result)| draft::Request::JobCompleteAnnounce { code, result }),
        prop::sample::select(vec![
            draft::Request::Noop,
            draft::Request::WorkerDisconnect,
            draft::Request::WorkerSleep,
            draft::Request::JobAssign,
        ]),
    ]
}

/// Bytes that look like packets and lines now and then.
fn any_traffic() -> impl Strategy<Value = Vec<u8>> {
    let header = (0..50u32, 0..100u32).prop_map(|(number, length)| {
        [b"\0REQ", &number.to_be_bytes()[..], &length.to_be_bytes()].concat()
    });
    let draft = (0..16u8, 0..80u32)
        .prop_map(|(kind, length)| [b"\x01SPD", &[kind][..], &length.to_be_bytes()].concat());
    let words = prop::sample::select(vec![
        "status\n",
        "show jobs\r\n",
        "maxqueue f 1\n",
        "cancel job ",
        "\n",
        "\0RES",
        "create ",
    ]);
    let request = any_request().prop_map(|request| {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        bytes.to_vec()
    });
    let piece = prop_oneof![
        header,
        draft,
        words.prop_map(|words| words.as_bytes().to_vec()),
        request,
        vec(any::<u8>(), 0..30),
        vec(Just(0u8), 0..4),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn any_command() -> impl Strategy<Value = AdminCommand> {
    let word = || "[!-~]{1,30}".prop_map(|word| Bytes::from(word.into_bytes()));
    prop_oneof![
        word().prop_map(|handle| AdminCommand::CancelJob { handle }),
        word().prop_map(|name| AdminCommand::CreateFunction { name }),
        word().prop_map(|name| AdminCommand::DropFunction { name }),
        prop::sample::select(vec![
            AdminCommand::Status,
            AdminCommand::Workers,
            AdminCommand::ShowUniqueJobs,
        ]),
    ]
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(requests in vec(any_request(), 0..6)) {
        let mut bytes = BytesMut::new();
        for request in &requests {
            request.encode(&mut bytes);
        }
        let (outcomes, rest) = decode_pieces(Limits::default(), std::iter::once(&bytes[..]));
        let expected: Vec<_> =
            requests.into_iter().map(|request| Ok(Incoming::Request(request))).collect();
        prop_assert_eq!(outcomes, expected);
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_response_is_read_as_it_was_written(responses in vec(any_response(), 0..6)) {
        let mut bytes = BytesMut::new();
        for response in &responses {
            response.encode(&mut bytes);
        }
        for response in responses {
            prop_assert_eq!(decode_response(&mut bytes, PACKET_BYTES_MAX), Ok(Some(response)));
        }
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn a_response_cut_short_waits_and_stays(response in any_response(), cut: prop::sample::Index) {
        let mut bytes = BytesMut::new();
        response.encode(&mut bytes);
        let mut short = BytesMut::from(&bytes[..cut.index(bytes.len())]);
        let before = short.clone();
        prop_assert_eq!(decode_response(&mut short, PACKET_BYTES_MAX), Ok(None));
        prop_assert_eq!(short, before);
    }

    #[test]
    fn a_command_is_read_as_it_was_written(command in any_command()) {
        let mut bytes = BytesMut::new();
        command.encode(&mut bytes);
        let (outcomes, _) = decode_pieces(Limits::default(), std::iter::once(&bytes[..]));
        prop_assert_eq!(outcomes, vec![Ok(Incoming::Admin(Ok(command)))]);
    }

    #[test]
    fn a_draft_request_is_read_as_it_was_written(request in any_draft_request()) {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        let decoded = draft::Decoder::new(draft::Limits::default()).decode(&mut bytes);
        prop_assert_eq!(decoded, Ok(Some(request)));
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn what_is_passed_on_is_what_came(requests in vec(any_request(), 0..6), piece in 1..20usize) {
        let mut written = BytesMut::from(&b"Status\r\n"[..]);
        requests.iter().for_each(|request| request.encode(&mut written));
        written.extend_from_slice(b"show  jobs\n");
        let mut decoder = Decoder::new(Limits::default());
        let (mut input, mut passed_on) = (BytesMut::new(), BytesMut::new());
        let mut count = 0;
        for piece in written.chunks(piece) {
            input.extend_from_slice(piece);
            while let Some((_, whole)) = decoder.decode_whole(&mut input).unwrap() {
                passed_on.extend_from_slice(&whole);
                count += 1;
            }
        }
        prop_assert_eq!((passed_on, count), (written, requests.len() + 2));
    }

    #[test]
    fn any_cut_of_the_bytes_gives_the_same(traffic in any_traffic(), piece_bytes in 1..20usize) {
        let whole = decode_pieces(LIMITS, std::iter::once(&traffic[..]));
        let pieces = decode_pieces(LIMITS, traffic.chunks(piece_bytes));
        prop_assert_eq!(whole, pieces);
        let whole = decode_draft_pieces(std::iter::once(&traffic[..]));
        let pieces = decode_draft_pieces(traffic.chunks(piece_bytes));
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn whatever_comes_is_answered_within_its_line(traffic in any_traffic()) {
        let (outcomes, _) = decode_pieces(LIMITS, std::iter::once(&traffic[..]));
        for outcome in outcomes {
            if let Ok(Incoming::Admin(Err(error))) = outcome {
                let mut answer = BytesMut::new();
                AdminError::encode(&error, &mut answer);
                let line = answer.strip_suffix(b"\r\n").unwrap();
                prop_assert!(line.starts_with(b"ERR "));
                prop_assert!(!line.iter().any(|letter| b"\r\n\t\0".contains(letter)));
            }
        }
    }

    #[test]
    fn junk_is_no_answer_and_no_panic(mut junk in vec(any::<u8>(), 0..60), number in 0..50u32) {
        for magic in [&b"\0RES"[..], b"\x01SPD"] {
            let mut bytes = BytesMut::from(magic);
            bytes.extend_from_slice(&number.to_be_bytes());
            bytes.extend_from_slice(&junk);
            let before = bytes.len();
            let mut copy = bytes.clone();
            if let Ok(Some(_)) = decode_response(&mut bytes, 40) {
                prop_assert!(bytes.len() < before);
            }
            if let Ok(Some(_)) = decode_reply(&mut copy, 40) {
                prop_assert!(copy.len() < before);
            }
        }
        junk.truncate(12);
        let _ = Protocol::of(&junk);
    }

    #[test]
    fn the_protocol_does_not_depend_on_the_cut(first in vec(any::<u8>(), 1..12)) {
        if let Some(shown) = (1..first.len()).find_map(|end| Protocol::of(&first[..end])) {
            prop_assert_eq!(Protocol::of(&first), Some(shown));
        }
    }

    #[test]
    fn a_handle_is_parsed_as_it_was_given(host in ".{0,80}", number in 1..1u64 << 53) {
        let prefix = HandlePrefix::of_host(&host);
        let handle = prefix.handle(number);
        prop_assert!(handle.as_bytes().len() < 64);
        prop_assert!(handle.as_bytes().iter().all(u8::is_ascii_graphic));
        prop_assert_eq!(from_gearman_handle(handle.as_bytes()), Some(JobId(number)));
    }

    #[test]
    fn a_schedule_is_due_at_a_minute_after_now(
        schedule in any_schedule(),
        now_ms in 0..4_102_444_800_000u64,
    ) {
        if let Some(at_ms) = schedule.next_after_ms(now_ms) {
            prop_assert!(at_ms > now_ms && at_ms.is_multiple_of(60_000));
            // No time in between matches: asked again just before, it gives the same answer.
            prop_assert_eq!(schedule.next_after_ms(at_ms - 1), Some(at_ms));
        }
    }
}
