//! Following: every committed record goes to the fold, until nobody leads and the log lets this node lead.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use spindle_engine::{Engine, Fold, Options, StartError, Takeover};
use spindle_log::{LogError, Position, ReadError, SharedLog};

use crate::announcement::Role;
use crate::election::{Decision, Election, JITTER_MAX, PATIENCE};
use crate::node::{Leadership, Node};

/// Why a node follows no more.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It was stopped.
    #[error("the node was stopped")]
    Stopped,
    /// Another process has its name.
    #[error(
        "another server of this cluster is named {0:?}, and was here first: give each its own name (--node)"
    )]
    NameTaken(String),
    /// The log cannot be opened.
    #[error("cannot open the shared log: {0}")]
    Open(Box<dyn Error + Send + Sync>),
    /// The log cannot be folded, or the first record of a new epoch cannot be written.
    #[error(transparent)]
    Start(StartError),
    /// The log has failed for good.
    #[error(transparent)]
    Log(LogError),
    /// The log is shorter than it was.
    #[error(
        "the shared log ends before record {end}, and record {folded} was read from it: records that were committed are \
         missing. Is it another log, or one that was restored from a backup?"
    )]
    Shorter {
        /// Where it ends.
        end: Position,
        /// What was read.
        folded: Position,
    },
    /// A position is missing.
    #[error("the shared log has a gap: record {wanted} should come, and {found} does")]
    Gap {
        /// The next position.
        wanted: Position,
        /// What stands there.
        found: Position,
    },
}

/// Why one run of following ends without a takeover.
enum Ended {
    /// The next record of the log was trimmed.
    Behind,
    Failed(FollowError),
    Fold(StartError),
}

/// A follower looks at least this often whether it is its turn.
const LOOK: Duration = Duration::from_millis(50);
/// How long a log that is out of reach is left alone.
const PAUSE: Duration = Duration::from_millis(200);
/// The same where it cannot be opened at all.
const OPEN_PAUSE: Duration = Duration::from_secs(1);
/// Records read between two looks whether the node stops.
const RECORDS_BETWEEN_LOOKS: u64 = 1024;

impl Node {
    /// Follows the log until this node leads it. `options` are the engine's.
    ///
    /// A node that loses a campaign, or is so far behind that unread records were trimmed, opens the log
    /// anew and folds it from its beginning. Others lead meanwhile, so nobody waits for that; and the
    /// followers' turns are apart, so that mostly one node campaigns at a time.
    ///
    /// # Errors
    ///
    /// When the node is stopped; when the log cannot be opened the first time, or cannot be folded.
    pub fn follow(&self, options: &Options) -> Result<Leadership, FollowError> {
        self.state().reads = options.format;
        loop {
            let mut ended = None;
            let board = self.board().clone();
            let options = Options { nonce: rand::random(), board, ..options.clone() };
            let clock = Arc::clone(&self.shared.options.clock);
            let mut epoch = 0;
            let engine = Engine::follow(clock, options, |fold| {
                let followed = self.follow_once(fold);
                epoch = fold.epoch() + 1;
                followed.map_err(|why| match why {
                    Ended::Fold(error) => error,
                    other => {
                        ended = Some(other);
                        StartError::GivenUp
                    }
                })
            });
            match (engine, ended) {
                (Ok(engine), _) => return Ok(self.lead(engine, epoch)),
                (Err(StartError::Conflict), _) => {
                    tracing::info!("another node was faster: following it");
                }
                (Err(StartError::Unanswered), _) => {
                    // Whether or not the record is in the log: this process does not lead by a record whose
                    // answer it has not got.
                    tracing::warn!("the log did not say who leads: following it anew");
                }
                (_, Some(Ended::Behind)) => {
                    tracing::warn!("the log was trimmed before it was read: folding it anew");
                }
                (_, Some(Ended::Failed(error))) => return Err(self.gave_up(error)),
                (Err(error), _) => return Err(self.gave_up(FollowError::Start(error))),
            }
            self.let_go();
        }
    }

    fn gave_up(&self, error: FollowError) -> FollowError {
        self.let_go();
        error
    }

    fn let_go(&self) {
        {
            let mut state = self.state();
            (state.role, state.election) = (Role::Follower, None);
        }
        self.detach();
    }

    fn follow_once(&self, fold: &mut Fold<'_>) -> Result<Takeover, Ended> {
        let log = self.open()?;
        self.state().was_open = true;
        self.attach(&log);
        let first = log.first();
        fold.begin(first);
        let follower = Follower { node: self, fold, log, next: first, in_trouble: false };
        follower.run()
    }

    /// Opens the log. The first time it must work; later the log may be out of reach for a while, also when
    /// this node has led meanwhile.
    fn open(&self) -> Result<Arc<dyn SharedLog>, Ended> {
        let was_open = self.state().was_open;
        let mut is_said = false;
        loop {
            match (self.shared.options.open)() {
                Ok(log) => return Ok(log),
                Err(error) if !was_open => return Err(Ended::Failed(FollowError::Open(error))),
                Err(error) => {
                    if !std::mem::replace(&mut is_said, true) {
                        tracing::warn!(
                            "cannot open the shared log; trying again until it works: {error}"
                        );
                    }
                }
            }
            if !self.pause(OPEN_PAUSE) {
                return Err(Ended::Failed(FollowError::Stopped));
            }
        }
    }
}

