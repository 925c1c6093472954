//! How a connection begins: telling by the first byte how the client speaks, and the handshake of TLS.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_engine::door::{Peer, Unread};
use spindle_tls::{FirstByte, Handshakes, Speaks};
use tracing::debug;

use crate::connection::{Connection, OpenSession, Stage, TurnBuffers};
use crate::reactor::DoorEntry;
use crate::tls::Tls;

impl Connection {
    /// It is known how the client speaks.
    pub(crate) fn open_session(&mut self, buffers: &TurnBuffers) {
        let entry = &buffers.shared.doors[self.door];
        let peer = self.known.take().unwrap_or_else(|| {
            let tls = self.transport.tls();
            let certificate = tls.and_then(Tls::certificate_name);
            Peer { address: self.peer, encrypted: tls.is_some(), certificate, page_of: None }
        });
        entry.connections.fetch_add(1, Ordering::Relaxed);
        self.session = Some(OpenSession {
            session: entry.door.open(self.id, &peer, &buffers.mailbox),
            connections: Arc::clone(&entry.connections),
        });
        self.stage = Stage::Reading;
    }

    /// Finds out by its first byte how the client speaks, if that is not known.
    pub(crate) fn decide(&mut self, buffers: &TurnBuffers) {
        if self.stage != Stage::Opening || !self.transport.is_undecided() {
            return;
        }
        let mut seen = [0; FIRST_BYTES];
        let first = match self.transport.peek(&mut seen) {
            Ok(first) => first,
            Err(error) if is_passing(&error) => return,
            Err(_) => return self.kill(),
        };
        // No byte means that the client has ended.
        let Some(byte) = first.first() else {
            self.stage = Stage::Closing;
            return;
        };
        self.has_sent = true;
        self.last_read_at = buffers.now;
        let DoorEntry { door, tls, .. } = &buffers.shared.doors[self.door];
        match tls.judge(*byte) {
            FirstByte::Plain => {
                self.transport.go_plain();
                self.open_session(buffers);
            }
            FirstByte::Refused => {
                self.transport.go_plain();
                self.out.put(|bytes| door.refuse(Unread::Plain, first, bytes));
                self.stage = Stage::Closing;
            }
            FirstByte::Handshake(tls) => {
                let config = tls.config(Speaks::Lines);
                if let Err(error) = self.transport.begin_handshake(config) {
                    self.fail(&error, buffers);
                    self.kill();
                }
            }
        }
    }

    /// Whether its next read is a step of a handshake.
    pub(crate) fn is_shaking(&self) -> bool {
        self.stage == Stage::Opening && self.transport.is_shaking()
    }

    /// The session is opened when the handshake is done.
    pub(crate) fn end_handshake(&mut self, buffers: &TurnBuffers) {
        let is_done = !self.transport.is_shaking() && !self.transport.has_failed();
        if self.stage == Stage::Opening && is_done {
            self.open_session(buffers);
            self.count_handshake(buffers, |counts| &counts.done);
        }
    }

    /// The client has sent what no client of TLS sends: it gets an alert, and nothing else.
    pub(crate) fn fail(&mut self, error: &rustls::Error, buffers: &TurnBuffers) {
        let DoorEntry { door, .. } = &buffers.shared.doors[self.door];
        let (door, peer) = (door.name(), self.peer);
        debug!(door, connection = self.id.0, %peer, "a client's TLS fails: {error}");
        self.note_failed_handshake(buffers);
        if self.stage != Stage::Dead {
            self.stage = Stage::Closing;
        }
    }

    /// Counts it if the connection ends before its handshake does.
    pub(crate) fn note_failed_handshake(&self, buffers: &TurnBuffers) {
        if self.stage == Stage::Opening && self.has_sent {
            self.count_handshake(buffers, |counts| &counts.failed);
        }
    }

    fn count_handshake(&self, buffers: &TurnBuffers, which: fn(&Handshakes) -> &AtomicU64) {
        if let Some(tls) = buffers.shared.doors[self.door].tls.server() {
            which(tls.handshakes()).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether an error of a socket is a passing one.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// As many of a client's first bytes as are needed to see how it speaks.
const FIRST_BYTES: usize = 16;
