//! Job tables in PostgreSQL.

mod connect;
mod faults;
mod session;

pub(super) use connect::Pgsql;
