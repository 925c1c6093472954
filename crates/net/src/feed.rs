//! Gives the session its input, a share at a time.
//!
//! The input that came while a session waited may be megabytes of small requests. Processed in one go,
//! they would keep all other connections of the reactor waiting. So the session gets
//! [`FEED_BYTES_MAX`] of it at a time, in turn with the input of others.

use spindle_engine::door::Flow;

use crate::connection::{Connection, OpenSession, Stage, TurnBuffers};
use crate::held::own_rest;

/// The most bytes that a session is given at a time and has not looked at.
pub(crate) const FEED_BYTES_MAX: usize = 64 * 1024;

impl Connection {
    /// Gives the session what was just read, `count` bytes, or keeps it while the session waits.
    pub(crate) fn give(&mut self, count: usize, buffers: &mut TurnBuffers) {
        let is_kept = self.stage == Stage::Waiting || self.held_back || self.has_rest();
        if is_kept || !self.input.is_empty() {
            // The scratch buffer is empty if the bytes were read straight behind the input.
            self.input.extend_from_slice(&buffers.scratch);
            self.unseen += count;
            if self.stage == Stage::Reading && !is_kept {
                self.feed_kept();
            }
        } else if let Some(OpenSession { session, .. }) = &mut self.session {
            let flow = session.on_bytes(&mut buffers.scratch, &mut self.out);
            self.held.in_hand = count.saturating_sub(buffers.scratch.len());
            self.input.extend_from_slice(&buffers.scratch);
            self.note_seen(flow, 0);
        }
    }

    /// Whether the session can go on with what is kept, in its turn.
    pub(crate) fn has_rest(&self) -> bool {
        self.stage == Stage::Reading && !self.held_back && self.unseen > 0
    }

    /// Whether the client's input has ended and the session has seen all of it but one share at most.
    pub(crate) fn is_at_end(&self) -> bool {
        self.input_ended && self.unseen <= FEED_BYTES_MAX
    }

    /// Goes on with requests that were left, because it was not the session's turn, or because the
    /// client had too much to read.
    pub(crate) fn go_on(&mut self, buffers: &TurnBuffers) {
        self.feed_kept();
        if self.input_ended && self.stage == Stage::Reading && !self.held_back && !self.has_rest() {
            self.end_input(buffers);
        }
    }

    /// Gives the session some of what is kept.
    fn feed_kept(&mut self) {
        let Some(OpenSession { session, .. }) = &mut self.session else { return };
        let rest = self.unseen.saturating_sub(FEED_BYTES_MAX).min(self.input.len());
        let behind = (rest > 0).then(|| self.input.split_off(self.input.len() - rest));
        let given = self.input.len();
        let flow = session.on_bytes(&mut self.input, &mut self.out);
        self.held.in_hand = given.saturating_sub(self.input.len());
        match behind {
            Some(behind) => self.input.unsplit(behind),
            None => own_rest(&mut self.input, self.held.in_hand),
        }
        self.note_seen(flow, rest);
    }

    /// After the session has seen everything but the last `rest` bytes, or as much as it wanted.
    fn note_seen(&mut self, flow: Flow, rest: usize) {
        self.apply(flow);
        let has_seen = self.stage == Stage::Reading && !self.held_back;
        self.unseen = if has_seen { rest } else { self.input.len() };
    }

    /// After an answer: few bytes are worked on at once, many in turn.
    pub(crate) fn feed_or_hold(&mut self, buffers: &TurnBuffers) {
        self.held_back = self.out.pending_bytes() > buffers.outbox_bytes_max;
        if self.has_rest() && self.unseen <= FEED_AT_ONCE_BYTES_MAX {
            self.feed_kept();
        }
    }

    pub(crate) fn end_input(&mut self, buffers: &TurnBuffers) {
        self.input_ended = true;
        self.note_failed_handshake(buffers);
        if self.stage == Stage::Reading && (self.held_back || self.has_rest()) {
            // The rest has whole requests, which come first.
            return;
        }
        match (self.stage, &mut self.session) {
            (Stage::Reading | Stage::Waiting, Some(OpenSession { session, .. })) => {
                let flow = session.on_end_of_input(&mut self.input, &mut self.out);
                // Whole requests may be left because the outbox was full: they are given again when
                // it is empty.
                let is_over = self.input.is_empty() || !self.is_holding_back();
                self.apply(if flow == Flow::Continue && is_over { Flow::Close } else { flow });
                self.unseen = self.input.len();
            }
            _ => self.stage = Stage::Dead,
        }
    }
}

/// A connection that has received no more than this while its session waited goes on at once.
const FEED_AT_ONCE_BYTES_MAX: usize = 1024;
