//! Matchers by example: what a payload must say, in JSON and in MessagePack alike.

use bytes::Bytes;
use spindle_core::Type;
use spindle_core::job::{LABELS_MAX, Label};
use spindle_core::queue::Constraint;

use super::*;

fn condition(pointer: &str, test: Test) -> Condition {
    Condition { pointer: pointer.to_owned(), test }
}

fn constraint(number: u32, matcher: &Matcher) -> Constraint {
    let name = Bytes::from(format!("rule-{number}"));
    Constraint { number, name, matcher: encode_matcher(matcher), ..Constraint::default() }
}

fn set(matchers: &[Matcher]) -> RuleSet {
    let constraints: Vec<Constraint> =
        (1..).zip(matchers).map(|(number, matcher)| constraint(number, matcher)).collect();
    RuleSet::new(1, &constraints, None)
}

fn when(pointer: &str, test: Test) -> RuleSet {
    set(&[Matcher { conditions: vec![condition(pointer, test)], ..Matcher::default() }])
}

fn matches(rules: &RuleSet, document: Document<'_>) -> bool {
    !rules.labels(b"q", b"", document, &[]).is_empty()
}

fn json(text: &str) -> Document<'_> {
    Document::new(text.as_bytes(), Type::Json)
}

#[track_caller]
fn check(pointer: &str, test: Test, fitting: &[&str], others: &[&str]) {
    let rules = when(pointer, test.clone());
    for (texts, fit) in [(fitting, true), (others, false)] {
        for text in texts {
            assert_eq!(matches(&rules, json(text)), fit, "{pointer} {test:?} {text}");
        }
    }
}

fn text(text: &str) -> Scalar {
    Scalar::Text(text.to_owned())
}

