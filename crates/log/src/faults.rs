//! Faults that are planted in the file log, one at a time, to prove that tests and the simulator find them.

use std::io;

use crate::{
    frame::PREV_CRC_AT,
    salvage::{Dropped, EachDropped},
    survey::Surveyed,
};

/// What is planted. Never set any of it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Bytes behind a cut tail are left there, and it is not checked that frames follow each other.
    pub tail_left: bool,
    /// The note that the log has ended stays when the log goes on, and is believed after a crash.
    pub end_kept: bool,
    /// A start cuts the tail one record early: the last one goes, which is whole.
    pub record_cut: bool,
    /// The loss of the oldest segment is not noticed.
    pub first_unchecked: bool,
    /// The loss of what the end of the log must have (the newest segment, the last record) is not
    /// noticed.
    pub end_unchecked: bool,
    /// The loss of the file `bounds` is not noticed.
    pub bounds_unchecked: bool,
    /// Where a file cannot be read, it is taken to end.
    pub read_error_ends: bool,
    /// A repair cuts one record more than it has to.
    pub repair_cuts_more: bool,
    /// A repair does not list the first record that it drops.
    pub dropped_unlisted: bool,
    /// What an interrupted repair has moved is not listed.
    pub moved_unlisted: bool,
}

impl Faults {
    /// What lists dropped records, perhaps without the first one.
    pub(crate) fn listing(self, each: EachDropped<'_>) -> impl FnMut(Dropped) {
        let mut leaves_out = self.dropped_unlisted;
        move |dropped| {
            if leaves_out && matches!(dropped, Dropped::Record { .. }) {
                leaves_out = false;
            } else {
                each(dropped);
            }
        }
    }

    /// What a repair cuts off the last sound segment besides.
    pub(crate) fn cut_more(self, segment: Option<&mut Surveyed>) {
        let record = segment.filter(|_| self.repair_cuts_more);
        if let Some((segment, spot)) = record.and_then(|it| it.spots.pop().map(|spot| (it, spot))) {
            segment.end = u64::from(spot.start());
        }
    }
}

/// Takes the last record of a segment for torn.
pub(crate) fn cut_last_record(segment: &mut Surveyed) -> io::Result<()> {
    let Some(spot) = segment.spots.pop() else { return Ok(()) };
    let mut crc = [0; 4];
    segment.end = u64::from(spot.start());
    segment.file.read_at(&mut crc, segment.end + PREV_CRC_AT as u64)?;
    (segment.last_crc, segment.ends_in_zeros) = (u32::from_le_bytes(crc), false);
    Ok(())
}
