//! Finds what can still be read behind the end of the sound part of a log, and in what repairs took out of it.

use std::{collections::BTreeMap, io, ops::ControlFlow, sync::Arc};

use crate::{
    bounds::{BoundsFile, Found},
    contract::{Position, Stored},
    disk::{Disk, DiskFile},
    faults::Faults,
    folder::{FileKind, OpenError, asides, file_kind, repair_number},
    frame::{
        Announced, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, announced,
        claimed_position, decode_frame, marked_places, salt_of,
    },
    survey::{Survey, Surveyed},
};

const SEARCH_BYTES: usize = 1024 * 1024;

/// A frame whose checksum fits, wherever it stands.
pub(crate) struct WholeFrame {
    pub(crate) header: FrameHeader,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// The frame, its header included.
    bytes: Vec<u8>,
}

impl WholeFrame {
    /// The record in it.
    pub(crate) fn stored(mut self) -> Stored {
        let bytes = self.bytes.split_off(FRAME_HEADER_BYTES).into();
        let FrameHeader { position, epoch, .. } = self.header;
        Stored { position, epoch, bytes, damaged: false }
    }
}

/// Shows the whole frames of a file from `offset` on whose position is at least `least`, whatever stands between them,
/// until `take` breaks.
pub(crate) fn whole_frames(
    file: &dyn DiskFile,
    salt: u32,
    mut offset: u64,
    least: Position,
    take: &mut dyn FnMut(WholeFrame) -> ControlFlow<()>,
) -> io::Result<()> {
    let file_bytes = file.len()?;
    let mut buffer = vec![0; SEARCH_BYTES.min(file_bytes as usize)];
    while offset + FRAME_HEADER_BYTES as u64 <= file_bytes {
        let read = file.read_at(&mut buffer, offset)?;
        let places = (read + 8).saturating_sub(FRAME_HEADER_BYTES) / 8;
        if places == 0 {
            break;
        }
        for at in marked_places(&buffer[..read]) {
            let Announced::Payload(payload_bytes) = announced(&buffer[at..read]) else { continue };
            if claimed_position(&buffer[at..read]) < least {
                continue;
            }
            let start = offset + at as u64;
            if start + (FRAME_HEADER_BYTES + payload_bytes) as u64 > file_bytes {
                continue;
            }
            if let Some(frame) = whole_frame(file, salt, start, payload_bytes)?
                && take(frame).is_break()
            {
                return Ok(());
            }
        }
        offset += places as u64 * 8;
    }
    Ok(())
}

fn whole_frame(
    file: &dyn DiskFile,
    salt: u32,
    offset: u64,
    payload_bytes: usize,
) -> io::Result<Option<WholeFrame>> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES + payload_bytes];
    if file.read_at(&mut bytes, offset)? < bytes.len() {
        return Ok(None);
    }
    let decoded = decode_frame(&bytes, salt, payload_bytes);
    Ok(decoded.map(|(header, _)| WholeFrame { header, offset, bytes }))
}

/// A record, or records in a row that cannot be read, behind the end of the sound part of the log.
#[derive(Clone, Debug)]
pub enum Dropped {
    /// A record that can be read.
    Record {
        /// The file it is in.
        file: String,
        /// Where its frame begins in it.
        offset: u64,
        /// The record.
        stored: Stored,
    },
    /// Records in a row of which nothing can be read.
    Unreadable {
        /// The first of them.
        from: Position,
        /// The position after the last one, if a record behind them can be read.
        to: Option<Position>,
    },
}

/// What takes them, one by one.
pub type EachDropped<'a> = &'a mut dyn FnMut(Dropped);

/// What repairs have kept since the last start of a server.
#[derive(Default)]
pub(crate) struct Kept {
    /// The files that say that one has begun. There is at most one, unless others were put there by
    /// hand.
    pub(crate) begun: Vec<String>,
    /// Their folders, oldest first.
    pub(crate) folders: Vec<String>,
    /// The files in them that were segments, with the first position that their names say.
    segments: Vec<(Position, String)>,
    /// How many records there are known to have been.
    known: Option<Position>,
}

