//! What can still be read behind the end of the sound part of a log.

use std::{io, ops::ControlFlow, sync::Arc};

use crate::{
    contract::{Position, Stored},
    disk::{Disk, DiskFile},
    frame::{
        Announced, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, announced,
        claimed_position, decode_frame, marked_places, salt_of,
    },
    survey::{Damage, Surveyed},
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

/// Shows what stands behind the end of the sound part, in order, and what is missing in between.
pub(crate) struct Listing<'a> {
    next: Position,
    each: EachDropped<'a>,
}

impl<'a> Listing<'a> {
    /// The sound part ends before `next`.
    pub(crate) fn new(next: Position, each: EachDropped<'a>) -> Self {
        Self { next, each }
    }

    /// Goes through one file from `offset` on.
    pub(crate) fn file(
        &mut self,
        name: &str,
        file: &dyn DiskFile,
        salt: u32,
        offset: u64,
    ) -> io::Result<()> {
        whole_frames(file, salt, offset, self.next, &mut |frame| {
            let (offset, position) = (frame.offset, frame.header.position);
            // A frame behind another tail of the same file: it never followed the ones before it.
            if position < self.next {
                return ControlFlow::Continue(());
            }
            if position > self.next {
                (self.each)(Dropped::Unreadable { from: self.next, to: Some(position) });
            }
            self.next = position.next();
            (self.each)(Dropped::Record { file: name.to_owned(), offset, stored: frame.stored() });
            ControlFlow::Continue(())
        })
    }

    /// Nothing follows. `known` records are known to have been there.
    pub(crate) fn end(self, known: Option<Position>) {
        let to = known.filter(|known| *known > self.next);
        if to.is_some() {
            (self.each)(Dropped::Unreadable { from: self.next, to });
        }
    }
}

/// Lists what a repair of this damage takes out of the log.
pub(crate) fn list_dropped(
    disk: &dyn Disk,
    last: Option<&Surveyed>,
    damage: &Damage,
    known: Option<Position>,
    each: EachDropped<'_>,
) -> io::Result<()> {
    let mut listing = Listing::new(damage.position, each);
    if let Some(segment) = last.filter(|segment| segment.name == damage.file) {
        listing.file(&segment.name, &*segment.file, segment.header.salt, segment.end)?;
    }
    let whole = (damage.offset == 0).then_some(&damage.file);
    for name in whole.into_iter().chain(&damage.behind) {
        let file: Arc<dyn DiskFile> = match disk.open(name, false) {
            Ok(file) => file,
            // That it is missing is the damage.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let mut header = [0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut header, 0)?;
        // Of a damaged header this may still be right: then the frames' checksums fit.
        listing.file(name, &*file, salt_of(&header), SEGMENT_HEADER_BYTES as u64)?;
    }
    listing.end(known);
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

/// Looks behind the end of the last segment. Shows the records there.
pub(crate) fn torn_tail(segment: &Surveyed, each: EachDropped<'_>) -> io::Result<Option<TornTail>> {
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
        each(dropped);
    };
    let mut listing = Listing::new(position, &mut count);
    listing.file(&segment.name, &*segment.file, segment.header.salt, offset)?;
    listing.end(Some(position.next()));
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
