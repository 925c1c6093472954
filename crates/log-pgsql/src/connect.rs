//! Finding the primary, and setting a connection up.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls, Notification, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{OpenError, reason_of, tls_config};
use crate::options::PgsqlLogOptions;
use crate::session::Session;

/// For one server: reaching it, TLS, login, set-up.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A peer that disappeared without closing the connection is noticed after about this time. Not a
/// limit on how long a live server may take.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const VERSION_MIN: i32 = 120_000;

/// The servers of a log.
pub(crate) struct Servers {
    hosts: Vec<(String, Config)>,
    tls: Option<MakeRustlsConnect>,
    accept_unsafe: bool,
}

/// No time limits, whatever the role or the database say: a limit would cancel a wait for the
/// standby. The promise of a commit stays what it was at the check. Warnings are shown: one says
/// that such a wait was cancelled.
const SET_UP: &str = "
    SELECT set_config(s.name, v.value, false)
    FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'),
                 ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0'),
                 ('client_min_messages', 'warning'), ('search_path', 'pg_catalog'),
                 ('default_transaction_isolation', 'read committed'),
                 ('synchronous_commit', current_setting('synchronous_commit'))) AS v(name, value)
    JOIN pg_settings s ON s.name = v.name";

const DESCRIBE: &str = "
    SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
           current_setting('server_version_num')::int4, current_setting('synchronous_commit'),
           current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on'";

impl Servers {
    pub fn new(options: &PgsqlLogOptions) -> Result<Servers, OpenError> {
        let config = &options.config;
        let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
            let ports = config.get_ports();
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            (format!("{}:{port}", host_name(host)), config_of(config, host, port))
        });
        let tls = options.tls.as_ref().map(tls_config).transpose()?;
        let accept_unsafe = options.accept_unsafe_server;
        Ok(Servers { hosts: hosts.collect(), tls, accept_unsafe })
    }

    /// A connection to the first server that is a primary and is suitable.
    pub async fn connect(
        &self,
        notifications: Option<&UnboundedSender<Notification>>,
    ) -> Result<Session, OpenError> {
        let mut reasons = Vec::new();
        let mut refusal = None;
        for (server, config) in &self.hosts {
            let attempt = self.connect_to(server, config, notifications);
            match tokio::time::timeout(CONNECT_MAX, attempt).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(OpenError::Unreachable(reason))) => reasons.push(reason),
                Ok(Err(error)) => {
                    reasons.push(error.to_string());
                    refusal.get_or_insert(error);
                }
                Err(_) => reasons.push(format!("{server} did not answer within {CONNECT_MAX:?}")),
            }
        }
        match refusal {
            // One server says it best itself.
            Some(refusal) if reasons.len() == 1 => Err(refusal),
            _ => Err(OpenError::Unreachable(reasons.join("; "))),
        }
    }

    async fn connect_to(
        &self,
        server: &str,
        config: &Config,
        notifications: Option<&UnboundedSender<Notification>>,
    ) -> Result<Session, OpenError> {
        let failed = |error| connect_error(server, &error);
        let notifications = notifications.cloned();
        let session = if let Some(tls) = &self.tls {
            let (client, connection) = config.connect(tls.clone()).await.map_err(failed)?;
            Session::begin(client, connection, server.to_owned(), notifications)
        } else {
            let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
            Session::begin(client, connection, server.to_owned(), notifications)
        };
        let row = session.query_typed(DESCRIBE, &[]).await.map_err(failed)?;
        let row = row.first().ok_or_else(|| unreachable(server, "it says nothing of itself"))?;
        self.check(server, row)?;
        session.query_typed(SET_UP, &[]).await.map_err(failed)?;
        Ok(session)
    }

    fn check(&self, server: &str, row: &Row) -> Result<(), OpenError> {
        let failed = |error| connect_error(server, &error);
        let standby: bool = row.try_get(0).map_err(failed)?;
        if standby {
            return Err(unreachable(server, "it is a standby (name the primary, too)"));
        }
        let version: i32 = row.try_get(2).map_err(failed)?;
        if version < VERSION_MIN {
            let version = version / 10_000;
            return Err(OpenError::TooOld { server: server.to_owned(), version });
        }
        if row.try_get(1).map_err(failed)? {
            return Err(unreachable(server, "it takes no writes (default_transaction_read_only)"));
        }
        let not_safe = |setting: &str, advice: &str| OpenError::Unsafe {
            server: server.to_owned(),
            setting: setting.to_owned(),
            advice: advice.to_owned(),
        };
        let commit: &str = row.try_get(3).map_err(failed)?;
        // With `local` no standby is waited for, which is the operator's decision, like having no
        // standby. With `off` not even the server's own disk has the acknowledged records.
        if commit == "off" {
            let advice = "set it to on, for the server, the database or the role";
            return Err(not_safe("synchronous_commit is off", advice));
        }
        for (at, name) in [(4, "fsync"), (5, "full_page_writes")] {
            let on: bool = row.try_get(at).map_err(failed)?;
            if !on && !self.accept_unsafe {
                return Err(not_safe(&format!("{name} is off"), "set it to on in its settings"));
            }
        }
        Ok(())
    }
}

/// The driver's configuration for one host of several; by itself it would try them by other rules.
fn config_of(all: &Config, host: &Host, port: u16) -> Config {
    let mut config = Config::new();
    match host {
        Host::Tcp(name) => config.host(name),
        Host::Unix(path) => config.host_path(path),
    };
    config.port(port).application_name(all.get_application_name().unwrap_or("spindle"));
    config.ssl_mode(all.get_ssl_mode()).channel_binding(all.get_channel_binding());
    if matches!(host, Host::Unix(_)) && all.get_ssl_mode() == SslMode::Prefer {
        config.ssl_mode(SslMode::Disable);
    }
    if let Some(user) = all.get_user() {
        config.user(user);
    }
    if let Some(password) = all.get_password() {
        config.password(password);
    }
    if let Some(database) = all.get_dbname() {
        config.dbname(database);
    }
    if let Some(options) = all.get_options() {
        config.options(options);
    }
    config.connect_timeout(all.get_connect_timeout().copied().unwrap_or(CONNECT_MAX));
    config.tcp_user_timeout(all.get_tcp_user_timeout().copied().unwrap_or(SILENCE_MAX));
    config.keepalives(true).keepalives_idle(SILENCE_MAX / 4);
    config.keepalives_interval(SILENCE_MAX / 4).keepalives_retries(3);
    config
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

fn unreachable(server: &str, reason: &str) -> OpenError {
    OpenError::Unreachable(format!("{server}: {reason}"))
}

fn connect_error(server: &str, error: &tokio_postgres::Error) -> OpenError {
    let (server_name, reason) = (server.to_owned(), reason_of(error));
    match error.code() {
        Some(
            &SqlState::INVALID_PASSWORD
            | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            | &SqlState::INVALID_CATALOG_NAME,
        ) => OpenError::Login { server: server_name, reason },
        None if reason.starts_with("error performing TLS handshake") => {
            OpenError::Tls { server: server_name, reason }
        }
        // The driver says so itself: a password is asked for and there is none.
        None if reason.starts_with("invalid configuration") => {
            OpenError::Login { server: server_name, reason }
        }
        _ => unreachable(server, &reason),
    }
}
