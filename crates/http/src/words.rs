//! Words that several doors write.

use spindle_core::job::Origin;

/// A door as the API and Jobq write it.
pub fn door_word(door: Origin) -> &'static str {
    match door {
        Origin::Api => "api",
        Origin::Workq => "workq",
        Origin::Gearman => "gearman",
        Origin::GearmanDraft => "gearman_draft",
        Origin::Lightjq => "lightjq",
        Origin::Jobq => "jobq",
    }
}