impl Kept {
    /// `names` is what is in the folder.
    pub(crate) fn find(
        disk: &dyn Disk,
        names: &[String],
        faults: Faults,
    ) -> Result<Self, OpenError> {
        let mut kept = Self::default();
        let begun = |name: &String| match file_kind(name) {
            FileKind::Begun(number) => Some((number, name.clone())),
            _ => None,
        };
        let (numbers, begun): (Vec<u64>, Vec<String>) = names.iter().filter_map(begun).unzip();
        kept.begun = begun;
        let Some(number) = numbers.into_iter().min().filter(|_| !faults.moved_unlisted) else {
            return Ok(kept);
        };
        let asides = asides(names).into_iter();
        let mut folders: Vec<_> =
            asides.filter_map(|name| Some((repair_number(&name)?, name))).collect();
        folders.retain(|(own, _)| *own >= number);
        folders.sort_unstable();
        for (_, folder) in folders {
            kept.add(disk, folder)?;
        }
        Ok(kept)
    }

    fn add(&mut self, disk: &dyn Disk, folder: String) -> Result<(), OpenError> {
        for name in disk.list_aside(&folder).map_err(OpenError::failed(disk, "list", &folder))? {
            let path = format!("{folder}/{name}");
            match file_kind(&name) {
                FileKind::Segment(first) => self.segments.push((first, path)),
                FileKind::Bounds => {
                    if let Found::Sound(file) = BoundsFile::read(disk, &path, false)? {
                        self.known = self.known.max(Some(file.bounds.reached));
                    }
                }
                _ => {}
            }
        }
        self.folders.push(folder);
        Ok(())
    }

    /// The first position of all segments in them.
    pub(crate) fn first(&self) -> Option<Position> {
        self.segments.iter().map(|(first, _)| *first).min()
    }
}

/// A file that may have records, from an offset on.
struct Source {
    name: String,
    file: Arc<dyn DiskFile>,
    salt: u32,
    offset: u64,
}

impl Source {
    /// A whole file, if it is there.
    fn whole(disk: &dyn Disk, name: &str) -> io::Result<Option<Self>> {
        let file = match disk.open(name, false) {
            Ok(file) => file,
            // That it is missing is the damage.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut header = [0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut header, 0)?;
        // The salt of a damaged header may still be right: then the frames' checksums fit.
        let (salt, offset) = (salt_of(&header), SEGMENT_HEADER_BYTES as u64);
        Ok(Some(Self { name: name.to_owned(), file, salt, offset }))
    }

    /// What stands behind the last good frame of a segment.
    fn behind(segment: &Surveyed) -> Self {
        let (name, file) = (segment.name.clone(), segment.file.clone());
        Self { name, file, salt: segment.header.salt, offset: segment.end }
    }
}

/// Shows what stands behind the end of the sound part, in order, and what is missing in between.
struct Listing<'a> {
    next: Position,
    each: EachDropped<'a>,
}

impl Listing<'_> {
    /// Goes through the records of a segment below `upto`. What its first source lacks may be in the others.
    fn segment(&mut self, sources: &[Source], upto: Option<Position>) -> io::Result<()> {
        let Some((source, others)) = sources.split_first() else { return Ok(()) };
        let mut others_read = Ok(());
        whole_frames(&*source.file, source.salt, source.offset, self.next, &mut |frame| {
            let (offset, position) = (frame.offset, frame.header.position);
            if upto.is_some_and(|upto| position >= upto) {
                return ControlFlow::Break(());
            }
            // A frame behind another tail of the same file: it never followed the ones before it.
            if position < self.next {
                return ControlFlow::Continue(());
            }
            if position > self.next {
                others_read = self.segment(others, Some(position));
                if others_read.is_err() {
                    return ControlFlow::Break(());
                }
                self.gap(position);
            }
            self.next = position.next();
            let file = source.name.clone();
            (self.each)(Dropped::Record { file, offset, stored: frame.stored() });
            ControlFlow::Continue(())
        })?;
        others_read?;
        self.segment(others, upto)
    }

    /// Records below `upto` that were not found are known to have been there.
    fn gap(&mut self, upto: Position) {
        if self.next < upto {
            (self.each)(Dropped::Unreadable { from: self.next, to: Some(upto) });
            self.next = upto;
        }
    }
}

