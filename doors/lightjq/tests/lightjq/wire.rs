//! Bytes in and out, without a server.

use bytes::Bytes;
use proptest::prelude::*;
use rmpv::Value as Packed;
use spindle_core::JobId;
use spindle_lightjq::wire::{
    DEPTH_MAX, Done, Format, Head, JobShown, NewJob, Order, Outcome, Pack, Reason, Registration,
    WireError, answer_format, body_format, check, read_head, to_json, value_len,
};

fn pack(value: &Packed) -> Bytes {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    Bytes::from(bytes)
}

fn map(pairs: &[(&str, Packed)]) -> Bytes {
    let pairs = pairs.iter().map(|(key, value)| (Packed::from(*key), value.clone())).collect();
    pack(&Packed::Map(pairs))
}

fn any_packed() -> impl Strategy<Value = Packed> {
    let leaf = prop_oneof![
        Just(Packed::Nil),
        any::<bool>().prop_map(Packed::from),
        any::<i64>().prop_map(Packed::from),
        any::<u64>().prop_map(Packed::from),
        (-200i64..70_000).prop_map(Packed::from),
        any::<f32>().prop_map(Packed::F32),
        any::<f64>().prop_map(Packed::F64),
        ".{0,300}".prop_map(Packed::from),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Packed::Binary),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(kind, data)| Packed::Ext(kind, data)),
    ];
    leaf.prop_recursive(4, 60, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Packed::Array),
            prop::collection::vec((inner.clone(), inner), 0..20).prop_map(Packed::Map),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_is_as_long_as_another_library_says(value in any_packed(), more in 0usize..4) {
        let bytes = pack(&value);
        let followed = [&bytes[..], &vec![0xc1; more]].concat();
        prop_assert_eq!(value_len(&followed), Ok(bytes.len()));
        let whole = if more == 0 { Ok(()) } else { Err(WireError::Trailing(more)) };
        prop_assert_eq!(check(&followed), whole);
    }

    #[test]
    fn a_value_cut_off_anywhere_is_truncated(
        value in any_packed(),
        at in any::<prop::sample::Index>(),
    ) {
        let bytes = pack(&value);
        let cut = at.index(bytes.len());
        prop_assert_eq!(value_len(&bytes[..cut]), Err(WireError::Truncated));
    }

    #[test]
    fn readers_return_whatever_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let ours = value_len(&bytes);
        let mut rest = &bytes[..];
        let theirs = rmpv::decode::read_value(&mut rest).map(|_| bytes.len() - rest.len());
        // That library takes the byte that means nothing for nil.
        if ours != Err(WireError::Reserved) {
            prop_assert_eq!(ours.ok(), theirs.ok());
        }
        let bytes = Bytes::from(bytes);
        let _ = NewJob::decode(&bytes);
        let _ = Registration::decode(&bytes);
        let _ = Done::decode(&bytes);
        let _ = to_json(&bytes);
    }

    #[test]
    fn what_is_written_is_what_another_library_writes(
        number in any::<i64>(),
        float in any::<f64>(),
        text in ".{0,300}",
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut own = Pack::new();
        own.array(5).int(number).float(float).text(&text).bin(&bytes).uint(number.unsigned_abs());
        let theirs = pack(&Packed::Array(vec![
            Packed::from(number),
            Packed::F64(float),
            Packed::from(text),
            Packed::Binary(bytes),
            Packed::from(number.unsigned_abs()),
        ]));
        prop_assert_eq!(own.into_bytes(), theirs);
    }
}

