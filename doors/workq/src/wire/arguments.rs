//! The arguments of each command, checked in the recorded order: first the form of all of them,
//! then their ranges.

use std::ops::Range;

use bytes::Bytes;

use super::{
    ErrorText, Limits, NewJob, Presented, Request, Run, Uuid, is_name,
    line::{Line, Word},
    number::{parse_signed, parse_unsigned, parse_up_to},
    time::parse_time,
};

/// 24 hours: the longest time to run.
const TTR_MS_MAX: u32 = 86_400_000;
/// 24 hours: the longest wait.
const WAIT_TIMEOUT_MS_MAX: u32 = 86_400_000;
/// The most jobs or queues that one `inspect` lists.
const INSPECT_LIMIT_MAX: u32 = 100;

/// What a line asks for.
#[derive(Debug)]
pub(super) enum Asked {
    /// A request that is complete, but for its name.
    Now(Named),
    /// `lease` or `offer`, and where its name stands if it has only one.
    Lease { is_offer: bool, wait_timeout_ms: u32, only_name: Option<Range<usize>> },
    /// A request whose block follows, or the error to answer after the block was passed over.
    Block(Block),
}

/// A request and where in the line its name stands.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) request: Request,
    pub(super) name: Range<usize>,
}

/// A line that announces a block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: usize,
    /// What to say when the block does not end where it should.
    pub(super) size_error: ErrorText,
    pub(super) outcome: Result<Named, ErrorText>,
}

/// Reads a command line. An error is the answer to it; nothing behind the line is passed over.
pub(super) fn parse(text: &[u8], limits: &Limits) -> Result<Asked, ErrorText> {
    use ErrorText::{InvalidPayloadSize, InvalidResultSize};
    let line = &Line::parse(text)?;
    let payload = (limits.payload_bytes_max, InvalidPayloadSize);
    match line.command() {
        b"add" => block(line, 6, payload, add),
        b"complete" => block(line, 3, (limits.result_bytes_max, InvalidPayloadSize), |line| {
            finish(line).map(|id| Request::Complete { id, result: Bytes::new() }.into())
        }),
        b"fail" => block(line, 3, (limits.result_bytes_max, InvalidResultSize), |line| {
            finish(line).map(|id| Request::Fail { id, result: Bytes::new() }.into())
        }),
        b"lease" => lease(line, limits, false),
        b"offer" => lease(line, limits, true),
        b"schedule" => block(line, 7, payload, schedule),
        b"run" => block(line, 6, payload, run),
        b"result" => result(line).map(Asked::from),
        b"delete" => delete(line).map(Asked::from),
        b"extend" => extend(line).map(Asked::from),
        b"take" => take(line).map(Asked::from),
        b"pass" => check_plain(line, 1).map(|()| Request::Pass.into()),
        b"inspect" => inspect(line).map(Asked::Now),
        b"auth" => auth(line).map(Asked::Now),
        _ => Err(ErrorText::UnknownCommand),
    }
}

impl From<Request> for Named {
    fn from(request: Request) -> Self {
        Self { request, name: 0..0 }
    }
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        Self::Now(request.into())
    }
}

/// A command whose last word announces a block. Only a wrong number of words and an invalid size
/// (`size_error`) are answered at once; everything else waits until the block was passed over.
fn block(
    line: &Line<'_>,
    word_count: usize,
    (bytes_max, size_error): (usize, ErrorText),
    parse: impl FnOnce(&Line<'_>) -> Result<Named, ErrorText>,
) -> Result<Asked, ErrorText> {
    if line.word_count != word_count {
        return Err(ErrorText::InvalidCommandArgs);
    }
    let bytes = parse_signed(line.word(word_count - 1).text)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes <= bytes_max)
        .ok_or(size_error)?;
    Ok(Asked::Block(Block { bytes, size_error, outcome: parse(line) }))
}

fn finish(line: &Line<'_>) -> Result<Uuid, ErrorText> {
    check_flags(line, 0)?;
    parse_id(line.word(1))
}

fn add(line: &Line<'_>) -> Result<Named, ErrorText> {
    let (job, ()) = new_job(line, i32::MAX.into(), || Ok(()))?;
    Ok(Named { request: Request::Add(job), name: line.word(2).range() })
}

fn schedule(line: &Line<'_>) -> Result<Named, ErrorText> {
    let time = || parse_time(line.word(5).text).ok_or(ErrorText::InvalidTime);
    let (job, time_ms) = new_job(line, u32::MAX.into(), time)?;
    Ok(Named { request: Request::Schedule { job, time_ms }, name: line.word(2).range() })
}

