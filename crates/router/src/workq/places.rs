//! The order in which answers leave.

use std::collections::VecDeque;

use bytes::Bytes;
use spindle_engine::door::Outbox;

/// The answers that are owed to a client, in the order of its requests.
#[derive(Default)]
pub(super) struct Places {
    /// None: it has not come.
    answers: VecDeque<Option<Bytes>>,
    /// The number of the first one.
    first: u64,
}

impl Places {
    /// The place of the next request's answer.
    pub(super) fn keep(&mut self) -> u64 {
        self.answers.push_back(None);
        self.first + self.answers.len() as u64 - 1
    }

    /// An answer that is there already takes the next place.
    pub(super) fn add(&mut self, answer: Bytes) {
        self.answers.push_back(Some(answer));
    }

    /// The answer of this place has come.
    pub(super) fn fill(&mut self, number: u64, answer: Bytes) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(place) = at.and_then(|at| self.answers.get_mut(at)) {
            *place = Some(answer);
        }
    }

    /// Hands out the answers that no missing one stands before.
    pub(super) fn release(&mut self, out: &mut Outbox) {
        while let Some(Some(answer)) = self.answers.front() {
            out.put(|bytes| bytes.extend_from_slice(answer));
            self.answers.pop_front();
            self.first += 1;
        }
    }

    /// How many answers are owed.
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether none is.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use spindle_engine::Gate;

    use super::*;

    #[test]
    fn an_answer_waits_for_those_before_it() {
        let (mut places, mut out) = (Places::default(), Outbox::default());
        let numbers = [places.keep(), places.keep()];
        places.add(Bytes::from_static(b"c"));
        let last = places.keep();
        places.fill(numbers[1], Bytes::from_static(b"b"));
        places.release(&mut out);
        assert_eq!((out.released(Gate::OPEN), places.len()), (&b""[..], 4));
        places.fill(numbers[0], Bytes::from_static(b"a"));
        places.release(&mut out);
        assert_eq!((out.released(Gate::OPEN), places.len()), (&b"abc"[..], 1));
        places.fill(numbers[0], Bytes::from_static(b"a"));
        places.fill(last, Bytes::from_static(b"d"));
        places.release(&mut out);
        assert_eq!((out.released(Gate::OPEN), places.is_empty()), (&b"abcd"[..], true));
    }
}
