//! The bodies of requests.

use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::history::Form;
use crate::json;
use crate::query::Query;
use crate::refusal::{Answered, Refusal};

/// The state of a job whose creator names none.
const CREATED: &str = "[\"CREATED\"]";

/// A job to create.
#[derive(PartialEq, Eq, Debug)]
pub struct NewBody<'a> {
    pub payload: &'a str,
    pub state: &'a str,
    pub form: Form,
}

impl<'a> NewBody<'a> {
    /// The whole body is the payload, unless it is an object that has a `payload` and besides it
    /// at most a `state`.
    pub fn read(body: &'a [u8]) -> Answered<NewBody<'a>> {
        let whole = json::read(body)?;
        Ok(match Pair::of(whole, "payload", "state") {
            Some(Pair { first: Some(payload), second: Some(state) }) => {
                NewBody { payload: payload.get(), state: state.get(), form: Form::Newest }
            }
            Some(Pair { first: Some(payload), second: None }) => {
                NewBody { payload: payload.get(), state: CREATED, form: Form::Bare }
            }
            _ => NewBody { payload: whole.get(), state: CREATED, form: Form::Bare },
        })
    }
}

/// A state to set.
#[derive(PartialEq, Eq, Debug)]
pub struct StateBody<'a> {
    /// Only if this is the state now.
    pub old: Option<&'a str>,
    pub new: &'a str,
}

impl<'a> StateBody<'a> {
    /// The whole body is the new state, unless it is an object of `old` and `new` exactly.
    pub fn read(body: &'a [u8]) -> Answered<StateBody<'a>> {
        let whole = json::read(body)?;
        Ok(match Pair::of(whole, "old", "new") {
            Some(Pair { first: Some(old), second: Some(new) }) => {
                StateBody { old: Some(old.get()), new: new.get() }
            }
            _ => StateBody { old: None, new: whole.get() },
        })
    }
}

/// The values of an object that has no keys but two given ones.
struct Pair<'a> {
    first: Option<&'a RawValue>,
    second: Option<&'a RawValue>,
}

impl<'a> Pair<'a> {
    fn of(value: &'a RawValue, first: &'static str, second: &'static str) -> Option<Pair<'a>> {
        if !value.get().starts_with('{') {
            return None;
        }
        let visitor = PairVisitor { first, second };
        let mut reader = serde_json::Deserializer::from_str(value.get());
        serde::Deserializer::deserialize_map(&mut reader, visitor).ok().flatten()
    }
}

struct PairVisitor {
    first: &'static str,
    second: &'static str,
}

impl<'de> Visitor<'de> for PairVisitor {
    type Value = Option<Pair<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pair = Some(Pair { first: None, second: None });
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &mut pair {
                Some(pair) if key == self.first => pair.first = Some(map.next_value()?),
                Some(pair) if key == self.second => pair.second = Some(map.next_value()?),
                _ => {
                    pair = None;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(pair)
    }
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    query: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    state: Option<&'a RawValue>,
    limit: Option<u64>,
}

/// A value that is present, even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(reader).map(Some)
}

/// What `POST /api/v0/job` asks for.
#[derive(PartialEq, Debug)]
pub struct ListBody {
    pub query: Query,
    pub limit: Option<u64>,
}

impl ListBody {
    /// A request without a body asks for all jobs, as in the example of Jobq's document.
    pub fn read(body: &[u8]) -> Answered<ListBody> {
        if body.trim_ascii().is_empty() {
            return Ok(ListBody { query: Query::default(), limit: None });
        }
        let asked = asked(body)?;
        let query = asked.query.map_or(Ok(Query::default()), |query| Query::read(query.get()))?;
        Ok(ListBody { query, limit: asked.limit })
    }
}

/// What `POST /api/v0/job/poll` asks for.
#[derive(PartialEq, Debug)]
pub struct PollBody {
    pub query: Query,
    pub state: String,
}

impl PollBody {
    pub fn read(body: &[u8]) -> Answered<PollBody> {
        let asked = asked(body)?;
        let query = asked.query.ok_or_else(|| Refusal::body("a poll needs a `query`"))?;
        let state = asked.state.ok_or_else(|| Refusal::body("a poll needs a new `state`"))?;
        let query = Query::read(query.get())?;
        if query.is_empty() {
            let message = "a poll needs a query with at least one [OP, EXPR, EXPR]";
            return Err(Refusal::query(message));
        }
        Ok(PollBody { query, state: state.get().to_owned() })
    }
}

fn asked(body: &[u8]) -> Answered<Asked<'_>> {
    let whole = json::read(body)?;
    if !whole.get().starts_with('{') {
        return Err(Refusal::body("the body must be an object such as {\"query\": [...]}"));
    }
    serde_json::from_str(whole.get()).map_err(|error| Refusal::body(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_unwrapped_only_from_an_object_of_payload_and_state() {
        let read = |body: &'static str| {
            let NewBody { payload, state, form } = NewBody::read(body.as_bytes()).unwrap();
            (payload, state, form)
        };
        assert_eq!(read("{\"payload\":1}"), ("1", CREATED, Form::Bare));
        assert_eq!(read("{\"payload\": null ,\"state\":null}"), ("null", "null", Form::Newest));
        assert_eq!(read("{\"state\":1,\"\\u0070ayload\":[2]}"), ("[2]", "1", Form::Newest));
        for whole in ["{}", "{\"state\":1}", "{\"payload\":1,\"more\":2}", "[1]", "\"x\""] {
            assert_eq!(read(whole), (whole, CREATED, Form::Bare));
        }
    }

    #[test]
    fn a_state_is_compared_only_when_old_and_new_are_all_there_is() {
        let read = |body: &'static str| {
            let StateBody { old, new } = StateBody::read(body.as_bytes()).unwrap();
            (old, new)
        };
        assert_eq!(read("{\"old\":null,\"new\":[1]}"), (Some("null"), "[1]"));
        for whole in ["{\"old\":1}", "{\"new\":1}", "{\"old\":1,\"new\":2,\"x\":3}", "{}", "null"] {
            assert_eq!(read(whole), (None, whole));
        }
    }

    #[test]
    fn a_poll_needs_a_query_and_a_state() {
        for body in [
            "{}",
            "{\"query\":[[\"=\",\"id\",1]]}",
            "{\"state\":1}",
            "[]",
            "",
            "{\"query\":[],\"state\":1}",
        ] {
            assert!(PollBody::read(body.as_bytes()).is_err(), "{body}");
        }
        let body = PollBody::read(b"{\"query\":[[\"=\",\"id\",1]],\"state\":null}").unwrap();
        assert_eq!(body.state, "null");
    }
}
