//! How many requests a second a token and an address may make.
//!
//! Each has a bucket that holds the requests of one second and fills evenly. It is kept as one number:
//! the time at which it is full again (the "generic cell rate algorithm").

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::client::client_at;

/// Whose requests are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// The token's.
    Token,
    /// The address's.
    Address,
}

impl Of {
    /// Both there are.
    pub const ALL: [Of; 2] = [Of::Token, Of::Address];

    /// As it stands in texts and in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Of::Token => "token",
            Of::Address => "address",
        }
    }
}

/// A request comes too early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excess {
    /// Whose limit is reached.
    pub of: Of,
    /// The limit, in requests a second.
    pub per_second: u32,
    /// After this time there is room for one.
    pub wait: Duration,
}

/// The rates of a server. Shared by its doors.
pub struct RequestRates {
    /// The time since some moment, which never goes back.
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    state: Mutex<State>,
}

impl fmt::Debug for RequestRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRates").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    tokens: Option<Rates<Arc<str>>>,
    addresses: Option<Rates<IpAddr>>,
    /// Requests that were refused or held up, by whose limit it was.
    exceeded: [u64; Of::ALL.len()],
}

/// Who makes a request.
#[derive(Clone, Copy, Debug)]
struct Asker<'a> {
    token: Option<&'a Arc<str>>,
    client: Option<IpAddr>,
}

impl RequestRates {
    /// Requests a second of each token and each address; `None` is any number. None if neither is
    /// limited: nothing is counted then.
    pub fn new(token: Option<u32>, address: Option<u32>) -> Option<RequestRates> {
        let began = Instant::now();
        RequestRates::with_clock(token, address, move || began.elapsed())
    }

    /// The same with another clock: the time since some moment, which never goes back.
    pub fn with_clock(
        token: Option<u32>,
        address: Option<u32>,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Option<RequestRates> {
        if token.is_none() && address.is_none() {
            return None;
        }
        let (tokens, addresses) = (token.map(Rates::new), address.map(Rates::new));
        let state = Mutex::new(State { tokens, addresses, exceeded: Default::default() });
        Some(RequestRates { clock: Box::new(clock), state })
    }

    /// Counts a request, if it is in time. For protocols whose clients understand a refusal.
    ///
    /// # Errors
    /// It is too early, and was not counted.
    pub fn count(&self, token: Option<&Arc<str>>, address: IpAddr) -> Result<(), Excess> {
        let from = Asker { token, client: client_at(address) };
        self.state.lock().count((self.clock)(), from)
    }

    /// Counts a request, and says how long it is to be held before it is done: no time, if it is not
    /// too early. For protocols whose clients understand waiting better.
    pub fn delay(&self, token: Option<&Arc<str>>, address: IpAddr) -> Duration {
        let from = Asker { token, client: client_at(address) };
        self.state.lock().delay((self.clock)(), from)
    }

    /// How many requests were refused or held up since the start.
    pub fn exceeded(&self, of: Of) -> u64 {
        self.state.lock().exceeded[of as usize]
    }
}

impl State {
    fn count(&mut self, now: Duration, from: Asker<'_>) -> Result<(), Excess> {
        if let Some(excess) = self.excess(now, from) {
            return Err(excess);
        }
        self.add(now, from);
        Ok(())
    }

    fn delay(&mut self, now: Duration, from: Asker<'_>) -> Duration {
        let excess = self.excess(now, from);
        // A client that has to wait takes its place in line now, so that all continue in turn.
        self.add(now, from);
        excess.map_or(Duration::ZERO, |excess| excess.wait.min(DELAY_MAX))
    }

    /// The exceeded limit that makes the request wait longest; the excess is counted.
    fn excess(&mut self, now: Duration, from: Asker<'_>) -> Option<Excess> {
        let of_token = self.tokens.as_ref().zip(from.token);
        let of_token = of_token.and_then(|(rates, token)| rates.excess(Of::Token, now, token));
        let of_address = self.addresses.as_ref().zip(from.client);
        let of_address =
            of_address.and_then(|(rates, client)| rates.excess(Of::Address, now, &client));
        let worst = of_token.into_iter().chain(of_address).max_by_key(|excess| excess.wait)?;
        self.exceeded[worst.of as usize] += 1;
        Some(worst)
    }

