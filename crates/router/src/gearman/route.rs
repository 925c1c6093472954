//! Where each request goes.

use bytes::Bytes;
use spindle_core::address::from_gearman_handle;
use spindle_gearman::wire::draft::{ErrorCode, Reply};
use spindle_gearman::wire::{AdminCommand, ErrorReply, Incoming, Request, Response};

use super::channel::Awaited;
use super::introduction::{encoded, exceptions_option, shard_of_handle};
use super::round::{Kind, Round, in_turn};
use super::session::GearmanRouterSession;
use crate::Shard;

/// The refusal that clients of the draft read.
const DRAFT_REFUSED: &str =
    "a cluster with shards does not speak the draft: use the published protocol";

impl GearmanRouterSession {
    /// Passes on a request or command. `whole` are its bytes.
    pub(super) fn route(&mut self, incoming: Incoming, whole: Bytes) {
        match incoming {
            Incoming::Request(request) => self.route_request(request, whole),
            Incoming::Admin(Ok(command)) => self.route_command(command, whole),
            Incoming::Admin(Err(error)) => self.owe_ready(|out| error.encode(out)),
        }
    }

    /// Requests for several shards are encoded again, because `whole` may be a small packet in a large buffer.
    fn route_request(&mut self, request: Request, whole: Bytes) {
        match request {
            Request::Submit(submit) => {
                let watches = submit.is_foreground();
                match self.placement.only_of(&submit.function) {
                    Some(shard) => self.ask(shard, whole, watches),
                    None => {
                        let shards = self.placement.all_of(&submit.function);
                        self.fence_all();
                        self.round = Some(Round::new(Kind::Submit { watches }, whole, shards));
                    }
                }
            }
            Request::CanDo { function } => self.can_do(&function, None, whole),
            Request::CanDoTimeout { function, timeout_ms } => {
                self.can_do(&function, Some(timeout_ms), whole);
            }
            Request::CantDo { function } => {
                for shard in self.introduction.remove(&function) {
                    if self.channels.contains_key(&shard) {
                        self.send(shard, whole.clone());
                    }
                }
            }
            Request::ResetAbilities => {
                self.introduction.reset();
                self.send_to_open(&encoded(&request), None);
            }
            Request::PreSleep => self.pre_sleep(&encoded(&request)),
            Request::Grab(_) => {
                self.sleeps = false;
                let shards = in_turn(self.introduction.shards(), self.last_job_from);
                self.round = Some(Round::new(Kind::Grab, encoded(&request), shards));
            }
            Request::AllYours => {}
            Request::WorkStatus { handle, .. }
            | Request::WorkData { handle, .. }
            | Request::WorkWarning { handle, .. } => self.report(&handle, whole),
            Request::WorkComplete { handle, .. }
            | Request::WorkFail { handle }
            | Request::WorkException { handle, .. } => self.finish(&handle, whole),
            Request::GetStatus { handle } => {
                self.ask(shard_of_handle(&self.placement, &handle), whole, false);
            }
            Request::GetStatusUnique { .. } => self.ask_all(Kind::Unique, encoded(&request)),
            Request::Echo { data } => {
                self.owe_ready(|out| Response::Echo { data: &data[..] }.encode(out));
            }
            Request::SetClientId { id } => {
                let packet = self.introduction.set_id(&id);
                self.send_to_open(&packet, None);
            }
            Request::Option { name } => self.set_option(&name, whole),
        }
    }

    fn route_command(&mut self, command: AdminCommand, whole: Bytes) {
        match command {
            AdminCommand::Status
            | AdminCommand::PriorityStatus
            | AdminCommand::Workers
            | AdminCommand::ShowJobs
            | AdminCommand::ShowUniqueJobs => self.ask_all(Kind::List, whole),
            AdminCommand::Version | AdminCommand::Getpid | AdminCommand::Verbose => {
                self.ask(Shard::FIRST, whole, false);
            }
            AdminCommand::CancelJob { handle } => {
                self.ask(shard_of_handle(&self.placement, &handle), whole, false);
            }
            AdminCommand::CreateFunction { name }
            | AdminCommand::DropFunction { name }
            | AdminCommand::MaxQueue { function: name, .. } => {
                self.ask(self.placement.of(&name), whole, false);
            }
            AdminCommand::Auth { token } => {
                // The answer is that of the shards.
                let _ = self.login.present(&token.0);
                self.present(&whole, whole.clone());
                self.introduction.set_auth(&whole);
            }
        }
    }

    // ---- what a client says of itself ----

