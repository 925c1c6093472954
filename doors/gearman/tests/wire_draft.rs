//! The draft's packets, byte by byte.

use bytes::{Bytes, BytesMut};
use spindle_gearman::client::{Encode, decode_reply};
use spindle_gearman::wire::draft::{
    Decoder, DraftError, ErrorCode, JobKind, Limits, NewJob, Progress, Reply, Request,
};

fn text(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

fn decode(bytes: &[u8]) -> Result<Option<Request>, DraftError> {
    Decoder::new(Limits::default()).decode(&mut BytesMut::from(bytes))
}

fn job(kind: JobKind) -> Request {
    Request::JobCreate(NewJob {
        name: text(b"mail"),
        duplicate_key: text(b"uid"),
        flags: 9,
        kind,
        payload: text(b"a\0b"),
    })
}

const PROGRESS: Progress = Progress { numerator: 1, denominator: 100, remaining_s: 0x01020304 };

#[test]
fn every_packet_of_workers_and_applications_is_read_and_written() {
    let names = |names: &[&'static [u8]]| Request::WorkerConnect {
        names: names.iter().map(|name| text(name)).collect(),
    };
    let packets: [(&[u8], Request); 14] = [
        (b"\x01SPD\x00\0\0\0\0", Request::Noop),
        (b"\x01SPD\x01\0\0\0\x0Amail\0thumb", names(&[b"mail", b"thumb"])),
        (b"\x01SPD\x01\0\0\0\x04mail", names(&[b"mail"])),
        (b"\x01SPD\x01\0\0\0\0", names(&[])),
        (b"\x01SPD\x02\0\0\0\0", Request::WorkerDisconnect),
        (b"\x01SPD\x03\0\0\0\0", Request::WorkerSleep),
        (b"\x01SPD\x04\0\0\0\x0Email\0uid\0\x09\x00a\0b", job(JobKind::Sync)),
        (b"\x01SPD\x04\0\0\0\x0Email\0uid\0\x09\x01a\0b", job(JobKind::Handle)),
        (b"\x01SPD\x04\0\0\0\x0Email\0uid\0\x09\x02a\0b", job(JobKind::ThrowAway)),
        (b"\x01SPD\x06\0\0\0\0", Request::JobAssign),
        (
            b"\x01SPD\x08\0\0\0\x0C\0\0\0\x01\0\0\0\x64\x01\x02\x03\x04",
            Request::JobStatusAnnounce(PROGRESS),
        ),
        (b"\x01SPD\x09\0\0\0\x05H:h:1", Request::JobStatus { handle: text(b"H:h:1") }),
        (
            b"\x01SPD\x0B\0\0\0\x03\xFFno",
            Request::JobCompleteAnnounce { code: 255, result: text(b"no") },
        ),
        (b"\x01SPD\x0C\0\0\0\x05H:h:1", Request::JobComplete { handle: text(b"H:h:1") }),
    ];
    for (bytes, request) in packets {
        assert_eq!(decode(bytes), Ok(Some(request.clone())));
        let mut written = BytesMut::new();
        request.encode(&mut written);
        assert_eq!(written, bytes, "{request:?}");
    }
}

#[test]
fn every_packet_of_the_server_is_written_and_read() {
    let packets: [(&[u8], Reply); 7] = [
        (b"\x01SPD\x00\0\0\0\0", Reply::Noop),
        (b"\x01SPD\x05\0\0\0\x05H:h:1", Reply::JobCreated { handle: text(b"H:h:1") }),
        (b"\x01SPD\x05\0\0\0\0", Reply::JobCreated { handle: Bytes::new() }),
        (
            b"\x01SPD\x07\0\0\0\x08mail\0a\0b",
            Reply::JobAssigned { name: text(b"mail"), payload: text(b"a\0b") },
        ),
        (b"\x01SPD\x0A\0\0\0\x0C\0\0\0\x01\0\0\0\x64\x01\x02\x03\x04", Reply::JobStatus(PROGRESS)),
        (
            b"\x01SPD\x0D\0\0\0\x07\0\0\x01\x00\x03ok",
            Reply::JobComplete { elapsed_s: 256, code: 3, result: text(b"ok") },
        ),
        (
            b"\x01SPD\x7F\0\0\0\x0C\x04unknown job",
            Reply::Error { code: 4, text: text(b"unknown job") },
        ),
    ];
    for (bytes, reply) in packets {
        let mut written = BytesMut::new();
        reply.encode(&mut written);
        assert_eq!(written, bytes, "{reply:?}");
        assert_eq!(decode_reply(&mut written, 1000), Ok(Some(reply)));
    }
    assert_eq!(
        Reply::error(ErrorCode::UnknownJob),
        Reply::Error { code: 4, text: text(b"unknown job") }
    );
}

#[test]
fn a_nul_behind_the_last_announced_name_is_taken() {
    let request = Request::WorkerConnect { names: vec![text(b"mail")] };
    assert_eq!(decode(b"\x01SPD\x01\0\0\0\x05mail\0"), Ok(Some(request)));
}

#[test]
fn malformed_packets_end_the_conversation_with_a_word() {
    let malformed: [&[u8]; 17] = [
        b"\x01SPD\x00\0\0\0\x01x",
        b"\x01SPD\x01\0\0\0\x01\0",
        b"\x01SPD\x01\0\0\0\x04a\0\0b",
        b"\x01SPD\x02\0\0\0\x01x",
        b"\x01SPD\x03\0\0\0\x01x",
        b"\x01SPD\x04\0\0\0\0",
        b"\x01SPD\x04\0\0\0\x04mail",
        b"\x01SPD\x04\0\0\0\x05mail\0",
        b"\x01SPD\x04\0\0\0\x06mail\0\0",
        b"\x01SPD\x04\0\0\0\x07mail\0\0\0",
        b"\x01SPD\x04\0\0\0\x08mail\0\0\0\x03",
        b"\x01SPD\x04\0\0\0\x04\0\0\0\0",
        b"\x01SPD\x06\0\0\0\x01x",
        b"\x01SPD\x08\0\0\0\x0B12345678901",
        b"\x01SPD\x08\0\0\0\x0D1234567890123",
        b"\x01SPD\x08\0\0\0\0",
        b"\x01SPD\x0B\0\0\0\0",
    ];
    for bytes in malformed {
        let mut decoder = Decoder::new(Limits::default());
        let error = decoder.decode(&mut BytesMut::from(bytes)).unwrap_err();
        assert_eq!(error, DraftError::Malformed(bytes[4]), "{}", bytes.escape_ascii());
        assert_eq!(error.reply(), Some(ErrorCode::Malformed));
        let mut fine = BytesMut::from(&b"\x01SPD\x06\0\0\0\0"[..]);
        assert_eq!(decoder.decode(&mut fine), Err(DraftError::Closed));
    }
}

#[test]
fn types_of_the_server_and_unknown_types_are_refused() {
    for kind in [0x05, 0x07, 0x0A, 0x0D, 0x0E, 0x7E, 0x7F, 0x80, 0xFF] {
        let bytes = [1, b'S', b'P', b'D', kind, 0, 0, 0, 0];
        assert_eq!(decode(&bytes), Err(DraftError::UnknownType(kind)));
        assert_eq!(DraftError::UnknownType(kind).reply(), Some(ErrorCode::UnknownType));
    }
}

#[test]
fn a_wrong_magic_is_noticed_as_soon_as_it_is_wrong() {
    for bytes in [&b"\x02"[..], b"\x01X", b"\x01SPX", b"\x01SPE\x06\0\0\0\0"] {
        assert_eq!(decode(bytes), Err(DraftError::WrongMagic));
    }
    assert_eq!(DraftError::WrongMagic.reply(), None);
    for bytes in [&b""[..], b"\x01", b"\x01SP", b"\x01SPD", b"\x01SPD\x06\0\0\0"] {
        assert_eq!(decode(bytes), Ok(None));
    }
}

#[test]
fn packets_names_and_keys_have_limits() {
    let limits = Limits {
        packet_bytes_max: 600,
        duplicate_key_bytes_max: 5,
        names_max: 2,
        names_bytes_max: 520,
    };
    let decode = |request: &Request| {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        Decoder::new(limits).decode(&mut bytes)
    };
    let handle = |length: usize| Request::JobStatus { handle: Bytes::from(vec![b'h'; length]) };
    assert_eq!(decode(&handle(600)), Ok(Some(handle(600))));
    assert_eq!(decode(&handle(601)), Err(DraftError::TooLong { bytes: 601 }));
    assert_eq!(DraftError::TooLong { bytes: 601 }.reply(), Some(ErrorCode::TooLong));

    let connect = |count: usize, length: usize| Request::WorkerConnect {
        names: vec![Bytes::from(vec![b'n'; length]); count],
    };
    assert!(decode(&connect(2, 3)).is_ok());
    assert_eq!(decode(&connect(3, 3)), Err(DraftError::Malformed(1)));
    assert!(decode(&connect(2, 260)).is_ok());
    assert_eq!(decode(&connect(2, 261)), Err(DraftError::Malformed(1)));
    let default = Limits::default();
    assert_eq!((default.names_max, default.names_bytes_max), (1024, 64 * 1024));
    assert!(decode(&connect(1, 512)).is_ok());
    assert_eq!(decode(&connect(1, 513)), Err(DraftError::Malformed(1)));

    let job = |name: usize, key: usize| {
        Request::JobCreate(NewJob {
            name: Bytes::from(vec![b'n'; name]),
            duplicate_key: Bytes::from(vec![b'k'; key]),
            flags: 0,
            kind: JobKind::Handle,
            payload: Bytes::new(),
        })
    };
    assert!(decode(&job(512, 5)).is_ok());
    assert_eq!(decode(&job(513, 5)), Err(DraftError::Malformed(4)));
    assert_eq!(decode(&job(1, 6)), Err(DraftError::Malformed(4)));
    // A length is refused when it is announced, not when its bytes have come.
    let mut header = BytesMut::from(&b"\x01SPD\x09\xff\xff\xff\xff"[..]);
    let error = Decoder::new(limits).decode(&mut header).unwrap_err();
    assert_eq!(error, DraftError::TooLong { bytes: u32::MAX });
}

/// As long as packets of the published protocol.
#[test]
fn a_packet_has_64_mib_and_a_kib_and_not_one_byte_more() {
    let most: u32 = 64 * 1024 * 1024 + 1024;
    let announced = |bytes: u32| [&b"\x01SPD\x0b"[..], &bytes.to_be_bytes()].concat();
    assert_eq!(decode(&announced(most)), Ok(None));
    assert_eq!(decode(&announced(most + 1)), Err(DraftError::TooLong { bytes: most + 1 }));
}

#[test]
fn broken_replies_are_told() {
    let broken: [(&[u8], DraftError); 7] = [
        (b"\x01SPD\x07\0\0\0\x04mail", DraftError::Malformed(7)),
        (b"\x01SPD\x0A\0\0\0\x01x", DraftError::Malformed(10)),
        (b"\x01SPD\x0D\0\0\0\x04\0\0\0\x01", DraftError::Malformed(13)),
        (b"\x01SPD\x7F\0\0\0\0", DraftError::Malformed(0x7F)),
        (b"\x01SPD\x06\0\0\0\0", DraftError::UnknownType(6)),
        (b"\0REQ\0", DraftError::WrongMagic),
        (b"\x01SPD\x0D\0\0\x04\x01", DraftError::TooLong { bytes: 1025 }),
    ];
    for (bytes, error) in broken {
        assert_eq!(decode_reply(&mut BytesMut::from(bytes), 1024), Err(error));
    }
}
