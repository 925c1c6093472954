//! What an expression may read and call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::query::functions::TIME_LEFT;

/// The columns of a job that expressions see.
pub const COLUMNS: &[&str] = &["id", "payload", "events", "state", "modified"];

/// The functions they may call: those that only compute, in a time that grows with the length of
/// their arguments. Functions missing here read or change something else, make bytes out of
/// nothing, or take a product of lengths (`json_patch`, `json_pretty`).
const FUNCTIONS: &str = "
    -> ->> abs acos acosh asin asinh atan atan2 atanh ceil ceiling char coalesce concat concat_ws
    cos cosh date datetime degrees exp floor format glob hex if ifnull iif instr json json_array
    json_array_length json_error_position json_extract json_insert json_object json_quote
    json_remove json_replace json_set json_type json_valid julianday length like likelihood likely
    ln log log10 log2 lower ltrim max min mod nullif octet_length pi pow power printf quote radians
    replace round rtrim same_json sign sin sinh sqrt strftime substr substring tan tanh time
    time_left timediff trim trunc typeof unhex unicode unixepoch unlikely upper
";

/// Most columns and functions a query may name: three for each of its terms. SQLite evaluates a
/// term for a job in one go, and everything that is the same for all jobs before the first one;
/// neither can be interrupted. The worst known case is this many `json_extract`, each of eleven
/// places at the end of the longest list: 1.7 s, where one of them takes 18 ms (`strftime`: 1.3 s,
/// 14 ms).
pub const NAMES_MAX: u32 = 192;

/// SQLite's authorizer: while it is closed, a statement may read a job's columns, once, and call
/// harmless functions; nothing else gets through, pragmas and other tables least of all.
#[derive(Clone, Default)]
pub struct Guard(Arc<Shared>);

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    selects: AtomicU32,
    names: AtomicU32,
}

impl Guard {
    /// Guards a connection from now on. The guard starts open.
    pub fn install(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let guard = self.clone();
        db.authorizer(Some(move |context: AuthContext<'_>| guard.judge(context.action)))
    }

    /// Prepares something while the guard is closed.
    pub fn closed<T>(&self, prepare: impl FnOnce() -> T) -> T {
        self.0.selects.store(0, Ordering::Relaxed);
        self.0.names.store(0, Ordering::Relaxed);
        self.0.closed.store(true, Ordering::Relaxed);
        let prepared = prepare();
        self.0.closed.store(false, Ordering::Relaxed);
        prepared
    }

    /// Columns and functions that were named while it was closed last.
    pub fn names(&self) -> u32 {
        self.0.names.load(Ordering::Relaxed)
    }

    fn judge(&self, action: AuthAction<'_>) -> Authorization {
        if !self.0.closed.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        match action {
            // This door adds the call itself, and it takes no time.
            AuthAction::Function { function_name: TIME_LEFT } => {}
            AuthAction::Read { .. } | AuthAction::Function { .. } => {
                self.0.names.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
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
