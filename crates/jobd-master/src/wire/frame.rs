//! Bytes into messages: each ends in EOT.

use bytes::{Buf, Bytes, BytesMut};
use spindle_budget::FREE_BYTES;
use spindle_tls::TLS_FIRST_BYTE;
use thiserror::Error;

/// The byte that ends a message.
pub const EOT: u8 = 0x04;

/// What a browser that was directed here would send first. The body of its request can carry whole
/// messages, so such a connection is closed before any of it is looked at.
const HTTP_METHODS: [&[u8]; 9] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"OPTIONS ",
    b"DELETE ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
];

/// Why a connection's bytes cannot be read on. It is closed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A message is longer than the limit.
    #[error("a message is longer than {message_bytes_max} bytes")]
    TooLong {
        /// The limit that was passed.
        message_bytes_max: usize,
    },
    /// The first bytes are a web page's, not a client's.
    #[error("the first bytes are HTTP")]
    Http,
    /// The peer begins a handshake, and this connection is plain: no message will ever end.
    #[error("the first bytes are TLS")]
    Tls,
}

/// A connection's input, cut at EOT.
#[derive(Debug)]
pub struct Frames {
    input: BytesMut,
    /// How much of `input` is known to hold no EOT, so that a long message is searched once.
    searched: usize,
    begun: bool,
    message_bytes_max: usize,
    answer_bytes_max: usize,
}

impl Frames {
    /// Input whose messages may have up to so many bytes, EOT not counted.
    pub fn new(message_bytes_max: usize) -> Self {
        let answer_bytes_max = message_bytes_max;
        Self {
            input: BytesMut::new(),
            searched: 0,
            begun: false,
            message_bytes_max,
            answer_bytes_max,
        }
    }

    /// Allows answers, and no other messages, more from the next [`Frames::next_message`] on. They
    /// are passed on as they are; anything else is read into values, which take several times as
    /// much memory.
    pub fn set_answer_bytes_max(&mut self, answer_bytes_max: usize) {
        self.answer_bytes_max = answer_bytes_max;
    }

    fn bytes_max(&self) -> usize {
        if begins_answer(&self.input) { self.answer_bytes_max } else { self.message_bytes_max }
    }

    /// Where read bytes are appended.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Whether there is a beginning of a message whose end has not come.
    pub fn is_mid_message(&self) -> bool {
        !self.input.is_empty()
    }

    /// The next whole message without its EOT, or `None` until more bytes have come.
    ///
    /// # Errors
    /// [`FrameError`]; the connection's input is of no use any more.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        if !self.begun {
            if HTTP_METHODS.iter().any(|first| self.input.starts_with(first)) {
                return Err(FrameError::Http);
            }
            if self.input.first() == Some(&TLS_FIRST_BYTE) {
                return Err(FrameError::Tls);
            }
            // The longest of those beginnings has eight bytes.
            self.begun = self.input.len() >= 8 || self.input.contains(&EOT);
        }
        let end = self.input.iter().skip(self.searched).position(|&byte| byte == EOT);
        let length = end.map_or(self.input.len(), |at| self.searched + at);
        if length > self.message_bytes_max {
            let message_bytes_max = self.bytes_max();
            if length > message_bytes_max {
                return Err(FrameError::TooLong { message_bytes_max });
            }
        }
        if end.is_none() {
            self.searched = length;
            return Ok(None);
        }
        let message = self.input.split_to(length).freeze();
        self.input.advance(1);
        if message.len() > self.input.len().max(FREE_BYTES) {
            // What is left, the smaller part, does not keep the memory of the message.
            self.input = BytesMut::from(&*self.input);
        }
        self.searched = 0;
        Ok(Some(message))
    }
}

