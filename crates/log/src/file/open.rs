//! Opens a folder: finds the end of the log, cuts what a crash tore, makes the rest durable.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Instant,
};

use parking_lot::{Mutex, RwLock};

use super::{
    FileLogOptions,
    segment::Segment,
    shared::{Flush, Positions, Shared},
    spares::{Spare, Spares, is_full},
    tail::Tail,
};
use crate::{
    bounds::{BOUNDS_FILE, Bounds, BoundsFile},
    contract::{Position, Stored},
    disk::{Disk, DiskFile},
    faults::cut_last_record,
    folder::{OpenError, begin_segment, read_in_steps, refuse_foreign, zero},
    frame::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, frame_bytes},
    salvage::{TornTail, torn_tail},
    survey::{DamagedFrame, Manner, Survey, Surveyed, survey},
};

/// The first segment of a folder is made while the server's start waits for it.
const FIRST_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
const SEGMENT_BYTES_MIN: u64 = 4096;
const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Sizes that follow from the options.
struct Sizes {
    segment: u32,
    segment_min: u32,
    record_max: u32,
}

impl Sizes {
    fn of(options: &FileLogOptions) -> Result<Self, OpenError> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&options.segment_bytes) {
            return Err(OpenError::Options("a segment must have 4 KiB to 2 GiB"));
        }
        let segment = options.segment_bytes / 8 * 8;
        let header = SEGMENT_HEADER_BYTES as u64;
        let largest = header + frame_bytes(options.record_bytes_max as usize) as u64;
        let segment_min = segment.min(FIRST_SEGMENT_BYTES.max(largest));
        // A longer one has no place in a file whose offsets are u32.
        let fits = SEGMENT_BYTES_MAX - header - FRAME_HEADER_BYTES as u64;
        Ok(Self {
            segment: segment as u32,
            segment_min: segment_min as u32,
            record_max: options.record_bytes_max.min(fits as u32),
        })
    }
}

pub(super) fn open(
    disk: Arc<dyn Disk>,
    options: FileLogOptions,
    each: &mut dyn FnMut(Option<Stored>),
) -> Result<Shared, OpenError> {
    let sizes = Sizes::of(&options)?;
    let folder = &*disk;
    refuse_foreign(folder)?;
    let lock = folder.lock().map_err(|error| OpenError::not_taken(folder, error))?;
    let faults = options.faults;
    let manner = Manner { write: true, faults, parts_of: options.parts_of };
    let mut found = survey(folder, manner, &mut |record| each(Some(record)))?;
    if let Some(damage) = found.damage.take() {
        return Err(OpenError::damaged(folder, damage));
    }
    each(None);
    for segment in &found.segments {
        for DamagedFrame { offset, position, .. } in &segment.damaged {
            let file = &segment.name;
            tracing::error!(file, offset, %position, "bytes in a record are damaged, its rest is sound");
        }
    }
    // The bounds are made durable before anything that they allow: removing leftovers of a trim,
    // and going on with the log.
    if let Some(bounds) = &mut found.bounds {
        bounds.write_again().map_err(OpenError::failed(folder, "write again", BOUNDS_FILE))?;
    }
    for name in &found.trimmed {
        tracing::info!(file = name, "removed what a crash had left of a trim");
    }
    // From now on the log goes on without what a repair took out of it.
    for name in found.fillings.iter().chain(&found.trimmed).chain(&found.kept.begun) {
        folder.remove(name).map_err(OpenError::failed(folder, "remove", name))?;
    }
    let spares = take_spares(folder, &found, &sizes)?;
    if found.segments.is_empty() {
        found.segments.push(first_segment(folder, &sizes)?);
    }
    if let Some(last) = found.segments.last_mut().filter(|_| faults.record_cut) {
        cut_last_record(last).map_err(OpenError::failed(folder, "read", ""))?;
    }
    cut_tail_and_sync(folder, &found, !faults.tail_left)?;
    match &mut found.bounds {
        Some(bounds) => note_newest(bounds, &found.segments).map_err(OpenError::failed(
            folder,
            "write",
            BOUNDS_FILE,
        ))?,
        none => *none = begin_bounds(folder, &found.segments)?,
    }
    let shared = assemble(disk, options, sizes, found, spares, lock);
    if !shared.options.background {
        shared.spares.prepare_if_short(&*shared.disk);
    }
    Ok(shared)
}

