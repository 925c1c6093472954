//! Tests the accountant against servers that lie, and against an honest one.

use super::*;
use crate::torture::job::{TTR_BRIEF_MS, TTR_LONG_MS};

const JOB: Job = Job(7);
const WON: (bool, &[u8]) = (true, b"won");
const FAILED: (bool, &[u8]) = (false, b"failed");

fn outcome((success, bytes): (bool, &[u8])) -> Outcome {
    (success, bytes.to_vec())
}

/// The accountant with one job and the shortest way to say what happens to it.
struct History {
    books: Accountant,
    now_ms: u64,
}

impl History {
    fn new(terms: Terms) -> Self {
        let mut books = Accountant::default();
        books.server_started();
        books.add_sent(JOB, terms);
        Self { books, now_ms: 1_000 }
    }

    /// The same with the books of a cluster.
    fn in_cluster(terms: Terms) -> Self {
        let mut history = Self::new(terms);
        history.books.doubts_last = true;
        history
    }

    fn added(terms: Terms) -> Self {
        let mut history = Self::new(terms);
        history.books.add_answered(JOB, &Answer::Done);
        history
    }

    fn leased(mut self) -> Self {
        let asked = self.books.lease_asked(self.now_ms);
        let delivery = Delivery { id: JOB.to_string(), payload: JOB.payload() };
        assert_eq!(self.books.delivered(asked, &delivery, self.now_ms + 1), Some(JOB));
        self.now_ms += 10;
        self
    }

    fn sent(mut self, end: (bool, &[u8])) -> Self {
        self.books.finish_sent(JOB, outcome(end));
        self
    }

    fn answered(mut self, end: (bool, &[u8]), answer: Answer) -> Self {
        self.books.finish_answered(JOB, &outcome(end), &answer);
        self
    }

    fn finished(self, end: (bool, &[u8])) -> Self {
        self.sent(end).answered(end, Answer::Done)
    }

    fn deleted(mut self) -> Self {
        assert!(self.books.delete_sent(JOB));
        self.books.delete_answered(JOB, &Answer::Done);
        self
    }

    fn crashed(mut self) -> Self {
        self.books.server_ended();
        self.books.server_started();
        self
    }

    fn seen(mut self, state: u8, attempts: u32, fails: u32) -> Self {
        let found = Inspection { attempts, fails, state, payload: JOB.payload() };
        self.books.observed(JOB, Some(&found), self.now_ms);
        self
    }

    fn absent(mut self) -> Self {
        self.books.observed(JOB, None, self.now_ms);
        self
    }

    fn result(mut self, end: (bool, &[u8])) -> Self {
        self.books.observed_result(JOB, Some(&outcome(end)));
        self
    }

    fn honest(self) -> Self {
        assert_eq!(self.books.complaints(), []);
        self
    }

    fn charged(&self, charge: Charge, text: &str) {
        let complaints = self.books.complaints();
        assert!(
            complaints.iter().any(|c| c.charge == charge && c.text.contains(text)),
            "no {charge:?} {text:?} in {complaints:?}"
        );
    }
}

fn plain() -> Terms {
    Terms { ttr_ms: TTR_LONG_MS, ..Terms::default() }
}

fn counted() -> Terms {
    Terms { attempts_max: 2, ..plain() }
}

fn retried() -> Terms {
    Terms { fails_max: 2, ..plain() }
}

#[test]
fn an_honest_life_has_no_complaints() {
    let mut history =
        History::added(plain()).crashed().seen(0, 0, 0).leased().finished(WON).crashed();
    history = history.seen(1, 1, 0).result(WON).honest();
    history.books.close();
    let history = history.honest();
    assert_eq!((history.books.tally().adds, history.books.tally().finishes), (1, 1));
    History::added(plain()).deleted().crashed().absent().honest();
}

#[test]
fn an_acknowledged_add_that_is_not_there_is_lost() {
    History::added(plain()).crashed().absent().charged(Charge::Lost, "not there");
}

#[test]
fn an_add_in_doubt_may_be_there_or_not_but_not_change_its_mind() {
    History::new(plain()).crashed().absent().crashed().absent().honest();
    History::new(plain()).crashed().seen(0, 0, 0).honest();
    let vanished = History::new(plain()).crashed().seen(0, 0, 0).crashed().absent();
    vanished.charged(Charge::Lost, "not there");
    let appeared = History::new(plain()).crashed().absent().crashed().seen(0, 0, 0);
    appeared.charged(Charge::Broken, "after it was not");
}

#[test]
fn an_acknowledged_finish_must_keep_its_state_and_its_bytes() {
    let finished = || History::added(plain()).leased().finished(WON).crashed();
    finished().seen(4, 1, 0).charged(Charge::Lost, "state 4");
    finished().seen(1, 1, 0).result((true, b"other")).charged(Charge::Lost, "another result");
    let mut silent = finished().seen(1, 1, 0);
    silent.books.observed_result(JOB, None);
    silent.charged(Charge::Lost, "no result");
}

