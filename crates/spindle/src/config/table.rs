//! The one table of settings.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use spindle_http::HostNames;
use spindle_log::SyncPolicy;
use spindle_webhook::{Hook, HookError};

use super::address::{Loopback, loopback, parse_listen};
use super::parse::{LogLevel, parse_count, parse_level, parse_switch, parse_sync, parse_tls_mode};
use super::tls_mode::TlsMode;
use crate::quantity::{parse_duration, parse_size};

/// The server's configuration. The `Default` one is blank: the defaults of [`TABLE`] go into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The file that was read, if one was.
    pub file: Option<PathBuf>,
    /// The folder of the log.
    pub data: PathBuf,
    /// Keep the log in memory instead.
    pub memory: bool,
    /// When the log is synced.
    pub sync: SyncPolicy,
    /// How long one file of the log is.
    pub segment_bytes: u64,
    /// How long a server may have been away before its clock is doubted.
    pub away_max: Duration,
    /// Payloads and results kept in memory.
    pub payload_memory_bytes: u64,
    /// Finished jobs kept; the oldest go first.
    pub finished_max: usize,
    /// What finished jobs may take on disk; the oldest go first.
    pub finished_bytes_max: u64,
    /// Most values of one constraint's field that are counted apart at a time.
    pub constraint_values_max: usize,
    /// Where the Workq door listens; `None` is off.
    pub workq: Option<SocketAddr>,
    /// Where the Gearman door listens; `None` is off.
    pub gearman: Option<SocketAddr>,
    /// Where the HTTP door listens; `None` is off.
    pub http: Option<SocketAddr>,
    /// What the HTTP door may be called, besides its address and `localhost`.
    pub http_hosts: HostNames,
    /// Where the jobd master listens; `None` is off.
    pub jobd_master: Option<SocketAddr>,
    /// Most leases of a Gearman job that says nothing itself; 0 is no limit.
    pub gearman_attempts_max: u32,
    /// Gearman clients get exceptions whether they have asked for them or not.
    pub gearman_exceptions: bool,
    /// Jobs may be pushed to whatever address a LightJQ worker gives.
    pub lightjq_allow_urls: bool,
    /// How long a Jobq query may compute.
    pub jobq_query_time: Duration,
    /// Most bytes of a Jobq list.
    pub jobq_list_bytes_max: usize,
    /// Where dead jobs and queues that need somebody are reported.
    pub webhooks: Vec<Hook>,
    /// Where the secret is that webhooks are signed with.
    pub webhook_secret_file: Option<PathBuf>,
    /// Where the authorities are that vouch for receivers over TLS; none: the public ones do.
    pub webhook_ca_file: Option<PathBuf>,
    /// The server's certificate, with those that lead to an authority.
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key.
    pub tls_key: Option<PathBuf>,
    /// Those who vouch for client certificates.
    pub tls_client_ca: Option<PathBuf>,
    /// Which connections the Workq door takes; `None`: see [`TlsMode::usual`]. So of the others.
    pub workq_tls: Option<TlsMode>,
    /// The same of the Gearman door.
    pub gearman_tls: Option<TlsMode>,
    /// The same of the HTTP door.
    pub http_tls: Option<TlsMode>,
    /// The same of the jobd master.
    pub jobd_master_tls: Option<TlsMode>,
    /// Who may come in, and what they may do.
    pub tokens: Option<PathBuf>,
    /// Everybody has to say who they are, on loopback too.
    pub require_auth: bool,
    /// Where the password is that the jobd master asks for.
    pub jobd_master_password_file: Option<PathBuf>,
    /// Doors that may listen on an address that is not loopback without tokens and TLS.
    pub insecure: Vec<String>,
    /// How long answers under way may take at the end.
    pub shutdown_timeout: Duration,
    /// Open connections of the line doors together, and of the HTTP door.
    pub connections_max: usize,
    /// What is logged.
    pub log_level: LogLevel,
}

