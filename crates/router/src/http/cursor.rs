//! Where a joined list goes on: a place on each shard.

use spindle_http::Problem;

/// Where a list is on one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// At its beginning.
    Begin,
    /// Where a number of the shard's own list says.
    Number(u64),
    /// It has been shown whole.
    End,
}

/// Where a list is on each shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cursor(pub Vec<At>);

const BEGIN: &str = "begin";
const END: &str = "end";

impl Cursor {
    /// The beginning of lists on so many shards.
    pub fn begin(shards: usize) -> Cursor {
        Cursor(vec![At::Begin; shards])
    }

    /// As clients send it back.
    pub fn text(&self) -> String {
        let part = |at: &At| match at {
            At::Begin => BEGIN.to_owned(),
            At::Number(number) => number.to_string(),
            At::End => END.to_owned(),
        };
        self.0.iter().map(part).collect::<Vec<_>>().join("_")
    }

    /// Reads one of so many shards.
    pub fn read(text: &str, shards: usize) -> Result<Cursor, Problem> {
        let part = |text: &str| match text {
            BEGIN => Some(At::Begin),
            END => Some(At::End),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().map(At::Number)
            }
            _ => None,
        };
        let parts: Option<Vec<At>> = text.split('_').take(shards + 1).map(part).collect();
        let parts = parts.filter(|parts| parts.len() == shards);
        parts.map(Cursor).ok_or_else(bad_cursor)
    }

    /// Nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.0.iter().all(|at| *at == At::End)
    }
}

/// A cursor that no page has given.
pub(super) fn bad_cursor() -> Problem {
    Problem::out_of_range("cursor is the next_cursor of the page before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let cursor = Cursor(vec![At::Begin, At::Number(35_184_372_088_839), At::End]);
        assert_eq!(cursor.text(), "begin_35184372088839_end");
        assert_eq!(Cursor::read(&cursor.text(), 3), Ok(cursor));
        for text in [
            "",
            "3",
            "begin_begin",
            "1_2_3_4",
            "1_x_3",
            "1__3",
            "1_-2_3",
            "_".repeat(9_999).as_str(),
        ] {
            assert!(Cursor::read(text, 3).is_err(), "{text}");
        }
    }
}
