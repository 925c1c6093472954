//! The bytes that come on one way, cut into packets and lines, and the requests that these answer.

use std::collections::{HashSet, VecDeque};

use bytes::{Bytes, BytesMut};
use memchr::memchr2;
use spindle_core::JobId;
use spindle_gearman::client::take_response;
use spindle_gearman::wire::PacketType;

use super::introduction::Opening;
use super::owed::{DebtNumber, FenceNumber};

/// A packet or line of a shard's door.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// Its type, and all its bytes.
    Packet(PacketType, Bytes),
    /// With its line end.
    Line(Bytes),
}

impl Token {
    /// All its bytes.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Token::Packet(_, bytes) | Token::Line(bytes) => bytes,
        }
    }

    pub fn is(&self, expected: PacketType) -> bool {
        matches!(self, Token::Packet(kind, _) if *kind == expected)
    }

    /// Whether it answers no request, but tells that something has happened.
    pub fn is_news(&self) -> bool {
        use PacketType as P;
        matches!(self, Token::Packet(P::Noop | P::WorkStatus | P::WorkData | P::WorkWarning, _))
            || self.is_end_of_job()
    }

    /// Whether it is the last packet about a job.
    pub fn is_end_of_job(&self) -> bool {
        use PacketType as P;
        matches!(self, Token::Packet(P::WorkComplete | P::WorkFail | P::WorkException, _))
    }
}

/// An answer that is to come on a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// The answer to the client. `watches`: if it is a JOB_CREATED, news of the job will come on this way.
    Answer { debt: DebtNumber, watches: bool },
    /// The answer to the round, of several lines perhaps.
    Round,
    /// The router's own ECHO_RES.
    Fence,
    /// An answer that the client gets from another shard.
    Dropped,
}

/// The bytes that came are not Gearman's protocol, or too many to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// The longest packet that a shard may send: the longest result, and what stands before it.
const PACKET_BYTES_MAX: usize = 65 * 1024 * 1024;
/// The longest line: a worker that can do as much as it may, with the longest names, all escaped.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes behind an answer whose turn has not come are held up to this: one packet of the longest kind,
/// and some small ones.
const HELD_BYTES_MAX: usize = PACKET_BYTES_MAX + 1024 * 1024;
/// ECHO_REQ without data: when it comes back, everything sent before it is done.
const FENCE: &[u8] = b"\0REQ\0\0\0\x10\0\0\0\0";
/// Memory that a buffer keeps when it is empty.
const IDLE_BYTES_MAX: usize = 4 * 1024;

/// A way that is open, as its session sees it.
#[derive(Default)]
pub(super) struct Channel {
    input: BytesMut,
    /// The beginning of a line.
    line: BytesMut,
    /// The next packet or line, if it came but could not be taken yet.
    next: Option<Token>,
    pub awaited: VecDeque<Awaited>,
    /// Bytes that are sent together at the end of a turn.
    pub outgoing: BytesMut,
    /// Requests that have no answer except an ERROR were sent behind the last fence.
    pub is_unsettled: bool,
    fences_sent: FenceNumber,
    fences_back: FenceNumber,
    /// Up to this fence, owed answers wait for it already.
    fences_owed: FenceNumber,
    /// The shard takes the worker to be asleep.
    pub is_asleep: bool,
    /// Foreground jobs whose ends the client waits for.
    pub watched: usize,
    /// Jobs that the worker has grabbed and not finished.
    pub grabbed: HashSet<JobId>,
    /// Nothing more comes.
    pub has_ended: bool,
}

impl Channel {
    /// A way that begins with this.
    pub fn opened(opening: Opening) -> Channel {
        let Opening { bytes, answers, is_unsettled } = opening;
        let awaited = std::iter::repeat_n(Awaited::Dropped, answers).collect();
        Channel { outgoing: bytes, awaited, is_unsettled, ..Channel::default() }
    }

