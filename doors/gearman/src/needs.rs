//! The role that each packet and line requires of its sender.

use bytes::Bytes;
use spindle_access::Role;

use crate::wire::{AdminCommand, Incoming, Request, draft};

/// What a packet or line is about.
pub(crate) enum About<'a> {
    /// A function, or the name of a draft's job.
    Queue(&'a [u8]),
    Queues(&'a [Bytes]),
    /// All that the worker has said it can do.
    Abilities,
    /// A job by its handle.
    Job(&'a [u8]),
    /// The jobs with a unique, of which the first that the client may see is looked for.
    Unique,
    /// A job that the worker holds. The worker was allowed to grab it, and a leased job stays in
    /// its queue; packets about a job that another worker holds are refused by the protocol itself.
    HeldJob,
    AllQueues,
    Server,
}

type Needs<'a> = Option<(Role, About<'a>)>;

/// The role that a packet or line of the published protocol needs, and what it is about; `None` if
/// everybody may send it.
pub(crate) fn needs(incoming: &Incoming) -> Needs<'_> {
    match incoming {
        Incoming::Request(request) => of_request(request),
        Incoming::Admin(Ok(command)) => of_command(command),
        // It is refused anyway.
        Incoming::Admin(Err(_)) => None,
    }
}

fn of_request(request: &Request) -> Needs<'_> {
    Some(match request {
        Request::CanDo { function } | Request::CanDoTimeout { function, .. } => {
            (Role::Work, About::Queue(function))
        }
        Request::PreSleep | Request::Grab(_) => (Role::Work, About::Abilities),
        Request::Submit(submit) => (Role::Submit, About::Queue(&submit.function)),
        Request::WorkStatus { .. }
        | Request::WorkData { .. }
        | Request::WorkWarning { .. }
        | Request::WorkComplete { .. }
        | Request::WorkFail { .. }
        | Request::WorkException { .. } => (Role::Work, About::HeldJob),
        Request::GetStatus { handle } => (Role::Read, About::Job(handle)),
        Request::GetStatusUnique { .. } => (Role::Read, About::Unique),
        // Statements of a connection about itself, and their withdrawal.
        Request::CantDo { .. }
        | Request::ResetAbilities
        | Request::AllYours
        | Request::Echo { .. }
        | Request::SetClientId { .. }
        | Request::Option { .. } => return None,
    })
}

fn of_command(command: &AdminCommand) -> Needs<'_> {
    Some(match command {
        AdminCommand::Status
        | AdminCommand::PriorityStatus
        | AdminCommand::Workers
        | AdminCommand::ShowJobs
        | AdminCommand::ShowUniqueJobs => (Role::Read, About::AllQueues),
        AdminCommand::Getpid | AdminCommand::Verbose => (Role::Read, About::Server),
        AdminCommand::CancelJob { handle } => (Role::Manage, About::Job(handle)),
        AdminCommand::CreateFunction { name }
        | AdminCommand::DropFunction { name }
        | AdminCommand::MaxQueue { function: name, .. } => (Role::Manage, About::Queue(name)),
        AdminCommand::Version | AdminCommand::Auth { .. } => return None,
    })
}

/// The same for a packet of the draft.
pub(crate) fn draft_needs(request: &draft::Request) -> Needs<'_> {
    use draft::Request;
    Some(match request {
        Request::WorkerConnect { names } => (Role::Work, About::Queues(names)),
        Request::WorkerSleep | Request::JobAssign => (Role::Work, About::Abilities),
        Request::JobCreate(job) => (Role::Submit, About::Queue(&job.name)),
        Request::JobStatusAnnounce(_) | Request::JobCompleteAnnounce { .. } => {
            (Role::Work, About::HeldJob)
        }
        Request::JobStatus { handle } => (Role::Read, About::Job(handle)),
        // It shows the result.
        Request::JobComplete { handle } => (Role::Inspect, About::Job(handle)),
        Request::Noop | Request::WorkerDisconnect => return None,
    })
}
