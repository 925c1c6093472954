//! Job tables, which have the rows that a worker runs. [`JobTable`] is the contract. `SqlTable`
//! fulfils it on any database; one module per kind of database runs its statements. `SpindleTable`
//! fulfils it on the queues of a Spindle server; [`Leases`] is what it does besides.

mod abort;
mod columns;
mod contract;
mod error;
mod fit;
mod leases;
mod mysql;
mod names;
mod open;
mod operations;
mod pgsql;
mod row;
mod schema;
mod session;
mod settings;
mod slots;
mod spindle;
mod sql;
mod sqlite;
mod statements;
mod tls;
mod transaction;

pub use contract::JobTable;
pub use error::TableError;
pub use leases::{Fate, Input, Leased, Leases};
pub use open::open_table;
pub use row::{
    Claimed, Finish, Found, Judge, Mark, Origin, Owned, Pick, RowId, Status, Verdict, Written,
};
pub use schema::schema_sql;
pub use settings::{SqlServer, TableKind, TableSettings, Tls, TlsMode};
pub use spindle::{SpindleServer, SpindleUrl};