fn first_segment(disk: &dyn Disk, sizes: &Sizes) -> Result<Surveyed, OpenError> {
    // The bounds are written when the segment is there: nothing that a crash leaves in between is
    // taken for damage.
    let (salt, first) = (disk.salt(), Position(0));
    let header = SegmentHeader { salt, first, prev_crc: 0, keeps_bounds: false };
    let (name, file) = begin_segment(disk, header, 0, u64::from(sizes.segment_min))?;
    Ok(Surveyed {
        name,
        file,
        header,
        spots: Vec::new(),
        end: SEGMENT_HEADER_BYTES as u64,
        file_bytes: u64::from(sizes.segment_min),
        last_crc: 0,
        ends_in_zeros: true,
        damaged: Vec::new(),
    })
}

/// Notes the newest segment, since a crash may have come between its name and the note. Must be done before anything is
/// appended to it, or its loss would not be noticed; and after its name is durable, or a segment that never was would
/// be missed.
fn note_newest(bounds: &mut BoundsFile, segments: &[Surveyed]) -> io::Result<()> {
    let newest = segments.last().map_or(bounds.bounds.newest, |segment| segment.header.first);
    bounds.change(Bounds { newest, ..bounds.bounds })
}

/// Notes for the first time where the log must begin and end: it is new, or an older release wrote it. On a full disk
/// that has to wait for another start; until then the log goes on as the older release would.
fn begin_bounds(disk: &dyn Disk, segments: &[Surveyed]) -> Result<Option<BoundsFile>, OpenError> {
    let (Some(oldest), Some(newest)) = (segments.first(), segments.last()) else { return Ok(None) };
    let (first, newest, reached) = (oldest.header.first, newest.header.first, newest.next());
    match BoundsFile::create(disk, Bounds { first, newest, reached, end: None }) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, "no room for the file {BOUNDS_FILE}: a lost segment would not be missed");
            Ok(None)
        }
        Err(error) => Err(OpenError::failed(disk, "create", BOUNDS_FILE)(error)),
    }
}

/// Spares of earlier runs that still have a fitting size; removes the others.
fn take_spares(
    disk: &dyn Disk,
    found: &Survey,
    sizes: &Sizes,
) -> Result<(Vec<Spare>, u64), OpenError> {
    let mut spares = Vec::new();
    let mut next_number = 1;
    for (number, name) in &found.spares {
        let file = disk.open(name, true).map_err(OpenError::failed(disk, "open", name))?;
        let bytes = file.len().map_err(OpenError::failed(disk, "measure", name))?;
        next_number = next_number.max(number + 1);
        match u32::try_from(bytes) {
            Ok(capacity) if (sizes.segment_min..=sizes.segment).contains(&capacity) => {
                spares.push(Spare { name: name.clone(), file, capacity });
            }
            _ => disk.remove(name).map_err(OpenError::failed(disk, "remove", name))?,
        }
    }
    Ok((spares, next_number))
}

/// Cuts the tail and makes all durable.
///
/// What lies behind the end goes, all of it: a frame there was never acknowledged, and must not
/// come back when the log has grown up to it. Until the zeros are durable nothing is appended. And
/// what was written but not synced when a process died is read now and shown to clients, so a power
/// cut must not take it back.
fn cut_tail_and_sync(disk: &dyn Disk, found: &Survey, zero_tail: bool) -> Result<(), OpenError> {
    let segments = &found.segments;
    if let Some(last) = segments.last()
        && zero_tail
        && !last.ends_in_zeros
    {
        let failed = |operation| OpenError::failed(disk, operation, &last.name);
        let tail = torn_tail(last).map_err(failed("read"))?;
        zero(&*last.file, (last.end, last.file_bytes)).map_err(failed("cut the tail of"))?;
        if let Some(tail) = tail {
            report_cut(tail, has_ended(found));
        }
    }
    if let Some(last) = segments.last() {
        write_again(&*last.file, last.end).map_err(OpenError::failed(
            disk,
            "write again",
            &last.name,
        ))?;
    }
    for segment in segments {
        segment.file.sync().map_err(OpenError::failed(disk, "sync", &segment.name))?;
    }
    disk.sync_folder().map_err(OpenError::failed(disk, "sync the folder", ""))
}

