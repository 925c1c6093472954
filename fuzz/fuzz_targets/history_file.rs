//! Any bytes as the body of the history file: no panic, and what was read is what its own encoding
//! reads as.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_history::{Book, Look, Range};

fuzz_target!(|data: &[u8]| {
    let Some(mut book) = Book::decode(data) else { return };
    assert_eq!(Book::decode(&book.encode()).as_ref(), Some(&book));
    let at_ms = 1_700_000_000_000;
    book.forget_after(at_ms);
    book.record(&Look { at_ms, ..Look::default() }, |names| vec![0; names.len()]);
    for range in [Range::Hour, Range::Day] {
        let _ = book.server(range, at_ms, 60);
        let _ = book.busiest(range, at_ms, 60, 10);
        let _ = book.failures(None, range, at_ms, 60, 10);
    }
});
