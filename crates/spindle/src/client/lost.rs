//! Why a worker does not have its job any more.

/// Why a lease ended that its worker did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Somebody ended the job.
    Cancelled,
    /// The job is gone: deleted, or its time to live is over.
    Deleted,
    /// The job is done or dead by another worker.
    Finished,
    /// The job is done or dead: by another worker, or because somebody ended it.
    Over,
    /// The lease ran out before it was extended.
    TimedOut,
    /// Another worker has the job now.
    LeasedAgain,
    /// The job was given back, and waits.
    Released,
    /// The server does not say.
    Unknown,
}

impl Lost {
    /// Reads the `reason` of the native API.
    pub fn of(reason: Option<&str>) -> Self {
        match reason {
            Some("cancelled") => Self::Cancelled,
            Some("finished") => Self::Finished,
            Some("timeout") => Self::TimedOut,
            Some("leased_again") => Self::LeasedAgain,
            Some("released") => Self::Released,
            _ => Self::Unknown,
        }
    }

    /// For programs: what became of the job, as far as this worker is concerned.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Deleted => "deleted",
            _ => "lease_lost",
        }
    }

    /// For programs: why the lease was lost, where the outcome does not say it.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Finished => Some("finished"),
            Self::Over => Some("finished_or_cancelled"),
            Self::TimedOut => Some("timeout"),
            Self::LeasedAgain => Some("leased_again"),
            Self::Released => Some("released"),
            Self::Cancelled | Self::Deleted | Self::Unknown => None,
        }
    }

    /// For people, behind the job's name.
    pub fn description(self) -> &'static str {
        match self {
            Self::Cancelled => "was cancelled",
            Self::Deleted => "was deleted, or its time to live is over",
            Self::Finished => "was finished by another worker",
            Self::Over => "was finished by another worker, or cancelled",
            Self::TimedOut => "lost its lease: it was not extended within the job's TTR",
            Self::LeasedAgain => "lost its lease: another worker has the job now",
            Self::Released => "lost its lease: the job was given back",
            Self::Unknown => "lost its lease",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_and_told_again() {
        for reason in ["finished", "timeout", "leased_again", "released"] {
            let lost = Lost::of(Some(reason));
            assert_eq!((lost.reason(), lost.outcome()), (Some(reason), "lease_lost"));
        }
        assert_eq!(Lost::of(Some("cancelled")).outcome(), "cancelled");
        assert_eq!((Lost::of(None), Lost::of(Some("new"))), (Lost::Unknown, Lost::Unknown));
    }
}
