//! The draft on the Gearman port, over sockets, with a small client of its own.
//!
//! - `client`: a server, and the client
//! - `conversation`: an application and two workers through a whole story
//! - `rules`: what `docs/gearman.md` says where the draft is silent, one by one
//! - `gates`: which answers wait for the log
//! - `page`: the conversation of `docs/gearman.md`

mod client;
mod conversation;
mod gates;
mod page;
mod rules;
