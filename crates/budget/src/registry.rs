//! The total of a budget, and which accounts are closed when it is exceeded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::account::Account;
use crate::trim::Falls;

/// What a budget limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Input that is not a whole request yet.
    Input,
    /// Answers that have not left.
    Output,
}

impl Kind {
    /// As metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Input => "unfinished_input",
            Kind::Output => "unread_output",
        }
    }
}

/// Lets go of bytes when they are too many.
pub trait Holder: Send + Sync {
    /// Holder `number` held the most when the budget of this kind was exceeded: it closes its
    /// connection. Called at most once for an account, by the thread that exceeded the budget: it
    /// MUST return at once and MUST NOT call the budget.
    fn let_go(&self, number: u64, kind: Kind);
}

/// A limit for the bytes of many holders together. Clones are the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    kind: Kind,
    bytes_max: isize,
    /// Below zero for a moment when an account is closed while its holder is about to add to it.
    held: AtomicIsize,
    closed: AtomicU64,
    falls: Falls,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    next: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
}

/// An account that has counted.
pub(crate) struct Entry {
    serial: u64,
    /// What its holder has, or [`CLOSED`].
    pub(crate) bytes: AtomicUsize,
    holder: Arc<dyn Holder>,
    number: u64,
}

/// Stands for the bytes of an account that no longer counts.
pub(crate) const CLOSED: usize = usize::MAX;

/// A budget at this moment. The numbers may be a moment apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readings {
    /// Bytes held.
    pub held_bytes: u64,
    /// The limit.
    pub bytes_max: u64,
    /// Accounts closed since the start.
    pub closed: u64,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(kind: Kind, bytes_max: usize) -> Budget {
        Budget(Arc::new(Shared {
            kind,
            bytes_max: isize::try_from(bytes_max).unwrap_or(isize::MAX),
            held: AtomicIsize::new(0),
            closed: AtomicU64::new(0),
            falls: Falls::default(),
            registry: Mutex::default(),
        }))
    }

    /// What it limits.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// An account that holds nothing. `holder` knows it by `number`.
    pub fn open(&self, holder: Arc<dyn Holder>, number: u64) -> Account {
        Account::new(self.clone(), holder, number)
    }

    /// What it has come to.
    pub fn readings(&self) -> Readings {
        let Shared { bytes_max, held, closed, .. } = &*self.0;
        Readings {
            held_bytes: u64::try_from(held.load(Ordering::Relaxed)).unwrap_or(0),
            bytes_max: *bytes_max as u64,
            closed: closed.load(Ordering::Relaxed),
        }
    }

    /// Notices when a flood has ended.
    pub(crate) fn falls(&self) -> &Falls {
        &self.0.falls
    }

    pub(crate) fn enter(&self, holder: &Arc<dyn Holder>, number: u64) -> Arc<Entry> {
        let mut registry = self.0.registry.lock();
        let serial = registry.next;
        registry.next += 1;
        let bytes = AtomicUsize::new(0);
        let entry = Arc::new(Entry { serial, bytes, holder: Arc::clone(holder), number });
        registry.entries.insert(serial, Arc::clone(&entry));
        entry
    }

    /// The holder is gone, and its bytes with it.
    pub(crate) fn leave(&self, entry: &Entry) {
        let bytes = entry.bytes.swap(CLOSED, Ordering::Relaxed);
        self.0.registry.lock().entries.remove(&entry.serial);
        if bytes != CLOSED {
            self.moved(bytes, 0);
        }
    }

    /// An account has changed.
    pub(crate) fn moved(&self, before: usize, after: usize) {
        let Shared { held, bytes_max, falls, .. } = &*self.0;
        // No allocation is larger than `isize::MAX`.
        let change = after.wrapping_sub(before) as isize;
        let total = held.fetch_add(change, Ordering::Relaxed) + change;
        if change < 0 {
            falls.fell_to(total);
            return;
        }
        falls.rose_to(total);
        if total > *bytes_max {
            self.make_room();
        }
    }

    /// Closes the largest accounts until the others fit.
    fn make_room(&self) {
        let Shared { kind, bytes_max, held, closed, falls, registry } = &*self.0;
        let mut closing = Vec::new();
        {
            let registry = registry.lock();
            while held.load(Ordering::Relaxed) > *bytes_max {
                let Some(entry) = registry.largest() else { break };
                let bytes = entry.bytes.swap(CLOSED, Ordering::Relaxed);
                if bytes != CLOSED {
                    held.fetch_sub(bytes as isize, Ordering::Relaxed);
                    closing.push(Arc::clone(entry));
                }
            }
        }
        closed.fetch_add(closing.len() as u64, Ordering::Relaxed);
        falls.fell_to(held.load(Ordering::Relaxed));
        for entry in closing {
            entry.holder.let_go(entry.number, *kind);
        }
    }
}

impl Registry {
    fn largest(&self) -> Option<&Arc<Entry>> {
        let bytes_of = |entry: &Entry| match entry.bytes.load(Ordering::Relaxed) {
            CLOSED => 0,
            bytes => bytes,
        };
        let counted = self.entries.values().map(|entry| (bytes_of(entry), entry));
        let largest = counted.max_by_key(|(bytes, _)| *bytes);
        largest.filter(|(bytes, _)| *bytes > 0).map(|(_, entry)| entry)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Budget").field(&self.kind()).field(&self.readings()).finish()
    }
}
