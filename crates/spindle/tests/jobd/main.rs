//! jobd and the server: its queues as a job table, and the master inside it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod leases;
mod manual;
mod master;
mod outage;
mod proxy;
mod server;
mod tls;
mod worker;
