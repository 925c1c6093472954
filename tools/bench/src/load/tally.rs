//! The state that all connections of a run share: the requests still to be sent, and the answers
//! counted.

use super::check::Checker;
use super::jobs::Jobs;
use super::plan::{LoadError, Plan};
use crate::stats::Latencies;
use crate::wire::{Answer, Wire};
use std::time::{Duration, Instant};

/// A request that waits for its answer.
pub(super) struct Sent {
    /// When it was sent, or when it should have been (open loop).
    pub(super) at: Instant,
    /// What it asks for.
    pub(super) what: Request,
}

/// What a request asks for.
#[derive(Clone, Copy)]
pub(super) enum Request {
    /// Take a job.
    Submit,
    /// Hand out a job.
    Lease,
    /// This job is done.
    Finish(u64),
    /// This job is done, and hand out another: in Gearman only the second has an answer, and it
    /// says that the first was taken.
    FinishThenLease(u64),
    /// Wake me when there is a job.
    Sleep {
        /// When the job was first asked for.
        asked: Instant,
    },
}

/// The counts and latencies of a run.
pub(super) struct Tally<'a> {
    pub(super) jobs: &'a Jobs,
    pub(super) plan: Plan,
    pub(super) checker: &'a mut Checker,
    pub(super) submit: Latencies,
    pub(super) lease: Latencies,
    pub(super) finish: Latencies,
    pub(super) acknowledged: u64,
    pub(super) finished: u64,
    submitted: u64,
    leases_asked: u64,
    started: Instant,
}

impl<'a> Tally<'a> {
    pub(super) fn new(
        jobs: &'a Jobs,
        plan: Plan,
        checker: &'a mut Checker,
        started: Instant,
    ) -> Self {
        Self {
            jobs,
            plan,
            checker,
            submit: Latencies::new(),
            lease: Latencies::new(),
            finish: Latencies::new(),
            acknowledged: 0,
            finished: 0,
            submitted: 0,
            leases_asked: 0,
            started,
        }
    }

    /// Whether the run has all it asked for.
    pub(super) fn is_done(&self) -> bool {
        self.acknowledged >= self.plan.submits && self.finished >= self.plan.finishes
    }

