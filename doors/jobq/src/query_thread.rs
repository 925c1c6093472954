//! The thread that answers queries: it keeps the copy of Jobq's jobs up to date, has SQLite search
//! it, and advances the jobs that polls find. Only this thread asks the engine, and it runs at
//! normal priority: a thread that holds the engine's lock must not wait for a processor.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage, Rejection};
use spindle_engine::{
    Change, Changes, Engine, FetchError, Gated, JobRef, JobUpdate, Refused, Updated,
};
use tokio::sync::{oneshot, watch};

use crate::bodies::{ListBody, PollBody};
use crate::history::{self, Entry};
use crate::json::spaced;
use crate::listing::{Piece, too_large};
use crate::query::Budget;
use crate::refusal::{Answered, Refusal};
use crate::replica::{Column, QueryLimits, Replica, Row, VALUE_BYTES_MAX};
use crate::show::{self, Modified, payload_of};
use crate::sqlite_workers::{SqliteWorkers, Unavailable};

/// Queries that may wait for their turn.
const WAITING_MAX: usize = 1_024;

/// How often the copy follows the engine while no query comes, so that the next query waits less.
const IDLE: Duration = Duration::from_millis(250);

/// How many slices it then follows at a time: some thousands of jobs a second, and little of a
/// processor.
const IDLE_SLICES: usize = 8;

/// The result of a query: the answer's body, or a refusal. Either is held until what it reveals is
/// durable; even "nothing matches" reveals something.
type Found = Gated<Answered<String>>;

enum Ask {
    List(ListBody),
    Poll(PollBody),
}

struct Request {
    ask: Ask,
    reply: Reply,
}

/// Where an answer goes, and whether the client still waits for it.
struct Reply {
    sender: oneshot::Sender<Found>,
    baton: Baton,
}

