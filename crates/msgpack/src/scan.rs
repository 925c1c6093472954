//! One MessagePack value after the other, without building anything.

use crate::error::{DEPTH_MAX, WireError};

/// What begins at a place in MessagePack: a scalar whole, or the number of an array's or a map's
/// members, which follow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Head<'a> {
    /// nil
    Nil,
    /// false and true
    Bool(bool),
    /// All integers there are, signed or not.
    Int(i128),
    /// float 32 and float 64
    Float(f64),
    /// str: meant to be UTF-8, but nothing makes sure.
    Text(&'a [u8]),
    /// bin
    Bin(&'a [u8]),
    /// ext, with its type
    Ext(i8, &'a [u8]),
    /// array, so many values follow.
    Array(u32),
    /// map, so many pairs of values follow.
    Map(u32),
}

impl Head<'_> {
    /// How many values follow that belong to this one: a map's keys count too.
    pub fn members(self) -> u64 {
        match self {
            Head::Array(count) => u64::from(count),
            Head::Map(count) => 2 * u64::from(count),
            _ => 0,
        }
    }
}

/// Reads the head at the beginning of the bytes, and returns it with the bytes after it.
pub fn read_head(bytes: &[u8]) -> Result<(Head<'_>, &[u8]), WireError> {
    let mut at = Cursor(bytes);
    let marker = at.byte()?;
    let head = match marker {
        0x00..=0x7f => Head::Int(i128::from(marker)),
        0x80..=0x8f => Head::Map(u32::from(marker & 0x0f)),
        0x90..=0x9f => Head::Array(u32::from(marker & 0x0f)),
        0xa0..=0xbf => Head::Text(at.take(u32::from(marker & 0x1f))?),
        0xc0 => Head::Nil,
        0xc1 => return Err(WireError::Reserved),
        0xc2 => Head::Bool(false),
        0xc3 => Head::Bool(true),
        0xc4..=0xc6 => Head::Bin(at.counted(marker - 0xc4)?),
        0xc7..=0xc9 => {
            let len = at.len(marker - 0xc7)?;
            Head::Ext(i8::from_be_bytes(at.array()?), at.take(len)?)
        }
        0xca => Head::Float(f64::from(f32::from_be_bytes(at.array()?))),
        0xcb => Head::Float(f64::from_be_bytes(at.array()?)),
        0xcc => Head::Int(i128::from(at.byte()?)),
        0xcd => Head::Int(i128::from(u16::from_be_bytes(at.array()?))),
        0xce => Head::Int(i128::from(u32::from_be_bytes(at.array()?))),
        0xcf => Head::Int(i128::from(u64::from_be_bytes(at.array()?))),
        0xd0 => Head::Int(i128::from(i8::from_be_bytes(at.array()?))),
        0xd1 => Head::Int(i128::from(i16::from_be_bytes(at.array()?))),
        0xd2 => Head::Int(i128::from(i32::from_be_bytes(at.array()?))),
        0xd3 => Head::Int(i128::from(i64::from_be_bytes(at.array()?))),
        0xd4..=0xd8 => {
            let kind = i8::from_be_bytes(at.array()?);
            Head::Ext(kind, at.take(1 << (marker - 0xd4))?)
        }
        0xd9..=0xdb => Head::Text(at.counted(marker - 0xd9)?),
        0xdc => Head::Array(at.len(1)?),
        0xdd => Head::Array(at.len(2)?),
        0xde => Head::Map(at.len(1)?),
        0xdf => Head::Map(at.len(2)?),
        0xe0..=0xff => Head::Int(i128::from(i8::from_be_bytes([marker]))),
    };
    Ok((head, at.0))
}

/// How many bytes the value at the beginning takes. Never recurses: a value that nests a million
/// deep costs nothing but an error.
pub fn value_len(bytes: &[u8]) -> Result<usize, WireError> {
    let mut rest = bytes;
    // How many values are still to come, at each level that is open.
    let mut open: Vec<u64> = Vec::new();
    loop {
        let (head, behind) = read_head(rest)?;
        rest = behind;
        let members = head.members();
        if members > 0 {
            if open.len() == DEPTH_MAX {
                return Err(WireError::TooDeep);
            }
            open.push(members);
            continue;
        }
        // That value is complete, and with it every level of which it was the last.
        while let Some(left) = open.last_mut() {
            *left -= 1;
            if *left > 0 {
                break;
            }
            open.pop();
        }
        if open.is_empty() {
            return Ok(bytes.len() - rest.len());
        }
    }
}

/// Whether the bytes are one value and nothing else.
pub fn check(bytes: &[u8]) -> Result<(), WireError> {
    let len = value_len(bytes)?;
    match bytes.len() - len {
        0 => Ok(()),
        more => Err(WireError::Trailing(more)),
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(*array)
    }

    fn take(&mut self, len: u32) -> Result<&'a [u8], WireError> {
        let taken = self.0.split_at_checked(len as usize).ok_or(WireError::Truncated)?;
        self.0 = taken.1;
        Ok(taken.0)
    }

    /// A length of one, two or four bytes: widths 0, 1 and 2.
    fn len(&mut self, width: u8) -> Result<u32, WireError> {
        Ok(match width {
            0 => u32::from(self.byte()?),
            1 => u32::from(u16::from_be_bytes(self.array()?)),
            _ => u32::from_be_bytes(self.array()?),
        })
    }

    fn counted(&mut self, width: u8) -> Result<&'a [u8], WireError> {
        let len = self.len(width)?;
        self.take(len)
    }
}
