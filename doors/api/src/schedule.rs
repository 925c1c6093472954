//! Schedules as clients write and read them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_core::schedule::{self, Due, JobTemplate, Progress, Schedule};
use spindle_engine::{NewJob, ScheduleNow, Timing};
use spindle_http::{Answered, Problem, whole, whole_or_null};
use utoipa::ToSchema;

use crate::backoff::Backoff;
use crate::submit::NewJobBody;
use crate::typed::{self, Kind};
use crate::{instant, naming, object};

/// What happens while the last job is unfinished.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overlap {
    /// A job comes all the same.
    Allow,
    /// The time is passed over.
    #[default]
    Skip,
    /// One job comes when the last one has ended, however many times come until then.
    QueueOne,
    /// The last job is cancelled, and the new one comes.
    Replace,
}

/// What happens to times that were missed: the server did not run, or time went forward.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Missed {
    /// Nothing.
    #[default]
    Skip,
    /// One job comes for all of them.
    Once,
    /// A job comes for each of the first `missed_max`.
    All,
}

/// What came of a time.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// A job was submitted.
    Submitted,
    /// It was missed, and was not made up.
    Missed,
    /// The last job was unfinished.
    Overlapped,
    /// The last job was unfinished: a job comes when it ends.
    Pending,
    /// The job was refused.
    Refused,
}

/// What came of times, as a query names it.
const OUTCOMES: [(&str, schedule::Outcome); 5] = [
    ("submitted", schedule::Outcome::Submitted),
    ("missed", schedule::Outcome::Missed),
    ("overlapped", schedule::Outcome::Overlapped),
    ("pending", schedule::Outcome::Pending),
    ("refused", schedule::Outcome::Refused),
];

/// The outcomes that a query names, parted by commas.
pub(crate) fn outcomes(words: &str) -> Answered<Vec<schedule::Outcome>> {
    let read = |word: &str| {
        let known = OUTCOMES.iter().find(|(known, _)| *known == word);
        let unknown = || Problem::out_of_range(format!("outcome: `{word}` is none"));
        known.map(|(_, outcome)| *outcome).ok_or_else(unknown)
    };
    words.split(',').map(read).collect()
}

const MISSED_MAX: u32 = 100;

/// A schedule to put.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleBody {
    /// A cron pattern of five fields, or six with seconds first; `@daily` and its like; or `every`
    /// and a time.
    #[schema(example = "0 9 * * MON-FRI", max_length = 255)]
    expression: String,
    /// The time zone that the expression speaks of; UTC by default.
    #[schema(example = "Europe/Berlin", max_length = 255)]
    zone: Option<String>,
    /// The job, as in a submit, but without `run_at`, `parked` and `unique`.
    #[serde(deserialize_with = "object::required")]
    job: NewJobBody,
    /// While the last job is unfinished.
    #[serde(default)]
    overlap: Overlap,
    /// Times that were missed.
    #[serde(default)]
    missed: Missed,
    /// With `all`: how many missed times in a row are made up; 100 by default.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1, maximum = 1000)]
    missed_max: Option<u32>,
    /// It fires up to this much later than its times, the same for a time whenever it is computed.
    #[serde(default, deserialize_with = "whole")]
    #[schema(maximum = 3_600_000)]
    jitter_ms: u64,
    /// No time before this (RFC 3339).
    #[schema(example = "2030-01-31T08:00:00Z", format = "time-or-now")]
    start_at: Option<String>,
    /// No time after this (RFC 3339).
    #[schema(example = "2030-12-31T08:00:00Z", format = "time-or-now")]
    end_at: Option<String>,
    /// It does not fire.
    #[serde(default)]
    paused: bool,
}

impl ScheduleBody {
    /// The core's words for it.
    pub fn into_schedule(self, name: &str, now_ms: u64) -> Answered<Schedule> {
        self.job.check_repeatable()?;
        let time =
            |field, text: Option<String>| text.map(|text| instant::read(field, &text)).transpose();
        let missed = match self.missed {
            Missed::Skip => schedule::Missed::Skip,
            Missed::Once => schedule::Missed::Once,
            Missed::All => schedule::Missed::All,
        };
        if self.missed_max.is_some() && missed != schedule::Missed::All {
            return Err(Problem::bad_field("missed_max goes with missed: all"));
        }
        let overlap = match self.overlap {
            Overlap::Allow => schedule::Overlap::Allow,
            Overlap::Skip => schedule::Overlap::Skip,
            Overlap::QueueOne => schedule::Overlap::QueueOne,
            Overlap::Replace => schedule::Overlap::Replace,
        };
        let all = missed == schedule::Missed::All;
        Ok(Schedule {
            name: name.to_owned(),
            expression: self.expression,
            zone: self.zone.unwrap_or_else(|| "UTC".to_owned()),
            job: template(self.job.into_new_job(now_ms)?),
            overlap: overlap as i32,
            missed: missed as i32,
            missed_max: if all { self.missed_max.unwrap_or(MISSED_MAX) } else { 0 },
            jitter_ms: self.jitter_ms,
            start_ms: time("start_at", self.start_at)?,
            end_ms: time("end_at", self.end_at)?,
            paused: self.paused,
        })
    }
}

fn template(NewJob { submit, payload }: NewJob) -> JobTemplate {
    JobTemplate {
        queue: submit.queue.to_vec(),
        priority: submit.priority,
        ttl_ms: submit.ttl_ms,
        ttr_ms: submit.ttr_ms,
        attempts_max: submit.attempts_max,
        fails_max: submit.fails_max,
        backoff: submit.backoff,
        keep_ms: submit.keep_ms,
        fair_key: submit.fair_key.as_ref().map(|key| key.to_vec()),
        tags: submit.tags.iter().map(|tag| tag.to_vec()).collect(),
        payload: payload.bytes().to_vec(),
        payload_type: payload.kind() as i32,
    }
}

