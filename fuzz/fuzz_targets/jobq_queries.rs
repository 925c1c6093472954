//! Any bytes as the body of a Jobq query: no panic, an answer or a refusal, no job made, changed or
//! seen that is not there, and a poll would try what a list shows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_jobq::QueryPath;

thread_local! {
    static PATH: QueryPath = QueryPath::new().expect("SQLite is built in");
}

/// The bytes as one expression of a query: more of them get past the JSON than bodies would.
fn as_expression(data: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for letter in String::from_utf8_lossy(data).chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            _ if letter < ' ' => text.push_str(&format!("\\u{:04x}", letter as u32)),
            _ => text.push(letter),
        }
    }
    format!("{{\"query\":[[\"=\",\"{text}\",1]],\"state\":1}}").into_bytes()
}

fuzz_target!(|data: &[u8]| {
    PATH.with(|path| {
        let before = path.list(b"");
        for body in [data.to_vec(), as_expression(data)] {
            let listed = path.list(&body);
            let candidates = path.candidates(&body);
            if let (Ok(listed), Ok(mut candidates)) = (&listed, candidates) {
                candidates.sort();
                assert!(candidates.iter().all(|id| (1..=3).contains(id)));
                // Lists may have a limit.
                assert!(listed.matches("{\"id\":").count() <= candidates.len());
            }
        }
        assert_eq!(path.list(b""), before, "queries change nothing");
    });
});
