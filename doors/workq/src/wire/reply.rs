//! The client's decoder: a server's bytes in, replies out.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{
    JobInfo, JobState, QueueInfo, Request, ServerInfo, Uuid,
    number::{parse_signed, parse_unsigned},
    time::parse_time,
};

/// The longest line of a server's answer; a longer one is not a valid answer.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The longest payload or result of a server's answer.
const BLOCK_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What an answer looks like depends on what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// `+OK` alone.
    Ok,
    /// A result: `run`, `result`.
    Result,
    /// A job to work on: `lease`, `offer`.
    Lease,
    /// Jobs: `inspect job`, `jobs`, `scheduled-jobs`.
    Jobs,
    /// Queues: `inspect queue`, `queues`.
    Queues,
    /// `inspect server`.
    Server,
}

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Ok,
    /// A job's result.
    Result(JobResult),
    /// A job to work on.
    Lease(LeasedJob),
    /// Jobs.
    Jobs(Vec<JobInfo>),
    /// Queues.
    Queues(Vec<QueueInfo>),
    /// The server.
    Server(ServerInfo),
    /// `-TIMEOUT`.
    Timeout,
    /// `-NOT-FOUND`.
    NotFound,
    /// `-CLIENT-ERROR` and its text.
    ClientError(String),
    /// `-SERVER-ERROR` and its text.
    ServerError(String),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResult {
    /// The job.
    pub id: Uuid,
    /// Completed, not failed.
    pub success: bool,
    /// What the worker left.
    pub result: Bytes,
}

/// A job to work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedJob {
    /// The job.
    pub id: Uuid,
    /// Its queue.
    pub name: Bytes,
    /// How long the lease lasts.
    pub ttr_ms: u64,
    /// What to work on.
    pub payload: Bytes,
}

/// The bytes are no answer of a Workq server; the connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer of a Workq server: {0}")]
pub struct ReplyError(pub &'static str);

impl ReplyKind {
    /// What the answer to a request looks like.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Add(_)
            | Request::Schedule { .. }
            | Request::Complete { .. }
            | Request::Fail { .. }
            | Request::Delete { .. }
            | Request::Extend { .. }
            | Request::Auth { .. }
            | Request::Take { .. }
            | Request::Pass => Self::Ok,
            Request::Run(_) | Request::Result { .. } => Self::Result,
            Request::Lease { .. } | Request::Offer { .. } => Self::Lease,
            Request::InspectJob { .. }
            | Request::InspectJobs { .. }
            | Request::InspectScheduledJobs { .. } => Self::Jobs,
            Request::InspectQueue { .. } | Request::InspectQueues { .. } => Self::Queues,
            Request::InspectServer => Self::Server,
        }
    }
}

/// Takes one reply off the front of `input`. `None` means that more bytes are needed; what is
/// there stays.
///
/// # Errors
///
/// [`ReplyError`] when the bytes cannot be an answer of this kind.
pub fn decode_reply(kind: ReplyKind, input: &mut BytesMut) -> Result<Option<Reply>, ReplyError> {
    Ok(decode_whole_reply(kind, input)?.map(|(reply, _)| reply))
}

/// The same, together with the raw bytes of the reply, for callers that forward it.
///
/// # Errors
///
/// [`ReplyError`], as [`decode_reply`].
pub fn decode_whole_reply(
    kind: ReplyKind,
    input: &mut BytesMut,
) -> Result<Option<(Reply, Bytes)>, ReplyError> {
    let mut cursor = Cursor { text: input, at: 0, blocks: Vec::new() };
    match parse_reply(kind, &mut cursor) {
        Ok(mut reply) => {
            let Cursor { at, blocks, .. } = cursor;
            let whole = input.split_to(at).freeze();
            let blocks = blocks.into_iter().map(|block| whole.slice(block));
            reply.place(blocks);
            Ok(Some((reply, whole)))
        }
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed(reason)) => Err(ReplyError(reason)),
    }
}

enum Stop {
    Incomplete,
    Malformed(&'static str),
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// The places of the blocks seen so far; nothing of an incomplete reply is copied.
    blocks: Vec<Range<usize>>,
}

impl Reply {
    /// Gives a result, or each job in turn, its block.
    fn place(&mut self, mut blocks: impl Iterator<Item = Bytes>) {
        let mut next = || blocks.next().unwrap_or_default();
        match self {
            Reply::Result(result) => result.result = next(),
            Reply::Lease(job) => job.payload = next(),
            Reply::Jobs(jobs) => jobs.iter_mut().for_each(|job| job.payload = next()),
            _ => {}
        }
    }
}

impl<'a> Cursor<'a> {
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let window = rest.get(..LINE_BYTES_MAX).unwrap_or(rest);
        let Some(length) = memchr::memchr(b'\n', window) else {
            let too_long = rest.len() >= LINE_BYTES_MAX;
            return Err(if too_long { Stop::Malformed("endless line") } else { Stop::Incomplete });
        };
        self.at += length + 1;
        rest.get(..length)
            .and_then(|line| line.strip_suffix(b"\r"))
            .ok_or(Stop::Malformed("line without CR LF"))
    }