/// The job of `add` and `schedule`, and what `time` reads between its words and its flags.
fn new_job<T>(
    line: &Line<'_>,
    priority_max: i64,
    time: impl FnOnce() -> Result<T, ErrorText>,
) -> Result<(NewJob, T), ErrorText> {
    check_flags(line, 3)?;
    let (id, ttr_ms) = (parse_uuid(line.word(1))?, parse_ttr(line.word(3))?);
    let ttl_ms = parse_ttl(line.word(4))?;
    let time = time()?;
    let (attempts_max, fails_max) = parse_tries(line)?;
    let priority = parse_priority(line, priority_max)?;
    check_job(id, line.word(2), ttr_ms)?;
    check_ttl(ttl_ms)?;
    let (name, payload) = (Bytes::new(), Bytes::new());
    let job = NewJob { id, name, ttr_ms, ttl_ms, priority, attempts_max, fails_max, payload };
    Ok((job, time))
}

fn run(line: &Line<'_>) -> Result<Named, ErrorText> {
    check_flags(line, 1)?;
    let (id, ttr_ms) = (parse_uuid(line.word(1))?, parse_ttr(line.word(3))?);
    let priority = parse_priority(line, u32::MAX.into())?;
    let wait_timeout_ms = parse_wait_timeout(line.word(4))?;
    check_job(id, line.word(2), ttr_ms)?;
    let (name, payload) = (Bytes::new(), Bytes::new());
    let run = Run { id, name, ttr_ms, wait_timeout_ms, priority, payload };
    Ok(Named { request: Request::Run(run), name: line.word(2).range() })
}

fn result(line: &Line<'_>) -> Result<Request, ErrorText> {
    check_plain(line, 3)?;
    let id = parse_id(line.word(1))?;
    Ok(Request::Result { id, wait_timeout_ms: parse_wait_timeout(line.word(2))? })
}

fn delete(line: &Line<'_>) -> Result<Request, ErrorText> {
    check_plain(line, 2)?;
    Ok(Request::Delete { id: parse_id(line.word(1))? })
}

fn extend(line: &Line<'_>) -> Result<Request, ErrorText> {
    check_plain(line, 3)?;
    let id = parse_id(line.word(1))?;
    let ttr_ms = parse_ttr(line.word(2))?;
    check_ttr(ttr_ms)?;
    Ok(Request::Extend { id, ttr_ms })
}

fn take(line: &Line<'_>) -> Result<Request, ErrorText> {
    check_plain(line, 2)?;
    Ok(Request::Take { id: parse_id(line.word(1))? })
}

fn lease(line: &Line<'_>, limits: &Limits, is_offer: bool) -> Result<Asked, ErrorText> {
    // The words are the command, the names and the wait-timeout.
    if line.word_count < 3 || line.word_count - 2 > limits.lease_names_max {
        return Err(ErrorText::InvalidCommandArgs);
    }
    check_flags(line, 0)?;
    if line.word_count == 3 {
        let wait_timeout_ms = parse_wait_timeout(line.word(2))?;
        check_name(line.word(1))?;
        let only_name = Some(line.word(1).range());
        return Ok(Asked::Lease { is_offer, wait_timeout_ms, only_name });
    }
    let last = line.all_words().nth(line.word_count - 1).unwrap_or_default();
    let wait_timeout_ms = parse_wait_timeout(last)?;
    lease_names(line).try_for_each(check_name)?;
    Ok(Asked::Lease { is_offer, wait_timeout_ms, only_name: None })
}

/// The words of a `lease` or an `offer` between the command and the wait-timeout.
pub(super) fn lease_names<'a>(line: &Line<'a>) -> impl Iterator<Item = Word<'a>> + use<'a> {
    line.all_words().skip(1).take(line.word_count.saturating_sub(2))
}

fn auth(line: &Line<'_>) -> Result<Named, ErrorText> {
    check_plain(line, 2)?;
    let request = Request::Auth { token: Presented::default() };
    Ok(Named { request, name: line.word(1).range() })
}

fn inspect(line: &Line<'_>) -> Result<Named, ErrorText> {
    if line.word_count < 2 {
        return Err(ErrorText::InvalidCommandArgs);
    }
    match line.word(1).text {
        b"server" => {
            check_plain(line, 2)?;
            Ok(Request::InspectServer.into())
        }
        b"job" => {
            check_plain(line, 3)?;
            Ok(Request::InspectJob { id: parse_uuid(line.word(2))? }.into())
        }
        b"jobs" | b"scheduled-jobs" => inspect_jobs(line),
        b"queue" => {
            check_plain(line, 3)?;
            check_name(line.word(2))?;
            let request = Request::InspectQueue { name: Bytes::new() };
            Ok(Named { request, name: line.word(2).range() })
        }
        b"queues" => {
            check_plain(line, 4)?;
            let (cursor_offset, limit) = parse_page(line.word(2), line.word(3))?;
            Ok(Request::InspectQueues { cursor_offset, limit }.into())
        }
        _ => Err(ErrorText::UnknownCommand),
    }
}

