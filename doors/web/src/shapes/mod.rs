//! The API's answers as pages read them, each with only the fields that are shown.

mod batch;
mod constraint;
mod done;
mod job;
mod queue;
mod schedule;
mod server;
mod worker;

pub(crate) use batch::{Batch, BatchCancelled, BatchPage};
pub(crate) use constraint::{Bucket, Constraint, ConstraintPage, HeldPage};
pub(crate) use done::{BulkAnswer, Deletion, Purged, Submitted};
pub(crate) use job::{
    Attempt, Before, FlowNode, Job, JobBytes, JobFlow, JobPage, Lease, Output, OutputPiece,
    Progress, Reason, Why,
};
pub(crate) use queue::{Counts, Flow, Queue, QueueName, QueuePage};
pub(crate) use schedule::{Occurrence, Schedule, SchedulePage, ScheduleRun, ScheduledJob};
pub(crate) use server::{AuditEntry, AuditPage, Budget, Server};
pub(crate) use worker::{Jobd, JobdChanged, JobdTarget, JobdWorker, Worker, WorkerPage};