impl Reply {
    /// Nobody waits for it any more.
    fn is_unwanted(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Decides between the two sides of a request. Both may try to take the baton, and only one gets
/// it, so a request that was answered as having changed nothing changes nothing later.
#[derive(Clone, Default)]
struct Baton(Arc<AtomicBool>);

impl Baton {
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A handle to the thread, which ends when all handles are gone.
#[derive(Clone)]
pub struct QueryThread {
    requests: SyncSender<Request>,
    stopped: Arc<watch::Sender<bool>>,
    budget: Budget,
}

impl QueryThread {
    /// Starts the thread.
    pub fn start(engine: Engine, limits: QueryLimits) -> std::io::Result<QueryThread> {
        let workers = SqliteWorkers::start(limits)?;
        let budget = workers.budget();
        engine.replica().restart();
        let (requests, asked) = sync_channel(WAITING_MAX);
        let list_bytes_max = limits.answer_bytes_max;
        let work = Work { engine, workers, list_bytes_max, in_round: false, broken: false };
        let thread = std::thread::Builder::new().name("spindle-jobq".to_owned());
        thread.spawn(move || work.serve(&asked))?;
        Ok(QueryThread { requests, stopped: Arc::default(), budget })
    }

    /// Ends the query under way, and answers all waiting and later queries that the server is
    /// stopping. Does not wait for any of them.
    pub fn stop(&self) {
        self.budget.stop();
        self.stopped.send_replace(true);
    }

    /// The jobs that match.
    pub async fn list(&self, body: ListBody) -> Found {
        self.ask(Ask::List(body)).await
    }

    /// The least recently updated job that matches, advanced.
    pub async fn poll(&self, body: PollBody) -> Found {
        self.ask(Ask::Poll(body)).await
    }

    async fn ask(&self, ask: Ask) -> Found {
        let refused = |refusal| Gated::open(Err(refusal));
        let (sender, mut replied) = oneshot::channel();
        let baton = Baton::default();
        let reply = Reply { sender, baton: baton.clone() };
        if self.requests.try_send(Request { ask, reply }).is_err() {
            return refused(Refusal::busy());
        }
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            biased;
            found = &mut replied => return found.unwrap_or_else(|_| refused(Refusal::busy())),
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        if baton.take() {
            return refused(Refusal::interrupted());
        }
        // The thread has the baton and is advancing the job, which takes very little time.
        replied.await.unwrap_or_else(|_| refused(Refusal::busy()))
    }
}

/// The thread's own.
struct Work {
    engine: Engine,
    workers: SqliteWorkers,
    list_bytes_max: usize,
    /// The engine is in the middle of a round of changes.
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
        if reply.is_unwanted() {
            return;
        }
        let mut answer = Gated::open(());
        let body = match ask {
            // The copy is still with a query that was given up.
            _ if !self.workers.is_here() => Err(Refusal::busy()),
            Ask::List(body) => self.list(body, &mut answer, &reply),
            Ask::Poll(body) => self.poll(body, &mut answer, &reply),
        };
        // The client may have disconnected.
        let _ = reply.sender.send(answer.map(|()| body));
    }

    fn list(&mut self, body: ListBody, answer: &mut Gated<()>, reply: &Reply) -> Answered<String> {
        answer.absorb(self.follow()?);
        let pieces = self.query(move |replica| replica.list(&body.query, body.limit), reply)?;
        let mut listed = String::from("{\"jobs\":[");
        let start = listed.len();
        for piece in pieces {
            let jobs = match piece {
                Piece::Jobs(jobs) => jobs,
                Piece::Elsewhere(id) => match self.whole(JobId(id), answer)? {
                    Some(job) => job,
                    None => continue,
                },
            };
            if listed.len() + jobs.len() > self.list_bytes_max {
                return Err(too_large(self.list_bytes_max));
            }
            let comma = if listed.len() > start { "," } else { "" };
            listed.push_str(comma);
            listed.push_str(&jobs);
        }
        listed.push_str("]}\n");
        Ok(listed)
    }

    /// A job of which the copy has a part only, as it is now. None: it is gone meanwhile.
    fn whole(&self, id: JobId, answer: &mut Gated<()>) -> Answered<Option<String>> {
        match answer.absorb(self.engine.jobs().get(JobRef::Id(id))?) {
            Some(image) => Ok(show::job(&self.engine, image, Modified::Shown)?),
            None => Ok(None),
        }
    }

    /// Advances the first candidate that still is what the copy says. Candidates that another
    /// client has changed are passed over, and when none is left the copy is searched again.
    fn poll(&mut self, body: PollBody, answer: &mut Gated<()>, reply: &Reply) -> Answered<String> {
        let PollBody { query, state } = body;
        let query = Arc::new(query);
        let mut lost = HashSet::new();
        // Usually the first match can be advanced, and searching for a second one could mean
        // searching all jobs.
        let mut wanted = 1;
        loop {
            answer.absorb(self.follow()?);
            let asked = Arc::clone(&query);
            let found = self.query(move |replica| replica.candidates(&asked, wanted), reply)?;
            let mut all_lost_before = true;
            for candidate in &found {
                if reply.is_unwanted() || !reply.baton.take() {
                    return Err(Refusal::interrupted());
                }
                let id = JobId(candidate.id);
                let advanced = advance(&self.engine, id, candidate.revision, &state)?;
                if let Some(image) = answer.absorb(advanced) {
                    // If the job is gone by now it was still polled, and somebody deleted it
                    // afterwards.
                    let shown = show::job(&self.engine, image, Modified::Shown)?;
                    return shown.map(|job| job + "\n").ok_or_else(Refusal::no_job);
                }
                reply.baton.give_back();
                all_lost_before &= !lost.insert((candidate.id, candidate.revision));
            }
            if all_lost_before {
                // A candidate that was lost twice in the same revision cannot be advanced.
                if found.len() < wanted {
                    return Err(Refusal::no_match());
                }
                wanted *= 2;
            }
        }
    }

    fn ask<T: Send + 'static>(
        &mut self,
        errand: impl FnOnce(&mut Replica) -> T + Send + 'static,
    ) -> Answered<T> {
        self.workers.run(errand).map_err(|_| Refusal::busy())
    }

    fn query<T: Send + 'static>(
        &mut self,
        ask: impl Fn(&Replica) -> Answered<T> + Send + Sync + 'static,
        reply: &Reply,
    ) -> Answered<T> {
        match self.workers.query(ask, || reply.is_unwanted()) {
            Ok(answer) => answer,
            Err(Unavailable::GivenUp) => Err(Refusal::too_costly(
                "a step of the query took too long and was given up: make it simpler",
            )),
            Err(Unavailable::Elsewhere) => Err(Refusal::busy()),
        }
    }

