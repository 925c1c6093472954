//! The tables `jobd schema` prints.

use super::settings::TableKind;

/// The statements that make an empty job table named `jobs`.
pub fn schema_sql(kind: TableKind) -> &'static str {
    match kind {
        TableKind::Mysql => include_str!("../../schema/mysql.sql"),
        TableKind::Pgsql => include_str!("../../schema/pgsql.sql"),
        TableKind::Sqlite => include_str!("../../schema/sqlite.sql"),
    }
}
