//! Reads a whole folder without changing it: what is in the log, where it ends, what is wrong.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use crate::{
    contract::Position,
    disk::{Disk, DiskFile},
    folder::{FileKind, OpenError, file_kind, path, segment_name},
    frame::{
        Announced, BadHeader, FORMAT_VERSION, FRAME_HEADER_BYTES, FrameSpot, SEGMENT_HEADER_BYTES,
        SegmentHeader, announced, claimed_position, decode_frame, marked_places,
    },
    parts::PartsOf,
    scan::{Expected, Frames, NoFrame},
};

/// More readers than this wait for the same disk.
const READERS_MAX: usize = 4;
const SEARCH_BYTES: usize = 1024 * 1024;

/// A folder, read through.
pub(crate) struct Survey {
    /// The sound part of the log, oldest segment first. The last one may end in damage.
    pub(crate) segments: Vec<Surveyed>,
    pub(crate) spares: Vec<(u64, String)>,
    pub(crate) fillings: Vec<String>,
    pub(crate) foreign: Vec<String>,
    pub(crate) damage: Option<Damage>,
}

/// One segment.
pub(crate) struct Surveyed {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) header: SegmentHeader,
    pub(crate) spots: Vec<FrameSpot>,
    /// Where the last good frame ends.
    pub(crate) end: u64,
    pub(crate) file_bytes: u64,
    pub(crate) last_crc: u32,
    /// Records with damage that leaves the rest of them sound, in order.
    pub(crate) damaged: Vec<DamagedFrame>,
}

/// A frame of which only parts that carry their own checksum are damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DamagedFrame {
    pub(crate) position: Position,
    pub(crate) offset: u64,
    /// Where the next frame begins.
    pub(crate) end: u64,
    prev_crc: u32,
}

/// Where the log is first damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where the bad frame begins in it; 0 when the whole file is damage.
    pub offset: u64,
    /// The record that should be there.
    pub position: Position,
    /// What is wrong.
    pub reason: &'static str,
    /// Segments behind the damage, oldest first. Their records can not follow the ones before it.
    pub behind: Vec<String>,
}

impl Damage {
    fn new(file: &str, offset: u64, position: Position, reason: &'static str) -> Self {
        Self { file: file.to_owned(), offset, position, reason, behind: Vec::new() }
    }
}

impl Surveyed {
    /// The position after the last good frame.
    pub(crate) fn next(&self) -> Position {
        Position(self.header.first.0 + self.spots.len() as u64)
    }

    fn damage(&self, reason: &'static str) -> Damage {
        Damage::new(&self.name, self.end, self.next(), reason)
    }
}

/// How to read.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) write: bool,
    /// Off only for a planted fault.
    pub(crate) check_chain: bool,
    pub(crate) parts_of: PartsOf,
}

