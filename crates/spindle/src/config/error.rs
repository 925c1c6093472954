//! Why there is no configuration.

use std::{io, net::SocketAddr};

use super::doors::{JOBD_MASTER, Missing};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}")]
    Unreadable { path: String, source: io::Error },
    /// The file is not TOML.
    #[error("{path} is not TOML: {source}")]
    NotToml { path: String, source: Box<toml::de::Error> },
    /// The file has a key that is none.
    #[error("{path}: there is no setting `{key}`{hint}; `spindle config` lists all")]
    UnknownKey { path: String, key: String, hint: String },
    /// The file gives a value of another type.
    #[error("{path}: `{key}` must be {expected}")]
    WrongType { path: String, key: String, expected: &'static str },
    /// A value is not what the setting takes.
    #[error("{source_name}: `{value}` will not do: {reason}")]
    BadValue { source_name: String, value: String, reason: String },
    /// The environment gives a value that is not text.
    #[error("{name} in the environment is not valid UTF-8")]
    NotText { name: String },
    /// A door would be open to other machines.
    #[error(
        "{door}: {address} is not a loopback address, and the door needs {} there; use 127.0.0.1, \
         or --insecure {door} if the network itself keeps strangers out",
        needed(door, *missing)
    )]
    NotLoopback { door: &'static str, address: SocketAddr, missing: Missing },
    /// Clients have to authenticate, and there are no tokens.
    #[error("--require-auth needs --tokens too: nobody could come in")]
    NobodyKnown,
    /// The jobd master knows no tokens.
    #[error(
        "--require-auth, and the jobd master asks nobody: give it --jobd-master-password-file, or \
         turn it off with --jobd-master off, or let it be with --insecure jobd-master"
    )]
    MasterAsksNobody,
    /// A setting of TLS needs another one.
    #[error("--{given} needs --{missing} too")]
    TlsWithout { given: String, missing: &'static str },
    /// The log could not let one job in.
    #[error(
        "--log-bytes-max must be at least four times --segment-size, {} bytes: the log is made of \
         whole segments",
        4 * segment_bytes
    )]
    LogTooShort { segment_bytes: u64 },
    /// A part is larger than the whole.
    #[error("--{part} {is} is more than {of}, {most}: it could never be reached")]
    MoreThanAll { part: &'static str, is: usize, of: &'static str, most: usize },
    /// A setting is about a shared log, and there is none.
    #[error("--{given} is about a log that several nodes share, and needs --log URL")]
    NeedsLog { given: &'static str },
    /// A password stands where everybody sees it. It is not repeated here.
    #[error(
        "--log: a password does not belong in the URL: write it into a file, and name that with --log-password-file"
    )]
    PasswordInUrl,
    /// A setting is about a log of this server's own.
    #[error(
        "--{given} is about a log of this server's own, and --log keeps it elsewhere: leave one of them out (a shared \
         log has --log-sync)"
    )]
    OwnLog { given: &'static str },
    /// Nobody listens there.
    #[error("--advertise needs --cluster-listen too: nobody would listen there")]
    AdvertisesNothing,
    /// Other nodes would not find this one.
    #[error(
        "--cluster-listen {address} is every address of this machine: say with --advertise HOST:PORT which of them other \
         nodes are to use"
    )]
    AdvertisesAll { address: SocketAddr },
    /// Others could read what nodes say to each other.
    #[error(
        "--cluster-listen {address} is not a loopback address, and what nodes say there would not be encrypted: \
         encrypt it with --cluster-ca-file (and --tls-cert and --tls-key), or say --insecure cluster if the network \
         itself keeps strangers out"
    )]
    NodesInClear { address: SocketAddr },
    /// Clients would not reach shards that another node leads.
    #[error(
        "--shards needs --cluster-listen ADDR: each shard may be led by another node, and clients reach it there"
    )]
    ShardsApart,
    /// There would be nothing to serve.
    #[error("every door is off: nobody could reach the server")]
    NoDoor,
}

/// The settings that are missing.
fn needed(door: &str, missing: Missing) -> String {
    let identity = if door == JOBD_MASTER { "--jobd-master-password-file" } else { "--tokens" };
    let tls = format!("TLS (--tls-cert and --tls-key, and no --{door}-tls but required)");
    match missing {
        Missing::Identity => identity.to_owned(),
        Missing::Tls => tls,
        Missing::Both => format!("{identity} and {tls}"),
    }
}