    /// A block of known length and its CR LF.
    fn block(&mut self, bytes: u64) -> Result<(), Stop> {
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= BLOCK_BYTES_MAX)
            .ok_or(Stop::Malformed("size over the limit"))?;
        let range = self.at..self.at + bytes;
        let end = self.text.get(range.end..range.end + 2).ok_or(Stop::Incomplete)?;
        if end != b"\r\n" {
            return Err(Stop::Malformed("block that is longer than announced"));
        }
        self.at = range.end + 2;
        self.blocks.push(range);
        Ok(())
    }
}

/// The reply without its blocks.
fn parse_reply(kind: ReplyKind, cursor: &mut Cursor<'_>) -> Result<Reply, Stop> {
    let line = cursor.line()?;
    if line.starts_with(b"-") {
        return parse_error(line);
    }
    let rest = line.strip_prefix(b"+OK").ok_or(Stop::Malformed("neither +OK nor an error"))?;
    if kind == ReplyKind::Ok {
        let whole = rest.is_empty().then_some(Reply::Ok);
        return whole.ok_or(Stop::Malformed("+OK with something behind it"));
    }
    let count = rest.strip_prefix(b" ").and_then(parse_unsigned);
    let count = count.ok_or(Stop::Malformed("+OK without a count"))?;
    Ok(match kind {
        ReplyKind::Jobs => {
            let jobs: Result<_, _> = (0..count).map(|_| parse_job(cursor)).collect();
            Reply::Jobs(jobs?)
        }
        ReplyKind::Queues => {
            let queues: Result<_, _> = (0..count).map(|_| parse_queue(cursor)).collect();
            Reply::Queues(queues?)
        }
        _ if count != 1 => return Err(Stop::Malformed("count that is not 1")),
        ReplyKind::Result => parse_result(cursor)?,
        ReplyKind::Lease => parse_lease(cursor)?,
        ReplyKind::Server => Reply::Server(parse_server(cursor)?),
        ReplyKind::Ok => Reply::Ok,
    })
}

fn parse_error(line: &[u8]) -> Result<Reply, Stop> {
    let text = |rest: &[u8]| String::from_utf8_lossy(rest).trim_start().to_owned();
    if let Some(rest) = line.strip_prefix(b"-CLIENT-ERROR") {
        return Ok(Reply::ClientError(text(rest)));
    }
    if let Some(rest) = line.strip_prefix(b"-SERVER-ERROR") {
        return Ok(Reply::ServerError(text(rest)));
    }
    match line {
        b"-TIMEOUT" => Ok(Reply::Timeout),
        b"-NOT-FOUND" => Ok(Reply::NotFound),
        _ => Err(Stop::Malformed("unknown error")),
    }
}

fn parse_result(cursor: &mut Cursor<'_>) -> Result<Reply, Stop> {
    let malformed = Stop::Malformed("result line");
    let mut words = cursor.line()?.split(|letter| *letter == b' ');
    let parsed = (|| {
        let id = Uuid::parse(words.next()?)?;
        let success = match words.next()? {
            b"1" => true,
            b"0" => false,
            _ => return None,
        };
        let bytes = parse_unsigned(words.next()?)?;
        words.next().is_none().then_some((id, success, bytes))
    })();
    let (id, success, bytes) = parsed.ok_or(malformed)?;
    cursor.block(bytes)?;
    Ok(Reply::Result(JobResult { id, success, result: Bytes::new() }))
}

fn parse_lease(cursor: &mut Cursor<'_>) -> Result<Reply, Stop> {
    let malformed = Stop::Malformed("lease line");
    let mut words = cursor.line()?.split(|letter| *letter == b' ');
    let parsed = (|| {
        let id = Uuid::parse(words.next()?)?;
        let name = words.next().filter(|name| !name.is_empty())?;
        let ttr_ms = parse_unsigned(words.next()?)?;
        let bytes = parse_unsigned(words.next()?)?;
        words.next().is_none().then_some((id, name, ttr_ms, bytes))
    })();
    let (id, name, ttr_ms, bytes) = parsed.ok_or(malformed)?;
    let name = Bytes::copy_from_slice(name);
    cursor.block(bytes)?;
    Ok(Reply::Lease(LeasedJob { id, name, ttr_ms, payload: Bytes::new() }))
}

