//! The texts of a failure, and how much of them is kept.

use bytes::Bytes;

use crate::job::{
    Attempt, CODE_BYTES_KEPT, Cause, ERROR_BYTES_KEPT, JobImage, MESSAGE_BYTES_KEPT, Origin,
    Outcome, Status, Words,
};
use crate::payload::Type;

/// The code of a job that somebody cancelled.
pub(crate) const CANCELLED: &[u8] = b"cancelled";
/// The code of a job that was cancelled because one that it waited for is dead.
pub(crate) const AFTER_DEAD: &[u8] = b"after_dead";
/// The code of a job that was cancelled because one that it waited for is gone.
pub(crate) const AFTER_GONE: &[u8] = b"after_gone";

/// The first `bytes_max` bytes of what may be a text, or fewer, so that no character is cut in two.
pub fn cut_text(text: &[u8], bytes_max: usize) -> &[u8] {
    let Some(short) = text.get(..bytes_max).filter(|short| short.len() < text.len()) else {
        return text;
    };
    // A UTF-8 character has up to three continuation bytes.
    let goes_on = |byte: u8| byte & 0xc0 == 0x80;
    let begin =
        (0..=3).map_while(|back| bytes_max.checked_sub(back)).find(|at| !goes_on(text[*at]));
    begin.map_or(short, |at| &text[..at])
}

impl Words {
    /// The texts of an outcome, cut to what is kept; none if there are none.
    pub(crate) fn of(outcome: &Outcome) -> Option<Box<Words>> {
        let short = |text: &Bytes, max: usize| text.slice(..cut_text(text, max).len());
        let is_packed = outcome.error_kind() == Type::Msgpack;
        let error = if is_packed && outcome.error.len() > ERROR_BYTES_KEPT {
            Bytes::new()
        } else {
            short(&outcome.error, ERROR_BYTES_KEPT)
        };
        let words = Words {
            message: short(&outcome.message, MESSAGE_BYTES_KEPT),
            error,
            code: short(&outcome.code, CODE_BYTES_KEPT),
        };
        (words != Words::default()).then(|| Box::new(words))
    }

    fn len(&self) -> usize {
        self.message.len() + self.error.len() + self.code.len()
    }
}

/// How many bytes past attempts take in an image.
pub(crate) fn attempts_len(history: &[Attempt]) -> usize {
    let words = |attempt: &Attempt| attempt.words.as_deref().map_or(0, |words| 12 + words.len());
    history.iter().map(|attempt| 32 + attempt.worker.len() + words(attempt)).sum()
}

impl Outcome {
    /// How many bytes its result and its texts take.
    pub fn bytes_len(&self) -> usize {
        self.bytes.as_ref().map_or(0, |result| result.len as usize) + self.words_len()
    }

    /// Leaves out the result, and cuts the texts to what the job's history keeps. The message says
    /// why.
    pub fn leave_out_result(&mut self, why: &str) {
        let kept = Words::of(self).map_or_else(Words::default, |words| *words);
        let len = self.bytes.take().map_or(0, |result| result.len);
        let said = String::from_utf8_lossy(&kept.message);
        let between = if said.is_empty() { "" } else { "; " };
        let message = format!("{said}{between}its result of {len} bytes was not kept: {why}");
        self.message = Bytes::from(message.into_bytes());
        (self.error, self.code) = (kept.error, kept.code);
        self.worker_finished_at = Bytes::new();
    }

    /// How many bytes its texts take.
    pub fn words_len(&self) -> usize {
        let Outcome { message, error, code, worker_finished_at, .. } = self;
        message.len() + error.len() + code.len() + worker_finished_at.len()
    }
}

impl JobImage {
    /// How many bytes the texts of its outcome and of past attempts and the names of workers take.
    pub fn words_len(&self) -> usize {
        self.outcome.as_deref().map_or(0, Outcome::words_len) + attempts_len(&self.history)
    }

    /// The type of the last failure's `error`, as the outcome says. An outcome that an older server
    /// wrote does not say it: at that time only LightJQ's workers reported MessagePack. That is a
    /// fact about old records, not a rule: today the door's [`Policy`](crate::Policy) says it when
    /// an attempt ends.
    pub fn error_type(&self) -> Type {
        let said = self.outcome.as_ref().map_or(Type::Bytes, |outcome| outcome.error_kind());
        if said != Type::Bytes {
            return said;
        }
        let failed = self.history.iter().rev().find(|attempt| attempt.cause() == Cause::Failed);
        match failed.map(|attempt| attempt.door()) {
            Some(Origin::Lightjq) => Type::Msgpack,
            _ => Type::Bytes,
        }
    }

    /// Whether somebody cancelled it, or the end of a job that it waited for did; a worker may fail
    /// a job with the same code.
    pub fn is_cancelled(&self) -> bool {
        let codes = [CANCELLED, AFTER_DEAD, AFTER_GONE];
        let says_so = self.outcome.as_ref().is_some_and(|end| codes.contains(&&end.code[..]));
        let by_worker = self.history.last().is_some_and(|last| {
            last.cause() == Cause::Failed && Some(last.ended_ms) == self.finished_ms
        });
        self.status() == Status::Dead && says_so && !by_worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_letters_and_other_bytes_anywhere() {
        assert_eq!(cut_text(b"abc", 3), b"abc");
        assert_eq!(cut_text(b"abcd", 3), b"abc");
        assert_eq!(cut_text("ab\u{e9}".as_bytes(), 3), b"ab");
        assert_eq!(cut_text("ab\u{e9}".as_bytes(), 4), "ab\u{e9}".as_bytes());
        for max in 1..4 {
            assert_eq!(cut_text("\u{1f980}".as_bytes(), max), b"", "{max}");
        }
        assert_eq!(cut_text(b"abc", 0), b"");
        assert_eq!(cut_text(&[0x80; 9], 5), [0x80; 5], "no text at all");
        assert_eq!(cut_text(&[0xff; 9], 5), [0xff; 5]);
    }

    #[test]
    fn an_error_is_what_the_door_of_the_last_failure_writes() {
        let attempt = |door: Origin, cause: Cause| Attempt {
            door: door as i32,
            cause: cause as i32,
            ..Attempt::default()
        };
        let mut image = JobImage::default();
        assert_eq!(image.error_type(), Type::Bytes);
        image.history.push(attempt(Origin::Api, Cause::Failed));
        image.history.push(attempt(Origin::Lightjq, Cause::Timeout));
        assert_eq!(image.error_type(), Type::Bytes, "a timeout has no error");
        image.history.push(attempt(Origin::Lightjq, Cause::Failed));
        image.history.push(attempt(Origin::Api, Cause::Released));
        assert_eq!(image.error_type(), Type::Msgpack);
    }
}
