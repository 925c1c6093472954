//! Replacements for SQLite functions whose running time has no useful bound.
//!
//! SQLite looks at no clock within a function. Most of its functions take a time that grows with
//! the length of their arguments, which is limited. The ones replaced here take the product of two
//! lengths: a search for a long text in a longer one takes minutes. The replacements give the same
//! results as SQLite's; the searches take linear time, and all of them check whether the query has
//! time left.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error};

use crate::json;
use crate::query::budget::Budget;
use crate::query::pattern::{PATTERN_BYTES_MAX, Pattern, until_nul};

/// The function that a query calls between its terms: it ends the query when its time is used up.
pub const TIME_LEFT: &str = "time_left";

/// The longest letter of UTF-8.
const LETTER_BYTES_MAX: usize = 4;

/// A text as SQLite has it: mostly UTF-8.
struct Text(Vec<u8>);

impl ToSql for Text {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

/// What the functions work with.
#[derive(Clone)]
struct Tools {
    budget: Budget,
    /// Writes numbers as SQLite writes them.
    numbers: Arc<Mutex<Connection>>,
    /// The longest text a function may make.
    text_bytes_max: usize,
}

type Function<T> = fn(&Tools, &Context<'_>) -> rusqlite::Result<T>;

/// Puts these functions in the place of SQLite's.
pub fn install(db: &Connection, budget: &Budget, text_bytes_max: usize) -> rusqlite::Result<()> {
    let numbers = Arc::new(Mutex::new(Connection::open_in_memory()?));
    let tools = Tools { budget: budget.clone(), numbers, text_bytes_max };
    tools.add(db, "like", 2, like)?;
    tools.add(db, "like", 3, like)?;
    tools.add(db, "glob", 2, glob)?;
    tools.add(db, "instr", 2, instr)?;
    tools.add(db, "replace", 3, replace)?;
    for arguments in [1, 2] {
        tools.add(db, "trim", arguments, |tools, context| trim(tools, context, true, true))?;
        tools.add(db, "ltrim", arguments, |tools, context| trim(tools, context, true, false))?;
        tools.add(db, "rtrim", arguments, |tools, context| trim(tools, context, false, true))?;
    }
    tools.add(db, "unhex", 2, |_, _| -> rusqlite::Result<bool> {
        Err(refused("unhex() takes one argument here"))
    })?;
    tools.add(db, "same_json", 2, same_json)?;
    // Not deterministic: to be called for each job.
    let Tools { budget, .. } = tools;
    db.create_scalar_function(TIME_LEFT, 0, FunctionFlags::SQLITE_UTF8, move |_| {
        if budget.is_over() { Err(ended()) } else { Ok(true) }
    })
}

impl Tools {
    fn add<T: rusqlite::functions::SqlFnOutput + 'static>(
        &self,
        db: &Connection,
        name: &'static str,
        arguments: i32,
        function: Function<T>,
    ) -> rusqlite::Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        let tools = self.clone();
        db.create_scalar_function(name, arguments, flags, move |context| {
            if tools.budget.is_over() {
                return Err(ended());
            }
            function(&tools, context)
        })
    }

    /// An argument as text; none for NULL.
    fn text<'a>(
        &self,
        context: &'a Context<'_>,
        index: usize,
    ) -> rusqlite::Result<Option<Cow<'a, [u8]>>> {
        Ok(match context.get_raw(index) {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(Cow::Owned(number.to_string().into_bytes())),
            ValueRef::Real(number) => Some(Cow::Owned(self.written(number)?.into_bytes())),
            ValueRef::Text(text) | ValueRef::Blob(text) => Some(Cow::Borrowed(text)),
        })
    }

    fn written(&self, number: f64) -> rusqlite::Result<String> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = numbers.prepare_cached("SELECT CAST(?1 AS TEXT)")?;
        written.query_row([number], |row| row.get(0))
    }
}

/// The error's text is never read; the budget has the reason.
fn ended() -> Error {
    refused("the query was ended")
}

fn refused(message: &str) -> Error {
    Error::UserFunctionError(message.into())
}

fn like(tools: &Tools, context: &Context<'_>) -> rusqlite::Result<Option<bool>> {
    let escape = match context.len() {
        2 => None,
        _ => match tools.text(context, 2)? {
            None => return Ok(None),
            Some(escape) => Some(single_letter(&escape)?),
        },
    };
    // The escape letter may differ from job to job, so the pattern is not cached.
    let read = |pattern: &[u8]| Pattern::like(pattern, escape);
    matched(tools, context, escape.is_none(), read)
}