    /// Asks one shard, and lets the others hear it too: the client gets one answer.
    fn present(&mut self, to_others: &Bytes, request: Bytes) {
        let asked = self.channels.keys().next().copied().unwrap_or(Shard::FIRST);
        self.ask(asked, request, false);
        self.send_to_open(to_others, Some(asked));
    }

    /// Sends something on all ways that are open; with a shard that is asked, on all others, whose
    /// answers are dropped.
    fn send_to_open(&mut self, request: &Bytes, asked: Option<Shard>) {
        let shards: Vec<Shard> = self.channels.keys().copied().collect();
        for shard in shards.into_iter().filter(|shard| Some(*shard) != asked) {
            self.send(shard, request.clone());
            if asked.is_some() {
                self.channel(shard).awaited.push_back(Awaited::Dropped);
            }
        }
    }

    fn set_option(&mut self, name: &Bytes, whole: Bytes) {
        if Request::is_exceptions_option(name) {
            self.present(&encoded(&exceptions_option()), whole);
            self.introduction.wants_exceptions = true;
        } else {
            let asked = self.channels.keys().next().copied().unwrap_or(Shard::FIRST);
            self.ask(asked, whole, false);
        }
    }

    // ---- workers ----

    fn can_do(&mut self, function: &Bytes, timeout_ms: Option<u64>, whole: Bytes) {
        let shards = self.placement.all_of(function);
        // Before the function is added: a way that is opened here begins with what was said before.
        for shard in &shards {
            self.channel(*shard);
        }
        if self.introduction.add(&shards, function, timeout_ms).is_err() {
            return self.owe_ready(|out| ErrorReply::TooMany.encode(out));
        }
        for shard in shards {
            self.send_unanswered(shard, whole.clone());
            if self.sleeps && !self.channel(shard).is_asleep {
                self.lull(shard, encoded(&Request::PreSleep));
            }
        }
    }

    /// Takes a worker's functions to the shards that their queues have moved to. One that sleeps is woken: it
    /// may find jobs there.
    pub(super) fn follow_moves(&mut self) {
        let version = self.placement.version();
        if std::mem::replace(&mut self.placed, version) == version {
            return;
        }
        for (function, timeout_ms) in self.introduction.moved(&self.placement) {
            let ability = match timeout_ms {
                None => Request::CanDo { function: function.clone() },
                Some(timeout_ms) => {
                    Request::CanDoTimeout { function: function.clone(), timeout_ms }
                }
            };
            if let Some(before) = self.introduction.shards_of(&function) {
                let packet = encoded(&Request::CantDo { function: function.clone() });
                let now = self.placement.all_of(&function);
                for shard in before.into_iter().filter(|shard| !now.contains(shard)) {
                    self.send(shard, packet.clone());
                }
            }
            self.can_do(&function, timeout_ms, encoded(&ability));
        }
    }

    fn pre_sleep(&mut self, packet: &Bytes) {
        self.sleeps = true;
        for shard in self.introduction.shards() {
            self.lull(shard, packet.clone());
        }
    }

    /// Lets a shard wake the worker.
    fn lull(&mut self, shard: Shard, pre_sleep: Bytes) {
        self.send_unanswered(shard, pre_sleep);
        self.channel(shard).is_asleep = true;
    }

    fn report(&mut self, handle: &[u8], whole: Bytes) {
        self.send_unanswered(shard_of_handle(&self.placement, handle), whole);
    }

    fn finish(&mut self, handle: &[u8], whole: Bytes) {
        let shard = shard_of_handle(&self.placement, handle);
        self.send_unanswered(shard, whole);
        let id = from_gearman_handle(handle);
        if id.is_some_and(|id| self.channel(shard).grabbed.remove(&id)) {
            // If the way is lost before the fence is back, the result may be lost: the worker is cut off then.
            self.channel(shard).fence();
        }
    }

    /// Sends a request that has no answer except an ERROR.
    fn send_unanswered(&mut self, shard: Shard, request: Bytes) {
        self.send(shard, request);
        self.channel(shard).is_unsettled = true;
    }

    // ---- all shards ----

    fn ask_all(&mut self, kind: Kind, whole: Bytes) {
        self.fence_all();
        self.round = Some(Round::new(kind, whole, self.placement.shards()));
    }

    pub(super) fn refuse_draft(&mut self) {
        self.owe_ready(|out| {
            let text = Bytes::from_static(DRAFT_REFUSED.as_bytes());
            Reply::Error { code: ErrorCode::Refused.to_byte(), text }.encode(out);
        });
        self.owe_end();
    }
}
