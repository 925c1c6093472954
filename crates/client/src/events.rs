//! What happens on the server, as a stream that goes on over restarts of the server.

use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::client::{Client, encoded};
use crate::error::{CallError, Refusal};
use crate::event_stream::{EventStream, Opened, RawEvent};
use crate::pause::Pauses;

/// Where a stream of events begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Since {
    /// With what happens next.
    #[default]
    Now,
    /// With the oldest event that is kept.
    Oldest,
    /// Behind the event with this id.
    After(String),
}

/// Something that happened.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// Its place in the stream, for [`Since::After`]. Only a `gap` has none.
    #[serde(skip)]
    pub id: Option<String>,
    /// What happened: `submitted`, `leased`, `done` and so on, as the page of the API lists them.
    #[serde(rename = "type")]
    pub kind: String,
    /// The job that it is about, if it is about one.
    pub job: Option<u64>,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Where the stream stands.
struct Following {
    client: Client,
    after: Option<String>,
    open: Option<EventStream>,
    pauses: Pauses,
    /// Whether the server was ever there: then it comes back. A server that never was may be the wrong one.
    was_reached: bool,
    give_up: Instant,
    is_over: bool,
}

impl Client {
    /// Follows what happens on the server, over restarts of the server. The stream ends with an
    /// error only: the server cannot be reached at first, or refuses. Needs the role `read` for all
    /// queues.
    #[must_use]
    pub fn events(&self, since: Since) -> BoxStream<'static, Result<Event, CallError>> {
        let after = match since {
            Since::Now => None,
            Since::Oldest => Some("oldest".to_owned()),
            Since::After(id) => Some(id),
        };
        let following = Following {
            client: self.clone(),
            after,
            open: None,
            pauses: Pauses::new(),
            was_reached: false,
            give_up: Instant::now() + self.retry_for(),
            is_over: false,
        };
        stream::unfold(following, |mut following| async {
            if following.is_over {
                return None;
            }
            let event = following.next().await;
            following.is_over = event.is_err();
            Some((event, following))
        })
        .boxed()
    }
}

impl Following {
    async fn next(&mut self) -> Result<Event, CallError> {
        loop {
            match self.next_raw().await {
                Ok(Some(RawEvent { id, data })) => {
                    (self.was_reached, self.pauses) = (true, Pauses::new());
                    let id = Some(id).filter(|id| !id.is_empty());
                    self.after = id.clone().or(self.after.take());
                    if !data.is_empty() {
                        let event: Event =
                            serde_json::from_str(&data).map_err(CallError::Strange)?;
                        return Ok(Event { id, ..event });
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    let is_late = !self.was_reached && Instant::now() > self.give_up;
                    if is_late || !error.may_pass() {
                        return Err(error);
                    }
                }
            }
            self.open = None;
            sleep(self.pauses.next()).await;
        }
    }

    /// The next event of the connection there is; none at its end.
    async fn next_raw(&mut self) -> Result<Option<RawEvent>, CallError> {
        if self.open.is_none() {
            self.open = Some(self.connect().await?);
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        open.next().await.map_err(|cause| self.client.no_answer(cause))
    }

    async fn connect(&mut self) -> Result<EventStream, CallError> {
        let mut path = "/api/v1/events".to_owned();
        if let Some(after) = &self.after {
            path += &format!("?after={}", encoded(after));
        }
        let token = self.client.authorization();
        let opened = EventStream::open_as(self.client.transport(), token, &path, None).await;
        match opened.map_err(|cause| self.client.no_answer(cause))? {
            Opened::Stream(stream) => Ok(stream),
            Opened::Refused(answer) => Err(Refusal::of(&answer).into()),
        }
    }
}
