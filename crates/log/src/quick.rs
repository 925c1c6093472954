//! A look at a folder that a server may be working on: whether its segments are there and begin as
//! they should, and what the newest record is.

use std::sync::Arc;

use crate::{
    bounds::BOUNDS_FILE,
    contract::{Position, Stored},
    disk::{Disk, DiskFile},
    folder::{FileKind, OpenError, file_kind, segment_name},
    frame::{SEGMENT_HEADER_BYTES, SegmentHeader},
    parts::PartsOf,
    scan::{Expected, Frames, NoFrame},
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
    /// The first thing that is wrong: the file, and what it is.
    pub wrong: Option<(String, &'static str)>,
}

/// Looks at a folder. [`verify`](crate::verify) is what reads all of it.
pub fn quick_look(disk: &dyn Disk, parts_of: PartsOf) -> Result<QuickLook, OpenError> {
    let (mut firsts, mut has_bounds) = (Vec::new(), false);
    for name in disk.list().map_err(OpenError::failed(disk, "list", ""))? {
        match file_kind(&name) {
            FileKind::Segment(first) => firsts.push(first),
            FileKind::Bounds => has_bounds = true,
            FileKind::Restoring => return Err(OpenError::Unfinished { folder: disk.folder() }),
            _ => {}
        }
    }
    firsts.sort_unstable();
    let mut look = QuickLook { segments: firsts.len(), ..QuickLook::default() };
    for &first in firsts.iter().rev() {
        let name = segment_name(first);
        // A server may have dropped it meanwhile.
        let Ok(file) = disk.open(&name, false) else { continue };
        let failed = OpenError::failed(disk, "read", &name);
        let seen = see(&file, first, look.newest.is_none(), parts_of).map_err(failed)?;
        look.bytes += seen.bytes;
        look.newest = look.newest.or(seen.newest);
        if let Some(reason) = seen.wrong {
            look.wrong = Some((name, reason));
        } else if seen.keeps_bounds && !has_bounds {
            look.wrong = Some((BOUNDS_FILE.to_owned(), "it is missing"));
        }
    }
    Ok(look)
}

#[derive(Default)]
struct Seen {
    bytes: u64,
    newest: Option<Stored>,
    keeps_bounds: bool,
    wrong: Option<&'static str>,
}

fn see(
    file: &Arc<dyn DiskFile>,
    first: Position,
    reads: bool,
    parts_of: PartsOf,
) -> std::io::Result<Seen> {
    let mut seen = Seen { bytes: file.len()?, ..Seen::default() };
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    file.read_at(&mut bytes, 0)?;
    let Ok(header) = SegmentHeader::decode(&bytes) else {
        seen.wrong = Some("it does not begin like a segment of this release");
        return Ok(seen);
    };
    seen.keeps_bounds = header.keeps_bounds;
    if header.first != first {
        seen.wrong = Some("the file's name and its header name different positions");
    }
    if !reads {
        return Ok(seen);
    }
    let range = (SEGMENT_HEADER_BYTES as u64, seen.bytes);
    let mut frames = Frames::new(file.clone(), header.salt, range, parts_of);
    let mut expected = Expected { position: header.first, prev_crc: Some(header.prev_crc) };
    loop {
        match frames.take(expected) {
            Ok(frame) => {
                seen.newest = Some(frames.stored(expected.position, &frame));
                let position = expected.position.next();
                expected = Expected { position, prev_crc: Some(frame.crc) };
            }
            // The end, as far as can be seen beside a server that writes.
            Err(NoFrame::Bad(_)) => return Ok(seen),
            Err(NoFrame::Failed(error)) => return Err(error),
        }
    }
}
