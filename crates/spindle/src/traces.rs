//! Where the server's traces go, from its settings and the environment.

use std::{env, time::Duration};

use spindle_otlp::{Exporter, Settings};

use crate::{
    config::{Config, parse_collector},
    exit::{Code, Failure},
};

/// The variable that every exporter of OpenTelemetry reads.
const ENDPOINT_NAME: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The longest time that the orderly end waits for the collector.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// Starts to export traces; none if no collector is named.
pub fn start(config: &Config, instance: String) -> anyhow::Result<Option<Exporter>> {
    let unusable = |error: String| Failure::with(Code::Usage, error);
    let named = match (&config.otlp_endpoint, env::var(ENDPOINT_NAME)) {
        (Some(endpoint), _) => Some(endpoint.clone()),
        (None, Ok(text)) if !text.is_empty() => {
            let endpoint = parse_collector(&text);
            Some(endpoint.map_err(|hint| unusable(format!("{ENDPOINT_NAME}: {hint}")))?)
        }
        (None, _) => None,
    };
    let Some(endpoint) = named else { return Ok(None) };
    let settings = Settings { endpoint, instance, flush_within: FLUSH_WITHIN };
    let exporter = Exporter::start(&settings).map_err(|error| unusable(error.to_string()))?;
    tracing::info!(collector = settings.endpoint, "traces are exported");
    Ok(Some(exporter))
}
