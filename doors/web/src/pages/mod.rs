//! The pages, one a file.

pub(crate) mod assets;
pub(crate) mod attempts;
pub(crate) mod audit;
pub(crate) mod bytes;
pub(crate) mod constraint;
pub(crate) mod constraints;
pub(crate) mod fault;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod job_table;
pub(crate) mod jobd;
pub(crate) mod jobs;
pub(crate) mod login;
pub(crate) mod named;
pub(crate) mod output;
pub(crate) mod overview;
pub(crate) mod queue;
pub(crate) mod queues;
pub(crate) mod recent;
pub(crate) mod related;
pub(crate) mod schedule;
pub(crate) mod schedules;
pub(crate) mod server;
pub(crate) mod submit;
pub(crate) mod theme;
pub(crate) mod workers;
