//! Results of actions.

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct BulkAnswer {
    pub matched: u64,
    pub changed: u64,
    #[serde(default)]
    pub refused: std::collections::BTreeMap<String, u64>,
    pub deletion: Option<Deletion>,
    /// The shard whose request the deletion is, where there are several.
    pub shard: Option<u8>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Purged {
    pub deleted: u64,
    pub deletion: Option<Deletion>,
}

/// How something deleted is brought back.
#[derive(Deserialize)]
pub(crate) struct Deletion {
    pub request: u64,
    pub until: String,
}

#[derive(Deserialize)]
pub(crate) struct Submitted {
    pub id: u64,
}
