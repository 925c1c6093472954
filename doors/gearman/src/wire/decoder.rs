//! The server's decoder: a connection's bytes in, requests and commands out.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use super::packet::{REQUEST_MAGIC, RESPONSE_MAGIC, read_header, starts_like, take_packet};
use super::{
    AdminCommand, AdminError, FUNCTION_BYTES_MAX, GrabKind, HANDLE_BYTES_MAX, HEADER_BYTES,
    PacketType, Priority, Request, Schedule, Submit, SubmitKind, UNIQUE_BYTES_MAX, WireError,
    parse_number,
};

/// What a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest packet, its header not counted. Longer ones close the connection.
    pub packet_bytes_max: usize,
    /// The longest line, its line end counted. Longer ones close the connection.
    pub line_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The longest payload there can be, and room for the arguments before it.
            packet_bytes_max: 64 * 1024 * 1024 + 1024,
            // Room for a command, three numbers and a name of 512 bytes, with some to spare.
            line_bytes_max: 1024,
        }
    }
}

impl Limits {
    /// The most input that the decoder may need to have before it gives something.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.line_bytes_max.max(self.packet_bytes_max.saturating_add(HEADER_BYTES))
    }
}

/// A packet or a line: the two may be mixed on one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// A binary packet.
    Request(Request),
    /// A line, or the ERR line to answer it with.
    Admin(Result<AdminCommand, AdminError>),
}

impl Incoming {
    /// Whether answering it may change something. Such a request waits while the log has no room.
    pub fn is_change(&self) -> bool {
        match self {
            Incoming::Request(request) => matches!(
                request,
                Request::Submit(_)
                    | Request::Grab(_)
                    | Request::PreSleep
                    | Request::WorkComplete { .. }
                    | Request::WorkFail { .. }
                    | Request::WorkException { .. }
            ),
            Incoming::Admin(command) => matches!(
                command,
                Ok(AdminCommand::CancelJob { .. } | AdminCommand::MaxQueue { .. })
            ),
        }
    }

    /// The bytes of the payload or result that it brings.
    pub fn brought_bytes(&self) -> usize {
        match self {
            Incoming::Request(Request::Submit(submit)) => submit.payload.len(),
            Incoming::Request(
                Request::WorkComplete { result: bytes, .. }
                | Request::WorkException { data: bytes, .. },
            ) => bytes.len(),
            _ => 0,
        }
    }
}

/// Reads what one connection sends. It remembers how far it has looked, so that every byte is
/// looked at once, however the network splits the bytes.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// The first bytes of the input that have no LF.
    searched: usize,
    is_closed: bool,
}

