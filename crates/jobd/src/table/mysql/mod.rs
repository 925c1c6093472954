//! Job tables in MySQL and MariaDB.

mod connect;
mod faults;
mod session;

pub(super) use connect::Mysql;