impl Config {
    /// Each door that is on, with its address.
    pub fn doors(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        [
            ("workq", self.workq),
            ("gearman", self.gearman),
            ("http", self.http),
            ("jobd-master", self.jobd_master),
        ]
        .into_iter()
        .filter_map(|(door, addr)| Some((door, addr?)))
    }

    /// Whether a door that listens on this address asks everybody who they are.
    pub fn asks(&self, addr: SocketAddr) -> bool {
        self.require_auth || (self.tokens.is_some() && loopback(addr) == Loopback::No)
    }

    /// Whether a door may listen on an address that is not loopback without tokens and TLS.
    pub fn is_insecure(&self, door: &str) -> bool {
        self.insecure.iter().any(|named| named == door)
    }

    /// What a door would need that listens on an address that others reach; none: nothing is
    /// missing.
    pub fn missing(&self, door: &'static str, addr: SocketAddr) -> Option<Missing> {
        let asks = if door == JOBD_MASTER {
            self.jobd_master_password_file.is_some()
        } else {
            self.tokens.is_some()
        };
        if loopback(addr) == Loopback::Yes {
            let is_asked = self.require_auth && door == JOBD_MASTER;
            return (is_asked && !asks).then_some(Missing::Identity);
        }
        match (asks, self.tls_mode(door, addr) == TlsMode::Required) {
            (true, true) => None,
            (false, true) => Some(Missing::Identity),
            (true, false) => Some(Missing::Tls),
            (false, false) => Some(Missing::Both),
        }
    }

    /// What a setting says of a door's connections; `None` if none does.
    pub fn tls_setting(&self, door: &str) -> Option<TlsMode> {
        match door {
            "workq" => self.workq_tls,
            "gearman" => self.gearman_tls,
            "http" => self.http_tls,
            _ => self.jobd_master_tls,
        }
    }

    /// Which connections a door takes that listens on this address.
    pub fn tls_mode(&self, door: &str, addr: SocketAddr) -> TlsMode {
        match (&self.tls_cert, self.tls_setting(door)) {
            (None, _) => TlsMode::Off,
            (Some(_), Some(mode)) => mode,
            (Some(_), None) => TlsMode::usual(addr),
        }
    }
}

/// What a door lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It asks nobody who they are.
    Identity,
    /// It does not insist on TLS.
    Tls,
    /// Both.
    Both,
}

/// The door that knows no tokens: it has a password.
pub const JOBD_MASTER: &str = "jobd-master";

/// The doors there are, as `--insecure` names them.
pub const DOORS: &[&str] = &["workq", "gearman", "http", "jobd-master"];

/// How a setting is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `--name VALUE`
    One,
    /// `--name`; in the environment and the file `true` or `false`.
    Switch,
    /// `--name VALUE`, repeatable; in the environment with commas, in the file a list.
    Many,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its flag without the hyphens and its key in the file.
    pub name: &'static str,
    /// What stands for its value in the help; empty for a switch.
    pub value: &'static str,
    /// How it is given.
    pub shape: Shape,
    /// What holds when nobody says anything; empty is none.
    pub default: &'static str,
    /// Whether the file may set it.
    pub in_file: bool,
    /// What it is for, as a sentence.
    pub help: &'static str,
    /// Reads a value into the configuration. With several values it is called for each.
    pub apply: fn(&mut Config, &str) -> Result<(), String>,
}

