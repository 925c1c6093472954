//! What the log says of requests and their answers.

use crate::needs::{About, needs};
use crate::wire::Request;

/// Which command a request is, and the first queue it names.
pub(crate) fn described(request: &Request) -> (&'static str, &[u8]) {
    let queue = match needs(request) {
        Some((_, About::Queue(name))) => name,
        Some((_, About::Queues(names))) => names.first().map(AsRef::as_ref).unwrap_or_default(),
        _ => b"",
    };
    let command = match request {
        Request::Add(_) => "add",
        Request::Schedule { .. } => "schedule",
        Request::Run(_) => "run",
        Request::Complete { .. } => "complete",
        Request::Fail { .. } => "fail",
        Request::Lease { .. } => "lease",
        Request::Result { .. } => "result",
        Request::Delete { .. } => "delete",
        Request::Extend { .. } => "extend",
        Request::Auth { .. } => "auth",
        Request::Offer { .. } => "offer",
        Request::Take { .. } => "take",
        Request::Pass => "pass",
        Request::InspectJob { .. } => "inspect job",
        Request::InspectJobs { .. } => "inspect jobs",
        Request::InspectScheduledJobs { .. } => "inspect scheduled-jobs",
        Request::InspectQueue { .. } => "inspect queue",
        Request::InspectQueues { .. } => "inspect queues",
        Request::InspectServer => "inspect server",
    };
    (command, queue)
}

/// How an answer begins: its first word, without what a job brought.
pub(crate) fn outcome(answer: &[u8]) -> &str {
    let end = answer.iter().position(|byte| matches!(byte, b' ' | b'\r')).unwrap_or(answer.len());
    let word = answer.get(..end).and_then(|word| std::str::from_utf8(word).ok());
    word.filter(|word| !word.is_empty()).unwrap_or("none")
}
