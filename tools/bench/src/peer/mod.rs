//! The peers that are part of this program.

pub(crate) mod axum;
pub(crate) mod echo;
pub(crate) mod sqlite;
