//! Any texts as the expression and the zone of a schedule: no panic; times come in order, each of
//! them after the one before, and without an end to the looking.
//!
//! The input is eight bytes of a time, an expression, a line end, and a zone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_core::schedule::Schedule;
use spindle_schedule::Timing;

fuzz_target!(|data: &[u8]| {
    let Some((time, text)) = data.split_first_chunk() else { return };
    let text = String::from_utf8_lossy(text);
    let (expression, zone) = text.split_once('\n').unwrap_or((&text, "UTC"));
    let schedule = Schedule {
        name: "fuzzed".to_owned(),
        expression: expression.to_owned(),
        zone: zone.to_owned(),
        ..Schedule::default()
    };
    let Ok(timing) = Timing::of(&schedule) else { return };
    let mut after_ms = u64::from_le_bytes(*time);
    for due in timing.all_after(after_ms).take(5) {
        assert!(due.due_ms > after_ms, "{due:?} after {after_ms}");
        after_ms = due.due_ms;
    }
});
