//! The client's half of Gearman's wire formats, for `spindle demo`, routers between shards, tests and
//! load tools: requests to bytes, a server's bytes to answers, and a blocking [`Connection`] of both.
//!
//! The door has only the server's half. The packets and their fields are the door's own types; the
//! frames are written and read by separate code here, so that a fault in the door's frames shows.

mod connection;
mod draft;
mod response;

use crate::wire::{
    AdminCommand, GrabKind, PacketType, Priority, QueueLimits, Request, Submit, SubmitKind,
};
use bytes::{BufMut, Bytes, BytesMut};

pub use connection::Connection;
pub use draft::decode_reply;
pub use response::{ResponseError, decode_response, take_response};

/// What a client or worker sends.
pub trait Encode {
    /// Appends it as clients send it. Arguments with a NUL where the next argument begins after a
    /// NUL are written as they are.
    fn encode(&self, out: &mut BytesMut);
}

/// Magic, type and length of a packet, then the arguments with NULs between them.
fn put_packet(out: &mut BytesMut, kind: PacketType, arguments: &[&[u8]]) {
    let data = arguments.join(&0);
    out.put_slice(b"\0REQ");
    out.put_u32(kind.number());
    out.put_u32(u32::try_from(data.len()).expect("a length that a header can hold"));
    out.put_slice(&data);
}

fn digits(number: impl Into<u64>) -> Vec<u8> {
    number.into().to_string().into_bytes()
}

impl Encode for Request {
    fn encode(&self, out: &mut BytesMut) {
        use PacketType as P;
        let mut put = |kind, arguments: &[&[u8]]| put_packet(out, kind, arguments);
        match self {
            Self::CanDo { function } => put(P::CanDo, &[function]),
            Self::CanDoTimeout { function, timeout_ms } => {
                put(P::CanDoTimeout, &[function, &digits(*timeout_ms)]);
            }
            Self::CantDo { function } => put(P::CantDo, &[function]),
            Self::ResetAbilities => put(P::ResetAbilities, &[]),
            Self::PreSleep => put(P::PreSleep, &[]),
            Self::AllYours => put(P::AllYours, &[]),
            Self::Submit(submit) => submit.encode(out),
            Self::Grab(GrabKind::Plain) => put(P::GrabJob, &[]),
            Self::Grab(GrabKind::Uniq) => put(P::GrabJobUniq, &[]),
            Self::Grab(GrabKind::All) => put(P::GrabJobAll, &[]),
            Self::WorkStatus { handle, numerator, denominator } => {
                put(P::WorkStatus, &[handle, numerator, denominator]);
            }
            Self::WorkData { handle, data } => put(P::WorkData, &[handle, data]),
            Self::WorkWarning { handle, data } => put(P::WorkWarning, &[handle, data]),
            Self::WorkComplete { handle, result } => put(P::WorkComplete, &[handle, result]),
            Self::WorkFail { handle } => put(P::WorkFail, &[handle]),
            Self::WorkException { handle, data } => put(P::WorkException, &[handle, data]),
            Self::GetStatus { handle } => put(P::GetStatus, &[handle]),
            Self::GetStatusUnique { unique } => put(P::GetStatusUnique, &[unique]),
            Self::Echo { data } => put(P::EchoReq, &[data]),
            Self::SetClientId { id } => put(P::SetClientId, &[id]),
            Self::Option { name } => put(P::OptionReq, &[name]),
        }
    }
}

impl Encode for Submit {
    fn encode(&self, out: &mut BytesMut) {
        let owned = |bytes: &Bytes| bytes.to_vec();
        let between: Vec<Vec<u8>> = match &self.kind {
            SubmitKind::Foreground(_) | SubmitKind::Background(_) => Vec::new(),
            SubmitKind::Epoch { at_s } => vec![digits(*at_s)],
            SubmitKind::Reduce { reducer, aggregator, .. } => {
                vec![owned(reducer), owned(aggregator)]
            }
            SubmitKind::Scheduled(schedule) => {
                schedule.fields().map(|field| field.map(digits).unwrap_or_default()).to_vec()
            }
        };
        let mut arguments = vec![&self.function[..], &self.unique[..]];
        arguments.extend(between.iter().map(Vec::as_slice));
        arguments.push(&self.payload);
        put_packet(out, packet_type(&self.kind), &arguments);
    }
}

fn packet_type(kind: &SubmitKind) -> PacketType {
    match kind {
        SubmitKind::Foreground(Priority::Low) => PacketType::SubmitJobLow,
        SubmitKind::Foreground(Priority::Normal) => PacketType::SubmitJob,
        SubmitKind::Foreground(Priority::High) => PacketType::SubmitJobHigh,
        SubmitKind::Background(Priority::Low) => PacketType::SubmitJobLowBg,
        SubmitKind::Background(Priority::Normal) => PacketType::SubmitJobBg,
        SubmitKind::Background(Priority::High) => PacketType::SubmitJobHighBg,
        SubmitKind::Scheduled(_) => PacketType::SubmitJobSched,
        SubmitKind::Epoch { .. } => PacketType::SubmitJobEpoch,
        SubmitKind::Reduce { is_background: false, .. } => PacketType::SubmitReduceJob,
        SubmitKind::Reduce { is_background: true, .. } => PacketType::SubmitReduceJobBackground,
    }
}

/// For handles without spaces.
impl Encode for AdminCommand {
    fn encode(&self, out: &mut BytesMut) {
        let mut put = |words: &[&[u8]]| {
            out.put_slice(&words.join(&b' '));
            out.put_u8(b'\n');
        };
        match self {
            Self::Status => put(&[b"status"]),
            Self::PriorityStatus => put(&[b"prioritystatus"]),
            Self::Workers => put(&[b"workers"]),
            Self::Version => put(&[b"version"]),
            Self::Getpid => put(&[b"getpid"]),
            Self::Verbose => put(&[b"verbose"]),
            Self::ShowJobs => put(&[b"show", b"jobs"]),
            Self::ShowUniqueJobs => put(&[b"show", b"unique", b"jobs"]),
            Self::Auth { token } => put(&[b"auth", &token.0]),
            Self::CancelJob { handle } => put(&[b"cancel", b"job", handle]),
            Self::CreateFunction { name } => put(&[b"create", b"function", &written_name(name)]),
            Self::DropFunction { name } => put(&[b"drop", b"function", &written_name(name)]),
            Self::MaxQueue { function, limits: QueueLimits { high, normal, low } } => {
                // No limit is 0 on the wire.
                let [high, normal, low] = [high, normal, low].map(|it| digits(it.unwrap_or(0)));
                put(&[b"maxqueue", &written_name(function), &high, &normal, &low]);
            }
        }
    }
}

/// A function's name in a command: every byte that a list may show as `\xNN`, and the space, is
/// written that way.
fn written_name(name: &[u8]) -> Vec<u8> {
    let written = |byte: &u8| match byte {
        b'!'..=b'[' | b']'..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    name.iter().map(written).collect::<String>().into_bytes()
}
