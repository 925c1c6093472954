//! The log lines that a server writes when its parts have started: one for each part.

use std::net::SocketAddr;

use crate::{config::Config, jobd_master};

/// Logs which doors are open, whether they use TLS, and whether they require tokens. The jobd
/// master knows no tokens: it has a password.
pub fn doors(config: &Config, addresses: &[(&'static str, SocketAddr)]) {
    for (door, address) in addresses {
        let wanted = config.doors().find(|(name, _)| name == door);
        let tls = wanted.map(|(door, wanted)| config.tls_mode(door, wanted).to_string());
        let tls = tls.unwrap_or_default();
        if *door == jobd_master::DOOR {
            let asks = config.jobd_master_password_file.is_some();
            tracing::info!(door, %address, tls, asks_for_password = asks, "a door is open");
        } else {
            let asks = wanted.is_some_and(|(_, wanted)| config.asks(wanted));
            tracing::info!(door, %address, tls, asks_for_tokens = asks, "a door is open");
        }
    }
}

/// Says which webhooks are sent.
pub fn webhooks(config: &Config) {
    for hook in &config.webhooks {
        tracing::info!(url = %hook, "a webhook is followed");
    }
}

/// Logs that the tokens file was read, if there is one.
pub fn tokens(config: &Config) {
    if let Some(path) = &config.tokens {
        tracing::info!(file = %path.display(), "the tokens file was read");
    }
}
