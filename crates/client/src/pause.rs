//! Pauses between tries.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(2);

/// Pauses that double, each shortened by chance, so that clients do not come back together.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub fn new() -> Self {
        Self { next: FIRST }
    }

    /// The next pause.
    pub fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(MAX);
        pause.mul_f64(rand::random_range(0.5..1.0))
    }
}
