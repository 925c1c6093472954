//! Reads a whole folder without changing it: what is in the log, where it ends, what is wrong.

use std::{io, ops::ControlFlow, sync::Arc, thread};

use crate::{
    ahead::{AheadOf, read_ahead},
    bounds::{BOUNDS_FILE, Bounds, BoundsFile, Found},
    contract::{Position, Stored},
    disk::{Disk, DiskFile},
    faults::Faults,
    folder::{FileKind, OpenError, file_kind, path, segment_name},
    frame::{BadHeader, FORMAT_VERSION, FrameSpot, SEGMENT_HEADER_BYTES, SegmentHeader},
    parts::PartsOf,
    salvage::{Kept, whole_frames},
    scan::{Expected, Frames, NoFrame},
};

/// A folder, read through.
pub(crate) struct Survey {
    /// The sound part of the log, oldest segment first. The last one may end in damage.
    pub(crate) segments: Vec<Surveyed>,
    pub(crate) spares: Vec<(u64, String)>,
    pub(crate) fillings: Vec<String>,
    pub(crate) foreign: Vec<String>,
    /// What repairs have kept since the last start.
    pub(crate) kept: Kept,
    /// Segments that a crash during a trim has left.
    pub(crate) trimmed: Vec<String>,
    /// Where the log must begin and end; none in a folder of an older release, or where that is damaged.
    pub(crate) bounds: Option<BoundsFile>,
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
    /// Nothing but zeros is behind the end. Known of the last segment only.
    pub(crate) ends_in_zeros: bool,
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
}

/// Where the log is first damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file, which is missing if that is the damage.
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

    /// The damage where the segment is not the next one of the log.
    pub(crate) fn not_following(&self) -> Damage {
        let reason = "the segment does not follow the one before it";
        Damage::new(&self.name, 0, self.header.first, reason)
    }

    fn damage(&self, reason: &'static str) -> Damage {
        Damage::new(&self.name, self.end, self.next(), reason)
    }
}

/// How to read.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) write: bool,
    pub(crate) faults: Faults,
    pub(crate) parts_of: PartsOf,
}

/// Reads the frames of segments whose headers are sound, as far as it has to: given are the first positions of all
/// segments, and what is before the last position was synced. Says where the log is first broken.
pub(crate) type ReadFrames<'a> = &'a mut dyn FnMut(
    &mut [Surveyed],
    (&[Position], Position),
) -> Result<Option<Damage>, OpenError>;

/// Reads everything, once. Shows every record of the sound part of the log to `each`, oldest first, while it goes on.
pub(crate) fn survey(
    disk: &dyn Disk,
    manner: Manner,
    each: &mut dyn FnMut(Stored),
) -> Result<Survey, OpenError> {
    survey_by(disk, manner, &mut |segments, of| read_all(disk, segments, of, manner, each))
}

