//! One client: takes its requests, and hands out the shards' answers, in order.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use spindle_access::Login;
use spindle_core::address::from_gearman_handle;
use spindle_engine::door::{Flow, LeaseRef, Outbox, Session, Ticket};
use spindle_engine::{Answer, Gated};
use spindle_gearman::wire::{
    Decoder, HEADER_BYTES, Limits, PacketType, Protocol, Response, WireError,
};

use super::channel::{Awaited, Broken, Channel, Token};
use super::introduction::Introduction;
use super::owed::{Debt, FenceNumber, Owed};
use super::round::{Heard, Kind, Round, says_other_shard};
use crate::{Came, Placement, Shard, Wake, Way, Ways};

/// Bytes of answers in the outbox, or of the router's own answers that wait for others, above which nothing
/// more is taken from the client or from shards. As at the door.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of unsent requests above which no more requests are taken.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;
/// Answers that may be owed at once.
const OWED_MAX: usize = 1024;

/// Larger requests are not copied.
const COPIED_BYTES_MAX: usize = 4 * 1024;

/// A connection of a Gearman client at the router.
pub(super) struct GearmanRouterSession {
    pub(super) placement: Placement,
    limits: Limits,
    /// Who the client is, for the time it has to log in. What it may do is decided at the shards.
    pub(super) login: Login,
    pub(super) ways: Box<dyn Ways>,
    decoder: Decoder,
    /// Only tokens have come: it is not known yet which protocol the client speaks.
    is_opening: bool,
    pub(super) introduction: Introduction,
    /// The ways that are open.
    pub(super) channels: BTreeMap<Shard, Channel>,
    pub(super) owed: Owed,
    /// The request for which one shard after another is asked, or will be when nothing is owed before it.
    pub(super) round: Option<Round>,
    /// The worker has sent PRE_SLEEP, and neither grabbed nor been called since.
    pub(super) sleeps: bool,
    /// The version of the placement that was looked at last.
    pub(super) placed: u64,
    /// The shard that had the worker's last job.
    pub(super) last_job_from: Option<Shard>,
    /// No further request is taken: the end is owed.
    pub(super) takes_no_more: bool,
    is_stopping: bool,
    /// How it ended.
    end: Option<Flow>,
    /// Received bytes may be left, because the outbox was full.
    is_behind: bool,
}

impl GearmanRouterSession {
    pub fn new(
        placement: Placement,
        limits: Limits,
        ways: Box<dyn Ways>,
        login: Login,
    ) -> GearmanRouterSession {
        GearmanRouterSession {
            placed: placement.version(),
            placement,
            limits,
            login,
            ways,
            decoder: Decoder::new(limits),
            is_opening: true,
            introduction: Introduction::default(),
            channels: BTreeMap::new(),
            owed: Owed::default(),
            round: None,
            sleeps: false,
            last_job_from: None,
            takes_no_more: false,
            is_stopping: false,
            end: None,
            is_behind: false,
        }
    }

    // ---- what the client sends ----

    /// Takes requests until something has to be waited for, or the input is used up.
    fn work(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        while self.end.is_none() && !self.waits() && !is_full(out) {
            let is_decoded = self.take_next(input);
            self.settle(out);
            if !is_decoded {
                break;
            }
        }
        self.flow(out)
    }

    /// Takes the next request, if it is all there.
    fn take_next(&mut self, input: &mut BytesMut) -> bool {
        self.follow_moves();
        if self.is_opening && !self.recognize(input) {
            return false;
        }
        match self.decoder.decode_whole(input) {
            Ok(Some((incoming, whole))) => self.route(incoming, whole),
            Ok(None) => return false,
            Err(wrong) => self.refuse(wrong),
        }
        true
    }

    /// Recognizes the client's protocol. Lines with tokens may come before either. False: nothing is to be
    /// decoded now.
    fn recognize(&mut self, input: &BytesMut) -> bool {
        let start = input.get(..AUTH.len()).unwrap_or(input);
        if !input.is_empty() && AUTH[..start.len()].eq_ignore_ascii_case(start) {
            return true;
        }
        match Protocol::of(input) {
            None => return false,
            Some(Protocol::Stranger) => self.end = Some(Flow::Abort),
            Some(Protocol::Draft) => self.refuse_draft(),
            Some(Protocol::Published) => self.is_opening = false,
        }
        !self.is_opening
    }