fn inspect_jobs(line: &Line<'_>) -> Result<Named, ErrorText> {
    check_plain(line, 5)?;
    check_name(line.word(2))?;
    let (cursor_offset, limit) = parse_page(line.word(3), line.word(4))?;
    let name = Bytes::new();
    let request = match line.word(1).text {
        b"jobs" => Request::InspectJobs { name, cursor_offset, limit },
        _ => Request::InspectScheduledJobs { name, cursor_offset, limit },
    };
    Ok(Named { request, name: line.word(2).range() })
}

fn parse_page(cursor_offset: Word<'_>, limit: Word<'_>) -> Result<(u32, u32), ErrorText> {
    let cursor_offset =
        parse_up_to(cursor_offset.text, u32::MAX).ok_or(ErrorText::InvalidCursorOffset)?;
    let limit = parse_up_to(limit.text, INSPECT_LIMIT_MAX)
        .filter(|limit| *limit > 0)
        .ok_or(ErrorText::InvalidLimit)?;
    Ok((cursor_offset, limit))
}

/// A command of this many words and no flag.
fn check_plain(line: &Line<'_>, word_count: usize) -> Result<(), ErrorText> {
    if line.word_count == word_count {
        check_flags(line, 0)
    } else {
        Err(ErrorText::InvalidCommandArgs)
    }
}

fn check_flags(line: &Line<'_>, flags_max: usize) -> Result<(), ErrorText> {
    if line.flag_count <= flags_max { Ok(()) } else { Err(ErrorText::InvalidCommandArgs) }
}

fn check_name(name: Word<'_>) -> Result<(), ErrorText> {
    if is_name(name.text) { Ok(()) } else { Err(ErrorText::InvalidName) }
}

fn check_ttr(ttr_ms: u32) -> Result<(), ErrorText> {
    if (1..=TTR_MS_MAX).contains(&ttr_ms) { Ok(()) } else { Err(ErrorText::InvalidTtr) }
}

fn check_ttl(ttl_ms: u64) -> Result<(), ErrorText> {
    if ttl_ms > 0 { Ok(()) } else { Err(ErrorText::InvalidTtl) }
}

/// The ranges that `add`, `schedule` and `run` check, once all arguments have their form.
fn check_job(id: Uuid, name: Word<'_>, ttr_ms: u32) -> Result<(), ErrorText> {
    check_id(id)?;
    if id.is_foreign() {
        return Err(ErrorText::InvalidId);
    }
    check_name(name)?;
    check_ttr(ttr_ms)
}

fn check_id(id: Uuid) -> Result<(), ErrorText> {
    if id.is_nil() { Err(ErrorText::InvalidId) } else { Ok(()) }
}

fn parse_uuid(word: Word<'_>) -> Result<Uuid, ErrorText> {
    Uuid::parse(word.text).ok_or(ErrorText::InvalidId)
}

fn parse_id(word: Word<'_>) -> Result<Uuid, ErrorText> {
    let id = parse_uuid(word)?;
    check_id(id)?;
    Ok(id)
}

/// The form of a time to run: any 32-bit number. [`check_ttr`] has its range.
fn parse_ttr(word: Word<'_>) -> Result<u32, ErrorText> {
    parse_up_to(word.text, u32::MAX).ok_or(ErrorText::InvalidTtr)
}

fn parse_ttl(word: Word<'_>) -> Result<u64, ErrorText> {
    parse_unsigned(word.text).ok_or(ErrorText::InvalidTtl)
}

fn parse_wait_timeout(word: Word<'_>) -> Result<u32, ErrorText> {
    parse_up_to(word.text, WAIT_TIMEOUT_MS_MAX).ok_or(ErrorText::InvalidWaitTimeout)
}

fn parse_tries(line: &Line<'_>) -> Result<(u8, u8), ErrorText> {
    let attempts_max = parse_small_flag(line, b"max-attempts", ErrorText::InvalidMaxAttempts)?;
    let fails_max = parse_small_flag(line, b"max-fails", ErrorText::InvalidMaxFails)?;
    Ok((attempts_max, fails_max))
}

fn parse_small_flag(line: &Line<'_>, name: &[u8], error: ErrorText) -> Result<u8, ErrorText> {
    let Some(value) = line.flag(name) else { return Ok(0) };
    parse_unsigned(value).and_then(|number| u8::try_from(number).ok()).ok_or(error)
}

fn parse_priority(line: &Line<'_>, max: i64) -> Result<i64, ErrorText> {
    let Some(value) = line.flag(b"priority") else { return Ok(0) };
    parse_signed(value)
        .filter(|priority| (i64::from(i32::MIN)..=max).contains(priority))
        .ok_or(ErrorText::InvalidPriority)
}
