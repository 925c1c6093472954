//! Following the feed: see [`crate::consumer`].

use crate::consumer::{CONSUMER_NAME_BYTES_MAX, Consumer};
use crate::decide::{Context, Decided, refuse_if};
use crate::event::Event;
use crate::rejection::Rejection;

/// The position may also go back: a repair may have cut the log.
pub(super) fn move_consumer(cx: &mut Context<'_>, consumer: &Consumer) -> Decided {
    let fits = (1..=CONSUMER_NAME_BYTES_MAX).contains(&consumer.name.len());
    refuse_if(!fits, Rejection::OutOfRange("the name of a consumer"))?;
    if cx.state.server().consumers.find(&consumer.name) != Some(consumer) {
        cx.emit(Event::ConsumerMoved(consumer.clone()), true);
    }
    Ok(())
}
