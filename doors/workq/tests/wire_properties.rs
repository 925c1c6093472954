//! What holds for all bytes and all requests.

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, option, prelude::*};
use spindle_workq::wire::{
    Decoder, JobInfo, JobResult, JobState, LeasedJob, Limits, NewJob, Presented, QueueInfo, Reject,
    Reply, ReplyKind, Request, Run, ServerInfo, Uuid, decode_reply, encode,
};

/// The last second of the last day that a time can be written of, in milliseconds.
const TIME_MS_MAX: u64 = 253_402_207_200_000;

type Outcomes = Vec<Result<Request, Reject>>;

/// Feeds the pieces one after the other and takes all that comes out, up to the end of input.
fn decode_pieces<'a>(limits: Limits, pieces: impl Iterator<Item = &'a [u8]>) -> Outcomes {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(outcome) = decoder.decode(&mut input).transpose() {
            let closes = matches!(outcome, Err(Reject::Close | Reject::ReplyThenClose(_)));
            outcomes.push(outcome);
            if closes {
                return outcomes;
            }
        }
    }
    loop {
        match decoder.decode_at_eof(&mut input) {
            Ok(Some(request)) => outcomes.push(Ok(request)),
            Ok(None) => panic!("the end of input leaves nothing to wait for"),
            Err(reject) => {
                outcomes.push(Err(reject));
                if !matches!(reject, Reject::Reply(_)) {
                    return outcomes;
                }
            }
        }
    }
}

fn any_id() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid::from_random)
}

fn any_name() -> impl Strategy<Value = Bytes> {
    let letters = b"abcXYZ059_-.";
    vec(prop::sample::select(&letters[..]), 1..40).prop_map(Bytes::from)
}

fn any_block() -> impl Strategy<Value = Bytes> {
    let letter = prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'+'), any::<u8>()];
    vec(letter, 0..60).prop_map(Bytes::from)
}

prop_compose! {
    fn any_job(priority_max: i64)(
        id in any_id(),
        name in any_name(),
        ttr_ms in 1..=86_400_000u32,
        ttl_ms in 1..=u64::MAX,
        priority in i64::from(i32::MIN)..=priority_max,
        attempts_max: u8,
        fails_max: u8,
        payload in any_block(),
    ) -> NewJob {
        NewJob { id, name, ttr_ms, ttl_ms, priority, attempts_max, fails_max, payload }
    }
}

prop_compose! {
    fn any_run()(
        job in any_job(u32::MAX.into()),
        wait_timeout_ms in 0..=86_400_000u32,
    ) -> Run {
        let NewJob { id, name, ttr_ms, priority, payload, .. } = job;
        Run { id, name, ttr_ms, wait_timeout_ms, priority, payload }
    }
}

fn any_request() -> impl Strategy<Value = Request> {
    let wait = || 0..=86_400_000u32;
    let page = || (any::<u32>(), 1..=100u32);
    prop_oneof![
        any_job(i32::MAX.into()).prop_map(Request::Add),
        (any_job(u32::MAX.into()), 0..=TIME_MS_MAX)
            .prop_map(|(job, time_ms)| Request::Schedule { job, time_ms }),
        any_run().prop_map(Request::Run),
        (any_id(), wait())
            .prop_map(|(id, wait_timeout_ms)| Request::Result { id, wait_timeout_ms }),
        (vec(any_name(), 1..9), wait())
            .prop_map(|(names, wait_timeout_ms)| Request::Lease { names, wait_timeout_ms }),
        (any_id(), any_block()).prop_map(|(id, result)| Request::Complete { id, result }),
        (any_id(), any_block()).prop_map(|(id, result)| Request::Fail { id, result }),
        any_id().prop_map(|id| Request::Delete { id }),
        (any_id(), 1..=86_400_000u32).prop_map(|(id, ttr_ms)| Request::Extend { id, ttr_ms }),
        any_id().prop_map(|id| Request::InspectJob { id }),
        (any_name(), page()).prop_map(|(name, (cursor_offset, limit))| Request::InspectJobs {
            name,
            cursor_offset,
            limit
        }),
        (any_name(), page()).prop_map(|(name, (cursor_offset, limit))| {
            Request::InspectScheduledJobs { name, cursor_offset, limit }
        }),
        any_name().prop_map(|name| Request::InspectQueue { name }),
        page().prop_map(|(cursor_offset, limit)| Request::InspectQueues { cursor_offset, limit }),
        Just(Request::InspectServer),
        (vec(any_name(), 1..9), wait())
            .prop_map(|(names, wait_timeout_ms)| Request::Offer { names, wait_timeout_ms }),
        any_id().prop_map(|id| Request::Take { id }),
        Just(Request::Pass),
        "[!-,.-~]{1,200}".prop_map(|token| Request::Auth { token: Presented(token.into()) }),
    ]
}

