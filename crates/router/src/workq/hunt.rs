//! `lease` of queues that are on several shards.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spindle_workq::wire::{Reply, Request, Uuid};

use super::lines::Whose;
use super::task::Shards;
use crate::{Placement, Shard};

const TIMEOUT: Bytes = Bytes::from_static(b"-TIMEOUT\r\n");

/// Looks for one job on several shards.
///
/// First it asks one shard after the other, beginning with a random one: a shard that has a job at once gives
/// the answer. Then it waits at all of them for an offer. The first offer is taken, and the client hears of it
/// once that is certain; all other offers are declined.
pub(super) struct Hunt {
    /// The shards and their queues, in the order in which they are asked.
    queues: Vec<(Shard, Vec<Bytes>)>,
    /// The end of the wait. None: too late to be expressed.
    until: Option<Instant>,
    stage: Stage,
}

enum Stage {
    /// The shard of this number is asked what it has now.
    Asking(usize),
    /// All shards owe an offer.
    Waiting,
    /// The offer is being taken.
    Taking { id: Uuid, offer: Bytes },
}

impl Hunt {
    pub(super) fn begin(names: &[Bytes], wait_timeout_ms: u32, shards: &mut Shards) -> Hunt {
        let mut by_shard: BTreeMap<Shard, Vec<Bytes>> = BTreeMap::new();
        for name in names {
            for shard in shards.placement.all_of(name) {
                by_shard.entry(shard).or_default().push(name.clone());
            }
        }
        let mut queues: Vec<_> = by_shard.into_iter().collect();
        let count = queues.len();
        queues.rotate_left(shards.draw(count));
        let until = Instant::now().checked_add(Duration::from_millis(wait_timeout_ms.into()));
        let mut hunt = Hunt { queues, until, stage: Stage::Asking(0) };
        hunt.ask(0, shards);
        hunt
    }

    pub(super) fn heard(
        &mut self,
        shard: Shard,
        reply: &Reply,
        whole: Bytes,
        shards: &mut Shards,
    ) -> Option<Bytes> {
        match (&self.stage, reply) {
            (Stage::Asking(_), Reply::Lease(job)) => {
                shards.known.note(job.id, shard);
                Some(whole)
            }
            (Stage::Asking(at), Reply::Timeout) => {
                let next = at + 1;
                if next < self.queues.len() {
                    self.ask(next, shards);
                    None
                } else {
                    self.wait(shards)
                }
            }
            (Stage::Waiting, Reply::Lease(job)) => {
                pass_others(shards);
                shards.lines.ask(shard, &Request::Take { id: job.id }, Whose::Task);
                self.stage = Stage::Taking { id: job.id, offer: whole };
                None
            }
            // All shards time out together, except those that stop or may not wait: then the client is to
            // ask again.
            (Stage::Waiting, _) => {
                pass_others(shards);
                Some(whole)
            }
            (Stage::Taking { id, offer }, Reply::Ok) => {
                shards.known.note(*id, shard);
                Some(offer.clone())
            }
            (Stage::Taking { .. }, _) => {
                // The job is gone: perhaps there is another one.
                self.ask(0, shards);
                None
            }
            (Stage::Asking(_), _) => Some(whole),
        }
    }

    pub(super) fn end_wait(&mut self, shards: &mut Shards) -> Option<Bytes> {
        // Asking and taking end by themselves.
        if !matches!(self.stage, Stage::Waiting) {
            return None;
        }
        pass_others(shards);
        Some(TIMEOUT)
    }

    /// Whether one of its queues now has a shard that is not asked.
    pub(super) fn waits_elsewhere(&self, placement: &Placement) -> bool {
        let is_asked = |shard: Shard, queue: &Bytes| {
            self.queues.iter().any(|(asked, names)| *asked == shard && names.contains(queue))
        };
        let mut queues = self.queues.iter().flat_map(|(_, names)| names);
        queues.any(|queue| placement.all_of(queue).iter().any(|shard| !is_asked(*shard, queue)))
    }

    /// Asks one shard what it has now.
    fn ask(&mut self, at: usize, shards: &mut Shards) {
        self.stage = Stage::Asking(at);
        if let Some((shard, names)) = self.queues.get(at) {
            let request = Request::Lease { names: names.clone(), wait_timeout_ms: 0 };
            shards.lines.ask(*shard, &request, Whose::Task);
        }
    }

    /// Waits at all shards, unless the client does not.
    fn wait(&mut self, shards: &mut Shards) -> Option<Bytes> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left_ms = left.map_or(u128::MAX, |left| left.as_micros().div_ceil(1000));
        let wait_timeout_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
        if wait_timeout_ms == 0 || shards.ended {
            return Some(TIMEOUT);
        }
        self.stage = Stage::Waiting;
        for (shard, names) in &self.queues {
            let request = Request::Offer { names: names.clone(), wait_timeout_ms };
            shards.lines.ask(*shard, &request, Whose::Task);
        }
        None
    }
}

/// Ends the wait at the shards that have not replied, and declines what they offer.
fn pass_others(shards: &mut Shards) {
    for shard in shards.lines.abandon() {
        shards.lines.ask(shard, &Request::Pass, Whose::Nobody);
    }
}
