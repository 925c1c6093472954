//! Any bytes as a `traceparent`: no panic, and what was read is what it reads as when it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_core::job::TraceParent;

fuzz_target!(|data: &[u8]| {
    let Some(trace) = TraceParent::parse(data) else { return };
    assert_ne!(trace.trace(), 0);
    assert_eq!(TraceParent::parse(trace.to_string().as_bytes()), Some(trace));
});
