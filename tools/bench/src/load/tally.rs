//! What all connections of a run share: what is still to be asked, and what was answered.

use super::plan::{LoadError, Plan};
use crate::check::Checker;
use crate::stats::Latencies;
use crate::wire::{Answer, Wire};
use std::collections::VecDeque;
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
    /// Take this job.
    Add(u64),
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
    /// The result of this foreground job.
    Result(u64),
}

/// The counts and latencies of a run.
pub(super) struct Tally<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) checker: &'a mut Checker,
    pub(super) add: Latencies,
    pub(super) lease: Latencies,
    pub(super) finish: Latencies,
    pub(super) acknowledged: u64,
    pub(super) finished: u64,
    next: u64,
    leases_asked: u64,
    /// Jobs that churning producers will finish, oldest first.
    ripe: VecDeque<u64>,
    churn_due: u64,
    started: Instant,
}

impl<'a> Tally<'a> {
    pub(super) fn new(plan: &'a Plan<'a>, checker: &'a mut Checker, started: Instant) -> Self {
        Self {
            plan,
            checker,
            add: Latencies::new(),
            lease: Latencies::new(),
            finish: Latencies::new(),
            acknowledged: 0,
            finished: 0,
            next: 0,
            leases_asked: 0,
            ripe: VecDeque::new(),
            churn_due: 0,
            started,
        }
    }

    /// Whether the run has all it asked for.
    pub(super) fn is_done(&self) -> bool {
        self.acknowledged >= self.plan.adds && self.finished >= self.plan.finishes
    }