/// Reads everything.
pub(crate) fn survey(disk: &dyn Disk, manner: Manner) -> Result<Survey, OpenError> {
    let mut firsts = Vec::new();
    let (mut spares, mut fillings, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
    for name in disk.list().map_err(OpenError::failed(disk, "list", ""))? {
        match file_kind(&name) {
            FileKind::Segment(first) => firsts.push(first),
            FileKind::Spare(number) => spares.push((number, name)),
            FileKind::Filling(_) => fillings.push(name),
            FileKind::Foreign => foreign.push(name),
            FileKind::Lock | FileKind::Damaged => {}
        }
    }
    firsts.sort_unstable();
    spares.sort_unstable();
    foreign.sort_unstable();
    let mut segments = Vec::new();
    let mut damage = None;
    for &first in &firsts {
        match head(disk, first, manner)? {
            Ok(segment) => segments.push(segment),
            Err(bad) => {
                damage = Some(bad);
                break;
            }
        }
    }
    let mut ends = read_all(disk, &mut segments, &firsts, manner)?;
    if segments.len() == firsts.len() {
        cut_unproven(disk, &mut segments, &mut ends)?;
    }
    damage = first_damage(disk, &segments, ends, damage, &firsts, manner)?;
    if let Some(damage) = &mut damage {
        segments.retain(|segment| segment.header.first <= damage.position);
        // With a bad header the whole file is damage.
        segments.retain(|segment| segment.name != damage.file || damage.offset > 0);
        let from = firsts.iter().filter(|first| segment_name(**first) > damage.file);
        damage.behind = from.map(|first| segment_name(*first)).collect();
    }
    Ok(Survey { segments, spares, fillings, foreign, damage })
}

/// Opens a segment and reads its header.
fn head(
    disk: &dyn Disk,
    first: Position,
    manner: Manner,
) -> Result<Result<Surveyed, Damage>, OpenError> {
    let name = segment_name(first);
    let failed = |operation| OpenError::failed(disk, operation, &name);
    let file = disk.open(&name, manner.write).map_err(failed("open"))?;
    let file_bytes = file.len().map_err(failed("measure"))?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    file.read_at(&mut bytes, 0).map_err(failed("read"))?;
    let bad = |reason| Damage::new(&name, 0, first, reason);
    let header = match SegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(BadHeader::Magic) => return Err(OpenError::WrongMagic { path: path(disk, &name) }),
        Err(BadHeader::Version(found)) => {
            let (path, supported) = (path(disk, &name), FORMAT_VERSION);
            return Err(OpenError::NewerVersion { path, found, supported });
        }
        Err(BadHeader::Checksum) => return Ok(Err(bad("the segment's header is damaged"))),
    };
    if header.first != first {
        return Ok(Err(bad("the file's name and its header name different positions")));
    }
    if u32::try_from(file_bytes).is_err() {
        return Ok(Err(bad("the file is larger than any segment")));
    }
    let (end, last_crc) = (SEGMENT_HEADER_BYTES as u64, header.prev_crc);
    let (spots, damaged) = (Vec::new(), Vec::new());
    Ok(Ok(Surveyed { name, file, header, spots, end, file_bytes, last_crc, damaged }))
}

/// Reads the frames of all segments, several at once, and says how each one ended.
fn read_all(
    disk: &dyn Disk,
    segments: &mut [Surveyed],
    firsts: &[Position],
    manner: Manner,
) -> Result<Vec<Option<&'static str>>, OpenError> {
    let work: Vec<_> = segments.iter_mut().map(Mutex::new).collect();
    let results: Vec<_> = work.iter().map(|_| Mutex::new(Ok(None))).collect();
    let taken = AtomicUsize::new(0);
    let read = || {
        loop {
            let index = taken.fetch_add(1, Ordering::Relaxed);
            let Some(segment) = work.get(index) else { break };
            let upto = firsts.get(index + 1).copied();
            *results[index].lock() = frames(&mut segment.lock(), upto, manner);
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..work.len().min(processors).min(READERS_MAX) {
            scope.spawn(read);
        }
        read();
    });
    let ends: Vec<_> = results.into_iter().map(Mutex::into_inner).collect();
    drop(work);
    let named = segments.iter().zip(ends);
    named.map(|(s, end)| end.map_err(OpenError::failed(disk, "read", &s.name))).collect()
}

