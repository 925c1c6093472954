//! A look at a folder that a server may be working on: what would keep a server from starting on it, as far as that can
//! be seen without reading all of it, and what the newest record is.
//!
//! It is a [survey](crate::survey) that reads the newest segment. Of each other one it only looks for the last record,
//! which the header of the segment behind it names. A segment without that record is read, so that what is wrong is said
//! in the words of a start.

use std::io;

use crate::{
    contract::{Position, Stored},
    disk::Disk,
    faults::Faults,
    folder::{FileKind, OpenError, file_kind, refuse_foreign},
    frame::{FRAME_HEADER_BYTES, SegmentHeader, claimed_position, frame_crc, marked_places},
    parts::PartsOf,
    survey::{Damage, Manner, Surveyed, read_all, survey_by},
};

/// What a look at a folder finds. Nothing is locked, and little is read.
#[derive(Debug, Default)]
pub struct QuickLook {
    /// How many segments there are.
    pub segments: usize,
    /// How many bytes their files take.
    pub bytes: u64,
    /// The newest record, if there is one.
    pub newest: Option<Stored>,
    /// Why a server would not start on the folder.
    pub refusal: Option<OpenError>,
}

/// Looks at a folder as a server does that starts on it. [`verify`](crate::verify) is what reads all of it.
///
/// While a server works on it (`is_live`), the end of the log is not judged, because it may be half written. Other
/// findings may be of a moment in between, too: only one that is there a second time counts.
pub fn quick_look(disk: &dyn Disk, parts_of: PartsOf, is_live: bool) -> QuickLook {
    let mut look = QuickLook::default();
    look.refusal = see(disk, parts_of, is_live, &mut look).err();
    look
}

fn see(
    disk: &dyn Disk,
    parts_of: PartsOf,
    is_live: bool,
    look: &mut QuickLook,
) -> Result<(), OpenError> {
    refuse_foreign(disk)?;
    let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
    let is_segment = |name: &&String| matches!(file_kind(name), FileKind::Segment(_));
    look.segments = names.iter().filter(is_segment).count();
    // A start opens the files for writing, too.
    let manner = Manner { write: true, faults: Faults::default(), parts_of };
    let found = survey_by(disk, manner, &mut |segments, of| {
        look.bytes = segments.iter().map(|segment| segment.file_bytes).sum();
        read_ends(disk, segments, of, manner, &mut |stored| look.newest = Some(stored))
    })?;
    for (_, name) in &found.spares {
        disk.open(name, true).map_err(OpenError::failed(disk, "open", name))?;
    }
    let newest = names.iter().filter(is_segment).max();
    match found.damage {
        Some(Damage { file, offset, .. }) if is_live && offset > 0 && newest == Some(&file) => {
            Ok(())
        }
        Some(damage) => Err(OpenError::damaged(disk, damage)),
        None => Ok(()),
    }
}

/// Reads the last of these segments, and those that do not end before the one behind them.
fn read_ends(
    disk: &dyn Disk,
    segments: &mut [Surveyed],
    (firsts, durable): (&[Position], Position),
    manner: Manner,
    each: &mut dyn FnMut(Stored),
) -> Result<Option<Damage>, OpenError> {
    for at in 0..segments.len() {
        if let Some(next) = segments.get(at + 1) {
            let failed = OpenError::failed(disk, "read", &segments[at].name);
            if ends_before(&segments[at], next.header).map_err(failed)? {
                continue;
            }
        }
        let damage =
            read_all(disk, &mut segments[at..=at], (&firsts[at..], durable), manner, each)?;
        if damage.is_some() {
            return Ok(damage);
        }
        let last_crc = segments[at].last_crc;
        if let Some(next) = segments.get(at + 1).filter(|next| next.header.prev_crc != last_crc) {
            return Ok(Some(next.not_following()));
        }
    }
    Ok(None)
}

/// Whether a segment has the record that is the last one before the segment `next`. It is looked for from the end of
/// the file, which it is close to.
fn ends_before(segment: &Surveyed, next: SegmentHeader) -> io::Result<bool> {
    const STEP_BYTES: u64 = 64 * 1024;
    let last = Position(next.first.0.saturating_sub(1));
    let mut buffer = vec![0; STEP_BYTES as usize + FRAME_HEADER_BYTES];
    let steps = segment.file_bytes.div_ceil(STEP_BYTES);
    for from in (0..steps).rev().map(|step| step * STEP_BYTES) {
        // Each step shows the whole header of a frame that begins at its end.
        let read = segment.file.read_at(&mut buffer, from)?;
        let bytes = &buffer[..read];
        let is_it = |at: usize| {
            let frame = &bytes[at..at + FRAME_HEADER_BYTES];
            let crc = frame.first_chunk().map(frame_crc);
            claimed_position(frame) == last && crc == Some(next.prev_crc)
        };
        if marked_places(bytes).any(is_it) {
            return Ok(true);
        }
    }
    Ok(false)
}
