//! Kills the real server again and again under load, and checks that everything it acknowledged
//! holds.
//!
//! One [`mode`] is a number of [`cycles`] on one data folder. A cycle starts the server, checks
//! every job there ever was ([`accountant`]), puts the server under load ([`load`]) and kills it at
//! a random moment; in every second cycle it is killed a second time while it is still starting. At
//! the end the server is stopped by SIGTERM under load, started once more, and every job is worked
//! off. The mode with a [`full`] disk and the modes through all [`doors`], one of them with
//! [`chaos`] as well, have cycles of their own. In the mode with a [`cluster`] there are several
//! servers on one log, and every process and the network between them fail.

pub mod accountant;
mod chaos;
pub mod client;
mod cluster;
mod cycles;
mod doors;
mod ending;
mod full;
pub mod job;
pub mod load;
mod mode;
mod papers;
mod run;
pub mod server;

pub use mode::{LogKind, Mode, Options};
pub use run::run;
