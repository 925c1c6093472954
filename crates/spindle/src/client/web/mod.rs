//! A session through the HTTP door: the native API.
//!
//! - `dial`: connections that can be hung up while a request waits
//! - `http`: requests, answers, problems
//! - `session`: what commands ask, as requests
//! - `events`: the stream of events

mod dial;
mod events;
mod http;
mod session;

pub use self::{
    events::{Event, EventStream},
    http::{Asking, Http, authority},
    session::{Told, WebSession, encoded, told},
};
