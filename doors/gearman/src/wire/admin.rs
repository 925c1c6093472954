//! The text commands: one line each, answered by lines.
//!
//! OK and ERR end in CR LF, a value behind OK and all lines of lists in LF, as gearmand has it.
//! Names are shown so that none can end its line or be interpreted by a terminal; commands read
//! them as shown.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use spindle_access::{Denied, hidden_bytes};

use super::number::Decimal;
use super::shown::{put_escaped, put_shown, read_shown};
use super::{ErrorReply, parse_number};

/// How many jobs of a function may be unfinished when one more is submitted, by the priority of
/// the new one. `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueLimits {
    /// For a new job of high priority.
    pub high: Option<u32>,
    /// For a new job of normal priority.
    pub normal: Option<u32>,
    /// For a new job of low priority.
    pub low: Option<u32>,
}

/// One line of a person or a monitoring tool.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the names of what they hold")]
pub enum AdminCommand {
    /// Functions and their jobs; answered by [`status_line`]s and [`end`].
    Status,
    /// The same by priority; answered by [`priority_status_line`]s and [`end`].
    PriorityStatus,
    /// Connections; answered by [`worker_start`] and what follows it for each, and [`end`].
    Workers,
    /// Answered by [`value`].
    Version,
    /// The process id; answered by [`value`].
    Getpid,
    /// The log level; answered by [`value`].
    Verbose,
    /// All unfinished jobs; answered by [`job_line`]s and [`end`].
    ShowJobs,
    /// The uniques of all unfinished jobs; answered by [`unique_line`]s and [`end`].
    ShowUniqueJobs,
    /// Answered by [`ok`] or [`AdminError::UnknownJob`].
    CancelJob { handle: Bytes },
    /// Answered by [`ok`].
    CreateFunction { name: Bytes },
    /// Answered by [`ok`], [`AdminError::FunctionNotFound`] or [`AdminError::FunctionInUse`].
    DropFunction { name: Bytes },
    /// Sets new limits; answered by [`ok`].
    MaxQueue { function: Bytes, limits: QueueLimits },
    /// Presents a token for everything that follows, packets included; answered by [`ok`] or
    /// [`AdminError::Denied`]. An extension of ours.
    Auth { token: Presented },
}

/// What a client presents as its token. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented(pub Bytes);

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presented(..)")
    }
}

/// The ERR lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminError {
    /// Not a command; quotes the line's first word, but no token.
    UnknownCommand(Bytes),
    /// `maxqueue`, `create` or `drop` without what belongs to it.
    IncompleteArguments(IncompleteCommand),
    /// `show` of something other than jobs.
    UnknownShowArguments,
    /// `cancel` of something other than a job.
    UnknownCancelArguments,
    /// `cancel job` of a job that is not unfinished here.
    UnknownJob,
    /// `drop function` of a function that is not there.
    FunctionNotFound,
    /// `drop function` of a function that has workers or running jobs.
    FunctionInUse,
    /// A name over the limit, or otherwise not usable; gearmand has no such check.
    BadFunctionName,
    /// The disk is full.
    DiskFull,
    /// The log cannot be made longer, for another reason than room.
    LogCannotGrow,
    /// This client may not do that.
    Denied(Denied),
}

/// The commands that [`AdminError::IncompleteArguments`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the commands")]
pub enum IncompleteCommand {
    MaxQueue,
    Create,
    Drop,
}

