//! The bytes of a segment file, and nothing else. All numbers are little-endian.
//!
//! ```text
//! segment  | header (64) | frame | frame | frame | zeros, or bytes of an older life of the file
//!
//! header   0 magic "SPINDLE\n"   8 version u32   12 salt u32   16 first position u64
//!          24 CRC of the frame before the first u32   28 flags u32: 1 the folder has the file `bounds`
//!          32 zeros   60 CRC-32C of bytes 0..60
//!
//! frame    0 CRC-32C, seeded with the segment's salt, of all that follows u32
//!          4 payload bytes u32   8 position u64   16 epoch u64
//!          24 synced up to u64   32 CRC of the previous frame u32   36 marker u32
//!          40 payload, then zeros up to the next multiple of 8
//! ```
//!
//! What each field protects against:
//!
//! - the *salt* is random and new whenever a file begins a new life. Frames of an earlier life can
//!   not pass, so a recycled file needs no zeroing; nor can bytes from outside that look like a
//!   frame, which would otherwise be found when a reader searches past damage.
//! - the *CRC of the previous frame* chains the frames: one that was written behind another tail
//!   does not fit. The header continues the chain from the segment before.
//! - the *flag* is set in segments that were begun when the file `bounds` was there, durably. So a
//!   folder that has lost the file is not taken for one of a release that knew no such file. The
//!   first segment of a new folder is older than its bounds. A segment of an older release has
//!   zeros there, and a release that knows no flags ignores them.
//! - *synced up to*: all positions below it were durable before this frame was written. So when a
//!   frame is bad, a good one behind it shows whether this is damage (the bad one had been durable)
//!   or the tail that a crash tore (it had not).

use crate::{
    contract::Position,
    parts::{CheckedPart, checksum_as_written},
};

pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
pub(crate) const FRAME_HEADER_BYTES: usize = 40;
pub(crate) const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"SPINDLE\n";
const KEEPS_BOUNDS: u32 = 1;
const MARKER: u32 = 0x5d6b_c37e;
const ALIGN: usize = 8;
/// Where a frame has the CRC of the one before it.
pub(crate) const PREV_CRC_AT: usize = 32;

/// The first bytes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) salt: u32,
    pub(crate) first: Position,
    pub(crate) prev_crc: u32,
    /// The folder has the file of the bounds since this segment, or longer.
    pub(crate) keeps_bounds: bool,
}

/// Why a segment header can not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadHeader {
    Magic,
    Version(u32),
    Checksum,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.prev_crc.to_le_bytes());
        let flags = if self.keeps_bounds { KEEPS_BOUNDS } else { 0 };
        bytes[28..32].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<Self, BadHeader> {
        // The checksum first: with it right, an unknown version is one from the future, and with
        // it wrong a magic that fits says that the file was ours once.
        let sound = u32_at(bytes, 60) == crc32c::crc32c(&bytes[..60]);
        if bytes[..8] != MAGIC {
            return Err(BadHeader::Magic);
        }
        let version = u32_at(bytes, 8);
        if !sound {
            return Err(BadHeader::Checksum);
        }
        if version != FORMAT_VERSION {
            return Err(BadHeader::Version(version));
        }
        Ok(Self {
            salt: u32_at(bytes, 12),
            first: Position(u64_at(bytes, 16)),
            prev_crc: u32_at(bytes, 24),
            keeps_bounds: u32_at(bytes, 28) & KEEPS_BOUNDS != 0,
        })
    }
}

/// The salt that the first bytes of a segment name, sound or not.
pub(crate) fn salt_of(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
    u32_at(bytes, 12)
}

/// A frame without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) position: Position,
    pub(crate) epoch: u64,
    pub(crate) synced_upto: Position,
    pub(crate) prev_crc: u32,
}

/// How many bytes a payload takes as a frame.
pub(crate) fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN)
}

