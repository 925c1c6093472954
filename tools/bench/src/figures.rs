//! The figures of a run, and the ones that gates look at.

use crate::stats::Percentiles;
use serde::Serialize;

/// The figures measured in one run against one server.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Jobs per second.
    pub(crate) rate_per_s: Option<f64>,
    /// Jobs that were to be submitted per second, whatever the server did (open loop).
    pub(crate) arrivals_per_s: Option<f64>,
    /// Latency of submits.
    pub(crate) submit: Option<Percentiles>,
    /// Latency of leases, waiting for work included.
    pub(crate) lease: Option<Percentiles>,
    /// Latency of finishes.
    pub(crate) finish: Option<Percentiles>,
    /// Latency of all requests of these kinds, where clients send as many of each.
    pub(crate) request: Option<Percentiles>,
    /// The largest answer to such a request, without its headers.
    pub(crate) answer_bytes: Option<f64>,
    /// User and system time of the server process per job, in microseconds.
    pub(crate) server_cpu_us_per_job: Option<f64>,
    /// How many cores the server process kept busy.
    pub(crate) server_cores: Option<f64>,
    /// User and system time of the server process in a second in which nothing happens.
    pub(crate) idle_cpu_us_per_s: Option<f64>,
    /// From when schedules were due to when their jobs came.
    pub(crate) lateness: Option<Percentiles>,
    /// How much later than the leader a follower has a record.
    pub(crate) lag: Option<Percentiles>,
    /// From the end of a leader to the next answer.
    pub(crate) outage: Option<Percentiles>,
    /// From the start of a new node to when it has all records.
    pub(crate) catch_up_s: Option<f64>,
    /// From the start of a backup to its end.
    pub(crate) backup_s: Option<f64>,
    /// The most memory the server ever had resident.
    pub(crate) resident_peak_mib: Option<f64>,
    /// From the start of its process to its first answer.
    pub(crate) start_s: Option<f64>,
}

impl Figures {
    /// A short text to print while the other runs go on.
    pub(crate) fn brief(&self) -> String {
        if let Some(request) = self.request {
            let Percentiles { p50_us, p99_us, .. } = request;
            let cores = self.server_cores.map(|cores| format!(", {cores:.1} cores"));
            return format!("p50 {p50_us:.0} us, p99 {p99_us:.0} us{}", cores.unwrap_or_default());
        }
        if let Some(Percentiles { p50_us, p99_us, max_us, .. }) = self.lateness {
            return format!("late by {p50_us:.0} us, p99 {p99_us:.0} us, at most {max_us:.0} us");
        }
        if let Some(Percentiles { p50_us, p95_us, max_us, .. }) = self.outage {
            let [p50, p95, max] = [p50_us, p95_us, max_us].map(|us| us / 1e6);
            return format!("no answer for {p50:.2} s, p95 {p95:.2} s, at most {max:.2} s");
        }
        if let Some(time) = self.catch_up_s {
            return format!("has all records after {time:.2} s");
        }
        if let Some(used) = self.idle_cpu_us_per_s {
            return format!("{used:.0} us of CPU a second");
        }
        let lag = self.lag.map(|lag| format!(", followers {:.0} us behind", lag.p99_us));
        match (self.start_s, self.rate_per_s) {
            (Some(start), _) => format!("starts in {start:.2} s"),
            (None, Some(rate)) => format!("{rate:.0} jobs/s{}", lag.unwrap_or_default()),
            (None, None) => String::new(),
        }
    }
}

/// What a gate looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Rate,
    ServerCpu,
    SubmitP99,
    LeaseP50,
    RequestP95,
    RequestP99,
    AnswerBytes,
    IdleCpu,
    LatenessP50,
    LatenessP99,
    LatenessMax,
    LagP99,
    OutageP50,
    OutageP95,
    OutageMax,
    CatchUpTime,
    BackupTime,
    PeakMemory,
    StartTime,
}

impl Figure {
    /// Its value in one run, if that run has it.
    pub(crate) fn of(self, run: &Figures) -> Option<f64> {
        match self {
            Self::Rate => run.rate_per_s,
            Self::ServerCpu => run.server_cpu_us_per_job,
            Self::SubmitP99 => run.submit.map(|submit| submit.p99_us),
            Self::LeaseP50 => run.lease.map(|lease| lease.p50_us),
            Self::RequestP95 => run.request.map(|request| request.p95_us),
            Self::RequestP99 => run.request.map(|request| request.p99_us),
            Self::AnswerBytes => run.answer_bytes,
            Self::IdleCpu => run.idle_cpu_us_per_s,
            Self::LatenessP50 => run.lateness.map(|late| late.p50_us),
            Self::LatenessP99 => run.lateness.map(|late| late.p99_us),
            Self::LatenessMax => run.lateness.map(|late| late.max_us),
            Self::LagP99 => run.lag.map(|lag| lag.p99_us),
            Self::OutageP50 => run.outage.map(|outage| outage.p50_us / 1e6),
            Self::OutageP95 => run.outage.map(|outage| outage.p95_us / 1e6),
            Self::OutageMax => run.outage.map(|outage| outage.max_us / 1e6),
            Self::CatchUpTime => run.catch_up_s,
            Self::BackupTime => run.backup_s,
            Self::PeakMemory => run.resident_peak_mib,
            Self::StartTime => run.start_s,
        }
    }

    /// What it is called, its unit, and how many decimals of it are worth printing.
    pub(crate) fn words(self) -> (&'static str, &'static str, usize) {
        match self {
            Self::Rate => ("rate", "/s", 0),
            Self::ServerCpu => ("server CPU per job", "us", 1),
            Self::SubmitP99 => ("p99 of submits", "us", 0),
            Self::LeaseP50 => ("p50 of leases", "us", 0),
            Self::RequestP95 => ("p95 of requests", "us", 0),
            Self::RequestP99 => ("p99 of requests", "us", 0),
            Self::AnswerBytes => ("largest answer", "bytes", 0),
            Self::IdleCpu => ("server CPU a second, idle", "us", 0),
            Self::LatenessP50 => ("p50 of lateness", "us", 0),
            Self::LatenessP99 => ("p99 of lateness", "us", 0),
            Self::LatenessMax => ("greatest lateness", "us", 0),
            Self::LagP99 => ("p99 of how far a follower is behind", "us", 0),
            Self::OutageP50 => ("p50 of the time without an answer", "s", 2),
            Self::OutageP95 => ("p95 of the time without an answer", "s", 2),
            Self::OutageMax => ("longest time without an answer", "s", 2),
            Self::CatchUpTime => ("time until it has all records", "s", 2),
            Self::BackupTime => ("time of a backup", "s", 2),
            Self::PeakMemory => ("peak resident memory", "MiB", 1),
            Self::StartTime => ("start after a kill", "s", 2),
        }
    }
}
