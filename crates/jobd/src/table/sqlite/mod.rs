//! Job tables in SQLite files.

mod connect;
mod faults;
mod session;

pub(super) use connect::Sqlite;
