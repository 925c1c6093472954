//! All jobs in memory, and what is known of a job by its handle.

use super::*;
use crate::job::Status;

/// The handle of a job is the number of a live one, or with this bit that of a finished one.
pub(super) const FINISHED: u32 = 1 << 31;

/// Live and finished jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    pub live: Slab<LiveJob>,
    pub finished: Slab<FinishedJob>,
    /// Keys of finished jobs besides their UUID, by handle.
    pub finished_keys: BTreeMap<u32, Vec<Key>>,
}

impl Jobs {
    #[inline]
    pub fn id_of(&self, handle: u32) -> u64 {
        if handle & FINISHED == 0 {
            self.live[handle].id()
        } else {
            self.finished[handle & !FINISHED].job_id().0
        }
    }

    #[inline]
    pub fn uuid_of(&self, handle: u32) -> Option<[u8; 16]> {
        if handle & FINISHED == 0 {
            self.live[handle].uuid()
        } else {
            self.finished[handle & !FINISHED].uuid().copied()
        }
    }

    pub fn status_of(&self, handle: u32) -> Status {
        if handle & FINISHED == 0 {
            self.live[handle].status()
        } else {
            self.finished[handle & !FINISHED].status()
        }
    }

    /// Keys besides the UUID.
    pub fn other_keys_of(&self, handle: u32) -> &[Key] {
        if handle & FINISHED == 0 {
            self.live[handle].other_keys()
        } else {
            self.finished_keys.get(&handle).map_or(&[], Vec::as_slice)
        }
    }
}
