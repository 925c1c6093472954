//! What only the native API can do: requests, with errors that are ready to be shown.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Line,
    server::Server,
    session::AskError,
    web::{ApiRequest, BaseUrl, Http, encoded},
};
use crate::{
    cli,
    exit::{Code, Failure},
};

/// How many items of a list are asked for at once, at most.
const PAGE: usize = 500;

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

    /// The server for a form of a command that only the native API has, unlike the command itself.
    pub fn among(common: &cli::Common) -> anyhow::Result<Self> {
        if common.workq.is_some() {
            let message = "--all-matching needs the native API: leave --workq out";
            return Err(Failure::with(Code::Usage, message));
        }
        Self::at(&common.reach)
    }

    /// The server at a URL, or where the environment says.
    pub fn at(reach: &cli::Reach) -> anyhow::Result<Self> {
        Ok(Self::at_base(Server::url(reach)?))
    }

    /// The server at a URL that was given as `name`.
    pub fn at_url(url: &str, name: &str, papers: &cli::Papers) -> anyhow::Result<Self> {
        Ok(Self::at_base(Server::at_url(url, name, papers)?))
    }

    fn at_base(url: BaseUrl) -> Self {
        let http = Http::new(&url, &Line::default());
        Self { server: Server::Web(url), http }
    }

    /// Where the server is.
    pub fn place(&self) -> String {
        self.server.to_string()
    }

    /// The requests themselves.
    pub fn http(&self) -> &Http {
        &self.http
    }

    /// Asks about something and reads the answer's JSON.
    pub fn ask<T: DeserializeOwned>(
        &self,
        asking: ApiRequest<'_>,
        about: &str,
    ) -> anyhow::Result<T> {
        self.http.ask(asking).map_err(|error| self.explain(error, about))
    }

    /// Asks about something that answers without words.
    pub fn answer(&self, asking: ApiRequest<'_>, about: &str) -> anyhow::Result<()> {
        self.http.answer(asking).map_err(|error| self.explain(error, about))?;
        Ok(())
    }

    /// Reads a list, page by page. `name` is the field that holds a page, and what is asked for.
    pub fn list(&self, path: &str, name: &str) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        self.for_each(path, name, |item| items.push(item))?;
        Ok(items)
    }

    /// The same, item by item.
    pub fn for_each<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        take: impl FnMut(T),
    ) -> anyhow::Result<()> {
        self.http.for_each(path, name, take).map_err(|error| self.explain(error, name))
    }

    /// The first items of a list, at most `limit`. `name` is the field that holds a page.
    pub fn first(
        &self,
        path: &str,
        name: &str,
        about: &str,
        limit: u32,
    ) -> anyhow::Result<Vec<Value>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut items: Vec<Value> = Vec::new();
        let mut cursor = String::new();
        while items.len() < limit {
            let most = PAGE.min(limit - items.len());
            let asked = format!("{path}{mark}limit={most}{cursor}");
            let page: Value = self.ask(ApiRequest::get(&asked), about)?;
            items.extend(page.get(name).and_then(Value::as_array).into_iter().flatten().cloned());
            let Some(next) = page.get("next_cursor").and_then(Value::as_str) else { break };
            cursor = format!("&cursor={}", encoded(next));
        }
        Ok(items)
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
