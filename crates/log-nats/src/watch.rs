//! Noticing what others do.
//!
//! The stream's leader publishes every committed record again, to the subject
//! `<stream>.committed` ("republish" in the settings of the stream). That needs no consumer, which
//! would have to be found again after each election, and costs one message. Messages of NATS may get
//! lost, so once a second the leader is asked where the stream ends.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use spindle_log::Position;
use tokio::time::MissedTickBehavior;

use crate::record;
use crate::server::{Refusal, Server, servers_of, survey_of};
use crate::state::Shared;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes what the leader of the stream repeats.
pub(crate) async fn follow(shared: Arc<Shared>, mut committed: Subscriber) {
    while let Some(message) = committed.next().await {
        note(&shared, message);
    }
}

fn note(shared: &Shared, message: Message) {
    let sequence = message.headers.as_ref().and_then(|headers| headers.get("Nats-Sequence"));
    let Some(sequence) = sequence.and_then(|value| value.as_str().parse::<u64>().ok()) else {
        return;
    };
    let decoded = record::decode(sequence, message.headers.as_ref(), message.payload);
    let mut state = shared.state.lock();
    // If it cannot be read, a read from the stream will find out.
    if let Ok(stored) = decoded {
        state.tail.push(stored);
    }
    if Position(sequence) > state.seen {
        state.seen = Position(sequence);
        shared.moved.notify_all();
    }
}

/// Takes what other processes announce.
pub(crate) async fn listen(shared: Arc<Shared>, mut announcements: Subscriber) {
    while let Some(message) = announcements.next().await {
        if let Some(listener) = &*shared.listener.lock() {
            listener(&message.payload);
        }
    }
}

/// Checks the stream now and then, until it is no longer the one that was opened.
pub(crate) async fn look_after(shared: Arc<Shared>, server: Server, connected_to: String) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = server.info().await;
        match &asked {
            Ok(info) => shared.health.lock().hear(servers_of(info, &connected_to)),
            Err(refusal) => shared.health.lock().miss(refusal),
        }
        let looked = match asked {
            Ok(info) => shared.survey(survey_of(&info)),
            Err(Refusal::NoStream) => shared.survey_missing(),
            Err(_) => Ok(()),
        };
        if looked.is_err() {
            return;
        }
    }
}
