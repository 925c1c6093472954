use spindle_core::{Policy, job::Origin};

/// The rules of Workq's jobs that set none themselves: the first failure is final, and a done job
/// is kept until its TTL ends.
pub fn policy() -> (Origin, Policy) {
    (Origin::Workq, Policy { keep_ms: None, ..Policy::ONCE })
}
