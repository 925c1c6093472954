//! The server's packets, appended to a connection's output. A handle is not checked: give the
//! bytes of a [`super::Handle`], or for an answer the handle that the question had.

use bytes::BytesMut;

use super::number::Decimal;
use super::packet::{PacketType as P, RESPONSE_MAGIC, write};
use super::{ErrorReply, JobStatus};

/// JOB_CREATED: the job is taken (and durable, unless it is a foreground job).
pub fn job_created(out: &mut BytesMut, handle: &[u8]) {
    write(out, RESPONSE_MAGIC, P::JobCreated, &[handle]);
}

/// JOB_ASSIGN, the answer to a plain grab.
pub fn job_assign(out: &mut BytesMut, handle: &[u8], function: &[u8], payload: &[u8]) {
    write(out, RESPONSE_MAGIC, P::JobAssign, &[handle, function, payload]);
}

/// JOB_ASSIGN_UNIQ, the answer to GRAB_JOB_UNIQ, and to GRAB_JOB_ALL for a job without reducer.
pub fn job_assign_uniq(
    out: &mut BytesMut,
    handle: &[u8],
    function: &[u8],
    unique: &[u8],
    payload: &[u8],
) {
    write(out, RESPONSE_MAGIC, P::JobAssignUniq, &[handle, function, unique, payload]);
}

/// JOB_ASSIGN_ALL, the answer to GRAB_JOB_ALL for a job with a reducer.
pub fn job_assign_all(
    out: &mut BytesMut,
    handle: &[u8],
    function: &[u8],
    unique: &[u8],
    reducer: &[u8],
    payload: &[u8],
) {
    write(out, RESPONSE_MAGIC, P::JobAssignAll, &[handle, function, unique, reducer, payload]);
}

/// NO_JOB: nothing to grab now.
pub fn no_job(out: &mut BytesMut) {
    write(out, RESPONSE_MAGIC, P::NoJob, &[]);
}

/// NOOP: wakes a sleeping worker.
pub fn noop(out: &mut BytesMut) {
    write(out, RESPONSE_MAGIC, P::Noop, &[]);
}

/// WORK_STATUS, with the worker's own text.
pub fn work_status(out: &mut BytesMut, handle: &[u8], numerator: &[u8], denominator: &[u8]) {
    write(out, RESPONSE_MAGIC, P::WorkStatus, &[handle, numerator, denominator]);
}

/// WORK_STATUS, from numbers: for progress that came through another door.
pub fn work_status_numbers(out: &mut BytesMut, handle: &[u8], numerator: u64, denominator: u64) {
    let (numerator, denominator) = (Decimal::new(numerator), Decimal::new(denominator));
    work_status(out, handle, numerator.as_bytes(), denominator.as_bytes());
}

/// WORK_DATA: a part of the result.
pub fn work_data(out: &mut BytesMut, handle: &[u8], data: &[u8]) {
    write(out, RESPONSE_MAGIC, P::WorkData, &[handle, data]);
}

/// WORK_WARNING.
pub fn work_warning(out: &mut BytesMut, handle: &[u8], data: &[u8]) {
    write(out, RESPONSE_MAGIC, P::WorkWarning, &[handle, data]);
}

/// WORK_COMPLETE: the result, or its last part.
pub fn work_complete(out: &mut BytesMut, handle: &[u8], result: &[u8]) {
    write(out, RESPONSE_MAGIC, P::WorkComplete, &[handle, result]);
}

/// WORK_FAIL.
pub fn work_fail(out: &mut BytesMut, handle: &[u8]) {
    write(out, RESPONSE_MAGIC, P::WorkFail, &[handle]);
}

/// WORK_EXCEPTION, for clients that have asked for exceptions.
pub fn work_exception(out: &mut BytesMut, handle: &[u8], data: &[u8]) {
    write(out, RESPONSE_MAGIC, P::WorkException, &[handle, data]);
}

/// STATUS_RES, the answer to GET_STATUS.
pub fn status(out: &mut BytesMut, handle: &[u8], status: JobStatus) {
    let texts = status_texts(status);
    let [known, running, numerator, denominator] = texts.each_ref().map(Decimal::as_bytes);
    let arguments = [handle, known, running, numerator, denominator];
    write(out, RESPONSE_MAGIC, P::StatusRes, &arguments);
}

/// STATUS_RES_UNIQUE, the answer to GET_STATUS_UNIQUE.
pub fn status_unique(out: &mut BytesMut, unique: &[u8], status: JobStatus, clients: u64) {
    let texts = status_texts(status);
    let [known, running, numerator, denominator] = texts.each_ref().map(Decimal::as_bytes);
    let clients = Decimal::new(clients);
    let arguments = [unique, known, running, numerator, denominator, clients.as_bytes()];
    write(out, RESPONSE_MAGIC, P::StatusResUnique, &arguments);
}

/// ECHO_RES.
pub fn echo(out: &mut BytesMut, data: &[u8]) {
    write(out, RESPONSE_MAGIC, P::EchoRes, &[data]);
}

/// OPTION_RES.
pub fn option(out: &mut BytesMut, name: &[u8]) {
    write(out, RESPONSE_MAGIC, P::OptionRes, &[name]);
}

/// ERROR.
pub fn error(out: &mut BytesMut, reply: ErrorReply) {
    let (code, text) = reply.parts();
    error_parts(out, code.as_bytes(), text.as_bytes());
}

pub(super) fn error_parts(out: &mut BytesMut, code: &[u8], text: &[u8]) {
    write(out, RESPONSE_MAGIC, P::Error, &[code, text]);
}

fn status_texts(status: JobStatus) -> [Decimal; 4] {
    [
        Decimal::new(status.is_known.into()),
        Decimal::new(status.is_running.into()),
        Decimal::new(status.numerator),
        Decimal::new(status.denominator),
    ]
}
