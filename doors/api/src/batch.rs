//! A batch as it is shown.

use serde::Serialize;
use spindle_core::batch::Batch;
use utoipa::ToSchema;

use crate::{instant, naming};

/// A batch.
#[derive(Serialize, ToSchema)]
#[schema(as = Batch)]
pub(crate) struct BatchShown {
    /// Its number, of the same row as jobs'.
    id: u64,
    /// `open`, `sealed` while jobs of it are unfinished, and then `done`, or `ended` if not all of
    /// them are done.
    status: BatchStatus,
    /// The queue that says who may see and change it, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// That queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// The name that no other batch has.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The batch that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
    /// How many jobs it has, and how they stand. A batch in it counts as one job.
    jobs: BatchJobs,
    /// Somebody cancelled it.
    cancelled: bool,
    /// When it was opened.
    opened_at: String,
    /// When it was sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed_at: Option<String>,
    /// When the last of its jobs ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    /// When it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_until: Option<String>,
}

/// Where a batch stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BatchStatus {
    /// Jobs can be added.
    Open,
    /// No job is added any more, and some are unfinished.
    Sealed,
    /// All of its jobs are done, or were.
    Done,
    /// All have ended, and not all are done.
    Ended,
}

impl BatchStatus {
    /// Where a batch stands.
    pub fn of(batch: &Batch) -> BatchStatus {
        match (batch.is_sealed(), batch.ended_ms) {
            (false, _) => BatchStatus::Open,
            (true, None) => BatchStatus::Sealed,
            (true, Some(_)) if batch.counts.dead + batch.counts.gone == 0 => BatchStatus::Done,
            (true, Some(_)) => BatchStatus::Ended,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            BatchStatus::Open => "open",
            BatchStatus::Sealed => "sealed",
            BatchStatus::Done => "done",
            BatchStatus::Ended => "ended",
        }
    }
}

/// How many jobs of a batch stand how.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchJobs {
    /// All that were added.
    total: u32,
    /// Neither done nor dead.
    unfinished: u32,
    /// Done, whether they are kept or not.
    done: u32,
    /// Dead, and kept: they can be retried.
    dead: u32,
    /// Gone without having been done: deleted, replaced, or not kept any more.
    gone: u32,
}

impl BatchShown {
    /// Shows a batch.
    pub fn of(batch: Batch) -> BatchShown {
        let (queue, queue_base64) = naming::text_or_base64(&batch.queue);
        let counts = batch.counts;
        BatchShown {
            id: batch.id,
            status: BatchStatus::of(&batch),
            queue,
            queue_base64,
            key: (!batch.key.is_empty()).then(|| String::from_utf8_lossy(&batch.key).into_owned()),
            parent: Some(batch.parent).filter(|parent| *parent > 0),
            jobs: BatchJobs {
                total: counts.total(),
                unfinished: counts.unfinished,
                done: counts.done,
                dead: counts.dead,
                gone: counts.gone,
            },
            cancelled: batch.is_cancelled,
            opened_at: instant::shown(batch.opened_ms),
            sealed_at: batch.sealed_ms.map(instant::shown),
            ended_at: batch.ended_ms.map(instant::shown),
            kept_until: batch.gone_ms().map(instant::shown),
            name: batch.name,
        }
    }
}
