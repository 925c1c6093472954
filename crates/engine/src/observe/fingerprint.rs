//! The message of a failed attempt, and the same message without the parts that differ from one job
//! to the next.
//!
//! A fingerprint is the first line of the error with digits and hexadecimal runs blanked:
//! `connection refused to db-3` and `connection refused to db-12` are `connection refused to db-#`.
//! It groups failures for people, and finds the jobs of a group again.

use std::borrow::Cow;

use bytes::Bytes;
use spindle_core::job::{Attempt, Cause, Outcome};
use spindle_core::{Event, JobId, JobImage, State, Status, Type, cut_text};
use spindle_msgpack::{Head, read_head, to_json_text};

/// The longest fingerprint, in characters.
pub const FINGERPRINT_CHARS_MAX: usize = 160;
/// How many bytes of a text are looked at for a fingerprint.
const LOOKED_AT_BYTES: usize = 1_024;
/// A longer error in MessagePack is not taken apart.
const PACKED_BYTES_MAX: usize = 4_096;
/// A word of at least this many hexadecimal digits, some of them decimal, is blanked as a whole.
const HEX_MIXED_MIN: usize = 6;
/// So is one of letters alone with at least this many: no word of a language is that.
const HEX_LETTERS_MIN: usize = 8;

/// What a failure's `error` says to people: a text as it is, a MessagePack value as what it says.
/// Other doors take any bytes where people read text.
pub fn failure_words(error: &[u8], kind: Type) -> Cow<'_, str> {
    if error.is_empty() || kind != Type::Msgpack {
        return String::from_utf8_lossy(error);
    }
    match (read_head(error), to_json_text(error)) {
        (Ok((Head::Text(text), [])), _) => String::from_utf8_lossy(text),
        (_, Ok(json)) => Cow::Owned(String::from_utf8(json).unwrap_or_default()),
        // The server ended the job for that worker, with a text.
        (_, Err(_)) => String::from_utf8_lossy(error),
    }
}

/// The fingerprint of a job's last attempt. None: it did not fail.
pub fn fingerprint_of(image: &JobImage) -> Option<String> {
    let mut text = String::new();
    FailedAttempt::last_of(image)?.write_fingerprint(&mut text);
    Some(text)
}

/// An attempt that failed, timed out or lost its worker, and what it left.
pub(crate) struct FailedAttempt<'a> {
    pub id: JobId,
    queue: Option<&'a Bytes>,
    cause: Cause,
    outcome: Option<&'a Outcome>,
    error_type: Type,
}

