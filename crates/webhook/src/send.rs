//! Deliveries: one POST each, and what its answer means.

use std::time::{SystemTime, UNIX_EPOCH};

use ureq::{Agent, http::header, tls::TlsConfig};

use crate::{
    alert::Alert,
    hook::Hook,
    options::Options,
    sign::{SIGNATURE_HEADER, Secret},
};

/// What became of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// The receiver has it.
    Taken,
    /// The receiver will never take it.
    Refused(u16),
    /// To be tried again, for this reason.
    Again(String),
}

/// Sends to one receiver.
#[derive(Debug)]
pub struct AlertSender {
    agent: Agent,
    url: String,
    secret: Secret,
    server: String,
}

impl AlertSender {
    /// Sends what a hook reports; an answer comes within `answer_within` or counts as none.
    pub fn new(hook: &Hook, secret: Secret, options: &Options) -> AlertSender {
        let tls = TlsConfig::builder().root_certs(options.authorities.roots()).build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(options.answer_within))
            .tls_config(tls)
            .user_agent(concat!("spindle/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        AlertSender { agent, url: hook.url.clone(), secret, server: options.server.clone() }
    }

    /// A handle with which another thread ends a request under way.
    pub fn agent(&self) -> Agent {
        self.agent.clone()
    }

    /// Tries once.
    pub fn send(&self, alert: &Alert) -> Sent {
        let body = alert.body(&self.server);
        // The time of this try: a receiver may refuse what is too old.
        let signature = self.secret.sign(seconds_of(SystemTime::now()), &body);
        let request = self
            .agent
            .post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("Spindle-Event", alert.event)
            .header(SIGNATURE_HEADER, signature);
        match request.send(&body[..]) {
            Ok(response) => judged(response.status().as_u16()),
            Err(error) => Sent::Again(error.to_string()),
        }
    }
}

/// Seconds since 1970; less than none before.
fn seconds_of(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |since| -since),
    }
}

fn judged(status: u16) -> Sent {
    match status {
        200..300 => Sent::Taken,
        408 | 425 | 429 | 500.. => Sent::Again(format!("it answered with status {status}")),
        _ => Sent::Refused(status),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn any_clock_has_seconds() {
        for (seconds, expected) in [(0, 0), (1_767_323_045, 1_767_323_045), (1 << 40, 1 << 40)] {
            let since = Duration::from_secs(seconds);
            assert_eq!(seconds_of(UNIX_EPOCH + since), expected);
            assert_eq!(seconds_of(UNIX_EPOCH - since), -expected);
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        assert_eq!(judged(204), Sent::Taken);
        for status in [302, 400, 404, 410] {
            assert_eq!(judged(status), Sent::Refused(status));
        }
        for status in [408, 429, 500, 503] {
            assert!(matches!(judged(status), Sent::Again(_)), "{status}");
        }
    }
}