impl Decoder {
    /// A decoder for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, searched: 0, is_closed: false }
    }

    /// Takes one packet or line off the front of `input`. `None` means that more bytes are
    /// needed; what is there stays in `input`, and the caller appends to it.
    ///
    /// # Errors
    ///
    /// A [`WireError`]: send its [`WireError::reply`] if it has one. After one that
    /// [`WireError::closes`] every further call says [`WireError::Closed`].
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Incoming>, WireError> {
        let mut whole = None;
        self.decode_to(input, &mut whole)
    }

    /// The same, together with its raw bytes, header and line end included, for callers that
    /// forward them.
    ///
    /// # Errors
    ///
    /// As of [`Decoder::decode`].
    pub fn decode_whole(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<(Incoming, Bytes)>, WireError> {
        let mut whole = Some(Bytes::new());
        let incoming = self.decode_to(input, &mut whole)?;
        Ok(incoming.map(|incoming| (incoming, whole.unwrap_or_default())))
    }

    /// Also stores the raw bytes in `whole` if it is given.
    fn decode_to(
        &mut self,
        input: &mut BytesMut,
        whole: &mut Option<Bytes>,
    ) -> Result<Option<Incoming>, WireError> {
        if self.is_closed {
            return Err(WireError::Closed);
        }
        let outcome = match input.first() {
            None => return Ok(None),
            Some(0) => self.decode_packet(input, whole),
            Some(_) => self.decode_line(input, whole),
        };
        self.is_closed = outcome.as_ref().is_err_and(|error| error.closes());
        outcome
    }

    fn decode_packet(
        &self,
        input: &mut BytesMut,
        whole: &mut Option<Bytes>,
    ) -> Result<Option<Incoming>, WireError> {
        let is_request = starts_like(input, &REQUEST_MAGIC);
        if !is_request && !starts_like(input, &RESPONSE_MAGIC) {
            return Err(WireError::WrongMagic);
        }
        let Some((number, length)) = read_header(input) else { return Ok(None) };
        let kind = PacketType::from_number(number);
        if is_request && kind.is_none() {
            return Err(WireError::UnknownType(number));
        }
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes > self.limits.packet_bytes_max {
            return Err(WireError::PacketTooLong { bytes: length });
        }
        let Some(mut data) = take_packet(input, bytes) else { return Ok(None) };
        keep(&data, whole);
        data.advance(HEADER_BYTES);
        match kind {
            Some(kind) if is_request => read(kind, data).map(|it| Some(Incoming::Request(it))),
            _ => Err(WireError::ResponseMagic),
        }
    }

    fn decode_line(
        &mut self,
        input: &mut BytesMut,
        whole: &mut Option<Bytes>,
    ) -> Result<Option<Incoming>, WireError> {
        let unsearched = input.get(self.searched..).unwrap_or_default();
        let Some(at) = memchr(b'\n', unsearched) else {
            // A line of the longest length may still lack its LF.
            if input.len() >= self.limits.line_bytes_max {
                return Err(WireError::LineTooLong);
            }
            self.searched = input.len();
            return Ok(None);
        };
        let bytes = self.searched + at + 1;
        self.searched = 0;
        if bytes > self.limits.line_bytes_max {
            return Err(WireError::LineTooLong);
        }
        let mut line = input.split_to(bytes).freeze();
        keep(&line, whole);
        line.truncate(bytes - 1);
        if line.last() == Some(&b'\r') {
            line.truncate(bytes - 2);
        }
        Ok(Some(Incoming::Admin(AdminCommand::parse(&line))))
    }
}

fn keep(bytes: &Bytes, whole: &mut Option<Bytes>) {
    if let Some(whole) = whole {
        whole.clone_from(bytes);
    }
}

/// Reads a whole packet.
fn read(kind: PacketType, data: Bytes) -> Result<Request, WireError> {
    use PacketType as P;
    if kind.is_of_server() {
        return Err(WireError::UnexpectedType(kind));
    }
    let mut arguments = Arguments { kind, data };
    Ok(match kind {
        P::CanDo => Request::CanDo { function: function(arguments.rest())? },
        P::CantDo => Request::CantDo { function: function(arguments.rest())? },
        P::CanDoTimeout => Request::CanDoTimeout {
            function: function(arguments.next()?)?,
            timeout_ms: parse_number(&arguments.rest()),
        },
        P::ResetAbilities => Request::ResetAbilities,
        P::PreSleep => Request::PreSleep,
        P::AllYours => Request::AllYours,
        P::GrabJob => Request::Grab(GrabKind::Plain),
        P::GrabJobUniq => Request::Grab(GrabKind::Uniq),
        P::GrabJobAll => Request::Grab(GrabKind::All),
        P::WorkStatus => Request::WorkStatus {
            handle: handle(arguments.next()?)?,
            numerator: arguments.next()?,
            denominator: arguments.rest(),
        },
        P::WorkData => arguments.with_data(|handle, data| Request::WorkData { handle, data })?,
        P::WorkWarning => {
            arguments.with_data(|handle, data| Request::WorkWarning { handle, data })?
        }
        P::WorkComplete => {
            arguments.with_data(|handle, result| Request::WorkComplete { handle, result })?
        }
        P::WorkException => {
            arguments.with_data(|handle, data| Request::WorkException { handle, data })?
        }
        P::WorkFail => Request::WorkFail { handle: handle(arguments.rest())? },
        P::GetStatus => Request::GetStatus { handle: handle(arguments.rest())? },
        P::GetStatusUnique => Request::GetStatusUnique { unique: unique(arguments.rest())? },
        P::EchoReq => Request::Echo { data: arguments.rest() },
        P::SetClientId => Request::SetClientId { id: arguments.rest() },
        P::OptionReq => Request::Option { name: arguments.rest() },
        _ => Request::Submit(read_submit(kind, arguments)?),
    })
}

