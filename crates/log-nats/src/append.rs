//! Sending records, and finding out what became of them.
//!
//! A record is published with the header `Nats-Expected-Last-Sequence`: the stream takes it only
//! right behind the record before it. Several are on their way at once; their answers arrive in any
//! order.
//!
//! # When an answer is bad or missing
//!
//! A refusal may be due to a record that is proposed and not committed, and a lost answer says nothing. So the writer
//! sends nothing more, waits for all outstanding answers (each comes or times out), and then reads the *position* from
//! the leader of the stream, which shows committed records only: the writer's own record means *Committed*, another one
//! *Conflict*, none *Unknown*. After Unknown the writer submits the same records again. If the writer's own record
//! stands there already, those held back behind it are sent.
//!
//! A copy of a first try may still arrive then, at any time. It does no harm: it is the same record with the same
//! condition, so at most one of all its copies is taken, and it stands where the others would have stood.
//!
//! # Two writers
//!
//! The condition names a number, not the record before. While a writer's records `p, p+1, p+2` are
//! on their way, another writer's record may take the place of `p`; then `p+1` finds its condition
//! met, and is in the log without the record that it was based on. Two rules limit that:
//!
//! - A writer's first [`IN_FLIGHT_MAX`](crate::IN_FLIGHT_MAX) records are sent one by one. Stragglers
//!   of the writer before it can only come to those positions; behind them they are refused for
//!   ever. So there is never another writer's record between two records of one writer that were on their way together.
//! - What is left are whole records of the older writer behind the first record of the newer one.
//!   They have a lower epoch than a record before them. A fold of the log MUST skip such records; a
//!   writer that meets one gets a Conflict, and opens the log anew.
//!
//! # Trims
//!
//! A server that keeps the only replica of a stream (seen with 2.10.27) reads the end of the stream before a purge and
//! uses it as the end after the purge. A record that it stored in between is not counted, and from then on it refuses
//! every record, because it expects the next one at a wrong position. So while records are on their way nothing is
//! purged, and none is sent during a purge. A purge by another client can still bring that about; a purge of nothing
//! makes the server count again.

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::{PublishAckFuture, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use spindle_log::{Ack, LogError, Position, Record};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::record;
use crate::server::{Refusal, Server, is_full, is_out_of_place};
use crate::state::{Outcome, Shared, Survey, Verdict};

/// The pause before an Unknown for a record that was refused at once, since it is offered again
/// right away.
const PAUSE: Duration = Duration::from_millis(50);
/// The same when there is no room.
const PAUSE_FULL: Duration = Duration::from_millis(500);
/// A server that has refused records for this long, although their position is free, has lost
/// count.
const LOST_COUNT: Duration = Duration::from_secs(1);

/// What is to be sent.
pub(crate) enum Work {
    Record(Position, Record),
    Purge(Purge),
}

/// Drop what is below `first`, and say what came of it.
pub(crate) struct Purge {
    pub first: Position,
    pub purged: Sender<Result<(), Refusal>>,
}

/// Sends what is submitted, in order, until the log is closed.
pub(crate) async fn send_all(
    shared: Arc<Shared>,
    server: Server,
    mut submitted: UnboundedReceiver<Work>,
) {
    let mut answers = FuturesUnordered::new();
    let mut purge: Option<Purge> = None;
    loop {
        if answers.is_empty()
            && let Some(Purge { first, purged }) = purge.take()
        {
            // The caller may be gone.
            let _ = purged.send(server.purge_before(first).await);
        }
        let max = {
            let state = shared.state.lock();
            match (&purge, state.broken) {
                (Some(_), _) => 0,
                (None, true) => usize::MAX,
                (None, false) => state.in_flight_max(shared.in_flight_max),
            }
        };
        tokio::select! {
            biased;
            Some((position, outcome)) = answers.next(), if !answers.is_empty() => {
                note(&shared, position, outcome);
            }
            taken = submitted.recv(), if answers.len() < max => {
                let (position, record) = match taken {
                    None => return,
                    Some(Work::Purge(next)) => {
                        purge = Some(next);
                        continue;
                    }
                    Some(Work::Record(position, record)) => (position, record),
                };
                if shared.state.lock().broken {
                    note(&shared, position, Outcome::NotSent);
                    continue;
                }
                match send(&shared, &server, position, &record).await {
                    Ok(answer) => answers.push(async move {
                        (position, outcome_of(answer, position).await)
                    }),
                    Err(reason) => note(&shared, position, Outcome::Unsure(reason)),
                }
            }
        }
    }
}

async fn send(
    shared: &Shared,
    server: &Server,
    position: Position,
    record: &Record,
) -> Result<PublishAckFuture, String> {
    let message = PublishMessage::build()
        .expected_stream(&server.name)
        .expected_last_sequence(position.0)
        .header(record::HEADER, record::header_of(position, record))
        .payload(record.bytes.clone());
    let sent = server.context.send_publish(shared.subjects.log.clone(), message).await;
    sent.map_err(|error| error.to_string())
}

async fn outcome_of(answer: PublishAckFuture, position: Position) -> Outcome {
    let error = match answer.await {
        Ok(answer) if answer.sequence == position.0 + 1 => return Outcome::Committed,
        Ok(answer) => {
            return Outcome::Unsure(format!("the stream gave it sequence {}", answer.sequence));
        }
        Err(error) => error,
    };
    let said = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    match (said, error.kind()) {
        (Some(said), _) if is_full(said.error_code().0) => Outcome::Full(said.to_string()),
        (Some(said), _) if is_out_of_place(said.error_code().0) => {
            Outcome::OutOfPlace(said.to_string())
        }
        (Some(said), _) => Outcome::Unsure(said.to_string()),
        (None, PublishErrorKind::TimedOut) => Outcome::Unsure("no answer in time".to_owned()),
        (None, PublishErrorKind::StreamNotFound) => {
            Outcome::Unsure("the stream has no leader, or JetStream is off".to_owned())
        }
        (None, _) => Outcome::Unsure(error.to_string()),
    }
}

fn note(shared: &Shared, position: Position, outcome: Outcome) {
    shared.state.lock().answered(position, outcome);
    shared.moved.notify_all();
}

/// What stands at the position of a record that was not acknowledged.
enum Found {
    Own,
    Other(Option<Record>),
    Nothing,
    Fatal(LogError),
}

/// What became of a record whose answer was bad or missing, when no other is on its way. `None` for
/// one that was held back and finds its position free: it is to be sent.
pub(crate) async fn resolve(
    shared: Arc<Shared>,
    server: Server,
    position: Position,
    record: Record,
    outcome: Outcome,
) -> Option<Ack> {
    let ack = match look(&shared, &server, position, &record).await {
        Found::Own => Ack::Committed(position),
        Found::Other(stored) => Ack::Conflict { at: position, stored },
        Found::Fatal(error) => Ack::Fatal(error),
        Found::Nothing => {
            let (is_full, is_out_of_place, reason) = match outcome {
                Outcome::Full(reason) => (true, false, reason),
                Outcome::OutOfPlace(reason) => (false, true, reason),
                Outcome::Unsure(reason) => (false, false, reason),
                Outcome::Committed | Outcome::NotSent => return None,
            };
            say_trouble(&shared, is_full, &reason);
            if is_out_of_place {
                count_again(&shared, &server).await;
            }
            tokio::time::sleep(if is_full { PAUSE_FULL } else { PAUSE }).await;
            Ack::Unknown(position)
        }
    };
    Some(ack)
}

async fn look(shared: &Shared, server: &Server, position: Position, record: &Record) -> Found {
    match server.leaders_record(position).await {
        Ok(stored) if stored.epoch == record.epoch && stored.bytes == record.bytes => Found::Own,
        Ok(stored) => Found::Other(Some(Record { epoch: stored.epoch, bytes: stored.bytes })),
        Err(Refusal::Unreadable(_)) => Found::Other(None),
        Err(Refusal::NoMessage) => match server.survey().await {
            Ok(survey) => survey_says(shared, survey, position),
            Err(refusal) => silence(shared, &refusal),
        },
        Err(refusal) => silence(shared, &refusal),
    }
}

/// No message stands at the position: it is free, or what stood there was trimmed.
fn survey_says(shared: &Shared, survey: Survey, position: Position) -> Found {
    if let Err(fatal) = shared.survey(survey) {
        return Found::Fatal(fatal);
    }
    if position < survey.first { Found::Other(None) } else { Found::Nothing }
}

fn silence(shared: &Shared, refusal: &Refusal) -> Found {
    if matches!(refusal, Refusal::NoStream)
        && let Err(fatal) = shared.survey_missing()
    {
        return Found::Fatal(fatal);
    }
    Found::Nothing
}

/// Makes a server that has lost count look where the stream ends.
async fn count_again(shared: &Shared, server: &Server) {
    let first = {
        let state = shared.state.lock();
        if state.trouble.time() < LOST_COUNT {
            return;
        }
        state.first
    };
    if let Err(refusal) = server.purge_before(first).await {
        tracing::debug!("the server was not made to count again: {refusal}");
    }
}

fn say_trouble(shared: &Shared, is_full: bool, reason: &str) {
    let mut state = shared.state.lock();
    state.is_full = is_full;
    let Some(since) = state.trouble.goes_on() else { return };
    let (stream, seconds) = (&shared.stream, since.as_secs());
    if is_full {
        tracing::warn!(
            %stream,
            "the stream takes no more records ({reason}), for {seconds} s now: raise the limit of \
             the stream or of its account, or make room on the servers' disks; Spindle waits"
        );
    } else {
        tracing::warn!(
            %stream,
            "the stream does not confirm records ({reason}), for {seconds} s now; they are offered \
             again until it does"
        );
    }
}

/// Takes the answer of the oldest record into the state, and returns it.
pub(crate) fn take(shared: &Shared, ack: Ack) -> Ack {
    let mut state = shared.state.lock();
    let Some(flight) = state.flights.pop_front() else {
        return Ack::Fatal(LogError::NothingSubmitted);
    };
    match &ack {
        Ack::Committed(_) => {
            let bytes = record::bytes_in_stream(&shared.subjects.log, flight.record.bytes.len());
            state.sizes.note(flight.position, bytes);
            state.stream_bytes = state.stream_bytes.saturating_add(bytes);
            state.committed = flight.position.next();
            state.seen = state.seen.max(state.committed);
            state.is_full = false;
            if let Some(time) = state.trouble.ends() {
                let (stream, seconds) = (&shared.stream, time.as_secs());
                tracing::info!(%stream, "the stream confirms records again, after {seconds} s");
            }
        }
        Ack::Conflict { .. } => {
            state.verdict.get_or_insert(Verdict::Conflict);
        }
        Ack::Unknown(_) => {
            state.verdict.get_or_insert(Verdict::Unknown);
        }
        Ack::Fatal(error) => state.fatal = Some(error.clone()),
    }
    state.settle();
    ack
}
