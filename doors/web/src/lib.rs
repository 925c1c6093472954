//! The web pages, on which people see a running server and act on it.
//!
//! Pages are rendered here, on the server, and readable without JavaScript. They are a client of
//! the native API *inside* the process: a page asks the API's own routes ([`ask`]) on behalf of the
//! person who looks at it, so that roles, limits, waits for the disk and the audit log are those of
//! the API, and the code that reads and changes things exists once. No rule of the queue is here,
//! and no read of the engine.
//!
//! A request passes, from the outside in:
//!
//! 1. `face.rs`: turns problems into pages for people, and sets the headers that restrict what a
//!    page can do (a strict content security policy among them).
//! 2. `enter.rs`: finds out who the visitor is, by the session's cookie or a client certificate; it
//!    may be nobody.
//! 3. `needs.rs` with an `Entrance`: whether the visitor may see this page at all.
//! 4. `form.rs`, for requests that change something: no field of a form is read before its token is
//!    checked.
//! 5. `pages/`: asks the API, and renders with `html/` (the flow of a job with `flow/`).
//!
//! Start with `router.rs` (the table of routes). docs/web.md is the page for people.

mod actions;
mod ask;
mod assets;
mod cookie;
mod decode;
mod enter;
mod face;
mod flow;
mod form;
mod html;
mod live;
mod needs;
mod page;
mod pages;
mod past;
mod query;
mod router;
mod sessions;
mod shapes;
mod web;

pub use web::{Options, Pulse, SettingLine, Web};
