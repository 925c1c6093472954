//! What only the native API can do: requests, with errors that are ready to be shown.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    line::Line,
    server::Server,
    session::AskError,
    web::{Asking, Http, encoded},
};
use crate::{
    cli,
    exit::{Code, Failure},
};

/// A server's native API, for one command.
pub struct Native {
    server: Server,
    http: Http,
}

impl Native {
    /// The server a command names.
    pub fn of(native: &cli::Native) -> anyhow::Result<Self> {
        Self::at(&native.reach)
    }

    /// The server that a command names which any door could do, but not this form of it.
    pub fn among(common: &cli::Common) -> anyhow::Result<Self> {
        if common.workq.is_some() {
            let message = "--all-matching needs the native API: leave --workq out";
            return Err(Failure::with(Code::Usage, message));
        }
        Self::at(&common.reach)
    }

    /// The server at a URL, or where the environment says.
    pub fn at(reach: &cli::Reach) -> anyhow::Result<Self> {
        let url = Server::url(reach)?;
        let http = Http::new(&url, &Line::default());
        Ok(Self { server: Server::Web(url), http })
    }

    /// The requests themselves.
    pub fn http(&self) -> &Http {
        &self.http
    }

    /// Asks about something and reads the answer's JSON.
    pub fn ask<T: DeserializeOwned>(&self, asking: Asking<'_>, about: &str) -> anyhow::Result<T> {
        self.http.ask(asking).map_err(|error| self.explain(error, about))
    }

    /// Asks about something that answers without words.
    pub fn answer(&self, asking: Asking<'_>, about: &str) -> anyhow::Result<()> {
        self.http.answer(asking).map_err(|error| self.explain(error, about))?;
        Ok(())
    }

    /// Everything of a list, page by page. `name` is the field that holds a page.
    pub fn list(&self, path: &str, name: &str) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut page: Value = self.ask(Asking::get(&format!("{path}{cursor}")), name)?;
            if let Some(Value::Array(more)) = page.get_mut(name).map(Value::take) {
                items.extend(more);
            }
            let Some(next) = page.get("next_cursor").and_then(Value::as_str) else {
                return Ok(items);
            };
            cursor = format!("?cursor={}", encoded(next));
        }
    }

    /// The most bytes of a payload that the server takes.
    pub fn payload_bytes_max(&self) -> usize {
        self.server.payload_bytes_max()
    }

    /// What a refusal means to a person.
    pub fn explain(&self, error: AskError, about: &str) -> anyhow::Error {
        self.server.explain(error, about)
    }
}
