//! Tables that are made before they are needed, and dropped when they are no longer needed.
//!
//! A reader of more than one portion holds an advisory lock, shared, on the number of the oldest run that it needs, and
//! *then* checks whether that run was trimmed. A trim moves the beginning of the log, and *then* this task looks at the
//! locks. So either the reader learns of the trim, or its lock is seen here. The tables below the oldest lock are
//! dropped; tables that are locked, by a dump of the database, say, are left for later.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use tracing::debug;

use crate::core::Core;
use crate::error::Fault;
use crate::schema::{bigint, one};
use crate::session::Session;

/// Until what could not be dropped is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The first half of the advisory locks of a log's readers; the second is the number of a run.
pub(crate) fn lock_class(log_id: &str) -> i32 {
    i32::from_ne_bytes(crc32c::crc32c(log_id.as_bytes()).to_ne_bytes()) & i32::MAX
}

/// Makes and drops tables when there are some.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        core.tables_due.notified().await;
        loop {
            match tidy(&core).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(fault) => debug!(reason = fault.text(), "tables are made or dropped later"),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

/// Whether all was done.
async fn tidy(core: &Core) -> Result<bool, Fault> {
    let session = core.spare().await?;
    let next = core.state().runs.open().0 + 1;
    session.batch_execute(&core.tables.make_records(next)).await?;
    let all = drop_trimmed(core, &session).await?;
    core.keep(session);
    Ok(all)
}

async fn drop_trimmed(core: &Core, session: &Session) -> Result<bool, Fault> {
    let first = core.state().first;
    let trimmed =
        format!("SELECT number FROM {} WHERE until <= $1 ORDER BY number", core.tables.runs());
    let trimmed = session.query_typed(&trimmed, &[(&bigint(first), Type::INT8)]).await?;
    let locked = "
        SELECT min(objid::int8) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = $1::int8::oid
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let class = i64::from(lock_class(&core.log_id));
    let rows = session.query_typed(locked, &[(&class, Type::INT8)]).await?;
    let needed: Option<i64> = one(&rows)?.try_get(0)?;
    for row in &trimmed {
        let number: i64 = row.try_get(0)?;
        if needed.is_some_and(|needed| needed <= number) {
            return Ok(false);
        }
        let drop = format!(
            "BEGIN; SET LOCAL lock_timeout = '1s'; DROP TABLE IF EXISTS {};
             DELETE FROM {} WHERE number = {number}; COMMIT",
            core.tables.records(number),
            core.tables.runs()
        );
        if let Err(error) = session.batch_execute(&drop).await {
            session.batch_execute("ROLLBACK").await?;
            return Err(error.into());
        }
    }
    Ok(true)
}
