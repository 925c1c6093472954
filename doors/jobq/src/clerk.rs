//! The thread that answers queries: it keeps the copy of Jobq's jobs up to date, lets SQLite look
//! through it, and advances what polls find.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage, Rejection};
use spindle_engine::{
    Engine, FetchError, Gate, JobqChange, JobqChanges, Refused, Touch, Touched, Which,
};
use tokio::sync::oneshot;

use crate::bodies::{ListBody, PollBody};
use crate::json::spaced;
use crate::mirror::{Mirror, QueryLimits, Row, VALUE_BYTES_MAX};
use crate::refusal::{Answered, Refusal};
use crate::show::payload_of;
use crate::story::{self, Entry};

/// Queries that may wait for their turn.
const WAITING_MAX: usize = 1_024;

/// How often the copy follows the engine when nobody asks, so that who asks next waits less.
const IDLE: Duration = Duration::from_millis(100);

/// Slices it follows then: some thousands of jobs a second, and little of a processor.
const IDLE_SLICES: usize = 4;

/// Longer events are not shown to queries, nor are longer payloads.
const COLUMN_BYTES_MAX: usize = VALUE_BYTES_MAX - 1024;

/// What came of a query.
#[derive(Debug)]
pub struct Found {
    /// The answer's body.
    pub body: String,
    /// What must be durable before it may be told.
    pub gate: Gate,
}

enum Ask {
    List(ListBody),
    Poll(PollBody),
}

struct Request {
    ask: Ask,
    reply: oneshot::Sender<Answered<Found>>,
}

/// Asks the thread. It ends when all of these are gone.
#[derive(Clone)]
pub struct Clerk {
    requests: SyncSender<Request>,
}

impl Clerk {
    /// Starts the thread.
    pub fn start(engine: Engine, limits: QueryLimits) -> std::io::Result<Clerk> {
        let mirror = Mirror::new(limits).map_err(std::io::Error::other)?;
        engine.jobq_forget_told();
        let (requests, asked) = sync_channel(WAITING_MAX);
        let desk = Work { engine, mirror, in_round: false, broken: false };
        let thread = std::thread::Builder::new().name("spindle-jobq".to_owned());
        thread.spawn(move || desk.serve(&asked))?;
        Ok(Clerk { requests })
    }

    /// The jobs that match.
    pub async fn list(&self, body: ListBody) -> Answered<Found> {
        self.ask(Ask::List(body)).await
    }

    /// The longest untouched job that matches, advanced.
    pub async fn poll(&self, body: PollBody) -> Answered<Found> {
        self.ask(Ask::Poll(body)).await
    }

    async fn ask(&self, ask: Ask) -> Answered<Found> {
        let (reply, replied) = oneshot::channel();
        match self.requests.try_send(Request { ask, reply }) {
            Ok(()) => replied.await.unwrap_or_else(|_| Err(Refusal::busy())),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Refusal::busy()),
        }
    }
}

/// The thread's own.
struct Work {
    engine: Engine,
    mirror: Mirror,
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
        let found = self.follow().and_then(|gate| match ask {
            Ask::List(body) => {
                let listed = self.mirror.list(&body.query, body.limit)?;
                Ok(Found { body: format!("{{\"jobs\":{listed}}}\n"), gate })
            }
            Ask::Poll(body) => self.poll(&body, gate, &reply),
        });
        // Who asked may have gone.
        let _ = reply.send(found);
    }

    /// Advances the first candidate that still is what the copy says. What was lost to somebody
    /// else is passed over; when none is left and some were lost, the copy is looked at anew.
    fn poll(
        &mut self,
        body: &PollBody,
        mut gate: Gate,
        reply: &oneshot::Sender<Answered<Found>>,
    ) -> Answered<Found> {
        let mut lost_before = HashSet::new();
        loop {
            let mut lost = HashSet::new();
            let mut advanced = None;
            let engine = &self.engine;
            self.mirror.candidates(&body.query, |candidate| {
                if reply.is_closed() {
                    return ControlFlow::Break(());
                }
                match advance(engine, JobId(candidate.id), candidate.revision, &body.state) {
                    Ok(Some(gate)) => advanced = Some(Ok((candidate.id, gate))),
                    Ok(None) => {
                        lost.insert((candidate.id, candidate.revision));
                        return ControlFlow::Continue(());
                    }
                    Err(refusal) => advanced = Some(Err(refusal)),
                }
                ControlFlow::Break(())
            })?;
            self.engine.nudge();
            if let Some(advanced) = advanced {
                let (id, own) = advanced?;
                let body = format!("{{\"id\":{id},\"state\":{}}}\n", body.state);
                return Ok(Found { body, gate: gate.max(own) });
            }
            // A job lost twice as it was is none that can be advanced.
            if lost.is_subset(&lost_before) {
                return Err(Refusal::no_match());
            }
            lost_before.extend(lost);
            gate = self.follow()?;
        }
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
            self.mirror.clear().map_err(unkept)?;
        }
        let (mut rows, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            match self.row_of(change)? {
                Ok(row) => rows.push(row),
                Err(id) => gone.push(id.0.cast_signed()),
            }
        }
        self.mirror.apply(&rows, &gone).map_err(unkept)?;
        self.broken = false;
        Ok(gate)
    }

    /// A change as a row, or the job that is gone.
    fn row_of(&self, change: JobqChange) -> Answered<Result<Row, JobId>> {
        let (image, payload_changed) = match change {
            JobqChange::Gone(id) => return Ok(Err(id)),
            JobqChange::Live { image, payload_changed } => (*image, payload_changed),
            JobqChange::Finished(id) => match self.engine.job(Which::Id(id))? {
                (Some(image), _) => (image, false),
                (None, _) => return Ok(Err(id)),
            },
        };
        let id = image.id.cast_signed();
        let known = !payload_changed && self.mirror.has(id).map_err(unkept)?;
        let payload = match known {
            true => None,
            false => match self.payload(&image)? {
                Some(payload) => Some(payload),
                None => return Ok(Err(JobId(image.id))),
            },
        };
        Ok(Ok(row(&image, payload)))
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
fn advance(
    engine: &Engine,
    id: JobId,
    revision: u32,
    state: &str,
) -> Answered<Option<Gate>> {
    let touched = engine.touch(id, Some(revision), |before| {
        let old = before.state.and_then(|old| std::str::from_utf8(old).ok()).ok_or(())?;
        let event = Entry::advanced(old, state, before.now_ms).encode();
        Ok::<_, ()>(Touch { state: Some(Bytes::copy_from_slice(state.as_bytes())), event })
    });
    match touched {
        Ok(Touched::Done(_, gate)) => Ok(Some(gate)),
        Ok(Touched::Declined((), _)) => Ok(None),
        Err(Refused::Rejected(
            Rejection::Stale | Rejection::NotFound | Rejection::Finished,
            _,
        )) => Ok(None),
        Err(refused) => Err(refused.into()),
    }
}
