use spindle_core::job::{Backoff, Origin};
use spindle_core::{Policy, Type};

const HOUR_MS: u64 = 3_600_000;

/// The rules of LightJQ's jobs that set none themselves: 10 more tries after a failure, a second to
/// an hour apart, and results kept for a day. Its workers report errors in MessagePack.
pub fn policy() -> (Origin, Policy) {
    let backoff = Backoff {
        base_ms: 1000,
        factor_thousandths: 2000,
        cap_ms: HOUR_MS,
        jitter_thousandths: 200,
    };
    let policy = Policy {
        attempts_max: 11,
        fails_max: 11,
        backoff,
        keep_ms: Some(24 * HOUR_MS),
        error_type: Type::Msgpack,
        ..Policy::ONCE
    };
    (Origin::Lightjq, policy)
}