/// Appends a frame and says its CRC.
pub(crate) fn encode_frame(
    to: &mut Vec<u8>,
    salt: u32,
    header: FrameHeader,
    payload: &[u8],
) -> u32 {
    let start = to.len();
    to.reserve(frame_bytes(payload.len()));
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    to.extend_from_slice(&header.position.0.to_le_bytes());
    to.extend_from_slice(&header.epoch.to_le_bytes());
    to.extend_from_slice(&header.synced_upto.0.to_le_bytes());
    to.extend_from_slice(&header.prev_crc.to_le_bytes());
    to.extend_from_slice(&MARKER.to_le_bytes());
    to.extend_from_slice(payload);
    let crc = crc32c::crc32c_append(salt, &to[start + 4..]);
    to[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    to.resize(start + frame_bytes(payload.len()), 0);
    crc
}

/// What the first bytes of a frame say about its length, before anything is proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// No frame begins here.
    Nothing,
    /// One with this many payload bytes may.
    Payload(usize),
}

/// Looks at the first [`FRAME_HEADER_BYTES`] of what may be a frame.
pub(crate) fn announced(bytes: &[u8]) -> Announced {
    if bytes.len() < FRAME_HEADER_BYTES || u32_at(bytes, 36) != MARKER {
        return Announced::Nothing;
    }
    Announced::Payload(u32_at(bytes, 4) as usize)
}

/// Where in these bytes a frame may begin: the aligned places with the marker of one. Looks at the
/// marker's word alone, because a search past the end of a log goes over a whole segment.
pub(crate) fn marked_places(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    const BEFORE: usize = FRAME_HEADER_BYTES - ALIGN;
    let (words, _) = bytes.get(BEFORE..).unwrap_or_default().as_chunks::<ALIGN>();
    let is_marked = |word: &[u8; ALIGN]| (u64::from_le_bytes(*word) >> 32) as u32 == MARKER;
    let mut next = 0;
    std::iter::from_fn(move || {
        let nth = next + words[next..].iter().position(is_marked)?;
        next = nth + 1;
        Some(nth * ALIGN)
    })
}

/// The CRC a frame begins with.
pub(crate) fn frame_crc(bytes: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*bytes)
}

/// The position a frame claims to have, before anything is proven.
pub(crate) fn claimed_position(bytes: &[u8]) -> Position {
    Position(u64_at(bytes, 8))
}

/// Reads a frame whose header and payload begin `bytes`; `None` when the CRC does not match.
pub(crate) fn decode_frame(
    bytes: &[u8],
    salt: u32,
    payload_bytes: usize,
) -> Option<(FrameHeader, u32)> {
    let covered = bytes.get(4..FRAME_HEADER_BYTES + payload_bytes)?;
    let crc = crc32c::crc32c_append(salt, covered);
    (crc == u32_at(bytes, 0)).then(|| (header(bytes), crc))
}

/// As [`decode_frame`], for a frame whose CRC does not match: `parts` of its payload stand for what
/// their bytes were. With a frame that is given back, nothing but those parts is damaged.
pub(crate) fn decode_damaged_frame(
    bytes: &[u8],
    salt: u32,
    payload_bytes: usize,
    parts: &[CheckedPart],
) -> Option<(FrameHeader, u32)> {
    if parts.is_empty() {
        return None;
    }
    let (head, payload) =
        bytes.get(4..FRAME_HEADER_BYTES + payload_bytes)?.split_at(FRAME_HEADER_BYTES - 4);
    let crc = checksum_as_written(crc32c::crc32c_append(salt, head), payload, parts)?;
    (crc == u32_at(bytes, 0)).then(|| (header(bytes), crc))
}

fn header(bytes: &[u8]) -> FrameHeader {
    FrameHeader {
        position: Position(u64_at(bytes, 8)),
        epoch: u64_at(bytes, 16),
        synced_upto: Position(u64_at(bytes, 24)),
        prev_crc: u32_at(bytes, PREV_CRC_AT),
    }
}

