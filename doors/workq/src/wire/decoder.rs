//! The server's decoder: a connection's bytes in, requests out.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use spindle_engine::door::is_stranger;

use super::{
    ErrorText, Request,
    arguments::{self, Asked, Block, Named},
    line::Line,
};

/// What a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest command line, its CR LF included. Longer ones close the connection.
    pub line_bytes_max: usize,
    /// Longest payload of `add`, `schedule` and `run`.
    pub payload_bytes_max: usize,
    /// Longest result of `complete` and `fail`.
    pub result_bytes_max: usize,
    /// Most names of a `lease`.
    pub lease_names_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // 1,024 names of 255 bytes, with some to spare.
            line_bytes_max: 272 * 1024,
            payload_bytes_max: 1024 * 1024,
            result_bytes_max: 1024 * 1024,
            lease_names_max: 1024,
        }
    }
}

impl Limits {
    /// The most input that the decoder may need to have before it gives a request: a whole line,
    /// or a whole block, whose line is off the input by then.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.line_bytes_max.max(self.payload_bytes_max.max(self.result_bytes_max) + 2)
    }
}

/// Why there is no request, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Answer `-CLIENT-ERROR` and go on decoding: what was refused has been passed over.
    Reply(ErrorText),
    /// Close the connection without a word.
    Close,
    /// Answer `-CLIENT-ERROR`, then close the connection.
    ReplyThenClose(ErrorText),
}

/// Reads the requests of one connection. It remembers how far it has looked, so that every byte is
/// looked at once, however the network splits the bytes.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was read yet: the peer may be a stranger.
    Fresh { searched: usize },
    /// At the start of a line; the first `searched` bytes of the input have no LF.
    Line { searched: usize },
    /// A line was read, its block was not.
    Block(PendingBlock),
    /// The peer gets no further answer.
    Closed,
}

#[derive(Debug)]
struct PendingBlock {
    bytes: usize,
    size_error: ErrorText,
    outcome: Result<Request, ErrorText>,
}