/// Lists the records behind the sound part of the log that do not stay: those that a repair of the damage takes out of
/// it, or the next start of a server as its `tail`, and those that earlier repairs have kept.
pub(crate) fn list_dropped(
    disk: &dyn Disk,
    found: &Survey,
    tail: Option<&TornTail>,
    each: EachDropped<'_>,
) -> Result<(), OpenError> {
    let last = found.segments.last();
    let end = last.map(Surveyed::next).unwrap_or_default();
    let next = found.damage.as_ref().map_or(end, |damage| damage.position);
    let mut segments: BTreeMap<Position, Vec<Source>> = BTreeMap::new();
    let mut add = |first: Position, name: &str| {
        let source = Source::whole(disk, name).map_err(OpenError::failed(disk, "read", name))?;
        segments.entry(first).or_default().extend(source);
        Ok(())
    };
    // The oldest copy comes first: nothing had been cut off it.
    found.kept.segments.iter().try_for_each(|(first, name)| add(*first, name))?;
    let damaged = found.damage.iter().filter(|damage| damage.offset == 0).map(|it| &it.file);
    for name in damaged.chain(found.damage.iter().flat_map(|damage| &damage.behind)) {
        if let FileKind::Segment(first) = file_kind(name) {
            add(first, name)?;
        }
    }
    let is_cut = |segment: &&Surveyed| match &found.damage {
        Some(damage) => damage.file == segment.name,
        None => tail.is_some(),
    };
    if let Some(segment) = last.filter(is_cut) {
        segments.entry(segment.header.first).or_default().push(Source::behind(segment));
    }
    let mut listing = Listing { next, each };
    for sources in segments.values() {
        let failed = |error| {
            let names: Vec<_> = sources.iter().map(|source| &*source.name).collect();
            OpenError::failed(disk, "read", &names.join(" or "))(error)
        };
        listing.segment(sources, None).map_err(failed)?;
    }
    let said = found.bounds.as_ref().filter(|_| found.damage.is_some());
    let known = said.map(|file| file.bounds.reached).max(found.kept.known);
    // Behind the end of an orderly stop there was no record that anybody had begun to write.
    let has_ended = found.bounds.as_ref().is_some_and(|file| file.bounds.end.is_some());
    let torn = tail.filter(|_| !has_ended);
    let known = known.max(torn.map(|tail| tail.position.next()));
    listing.gap(known.unwrap_or_default());
    Ok(())
}

/// What a crash left behind the end of the log, which the next opening removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: String,
    /// Where the log ends in it.
    pub offset: u64,
    /// The position that the next record gets.
    pub position: Position,
    /// From there to the last byte that is not zero.
    pub bytes: u64,
    /// How many records behind the end are whole. They follow one that is not.
    pub whole_records: u64,
}

/// Looks behind the end of the last segment.
pub(crate) fn torn_tail(segment: &Surveyed) -> io::Result<Option<TornTail>> {
    if segment.ends_in_zeros {
        return Ok(None);
    }
    let Some(last) = last_byte(&*segment.file, (segment.end, segment.file_bytes))? else {
        return Ok(None);
    };
    let (offset, position) = (segment.end, segment.next());
    let mut whole_records = 0;
    let mut count = |dropped: Dropped| {
        whole_records += u64::from(matches!(dropped, Dropped::Record { .. }));
    };
    let mut listing = Listing { next: position, each: &mut count };
    listing.segment(&[Source::behind(segment)], None)?;
    let (file, bytes) = (segment.name.clone(), last + 1 - offset);
    Ok(Some(TornTail { file, offset, position, bytes, whole_records }))
}

/// Where the last byte of a range is that is not zero.
fn last_byte(file: &dyn DiskFile, range: (u64, u64)) -> io::Result<Option<u64>> {
    let mut last = None;
    crate::folder::is_zero(file, range, |bytes, offset| {
        let at = bytes.iter().rposition(|byte| *byte != 0);
        last = at.map_or(last, |at| Some(offset + at as u64));
        Ok(())
    })?;
    Ok(last)
}
