//! `spindle work`: runs a command once for each job.
//!
//! - `crew`: starts the workers, ends them, sums up
//! - `orders`: what the workers share: whether to go on, who waits, what runs
//! - `worker`: one worker: takes a job, has it run, delivers the result
//! - `link`: its session, opened anew when the server was away; `outage` tells people of that
//! - `heartbeat`: extends the lease, and notices when the job is lost
//! - `process`: the command for one job, `output` what it prints
//! - `report`: what became of a job

mod crew;
mod heartbeat;
mod link;
mod orders;
mod outage;
mod output;
mod process;
mod report;
mod worker;

pub use crew::work;
