//! A list of jobs, built from rows of the copy.

use rusqlite::{Error, Row};

use crate::refusal::Refusal;
use crate::show;

/// What a list finds, in the order of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Jobs as JSON objects, commas between them.
    Jobs(String),
    /// A job of which the copy has only a part.
    Elsewhere(u64),
}

/// A list in the making.
pub struct Listing {
    pub pieces: Vec<Piece>,
    bytes: usize,
    pub bytes_max: usize,
    /// The list is over its limit, and nothing more is added.
    pub is_too_large: bool,
}

impl Listing {
    /// An empty one.
    pub fn new(bytes_max: usize) -> Listing {
        Listing { pieces: Vec::new(), bytes: 0, bytes_max, is_too_large: false }
    }

    /// Adds a job: its number, its payload, its state, its events, when it changed, and whether
    /// that is not all of it.
    pub fn add(&mut self, row: &Row<'_>) -> Result<(), Error> {
        let id: i64 = row.get(0)?;
        if row.get(5)? {
            self.pieces.push(Piece::Elsewhere(id.cast_unsigned()));
            return Ok(());
        }
        let json = |index| Ok::<_, Error>(row.get_ref(index)?.as_str_or_null()?.unwrap_or("null"));
        let (payload, state, events) = (json(1)?, json(2)?, json(3)?);
        let modified: i64 = row.get(4)?;
        self.bytes += payload.len() + state.len() + events.len() + JOB_BYTES;
        if self.bytes > self.bytes_max {
            self.is_too_large = true;
            return Ok(());
        }
        if !matches!(self.pieces.last(), Some(Piece::Jobs(_))) {
            self.pieces.push(Piece::Jobs(String::new()));
        }
        let Some(Piece::Jobs(jobs)) = self.pieces.last_mut() else { return Ok(()) };
        let comma = if jobs.is_empty() { "" } else { "," };
        jobs.push_str(comma);
        show::write(
            jobs,
            id.cast_unsigned(),
            [payload, state, events],
            Some(modified.cast_unsigned()),
        );
        Ok(())
    }
}

/// Roughly the bytes around a job's values in a list.
const JOB_BYTES: usize = 64;

/// The refusal of a list that is too long.
pub fn too_large(bytes_max: usize) -> Refusal {
    Refusal::too_costly(format!(
        "the answer would be over {bytes_max} bytes: give a `limit`, and go on with \
         [\">\", \"id\", LAST]"
    ))
}
