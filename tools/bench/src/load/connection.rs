//! One connection of the load: its buffers, and the requests it waits for.

use super::jobs::Jobs;
use super::plan::LoadError;
use super::socket::{Socket, Target};
use super::tally::{Sent, Tally};
use crate::wire::{Answer, Wire};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

const INPUT_BYTES: usize = 16 * 1024;
/// Room that must be free before a read; below it the buffer doubles.
const FREE_BYTES_MIN: usize = 4 * 1024;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It submits.
    Producer,
    /// It leases and finishes.
    Worker,
}

pub(super) struct Connection {
    pub(super) socket: Socket,
    role: Role,
    input: Vec<u8>,
    filled: usize,
    output: Vec<u8>,
    sent: VecDeque<Sent>,
}

impl Connection {
    /// Connects, and points the connection at the jobs' queue.
    pub(super) fn open(target: &Target, jobs: &Jobs, role: Role) -> Result<Self, LoadError> {
        Ok(Self {
            socket: connect(target, jobs, role)?.begin()?,
            role,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            output: Vec::with_capacity(INPUT_BYTES),
            sent: VecDeque::new(),
        })
    }

    /// Reads what came, counts the answers, asks for more and sends it: at most one read and one
    /// write unless there is more than a buffer full.
    pub(super) fn serve(&mut self, tally: &mut Tally<'_>) -> Result<(), LoadError> {
        let open = self.receive()?;
        let now = Instant::now();
        self.count_answers(tally, now)?;
        if !open && !tally.is_done() {
            return Err(LoadError::Closed { outstanding: self.sent.len() });
        }
        self.ask(tally, now)
    }

    /// Sends as many requests as the role and the plan allow.
    pub(super) fn ask(&mut self, tally: &mut Tally<'_>, now: Instant) -> Result<(), LoadError> {
        match self.role {
            Role::Producer => {
                while self.sent.len() < tally.plan.depth
                    && let Some(sent) = tally.producer_request(now, &mut self.output)
                {
                    self.sent.push_back(sent);
                }
            }
            Role::Worker => {
                if self.sent.is_empty() {
                    self.sent.extend(tally.worker_request(now, &mut self.output));
                }
            }
        }
        self.socket.flush()?;
        Ok(flush(&mut self.socket, &mut self.output)?)
    }

    fn count_answers(&mut self, tally: &mut Tally<'_>, now: Instant) -> Result<(), LoadError> {
        let mut at = 0;
        while let Some((answer, used)) = tally.jobs.wire().decode(&self.input[at..self.filled])? {
            let Some(sent) = self.sent.pop_front() else {
                let answer = format!("{answer:?}");
                return Err(LoadError::Refused { request: "nothing at all", answer });
            };
            let next = tally.answered(&sent, &answer, now, &mut self.output)?;
            self.sent.extend(next);
            at += used;
        }
        if at > 0 {
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
        Ok(())
    }

    /// Reads until the socket is empty; false when the server closed it.
    fn receive(&mut self) -> io::Result<bool> {
        loop {
            if self.input.len() - self.filled < FREE_BYTES_MIN {
                self.input.resize(self.input.len() * 2, 0);
            }
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.filled += count;
                    // A read that left room emptied the socket; the next packet is a new event.
                    if self.filled < self.input.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes what the socket takes now, and takes it from the buffer.
pub(crate) fn flush(stream: &mut impl Write, output: &mut Vec<u8>) -> io::Result<()> {
    let mut at = 0;
    while at < output.len() {
        match stream.write(&output[at..]) {
            Ok(count) => at += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.drain(..at);
    Ok(())
}

fn connect(target: &Target, jobs: &Jobs, role: Role) -> Result<Socket, LoadError> {
    let mut socket = Socket::connect(target)?;
    if let Some(token) = &target.token {
        greet(&mut socket, jobs.wire(), format!("auth {token}\r\n").as_bytes())?;
    }
    for greeting in jobs.wire().greetings(jobs.queue(), role == Role::Worker) {
        greet(&mut socket, jobs.wire(), &greeting)?;
    }
    Ok(socket)
}

/// Sends a request on a blocking connection and waits until it is done.
fn greet(socket: &mut Socket, wire: Wire, greeting: &[u8]) -> Result<(), LoadError> {
    socket.write_all(greeting)?;
    let mut input = vec![];
    loop {
        if let Some((answer, _)) = wire.decode(&input)? {
            return match answer {
                Answer::Ok => Ok(()),
                answer => Err(LoadError::Refused {
                    request: "a new connection",
                    answer: format!("{answer:?}"),
                }),
            };
        }
        let mut bytes = [0; 4096];
        match socket.read(&mut bytes)? {
            0 => return Err(LoadError::Closed { outstanding: 1 }),
            count => input.extend_from_slice(&bytes[..count]),
        }
    }
}
