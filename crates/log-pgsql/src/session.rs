//! One connection, and the task that moves its bytes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_postgres::error::DbError;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Notification, Statement};
use tracing::{debug, warn};

/// The function of the server in which a commit waits for its standby. Each notice from there names
/// it, whatever the language of the message.
const STANDBY_WAIT: &str = "SyncRepWaitForLSN";

/// Statements that a connection keeps prepared: the same ones come again and again, each with the name
/// of the newest run.
const PREPARED_MAX: usize = 4;

/// A connection. It ends when this is dropped, whatever is under way: the server is not asked to
/// cancel anything.
pub(crate) struct Session {
    client: Client,
    /// A commit has been made whose wait for the standby was cancelled.
    unconfirmed: Arc<AtomicBool>,
    driver: AbortHandle,
    /// The oldest first.
    prepared: Mutex<VecDeque<(String, Statement)>>,
    /// Host and port.
    pub server: String,
}

impl Session {
    /// Starts the task that moves the bytes, and passes on what others notify.
    pub fn begin<S, T>(
        client: Client,
        connection: Connection<S, T>,
        server: String,
        notifications: Option<UnboundedSender<Notification>>,
    ) -> Session
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let unconfirmed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&unconfirmed);
        let driver = tokio::spawn(drive(connection, seen, notifications)).abort_handle();
        Session { client, unconfirmed, driver, prepared: Mutex::default(), server }
    }

    /// A statement that the server has read and planned, once for all the times that it is asked with
    /// other parameters of these types.
    pub async fn prepared(&self, text: &str, types: &[Type]) -> Result<Statement, Error> {
        let known = |prepared: &VecDeque<(String, Statement)>| {
            prepared.iter().find(|(known, _)| known == text).map(|(_, it)| it.clone())
        };
        if let Some(statement) = known(&self.prepared.lock()) {
            return Ok(statement);
        }
        let statement = self.client.prepare_typed(text, types).await?;
        let mut prepared = self.prepared.lock();
        if prepared.len() == PREPARED_MAX {
            prepared.pop_front();
        }
        prepared.push_back((text.to_owned(), statement.clone()));
        Ok(statement)
    }

    /// Whether a commit since the last question was made without its wait for the standby. The
    /// driver task sees the notice before it passes on that the commit is done.
    pub fn take_unconfirmed(&self) -> bool {
        self.unconfirmed.swap(false, Ordering::AcqRel)
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive<S, T>(
    mut connection: Connection<S, T>,
    unconfirmed: Arc<AtomicBool>,
    notifications: Option<UnboundedSender<Notification>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if is_cancelled_wait(&notice) {
                    unconfirmed.store(true, Ordering::Release);
                    warn!(notice = notice.message(), "a commit is not known to be on the standby");
                }
            }
            Some(Ok(AsyncMessage::Notification(notification))) => {
                if let Some(notifications) = &notifications {
                    // There is no listener any more when the session is about to end.
                    let _ = notifications.send(notification);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                // Pending requests fail with it.
                debug!(%error, "a connection to PostgreSQL ended");
                return;
            }
            None => return,
        }
    }
}

/// A server that names no function, a proxy perhaps, is not believed either.
fn is_cancelled_wait(notice: &DbError) -> bool {
    notice.routine().is_none_or(|routine| routine == STANDBY_WAIT)
}
