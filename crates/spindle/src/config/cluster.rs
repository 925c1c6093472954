//! Settings of a node that shares its log with others.

use super::doors::CLUSTER;
use super::error::ConfigError;
use super::resolve::{InForce, Source};
use super::table::Config;

/// What a shared log must do before it acknowledges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogSync {
    /// Its server syncs its disks.
    #[default]
    Always,
    /// It may leave that to the operating system.
    Os,
}

pub fn parse_log_sync(text: &str) -> Result<LogSync, String> {
    match text {
        "always" => Ok(LogSync::Always),
        "os" => Ok(LogSync::Os),
        _ => Err("use always or os".to_owned()),
    }
}

/// The address of a shared log.
pub(super) fn parse_log_url(text: &str) -> Result<String, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(SCHEMES.to_owned());
    };
    if !matches!(scheme, "nats" | "tls" | "postgres" | "postgresql") || rest.is_empty() {
        return Err(SCHEMES.to_owned());
    }
    Ok(text.to_owned())
}

/// Why a command does not take this address of a shared log, if it does not. Nothing of it is repeated.
pub fn refuse_log_url(url: &str) -> Result<(), String> {
    if has_secret(url) {
        return Err(ConfigError::PasswordInUrl.to_string());
    }
    parse_log_url(url).map(drop).map_err(|reason| format!("--log: {reason}"))
}

/// Whether a URL has a password or a token in it, which would be shown by `ps` and in logs.
fn has_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let is_secret = |piece: &str| piece.contains("password=") || piece.starts_with("token=");
    user.is_some_and(|user| user.contains(':')) || rest.split(['?', '&']).any(is_secret)
}

/// What is said of another scheme.
const SCHEMES: &str =
    "use nats://HOST:PORT/STREAM, tls://HOST:PORT/STREAM or postgres://USER@HOST/DATABASE";

pub(super) fn parse_advertise(text: &str) -> Result<String, String> {
    let is_sound = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && text.len() <= 300 && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    is_sound.then(|| text.to_owned()).ok_or("write HOST:PORT as other nodes reach it".to_owned())
}

/// The most shards: each costs every node a copy of its jobs, threads, and connections to its log.
const SHARDS_MAX: u8 = 64;

pub(super) fn parse_shards(text: &str) -> Result<u8, String> {
    let count = text.parse().ok().filter(|count| (1..=SHARDS_MAX).contains(count));
    count.ok_or_else(|| format!("use a number from 1 to {SHARDS_MAX}"))
}

/// Settings that only a node of a cluster has.
const OF_CLUSTERS: [&str; 8] = [
    "log-password-file",
    "log-ca-file",
    "log-sync",
    "node",
    "cluster-listen",
    "cluster-ca-file",
    "advertise",
    "shards",
];
/// Settings for a log of the server's own.
const OF_OWN_LOGS: [&str; 3] = ["memory", "sync", "segment-size"];

/// Settings that contradict each other.
pub(super) fn check(config: &Config, settings: &[InForce]) -> Result<(), ConfigError> {
    let is_given = |name: &str| {
        let found = settings.iter().find(|found| found.setting.name == name);
        found.is_some_and(|found| found.source != Source::Default)
    };
    let Some(url) = &config.log else {
        let given = OF_CLUSTERS.into_iter().find(|name| is_given(name));
        return given.map_or(Ok(()), |given| Err(ConfigError::NeedsLog { given }));
    };
    if has_secret(url) {
        return Err(ConfigError::PasswordInUrl);
    }
    if let Some(given) = OF_OWN_LOGS.into_iter().find(|name| is_given(name)) {
        return Err(ConfigError::OwnLog { given });
    }
    if let Some(address) = config.cluster_in_clear()
        && !config.is_insecure(CLUSTER)
    {
        return Err(ConfigError::NodesInClear { address });
    }
    if config.shards > 1 && config.cluster_listen.is_none() {
        return Err(ConfigError::ShardsApart);
    }
    match (config.cluster_listen, &config.advertise) {
        (None, Some(_)) => Err(ConfigError::AdvertisesNothing),
        (Some(address), None) if address.ip().is_unspecified() => {
            Err(ConfigError::AdvertisesAll { address })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_log_has_a_scheme_that_is_known_and_no_password() {
        for text in ["nats://h:4222/jobs", "tls://h/jobs", "postgres://u@h/db?sslmode=require"] {
            assert_eq!(parse_log_url(text).as_deref(), Ok(text));
        }
        for text in ["", "h:1", "redis://h", "nats://"] {
            assert!(parse_log_url(text).is_err(), "{text}");
        }
        for text in ["nats://u:p@h/s", "nats://h/s?token=x", "postgres://h/db?password=x"] {
            assert!(has_secret(text), "{text}");
        }
        assert!(!has_secret("postgres://u@h:5432/db"));
    }

    #[test]
    fn there_are_one_to_sixty_four_shards() {
        assert_eq!(
            ["1", "4", "64"].map(|text| parse_shards(text).ok()),
            [Some(1), Some(4), Some(64)]
        );
        for text in ["0", "65", "256", "-1", "", "four"] {
            assert!(parse_shards(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_advertised_is_a_host_and_a_port() {
        for text in ["node-1:9931", "10.0.0.1:1", "[::1]:9931"] {
            assert!(parse_advertise(text).is_ok(), "{text}");
        }
        for text in ["", "node", ":1", "node:0", "node:x"] {
            assert!(parse_advertise(text).is_err(), "{text}");
        }
    }
}
