//! A client at shards whose words and timing the test decides.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use spindle_access::{Access, Login};
use spindle_engine::door::{Flow, Outbox, Peer, Session};
use spindle_engine::{Answer, Gate, Gated};
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{GrabKind, Limits, Priority, Request, Response, Submit, SubmitKind};

use super::super::session::GearmanRouterSession;
use crate::{Came, Network, Placement, Shard, Wake, Way, Ways};

#[derive(Default)]
pub(super) struct Script {
    /// What was sent, and not looked at since.
    pub(super) sent: Vec<(Shard, Vec<u8>)>,
    pub(super) coming: VecDeque<(Way, Came)>,
    pub(super) unsent_bytes: usize,
    pub(super) wakes_later: usize,
}

struct ScriptedWays(Arc<Mutex<Script>>);

impl Ways for ScriptedWays {
    fn send(&mut self, way: Way, bytes: Bytes) {
        self.0.lock().sent.push((way.shard, bytes.to_vec()));
    }

    fn unsent_bytes(&self) -> usize {
        self.0.lock().unsent_bytes
    }

    fn finish(&mut self, _way: Way) {}

    fn close(&mut self, _way: Way) {}

    fn receive(&mut self) -> Option<(Way, Came)> {
        self.0.lock().coming.pop_front()
    }

    fn wake_later(&mut self) {
        self.0.lock().wakes_later += 1;
    }
}

pub(super) const SHARDS: u8 = 3;

/// A function that is on this shard.
pub(super) fn function_on(shard: u8) -> Bytes {
    let names = (0..).map(|at| Bytes::from(format!("function-{at}")));
    let placement = Placement::over(SHARDS);
    names.into_iter().find(|name| placement.of(name) == Shard(shard)).unwrap()
}

pub(super) struct Client {
    pub(super) session: GearmanRouterSession,
    pub(super) script: Arc<Mutex<Script>>,
    pub(super) input: BytesMut,
    pub(super) out: Outbox,
    pub(super) flow: Flow,
}

impl Client {
    pub(super) fn new() -> Client {
        Client::of(Access::open().login(None))
    }

    pub(super) fn of(login: Login) -> Client {
        let script = Arc::new(Mutex::new(Script::default()));
        let ways = Box::new(ScriptedWays(Arc::clone(&script)));
        let placement = Placement::over(SHARDS);
        let session = GearmanRouterSession::new(placement, Limits::default(), ways, login);
        let (input, out) = (BytesMut::new(), Outbox::default());
        Client { session, script, input, out, flow: Flow::Continue }
    }

    pub(super) fn send(&mut self, request: &impl Encode) {
        request.encode(&mut self.input);
        self.go_on();
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.go_on();
    }

    pub(super) fn go_on(&mut self) {
        if self.flow == Flow::Continue {
            self.flow = self.session.on_bytes(&mut self.input, &mut self.out);
        }
    }

    /// The way that a session is woken.
    pub(super) fn wake(&mut self) {
        let answer = Gated::new(Answer::Room, Gate::OPEN);
        self.flow = self.session.on_answer(Wake::TICKET, answer, &mut self.out);
        self.go_on();
    }

    /// A shard says something.
    pub(super) fn hear(&mut self, shard: u8, bytes: &[u8]) {
        let came = Came::Bytes(Bytes::copy_from_slice(bytes));
        self.script.lock().coming.push_back((Way::to(Shard(shard)), came));
        self.wake();
    }

    pub(super) fn lose(&mut self, shard: u8) {
        self.script.lock().coming.push_back((Way::to(Shard(shard)), Came::Ended));
        self.wake();
    }

    /// What the client gets.
    pub(super) fn got(&mut self) -> Vec<u8> {
        let bytes = self.out.released(Gate::OPEN).to_vec();
        self.out.advance(bytes.len());
        bytes
    }

    /// What was sent to this shard, and no other, since the last look.
    pub(super) fn sent_to(&mut self, shard: u8) -> Vec<u8> {
        let sent = std::mem::take(&mut self.script.lock().sent);
        let only = sent.iter().all(|(to, _)| *to == Shard(shard));
        assert!(only, "sent to another than {shard}: {sent:?}");
        sent.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }

    pub(super) fn sent(&mut self) -> Vec<(u8, Vec<u8>)> {
        let sent = std::mem::take(&mut self.script.lock().sent);
        sent.into_iter().map(|(shard, bytes)| (shard.0, bytes)).collect()
    }
}

pub(super) fn bytes_of(response: &Response<&[u8]>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    response.encode(&mut bytes);
    bytes.to_vec()
}

pub(super) fn encoded(request: &impl Encode) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes);
    bytes.to_vec()
}

pub(super) fn submit_to(shard: u8, kind: SubmitKind) -> Request {
    let (unique, payload) = (Bytes::new(), Bytes::from_static(b"work"));
    Request::Submit(Submit { kind, function: function_on(shard), unique, payload })
}

pub(super) fn background(shard: u8) -> Request {
    submit_to(shard, SubmitKind::Background(Priority::Normal))
}

pub(super) fn foreground(shard: u8) -> Request {
    submit_to(shard, SubmitKind::Foreground(Priority::Normal))
}

pub(super) fn can_do(shard: u8) -> Request {
    Request::CanDo { function: function_on(shard) }
}

pub(super) fn handle(shard: u8) -> Bytes {
    let id = u64::from(shard) * spindle_core::job::JOB_ID_SEQUENCE_END + 1;
    Bytes::from(format!("H:host:{id}"))
}

pub(super) fn job_created(shard: u8) -> Vec<u8> {
    bytes_of(&Response::JobCreated { handle: &handle(shard) })
}

pub(super) fn complete(shard: u8) -> Vec<u8> {
    bytes_of(&Response::WorkComplete { handle: &handle(shard), result: b"result" })
}

pub(super) fn error() -> Vec<u8> {
    bytes_of(&Response::Error { code: b"CODE", text: b"text" })
}

/// The router's own ECHO_REQ, and its answer.
pub(super) fn fence() -> Vec<u8> {
    encoded(&Request::Echo { data: Bytes::new() })
}

pub(super) fn fence_back() -> Vec<u8> {
    bytes_of(&Response::Echo { data: b"" })
}

pub(super) fn noop() -> Vec<u8> {
    bytes_of(&Response::Noop)
}

pub(super) fn assigned(shard: u8) -> Vec<u8> {
    let (handle, function) = (handle(shard), function_on(shard));
    bytes_of(&Response::JobAssign(spindle_gearman::wire::Assignment {
        handle: &handle[..],
        function: &function[..],
        unique: None,
        reducer: None,
        payload: b"work",
    }))
}

pub(super) const GRAB: Request = Request::Grab(GrabKind::Plain);

/// The network of all clients.
pub(super) struct ScriptedNetwork;

impl Network for ScriptedNetwork {
    fn ways(&self, _door: &'static str, _client: &Peer, _wake: Wake) -> Box<dyn Ways> {
        Box::new(ScriptedWays(Arc::default()))
    }
}
