//! The loop: one thread, one epoll, all connections.

use super::check::Checker;
use super::connection::{Connection, Role};
use super::jobs::Jobs;
use super::plan::{LoadError, Outcome, Plan};
use super::socket::Target;
use super::tally::Tally;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

const ARRIVALS: Token = Token(usize::MAX);
/// The shortest time between two checks for arrivals; epoll's own timeout would be too coarse.
const ARRIVAL_PERIOD_MIN: Duration = Duration::from_micros(50);

/// Plays `plan` and reports; what was delivered and finished goes to `checker`.
pub(crate) fn run(
    target: &Target,
    jobs: &Jobs,
    plan: Plan,
    checker: &mut Checker,
) -> Result<Outcome, LoadError> {
    run_within(plan.time_max(), target, jobs, plan, checker)
}

fn run_within(
    time_max: Duration,
    target: &Target,
    jobs: &Jobs,
    plan: Plan,
    checker: &mut Checker,
) -> Result<Outcome, LoadError> {
    let mut poll = Poll::new()?;
    let mut connections = vec![];
    // Workers first: with beanstalkd a tube must be watched before jobs are worth putting in.
    let roles = std::iter::repeat_n(Role::Worker, plan.workers)
        .chain(std::iter::repeat_n(Role::Producer, plan.producers));
    for (index, role) in roles.enumerate() {
        let mut connection = Connection::open(target, jobs, role)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.socket.stream, Token(index), both)?;
        connections.push(connection);
    }
    let timer = plan.rate_per_s.map(|rate| arrivals(&poll, rate)).transpose()?;

    let started = Instant::now();
    let mut tally = Tally::new(jobs, plan, checker, started);
    for connection in &mut connections {
        connection.ask(&mut tally, Instant::now())?;
    }
    drive(&mut poll, &mut connections, &mut tally, (started, time_max), timer.as_ref())?;
    let elapsed = started.elapsed();
    Ok(Outcome { elapsed, submit: tally.submit, lease: tally.lease, finish: tally.finish })
}

fn drive(
    poll: &mut Poll,
    connections: &mut [Connection],
    tally: &mut Tally<'_>,
    (started, limit): (Instant, Duration),
    timer: Option<&TimerFd>,
) -> Result<(), LoadError> {
    let mut events = Events::with_capacity(1024);
    let mut turn = 0;
    while !tally.is_done() {
        let Some(left) = limit.checked_sub(started.elapsed()) else {
            let Tally { acknowledged, finished, plan, .. } = *tally;
            return Err(LoadError::Deadline { limit, acknowledged, finished, plan });
        };
        match poll.poll(&mut events, Some(left)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        for event in &events {
            if event.token() == ARRIVALS {
                if let Some(timer) = timer {
                    timer.wait().map_err(io::Error::from)?;
                }
                // Each tick starts with another connection, so that all of them share the arrivals.
                turn = (turn + 1) % connections.len();
                let now = Instant::now();
                let (later, sooner) = connections.split_at_mut(turn);
                for connection in sooner.iter_mut().chain(later) {
                    connection.ask(tally, now)?;
                }
            } else if let Some(connection) = connections.get_mut(event.token().0) {
                connection.serve(tally)?;
            }
        }
    }
    Ok(())
}

/// A timer that wakes the loop about as often as jobs arrive.
fn arrivals(poll: &Poll, rate_per_s: f64) -> Result<TimerFd, LoadError> {
    let period = Duration::from_secs_f64(1.0 / rate_per_s).max(ARRIVAL_PERIOD_MIN);
    let every = Expiration::Interval(TimeSpec::from_duration(period));
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)
        .and_then(|timer| timer.set(every, TimerSetTimeFlags::empty()).map(|()| timer))
        .map_err(io::Error::from)?;
    let fd = timer.as_fd().as_raw_fd();
    poll.registry().register(&mut SourceFd(&fd), ARRIVALS, Interest::READABLE)?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    #[test]
    fn a_run_that_takes_too_long_has_failed() {
        // It accepts connections, and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target { address: silent.local_addr().unwrap(), tls: None, token: None };
        let (jobs, plan) = (Jobs::fresh(Wire::Workq), Plan::life_cycles(9, 2));
        let limit = Duration::from_millis(10);
        let outcome = run_within(limit, &target, &jobs, plan, &mut Checker::default());
        let said = outcome.err().unwrap().to_string();
        assert_eq!(said, "not done after 10ms: 0 of 9 jobs submitted, 0 of 9 finished");
    }
}
