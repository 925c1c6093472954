//! What the errors of driver and server mean for a job table.

use tokio_postgres::Error;

use crate::table::session::Fault;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let Some(answer) = error.as_db_error() else { return Self::Away(with_causes(&error)) };
        let (code, message) = (answer.code().code(), answer.message());
        server_fault(code, format!("{message} ({code})"))
    }
}

/// The driver's own message only says where it happened.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

fn server_fault(state: &str, reason: String) -> Fault {
    match (state.get(..2).unwrap_or_default(), state) {
        // Serialization failure, deadlock.
        (_, "40001" | "40P01") => Fault::Conflict(reason),
        // A table of the wrong kind is reported as "wrong object type"; no such schema or database; a
        // login that is refused.
        (_, "42P01" | "42703" | "42501" | "42809" | "3F000" | "3D000") | ("28", _) => {
            Fault::Schema(reason)
        }
        // Data, constraints, statements, a trigger's own error, limits that more room would not
        // lift.
        ("22" | "23" | "42" | "44" | "P0" | "54" | "21" | "27" | "0A", _) => Fault::Refused(reason),
        // Any other error of a server may be temporary: keep the results and try again.
        _ => Fault::Away(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(state: &str) -> Fault {
        server_fault(state, "r".to_owned())
    }

    #[test]
    fn server_errors_fall_into_their_class() {
        assert!(matches!(of("40P01"), Fault::Conflict(_)));
        for state in ["57P01", "57P03", "53300", "53100", "08006", "55P03", "25006", "XX000", ""] {
            assert!(matches!(of(state), Fault::Away(_)), "{state}");
        }
        for state in ["42P01", "42703", "42501", "28P01", "28000", "3D000"] {
            assert!(matches!(of(state), Fault::Schema(_)), "{state}");
        }
        for state in ["22001", "22021", "22P05", "23514", "42804", "P0001", "54000"] {
            assert!(matches!(of(state), Fault::Refused(_)), "{state}");
        }
    }
}
