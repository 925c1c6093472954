//! What the errors of driver and server mean for a job table.

use mysql_async::{DriverError, Error, ServerError};

use crate::table::session::Fault;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Server(error) => server_fault(&error),
            Error::Driver(
                DriverError::UnknownAuthPlugin { .. }
                | DriverError::CleartextPluginDisabled
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CantParseServerVersion { .. },
            ) => Fault::Schema(error.to_string()),
            Error::Driver(
                DriverError::PacketTooLarge
                | DriverError::FromRow { .. }
                | DriverError::FromValue { .. },
            ) => Fault::Refused(error.to_string()),
            Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => {
                Fault::Away(error.to_string())
            }
        }
    }
}

fn server_fault(error: &ServerError) -> Fault {
    let reason = error.to_string();
    match error.code {
        // Deadlock (also Galera's, at COMMIT); the row changed since the snapshot.
        1213 | 1020 => Fault::Conflict(reason),
        // Unknown database, table, column, index; no rights to log in, to the database, the table,
        // the column; a plugin for authentication that is not there; a view that cannot change.
        1049 | 1146 | 1054 | 1176 | 1044 | 1045 | 1698 | 1142 | 1143 | 1227 | 1370 | 1524
        | 1288 | 1347 | 1356 => Fault::Schema(reason),
        // Value out of range, truncated, not a letter of the column, too long; NULL in a column
        // without; too large a packet, row or number; a conversion, a constraint, a trigger's own
        // error; what no server of this kind can parse.
        1048 | 1064 | 1118 | 1138 | 1153 | 1264 | 1265 | 1292 | 1301 | 1366 | 1406 | 1411
        | 1526 | 1644 | 1690 | 1977 | 3819 | 4025 => Fault::Refused(reason),
        _ => match error.state.get(..2) {
            Some("22" | "23" | "42" | "44" | "45") => Fault::Refused(reason),
            // Any other error of a server may be temporary: keep the results and try again.
            _ => Fault::Away(reason),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, state: &str) -> Fault {
        server_fault(&ServerError { code, message: "m".to_owned(), state: state.to_owned() })
    }

    #[test]
    fn server_errors_fall_into_their_class() {
        assert!(matches!(of(1213, "40001"), Fault::Conflict(_)));
        assert!(matches!(of(1205, "HY000"), Fault::Away(_)));
        assert!(matches!(of(1053, "08S01"), Fault::Away(_)));
        assert!(matches!(of(1040, "08004"), Fault::Away(_)));
        assert!(matches!(of(1290, "HY000"), Fault::Away(_)));
        assert!(matches!(of(1146, "42S02"), Fault::Schema(_)));
        assert!(matches!(of(1045, "28000"), Fault::Schema(_)));
        assert!(matches!(of(1366, "22007"), Fault::Refused(_)));
        assert!(matches!(of(1644, "45000"), Fault::Refused(_)));
        assert!(matches!(of(9999, "22003"), Fault::Refused(_)));
        assert!(matches!(of(9999, ""), Fault::Away(_)));
    }
}