fn single_letter(escape: &[u8]) -> rusqlite::Result<u32> {
    let mut letters = std::str::from_utf8(until_nul(escape)).unwrap_or_default().chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Ok(letter.into()),
        _ => Err(refused("ESCAPE expression must be a single character")),
    }
}

fn glob(tools: &Tools, context: &Context<'_>) -> rusqlite::Result<Option<bool>> {
    matched(tools, context, true, Pattern::glob)
}

/// The pattern is the first argument. One that is the same for all jobs can be kept.
fn matched(
    tools: &Tools,
    context: &Context<'_>,
    keep: bool,
    read: impl FnOnce(&[u8]) -> Pattern,
) -> rusqlite::Result<Option<bool>> {
    let Some(pattern) = tools.text(context, 0)? else { return Ok(None) };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(refused("LIKE or GLOB pattern too complex"));
    }
    let Some(text) = tools.text(context, 1)? else { return Ok(None) };
    let pattern = if keep {
        context.get_or_create_aux(0, |_| Ok::<_, Error>(read(&pattern)))?
    } else {
        Arc::new(read(&pattern))
    };
    let matches = pattern.matches(&text, || !tools.budget.is_over());
    matches.map(Some).ok_or_else(ended)
}

/// Where a text is in another, in letters from 1; 0 if it is not. Of two blobs, in bytes.
fn instr(tools: &Tools, context: &Context<'_>) -> rusqlite::Result<Option<i64>> {
    let is_blob = |index| matches!(context.get_raw(index), ValueRef::Blob(_));
    let in_bytes = is_blob(0) && is_blob(1);
    let (Some(text), Some(part)) = (tools.text(context, 0)?, tools.text(context, 1)?) else {
        return Ok(None);
    };
    let Some(before) = memchr::memmem::find(&text, &part) else { return Ok(Some(0)) };
    let count = |byte: &&u8| in_bytes || (**byte & 0xc0) != 0x80;
    let place = text[..before].iter().filter(count).count() + 1;
    Ok(Some(i64::try_from(place).unwrap_or(i64::MAX)))
}

fn replace(tools: &Tools, context: &Context<'_>) -> rusqlite::Result<Option<Text>> {
    let (Some(text), Some(old)) = (tools.text(context, 0)?, tools.text(context, 1)?) else {
        return Ok(None);
    };
    // As in SQLite, what begins with a zero byte is empty here.
    if old.first().is_none_or(|first| *first == 0) {
        return Ok(Some(Text(text.into_owned())));
    }
    let Some(new) = tools.text(context, 2)? else { return Ok(None) };
    let mut made = Vec::with_capacity(text.len());
    let mut rest = 0;
    for found in memchr::memmem::find_iter(&text, &*old) {
        made.extend_from_slice(&text[rest..found]);
        made.extend_from_slice(&new);
        rest = found + old.len();
        if made.len() > tools.text_bytes_max {
            return Err(too_long());
        }
    }
    made.extend_from_slice(&text[rest..]);
    if made.len() > tools.text_bytes_max {
        return Err(too_long());
    }
    Ok(Some(Text(made)))
}

/// What SQLite says of a text beyond its limit.
fn too_long() -> Error {
    Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_TOOBIG), None)
}

fn trim(
    tools: &Tools,
    context: &Context<'_>,
    left: bool,
    right: bool,
) -> rusqlite::Result<Option<Text>> {
    let Some(text) = tools.text(context, 0)? else { return Ok(None) };
    let set = match context.len() {
        1 => Cow::Borrowed(&b" "[..]),
        _ => match tools.text(context, 1)? {
            None => return Ok(None),
            Some(set) => set,
        },
    };
    let letters = letters_of(until_nul(&set));
    let lengths: BTreeSet<usize> = letters.iter().map(|letter| letter.len()).collect();
    let mut text = &*text;
    while left
        && let Some(cut) = lengths
            .iter()
            .find(|len| text.get(..**len).is_some_and(|letter| letters.contains(letter)))
    {
        text = &text[*cut..];
    }
    while right
        && let Some(kept) = lengths.iter().find_map(|len| {
            let kept = text.len().checked_sub(*len)?;
            letters.contains(&text[kept..]).then_some(kept)
        })
    {
        text = &text[..kept];
    }
    Ok(Some(Text(text.to_vec())))
}

/// The letters of a text: a byte, and the continuation bytes after it.
fn letters_of(text: &[u8]) -> HashSet<&[u8]> {
    let mut letters = HashSet::new();
    let mut rest = text;
    while let Some(lead) = rest.first() {
        let follows = |byte: &&u8| *lead >= 0xc0 && (**byte & 0xc0) == 0x80;
        let len = 1 + rest[1..].iter().take_while(follows).count();
        let (letter, after) = rest.split_at(len);
        if len <= LETTER_BYTES_MAX {
            letters.insert(letter);
        }
        rest = after;
    }
    letters
}

