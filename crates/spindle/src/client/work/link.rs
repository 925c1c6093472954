//! A worker's session, opened anew when the server was away.

use super::orders::Orders;
use crate::{
    client::{
        Line,
        server::Server,
        session::{AskError, Leased, Report, Session},
    },
    queue_name::QueueName,
};

/// A session that may have to be opened first.
pub struct Link<'a> {
    worker: usize,
    server: &'a Server,
    orders: &'a Orders,
    open: Option<(Box<dyn Session>, Line)>,
}

impl<'a> Link<'a> {
    /// No session yet.
    pub fn new(worker: usize, server: &'a Server, orders: &'a Orders) -> Self {
        Self { worker, server, orders, open: None }
    }

    /// Waits for a job. `Ok(None)` when there is none.
    pub fn lease(
        &mut self,
        queues: &[QueueName],
        wait_ms: u32,
    ) -> Result<Option<Leased>, AskError> {
        let line = self.open()?.1.clone();
        if !self.orders.begin_wait(self.worker, line) {
            return Ok(None);
        }
        let answer = self.ask(|session| session.lease(queues, wait_ms));
        if self.orders.end_wait(self.worker) {
            self.open = None;
        }
        match answer {
            // The server answered the half closed connection by closing it.
            Err(error) if !error.is_answer() && self.orders.is_stopped() => Ok(None),
            Ok(Some(job)) if job.attempt.is_none() => {
                // This worker has the job, and works on it even without the attempt's number.
                let attempt = self.ask(|session| session.attempt(&job)).ok().flatten();
                Ok(Some(Leased { attempt, ..job }))
            }
            other => other,
        }
    }

    /// Lets a job run for `ttr_ms` from now.
    pub fn extend(&mut self, job: &Leased, ttr_ms: u32) -> Result<(), AskError> {
        self.ask(|session| session.extend(job, ttr_ms))
    }

    /// Finishes a job.
    pub fn finish(&mut self, job: &Leased, report: &Report) -> Result<(), AskError> {
        self.ask(|session| session.finish(job, report))
    }

    fn open(&mut self) -> Result<&mut (Box<dyn Session>, Line), AskError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let line = Line::default();
                (self.server.try_open(&line)?, line)
            }
        };
        Ok(self.open.insert(open))
    }

    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut dyn Session) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        let answer = question(&mut *self.open()?.0);
        if answer.as_ref().is_err_and(|error| !error.is_answer()) {
            self.open = None;
        }
        answer
    }
}
