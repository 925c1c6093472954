//! The health of the primary and its standbys, for people.

use std::sync::Arc;
use std::time::Duration;

use spindle_log::{LogLag, LogServer, LogServerRole, LogServerState};
use tokio_postgres::Row;

use crate::core::Core;
use crate::error::Fault;

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Those that are connected, without copies and subscribers, and those that have left a slot behind. A role without
/// `pg_read_all_stats` only sees that there are some.
const STANDBYS: &str = "
    SELECT coalesce(nullif(application_name, ''), host(client_addr), 'pid ' || pid) AS name,
           state, sync_state IN ('sync', 'quorum'),
           pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::int8
    FROM pg_stat_replication
    WHERE state IS DISTINCT FROM 'backup'
      AND NOT EXISTS (SELECT 1 FROM pg_replication_slots s WHERE s.active_pid = pid AND s.slot_type = 'logical')
    UNION ALL
    SELECT slot_name::text, 'away', NULL, NULL
    FROM pg_replication_slots
    WHERE slot_type = 'physical' AND NOT active AND NOT temporary
    ORDER BY name";

/// Asks regularly, for as long as the log is open.
pub(crate) async fn look(core: Arc<Core>) {
    loop {
        match asked(&core).await {
            Ok(servers) => core.health.lock().hear(servers),
            Err(fault) => core.health.lock().miss(fault.text()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn asked(core: &Core) -> Result<Vec<LogServer>, Fault> {
    let session = core.queries().await?;
    let question = session.query_typed(STANDBYS, &[]);
    let within = core.options.answer_within;
    let rows = tokio::time::timeout(within, question).await.map_err(|_| {
        Fault::Away(format!("{} did not answer within {within:?}", session.server))
    })??;
    let primary = LogServer {
        name: session.server.clone(),
        role: LogServerRole::Leader,
        state: LogServerState::Current,
        is_synchronous: Some(true),
        lag: None,
    };
    let standbys = rows.iter().map(standby).collect::<Result<Vec<_>, _>>()?;
    Ok([primary].into_iter().chain(standbys).collect())
}

fn standby(row: &Row) -> Result<LogServer, Fault> {
    let lag: Option<i64> = row.try_get(3)?;
    Ok(LogServer {
        name: row.try_get(0)?,
        role: LogServerRole::Replica,
        state: match row.try_get(1)? {
            Some("streaming") => LogServerState::Current,
            Some("away") => LogServerState::Away,
            Some(_) => LogServerState::Behind,
            None => LogServerState::Unknown,
        },
        is_synchronous: row.try_get(2)?,
        lag: lag.map(|bytes| LogLag::Bytes(bytes.max(0).unsigned_abs())),
    })
}