/// As [`survey`], with another way to read the frames. The last segment has to be read whole.
pub(crate) fn survey_by(
    disk: &dyn Disk,
    manner: Manner,
    read: ReadFrames<'_>,
) -> Result<Survey, OpenError> {
    let mut firsts = Vec::new();
    let (mut spares, mut fillings) = (Vec::new(), Vec::new());
    let mut foreign = Vec::new();
    let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
    let kept = Kept::find(disk, &names, manner.faults)?;
    for name in names {
        match file_kind(&name) {
            FileKind::Segment(first) => firsts.push(first),
            FileKind::Spare(number) => spares.push((number, name)),
            FileKind::Filling(_) => fillings.push(name),
            FileKind::Foreign => foreign.push(name),
            FileKind::Restoring => return Err(OpenError::Unfinished { folder: disk.folder() }),
            FileKind::Lock | FileKind::Bounds | FileKind::Aside | FileKind::Begun(_) => {}
        }
    }
    firsts.sort_unstable();
    spares.sort_unstable();
    foreign.sort_unstable();
    let found = BoundsFile::find(disk, manner.write)?;
    let is_there = !matches!(found, Found::Missing);
    let mut bounds = if let Found::Sound(file) = found { Some(file) } else { None };
    let lacks = |said: Bounds| {
        !firsts.contains(&said.first) && firsts.iter().any(|first| *first > said.first)
    };
    if bounds.as_ref().is_some_and(|file| file.is_alone && lacks(file.bounds)) {
        bounds = None;
    }
    let said = bounds.as_ref().map(|file| file.bounds);
    let left = said.map_or(0, |said| firsts.partition_point(|first| *first < said.first));
    let trimmed = firsts.drain(..left).map(segment_name).collect();
    let mut segments = Vec::new();
    let mut damage = match said {
        Some(said) if !manner.faults.first_unchecked && firsts.first() != Some(&said.first) => {
            Some(Damage::new(
                &segment_name(said.first),
                0,
                said.first,
                "the oldest segment is missing",
            ))
        }
        _ => {
            let (found, bad_header) = heads(disk, &firsts, manner)?;
            segments = found;
            let durable = said.map_or(Position(0), |said| said.reached);
            read(&mut segments, (&firsts, durable))?.or(bad_header)
        }
    };
    if let (None, Some(said), Some(last)) = (&damage, said, segments.last())
        && !manner.faults.end_unchecked
    {
        match end_missed(said, last) {
            Some(_) if bounds.as_ref().is_some_and(|file| file.is_alone) => bounds = None,
            missed => damage = missed.map(|reason| last.damage(reason)),
        }
    }
    if let (true, false, Some(first)) = (firsts.is_empty(), is_there, kept.first()) {
        let reason = "a repair was interrupted that has taken away all segments";
        damage = Some(Damage::new(&segment_name(first), 0, first, reason));
    }
    if damage.is_none() && bounds.is_none() && !manner.faults.bounds_unchecked {
        damage = bounds_missed(is_there, &segments).map(|reason| {
            let next = segments.last().map(Surveyed::next).unwrap_or_default();
            Damage::new(BOUNDS_FILE, 0, next, reason)
        });
    }
    if let Some(damage) = &mut damage
        && damage.file != BOUNDS_FILE
    {
        segments.retain(|segment| segment.header.first <= damage.position);
        // With a bad header the whole file is damage.
        segments.retain(|segment| segment.name != damage.file || damage.offset > 0);
        let from = firsts.iter().filter(|first| segment_name(**first) > damage.file);
        damage.behind = from.map(|first| segment_name(*first)).collect();
    }
    Ok(Survey { segments, spares, fillings, foreign, kept, trimmed, bounds, damage })
}

/// What is wrong with a folder without sound bounds. A folder of an older release never had any.
fn bounds_missed(is_there: bool, segments: &[Surveyed]) -> Option<&'static str> {
    if is_there {
        Some("it no longer says where the log must begin and end")
    } else if segments.iter().any(|segment| segment.header.keeps_bounds) {
        Some(
            "it is missing, and only it knew whether segments are missing before the first one here",
        )
    } else {
        None
    }
}

/// What is wrong with the end of a log that is sound up to there.
fn end_missed(said: Bounds, last: &Surveyed) -> Option<&'static str> {
    let next = last.next();
    if last.header.first < said.newest {
        Some("the newest segment is missing")
    } else if next < said.reached {
        Some("records are missing at the end of the log")
    } else if said.end.is_some() && next > said.reached {
        Some("there are records behind the place where the log ended when it was last stopped")
    } else if said.end.is_some_and(|crc| crc != last.last_crc) {
        Some("the last record is not the one that the log ended with when it was last stopped")
    } else {
        None
    }
}

/// Opens segments and reads their headers, up to the first one that is bad.
fn heads(
    disk: &dyn Disk,
    firsts: &[Position],
    manner: Manner,
) -> Result<(Vec<Surveyed>, Option<Damage>), OpenError> {
    let mut segments = Vec::new();
    for &first in firsts {
        match head(disk, first, manner)? {
            Ok(segment) => segments.push(segment),
            Err(bad) => return Ok((segments, Some(bad))),
        }
    }
    Ok((segments, None))
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
        Err(BadHeader::Magic) => return Ok(Err(bad("the file does not begin like a segment"))),
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
    let ends_in_zeros = false;
    let found =
        Surveyed { name, file, header, spots, end, file_bytes, last_crc, ends_in_zeros, damaged };
    Ok(Ok(found))
}

