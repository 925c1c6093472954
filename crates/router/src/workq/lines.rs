//! The conversations with shards: requests out, replies in.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use spindle_workq::wire::{Presented, Reply, ReplyKind, Request, Uuid, decode_whole_reply};

use crate::{Came, Shard, Way, Ways};

/// For whom a reply is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// It is the answer at this place; with what it says of the job.
    Place(u64, Says),
    /// It is for the request that is alone.
    Task,
    /// It answers nothing that the client asks for.
    Nobody,
}

/// What a reply says of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Says {
    Nothing,
    /// Whether the job was added.
    IsNew(Uuid),
    /// Whether the job is there.
    IsThere(Uuid),
}

/// What has come.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// A reply, and its bytes.
    Reply { shard: Shard, whose: Whose, reply: Reply, whole: Bytes },
    /// A conversation has ended; nothing was owed.
    Ended,
    /// A conversation has ended, or makes no sense, and something was owed.
    Lost,
}

/// A reply that has not come.
struct Owed {
    whose: Whose,
    kind: ReplyKind,
}

/// The conversation with one shard.
#[derive(Default)]
struct Line {
    /// Requests that are sent together.
    unsent: BytesMut,
    /// Bytes of replies that have come.
    input: BytesMut,
    owed: VecDeque<Owed>,
    /// Nothing more can be sent before the conversation has ended and begun again.
    is_finished: bool,
}

/// A session's conversations.
pub(super) struct Lines {
    ways: Box<dyn Ways>,
    open: BTreeMap<Shard, Line>,
    /// The token that was presented last, known or not: each conversation begins with it.
    presented: Option<Presented>,
    /// How many bytes all `unsent` have together.
    unsent_bytes: usize,
    /// The line that may have another whole reply in its input.
    heard: Option<Shard>,
}

impl Lines {
    pub(super) fn new(ways: Box<dyn Ways>) -> Lines {
        let open = BTreeMap::new();
        Lines { ways, open, presented: None, unsent_bytes: 0, heard: None }
    }

    /// Asks a shard, once [`Lines::flush`] is called.
    pub(super) fn ask(&mut self, shard: Shard, request: &Request, whose: Whose) {
        let line = open_line(&mut self.open, &mut self.unsent_bytes, &self.presented, shard);
        write(line, &mut self.unsent_bytes, request);
        line.owed.push_back(Owed { whose, kind: ReplyKind::of(request) });
    }

    /// Asks several shards the same, which may be large, for the request that is alone.
    pub(super) fn ask_each(&mut self, shards: impl Iterator<Item = Shard>, request: &Request) {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        let bytes = bytes.freeze();
        for shard in shards {
            let line = open_line(&mut self.open, &mut self.unsent_bytes, &self.presented, shard);
            line.owed.push_back(Owed { whose: Whose::Task, kind: ReplyKind::of(request) });
            self.flush();
            self.ways.send(Way::to(shard), bytes.clone());
        }
    }

    /// From now on, conversations begin with this token.
    pub(super) fn present(&mut self, token: Presented) {
        self.presented = Some(token);
    }

    /// Shards that are being talked with.
    pub(super) fn open_shards(&self) -> Vec<Shard> {
        self.open.keys().copied().collect()
    }

    /// Sends what was asked.
    pub(super) fn flush(&mut self) {
        if self.unsent_bytes == 0 {
            return;
        }
        for (shard, line) in &mut self.open {
            if !line.unsent.is_empty() {
                self.ways.send(Way::to(*shard), std::mem::take(&mut line.unsent).freeze());
            }
        }
        self.unsent_bytes = 0;
    }

