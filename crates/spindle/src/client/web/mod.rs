//! A session through the HTTP door: the native API.
//!
//! - `base`: the URL of a server
//! - `dial`: connections that can be hung up while a request waits
//! - `http`: requests and answers
//! - `trouble`: what goes wrong with them: problems, other servers, TLS
//! - `session`: what commands ask, as requests
//! - `events`: the stream of events

mod base;
mod dial;
mod events;
mod http;
mod session;
mod trouble;

pub use self::{
    base::BaseUrl,
    events::{Event, EventStream},
    http::{ApiRequest, Http, encoded},
    session::{PayloadFields, WebSession, payload_fields},
};
