//! Reads the frames of one segment in order, in large steps, checking each once.

use std::{io, sync::Arc};

use bytes::{Bytes, BytesMut};

use crate::{
    contract::{Position, Stored},
    disk::DiskFile,
    frame::{
        Announced, FRAME_HEADER_BYTES, FrameHeader, announced, decode_damaged_frame, decode_frame,
        frame_bytes,
    },
    parts::PartsOf,
};

const CHUNK_BYTES: usize = 1024 * 1024;
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// What the frame that comes next must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) position: Position,
    /// The CRC of the frame before, where it is known and matters.
    pub(crate) prev_crc: Option<u32>,
}

/// A frame that is what was expected.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) epoch: u64,
    pub(crate) crc: u32,
    /// Where the frame begins in the file, and its payload's length.
    pub(crate) start: u64,
    pub(crate) payload_bytes: usize,
    /// Parts of the payload are damaged, and nothing else is.
    pub(crate) damaged: bool,
}

/// Why there is no such frame.
#[derive(Debug)]
pub(crate) enum NoFrame {
    /// The bytes are not it.
    Bad(&'static str),
    Failed(io::Error),
}

impl From<io::Error> for NoFrame {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// The source of a segment's bytes, which are asked for in order.
pub(crate) trait Source {
    /// Reads into `buffer` from `offset`; fewer bytes than asked for only at the end of the file.
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for Arc<dyn DiskFile> {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        DiskFile::read_at(&**self, buffer, offset)
    }
}

struct Decoded {
    header: FrameHeader,
    crc: u32,
    payload_bytes: usize,
    damaged: bool,
}

/// Walks over a segment's frames.
///
/// The buffer is shared with the payloads handed out; it is used again when they are gone by the
/// time of the next read, and replaced when they are not.
pub(crate) struct Frames<S> {
    source: S,
    salt: u32,
    parts_of: PartsOf,
    buffer: Bytes,
    /// The file offset of the buffer's first byte.
    buffer_start: u64,
    /// How many of the buffer's bytes are the file's.
    filled: usize,
    /// Where the next frame begins.
    offset: u64,
    /// Frames end at or before this.
    limit: u64,
}

impl<S: Source> Frames<S> {
    pub(crate) fn new(
        source: S,
        salt: u32,
        (offset, limit): (u64, u64),
        parts_of: PartsOf,
    ) -> Self {
        let buffer = Bytes::new();
        Self { source, salt, parts_of, buffer, buffer_start: offset, filled: 0, offset, limit }
    }

    /// Where the next frame begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes the next frame, or stays before it when it is not as expected.
    pub(crate) fn take(&mut self, expected: Expected) -> Result<Frame, NoFrame> {
        let start = self.offset;
        let Decoded { header, crc, payload_bytes, damaged } = self.decode()?;
        if header.position != expected.position {
            return Err(NoFrame::Bad("the frame is of another position"));
        }
        if expected.prev_crc.is_some_and(|prev_crc| prev_crc != header.prev_crc) {
            return Err(NoFrame::Bad("the frame does not follow the one before it"));
        }
        self.offset += frame_bytes(payload_bytes) as u64;
        Ok(Frame { epoch: header.epoch, crc, start, payload_bytes, damaged })
    }

    fn decode(&mut self) -> Result<Decoded, NoFrame> {
        let room = usize::try_from(self.limit.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if room < FRAME_HEADER_BYTES {
            return Err(NoFrame::Bad("the segment ends here"));
        }
        let bytes = self.want(FRAME_HEADER_BYTES)?;
        let Announced::Payload(payload_bytes) = announced(bytes) else {
            return Err(NoFrame::Bad("there is no frame"));
        };
        if FRAME_HEADER_BYTES + payload_bytes > room {
            return Err(NoFrame::Bad("the frame is longer than the segment"));
        }
        let (salt, parts_of) = (self.salt, self.parts_of);
        let bytes = self.want(FRAME_HEADER_BYTES + payload_bytes)?;
        if let Some((header, crc)) = decode_frame(bytes, salt, payload_bytes) {
            return Ok(Decoded { header, crc, payload_bytes, damaged: false });
        }
        let parts = parts_of(&bytes[FRAME_HEADER_BYTES..]);
        let (header, crc) = decode_damaged_frame(bytes, salt, payload_bytes, &parts)
            .ok_or(NoFrame::Bad("the frame's checksum does not match"))?;
        Ok(Decoded { header, crc, payload_bytes, damaged: true })
    }

    /// The record in the frame that was just taken, its bytes a slice of the buffer.
    pub(crate) fn stored(&self, position: Position, frame: &Frame) -> Stored {
        let start = (frame.start - self.buffer_start) as usize + FRAME_HEADER_BYTES;
        let bytes = self.buffer.slice(start..start + frame.payload_bytes);
        Stored { position, epoch: frame.epoch, bytes, damaged: frame.damaged }
    }

    /// Whether nothing but zeros is left. Reads all of it: no frame can be taken afterwards.
    pub(crate) fn ends_in_zeros(&mut self) -> io::Result<bool> {
        while self.offset < self.limit {
            let step = usize::try_from(self.limit - self.offset).unwrap_or(usize::MAX);
            if self.want(step.min(ZEROS.len()))? != &ZEROS[..step.min(ZEROS.len())] {
                return Ok(false);
            }
            self.offset += step.min(ZEROS.len()) as u64;
        }
        Ok(true)
    }

    /// The file's next `count` bytes; zeros stand for what lies beyond its end.
    fn want(&mut self, count: usize) -> io::Result<&[u8]> {
        let at = (self.offset - self.buffer_start) as usize;
        if self.filled < at + count {
            self.refill(count)?;
        }
        let at = (self.offset - self.buffer_start) as usize;
        Ok(&self.buffer[at..at + count])
    }

    fn refill(&mut self, count: usize) -> io::Result<()> {
        let at = ((self.offset - self.buffer_start) as usize).min(self.filled);
        let kept = self.filled - at;
        let room = usize::try_from(self.limit - self.offset).unwrap_or(usize::MAX);
        let whole = count.max(CHUNK_BYTES.min(room));
        let mut buffer = match std::mem::take(&mut self.buffer).try_into_mut() {
            Ok(mut own) if own.len() >= whole => {
                own.copy_within(at..self.filled, 0);
                own
            }
            Ok(old) => grown(&old[at..self.filled], whole),
            Err(shared) => grown(&shared[at..self.filled], whole),
        };
        let from = self.offset + kept as u64;
        let end = buffer.len().min(room);
        let read = self.source.read_at(&mut buffer[kept..end], from);
        // Beyond the file's end old bytes of the buffer must not pass for the file's.
        let filled = kept + *read.as_ref().unwrap_or(&0);
        if filled < count {
            buffer[filled..count].fill(0);
        }
        self.buffer = buffer.freeze();
        self.buffer_start = self.offset;
        self.filled = filled;
        read.map(|_| ())
    }
}

fn grown(kept: &[u8], whole: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(whole);
    buffer[..kept.len()].copy_from_slice(kept);
    buffer
}
