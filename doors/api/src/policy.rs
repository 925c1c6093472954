use spindle_core::{Policy, job::Origin};

/// The rules of the API's jobs that set none themselves: they are tried again, see
/// [`Policy::RETRIED`].
pub fn policy() -> (Origin, Policy) {
    (Origin::Api, Policy::RETRIED)
}