#[test]
fn a_finish_in_doubt_is_settled_by_what_is_seen() {
    let open = || History::added(plain()).leased().sent(WON).crashed();
    open().seen(1, 1, 0).result(WON).honest();
    open().seen(3, 1, 0).honest().leased().finished(FAILED).honest();
    open().seen(2, 1, 0).charged(Charge::Broken, "finished by nobody");
    open().seen(1, 1, 0).result((true, b"?")).charged(Charge::Broken, "nobody sent");
    let back = open().seen(1, 1, 0).result(WON).crashed().seen(3, 1, 0);
    back.charged(Charge::Lost, "state 3");
}

#[test]
fn a_deleted_job_stays_away() {
    History::added(plain()).deleted().crashed().seen(0, 0, 0).charged(Charge::Lost, "again");
    let mut history = History::added(plain());
    assert!(history.books.delete_sent(JOB));
    history.crashed().absent().crashed().absent().honest();
}

#[test]
fn a_job_is_finished_once() {
    History::added(plain()).finished(WON).finished(WON).charged(Charge::Broken, "twice");
    History::added(plain()).finished(WON).finished(FAILED).charged(Charge::Broken, "twice");
    History::added(plain()).finished(WON).sent(WON).answered(WON, Answer::Duplicate).honest();
    let refused = History::added(plain()).sent(WON).answered(WON, Answer::Duplicate);
    refused.charged(Charge::Broken, "by nobody");
    let lost = History::added(plain()).sent(WON).answered(WON, Answer::NotFound);
    lost.charged(Charge::Lost, "unknown");
}

#[test]
fn nothing_is_delivered_after_its_end() {
    History::added(plain()).finished(WON).leased().charged(Charge::Broken, "after its finish");
    History::added(plain()).deleted().leased().charged(Charge::Broken, "after its delete");
}

#[test]
fn a_delivery_asked_for_before_the_finish_was_known_is_no_crime() {
    let brief = Terms { ttr_ms: TTR_BRIEF_MS, ..Terms::default() };
    let mut history = History::added(brief).leased();
    history.now_ms += TTR_BRIEF_MS;
    let asked = history.books.lease_asked(history.now_ms);
    let mut history = history.finished(WON);
    let delivery = Delivery { id: JOB.to_string(), payload: JOB.payload() };
    history.books.delivered(asked, &delivery, history.now_ms);
    history.honest();
}

#[test]
fn two_live_leases_are_found_within_an_epoch_and_across_it_when_durable() {
    History::added(plain()).leased().leased().charged(Charge::Broken, "another lease");
    History::added(plain()).leased().crashed().seen(0, 0, 0).leased().honest();
    let forgotten = History::added(counted()).leased().crashed();
    forgotten.seen(3, 1, 0).charged(Charge::Lost, "leased no more");
    let twice = History::added(counted()).leased().crashed().seen(4, 1, 0).leased();
    twice.charged(Charge::Broken, "another lease");
}

#[test]
fn attempts_stay_within_their_maximum_across_crashes() {
    let brief = Terms { attempts_max: 2, ttr_ms: TTR_BRIEF_MS, ..Terms::default() };
    let mut history = History::added(brief);
    for _ in 0..2 {
        history = history.leased().crashed();
        history.now_ms += 2 * TTR_BRIEF_MS;
    }
    let mut dead = history.seen(2, 2, 0).result((false, b"")).honest();
    dead.now_ms += TTR_BRIEF_MS;
    dead.leased().charged(Charge::Broken, "3 times of 2");
    History::added(counted()).seen(4, 3, 0).charged(Charge::Broken, "3 attempts of 2");
    let forgot = History::added(counted()).leased().crashed().seen(4, 0, 0);
    forgot.charged(Charge::Lost, "0 attempts after 1");
}

#[test]
fn fails_are_counted_up_to_the_last_one() {
    let once = || History::added(retried()).leased().finished(FAILED);
    once().crashed().seen(3, 1, 1).leased().finished((false, b"last")).crashed();
    let last = once().leased().finished((false, b"last")).crashed();
    last.seen(2, 2, 2).result((false, b"last")).honest();
    once().crashed().seen(3, 1, 0).charged(Charge::Lost, "0 fails after 1");
    once().crashed().seen(3, 1, 2).charged(Charge::Broken, "2 fails, 1");
    once().crashed().seen(2, 1, 1).charged(Charge::Broken, "finished by nobody");
    once().sent(FAILED).crashed().seen(2, 2, 2).result(FAILED).honest();
}

#[test]
fn answers_noted_out_of_order_are_no_crime() {
    // The first worker's fail is served first but noted last.
    let history = History::added(retried()).leased().sent(FAILED).leased();
    history.finished(WON).answered(FAILED, Answer::Done).honest();
    let history =
        History::added(retried()).leased().sent(FAILED).leased().finished((false, b"last"));
    let history = history.answered(FAILED, Answer::Done).crashed();
    history.seen(2, 2, 2).result((false, b"last")).honest();
}

