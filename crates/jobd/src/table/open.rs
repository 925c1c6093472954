//! From settings to a table.

use std::sync::Arc;

use super::contract::JobTable;
use super::mysql::Mysql;
use super::pgsql::Pgsql;
use super::settings::TableSettings;
use super::spindle::SpindleTable;
use super::sql::SqlTable;
use super::sqlite::Sqlite;

/// The table these settings lead to. Nothing is connected yet: [`JobTable::check`] does that.
pub fn open_table(settings: &TableSettings) -> Arc<dyn JobTable> {
    match settings.clone() {
        TableSettings::Mysql(server) => Arc::new(SqlTable::new(Mysql::new(server))),
        TableSettings::Pgsql(server) => Arc::new(SqlTable::new(Pgsql::new(server))),
        TableSettings::Spindle(server) => Arc::new(SpindleTable::new(server)),
        TableSettings::Sqlite { file, table } => Arc::new(SqlTable::new(Sqlite::new(file, table))),
    }
}