    fn refuse(&mut self, wrong: WireError) {
        if wrong == WireError::WrongMagic {
            self.end = Some(Flow::Abort);
            return;
        }
        if let Some(reply) = wrong.reply() {
            self.owe_ready(|out| reply.encode(out));
        }
        if wrong.closes() {
            self.owe_end();
        }
    }

    /// Whether more requests have to wait.
    fn waits(&self) -> bool {
        self.takes_no_more
            || self.is_stopping
            || self.round.is_some()
            || self.owed.len() >= OWED_MAX
            || self.owed.ready_bytes() > ANSWER_BYTES_MAX
            || self.ways.unsent_bytes() > UNSENT_BYTES_MAX
    }

    fn flow(&mut self, out: &Outbox) -> Flow {
        self.send_outgoing();
        if let Some(end) = self.end {
            return end;
        }
        if is_full(out) {
            self.ways.wake_later();
        }
        if self.is_stopping && !self.owes() {
            self.end = Some(Flow::Close);
            return Flow::Close;
        }
        if self.waits() { Flow::Wait } else { Flow::Continue }
    }

    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty() || self.round.is_some()
    }

    // ---- what is owed ----

    /// The router answers this request itself, in its turn.
    pub(super) fn owe_ready(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.fence_all();
        let mut bytes = BytesMut::new();
        write(&mut bytes);
        self.owed.push(Debt::Ready(bytes.freeze()));
    }

    /// The connection closes behind all that is owed.
    pub(super) fn owe_end(&mut self) {
        self.takes_no_more = true;
        self.owed.push(Debt::End);
    }

    /// Asks a shard, whose answer goes to the client.
    pub(super) fn ask(&mut self, shard: Shard, request: Bytes, watches: bool) {
        self.channel(shard);
        self.fence_all();
        let debt = self.owed.push(Debt::From(shard));
        self.send(shard, request);
        self.channel(shard).awaited.push_back(Awaited::Answer { debt, watches });
    }

    /// Answers owed from now on wait until all requests sent before are done.
    pub(super) fn fence_all(&mut self) {
        let mut fences = Vec::new();
        for (shard, channel) in &mut self.channels {
            channel.fence();
            fences.extend(channel.owe_fence().map(|number| (*shard, number)));
        }
        if !fences.is_empty() {
            self.owed.push(Debt::Fences(fences));
        }
    }

    // ---- ways ----

    /// Sends something to a shard: small requests together at the end of the turn, large ones as they
    /// are.
    pub(super) fn send(&mut self, shard: Shard, request: Bytes) {
        let channel = self.channel(shard);
        if request.len() <= COPIED_BYTES_MAX {
            return channel.outgoing.extend_from_slice(&request);
        }
        let before = channel.outgoing.split().freeze();
        for bytes in [before, request] {
            self.ways.send(Way::to(shard), bytes);
        }
    }

    /// Sends the small requests that were kept to leave together.
    fn send_outgoing(&mut self) {
        for (shard, channel) in &mut self.channels {
            if !channel.outgoing.is_empty() && !channel.has_ended {
                self.ways.send(Way::to(*shard), channel.outgoing.split().freeze());
            }
        }
    }

    /// The way to a shard, opened if there is none.
    pub(super) fn channel(&mut self, shard: Shard) -> &mut Channel {
        let introduction = &self.introduction;
        let open = || Channel::opened(introduction.opening(shard));
        self.channels.entry(shard).or_insert_with(open)
    }

    /// Takes in what has come, and hands out what can leave.
    fn pump(&mut self, out: &mut Outbox) {
        if std::mem::take(&mut self.is_behind) {
            let shards: Vec<Shard> = self.channels.keys().copied().collect();
            shards.into_iter().for_each(|shard| self.drain(shard, out));
        }
        self.settle(out);
        while self.end.is_none() && !is_full(out) {
            let Some((way, came)) = self.ways.receive() else { return };
            match came {
                Came::Bytes(bytes) => {
                    let Some(channel) = self.channels.get_mut(&way.shard) else { continue };
                    let received = channel.receive(bytes);
                    self.check(way.shard, received);
                    self.drain(way.shard, out);
                }
                Came::Ended => self.lose(way.shard, out),
            }
            self.settle(out);
        }
    }

    /// Hands out owed answers, as far as they have come.
    fn settle(&mut self, out: &mut Outbox) {
        while self.end.is_none() {
            if is_full(out) {
                self.is_behind = true;
                return;
            }
            let number = self.owed.front_number();
            match self.owed.front() {
                None => return self.begin_round(),
                Some(Debt::Ready(bytes)) => {
                    out.put(|out| out.extend_from_slice(bytes));
                    self.owed.pop();
                }
                Some(Debt::Fences(fences)) => match self.are_back(fences) {
                    Some(true) => drop(self.owed.pop()),
                    Some(false) => return,
                    None => self.end = Some(Flow::Close),
                },
                Some(Debt::End) => self.end = Some(Flow::Close),
                Some(Debt::From(shard)) => {
                    let shard = *shard;
                    self.drain(shard, out);
                    if self.owed.front_number() == number {
                        let has_ended = |channel: &Channel| channel.has_ended;
                        if self.channels.get(&shard).is_some_and(has_ended) && !is_full(out) {
                            self.end = Some(Flow::Close);
                        }
                        return;
                    }
                }
            }
        }
    }

    /// Whether fences have come back; none if a way was lost and one never will.
    fn are_back(&self, fences: &[(Shard, FenceNumber)]) -> Option<bool> {
        let channel_of = |shard| self.channels.get(shard);
        let mut missing = fences.iter().filter_map(|(shard, fence)| {
            channel_of(shard).filter(|channel| !channel.is_back(*fence))
        });
        match missing.next() {
            None => Some(true),
            Some(first) if first.has_ended || missing.any(|it| it.has_ended) => None,
            Some(_) => Some(false),
        }
    }

    /// Takes what came on a way, up to an answer whose turn has not come.
    fn drain(&mut self, shard: Shard, out: &mut Outbox) {
        while self.end.is_none() {
            let Some(channel) = self.channels.get_mut(&shard) else { return };
            if is_full(out) {
                self.is_behind = true;
                return;
            }
            match channel.take() {
                Ok(None) => return,
                Ok(Some(token)) => {
                    if let Some(early) = self.hear(shard, token, out) {
                        if let Some(channel) = self.channels.get_mut(&shard) {
                            channel.put_back(early);
                        }
                        return;
                    }
                }
                Err(broken) => self.check(shard, Err(broken)),
            }
        }
    }

    /// Takes the next packet or line of a way; returns it if it has to wait for answers owed before.
    fn hear(&mut self, shard: Shard, token: Token, out: &mut Outbox) -> Option<Token> {
        let channel = self.channels.get_mut(&shard)?;
        if token.is_news() {
            self.hear_news(shard, &token, out);
            return None;
        }
        match channel.awaited.front().copied() {
            // The ERROR of a request that has no other answer. A dropped answer is never an ERROR.
            None | Some(Awaited::Fence | Awaited::Dropped) if token.is(PacketType::Error) => {
                put(out, &token);
            }
            Some(Awaited::Fence) if token.is(PacketType::EchoRes) => channel.end_fence(),
            Some(Awaited::Dropped) => drop(channel.awaited.pop_front()),
            Some(Awaited::Answer { debt, watches }) => {
                if debt != self.owed.front_number() {
                    return Some(token);
                }
                channel.awaited.pop_front();
                // The shard knows of a move that this node has not heard of yet, perhaps because the node was
                // stopped for a while. To the client it is as if the shard had gone: it asks again.
                if says_other_shard(&token) {
                    self.end = Some(Flow::Close);
                    return None;
                }
                channel.watched += usize::from(watches && token.is(PacketType::JobCreated));
                put(out, &token);
                self.owed.pop();
            }
            Some(Awaited::Round) => self.hear_round(shard, &token, out),
            None | Some(Awaited::Fence) => self.check(shard, Err(Broken)),
        }
        None
    }

    /// Passes on news at once, since it answers no request.
    fn hear_news(&mut self, shard: Shard, token: &Token, out: &mut Outbox) {
        let Some(channel) = self.channels.get_mut(&shard) else { return };
        if token.is_end_of_job() {
            channel.watched = channel.watched.saturating_sub(1);
        }
        if !token.is(PacketType::Noop) {
            return put(out, token);
        }
        channel.is_asleep = false;
        self.call(out);
    }

    /// Wakes the worker, if it sleeps.
    fn call(&mut self, out: &mut Outbox) {
        if std::mem::take(&mut self.sleeps) {
            out.put(|out| Response::<&[u8]>::Noop.encode(out));
        }
    }

    /// Ends the connection if a shard's door breaks the protocol, or sends more than can be held.
    fn check(&mut self, shard: Shard, result: Result<(), Broken>) {
        if result == Err(Broken) {
            tracing::warn!("cut off a client: what shard {shard} sent for it cannot be passed on");
            self.end = Some(Flow::Abort);
        }
    }

    /// A way has ended.
    fn lose(&mut self, shard: Shard, out: &mut Outbox) {
        let Some(channel) = self.channels.get_mut(&shard) else { return };
        if !channel.is_of_use() {
            // It is opened again when the client needs it.
            self.channels.remove(&shard);
            if self.introduction.is_able_at(shard) {
                self.call(out);
            }
            return;
        }
        channel.has_ended = true;
        if self.round.take_if(|round| round.has_begun).is_some() || self.owed.is_empty() {
            self.end = Some(Flow::Close);
        } else {
            self.round = None;
            self.owe_end();
        }
    }

    // ---- rounds ----

    /// Begins to ask, now that nothing else is owed.
    fn begin_round(&mut self) {
        if self.round.as_ref().is_some_and(|round| !round.has_begun) {
            self.ask_next();
        }
    }

    fn ask_next(&mut self) {
        let Some(round) = &mut self.round else { return };
        let Some(shard) = round.next_shard() else {
            self.round = None;
            return;
        };
        let (request, is_grab) = (round.request.clone(), round.kind == Kind::Grab);
        let channel = self.channel(shard);
        // So that an ERROR on its way is not taken for the answer.
        channel.fence();
        channel.is_asleep &= !is_grab;
        channel.awaited.push_back(Awaited::Round);
        self.send(shard, request);
    }

    fn hear_round(&mut self, shard: Shard, token: &Token, out: &mut Outbox) {
        let Some(round) = &mut self.round else { return };
        let heard = round.hear(token);
        let Some(channel) = self.channels.get_mut(&shard) else { return };
        if let Heard::Next | Heard::Last(_) = heard {
            channel.awaited.pop_front();
        }
        match heard {
            Heard::Part(part) => out.put(|out| out.extend_from_slice(&part)),
            Heard::Next => self.ask_next(),
            Heard::Last(last) => {
                out.put(|out| out.extend_from_slice(&last));
                let is_created = token.is(PacketType::JobCreated);
                if is_created && round.kind == (Kind::Submit { watches: true }) {
                    channel.watched += 1;
                }
                if let Some(id) = assigned(token) {
                    channel.grabbed.insert(id);
                    self.last_job_from = Some(shard);
                }
                self.round = None;
            }
            // The client must not take half an answer for a whole one.
            Heard::Broken => self.end = Some(Flow::Close),
        }
    }
}