/// All settings, in the order in which they are shown.
pub const TABLE: &[Setting] = &[
    Setting::one("config", "FILE", "")
        .help("Read settings from this TOML file. Without it no file is read.")
        .flag_only()
        .apply(|config, text| set(&mut config.file, Ok(Some(text.into())))),
    Setting::one("data", "DIR", "./spindle-data")
        .help(
            "Keep the log in this folder, which is created if it is missing. A relative path in \
             the file counts from the folder in which the server is started.",
        )
        .apply(|config, text| {
            if text.is_empty() {
                return Err("name a folder".to_owned());
            }
            config.data = PathBuf::from(text);
            Ok(())
        }),
    Setting::switch("memory")
        .help(
            "Keep the log in memory: all jobs are lost when the server stops. The data folder is \
             not touched.",
        )
        .apply(|config, text| set(&mut config.memory, parse_switch(text))),
    Setting::one("sync", "WHEN", "always")
        .help(
            "When to make writes durable: `always` (before they are acknowledged), `interval:MS` \
             (every MS milliseconds; a power cut loses what came since) or `os` (when the \
             operating system writes them).",
        )
        .apply(|config, text| set(&mut config.sync, parse_sync(text))),
    Setting::one("segment-size", "SIZE", "64MiB")
        .help(
            "The size of one log file, from 64KiB to 2GiB. Smaller files free disk space sooner \
             and cost more syncs. The space of one file stays reserved for what must go on when \
             the disk is full.",
        )
        .apply(|config, text| {
            set(&mut config.segment_bytes, within(size(text), SEGMENT_BYTES, "use 64KiB to 2GiB"))
        }),
    Setting::one("away-max", "TIME", "30d")
        .help(
            "At a start, believe the machine's clock if it is at most this much later than the last record of the log. \
             If it is later, nothing is deleted for its TTL until somebody says that the clock is right \
             (`spindle clock accept`).",
        )
        .apply(|config, text| set(&mut config.away_max, duration(text))),
    Setting::one("payload-memory", "SIZE", "64MiB")
        .help(
            "Keep at most this much of payloads and results in memory; the rest is read from the \
             log when it is needed. Takes KiB, MiB, GiB and plain bytes.",
        )
        .apply(|config, text| set(&mut config.payload_memory_bytes, size(text))),
    Setting::one("finished-max", "COUNT", "5000000")
        .help(
            "Keep at most this many finished jobs, done and dead ones together. The oldest are \
             dropped first, before their time; that is counted and logged once a minute. A queue \
             can have a maximum of its own.",
        )
        .apply(|config, text| set(&mut config.finished_max, parse_count(text))),
    Setting::one("finished-size-max", "SIZE", "8GiB")
        .help(
            "Let finished jobs with their payloads and results take at most this much disk space. \
             The oldest are dropped first, as with `finished-max`.",
        )
        .apply(|config, text| set(&mut config.finished_bytes_max, size(text))),
    Setting::one("constraint-values-max", "COUNT", "65536")
        .help(
            "The most values at a time of a constraint with a limit for each value of a payload's \
             field. A job that needs one more is refused.",
        )
        .apply(|config, text| set(&mut config.constraint_values_max, parse_count(text))),
    Setting::one("workq", "ADDR", "127.0.0.1:9922")
        .help(
            "The address of the Workq door, or `off`. Port 0 takes any free port, which the log \
             names.",
        )
        .apply(|config, text| set(&mut config.workq, parse_listen(text))),
    Setting::one("gearman", "ADDR", "127.0.0.1:4730")
        .help(
            "The address of the Gearman door, or `off`. Port 0 takes any free port, which the log \
             names.",
        )
        .apply(|config, text| set(&mut config.gearman, parse_listen(text))),
    Setting::one("gearman-job-retries", "COUNT", "-1")
        .help(
            "How often a Gearman job is leased before a lost worker or a timeout fails it: -1 is \
             no limit, 0 and 1 are once.",
        )
        .apply(|config, text| {
            config.gearman_attempts_max = match text.parse::<i64>() {
                Ok(-1) => 0,
                Ok(count @ 0..) if count <= i64::from(u32::MAX) => (count as u32).max(1),
                _ => return Err("write -1 or a whole number from 0".to_owned()),
            };
            Ok(())
        }),
    Setting::switch("gearman-exceptions")
        .help(
            "Send WORK_EXCEPTION also to Gearman clients that have not asked for it with \
             OPTION_REQ. Without it they get WORK_FAIL.",
        )
        .apply(|config, text| set(&mut config.gearman_exceptions, parse_switch(text))),
    Setting::one("http", "ADDR", "127.0.0.1:7420")
        .help(
            "The address of the HTTP door (native API, LightJQ, Jobq, metrics, health), or `off`. \
             Port 0 takes any free port, which the log names.",
        )
        .apply(|config, text| set(&mut config.http, parse_listen(text))),
    Setting::many("http-host", "NAME")
        .help(
            "A name that clients or a proxy use for the HTTP door, besides its address and \
             localhost. `*` is every name: then any web page can use the server. May be \
             repeated.",
        )
        .apply(|config, text| config.http_hosts.add(text).map_err(|error| error.to_string())),
    Setting::one("jobd-master", "ADDR", "127.0.0.1:7081")
        .help(
            "The address of the jobd master, where jobd's workers register and clients poke them, \
             or `off`. Port 0 takes any free port, which the log names.",
        )
        .apply(|config, text| set(&mut config.jobd_master, parse_listen(text))),
    Setting::switch("lightjq-allow-urls")
        .help(
            "Push jobs to any `url` that a LightJQ worker gives, not only to the address it calls \
             from: everyone who reaches the HTTP door can then make this server call others.",
        )
        .apply(|config, text| set(&mut config.lightjq_allow_urls, parse_switch(text))),
    Setting::one("jobq-query-time", "TIME", "2s")
        .help(
            "How long a Jobq query or poll may compute before it is refused, from 1ms to 10m. \
             Queries run one at a time: the others wait meanwhile.",
        )
        .apply(|config, text| {
            set(
                &mut config.jobq_query_time,
                within(duration(text), JOBQ_QUERY_TIME, "use 1ms to 10m"),
            )
        }),
    Setting::one("jobq-list-size", "SIZE", "64MiB")
        .help(
            "The largest answer to a Jobq list, from 1KiB to 1GiB; a larger one is refused. It is \
             built in memory.",
        )
        .apply(|config, text| {
            let bytes = within(size(text), JOBQ_LIST_BYTES, "use 1KiB to 1GiB");
            set(&mut config.jobq_list_bytes_max, bytes.map(|bytes| bytes as usize))
        }),
    Setting::many("webhook", "HOOK")
        .help(
            "Send events to this URL: `http://HOST:PORT/PATH` or `https://HOST/PATH`, then words, \
             all in one value: `dead` (a job failed for good; the default), `older=TIME` (the \
             next job of a queue waits longer), `no-worker=TIME` (no worker takes its jobs), \
             `queue=PATTERN` (only these queues). May be repeated. docs/webhooks.md describes \
             what is sent.",
        )
        .apply(|config, text| {
            config.webhooks.push(text.parse().map_err(|error: HookError| error.to_string())?);
            Ok(())
        }),
    Setting::one("webhook-secret-file", "FILE", "")
        .help(
            "A file with the secret that signs webhooks, at least 16 bytes. Without it, \
             SPINDLE_WEBHOOK_SECRET in the environment is the secret.",
        )
        .apply(|config, text| set(&mut config.webhook_secret_file, Ok(Some(text.into())))),
    Setting::one("webhook-ca-file", "FILE", "")
        .help(
            "Certificates in PEM: one of these, instead of a public authority, must have signed \
             the certificate of a webhook receiver over https.",
        )
        .apply(|config, text| set(&mut config.webhook_ca_file, Ok(Some(text.into())))),
    Setting::one("tls-cert", "FILE", "")
        .help(
            "The server's certificate in PEM, followed by those that lead to an authority. With \
             it and `tls-key`, the doors speak TLS. SIGHUP reads the files anew.",
        )
        .apply(|config, text| set(&mut config.tls_cert, Ok(Some(text.into())))),
    Setting::one("tls-key", "FILE", "")
        .help(
            "The private key of `tls-cert` in PEM, not encrypted. A file that every user of the \
             machine may read is refused.",
        )
        .apply(|config, text| set(&mut config.tls_key, Ok(Some(text.into())))),
    Setting::one("tls-client-ca", "FILE", "")
        .help(
            "Certificates in PEM of those who vouch for clients. Clients may show a certificate \
             then; one that none of these has signed, or that has expired, is refused.",
        )
        .apply(|config, text| set(&mut config.tls_client_ca, Ok(Some(text.into())))),
    Setting::one("workq-tls", "MODE", "")
        .help(
            "Which connections the Workq door takes: `off` (plain ones), `optional` (plain and \
             encrypted ones on the same port) or `required` (encrypted ones). Without it, `off` \
             if there is no `tls-cert`; with one, `optional` on a loopback address and `required` \
             on any other.",
        )
        .apply(|config, text| set(&mut config.workq_tls, parse_tls_mode(text).map(Some))),
    Setting::one("gearman-tls", "MODE", "")
        .help("The same for the Gearman door.")
        .apply(|config, text| set(&mut config.gearman_tls, parse_tls_mode(text).map(Some))),
    Setting::one("http-tls", "MODE", "")
        .help("The same for the HTTP door.")
        .apply(|config, text| set(&mut config.http_tls, parse_tls_mode(text).map(Some))),
    Setting::one("jobd-master-tls", "MODE", "")
        .help("The same for the jobd master.")
        .apply(|config, text| set(&mut config.jobd_master_tls, parse_tls_mode(text).map(Some))),
    Setting::one("tokens", "FILE", "")
        .help(
            "Who may come in and what they may do: docs/security.md describes the file, and \
             `spindle token new` writes its entries. It is read anew when it changes. A file that \
             every user of the machine may read is refused. Doors on an address that is not \
             loopback ask everybody for a token; on loopback whoever presents none may do \
             everything.",
        )
        .apply(|config, text| set(&mut config.tokens, Ok(Some(text.into())))),
    Setting::switch("require-auth")
        .help(
            "Ask everybody for a token (or a client certificate), on loopback addresses too. Needs \
             `tokens`; the jobd master needs `jobd-master-password-file`, or to be `off`.",
        )
        .apply(|config, text| set(&mut config.require_auth, parse_switch(text))),
    Setting::one("jobd-master-password-file", "FILE", "")
        .help(
            "A file with the password that the jobd master asks its clients and workers for. \
             Without it, the master asks nobody.",
        )
        .apply(|config, text| set(&mut config.jobd_master_password_file, Ok(Some(text.into())))),
    Setting::many("insecure", "DOOR")
        .help(
            "Let this door (`workq`, `gearman`, `http`, `jobd-master`) listen on an address that \
             is not loopback without tokens (the jobd master: a password) and TLS. Without tokens \
             everyone who reaches it can do everything; without TLS everyone on the way can read \
             tokens and jobs. A warning says so at each start. May be repeated.",
        )
        .apply(|config, text| {
            if !DOORS.contains(&text) {
                return Err(format!("there is no such door; there is {}", DOORS.join(", ")));
            }
            config.insecure.push(text.to_owned());
            Ok(())
        }),
    Setting::one("shutdown-timeout", "TIME", "10s")
        .help(
            "How long answers under way may take when the server is asked to stop. Takes ms, s, \
             m, h and d.",
        )
        .apply(|config, text| set(&mut config.shutdown_timeout, duration(text))),
    Setting::one("connections-max", "COUNT", "10000")
        .help(
            "The most connections of the HTTP door, and of the other doors together. Further ones \
             are closed at once.",
        )
        .apply(|config, text| set(&mut config.connections_max, parse_count(text))),
    Setting::one("log-level", "LEVEL", "info")
        .help("What to log on standard error: `off`, `error`, `warn`, `info`, `debug` or `trace`.")
        .apply(|config, text| set(&mut config.log_level, parse_level(text))),
];

