//! The wall clock, as rustls asks for it. rustls' own clock panics before 1970, and a server is to run
//! with any time.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::Error;
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

/// What the system's clock says; before 1970 it is 1970, when no certificate was valid.
#[derive(Debug)]
pub(crate) struct WallClock(pub fn() -> SystemTime);

impl WallClock {
    fn has_begun(&self) -> bool {
        (self.0)() >= SystemTime::UNIX_EPOCH
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = (self.0)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(UnixTime::since_unix_epoch(since))
    }
}

/// rustls' tickets, whose keys change by its own clock. Before 1970 there are no tickets, and every
/// client makes a full handshake.
#[derive(Debug)]
pub(crate) struct Tickets {
    clock: WallClock,
    /// None if they were made while the clock said a time before 1970.
    tickets: Option<Arc<dyn ProducesTickets>>,
}

impl Tickets {
    pub(crate) fn new(clock: WallClock) -> Result<Tickets, Error> {
        let tickets = clock.has_begun().then(ring::Ticketer::new).transpose()?;
        Ok(Tickets { clock, tickets })
    }

    fn usable(&self) -> Option<&Arc<dyn ProducesTickets>> {
        self.tickets.as_ref().filter(|_| self.clock.has_begun())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.usable().is_some_and(|tickets| tickets.enabled())
    }

    fn lifetime(&self) -> u32 {
        self.usable().map_or(0, |tickets| tickets.lifetime())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.usable()?.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.usable()?.decrypt(cipher)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn long_ago() -> SystemTime {
        SystemTime::UNIX_EPOCH - Duration::from_nanos(1)
    }

    fn far_ahead() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_000)
    }

    #[test]
    fn no_clock_is_too_early_or_too_late() {
        let seconds = |now| WallClock(now).current_time().unwrap().as_secs();
        assert_eq!(seconds(long_ago), 0);
        assert_eq!(seconds(far_ahead), 300_000_000_000);
    }

    #[test]
    fn there_are_no_tickets_before_1970_and_some_after() {
        let none = Tickets::new(WallClock(long_ago)).unwrap();
        assert!(!none.enabled());
        assert_eq!((none.encrypt(b"x"), none.decrypt(b"x")), (None, None));
        let mut tickets = Tickets::new(WallClock(SystemTime::now)).unwrap();
        let ticket = tickets.encrypt(b"x").unwrap();
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"x"[..]));
        // The clock goes back behind a server that runs.
        tickets.clock = WallClock(long_ago);
        assert_eq!((tickets.encrypt(b"x"), tickets.decrypt(&ticket)), (None, None));
    }
}