impl Decoder {
    /// A decoder for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Fresh { searched: 0 } }
    }

    /// Takes one request off the front of `input`. `None` means that more bytes are needed; what
    /// is there stays in `input`, and the caller appends to it. After [`Reject::Close`] or
    /// [`Reject::ReplyThenClose`] every further call says [`Reject::Close`].
    ///
    /// # Errors
    ///
    /// A [`Reject`] when there is something to refuse.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Request>, Reject> {
        if input.is_empty() && !matches!(self.state, State::Closed) {
            return Ok(None);
        }
        let searched = match &self.state {
            State::Closed => return Err(Reject::Close),
            State::Block(_) => return self.decode_block(input),
            State::Line { searched } => *searched,
            State::Fresh { searched } => {
                let searched = *searched;
                match is_stranger(input) {
                    Some(true) => return self.close(),
                    Some(false) => self.state = State::Line { searched },
                    None => {}
                }
                searched
            }
        };
        let unsearched = input.get(searched..).unwrap_or_default();
        let Some(at) = memchr(b'\n', unsearched) else {
            return self.wait_for_line(input);
        };
        let line_bytes = searched + at + 1;
        let Some(text) = input.get(..line_bytes).and_then(|line| line.strip_suffix(b"\r\n")) else {
            return self.close();
        };
        if line_bytes > self.limits.line_bytes_max {
            return self.close();
        }
        self.state = State::Line { searched: 0 };
        match arguments::parse(text, &self.limits) {
            Ok(Asked::Now(named)) => Ok(Some(take_named(input, line_bytes, named))),
            Ok(Asked::Lease { is_offer, wait_timeout_ms, only_name }) => {
                let names = copy_lease_names(text, only_name);
                input.advance(line_bytes);
                Ok(Some(if is_offer {
                    Request::Offer { names, wait_timeout_ms }
                } else {
                    Request::Lease { names, wait_timeout_ms }
                }))
            }
            Ok(Asked::Block(Block { bytes, size_error, outcome })) => {
                let outcome = match outcome {
                    Ok(named) => Ok(take_named(input, line_bytes, named)),
                    Err(error) => {
                        input.advance(line_bytes);
                        Err(error)
                    }
                };
                self.take_block(PendingBlock { bytes, size_error, outcome }, input)
            }
            Err(error) => {
                input.advance(line_bytes);
                Err(Reject::Reply(error))
            }
        }
    }

    /// The same for a peer that has closed its side: call it until it says to close. A block cut
    /// short is first answered with an error; half a line is not.
    ///
    /// # Errors
    ///
    /// A [`Reject`], at last one that closes the connection.
    pub fn decode_at_eof(&mut self, input: &mut BytesMut) -> Result<Option<Request>, Reject> {
        if let Some(request) = self.decode(input)? {
            return Ok(Some(request));
        }
        input.clear();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Block(block) => Err(Reject::ReplyThenClose(block.size_error)),
            State::Fresh { .. } | State::Line { .. } | State::Closed => Err(Reject::Close),
        }
    }

    /// How many bytes `input` has to have before the next request can be complete: the whole
    /// block once its line is read, else one more than there are. The socket's reader may reserve
    /// this much; a peer only has to announce a block for it, so the sum over connections must be
    /// bounded.
    #[must_use]
    pub fn bytes_wanted(&self, input: &BytesMut) -> usize {
        match &self.state {
            State::Block(block) => block.bytes + 2,
            State::Fresh { .. } | State::Line { .. } | State::Closed => input.len() + 1,
        }
    }

    fn close(&mut self) -> Result<Option<Request>, Reject> {
        self.state = State::Closed;
        Err(Reject::Close)
    }

    fn wait_for_line(&mut self, input: &BytesMut) -> Result<Option<Request>, Reject> {
        // A line of the longest length may still lack its LF.
        if input.len() >= self.limits.line_bytes_max {
            return self.close();
        }
        if let State::Fresh { searched } | State::Line { searched } = &mut self.state {
            *searched = input.len();
        }
        Ok(None)
    }

    fn decode_block(&mut self, input: &mut BytesMut) -> Result<Option<Request>, Reject> {
        if input.len() < self.bytes_wanted(input) {
            return Ok(None);
        }
        match std::mem::replace(&mut self.state, State::Line { searched: 0 }) {
            State::Block(block) => self.take_block(block, input),
            State::Fresh { .. } | State::Line { .. } | State::Closed => Ok(None),
        }
    }

    /// Finishes a request whose block is there, or remembers it until then.
    fn take_block(
        &mut self,
        block: PendingBlock,
        input: &mut BytesMut,
    ) -> Result<Option<Request>, Reject> {
        let whole = block.bytes + 2;
        if input.len() < whole {
            self.state = State::Block(block);
            return Ok(None);
        }
        if input.get(block.bytes..whole) != Some(b"\r\n") {
            input.advance(whole);
            return Err(Reject::Reply(block.size_error));
        }
        match block.outcome {
            Ok(mut request) => {
                if let Some(payload) = request.payload_mut().filter(|_| block.bytes > 0) {
                    *payload = input.split_to(block.bytes).freeze();
                }
                input.advance(2);
                Ok(Some(request))
            }
            Err(error) => {
                input.advance(whole);
                Err(Reject::Reply(error))
            }
        }
    }
}

/// Takes the line off the input and gives the request its name.
fn take_named(input: &mut BytesMut, line_bytes: usize, named: Named) -> Request {
    let Named { mut request, name: range } = named;
    match request.name_mut() {
        Some(name) => {
            input.advance(range.start);
            *name = input.split_to(range.len()).freeze();
            input.advance(line_bytes - range.end);
        }
        None => input.advance(line_bytes),
    }
    request
}

/// A lease waits, and names that shared the read buffer would keep it alive meanwhile: so they
/// get one small allocation of their own.
fn copy_lease_names(text: &[u8], only_name: Option<Range<usize>>) -> Vec<Bytes> {
    if let Some(range) = only_name {
        return vec![Bytes::copy_from_slice(text.get(range).unwrap_or_default())];
    }
    let Ok(line) = Line::parse(text) else { return Vec::new() };
    let copy = Bytes::copy_from_slice(text);
    arguments::lease_names(&line).map(|name| copy.slice(name.range())).collect()
}