#[test]
fn early_foreign_and_changed_deliveries_are_found() {
    let later = Terms { not_before_ms: 5_000, ..plain() };
    History::added(later).leased().charged(Charge::Broken, "before its time");
    let mut history = History::added(plain());
    let asked = history.books.lease_asked(0);
    let changed = Delivery { id: JOB.to_string(), payload: b"!".to_vec() };
    history.books.delivered(asked, &changed, 1);
    history.charged(Charge::Broken, "another payload");
    let foreign = Delivery { id: Job(8).to_string(), payload: Vec::new() };
    history.books.delivered(asked, &foreign, 1);
    history.charged(Charge::Broken, "never added");
}

#[test]
fn a_job_nobody_finished_is_found_at_the_end() {
    let mut history = History::added(plain()).leased();
    history.books.close();
    history.charged(Charge::Broken, "never finished");
}

#[test]
fn a_job_refused_for_a_full_disk_must_not_turn_up() {
    let mut history = History::new(plain());
    history.books.add_refused(JOB);
    history.absent().honest();
    let mut history = History::new(plain());
    history.books.add_refused(JOB);
    history.seen(0, 0, 0).charged(Charge::Broken, "is there after it was not");
}

#[test]
fn the_sweep_comes_to_every_finished_job_but_those_that_are_kept() {
    let mut books = Accountant::default();
    books.server_started();
    for job in (1..=200).map(Job) {
        books.add_sent(job, plain());
        books.add_answered(job, &Answer::Done);
        if job.0 != 5 {
            books.finish_sent(job, outcome(WON));
            books.finish_answered(job, &outcome(WON), &Answer::Done);
        }
    }
    let mut swept = Vec::new();
    for _ in 0..500 {
        if let Some(job) = books.next_to_sweep() {
            assert!(books.delete_sent(job));
            books.delete_answered(job, &Answer::Done);
            swept.push(job.0);
        }
    }
    let expected: Vec<u64> = (1..=200).filter(|n| n % KEPT_EVERY != 0 && *n != 5).collect();
    assert_eq!(swept, expected);
}

#[test]
fn in_a_cluster_what_was_not_answered_may_still_happen() {
    let mut late = History::in_cluster(plain()).absent();
    late.books.close();
    late.seen(0, 0, 0).honest();
    let added = || {
        let mut history = History::in_cluster(plain());
        history.books.add_answered(JOB, &Answer::Done);
        history
    };
    added().leased().sent(WON).seen(4, 1, 0).seen(1, 1, 0).result(WON).honest();
    let mut deleted = added();
    assert!(deleted.books.delete_sent(JOB));
    deleted.seen(0, 0, 0).absent().honest();
}

#[test]
fn in_a_cluster_what_was_answered_is_in_no_doubt() {
    let added = || {
        let mut history = History::in_cluster(Terms { durable_leases: true, ..plain() });
        history.books.add_answered(JOB, &Answer::Done);
        history
    };
    added().absent().charged(Charge::Lost, "not there");
    added().leased().finished(WON).seen(3, 1, 0).charged(Charge::Lost, "was finished into 1");
    added().deleted().seen(0, 0, 0).charged(Charge::Lost, "again after its delete");
    added().leased().crashed().leased().charged(Charge::Broken, "another lease was live");
    added().leased().finished(WON).leased().charged(Charge::Broken, "after its finish");
}

#[test]
fn who_looks_is_shown_what_was_acknowledged_before() {
    let looked = |mut history: History, asked: u64, state: Option<u8>| {
        let shown = |state| Inspection { state, payload: JOB.payload(), ..Inspection::default() };
        history.books.glimpsed(JOB, asked, state.map(shown).as_ref());
        history
    };
    let lives = [
        (History::added(plain()), None, "add was"),
        (History::added(plain()).leased().finished(WON), Some(4), "finished before"),
        (History::added(plain()).deleted(), Some(0), "delete was"),
    ];
    for (history, stale, text) in lives {
        let history = looked(history.honest(), 0, stale).honest();
        let mut history = history;
        let now = history.books.tick();
        looked(history, now, stale).charged(Charge::Lost, text);
    }
    let mut ended = History::added(plain());
    assert_eq!(ended.books.look_asked(&mut Dice::new(1)), None);
    ended = ended.leased().finished(WON);
    assert_eq!(ended.books.look_asked(&mut Dice::new(1)).map(|(job, _)| job), Some(JOB));
    let mut doubted = History::added(plain());
    assert!(doubted.books.delete_sent(JOB));
    let now = doubted.books.tick();
    looked(looked(doubted, now, None), now, Some(0)).honest();
}

#[test]
fn the_last_fail_may_be_an_answered_one_behind_one_in_doubt() {
    let second = (false, &b"second"[..]);
    let mut history = History::in_cluster(retried());
    history.books.add_answered(JOB, &Answer::Done);
    let history = history.leased().sent(FAILED).leased().finished(second).seen(2, 2, 2);
    history.result(second).honest();
}
