//! Values of settings, as they are written on the command line, in the environment and in the file.

use std::time::Duration;

use spindle_log::SyncPolicy;
use spindle_tls::{NoTlsMode, TlsMode};
use tracing_subscriber::filter::LevelFilter;

use crate::quantity::{parse_duration, parse_size};

pub fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "write a whole number from 1".to_owned())
}

/// A budget; `auto` is none, which is as much as the memory suggests.
pub fn parse_budget(text: &str) -> Result<Option<u64>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let hint = || "use 1MiB or more, or auto".to_owned();
    Some(bytes).filter(|bytes| *bytes >= BUDGET_BYTES_MIN).map(Some).ok_or_else(hint)
}

/// Requests a second; `off` is any number.
pub fn parse_rate(text: &str) -> Result<Option<u32>, String> {
    if text == "off" {
        return Ok(None);
    }
    let rate = text.parse().ok().filter(|rate| (1..=RATE_MAX).contains(rate));
    rate.map(Some).ok_or_else(|| format!("write a whole number from 1 to {RATE_MAX}, or off"))
}

/// A time without a word; `off` is for ever.
pub fn parse_idle(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if time < IDLE_MIN { Err("use 1s or more, or off".to_owned()) } else { Ok(Some(time)) }
}

pub fn parse_tls_mode(text: &str) -> Result<TlsMode, String> {
    text.parse().map_err(|error: NoTlsMode| error.to_string())
}

pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

pub fn parse_sync(text: &str) -> Result<SyncPolicy, String> {
    let interval = |ms: &str| {
        let ms = ms.parse().ok().filter(|ms| (1..=INTERVAL_MS_MAX).contains(ms));
        ms.map(|ms| SyncPolicy::Interval(Duration::from_millis(ms)))
            .ok_or_else(|| format!("the interval is 1 to {INTERVAL_MS_MAX} milliseconds"))
    };
    match text {
        "always" => Ok(SyncPolicy::Always),
        "os" => Ok(SyncPolicy::Os),
        _ => match text.strip_prefix("interval:") {
            Some(ms) => interval(ms),
            None => Err("use always, interval:MS or os".to_owned()),
        },
    }
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub LevelFilter);

impl Default for LogLevel {
    fn default() -> Self {
        Self(LevelFilter::INFO)
    }
}

pub fn parse_level(text: &str) -> Result<LogLevel, String> {
    let names = ["off", "error", "warn", "info", "debug", "trace"];
    let level = text.parse().ok().filter(|_| names.contains(&text));
    level.map(LogLevel).ok_or_else(|| "use off, error, warn, info, debug or trace".to_owned())
}

/// The address of a collector: a URL without a name and password, which logs would show.
pub fn parse_collector(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_address = text.parse::<spindle_client::http::Uri>().is_ok();
    let is_plain = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#']));
    if is_address && is_plain {
        return Ok(text.to_owned());
    }
    Err("write http://HOST:PORT or https://HOST; credentials are for OTEL_EXPORTER_OTLP_HEADERS"
        .to_owned())
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

pub fn parse_log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("use text or json".to_owned()),
    }
}

/// Less would close clients that send one job of the usual size.
const BUDGET_BYTES_MIN: u64 = 1 << 20;

/// More is no limit.
const RATE_MAX: u32 = 1_000_000;
/// Less would end connections between two requests.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// An hour. For syncs less often than that there is `os`.
const INTERVAL_MS_MAX: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_have_a_least_size_or_follow_the_memory() {
        assert_eq!(parse_budget("auto"), Ok(None));
        assert_eq!(parse_budget("1MiB"), Ok(Some(1 << 20)));
        for text in ["", "0", "1048575", "much", "AUTO"] {
            assert!(parse_budget(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_and_idle_times_have_an_off_and_bounds() {
        assert_eq!(parse_rate("off"), Ok(None));
        assert_eq!((parse_rate("1"), parse_rate("1000000")), (Ok(Some(1)), Ok(Some(1_000_000))));
        for text in ["", "0", "-1", "1.5", "1000001", "many", "OFF"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_idle("off"), Ok(None));
        assert_eq!(parse_idle("1s"), Ok(Some(Duration::from_secs(1))));
        for text in ["", "0s", "999ms", "60", "never"] {
            assert!(parse_idle(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_collector_is_a_url_without_secrets() {
        for text in ["http://127.0.0.1:4318", "https://collector", "http://[::1]:4318/otlp"] {
            assert_eq!(parse_collector(text).as_deref(), Ok(text));
        }
        for text in ["", "collector:4318", "grpc://c", "http://", "http://me:pw@c", "http://c/?a=b"]
        {
            assert!(parse_collector(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sync_takes_its_three_forms_only() {
        assert_eq!(parse_sync("always"), Ok(SyncPolicy::Always));
        assert_eq!(parse_sync("os"), Ok(SyncPolicy::Os));
        let one = SyncPolicy::Interval(Duration::from_millis(1));
        assert_eq!(parse_sync("interval:1"), Ok(one));
        assert!(parse_sync("interval:3600000").is_ok());
        for text in ["", "never", "interval", "interval:", "interval:0", "interval:3600001"] {
            assert!(parse_sync(text).is_err(), "{text}");
        }
    }
}