impl Setting {
    const fn one(name: &'static str, value: &'static str, default: &'static str) -> Setting {
        let apply = |_: &mut Config, _: &str| Ok(());
        Setting { name, value, shape: Shape::One, default, in_file: true, help: "", apply }
    }

    const fn switch(name: &'static str) -> Setting {
        Setting { shape: Shape::Switch, ..Setting::one(name, "", "false") }
    }

    const fn many(name: &'static str, value: &'static str) -> Setting {
        Setting { shape: Shape::Many, ..Setting::one(name, value, "") }
    }

    const fn flag_only(self) -> Setting {
        Setting { in_file: false, ..self }
    }

    const fn help(self, help: &'static str) -> Setting {
        Setting { help, ..self }
    }

    const fn apply(self, apply: fn(&mut Config, &str) -> Result<(), String>) -> Setting {
        Setting { apply, ..self }
    }

    /// Its name in the environment: `SPINDLE_SERVE_PAYLOAD_MEMORY`.
    pub fn environment_name(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The setting of that name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        TABLE.iter().find(|setting| setting.name == name)
    }
}

fn set<T>(field: &mut T, read: Result<T, String>) -> Result<(), String> {
    *field = read?;
    Ok(())
}

fn within<T: PartialOrd>(
    read: Result<T, String>,
    range: RangeInclusive<T>,
    hint: &str,
) -> Result<T, String> {
    read.and_then(|value| if range.contains(&value) { Ok(value) } else { Err(hint.to_owned()) })
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// What the environment names of the server begin with.
pub const ENVIRONMENT_PREFIX: &str = "SPINDLE_SERVE_";

/// Less would not hold the largest event, more is not addressed.
const SEGMENT_BYTES: RangeInclusive<u64> = (64 << 10)..=(2 << 30);

const JOBQ_QUERY_TIME: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_mins(10);

/// Less would not hold one job.
const JOBQ_LIST_BYTES: RangeInclusive<u64> = (1 << 10)..=(1 << 30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_its_setting_takes() {
        let mut config = Config::default();
        for setting in TABLE.iter().filter(|setting| !setting.default.is_empty()) {
            (setting.apply)(&mut config, setting.default).unwrap();
        }
        assert_eq!(config.payload_memory_bytes, 64 << 20);
        assert_eq!(config.shutdown_timeout, Duration::from_secs(10));
        assert_eq!(config.workq, Some("127.0.0.1:9922".parse().unwrap()));
    }

    #[test]
    fn every_door_has_a_setting() {
        for door in DOORS {
            assert!(Setting::named(door).is_some(), "{door}");
            assert!(Setting::named(&format!("{door}-tls")).is_some(), "{door}");
        }
    }

    #[test]
    fn segments_too_short_or_too_long_are_refused() {
        let setting = Setting::named("segment-size").unwrap();
        let mut config = Config::default();
        for text in ["64KiB", "256KiB", "2GiB"] {
            (setting.apply)(&mut config, text).unwrap();
        }
        assert_eq!(config.segment_bytes, 2 << 30);
        for text in ["0", "63KiB", "3GiB", "much"] {
            assert!((setting.apply)(&mut config, text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_of_jobqs_queries_have_limits_themselves() {
        let mut config = Config::default();
        for (name, fitting, others) in [
            ("jobq-query-time", ["1ms", "10m"], ["0", "11m", "2"]),
            ("jobq-list-size", ["1KiB", "1GiB"], ["0", "1025MiB", "much"]),
        ] {
            let setting = Setting::named(name).unwrap();
            for text in fitting {
                (setting.apply)(&mut config, text).unwrap();
            }
            for text in others {
                assert!((setting.apply)(&mut config, text).is_err(), "{name} {text}");
            }
        }
        let last = (config.jobq_query_time, config.jobq_list_bytes_max);
        assert_eq!(last, (Duration::from_mins(10), 1 << 30));
    }
}
