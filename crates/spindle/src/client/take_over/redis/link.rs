//! The connection to a Redis, and what its errors mean to a person.

use std::{fs, io, path::Path, time::Duration};

use anyhow::{Context, anyhow};
use redis::{
    Client, Cmd, Connection, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisError, ServerErrorKind, TlsCertificates,
};
use spindle_access::read_secret;

use crate::{
    cli::FromArgs,
    exit::{Code, Failure},
};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection to a Redis.
pub struct Link {
    connection: Connection,
    /// Where it is, without user and password.
    place: String,
}

impl Link {
    /// Connects to HOST:PORT, or as a URL says.
    pub fn open(address: &str, options: &FromArgs) -> anyhow::Result<Self> {
        let info = info(address, options.from_password_file.as_deref())?;
        let place = format!("{} (database {})", info.addr(), info.redis_settings().db());
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: options.from_ca_file.as_deref().map(read_certificates).transpose()?,
        };
        let client = if certificates.root_cert.is_some() {
            Client::build_with_tls(info, certificates)
        } else {
            Client::open(info)
        };
        let client = client.map_err(|error| explain(&error, &place))?;
        let connection = client.get_connection_with_timeout(CONNECT_TIME_MAX);
        let connection = connection.map_err(|error| match error.kind() {
            ErrorKind::Io if !error.is_timeout() => anyhow!("cannot connect to {place}: {error}"),
            _ => explain(&error, &place),
        })?;
        connection.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        connection.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        let mut link = Self { connection, place };
        link.ask::<String>(&redis::cmd("PING"))?;
        Ok(link)
    }

    /// Where it is.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// One command and its answer.
    pub fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> anyhow::Result<T> {
        command.query(&mut self.connection).map_err(|error| explain(&error, &self.place))
    }

    /// Many commands at once, and their answers.
    pub fn ask_all<T: FromRedisValue>(&mut self, commands: &[Cmd]) -> anyhow::Result<Vec<T>> {
        if commands.is_empty() {
            return Ok(vec![]);
        }
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        pipeline.query(&mut self.connection).map_err(|error| explain(&error, &self.place))
    }
}

fn info(address: &str, password: Option<&Path>) -> anyhow::Result<ConnectionInfo> {
    let url =
        if address.contains("://") { address.to_owned() } else { format!("redis://{address}") };
    // The URL itself may hold a password, so it is not shown.
    let unusable = |_| {
        let message = "the address is no HOST:PORT and no URL of a Redis, which is \
                       redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS";
        Failure::with(Code::Usage, message)
    };
    let info = url.as_str().into_connection_info().map_err(unusable)?;
    let Some(path) = password else { return Ok(info) };
    let password = read_secret(path)
        .map_err(|error| Failure::with(Code::Usage, format!("--from-password-file: {error}")))?;
    let settings = info.redis_settings().clone().set_password(password);
    Ok(info.set_redis_settings(settings))
}

fn read_certificates(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    read.map_err(|error| Failure::with(Code::Usage, format!("--from-ca-file: {error:#}")))
}

fn explain(error: &RedisError, place: &str) -> anyhow::Error {
    use ErrorKind as Kind;
    let code = error.code().unwrap_or_default();
    match (error.kind(), code) {
        (Kind::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => anyhow!(
            "the Redis at {place} wants another user or password; name them in the URL, as \
             redis://USER:PASSWORD@HOST:PORT, or the password with --from-password-file"
        ),
        (Kind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask), _) => {
            anyhow!("the Redis at {place} is a part of a cluster: jobs cannot be taken out of one")
        }
        (Kind::Server(ServerErrorKind::ReadOnly), _) => {
            anyhow!("the Redis at {place} is a replica: name the one that it copies")
        }
        (Kind::Server(ServerErrorKind::NoPerm), _) => {
            anyhow!("the Redis at {place} does not let this user do it: {error}")
        }
        (Kind::Parse, _) => anyhow!("that is no Redis at {place}: it does not speak its protocol"),
        (Kind::Io, _) if error.is_timeout() => {
            anyhow!("the Redis at {place} does not answer; run it again: it goes on where it was")
        }
        (Kind::Io, _) => {
            let error: anyhow::Error = io::Error::other(error.clone()).into();
            error.context(format!(
                "lost the connection to the Redis at {place}; run it again: it goes on where it was"
            ))
        }
        _ => anyhow!("the Redis at {place} refused: {error}"),
    }
}
