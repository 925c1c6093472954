//! A worker's connection, made anew when the server was away.

use std::time::Duration;

use bytes::Bytes;
use spindle_workq::{
    client::{Client, ClientError},
    wire::{LeasedJob, Uuid},
};

use super::orders::Orders;
use crate::client::server::Server;

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Doubles from a tenth of a second to five seconds.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    /// The first pause comes next.
    pub fn new() -> Self {
        Self(BACKOFF_FIRST)
    }

    /// The next pause.
    pub fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(BACKOFF_MAX);
        pause
    }
}

/// A connection that may have to be made first.
#[derive(Debug)]
pub struct Link<'a> {
    worker: usize,
    server: &'a Server,
    orders: &'a Orders,
    client: Option<Client>,
}

impl<'a> Link<'a> {
    /// No connection yet.
    pub fn new(worker: usize, server: &'a Server, orders: &'a Orders) -> Self {
        Self { worker, server, orders, client: None }
    }

    /// Waits for a job. `Ok(None)` when there is none.
    pub fn lease(
        &mut self,
        queues: &[String],
        wait_timeout_ms: u32,
    ) -> Result<Option<LeasedJob>, ClientError> {
        let stream = self.client()?.stream().try_clone()?;
        if !self.orders.begin_wait(self.worker, stream) {
            return Ok(None);
        }
        let answer = self.ask(|client| client.lease(queues, wait_timeout_ms));
        if self.orders.end_wait(self.worker) {
            self.client = None;
        }
        match answer {
            Err(ClientError::Timeout) => Ok(None),
            // The server answered the half closed connection by closing it.
            Err(ClientError::Io(_)) if self.orders.is_stopped() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Lets a job run for `ttr_ms` from now.
    pub fn extend(&mut self, id: Uuid, ttr_ms: u32) -> Result<(), ClientError> {
        self.ask(|client| client.extend(id, ttr_ms))
    }

    /// Finishes a job.
    pub fn finish(&mut self, id: Uuid, success: bool, result: Bytes) -> Result<(), ClientError> {
        self.ask(
            |client| {
                if success { client.complete(id, result) } else { client.fail(id, result) }
            },
        )
    }

    fn client(&mut self) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.server.try_connect()?,
        };
        Ok(self.client.insert(client))
    }

    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let answer = question(self.client()?);
        if answer.as_ref().is_err_and(|error| !error.is_answer()) {
            self.client = None;
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_maximum() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
