//! The web pages: what a person sees of a running server, and what they may do to it.
//!
//! Pages are rendered here, on the server, and readable without JavaScript. They are a client of the
//! native API *inside* the process: a page asks the API's own routes ([`ask`]) on behalf of whoever
//! looks at it, so that roles, limits, what waits for the disk and the audit log are those of the API,
//! and there is one piece of code that reads and one that changes. No rule of the queue is here, and
//! no read of the engine.
//!
//! A request passes, from the outside in:
//!
//! 1. `face.rs`: turns problems into pages for people who see pages, and sets the headers that keep
//!    a page from doing what it should not (a strict content security policy among them).
//! 2. `enter.rs`: who it is, by the session's cookie, a client certificate, or nobody.
//! 3. `needs.rs` with an `Entrance`: whether they may see this page at all.
//! 4. `form.rs`, for what changes something: no field of a form is read before its token is checked.
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
