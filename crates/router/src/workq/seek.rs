//! A new job for a queue that is moving between shards.

use std::collections::VecDeque;

use bytes::Bytes;
use spindle_core::rejection::says_other_shard;
use spindle_workq::wire::{Reply, Request};

use super::lines::{Says, Whose};
use super::route::{says, without_wait};
use super::task::{Shards, note};
use crate::Shard;

/// Whether a shard has refused a job because its queue is elsewhere.
pub(super) fn says_elsewhere(reply: &Reply) -> bool {
    matches!(reply, Reply::ClientError(text) if says_other_shard(text))
}

/// Offers a job to one shard after the other. A shard that says that the queue is elsewhere has no job with its
/// UUID; any other reply is the answer.
pub(super) struct Seek {
    request: Request,
    says: Says,
    /// Shards that were not asked.
    left: VecDeque<Shard>,
}

impl Seek {
    pub(super) fn begin(request: Request, queue: &[u8], shards: &mut Shards) -> Seek {
        let left = shards.placement.all_of(queue).into();
        let mut seek = Seek { says: says(&request), request, left };
        seek.ask_next(shards);
        seek
    }

    pub(super) fn heard(
        &mut self,
        shard: Shard,
        reply: &Reply,
        whole: Bytes,
        shards: &mut Shards,
    ) -> Option<Bytes> {
        if says_elsewhere(reply) && self.ask_next(shards) {
            return None;
        }
        note(self.says, shard, reply, &mut shards.known);
        Some(whole)
    }

    pub(super) fn is_run(&self) -> bool {
        matches!(self.request, Request::Run(_))
    }

    /// The client waits no longer: shards asked from now on get the request without a wait.
    pub(super) fn end_wait(&mut self, shards: &mut Shards) {
        self.request = without_wait(self.request.clone());
        if self.is_run() {
            shards.lines.finish_asked();
        }
    }

    fn ask_next(&mut self, shards: &mut Shards) -> bool {
        let next = self.left.pop_front();
        next.iter().for_each(|shard| shards.lines.ask(*shard, &self.request, Whose::Task));
        next.is_some()
    }
}
