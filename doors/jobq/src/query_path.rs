//! The path of a query, without an engine: for the fuzzer, and for tests that run many queries.

use std::time::Duration;

use crate::bodies::{ListBody, PollBody};
use crate::listing::Piece;
use crate::replica::{Column, QueryLimits, Replica, Row};

/// A few jobs, and queries over them.
pub struct QueryPath {
    replica: Replica,
}

impl QueryPath {
    /// Three jobs of different states. `None` if SQLite is not available.
    pub fn new() -> Option<QueryPath> {
        let limits = QueryLimits { time: Duration::from_secs(1), answer_bytes_max: 1 << 20 };
        let mut replica = Replica::new(limits).ok()?;
        let states = [Some("[\"CREATED\"]"), None, Some("{\"a\": [1, null]}")];
        let rows = states.iter().zip(1..).map(|(state, id)| Row {
            id,
            update_seq: id,
            revision: 1,
            fixed: false,
            modified: 1_628_909_303,
            state: state.map(str::to_owned),
            payload: Some(Column::Json(Some("{\"msg\": \"Hello\"}".to_owned()))),
            events: "[[\"job_created\", {\"timestamp\": \"1628909303\"}]]".to_owned(),
            is_cut: false,
        });
        let rows: Vec<Row> = rows.collect();
        replica.apply(&rows, &[]).ok()?;
        Some(QueryPath { replica })
    }

    /// The answer to a list request with this body: the jobs, or the refusal.
    pub fn list(&self, body: &[u8]) -> Result<String, String> {
        ListBody::read(body)
            .and_then(|body| self.replica.list(&body.query, body.limit))
            .map(|pieces| match &pieces[..] {
                [Piece::Jobs(jobs)] => jobs.clone(),
                _ => String::new(),
            })
            .map_err(|refusal| refusal.message)
    }

    /// Which jobs a poll with this body would try, in their order.
    pub fn candidates(&self, body: &[u8]) -> Result<Vec<u64>, String> {
        PollBody::read(body)
            .and_then(|body| self.replica.candidates(&body.query, usize::MAX))
            .map(|found| found.into_iter().map(|found| found.id).collect())
            .map_err(|refusal| refusal.message)
    }
}
