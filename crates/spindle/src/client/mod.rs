//! The commands for people: they talk to a server through its Workq door; `clock` through HTTP.

mod add;
mod clock;
mod dispatch;
mod inspect;
mod lines;
mod payload;
mod progress;
mod results;
mod server;
mod when;
mod work;

pub use dispatch::run;
