//! What a connection holds for its client, counted against the budgets of all.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use hyper::body::SizeHint;
use spindle_budget::{Account, Budget, Budgets, FREE_BYTES, Holder, Kind};
use tokio::sync::Notify;

/// How much of the budgets a connection has. Every request carries it as an extension.
#[derive(Clone)]
pub(crate) struct Held(Arc<Accounts>);

struct Accounts {
    input: Account,
    output: Account,
    asked: Arc<Asked>,
    /// A request is being answered: what comes in is its body.
    serves: AtomicBool,
    /// Requests that have come so far.
    requests: AtomicU64,
    /// The last answer is a stream, which ends when its handler ends it.
    streams: AtomicBool,
    /// The answer is the connection's last: bytes of its request are still to come.
    ends: AtomicBool,
    /// Something was written since all was sent.
    writes: AtomicBool,
    /// The connection was asked for bytes since this flag was last read.
    reads: AtomicBool,
}

impl Held {
    pub fn new(budgets: &Budgets) -> Held {
        let asked = Arc::<Asked>::default();
        let open = |budget: &Budget| budget.open(Arc::clone(&asked) as Arc<dyn Holder>, 0);
        let (input, output) = (open(&budgets.input), open(&budgets.output));
        let requests = AtomicU64::default();
        let [serves, streams, ends, writes, reads] = std::array::from_fn(|_| AtomicBool::default());
        Held(Arc::new(Accounts {
            input,
            output,
            asked,
            serves,
            requests,
            streams,
            ends,
            writes,
            reads,
        }))
    }

    /// A request begins: its bytes now belong to its handler.
    pub fn serves(&self) {
        self.0.serves.store(true, Ordering::Relaxed);
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.receives(0);
    }

    /// A request is answered, with a body of about this size.
    pub fn answers(&self, body: &SizeHint) {
        self.0.streams.store(body.exact().is_none(), Ordering::Relaxed);
        self.0.serves.store(false, Ordering::Relaxed);
        self.receives(0);
        self.0.output.add(usize::try_from(body.lower()).unwrap_or(usize::MAX));
    }

    /// A request is answered that has not come whole: what follows it is no request.
    pub fn ends(&self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }

    /// How many requests have come.
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Whether no request is being answered, all answers have left, and another request may come.
    pub fn is_idle(&self) -> bool {
        let has = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        !has(&self.0.serves) && !has(&self.0.streams) && !has(&self.0.ends) && !has(&self.0.writes)
    }

    /// The connection is asked for bytes.
    pub fn reads(&self) {
        self.0.reads.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked, since the last call of this.
    pub fn was_read(&self) -> bool {
        self.0.reads.swap(false, Ordering::Relaxed)
    }

    /// Whether a request is being answered.
    pub fn is_serving(&self) -> bool {
        self.0.serves.load(Ordering::Relaxed)
    }

    /// What is being received, a head or a body, has reserved these bytes.
    pub fn receives(&self, bytes: usize) {
        self.0.input.set(bytes);
    }

    /// Whether this connection has to go because it has received the most.
    pub fn receives_too_much(&self) -> bool {
        self.0.input.is_closed()
    }

    /// The same body, counted until its last reference is dropped.
    pub fn counted(self, body: Bytes) -> Bytes {
        if body.len() <= FREE_BYTES {
            return body;
        }
        self.receives(body.len());
        Bytes::from_owner(Received { body, held: self })
    }

    /// The socket is to take bytes.
    pub fn writes(&self) {
        self.0.writes.store(true, Ordering::Relaxed);
    }

    /// The socket has taken this many bytes.
    pub fn sent(&self, bytes: usize) {
        self.0.output.spend(bytes);
    }

    /// The socket has taken everything there was.
    pub fn sent_all(&self) {
        self.0.writes.store(false, Ordering::Relaxed);
        self.0.output.set(0);
    }

    /// Waits until the connection has to go. Returns which budget it is for.
    pub async fn asked_to_go(&self) -> Kind {
        self.0.asked.0.notified().await;
        if self.0.output.is_closed() { Kind::Output } else { Kind::Input }
    }
}

/// A body that was received.
struct Received {
    body: Bytes,
    held: Held,
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.held.0.input.remove(self.body.len());
    }
}

/// Is told when its connection has to go.
#[derive(Default)]
struct Asked(Notify);

impl Holder for Asked {
    fn let_go(&self, _: u64, _: Kind) {
        self.0.notify_one();
    }
}

/// Does work for which bytes are held until the client takes them. None if the budget was exceeded and
/// the work was given up.
pub async fn while_unread<T>(
    budget: &Budget,
    bytes: usize,
    work: impl Future<Output = T>,
) -> Option<T> {
    let asked = Arc::<Asked>::default();
    let account = budget.open(Arc::clone(&asked) as Arc<dyn Holder>, 0);
    account.add(bytes);
    tokio::select! {
        biased;
        done = work => Some(done),
        () = asked.0.notified() => None,
    }
}
