//! Queues that move between the shards of a cluster: see [`spindle_core::places`].

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use spindle_core::audit::Action;
use spindle_core::places::Places;
use spindle_core::{Command, Rejection};

use crate::answer::Refused;
use crate::audit::{Deed, People};
use crate::gate::Gated;
use crate::views::Moves;

impl People<'_> {
    /// Moves a queue to another shard. Called on the first shard's engine; [`Moves::go_on`] on all engines does the
    /// following parts of the move.
    pub fn move_queue(self, queue: &Bytes, shard: u8) -> Gated<Result<(), Refused>> {
        let People { engine, audit } = self;
        // A copy: the name may be a small part of a large read.
        let queue = Bytes::copy_from_slice(queue);
        engine.change(|inner| {
            let deed =
                Deed::to_queue(Action::MoveQueue, queue.clone(), format!("to shard {shard}"));
            let place = Command::PlaceQueue { queue, shard };
            Ok(inner.run_for(audit, deed, Some(place), None)?)
        })
    }
}

impl Moves<'_> {
    /// What the log has of places.
    pub fn places(&self) -> Gated<Places> {
        self.0.read(|inner| inner.state.server().places.clone())
    }

    /// Does a part of a move: [`Command::KnowPlace`], [`Command::SealQueue`], [`Command::LeaveQueue`] or
    /// [`Command::EndDrain`]. One that was done before, or cannot be done yet, changes nothing.
    pub fn go_on(&self, part: &Command) {
        let mut inner = self.0.enter();
        match inner.run(part) {
            Ok(()) | Err(Rejection::Stale | Rejection::InUse) => {}
            Err(rejection) => tracing::warn!("a queue does not move on: {rejection}"),
        }
        self.0.leave(inner);
    }
}

/// The places in a followed log: the follower writes them here, others read them.
#[derive(Clone, Debug, Default)]
pub struct PlacesBoard(Arc<Mutex<Places>>);

impl PlacesBoard {
    /// The places written last.
    pub fn places(&self) -> Places {
        self.0.lock().clone()
    }

    pub(crate) fn show(&self, places: &Places) {
        let mut shown = self.0.lock();
        if *shown != *places {
            shown.clone_from(places);
        }
    }
}