    fn add(&mut self, now: Duration, from: Asker<'_>) {
        if let Some((rates, token)) = self.tokens.as_mut().zip(from.token) {
            rates.add(now, token);
        }
        if let Some((rates, client)) = self.addresses.as_mut().zip(from.client) {
            rates.add(now, &client);
        }
    }
}

/// The buckets of all tokens, or of all addresses.
#[derive(Debug)]
struct Rates<K> {
    per_second: u32,
    /// When each is full again, in [`Rates::parts`]. Keys that are not in it have a full bucket.
    full_at: HashMap<K, u128>,
    /// Keys for which `full_at` has no room share one bucket.
    others_full_at: u128,
    swept_at: Duration,
}

impl<K: Clone + Eq + Hash> Rates<K> {
    fn new(per_second: u32) -> Rates<K> {
        let swept_at = Duration::ZERO;
        let per_second = per_second.max(1);
        Rates { per_second, full_at: HashMap::new(), others_full_at: 0, swept_at }
    }

    /// A time in parts, of which every request takes [`REQUEST`]: nothing is rounded.
    fn parts(&self, time: Duration) -> u128 {
        time.as_nanos() * u128::from(self.per_second)
    }

    /// Whether a request comes too early.
    fn excess(&self, of: Of, now: Duration, key: &K) -> Option<Excess> {
        let now_parts = self.parts(now);
        let of_new = if self.is_crowded() { self.others_full_at } else { 0 };
        let full_at = self.full_at.get(key).copied().unwrap_or(of_new);
        let after = full_at.max(now_parts) + REQUEST;
        let early = after.saturating_sub(now_parts + self.parts(Duration::from_secs(1)));
        let ns = early.div_ceil(u128::from(self.per_second));
        let wait = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        (ns > 0).then_some(Excess { of, per_second: self.per_second, wait })
    }

    /// Takes a request out of the bucket, however empty it is.
    fn add(&mut self, now: Duration, key: &K) {
        let now_parts = self.parts(now);
        let most = now_parts + self.parts(Duration::from_secs(1) + DELAY_MAX);
        let is_there = self.full_at.contains_key(key);
        if !is_there && self.is_crowded() {
            self.sweep(now, now_parts);
        }
        let full_at = if is_there || !self.is_crowded() {
            self.full_at.entry(key.clone()).or_insert(0)
        } else {
            &mut self.others_full_at
        };
        *full_at = ((*full_at).max(now_parts) + REQUEST).min(most);
    }

    fn is_crowded(&self) -> bool {
        self.full_at.len() >= BUCKETS_MAX
    }

    /// Forgets full buckets, at most once a second, because looking at all of them takes time.
    fn sweep(&mut self, now: Duration, now_parts: u128) {
        if now < self.swept_at + Duration::from_secs(1) {
            return;
        }
        self.swept_at = now;
        self.full_at.retain(|_, full_at| *full_at > now_parts);
        self.full_at.shrink_to(BUCKETS_MAX / 8);
    }
}

/// What a request takes out of a bucket: a second of one that fills once a second.
const REQUEST: u128 = 1_000_000_000;
/// No request is held for longer; requests counted beyond that are forgotten.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The most tokens or addresses with buckets of their own at a time: about 6 MiB.
const BUCKETS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn per_address(per_second: u32) -> RequestRates {
        RequestRates::new(None, Some(per_second)).unwrap()
    }

    impl RequestRates {
        fn count_at(
            &self,
            now: Duration,
            token: Option<&Arc<str>>,
            address: IpAddr,
        ) -> Result<(), Excess> {
            self.state.lock().count(now, Asker { token, client: client_at(address) })
        }

        fn delay_at(&self, now: Duration, address: IpAddr) -> Duration {
            self.state.lock().delay(now, Asker { token: None, client: client_at(address) })
        }
    }

    #[test]
    fn a_second_has_its_requests_and_not_one_more() {
        for per_second in [1, 3, 7, 1000, 999_999] {
            let rates = per_address(per_second);
            let begin = ms(5);
            let ask = |now| rates.count_at(now, None, ip("192.0.2.1"));
            for request in 0..per_second {
                assert_eq!(ask(begin), Ok(()), "{request} of {per_second}");
            }
            let excess = ask(begin).unwrap_err();
            assert_eq!((excess.of, excess.per_second), (Of::Address, per_second));
            let one = Duration::from_nanos(1_000_000_000_u64.div_ceil(per_second.into()));
            assert_eq!(excess.wait, one, "{per_second}");
            assert!(ask(begin + one - Duration::from_nanos(1)).is_err());
            assert_eq!(ask(begin + one), Ok(()));
            assert!(ask(begin + one).is_err());
            assert_eq!(rates.exceeded(Of::Address), 3);
        }
    }

