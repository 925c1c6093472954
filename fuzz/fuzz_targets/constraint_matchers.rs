//! Any bytes as a constraint's matcher and as the payload it is held against: no panic, no deep
//! stack; a field is where `serde_json` says it is; and a field is either there or not.
//!
//! The input is a pointer, a line end, a pattern, a line end, and the payload.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use serde_json::Value;
use spindle_core::Type;
use spindle_matching::{Condition, MatchPath, Matcher, QueuePattern, Scalar, Test, decode_matcher};

fn matcher(pointer: &str, queue: QueuePattern, test: Test) -> Matcher {
    let conditions = vec![Condition { pointer: pointer.to_owned(), test }];
    Matcher { queue, conditions, per: Some(pointer.to_owned()) }
}

fuzz_target!(|data: &[u8]| {
    // A matcher comes back from a log as whatever its bytes are by then.
    let _ = decode_matcher(&Bytes::copy_from_slice(data));
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let (Some(pointer), Some(pattern), Some(payload)) = (lines.next(), lines.next(), lines.next())
    else {
        return;
    };
    let pointer = String::from_utf8_lossy(pointer);
    let text = String::from_utf8_lossy(pattern);
    let glob = QueuePattern::Glob(pattern.to_vec().into());
    let path = MatchPath::new(&[
        matcher(&pointer, QueuePattern::Any, Test::Exists),
        matcher(&pointer, QueuePattern::Any, Test::Absent),
        matcher(&pointer, QueuePattern::Any, Test::Glob(text.to_string())),
        matcher(&pointer, QueuePattern::Any, Test::Eq(Scalar::Text(text.to_string()))),
        matcher("", glob, Test::Ne(Scalar::Float(payload.len() as f64))),
    ]);
    let Ok(path) = path else { return };
    for kind in [Type::Bytes, Type::Json, Type::Msgpack] {
        let labels = path.labels(pattern, payload, kind);
        let has = |number| labels.iter().any(|(label, _)| *label == number);
        assert!(has(1) != has(2), "a field is there or it is not");
        assert!(has(1) || !(has(3) || has(4)), "what is not there is no text");
        if kind != Type::Json {
            continue;
        }
        if let Ok(value) = serde_json::from_slice::<Value>(payload) {
            let field = value.pointer(&pointer);
            assert_eq!(has(1), field.is_some());
            assert_eq!(has(4), field == Some(&Value::from(&*text)));
        }
        if serde_json::from_slice::<IgnoredAny>(payload).is_err() {
            assert!(has(2), "what is no JSON has no fields");
        }
    }
});