/// Reads the frames of all segments in order, shows each record to `each` as soon as it is certain that it stays in the
/// log, and says where the log is first broken. `firsts` are the first positions of all segments; what is before
/// `durable` was synced.
pub(crate) fn read_all(
    disk: &dyn Disk,
    segments: &mut [Surveyed],
    (firsts, durable): (&[Position], Position),
    manner: Manner,
    each: &mut dyn FnMut(Stored),
) -> Result<Option<Damage>, OpenError> {
    let files = segments.iter().map(|segment| (segment.file.clone(), segment.file_bytes));
    let (reader, ahead) = read_ahead(files.collect());
    thread::scope(|scope| {
        scope.spawn(|| reader.run());
        // Dropped in here: that ends the reader, which the scope waits for.
        let mut ahead = ahead;
        let mut before = None;
        for (index, segment) in segments.iter_mut().enumerate() {
            if before.is_some_and(|crc| !manner.faults.tail_left && crc != segment.header.prev_crc)
            {
                return Ok(Some(segment.not_following()));
            }
            let upto = firsts.get(index + 1).copied();
            let bad = frames(segment, ahead.of(index), (upto, durable), manner, each)
                .map_err(OpenError::failed(disk, "read", &segment.name))?;
            if let Some(reason) = bad {
                return Ok(Some(segment.damage(reason)));
            }
            before = Some(segment.last_crc);
        }
        Ok(None)
    })
}

/// Reads the frames of one segment, up to the position of the next segment or to the first that is not good. Says what
/// is wrong with that one if it is damage, that is, if anything behind it proves that it was durable once. Without such
/// proof it is the tail that a crash left. Records of which parts are rotten are proven by `durable`, too.
fn frames(
    segment: &mut Surveyed,
    source: AheadOf<'_>,
    (upto, durable): (Option<Position>, Position),
    manner: Manner,
    each: &mut dyn FnMut(Stored),
) -> io::Result<Option<&'static str>> {
    let start = SEGMENT_HEADER_BYTES as u64;
    let (range, salt) = ((start, segment.file_bytes), segment.header.salt);
    let mut frames = Frames::new(source, salt, range, manner.parts_of);
    while upto.is_none_or(|upto| segment.next() < upto) {
        let prev_crc = (!manner.faults.tail_left).then_some(segment.last_crc);
        let position = segment.next();
        let frame = match frames.take(Expected { position, prev_crc }) {
            Ok(frame) => frame,
            // A segment is synced before the next one gets its name.
            Err(NoFrame::Bad(reason)) if upto.is_some() => return Ok(Some(reason)),
            Err(NoFrame::Bad(reason)) => {
                segment.ends_in_zeros = frames.ends_in_zeros()?;
                let proven =
                    !segment.ends_in_zeros && proof_behind(segment, position, segment.end)?;
                return Ok(proven.then_some(reason));
            }
            Err(NoFrame::Failed(_)) if manner.faults.read_error_ends => return Ok(None),
            Err(NoFrame::Failed(error)) => return Err(error),
        };
        if frame.damaged {
            let (offset, end) = (frame.start, frames.offset());
            // If it was never synced it is not damage but the place where a crash tore the tail, like any bad frame:
            // the log ends before it.
            let may_be_torn = upto.is_none() && position >= durable;
            if may_be_torn && !proof_behind(segment, position, end)? {
                return Ok(None);
            }
            segment.damaged.push(DamagedFrame { position, offset, end });
        }
        segment.spots.push(FrameSpot::new(frame.start as u32, frame.payload_bytes));
        segment.last_crc = frame.crc;
        segment.end = frames.offset();
        each(frames.stored(position, &frame));
    }
    Ok(None)
}

/// Whether a good frame from `offset` on says that the `bad` one before it was synced.
fn proof_behind(segment: &Surveyed, bad: Position, offset: u64) -> io::Result<bool> {
    let mut proven = false;
    let (file, salt) = (&*segment.file, segment.header.salt);
    whole_frames(file, salt, offset, bad.next(), &mut |frame| {
        proven = frame.header.synced_upto > bad;
        if proven { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(proven)
}