    #[test]
    fn what_was_not_used_is_not_saved_beyond_a_second() {
        let rates = per_address(2);
        let later = ms(3_600_000);
        let asked = [(); 3].map(|()| rates.count_at(later, None, ip("192.0.2.1")).is_ok());
        assert_eq!(asked, [true, true, false]);
    }

    #[test]
    fn a_token_counts_over_its_addresses_and_an_address_over_its_tokens() {
        let rates = RequestRates::new(Some(2), Some(3)).unwrap();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let ask = |token: Option<&Arc<str>>, address| {
            rates.count_at(ms(0), token, ip(address)).map_err(|excess| excess.of)
        };
        assert_eq!(ask(Some(&a), "192.0.2.1"), Ok(()));
        assert_eq!(ask(Some(&a), "192.0.2.2"), Ok(()));
        assert_eq!(ask(Some(&a), "192.0.2.3"), Err(Of::Token));
        assert_eq!(ask(Some(&b), "192.0.2.1"), Ok(()));
        assert_eq!(ask(None, "::ffff:192.0.2.1"), Ok(()));
        assert_eq!(ask(Some(&b), "192.0.2.1"), Err(Of::Address));
        // The refused requests took nothing.
        assert_eq!(ask(Some(&b), "192.0.2.9"), Ok(()));
        // Local clients are limited by their tokens only.
        for _ in 0..9 {
            assert_eq!(ask(None, "127.0.0.1"), Ok(()));
        }
        assert_eq!(ask(Some(&b), "::1"), Err(Of::Token));
    }

    #[test]
    fn those_who_are_held_go_on_in_turn() {
        let rates = per_address(10);
        let delay = |now| rates.delay_at(ms(now), ip("192.0.2.1"));
        for _ in 0..10 {
            assert_eq!(delay(0), Duration::ZERO);
        }
        assert_eq!([delay(0), delay(0), delay(50)], [ms(100), ms(200), ms(250)]);
        // A request that comes when all others have had their turn does not wait.
        assert_eq!(delay(1300), Duration::ZERO);
    }

    #[test]
    fn nobody_is_held_for_longer_than_the_longest_delay() {
        let rates = per_address(1);
        for _ in 0..50 {
            rates.delay_at(ms(0), ip("192.0.2.1"));
        }
        assert_eq!(rates.delay_at(ms(0), ip("192.0.2.1")), DELAY_MAX);
        // After that it is as if there had been no requests.
        let later = DELAY_MAX + ms(1000);
        assert_eq!(rates.delay_at(later, ip("192.0.2.1")), Duration::ZERO);
    }

    #[test]
    fn addresses_without_number_take_bounded_memory_and_share_what_is_left() {
        let rates = per_address(1);
        let address = |n: u32| IpAddr::from((0x0b00_0000 + n).to_be_bytes());
        let count = u32::try_from(BUCKETS_MAX).unwrap();
        for n in 0..count {
            assert_eq!(rates.count_at(ms(2000), None, address(n)), Ok(()));
        }
        let kept = || rates.state.lock().addresses.as_ref().unwrap().full_at.len();
        assert_eq!(kept(), BUCKETS_MAX);
        // One more has a share, and the next one has none left of it.
        assert_eq!(rates.count_at(ms(2000), None, address(count)), Ok(()));
        assert!(rates.count_at(ms(2000), None, address(count + 1)).is_err());
        assert!(rates.count_at(ms(2000), None, address(7)).is_err());
        assert_eq!(kept(), BUCKETS_MAX);
        // When theirs are full again, they are forgotten.
        assert_eq!(rates.count_at(ms(3001), None, address(count + 1)), Ok(()));
        assert_eq!(kept(), 1);
    }

    #[test]
    fn nothing_is_counted_when_nothing_is_limited() {
        assert!(RequestRates::new(None, None).is_none());
    }
}
