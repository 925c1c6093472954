//! What the engine and the access rules refuse, in Workq's words.

use spindle_access::Denied;
use spindle_core::Rejection;
use spindle_engine::{Gated, Outbox, Refused};

use crate::wire::{ErrorText, encode};

/// `ok`, or the refusal.
pub fn acknowledge(out: &mut Outbox, changed: Gated<Result<(), Refused>>) {
    match out.open(changed) {
        Ok(()) => out.put(encode::ok),
        Err(refused) => refuse(out, &refused),
    }
}

/// The command is wrong, or does not apply to this job.
pub fn client_error(out: &mut Outbox, text: ErrorText) {
    out.put(|out| encode::client_error(out, text.as_str()));
}

/// It is not the client's fault.
pub fn server_error(out: &mut Outbox, text: &str) {
    out.put(|out| encode::server_error(out, text));
}

/// Refuses a request that this client may not make. A job that it may not know of is answered as
/// not found.
pub fn deny(out: &mut Outbox, denied: Denied) {
    match denied {
        Denied::Job => out.put(encode::not_found),
        denied => out.put(|out| encode::client_error(out, &denied.to_string())),
    }
}

/// A refusal in Workq's words.
pub fn refuse(out: &mut Outbox, refused: &Refused) {
    match refused {
        Refused::Rejected(Rejection::NotFound) => out.put(encode::not_found),
        Refused::Rejected(Rejection::KeyTaken(_)) => client_error(out, ErrorText::DuplicateJob),
        Refused::Rejected(Rejection::Finished) => client_error(out, ErrorText::DuplicateResult),
        // The only limit of the core that the decoder does not check before.
        Refused::Rejected(Rejection::OutOfRange("ttl")) => {
            client_error(out, ErrorText::InvalidTime);
        }
        Refused::Rejected(full @ (Rejection::QueueFull | Rejection::ServerFull)) => {
            server_error(out, &full.to_string());
        }
        Refused::Rejected(other) => {
            out.put(|out| encode::client_error(out, &other.to_string()));
        }
        Refused::Stopping => out.put(encode::timeout),
        other => server_error(out, &other.to_string()),
    }
}
