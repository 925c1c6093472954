//! `inspect queues`: a page of one list that is spread over all shards.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use spindle_workq::wire::{QueueInfo, Reply, Request, encode};

use super::lines::Whose;
use super::task::Shards;
use crate::Shard;

/// How much of each shard's list stands before a place of the whole list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// How many queues stand before it.
    offset: u64,
    /// How many of them are of this shard.
    passed: BTreeMap<Shard, u64>,
}

/// Lists queues in the order of their names.
///
/// To skip queues, it asks each shard for the queue that stands a *stride* further on in that shard's list.
/// At the shard whose queue has the lowest name, all up to that queue are skipped: at most a stride of each
/// shard comes before it. So skipping many takes few questions, and none if the list goes on where the last
/// one ended.
pub(super) struct Listing {
    limit: u32,
    at: Position,
    /// How many queues are to be skipped.
    skip: u64,
    /// None: this is the page itself.
    stride: Option<u64>,
    left: usize,
    heard: BTreeMap<Shard, Vec<QueueInfo>>,
}

impl Listing {
    pub(super) fn begin(cursor_offset: u32, limit: u32, shards: &mut Shards) -> Listing {
        let goes_on = |at: &Position| at.offset == u64::from(cursor_offset);
        let at = shards.listed.take().filter(goes_on).unwrap_or_else(|| {
            let passed = shards.placement.shards().map(|shard| (shard, 0)).collect();
            Position { offset: 0, passed }
        });
        let skip = u64::from(cursor_offset) - at.offset;
        let heard = BTreeMap::new();
        let mut listing = Listing { limit, at, skip, stride: None, left: 0, heard };
        listing.ask(shards);
        listing
    }

    pub(super) fn heard(
        &mut self,
        shard: Shard,
        reply: Reply,
        whole: Bytes,
        shards: &mut Shards,
    ) -> Option<Bytes> {
        // A client that may not list queues gets the reason.
        let Reply::Queues(queues) = reply else { return Some(whole) };
        self.heard.insert(shard, queues);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return None;
        }
        match self.stride {
            None => Some(self.page(shards)),
            Some(stride) => {
                if !self.pass_over(stride) {
                    // No shard has its share left: the whole list is shorter.
                    return Some(written(&[]));
                }
                self.ask(shards);
                None
            }
        }
    }

    /// Asks all shards for what comes next.
    fn ask(&mut self, shards: &mut Shards) {
        let count = self.at.passed.len() as u64;
        let even = (self.skip / count.max(1)).max(1);
        self.stride = (self.skip > 0).then_some(even);
        self.heard.clear();
        self.left = self.at.passed.len();
        for (shard, passed) in &self.at.passed {
            let (ahead, limit) = self.stride.map_or((0, self.limit), |stride| (stride - 1, 1));
            let cursor_offset = u32::try_from(passed + ahead).unwrap_or(u32::MAX);
            let request = Request::InspectQueues { cursor_offset, limit };
            shards.lines.ask(*shard, &request, Whose::Task);
        }
    }

    /// Skips a stride of one shard. Returns false if no shard has so many.
    fn pass_over(&mut self, stride: u64) -> bool {
        let first = |(shard, queues): (&Shard, &Vec<QueueInfo>)| {
            queues.first().map(|queue| (queue.name.clone(), *shard))
        };
        let Some((_, lowest)) = self.heard.iter().filter_map(first).min() else { return false };
        *self.at.passed.entry(lowest).or_default() += stride;
        self.at.offset += stride;
        self.skip -= stride;
        true
    }

    /// Joins the shards' answers to a page.
    fn page(&mut self, shards: &mut Shards) -> Bytes {
        let heard = std::mem::take(&mut self.heard);
        let of_each = heard
            .into_iter()
            .flat_map(|(shard, queues)| queues.into_iter().map(move |queue| (queue, shard)));
        let mut all: Vec<(QueueInfo, Shard)> = of_each.collect();
        all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        all.truncate(self.limit as usize);
        for (_, shard) in &all {
            *self.at.passed.entry(*shard).or_default() += 1;
        }
        self.at.offset += all.len() as u64;
        shards.listed = Some(self.at.clone());
        let queues: Vec<QueueInfo> = all.into_iter().map(|(queue, _)| queue).collect();
        written(&queues)
    }
}

fn written(queues: &[QueueInfo]) -> Bytes {
    let mut answer = BytesMut::new();
    encode::count(&mut answer, queues.len());
    for queue in queues {
        encode::queue(&mut answer, queue);
    }
    answer.freeze()
}