/// Reads the frames of one segment, up to a position or to the first that is not good. Says what
/// was wrong with that one.
fn frames(
    segment: &mut Surveyed,
    upto: Option<Position>,
    manner: Manner,
) -> io::Result<Option<&'static str>> {
    let start = SEGMENT_HEADER_BYTES as u64;
    let (range, salt) = ((start, segment.file_bytes), segment.header.salt);
    let mut frames = Frames::new(segment.file.clone(), salt, range, manner.parts_of);
    while upto.is_none_or(|upto| segment.next() < upto) {
        let prev_crc = manner.check_chain.then_some(segment.last_crc);
        match frames.take(Expected { position: segment.next(), prev_crc }) {
            Ok(frame) => {
                if frame.damaged {
                    let (position, prev_crc) = (segment.next(), frame.prev_crc);
                    let (offset, end) = (frame.start, frames.offset());
                    segment.damaged.push(DamagedFrame { position, offset, end, prev_crc });
                }
                segment.spots.push(FrameSpot::new(frame.start as u32, frame.payload_bytes));
                segment.last_crc = frame.crc;
                segment.end = frames.offset();
            }
            Err(NoFrame::Bad(reason)) => return Ok(Some(reason)),
            Err(NoFrame::Failed(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// Where the log is first broken. A bad frame is damage when anything behind it proves that it was
/// durable once; without proof it is the tail that a crash left.
fn first_damage(
    disk: &dyn Disk,
    segments: &[Surveyed],
    ends: Vec<Option<&'static str>>,
    bad_header: Option<Damage>,
    firsts: &[Position],
    manner: Manner,
) -> Result<Option<Damage>, OpenError> {
    for (index, (segment, end)) in segments.iter().zip(ends).enumerate() {
        if let Some(before) = index.checked_sub(1).and_then(|before| segments.get(before))
            && manner.check_chain
            && before.last_crc != segment.header.prev_crc
        {
            let reason = "the segment does not follow the one before it";
            return Ok(Some(Damage::new(&segment.name, 0, segment.header.first, reason)));
        }
        let Some(reason) = end else { continue };
        // A segment is synced before the next one gets its name.
        if firsts.get(index + 1).is_some() {
            return Ok(Some(segment.damage(reason)));
        }
        let proven = proof_behind(segment, segment.next(), segment.end)
            .map_err(OpenError::failed(disk, "read", &segment.name))?;
        return Ok(proven.then(|| segment.damage(reason)));
    }
    Ok(bad_header)
}

/// A frame whose payload is damaged and that was never synced is no damage but where a crash tore
/// the tail, like any bad frame: the log ends before it.
fn cut_unproven(
    disk: &dyn Disk,
    segments: &mut [Surveyed],
    ends: &mut [Option<&'static str>],
) -> Result<(), OpenError> {
    let (Some(segment), Some(end)) = (segments.last_mut(), ends.last_mut()) else { return Ok(()) };
    for (nth, frame) in segment.damaged.clone().into_iter().enumerate() {
        let proven = proof_behind(segment, frame.position, frame.end)
            .map_err(OpenError::failed(disk, "read", &segment.name))?;
        if !proven {
            segment.damaged.truncate(nth);
            segment.spots.truncate((frame.position.0 - segment.header.first.0) as usize);
            (segment.end, segment.last_crc) = (frame.offset, frame.prev_crc);
            // What proves a later frame to have been synced would have proven this one.
            *end = None;
            break;
        }
    }
    Ok(())
}

/// Whether a good frame from `offset` on says that the `bad` one before it was synced.
fn proof_behind(segment: &Surveyed, bad: Position, offset: u64) -> io::Result<bool> {
    let mut buffer = vec![0; SEARCH_BYTES.min(segment.file_bytes as usize)];
    let mut offset = offset;
    while offset + FRAME_HEADER_BYTES as u64 <= segment.file_bytes {
        let read = segment.file.read_at(&mut buffer, offset)?;
        let places = (read + 8).saturating_sub(FRAME_HEADER_BYTES) / 8;
        if places == 0 {
            break;
        }
        for at in marked_places(&buffer[..read]) {
            let Announced::Payload(payload_bytes) = announced(&buffer[at..read]) else { continue };
            if claimed_position(&buffer[at..read]) <= bad {
                continue;
            }
            if synced_upto(segment, offset + at as u64, payload_bytes)?.is_some_and(|p| p > bad) {
                return Ok(true);
            }
        }
        offset += places as u64 * 8;
    }
    Ok(false)
}

/// What the frame that begins at `start` says, if it is one.
fn synced_upto(
    segment: &Surveyed,
    start: u64,
    payload_bytes: usize,
) -> io::Result<Option<Position>> {
    let whole = FRAME_HEADER_BYTES + payload_bytes;
    if start + whole as u64 > segment.file_bytes {
        return Ok(None);
    }
    let mut bytes = vec![0; whole];
    if segment.file.read_at(&mut bytes, start)? < whole {
        return Ok(None);
    }
    let frame = decode_frame(&bytes, segment.header.salt, payload_bytes);
    Ok(frame.map(|(header, _)| header.synced_upto))
}
