//! The handlers, by what they are about.

pub(crate) mod clock;
pub(crate) mod docs;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod leases;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod list;
#[expect(unused_qualifications, reason = "in what utoipa's macro writes")]
pub(crate) mod queues;
pub(crate) mod why;
