//! What SQLite's errors mean for a job table.

use rusqlite::{Error, ErrorCode};

use crate::table::session::Fault;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(
                ErrorCode::NotADatabase
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::AuthorizationForStatementDenied,
            ) => Fault::Schema(reason),
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
                Fault::Refused(reason)
            }
            // SQLite has one code for all that is wrong with a statement.
            Some(ErrorCode::Unknown) if reason.contains("no such") => Fault::Schema(reason),
            Some(ErrorCode::Unknown) | None => Fault::Refused(reason),
            // Busy, full, read-only, no memory, the disk: these may be temporary.
            Some(_) => Fault::Away(reason),
        }
    }
}
