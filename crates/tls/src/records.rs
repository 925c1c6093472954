//! Where the records of TLS begin and end.

/// Follows where records begin and end (RFC 8446, 5.1): a header of five bytes, the last two of
/// which say how many follow.
#[derive(Debug, Default)]
pub struct Records {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    header_bytes: usize,
    /// Bytes of the record that are to come.
    left: usize,
}

impl Records {
    /// Follows these bytes, which come behind all that came before.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let count = bytes.len().min(HEADER_BYTES - self.header_bytes);
                let (head, rest) = bytes.split_at(count);
                self.header[self.header_bytes..][..count].copy_from_slice(head);
                self.header_bytes += count;
                bytes = rest;
                if self.header_bytes < HEADER_BYTES {
                    return;
                }
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                self.header_bytes = 0;
            }
            let count = bytes.len().min(self.left);
            bytes = &bytes[count..];
            self.left -= count;
        }
    }

    /// Whether a record has begun and not ended.
    pub fn is_mid_record(&self) -> bool {
        self.header_bytes > 0 || self.left > 0
    }
}

const HEADER_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_followed_however_they_are_cut() {
        let record = |len: u16| {
            let mut bytes = vec![0x17, 3, 3];
            bytes.extend(len.to_be_bytes());
            bytes.resize(HEADER_BYTES + usize::from(len), 0xee);
            bytes
        };
        let stream: Vec<u8> = [3, 0, 300, 1].into_iter().flat_map(record).collect();
        let ends = [8, 13, 318, 324];
        for step in [1, 2, 4, 5, 7, 319] {
            let mut records = Records::default();
            let mut passed = 0;
            for part in stream.chunks(step) {
                records.pass(part);
                passed += part.len();
                assert_eq!(records.is_mid_record(), !ends.contains(&passed), "{step} {passed}");
            }
        }
    }
}
