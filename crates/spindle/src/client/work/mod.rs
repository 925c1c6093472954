//! `spindle work`: runs a command once for each job.
//!
//! - `crew`: starts the workers, ends them, sums up
//! - `orders`: what the workers share: whether to go on, who waits, what runs
//! - `worker`: one worker: takes a job, has it run, delivers the result
//! - `link`: its session, opened anew when the server was away
//! - `process`: the command for one job

mod crew;
mod link;
mod orders;
mod process;
mod worker;

pub use crew::work;
