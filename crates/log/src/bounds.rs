//! Where a log must begin and end: a small file beside the segments, so that the loss of a segment is noticed.
//!
//! The file has two slots, each in a block of the disk of its own, which are written in turn: a write that a crash tears
//! leaves the other one. It is never made longer, so that a trim needs no room on a full disk. All numbers are
//! little-endian.
//!
//! Where only one slot is sound, a crash may have torn the other one, and then nothing was done yet that it would have
//! allowed: the sound one is right. Or the other one has rotted, which was the newer one: then the sound one is
//! outdated. It is believed as long as the folder does not contradict it.
//!
//! ```text
//! file     | slot 0 (64), zeros up to 4096 | slot 1 (64), zeros up to 8192
//!
//! slot     0 magic "SPINBND\n"   8 version u32   12 flags u32: 1 the log was ended in order
//!          16 sequence u64: the slot with the higher one holds   24 first u64
//!          32 newest u64   40 reached u64   48 CRC of the last frame u32   52 zeros
//!          60 CRC-32C of bytes 0..60
//! ```
//!
//! When it is written, always durably:
//!
//! - before a trim removes anything: with the `first` that is left. Segments before it were left by a crash during the
//!   trim, and the next opening removes them;
//! - after a segment got its name: with it as the `newest`; if a crash came in between, the next opening does this;
//! - at an orderly end, when everything else is durable: with the end;
//! - before the first append after that: without the end. So an end is never believed after a crash.

use std::{io, sync::Arc};

use crate::{
    contract::Position,
    disk::{BLOCK_BYTES, Disk, DiskFile},
    folder::{OpenError, filling_name, path},
};

/// The name of the file.
pub(crate) const BOUNDS_FILE: &str = "bounds";

const MAGIC: [u8; 8] = *b"SPINBND\n";
/// The version of its format.
pub const VERSION: u32 = 1;
const ENDED: u32 = 1;
const SLOT_BYTES: usize = 64;
const SLOTS: u64 = 2;
const SLOT_STEP: u64 = BLOCK_BYTES as u64;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    /// The position that the oldest segment begins with.
    pub(crate) first: Position,
    /// The position that the newest segment begins with, or a later one does.
    pub(crate) newest: Position,
    /// The log had all records below this.
    pub(crate) reached: Position,
    /// The log was ended in order: it ends at `reached`, behind a frame with this CRC.
    pub(crate) end: Option<u32>,
}

/// The file, open.
pub(crate) struct BoundsFile {
    file: Arc<dyn DiskFile>,
    sequence: u64,
    pub(crate) bounds: Bounds,
    /// The other slot is not sound, and it was written once.
    pub(crate) is_alone: bool,
}

/// What a folder has of it.
pub(crate) enum Found {
    /// No such file: the folder is new, or of a release that wrote none.
    Missing,
    /// Neither slot is sound, which no crash does.
    Damaged,
    Sound(BoundsFile),
}

