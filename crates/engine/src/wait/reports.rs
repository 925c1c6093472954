//! What holders of live leases reported: progress, and pieces of results. Never logged.

use std::collections::HashMap;

use bytes::Bytes;
use spindle_core::JobId;

use crate::answer::News;

/// How far the holder of a lease says it is: two texts, which usually are numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// How much is done.
    pub numerator: Bytes,
    /// Of how much.
    pub denominator: Bytes,
    /// How long it will take; 0 if that was not said.
    pub remaining_s: u32,
}

/// What holders of live leases reported.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    by_job: HashMap<JobId, Report>,
    /// Bytes of pieces of results in all of them.
    data_bytes: usize,
}

/// What the holder of one job's lease reported.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub numerator: Bytes,
    pub denominator: Bytes,
    pub remaining_s: u32,
    /// Pieces of the result, in order.
    data: Vec<Bytes>,
    data_bytes: usize,
    /// A piece was not kept for want of room: none after it is.
    cut: bool,
    /// How many bytes at the start of the result that is being logged watchers already have.
    streamed_bytes: u32,
}

impl Reports {
    /// The last report of a job.
    pub fn of(&self, job: JobId) -> Option<&Report> {
        self.by_job.get(&job)
    }

    /// How far the holder of a job's lease says it is, if it has said that.
    pub fn progress(&self, job: JobId) -> Option<Progress> {
        let Report { numerator, denominator, remaining_s, .. } = self.of(job)?;
        let is_said = !numerator.is_empty() || !denominator.is_empty();
        is_said.then(|| Progress {
            numerator: numerator.clone(),
            denominator: denominator.clone(),
            remaining_s: *remaining_s,
        })
    }

    /// Keeps what is reported of a job, as far as there is room for it: `job_max` bytes of pieces
    /// for a job, `all_max` for all of them.
    pub fn add(&mut self, job: JobId, news: &News, job_max: usize, all_max: usize) {
        match news {
            News::Progress { numerator, denominator, remaining_s } => {
                let report = self.by_job.entry(job).or_default();
                report.numerator = Bytes::copy_from_slice(numerator);
                report.denominator = Bytes::copy_from_slice(denominator);
                report.remaining_s = *remaining_s;
            }
            News::Data(piece) => self.add_data(job, piece, job_max, all_max),
            News::Warning(_) => {}
        }
    }

    fn add_data(&mut self, job: JobId, piece: &Bytes, job_max: usize, all_max: usize) {
        let report = self.by_job.entry(job).or_default();
        report.cut |= report.data_bytes + piece.len() > job_max;
        report.cut |= self.data_bytes + piece.len() > all_max;
        if report.cut {
            return;
        }
        // A copy: the piece may be a small part of a large read.
        report.data.push(Bytes::copy_from_slice(piece));
        report.data_bytes += piece.len();
        self.data_bytes += piece.len();
    }

    /// The pieces of a job's result so far. The result that is logged next begins with them.
    pub fn pieces(&self, job: JobId) -> Vec<Bytes> {
        self.by_job.get(&job).map(|report| report.data.clone()).unwrap_or_default()
    }

    /// Notes how many bytes at the start of the result that is being logged watchers already have.
    pub fn note_streamed(&mut self, job: JobId, bytes: usize) {
        if let Some(report) = self.by_job.get_mut(&job) {
            report.streamed_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// The lease has ended, and what its holder reported counts no more. Returns how much of the
    /// result watchers know.
    pub fn forget(&mut self, job: JobId) -> u32 {
        // Most jobs are never reported of: then this is all it costs.
        if self.by_job.is_empty() {
            return 0;
        }
        let Some(report) = self.by_job.remove(&job) else { return 0 };
        self.data_bytes -= report.data_bytes;
        report.streamed_bytes
    }
}
