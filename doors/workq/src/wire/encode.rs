//! The server's answers, appended to a connection's output.

use bytes::{BufMut, BytesMut};

use super::{
    JobInfo, QueueInfo, ServerInfo, Uuid,
    number::{write_signed, write_unsigned},
    time::write_time,
};

/// `+OK`.
pub fn ok(out: &mut BytesMut) {
    out.put_slice(b"+OK\r\n");
}

/// `-TIMEOUT`: nothing came within the wait-timeout.
pub fn timeout(out: &mut BytesMut) {
    out.put_slice(b"-TIMEOUT\r\n");
}

/// `-NOT-FOUND`: there is no such job or queue.
pub fn not_found(out: &mut BytesMut) {
    out.put_slice(b"-NOT-FOUND\r\n");
}

/// `-CLIENT-ERROR` and what the client did wrong.
pub fn client_error(out: &mut BytesMut, text: &str) {
    error(out, b"-CLIENT-ERROR ", text);
}

/// `-SERVER-ERROR` and what went wrong here.
pub fn server_error(out: &mut BytesMut, text: &str) {
    error(out, b"-SERVER-ERROR ", text);
}

/// A text may quote input; a line end in it must not end the answer.
fn error(out: &mut BytesMut, kind: &[u8], text: &str) {
    out.put_slice(kind);
    out.extend(text.bytes().map(|letter| if letter.is_ascii_control() { b' ' } else { letter }));
    out.put_slice(b"\r\n");
}

/// The answer to `lease`.
pub fn lease(out: &mut BytesMut, id: Uuid, name: &[u8], ttr_ms: u64, payload: &[u8]) {
    out.reserve(payload.len() + name.len() + 96);
    out.put_slice(b"+OK 1\r\n");
    id.write(out);
    out.put_u8(b' ');
    out.put_slice(name);
    out.put_u8(b' ');
    write_unsigned(out, ttr_ms);
    out.put_u8(b' ');
    write_block(out, payload);
}

/// The answer to `result` and `run`.
pub fn result(out: &mut BytesMut, id: Uuid, success: bool, result: &[u8]) {
    out.reserve(result.len() + 96);
    out.put_slice(b"+OK 1\r\n");
    id.write(out);
    out.put_slice(if success { b" 1 " } else { b" 0 " });
    write_block(out, result);
}

/// The first line of an answer to `inspect`: how many jobs, queues or servers follow.
pub fn count(out: &mut BytesMut, count: usize) {
    out.put_slice(b"+OK ");
    write_unsigned(out, count as u64);
    out.put_slice(b"\r\n");
}

/// One job of an answer to `inspect`; call [`count`] first. A scheduled job has one key more.
pub fn job(out: &mut BytesMut, job: &JobInfo) {
    out.reserve(job.payload.len() + job.name.len() + 384);
    job.id.write(out);
    out.put_slice(if job.time_ms.is_some() { b" 13\r\nname " } else { b" 12\r\nname " });
    out.put_slice(&job.name);
    out.put_slice(b"\r\n");
    number_line(out, b"ttr ", job.ttr_ms);
    number_line(out, b"ttl ", job.ttl_ms);
    number_line(out, b"payload-size ", job.payload.len() as u64);
    out.put_slice(b"payload ");
    out.put_slice(&job.payload);
    out.put_slice(b"\r\n");
    number_line(out, b"max-attempts ", job.attempts_max.into());
    number_line(out, b"attempts ", job.attempts);
    number_line(out, b"max-fails ", job.fails_max.into());
    number_line(out, b"fails ", job.fails);
    out.put_slice(b"priority ");
    write_signed(out, job.priority.clamp(i32::MIN.into(), i32::MAX.into()));
    out.put_slice(b"\r\n");
    number_line(out, b"state ", u64::from(job.state.number()));
    time_line(out, b"created ", job.created_ms);
    if let Some(time_ms) = job.time_ms {
        time_line(out, b"time ", time_ms);
    }
}

/// One queue of an answer to `inspect`; call [`count`] first.
pub fn queue(out: &mut BytesMut, queue: &QueueInfo) {
    out.put_slice(&queue.name);
    out.put_slice(b" 2\r\n");
    number_line(out, b"ready-len ", queue.ready);
    number_line(out, b"scheduled-len ", queue.scheduled);
}

/// The whole answer to `inspect server`.
pub fn server(out: &mut BytesMut, server: &ServerInfo) {
    out.put_slice(b"+OK 1\r\nserver 3\r\n");
    number_line(out, b"active-clients ", server.active_clients);
    number_line(out, b"evicted-jobs ", server.evicted_jobs);
    time_line(out, b"started ", server.started_ms);
}

fn write_block(out: &mut BytesMut, block: &[u8]) {
    write_unsigned(out, block.len() as u64);
    out.put_slice(b"\r\n");
    out.put_slice(block);
    out.put_slice(b"\r\n");
}

fn number_line(out: &mut BytesMut, key: &[u8], value: u64) {
    out.put_slice(key);
    write_unsigned(out, value);
    out.put_slice(b"\r\n");
}

fn time_line(out: &mut BytesMut, key: &[u8], time_ms: u64) {
    out.put_slice(key);
    write_time(out, time_ms);
    out.put_slice(b"\r\n");
}