/// Words of the protocol in any order, with some nonsense: reaches deeper than random bytes.
fn near_requests() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"add",
        b"run",
        b"schedule",
        b"lease",
        b"result",
        b"complete",
        b"fail",
        b"delete",
        b"extend",
        b"offer",
        b"take",
        b"pass",
        b"inspect",
        b"job",
        b"jobs",
        b"queue",
        b"queues",
        b"server",
        b" ",
        b" ",
        b" ",
        b" ",
        b"\r\n",
        b"\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"-",
        b"=",
        b"-priority=1",
        b"-x=2",
        b"-max-fails=3",
        b"0",
        b"1",
        b"2",
        b"7",
        b"1000",
        b"99999999999",
        b"-1",
        b"+3",
        b"a*b",
        b"00000001-0000-4000-8000-000000000001",
        b"{",
        b"urn:uuid:",
        b"2030-01-01T00:00:00Z",
        b"\x16\x03",
        b"GET ",
        b"\xff",
        b"\0",
    ];
    let lines = [
        "add 00000001-0000-4000-8000-000000000001 q 1 1 5\r\n",
        "run 00000001-0000-4000-8000-000000000001 q 1 1 2 -x=1\r\n",
        "fail 00000001-0000-4000-8000-000000000001 3\r\n",
        "complete nonsense 1\r\n",
        "lease a b 1\r\n",
        "inspect server\r\n",
    ];
    let piece = prop_oneof![
        3 => prop::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => prop::sample::select(lines.map(|line| line.as_bytes().to_vec()).to_vec()),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

prop_compose! {
    fn any_job_info()(
        job in any_job(i32::MAX.into()),
        ttl_ms: u64,
        attempts: u64,
        fails: u64,
        state in 0..5u64,
        created_s in 0..=TIME_MS_MAX / 1000,
        time_s in option::of(0..=TIME_MS_MAX / 1000),
    ) -> JobInfo {
        JobInfo {
            id: job.id,
            name: job.name,
            ttr_ms: job.ttr_ms.into(),
            ttl_ms,
            payload: job.payload,
            attempts_max: job.attempts_max.into(),
            attempts,
            fails_max: job.fails_max.into(),
            fails,
            priority: job.priority,
            state: JobState::from_number(state).expect("five states"),
            created_ms: created_s * 1000,
            time_ms: time_s.map(|second| second * 1000),
        }
    }
}

fn any_queue_info() -> impl Strategy<Value = QueueInfo> {
    (any_name(), any::<u64>(), any::<u64>()).prop_map(|(name, ready, scheduled)| QueueInfo {
        name,
        ready,
        scheduled,
    })
}

fn any_reply() -> impl Strategy<Value = (ReplyKind, Reply)> {
    prop_oneof![
        Just((ReplyKind::Ok, Reply::Ok)),
        Just((ReplyKind::Ok, Reply::NotFound)),
        Just((ReplyKind::Lease, Reply::Timeout)),
        Just((ReplyKind::Jobs, Reply::ClientError("Invalid ID".into()))),
        Just((ReplyKind::Ok, Reply::ServerError("disk full".into()))),
        (any_id(), any::<bool>(), any_block()).prop_map(|(id, success, result)| {
            (ReplyKind::Result, Reply::Result(JobResult { id, success, result }))
        }),
        (any_id(), any_name(), any::<u64>(), any_block()).prop_map(
            |(id, name, ttr_ms, payload)| {
                (ReplyKind::Lease, Reply::Lease(LeasedJob { id, name, ttr_ms, payload }))
            }
        ),
        vec(any_job_info(), 0..4).prop_map(|jobs| (ReplyKind::Jobs, Reply::Jobs(jobs))),
        vec(any_queue_info(), 0..4).prop_map(|queues| (ReplyKind::Queues, Reply::Queues(queues))),
        (any::<u64>(), any::<u64>(), 0..=TIME_MS_MAX / 1000).prop_map(
            |(active_clients, evicted_jobs, started_s)| {
                let started_ms = started_s * 1000;
                let server = ServerInfo { active_clients, evicted_jobs, started_ms };
                (ReplyKind::Server, Reply::Server(server))
            }
        ),
    ]
}

fn encode_reply(out: &mut BytesMut, reply: &Reply) {
    match reply {
        Reply::Ok => encode::ok(out),
        Reply::Timeout => encode::timeout(out),
        Reply::NotFound => encode::not_found(out),
        Reply::ClientError(text) => encode::client_error(out, text),
        Reply::ServerError(text) => encode::server_error(out, text),
        Reply::Result(it) => encode::result(out, it.id, it.success, &it.result),
        Reply::Lease(it) => encode::lease(out, it.id, &it.name, it.ttr_ms, &it.payload),
        Reply::Jobs(jobs) => {
            encode::count(out, jobs.len());
            jobs.iter().for_each(|job| encode::job(out, job));
        }
        Reply::Queues(queues) => {
            encode::count(out, queues.len());
            queues.iter().for_each(|queue| encode::queue(out, queue));
        }
        Reply::Server(server) => encode::server(out, server),
    }
}

proptest! {
    #[test]
    fn a_request_that_was_written_is_read_again(requests in vec(any_request(), 1..5)) {
        let mut bytes = BytesMut::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        let mut expected: Outcomes = requests.into_iter().map(Ok).collect();
        expected.push(Err(Reject::Close));
        prop_assert_eq!(decode_pieces(Limits::default(), std::iter::once(&bytes[..])), expected);
    }

    #[test]
    fn requests_are_the_same_however_they_are_cut(
        bytes in prop_oneof![
            vec(any_request(), 0..4).prop_map(|requests| {
                let mut bytes = BytesMut::new();
                requests.iter().for_each(|request| request.encode(&mut bytes));
                bytes.to_vec()
            }),
            near_requests(),
            vec(any::<u8>(), 0..200),
        ],
        cut: prop::sample::Index,
    ) {
        // A short limit, so that some of the lines are over it.
        let limits = Limits { line_bytes_max: 150, lease_names_max: 3, ..Limits::default() };
        let whole = decode_pieces(limits, std::iter::once(&bytes[..]));
        let by_byte = decode_pieces(limits, bytes.chunks(1));
        prop_assert_eq!(&by_byte, &whole);
        let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(decode_pieces(limits, [first, second].into_iter()), whole);
    }

    #[test]
    fn a_reply_that_was_written_is_read_again_however_it_is_cut(
        replies in vec(any_reply(), 1..4)
    ) {
        let mut bytes = BytesMut::new();
        replies.iter().for_each(|(_, reply)| encode_reply(&mut bytes, reply));
        let mut input = BytesMut::new();
        let mut rest = bytes.iter();
        for (kind, expected) in replies {
            let reply = loop {
                if let Some(reply) = decode_reply(kind, &mut input).expect("a reply") {
                    break reply;
                }
                input.extend(rest.next());
            };
            prop_assert_eq!(reply, expected);
            prop_assert!(input.is_empty());
        }
    }

    #[test]
    fn no_answer_of_a_server_makes_the_client_panic(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..100),
            "[+]OK [0-9]{1,20}\r\n([a-z-]{1,9} [0-9]{1,20}\r\n){0,6}".prop_map(String::into_bytes),
        ],
    ) {
        for kind in [
            ReplyKind::Ok,
            ReplyKind::Result,
            ReplyKind::Lease,
            ReplyKind::Jobs,
            ReplyKind::Queues,
            ReplyKind::Server,
        ] {
            let mut input = BytesMut::from(&bytes[..]);
            if let Ok(None) = decode_reply(kind, &mut input) {
                prop_assert_eq!(&input, &bytes, "an incomplete reply stays");
            }
        }
    }
}

#[test]
fn a_long_payload_in_small_packets_is_looked_at_once() {
    // Quadratic work on these would take minutes, not milliseconds.
    let payload = vec![b'\n'; 1024 * 1024];
    let id = Uuid::from_random([7; 16]);
    let mut bytes = BytesMut::new();
    Request::Complete { id, result: payload.into() }.encode(&mut bytes);
    assert_eq!(decode_pieces(Limits::default(), bytes.chunks(16)).len(), 2);
    let mut flags = b"lease".to_vec();
    (0..30_000).for_each(|number| flags.extend(format!(" -{number}=1").bytes()));
    flags.extend(b"\r\n");
    assert_eq!(decode_pieces(Limits::default(), flags.chunks(1)).len(), 2);
}