fn u64_at(bytes: &[u8; SLOT_BYTES], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

fn u32_at(bytes: &[u8; SLOT_BYTES], at: usize) -> u32 {
    u64_at(bytes, at) as u32
}

impl Bounds {
    /// The log has all records below this. It may have more by now, if another thread has noted
    /// them.
    pub(crate) fn reach(&mut self, upto: Position) {
        self.reached = self.reached.max(upto);
    }

    fn encode(self, sequence: u64) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.end.map_or(0, |_| ENDED).to_le_bytes());
        let positions = [sequence, self.first.0, self.newest.0, self.reached.0];
        for (nth, number) in positions.into_iter().enumerate() {
            bytes[16 + 8 * nth..24 + 8 * nth].copy_from_slice(&number.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(&self.end.unwrap_or(0).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What a slot says, with its version, if it is sound.
    fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<(u64, u32, Self)> {
        let mut crc = [0; 4];
        crc.copy_from_slice(&bytes[60..]);
        if bytes[..8] != MAGIC || u32::from_le_bytes(crc) != crc32c::crc32c(&bytes[..60]) {
            return None;
        }
        let bounds = Self {
            first: Position(u64_at(bytes, 24)),
            newest: Position(u64_at(bytes, 32)),
            reached: Position(u64_at(bytes, 40)),
            end: (u32_at(bytes, 12) & ENDED != 0).then(|| u32_at(bytes, 48)),
        };
        Some((u64_at(bytes, 16), u32_at(bytes, 8), bounds))
    }
}

impl BoundsFile {
    /// Reads the file of a folder. Changes nothing.
    pub(crate) fn find(disk: &dyn Disk, write: bool) -> Result<Found, OpenError> {
        let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
        if !names.iter().any(|name| name == BOUNDS_FILE) {
            return Ok(Found::Missing);
        }
        Self::read(disk, BOUNDS_FILE, write)
    }

    /// Reads such a file, of whatever name. Changes nothing.
    pub(crate) fn read(disk: &dyn Disk, name: &str, write: bool) -> Result<Found, OpenError> {
        let file = disk.open(name, write).map_err(OpenError::failed(disk, "open", name))?;
        let mut newest: Option<(u64, Bounds)> = None;
        let mut unsound: Option<[u8; SLOT_BYTES]> = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; SLOT_BYTES];
            file.read_at(&mut bytes, slot * SLOT_STEP)
                .map_err(OpenError::failed(disk, "read", name))?;
            let Some((sequence, version, bounds)) = Bounds::decode(&bytes) else {
                unsound = Some(bytes);
                continue;
            };
            if version != VERSION {
                let path = path(disk, name);
                return Err(OpenError::NewerVersion { path, found: version, supported: VERSION });
            }
            if newest.is_none_or(|(before, _)| before < sequence) {
                newest = Some((sequence, bounds));
            }
        }
        Ok(match newest {
            None => Found::Damaged,
            Some((sequence, bounds)) => {
                // The second slot of a new file is zeros until the first change.
                let is_new = |bytes: [u8; SLOT_BYTES]| sequence == 0 && bytes == [0; SLOT_BYTES];
                let is_alone = unsound.is_some_and(|bytes| !is_new(bytes));
                Found::Sound(Self { file, sequence, bounds, is_alone })
            }
        })
    }

    /// The file itself, to be copied.
    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// Makes the file, durable, with what it says first.
    pub(crate) fn create(disk: &dyn Disk, bounds: Bounds) -> io::Result<Self> {
        // The name comes when the bytes are there: a file of that name without a sound slot is damage.
        let filling = filling_name(u64::MAX);
        let file = disk.create(&filling)?;
        let created = Self { file, sequence: 0, bounds, is_alone: false };
        let made = created.fill().and_then(|()| disk.rename(&filling, BOUNDS_FILE));
        if let Err(error) = made {
            // The next opening would remove it anyway, but its space may be needed now.
            let _ = disk.remove(&filling);
            return Err(error);
        }
        disk.sync_folder()?;
        Ok(created)
    }

    fn fill(&self) -> io::Result<()> {
        self.file.write_zeros(0, SLOTS * SLOT_STEP)?;
        self.file.write_at(&self.bounds.encode(self.sequence), 0)?;
        self.file.sync()
    }

    /// Changes what the file says, durably. Does nothing if it says so already.
    pub(crate) fn change(&mut self, bounds: Bounds) -> io::Result<()> {
        if bounds == self.bounds {
            return Ok(());
        }
        self.write(bounds)
    }

    /// Makes durable what was read. If a process ended because a sync failed, the system may still show pages that are
    /// on no disk: a log that went on from such pages would be found ended again after a power cut.
    pub(crate) fn write_again(&mut self) -> io::Result<()> {
        self.write(self.bounds)
    }

    fn write(&mut self, bounds: Bounds) -> io::Result<()> {
        let sequence = self.sequence + 1;
        self.file.write_at(&bounds.encode(sequence), sequence % SLOTS * SLOT_STEP)?;
        self.file.sync()?;
        (self.sequence, self.bounds) = (sequence, bounds);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        first: Position(22),
        newest: Position(44),
        reached: Position(80),
        end: Some(0xfedc_ba98),
    };

    #[test]
    fn a_slot_reads_back_as_it_was_written() {
        for bounds in [BOUNDS, Bounds { end: None, ..BOUNDS }, Bounds::default()] {
            assert_eq!(Bounds::decode(&bounds.encode(9)), Some((9, VERSION, bounds)));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_slot_is_noticed() {
        for byte in 0..SLOT_BYTES {
            for bit in 0..8 {
                let mut bytes = BOUNDS.encode(9);
                bytes[byte] ^= 1 << bit;
                assert_eq!(Bounds::decode(&bytes), None, "byte {byte}, bit {bit}");
            }
        }
        assert_eq!(Bounds::decode(&[0; SLOT_BYTES]), None);
    }
}