    /// The next request of a producer, and the time its latency counts from.
    pub(super) fn producer_request(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Sent> {
        if let Some(sent) = self.churn_request(now, out) {
            return Some(sent);
        }
        if self.next >= self.plan.adds {
            return None;
        }
        let at = match self.plan.rate_per_s {
            Some(rate) => {
                let due = self.started + Duration::from_secs_f64(self.next as f64 / rate);
                if due > now {
                    return None;
                }
                due
            }
            None => now,
        };
        let number = self.plan.first + self.next;
        self.next += 1;
        self.churn_due += u64::from(self.plan.churn_lag.is_some());
        self.plan.jobs.encode_add(self.plan.wire, number, out);
        Some(Sent { at, what: Request::Add(number) })
    }

    /// One finish for every add, once enough jobs are acknowledged and old.
    fn churn_request(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Sent> {
        let lag = self.plan.churn_lag?;
        if self.churn_due == 0 || (self.ripe.len() as u64) <= lag {
            return None;
        }
        let number = self.ripe.pop_front()?;
        self.churn_due -= 1;
        self.plan.wire.encode_finish(&self.plan.jobs.id(number), number, out);
        Some(Sent { at: now, what: Request::Finish(number) })
    }

    /// The next request of an idle worker. No more leases are asked for than there are jobs to
    /// finish, so that none is left behind with a connection that ends.
    pub(super) fn worker_request(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Sent> {
        if self.leases_asked >= self.plan.finishes {
            return None;
        }
        self.leases_asked += 1;
        self.plan.wire.encode_lease(self.plan.jobs.queue(), true, out);
        Some(Sent { at: now, what: Request::Lease })
    }

    /// Counts the answer to `sent`; some answers call for another request at once.
    pub(super) fn answered(
        &mut self,
        sent: &Sent,
        answer: &Answer<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Option<Sent>, LoadError> {
        if self.plan.wire.is_gearman() {
            return self.answered_by_gearman(sent, answer, now, out);
        }
        let latency = now.saturating_duration_since(sent.at);
        match (sent.what, answer) {
            (Request::Add(number), Answer::Ok) => {
                self.added(latency);
                if self.plan.churn_lag.is_some() {
                    self.ripe.push_back(number);
                }
                Ok(None)
            }
            (Request::Finish(number), Answer::Ok) => {
                self.finished(number, latency);
                Ok(None)
            }
            (Request::Lease, Answer::Leased { id, payload }) => {
                self.lease.record(latency);
                let number = self.delivered(id, payload);
                self.plan.wire.encode_finish(id, number, out);
                Ok(Some(Sent { at: now, what: Request::Finish(number) }))
            }
            (Request::Lease, Answer::TimedOut) => {
                self.plan.wire.encode_lease(self.plan.jobs.queue(), true, out);
                Ok(Some(Sent { at: now, what: Request::Lease }))
            }
            (what, answer) => Err(refused(what, answer)),
        }
    }

    /// The same for Gearman: a worker sends its result and its next question together, sleeps
    /// when there is nothing and asks again when it is woken, as workers of its libraries do.
    fn answered_by_gearman(
        &mut self,
        sent: &Sent,
        answer: &Answer<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Option<Sent>, LoadError> {
        let latency = now.saturating_duration_since(sent.at);
        let is_foreground = self.plan.wire == Wire::GearmanForeground;
        let (asked, answer) = match (sent.what, answer) {
            (Request::Add(number), Answer::Ok) if is_foreground => {
                return Ok(Some(Sent { at: sent.at, what: Request::Result(number) }));
            }
            (Request::Add(_), Answer::Ok) => {
                self.added(latency);
                return Ok(None);
            }
            (Request::Result(number), Answer::Result(result))
                if **result == number.to_le_bytes() =>
            {
                self.added(latency);
                return Ok(None);
            }
            (Request::Sleep { asked }, Answer::Awake) => {
                self.plan.wire.encode_lease(self.plan.jobs.queue(), true, out);
                return Ok(Some(Sent { at: asked, what: Request::Lease }));
            }
            // A worker that has just asked may be woken all the same.
            (what @ (Request::Lease | Request::FinishThenLease(_)), Answer::Awake) => {
                return Ok(Some(Sent { at: sent.at, what }));
            }
            (Request::Lease, answer) => (sent.at, answer),
            (
                Request::FinishThenLease(number),
                answer @ (Answer::Leased { .. } | Answer::TimedOut),
            ) => {
                self.finished(number, latency);
                (sent.at, answer)
            }
            (what, answer) => return Err(refused(what, answer)),
        };
        match answer {
            Answer::Leased { id, payload } => {
                self.lease.record(now.saturating_duration_since(asked));
                let number = self.delivered(id, payload);
                self.plan.wire.encode_finish(id, number, out);
                self.plan.wire.encode_lease(self.plan.jobs.queue(), true, out);
                Ok(Some(Sent { at: now, what: Request::FinishThenLease(number) }))
            }
            Answer::TimedOut => {
                self.plan.wire.encode_sleep(out);
                Ok(Some(Sent { at: now, what: Request::Sleep { asked } }))
            }
            answer => Err(refused(Request::Lease, answer)),
        }
    }

    fn added(&mut self, latency: Duration) {
        self.add.record(latency);
        self.acknowledged += 1;
    }

    fn finished(&mut self, number: u64, latency: Duration) {
        self.finish.record(latency);
        self.finished += 1;
        self.checker.finished(number);
    }

    /// Checks a delivered job byte by byte and says which one it is.
    fn delivered(&mut self, id: &[u8], payload: &[u8]) -> u64 {
        let jobs = self.plan.jobs;
        match jobs.recognise(payload) {
            Some(number) if self.plan.wire != Wire::Workq || id == jobs.id(number) => {
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
        Request::Add(_) => "a submit",
        Request::Lease => "a lease",
        Request::Finish(_) => "a finish",
        Request::FinishThenLease(_) => "a finish and a lease",
        Request::Sleep { .. } => "a worker that sleeps",
        Request::Result(_) => "a submit, after taking it,",
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
    use crate::jobs::Jobs;

    fn plan(jobs: &Jobs) -> Plan<'_> {
        Plan::new(([127, 0, 0, 1], 1).into(), Wire::Workq, jobs, Duration::from_secs(1))
    }

    #[test]
    fn no_more_leases_are_asked_for_than_jobs_are_to_be_finished() {
        let jobs = Jobs::fresh(16);
        let plan = plan(&jobs).working(2, 8);
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut tally = Tally::new(&plan, &mut checker, now);
        let mut out = vec![];
        let asked = (0..8).filter(|_| tally.worker_request(now, &mut out).is_some()).count();
        assert_eq!(asked, 2);
    }

    /// What a worker of this wire sends next after these answers, from its first lease on.
    fn gearman_worker(wire: Wire, answers: &[Answer<'_>]) -> (Vec<u8>, u64) {
        let jobs = Jobs::fresh(16);
        let mut plan = plan(&jobs).working(9, 1);
        plan.wire = wire;
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut tally = Tally::new(&plan, &mut checker, now);
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
        let (out, _) = gearman_worker(Wire::Gearman, &[Answer::TimedOut]);
        assert_eq!(kinds(&out), [4]);
        let (out, _) = gearman_worker(Wire::Gearman, &[Answer::TimedOut, Answer::Awake]);
        assert_eq!(kinds(&out), [9]);
        let (out, _) = gearman_worker(Wire::Gearman, &[Answer::Awake]);
        assert_eq!(kinds(&out), [0u8; 0]);
    }

    #[test]
    fn a_gearman_finish_counts_when_the_question_behind_it_is_answered() {
        let leased = || Answer::Leased { id: b"H:h:1", payload: b"no job of ours" };
        let (_, finished) = gearman_worker(Wire::Gearman, &[leased()]);
        assert_eq!(finished, 0);
        for answers in [[leased(), leased()], [leased(), Answer::TimedOut]] {
            assert_eq!(gearman_worker(Wire::Gearman, &answers).1, 1);
        }
        let (_, finished) = gearman_worker(Wire::Gearman, &[leased(), Answer::Awake]);
        assert_eq!(finished, 0);
    }

    #[test]
    fn a_foreground_submit_is_done_with_its_own_result_only() {
        let jobs = Jobs::fresh(16);
        let mut plan = plan(&jobs).submitting(9, 1, 1);
        plan.wire = Wire::GearmanForeground;
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut tally = Tally::new(&plan, &mut checker, now);
        let mut out = vec![];
        let sent = tally.producer_request(now, &mut out).unwrap();
        let sent = tally.answered(&sent, &Answer::Ok, now, &mut out).unwrap().unwrap();
        assert_eq!(tally.acknowledged, 0);
        let other = Answer::Result(&[9, 0, 0, 0, 0, 0, 0, 0]);
        assert!(tally.answered(&sent, &other, now, &mut out).is_err());
        let own = Answer::Result(&[0; 8]);
        assert!(tally.answered(&sent, &own, now, &mut out).unwrap().is_none());
        assert_eq!(tally.acknowledged, 1);
    }

    #[test]
    fn a_churning_producer_finishes_each_old_job_once_and_leaves_the_lag() {
        let jobs = Jobs::fresh(16);
        let mut plan = plan(&jobs).submitting(10, 1, 1);
        (plan.churn_lag, plan.finishes) = (Some(3), 7);
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut tally = Tally::new(&plan, &mut checker, now);
        let mut out = vec![];
        let mut finished = vec![];
        while let Some(sent) = tally.producer_request(now, &mut out) {
            if let Request::Finish(number) = sent.what {
                finished.push(number);
            }
            assert!(tally.answered(&sent, &Answer::Ok, now, &mut out).unwrap().is_none());
        }
        assert_eq!(finished, [0, 1, 2, 3, 4, 5, 6]);
        assert!(tally.is_done());
        assert_eq!(tally.checker.verdict(7), Ok(()));
    }
}
