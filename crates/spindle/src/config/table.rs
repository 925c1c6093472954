//! The one table of settings.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use spindle_http::HostNames;
use spindle_log::SyncPolicy;
use spindle_webhook::{Hook, HookError};
use tracing_subscriber::filter::LevelFilter;

use super::address::parse_listen;
use super::parse::{parse_count, parse_level, parse_switch, parse_sync};
use crate::quantity::{parse_duration, parse_size};

/// Everything `spindle serve` can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Payloads and results kept in memory.
    pub payload_memory_bytes: u64,
    /// Finished jobs kept; the oldest go first.
    pub finished_max: usize,
    /// What finished jobs may take on disk; the oldest go first.
    pub finished_bytes_max: u64,
    /// Values of one constraint's field that are told apart at a time.
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
    /// Who is told of dead jobs and of queues that need somebody.
    pub webhooks: Vec<Hook>,
    /// Where the secret is that webhooks are signed with.
    pub webhook_secret_file: Option<PathBuf>,
    /// Where the authorities are that vouch for receivers over TLS; none: the public ones do.
    pub webhook_ca_file: Option<PathBuf>,
    /// Doors that may listen on an address that is not loopback.
    pub insecure: Vec<String>,
    /// How long answers under way may take at the end.
    pub shutdown_timeout: Duration,
    /// Open connections of the line doors together, and of the HTTP door.
    pub connections_max: usize,
    /// What is logged.
    pub log_level: LevelFilter,
}

