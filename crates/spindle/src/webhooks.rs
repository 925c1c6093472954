//! The server's webhooks, from its settings.

use std::{env, fs};

use anyhow::Context;
use spindle_engine::Engine;
use spindle_webhook::{Authorities, Options, Secret, Webhooks};

use crate::{
    config::Config,
    exit::{Code, Failure},
};

const SECRET_NAME: &str = "SPINDLE_WEBHOOK_SECRET";

/// What webhooks need that is in files.
pub struct Prepared {
    secret: Secret,
    authorities: Authorities,
}

/// Reads what webhooks need; none if there are no webhooks.
pub fn prepare(config: &Config) -> anyhow::Result<Option<Prepared>> {
    if config.webhooks.is_empty() {
        return Ok(None);
    }
    Ok(Some(Prepared { secret: secret(config)?, authorities: authorities(config)? }))
}

/// The secret that they are signed with.
fn secret(config: &Config) -> anyhow::Result<Secret> {
    let text = match &config.webhook_secret_file {
        Some(path) => fs::read(path)
            .with_context(|| format!("cannot read --webhook-secret-file {}", path.display()))?,
        None => env::var_os(SECRET_NAME).unwrap_or_default().into_encoded_bytes(),
    };
    if text.is_empty() {
        let message = format!(
            "webhooks are signed, and there is no secret: write one into a file and name it with \
             --webhook-secret-file, or set {SECRET_NAME}"
        );
        return Err(Failure::with(Code::Usage, message));
    }
    Secret::new(&text).map_err(|error| Failure::with(Code::Usage, error.to_string()))
}

/// Who vouches for receivers over TLS.
fn authorities(config: &Config) -> anyhow::Result<Authorities> {
    let Some(path) = &config.webhook_ca_file else { return Ok(Authorities::default()) };
    let unusable = |error| Failure::with(Code::Usage, format!("--webhook-ca-file: {error}"));
    Authorities::read(path).map_err(unusable)
}

/// Starts the webhooks. They end when the answer is dropped.
pub fn start(
    engine: &Engine,
    config: &Config,
    Prepared { secret, authorities }: Prepared,
    server: String,
) -> anyhow::Result<Webhooks> {
    let options = Options { server, authorities, ..Options::default() };
    Ok(Webhooks::start(engine, config.webhooks.clone(), &secret, &options)?)
}
