//! Knows every acknowledgement that the server gave, and reports each one that the server did not
//! keep.
//!
//! The accountant is outside of the server and trusts only its answers. A command whose answer did
//! not come (the server was killed) is *open*: it may have happened or not, until the job is looked
//! at after the restart. The answer to that look is an acknowledgement as well: a later crash must
//! not take it back. In a cluster, where requests may be on their way for longer than any client
//! waits, such doubts last: a look shows what has happened, but not what will never happen.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Display, Formatter};

use super::client::{Answer, Delivery, Inspection, Outcome};
use super::job::{Dice, Job, Terms};

/// A complaint about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub charge: Charge,
    pub job: Job,
    pub text: String,
}

impl Display for Complaint {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: job {} {}", self.charge, self.job, self.text)
    }
}

/// Kinds of complaints. After a power cut without syncs losses are expected, the rest never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// Something acknowledged is not there any more.
    Lost,
    /// Something happened that must not happen, crash or no crash.
    Broken,
}

/// All complaints so far.
#[derive(Default)]
struct Charges(Vec<Complaint>);

impl Charges {
    fn lost(&mut self, job: Job, text: impl Into<String>) {
        self.0.push(Complaint { charge: Charge::Lost, job, text: text.into() });
    }

    fn broken(&mut self, job: Job, text: impl Into<String>) {
        self.0.push(Complaint { charge: Charge::Broken, job, text: text.into() });
    }
}

/// A finish that was sent: its outcome, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finish {
    outcome: Outcome,
    sent: u64,
}

impl Finish {
    /// Workq's number of the state that it leads to.
    fn state(&self) -> u8 {
        if self.outcome.0 { 1 } else { 2 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Unfinished,
    Finished {
        finish: Finish,
        known: u64,
    },
    Deleted {
        known: u64,
    },
    /// The add had not happened when the server died.
    NeverWas,
    /// A complaint was made, and the job is not looked at again.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    epoch: u64,
    asked_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct Account {
    job: Job,
    terms: Terms,
    /// The add was answered, or the job was seen.
    known: bool,
    /// When the add was answered.
    added: Option<u64>,
    fate: Fate,
    open_finishes: Vec<Finish>,
    open_delete: bool,
    /// Fails that were acknowledged.
    fails: u32,
    last_fail: Option<Finish>,
    /// Leases that reached a client.
    deliveries: u32,
    holder: Option<Holder>,
}

/// A lease request under way: made before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    order: u64,
    epoch: u64,
    at_ms: u64,
}

/// How many of each were acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub adds: u64,
    pub leases: u64,
    pub finishes: u64,
    pub deletes: u64,
    /// Adds answered with "disk full".
    pub refused: u64,
    pub in_doubt: u64,
    /// Jobs that were looked at while others worked.
    pub looks: u64,
}

/// The books.
#[derive(Default)]
pub struct Accountant {
    accounts: BTreeMap<Job, Account>,
    charges: Charges,
    /// Counts the accountant's entries, which shows which of two facts was known first.
    order: u64,
    epoch: u64,
    tally: Tally,
    /// The job at which the sweep goes on.
    swept: Job,
    /// Jobs whose finish or delete was acknowledged last.
    ended: VecDeque<Job>,
    /// An unanswered request may still take effect after the job was looked at.
    doubts_last: bool,
}

/// One job in so many is never swept.
const KEPT_EVERY: u64 = 16;
/// So many jobs that ended last are remembered.
const ENDED_MAX: usize = 32;
/// Accounts looked at in one step of the sweep.
const SWEEP_STEP: u64 = 64;

impl Accountant {
    /// The accountant of a cluster, in which doubts last.
    pub fn of_cluster() -> Self {
        Self { doubts_last: true, ..Self::default() }
    }

