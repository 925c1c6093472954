use spindle_core::{Policy, Requeue, job::Origin};

/// The rules of jobs and workers of the binary protocol and of the draft: the first failure is
/// final, and a job whose worker was lost goes behind the others. `attempts_max` is how often
/// a job may be leased, as gearmand's `--job-retries` says; 0 means any number of times.
pub fn policies(attempts_max: u32) -> [(Origin, Policy); 2] {
    let policy = Policy { attempts_max, on_lost_lease: Requeue::ToTail, ..Policy::ONCE };
    [(Origin::Gearman, policy), (Origin::GearmanDraft, policy)]
}
