//! What each door acknowledged, job by job.

use std::collections::BTreeMap;

use serde_json::Value;

/// The door that a job came in through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Door {
    Workq,
    Gearman,
    Api,
    Lightjq,
    Jobq,
}

impl Door {
    pub const ALL: [Self; 5] = [Self::Workq, Self::Gearman, Self::Api, Self::Lightjq, Self::Jobq];

    pub fn name(self) -> &'static str {
        match self {
            Self::Workq => "Workq",
            Self::Gearman => "Gearman",
            Self::Api => "API",
            Self::Lightjq => "LightJQ",
            Self::Jobq => "Jobq",
        }
    }
}

/// How far a finish is known to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Finish {
    No,
    /// Sent, and not answered: both outcomes are right.
    Doubted,
    Acknowledged,
}

#[derive(Clone, Debug)]
struct Account {
    door: Door,
    /// The server's name for the job, once the server has acknowledged it.
    name: Option<String>,
    finish: Finish,
    /// When the finish was acknowledged: the count of the books.
    finished_at: u64,
    /// Workers have got it.
    delivered: bool,
    seen_done: bool,
    /// Jobq's states as they were sent: those before index `state` are past, the one at `state` was
    /// acknowledged last, and those after it are in doubt.
    states: Vec<Value>,
    state: usize,
}

impl Account {
    /// The finish is acknowledged, now if it was not before.
    fn finish(&mut self, now: u64) {
        if self.finish < Finish::Acknowledged {
            (self.finish, self.finished_at) = (Finish::Acknowledged, now);
        }
    }

    fn awaits_worker(&self) -> bool {
        self.door != Door::Jobq && self.finish == Finish::No
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Acknowledged submits, in the order of [`Door::ALL`].
    pub submits: [u64; Door::ALL.len()],
    pub finishes: u64,
    pub states: u64,
    pub doubted: u64,
    /// Submits that a full disk refused.
    pub refused: u64,
    /// Jobs that a worker got after another one had, of which no finish was acknowledged.
    pub again: u64,
}

/// The books of one run.
#[derive(Debug, Default)]
pub struct Books {
    /// The number of the newest job.
    last: u64,
    accounts: BTreeMap<u64, Account>,
    complaints: Vec<String>,
    tally: Tally,
    /// Acknowledged jobs that wait for a worker.
    waiting: u64,
    /// Checks so far.
    checks: u64,
    /// Counts the notes, which shows which of two facts was known first.
    order: u64,
    /// A request that was not answered may still happen after the job was looked at.
    doubts_last: bool,
    /// The queue keeps no job that is done.
    done_jobs_go: bool,
}

/// The most jobs that wait for workers; with more, the checks would become endless.
const WAITING_MAX: u64 = 400;
/// A job that was once seen to be done is looked at in every so many checks.
const DONE_CHECKED_EVERY: u64 = 16;

impl Books {
    /// Those of a cluster, through which requests may be on their way for longer than anybody waits.
    pub fn of_cluster() -> Self {
        Self { doubts_last: true, ..Self::default() }
    }

    /// The same of a queue that keeps no job that is done.
    pub fn of_cluster_without_done_jobs() -> Self {
        Self { done_jobs_go: true, ..Self::of_cluster() }
    }

