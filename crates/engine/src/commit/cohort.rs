//! When to commit: one cohort a commit.
//!
//! Clients that are answered together ask again together. If the first of them to come back were
//! given a commit of its own, all others would wait for that one and then for the next: the clients
//! fall apart into two cohorts, and each sync serves half of them. So the owner of the connections, before it commits,
//! goes on looking for requests while connections that it has answered are expected back. A [`Cohort`] says whether to.
//! It reads no clock and touches no socket:
//!
//! - [`Cohort::asks`] and [`Cohort::answered`] tell it of every request and of every connection
//!   that has all its answers, [`Cohort::leaves`] of those that are gone;
//! - [`Cohort::looked`] and [`Cohort::slept`] tell it how long nothing came, and [`Cohort::served`] how long requests
//!   were served: that time counts as waiting only if a client was expected and others came. The time of a commit never
//!   counts;
//! - [`Cohort::next`] says what to do when everything that came is served and everything that may
//!   leave is sent.
//!
//! The rules:
//!
//! 1. A connection is expected back if it came back in time after each of its last two answers. So
//!    a commit never waits for open loops, for workers that work, or for people.
//! 2. A cohort waits for half the time a sync takes, at most [`PATIENCE_MAX`] (or [`LOOKING_MAX`], see there), in
//!    all. A request that waits longer would have been better off with a sync of its own. Time spent on serving other
//!    requests counts as waiting, too: a stream of requests that were not expected does not put off a commit.
//! 3. Within one cohort a connection is expected twice at most: for a lease and then for its
//!    `complete`. A client that only reads, however fast, holds up no commit.
//! 4. A connection that was expected in vain is not expected again until it has been fast again.

use std::time::Duration;

/// A cohort waits no longer than this in all for expected connections where the waiting thread polls, which keeps a
/// processor busy meanwhile.
pub const LOOKING_MAX: Duration = Duration::from_micros(100);
/// The same where the thread can sleep, for a log whose sync takes at least twice as long: with a faster log, being
/// woken would take too long.
pub const PATIENCE_MAX: Duration = Duration::from_micros(500);
/// A connection that came back in time after this many answers in a row is expected after the next
/// one.
const STREAK_MIN: u8 = 2;
/// How many times a connection is expected within a cohort.
const EXPECTED_MAX: u8 = 2;

/// What to do when everything that came is served and everything that may leave has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Look for more, for this long at most, and ask again: without sleeping, unless the time is
    /// more than [`LOOKING_MAX`].
    Look(Duration),
    /// Commit.
    Commit,
    /// Sleep until something comes.
    Sleep,
}

/// What is known of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guest {
    /// The cohort it was answered in last.
    cohort: u64,
    /// When it was answered, on the cohort's clock; none while it waits for an answer.
    answered: Option<Duration>,
    /// Whether it is expected.
    is_expected: bool,
    /// How many times it was expected in that cohort.
    expected: u8,
    /// How many times in a row it came back in time.
    streak: u8,
}

/// The connections of one thread that share a commit.
#[derive(Debug)]
pub struct Cohort {
    patience_max: Duration,
    number: u64,
    /// How many connections are expected.
    expected: usize,
    /// The time in which nothing came, since the start: connections are timed by it.
    clock: Duration,
    /// How long this cohort has waited.
    waited: Duration,
    /// How long it may wait.
    patience: Duration,
    /// An expected connection has sent something since the cohort was last told how long requests
    /// were served.
    has_come: bool,
}

impl Default for Cohort {
    /// One that waits for [`LOOKING_MAX`] at most.
    fn default() -> Cohort {
        Cohort::new(LOOKING_MAX)
    }
}

impl Cohort {
    /// One that waits for so long at most: [`LOOKING_MAX`] or [`PATIENCE_MAX`].
    #[must_use]
    pub fn new(patience_max: Duration) -> Cohort {
        Cohort {
            patience_max,
            number: 0,
            expected: 0,
            clock: Duration::ZERO,
            waited: Duration::ZERO,
            patience: Duration::ZERO,
            has_come: false,
        }
    }

    /// A connection has sent something.
    pub fn asks(&mut self, guest: &mut Guest) {
        if let Some(answered) = guest.answered.take() {
            let in_time = self.clock.saturating_sub(answered) < self.patience;
            guest.streak = if in_time { (guest.streak + 1).min(STREAK_MIN) } else { 0 };
        }
        self.has_come |= self.expects(guest);
        self.leaves(guest);
    }

    /// A connection has been sent all it asked for.
    pub fn answered(&mut self, guest: &mut Guest) {
        self.leaves(guest);
        if guest.cohort != self.number {
            (guest.cohort, guest.expected) = (self.number, 0);
        }
        guest.answered = Some(self.clock);
        if guest.streak >= STREAK_MIN && guest.expected < EXPECTED_MAX {
            guest.expected += 1;
            guest.is_expected = true;
            self.expected += 1;
        }
    }

    /// A connection is not expected any more.
    pub fn leaves(&mut self, guest: &mut Guest) {
        if self.expects(guest) {
            self.expected -= 1;
        }
        guest.is_expected = false;
    }

