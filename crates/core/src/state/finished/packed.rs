//! The numbers of 128 jobs, each in as many bits as the differences among them need (a frame of
//! reference, as in column stores). Exact, whatever the numbers are.

use super::job::{COLUMNS, Column};

/// How many jobs are packed together.
pub const ROWS: usize = 128;

/// What may be read beyond the last number: as much as is read at once.
const SPARE: usize = size_of::<u128>();

#[derive(Debug, Clone)]
pub struct Packed {
    /// The least number of each column. The bits have how far a number is above it.
    least: [u64; COLUMNS],
    /// Where in the bits of a job a column begins, as if they stood row by row; the last one is where
    /// they end. The columns lie one behind the other, so each begins at a byte.
    starts: [u16; COLUMNS + 1],
    bits: Box<[u8]>,
}

impl Packed {
    pub fn new(rows: &[[u64; COLUMNS]; ROWS]) -> Packed {
        let mut least = [0; COLUMNS];
        let mut starts = [0; COLUMNS + 1];
        for column in 0..COLUMNS {
            let numbers = || rows.iter().map(|row| row[column]);
            least[column] = numbers().min().unwrap_or_default();
            let range = numbers().max().unwrap_or_default() - least[column];
            starts[column + 1] = starts[column] + (u64::BITS - range.leading_zeros()) as u16;
        }
        let len = usize::from(starts[COLUMNS]) * ROWS / 8 + SPARE;
        let mut packed = Packed { least, starts, bits: vec![0; len].into() };
        for (row, numbers) in rows.iter().enumerate() {
            for column in 0..COLUMNS {
                packed.put(row, column, numbers[column] - least[column]);
            }
        }
        packed
    }

    /// The byte in which a number begins, the bit in that byte, and how many bits it has.
    #[inline]
    fn place(&self, row: usize, column: usize) -> (usize, usize, u32) {
        let start = usize::from(self.starts[column]);
        let width = usize::from(self.starts[column + 1]) - start;
        let bit = start * ROWS + row * width;
        (bit / 8, bit % 8, width as u32)
    }

    #[inline]
    fn word(&self, byte: usize) -> u128 {
        let mut word = [0; SPARE];
        word.copy_from_slice(&self.bits[byte..byte + SPARE]);
        u128::from_le_bytes(word)
    }

    fn put(&mut self, row: usize, column: usize, above: u64) {
        let (byte, bit, _) = self.place(row, column);
        let word = self.word(byte) | u128::from(above) << bit;
        self.bits[byte..byte + SPARE].copy_from_slice(&word.to_le_bytes());
    }

    #[inline]
    pub fn number(&self, row: usize, column: Column) -> u64 {
        let column = column as usize;
        let (byte, bit, width) = self.place(row, column);
        let above = (self.word(byte) >> bit) as u64 & ((1u128 << width) - 1) as u64;
        self.least[column] + above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_width_are_read_as_they_were_packed() {
        let mut draw = 1u64;
        for spread in 0..=u64::BITS {
            let mut rows = [[0; COLUMNS]; ROWS];
            for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |c| (row, c))) {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
                // Each column has its own width, and a different one each time.
                let width = (spread + column as u32 * 7) % (u64::BITS + 1);
                let above = draw.rotate_left(20).checked_shr(u64::BITS - width).unwrap_or(0);
                let least = u64::MAX.checked_shl(width).unwrap_or(0);
                rows[row][column] = if row % 2 == 0 { least | above } else { least };
            }
            let packed = Packed::new(&rows);
            for (row, numbers) in rows.iter().enumerate() {
                assert_eq!(
                    &Column::ALL.map(|column| packed.number(row, column)),
                    numbers,
                    "{spread}"
                );
            }
        }
    }

    #[test]
    fn equal_numbers_take_no_bits_and_the_widest_all() {
        let equal = Packed::new(&[[u64::MAX; COLUMNS]; ROWS]);
        assert_eq!((equal.bits.len(), equal.number(127, Column::Kind)), (SPARE, u64::MAX));
        let mut rows = [[0; COLUMNS]; ROWS];
        rows[127] = [u64::MAX; COLUMNS];
        let widest = Packed::new(&rows);
        assert_eq!(widest.bits.len(), ROWS * COLUMNS * 8 + SPARE);
        assert_eq!(
            (widest.number(126, Column::Kind), widest.number(127, Column::Id)),
            (0, u64::MAX)
        );
    }
}
