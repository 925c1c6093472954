//! The result of a finished job.

use bytes::Bytes;
use spindle_core::job::{JobImage, Outcome};
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{Engine, FetchError, Gate, JobRef};

/// Reads the bytes of a result, and returns the gate that an answer with them waits for.
///
/// # Errors
///
/// When the bytes cannot be read, are damaged, or went with the job.
pub(crate) fn result_of(
    engine: &Engine,
    image: &JobImage,
    outcome: &Outcome,
) -> Result<(Bytes, Gate), FetchError> {
    let empty = BytesRef::empty(Type::Bytes);
    match engine.bytes(outcome.bytes.as_ref().unwrap_or(&empty)) {
        // Compaction moved the bytes since the job ended: their new place is in its image now.
        Err(FetchError::Moved) => {
            let (found, gate) = engine.job(JobRef::Id(JobId(image.id)))?;
            let newer = found.and_then(|image| image.outcome).ok_or(FetchError::Moved)?;
            let bytes = engine.bytes(newer.bytes.as_ref().unwrap_or(&empty))?;
            Ok((bytes, gate))
        }
        read => read.map(|bytes| (bytes, Gate::OPEN)),
    }
}
