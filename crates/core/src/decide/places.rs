//! Moving queues between shards: see [`crate::places`].

use bytes::Bytes;

use crate::decide::limits::put_settings;
use crate::decide::{Context, Decided, refuse_if};
use crate::event::Event;
use crate::places::{Known, PLACED_MAX, Placed, Stage};
use crate::queue::{QUEUE_NAME_BYTES_MAX, QueueSettings};
use crate::rejection::Rejection;
use crate::seat::{JOBQ_QUEUE, Seat, hash_tag};
use crate::state::State;

/// A person moves a queue: decided on the first shard's log.
pub(super) fn place_queue(cx: &mut Context<'_>, queue: &Bytes, shard: u8) -> Decided {
    let seat = shared_seat(cx.state)?;
    refuse_if(seat.shard != 0, Rejection::OtherShard(0))?;
    refuse_if(shard >= seat.shards, Rejection::OutOfRange("shard"))?;
    let fits = (1..=QUEUE_NAME_BYTES_MAX).contains(&queue.len());
    refuse_if(!fits, Rejection::OutOfRange("queue name"))?;
    refuse_if(queue == JOBQ_QUEUE, Rejection::StaysPut)?;
    refuse_if(hash_tag(queue).is_some(), Rejection::StaysTogether)?;
    let places = &cx.state.server().places;
    let before = places.placed(queue);
    let from = before.map_or(u32::from(seat.shard_of(queue)), |placed| placed.shard);
    let shard = u32::from(shard);
    if from == shard {
        return Ok(());
    }
    // Until the drain ends, names may be taken there.
    refuse_if(before.is_some_and(|before| before.drains.is_some()), Rejection::Moves)?;
    let is_one_more = before.is_none() && places.map.len() >= PLACED_MAX;
    refuse_if(is_one_more, Rejection::OutOfRange("number of moved queues"))?;
    let (queue, version) = (queue.clone(), places.moves + 1);
    cx.emit(Event::QueuePlaced(Placed { queue, version, shard, drains: Some(from) }), true);
    Ok(())
}

/// The shard that drained has nothing of a queue any more: decided on the first shard's log.
pub(super) fn end_drain(cx: &mut Context<'_>, queue: &[u8], version: u64) -> Decided {
    let placed = cx.state.server().places.placed(queue).filter(|it| it.version == version);
    let placed = placed.filter(|it| it.drains.is_some()).cloned().ok_or(Rejection::Stale)?;
    cx.emit(Event::QueuePlaced(Placed { drains: None, ..placed }), true);
    Ok(())
}

/// A shard learns where a queue is. With `settings` it is to be here, and has these.
pub(super) fn know_place(
    cx: &mut Context<'_>,
    queue: &Bytes,
    (version, shard): (u64, u8),
    settings: Option<&QueueSettings>,
) -> Decided {
    let seat = shared_seat(cx.state)?;
    refuse_if(shard >= seat.shards, Rejection::OutOfRange("shard"))?;
    let before = cx.state.server().places.known(queue);
    let is_old = before.is_some_and(|before| before.version >= version);
    refuse_if(is_old, Rejection::Stale)?;
    let stage = match before.map(Known::stage) {
        _ if shard == seat.shard => Stage::Open,
        Some(Stage::Open | Stage::Offered) => Stage::Offered,
        Some(stage) => stage,
        None if seat.shard_of(queue) == seat.shard => Stage::Offered,
        None => Stage::Left,
    };
    let own = settings_of(cx.state, queue);
    if let Some(settings) = settings.filter(|it| stage == Stage::Open && **it != own) {
        put_settings(cx, queue, settings);
    }
    let told = (stage == Stage::Offered).then_some(own);
    let (queue, stage, shard) = (queue.clone(), stage as i32, u32::from(shard));
    cx.emit(Event::PlaceKnown(Known { queue, version, shard, stage, settings: told }), true);
    Ok(())
}

/// A shard that offers a queue takes no new jobs of it from now on: another one does.
pub(super) fn seal_queue(cx: &mut Context<'_>, queue: &[u8], version: u64) -> Decided {
    let known = known(cx.state, queue, version)?;
    refuse_if(known.stage() != Stage::Offered, Rejection::Stale)?;
    turn(cx, known, Stage::Sealed);
    Ok(())
}

/// A sealed shard leaves a queue, if it has nothing of it any more.
pub(super) fn leave_queue(cx: &mut Context<'_>, queue: &Bytes, version: u64) -> Decided {
    let known = known(cx.state, queue, version)?;
    refuse_if(known.stage() != Stage::Sealed, Rejection::Stale)?;
    let is_in_use = cx.state.has_any_of(queue) && !cx.state.faults().left_with_jobs;
    refuse_if(is_in_use, Rejection::InUse)?;
    if cx.state.queue(queue).is_some() {
        put_settings(cx, queue, &QueueSettings::default());
    }
    turn(cx, known, Stage::Left);
    Ok(())
}

fn known(state: &State, queue: &[u8], version: u64) -> Result<Known, Rejection> {
    let known = state.server().places.known(queue).filter(|known| known.version == version);
    known.cloned().ok_or(Rejection::Stale)
}

fn turn(cx: &mut Context<'_>, known: Known, stage: Stage) {
    let known = Known { stage: stage as i32, settings: None, ..known };
    cx.emit(Event::PlaceKnown(known), true);
}

fn settings_of(state: &State, queue: &[u8]) -> QueueSettings {
    state.queue(queue).map(|queue| queue.settings().clone()).unwrap_or_default()
}

fn shared_seat(state: &State) -> Result<Seat, Rejection> {
    let seat = state.server().seat().unwrap_or_default();
    if seat.shards > 1 { Ok(seat) } else { Err(Rejection::OtherSeat(seat)) }
}

/// Where a queue is, as far as this log knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stands {
    /// It takes jobs here.
    Here,
    /// The same, and it is to move.
    Offered,
    /// That shard takes its jobs; here it takes only what belongs to jobs that are here.
    Sealed(u8),
    /// It is on that shard.
    There(u8),
}

/// Where a queue is, as far as this log knows.
pub(super) fn stands(state: &State, queue: &[u8]) -> Stands {
    let server = state.server();
    let Some(seat) = server.seat().filter(|seat| seat.shards > 1) else { return Stands::Here };
    let Some(known) = server.places.known(queue) else {
        let shard = seat.shard_of(queue);
        return if shard == seat.shard { Stands::Here } else { Stands::There(shard) };
    };
    let shard = u8::try_from(known.shard).unwrap_or(u8::MAX);
    match known.stage() {
        Stage::Open => Stands::Here,
        Stage::Offered => Stands::Offered,
        Stage::Sealed => Stands::Sealed(shard),
        Stage::Left => Stands::There(shard),
    }
}