struct Follower<'a, 'b> {
    node: &'a Node,
    fold: &'a mut Fold<'b>,
    log: Arc<dyn SharedLog>,
    /// What comes next.
    next: Position,
    /// The log is out of reach, and a warning was logged.
    in_trouble: bool,
}

impl Follower<'_, '_> {
    fn run(mut self) -> Result<Takeover, Ended> {
        loop {
            self.node.check().map_err(Ended::Failed)?;
            match self.step() {
                Ok(Some(takeover)) => return Ok(takeover),
                Ok(None) => self.in_trouble = false,
                Err(Trouble::Log(error)) => self.wait_for_log(&error)?,
                Err(Trouble::End(ended)) => return Err(ended),
            }
        }
    }

    /// Reads what there is, and campaigns or waits for more.
    fn step(&mut self) -> Result<Option<Takeover>, Trouble> {
        if !self.is_caught_up() {
            self.log.refresh()?;
        }
        self.read_on()?;
        let now = self.node.now();
        match self.decide(now) {
            Decision::Campaign => self.campaign(),
            Decision::WaitUntil(at) => {
                self.log.wait_beyond(self.next, at.saturating_sub(now).min(LOOK))?;
                Ok(None)
            }
        }
    }

    fn is_caught_up(&self) -> bool {
        self.node.state().election.is_some()
    }

    fn decide(&self, now: Duration) -> Decision {
        let state = self.node.state();
        let rank = state.peers.rank(self.node.name(), self.node.shard(), now);
        state.election.as_ref().map_or(Decision::WaitUntil(now), |it| it.decide(now, rank))
    }

    /// It is this node's turn, by what it has heard. Asks the log whether the node has read everything.
    fn campaign(&mut self) -> Result<Option<Takeover>, Trouble> {
        let asked = self.node.now();
        let end = self.log.refresh()?;
        if end > self.next {
            // Another node appends. Whether it is a leader shows when its records are read.
            return Ok(None);
        }
        let now = self.node.now();
        if self.in_trouble || now.saturating_sub(asked) > PATIENCE {
            // The leader had no log either, and gets its time to come back.
            self.node.state().election.iter_mut().for_each(|election| election.log_is_back(now));
            return Ok(None);
        }
        self.check_end(end)?;
        self.node.turn_into(Role::Campaigning);
        tracing::info!("nobody leads: asking the log for record {}", self.next);
        Ok(Some(Takeover { log: Arc::clone(&self.log) as _, next: self.next }))
    }

    fn check_end(&self, end: Position) -> Result<(), Trouble> {
        if end < self.next {
            let folded = Position(self.next.0.saturating_sub(1));
            return Err(Ended::Failed(FollowError::Shorter { end, folded }).into());
        }
        Ok(())
    }

    /// Gives the fold all that is committed.
    fn read_on(&mut self) -> Result<(), Trouble> {
        let end = self.log.next();
        self.check_end(end)?;
        let is_caught_up = self.is_caught_up();
        if end == self.next && is_caught_up {
            return Ok(());
        }
        for stored in self.log.read(self.next)? {
            let stored = stored?;
            let (wanted, found) = (self.next, stored.position);
            if wanted != found {
                return Err(Ended::Failed(FollowError::Gap { wanted, found }).into());
            }
            self.fold.record(stored).map_err(Ended::Fold)?;
            self.next = wanted.next();
            if self.next.0.is_multiple_of(RECORDS_BETWEEN_LOOKS) {
                self.publish();
                if self.node.state().stops {
                    return Err(Ended::Failed(FollowError::Stopped).into());
                }
            }
        }
        if self.next < end {
            // The log knew of more records than it could show yet: the next look reads on.
            return Ok(());
        }
        self.fold.caught_up().map_err(Ended::Fold)?;
        self.publish();
        let (now, epoch) = (self.node.now(), self.fold.epoch());
        let mut state = self.node.state();
        match &mut state.election {
            Some(election) => election.record(now, epoch),
            none => {
                let jitter = JITTER_MAX.mul_f64(rand::random::<f64>());
                let begun = Election::begin(now, epoch, jitter);
                *none = Some(begun);
                if state.is_reluctant {
                    state.election = state.election.take().map(|it| it.reluctant(now));
                }
            }
        }
        Ok(())
    }

    fn publish(&self) {
        let has_begun = self.fold.seat().is_some();
        {
            let mut state = self.node.state();
            (state.position, state.epoch) = (self.next.0, self.fold.epoch());
        }
        if has_begun {
            self.node.note_begun();
        }
    }

    fn wait_for_log(&mut self, error: &ReadError) -> Result<(), Ended> {
        // A log that has failed for good does not come back.
        self.log.check().map_err(|error| Ended::Failed(FollowError::Log(error)))?;
        if !std::mem::replace(&mut self.in_trouble, true) {
            tracing::warn!("cannot read the shared log; trying again until it works: {error}");
        }
        self.node.pause(PAUSE);
        Ok(())
    }
}

/// Why a step was not completed.
enum Trouble {
    /// The log is out of reach: it may work later.
    Log(ReadError),
    End(Ended),
}

impl From<Ended> for Trouble {
    fn from(ended: Ended) -> Trouble {
        Trouble::End(ended)
    }
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Trouble {
        match error {
            ReadError::Trimmed { .. } => Trouble::End(Ended::Behind),
            ReadError::Damaged { .. } => Trouble::End(Ended::Fold(StartError::Read(error))),
            other => Trouble::Log(other),
        }
    }
}