fn read_submit(kind: PacketType, mut arguments: Arguments) -> Result<Submit, WireError> {
    use PacketType as P;
    let function_text = arguments.next()?;
    let unique_text = arguments.next()?;
    let kind = match kind {
        P::SubmitJob => SubmitKind::Foreground(Priority::Normal),
        P::SubmitJobHigh => SubmitKind::Foreground(Priority::High),
        P::SubmitJobLow => SubmitKind::Foreground(Priority::Low),
        P::SubmitJobBg => SubmitKind::Background(Priority::Normal),
        P::SubmitJobHighBg => SubmitKind::Background(Priority::High),
        P::SubmitJobLowBg => SubmitKind::Background(Priority::Low),
        P::SubmitJobEpoch => SubmitKind::Epoch { at_s: parse_number(&arguments.next()?) },
        P::SubmitJobSched => SubmitKind::Scheduled(arguments.schedule()?),
        P::SubmitReduceJob | P::SubmitReduceJobBackground => SubmitKind::Reduce {
            reducer: unique(arguments.next()?)?,
            aggregator: arguments.next()?,
            is_background: kind == P::SubmitReduceJobBackground,
        },
        other => return Err(WireError::UnexpectedType(other)),
    };
    Ok(Submit {
        kind,
        function: function(function_text)?,
        unique: unique(unique_text)?,
        payload: arguments.rest(),
    })
}

/// The arguments of a packet of this type: NUL between them, the last one to the end.
struct Arguments {
    kind: PacketType,
    data: Bytes,
}

impl Arguments {
    /// The next argument, which must have a NUL behind it.
    fn next(&mut self) -> Result<Bytes, WireError> {
        let end = memchr(0, &self.data).ok_or(WireError::ArgumentMissing(self.kind))?;
        let argument = self.data.split_to(end);
        self.data.advance(1);
        Ok(argument)
    }

    /// The last argument, which may have any bytes.
    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.data)
    }

    /// What workers say about a job: its handle and anything.
    fn with_data(
        &mut self,
        request: impl FnOnce(Bytes, Bytes) -> Request,
    ) -> Result<Request, WireError> {
        let handle = handle(self.next()?)?;
        Ok(request(handle, self.rest()))
    }

    fn schedule(&mut self) -> Result<Schedule, WireError> {
        let texts = [self.next()?, self.next()?, self.next()?, self.next()?, self.next()?];
        Schedule::parse(texts.each_ref().map(|text| &text[..])).map_err(|_| WireError::BadSchedule)
    }
}

fn function(name: Bytes) -> Result<Bytes, WireError> {
    if name.len() > FUNCTION_BYTES_MAX {
        Err(WireError::FunctionTooLong)
    } else if name.is_empty() || memchr(0, &name).is_some() {
        // With a NUL in it, the name could be answered with more arguments than a packet has.
        Err(WireError::BadFunctionName)
    } else {
        Ok(name)
    }
}

fn unique(mut text: Bytes) -> Result<Bytes, WireError> {
    cut_at_nul(&mut text);
    if text.len() > UNIQUE_BYTES_MAX { Err(WireError::UniqueTooLong) } else { Ok(text) }
}

fn handle(mut text: Bytes) -> Result<Bytes, WireError> {
    cut_at_nul(&mut text);
    if text.len() > HANDLE_BYTES_MAX { Err(WireError::HandleTooLong) } else { Ok(text) }
}

/// Some C clients send a last argument together with the NUL behind it.
fn cut_at_nul(text: &mut Bytes) {
    if let Some(end) = memchr(0, text) {
        text.truncate(end);
    }
}