/// The line before keys: a name and how many keys follow.
fn parse_title<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], u64), Stop> {
    let line = cursor.line()?;
    let mut words = line.split(|letter| *letter == b' ');
    let title = words.next().unwrap_or_default();
    let keys = words.next().and_then(parse_unsigned);
    match (keys, words.next()) {
        (Some(keys), None) => Ok((title, keys)),
        _ => Err(Stop::Malformed("title line")),
    }
}

/// A line of a key and its value.
fn parse_key<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], &'a [u8]), Stop> {
    let line = cursor.line()?;
    let space = memchr::memchr(b' ', line).ok_or(Stop::Malformed("key without a value"))?;
    let (key, value) = line.split_at(space);
    Ok((key, value.get(1..).unwrap_or_default()))
}

fn number(value: &[u8]) -> Result<u64, Stop> {
    parse_unsigned(value).ok_or(Stop::Malformed("value that is no number"))
}

fn small_number(value: &[u8]) -> Result<u32, Stop> {
    u32::try_from(number(value)?).map_err(|_| Stop::Malformed("value that is too large"))
}

fn time(value: &[u8]) -> Result<u64, Stop> {
    parse_time(value).ok_or(Stop::Malformed("value that is no time"))
}

/// Unknown keys are skipped, because the protocol reserves the right to add keys.
fn parse_job(cursor: &mut Cursor<'_>) -> Result<JobInfo, Stop> {
    let (id, keys) = parse_title(cursor)?;
    let id = Uuid::parse(id).ok_or(Stop::Malformed("job without an id"))?;
    let mut job = JobInfo {
        id,
        name: Bytes::new(),
        ttr_ms: 0,
        ttl_ms: 0,
        payload: Bytes::new(),
        attempts_max: 0,
        attempts: 0,
        fails_max: 0,
        fails: 0,
        priority: 0,
        state: JobState::New,
        created_ms: 0,
        time_ms: None,
    };
    let mut payload_bytes = None;
    let blocks = cursor.blocks.len();
    for _ in 0..keys {
        // The payload may hold anything, line ends included; only its size says where it ends.
        if let Some(bytes) = payload_bytes.take() {
            parse_payload(cursor, bytes)?;
            continue;
        }
        let (key, value) = parse_key(cursor)?;
        match key {
            b"name" => job.name = Bytes::copy_from_slice(value),
            b"ttr" => job.ttr_ms = number(value)?,
            b"ttl" => job.ttl_ms = number(value)?,
            b"payload-size" => payload_bytes = Some(number(value)?),
            b"max-attempts" => job.attempts_max = small_number(value)?,
            b"attempts" => job.attempts = number(value)?,
            b"max-fails" => job.fails_max = small_number(value)?,
            b"fails" => job.fails = number(value)?,
            b"priority" => {
                job.priority = parse_signed(value).ok_or(Stop::Malformed("priority"))?;
            }
            b"state" => {
                let state = JobState::from_number(number(value)?);
                job.state = state.ok_or(Stop::Malformed("state"))?;
            }
            b"created" => job.created_ms = time(value)?,
            b"time" => job.time_ms = Some(time(value)?),
            _ => {}
        }
    }
    // One for each job, however many it shows.
    cursor.blocks.resize(blocks + 1, 0..0);
    Ok(job)
}

fn parse_payload(cursor: &mut Cursor<'_>, bytes: u64) -> Result<(), Stop> {
    const KEY: &[u8] = b"payload ";
    let rest = cursor.text.get(cursor.at..).unwrap_or_default();
    if rest.len() < KEY.len() {
        return Err(Stop::Incomplete);
    }
    if !rest.starts_with(KEY) {
        return Err(Stop::Malformed("payload-size without a payload behind it"));
    }
    cursor.at += KEY.len();
    cursor.block(bytes)
}

fn parse_queue(cursor: &mut Cursor<'_>) -> Result<QueueInfo, Stop> {
    let (name, keys) = parse_title(cursor)?;
    let mut queue = QueueInfo { name: Bytes::copy_from_slice(name), ready: 0, scheduled: 0 };
    for _ in 0..keys {
        match parse_key(cursor)? {
            (b"ready-len", value) => queue.ready = number(value)?,
            (b"scheduled-len", value) => queue.scheduled = number(value)?,
            _ => {}
        }
    }
    Ok(queue)
}

fn parse_server(cursor: &mut Cursor<'_>) -> Result<ServerInfo, Stop> {
    let (_, keys) = parse_title(cursor)?;
    let mut server = ServerInfo { active_clients: 0, evicted_jobs: 0, started_ms: 0 };
    // The original server announces two keys and prints three.
    for _ in 0..keys.max(3) {
        match parse_key(cursor)? {
            (b"active-clients", value) => server.active_clients = number(value)?,
            (b"evicted-jobs", value) => server.evicted_jobs = number(value)?,
            (b"started", value) => server.started_ms = time(value)?,
            _ => {}
        }
    }
    Ok(server)
}
