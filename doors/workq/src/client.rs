//! A small blocking client of the Workq protocol, for the command line, tests and load tools.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    slice,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::wire::{
    ErrorText, JobInfo, JobResult, LeasedJob, Limits, NewJob, Presented, QueueInfo, Reply,
    ReplyError, ReplyKind, Request, Run, ServerInfo, Uuid, decode_reply, is_name,
};

/// The most bytes of one read from the socket.
const READ_BYTES: usize = 64 * 1024;

/// The content of a reply of the kind expected; a reply of another kind means that the connection
/// is out of step.
macro_rules! expect {
    ($kind:path, $reply:expr) => {
        match $reply? {
            $kind(found) => Ok(found),
            _ => Err(UNEXPECTED),
        }
    };
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed, was closed, or gave no answer in time. It is of no further use.
    #[error("connection to the server failed")]
    Io(#[from] io::Error),
    /// `-TIMEOUT`: nothing came within the wait-timeout.
    #[error("timed out waiting")]
    Timeout,
    /// `-NOT-FOUND`: there is no such job or queue.
    #[error("not found")]
    NotFound,
    /// `-CLIENT-ERROR`: the server, or this client on its behalf, refused the command.
    #[error("refused by the server: {0}")]
    Client(String),
    /// `-SERVER-ERROR`: the server could not do it.
    #[error("the server failed: {0}")]
    Server(String),
    /// The bytes received are not a valid answer. The connection is of no further use.
    #[error("{0}")]
    Protocol(&'static str),
}

impl ClientError {
    /// Whether the connection can still be used: the server did answer, though not as wished.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Io(_) | Self::Protocol(_))
    }
}

impl From<ReplyError> for ClientError {
    fn from(error: ReplyError) -> Self {
        Self::Protocol(error.0)
    }
}

impl From<ErrorText> for ClientError {
    fn from(text: ErrorText) -> Self {
        Self::Client(text.as_str().to_owned())
    }
}

/// What a connection runs over.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// One connection to a Workq server. A command fails with a [`ClientError`] when the server does
/// not do what was asked; [`ClientError::is_answer`] says whether the connection can still be used.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// How long an answer may take beyond the wait that a command itself asks for.
    timeout: Duration,
    /// What the socket's read timeout was last set to.
    read_timeout: Option<Duration>,
    input: BytesMut,
    output: BytesMut,
    /// What one read brought, before it joins the input.
    read_buffer: Box<[u8]>,
    /// An answer was lost, so it is unknown which request a later answer belongs to.
    out_of_step: bool,
}

impl Client {
    /// Connects. `timeout` bounds connecting, each write, and each answer beyond the wait that the
    /// command itself asks for.
    ///
    /// # Errors
    ///
    /// [`ClientError::Io`] with the error of the last address tried.
    pub fn connect(addr: impl ToSocketAddrs, timeout: Duration) -> Result<Self, ClientError> {
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for addr in addr.to_socket_addrs()? {
            match TcpStream::connect_timeout(&addr, timeout) {
                Ok(stream) => return Self::new(stream, timeout),
                Err(refused) => error = refused,
            }
        }
        Err(error.into())
    }

    /// Encrypts the connection from now on, if the server is the one of this name. The handshake
    /// takes `timeout` at most for each of its steps.
    ///
    /// # Errors
    ///
    /// [`ClientError::Io`]; it holds a [`rustls::Error`] if the server is not trusted, or if it
    /// does not speak TLS.
    pub fn encrypted(
        self,
        name: ServerName<'static>,
        config: Arc<ClientConfig>,
    ) -> Result<Self, ClientError> {
        let Stream::Plain(mut stream) = self.stream else { return Ok(self) };
        stream.set_read_timeout(Some(self.timeout))?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut session = Box::new(session);
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        let stream = Stream::Tls(Box::new(StreamOwned { conn: *session, sock: stream }));
        Ok(Self { stream, read_timeout: Some(self.timeout), ..self })
    }