    /// Takes in what came.
    ///
    /// # Errors
    ///
    /// Too much is held.
    pub fn receive(&mut self, bytes: Bytes) -> Result<(), Broken> {
        if self.input.is_empty() {
            self.input = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&bytes[..]));
        } else {
            self.input.extend_from_slice(&bytes);
        }
        let next = self.next.as_ref().map_or(0, |token| token.bytes().len());
        let held = self.input.len() + self.line.len() + next;
        if held > HELD_BYTES_MAX { Err(Broken) } else { Ok(()) }
    }

    /// The next packet or line, if it is all there.
    ///
    /// # Errors
    ///
    /// The bytes are neither.
    pub fn take(&mut self) -> Result<Option<Token>, Broken> {
        if let Some(token) = self.next.take() {
            return Ok(Some(token));
        }
        let token = match self.input.first() {
            None => None,
            Some(0) => self.take_packet()?,
            Some(_) => match self.take_line()? {
                Some(line) => Some(Token::Line(line)),
                None => self.take_packet()?,
            },
        };
        if self.input.is_empty() && self.input.capacity() > IDLE_BYTES_MAX {
            self.input = BytesMut::new();
        }
        Ok(token)
    }

    /// Takes back a packet or line that cannot be taken yet: it comes next again.
    pub fn put_back(&mut self, token: Token) {
        self.next = Some(token);
    }

    fn take_packet(&mut self) -> Result<Option<Token>, Broken> {
        let packet = take_response(&mut self.input, PACKET_BYTES_MAX).map_err(|_| Broken)?;
        Ok(packet.map(|(kind, bytes)| Token::Packet(kind, bytes)))
    }

    /// Takes a line. A door may write a packet in the middle of a line; its NUL shows that, because no line
    /// has one. Then the line's beginning is kept.
    fn take_line(&mut self) -> Result<Option<Bytes>, Broken> {
        let (count, is_whole) = match memchr2(b'\n', 0, &self.input) {
            Some(at) if self.input.get(at) == Some(&b'\n') => (at + 1, true),
            Some(at) => (at, false),
            None => (self.input.len(), false),
        };
        self.line.unsplit(self.input.split_to(count));
        if self.line.len() > LINE_BYTES_MAX {
            return Err(Broken);
        }
        Ok(is_whole.then(|| std::mem::take(&mut self.line).freeze()))
    }

    /// Sends a fence behind requests that have no answer except an ERROR, if there are any.
    pub fn fence(&mut self) {
        if std::mem::take(&mut self.is_unsettled) {
            self.outgoing.extend_from_slice(FENCE);
            self.fences_sent.0 += 1;
            self.awaited.push_back(Awaited::Fence);
        }
    }

    /// The fence that was to come next has come back.
    pub fn end_fence(&mut self) {
        self.awaited.pop_front();
        self.fences_back.0 += 1;
    }

    /// The last fence, if it has not come back and no owed answer waits for it. From now on one does.
    pub fn owe_fence(&mut self) -> Option<FenceNumber> {
        let is_new = self.fences_sent > self.fences_owed && self.fences_sent > self.fences_back;
        self.fences_owed = self.fences_sent;
        is_new.then_some(self.fences_sent)
    }

    /// Whether this fence has come back.
    pub fn is_back(&self, fence: FenceNumber) -> bool {
        fence <= self.fences_back
    }

    /// Whether the client would lose something with this way: an answer, a job, or news of a job.
    pub fn is_of_use(&self) -> bool {
        let owes = self.awaited.iter().any(|awaited| *awaited != Awaited::Dropped);
        owes || self.watched > 0 || !self.grabbed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(pieces: &[&[u8]]) -> Vec<Token> {
        let mut channel = Channel::default();
        let mut tokens = Vec::new();
        for piece in pieces {
            channel.receive(Bytes::copy_from_slice(piece)).unwrap();
            while let Some(token) = channel.take().unwrap() {
                tokens.push(token);
            }
        }
        tokens
    }

    const NOOP: &[u8] = b"\0RES\0\0\0\x06\0\0\0\0";

    #[test]
    fn packets_and_lines_are_the_same_however_they_are_cut() {
        let stream = [b"OK\r\n", NOOP, b"a\t1\t0\t1\n.\n", NOOP].concat();
        let line = |text: &'static [u8]| Token::Line(Bytes::from_static(text));
        let noop = Token::Packet(PacketType::Noop, Bytes::from_static(NOOP));
        let expected = [line(b"OK\r\n"), noop.clone(), line(b"a\t1\t0\t1\n"), line(b".\n"), noop];
        assert_eq!(received(&[&stream]), expected);
        for size in [1, 2, 5, 13] {
            assert_eq!(received(&stream.chunks(size).collect::<Vec<_>>()), expected, "{size}");
        }
    }

    #[test]
    fn a_packet_in_the_middle_of_a_line_stands_before_the_line() {
        let stream = [b"7 127.0.0.1 - : mail", NOOP, b" sms\n"].concat();
        let expected = [
            Token::Packet(PacketType::Noop, Bytes::from_static(NOOP)),
            Token::Line(Bytes::from_static(b"7 127.0.0.1 - : mail sms\n")),
        ];
        assert_eq!(received(&[&stream]), expected);
    }

    #[test]
    fn what_is_no_answer_and_what_is_too_long_breaks_the_way() {
        let mut channel = Channel::default();
        channel.receive(Bytes::from_static(b"\0REQ\0\0\0\x06\0\0\0\0")).unwrap();
        assert_eq!(channel.take(), Err(Broken));
        let mut channel = Channel::default();
        channel.receive(vec![b'x'; LINE_BYTES_MAX + 1].into()).unwrap();
        assert_eq!(channel.take(), Err(Broken));
        let mut channel = Channel::default();
        assert_eq!(channel.receive(vec![b'x'; HELD_BYTES_MAX + 1].into()), Err(Broken));
    }
}
