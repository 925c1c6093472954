//! A session through the HTTP door: the native API, spoken to by the client library.
//!
//! - `http`: requests and answers, which commands wait for
//! - `trouble`: what goes wrong with them: problems, other servers, TLS
//! - `session`: what commands ask, as requests

mod http;
mod session;
mod trouble;

pub use self::{
    http::{EventStream, Http},
    session::{PayloadFields, WebSession, payload_fields},
};
pub use spindle_client::{BaseUrl, RawEvent as Event, Request as ApiRequest, encoded};
