//! The server's webhooks, from its settings.

use std::{env, fs};

use anyhow::Context;
use spindle_engine::Engine;
use spindle_webhook::{Options, Secret, Webhooks};

use crate::{
    config::Config,
    exit::{Code, Failure},
};

const SECRET_NAME: &str = "SPINDLE_WEBHOOK_SECRET";

/// The secret that webhooks are signed with; none if there are no webhooks.
pub fn secret(config: &Config) -> anyhow::Result<Option<Secret>> {
    if config.webhooks.is_empty() {
        return Ok(None);
    }
    let text = match &config.webhook_secret_file {
        Some(path) => fs::read(path)
            .with_context(|| format!("cannot read --webhook-secret-file {}", path.display()))?,
        None => env::var_os(SECRET_NAME).unwrap_or_default().into_encoded_bytes(),
    };
    if text.is_empty() {
        let told = format!(
            "webhooks are signed, and there is no secret: write one into a file and name it with \
             --webhook-secret-file, or set {SECRET_NAME}"
        );
        return Err(Failure::with(Code::Usage, told));
    }
    let secret = Secret::new(&text);
    secret.map(Some).map_err(|error| Failure::with(Code::Usage, error.to_string()))
}

/// Starts the webhooks. They end when the answer is dropped.
pub fn start(
    engine: &Engine,
    config: &Config,
    secret: &Secret,
    server: String,
) -> anyhow::Result<Webhooks> {
    let folder = (!config.memory).then(|| config.data.clone());
    let options = Options { server, folder, ..Options::default() };
    Ok(Webhooks::start(engine, config.webhooks.clone(), secret, &options)?)
}
