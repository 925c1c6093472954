//! The doors of the simulated server.

use spindle_core::job::{Backoff, Origin};
use spindle_core::{Defaults, Policy, Requeue, Type};

/// Policies as those of the real doors, and limits so low that a seed reaches them.
pub(crate) fn defaults() -> Defaults {
    let kept = Policy { keep_ms: None, ..Policy::ONCE };
    let gearman = Policy { on_lost_lease: Requeue::ToTail, ..Policy::ONCE };
    let lightjq = Policy {
        attempts_max: 11,
        fails_max: 11,
        backoff: Backoff { base_ms: 1000, factor_thousandths: 2000, ..Policy::RETRIED.backoff },
        keep_ms: Some(86_400_000),
        error_type: Type::Msgpack,
        ..Policy::ONCE
    };
    let declared = [
        (Origin::Workq, kept),
        (Origin::Gearman, gearman),
        (Origin::GearmanDraft, gearman),
        (Origin::Lightjq, lightjq),
        (Origin::Jobq, kept),
    ];
    let policies = declared.into_iter().collect();
    Defaults {
        policies,
        finished_max: 25,
        values_max: 2,
        audit_entries_max: 12,
        audit_ms: 200_000,
        unfinished_max: 90,
        queue_unfinished_max: 70,
        ..Defaults::default()
    }
}
