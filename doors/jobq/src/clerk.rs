//! The thread that answers queries: it has the copy of Jobq's jobs kept up to date, has SQLite look
//! through it, and advances what polls find. Only this thread asks the engine, at the priority of
//! all else: who holds the engine's lock must not wait for a processor.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage, Rejection};
use spindle_engine::{
    Engine, FetchError, Gate, JobqChange, JobqChanges, Refused, Touch, Touched, Which,
};
use tokio::sync::oneshot;

use crate::aside::Aside;
use crate::bodies::{ListBody, PollBody};
use crate::json::spaced;
use crate::mirror::{Mirror, QueryLimits, Row, VALUE_BYTES_MAX};
use crate::refusal::{Answered, Refusal};
use crate::show::payload_of;
use crate::story::{self, Entry};

/// Queries that may wait for their turn.
const WAITING_MAX: usize = 1_024;

/// How often the copy follows the engine when nobody asks, so that who asks next waits less.
const IDLE: Duration = Duration::from_millis(250);

/// Slices it follows then: some thousands of jobs a second, and little of a processor.
const IDLE_SLICES: usize = 8;

/// Longer events are not shown to queries, nor are longer payloads.
const COLUMN_BYTES_MAX: usize = VALUE_BYTES_MAX - 1024;

/// What came of a query.
#[derive(Debug)]
pub struct Found {
    /// The answer's body, or why there is none.
    pub body: Answered<String>,
    /// What must be durable before either may be told: that nothing matches tells something too.
    pub gate: Gate,
}

enum Ask {
    List(ListBody),
    Poll(PollBody),
}

struct Request {
    ask: Ask,
    reply: oneshot::Sender<Found>,
}

/// Asks the thread. It ends when all of these are gone.
#[derive(Clone)]
pub struct Clerk {
    requests: SyncSender<Request>,
}

impl Clerk {
    /// Starts the thread.
    pub fn start(engine: Engine, limits: QueryLimits) -> std::io::Result<Clerk> {
        let aside = Aside::start(limits)?;
        engine.jobq_forget_told();
        let (requests, asked) = sync_channel(WAITING_MAX);
        let work = Work { engine, aside, in_round: false, broken: false };
        let thread = std::thread::Builder::new().name("spindle-jobq".to_owned());
        thread.spawn(move || work.serve(&asked))?;
        Ok(Clerk { requests })
    }

    /// The jobs that match.
    pub async fn list(&self, body: ListBody) -> Found {
        self.ask(Ask::List(body)).await
    }

    /// The longest untouched job that matches, advanced.
    pub async fn poll(&self, body: PollBody) -> Found {
        self.ask(Ask::Poll(body)).await
    }