impl<'a> FailedAttempt<'a> {
    /// The one that an event ends, if it failed.
    pub fn of(event: &'a Event) -> Option<FailedAttempt<'a>> {
        match event {
            Event::Finished(image) => FailedAttempt::last_of(image),
            Event::Requeued(requeued) if has_failed(requeued.cause()) => Some(FailedAttempt {
                id: JobId(requeued.id),
                queue: None,
                cause: requeued.cause(),
                outcome: requeued.outcome.as_deref(),
                error_type: requeued
                    .outcome
                    .as_ref()
                    .map_or(Type::Bytes, |outcome| outcome.error_kind()),
            }),
            _ => None,
        }
    }

    /// The last one of a job, if it failed. A job that ended otherwise, cancelled for instance, did
    /// not end by its last attempt.
    fn last_of(image: &'a JobImage) -> Option<FailedAttempt<'a>> {
        let ended_by = |last: &&Attempt| match image.status() {
            Status::Dead => Some(last.ended_ms) == image.finished_ms,
            status => !status.is_finished(),
        };
        let last = image.history.last().filter(ended_by)?;
        has_failed(last.cause()).then(|| FailedAttempt {
            id: JobId(image.id),
            queue: Some(&image.queue),
            cause: last.cause(),
            outcome: image.outcome.as_deref(),
            error_type: image.error_type(),
        })
    }

    /// Its job's queue.
    pub fn queue(&self, state: &'a State) -> Option<&'a Bytes> {
        self.queue.or_else(|| state.live(self.id).map(|job| job.queue()))
    }

    /// Appends its fingerprint.
    pub fn write_fingerprint(&self, out: &mut String) {
        let said = match self.cause {
            Cause::Timeout => return out.push_str("timed out"),
            Cause::HolderGone | Cause::Restarted => return out.push_str("worker lost"),
            Cause::Damaged => return out.push_str("payload damaged"),
            _ => self.outcome,
        };
        let error = said.map(|said| &said.error[..]).unwrap_or_default();
        let is_packed = self.error_type == Type::Msgpack;
        let error = match is_packed && error.len() > PACKED_BYTES_MAX {
            true => Cow::Borrowed("an error too long to be taken apart"),
            false if is_packed => failure_words(error, Type::Msgpack),
            false => failure_words(cut_text(error, LOOKED_AT_BYTES), Type::Bytes),
        };
        let texts = said.map(|said| (&said.message, &said.code));
        let text = |bytes: Option<&'a Bytes>| {
            let bytes = bytes.map(|bytes| cut_text(bytes, LOOKED_AT_BYTES)).unwrap_or_default();
            String::from_utf8_lossy(bytes)
        };
        let (message, code) = (text(texts.map(|it| it.0)), text(texts.map(|it| it.1)));
        let line = [error, message, code].into_iter().find(|text| !text.trim().is_empty());
        write_blanked(first_line(line.as_deref().unwrap_or("no error given")), out);
    }
}

fn has_failed(cause: Cause) -> bool {
    use Cause::{Damaged, Failed, HolderGone, Restarted, Timeout};
    matches!(cause, Failed | Timeout | HolderGone | Restarted | Damaged)
}

fn first_line(text: &str) -> &str {
    text.trim_start().lines().next().unwrap_or_default()
}

/// Appends a line with its numbers as `#`, one space between words and no control characters.
fn write_blanked(line: &str, out: &mut String) {
    let mut left = FINGERPRINT_CHARS_MAX;
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next().filter(|_| left > 0) {
        if let Some(behind) = after_uuid(rest) {
            out.push('#');
            (left, rest) = (left - 1, behind);
        } else if first.is_alphanumeric() {
            let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            left = write_word(word, left, out);
            rest = behind;
        } else {
            let is_blank = |c: char| c.is_whitespace() || c.is_control();
            let shown = if is_blank(first) { ' ' } else { first };
            if shown != ' ' || !out.ends_with(' ') {
                out.push(shown);
                left -= 1;
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    out.truncate(out.trim_end().len());
}

/// Appends a word, at most `left` characters of it, and says how many are left then.
fn write_word(word: &str, mut left: usize, out: &mut String) -> usize {
    if is_hex_run(word) {
        out.push('#');
        return left - 1;
    }
    let mut was_digit = false;
    for c in word.chars() {
        if left == 0 {
            break;
        }
        let is_digit = c.is_numeric();
        if !(is_digit && was_digit) {
            out.push(if is_digit { '#' } else { c });
            left -= 1;
        }
        was_digit = is_digit;
    }
    left
}

fn is_hex_run(word: &str) -> bool {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let min = if has_digit { HEX_MIXED_MIN } else { HEX_LETTERS_MIN };
    word.len() >= min && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What is behind a UUID, if the text begins with one.
fn after_uuid(text: &str) -> Option<&str> {
    let (uuid, rest) = text.split_at_checked(36)?;
    let fits = uuid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let ends = !rest.starts_with(|c: char| c.is_alphanumeric());
    (fits && ends).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanked(line: &str) -> String {
        let mut out = String::new();
        write_blanked(first_line(line), &mut out);
        out
    }

    #[test]
    fn what_differs_from_job_to_job_is_blanked() {
        for (line, expected) in [
            ("connection refused to db-12", "connection refused to db-#"),
            ("connection refused to db1", "connection refused to db#"),
            ("10.0.0.7:5432 refused", "#.#.#.#:# refused"),
            ("no such job 0190f3a2-7b1c-7def-8a11-aabbccddeeff!", "no such job #!"),
            ("commit e10adc3949ba59abbe56e057f20f883e", "commit #"),
            ("at 0x7ffe12 and 0xzz", "at # and #xzz"),
            (
                "deadbeef is a number, defaced and a3f are none",
                "# is a number, defaced and a#f are none",
            ),
            ("550 mailbox unavailable\n  at line 3", "# mailbox unavailable"),
            ("\n\n  first\tword \u{7} then", "first word then"),
            ("", ""),
            ("größe 7 überschritten, \u{664}\u{665}", "größe # überschritten, #"),
            ("cut-off 0190f3a2-7b1c-7def-8a11-aabbccddeeffa", "cut-off #-#b#c-#def-#a#-#"),
        ] {
            assert_eq!(blanked(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_fingerprint_has_a_bound_and_is_its_own_fingerprint() {
        let long = "word ".repeat(200);
        for at in [FINGERPRINT_CHARS_MAX, FINGERPRINT_CHARS_MAX + 1, 1_000] {
            let cut = blanked(&long[..at]);
            assert!(cut.chars().count() <= FINGERPRINT_CHARS_MAX, "{at}");
            assert_eq!(blanked(&cut), cut);
        }
        assert_eq!(blanked(&"é".repeat(161)).chars().count(), 160);
        assert_eq!(blanked(&"é".repeat(160)).chars().count(), 160);
    }

    #[test]
    fn what_says_most_is_what_counts() {
        let outcome = |error: &'static [u8], message: &'static str, code: &'static str| Outcome {
            error: Bytes::from_static(error),
            message: Bytes::from_static(message.as_bytes()),
            code: Bytes::from_static(code.as_bytes()),
            ..Outcome::default()
        };
        let of = |cause, outcome: Option<&Outcome>, error_type| {
            let mut text = String::new();
            let attempt = FailedAttempt { id: JobId(1), queue: None, cause, outcome, error_type };
            attempt.write_fingerprint(&mut text);
            text
        };
        let all = outcome(b"tray 2 empty", "no paper", "exit_9");
        assert_eq!(of(Cause::Failed, Some(&all), Type::Bytes), "tray # empty");
        let no_error = outcome(b" \n", "no paper", "exit_9");
        assert_eq!(of(Cause::Failed, Some(&no_error), Type::Bytes), "no paper");
        let code = outcome(b"", "", "exit_9");
        assert_eq!(of(Cause::Failed, Some(&code), Type::Bytes), "exit_#");
        assert_eq!(of(Cause::Failed, None, Type::Bytes), "no error given");
        assert_eq!(of(Cause::Timeout, Some(&all), Type::Bytes), "timed out");
        assert_eq!(of(Cause::HolderGone, Some(&all), Type::Bytes), "worker lost");
        assert_eq!(of(Cause::Failed, Some(&outcome(b"\xa4late", "", "")), Type::Msgpack), "late");
        let map = outcome(b"\x81\xa1e\x07", "", "");
        assert_eq!(of(Cause::Failed, Some(&map), Type::Msgpack), "{\"e\":#}");
        let wrong = outcome(b"\xff\xfe", "", "");
        assert_eq!(of(Cause::Failed, Some(&wrong), Type::Bytes), "\u{fffd}\u{fffd}");
        for (len, expected) in
            [(PACKED_BYTES_MAX, "x"), (PACKED_BYTES_MAX + 1, "an error too long")]
        {
            // A text of MessagePack with two bytes of length.
            let mut packed = vec![0xda, 0, 0];
            packed[1..].copy_from_slice(&u16::try_from(len - 3).unwrap().to_be_bytes());
            packed.resize(len, b'x');
            let long = Outcome { error: Bytes::from(packed), ..Outcome::default() };
            let text = of(Cause::Failed, Some(&long), Type::Msgpack);
            assert!(text.starts_with(expected), "{len}: {text}");
        }
    }
}