    /// Brings the copy to where the engine is now. Returns what an answer must wait for.
    fn follow(&mut self) -> Answered<Gated<()>> {
        // The rest of a round under way is older than this query; changes since then are in the
        // next round.
        while self.in_round {
            let slice = self.follow_slice()?;
            slice.without_waiting("the slices behind it wait for more");
        }
        loop {
            let slice = self.follow_slice()?;
            if !self.in_round {
                return Ok(slice);
            }
        }
    }

    fn follow_idly(&mut self) {
        if !self.workers.is_here() {
            return;
        }
        for _ in 0..IDLE_SLICES {
            if self.engine.replica().changes_waiting() == 0 {
                return;
            }
            match self.follow_slice() {
                Ok(slice) => {
                    slice.without_waiting("it is in the copy only: an answer follows anew")
                }
                Err(refusal) => {
                    let message = refusal.message;
                    return tracing::warn!("jobq: cannot keep the jobs for queries: {message}");
                }
            }
        }
    }

    fn follow_slice(&mut self) -> Answered<Gated<()>> {
        if std::mem::take(&mut self.broken) {
            self.engine.replica().restart();
        }
        let mut slice = Gated::open(());
        let Changes { restart, changes, more } = slice.absorb(self.engine.replica().changes());
        self.in_round = more;
        // Set until the slice is in the copy.
        self.broken = true;
        if restart {
            self.ask(|replica| replica.clear())?.map_err(unkept)?;
        }
        let (mut rows, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            let (id, row) = match change {
                Change::Gone(id) => (id, None),
                Change::Live { image, payload_changed: false } => {
                    (JobId(image.id), Some(row(&image, None)))
                }
                Change::Live { image, payload_changed: true } => {
                    (JobId(image.id), self.row_with_payload(*image)?)
                }
                Change::Finished(id) => {
                    let image = slice.absorb(self.engine.jobs().get(JobRef::Id(id))?);
                    (id, image.map(|image| row(&image, None)))
                }
            };
            match row {
                Some(row) => rows.push(row),
                None => gone.push(id.0.cast_signed()),
            }
        }
        let unknown = self.ask(move |replica| replica.apply(&rows, &gone))?.map_err(unkept)?;
        let mut rows = Vec::with_capacity(unknown.len());
        for id in unknown {
            let id = JobRef::Id(JobId(id.cast_unsigned()));
            if let Some(image) = slice.absorb(self.engine.jobs().get(id)?) {
                rows.extend(self.row_with_payload(image)?);
            }
        }
        if !rows.is_empty() {
            self.ask(move |replica| replica.apply(&rows, &[]))?.map_err(unkept)?;
        }
        self.broken = false;
        Ok(slice)
    }

    /// A job as a row that is new; none if the job is gone.
    fn row_with_payload(&self, image: JobImage) -> Answered<Option<Row>> {
        Ok(self.payload(&image)?.map(|payload| row(&image, Some(payload))))
    }

