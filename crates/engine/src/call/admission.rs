//! Whether there is room for what a call would add to the log.

use spindle_log::Space;

use crate::engine::{Engine, Refused};
use crate::inner::Inner;

impl Engine {
    /// More than so much may not wait for the disk at once.
    pub(crate) fn check_room(&self, inner: &Inner) -> Result<(), Refused> {
        if inner.undurable_bytes > inner.options.undurable_bytes_max {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// On a full disk jobs are matched only where that lets others start, and only while enough of
    /// the reserve is left for what makes room.
    pub(crate) fn has_room_for_matching(&self, inner: &Inner) -> bool {
        const CARRY_STEPS_LEFT: usize = 16;
        let log = &self.shared.log;
        let needed = inner.undurable_bytes + CARRY_STEPS_LEFT * inner.options.compaction_bytes;
        self.check_room(inner).is_ok()
            && (log.space() != Space::ReserveOnly
                || (inner.state.has_unmatched() && needed as u64 <= log.room_bytes()))
    }

    /// On a full disk a large result, state or event may take half of what is left of the reserve:
    /// a record that does not fit would keep all behind it waiting, the deletes that make room
    /// included.
    pub(crate) fn check_reserve(&self, inner: &Inner, len: usize) -> Result<(), Refused> {
        const SMALL_BYTES: usize = 4096;
        let log = &self.shared.log;
        let fits = || (inner.undurable_bytes + len) as u64 <= log.room_bytes() / 2;
        if len > SMALL_BYTES && log.space() == Space::ReserveOnly && !fits() {
            return Err(Refused::DiskFull);
        }
        Ok(())
    }
}
