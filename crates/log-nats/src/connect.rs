//! Getting a connection to the servers.

use std::time::{Duration, Instant};

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr};

use crate::error::OpenError;
use crate::options::{Login, NatsLogOptions};

/// How long one server may take to accept the login.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(500);
/// Two unanswered pings end a connection to a machine that disappeared without closing it.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, as soon as one of the servers takes it.
pub(crate) async fn connect(
    options: &NatsLogOptions,
    login: &Login,
    deadline: Instant,
) -> Result<Client, OpenError> {
    let servers = addresses(&options.servers)?;
    loop {
        // Servers that are found through the others come without a scheme.
        let is_encrypted = servers.iter().any(ServerAddr::tls_required);
        let prepared = prepared(options, login).await?.require_tls(is_encrypted);
        let connecting = prepared.connect(servers.clone());
        let error = match connecting.await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if let Some(final_error) = refused(options, &error) {
            return Err(final_error);
        }
        if Instant::now() >= deadline {
            let servers = options.servers.join(", ");
            return Err(OpenError::Unreachable { servers, reason: with_causes(&error) });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(crate) fn addresses(servers: &[String]) -> Result<Vec<ServerAddr>, OpenError> {
    if servers.is_empty() {
        return Err(OpenError::Option("the log has no address of a NATS server".to_owned()));
    }
    let parse = |server: &String| {
        let parsed = server.parse::<ServerAddr>().ok();
        let is_ours =
            |addr: &ServerAddr| matches!(addr.scheme(), "nats" | "tls") && !addr.has_user_pass();
        parsed.filter(is_ours).ok_or_else(|| {
            // It may have a password in it.
            let shown = server.rsplit('@').next().unwrap_or_default();
            OpenError::Option(format!(
                "{shown} is no address of a NATS server: it is nats://HOST:PORT or \
                 tls://HOST:PORT, and users are no part of it"
            ))
        })
    };
    servers.iter().map(parse).collect()
}

async fn prepared(options: &NatsLogOptions, login: &Login) -> Result<ConnectOptions, OpenError> {
    let prepared = ConnectOptions::new()
        .name(&options.client_name)
        .connection_timeout(HANDSHAKE_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(options.answer_timeout))
        .max_reconnects(None)
        .reconnect_delay_callback(|attempts| {
            RECONNECT_DELAY_MAX.min(Duration::from_millis(20 * attempts as u64))
        })
        .tls_client_config(options.tls.config()?)
        .event_callback(|event| async move { say(&event) });
    Ok(match login {
        Login::None => prepared,
        Login::User { user, password } => {
            prepared.user_and_password(user.clone(), password.clone())
        }
        Login::Token(token) => prepared.token(token.clone()),
        Login::Credentials(file) => {
            let read = prepared.credentials_file(file).await;
            read.map_err(|source| OpenError::Credentials { file: file.clone(), source })?
        }
    })
}

/// An error that does not pass by itself.
fn refused(options: &NatsLogOptions, error: &ConnectError) -> Option<OpenError> {
    let (servers, reason) = (options.servers.join(", "), with_causes(error));
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Some(OpenError::LoginRefused { servers, reason })
        }
        ConnectErrorKind::Tls => Some(OpenError::TlsRefused { servers, reason }),
        _ if reason.contains("certificate") => Some(OpenError::TlsRefused { servers, reason }),
        _ => None,
    }
}

/// An error and what caused it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

fn say(event: &Event) {
    match event {
        Event::Connected => tracing::info!("connected to a NATS server"),
        Event::Disconnected => tracing::warn!("the connection to the NATS server is gone"),
        other => tracing::warn!("NATS: {other}"),
    }
}
