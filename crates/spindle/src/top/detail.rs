//! One job in lines: what it is, why it is not running, its payload decoded, its attempts.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    client::{
        times::with_distance,
        view::{Job, text_of},
    },
    output::{escape, grouped},
};

/// Bytes of a line of a dump.
const DUMP_BYTES: usize = 16;

/// All that is said of a job, escaped.
pub fn lines(job: &Job, reasons: &[String]) -> Vec<String> {
    let now = spindle_client::now();
    let mut lines = vec![format!("job {} of queue {}", escape(&job.id_text()), job.queue_name())];
    let mut fact = |name: &str, text: String| lines.push(format!("{name:<10} {}", escape(&text)));
    fact("status", job.status.clone());
    fact("came", with_distance(&job.created_at, now));
    if let Some(run_at) = &job.run_at {
        fact("runs at", with_distance(run_at, now));
    }
    fact("tries", format!("{} of {} failed", job.fails, limit(job.fails_max)));
    fact("leases", format!("{} of {}", job.attempts, limit(job.attempts_max)));
    fact("priority", job.priority.to_string());
    for (field, name) in
        [("origin", "door"), ("uuid", "uuid"), ("tags", "tags"), ("unique", "unique")]
    {
        if let Some(value) = job.more.get(field) {
            fact(name, text_of(value));
        }
    }
    lines.push(String::new());
    lines.push(format!("why it is {}", escape(&job.status)));
    lines.extend(reasons.iter().map(|reason| format!("  {}", escape(reason))));
    lines.push(String::new());
    let bytes = grouped(job.payload_bytes);
    lines.push(format!("payload, {bytes} bytes of {}", escape(&job.payload_type)));
    lines.extend(payload(job).iter().map(|line| format!("  {line}")));
    attempts(job, now, &mut lines);
    lines
}

fn limit(count: Option<u32>) -> String {
    match count {
        Some(0) | None => "any number".to_owned(),
        Some(count) => grouped(count.into()),
    }
}

/// The payload, decoded as what it is, or its beginning if it is long.
fn payload(job: &Job) -> Vec<String> {
    let whole = job.payload_bytes().ok().flatten();
    let is_whole = whole.is_some();
    let Some(bytes) = whole.or_else(|| job.payload_beginning()) else {
        return vec!["(none)".to_owned()];
    };
    let decoded = match job.payload_type.as_str() {
        "json" => serde_json::from_slice::<Value>(&bytes).ok(),
        "msgpack" => spindle_msgpack::to_json(&bytes).ok(),
        // Many clients send JSON as bytes.
        _ => serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object),
    };
    let mut lines = match decoded.and_then(|value| serde_json::to_string_pretty(&value).ok()) {
        Some(text) => escaped_lines(&text),
        None => match str::from_utf8(&bytes) {
            Ok(text) => escaped_lines(text),
            Err(_) => dump(&bytes),
        },
    };
    if !is_whole {
        lines.push("... the rest is not read here: `spindle job` prints it".to_owned());
    }
    lines
}

fn escaped_lines(text: &str) -> Vec<String> {
    text.lines().map(escape).collect()
}

/// Bytes that are not text, as numbers and as letters, with a dot for each that is no letter.
fn dump(bytes: &[u8]) -> Vec<String> {
    let line = |bytes: &[u8]| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let letter = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        format!("{:<48} {}", hex.join(" "), bytes.iter().map(letter).collect::<String>())
    };
    bytes.chunks(DUMP_BYTES).map(line).collect()
}

/// The attempts, the newest first, and the last result.
fn attempts(job: &Job, now: Timestamp, lines: &mut Vec<String>) {
    if let Some(result) = &job.result {
        let said = [&result.code, &result.message, &result.error];
        let said: Vec<String> =
            said.iter().filter(|text| !text.is_empty()).map(|text| escape(text)).collect();
        let how = if result.success { "completed" } else { "failed" };
        lines.push(String::new());
        lines.push(format!("last end: {how} {}", said.join(", ")));
        let value = result.value.as_deref().map(|value| value.get().to_owned());
        let coded = result.base64.as_ref().and_then(|text| BASE64_STANDARD.decode(text).ok());
        let text = value.or_else(|| String::from_utf8(coded?).ok());
        lines.extend(text.iter().flat_map(|text| escaped_lines(text)));
    }
    let history = job.more.get("history").and_then(Value::as_array);
    let history = history.map(Vec::as_slice).unwrap_or_default();
    if !history.is_empty() {
        lines.push(String::new());
        lines.push("attempts, the newest first".to_owned());
    }
    for attempt in history.iter().rev() {
        let field = |name: &str| attempt.get(name).map(text_of).unwrap_or_default();
        let ended = with_distance(&field("ended_at"), now);
        let [outcome, door, worker, code, message] =
            ["outcome", "door", "worker", "code", "message"].map(field);
        let said = [outcome, door, worker, code, message, ended];
        let said: Vec<String> = said.into_iter().filter(|text| !text.is_empty()).collect();
        lines.push(format!("  {}", escape(&said.join(", "))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(fields: &str) -> String {
        let job = format!(
            r#"{{"id":7,"queue":"q","status":"dead","priority":0,"created_at":"x","attempts":1,
                "fails":1,"payload_bytes":4,{fields}}}"#
        );
        lines(&serde_json::from_str(&job).unwrap(), &["it is\u{202e} dead".to_owned()]).join("\n")
    }

    #[test]
    fn payloads_are_decoded_as_what_they_are() {
        let json = shown(r#""payload_type":"json","payload":{"to":"a\u001b[2J"}"#);
        assert!(json.contains(r#""to": "a\u001b[2J""#), "{json}");
        let packed = shown(r#""payload_type":"msgpack","payload_base64":"gaJ0b6Fh""#);
        assert!(packed.contains(r#""to": "a""#), "{packed}");
        let text = shown(r#""payload_type":"bytes","payload_base64":"YRtbMkoKYg==""#);
        assert!(text.contains("  a\\u{1b}[2J\n  b"), "{text}");
        let bytes = shown(r#""payload_type":"bytes","payload_base64":"/wBh""#);
        assert!(bytes.contains("  ff 00 61") && bytes.ends_with("..a"), "{bytes}");
        let long = shown(r#""payload_type":"bytes","payload_preview":"begins""#);
        assert!(long.contains("  begins\n  ... the rest"), "{long}");
    }

    #[test]
    fn nothing_that_a_job_says_steers_a_terminal() {
        let hostile = r#""payload_type":"\u001b]0;x\u0007","tags":["\u202e"],
            "history":[{"outcome":"failed","worker":"\u001b[31m","message":"\u2066\n"}],
            "result":{"success":false,"type":"bytes","bytes":1,"base64":"Gw==","message":"\u001b"}"#;
        let shown = shown(hostile);
        let steers = |letter: char| letter != '\n' && !crate::output::is_shown(letter);
        assert!(!shown.contains(steers), "{shown:?}");
        assert!(shown.contains("why it is dead\n  it is\\u{202e} dead"), "{shown}");
    }
}