    fn tick(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Whether workers have enough to do.
    pub fn has_enough(&self) -> bool {
        self.waiting >= WAITING_MAX
    }

    /// A new job that is about to be submitted; its number.
    pub fn submit_sent(&mut self, door: Door, first_state: Option<Value>) -> u64 {
        self.last += 1;
        let job = self.last;
        let states = first_state.into_iter().collect();
        let account = Account {
            door,
            name: None,
            finish: Finish::No,
            finished_at: 0,
            delivered: false,
            seen_done: false,
            states,
            state: 0,
        };
        self.accounts.insert(job, account);
        job
    }

    pub fn submit_answered(&mut self, job: u64, name: String) {
        if let Some(account) = self.accounts.get_mut(&job) {
            self.tally.submits[account.door as usize] += 1;
            self.waiting += u64::from(account.awaits_worker());
            account.name = Some(name);
        }
    }

    /// The server has no room for it. Its name is unknown; whether it came in all the same shows
    /// when it is delivered.
    pub fn submit_refused(&mut self, job: u64) {
        self.accounts.remove(&job);
        self.tally.refused += 1;
    }

    /// A worker is about to ask for a job. What comes back is for [`Books::delivered`].
    pub fn work_asked(&mut self) -> u64 {
        self.tick()
    }

    /// A worker got a job that it asked for then.
    pub fn delivered(&mut self, job: u64, asked: u64) {
        let text = match self.accounts.get_mut(&job) {
            None => "was delivered and never submitted",
            Some(account) if account.door == Door::Jobq => "is parked and was delivered",
            Some(account) if account.finish != Finish::Acknowledged => {
                self.tally.again += u64::from(account.delivered);
                account.delivered = true;
                return;
            }
            // It may have been given out before the finish, and have arrived late.
            Some(account) if asked < account.finished_at => return,
            Some(_) => "was delivered after its finish was acknowledged",
        };
        self.complain(job, text);
    }

    pub fn finish_sent(&mut self, job: u64) {
        if let Some(account) = self.accounts.get_mut(&job) {
            let awaited = account.awaits_worker();
            account.finish = account.finish.max(Finish::Doubted);
            self.waiting = self.waiting.saturating_sub(u64::from(awaited));
        }
    }

    pub fn finish_answered(&mut self, job: u64) {
        let now = self.tick();
        if let Some(account) = self.accounts.get_mut(&job) {
            account.finish(now);
            self.tally.finishes += 1;
        }
    }

    /// A Jobq job is about to get a new state.
    pub fn state_sent(&mut self, job: u64, state: Value) {
        if let Some(account) = self.accounts.get_mut(&job) {
            account.states.push(state);
        }
    }

    /// The server has no room for the newest state.
    pub fn state_refused(&mut self, job: u64) {
        if let Some(account) = self.accounts.get_mut(&job) {
            account.states.pop();
        }
    }

    pub fn state_answered(&mut self, job: u64) {
        if let Some(account) = self.accounts.get_mut(&job) {
            account.state = account.states.len() - 1;
            self.tally.states += 1;
        }
    }

    /// How often jobs were looked at.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// Jobs the server knows, with its names for them, that are to be looked at now: those that were seen to be done
    /// before in some of the checks, and in the last one.
    pub fn due_for_check(&mut self, is_last: bool) -> Vec<(u64, Door, String)> {
        self.checks += 1;
        let turn = self.checks % DONE_CHECKED_EVERY;
        let named = |(job, account): (&u64, &Account)| {
            let is_due = is_last || !account.seen_done || job % DONE_CHECKED_EVERY == turn;
            account.name.clone().filter(|_| is_due).map(|name| (*job, account.door, name))
        };
        self.accounts.iter().filter_map(named).collect()
    }

    /// How a job stands, by the API: `None` when it is not there.
    pub fn observed(&mut self, job: u64, status: Option<&str>) {
        let (now, doubts_last) = (self.tick(), self.doubts_last);
        let Some(account) = self.accounts.get_mut(&job) else { return };
        let status = match status {
            None if self.done_jobs_go && account.finish > Finish::No => Some("done"),
            status => status,
        };
        let text = match (status, account.finish) {
            (None, _) => "was acknowledged and is not there",
            (Some("done"), Finish::No) => "is done, and nobody finished it",
            (Some("done"), _) => {
                self.tally.doubted += u64::from(account.finish == Finish::Doubted);
                account.finish(now);
                account.seen_done = true;
                return;
            }
            (Some("dead"), _) => "is dead, and nobody failed it",
            (Some(_), Finish::Acknowledged) => "is unfinished after its finish was acknowledged",
            (Some(_), Finish::Doubted) if doubts_last => return,
            (Some(_), finish) => {
                self.waiting += u64::from(finish == Finish::Doubted && account.door != Door::Jobq);
                account.finish = Finish::No;
                return;
            }
        };
        self.complain(job, text);
    }

    /// The state of a Jobq job, by Jobq. What was in doubt is settled by it, unless doubts last.
    pub fn observed_state(&mut self, job: u64, found: &Value) {
        let Some(account) = self.accounts.get_mut(&job) else { return };
        let possible = account.states.get(account.state..).unwrap_or_default();
        match possible.iter().position(|state| state == found) {
            Some(at) => {
                account.state += at;
                if !self.doubts_last {
                    account.states.truncate(account.state + 1);
                }
            }
            None => self.complain(job, &format!("has the state {found}, none it can have")),
        }
    }

    /// How many acknowledged jobs wait for workers, or are with some whose finish was not acknowledged.
    pub fn unfinished(&self) -> usize {
        let is_unfinished = |account: &&Account| {
            account.door != Door::Jobq
                && account.name.is_some()
                && account.finish < Finish::Acknowledged
        };
        self.accounts.values().filter(is_unfinished).count()
    }

    pub fn complain(&mut self, job: u64, text: &str) {
        let door = self.accounts.get(&job).map_or("no door", |account| account.door.name());
        self.complaints.push(format!("job {job} ({door}) {text}"));
    }

    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn books_with(door: Door) -> (Books, u64) {
        let mut books = Books::default();
        let job = books.submit_sent(door, Some(json!(0)));
        books.submit_answered(job, "1".to_owned());
        (books, job)
    }

    #[test]
    fn an_acknowledged_job_that_is_gone_is_found_out() {
        let (mut books, job) = books_with(Door::Gearman);
        books.observed(job, Some("ready"));
        assert_eq!(books.complaints(), [""; 0]);
        books.observed(job, None);
        assert_eq!(books.complaints(), ["job 1 (Gearman) was acknowledged and is not there"]);
    }

    #[test]
    fn where_done_jobs_go_one_that_is_gone_was_finished() {
        let mut books = Books::of_cluster_without_done_jobs();
        let mut submit = || {
            let job = books.submit_sent(Door::Api, None);
            books.submit_answered(job, job.to_string());
            job
        };
        let (finished, waiting) = (submit(), submit());
        books.finish_sent(finished);
        books.observed(finished, None);
        assert_eq!((books.complaints().len(), books.unfinished()), (0, 1));
        books.observed(waiting, None);
        assert_eq!(books.complaints(), ["job 2 (API) was acknowledged and is not there"]);
    }

    #[test]
    fn a_finish_without_an_answer_may_have_happened_or_not() {
        for (status, then) in [("done", "ready"), ("ready", "done")] {
            let (mut books, job) = books_with(Door::Api);
            books.finish_sent(job);
            books.observed(job, Some(status));
            assert_eq!(books.complaints(), [""; 0]);
            books.observed(job, Some(then));
            assert_eq!(books.complaints().len(), 1, "{status}, then {then}");
        }
    }

    #[test]
    fn who_was_seen_to_be_done_is_looked_at_now_and_then_and_at_last() {
        let (mut books, job) = books_with(Door::Gearman);
        let times = |books: &mut Books| {
            (0..DONE_CHECKED_EVERY).map(|_| books.due_for_check(false).len() as u64).sum::<u64>()
        };
        assert_eq!(times(&mut books), DONE_CHECKED_EVERY);
        books.finish_sent(job);
        books.finish_answered(job);
        assert_eq!(times(&mut books), DONE_CHECKED_EVERY, "nobody has seen it yet");
        books.observed(job, Some("done"));
        assert_eq!(times(&mut books), 1);
        assert_eq!(books.due_for_check(true).len(), 1);
    }

    #[test]
    fn workers_have_enough_until_finishes_come() {
        let (mut books, first) = books_with(Door::Gearman);
        for _ in 1..WAITING_MAX {
            assert!(!books.has_enough());
            let job = books.submit_sent(Door::Api, None);
            books.submit_answered(job, "2".to_owned());
        }
        assert!(books.has_enough());
        books.finish_sent(first);
        books.finish_answered(first);
        assert!(!books.has_enough());
    }

    #[test]
    fn an_acknowledged_finish_lasts() {
        let (mut books, job) = books_with(Door::Lightjq);
        let early = books.work_asked();
        books.finish_sent(job);
        assert_eq!(books.unfinished(), 1);
        books.finish_answered(job);
        assert_eq!(books.unfinished(), 0);
        books.delivered(job, early);
        assert_eq!(books.complaints(), [""; 0], "it was given away before");
        let late = books.work_asked();
        books.delivered(job, late);
        books.observed(job, Some("leased"));
        assert_eq!(books.complaints().len(), 2);
    }

    #[test]
    fn in_a_cluster_doubts_last() {
        let mut books = Books::of_cluster();
        let job = books.submit_sent(Door::Workq, None);
        books.submit_answered(job, "1".to_owned());
        books.finish_sent(job);
        for status in ["leased", "ready", "done"] {
            books.observed(job, Some(status));
        }
        assert_eq!(books.complaints(), [""; 0]);
        books.observed(job, Some("ready"));
        assert_eq!(books.complaints().len(), 1);
        let parked = books.submit_sent(Door::Jobq, Some(json!(0)));
        books.submit_answered(parked, "2".to_owned());
        books.state_sent(parked, json!(1));
        for state in [0, 1] {
            books.observed_state(parked, &json!(state));
        }
        assert_eq!(books.complaints().len(), 1);
    }

    #[test]
    fn who_gets_what_another_one_got_is_counted() {
        let (mut books, job) = books_with(Door::Gearman);
        for again in [0, 1, 2] {
            let asked = books.work_asked();
            books.delivered(job, asked);
            assert_eq!(books.tally().again, again);
        }
        assert_eq!(books.complaints(), [""; 0]);
    }

    #[test]
    fn a_state_is_the_last_acknowledged_one_or_one_in_doubt() {
        let (mut books, job) = books_with(Door::Jobq);
        books.state_sent(job, json!(1));
        books.state_answered(job);
        books.state_sent(job, json!(2));
        books.observed_state(job, &json!(1));
        assert_eq!(books.complaints(), [""; 0]);
        books.observed_state(job, &json!(2));
        assert_eq!(books.complaints().len(), 1, "it was settled that it did not come");
        books.observed_state(job, &json!(0));
        assert_eq!(books.complaints().len(), 2);
    }
}
