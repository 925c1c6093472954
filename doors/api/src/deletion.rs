//! Deletions that can be undone, as requests ask for them and answers show them.

use serde::{Deserialize, Serialize};
use spindle_core::job::UNDO_MS_MAX;
use spindle_engine::Audit;
use spindle_http::Answered;
use utoipa::{IntoParams, ToSchema};

use crate::instant;
use crate::numbers::bounded;

/// For how long a deletion can be undone.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UndoAsked {
    /// For so long the deletion can be undone, up to a day; 0, or not said: it is gone at once.
    #[param(maximum = 86_400_000)]
    undo_ms: Option<u64>,
}

impl UndoAsked {
    pub fn undo_ms(&self) -> Answered<u64> {
        read(self.undo_ms)
    }
}

pub(crate) fn read(undo_ms: Option<u64>) -> Answered<u64> {
    bounded("undo_ms", undo_ms.unwrap_or(0), 0..=UNDO_MS_MAX)
}

/// A deletion that can be undone.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deletion {
    /// The number of the request: that of its entry in the audit log, and what the filter field
    /// `deleted_by` finds its jobs by.
    request: u64,
    /// Until then it can be undone.
    until: String,
}

impl Deletion {
    /// Of what a request deleted, from its beginning on; none if it deleted nothing, or for good.
    pub fn of(audit: &Audit, begun_ms: u64, undo_ms: u64) -> Option<Deletion> {
        let request = audit.number().filter(|_| undo_ms > 0)?;
        Some(Deletion { request, until: instant::shown(begun_ms.saturating_add(undo_ms)) })
    }
}

impl From<spindle_core::job::Deletion> for Deletion {
    fn from(deletion: spindle_core::job::Deletion) -> Deletion {
        Deletion { request: deletion.request, until: instant::shown(deletion.gone_ms) }
    }
}
