//! The statements that every database understands, with its [`Dialect`] filled in.

use super::fit::Ending;
use super::names::id_list;
use super::row::{Mark, Origin, RowId, Status};
use super::session::Dialect;

/// What a change of status does to `sig`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sig<'a> {
    /// It stays.
    Keep,
    /// It becomes this mark's text.
    Set(&'a Mark, Origin),
    /// It becomes NULL.
    Clear,
}

impl Dialect {
    /// Locks those of the rows that are still waiting and that no other transaction has locked, lowest id
    /// first, at most `limit`: id, status, target.
    pub fn lock_waiting(&self, ids: &[RowId], limit: u32) -> String {
        let Self { table, by_id, target, is_waiting, lock_free_ones, .. } = self;
        format!(
            "SELECT id, status, {target} FROM {table}{by_id} WHERE id IN ({}) \
             AND {is_waiting} ORDER BY id LIMIT {limit}{lock_free_ones}",
            id_list(ids)
        )
    }

    /// Locks the rows, waiting for transactions that have them: id, status, target.
    pub fn lock_ids(&self, ids: &[RowId]) -> String {
        let Self { table, by_id, target, lock, .. } = self;
        format!(
            "SELECT id, status, {target} FROM {table}{by_id} WHERE id IN ({}) ORDER BY id{lock}",
            id_list(ids)
        )
    }

    /// Locks the rows: id, status, sig.
    pub fn lock_marks(&self, ids: &[RowId]) -> String {
        let Self { table, by_id, lock, .. } = self;
        format!(
            "SELECT id, status, sig FROM {table}{by_id} WHERE id IN ({}) ORDER BY id{lock}",
            id_list(ids)
        )
    }

    /// The accepted and running rows with the mark: id, status, sig, target, `time_started`.
    pub fn owned(&self, mark: &Mark) -> String {
        let Self { table, target, .. } = self;
        format!(
            "SELECT id, status, sig, {target}, time_started FROM {table} \
             WHERE status IN ('accepted', 'running') AND sig IN ('{}', '{}') ORDER BY id",
            mark.text(Origin::Background),
            mark.text(Origin::Manual)
        )
    }

    /// Changes the status of rows that are locked, and `time_started` if it is given.
    pub fn set_status(
        &self,
        ids: &[RowId],
        status: &Status,
        sig: Sig<'_>,
        started_s: Option<i64>,
    ) -> String {
        let Self { table, by_id, .. } = self;
        let sig = match sig {
            Sig::Keep => String::new(),
            Sig::Set(mark, origin) => format!(", sig = '{}'", mark.text(origin)),
            Sig::Clear => ", sig = NULL".to_owned(),
        };
        let started = started_s.map_or(String::new(), |at| format!(", time_started = {at}"));
        format!(
            "UPDATE {table}{by_id} SET status = '{}'{sig}{started} WHERE id IN ({})",
            status.word(),
            id_list(ids)
        )
    }

    /// Makes rows that are locked `done`. `None` if their output is not short, or cannot be quoted the
    /// same way in every database.
    pub fn finish(&self, ids: &[RowId], ending: &Ending<'_>) -> Option<String> {
        let number = |number: Option<u8>| number.map_or("NULL".to_owned(), |n| n.to_string());
        let values = [
            ending.finished_s.to_string(),
            number(ending.code),
            quoted(ending.sig.as_deref())?,
            quoted(ending.stdout.as_deref())?,
            quoted(ending.stderr.as_deref())?,
        ];
        Some(self.done(ending.result, values.each_ref().map(String::as_str), &id_list(ids)))
    }

    /// Makes rows `done`: `time_finished`, `return_code`, `sig`, `stdout` and `stderr` become these
    /// expressions.
    pub fn done(&self, result: &str, values: [&str; 5], ids: &str) -> String {
        let Self { table, by_id, .. } = self;
        let [finished_s, code, sig, stdout, stderr] = values;
        format!(
            "UPDATE {table}{by_id} SET status = 'done', time_finished = {finished_s}, \
             result = '{result}', return_code = {code}, sig = {sig}, stdout = {stdout}, \
             stderr = {stderr} WHERE id IN ({ids})"
        )
    }

    /// Changes nothing, and fails as a real change would without the rights to it.
    pub fn probe(&self) -> String {
        let Self { table, by_id, .. } = self;
        format!(
            "UPDATE {table}{by_id} SET status = status, sig = sig, time_started = time_started, \
             time_finished = time_finished, result = result, return_code = return_code, \
             stdout = stdout, stderr = stderr WHERE id = -1"
        )
    }
}

/// A text between quotes, if it is short and has nothing in it that could mean something to a
/// database: ASCII without controls (but the end of a line), quotes and backslashes.
fn quoted(text: Option<&str>) -> Option<String> {
    const BYTES_MAX: usize = 256;
    let Some(text) = text else { return Some("NULL".to_owned()) };
    let is_plain = |byte: u8| {
        matches!(byte, b'\n' | b' '..=b'~') && !matches!(byte, b'\'' | b'"' | b'`' | b'\\')
    };
    (text.len() <= BYTES_MAX && text.bytes().all(is_plain)).then(|| format!("'{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_means_itself_is_quoted() {
        assert_eq!(quoted(None).as_deref(), Some("NULL"));
        assert_eq!(quoted(Some("")).as_deref(), Some("''"));
        assert_eq!(quoted(Some("a; -- b\n%_$1?")).as_deref(), Some("'a; -- b\n%_$1?'"));
        for text in ["it's", "a\\", "\"", "`", "é", "\0", "\r", "\u{7f}", &"x".repeat(257)] {
            assert_eq!(quoted(Some(text)), None, "{text:?}");
        }
    }
}
