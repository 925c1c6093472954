//! Consumers of the feed whose place is remembered: see [`spindle_core::consumer`].

use bytes::Bytes;
use spindle_core::consumer::Consumer;
use spindle_core::{Command, Rejection};

use crate::read::FeedId;
use crate::views::Feed;

impl Feed<'_> {
    /// Where a consumer is; none if no one of this name has moved, or too many others have since. It may not be durable
    /// yet: only the consumer itself is told of it.
    pub fn consumer(&self, name: &str) -> Option<FeedId> {
        let inner = self.0.shared.inner.lock();
        let found = inner.state.server().consumers.find(name.as_bytes())?;
        Some(FeedId { position: found.position, index: found.index })
    }

    /// Remembers that a consumer has dealt with everything up to a place. Waits for nothing: a crash
    /// may take it back.
    ///
    /// # Errors
    /// [`Rejection::OutOfRange`]: a name is 1 to 64 bytes long.
    pub fn move_consumer(&self, name: &str, to: FeedId) -> Result<(), Rejection> {
        let FeedId { position, index } = to;
        let name = Bytes::copy_from_slice(name.as_bytes());
        let mut inner = self.0.enter();
        let moved = inner.run(&Command::MoveConsumer(Consumer { name, position, index }));
        self.0.leave(inner);
        moved
    }
}
