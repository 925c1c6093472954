//! How hooks are served.

use std::time::Duration;

use crate::authorities::Authorities;

/// How hooks are served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's name, sent with each alert.
    pub server: String,
    /// The authorities that may vouch for receivers over TLS.
    pub authorities: Authorities,
    /// How often the feed is asked for something new.
    pub poll_every: Duration,
    /// How often queues are looked at.
    pub look_every: Duration,
    /// How long a receiver may take.
    pub answer_within: Duration,
    /// The first pause after a delivery that failed; it doubles.
    pub pause_first: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            server: "localhost".to_owned(),
            authorities: Authorities::default(),
            poll_every: Duration::from_millis(500),
            look_every: Duration::from_secs(5),
            answer_within: Duration::from_secs(10),
            pause_first: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
        }
    }
}
