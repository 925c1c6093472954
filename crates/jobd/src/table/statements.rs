//! The statements every database understands, but for what its [`Dialect`] says.

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
    /// Locks those of the rows that are still waiting and that nobody else has locked, lowest id
    /// first, at most `limit`: id, status, target.
    pub fn lock_waiting(&self, ids: &[RowId], limit: u32) -> String {
        let Self { table, by_id, target, is_waiting, lock_free_ones, .. } = self;
        format!(
            "SELECT id, status, {target} FROM {table}{by_id} WHERE id IN ({}) \
             AND {is_waiting} ORDER BY id LIMIT {limit}{lock_free_ones}",
            id_list(ids)
        )
    }

    /// Locks the rows, waiting for whoever has them: id, status, target.
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

    /// The accepted and running rows with the mark: id, status, sig, target.
    pub fn owned(&self, mark: &Mark) -> String {
        let Self { table, target, .. } = self;
        format!(
            "SELECT id, status, sig, {target} FROM {table} \
             WHERE status IN ('accepted', 'running') AND sig IN ('{}', '{}') ORDER BY id",
            mark.text(Origin::Background),
            mark.text(Origin::Manual)
        )
    }

    /// Changes the status of rows that are locked.
    pub fn set_status(&self, ids: &[RowId], status: &Status, sig: Sig<'_>) -> String {
        let Self { table, by_id, .. } = self;
        let sig = match sig {
            Sig::Keep => String::new(),
            Sig::Set(mark, origin) => format!(", sig = '{}'", mark.text(origin)),
            Sig::Clear => ", sig = NULL".to_owned(),
        };
        format!(
            "UPDATE {table}{by_id} SET status = '{}'{sig} WHERE id IN ({})",
            status.word(),
            id_list(ids)
        )
    }

    /// Makes rows that are locked `running`.
    pub fn start(&self, ids: &[RowId], started_s: i64) -> String {
        let Self { table, by_id, .. } = self;
        format!(
            "UPDATE {table}{by_id} SET status = 'running', time_started = {started_s} \
             WHERE id IN ({})",
            id_list(ids)
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