/// Where a frame is in its segment, in four bytes: frames begin at multiples of 8, so the low
/// bits are free for the number of padding bytes, and the next frame's start gives the length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameSpot(u32);

impl FrameSpot {
    pub(crate) fn new(start: u32, payload_bytes: usize) -> Self {
        debug_assert!((start as usize).is_multiple_of(ALIGN));
        let padding = frame_bytes(payload_bytes) - FRAME_HEADER_BYTES - payload_bytes;
        Self(start | padding as u32)
    }

    pub(crate) fn start(self) -> u32 {
        self.0 & !(ALIGN as u32 - 1)
    }

    /// The payload's length, given where the frame ends.
    pub(crate) fn payload_bytes(self, end: u32) -> u32 {
        end - self.start() - FRAME_HEADER_BYTES as u32 - (self.0 & (ALIGN as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header =
            FrameHeader { position: Position(7), epoch: 3, synced_upto: Position(5), prev_crc: 99 };
        encode_frame(&mut bytes, 0x1234, header, payload);
        bytes
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        for len in 0..40 {
            let payload = vec![0xa5; len];
            let bytes = frame(&payload);
            assert_eq!(bytes.len() % 8, 0);
            assert_eq!(announced(&bytes), Announced::Payload(len));
            let (header, _) = decode_frame(&bytes, 0x1234, len).expect("sound");
            assert_eq!((header.position, header.epoch), (Position(7), 3));
            assert_eq!((header.synced_upto, header.prev_crc), (Position(5), 99));
            let spot = FrameSpot::new(64, len);
            assert_eq!(spot.start(), 64);
            assert_eq!(spot.payload_bytes(64 + bytes.len() as u32), len as u32);
        }
    }

    #[test]
    fn frames_are_found_wherever_they_may_begin_and_only_there() {
        let one = frame(b"payload");
        for before in [0, 8, 16, 4096] {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(&one);
            let second = bytes.len();
            bytes.extend_from_slice(&one);
            assert_eq!(marked_places(&bytes).collect::<Vec<_>>(), [before, second]);
            bytes.truncate(second + FRAME_HEADER_BYTES);
            assert_eq!(marked_places(&bytes).count(), 2, "as soon as its header is whole");
            bytes.truncate(second + FRAME_HEADER_BYTES - 1);
            assert_eq!(marked_places(&bytes).count(), 1);
            bytes.insert(0, 0);
            assert_eq!(marked_places(&bytes).count(), 0, "not between the places");
        }
        assert_eq!(marked_places(&[7; 20]).count(), 0);
    }

    #[test]
    fn every_flipped_bit_but_padding_is_noticed() {
        let sound = frame(b"payload");
        for byte in 0..FRAME_HEADER_BYTES + 7 {
            for bit in 0..8 {
                let mut bytes = sound.clone();
                bytes[byte] ^= 1 << bit;
                let Announced::Payload(len) = announced(&bytes) else { continue };
                let payload_fits = FRAME_HEADER_BYTES + len <= bytes.len();
                assert!(!payload_fits || decode_frame(&bytes, 0x1234, len).is_none());
            }
        }
    }

    #[test]
    fn a_frame_of_another_life_of_the_file_is_no_frame() {
        assert!(decode_frame(&frame(b"payload"), 0x1235, 7).is_none());
    }

    #[test]
    fn zeros_are_no_frame_and_no_header() {
        assert_eq!(announced(&[0; 64]), Announced::Nothing);
        assert_eq!(SegmentHeader::decode(&[0; 64]), Err(BadHeader::Magic));
    }

    #[test]
    fn a_segment_header_reads_back_and_notices_damage() {
        let header =
            SegmentHeader { salt: 5, first: Position(900), prev_crc: 77, keeps_bounds: true };
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        for byte in 8..SEGMENT_HEADER_BYTES {
            let mut bytes = header.encode();
            bytes[byte] ^= 0x10;
            assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Checksum));
        }
    }
}
