//! Things that the API keeps by name: constraints and schedules. Their pages have the name in the
//! address.

use spindle_http::Problem;

use crate::ask::{Asked, segment};
use crate::query::Query;

/// One of these two kinds.
pub(crate) struct Kind {
    /// The word for one of this kind.
    word: &'static str,
    /// Where all are in the API.
    in_api: &'static str,
}

pub(crate) const CONSTRAINT: Kind = Kind { word: "constraint", in_api: "/api/v1/constraints" };
pub(crate) const SCHEDULE: Kind = Kind { word: "schedule", in_api: "/api/v1/schedules" };

impl Kind {
    /// The name in an address, and its address in the API.
    pub fn named(&self, query: &Query) -> Asked<(String, String)> {
        let missing = || Problem::out_of_range(format!("the address names no {}", self.word));
        let name = query.get("name").ok_or_else(missing)?;
        Ok((name.to_owned(), self.in_api(name)))
    }

    /// The address in the API of the one of this name.
    pub fn in_api(&self, name: &str) -> String {
        format!("{}/{}", self.in_api, segment(name.as_bytes()))
    }
}

/// The address of the page of a named thing, or of an action on it.
pub(crate) fn path_of(path: &str, name: &str) -> String {
    Query::new().with("name", name).to(path)
}
