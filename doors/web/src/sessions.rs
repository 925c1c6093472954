//! Who has logged in: a bounded number of sessions, in memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use spindle_access::Login;

/// The most sessions kept; beyond that the oldest ends. Each was opened with a known token.
const SESSIONS_MAX: usize = 4_096;
/// The longest text that is looked up: names have 64 letters.
const NAME_BYTES_MAX: usize = 128;

/// A session's name, as its cookie has it. It is a secret: its holder is logged in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionName(String);

impl SessionName {
    /// The name that a cookie gives, if it can be one.
    pub fn read(text: &str) -> Option<SessionName> {
        let is_sane = text.len() <= NAME_BYTES_MAX && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_sane.then(|| SessionName(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Names are looked up by their digest, so the time this takes reveals nothing about a name.
    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// All sessions.
pub(crate) struct Sessions {
    time: Duration,
    open: Mutex<HashMap<[u8; 32], Session>>,
}

struct Session {
    began: Instant,
    login: Login,
}

impl Sessions {
    /// None yet. Each ends `time` after it began.
    pub fn new(time: Duration) -> Sessions {
        Sessions { time, open: Mutex::default() }
    }

    /// How long a session lasts.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Begins a session for a visitor who has presented a token.
    pub fn begin(&self, login: Login, now: Instant) -> SessionName {
        let name = SessionName(random_hex::<32>());
        let mut open = self.open.lock();
        if open.len() >= SESSIONS_MAX {
            open.retain(|_, session| now.duration_since(session.began) < self.time);
        }
        if open.len() >= SESSIONS_MAX {
            let oldest = open.iter().min_by_key(|(_, session)| session.began);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                open.remove(&oldest);
            }
        }
        open.insert(name.digest(), Session { began: now, login });
        name
    }

    /// The login of this session. The login itself checks in the tokens file whether its token is
    /// still valid.
    pub fn find(&self, name: &SessionName, now: Instant) -> Option<Login> {
        let mut open = self.open.lock();
        let digest = name.digest();
        let session = open.get(&digest)?;
        if now.duration_since(session.began) >= self.time {
            open.remove(&digest);
            return None;
        }
        Some(session.login.clone())
    }

    /// Ends a session, if it is there.
    pub fn end(&self, name: &SessionName) {
        self.open.lock().remove(&name.digest());
    }
}

/// Random bytes in hexadecimal.
pub(crate) fn random_hex<const N: usize>() -> String {
    rand::random::<[u8; N]>().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use spindle_access::Access;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_session_is_found_by_its_name_until_it_ends() {
        let sessions = Sessions::new(HOUR);
        let now = Instant::now();
        let name = sessions.begin(Access::open().login(None), now);
        assert_eq!(name.as_str().len(), 64);
        assert_ne!(name.as_str(), sessions.begin(Access::open().login(None), now).as_str());
        assert!(sessions.find(&name, now + HOUR - Duration::from_millis(1)).is_some());
        assert!(sessions.find(&SessionName(random_hex::<32>()), now).is_none());
        assert!(sessions.find(&name, now + HOUR).is_none());
        // The session is removed, not only ignored.
        assert!(sessions.find(&name, now).is_none());
        let name = sessions.begin(Access::open().login(None), now);
        sessions.end(&name);
        assert!(sessions.find(&name, now).is_none());
    }

    #[test]
    fn of_too_many_sessions_those_that_are_over_go_and_then_the_oldest() {
        let sessions = Sessions::new(HOUR);
        let begin = Instant::now();
        let at = |number: usize| begin + Duration::from_secs(number as u64);
        let open = |number: usize| sessions.begin(Access::open().login(None), at(number));
        let first = open(0);
        let second = open(1);
        (2..SESSIONS_MAX).for_each(|number| drop(open(number)));
        assert!(sessions.find(&first, at(SESSIONS_MAX)).is_none(), "4,096 s are over an hour");
        let sessions = Sessions::new(HOUR * 24);
        let open = |number: usize| sessions.begin(Access::open().login(None), at(number));
        let (first, kept) = (open(0), open(1));
        (2..SESSIONS_MAX).for_each(|number| drop(open(number)));
        assert!(sessions.find(&first, at(SESSIONS_MAX)).is_some());
        open(SESSIONS_MAX);
        assert!(sessions.find(&first, at(SESSIONS_MAX)).is_none());
        assert!(sessions.find(&kept, at(SESSIONS_MAX)).is_some());
        assert!(sessions.find(&second, at(SESSIONS_MAX)).is_none());
    }

    #[test]
    fn only_hexadecimal_is_a_name() {
        assert!(SessionName::read(&"a".repeat(128)).is_some());
        for text in ["a".repeat(129), "g".to_owned(), "a b".to_owned()] {
            assert!(SessionName::read(&text).is_none(), "{text}");
        }
    }
}
