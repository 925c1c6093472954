//! Requests that go to all shards at once, and whose answer is one of theirs or joined from all.

use bytes::{Bytes, BytesMut};
use spindle_workq::wire::{Presented, Reply, Request, ServerInfo, Uuid, encode};

use super::lines::Says;
use super::route::{says, waits};
use super::task::Shards;
use crate::Shard;

/// A request about a job that may be on any shard.
///
/// If a shard did what was asked, its answer goes to the client at once. If none did, the answer that says
/// most does: of `-NOT-FOUND`, `-SERVER-ERROR` (it may be there), `-TIMEOUT` and `-CLIENT-ERROR` (it is there)
/// the last; of equal ones, that of the shard with the lowest number.
pub(super) struct Anywhere {
    id: Option<Uuid>,
    pub(super) waits: bool,
    left: usize,
    best: Option<(Weight, Shard, Bytes)>,
}

/// How much an answer says, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    NotFound,
    ServerError,
    Timeout,
    ClientError,
    Done,
}

impl Anywhere {
    pub(super) fn begin(request: &Request, shards: &mut Shards) -> Anywhere {
        let id = if let Says::IsThere(id) = says(request) { Some(id) } else { None };
        let all = shards.placement.shards();
        shards.lines.ask_each(all.clone(), request);
        Anywhere { id, waits: waits(request), left: all.count(), best: None }
    }

    pub(super) fn heard(
        &mut self,
        shard: Shard,
        reply: &Reply,
        whole: Bytes,
        shards: &mut Shards,
    ) -> Option<Bytes> {
        self.left = self.left.saturating_sub(1);
        let weight = Weight::of(reply);
        if weight == Weight::Done {
            if let Some(id) = self.id {
                shards.known.note(id, shard);
            }
            if self.waits {
                // The other shards' answers are not waited for.
                shards.lines.finish_asked();
            }
            return Some(whole);
        }
        let is_better = self.best.as_ref().is_none_or(|(best, of, _)| {
            (weight, std::cmp::Reverse(shard)) > (*best, std::cmp::Reverse(*of))
        });
        if is_better {
            self.best = Some((weight, shard, whole));
        }
        if self.left > 0 { None } else { self.best.take().map(|(_, _, whole)| whole) }
    }
}

impl Weight {
    fn of(reply: &Reply) -> Weight {
        match reply {
            Reply::NotFound => Weight::NotFound,
            Reply::ServerError(_) => Weight::ServerError,
            Reply::Timeout => Weight::Timeout,
            Reply::ClientError(_) => Weight::ClientError,
            _ => Weight::Done,
        }
    }
}

/// `auth`: all shards with an open conversation get the token, or one shard if there is none; the others get it
/// when their conversation begins. The answer is that of the lowest shard that refuses it.
pub(super) struct Login {
    left: usize,
    refusal: Option<(Shard, Bytes)>,
}

impl Login {
    pub(super) fn begin(token: Presented, shards: &mut Shards) -> Login {
        let mut asked = shards.lines.open_shards();
        if asked.is_empty() {
            asked.extend(shards.any_shard());
        }
        let request = Request::Auth { token: token.clone() };
        shards.lines.ask_each(asked.iter().copied(), &request);
        shards.lines.present(token);
        Login { left: asked.len(), refusal: None }
    }

    pub(super) fn heard(&mut self, shard: Shard, reply: &Reply, whole: Bytes) -> Option<Bytes> {
        self.left = self.left.saturating_sub(1);
        let is_first = self.refusal.as_ref().is_none_or(|(of, _)| shard < *of);
        if *reply != Reply::Ok && is_first {
            self.refusal = Some((shard, whole.clone()));
        }
        if self.left > 0 {
            return None;
        }
        Some(self.refusal.take().map_or(whole, |(_, refusal)| refusal))
    }
}

/// `inspect server`: evicted jobs are added up, and the oldest start counts. Clients are the most that one
/// shard has, because a client counts at each shard that it has come to.
pub(super) struct Servers {
    left: usize,
    joined: Option<ServerInfo>,
}

impl Servers {
    pub(super) fn begin(shards: &mut Shards) -> Servers {
        let all = shards.placement.shards();
        shards.lines.ask_each(all.clone(), &Request::InspectServer);
        Servers { left: all.count(), joined: None }
    }

    pub(super) fn heard(&mut self, reply: &Reply, whole: Bytes) -> Option<Bytes> {
        let Reply::Server(info) = reply else { return Some(whole) };
        self.left = self.left.saturating_sub(1);
        let joined = self.joined.map_or(*info, |joined| ServerInfo {
            active_clients: joined.active_clients.max(info.active_clients),
            evicted_jobs: joined.evicted_jobs.saturating_add(info.evicted_jobs),
            started_ms: joined.started_ms.min(info.started_ms),
        });
        self.joined = Some(joined);
        (self.left == 0).then(|| {
            let mut answer = BytesMut::new();
            encode::server(&mut answer, &joined);
            answer.freeze()
        })
    }
}
