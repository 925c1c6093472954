//! Writing MessagePack, each value in its shortest form.

/// MessagePack under way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pack(Vec<u8>);

impl Pack {
    /// Nothing yet.
    pub fn new() -> Pack {
        Pack::default()
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A map; so many pairs have to follow.
    pub fn map(&mut self, count: u32) -> &mut Pack {
        match count {
            0..=15 => self.0.push(0x80 | count as u8),
            _ => self.counted(&[(0xde, 1), (0xdf, 2)], count),
        }
        self
    }

    /// An array; so many values have to follow.
    pub fn array(&mut self, count: u32) -> &mut Pack {
        match count {
            0..=15 => self.0.push(0x90 | count as u8),
            _ => self.counted(&[(0xdc, 1), (0xdd, 2)], count),
        }
        self
    }

    /// A text.
    pub fn text(&mut self, text: &str) -> &mut Pack {
        let len = len_of(text.as_bytes());
        match len {
            0..=31 => self.0.push(0xa0 | len as u8),
            _ => self.counted(&[(0xd9, 0), (0xda, 1), (0xdb, 2)], len),
        }
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Bytes.
    pub fn bin(&mut self, bytes: &[u8]) -> &mut Pack {
        self.counted(&[(0xc4, 0), (0xc5, 1), (0xc6, 2)], len_of(bytes));
        self.0.extend_from_slice(bytes);
        self
    }

    /// nil
    pub fn nil(&mut self) -> &mut Pack {
        self.0.push(0xc0);
        self
    }

    /// false or true
    pub fn bool(&mut self, value: bool) -> &mut Pack {
        self.0.push(0xc2 | u8::from(value));
        self
    }

    /// An integer from 0.
    pub fn uint(&mut self, value: u64) -> &mut Pack {
        let bytes = value.to_be_bytes();
        match value {
            0..=0x7f => self.0.push(value as u8),
            0x80..=0xff => self.tail(0xcc, &bytes, 1),
            0x100..=0xffff => self.tail(0xcd, &bytes, 2),
            0x1_0000..=0xffff_ffff => self.tail(0xce, &bytes, 4),
            _ => self.tail(0xcf, &bytes, 8),
        }
        self
    }

    /// An integer.
    pub fn int(&mut self, value: i64) -> &mut Pack {
        let bytes = value.to_be_bytes();
        match value {
            0.. => return self.uint(value as u64),
            -32..0 => self.0.push(value as u8),
            -0x80..-32 => self.tail(0xd0, &bytes, 1),
            -0x8000..-0x80 => self.tail(0xd1, &bytes, 2),
            -0x8000_0000..-0x8000 => self.tail(0xd2, &bytes, 4),
            _ => self.tail(0xd3, &bytes, 8),
        }
        self
    }

    /// A float 64.
    pub fn float(&mut self, value: f64) -> &mut Pack {
        self.0.push(0xcb);
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A value that is MessagePack already.
    pub fn raw(&mut self, value: &[u8]) -> &mut Pack {
        self.0.extend_from_slice(value);
        self
    }

    /// The last so many bytes of a number, after its marker.
    fn tail(&mut self, marker: u8, bytes: &[u8; 8], count: usize) {
        self.0.push(marker);
        self.0.extend(bytes.iter().skip(bytes.len() - count));
    }

    /// The first of these markers whose length has room for the count, and that length. Widths 0,
    /// 1 and 2 are one, two and four bytes.
    fn counted(&mut self, forms: &[(u8, u32)], count: u32) {
        for (marker, width) in forms {
            let bytes = 1usize << width;
            if bytes == 4 || u64::from(count) < 1 << (8 * bytes) {
                return self.tail(*marker, &u64::from(count).to_be_bytes(), bytes);
            }
        }
    }
}

/// Bodies, payloads and results are far below 4 GiB; what is longer is cut off nowhere else.
fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a body has less than 4 GiB")
}
