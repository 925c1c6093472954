//! The live feed: that something happened, so that open pages read themselves anew.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::select;
use tokio::time::sleep;

use crate::web::Web;

/// A page hears of changes so often at most. What it shows then is newer than what it heard of.
const PAUSE: Duration = Duration::from_secs(2);
/// A comment is sent so often while nothing happens, so that nobody takes the line for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Says `moved` after something happened, and nothing else: who may see what is asked when a page is
/// read. (Browsers drop an event without data.) It costs nothing while nothing happens.
pub(crate) async fn live(State(web): State<Web>) -> Response {
    let (moves, stopping) = (web.bridge().moves(), web.stopping());
    let moved = stream::unfold((moves, stopping), |(mut moves, mut stopping)| async move {
        select! {
            moved = moves.changed() => moved.ok()?,
            _ = stopping.wait_for(|stops| *stops) => return None,
        }
        select! {
            () = sleep(PAUSE) => {}
            _ = stopping.wait_for(|stops| *stops) => return None,
        }
        moves.mark_unchanged();
        let event = Event::default().event("moved").data("-");
        Some((Ok::<_, Infallible>(event), (moves, stopping)))
    });
    Sse::new(moved).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
