//! The log's segments, for callers that copy them.

use spindle_log::{Position, ReadError, copy::SegmentReader};

use crate::engine::Engine;

impl Engine {
    /// The log's segments as they are now, oldest first; `None` when the log is in no files. All that
    /// is in them is durable. May read from the disk: not for a thread that serves.
    pub fn log_segments(&self) -> Option<Result<Vec<SegmentReader>, ReadError>> {
        self.shared.log.segments()
    }

    /// The segment that begins at a position; `Ok(None)` when it was dropped, or never began there.
    /// May read from the disk.
    pub fn log_segment(&self, first: u64) -> Result<Option<SegmentReader>, ReadError> {
        self.shared.log.segment(Position(first))
    }
}
