//! One message: a JSON array of a type and, for requests and responses, an object.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{
    frame::EOT,
    javascript::{integer_of, text_of},
};

const REQUEST: i64 = 0;
const RESPONSE: i64 = 1;
const PING: i64 = 2;
const PONG: i64 = 3;

/// A message as read.
#[derive(Debug)]
pub enum Message {
    /// The peer wants something.
    Request(Request),
    /// The peer answers a request of ours.
    Response(Response),
    /// Is anybody there?
    Ping,
    /// The answer to a ping.
    Pong,
}

/// Something the peer wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The peer's number for it; the response carries the same.
    pub no: i64,
    /// What it wants.
    pub kind: String,
    /// The arguments; `Null` when there are none.
    pub data: Value,
    /// The password, needed in a connection's first request.
    pub password: Option<String>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Response {
    /// The number of the request.
    pub no: i64,
    /// Its answer as JSON text (an absent one is `null`), or the error's text. The text is kept
    /// unread: a worker's answer to `run-manual` can be large, and a master only passes it on.
    pub outcome: Result<Box<RawValue>, String>,
}

/// Bytes that are not a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not JSON at all. The original says nothing and goes on reading.
    Junk,
    /// JSON, but no message. The text goes back as the error of request number 0.
    Answer(String),
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Reads one message, given without its EOT. Bytes that are not UTF-8 count as U+FFFD.
///
/// # Errors
/// [`Malformed`]; later messages are not affected.
pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    if !text.starts_with('[') {
        let value: Value = serde_json::from_str(text).map_err(|_| Malformed::Junk)?;
        return Err(Malformed::Answer(format!("JSON array expected, got: {}", text_of(&value))));
    }
    let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| Malformed::Junk)?;
    let kind = match items.first() {
        Some(raw) => value_of(raw)?,
        None => return Err(Malformed::Answer("unexpected type undefined".to_owned())),
    };
    let data = items.get(1).copied();
    match integer_of(&kind) {
        Some(REQUEST) => request(data).map(Message::Request),
        Some(RESPONSE) => response(data).map(Message::Response),
        Some(PING) => Ok(Message::Ping),
        Some(PONG) => Ok(Message::Pong),
        _ => Err(Malformed::Answer(format!("unexpected type {}", text_of(&kind)))),
    }
}

fn value_of(raw: &RawValue) -> Result<Value, Malformed> {
    serde_json::from_str(raw.get()).map_err(|_| Malformed::Junk)
}

/// The fields of a message's object. An array is an object without them, as in JavaScript.
fn fields<'a>(data: Option<&'a RawValue>, what: &str) -> Result<Fields<'a>, Malformed> {
    let text = data.map_or("", RawValue::get);
    if text.starts_with('[') {
        return Ok(Fields::new());
    }
    if !text.starts_with('{') {
        let text = format!("malformed {what} message: data is not an object");
        return Err(Malformed::Answer(text));
    }
    serde_json::from_str(text).map_err(|_| Malformed::Junk)
}

fn required(fields: &Fields<'_>, name: &str, what: &str) -> Result<Value, Malformed> {
    match fields.get(name) {
        Some(raw) => value_of(raw),
        None => Err(Malformed::Answer(format!(
            "malformed {what} message: missing required field {name}"
        ))),
    }
}

fn wrong_type(what: &str, name: &str, wanted: &str) -> Malformed {
    Malformed::Answer(format!("malformed {what} message: '{name}' must be {wanted}"))
}

fn request(data: Option<&RawValue>) -> Result<Request, Malformed> {
    const WHAT: &str = "REQUEST";
    let fields = fields(data, WHAT)?;
    let kind = required(&fields, "type", WHAT)?;
    let no = required(&fields, "no", WHAT)?;
    let no = integer_of(&no).ok_or_else(|| wrong_type(WHAT, "no", "integer"))?;
    let Value::String(kind) = kind else { return Err(wrong_type(WHAT, "type", "string")) };
    let data = fields.get("data").map_or(Ok(Value::Null), |raw| value_of(raw))?;
    if data.is_boolean() {
        return Err(wrong_type(WHAT, "data", "any of: string, number, object, array"));
    }
    let password = match fields.get("password").map(|raw| value_of(raw)).transpose()? {
        None => None,
        Some(Value::String(password)) => Some(password),
        Some(_) => return Err(wrong_type(WHAT, "password", "string")),
    };
    Ok(Request { no, kind, data, password })
}