    /// A job's payload for queries; none if the job is gone.
    fn payload(&self, image: &JobImage) -> Answered<Option<Column>> {
        let place = image.payload.clone().unwrap_or(BytesRef::NONE);
        if place.len as usize > VALUE_BYTES_MAX {
            return Ok(Some(Column::TooLong));
        }
        match self.engine.jobs().payload(JobId(image.id), &place) {
            Ok(bytes) => Ok(Some(column(&payload_of(&bytes, place.kind())))),
            // Queries cannot see it; a request for the job itself shows why.
            Err(FetchError::Damaged(_)) => Ok(Some(Column::Json(None))),
            Err(FetchError::Moved) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn unkept(error: rusqlite::Error) -> Refusal {
    Refusal::replica(format!("the copy of the jobs for queries cannot be kept: {error}"))
}

fn row(image: &JobImage, payload: Option<Column>) -> Row {
    let id = image.id.cast_signed();
    let options = image.options();
    let (events, are_all) = events_column(image);
    let state = column(&history::state_of(image));
    Row {
        id,
        // Jobs that Jobq never updated are not candidates for polls; each gets a distinct place.
        update_seq: if options.update_seq == 0 { -id } else { options.update_seq.cast_signed() },
        revision: image.revision,
        fixed: !history::is_user_driven(image) || image.status().is_finished(),
        modified: (history::modified_ms(image) / 1000).cast_signed(),
        is_cut: !are_all || matches!(state, Column::TooLong),
        state: match state {
            Column::Json(state) => state,
            Column::TooLong => None,
        },
        payload,
        events,
    }
}

/// As many of a job's newest events as a value may hold, as JSON, and whether that is all.
fn events_column(image: &JobImage) -> (String, bool) {
    let all = history::events_of(image);
    let mut bytes = "[]".len();
    let mut kept: Vec<String> = Vec::new();
    for entry in all.iter().rev() {
        let event = spaced(&entry.json);
        bytes += event.len() + ", ".len();
        if bytes > VALUE_BYTES_MAX {
            break;
        }
        kept.push(event);
    }
    kept.reverse();
    let are_all = kept.len() == all.len() && image.options().pages.is_empty();
    (format!("[{}]", kept.join(", ")), are_all)
}

/// A JSON text as queries see it: null is SQL's NULL.
fn column(json: &str) -> Column {
    if json == "null" {
        return Column::Json(None);
    }
    let spaced = if json.len() > VALUE_BYTES_MAX { return Column::TooLong } else { spaced(json) };
    if spaced.len() > VALUE_BYTES_MAX { Column::TooLong } else { Column::Json(Some(spaced)) }
}

/// Sets a job's state if it still is what the copy says. None: it is not.
fn advance(
    engine: &Engine,
    id: JobId,
    revision: u32,
    state: &str,
) -> Answered<Gated<Option<JobImage>>> {
    let _turn = engine.turn();
    let updated = engine.jobs().update(id, Some(revision), |before| {
        let old = before.state.as_ref().and_then(|old| std::str::from_utf8(old).ok()).ok_or(())?;
        let event = Entry::advanced(old, state, before.now_ms).encode();
        Ok::<_, ()>(JobUpdate { state: Some(Bytes::copy_from_slice(state.as_bytes())), event })
    });
    let mut answer = Gated::open(());
    let image = match answer.absorb(updated) {
        Ok(Updated::Done(image)) => Some(*image),
        Ok(Updated::Declined(()))
        | Err(Refused::Rejected(Rejection::Stale | Rejection::NotFound | Rejection::Finished)) => {
            None
        }
        Err(refused) => return Err(refused.into()),
    };
    Ok(answer.map(|()| image))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn so_many_queries_wait_and_one_more_is_told_to_come_again() {
        let (requests, asked) = sync_channel(WAITING_MAX);
        let thread = QueryThread { requests, stopped: Arc::default(), budget: Budget::default() };
        let ask = || Box::pin(thread.list(ListBody::read(b"").expect("no body asks for all")));
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| ask()).collect();
        for query in &mut waiting {
            assert!(query.as_mut().poll(&mut cx).is_pending());
        }
        let Poll::Ready(found) = ask().as_mut().poll(&mut cx) else { panic!("it waits, too") };
        assert_eq!(found.without_waiting("a test looks at it"), Err(Refusal::busy()));
        // A place in the queue is free again.
        drop(asked.recv());
        assert!(ask().as_mut().poll(&mut cx).is_pending());
    }
}
