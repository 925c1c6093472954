//! All jobs in memory, and what is known of a job by its handle.

use super::*;
use crate::job::{Deletion, Status};

/// The handle of a job is the number of a live one, or with this bit that of a finished one.
pub(super) const FINISHED: u32 = 1 << 31;

/// Live and finished jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    pub live: Slab<LiveJob>,
    pub finished: FinishedJobs,
    /// Keys of finished jobs besides their UUID, by id.
    pub finished_keys: BTreeMap<u64, Vec<Key>>,
}

impl Jobs {
    #[inline]
    pub fn id_of(&self, handle: u32) -> u64 {
        if handle & FINISHED == 0 {
            self.live[handle].id()
        } else {
            self.finished.job(handle & !FINISHED).id()
        }
    }

    /// The UUID it is found by: none while it is deleted.
    #[inline]
    pub fn uuid_of(&self, handle: u32) -> Option<[u8; 16]> {
        if handle & FINISHED == 0 {
            let job = &self.live[handle];
            job.uuid().filter(|_| job.deletion().is_none())
        } else {
            let job = self.finished.job(handle & !FINISHED);
            job.uuid().filter(|_| !job.is_deleted())
        }
    }

    pub fn deletion_of(&self, handle: u32) -> Option<Deletion> {
        if handle & FINISHED == 0 {
            self.live[handle].deletion().copied()
        } else {
            self.finished.job(handle & !FINISHED).deletion()
        }
    }

    pub fn status_of(&self, handle: u32) -> Status {
        if handle & FINISHED == 0 {
            self.live[handle].status()
        } else {
            self.finished.job(handle & !FINISHED).status()
        }
    }

    /// Keys besides the UUID that it is found by: none while it is deleted.
    pub fn other_keys_of(&self, handle: u32) -> &[Key] {
        if self.deletion_of(handle).is_some() {
            &[]
        } else if handle & FINISHED == 0 {
            self.live[handle].other_keys()
        } else {
            let id = self.finished.job(handle & !FINISHED).id();
            self.finished_keys.get(&id).map_or(&[], Vec::as_slice)
        }
    }
}
