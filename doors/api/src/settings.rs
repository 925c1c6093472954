//! A queue's settings as clients read and replace them.

use axum::http::HeaderValue;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spindle_core::queue::{AGING_MS_MAX, QueueSettings};
use spindle_http::{Answered, Problem, whole_or_null};
use utoipa::ToSchema;

use crate::backoff::Backoff;
use crate::fair::Fair;
use crate::object;
use crate::precondition::Precondition;
use crate::typed::Kind;

/// What is set for a queue. What is left out is the protocol's default.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Most leases of a job that says nothing itself; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    attempts_max: Option<u32>,
    /// Most failures of a job that says nothing itself; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    fails_max: Option<u32>,
    /// Wait between failures of a job that says nothing itself.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional"
    )]
    backoff: Option<Backoff>,
    /// Lease length of a job without TTR, for workers that are not bound to a connection.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    #[schema(minimum = 1)]
    ttr_default_ms: Option<u64>,
    /// How long done jobs are kept that say nothing themselves.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    keep_ms: Option<u64>,
    /// How long dead jobs are kept.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    keep_dead_ms: Option<u64>,
    /// Most unfinished jobs; a submit above it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    jobs_max: Option<u64>,
    /// Most bytes of the payloads of unfinished jobs together; a submit that would pass it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    bytes_max: Option<u64>,
    /// Most finished jobs kept; the oldest go first.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    finished_max: Option<u64>,
    /// A waiting job gains one step of priority each time this has passed, so that none waits for
    /// ever. 1 ms to a year.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_or_null")]
    #[schema(minimum = 1, maximum = 31_536_000_000_u64)]
    aging_ms: Option<u64>,
    /// Ready jobs of different keys take turns. `{}` goes by the `fair_key` of jobs alone.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional"
    )]
    fair: Option<Fair>,
    /// What payloads are that came as mere bytes (Workq, Gearman), for constraints that look into
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_type: Option<Kind>,
}

impl Settings {
    pub fn of(settings: &QueueSettings) -> Settings {
        Settings {
            attempts_max: settings.attempts_max,
            fails_max: settings.fails_max,
            backoff: settings.backoff.map(Backoff::from),
            ttr_default_ms: settings.ttr_default_ms,
            keep_ms: settings.keep_ms,
            keep_dead_ms: settings.keep_dead_ms,
            jobs_max: settings.jobs_max,
            bytes_max: settings.bytes_max,
            finished_max: settings.finished_max,
            aging_ms: settings.aging_ms,
            fair: settings.fair.as_ref().map(Fair::of),
            bytes_type: settings.bytes_type.map(Kind::of),
        }
    }

    /// The entity tag of these settings.
    pub fn tag(&self) -> HeaderValue {
        let text = serde_json::to_vec(self).expect("numbers and words are JSON");
        let sum = Sha256::digest(&text);
        let hex: String = sum[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        HeaderValue::try_from(format!("\"{hex}\"")).expect("digits in quotes")
    }

    /// The core's words for them.
    pub fn read(self) -> Answered<QueueSettings> {
        if self.ttr_default_ms == Some(0) {
            return Err(Problem::out_of_range("ttr_default_ms is at least 1"));
        }
        if self.aging_ms.is_some_and(|step_ms| !(1..=AGING_MS_MAX).contains(&step_ms)) {
            return Err(Problem::out_of_range("aging_ms is 1 to 31536000000, a year"));
        }
        Ok(QueueSettings {
            attempts_max: self.attempts_max,
            fails_max: self.fails_max,
            backoff: self.backoff.map(Backoff::read).transpose()?,
            ttr_default_ms: self.ttr_default_ms,
            keep_ms: self.keep_ms,
            keep_dead_ms: self.keep_dead_ms,
            jobs_max: self.jobs_max,
            bytes_max: self.bytes_max,
            finished_max: self.finished_max,
            aging_ms: self.aging_ms,
            fair: self.fair.map(Fair::read).transpose()?,
            bytes_type: self.bytes_type.map(|kind| kind.core() as i32),
            ..QueueSettings::default()
        })
    }
}

/// Everything the API sets is replaced. The pause, and what other doors set, stays.
pub(crate) fn replace(settings: &mut QueueSettings, wanted: &QueueSettings) {
    *settings = QueueSettings {
        paused: settings.paused,
        jobs_max_by_class: std::mem::take(&mut settings.jobs_max_by_class),
        ..wanted.clone()
    };
}

/// Whether settings may be replaced. A queue that does not exist counts as one with no settings,
/// because a client may have read just that.
pub(crate) fn holds(wanted: Precondition<'_>, is_there: bool, settings: &QueueSettings) -> bool {
    match wanted {
        Precondition::None => true,
        Precondition::Tag(tag) => Settings::of(settings).tag() == tag,
        Precondition::Exists => is_there,
        Precondition::Absent => !is_there,
        Precondition::Never => false,
    }
}
