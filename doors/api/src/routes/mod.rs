//! The handlers, by what they are about.

#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod activity;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod batches;
pub(crate) mod bulk;
pub(crate) mod clock;
pub(crate) mod cluster;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod constraints;
pub(crate) mod docs;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod events;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod failures;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod flows;
pub(crate) mod health;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod history;
pub(crate) mod jobd;
pub(crate) mod jobs;
pub(crate) mod lease_batch;
pub(crate) mod leases;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod list;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod moves;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod queues;
pub(crate) mod reports;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod schedules;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod submit;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod transfer;
pub(crate) mod wait;
pub(crate) mod why;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod workers;