impl AdminCommand {
    /// Reads one line, its LF or CR LF taken off. The words and their order matter, case and spaces
    /// do not; words after a command without arguments are ignored.
    ///
    /// # Errors
    ///
    /// The ERR line to answer.
    pub fn parse(line: &Bytes) -> Result<AdminCommand, AdminError> {
        let is_space = |letter: &u8| letter.is_ascii_whitespace();
        let mut words = line.split(is_space).filter(|word| !word.is_empty());
        let command = words.next().unwrap_or_default();
        let arguments: [Option<&[u8]>; 5] = std::array::from_fn(|_| words.next());
        let is = |name: &str| command.eq_ignore_ascii_case(name.as_bytes());
        let simple = [
            ("status", AdminCommand::Status),
            ("prioritystatus", AdminCommand::PriorityStatus),
            ("workers", AdminCommand::Workers),
            ("version", AdminCommand::Version),
            ("getpid", AdminCommand::Getpid),
            ("verbose", AdminCommand::Verbose),
        ];
        if let Some((_, simple)) = simple.into_iter().find(|(name, _)| is(name)) {
            return Ok(simple);
        }
        let unknown = || AdminError::UnknownCommand(line.slice_ref(command));
        match arguments {
            [Some(what), argument, rest, ..] if is("show") => parse_show(what, argument, rest),
            [Some(what), Some(handle), None, ..] if is("cancel") => {
                if !what.eq_ignore_ascii_case(b"job") {
                    return Err(AdminError::UnknownCancelArguments);
                }
                Ok(AdminCommand::CancelJob { handle: line.slice_ref(handle) })
            }
            // A line without a token, or with more words, is treated as an unknown token.
            _ if is("auth") => {
                let [token, more, ..] = arguments;
                let token = token.filter(|_| more.is_none());
                let token = token.map_or_else(Bytes::new, |token| line.slice_ref(token));
                Ok(AdminCommand::Auth { token: Presented(token) })
            }
            _ if is("create") => {
                let name = parse_function(arguments, IncompleteCommand::Create)?;
                Ok(AdminCommand::CreateFunction { name: read_name(line, name) })
            }
            _ if is("drop") => {
                let name = parse_function(arguments, IncompleteCommand::Drop)?;
                Ok(AdminCommand::DropFunction { name: read_name(line, name) })
            }
            [Some(function), limits @ ..] if is("maxqueue") => Ok(AdminCommand::MaxQueue {
                function: read_name(line, function),
                limits: parse_limits(&limits),
            }),
            _ if is("maxqueue") => {
                Err(AdminError::IncompleteArguments(IncompleteCommand::MaxQueue))
            }
            _ => Err(unknown()),
        }
    }
}

/// A function's name, as a list shows it.
fn read_name(line: &Bytes, word: &[u8]) -> Bytes {
    match read_shown(word) {
        Cow::Borrowed(name) => line.slice_ref(name),
        Cow::Owned(name) => name.into(),
    }
}

fn parse_show(
    what: &[u8],
    argument: Option<&[u8]>,
    rest: Option<&[u8]>,
) -> Result<AdminCommand, AdminError> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    match (argument, rest) {
        (None, None) if is(what, "jobs") => Ok(AdminCommand::ShowJobs),
        (Some(jobs), None) if is(what, "unique") && is(jobs, "jobs") => {
            Ok(AdminCommand::ShowUniqueJobs)
        }
        _ => Err(AdminError::UnknownShowArguments),
    }
}

fn parse_function(
    arguments: [Option<&[u8]>; 5],
    command: IncompleteCommand,
) -> Result<&[u8], AdminError> {
    match arguments {
        [Some(what), Some(name), None, ..] if what.eq_ignore_ascii_case(b"function") => Ok(name),
        _ => Err(AdminError::IncompleteArguments(command)),
    }
}

/// One number is for all priorities; with three, each has its own. What is not a number above 0
/// is no limit.
fn parse_limits(words: &[Option<&[u8]>]) -> QueueLimits {
    let limit = |word: &[u8]| match parse_number(word) {
        0 => None,
        number => Some(u32::try_from(number).unwrap_or(u32::MAX)),
    };
    match words {
        [Some(high), Some(normal), Some(low), ..] => {
            QueueLimits { high: limit(high), normal: limit(normal), low: limit(low) }
        }
        [Some(all), ..] => QueueLimits { high: limit(all), normal: limit(all), low: limit(all) },
        _ => QueueLimits::default(),
    }
}

