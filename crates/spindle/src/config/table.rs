//! The one table of settings.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use spindle_http::HostNames;
use spindle_log::SyncPolicy;
use spindle_tls::TlsMode;
use spindle_webhook::{Hook, HookError};

use super::address::parse_listen;
use super::cluster::{LogSync, parse_advertise, parse_log_sync, parse_log_url, parse_shards};
use super::doors::{CLUSTER, DOORS};
use super::parse::{
    LogFormat, LogLevel, parse_budget, parse_collector, parse_count, parse_idle, parse_level,
    parse_log_format, parse_rate, parse_switch, parse_sync, parse_tls_mode,
};
use super::reading::{
    JOBQ_LIST_BYTES, JOBQ_QUERY_TIME, PATIENCE, SEGMENT_BYTES, duration, limit, set, size, within,
};

/// The server's configuration. The `Default` one is blank: the defaults of [`TABLE`] go into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The file that was read, if one was.
    pub file: Option<PathBuf>,
    /// The folder of the log.
    pub data: PathBuf,
    /// Keep the log in memory instead.
    pub memory: bool,
    /// The log that several nodes share, by its URL; `None`: the log is in the folder.
    pub log: Option<String>,
    /// Where the password of that log's server is.
    pub log_password_file: Option<PathBuf>,
    /// Where the authorities are that vouch for that log's server over TLS; none: the public ones do.
    pub log_ca_file: Option<PathBuf>,
    /// What a shared log must do before it acknowledges.
    pub log_sync: LogSync,
    /// This node's name among those that share the log; `None`: the machine's.
    pub node: Option<String>,
    /// Where other nodes hand clients on to this one; `None` is off.
    pub cluster_listen: Option<SocketAddr>,
    pub cluster_ca_file: Option<PathBuf>,
    /// That address as other nodes know it; `None`: as it is.
    pub advertise: Option<String>,
    /// Over how many logs the queues are spread.
    pub shards: u8,
    /// When the log is synced.
    pub sync: SyncPolicy,
    /// How long one file of the log is.
    pub segment_bytes: u64,
    /// How long a server may have been away before its clock is doubted.
    pub away_max: Duration,
    /// Payloads and results kept in memory.
    pub payload_memory_bytes: u64,
    /// A lease is answered only when it is durable itself.
    pub durable_leases: bool,
    /// Most unfinished jobs of the server.
    pub unfinished_max: u64,
    /// Most unfinished jobs of a queue that says nothing itself.
    pub queue_unfinished_max: u64,
    /// New jobs are refused while the log is this long.
    pub log_bytes_max: u64,
    /// Finished jobs kept; the oldest go first.
    pub finished_max: usize,
    /// What finished jobs may take on disk; the oldest go first.
    pub finished_bytes_max: u64,
    /// How many days an entry of the audit log is kept.
    pub audit_days: usize,
    /// Entries of the audit log kept; the oldest go first.
    pub audit_entries_max: usize,
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
    /// Open connections of all doors.
    pub connections_max: usize,
    /// Bytes of unfinished requests, of all clients together; `None`: as the memory is.
    pub unfinished_input_max: Option<u64>,
    /// Bytes of answers that clients have not read, likewise.
    pub unread_output_max: Option<u64>,
    /// The same of each door; `None`: nine tenths of all.
    pub door_connections_max: Option<usize>,
    /// The same of each client address at each door; `None`: a quarter of the door's.
    pub address_connections_max: Option<usize>,
    /// Requests a second of each token; `None` is any number.
    pub token_requests_max: Option<u32>,
    /// The same of each client address.
    pub address_requests_max: Option<u32>,
    /// How long a connection of the other doors than HTTP may say nothing; `None` is for ever.
    pub idle_timeout: Option<Duration>,
    /// How long one of the HTTP door may be between two requests, or in the head of one.
    pub http_idle_timeout: Duration,
    /// How long a client of the other doors may take to encrypt and to say who it is, where it has to.
    pub login_timeout: Duration,
    /// What is logged.
    pub log_level: LogLevel,
    /// In which form.
    pub log_format: LogFormat,
    /// The collector that spans are sent to; `None`: the environment may name one.
    pub otlp_endpoint: Option<String>,
}

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
    Setting::one("log", "URL", "")
        .help(
            "Keep the log on a server that several nodes share, instead of in the data folder: this server is one \
             node of a cluster. `nats://HOST:PORT/STREAM`, `tls://HOST:PORT/STREAM` (NATS over TLS) or \
             `postgres://USER@HOST/DATABASE`. A password is not part of it, see `log-password-file`. What this \
             node keeps for itself, such as the history for charts, stays in the data folder.",
        )
        .apply(|config, text| set(&mut config.log, parse_log_url(text).map(Some))),
    Setting::one("log-password-file", "FILE", "")
        .help("Read the password for the server of the shared log from this file.")
        .apply(|config, text| set(&mut config.log_password_file, Ok(Some(text.into())))),
    Setting::one("log-ca-file", "FILE", "")
        .help(
            "Trust the server of the shared log if one of these authorities (PEM) vouches for it, instead of the \
             public ones.",
        )
        .apply(|config, text| set(&mut config.log_ca_file, Ok(Some(text.into())))),
    Setting::one("log-sync", "WHEN", "always")
        .help(
            "What the server of the shared log has to do before it acknowledges: `always` (it syncs its disks, and \
             one that does not is refused) or `os` (what its operating systems have not written is lost when all of \
             its machines lose power at once).",
        )
        .apply(|config, text| set(&mut config.log_sync, parse_log_sync(text))),
    Setting::one("node", "NAME", "")
        .help(
            "This node's name, which no other node of the cluster has: letters, digits, `-`, `_` and `.`. Without \
             it, the machine's name.",
        )
        .apply(|config, text| set(&mut config.node, Ok(Some(text.to_owned())))),
    Setting::one("cluster-listen", "ADDR", "off")
        .help(
            "Where other nodes hand on clients that came to them while this node leads, or `off`: then only clients \
             that come to this node itself reach it. An address that is not loopback needs `cluster-ca-file`, or \
             `insecure` with `cluster`.",
        )
        .apply(|config, text| set(&mut config.cluster_listen, parse_listen(text))),
    Setting::one("cluster-ca-file", "FILE", "")
        .help(
            "Encrypt what nodes say to each other: at `cluster-listen` each shows the certificate of `tls-cert`, and \
             others check that one of the authorities in this file (PEM) has signed it, for the host in `advertise`. \
             Read again at SIGHUP.",
        )
        .apply(|config, text| set(&mut config.cluster_ca_file, Ok(Some(text.into())))),
    Setting::one("advertise", "HOST:PORT", "")
        .help("`cluster-listen` as other nodes reach it, if that is another address.")
        .apply(|config, text| set(&mut config.advertise, parse_advertise(text).map(Some))),
    Setting::one("shards", "COUNT", "1")
        .help(
            "Spread the queues over this many logs, each of which is led by one of the nodes. It is the same at all \
             nodes of a cluster, and stays as it was when that began.",
        )
        .apply(|config, text| set(&mut config.shards, parse_shards(text))),
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
             and cost more syncs. A record that is longer than a file makes its file longer. The space of one file stays reserved for what must go on when \
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
    Setting::switch("durable-leases")
        .help(
            "Answer a lease only when it is durable itself: a crash forgets no lease that a worker \
             has. Without it that holds for jobs with a maximum of attempts or under a constraint; \
             for others a crash within the next commit, mostly less than a millisecond, may forget \
             the lease, and another worker gets the job.",
        )
        .apply(|config, text| set(&mut config.durable_leases, parse_switch(text))),
    Setting::one("unfinished-jobs-max", "COUNT", "off")
        .help(
            "The most unfinished jobs of the server, all queues and doors together, or `off`. One \
             more is refused. A waiting job takes 100 bytes of memory besides its payload.",
        )
        .apply(|config, text| set(&mut config.unfinished_max, limit(text, parse_count))),
    Setting::one("queue-unfinished-jobs-max", "COUNT", "off")
        .help(
            "The most unfinished jobs of a queue that has no maximum of its own (`spindle queue \
             set`), or `off`. One more is refused.",
        )
        .apply(|config, text| set(&mut config.queue_unfinished_max, limit(text, parse_count))),
    Setting::one("log-bytes-max", "SIZE", "off")
        .help(
            "Refuse new jobs while the log is this large, or `off`; also new schedules and \
             constraints, and events of Jobq's jobs. At least four times `segment-size`. Jobs can \
             still be worked and deleted, which may lengthen the log by some segments before it \
             gets shorter.",
        )
        .apply(|config, text| set(&mut config.log_bytes_max, limit(text, size))),
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
    Setting::one("audit-days", "DAYS", "90")
        .help(
            "Keep what people did in the audit log for this many days, from 1 to 3650; see \
             `spindle audit`.",
        )
        .apply(|config, text| {
            let days = within(parse_count(text), 1..=3650, "use 1 to 3650 days");
            set(&mut config.audit_days, days)
        }),
    Setting::one("audit-entries-max", "COUNT", "10000")
        .help(
            "Keep at most this many entries in the audit log, up to 1000000. The oldest go first.",
        )
        .apply(|config, text| {
            let count = within(parse_count(text), 1..=1_000_000, "use 1 to 1000000 entries");
            set(&mut config.audit_entries_max, count)
        }),
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
             tokens and jobs. `cluster`: let `cluster-listen` do so without TLS. A warning says so at \
             each start. May be repeated.",
        )
        .apply(|config, text| {
            if text != CLUSTER && !DOORS.contains(&text) {
                let doors = DOORS.join(", ");
                return Err(format!("there is no such door; there is {doors}, {CLUSTER}"));
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
            "The most connections of all doors together. Further ones are closed at once. Each \
             takes a file descriptor: where the system allows fewer, so are the connections.",
        )
        .apply(|config, text| set(&mut config.connections_max, parse_count(text))),
    Setting::one("unfinished-input-max", "SIZE", "auto")
        .help(
            "The most memory for requests that have begun to come in, over all doors together, \
             from 1MiB. When it is exceeded, the client with the largest is closed, with an error. \
             `auto` is 256MiB, or an eighth of the memory that the server may use if that is less.",
        )
        .apply(|config, text| set(&mut config.unfinished_input_max, parse_budget(text))),
    Setting::one("unread-output-max", "SIZE", "auto")
        .help(
            "The most memory for answers that clients have not read, likewise. When it is \
             exceeded, the client with the most is closed.",
        )
        .apply(|config, text| set(&mut config.unread_output_max, parse_budget(text))),
    Setting::one("door-connections-max", "COUNT", "")
        .help(
            "The most connections of each door. Without it, nine tenths of `connections-max`, so \
             that the other doors have room while one is flooded.",
        )
        .apply(|config, text| set(&mut config.door_connections_max, parse_count(text).map(Some))),
    Setting::one("address-connections-max", "COUNT", "")
        .help(
            "The most connections of one client address at one door. Without it, a quarter of the \
             door's. An IPv6 address counts with all of its /64 network; loopback addresses are \
             not limited, because proxies and local workers are behind them.",
        )
        .apply(|config, text| {
            set(&mut config.address_connections_max, parse_count(text).map(Some))
        }),
    Setting::one("token-requests-max", "COUNT", "off")
        .help(
            "The most requests a second with one token (or client certificate), with a burst of \
             one second's, or `off`. HTTP answers 429 to more; on the other doors the connection \
             waits for its turn.",
        )
        .apply(|config, text| set(&mut config.token_requests_max, parse_rate(text))),
    Setting::one("address-requests-max", "COUNT", "off")
        .help(
            "The same for each client address. An IPv6 address counts with all of its /64 network; \
             loopback addresses are not limited.",
        )
        .apply(|config, text| set(&mut config.address_requests_max, parse_rate(text))),
    Setting::one("idle-timeout", "TIME", "off")
        .help(
            "Close a connection of the Workq door, the Gearman door or the jobd master that has \
             sent nothing for this time and waits for nothing, from 1s, or `off`: idle clients \
             are normal there.",
        )
        .apply(|config, text| set(&mut config.idle_timeout, parse_idle(text))),
    Setting::one("http-idle-timeout", "TIME", "1m")
        .help(
            "Close a connection of the HTTP door on which no request comes, or the head of one \
             does not come whole, for this time, from 1s to 1d.",
        )
        .apply(|config, text| {
            set(&mut config.http_idle_timeout, within(duration(text), PATIENCE, "use 1s to 1d"))
        }),
    Setting::one("login-timeout", "TIME", "1m")
        .help(
            "Close a connection of the Workq door, the Gearman door or the jobd master that has not \
             done within this time what the door asks for before it serves: the handshake, where \
             TLS is required, and a token, a client certificate or a password, where clients must \
             say who they are; from 1s to 1d. docs/limits.md says more.",
        )
        .apply(|config, text| {
            set(&mut config.login_timeout, within(duration(text), PATIENCE, "use 1s to 1d"))
        }),
    Setting::one("log-level", "LEVEL", "info")
        .help(
            "What to log on standard error: `off`, `error` (somebody must act), `warn` (somebody \
             should look), `info` (the life of the server), `debug` (each command) or `trace`. \
             docs/logging.md describes the lines.",
        )
        .apply(|config, text| set(&mut config.log_level, parse_level(text))),
    Setting::one("log-format", "FORMAT", "text")
        .help("How to log: `text` for people, or `json`, one object a line.")
        .apply(|config, text| set(&mut config.log_format, parse_log_format(text))),
    Setting::one("otlp-endpoint", "URL", "")
        .help(
            "Send traces to this collector of OpenTelemetry, over OTLP/HTTP: `http://HOST:4318` \
             or `https://HOST`; `/v1/traces` is added. Without it, OTEL_EXPORTER_OTLP_ENDPOINT in \
             the environment is the collector, and without that none. docs/logging.md describes \
             the spans.",
        )
        .apply(|config, text| set(&mut config.otlp_endpoint, parse_collector(text).map(Some))),
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

/// What the environment names of the server begin with.
pub const ENVIRONMENT_PREFIX: &str = "SPINDLE_SERVE_";

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
