//! How many threads serve, and what a client may not exceed.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use spindle_budget::Budgets;
use spindle_limits::Places;

/// How the TCP server runs.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Threads that own connections, 1 to 64. Default: one for every two cores, at most four; more
    /// would wait for the engine's lock.
    pub reactors: usize,
    /// What a client may not exceed.
    pub limits: Limits,
    /// Budgets of the memory that all clients together make the server hold.
    pub budgets: Budgets,
    /// How many connections may be open; shared with the other listeners of the server.
    pub places: Places,
}

impl Default for NetConfig {
    fn default() -> NetConfig {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        NetConfig {
            reactors: (cores / 2).clamp(1, 4),
            limits: Limits::default(),
            budgets: Budgets::default(),
            places: Places::default(),
        }
    }
}

/// What a client may not exceed. Times are coarse: a limit fires between its value and two sweeps
/// later (sweeps are a quarter of the shortest limit apart, at most a second).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Closes a connection that sent no request for this long and waits for none. Default off:
    /// an idle producer or worker is normal for a queue.
    pub idle_timeout: Option<Duration>,
    /// Closes a connection that never sent a byte. Default off: clients open connections ahead.
    pub first_bytes_timeout: Option<Duration>,
    /// Closes a connection that was accepted so long ago and has not yet got through what its door
    /// asks for before it serves (TLS, who the client is), whatever it has sent. Default 60 s.
    pub login_timeout: Duration,
    /// Closes a connection whose handshake of TLS has begun and not ended. Default 10 s.
    pub handshake_timeout: Duration,
    /// Closes a connection that sent part of a request and then nothing more. Default 60 s.
    pub partial_request_timeout: Duration,
    /// Closes a connection that has not taken a single byte of a waiting answer. Default 30 s.
    pub write_stall_timeout: Duration,
    /// While a connection has more than this many bytes of unsent answers, nothing more is read
    /// from it. Default 4 MiB.
    pub outbox_bytes_max: usize,
    /// How long a connection that the server ended stays open so that its client can read the last
    /// answer (closing it while bytes of the client are unread would destroy that). Default 1 s.
    pub linger_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            idle_timeout: None,
            first_bytes_timeout: None,
            login_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            partial_request_timeout: Duration::from_secs(60),
            write_stall_timeout: Duration::from_secs(30),
            outbox_bytes_max: 4 * 1024 * 1024,
            linger_timeout: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// The time between two sweeps: short enough for the shortest limit, never over a second.
    pub(crate) fn sweep_interval(&self) -> Duration {
        [self.idle_timeout, self.first_bytes_timeout]
            .into_iter()
            .flatten()
            .chain([self.login_timeout, self.handshake_timeout, self.partial_request_timeout])
            .chain([self.write_stall_timeout, self.linger_timeout])
            .map(|limit| limit / 4)
            .min()
            .unwrap_or(SWEEP_MAX)
            .clamp(SWEEP_MIN, SWEEP_MAX)
    }
}

const SWEEP_MAX: Duration = Duration::from_secs(1);
const SWEEP_MIN: Duration = Duration::from_millis(5);

/// The time limits, counted in sweeps.
#[derive(Clone, Debug)]
pub(crate) struct SweepLimits {
    pub(crate) idle: Option<u64>,
    pub(crate) first_bytes: Option<u64>,
    pub(crate) login: u64,
    pub(crate) handshake: u64,
    pub(crate) partial_request: u64,
    pub(crate) write_stall: u64,
    pub(crate) linger: u64,
}

impl SweepLimits {
    pub(crate) fn of(limits: &Limits) -> SweepLimits {
        let interval_ns = limits.sweep_interval().as_nanos();
        // One more sweep, because a stamp is taken somewhere between two sweeps.
        let sweeps = |limit: Duration| {
            u64::try_from(limit.as_nanos().div_ceil(interval_ns)).unwrap_or(u64::MAX - 1) + 1
        };
        SweepLimits {
            idle: limits.idle_timeout.map(sweeps),
            first_bytes: limits.first_bytes_timeout.map(sweeps),
            login: sweeps(limits.login_timeout),
            handshake: sweeps(limits.handshake_timeout),
            partial_request: sweeps(limits.partial_request_timeout),
            write_stall: sweeps(limits.write_stall_timeout),
            linger: sweeps(limits.linger_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_never_fires_early_and_the_sweep_follows_the_shortest_one() {
        let mut limits = Limits::default();
        assert_eq!(limits.sweep_interval(), Duration::from_millis(250));
        assert_eq!(SweepLimits::of(&limits).write_stall, 121);
        limits.idle_timeout = Some(Duration::from_millis(100));
        assert_eq!(limits.sweep_interval(), Duration::from_millis(25));
        assert_eq!(SweepLimits::of(&limits).idle, Some(5));
    }
}