impl Config {
    /// What [`TABLE`]'s defaults are then put into.
    pub(super) fn blank() -> Self {
        Self {
            file: None,
            data: PathBuf::new(),
            memory: false,
            sync: SyncPolicy::Always,
            segment_bytes: 0,
            payload_memory_bytes: 0,
            finished_max: 0,
            finished_bytes_max: 0,
            constraint_values_max: 0,
            workq: None,
            gearman: None,
            http: None,
            http_hosts: HostNames::default(),
            jobd_master: None,
            gearman_attempts_max: 0,
            gearman_exceptions: false,
            lightjq_allow_urls: false,
            jobq_query_time: Duration::ZERO,
            jobq_list_bytes_max: 0,
            webhooks: Vec::new(),
            webhook_secret_file: None,
            webhook_ca_file: None,
            insecure: Vec::new(),
            shutdown_timeout: Duration::ZERO,
            connections_max: 0,
            log_level: LevelFilter::INFO,
        }
    }

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
}

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
    Setting {
        name: "config",
        value: "FILE",
        shape: Shape::One,
        default: "",
        in_file: false,
        help: "Read settings from this TOML file. Without it no file is read.",
        apply: |config, text| {
            config.file = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "data",
        value: "DIR",
        shape: Shape::One,
        default: "./spindle-data",
        in_file: true,
        help: "Keep the log in this folder, which is created if it is missing. A relative path in \
               the file counts from the folder in which the server is started.",
        apply: |config, text| {
            if text.is_empty() {
                return Err("name a folder".to_owned());
            }
            config.data = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "memory",
        value: "",
        shape: Shape::Switch,
        default: "false",
        in_file: true,
        help: "Keep the log in memory: all jobs are lost when the server stops. The data folder \
               is not touched.",
        apply: |config, text| {
            config.memory = parse_switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "sync",
        value: "WHEN",
        shape: Shape::One,
        default: "always",
        in_file: true,
        help: "When to make writes durable: `always` (before they are acknowledged), \
               `interval:MS` (every MS milliseconds; a power cut loses what came since) or `os` \
               (when the operating system writes them).",
        apply: |config, text| {
            config.sync = parse_sync(text)?;
            Ok(())
        },
    },
    Setting {
        name: "segment-size",
        value: "SIZE",
        shape: Shape::One,
        default: "64MiB",
        in_file: true,
        help: "The size of one log file, from 64KiB to 2GiB. Smaller files free disk space sooner \
               and cost more syncs. The space of one file stays reserved for what must go on when \
               the disk is full.",
        apply: |config, text| {
            let bytes = parse_size(text).map_err(|error| error.to_string())?;
            if !SEGMENT_BYTES.contains(&bytes) {
                return Err("use 64KiB to 2GiB".to_owned());
            }
            config.segment_bytes = bytes;
            Ok(())
        },
    },
    Setting {
        name: "payload-memory",
        value: "SIZE",
        shape: Shape::One,
        default: "64MiB",
        in_file: true,
        help: "Keep at most this much of payloads and results in memory; the rest is read from \
               the log when it is needed. Takes KiB, MiB, GiB and plain bytes.",
        apply: |config, text| {
            config.payload_memory_bytes = parse_size(text).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "finished-max",
        value: "COUNT",
        shape: Shape::One,
        default: "5000000",
        in_file: true,
        help: "Keep at most this many finished jobs, done and dead ones together. The oldest are \
               dropped first, before their time; that is counted and logged once a minute. A \
               queue can have a maximum of its own.",
        apply: |config, text| {
            config.finished_max = parse_count(text)?;
            Ok(())
        },
    },
    Setting {
        name: "finished-size-max",
        value: "SIZE",
        shape: Shape::One,
        default: "8GiB",
        in_file: true,
        help: "Let finished jobs with their payloads and results take at most this much disk \
               space. The oldest are dropped first, as with `finished-max`.",
        apply: |config, text| {
            config.finished_bytes_max = parse_size(text).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "constraint-values-max",
        value: "COUNT",
        shape: Shape::One,
        default: "65536",
        in_file: true,
        help: "The most values at a time of a constraint with a limit for each value of a \
               payload's field. A job that needs one more is refused.",
        apply: |config, text| {
            config.constraint_values_max = parse_count(text)?;
            Ok(())
        },
    },
    Setting {
        name: "workq",
        value: "ADDR",
        shape: Shape::One,
        default: "127.0.0.1:9922",
        in_file: true,
        help: "The address of the Workq door, or `off`. Port 0 takes any free port, which the log \
               names.",
        apply: |config, text| {
            config.workq = parse_listen(text)?;
            Ok(())
        },
    },
    Setting {
        name: "gearman",
        value: "ADDR",
        shape: Shape::One,
        default: "127.0.0.1:4730",
        in_file: true,
        help: "The address of the Gearman door, or `off`. Port 0 takes any free port, which the \
               log names.",
        apply: |config, text| {
            config.gearman = parse_listen(text)?;
            Ok(())
        },
    },
    Setting {
        name: "gearman-job-retries",
        value: "COUNT",
        shape: Shape::One,
        default: "-1",
        in_file: true,
        help: "How often a Gearman job is leased before a lost worker or a timeout fails it: -1 \
               is no limit, 0 and 1 are once.",
        apply: |config, text| {
            config.gearman_attempts_max = match text.parse::<i64>() {
                Ok(-1) => 0,
                Ok(count @ 0..) if count <= i64::from(u32::MAX) => (count as u32).max(1),
                _ => return Err("write -1 or a whole number from 0".to_owned()),
            };
            Ok(())
        },
    },
    Setting {
        name: "gearman-exceptions",
        value: "",
        shape: Shape::Switch,
        default: "false",
        in_file: true,
        help: "Send WORK_EXCEPTION also to Gearman clients that have not asked for it with \
               OPTION_REQ. Without it they get WORK_FAIL.",
        apply: |config, text| {
            config.gearman_exceptions = parse_switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "http",
        value: "ADDR",
        shape: Shape::One,
        default: "127.0.0.1:7420",
        in_file: true,
        help: "The address of the HTTP door (native API, LightJQ, Jobq, metrics, health), or \
               `off`. Port 0 takes any free port, which the log names.",
        apply: |config, text| {
            config.http = parse_listen(text)?;
            Ok(())
        },
    },
    Setting {
        name: "http-host",
        value: "NAME",
        shape: Shape::Many,
        default: "",
        in_file: true,
        help: "A name that clients or a proxy use for the HTTP door, besides its address and \
               localhost. `*` is every name: then any web page can use the server. May be \
               repeated.",
        apply: |config, text| config.http_hosts.add(text).map_err(|error| error.to_string()),
    },
    Setting {
        name: "jobd-master",
        value: "ADDR",
        shape: Shape::One,
        default: "127.0.0.1:7081",
        in_file: true,
        help: "The address of the jobd master, where jobd's workers register and clients poke \
               them, or `off`. Port 0 takes any free port, which the log names.",
        apply: |config, text| {
            config.jobd_master = parse_listen(text)?;
            Ok(())
        },
    },
    Setting {
        name: "lightjq-allow-urls",
        value: "",
        shape: Shape::Switch,
        default: "false",
        in_file: true,
        help: "Push jobs to any `url` that a LightJQ worker gives, not only to the address it \
               calls from: everyone who reaches the HTTP door can then make this server call \
               others.",
        apply: |config, text| {
            config.lightjq_allow_urls = parse_switch(text)?;
            Ok(())
        },
    },
    Setting {
        name: "jobq-query-time",
        value: "TIME",
        shape: Shape::One,
        default: "2s",
        in_file: true,
        help: "How long a Jobq query or poll may compute before it is refused, from 1ms to 10m. \
               Queries run one at a time: the others wait meanwhile.",
        apply: |config, text| {
            let time = parse_duration(text).map_err(|error| error.to_string())?;
            if !JOBQ_QUERY_TIME.contains(&time) {
                return Err("use 1ms to 10m".to_owned());
            }
            config.jobq_query_time = time;
            Ok(())
        },
    },
    Setting {
        name: "jobq-list-size",
        value: "SIZE",
        shape: Shape::One,
        default: "64MiB",
        in_file: true,
        help: "The largest answer to a Jobq list, from 1KiB to 1GiB; a larger one is refused. It \
               is built in memory.",
        apply: |config, text| {
            let bytes = parse_size(text).map_err(|error| error.to_string())?;
            let bytes = usize::try_from(bytes).ok().filter(|size| JOBQ_LIST_BYTES.contains(size));
            config.jobq_list_bytes_max = bytes.ok_or_else(|| "use 1KiB to 1GiB".to_owned())?;
            Ok(())
        },
    },
    Setting {
        name: "webhook",
        value: "HOOK",
        shape: Shape::Many,
        default: "",
        in_file: true,
        help: "Send events to this URL: `http://HOST:PORT/PATH` or `https://HOST/PATH`, then \
               words, all in one value: `dead` (a job failed for good; the default), `older=TIME` \
               (the next job of a queue waits longer), `no-worker=TIME` (no worker takes its \
               jobs), `queue=PATTERN` (only these queues). May be repeated. docs/webhooks.md \
               describes what is sent.",
        apply: |config, text| {
            config.webhooks.push(text.parse().map_err(|error: HookError| error.to_string())?);
            Ok(())
        },
    },
    Setting {
        name: "webhook-secret-file",
        value: "FILE",
        shape: Shape::One,
        default: "",
        in_file: true,
        help: "A file with the secret that signs webhooks, at least 16 bytes. Without it, \
               SPINDLE_WEBHOOK_SECRET in the environment is the secret.",
        apply: |config, text| {
            config.webhook_secret_file = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "webhook-ca-file",
        value: "FILE",
        shape: Shape::One,
        default: "",
        in_file: true,
        help: "Certificates in PEM: one of these, instead of a public authority, must have signed \
               the certificate of a webhook receiver over https.",
        apply: |config, text| {
            config.webhook_ca_file = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "insecure",
        value: "DOOR",
        shape: Shape::Many,
        default: "",
        in_file: true,
        help: "Let this door (`workq`, `gearman`, `http`, `jobd-master`) listen on an address \
               that is not loopback: everyone who reaches it can do everything. May be repeated.",
        apply: |config, text| {
            if !DOORS.contains(&text) {
                return Err(format!("there is no such door; there is {}", DOORS.join(", ")));
            }
            config.insecure.push(text.to_owned());
            Ok(())
        },
    },
    Setting {
        name: "shutdown-timeout",
        value: "TIME",
        shape: Shape::One,
        default: "10s",
        in_file: true,
        help: "How long answers under way may take when the server is asked to stop. Takes ms, s, \
               m, h and d.",
        apply: |config, text| {
            config.shutdown_timeout = parse_duration(text).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "connections-max",
        value: "COUNT",
        shape: Shape::One,
        default: "10000",
        in_file: true,
        help: "The most connections of the HTTP door, and of the other doors together. Further \
               ones are closed at once.",
        apply: |config, text| {
            config.connections_max = parse_count(text)?;
            Ok(())
        },
    },
    Setting {
        name: "log-level",
        value: "LEVEL",
        shape: Shape::One,
        default: "info",
        in_file: true,
        help: "What to log on standard error: `off`, `error`, `warn`, `info`, `debug` or `trace`.",
        apply: |config, text| {
            config.log_level = parse_level(text)?;
            Ok(())
        },
    },
];

impl Setting {
    /// Its name in the environment: `SPINDLE_SERVE_PAYLOAD_MEMORY`.
    pub fn environment_name(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The setting of that name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        TABLE.iter().find(|setting| setting.name == name)
    }
}

/// What the environment names of the server begin with.
pub const ENVIRONMENT_PREFIX: &str = "SPINDLE_SERVE_";

/// Less would not hold the largest event, more is not addressed.
const SEGMENT_BYTES: RangeInclusive<u64> = (64 << 10)..=(2 << 30);

const JOBQ_QUERY_TIME: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_mins(10);

/// Less would not hold one job.
const JOBQ_LIST_BYTES: RangeInclusive<usize> = (1 << 10)..=(1 << 30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_its_setting_takes() {
        let mut config = Config::blank();
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
        }
    }

    #[test]
    fn segments_too_short_or_too_long_are_refused() {
        let setting = Setting::named("segment-size").unwrap();
        let mut config = Config::blank();
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
        let mut config = Config::blank();
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