/// A schedule as it is.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduleShown {
    /// Its name.
    name: String,
    /// Changes with every put.
    revision: u64,
    expression: String,
    zone: String,
    job: ScheduledJob,
    overlap: Overlap,
    missed: Missed,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_max: Option<u32>,
    jitter_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_at: Option<String>,
    paused: bool,
    /// The times that it fires for next, without jitter. None while it is paused.
    next_times: Vec<String>,
    /// When it fires next: the first of these times, and the jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    fires_at: Option<String>,
    /// The newest time that it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Occurrence>,
    /// The job submitted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_job: Option<u64>,
    /// That job is unfinished.
    is_running: bool,
    /// A job for this time comes when the last one has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_due_at: Option<String>,
    /// Jobs submitted so far.
    submitted: u64,
}

/// A time of a schedule, and what came of it.
#[derive(Serialize, ToSchema)]
#[schema(as = ScheduleOccurrence)]
pub(crate) struct Occurrence {
    /// The time.
    due_at: String,
    /// When the server came to it.
    at: String,
    /// What came of it.
    outcome: Outcome,
    /// Why the job was refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// The job of a schedule.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduledJob {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// Shown to who may inspect the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_type: Option<Kind>,
    priority: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttr_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fails_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_ms: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fair_key: Option<String>,
}

impl ScheduledJob {
    /// The job as it is shown, in a form that can be put again.
    fn of(job: JobTemplate, with_payload: bool) -> ScheduledJob {
        let (queue, queue_base64) = naming::text_or_base64(&job.queue);
        let kind = Kind::of(job.payload_type);
        let is_there = with_payload && !job.payload.is_empty();
        let (payload, payload_base64) =
            if is_there { typed::shown(&job.payload, kind) } else { (None, None) };
        let payload_type = payload_base64.as_ref().map(|_| kind);
        let text = |tag: &Vec<u8>| String::from_utf8_lossy(tag).into_owned();
        ScheduledJob {
            queue,
            queue_base64,
            payload,
            payload_base64,
            payload_type,
            priority: job.priority,
            ttr_ms: job.ttr_ms,
            ttl_ms: job.ttl_ms,
            attempts_max: job.attempts_max,
            fails_max: job.fails_max,
            backoff: job.backoff.map(Backoff::from),
            keep_ms: job.keep_ms,
            tags: job.tags.iter().map(text).collect(),
            fair_key: job.fair_key.as_ref().map(text),
        }
    }
}

impl ScheduleShown {
    /// The next `times` times: the one that is stored, and those computed from it.
    pub fn of(view: ScheduleNow, now_ms: u64, times: usize, with_payload: bool) -> ScheduleShown {
        let ScheduleNow { schedule, progress, is_running } = view;
        let next = times_ahead(&schedule, &progress, now_ms, times);
        let missed = match schedule.missed() {
            schedule::Missed::Skip => Missed::Skip,
            schedule::Missed::Once => Missed::Once,
            schedule::Missed::All => Missed::All,
        };
        let overlap = match schedule.overlap() {
            schedule::Overlap::Allow => Overlap::Allow,
            schedule::Overlap::Skip => Overlap::Skip,
            schedule::Overlap::QueueOne => Overlap::QueueOne,
            schedule::Overlap::Replace => Overlap::Replace,
        };
        ScheduleShown {
            revision: progress.revision,
            overlap,
            missed,
            missed_max: Some(schedule.missed_max).filter(|max| *max > 0),
            jitter_ms: schedule.jitter_ms,
            start_at: schedule.start_ms.map(instant::shown),
            end_at: schedule.end_ms.map(instant::shown),
            paused: schedule.paused,
            fires_at: next.first().map(|next| instant::shown(next.fire_ms)),
            next_times: next.iter().map(|next| instant::shown(next.due_ms)).collect(),
            last: progress.last.map(Occurrence::of),
            last_job: progress.last_job,
            is_running,
            pending_due_at: progress.pending_ms.map(instant::shown),
            submitted: progress.submitted,
            job: ScheduledJob::of(schedule.job, with_payload),
            name: schedule.name,
            expression: schedule.expression,
            zone: schedule.zone,
        }
    }
}

impl Occurrence {
    fn of(last: schedule::Occurrence) -> Occurrence {
        let outcome = match last.outcome() {
            schedule::Outcome::Submitted => Outcome::Submitted,
            schedule::Outcome::Missed => Outcome::Missed,
            schedule::Outcome::Overlapped => Outcome::Overlapped,
            schedule::Outcome::Pending => Outcome::Pending,
            schedule::Outcome::Refused => Outcome::Refused,
        };
        let (due_at, at) = (instant::shown(last.due_ms), instant::shown(last.at_ms));
        Occurrence { due_at, at, outcome, reason: last.reason }
    }
}

/// The next time is the one that is stored: it may be due already.
fn times_ahead(schedule: &Schedule, progress: &Progress, now_ms: u64, times: usize) -> Vec<Due> {
    if schedule.paused {
        return Vec::new();
    }
    let is_put = progress.revision > 0;
    match Timing::of(schedule) {
        Ok(timing) if is_put => {
            let behind = progress.next.into_iter().flat_map(|next| timing.all_after(next.due_ms));
            progress.next.into_iter().chain(behind).take(times).collect()
        }
        Ok(timing) => timing.all_after(now_ms).take(times).collect(),
        // An expression of a later version.
        Err(_) => progress.next.into_iter().take(times).collect(),
    }
}
