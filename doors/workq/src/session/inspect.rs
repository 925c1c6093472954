//! Requests that only look: `inspect` with jobs, queues and the server.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use spindle_core::state::QueueListing;
use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, Outbox};

use super::WorkqSession;
use crate::refusal::server_error;
use crate::show;
use crate::wire::{self, Request, Uuid, encode};

/// Payloads that `inspect jobs` shows in one answer: fewer jobs are shown when they are larger.
const SHOWN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Queues that `inspect queues` looks at in one call of the engine.
const QUEUES_PER_CALL: usize = 1_000;

impl WorkqSession {
    /// Answers a request that only looks.
    pub(super) fn inspect(&mut self, request: &Request, out: &mut Outbox) {
        match request {
            Request::InspectJob { id } => self.inspect_job(*id, out),
            Request::InspectJobs { name, cursor_offset, limit } => {
                let (skip, limit) = (*cursor_offset as usize, *limit as usize);
                let jobs = out.open(self.engine.queues().ready_jobs(name, skip, limit));
                self.show_jobs(jobs, out);
            }
            Request::InspectScheduledJobs { name, cursor_offset, limit } => {
                let (skip, limit) = (*cursor_offset as usize, *limit as usize);
                let jobs = out.open(self.engine.queues().scheduled_jobs(name, skip, limit));
                self.show_jobs(jobs, out);
            }
            Request::InspectQueue { name } => match out.open(self.engine.queues().get(name)) {
                Some(queue) => out.put(|out| {
                    encode::count(out, 1);
                    encode::queue(out, &show::queue_info(&queue));
                }),
                None => out.put(encode::not_found),
            },
            Request::InspectQueues { cursor_offset, limit } => {
                let (skip, limit) = (*cursor_offset as usize, *limit as usize);
                let queues = self.queues(skip, limit, out);
                out.put(|out| {
                    encode::count(out, queues.len());
                    for queue in &queues {
                        encode::queue(out, &show::queue_info(queue));
                    }
                });
            }
            Request::InspectServer => self.inspect_server(out),
            _ => {}
        }
    }

    /// Queues whose names this protocol can say, after passing over some.
    fn queues(&self, skip: usize, limit: usize, out: &mut Outbox) -> Vec<QueueListing> {
        let mut after: Option<Bytes> = None;
        let pages = std::iter::from_fn(|| {
            let page = out.open(self.engine.queues().list(after.as_deref(), QUEUES_PER_CALL));
            after = Some(page.last()?.name.clone());
            Some(page)
        });
        let named = pages.flatten().filter(|queue| wire::is_name(&queue.name));
        named.skip(skip).take(limit).collect()
    }

    fn inspect_job(&mut self, id: Uuid, out: &mut Outbox) {
        let Some(job) = show::job_ref(id) else { return out.put(encode::not_found) };
        let image = match self.engine.jobs().get(job) {
            Ok(image) => out.open(image),
            Err(error) => return server_error(out, &error.to_string()),
        };
        match image.map(|image| self.shown(&image)) {
            Some(Ok(job)) => out.put(|out| {
                encode::count(out, 1);
                encode::job(out, &job);
            }),
            Some(Err(error)) => server_error(out, &error.to_string()),
            None => out.put(encode::not_found),
        }
    }

    fn shown(&self, image: &JobImage) -> Result<wire::JobInfo, FetchError> {
        let payload = match &image.payload {
            Some(place) => self.engine.jobs().payload(JobId(image.id), place)?,
            None => Bytes::new(),
        };
        Ok(show::job_info(image, payload))
    }

    fn show_jobs(&mut self, jobs: Option<Vec<JobImage>>, out: &mut Outbox) {
        let Some(jobs) = jobs else { return out.put(encode::not_found) };
        let mut shown = Vec::new();
        let mut bytes = 0;
        for image in jobs.iter().filter(|image| wire::is_name(&image.queue)) {
            // A job that went meanwhile, or whose payload is damaged, is left out.
            if let Ok(job) = self.shown(image) {
                bytes += job.payload.len();
                shown.push(job);
            }
            if bytes > SHOWN_BYTES_MAX {
                break;
            }
        }
        out.put(|out| {
            encode::count(out, shown.len());
            for job in &shown {
                encode::job(out, job);
            }
        });
    }

    fn inspect_server(&self, out: &mut Outbox) {
        let info = wire::ServerInfo {
            active_clients: self.common.clients.load(Ordering::Relaxed),
            evicted_jobs: self.engine.observe().stats().expired_unfinished,
            started_ms: self.common.started_ms,
        };
        out.put(|out| encode::server(out, &info));
    }
}