#[test]
fn lengths_change_their_form_where_the_format_says() {
    for len in [0usize, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
        let count = u32::try_from(len).unwrap();
        let mut own = Pack::new();
        own.text(&"x".repeat(len));
        assert_eq!(own.into_bytes(), pack(&Packed::from("x".repeat(len))), "text {len}");
        let mut own = Pack::new();
        own.bin(&vec![7; len]);
        assert_eq!(own.into_bytes(), pack(&Packed::Binary(vec![7; len])), "bin {len}");
        let mut own = Pack::new();
        own.array(count);
        for _ in 0..len {
            own.nil();
        }
        let bytes = own.into_bytes();
        assert_eq!(bytes, pack(&Packed::Array(vec![Packed::Nil; len])), "array {len}");
        assert_eq!(value_len(&bytes), Ok(bytes.len()));
        let mut own = Pack::new();
        own.map(count);
        for _ in 0..2 * len {
            own.nil();
        }
        let theirs = pack(&Packed::Map(vec![(Packed::Nil, Packed::Nil); len]));
        assert_eq!(own.into_bytes(), theirs, "map {len}");
    }
}

#[test]
fn the_smallest_and_the_largest_of_everything_is_read() {
    for (bytes, head) in [
        (&b"\xc0"[..], Head::Nil),
        (b"\xc3", Head::Bool(true)),
        (b"\xe0", Head::Int(-32)),
        (b"\xff", Head::Int(-1)),
        (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", Head::Int(u64::MAX.into())),
        (b"\xd3\x80\0\0\0\0\0\0\0", Head::Int(i64::MIN.into())),
        (b"\xca\x3f\0\0\0", Head::Float(0.5)),
        (b"\xd4\x05x", Head::Ext(5, b"x")),
        (b"\xc7\x00\xff", Head::Ext(-1, b"")),
        (b"\xdd\xff\xff\xff\xff", Head::Array(u32::MAX)),
        (b"\xdf\xff\xff\xff\xff", Head::Map(u32::MAX)),
    ] {
        assert_eq!(read_head(bytes), Ok((head, &b""[..])), "{bytes:x?}");
    }
    assert_eq!(read_head(b"\xc1"), Err(WireError::Reserved));
    // Four thousand million members are announced, and none comes.
    assert_eq!(value_len(b"\xdd\xff\xff\xff\xff"), Err(WireError::Truncated));
    assert_eq!(value_len(b"\xc6\xff\xff\xff\xff"), Err(WireError::Truncated));
}

#[test]
fn maps_nested_too_deep_are_refused_without_a_stack_to_overflow() {
    let nested = |depth: usize| [b"\x81\xa1a".repeat(depth), vec![0xc0]].concat();
    assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
    for depth in [DEPTH_MAX + 1, 1_000, 1_000_000] {
        assert_eq!(check(&nested(depth)), Err(WireError::TooDeep), "{depth}");
        let argument = [&b"\x82\xa4name\xa1n\xa8argument"[..], &nested(depth)].concat();
        assert_eq!(NewJob::decode(&argument.into()), Err(WireError::TooDeep), "{depth}");
    }
    // Beside each other they may be as many as they like.
    let broad = [&b"\xdc\xff\xff"[..], &b"\x91\xc0".repeat(65_535)].concat();
    assert_eq!(check(&broad), Ok(()));
}

#[test]
fn a_job_with_nothing_but_the_needed_has_the_documents_defaults() {
    // {"name": "mail", "argument": {"to": "a"}}, byte by byte.
    let bytes = Bytes::from_static(b"\x82\xa4name\xa4mail\xa8argument\x81\xa2to\xa1a");
    let job = NewJob::decode(&bytes).unwrap();
    let expected = NewJob {
        name: "mail".into(),
        argument: Bytes::from_static(b"\x81\xa2to\xa1a"),
        priority: 0,
        max_retry: None,
        keep_result: false,
        timeout_ms: 30_000,
    };
    assert_eq!(job, expected);
}

#[test]
fn a_job_says_all_there_is_to_say_and_its_argument_is_kept_byte_by_byte() {
    // Keys that are no texts, ext types, integers longer than they need be.
    let argument =
        b"\x83\x01\xcd\x00\x01\xc0\xd6\xff\0\0\0\x01\xa1k\xcf\xff\xff\xff\xff\xff\xff\xff\xff";
    let mut pack = Pack::new();
    pack.map(7).text("name").text("n").text("argument").raw(argument);
    pack.text("priority").int(-2_147_483_648).text("max_retry").uint(0);
    pack.text("keep_result").bool(true).text("timeout").float(0.0015).text("unknown").nil();
    let job = NewJob::decode(&pack.into_bytes().into()).unwrap();
    assert_eq!(&job.argument[..], argument);
    assert_eq!((job.priority, job.max_retry, job.keep_result), (i32::MIN, Some(0), true));
    assert_eq!(job.timeout_ms, 2, "a little time is rounded up");
}

#[track_caller]
fn refused(pairs: &[(&str, Packed)], says: &str) {
    let error = NewJob::decode(&map(pairs)).unwrap_err().to_string();
    assert!(error.contains(says), "{error:?} does not say {says:?}");
}

#[test]
fn what_a_job_must_not_be_is_said() {
    let name = || ("name", Packed::from("n"));
    let argument = || ("argument", Packed::Map(vec![]));
    refused(&[argument()], "`name` is missing");
    refused(&[name()], "`argument` is missing");
    refused(&[("name", Packed::Nil), argument()], "`name` is missing");
    refused(&[("name", Packed::from("")), argument()], "`name` must be");
    refused(&[("name", Packed::from("n".repeat(513))), argument()], "`name` must be");
    refused(&[("name", Packed::Binary(vec![97])), argument()], "`name` must be");
    refused(&[name(), ("argument", Packed::Array(vec![]))], "`argument` must be a map");
    refused(&[name(), ("argument", Packed::from(1))], "`argument` must be a map");
    refused(&[name(), name(), argument()], "`name` is there twice");
    for value in [Packed::from(1i64 << 31), Packed::from(-(1i64 << 31) - 1), Packed::from("1")] {
        refused(&[name(), argument(), ("priority", value)], "`priority` must be");
    }
    for value in [Packed::from(-1), Packed::F64(-1.0), Packed::F64(1.5), Packed::F64(1e300)] {
        refused(&[name(), argument(), ("max_retry", value)], "`max_retry` must be");
    }
    for value in [Packed::from(-1), Packed::from(0), Packed::F64(-0.5), Packed::F64(f64::NAN)]
        .into_iter()
        .chain([Packed::F64(f64::INFINITY), Packed::from(u64::MAX), Packed::from("5")])
        .chain([Packed::F64(4_294_967.000_000_001), Packed::from(4_294_968)])
    {
        refused(&[name(), argument(), ("timeout", value)], "`timeout` must be");
    }
    refused(&[name(), argument(), ("keep_result", Packed::from(1))], "`keep_result` must be");
    assert_eq!(NewJob::decode(&Bytes::new()), Err(WireError::Truncated));
    assert_eq!(NewJob::decode(&Bytes::from_static(b"\x90")), Err(WireError::NotAMap("the body")));
    assert_eq!(NewJob::decode(&Bytes::from_static(b"\x80\xc0")), Err(WireError::Trailing(1)));
    assert_eq!(NewJob::decode(&Bytes::from_static(b"\x81\x01\x01")), Err(WireError::KeyNotText));
    let not_utf8 = Bytes::from_static(b"\x82\xa4name\xa1\xff\xa8argument\x80");
    assert!(matches!(NewJob::decode(&not_utf8), Err(WireError::WrongType { field: "name", .. })));
}

#[test]
fn a_great_many_retries_are_as_many_as_can_be() {
    let many =
        [("name", "n".into()), ("argument", Packed::Map(vec![])), ("max_retry", u64::MAX.into())];
    assert_eq!(NewJob::decode(&map(&many)).unwrap().max_retry, Some(u32::MAX));
    let whole = [
        ("name", "n".into()),
        ("argument", Packed::Map(vec![])),
        ("max_retry", Packed::F64(3.0)),
        ("priority", Packed::F32(-2.0)),
    ];
    let job = NewJob::decode(&map(&whole)).unwrap();
    assert_eq!((job.max_retry, job.priority), (Some(3), -2), "a float may be an integer");
}

#[test]
fn a_worker_says_what_it_takes() {
    let plain = [("name", Packed::from("w")), ("max_jobs", Packed::from(3))];
    let expected = Registration { name: "w".to_owned(), max_jobs: 3, url: None, names: None };
    assert_eq!(Registration::decode(&map(&plain)), Ok(expected.clone()));
    let names = Packed::Array(vec!["a".into(), "b".into()]);
    let full = [&plain[..], &[("url", "http://x".into()), ("names", names)]].concat();
    let expected = Registration {
        url: Some("http://x".to_owned()),
        names: Some(vec!["a".into(), "b".into()]),
        ..expected
    };
    assert_eq!(Registration::decode(&map(&full)), Ok(expected));
    for (field, value) in [
        ("max_jobs", Packed::from(0)),
        ("max_jobs", Packed::from(10_001)),
        ("max_jobs", Packed::Nil),
        ("name", Packed::from("")),
        ("name", Packed::from("w".repeat(201))),
        ("names", Packed::Array(vec![])),
        ("names", Packed::Array(vec!["".into()])),
        ("names", Packed::Array(vec![1.into()])),
        ("names", Packed::Array(vec!["n".into(); 1025])),
        ("names", Packed::Array([vec!["n".repeat(512).into(); 128], vec!["n".into()]].concat())),
        ("url", Packed::from(format!("http://{}", "x".repeat(2042)))),
        ("names", Packed::from("n")),
        ("url", Packed::from(1)),
    ] {
        let mut pairs: Vec<(&str, Packed)> = plain.to_vec();
        pairs.retain(|(key, _)| *key != field);
        pairs.push((field, value.clone()));
        let error = Registration::decode(&map(&pairs)).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{field} {value}: {error}");
    }
}

#[test]
fn both_ends_of_an_attempt_are_told_as_the_document_says() {
    let success = [
        ("job_id", Packed::from("42")),
        ("type", "success".into()),
        ("finished_at", "2026-01-02T03:04:05Z".into()),
        ("result", Packed::Array(vec![1.into()])),
    ];
    let done = Done::decode(&map(&success)).unwrap();
    assert_eq!((done.job, &done.finished_at[..]), (Some(JobId(42)), &b"2026-01-02T03:04:05Z"[..]));
    assert_eq!(done.outcome, Outcome::Success { result: Bytes::from_static(b"\x91\x01") });
    let failure = [
        ("job_id", Packed::from("42")),
        ("type", "failure".into()),
        ("reason", "timeout".into()),
        ("should_retry", false.into()),
        ("message", "slow".into()),
        ("error", Packed::from(7)),
    ];
    let expected = Outcome::Failure {
        reason: Reason::Timeout,
        should_retry: false,
        message: "slow".into(),
        error: Bytes::from_static(b"\x07"),
    };
    assert_eq!(Done::decode(&map(&failure)).unwrap().outcome, expected);
    // The least there can be.
    let plain = Outcome::Failure {
        reason: Reason::Other,
        should_retry: true,
        message: Bytes::new(),
        error: Bytes::new(),
    };
    assert_eq!(Done::decode(&map(&failure[..2])).unwrap().outcome, plain);
    let nil = Outcome::Success { result: Bytes::from_static(b"\xc0") };
    assert_eq!(Done::decode(&map(&success[..2])).unwrap().outcome, nil);
}

#[test]
fn an_end_of_an_attempt_that_is_none_is_refused() {
    let both = [("job_id", Packed::from("42")), ("type", Packed::from("failure"))];
    assert!(Done::decode(&map(&both)).is_ok());
    for (field, value) in [
        ("job_id", Packed::Nil),
        ("job_id", Packed::from(42)),
        ("type", Packed::Nil),
        ("type", Packed::from("done")),
        ("reason", Packed::from("late")),
        ("should_retry", Packed::from("yes")),
        ("message", Packed::from(1)),
        ("message", Packed::from("m".repeat(65_537))),
        ("error", Packed::from("e".repeat(65_536))),
        ("finished_at", Packed::from(1)),
        ("finished_at", Packed::from("2".repeat(65))),
    ] {
        let mut pairs: Vec<(&str, Packed)> = both.to_vec();
        pairs.retain(|(key, _)| *key != field);
        pairs.push((field, value));
        let error = Done::decode(&map(&pairs)).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{field}: {error}");
    }
    // A name no job can have is no malformed body.
    for text in ["", "x", "0", "9007199254740992"] {
        let pairs = [("job_id", Packed::from(text)), ("type", "success".into())];
        assert_eq!(Done::decode(&map(&pairs)).unwrap().job, None, "{text}");
    }
}

#[test]
fn a_job_is_told_with_all_six_of_its_fields() {
    let shown = JobShown {
        status: "done",
        worker_id: None,
        result: Some(b"\x91\x01".to_vec()),
        error: None,
        message: Some("m".to_owned()),
        retry_count: 2,
    };
    let bytes = b"\x86\xa6status\xa4done\xa9worker_id\xc0\xa6result\x91\x01\xa5error\xc0\
                  \xa7message\xa1m\xabretry_count\x02";
    assert_eq!(shown.encode(), bytes);
}

#[test]
fn an_order_names_its_job_twice_and_tells_seconds() {
    let order = |timeout_ms| Order { job: JobId(7), name: b"n", argument: b"\x80", timeout_ms };
    let head = b"\x85\xa2id\xa17\xa6job_id\xa17\xa4name\xa1n\xa8argument\x80\xa7timeout";
    for (timeout_ms, tail) in
        [(Some(30_000), &b"\x1e"[..]), (Some(1_500), b"\xcb\x3f\xf8\0\0\0\0\0\0"), (None, b"\xc0")]
    {
        assert_eq!(order(timeout_ms).encode(), [&head[..], tail].concat(), "{timeout_ms:?}");
    }
}

#[test]
fn formats_are_told_by_their_names() {
    use Format::{Json, Msgpack};
    for (said, format) in [
        (None, Some(Msgpack)),
        (Some("application/msgpack"), Some(Msgpack)),
        (Some("application/x-msgpack"), Some(Msgpack)),
        (Some("application/vnd.msgpack; v=1"), Some(Msgpack)),
        (Some("Application/JSON; charset=utf-8"), Some(Json)),
        (Some("text/plain"), None),
        (Some(""), None),
    ] {
        assert_eq!(body_format(said), format, "{said:?}");
    }
    for (accept, request, format) in [
        (None, None, Some(Msgpack)),
        (None, Some(Json), Some(Json)),
        (Some("*/*"), Some(Json), Some(Json)),
        (Some("*/*"), None, Some(Msgpack)),
        (Some(" "), None, Some(Msgpack)),
        (Some("application/json"), Some(Msgpack), Some(Json)),
        (Some("text/html, application/json;q=0.9, */*;q=0.8"), None, Some(Json)),
        (Some("application/json;q=0.5, application/msgpack"), Some(Json), Some(Msgpack)),
        (Some("application/json;q=0, */*"), Some(Json), Some(Msgpack)),
        (Some("application/*"), Some(Msgpack), Some(Msgpack)),
        (Some("text/html"), Some(Msgpack), None),
        (Some("application/msgpack;q=0"), None, None),
    ] {
        assert_eq!(answer_format(accept, request), format, "{accept:?} {request:?}");
    }
}