    fn new(stream: TcpStream, timeout: Duration) -> Result<Self, ClientError> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(timeout))?;
        let stream = Stream::Plain(stream);
        Ok(Self {
            stream,
            timeout,
            read_timeout: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
            read_buffer: vec![0; READ_BYTES].into_boxed_slice(),
            out_of_step: false,
        })
    }

    /// The socket, for callers that want to close half of it or look at its addresses.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// Presents a token for everything that follows. `Client` if the token is not known; its text
    /// does not contain the token.
    pub fn auth(&mut self, token: &str) -> Result<(), ClientError> {
        let token = Presented(Bytes::copy_from_slice(token.as_bytes()));
        self.ask_ok(&Request::Auth { token })
    }

    /// Enqueues a job. A known id is `Client("Duplicate job")`.
    pub fn add(&mut self, job: &NewJob) -> Result<(), ClientError> {
        self.ask_ok(&Request::Add(job.clone()))
    }

    /// Enqueues a job at `time_ms`, in milliseconds since 1970. A known id is `Client("Duplicate
    /// job")`.
    pub fn schedule(&mut self, job: &NewJob, time_ms: u64) -> Result<(), ClientError> {
        self.ask_ok(&Request::Schedule { job: job.clone(), time_ms })
    }

    /// Enqueues a job and waits for its result. `Timeout` when no worker came, or none finished
    /// within the TTR.
    pub fn run(&mut self, run: &Run) -> Result<JobResult, ClientError> {
        let wait_ms = u64::from(run.wait_timeout_ms) + u64::from(run.ttr_ms);
        expect!(Reply::Result, self.ask(&Request::Run(run.clone()), wait_ms))
    }

    /// Waits for a job's result. `Timeout` while there is none.
    pub fn result(&mut self, id: Uuid, wait_timeout_ms: u32) -> Result<JobResult, ClientError> {
        let request = Request::Result { id, wait_timeout_ms };
        expect!(Reply::Result, self.ask(&request, wait_timeout_ms.into()))
    }

    /// Waits for a job of one of these queues. `Timeout` when there is none.
    pub fn lease<N: AsRef<[u8]>>(
        &mut self,
        names: &[N],
        wait_timeout_ms: u32,
    ) -> Result<LeasedJob, ClientError> {
        let names = names.iter().map(|name| Bytes::copy_from_slice(name.as_ref())).collect();
        let request = Request::Lease { names, wait_timeout_ms };
        expect!(Reply::Lease, self.ask(&request, wait_timeout_ms.into()))
    }

    /// Finishes a job. A finished job is `Client("Duplicate result")`.
    pub fn complete(&mut self, id: Uuid, result: impl Into<Bytes>) -> Result<(), ClientError> {
        self.ask_ok(&Request::Complete { id, result: result.into() })
    }

    /// Fails a job. A finished job is `Client("Duplicate result")`.
    pub fn fail(&mut self, id: Uuid, result: impl Into<Bytes>) -> Result<(), ClientError> {
        self.ask_ok(&Request::Fail { id, result: result.into() })
    }

    /// Deletes a job.
    pub fn delete(&mut self, id: Uuid) -> Result<(), ClientError> {
        self.ask_ok(&Request::Delete { id })
    }

    /// Lets a leased job run for `ttr_ms` from now. Spindle's own command: another server says
    /// `Unknown command`.
    pub fn extend(&mut self, id: Uuid, ttr_ms: u32) -> Result<(), ClientError> {
        self.ask_ok(&Request::Extend { id, ttr_ms })
    }

    /// Shows a job.
    pub fn inspect_job(&mut self, id: Uuid) -> Result<JobInfo, ClientError> {
        only(expect!(Reply::Jobs, self.ask(&Request::InspectJob { id }, 0))?)
    }

    /// Lists the ready jobs of a queue: at most 100 from `cursor_offset` on.
    pub fn inspect_jobs(
        &mut self,
        name: impl AsRef<[u8]>,
        cursor_offset: u32,
        limit: u32,
    ) -> Result<Vec<JobInfo>, ClientError> {
        let name = Bytes::copy_from_slice(name.as_ref());
        expect!(Reply::Jobs, self.ask(&Request::InspectJobs { name, cursor_offset, limit }, 0))
    }

    /// Lists the scheduled jobs of a queue: at most 100 from `cursor_offset` on.
    pub fn inspect_scheduled_jobs(
        &mut self,
        name: impl AsRef<[u8]>,
        cursor_offset: u32,
        limit: u32,
    ) -> Result<Vec<JobInfo>, ClientError> {
        let name = Bytes::copy_from_slice(name.as_ref());
        let request = Request::InspectScheduledJobs { name, cursor_offset, limit };
        expect!(Reply::Jobs, self.ask(&request, 0))
    }

    /// Shows a queue.
    pub fn inspect_queue(&mut self, name: impl AsRef<[u8]>) -> Result<QueueInfo, ClientError> {
        let name = Bytes::copy_from_slice(name.as_ref());
        only(expect!(Reply::Queues, self.ask(&Request::InspectQueue { name }, 0))?)
    }

    /// Lists queues: at most 100 from `cursor_offset` on.
    pub fn inspect_queues(
        &mut self,
        cursor_offset: u32,
        limit: u32,
    ) -> Result<Vec<QueueInfo>, ClientError> {
        expect!(Reply::Queues, self.ask(&Request::InspectQueues { cursor_offset, limit }, 0))
    }

    /// Shows the server.
    pub fn inspect_server(&mut self) -> Result<ServerInfo, ClientError> {
        expect!(Reply::Server, self.ask(&Request::InspectServer, 0))
    }

    /// Sends a request without waiting for its answer; [`Client::read_reply`] has it later.
    ///
    /// # Errors
    ///
    /// [`ClientError::Io`], or [`ClientError::Client`] when the request cannot be sent as it is.
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        self.check_step()?;
        check_sendable(request)?;
        self.output.clear();
        request.encode(&mut self.output);
        let sent = self.stream.write_all(&self.output);
        self.note(sent.map_err(ClientError::from))
    }

    /// Sends bytes as they are: for pipelines built beforehand, and for deliberately malformed
    /// input.
    ///
    /// # Errors
    ///
    /// [`ClientError::Io`].
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.check_step()?;
        let sent = self.stream.write_all(bytes);
        self.note(sent.map_err(ClientError::from))
    }

    /// Reads the next answer, which may take `wait` in addition to the connection's timeout.
    ///
    /// # Errors
    ///
    /// [`ClientError`]; [`ClientError::is_answer`] says whether reading can go on.
    pub fn read_reply(&mut self, kind: ReplyKind, wait: Duration) -> Result<Reply, ClientError> {
        self.check_step()?;
        let reply = self.read_any_reply(kind, wait);
        match self.note(reply)? {
            Reply::Timeout => Err(ClientError::Timeout),
            Reply::NotFound => Err(ClientError::NotFound),
            Reply::ClientError(text) => Err(ClientError::Client(text)),
            Reply::ServerError(text) => Err(ClientError::Server(text)),
            reply => Ok(reply),
        }
    }

    fn read_any_reply(&mut self, kind: ReplyKind, wait: Duration) -> Result<Reply, ClientError> {
        loop {
            if let Some(reply) = decode_reply(kind, &mut self.input)? {
                return Ok(reply);
            }
            self.limit_reads(self.timeout.saturating_add(wait))?;
            self.read_some()?;
        }
    }

    /// Sets the socket's read timeout only if it differs: that is a system call, and most answers
    /// use the same one.
    fn limit_reads(&mut self, timeout: Duration) -> Result<(), ClientError> {
        if self.read_timeout != Some(timeout) {
            self.stream.socket().set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(())
    }

    fn read_some(&mut self) -> Result<(), ClientError> {
        let count = loop {
            match self.stream.read(&mut self.read_buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.input.extend_from_slice(self.read_buffer.get(..count).unwrap_or_default());
        Ok(())
    }

    fn ask(&mut self, request: &Request, wait_ms: u64) -> Result<Reply, ClientError> {
        self.send(request)?;
        self.read_reply(ReplyKind::of(request), Duration::from_millis(wait_ms))
    }

    fn ask_ok(&mut self, request: &Request) -> Result<(), ClientError> {
        self.ask(request, 0).map(|_| ())
    }

    fn check_step(&self) -> Result<(), ClientError> {
        if self.out_of_step {
            return Err(ClientError::Protocol("connection is of no use after an earlier failure"));
        }
        Ok(())
    }

    fn note<T>(&mut self, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        self.out_of_step |= outcome.is_err();
        outcome
    }
}

const UNEXPECTED: ClientError = ClientError::Protocol("answer to another question");

fn only<T>(items: Vec<T>) -> Result<T, ClientError> {
    let mut items = items.into_iter();
    match (items.next(), items.next()) {
        (Some(item), None) => Ok(item),
        _ => Err(UNEXPECTED),
    }
}

/// Refuses what would put the connection out of step: a name that breaks the line, and a block
/// that the server would not take off the wire.
fn check_sendable(request: &Request) -> Result<(), ClientError> {
    let limits = Limits::default();
    let names = match request {
        Request::Add(NewJob { name, .. })
        | Request::Schedule { job: NewJob { name, .. }, .. }
        | Request::Run(Run { name, .. })
        | Request::InspectJobs { name, .. }
        | Request::InspectScheduledJobs { name, .. }
        | Request::InspectQueue { name } => slice::from_ref(name),
        Request::Lease { names, .. } | Request::Offer { names, .. }
            if (1..=limits.lease_names_max).contains(&names.len()) =>
        {
            names
        }
        Request::Lease { .. } | Request::Offer { .. } => {
            return Err(ErrorText::InvalidCommandArgs.into());
        }
        _ => &[],
    };
    if !names.iter().all(|name| is_name(name)) {
        return Err(ErrorText::InvalidName.into());
    }
    let (block, bytes_max, error) = match request {
        Request::Add(NewJob { payload, .. })
        | Request::Schedule { job: NewJob { payload, .. }, .. }
        | Request::Run(Run { payload, .. }) => {
            (payload, limits.payload_bytes_max, ErrorText::InvalidPayloadSize)
        }
        Request::Complete { result, .. } => {
            (result, limits.result_bytes_max, ErrorText::InvalidPayloadSize)
        }
        Request::Fail { result, .. } => {
            (result, limits.result_bytes_max, ErrorText::InvalidResultSize)
        }
        _ => return Ok(()),
    };
    if block.len() > bytes_max { Err(error.into()) } else { Ok(()) }
}