    async fn ask(&self, ask: Ask) -> Found {
        let busy = || Found { body: Err(Refusal::busy()), gate: Gate::OPEN };
        let (reply, replied) = oneshot::channel();
        match self.requests.try_send(Request { ask, reply }) {
            Ok(()) => replied.await.unwrap_or_else(|_| busy()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => busy(),
        }
    }
}

/// The thread's own.
struct Work {
    engine: Engine,
    aside: Aside,
    /// A round of telling changes is under way.
    in_round: bool,
    /// The copy has lost a change: it is made anew.
    broken: bool,
}

impl Work {
    fn serve(mut self, asked: &Receiver<Request>) {
        loop {
            match asked.recv_timeout(IDLE) {
                Ok(request) => self.answer(request),
                Err(RecvTimeoutError::Timeout) => self.follow_idly(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&mut self, request: Request) {
        let Request { ask, reply } = request;
        if reply.is_closed() {
            return;
        }
        let mut gate = Gate::OPEN;
        let body = match ask {
            Ask::List(body) => self.list(body, &mut gate),
            Ask::Poll(body) => self.poll(body, &mut gate, &reply),
        };
        // Who asked may have gone.
        let _ = reply.send(Found { body, gate });
    }

    fn list(&mut self, body: ListBody, gate: &mut Gate) -> Answered<String> {
        *gate = self.follow()?;
        let listed = self.query(move |mirror| mirror.list(&body.query, body.limit))?;
        Ok(format!("{{\"jobs\":{listed}}}\n"))
    }

    /// Advances the first candidate that still is what the copy says. What was lost to somebody
    /// else is passed over, and when none is left the copy is looked at anew.
    fn poll(
        &mut self,
        body: PollBody,
        gate: &mut Gate,
        reply: &oneshot::Sender<Found>,
    ) -> Answered<String> {
        let PollBody { query, state } = body;
        let query = Arc::new(query);
        let mut lost = HashSet::new();
        // Mostly the first match is the one, and to look for a second could be to look at all.
        let mut wanted = 1;
        loop {
            *gate = self.follow()?;
            let asked = Arc::clone(&query);
            let found = self.query(move |mirror| mirror.candidates(&asked, wanted))?;
            let mut all_lost_before = true;
            for candidate in &found {
                if reply.is_closed() {
                    return Err(Refusal::no_match());
                }
                let id = JobId(candidate.id);
                let advanced = advance(&self.engine, id, candidate.revision, &state);
                self.engine.nudge();
                if let Some(own) = advanced? {
                    *gate = own.max(*gate);
                    return Ok(format!("{{\"id\":{id},\"state\":{state}}}\n"));
                }
                all_lost_before &= !lost.insert((candidate.id, candidate.revision));
            }
            if all_lost_before {
                // A job lost twice as it was is none that can be advanced.
                if found.len() < wanted {
                    return Err(Refusal::no_match());
                }
                wanted *= 2;
            }
        }
    }

    fn ask<T: Send + 'static>(
        &mut self,
        errand: impl FnOnce(&mut Mirror) -> T + Send + 'static,
    ) -> Answered<T> {
        self.aside.run(errand).ok_or_else(Refusal::busy)
    }

    fn query<T: Send + 'static>(
        &mut self,
        ask: impl Fn(&Mirror) -> Answered<T> + Send + Sync + 'static,
    ) -> Answered<T> {
        self.aside.query(ask).unwrap_or_else(|| Err(Refusal::busy()))
    }

    /// Brings the copy to where the engine is now. Returns what an answer must wait for.
    fn follow(&mut self) -> Answered<Gate> {
        // What is left of a round under way is from before; what changed since is in the next.
        while self.in_round {
            self.follow_slice()?;
        }
        loop {
            let gate = self.follow_slice()?;
            if !self.in_round {
                return Ok(gate);
            }
        }
    }

    fn follow_idly(&mut self) {
        for _ in 0..IDLE_SLICES {
            if self.engine.jobq_changes_waiting() == 0 {
                return;
            }
            if let Err(refusal) = self.follow_slice() {
                tracing::warn!("jobq: cannot keep the jobs for queries: {}", refusal.message);
                return;
            }
        }
    }

    fn follow_slice(&mut self) -> Answered<Gate> {
        if std::mem::take(&mut self.broken) {
            self.engine.jobq_forget_told();
        }
        let JobqChanges { restart, changes, more, gate } = self.engine.jobq_changes();
        self.in_round = more;
        // Until the slice is in the copy.
        self.broken = true;
        if restart {
            self.ask(|mirror| mirror.clear())?.map_err(unkept)?;
        }
        let (mut rows, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            let (id, row) = match change {
                JobqChange::Gone(id) => (id, None),
                JobqChange::Live { image, payload_changed: false } => {
                    (JobId(image.id), Some(row(&image, None)))
                }
                JobqChange::Live { image, payload_changed: true } => {
                    (JobId(image.id), self.row_with_payload(*image)?)
                }
                JobqChange::Finished(id) => {
                    (id, self.engine.job(Which::Id(id))?.0.map(|image| row(&image, None)))
                }
            };
            match row {
                Some(row) => rows.push(row),
                None => gone.push(id.0.cast_signed()),
            }
        }
        let unknown = self.ask(move |mirror| mirror.apply(&rows, &gone))?.map_err(unkept)?;
        let mut rows = Vec::with_capacity(unknown.len());
        for id in unknown {
            if let (Some(image), _) = self.engine.job(Which::Id(JobId(id.cast_unsigned())))? {
                rows.extend(self.row_with_payload(image)?);
            }
        }
        if !rows.is_empty() {
            self.ask(move |mirror| mirror.apply(&rows, &[]))?.map_err(unkept)?;
        }
        self.broken = false;
        Ok(gate)
    }

    /// A job as a row that is new; none if the job is gone.
    fn row_with_payload(&self, image: JobImage) -> Answered<Option<Row>> {
        Ok(self.payload(&image)?.map(|payload| row(&image, Some(payload))))
    }

    /// A job's payload for queries; none if the job is gone.
    fn payload(&self, image: &JobImage) -> Answered<Option<Option<String>>> {
        let mut place = image.payload.clone().unwrap_or(BytesRef::NONE);
        loop {
            match self.engine.bytes(&place) {
                Ok(bytes) => return Ok(Some(column(&payload_of(&bytes, place.kind())))),
                // It cannot be shown to queries, and asking for it tells why.
                Err(FetchError::Damaged(_)) => return Ok(Some(None)),
                Err(FetchError::Moved) => {}
                Err(error) => return Err(error.into()),
            }
            match self.engine.job(Which::Id(JobId(image.id)))? {
                (Some(now), _) => place = now.payload.unwrap_or(BytesRef::NONE),
                (None, _) => return Ok(None),
            }
        }
    }
}

fn unkept(error: rusqlite::Error) -> Refusal {
    Refusal::mirror(format!("the copy of the jobs for queries cannot be kept: {error}"))
}

fn row(image: &JobImage, payload: Option<Option<String>>) -> Row {
    let id = image.id.cast_signed();
    let rare = image.rare();
    let events: Vec<String> =
        story::events_of(image).into_iter().map(|entry| spaced(&entry.json)).collect();
    let events = format!("[{}]", events.join(", "));
    Row {
        id,
        // Jobs that Jobq never touched are no candidates; each gets a place of its own.
        touch: if rare.touch == 0 { -id } else { rare.touch.cast_signed() },
        revision: image.revision,
        fixed: !story::is_user_driven(image) || image.status().is_finished(),
        modified: (story::modified_ms(image) / 1000).cast_signed(),
        state: column(&story::state_of(image)),
        payload,
        events: if events.len() > COLUMN_BYTES_MAX { "[]".to_owned() } else { events },
    }
}

/// A JSON text as queries see it: null is SQL's NULL.
fn column(json: &str) -> Option<String> {
    (json != "null" && json.len() <= COLUMN_BYTES_MAX / 2).then(|| spaced(json))
}

/// Sets a job's state if it still is what the copy says. None: it is not.
fn advance(engine: &Engine, id: JobId, revision: u32, state: &str) -> Answered<Option<Gate>> {
    let touched = engine.touch(id, Some(revision), |before| {
        let old = before.state.and_then(|old| std::str::from_utf8(old).ok()).ok_or(())?;
        let event = Entry::advanced(old, state, before.now_ms).encode();
        Ok::<_, ()>(Touch { state: Some(Bytes::copy_from_slice(state.as_bytes())), event })
    });
    match touched {
        Ok(Touched::Done(_, gate)) => Ok(Some(gate)),
        Ok(Touched::Declined((), _)) => Ok(None),
        Err(Refused::Rejected(Rejection::Stale | Rejection::NotFound | Rejection::Finished, _)) => {
            Ok(None)
        }
        Err(refused) => Err(refused.into()),
    }
}