fn response(data: Option<&RawValue>) -> Result<Response, Malformed> {
    const WHAT: &str = "RESPONSE";
    let fields = fields(data, WHAT)?;
    let no = required(&fields, "no", WHAT)?;
    let no = integer_of(&no).ok_or_else(|| wrong_type(WHAT, "no", "integer"))?;
    let outcome = match fields.get("error").map(|raw| value_of(raw)).transpose()? {
        Some(Value::String(error)) => Err(error),
        Some(_) => return Err(wrong_type(WHAT, "error", "string")),
        None => Ok(fields.get("data").map_or(RawValue::NULL, |raw| *raw).to_owned()),
    };
    Ok(Response { no, outcome })
}

#[derive(Serialize)]
struct RequestOut<'a> {
    no: i64,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
}

/// A request with its EOT.
pub fn encode_request(
    no: i64,
    kind: &str,
    data: Option<&RawValue>,
    password: Option<&str>,
) -> Bytes {
    encode(&(REQUEST, RequestOut { no, kind, data, password }))
}

#[derive(Serialize)]
struct ResponseOut<'a> {
    no: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// A response with its EOT.
pub fn encode_response(no: i64, outcome: Result<&RawValue, &str>) -> Bytes {
    encode(&(RESPONSE, ResponseOut { no, data: outcome.ok(), error: outcome.err() }))
}

/// A ping with its EOT.
pub fn encode_ping() -> Bytes {
    Bytes::from_static(b"[2]\x04")
}

/// A pong with its EOT.
pub fn encode_pong() -> Bytes {
    Bytes::from_static(b"[3]\x04")
}

fn encode(message: &impl Serialize) -> Bytes {
    let mut bytes = serde_json::to_vec(message).expect("strings, numbers and JSON text serialize");
    bytes.push(EOT);
    Bytes::from(bytes)
}

