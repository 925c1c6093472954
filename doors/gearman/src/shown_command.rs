//! What the log says of packets, lines and their answers.

use crate::needs::{About, draft_needs, needs};
use crate::wire::{AdminCommand, Incoming, PacketType, Request, draft};

/// Which packet or line it is, and the function it names.
pub(crate) fn described(incoming: &Incoming) -> (&'static str, &[u8]) {
    let command = match incoming {
        Incoming::Request(request) => request_word(request),
        Incoming::Admin(Ok(command)) => line_word(command),
        Incoming::Admin(Err(_)) => "unknown line",
    };
    (command, queue_of(needs(incoming).map(|(_, about)| about)))
}

/// The same for a packet of the draft.
pub(crate) fn draft_described(request: &draft::Request) -> (&'static str, &[u8]) {
    use draft::Request;
    let command = match request {
        Request::Noop => "noop",
        Request::WorkerConnect { .. } => "worker_connect",
        Request::WorkerDisconnect => "worker_disconnect",
        Request::WorkerSleep => "worker_sleep",
        Request::JobCreate(_) => "job_create",
        Request::JobAssign => "job_assign",
        Request::JobStatusAnnounce(_) => "job_status_announce",
        Request::JobStatus { .. } => "job_status",
        Request::JobCompleteAnnounce { .. } => "job_complete_announce",
        Request::JobComplete { .. } => "job_complete",
    };
    (command, queue_of(draft_needs(request).map(|(_, about)| about)))
}

fn queue_of(about: Option<About<'_>>) -> &[u8] {
    match about {
        Some(About::Queue(name)) => name,
        Some(About::Queues(names)) => names.first().map(AsRef::as_ref).unwrap_or_default(),
        _ => b"",
    }
}

fn request_word(request: &Request) -> &'static str {
    match request {
        Request::Submit(_) => "submit_job",
        Request::Grab(_) => "grab_job",
        Request::CanDo { .. } => "can_do",
        Request::CanDoTimeout { .. } => "can_do_timeout",
        Request::CantDo { .. } => "cant_do",
        Request::ResetAbilities => "reset_abilities",
        Request::PreSleep => "pre_sleep",
        Request::AllYours => "all_yours",
        Request::WorkStatus { .. } => "work_status",
        Request::WorkData { .. } => "work_data",
        Request::WorkWarning { .. } => "work_warning",
        Request::WorkComplete { .. } => "work_complete",
        Request::WorkFail { .. } => "work_fail",
        Request::WorkException { .. } => "work_exception",
        Request::GetStatus { .. } => "get_status",
        Request::GetStatusUnique { .. } => "get_status_unique",
        Request::Echo { .. } => "echo_req",
        Request::SetClientId { .. } => "set_client_id",
        Request::Option { .. } => "option_req",
    }
}

fn line_word(command: &AdminCommand) -> &'static str {
    match command {
        AdminCommand::Status => "status",
        AdminCommand::PriorityStatus => "prioritystatus",
        AdminCommand::Workers => "workers",
        AdminCommand::Version => "version",
        AdminCommand::Getpid => "getpid",
        AdminCommand::Verbose => "verbose",
        AdminCommand::ShowJobs => "show jobs",
        AdminCommand::ShowUniqueJobs => "show unique jobs",
        AdminCommand::CancelJob { .. } => "cancel job",
        AdminCommand::CreateFunction { .. } => "create function",
        AdminCommand::DropFunction { .. } => "drop function",
        AdminCommand::MaxQueue { .. } => "maxqueue",
        AdminCommand::Auth { .. } => "auth",
    }
}

/// What the first packet or line of an answer is. Lines may be lists of names: those are `lines`.
pub(crate) fn outcome(answer: &[u8]) -> &'static str {
    if answer.is_empty() {
        return "none";
    }
    let number = answer.strip_prefix(b"\0RES").and_then(|rest| rest.first_chunk());
    match number.map(|number| PacketType::from_number(u32::from_be_bytes(*number))) {
        Some(Some(PacketType::JobCreated)) => "job_created",
        Some(Some(PacketType::NoJob)) => "no_job",
        Some(Some(PacketType::Noop)) => "noop",
        Some(Some(PacketType::Error)) => "error",
        Some(Some(
            PacketType::JobAssign | PacketType::JobAssignUniq | PacketType::JobAssignAll,
        )) => "job_assign",
        Some(_) => "answered",
        None if answer.starts_with(b"ERR ") => "error",
        None if answer.starts_with(b"OK") => "ok",
        None => "lines",
    }
}

/// The same of the draft, whose packets have their type behind the magic.
pub(crate) fn draft_outcome(answer: &[u8]) -> &'static str {
    match answer.get(draft::MAGIC.len()) {
        None => "none",
        Some(0x00) => "noop",
        Some(0x05) => "job_created",
        Some(0x07) => "job_assigned",
        Some(0x7f) => "error",
        Some(_) => "answered",
    }
}
