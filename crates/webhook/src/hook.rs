//! A hook as one line of text: an address and words, separated by blanks.

use std::{
    fmt::{self, Write},
    str::FromStr,
    time::Duration,
};

use sha2::{Digest, Sha256};
use spindle_core::glob;
use ureq::http::Uri;

/// Where to report what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// All of it as it was written, with one blank between the words.
    pub text: String,
    /// Where requests go.
    pub url: String,
    /// Whether to report dead jobs.
    pub dead: bool,
    /// Report a queue whose next job waits longer than this.
    pub older: Option<Duration>,
    /// Report a queue that has had ready jobs, and no worker to take them, for this long.
    pub no_worker: Option<Duration>,
    /// Patterns of the queues it is about; none is all.
    pub queues: Vec<String>,
}

/// Why a text is no hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// There is nothing.
    #[error("write a URL, then what to report: `http://127.0.0.1:9000/hook dead older=10m`")]
    Empty,
    /// The address is not valid.
    #[error(
        "`{0}` is no URL that can be called: write http://HOST:PORT/PATH or https://HOST/PATH, \
         without a password"
    )]
    BadUrl(String),
    /// A word is not known.
    #[error("`{0}` is none of dead, older=TIME, no-worker=TIME, queue=PATTERN")]
    UnknownWord(String),
    /// A time is not valid.
    #[error("`{0}`: write a time such as 90s, 10m or 2h, at least 1s")]
    BadTime(String),
}

impl Hook {
    /// The name under which the log remembers this hook's place in the feed. A hook with another text is
    /// another consumer. The name does not contain the text, which may have secrets in it.
    #[must_use]
    pub fn consumer(&self) -> String {
        let mut name = "webhook-".to_owned();
        for byte in Sha256::digest(self.text.as_bytes()).iter().take(8) {
            // Writing into a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

impl FromStr for Hook {
    type Err = HookError;

    fn from_str(text: &str) -> Result<Hook, HookError> {
        let mut words = text.split_whitespace();
        let url = checked_url(words.next().ok_or(HookError::Empty)?)?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (dead, older, no_worker) = (false, None, None);
        let mut hook = Hook { text, url, dead, older, no_worker, queues: Vec::new() };
        for word in words {
            match word.split_once('=') {
                None if word == "dead" => hook.dead = true,
                Some(("older", time)) => hook.older = Some(parse_time(word, time)?),
                Some(("no-worker", time)) => hook.no_worker = Some(parse_time(word, time)?),
                Some(("queue", pattern)) if !pattern.is_empty() => {
                    hook.queues.push(pattern.to_owned());
                }
                _ => return Err(HookError::UnknownWord(word.to_owned())),
            }
        }
        if !hook.dead && hook.older.is_none() && hook.no_worker.is_none() {
            hook.dead = true;
        }
        Ok(hook)
    }
}

fn checked_url(text: &str) -> Result<String, HookError> {
    let bad = || HookError::BadUrl(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| bad())?;
    let authority = uri.authority().ok_or_else(bad)?;
    let is_spoken = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_spoken || authority.as_str().contains('@') {
        return Err(bad());
    }
    Ok(text.to_owned())
}

fn parse_time(word: &str, text: &str) -> Result<Duration, HookError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    let count: u64 = count.parse().unwrap_or(0);
    match count.checked_mul(seconds) {
        None | Some(0) => Err(HookError::BadTime(word.to_owned())),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

impl Hook {
    /// Whether the hook is about this queue.
    pub fn is_about(&self, queue: &[u8]) -> bool {
        let fits = |pattern: &String| glob::fits(pattern.as_bytes(), queue);
        self.queues.is_empty() || self.queues.iter().any(fits)
    }

    /// Whether queues have to be looked at.
    pub fn watches_queues(&self) -> bool {
        self.older.is_some() || self.no_worker.is_some()
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What stands behind a question mark may be a password.
        f.write_str(self.url.split('?').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_an_address_and_what_to_tell() {
        let hook: Hook =
            "http://127.0.0.1:9000/x?k=1 dead older=10m queue=mail* queue=sms".parse().unwrap();
        assert_eq!(hook.url, "http://127.0.0.1:9000/x?k=1");
        assert_eq!(hook.to_string(), "http://127.0.0.1:9000/x");
        assert_eq!((hook.dead, hook.older), (true, Some(Duration::from_secs(600))));
        assert!(hook.is_about(b"mailing") && hook.is_about(b"sms") && !hook.is_about(b"x"));
        let php: Hook = r"http://localhost/ queue=App\\Mail queue=caf?".parse().unwrap();
        assert!(php.is_about(br"App\Mail") && php.is_about("café".as_bytes()));
        let plain: Hook = "http://localhost/".parse().unwrap();
        assert!(plain.dead && plain.is_about(b"anything") && !plain.watches_queues());
        let encrypted: Hook = "https://hooks.example/x dead".parse().unwrap();
        assert_eq!(encrypted.url, "https://hooks.example/x");
        let idle: Hook = "http://localhost no-worker=90s".parse().unwrap();
        assert_eq!((idle.dead, idle.no_worker), (false, Some(Duration::from_secs(90))));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            "",
            "localhost:9000",
            "/x",
            "ftp://x/",
            "https:///x",
            "http://u:p@x/",
            "https://u:p@x/",
            "http://x/ old",
            "http://x/ older",
            "http://x/ older=",
            "http://x/ older=0s",
            "http://x/ older=10",
            "http://x/ no-worker=1w",
            "http://x/ older=99999999999999999999s",
            "http://x/ queue=",
        ] {
            assert!(text.parse::<Hook>().is_err(), "{text}");
        }
    }
}