/// A value as the JSON text that messages carry.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("values of this crate have string keys and no failing parts")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the worker says to a message, in the words of the recordings: the error's text, or
    /// the message's kind.
    fn heard(text: &str) -> String {
        match decode(text.as_bytes()) {
            Ok(Message::Request(request)) => format!("request {} {}", request.no, request.kind),
            Ok(Message::Response(response)) => format!("response {}", response.no),
            Ok(Message::Ping) => "ping".to_owned(),
            Ok(Message::Pong) => "pong".to_owned(),
            Err(Malformed::Junk) => "junk".to_owned(),
            Err(Malformed::Answer(error)) => error,
        }
    }

    #[test]
    fn messages_are_told_by_their_type() {
        for (text, expected) in [
            ("[2]", "ping"),
            ("[2.0]", "ping"),
            ("[3]", "pong"),
            ("[2,{\"x\":1}]", "ping"),
            ("[2]\n", "ping"),
            ("[9]", "unexpected type 9"),
            ("[\"0\"]", "unexpected type 0"),
            ("[]", "unexpected type undefined"),
            ("{}", "JSON array expected, got: [object Object]"),
            ("5", "JSON array expected, got: 5"),
            ("null", "JSON array expected, got: null"),
            ("\"str\"", "JSON array expected, got: str"),
            ("not json", "junk"),
            ("", "junk"),
            ("[2", "junk"),
            ("[0,{\"no\":1,\"type\":\"poll\"}] x", "junk"),
        ] {
            assert_eq!(heard(text), expected, "{text}");
        }
    }

    #[test]
    fn a_malformed_request_is_told_what_is_wrong_with_it() {
        for (data, expected) in [
            ("null", "data is not an object"),
            ("7", "data is not an object"),
            ("[]", "missing required field type"),
            ("{}", "missing required field type"),
            (r#"{"type":"status"}"#, "missing required field no"),
            (r#"{"no":1}"#, "missing required field type"),
            (r#"{"no":"1","type":"poll"}"#, "'no' must be integer"),
            (r#"{"no":1.5,"type":"poll"}"#, "'no' must be integer"),
            (r#"{"no":1,"type":5}"#, "'type' must be string"),
            (
                r#"{"no":1,"type":"poll","data":true}"#,
                "'data' must be any of: string, number, object, array",
            ),
            (r#"{"no":1,"type":"poll","password":5}"#, "'password' must be string"),
        ] {
            let expected = format!("malformed REQUEST message: {expected}");
            assert_eq!(heard(&format!("[0,{data}]")), expected, "{data}");
        }
        assert_eq!(heard("[0]"), "malformed REQUEST message: data is not an object");
    }

    #[test]
    fn request_numbers_may_be_anything_whole() {
        assert_eq!(heard(r#"[0,{"no":0,"type":"poll"}]"#), "request 0 poll");
        assert_eq!(heard(r#"[0,{"no":-5,"type":"poll"}]"#), "request -5 poll");
        assert_eq!(heard(r#"[0,{"no":1.0,"type":"poll"}]"#), "request 1 poll");
        assert_eq!(heard(r#"[0,{"no":1,"type":"poll","data":null}]"#), "request 1 poll");
        assert_eq!(heard(r#"[0,{"no":1,"no":2,"type":"poll","data":[1]}]"#), "request 2 poll");
    }

    #[test]
    fn malformed_responses_are_told_apart_from_requests() {
        let malformed = "malformed RESPONSE message: ";
        assert_eq!(heard("[1,{}]"), format!("{malformed}missing required field no"));
        assert_eq!(heard("[1]"), format!("{malformed}data is not an object"));
        assert_eq!(
            heard(r#"[1,{"no":5,"error":7}]"#),
            format!("{malformed}'error' must be string")
        );
        assert_eq!(heard(r#"[1,{"no":5,"data":"ok"}]"#), "response 5");
    }

    #[test]
    fn a_response_keeps_its_data_as_it_was_written() {
        let text = r#"[1,{"no":5,"data":{"b":1.0,"a":[ 2 ]}}]"#;
        let Ok(Message::Response(response)) = decode(text.as_bytes()) else { panic!("{text}") };
        assert_eq!(response.outcome.unwrap().get(), r#"{"b":1.0,"a":[ 2 ]}"#);
        let Ok(Message::Response(response)) = decode(br#"[1,{"no":5}]"#) else { panic!() };
        assert_eq!(response.outcome.unwrap().get(), "null");
    }

    #[test]
    fn encoded_messages_have_the_originals_bytes() {
        let targets = raw(&serde_json::json!({"targets": ["t1"]}));
        assert_eq!(
            encode_request(647_806, "poll", Some(&targets), None),
            &b"[0,{\"no\":647806,\"type\":\"poll\",\"data\":{\"targets\":[\"t1\"]}}]\x04"[..]
        );
        assert_eq!(
            encode_request(2, "status", None, Some("sesame")),
            &b"[0,{\"no\":2,\"type\":\"status\",\"password\":\"sesame\"}]\x04"[..]
        );
        assert_eq!(encode_response(1, Ok(&raw(&"ok"))), &b"[1,{\"no\":1,\"data\":\"ok\"}]\x04"[..]);
        assert_eq!(
            encode_response(5, Err("invalid target 'nope'")),
            &b"[1,{\"no\":5,\"error\":\"invalid target 'nope'\"}]\x04"[..]
        );
    }

    #[test]
    fn an_eot_inside_a_text_is_escaped() {
        let bytes = encode_response(1, Ok(&raw(&"a\u{4}b")));
        assert_eq!(bytes.iter().filter(|&&byte| byte == EOT).count(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn what_is_nearly_a_message_is_answered_or_read(
            kind in prop_oneof![Just("0"), Just("1"), Just("2"), Just("{}"), Just("\"1\"")],
            data in r#"[\[\]{}",:a-z0-9 ]{0,40}"#,
        ) {
            let _ = decode(format!("[{kind},{data}]").as_bytes());
        }

        #[test]
        fn requests_come_back_as_they_were(
            no in any::<i64>(), kind in ".*", target in ".*", password in proptest::option::of(".*"),
        ) {
            let data = serde_json::json!({"targets": [target]});
            let bytes = encode_request(no, &kind, Some(&raw(&data)), password.as_deref());
            let Ok(Message::Request(request)) = decode(&bytes[..bytes.len() - 1]) else {
                return Err(TestCaseError::fail("not a request"));
            };
            prop_assert_eq!(request, Request { no, kind, data, password });
        }
    }
}