/// Whether two JSON texts mean the same.
fn same_json(_: &Tools, context: &Context<'_>) -> rusqlite::Result<bool> {
    let texts = (context.get_raw(0).as_str(), context.get_raw(1).as_str());
    Ok(matches!(texts, (Ok(one), Ok(other)) if json::is_same(one, other)))
}

#[cfg(test)]
mod tests {
    use rusqlite::types::Value;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn ours() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        install(&db, &Budget::default(), LIMIT).unwrap();
        db
    }

    fn value(db: &Connection, sql: &str) -> Result<Value, String> {
        db.query_row(sql, [], |row| row.get(0)).map_err(|error| error.to_string())
    }

    /// Every argument of every kind, against SQLite's own functions.
    #[test]
    fn they_give_what_sqlites_give() {
        const VALUES: &[&str] = &[
            "NULL",
            "''",
            "'a'",
            "'b'",
            "'ab'",
            "'aabbaab'",
            "'  a b  '",
            "'é'",
            "'éaé'",
            "'ab%_'",
            "1",
            "-12",
            "0.1",
            "1.5",
            "1e300",
            "x''",
            "x'6162'",
            "x'61c3a9'",
            "'[a-b]*'",
            "'A%'",
            "'a?b'",
            "'\\%'",
            "char(0)",
            "'a' || char(0) || 'b'",
            "9223372036854775807",
            "' '",
        ];
        let (ours, sqlites) = (ours(), Connection::open_in_memory().unwrap());
        let check = |sql: &str| {
            let (found, expected) = (value(&ours, sql), value(&sqlites, sql));
            assert_eq!(found, expected, "{sql}");
        };
        for one in VALUES {
            for function in ["trim", "ltrim", "rtrim"] {
                check(&format!("SELECT {function}({one})"));
            }
            for other in VALUES {
                for function in ["like", "glob", "instr", "trim", "ltrim", "rtrim"] {
                    check(&format!("SELECT {function}({one}, {other})"));
                }
                for third in VALUES {
                    check(&format!("SELECT replace({one}, {other}, {third})"));
                    let escaped = format!("SELECT {one} LIKE {other} ESCAPE {third}");
                    let (found, expected) = (value(&ours, &escaped), value(&sqlites, &escaped));
                    assert_eq!(found.ok(), expected.ok(), "{escaped}");
                }
            }
        }
    }

    /// Each of these takes SQLite's own function longer than a test may take.
    #[test]
    fn long_texts_take_no_longer_than_their_lengths() {
        let db = ours();
        let (text, part) = ("printf('%.1000000c', 'a')", "printf('%.500000c', 'a')");
        for (expression, expected) in [
            (format!("instr({text}, {part} || 'b')"), 0),
            (format!("instr({text}, {part})"), 1),
            (format!("length(replace({text}, {part} || 'b', ''))"), 1_000_000),
            (format!("length(replace({text}, {part}, 'x'))"), 2),
            (format!("length(trim({text}, replace({part}, 'a', 'b') || 'a'))"), 0),
            (format!("length(rtrim({text}, replace({part}, 'a', 'b') || 'a'))"), 0),
        ] {
            let sql = format!("SELECT {expression}");
            assert_eq!(value(&db, &sql), Ok(Value::Integer(expected)), "{expression}");
        }
    }

    #[test]
    fn what_grows_beyond_the_limit_is_refused() {
        let db = ours();
        let grown = |count: usize| {
            let sql = format!("SELECT length(replace(printf('%.{count}c', 'a'), 'a', 'bb'))");
            value(&db, &sql)
        };
        assert_eq!(grown(LIMIT / 2), Ok(Value::Integer(LIMIT as i64)));
        assert!(grown(LIMIT / 2 + 1).is_err_and(|message| message.contains("too big")));
    }

    #[test]
    fn a_query_whose_time_is_over_is_ended_within_an_expression() {
        let mut db = ours();
        let budget = Budget::default();
        budget.install(&mut db).unwrap();
        install(&db, &budget, LIMIT).unwrap();
        budget.interrupt();
        for expression in ["'a' LIKE 'a'", "instr('a', 'a')", "time_left()"] {
            let sql = format!("SELECT {expression}");
            let time = std::time::Duration::from_secs(1);
            let run = || value(&db, &sql);
            let (ran, end) = budget.within(time, crate::query::Try::Whole, run);
            assert!(ran.is_err(), "{expression}");
            assert_eq!(end, crate::query::End::Interrupted, "{expression}");
        }
    }
}
