//! Notifications: how far the log is committed, and what nodes announce to each other.
//!
//! The channel is named after the random id of the log, which is known only to roles that may read
//! its tables. A payload is one of these:
//!
//! ```text
//!   c <run> <end> <bytes>     committed below <end>, which is in open run <run>, which weighs <bytes>
//!   a <base64>                an announcement
//! ```
//!
//! The writer says how far it is after its commits, on this connection: a notification inside the
//! transaction would be sent before the standby has the records, even if the wait for it is
//! cancelled. While one notification is under way, newer ends take the place of older ones.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spindle_log::Position;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, unbounded_channel};
use tokio_postgres::Notification;
use tokio_postgres::types::Type;
use tracing::debug;

use crate::core::Core;
use crate::error::Fault;
use crate::session::Session;
use crate::writer::Pauses;

/// Announcements that wait to be sent; more are dropped.
pub(crate) const ANNOUNCEMENTS_MAX: usize = 16;

pub(crate) struct Signals {
    core: Arc<Core>,
    announcements: Receiver<String>,
    /// What was last said of the end.
    said: Position,
}

/// An announcement as a payload.
pub(crate) fn announcement(bytes: &[u8]) -> String {
    format!("a {}", STANDARD.encode(bytes))
}

fn channel(log_id: &str) -> String {
    format!("spindle_{log_id}")
}

impl Signals {
    pub fn new(core: Arc<Core>, announcements: Receiver<String>) -> Signals {
        Signals { core, announcements, said: Position(0) }
    }

    /// Listens and notifies, and connects anew when it has to.
    pub async fn run(mut self) {
        let mut pauses = Pauses::new();
        loop {
            let (sender, receiver) = unbounded_channel();
            match self.core.servers.connect(Some(&sender)).await {
                Ok(session) => {
                    // The task of the session has a sender of its own, and ends with the connection.
                    drop(sender);
                    let fault = self.serve(&session, receiver, &mut pauses).await;
                    debug!(reason = fault.text(), "the connection for notifications was lost");
                }
                Err(error) => debug!(%error, "no connection for notifications"),
            }
            pauses.pause().await;
        }
    }

    async fn serve(
        &mut self,
        session: &Session,
        mut received: UnboundedReceiver<Notification>,
        pauses: &mut Pauses,
    ) -> Fault {
        let channel = channel(&self.core.log_id);
        if let Err(error) = session.batch_execute(&format!("LISTEN {channel}")).await {
            return error.into();
        }
        pauses.reset();
        loop {
            let core = Arc::clone(&self.core);
            let done = tokio::select! {
                notification = received.recv() => match notification {
                    Some(notification) => self.take(session, &notification).await,
                    None => Err(Fault::Away("it ended".to_owned())),
                },
                () = core.news.notified() => self.say_end(session, &channel).await,
                payload = self.announcements.recv() => match payload {
                    Some(payload) => notify(session, &channel, &payload).await,
                    None => Err(Fault::Away("the log was closed".to_owned())),
                },
            };
            if let Err(fault) = done {
                return fault;
            }
        }
    }

    async fn say_end(&mut self, session: &Session, channel: &str) -> Result<(), Fault> {
        let (end, (run, _, bytes)) = {
            let state = self.core.state();
            (state.heard, state.runs.open())
        };
        if end == self.said {
            return Ok(());
        }
        self.said = end;
        notify(session, channel, &format!("c {run} {end} {bytes}")).await
    }

    async fn take(&self, session: &Session, notification: &Notification) -> Result<(), Fault> {
        match notification.payload().split_once(' ') {
            Some(("c", said)) => {
                let numbers: Vec<u64> =
                    said.split(' ').map_while(|number| number.parse().ok()).collect();
                if let [run, end, bytes] = *numbers {
                    return self.hear(session, run, Position(end), bytes).await;
                }
            }
            Some(("a", encoded)) => {
                let listener = self.core.listener.lock().clone();
                if let (Some(listener), Ok(bytes)) = (listener, STANDARD.decode(encoded)) {
                    listener(&bytes);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Another process has committed up to `end`.
    async fn hear(
        &self,
        session: &Session,
        run: u64,
        end: Position,
        bytes: u64,
    ) -> Result<(), Fault> {
        let core = &self.core;
        let (open, _, known) = core.state().runs.open();
        if core.state().writes {
            return Ok(());
        }
        if run == open.unsigned_abs() {
            core.change(|state| {
                if end > state.runs.end() {
                    state.runs.extend(end, bytes.saturating_sub(known));
                }
                state.heard = state.heard.max(end);
            });
        } else if run > open.unsigned_abs() {
            let from = core.state().runs.end();
            let news = core.tables.look(session, open, from).await?;
            core.change(|state| {
                state.learn(&news);
                state.heard = state.heard.max(end);
            });
        }
        Ok(())
    }
}

async fn notify(session: &Session, channel: &str, payload: &str) -> Result<(), Fault> {
    let statement = session.prepared("SELECT pg_notify($1, $2)", &[Type::TEXT, Type::TEXT]).await?;
    session.query(&statement, &[&channel, &payload]).await?;
    Ok(())
}
