//! What an expression may touch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

/// The columns of a job that expressions see.
pub const COLUMNS: &[&str] = &["id", "payload", "events", "state", "modified"];

/// The functions they may call: those that only compute. What is missing here reads or changes
/// something else, or makes bytes out of nothing.
const FUNCTIONS: &str = "
    -> ->> abs acos acosh asin asinh atan atan2 atanh ceil ceiling char coalesce concat concat_ws
    cos cosh date datetime degrees exp floor format glob hex if ifnull iif instr json json_array
    json_array_length json_error_position json_extract json_insert json_object json_patch
    json_pretty json_quote json_remove json_replace json_set json_type json_valid julianday length
    like likelihood likely ln log log10 log2 lower ltrim max min mod nullif octet_length pi pow
    power printf quote radians replace round rtrim same_json sign sin sinh sqrt strftime substr
    substring tan tanh time timediff trim trunc typeof unhex unicode unixepoch unlikely upper
";

/// SQLite's authorizer: while it is closed, a statement may read a job's columns, once, and call
/// harmless functions; nothing else gets through, pragmas and other tables least of all.
#[derive(Clone, Default)]
pub struct Guard(Arc<Shared>);

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    selects: AtomicU32,
}

impl Guard {
    /// Stands before a connection from now on, open.
    pub fn install(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let guard = self.clone();
        db.authorizer(Some(move |context: AuthContext<'_>| guard.judge(context.action)))
    }

    /// Prepares something while the guard is closed.
    pub fn closed<T>(&self, prepare: impl FnOnce() -> T) -> T {
        self.0.selects.store(0, Ordering::Relaxed);
        self.0.closed.store(true, Ordering::Relaxed);
        let prepared = prepare();
        self.0.closed.store(false, Ordering::Relaxed);
        prepared
    }

    fn judge(&self, action: AuthAction<'_>) -> Authorization {
        if !self.0.closed.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        let allowed = match action {
            // The statement itself is the one query there may be.
            AuthAction::Select => self.0.selects.fetch_add(1, Ordering::Relaxed) == 0,
            AuthAction::Read { table_name: "job", column_name } => {
                column_name.is_empty() || COLUMNS.contains(&column_name)
            }
            AuthAction::Function { function_name } => {
                let name = function_name.to_ascii_lowercase();
                FUNCTIONS.split_ascii_whitespace().any(|allowed| allowed == name)
            }
            _ => false,
        };
        if allowed { Authorization::Allow } else { Authorization::Deny }
    }
}
