//! The jobs of the torture: their names, terms and payloads, all derived from a number.

use std::fmt;

/// A small seeded generator, so that a run can be repeated from its seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True `percent` times of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}

/// A job of the torture. Its name on the wire is a UUID made from the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u64);

/// The largest payload of the protocol.
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;
const UUID_HEAD: &str = "7472740a-0000-4000-8000-";

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UUID_HEAD}{:012x}", self.0)
    }
}

impl Job {
    /// The job that a UUID names, if it is one of ours.
    pub fn named(uuid: &str) -> Option<Self> {
        u64::from_str_radix(uuid.strip_prefix(UUID_HEAD)?, 16).ok().map(Self)
    }

    /// The job's payload: mostly small, sometimes larger than a batch, now and then empty, and once
    /// in a while so large that the log stores it in pieces.
    pub fn payload(self) -> Vec<u8> {
        let mut dice = Dice::new(self.0);
        let len = match dice.below(1_000) {
            0 => 900_000 + dice.below(PAYLOAD_BYTES_MAX - 900_000 + 1),
            1..10 => 100_000 + dice.below(100_000),
            10..50 => 8_000 + dice.below(32_000),
            50..100 => 0,
            _ => dice.below(600),
        };
        dice.bytes(len as usize)
    }

    /// Which kind of job this number is.
    pub fn kind(self) -> Kind {
        match Dice::new(!self.0).below(100) {
            0..55 => Kind::Plain,
            55..70 => Kind::Retried,
            70..80 => Kind::Brief,
            80..88 => Kind::Counted,
            _ => Kind::Scheduled,
        }
    }

    /// What is promised about the job. `now_ms` is the accountant's clock.
    pub fn terms(self, now_ms: u64) -> Terms {
        let kind = self.kind();
        let long = Terms { ttr_ms: TTR_LONG_MS, ..Terms::default() };
        match kind {
            Kind::Plain => long,
            Kind::Retried => Terms { fails_max: 3, ..long },
            Kind::Brief => Terms { ttr_ms: TTR_BRIEF_MS, attempts_max: 2, ..long },
            Kind::Counted => Terms { attempts_max: 3, ..long },
            Kind::Scheduled => Terms { not_before_ms: now_ms + SCHEDULE_AHEAD_MS, ..long },
        }
    }
}

/// Longer than any run between two checks: such a lease never ends by itself.
pub const TTR_LONG_MS: u64 = 600_000;
/// Short enough to run out several times in a cycle.
pub const TTR_BRIEF_MS: u64 = 150;
/// How far ahead scheduled jobs are.
pub const SCHEDULE_AHEAD_MS: u64 = 700;

/// What is tested with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Added, leased, finished; the first failure is final.
    Plain,
    /// Fails are counted and lead to another try, up to a maximum.
    Retried,
    /// A lease that runs out, and a maximum of attempts.
    Brief,
    /// A maximum of attempts under a lease that does not run out: the lease must survive a crash.
    Counted,
    /// Not before its time.
    Scheduled,
}

/// What the server promised with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub ttr_ms: u64,
    /// 0 is no limit.
    pub attempts_max: u32,
    /// 0 is one.
    pub fails_max: u32,
    /// On the accountant's clock; 0 for jobs that are ready at once.
    pub not_before_ms: u64,
    /// No lease is given before it is durable, whatever the job.
    pub durable_leases: bool,
}

impl Terms {
    /// The fail that is final.
    pub fn fails_limit(&self) -> u32 {
        self.fails_max.max(1)
    }

    /// Whether a lease of this job is durable before it is given: in a cluster, and of jobs with a maximum of
    /// attempts.
    pub fn lease_is_durable(&self) -> bool {
        self.durable_leases || self.attempts_max > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_found_by_its_uuid_and_keeps_its_payload() {
        let job = Job(0x12_3456);
        assert_eq!(job.to_string(), "7472740a-0000-4000-8000-000000123456");
        assert_eq!(Job::named(&job.to_string()), Some(job));
        assert_eq!(Job::named("61a444a0-6128-41c0-8078-cc757d3bd2d8"), None);
        assert_eq!(job.payload(), job.payload());
        assert_ne!(Job(1).payload(), Job(2).payload());
    }

    #[test]
    fn every_kind_of_job_comes_up() {
        let kinds: Vec<Kind> = (0..200).map(|n| Job(n).kind()).collect();
        for kind in [Kind::Plain, Kind::Retried, Kind::Brief, Kind::Counted, Kind::Scheduled] {
            assert!(kinds.contains(&kind), "{kind:?}");
        }
    }
}