    /// The next request of a producer, and the time its latency counts from.
    pub(super) fn producer_request(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Sent> {
        if self.submitted >= self.plan.submits {
            return None;
        }
        let at = match self.plan.rate_per_s {
            Some(rate) => {
                let due = self.started + Duration::from_secs_f64(self.submitted as f64 / rate);
                if due > now {
                    return None;
                }
                due
            }
            None => now,
        };
        self.jobs.encode_submit(self.plan.first + self.submitted, out);
        self.submitted += 1;
        Some(Sent { at, what: Request::Submit })
    }

    /// The next request of an idle worker. No more leases are asked for than there are jobs to
    /// finish, so that none is left behind with a connection that ends.
    pub(super) fn worker_request(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Sent> {
        if self.leases_asked >= self.plan.finishes {
            return None;
        }
        self.leases_asked += 1;
        Some(self.ask_for_job(now, out))
    }

    /// Counts the answer to `sent`; some answers call for another request at once.
    pub(super) fn answered(
        &mut self,
        sent: &Sent,
        answer: &Answer<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Option<Sent>, LoadError> {
        let latency = now.saturating_duration_since(sent.at);
        match (sent.what, answer) {
            (Request::Submit, Answer::Ok) => {
                self.submit.record(latency);
                self.acknowledged += 1;
                Ok(None)
            }
            (Request::Finish(number), Answer::Ok) => {
                self.finished(number, latency);
                Ok(None)
            }
            // The request after it was answered, so the finish was accepted.
            (Request::FinishThenLease(number), Answer::Leased { .. } | Answer::TimedOut) => {
                self.finished(number, latency);
                self.lease_answered(sent.at, answer, now, out)
            }
            (Request::Sleep { asked }, Answer::Awake) => Ok(Some(self.ask_for_job(asked, out))),
            // A worker may be woken even if it has just asked.
            (what @ (Request::Lease | Request::FinishThenLease(_)), Answer::Awake) => {
                Ok(Some(Sent { at: sent.at, what }))
            }
            (Request::Lease, answer) => self.lease_answered(sent.at, answer, now, out),
            (what, answer) => Err(refused(what, answer)),
        }
    }

    /// Counts the answer to a job asked for at `asked`. A Gearman worker sends its result and its
    /// next question together, sleeps when there is nothing and asks again when it is woken, as
    /// workers of its libraries do.
    fn lease_answered(
        &mut self,
        asked: Instant,
        answer: &Answer<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Option<Sent>, LoadError> {
        let is_gearman = self.wire() == Wire::Gearman;
        match answer {
            Answer::Leased { id, payload } => {
                self.lease.record(now.saturating_duration_since(asked));
                let number = self.delivered(id, payload);
                self.wire().encode_finish(id, out);
                if is_gearman {
                    self.wire().encode_lease(self.jobs.queue(), out);
                    return Ok(Some(Sent { at: now, what: Request::FinishThenLease(number) }));
                }
                Ok(Some(Sent { at: now, what: Request::Finish(number) }))
            }
            Answer::TimedOut if is_gearman => {
                self.wire().encode_sleep(out);
                Ok(Some(Sent { at: now, what: Request::Sleep { asked } }))
            }
            Answer::TimedOut => Ok(Some(self.ask_for_job(now, out))),
            answer => Err(refused(Request::Lease, answer)),
        }
    }

    /// A request for a job, whose latency counts from `at`.
    fn ask_for_job(&self, at: Instant, out: &mut Vec<u8>) -> Sent {
        self.wire().encode_lease(self.jobs.queue(), out);
        Sent { at, what: Request::Lease }
    }

    fn wire(&self) -> Wire {
        self.jobs.wire()
    }

    fn finished(&mut self, number: u64, latency: Duration) {
        self.finish.record(latency);
        self.finished += 1;
        self.checker.finished(number);
    }

    /// Checks a delivered job byte by byte and says which one it is.
    fn delivered(&mut self, id: &[u8], payload: &[u8]) -> u64 {
        let jobs = self.jobs;
        match jobs.recognise(payload) {
            Some(number) if jobs.may_have(number, id) => {
                self.checker.delivered(number);
                number
            }
            _ => {
                self.checker.delivered_unknown();
                0
            }
        }
    }
}

fn refused(what: Request, answer: &Answer<'_>) -> LoadError {
    let request = match what {
        Request::Submit => "a submit",
        Request::Lease => "a lease",
        Request::Finish(_) => "a finish",
        Request::FinishThenLease(_) => "a finish and a lease",
        Request::Sleep { .. } => "a worker that sleeps",
    };
    let answer = match answer {
        Answer::Refused(line) => String::from_utf8_lossy(line).into_owned(),
        other => format!("{other:?}"),
    };
    LoadError::Refused { request, answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_leases_are_asked_for_than_jobs_are_to_be_finished() {
        let jobs = Jobs::fresh(Wire::Workq);
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut tally = Tally::new(&jobs, Plan::drains(2, 8), &mut checker, now);
        let mut out = vec![];
        let asked = (0..8).filter(|_| tally.worker_request(now, &mut out).is_some()).count();
        assert_eq!(asked, 2);
    }

    #[test]
    fn in_an_open_loop_latency_counts_from_when_a_job_should_have_been_sent() {
        let jobs = Jobs::fresh(Wire::Workq);
        let mut checker = Checker::default();
        let started = Instant::now();
        let plan = Plan { rate_per_s: Some(10.0), ..Plan::submits(9, 1, 1) };
        let mut tally = Tally::new(&jobs, plan, &mut checker, started);
        let late = started + Duration::from_millis(150);
        let mut due = vec![];
        while let Some(sent) = tally.producer_request(late, &mut vec![]) {
            due.push(sent.at - started);
        }
        assert_eq!(due, [Duration::ZERO, Duration::from_millis(100)]);
    }

    /// What a Gearman worker sends after these answers, from its first lease on, and how many jobs
    /// it has finished then.
    fn gearman_worker(answers: &[Answer<'_>]) -> (Vec<u8>, u64) {
        let jobs = Jobs::fresh(Wire::Gearman);
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut tally = Tally::new(&jobs, Plan::drains(9, 1), &mut checker, now);
        let mut sent = tally.worker_request(now, &mut vec![]).unwrap();
        let mut out = vec![];
        for answer in answers {
            out.clear();
            sent = tally.answered(&sent, answer, now, &mut out).unwrap().unwrap();
        }
        (out, tally.finished)
    }

    #[test]
    fn a_gearman_worker_sleeps_when_there_is_nothing_and_asks_when_it_is_woken() {
        let kinds = |out: &[u8]| out.chunks(12).map(|packet| packet[7]).collect::<Vec<_>>();
        let (out, _) = gearman_worker(&[Answer::TimedOut]);
        assert_eq!(kinds(&out), [4]);
        let (out, _) = gearman_worker(&[Answer::TimedOut, Answer::Awake]);
        assert_eq!(kinds(&out), [9]);
        let (out, _) = gearman_worker(&[Answer::Awake]);
        assert_eq!(kinds(&out), [0u8; 0]);
    }

    #[test]
    fn a_gearman_finish_counts_when_the_question_behind_it_is_answered() {
        let leased = || Answer::Leased { id: b"H:h:1", payload: b"no job of ours" };
        assert_eq!(gearman_worker(&[leased()]).1, 0);
        for answers in [[leased(), leased()], [leased(), Answer::TimedOut]] {
            assert_eq!(gearman_worker(&answers).1, 1);
        }
        assert_eq!(gearman_worker(&[leased(), Answer::Awake]).1, 0);
    }
}
