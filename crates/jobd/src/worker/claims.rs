//! What the daemon does with the table besides writing: taking rows and giving them back. Only one
//! such operation runs at a time, so that none sees rows that another one has half taken.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::info;

use super::{
    daemon::Event,
    writer::{Pause, now_s},
};
use crate::table::{
    Claimed, Found, JobTable, Mark, Origin, Owned, Pick, RowId, Status, TableError, Verdict,
};

/// The rows that the daemon works on, from claim to written end.
pub(super) type InHand = Arc<Mutex<HashSet<RowId>>>;

/// What to do next.
#[derive(Debug)]
pub(super) enum Claim {
    /// Find rows that carry our mark and are not in hand. Those whose process has not begun
    /// are given back, the others are for a person to decide. At start, and whenever a claim's
    /// outcome is not known.
    Recover,
    /// Take the rows that clients wait for.
    Manual(Vec<RowId>),
    /// Take waiting rows of these targets.
    Fetch(Vec<String>),
}

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    /// `resolved`: rows for which it is now known whether they are ours. `gone`: rows that had
    /// begun and are not ours any more, or have ended.
    Recovered {
        given_back: Vec<RowId>,
        unfinished: Vec<Owned>,
        resolved: Vec<RowId>,
        gone: Vec<RowId>,
    },
    Manual {
        asked: Vec<RowId>,
        rows: Vec<Claimed>,
    },
    Fetched {
        targets: Vec<String>,
        rows: Vec<Claimed>,
    },
}

/// When the next claim may go.
#[derive(Debug)]
pub(super) struct Turn {
    /// A claim is under way, or the pause after a failed one.
    pub(super) is_taken: bool,
    pub(super) must_check: bool,
    pub(super) must_recover: bool,
    /// The first recovery is done.
    pub(super) has_looked: bool,
    pub(super) manual: Vec<RowId>,
    /// Rows that may be `running` with our mark although no process was started for them: those
    /// of claims whose outcome is not known, and those whose slot was gone when the claim was
    /// done. They are given back unless they are queued here.
    pub(super) unstarted: HashSet<RowId>,
    pub(super) pause: Pause,
}

impl Turn {
    pub(super) fn new() -> Self {
        Self {
            is_taken: false,
            must_check: true,
            must_recover: true,
            has_looked: false,
            manual: Vec::new(),
            unstarted: HashSet::new(),
            pause: Pause::new(),
        }
    }
}

/// What a claim needs to know of the daemon at the moment it begins.
#[derive(Debug)]
pub(super) struct Claimer {
    pub(super) table: Arc<dyn JobTable>,
    pub(super) mark: Mark,
    pub(super) in_hand: InHand,
    pub(super) served: HashSet<String>,
    pub(super) fetch_limit: u32,
    pub(super) must_check: bool,
    /// As [`Turn::unstarted`].
    pub(super) unstarted: Vec<RowId>,
    /// The rows whose process has begun; `None`: not known, so any may have begun.
    pub(super) begun: Option<HashSet<RowId>>,
    pub(super) judged: Mutex<Judged>,
}

/// The verdicts so far. A transaction that is run again asks again.
#[derive(Debug, Default)]
pub(super) struct Judged {
    free_slots: HashMap<String, usize>,
    started: HashSet<RowId>,
    taken: HashSet<RowId>,
}

impl Judged {
    /// So many rows of each target can start at once.
    pub(super) fn new(free_slots: HashMap<String, usize>) -> Mutex<Self> {
        Mutex::new(Self { free_slots, ..Self::default() })
    }

    fn take(&mut self, found: &Found, origin: Origin) -> Verdict {
        self.taken.insert(found.id);
        if !self.started.contains(&found.id) {
            let free = self.free_slots.get_mut(&found.target).filter(|free| **free > 0);
            let Some(free) = free else { return Verdict::Accept(origin) };
            *free -= 1;
            self.started.insert(found.id);
        }
        Verdict::Start { origin, started_s: now_s() }
    }
}