    fn tick(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// A new server process has started.
    pub fn server_started(&mut self) {
        self.epoch += 1;
    }

    /// The server process has ended; what is open now is in doubt.
    pub fn server_ended(&mut self) {
        let open = |a: &Account| {
            !matches!(a.fate, Fate::NeverWas | Fate::Lost)
                && (!a.known || a.open_delete || !a.open_finishes.is_empty())
        };
        self.tally.in_doubt += self.accounts.values().filter(|a| open(a)).count() as u64;
    }

    /// An add (or schedule) is about to be sent.
    pub fn add_sent(&mut self, job: Job, terms: Terms) {
        self.accounts.insert(job, Account { job, terms, ..Account::default() });
    }

    /// The add was answered.
    pub fn add_answered(&mut self, job: Job, answer: &Answer) {
        if *answer != Answer::Done {
            return self.charges.broken(job, format!("add was answered {answer:?}"));
        }
        self.tally.adds += 1;
        let now = self.tick();
        if let Some(account) = self.accounts.get_mut(&job) {
            account.added = Some(now);
            account.known = true;
        }
    }

    /// The add was answered with "disk full": the job must never be seen.
    pub fn add_refused(&mut self, job: Job) {
        self.tally.refused += 1;
        if let Some(account) = self.accounts.get_mut(&job) {
            account.fate = Fate::NeverWas;
        }
    }

    /// A lease is about to be asked for.
    pub fn lease_asked(&mut self, now_ms: u64) -> Asked {
        Asked { order: self.tick(), epoch: self.epoch, at_ms: now_ms }
    }

    /// A lease was given. Returns the job, if it is one.
    pub fn delivered(&mut self, asked: Asked, delivery: &Delivery, now_ms: u64) -> Option<Job> {
        let job = Job::named(&delivery.id).filter(|job| self.accounts.contains_key(job));
        let Some((job, account)) = job.and_then(|job| Some((job, self.accounts.get_mut(&job)?)))
        else {
            self.charges.broken(Job(0), format!("{} was never added", delivery.id));
            return None;
        };
        self.tally.leases += 1;
        account.deliver(asked, &delivery.payload, now_ms, &mut self.charges);
        Some(job)
    }

    /// A complete (`success`) or fail is about to be sent.
    pub fn finish_sent(&mut self, job: Job, outcome: Outcome) {
        let sent = self.tick();
        if let Some(account) = self.accounts.get_mut(&job) {
            // From here on the server may give a failed job to another worker.
            if !outcome.0 {
                account.holder = None;
            }
            account.open_finishes.push(Finish { outcome, sent });
        }
    }

    /// The complete or fail was answered.
    pub fn finish_answered(&mut self, job: Job, outcome: &Outcome, answer: &Answer) {
        let known = self.tick();
        let Some(account) = self.accounts.get_mut(&job) else { return };
        let Some(at) = account.open_finishes.iter().position(|f| f.outcome == *outcome) else {
            return;
        };
        let finish = account.open_finishes.swap_remove(at);
        let is_unfinished = account.fate == Fate::Unfinished;
        match answer {
            Answer::Done => {
                self.tally.finishes += 1;
                account.accept(finish, known, &mut self.charges);
                self.has_ended(job);
            }
            // Another client's finish may be answered after this one, and a lease that ran out may
            // have been the last attempt.
            Answer::Duplicate => {
                if is_unfinished
                    && account.open_finishes.is_empty()
                    && account.terms.attempts_max == 0
                {
                    self.charges.broken(job, "finished, says the server, by nobody");
                }
            }
            Answer::NotFound => {
                if is_unfinished && !account.open_delete {
                    self.charges.lost(job, "unknown when it was finished");
                }
            }
            Answer::Refused(line) => {
                self.charges.broken(job, format!("finish answered {line:?}"));
            }
        }
    }

    /// A delete is about to be sent; false when it would make no sense (again, or not added yet).
    pub fn delete_sent(&mut self, job: Job) -> bool {
        match self.accounts.get_mut(&job) {
            Some(account) if account.known && !account.open_delete && account.exists() => {
                account.open_delete = true;
                true
            }
            _ => false,
        }
    }

    /// The delete was answered.
    pub fn delete_answered(&mut self, job: Job, answer: &Answer) {
        let known = self.tick();
        let Some(account) = self.accounts.get_mut(&job) else { return };
        account.open_delete = false;
        match answer {
            Answer::Done => {
                account.fate = Fate::Deleted { known };
                self.tally.deletes += 1;
                self.has_ended(job);
            }
            Answer::NotFound => {
                account.fate = Fate::Lost;
                self.charges.lost(job, "unknown when it was deleted");
            }
            other => self.charges.broken(job, format!("delete was answered {other:?}")),
        }
    }

    /// Some finished job that may be deleted. Goes on from where it found the last one, a few jobs
    /// at a time, and skips some, which stay so that they are always checked.
    pub fn next_to_sweep(&mut self) -> Option<Job> {
        let sweepable = |job: &Job, account: &Account| {
            !job.0.is_multiple_of(KEPT_EVERY) && matches!(account.fate, Fate::Finished { .. })
        };
        let mut next = self.accounts.range(self.swept..).take(SWEEP_STEP as usize);
        let found = next.find(|(job, account)| sweepable(job, account)).map(|(job, _)| *job);
        let looked_at = found.map_or(self.swept.0 + SWEEP_STEP, |job| job.0);
        let newest = self.accounts.last_key_value().map_or(0, |(job, _)| job.0);
        self.swept = if looked_at >= newest { Job(0) } else { Job(looked_at + 1) };
        found
    }

    /// Jobs that are known to be there, and neither finished nor gone, as far as is known.
    pub fn unfinished(&self) -> Vec<Job> {
        let unfinished = |a: &Account| a.known && matches!(a.fate, Fate::Unfinished);
        self.accounts.iter().filter(|(_, a)| unfinished(a)).map(|(job, _)| *job).collect()
    }

    /// Every job there ever was.
    pub fn jobs(&self) -> Vec<Job> {
        self.accounts.keys().copied().collect()
    }

    /// The job was looked at while nothing else was going on, which settles what was in doubt.
    /// True when its result is to be looked at too.
    pub fn observed(&mut self, job: Job, found: Option<&Inspection>, now_ms: u64) -> bool {
        let (known, doubts_last) = (self.tick(), self.doubts_last);
        let Some(account) = self.accounts.get_mut(&job) else { return false };
        let doubts = (account.open_delete, account.open_finishes.clone());
        let has_result = match found {
            None => {
                account.settle_absent(known, doubts_last, &mut self.charges);
                false
            }
            Some(found) => account.settle_present(found, now_ms, &mut self.charges),
        };
        if doubts_last && account.exists() {
            (account.open_delete, account.open_finishes) = doubts;
        }
        has_result
    }

    fn has_ended(&mut self, job: Job) {
        self.ended.push_back(job);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    /// One of the jobs that ended last is about to be looked at while others work. The answer goes
    /// to [`Accountant::glimpsed`].
    pub fn look_asked(&mut self, dice: &mut Dice) -> Option<(Job, u64)> {
        let among = u64::try_from(self.ended.len()).ok().filter(|len| *len > 0)?;
        let job = *self.ended.get(dice.below(among) as usize)?;
        Some((job, self.tick()))
    }

    /// The answer to a client that asked at that point: everything acknowledged before must show in
    /// it.
    pub fn glimpsed(&mut self, job: Job, asked: u64, found: Option<&Inspection>) {
        let Some(account) = self.accounts.get(&job).filter(|account| !account.open_delete) else {
            return;
        };
        self.tally.looks += 1;
        let complaint = match (&account.fate, found.map(|found| found.state)) {
            (Fate::Unfinished | Fate::Finished { .. }, None)
                if account.added.is_some_and(|added| added < asked) =>
            {
                "is not shown after its add was acknowledged"
            }
            (Fate::Finished { known, finish }, Some(state))
                if *known < asked && state != finish.state() =>
            {
                "is not shown as it was finished before"
            }
            (Fate::Deleted { known }, Some(_)) if *known < asked => {
                "is shown after its delete was acknowledged"
            }
            _ => return,
        };
        self.charges.lost(job, complaint);
    }

    /// The result of a finished job was looked at, which settles how it finished.
    pub fn observed_result(&mut self, job: Job, found: Option<&Outcome>) {
        let known = self.tick();
        let Some(account) = self.accounts.get_mut(&job) else { return };
        account.settle_result(found, known, &mut self.charges);
    }

    /// At the very end: every job must have come to its end.
    pub fn close(&mut self) {
        for job in self.unfinished() {
            self.charges.broken(job, "was never finished");
        }
    }

    /// A complaint that somebody else found.
    pub fn complain(&mut self, job: Job, text: &str) {
        self.charges.broken(job, text);
    }

    pub fn complaints(&self) -> &[Complaint] {
        &self.charges.0
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }
}

/// Whether two leases, one asked for at `asked_ms` and one received at `now_ms`, are certainly
/// closer than the TTR. A tenth is left for the server's clock, which may run that much faster.
fn within_ttr(terms: &Terms, asked_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(asked_ms) < terms.ttr_ms / 10 * 9
}

impl Account {
    fn exists(&self) -> bool {
        matches!(self.fate, Fate::Unfinished | Fate::Finished { .. })
    }

    /// A lease reached a client.
    fn deliver(&mut self, asked: Asked, payload: &[u8], now_ms: u64, charges: &mut Charges) {
        let (job, terms) = (self.job, self.terms);
        self.known = true;
        self.deliveries += 1;
        if payload != job.payload() {
            charges.broken(job, "was delivered with another payload");
        }
        if terms.attempts_max > 0 && self.deliveries > terms.attempts_max {
            let (n, max) = (self.deliveries, terms.attempts_max);
            charges.broken(job, format!("was delivered {n} times of {max}"));
        }
        if now_ms < terms.not_before_ms {
            let early_ms = terms.not_before_ms - now_ms;
            charges.broken(job, format!("came {early_ms} ms before its time"));
        }
        match self.fate {
            Fate::Finished { known, .. } if asked.order > known => {
                charges.broken(job, "was delivered after its finish was acknowledged");
            }
            Fate::Deleted { known } if asked.order > known => {
                charges.broken(job, "was delivered after its delete was acknowledged");
            }
            _ => {}
        }
        if let Some(held) = self.holder
            && (held.epoch == asked.epoch || terms.lease_is_durable())
            && within_ttr(&terms, held.asked_ms.min(asked.at_ms), now_ms)
        {
            charges.broken(job, "was delivered while another lease was live");
        }
        self.holder = Some(Holder { epoch: asked.epoch, asked_ms: asked.at_ms });
    }

    /// The server took a finish.
    fn accept(&mut self, finish: Finish, known: u64, charges: &mut Charges) {
        let success = finish.outcome.0;
        if !success {
            self.fails += 1;
            // Answers can be noted in another order than the server gave them. A client that sent
            // later was served later, because it got the job after the earlier fail.
            if self.last_fail.as_ref().is_none_or(|last| last.sent < finish.sent) {
                self.last_fail = Some(finish.clone());
            }
        }
        match &self.fate {
            Fate::Unfinished if success => self.fate = Fate::Finished { finish, known },
            Fate::Unfinished => {
                if self.fails >= self.terms.fails_limit() {
                    let finish = self.last_fail.clone().unwrap_or(finish);
                    self.fate = Fate::Finished { finish, known };
                }
            }
            Fate::Finished { finish: end, .. } => {
                let before_the_end = !success
                    && end.outcome.0
                    && finish.sent < end.sent
                    && self.fails < self.terms.fails_limit();
                if !before_the_end {
                    charges.broken(self.job, "was finished twice");
                }
            }
            Fate::Deleted { known } if finish.sent > *known => {
                charges.broken(self.job, "was finished after its delete");
            }
            Fate::Deleted { .. } | Fate::NeverWas | Fate::Lost => {}
        }
    }

    /// The server does not know the job: what was in doubt did or did not happen.
    fn settle_absent(&mut self, known: u64, doubts_last: bool, charges: &mut Charges) {
        let doubted = std::mem::take(&mut self.open_delete);
        self.open_finishes.clear();
        match self.fate {
            Fate::Deleted { .. } | Fate::NeverWas | Fate::Lost => {}
            _ if doubted => self.fate = Fate::Deleted { known },
            _ if !self.known && doubts_last => {}
            _ if !self.known => self.fate = Fate::NeverWas,
            _ => {
                let was = if self.fate == Fate::Unfinished { "added" } else { "finished" };
                self.fate = Fate::Lost;
                charges.lost(self.job, format!("is not there, but was {was}"));
            }
        }
    }

    /// The server shows the job. True when its result is to be looked at too.
    fn settle_present(&mut self, found: &Inspection, now_ms: u64, charges: &mut Charges) -> bool {
        let job = self.job;
        self.open_delete = false;
        self.known = true;
        match self.fate {
            Fate::Deleted { .. } => {
                charges.lost(job, "is there again after its delete");
                self.fate = Fate::Lost;
                return false;
            }
            Fate::NeverWas => {
                charges.broken(job, "is there after it was not");
                self.fate = Fate::Lost;
                return false;
            }
            Fate::Lost => return false,
            Fate::Unfinished | Fate::Finished { .. } => {}
        }
        if found.payload != job.payload() {
            charges.lost(job, "has another payload");
        }
        self.settle_counts(found, charges);
        match (&self.fate, found.state) {
            (Fate::Finished { finish, .. }, state) => {
                let expected = finish.state();
                if state != expected {
                    let text = format!("is in state {state}, was finished into {expected}");
                    charges.lost(job, text);
                    self.fate = Fate::Lost;
                    return false;
                }
                true
            }
            (_, 1 | 2) => {
                let success = found.state == 1;
                let doubted = self.open_finishes.iter().filter(|f| f.outcome.0 == success).count();
                let possible = if success {
                    doubted > 0
                } else {
                    doubted > 0 && self.fails + doubted as u32 >= self.terms.fails_limit()
                        || self.out_of_attempts(found)
                };
                if !possible {
                    let text = format!("is in state {}, finished by nobody", found.state);
                    charges.broken(job, text);
                    self.fate = Fate::Lost;
                }
                possible
            }
            (_, state) => {
                self.open_finishes.clear();
                let live =
                    self.holder.is_some_and(|held| within_ttr(&self.terms, held.asked_ms, now_ms));
                if live && self.terms.lease_is_durable() && state != 4 {
                    charges.lost(job, "is leased no more, within its TTR");
                }
                if state != 4 {
                    self.holder = None;
                }
                false
            }
        }
    }

    fn settle_counts(&mut self, found: &Inspection, charges: &mut Charges) {
        let job = self.job;
        let (max, attempts) = (self.terms.attempts_max, found.attempts);
        if max > 0 && attempts > max {
            charges.broken(job, format!("has {attempts} attempts of {max}"));
        }
        if max > 0 && attempts < self.deliveries {
            let text = format!("has {attempts} attempts after {} deliveries", self.deliveries);
            charges.lost(job, text);
        }
        let limit = self.terms.fails_limit();
        if found.fails > limit {
            charges.broken(job, format!("has {} fails of {limit}", found.fails));
        }
        if found.state == 1 || found.state == 2 || self.fate != Fate::Unfinished {
            return;
        }
        let doubted = self.open_finishes.iter().filter(|f| !f.outcome.0).count() as u32;
        if found.fails < self.fails {
            let text = format!("has {} fails after {}", found.fails, self.fails);
            charges.lost(job, text);
        } else if found.fails > self.fails + doubted {
            let text = format!("has {} fails, {} and {doubted} open", found.fails, self.fails);
            charges.broken(job, text);
        }
        self.fails = found.fails;
    }

    fn out_of_attempts(&self, found: &Inspection) -> bool {
        self.terms.attempts_max > 0 && found.attempts >= self.terms.attempts_max
    }

    fn settle_result(&mut self, found: Option<&Outcome>, known: u64, charges: &mut Charges) {
        let open = std::mem::take(&mut self.open_finishes);
        let complaint = match (found, &self.fate) {
            (None, _) => "has no result",
            (Some(found), Fate::Finished { finish, .. }) if finish.outcome == *found => return,
            (Some(_), Fate::Finished { .. }) => "has another result than was acknowledged",
            (Some(found), Fate::Unfinished) => {
                // An answered fail may be the last one, if unanswered ones have happened.
                let mut possible = open.into_iter().chain(self.last_fail.clone());
                let doubted = possible.find(|finish| finish.outcome == *found);
                let ran_out = self.terms.attempts_max > 0 && !found.0;
                let by_itself = ran_out.then(|| Finish { outcome: found.clone(), sent: known });
                match doubted.or(by_itself) {
                    Some(finish) => self.fate = Fate::Finished { finish, known },
                    None => {
                        self.fate = Fate::Lost;
                        charges.broken(self.job, "has a result nobody sent");
                    }
                }
                return;
            }
            (Some(_), _) => return,
        };
        self.fate = Fate::Lost;
        charges.lost(self.job, complaint);
    }
}

#[cfg(test)]
#[path = "accountant_tests.rs"]
mod tests;
