//! One client's connection to the router.

use bytes::{Bytes, BytesMut};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use spindle_access::Login;
use spindle_engine::door::{Flow, LeaseRef, Outbox, Session, Ticket};
use spindle_engine::{Answer, Gated};
use spindle_workq::wire::{Decoder, ErrorText, Limits, Reject, Request, encode};

use super::known::Known;
use super::lines::{Heard, Lines, Whose};
use super::places::Places;
use super::route::{Route, route, says, without_wait};
use super::seek::says_elsewhere;
use super::task::{Shards, Task, note};
use crate::{Placement, Shard, Wake, Ways};

/// Bytes in the outbox above which nothing more is received or asked until the client has read some.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of unsent requests above which no more requests are taken.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;
/// The number of owed answers at which no more requests are taken.
const OWED_MAX: usize = 1024;

/// A connection of a Workq client that has come to the router.
pub(super) struct WorkqSession {
    pub(super) shards: Shards,
    decoder: Decoder,
    limits: Limits,
    /// Who the client is, for the time it has to log in. What it may do is decided at the shards.
    login: Login,
    places: Places,
    task: Option<Task>,
    /// A request that is to be alone, and waits until nothing is owed.
    next: Option<Request>,
    /// The version of the placement that was looked at last.
    placed: u64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Owed answers are still given, then the connection closes.
    Closing,
    /// A shard that owed something was lost: the client gets no more answers.
    Lost,
}

impl WorkqSession {
    pub(super) fn new(
        ways: Box<dyn Ways>,
        placement: Placement,
        limits: Limits,
        login: Login,
    ) -> WorkqSession {
        let placed = placement.version();
        let shards = Shards {
            lines: Lines::new(ways),
            known: Known::default(),
            placement,
            listed: None,
            ended: false,
            random: SmallRng::from_os_rng(),
        };
        WorkqSession {
            shards,
            decoder: Decoder::new(limits),
            limits,
            login,
            places: Places::default(),
            task: None,
            next: None,
            placed,
            stage: Stage::Open,
        }
    }

    /// Takes complete requests until one has to wait for its turn, or the input is used up. `is_all`: the
    /// client sends no more than this.
    fn work(&mut self, input: &mut BytesMut, is_all: bool, out: &mut Outbox) -> Flow {
        loop {
            let is_used_up = self.take_all(input, is_all, out);
            let flow = self.flow(out);
            if is_used_up || flow != Flow::Continue || out.pending_bytes() > ANSWER_BYTES_MAX {
                return flow;
            }
            // What kept requests back has left in the meantime.
        }
    }

    /// Takes the requests that may be taken. Returns whether none is left.
    fn take_all(&mut self, input: &mut BytesMut, is_all: bool, out: &mut Outbox) -> bool {
        while self.may_take(out) {
            let decoded =
                if is_all { self.decoder.decode_at_eof(input) } else { self.decoder.decode(input) };
            match decoded {
                Ok(Some(request)) => self.take(request),
                Ok(None) => return true,
                Err(Reject::Reply(text)) => self.refuse(text),
                Err(Reject::Close) => self.stage = Stage::Closing,
                Err(Reject::ReplyThenClose(text)) => {
                    self.refuse(text);
                    self.stage = Stage::Closing;
                }
            }
            self.go_on(out);
        }
        false
    }

    /// Whether another request may be taken.
    fn may_take(&self, out: &Outbox) -> bool {
        self.stage == Stage::Open && !self.is_held() && out.pending_bytes() <= ANSWER_BYTES_MAX
    }

    /// Whether another request has to wait for shards.
    fn is_held(&self) -> bool {
        self.task.is_some()
            || self.next.is_some()
            || self.places.len() >= OWED_MAX
            || self.shards.lines.unsent_bytes() > UNSENT_BYTES_MAX
            || self.shards.lines.is_finishing()
    }

    /// Sends what was asked. Returns what the reactor is to do.
    fn flow(&mut self, out: &mut Outbox) -> Flow {
        self.places.release(out);
        self.shards.lines.flush();
        let is_owed = self.task.is_some() || !self.places.is_empty();
        match self.stage {
            Stage::Lost => Flow::Close,
            Stage::Closing if !is_owed => Flow::Close,
            Stage::Closing => Flow::Wait,
            // Otherwise the end of the input would end the connection.
            Stage::Open if is_owed && self.shards.ended => Flow::Wait,
            Stage::Open if self.is_held() => Flow::Wait,
            Stage::Open => Flow::Continue,
        }
    }

    /// Asks the shard that a request is for, or keeps the request until it can be alone.
    fn take(&mut self, request: Request) {
        if let Request::Auth { token } = &request {
            // The answer is that of the shards.
            let _ = self.login.present(&token.0);
        }
        match route(&request, &self.shards.placement, &self.shards.known) {
            Route::Stream(shard) => {
                let place = Whose::Place(self.places.keep(), says(&request));
                self.shards.lines.ask(shard, &request, place);
            }
            Route::Nowhere => self.refuse(ErrorText::UnknownCommand),
            Route::One(_) | Route::Several => self.next = Some(request),
        }
    }

    fn refuse(&mut self, text: ErrorText) {
        let mut answer = BytesMut::new();
        encode::client_error(&mut answer, text.as_str());
        self.places.add(answer.freeze());
    }

