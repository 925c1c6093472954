//! Parts of a record that carry a checksum of their own, so that damage to nothing but them can be
//! distinguished from damage to the record.
//!
//! A frame's checksum covers the whole record: one bad bit anywhere, and nothing in it is proven.
//! But CRCs can be combined. The writer of the records may name ranges of bytes and the checksums
//! that they had; with these in place of the bytes as they are now, the checksum of the whole as it
//! was can be computed. If it fits, all bytes outside the ranges are proven as strictly as ever,
//! including the lengths and checksums of the ranges. That costs nothing when a record is written
//! or read sound, and it works on every existing folder.

/// A range of a record's bytes and the CRC-32C it had when it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckedPart {
    /// Where in the record it begins.
    pub offset: u32,
    /// How many bytes.
    pub len: u32,
    /// Their checksum.
    pub crc: u32,
}

/// Names the parts of a record that may be damaged without the rest being worthless, in order and
/// without overlap.
///
/// It is called with damaged records, so it MUST take any bytes. Its answer is believed only if the
/// frame's checksum confirms it.
pub type PartsOf = fn(&[u8]) -> Vec<CheckedPart>;

/// For records that are either whole or worthless.
#[must_use]
pub fn no_parts(_record: &[u8]) -> Vec<CheckedPart> {
    Vec::new()
}

/// The CRC-32C of `bytes`, seeded, as it was when all `parts` had the checksums they are said to
/// have had. `None` when they are not inside `bytes`, in order.
pub(crate) fn checksum_as_written(seed: u32, bytes: &[u8], parts: &[CheckedPart]) -> Option<u32> {
    let mut crc = seed;
    let mut at = 0;
    for part in parts {
        let start = part.offset as usize;
        let end = start.checked_add(part.len as usize).filter(|end| *end <= bytes.len())?;
        crc = crc32c::crc32c_append(crc, bytes.get(at..start)?);
        crc = crc32c::crc32c_combine(crc, part.crc, part.len as usize);
        at = end;
    }
    Some(crc32c::crc32c_append(crc, bytes.get(at..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: &[u8], offset: u32, len: u32) -> CheckedPart {
        let range = offset as usize..(offset + len) as usize;
        CheckedPart { offset, len, crc: crc32c::crc32c(&bytes[range]) }
    }

    #[test]
    fn parts_stand_for_bytes_that_changed_and_for_no_others() {
        let written: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let parts = [part(&written, 3, 0), part(&written, 10, 300), part(&written, 310, 690)];
        let whole = crc32c::crc32c_append(77, &written);
        assert_eq!(checksum_as_written(77, &written, &parts), Some(whole));
        let mut rotten = written.clone();
        rotten[200] ^= 1;
        rotten[999] ^= 0x80;
        assert_eq!(checksum_as_written(77, &rotten, &parts), Some(whole));
        rotten[9] ^= 4;
        assert_ne!(checksum_as_written(77, &rotten, &parts), Some(whole));
    }

    #[test]
    fn parts_that_lie_about_themselves_prove_nothing() {
        let bytes = [7; 100];
        let sound = part(&bytes, 20, 30);
        for parts in [
            vec![CheckedPart { len: 81, ..sound }],
            vec![CheckedPart { offset: u32::MAX, len: u32::MAX, ..sound }],
            vec![sound, CheckedPart { offset: 49, ..sound }],
        ] {
            assert_eq!(checksum_as_written(0, &bytes, &parts), None, "{parts:?}");
        }
        let wrong = CheckedPart { crc: !sound.crc, ..sound };
        assert_ne!(checksum_as_written(0, &bytes, &[wrong]), Some(crc32c::crc32c(&bytes)));
    }
}