/// Whether the bounds say that the last server was stopped in order.
fn has_ended(found: &Survey) -> bool {
    found.bounds.as_ref().is_some_and(|file| file.bounds.end.is_some())
}

fn report_cut(tail: TornTail, has_ended: bool) {
    let TornTail { file, offset, position, bytes, whole_records } = tail;
    if has_ended {
        // No server was writing then: something else wrote them, or they have rotted.
        tracing::warn!(
            file, offset, bytes, whole_records, %position,
            "bytes behind the end that the last stop recorded are no part of the log: cut them"
        );
    } else {
        tracing::warn!(
            file, offset, bytes, whole_records, %position,
            "the server before this one was not stopped in order: cut what it had not finished writing"
        );
    }
}

/// A process that ended because a sync failed leaves pages that the system calls clean and that are
/// on no disk: what is read here may be gone after the next power cut, and a sync does not save it
/// unless it is written again. All segments but the last were synced when they ended.
fn write_again(file: &dyn DiskFile, end: u64) -> io::Result<()> {
    const STEP_BYTES: usize = 1024 * 1024;
    read_in_steps(file, (0, end), STEP_BYTES, |bytes, offset| file.write_at(bytes, offset))
}

fn assemble(
    disk: Arc<dyn Disk>,
    options: FileLogOptions,
    sizes: Sizes,
    found: Survey,
    (spares, next_number): (Vec<Spare>, u64),
    lock: crate::disk::FolderLock,
) -> Shared {
    let ended = has_ended(&found);
    let mut segments = VecDeque::with_capacity(found.segments.len());
    let (mut next, mut last_crc) = (Position(0), 0);
    let mut kept_bytes = 0;
    for surveyed in found.segments {
        (next, last_crc) = (surveyed.next(), surveyed.last_crc);
        let segment = Segment::new(
            surveyed.header.first,
            surveyed.name,
            surveyed.file,
            surveyed.file_bytes as u32,
            surveyed.header.salt,
        );
        segment.publish(&surveyed.spots, surveyed.end as u32);
        kept_bytes += segment.frames_bytes();
        segments.push_back(Arc::new(segment));
    }
    let open = segments.back().expect("a log has at least the segment made above").clone();
    let first = segments.front().map_or(next, |segment| segment.first);
    let tail = Tail {
        next,
        last_crc,
        salt: open.salt,
        offset: open.end(),
        capacity: open.capacity,
        runs: Vec::new(),
        unused: None,
    };
    Shared {
        disk,
        options,
        record_bytes_max: sizes.record_max,
        segments: RwLock::new(segments),
        tail: Mutex::new(tail),
        flushing: Mutex::new(Flush {
            open,
            answered: next,
            unsynced: false,
            large_bytes: 0,
            ended,
            looked_at: Instant::now(),
        }),
        trimming: Mutex::new(()),
        syncing: Mutex::new(()),
        spares: Spares::new(spares, next_number, sizes.segment, sizes.segment_min),
        bounds: found.bounds.map(Mutex::new),
        positions: Positions {
            first: AtomicU64::new(first.0),
            synced: AtomicU64::new(next.0),
            committed: AtomicU64::new(next.0),
            next: AtomicU64::new(next.0),
            kept_bytes: AtomicU64::new(kept_bytes),
        },
        poisoned: OnceLock::new(),
        lock,
    }
}
