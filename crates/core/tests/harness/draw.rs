//! Draws from a list of choices. Smaller choices draw simpler things: nothing, the first, "no".

/// Zeros follow the last choice.
pub struct Draw<'a>(&'a [u32]);

impl<'a> Draw<'a> {
    pub fn from(choices: &'a [u32]) -> Draw<'a> {
        Draw(choices)
    }

    fn next(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        u64::from(*first)
    }

    pub fn bits(&mut self) -> u64 {
        self.next() << 32 | self.next()
    }

    /// Below an end that is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end <= 1 << 32, "a choice has 32 bits");
        (self.next() * end) >> 32
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == times - 1
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
