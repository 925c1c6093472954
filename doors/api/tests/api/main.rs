//! The HTTP API over an engine in memory, route by route.

#[cfg(test)]
mod access;
#[cfg(test)]
mod activity;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod batch;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod bulk;
#[cfg(test)]
mod constraints;
#[cfg(test)]
mod constraints_page;
#[cfg(test)]
mod ended;
#[cfg(test)]
mod events;
#[cfg(test)]
mod fairness;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod history;
#[cfg(test)]
mod jobd;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod large;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod listener;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod many_leases;
#[cfg(test)]
mod numbers;
#[cfg(test)]
mod packed;
#[cfg(test)]
mod page;
#[cfg(test)]
mod queues;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod server;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod tries;
#[cfg(test)]
mod undo;
#[cfg(test)]
mod wait;
#[cfg(test)]
mod why;
#[cfg(test)]
mod workers;
