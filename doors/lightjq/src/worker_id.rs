//! Workers are named by a UUID, which is stored in every lease they get. So a lease itself tells
//! which worker has it, in later runs of the server as well.

use std::fmt;

use bytes::Bytes;
use spindle_core::job::Origin;
use spindle_engine::WorkerRef;
use uuid::Uuid;

/// The worker-id of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WorkerId(Uuid);

/// A UUID with its hyphens.
const TEXT_BYTES: usize = 36;

impl WorkerId {
    /// A new one, which cannot be guessed.
    pub fn random() -> WorkerId {
        WorkerId(Uuid::new_v4())
    }

    /// Parses one from a text.
    pub fn parse(text: &str) -> Option<WorkerId> {
        Uuid::try_parse(text).ok().map(WorkerId)
    }

    /// The worker as a lease stores it: the name for people, then the id.
    pub fn signature(self, name: &str) -> Bytes {
        Bytes::from(format!("{name} {self}"))
    }

    /// The worker that a signature names.
    pub fn of_signature(worker: &[u8]) -> Option<WorkerId> {
        let (name, id) = worker.split_at_checked(worker.len().checked_sub(TEXT_BYTES)?)?;
        name.ends_with(b" ").then(|| std::str::from_utf8(id).ok().and_then(WorkerId::parse))?
    }

    /// The worker, as its leases name it.
    pub fn worker_ref(self) -> WorkerRef {
        WorkerRef { door: Origin::Lightjq, id: self.to_string().into() }
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_says_whose_it_is_whatever_the_name() {
        let id = WorkerId::random();
        for name in ["", "resizer", "with spaces  ", "7370696e-646c-8000-8000-000000000001"] {
            let signature = id.signature(name);
            assert_eq!(WorkerId::of_signature(&signature), Some(id), "{name}");
        }
        for other in ["", "resizer", "7370696e-646c-8000-8000-000000000001", "é"] {
            assert_eq!(WorkerId::of_signature(other.as_bytes()), None, "{other}");
        }
    }
}