    /// What has not left yet.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes + self.ways.unsent_bytes()
    }

    /// Sends no more to the shards that owe something to the request that is alone: that ends a wait there.
    pub(super) fn finish_asked(&mut self) {
        self.flush();
        for (shard, line) in &mut self.open {
            if line.owes_task() && !std::mem::replace(&mut line.is_finished, true) {
                self.ways.finish(Way::to(*shard));
            }
        }
    }

    /// Whether nothing can be sent to some shard before its conversation has ended.
    pub(super) fn is_finishing(&self) -> bool {
        self.open.values().any(|line| line.is_finished)
    }

    /// Further replies to the request that is alone are for nobody. Returns the shards that still owe one.
    pub(super) fn abandon(&mut self) -> Vec<Shard> {
        let mut shards = Vec::new();
        for (shard, line) in &mut self.open {
            if line.owes_task() {
                shards.push(*shard);
            }
            for owed in &mut line.owed {
                if owed.whose == Whose::Task {
                    owed.whose = Whose::Nobody;
                }
            }
        }
        shards
    }

    /// What has come next.
    pub(super) fn receive(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.heard.and_then(|shard| self.next_reply(shard)) {
                return Some(heard);
            }
            self.heard = None;
            let (way, came) = self.ways.receive()?;
            let Some(line) = self.open.get_mut(&way.shard) else { continue };
            match came {
                Came::Bytes(bytes) => {
                    line.input.extend_from_slice(&bytes);
                    self.heard = Some(way.shard);
                }
                Came::Ended => {
                    let is_owed = line.owed.iter().any(|owed| owed.whose != Whose::Nobody);
                    self.forget(way.shard);
                    return Some(if is_owed { Heard::Lost } else { Heard::Ended });
                }
            }
        }
    }

    /// Wakes the session in a moment.
    pub(super) fn wake_later(&mut self) {
        self.ways.wake_later();
    }

    /// Ends all conversations.
    pub(super) fn close(&mut self) {
        self.flush();
        for shard in std::mem::take(&mut self.open).into_keys() {
            self.ways.close(Way::to(shard));
        }
    }

    fn next_reply(&mut self, shard: Shard) -> Option<Heard> {
        let line = self.open.get_mut(&shard).filter(|line| !line.input.is_empty())?;
        let Some(Owed { kind, .. }) = line.owed.front() else {
            // The shard was not asked: it refuses without reading, and closes.
            self.forget(shard);
            self.ways.close(Way::to(shard));
            return Some(Heard::Ended);
        };
        match decode_whole_reply(*kind, &mut line.input) {
            Ok(Some((reply, whole))) => {
                if line.input.is_empty() {
                    // The empty buffer would keep the memory of the reply.
                    line.input = BytesMut::new();
                }
                let whose = line.owed.pop_front().map_or(Whose::Nobody, |owed| owed.whose);
                Some(Heard::Reply { shard, whose, reply, whole })
            }
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(%shard, "a shard's door makes no sense: {error}");
                Some(Heard::Lost)
            }
        }
    }

    fn forget(&mut self, shard: Shard) {
        if let Some(line) = self.open.remove(&shard) {
            self.unsent_bytes -= line.unsent.len();
        }
    }
}

impl Line {
    fn owes_task(&self) -> bool {
        self.owed.iter().any(|owed| owed.whose == Whose::Task)
    }
}

/// The line to a shard; a new one begins with the token.
fn open_line<'a>(
    open: &'a mut BTreeMap<Shard, Line>,
    unsent_bytes: &mut usize,
    presented: &Option<Presented>,
    shard: Shard,
) -> &'a mut Line {
    open.entry(shard).or_insert_with(|| {
        let mut line = Line::default();
        if let Some(token) = presented {
            write(&mut line, unsent_bytes, &Request::Auth { token: token.clone() });
            line.owed.push_back(Owed { whose: Whose::Nobody, kind: ReplyKind::Ok });
        }
        line
    })
}

fn write(line: &mut Line, unsent_bytes: &mut usize, request: &Request) {
    let before = line.unsent.len();
    request.encode(&mut line.unsent);
    *unsent_bytes += line.unsent.len() - before;
}