#[test]
fn fields_are_found_by_json_pointers() {
    let is_1 = || Test::Eq(Scalar::Int(1));
    check("/a", is_1(), &[r#"{"a":1}"#, r#"{"b":{"a":2},"a":1.0}"#], &[r#"{"b":{"a":1}}"#, "1"]);
    check("/a/b/2", is_1(), &[r#"{"a":{"b":[0,0,1]}}"#], &[r#"{"a":{"b":[0,1]}}"#, r#"{"a":[1]}"#]);
    check("/2", is_1(), &["[0,0,1]", r#"{"2":1}"#], &["[0,1]", "[]"]);
    check("/02", is_1(), &[r#"{"02":1}"#], &["[0,0,1]"]);
    check("/-", is_1(), &[r#"{"-":1}"#], &["[1]"]);
    check("/a~1b/m~0n", is_1(), &[r#"{"a/b":{"m~n":1}}"#], &[r#"{"a":{"b":1}}"#]);
    check("/ä", is_1(), &[r#"{"ä":1}"#, "{\"\\u00e4\":1}"], &[]);
    check("/", is_1(), &[r#"{"":1}"#], &["1"]);
    check("", is_1(), &["1", " 1 "], &["2", "[1]", "1 1"]);
}

#[test]
fn of_a_key_that_stands_twice_the_last_one_counts() {
    let is_1 = || Test::Eq(Scalar::Int(1));
    check("/a/b", is_1(), &[r#"{"a":{"b":2},"a":{"b":1}}"#], &[r#"{"a":{"b":1},"a":2}"#]);
    check("/a/b", Test::Absent, &[r#"{"a":{"b":1},"a":{}}"#], &[r#"{"a":{},"a":{"b":1}}"#]);
}

#[test]
fn every_operator_does_what_its_name_says() {
    let five = || Scalar::Int(5);
    check("/n", Test::Eq(five()), &[r#"{"n":5}"#], &[r#"{"n":"5"}"#, "{}"]);
    check("/n", Test::Ne(five()), &[r#"{"n":"5"}"#, r#"{"n":null}"#], &[r#"{"n":5}"#, "{}"]);
    check("/n", Test::Lt(five()), &[r#"{"n":4.9}"#], &[r#"{"n":5}"#, r#"{"n":"4"}"#, "{}"]);
    check("/n", Test::Le(five()), &[r#"{"n":5}"#, r#"{"n":-9}"#], &[r#"{"n":5.1}"#]);
    check("/n", Test::Gt(five()), &[r#"{"n":1e300}"#], &[r#"{"n":5}"#]);
    check("/n", Test::Ge(text("m")), &[r#"{"n":"m"}"#, r#"{"n":"z"}"#], &[r#"{"n":"a"}"#]);
    let values = vec![five(), text("x"), Scalar::Null, Scalar::Bool(true)];
    let fitting = [r#"{"n":5}"#, r#"{"n":"x"}"#, r#"{"n":null}"#, r#"{"n":true}"#];
    check("/n", Test::In(values), &fitting, &[r#"{"n":6}"#, r#"{"n":false}"#, "{}"]);
    let glob = Test::Glob("*@example.org".to_owned());
    check("/n", glob, &[r#"{"n":"a@example.org"}"#], &[r#"{"n":"a@example.com"}"#, r#"{"n":5}"#]);
    check("/n", Test::Exists, &[r#"{"n":null}"#, r#"{"n":[]}"#], &["{}", "[]"]);
    check("/n", Test::Absent, &["{}", "[]", "3"], &[r#"{"n":null}"#]);
}

#[test]
fn all_conditions_must_hold_and_the_queue_must_fit() {
    let conditions =
        vec![condition("/a", Test::Exists), condition("/b", Test::Eq(Scalar::Bool(true)))];
    let rules = set(&[
        Matcher { conditions, ..Matcher::default() },
        Matcher { queue: QueuePattern::Exact(Bytes::from_static(b"mail")), ..Matcher::default() },
        Matcher { queue: QueuePattern::Glob(Bytes::from_static(b"m*")), ..Matcher::default() },
    ]);
    let numbers = |queue: &str, document| {
        let labels = rules.labels(queue.as_bytes(), b"", document, &[]);
        labels.iter().map(|label| label.constraint).collect::<Vec<_>>()
    };
    assert_eq!(numbers("mail", json(r#"{"a":0,"b":true}"#)), [1, 2, 3]);
    assert_eq!(numbers("mill", json(r#"{"a":0,"b":false}"#)), [3]);
    assert_eq!(numbers("bill", json(r#"{"a":0,"b":true}"#)), [1]);
    assert_eq!(numbers("bill", Document::Opaque), [0; 0]);
    assert!(rules.asks_for_fields(b"bill"));
    assert!(!set(&[Matcher::default()]).asks_for_fields(b"bill"));
}

#[test]
fn every_key_has_a_label_of_its_own() {
    let by = |per: &str| Matcher { per: Some(per.to_owned()), ..Matcher::default() };
    let rules = set(&[by(PER_FAIR_KEY), by("/tenant")]);
    let fair = [(Bytes::from_static(b"fair"), "/tenant".to_owned())];
    let rules = rules.with_fair_queues(fair);
    let acme = json(r#"{"tenant":"acme"}"#);
    let values = |labels: &[Label]| [labels[0].value, labels[1].value];
    let [key, field] = values(&rules.labels(b"q", b"acme", acme, &[]));
    assert_eq!(key, field, "a key is as a text that says the same");
    let [none, field] = values(&rules.labels(b"q", b"", acme, &[]));
    assert!(none != key && field == key);
    assert_eq!(none, rules.labels(b"q", b"", Document::Opaque, &[])[1].value);
    // A new job has the key that it came with, or that of the field by which its queue is fair.
    let found = rules.matched(b"fair", None, acme);
    assert_eq!((found.fair_key.as_deref(), found.labels[0].value), (Some(&b"acme"[..]), key));
    let given = rules.matched(b"fair", Some(b"other"), acme);
    assert_eq!((given.fair_key, values(&given.labels)[1]), (None, key));
    assert!(![none, key].contains(&given.labels[0].value));
    assert_eq!(rules.matched(b"q", None, acme).labels[0].value, none);
    assert!(!set(&[by(PER_FAIR_KEY)]).asks_for_fields(b"q"));
}

#[test]
fn every_value_of_the_per_field_has_a_label_of_its_own() {
    let rules = set(&[Matcher { per: Some("/user".to_owned()), ..Matcher::default() }]);
    let value = |document| rules.labels(b"q", b"", document, &[])[0].value;
    let alice = value(json(r#"{"user":"alice"}"#));
    assert_eq!(alice, value(json(r#"{"x":[],"user":"\u0061lice"}"#)));
    assert_ne!(alice, value(json(r#"{"user":"bob"}"#)));
    assert_ne!(value(json(r#"{"user":1}"#)), value(json(r#"{"user":"1"}"#)));
    assert_eq!(value(json(r#"{"user":1}"#)), value(json(r#"{"user":1.0}"#)));
    // Jobs without the field share a limit, and so do those whose payload cannot be read.
    assert_eq!(value(json("{}")), value(Document::Opaque));
    assert_eq!(value(json(r#"{"user":{"id":1}}"#)), value(json(r#"{"user":{"id":2}}"#)));
    // The same value in MessagePack: {"user": "alice"}.
    let packed = b"\x81\xa4user\xa5alice";
    assert_eq!(alice, value(Document::new(packed, Type::Msgpack)));
    let without = set(&[Matcher::default()]);
    assert_eq!(without.labels(b"q", b"", Document::Opaque, &[])[0].value, 0);
}

#[test]
fn messagepack_of_every_form_is_read() {
    let at_n = |value: &[u8]| [b"\x82\xa1x\x92\xc0\x81\x01\x02\xa1n".as_slice(), value].concat();
    let is = |value: &[u8], scalar: Scalar| {
        let payload = at_n(value);
        matches(&when("/n", Test::Eq(scalar)), Document::new(&payload, Type::Msgpack))
    };
    for (bytes, number) in [
        (&b"\x05"[..], 5),
        (b"\xff", -1),
        (b"\xe0", -32),
        (b"\xcc\xff", 255),
        (b"\xcd\x01\x00", 256),
        (b"\xce\x00\x01\x00\x00", 65_536),
        (b"\xd0\x80", -128),
        (b"\xd1\xff\x00", -256),
        (b"\xd2\xff\xff\x00\x00", -65_536),
        (b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", i64::MIN),
        (b"\xcb\x40\x14\x00\x00\x00\x00\x00\x00", 5),
        (b"\xca\x40\xa0\x00\x00", 5),
    ] {
        assert!(is(bytes, Scalar::Int(number)), "{bytes:x?}");
    }
    assert!(is(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", Scalar::Uint(u64::MAX)));
    assert!(is(b"\xc0", Scalar::Null) && is(b"\xc3", Scalar::Bool(true)));
    assert!(is(b"\xc2", Scalar::Bool(false)) && is(b"\xa2ab", text("ab")));
    assert!(is(b"\xd9\x02ab", text("ab")) && is(b"\xda\x00\x02ab", text("ab")));
    assert!(is(b"\xdb\x00\x00\x00\x02ab", text("ab")));
    assert!(is(b"\xc4\x02ab", Scalar::Bin(Bytes::from_static(b"ab"))));
    assert!(is(b"\xa1\xff", Scalar::Bin(Bytes::from_static(b"\xff"))), "text that is no UTF-8");
    let exists = when("/n", Test::Exists);
    for bytes in [&b"\xd6\x01abcd"[..], b"\xc7\x01\x05a", b"\xdc\x00\x00", b"\xdf\x00\x00\x00\x00"]
    {
        assert!(matches(&exists, Document::new(&at_n(bytes), Type::Msgpack)), "{bytes:x?}");
    }
}

#[test]
fn what_is_no_document_has_no_fields() {
    let absent = when("/n", Test::Absent);
    for text in ["{\"n\":1", "{\"n\":1} x", "", "{\"n\":1,}", "{n:1}", "\u{feff}{\"n\":1}"] {
        assert!(matches(&absent, json(text)), "{text}");
    }
    let packed: [&[u8]; 6] = [
        b"\x81\xa1n",
        b"\x81\xa1n\x01\x01",
        b"\xc1",
        b"",
        b"\xdd\xff\xff\xff\xff\x01",
        b"\xdb\xff",
    ];
    for bytes in packed {
        assert!(matches(&absent, Document::new(bytes, Type::Msgpack)), "{bytes:x?}");
    }
    // Types are not guessed: JSON that is declared as bytes is bytes.
    assert!(matches(&absent, Document::new(b"{\"n\":1}", Type::Bytes)));
    assert!(!matches(&absent, Document::new(b"{\"n\":1}", Type::Json)));
}

#[test]
fn a_payload_nested_as_deep_as_it_is_long_overflows_nothing() {
    const DEPTH: usize = 1_000_000;
    let found = when("/n", Test::Eq(Scalar::Int(1)));
    let deep = "[".repeat(DEPTH) + &"]".repeat(DEPTH);
    assert!(matches(&found, json(&format!(r#"{{"a":{deep},"n":1}}"#))));
    let deep = r#"{"a":"#.repeat(DEPTH) + "1" + &"}".repeat(DEPTH);
    assert!(matches(&found, json(&format!(r#"{{"a":{deep},"n":1}}"#))));
    let packed = [b"\x82\xa1a", &b"\x91".repeat(DEPTH)[..], b"\xc0\xa1n\x01"].concat();
    assert!(matches(&found, Document::new(&packed, Type::Msgpack)));
    let packed = [b"\x82", &b"\x81".repeat(DEPTH)[..], b"\xc0"].concat();
    assert!(!matches(&found, Document::new(&packed, Type::Msgpack)));
    // Along the pointer, too.
    let long = "/0".repeat(32);
    let along = when(&long, Test::Exists);
    assert!(matches(&along, json(&("[".repeat(DEPTH) + &"]".repeat(DEPTH)))));
}

#[test]
fn any_bytes_are_a_document_or_not_one() {
    let rules = when("/a/0", Test::Exists);
    let pieces: [&[u8]; 12] = [
        b"{\"a\":",
        b"[",
        b"1",
        b"]",
        b"}",
        b",",
        b"\x81\xa1a",
        b"\x91",
        b"\xdd\xff",
        b"\xc7",
        b"\"\\u",
        b"\xff",
    ];
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    let mut found = 0;
    for _ in 0..20_000 {
        let count = next(9);
        let bytes: Vec<u8> = (0..count)
            .flat_map(|_| match next(16) {
                piece @ 0..12 => pieces[piece as usize].to_vec(),
                _ => vec![next(256) as u8],
            })
            .collect();
        for kind in [Type::Json, Type::Msgpack] {
            found += u32::from(matches(&rules, Document::new(&bytes, kind)));
        }
        decode_matcher(&Bytes::from(bytes)).ok();
    }
    assert!(found > 0, "nothing was found in any of them");
}

#[test]
fn of_nine_constraints_the_eight_that_are_there_longest_hold() {
    let rules = set(&vec![Matcher::default(); LABELS_MAX + 1]);
    for _ in 0..2 {
        let labels = rules.labels(b"q", b"", Document::Opaque, &[]);
        let numbers: Vec<u32> = labels.iter().map(|label| label.constraint).collect();
        assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    }
    assert_eq!((rules.left_out(8), rules.left_out(9)), (0, 2));
    // The count goes on when the set is made anew.
    let constraints: Vec<Constraint> =
        (1..=9).map(|number| constraint(number, &Matcher::default())).collect();
    let next = RuleSet::new(2, &constraints, Some(&rules));
    next.labels(b"q", b"", Document::Opaque, &[]);
    assert_eq!(next.left_out(9), 3);
}

#[test]
fn a_matcher_of_a_later_version_gives_no_labels_and_takes_none() {
    let mut kept = encode_matcher(&Matcher::default()).to_vec();
    assert_eq!(kept[..2], [0x08, 1], "min_reader is the first field");
    kept[1] = 2;
    let kept = Bytes::from(kept);
    assert_eq!(decode_matcher(&kept), Err(UnreadableMatcher::Newer(2)));
    let constraint = Constraint { number: 1, matcher: kept, ..Constraint::default() };
    let rules = RuleSet::new(1, &[constraint], None);
    assert_eq!(rules.labels(b"q", b"", Document::Opaque, &[]), []);
    let label = Label { constraint: 1, value: 7 };
    let gone = Label { constraint: 2, value: 7 };
    assert_eq!(rules.labels(b"q", b"", Document::Opaque, &[label, gone]), [label]);
}

#[test]
fn matchers_are_kept_as_they_were_put() {
    let tests = [
        Test::Eq(Scalar::Null),
        Test::Ne(Scalar::Bool(false)),
        Test::Lt(Scalar::Int(i64::MIN)),
        Test::Le(Scalar::Uint(u64::MAX)),
        Test::Gt(Scalar::Float(0.1)),
        Test::Ge(text("ä")),
        Test::In(vec![Scalar::Bin(Bytes::from_static(b"\x00\xff")), Scalar::Int(0)]),
        Test::Glob("a*".to_owned()),
        Test::Exists,
        Test::Absent,
    ];
    let conditions = tests.into_iter().map(|test| condition("/a/0", test)).collect();
    let queue = QueuePattern::Glob(Bytes::from_static(b"m*\xff"));
    let matcher = Matcher { queue, conditions, per: Some("/user".to_owned()) };
    assert_eq!(decode_matcher(&encode_matcher(&matcher)), Ok(matcher));
    let queue = QueuePattern::Exact(Bytes::from_static(b"a"));
    let conditions = vec![condition("/b", Test::Exists)];
    let matcher = Matcher { queue, conditions, per: Some("/c".to_owned()) };
    let one_message = &b"\x08\x01\x12\x01a\x22\x06\x0a\x02/b\x10\x09\x2a\x02/c"[..];
    assert_eq!(encode_matcher(&matcher), one_message, "logs have such bytes");
    for bytes in [&b""[..], b"\xff", b"\x08\x01\x22\x00", b"\x08\x01\x12\x01a\x1a\x01b"] {
        let bytes = Bytes::copy_from_slice(bytes);
        assert_eq!(decode_matcher(&bytes), Err(UnreadableMatcher::Damaged), "{bytes:?}");
    }
}

#[test]
fn what_limits_nothing_or_says_too_much_is_not_taken() {
    let taken = ConstraintSpec {
        matcher: Matcher { per: Some("/user".to_owned()), ..Matcher::default() },
        rate: None,
        running_max: Some(0),
    };
    let with = |change: &dyn Fn(&mut ConstraintSpec)| {
        let mut spec = taken.clone();
        change(&mut spec);
        spec.check()
    };
    assert_eq!(taken.check(), Ok(()));
    assert_eq!(with(&|spec| spec.running_max = None), Err(SpecError::NoLimit));
    let rate = |count, per_ms, burst| Some(spindle_core::queue::Rate { count, per_ms, burst });
    assert_eq!(with(&|spec| spec.rate = rate(0, 1, 1)), Err(SpecError::Rate));
    assert_eq!(with(&|spec| spec.rate = rate(1, 1, (1 << 31) + 1)), Err(SpecError::Rate));
    for pointer in ["user", "/a~2", "/a~"] {
        let per = Some(pointer.to_owned());
        let wrong = SpecError::Pointer(pointer.to_owned());
        assert_eq!(with(&|spec| spec.matcher.per.clone_from(&per)), Err(wrong));
    }
    let long = "/a".repeat(33);
    let deep = |spec: &mut ConstraintSpec| spec.matcher.per = Some(long.clone());
    assert!(matches!(with(&deep), Err(SpecError::Pointer(_))));
    let tested =
        |test: Test| with(&|spec| spec.matcher.conditions = vec![condition("/a", test.clone())]);
    assert_eq!(tested(Test::Lt(Scalar::Null)), Err(SpecError::NoOrder));
    assert_eq!(tested(Test::In(Vec::new())), Err(SpecError::Values));
    assert_eq!(tested(Test::Eq(text(&"x".repeat(1025)))), Err(SpecError::Value));
    let many = |spec: &mut ConstraintSpec| {
        spec.matcher.conditions = vec![condition("/a", Test::Exists); 17];
    };
    assert_eq!(with(&many), Err(SpecError::Conditions));
    let queue = |name: Bytes| with(&|spec| spec.matcher.queue = QueuePattern::Exact(name.clone()));
    assert_eq!(queue(Bytes::new()), Err(SpecError::Queue));
    assert_eq!(queue(Bytes::from(vec![b'q'; 513])), Err(SpecError::Queue));
}
