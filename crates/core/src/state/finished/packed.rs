//! The numbers of 128 jobs, each in as many bits as the differences among them need (a frame of
//! reference, as in column stores). Nothing is lost, whatever the numbers are.

use super::job::{COLUMNS, Column};

/// How many jobs are packed together.
pub const ROWS: usize = 128;

#[derive(Debug, Clone)]
pub struct Packed {
    /// The least number of each column. The bits say how far a number is above it.
    least: [u64; COLUMNS],
    /// How many bits a job has in the columns before each one, and in all. The columns lie one
    /// behind the other: as there are 128 jobs, each begins with a word.
    starts: [u16; COLUMNS + 1],
    /// The columns, followed by the words that are read together with the last one.
    words: Box<[u64]>,
}

/// Words of a column for each bit of its numbers.
const WORDS_PER_BIT: usize = ROWS / u64::BITS as usize;
/// Words that are read for a number at once, though it may have no bits.
const WORDS_READ: usize = 2;

impl Packed {
    pub fn new(rows: &[[u64; COLUMNS]; ROWS]) -> Packed {
        let (mut least, mut most) = (rows[0], rows[0]);
        for row in &rows[1..] {
            for column in 0..COLUMNS {
                least[column] = least[column].min(row[column]);
                most[column] = most[column].max(row[column]);
            }
        }
        let mut starts = [0; COLUMNS + 1];
        for column in 0..COLUMNS {
            let width = u64::BITS - (most[column] - least[column]).leading_zeros();
            starts[column + 1] = starts[column] + width as u16;
        }
        let mut words =
            Vec::with_capacity(usize::from(starts[COLUMNS]) * WORDS_PER_BIT + WORDS_READ);
        for column in 0..COLUMNS {
            let width = starts[column + 1] - starts[column];
            if width > 0 {
                let above = rows.iter().map(|row| row[column] - least[column]);
                pack(above, u32::from(width), &mut words);
            }
        }
        words.extend([0; WORDS_READ]);
        Packed { least, starts, words: words.into() }
    }

    #[inline]
    pub fn number(&self, row: usize, column: Column) -> u64 {
        let column = column as usize;
        let start = usize::from(self.starts[column]);
        let width = usize::from(self.starts[column + 1]) - start;
        let bit = row * width;
        let word = start * WORDS_PER_BIT + bit / 64;
        let both = u128::from(self.words[word]) | u128::from(self.words[word + 1]) << 64;
        let above = (both >> (bit % 64)) as u64 & ((1u128 << width) - 1) as u64;
        self.least[column] + above
    }
}

/// Appends numbers of this width, whole words of them.
fn pack(numbers: impl Iterator<Item = u64>, width: u32, words: &mut Vec<u64>) {
    let (mut word, mut filled) = (0u128, 0);
    for number in numbers {
        word |= u128::from(number) << filled;
        filled += width;
        if filled >= u64::BITS {
            words.push(word as u64);
            word >>= u64::BITS;
            filled -= u64::BITS;
        }
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
        assert_eq!((equal.words.len(), equal.number(127, Column::Kind)), (WORDS_READ, u64::MAX));
        let mut rows = [[0; COLUMNS]; ROWS];
        rows[127] = [u64::MAX; COLUMNS];
        let widest = Packed::new(&rows);
        assert_eq!(widest.words.len(), ROWS * COLUMNS + WORDS_READ);
        assert_eq!(
            (widest.number(126, Column::Kind), widest.number(127, Column::Id)),
            (0, u64::MAX)
        );
    }
}
