//! The preconditions of a request: `If-Match` and `If-None-Match`.
//!
//! A header that is no entity tag at all is answered as a malformed request; a tag that differs
//! from the current one is a precondition that does not hold.

use std::fmt::Display;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use spindle_http::{Answered, Problem};

use crate::numbers::digits;

/// The condition that both headers together set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precondition<'a> {
    None,
    /// It is there, whatever it is.
    Exists,
    /// It is still what was read with this entity tag.
    Tag(&'a str),
    /// It is not there.
    Absent,
    /// It is there, and not there.
    Never,
}

impl Precondition<'_> {
    pub fn of(headers: &HeaderMap) -> Answered<Precondition<'_>> {
        Ok(match (if_match(headers)?, if_none_match(headers)?) {
            (None, false) => Precondition::None,
            (None, true) => Precondition::Absent,
            (Some(_), true) => Precondition::Never,
            (Some("*"), false) => Precondition::Exists,
            (Some(tag), false) => Precondition::Tag(tag),
        })
    }
}

/// An entity tag of something with revisions.
pub(crate) fn tag_of(revision: impl Display) -> [(HeaderName, HeaderValue); 1] {
    let tag = HeaderValue::try_from(format!("\"{revision}\"")).expect("digits in quotes");
    [(header::ETAG, tag)]
}

/// The revision in a tag. A tag that never was one of ours has none.
pub(crate) fn revision_of<T: FromStr>(tag: &str) -> Option<T> {
    tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(digits)
}

/// What `If-Match` says: one entity tag as it was sent, or `*`. A weak tag is one like any other,
/// and matches nothing, for the server sends no weak tags.
pub(crate) fn if_match(headers: &HeaderMap) -> Answered<Option<&str>> {
    let Some(value) = one(headers, &header::IF_MATCH)? else { return Ok(None) };
    let text = value.filter(|text| *text == "*" || is_entity_tag(text)).ok_or_else(|| {
        Problem::bad_field("If-Match is the ETag as it was read, quotes included, or *")
    })?;
    Ok(Some(text))
}

/// Whether `If-None-Match` says that there must be none.
fn if_none_match(headers: &HeaderMap) -> Answered<bool> {
    match one(headers, &header::IF_NONE_MATCH)? {
        None => Ok(false),
        Some(Some("*")) => Ok(true),
        Some(_) => Err(Problem::bad_field("If-None-Match can only be *")),
    }
}

/// A header that may occur at most once; the inner option is `None` if its value is not text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Answered<Option<Option<&'a str>>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str().ok().map(str::trim));
    if values.next().is_some() {
        return Err(Problem::bad_field(format!("{name} is there twice")));
    }
    Ok(first)
}

fn is_entity_tag(text: &str) -> bool {
    let tag = text.strip_prefix("W/").unwrap_or(text);
    let inside = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.is_some_and(|inside| inside.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'))
}

#[cfg(test)]
mod tests {
    use spindle_http::Code;

    use super::*;

    fn headers(name: HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn one_entity_tag_or_a_star_is_taken() {
        for text in ["*", "\"7\"", "\"\"", "W/\"7\"", "\"a-b!\""] {
            let headers = headers(header::IF_MATCH, &[text]);
            assert_eq!(if_match(&headers), Ok(Some(text)));
        }
        assert_eq!(if_match(&HeaderMap::new()), Ok(None));
        assert_eq!(if_none_match(&headers(header::IF_NONE_MATCH, &["*"])), Ok(true));
        assert_eq!(if_none_match(&HeaderMap::new()), Ok(false));
    }

    #[test]
    fn what_is_no_entity_tag_is_refused() {
        for text in ["", "7", "\"", "\"7", "w/\"7\"", "\"a b\"", "\"1\", \"2\"", "**", "\"\"\""] {
            let headers = headers(header::IF_MATCH, &[text]);
            assert_eq!(if_match(&headers).unwrap_err().code, Code::BadField, "{text}");
        }
        assert!(if_match(&headers(header::IF_MATCH, &["\"1\"", "\"2\""])).is_err());
        assert!(if_none_match(&headers(header::IF_NONE_MATCH, &["\"1\""])).is_err());
    }
}