impl Claimer {
    pub(super) async fn perform(self, claim: Claim) -> Event {
        match self.attempt(&claim).await {
            Ok(done) => Event::Claimed(done),
            Err(error) => Event::ClaimFailed(claim, error, self.judged.into_inner().taken),
        }
    }

    async fn attempt(&self, claim: &Claim) -> Result<Done, TableError> {
        if self.must_check {
            self.table.check().await?;
            info!(table = %self.table.describe(), "the job table is there");
        }
        match claim {
            Claim::Recover => self.recover().await,
            Claim::Manual(ids) => {
                let judge = |found: &Found| self.judge_manual(found);
                let rows = self.table.claim(Pick::Ids(ids), &self.mark, &judge).await?;
                Ok(Done::Manual { asked: ids.clone(), rows })
            }
            Claim::Fetch(targets) => {
                let pick = Pick::Waiting { targets, limit: self.fetch_limit };
                let judge = |found: &Found| self.judge_waiting(found);
                let rows = self.table.claim(pick, &self.mark, &judge).await?;
                Ok(Done::Fetched { targets: targets.clone(), rows })
            }
        }
    }

    async fn recover(&self) -> Result<Done, TableError> {
        // Read before the query and after: a job that ends or comes meanwhile is in hand, too.
        let before = self.in_hand.lock().clone();
        let owned = self.table.owned(&self.mark).await?;
        let after = self.in_hand.lock().clone();
        let is_in_hand = |id: &RowId| before.contains(id) || after.contains(id);
        let resolved: Vec<RowId> =
            self.unstarted.iter().copied().filter(|id| !is_in_hand(id)).collect();
        let has_begun = |id: &RowId| self.begun.as_ref().is_none_or(|begun| begun.contains(id));
        let mut gone: HashSet<RowId> = self.begun.iter().flatten().copied().collect();
        gone.retain(|id| !is_in_hand(id));
        let mut accepted = Vec::new();
        let mut unstarted = resolved.clone();
        let mut unfinished = Vec::new();
        for row in owned {
            if is_in_hand(&row.id) || resolved.contains(&row.id) {
                continue;
            }
            if !row.running {
                accepted.push(row.id);
            } else if has_begun(&row.id) {
                gone.remove(&row.id);
                unfinished.push(row);
            } else {
                unstarted.push(row.id);
            }
        }
        let given_back = if accepted.is_empty() && unstarted.is_empty() {
            Vec::new()
        } else {
            self.table.give_back(&self.mark, &accepted, &unstarted).await?
        };
        let gone = gone.into_iter().collect();
        Ok(Done::Recovered { given_back, unfinished, resolved, gone })
    }

    fn judge_waiting(&self, found: &Found) -> Verdict {
        if self.in_hand.lock().contains(&found.id) {
            // Someone set the row back to waiting while its process runs here.
            return Verdict::Leave;
        }
        // A database that compares without case may find rows of targets that are not ours.
        if self.served.contains(&found.target) {
            self.judged.lock().take(found, Origin::Background)
        } else {
            Verdict::Ignore
        }
    }

    fn judge_manual(&self, found: &Found) -> Verdict {
        if self.in_hand.lock().contains(&found.id) {
            return Verdict::Leave;
        }
        match found.status {
            Status::Manual if self.served.contains(&found.target) => {
                self.judged.lock().take(found, Origin::Manual)
            }
            Status::Manual | Status::Waiting => Verdict::Ignore,
            _ => Verdict::Leave,
        }
    }
}

/// Why a row that a client named was not taken, in the original's words.
pub(super) fn refusal(claimed: &Claimed) -> String {
    let row = &claimed.row;
    match row.status {
        Status::Manual if claimed.verdict == Verdict::Leave => {
            format!("job {} is still running here", row.id)
        }
        Status::Manual => format!("target '{}' not found (job id={})", row.target, row.id),
        _ => format!("status = {} != manual", row.status),
    }
}