impl AdminError {
    /// Appends the ERR line.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(b"ERR ");
        match self {
            Self::UnknownCommand(command) => {
                out.put_slice(b"UNKNOWN_COMMAND Unknown+server+command");
                put_shown(out, &hidden_bytes(command));
            }
            Self::IncompleteArguments(command) => {
                out.put_slice(b"INVALID_ARGUMENTS ");
                out.put_slice(b"An+incomplete+set+of+arguments+was+sent+to+this+command+");
                out.put_slice(match command {
                    IncompleteCommand::MaxQueue => b"maxqueue",
                    IncompleteCommand::Create => b"create",
                    IncompleteCommand::Drop => b"drop",
                });
            }
            Self::UnknownShowArguments => out.put_slice(b"UNKNOWN_SHOW_ARGUMENTS"),
            Self::UnknownCancelArguments => out.put_slice(b"UNKNOWN_ERROR"),
            Self::UnknownJob => out.put_slice(b"UNKNOWN_JOB"),
            Self::FunctionNotFound => out.put_slice(b"function not found"),
            Self::FunctionInUse => {
                out.put_slice(b"there are still connected workers or executing clients");
            }
            Self::BadFunctionName => out.put_slice(b"INVALID_ARGUMENTS Function+name+not+usable"),
            Self::DiskFull => out.put_slice(b"QUEUE_ERROR Disk+full"),
            Self::LogCannotGrow => out.put_slice(b"QUEUE_ERROR Log+cannot+grow"),
            Self::Denied(denied) => {
                let reply = ErrorReply::of_denied(*denied);
                out.put_slice(reply.parts().0.as_bytes());
                out.put_u8(b' ');
                out.put_slice(denied.to_string().replace(' ', "+").as_bytes());
            }
        }
        out.put_slice(b"\r\n");
    }
}

/// `OK`, for a command without a value.
pub fn ok(out: &mut BytesMut) {
    out.put_slice(b"OK\r\n");
}

/// `OK` and a value.
pub fn value(out: &mut BytesMut, value: &[u8]) {
    out.put_slice(b"OK ");
    put_shown(out, value);
    out.put_u8(b'\n');
}

/// The line that ends a list.
pub fn end(out: &mut BytesMut) {
    out.put_slice(b".\n");
}

/// A line of `status`: jobs unfinished, jobs running, workers that can do it.
pub fn status_line(out: &mut BytesMut, function: &[u8], total: u64, running: u64, workers: u64) {
    put_counts(out, function, &[total, running, workers]);
}

/// A line of `prioritystatus`: jobs waiting of each priority, workers that can do it.
pub fn priority_status_line(
    out: &mut BytesMut,
    function: &[u8],
    high: u64,
    normal: u64,
    low: u64,
    workers: u64,
) {
    put_counts(out, function, &[high, normal, low, workers]);
}

/// The beginning of a line of `workers`: one connection, its number, its peer's address and what it
/// calls itself. A connection without a name is `-`. Its [`worker_functions`] follow, then
/// [`worker_end`].
pub fn worker_start(
    out: &mut BytesMut,
    connection: u64,
    address: std::net::IpAddr,
    id: Option<&[u8]>,
) {
    put_number(out, connection);
    // This line is written for people, seldom enough for a temporary string.
    out.put_slice(format!(" {address} ").as_bytes());
    put_shown(out, id.unwrap_or(b"-"));
    out.put_slice(b" :");
}

/// Functions in a line of `workers`.
pub fn worker_functions<'a>(out: &mut BytesMut, functions: impl IntoIterator<Item = &'a [u8]>) {
    for function in functions {
        out.put_u8(b' ');
        put_shown(out, function);
    }
}

/// The end of a line of `workers`.
pub fn worker_end(out: &mut BytesMut) {
    out.put_u8(b'\n');
}

/// A line of `show jobs`: the handle, how often the job was given back, whether it is no longer
/// given out (its clients have gone, or it was cancelled), and whether it is a background job.
pub fn job_line(
    out: &mut BytesMut,
    handle: &[u8],
    retries: u64,
    is_ignored: bool,
    is_background: bool,
) {
    put_counts(out, handle, &[retries, is_ignored.into(), is_background.into()]);
}

/// A line of `show unique jobs`. The unique `.` is escaped: that line would end the list.
pub fn unique_line(out: &mut BytesMut, unique: &[u8]) {
    match unique {
        b"." => put_escaped(out, unique),
        _ => put_shown(out, unique),
    }
    out.put_u8(b'\n');
}

fn put_counts(out: &mut BytesMut, name: &[u8], counts: &[u64]) {
    put_shown(out, name);
    for count in counts {
        out.put_u8(b'\t');
        put_number(out, *count);
    }
    out.put_u8(b'\n');
}

fn put_number(out: &mut BytesMut, number: u64) {
    out.put_slice(Decimal::new(number).as_bytes());
}