/// The beginning of a line that presents a token.
const AUTH: &[u8] = b"auth ";

/// The job that a worker is given with this packet.
fn assigned(token: &Token) -> Option<spindle_core::JobId> {
    use PacketType as P;
    let Token::Packet(P::JobAssign | P::JobAssignUniq | P::JobAssignAll, bytes) = token else {
        return None;
    };
    from_gearman_handle(bytes.get(HEADER_BYTES..)?.split(|byte| *byte == 0).next()?)
}

fn put(out: &mut Outbox, token: &Token) {
    out.put(|out| out.extend_from_slice(token.bytes()));
}

fn is_full(out: &Outbox) -> bool {
    out.pending_bytes() > ANSWER_BYTES_MAX
}

impl Session for GearmanRouterSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, out)
    }

    fn on_answer(&mut self, ticket: Ticket, _answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        if ticket == Wake::TICKET && self.end.is_none() {
            // Not while a round asks one shard after the other.
            if self.round.is_none() {
                self.follow_moves();
            }
            self.pump(out);
        }
        self.flow(out)
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // Complete requests are still answered, for clients that close only their sending side.
        match self.work(input, out) {
            Flow::Continue if self.owes() => Flow::Wait,
            flow => flow,
        }
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        self.is_stopping = true;
        if last {
            self.end.get_or_insert(Flow::Close);
        }
        self.flow(out)
    }

    fn on_closed(&mut self, _unsent: &[LeaseRef]) {
        // Its ways close when they are dropped.
    }

    fn input_bytes_max(&self) -> usize {
        self.limits.input_bytes_max()
    }

    fn is_engaged(&self) -> bool {
        let is_engaged = |channel: &Channel| channel.watched > 0 || !channel.grabbed.is_empty();
        self.sleeps || self.owes() || self.channels.values().any(is_engaged)
    }

    fn lacks_identity(&mut self) -> bool {
        self.login.lacks_identity()
    }
}
