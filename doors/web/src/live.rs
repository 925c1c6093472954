//! The live feed: tells open pages that something happened, so that they reload their content.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use spindle_core::JobId;
use spindle_engine::{Activity, OutputFrom};
use spindle_http::EngineBridge;
use tokio::select;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::ask::{Asked, segment};
use crate::page::Page;
use crate::shapes::Job;
use crate::web::Web;

/// The shortest time between two notices to a page. The page then shows a newer state than the one
/// the notice was about.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a comment is sent while nothing happens, so that no proxy takes the connection for
/// dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sends `moved` after something happened, and nothing else: rights are checked when the page is
/// read again. (Browsers drop an event without data.) It costs nothing while nothing happens.
///
/// A page that tells how far the log was when it was made (`?log_at=`) is notified at once if
/// something has happened since, before its feed began or while that was broken.
///
/// Reports of workers about a job are not in the log. So the page of a job has a feed of its own
/// (`?job=ID`), which these reports trigger too, if the job is on this server's own log.
pub(crate) async fn live(page: Page) -> Asked<Response> {
    let job = match page.query().get("job") {
        Some(id) => Some(Looked::at(&page, id).await?),
        None => None,
    };
    let made_at = page.query().get("log_at").and_then(|at| at.parse::<u64>().ok());
    let Page { web, .. } = page;
    let moves = web.pulse().moves();
    // Checked only after subscribing to moves, so that none is missed.
    let is_behind = made_at.is_some_and(|at| web.pulse().position() > at);
    let feed = Feed { moves, stopping: web.stopping(), web, job, is_behind };
    let moved = stream::unfold(feed, |mut feed| async move {
        feed.moved().await?;
        let event = Event::default().event("moved").data("-");
        Some((Ok::<_, Infallible>(event), feed))
    });
    Ok(Sse::new(moved).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// One open page.
struct Feed {
    web: Web,
    moves: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    job: Option<Looked>,
    /// Something has happened since the page was made, and it was not notified yet.
    is_behind: bool,
}

impl Feed {
    /// Returns when something has happened since the last time; none when the server stops.
    async fn moved(&mut self) -> Option<()> {
        if std::mem::take(&mut self.is_behind) {
            return Some(());
        }
        let Feed { web, moves, stopping, job, .. } = self;
        select! {
            moved = moves.changed() => moved.ok()?,
            () = reported(web.bridge(), job.as_ref()) => {}
            _ = stopping.wait_for(|stops| *stops) => return None,
        }
        select! {
            () = sleep(PAUSE) => {}
            _ = stopping.wait_for(|stops| *stops) => return None,
        }
        moves.mark_unchanged();
        if let Some(job) = job {
            job.look(web.bridge());
        }
        Some(())
    }
}

/// The state of a job that its page was last notified of.
struct Looked {
    id: JobId,
    activity: Option<Activity>,
}

impl Looked {
    /// Looks at a job, if the visitor may see it.
    async fn at(page: &Page, id: &str) -> Asked<Looked> {
        let path = format!("/api/v1/jobs/{}?bytes_max=0", segment(id.as_bytes()));
        let job: Job = page.ask.get(&path).await?;
        let mut looked = Looked { id: JobId(job.id), activity: None };
        looked.look(page.web.bridge());
        Ok(looked)
    }

    fn look(&mut self, bridge: &EngineBridge) {
        self.activity = activity(bridge, self.id);
    }
}

/// What workers reported of a job: the amount of output, but not the output itself.
fn activity(bridge: &EngineBridge, id: JobId) -> Option<Activity> {
    let now = bridge.engine().jobs().activity(id, OutputFrom::End(0));
    now.without_waiting("it is only compared: what is shown is asked of the API")
}

/// Returns when the reports about a job have changed. Without a job it never returns.
async fn reported(bridge: &EngineBridge, job: Option<&Looked>) {
    let Some(Looked { id, activity: before }) = job else { return pending().await };
    loop {
        // If too many wait already, only the log triggers the page's feed.
        let Ok(change) = bridge.next_change(*id) else { return pending().await };
        if activity(bridge, *id) != *before {
            return;
        }
        drop(change.answered().await);
    }
}