/// Whether a message with these bytes at its beginning is the answer to a request.
fn begins_answer(bytes: &[u8]) -> bool {
    let mut seen = bytes.iter().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    (seen.next(), seen.next(), seen.next()) == (Some(&b'['), Some(&b'1'), Some(&b','))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(frames: &mut Frames) -> Result<Vec<Bytes>, FrameError> {
        std::iter::from_fn(|| frames.next_message().transpose()).collect()
    }

    #[test]
    fn several_messages_in_one_read_come_one_by_one() {
        let mut frames = Frames::new(100);
        frames.input().extend_from_slice(b"[2]\x04[3]\x04\x04[0");
        assert_eq!(all(&mut frames).unwrap(), [&b"[2]"[..], b"[3]", b""]);
        assert!(frames.is_mid_message());
        frames.input().extend_from_slice(b"]\x04");
        assert_eq!(all(&mut frames).unwrap(), [&b"[0]"[..]]);
        assert!(!frames.is_mid_message());
    }

    #[test]
    fn a_message_over_the_limit_is_refused_before_its_end_has_come() {
        let mut frames = Frames::new(10);
        frames.input().extend_from_slice(b"0123456789\x04");
        assert_eq!(frames.next_message().unwrap().unwrap(), &b"0123456789"[..]);
        frames.input().extend_from_slice(b"01234567890");
        assert_eq!(frames.next_message(), Err(FrameError::TooLong { message_bytes_max: 10 }));
    }

    #[test]
    fn only_an_answer_may_be_longer_than_other_messages() {
        let mut frames = Frames::new(10);
        frames.set_answer_bytes_max(20);
        for answer in [&b"[1,34567890123456789"[..], b" [ 1 ,78901234567890"] {
            frames.input().extend_from_slice(answer);
            frames.input().extend_from_slice(&[EOT]);
            assert_eq!(frames.next_message().unwrap().unwrap(), answer);
        }
        for (message, message_bytes_max) in
            [(&b"[1,345678901234567890"[..], 20), (b"[0,34567890", 10), (b"[10,4567890", 10)]
        {
            let mut frames = Frames::new(10);
            frames.set_answer_bytes_max(20);
            frames.input().extend_from_slice(message);
            assert_eq!(frames.next_message(), Err(FrameError::TooLong { message_bytes_max }));
        }
    }

    /// As `docs/limits.md` says.
    #[test]
    fn a_message_of_a_client_has_16_mib_and_not_one_byte_more() {
        let message_bytes_max = crate::server::Limits::default().message_bytes_max;
        let mut frames = Frames::new(message_bytes_max);
        frames.input().resize(16 * 1024 * 1024, b'x');
        assert_eq!(frames.next_message(), Ok(None));
        frames.input().extend_from_slice(&[EOT]);
        assert_eq!(frames.next_message().unwrap().unwrap().len(), 16 * 1024 * 1024);
        frames.input().resize(16 * 1024 * 1024 + 1, b'x');
        assert_eq!(frames.next_message(), Err(FrameError::TooLong { message_bytes_max }));
    }

    #[test]
    fn a_web_page_that_posts_messages_is_a_stranger_however_it_is_cut() {
        let page = b"POST / HTTP/1.1\r\n\r\n\x04[0,{\"no\":1,\"type\":\"poll\"}]\x04";
        for cut in 1..page.len() {
            let mut frames = Frames::new(1000);
            let (head, tail) = page.split_at(cut);
            frames.input().extend_from_slice(head);
            let first = all(&mut frames);
            frames.input().extend_from_slice(tail);
            let outcome = first.and_then(|_| all(&mut frames));
            assert_eq!(outcome, Err(FrameError::Http), "cut at {cut}");
        }
    }

    #[test]
    fn a_handshake_is_a_stranger_to_a_plain_connection() {
        let mut frames = Frames::new(1000);
        frames.input().extend_from_slice(&[TLS_FIRST_BYTE]);
        assert_eq!(frames.next_message(), Err(FrameError::Tls));
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_the_bytes_are_cut(
            bytes in proptest::collection::vec(prop_oneof![3 => Just(EOT), 10 => any::<u8>()], 0..200),
            piece in 1usize..20,
        ) {
            let mut whole = Frames::new(64);
            whole.input().extend_from_slice(&bytes);
            let mut expected = Vec::new();
            let mut end = None;
            loop {
                match whole.next_message() {
                    Ok(Some(message)) => expected.push(message),
                    Ok(None) => break,
                    Err(error) => { end = Some(error); break }
                }
            }
            let mut cut = Frames::new(64);
            let mut messages = Vec::new();
            let mut cut_end = None;
            'all: for piece in bytes.chunks(piece) {
                cut.input().extend_from_slice(piece);
                loop {
                    match cut.next_message() {
                        Ok(Some(message)) => messages.push(message),
                        Ok(None) => break,
                        Err(error) => { cut_end = Some(error); break 'all }
                    }
                }
            }
            prop_assert_eq!(messages, expected);
            prop_assert_eq!(cut_end, end);
        }
    }
}