    /// Begins with the request that is to be alone, if it is now.
    fn go_on(&mut self, out: &mut Outbox) {
        self.places.release(out);
        let is_alone = self.places.is_empty()
            && self.task.is_none()
            && !self.shards.lines.is_finishing()
            && self.stage == Stage::Open;
        let Some(request) = self.next.take_if(|_| is_alone) else { return };
        let request = if self.shards.ended { without_wait(request) } else { request };
        // By now it may be known where the request's job is.
        match route(&request, &self.shards.placement, &self.shards.known) {
            Route::Stream(shard) | Route::One(shard) => {
                self.task = Some(Task::at(shard, &request, &mut self.shards));
            }
            Route::Several => self.task = Some(Task::at_several(request, &mut self.shards)),
            Route::Nowhere => {}
        }
    }

    /// Takes what has come, unless the client has much to read.
    fn hear(&mut self, out: &mut Outbox) {
        while self.stage != Stage::Lost {
            if out.pending_bytes() > ANSWER_BYTES_MAX {
                return self.shards.lines.wake_later();
            }
            let Some(heard) = self.shards.lines.receive() else { return };
            match heard {
                // The shard knows of a move that this node has not heard of yet, perhaps because the node was
                // stopped for a while. To the client it is as if the shard had gone: it asks again.
                Heard::Reply { whose: Whose::Place(..), reply, .. } if says_elsewhere(&reply) => {
                    self.lose(out);
                }
                Heard::Reply { shard, whose: Whose::Place(number, says), reply, whole } => {
                    note(says, shard, &reply, &mut self.shards.known);
                    self.places.fill(number, whole);
                }
                Heard::Reply { shard, whose: Whose::Task, reply, whole } => {
                    let is_elsewhere = says_elsewhere(&reply);
                    let answer = self
                        .task
                        .as_mut()
                        .and_then(|task| task.heard(shard, reply, whole, &mut self.shards));
                    match answer {
                        Some(_) if is_elsewhere => self.lose(out),
                        answer => self.end_task(answer, out),
                    }
                }
                Heard::Reply { whose: Whose::Nobody, .. } | Heard::Ended => {}
                Heard::Lost => self.lose(out),
            }
            self.go_on(out);
        }
    }

    /// Ends the request that is alone, if its answer is there.
    fn end_task(&mut self, answer: Option<Bytes>, out: &mut Outbox) {
        if let Some(answer) = answer {
            self.task = None;
            self.shards.lines.abandon();
            out.put(|bytes| bytes.extend_from_slice(&answer));
        }
    }

    /// Ends the connection because answers will not come: the client still gets the answers before them.
    fn lose(&mut self, out: &mut Outbox) {
        self.places.release(out);
        self.stage = Stage::Lost;
        (self.task, self.next) = (None, None);
        self.shards.lines.close();
    }

    /// Ends the wait of a worker at shards where its queues no longer are, so that it asks again.
    fn follow_moves(&mut self, out: &mut Outbox) {
        let version = self.shards.placement.version();
        if std::mem::replace(&mut self.placed, version) != version
            && self.task.as_ref().is_some_and(|task| task.waits_elsewhere(&self.shards.placement))
        {
            self.end_wait(out);
        }
    }

    /// The client waits for nothing any longer.
    fn end_wait(&mut self, out: &mut Outbox) {
        if let Some(task) = &mut self.task {
            let answer = task.end_wait(&mut self.shards);
            self.end_task(answer, out);
        }
    }
}

impl Shards {
    /// A number below `count`.
    pub(super) fn draw(&mut self, count: usize) -> usize {
        self.random.random_range(0..count.max(1))
    }

    /// A random shard.
    pub(super) fn any_shard(&mut self) -> Option<Shard> {
        let count = self.placement.shards().count();
        let at = self.draw(count);
        self.placement.shards().nth(at)
    }
}

impl Session for WorkqSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, false, out)
    }

    fn on_answer(&mut self, ticket: Ticket, _: Gated<Answer>, out: &mut Outbox) -> Flow {
        if ticket == Wake::TICKET {
            self.follow_moves(out);
            self.hear(out);
        }
        self.flow(out)
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        if !std::mem::replace(&mut self.shards.ended, true) {
            self.end_wait(out);
            self.go_on(out);
        }
        self.work(input, true, out)
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        self.next = None;
        let is_run = self.task.as_ref().is_some_and(Task::is_run);
        if last {
            if is_run {
                out.put(encode::timeout);
            }
            return Flow::Close;
        }
        if !is_run {
            self.shards.ended = true;
            self.end_wait(out);
        }
        self.stage = if self.stage == Stage::Open { Stage::Closing } else { self.stage };
        self.flow(out)
    }

    fn on_closed(&mut self, _: &[LeaseRef]) {
        self.shards.lines.close();
    }

    fn input_bytes_max(&self) -> usize {
        self.limits.input_bytes_max()
    }

    fn is_engaged(&self) -> bool {
        self.task.is_some() || self.next.is_some() || !self.places.is_empty()
    }

    fn lacks_identity(&mut self) -> bool {
        self.login.lacks_identity()
    }
}
