use spindle_core::{Policy, job::Origin};

/// The rules of Jobq's jobs that set none themselves: the first failure is final, and a done job is
/// kept until it is deleted.
pub fn policy() -> (Origin, Policy) {
    (Origin::Jobq, Policy { keep_ms: None, ..Policy::ONCE })
}