    /// Those expected in an earlier cohort were given up with it.
    fn expects(&self, guest: &Guest) -> bool {
        guest.is_expected && guest.cohort == self.number
    }

    /// Requests were served for this long. No answer has been sent since.
    pub fn served(&mut self, time: Duration) {
        if !std::mem::take(&mut self.has_come) && self.expected > 0 {
            self.looked(time);
        }
    }

    /// The owner looked for more, and for this long nothing came.
    pub fn looked(&mut self, time: Duration) {
        self.clock += time;
        self.waited += time;
    }

    /// For this long nothing came, and the owner did not look.
    pub fn slept(&mut self, time: Duration) {
        self.clock += time;
    }

    /// What to do now. `has_work`: something was decided and is not on its way to the log.
    pub fn next(&mut self, has_work: bool, sync_time: Duration) -> Next {
        let half = sync_time / 2;
        self.patience =
            if half < self.patience_max { half.min(LOOKING_MAX) } else { self.patience_max };
        if self.expected > 0 && self.waited < self.patience {
            return Next::Look(self.patience - self.waited);
        }
        self.number += 1;
        self.expected = 0;
        self.waited = Duration::ZERO;
        if has_work { Next::Commit } else { Next::Sleep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const SYNC: Duration = us(160);
    const PATIENCE: Duration = us(80);

    /// A client that is expected: it came back at once after its last answers.
    fn fast(cohort: &mut Cohort) -> Guest {
        let mut guest = Guest::default();
        cohort.next(false, SYNC);
        for _ in 0..STREAK_MIN {
            cohort.answered(&mut guest);
            cohort.asks(&mut guest);
        }
        guest
    }

    fn looks(next: Next) -> bool {
        matches!(next, Next::Look(_))
    }

    #[test]
    fn a_cohort_waits_for_who_is_expected_up_to_its_patience_and_no_longer() {
        let mut cohort = Cohort::default();
        let mut guest = fast(&mut cohort);
        cohort.answered(&mut guest);
        assert_eq!(cohort.next(true, SYNC), Next::Look(PATIENCE));
        cohort.looked(PATIENCE - Duration::from_nanos(1));
        assert_eq!(cohort.next(true, SYNC), Next::Look(Duration::from_nanos(1)));
        cohort.looked(Duration::from_nanos(1));
        assert_eq!(cohort.next(true, SYNC), Next::Commit);
        // It was expected in vain: it is not expected again before it has been fast twice.
        for _ in 0..STREAK_MIN {
            cohort.asks(&mut guest);
            cohort.answered(&mut guest);
            assert_eq!(cohort.next(true, SYNC), Next::Commit);
        }
        cohort.asks(&mut guest);
        cohort.answered(&mut guest);
        assert!(looks(cohort.next(true, SYNC)));
    }

    #[test]
    fn the_patience_is_half_a_sync_and_never_over_its_maximum() {
        let looks_only = [(us(40), us(20)), (us(200), us(100)), (us(9000), LOOKING_MAX)];
        let sleeps = [(us(200), us(100)), (us(999), LOOKING_MAX), (us(1000), PATIENCE_MAX)];
        let looks_only = looks_only.map(|it| (LOOKING_MAX, it));
        let sleeps = sleeps.map(|it| (PATIENCE_MAX, it));
        for (patience_max, (sync, patience)) in looks_only.into_iter().chain(sleeps) {
            let mut cohort = Cohort::new(patience_max);
            let mut guest = fast(&mut cohort);
            cohort.answered(&mut guest);
            cohort.looked(patience - Duration::from_nanos(1));
            assert!(looks(cohort.next(true, sync)), "{sync:?}");
            cohort.looked(Duration::from_nanos(1));
            assert_eq!(cohort.next(true, sync), Next::Commit, "{sync:?}");
        }
    }

    #[test]
    fn who_came_or_left_is_not_waited_for() {
        let mut cohort = Cohort::default();
        let (mut one, mut other) = (fast(&mut cohort), fast(&mut cohort));
        for guest in [&mut one, &mut other] {
            cohort.answered(guest);
        }
        cohort.asks(&mut one);
        assert!(looks(cohort.next(true, SYNC)));
        cohort.leaves(&mut other);
        cohort.leaves(&mut other);
        assert_eq!(cohort.next(true, SYNC), Next::Commit);
    }

    #[test]
    fn within_a_cohort_nobody_is_expected_more_often_than_a_worker_needs() {
        let mut cohort = Cohort::default();
        let mut reader = fast(&mut cohort);
        cohort.next(false, SYNC);
        for _ in 0..EXPECTED_MAX {
            cohort.answered(&mut reader);
            assert!(looks(cohort.next(true, SYNC)));
            cohort.asks(&mut reader);
        }
        cohort.answered(&mut reader);
        assert_eq!(cohort.next(true, SYNC), Next::Commit);
    }

    /// A server with one thread, and clients that ask again some time after they were answered, in
    /// virtual time. How long things take is what was measured of a real one.
    struct Server {
        cohort: Cohort,
        now: Duration,
        clients: Vec<Client>,
        commits: u64,
        served: u64,
        looked: Duration,
        /// There is always a connection that has just been opened and asks something.
        strangers: bool,
        /// The longest that a request waited for its commit to begin.
        longest: Duration,
    }

    /// To serve one of them takes so long.
    const STRANGER: Duration = us(50);

    struct Client {
        guest: Guest,
        /// When its next request comes; none while it waits for the answer.
        asks: Option<Duration>,
        /// How long after an answer.
        pause: Duration,
        /// Whether its requests need the disk.
        submits: bool,
        served: u64,
    }

    impl Server {
        fn new(clients: impl IntoIterator<Item = (Duration, bool)>) -> Server {
            let client = |(pause, submits)| Client {
                guest: Guest::default(),
                asks: Some(Duration::ZERO),
                pause,
                submits,
                served: 0,
            };
            Server {
                cohort: Cohort::default(),
                now: Duration::ZERO,
                clients: clients.into_iter().map(client).collect(),
                commits: 0,
                served: 0,
                looked: Duration::ZERO,
                strangers: false,
                longest: Duration::ZERO,
            }
        }

        /// Serves what has come and answers what needs no disk. Returns whether something had come.
        fn turn(&mut self, batch: &mut Vec<(usize, Duration)>) -> bool {
            let begun = self.now;
            if self.strangers {
                let mut guest = Guest::default();
                self.cohort.asks(&mut guest);
                self.now += STRANGER;
                self.cohort.answered(&mut guest);
                self.cohort.leaves(&mut guest);
            }
            for number in 0..self.clients.len() {
                let client = &mut self.clients[number];
                let Some(asked) = client.asks.take_if(|at| *at <= begun) else { continue };
                self.cohort.asks(&mut client.guest);
                client.served += 1;
                self.now += us(4);
                if client.submits {
                    batch.push((number, asked));
                } else {
                    self.answer(number);
                }
            }
            self.cohort.served(self.now - begun);
            self.now > begun
        }

        fn answer(&mut self, number: usize) {
            self.now += us(3);
            let client = &mut self.clients[number];
            self.cohort.answered(&mut client.guest);
            client.asks = Some(self.now + client.pause);
        }

        fn run(&mut self, commits: u64, patient: bool) {
            let until = self.commits + commits;
            let mut batch = Vec::new();
            while self.commits < until {
                let came = self.turn(&mut batch);
                let next = self.cohort.next(!batch.is_empty(), if patient { SYNC } else { us(0) });
                match next {
                    Next::Commit => {
                        for (_, asked) in &batch {
                            self.longest = self.longest.max(self.now - *asked);
                        }
                        self.now += SYNC;
                        self.commits += 1;
                        self.served += batch.len() as u64;
                        batch.drain(..).for_each(|(number, _)| self.answer(number));
                    }
                    Next::Look(_) => {
                        self.now += us(1);
                        if !came {
                            self.cohort.looked(us(1));
                            self.looked += us(1);
                        }
                    }
                    Next::Sleep => {
                        let first = self.clients.iter().filter_map(|client| client.asks).min();
                        let time = first.expect("somebody asks").saturating_sub(self.now);
                        self.now += time;
                        self.cohort.slept(time);
                    }
                }
            }
        }
    }

    #[test]
    fn clients_that_ask_again_at_once_share_every_commit() {
        let clients = || (0..8).map(|number| (us(10 + number), true));
        let mut server = Server::new(clients());
        server.run(10, true);
        (server.served, server.commits) = (0, 0);
        server.run(1000, true);
        assert_eq!(server.served, 8 * server.commits);
        let mut hasty = Server::new(clients());
        hasty.run(1000, false);
        assert!(hasty.served < 6 * hasty.commits, "{} in {}", hasty.served, hasty.commits);
        assert!(
            server.now.as_nanos() / u128::from(server.served)
                < hasty.now.as_nanos() / u128::from(hasty.served)
        );
    }

    #[test]
    fn nobody_is_waited_for_who_takes_longer_than_patience_lasts() {
        let mut server = Server::new((0..8).map(|number| (us(1000 + 170 * number), true)));
        server.run(1000, true);
        assert_eq!(server.looked, Duration::ZERO);
        let mut mixed = Server::new((0..8).map(|number| (us(5 + 700 * (number % 2)), true)));
        mixed.run(10, true);
        mixed.looked = Duration::ZERO;
        mixed.run(1000, true);
        assert!(mixed.looked < us(10) * 1000, "{:?}", mixed.looked);
    }

    #[test]
    fn strangers_that_never_stop_coming_put_off_no_commit() {
        let mut server = Server::new((0..3).map(|number| (us(300 + 170 * number), true)));
        server.strangers = true;
        server.run(1000, true);
        let bearable = SYNC + PATIENCE + 3 * STRANGER;
        assert!(server.longest < bearable, "{:?}", server.longest);
    }

    #[test]
    fn a_reader_that_never_stops_holds_up_no_commit() {
        let mut server = Server::new([(us(0), false), (us(5), true)]);
        server.run(1000, true);
        let reads = server.clients[0].served;
        assert!(reads <= 4 * server.commits, "{reads} reads in {} commits", server.commits);
    }
}
