//! What goes wrong with a request: problems of the API, answers of another server, TLS.

use std::io::ErrorKind;

use serde::Deserialize;
use spindle_client::{
    BaseUrl, NotHttp, SendError,
    http::{HeaderMap, StatusCode, header},
};

use crate::client::{
    server::untrusted,
    session::{AskError, Lost},
};

/// How much is shown of an answer that no Spindle gave, in letters.
const SHOWN_LETTERS: usize = 80;

/// An error's body, RFC 9457.
#[derive(Deserialize)]
struct Problem {
    code: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    /// Why a lease is lost.
    reason: Option<String>,
}

/// An answer that is no success.
pub fn refusal(status: StatusCode, headers: &HeaderMap, bytes: &[u8], base: &BaseUrl) -> AskError {
    let Ok(problem) = serde_json::from_slice(bytes) else {
        return foreign(status, headers, bytes, base);
    };
    let Problem { code, title, detail, reason } = problem;
    let text = if detail.is_empty() { title } else { detail };
    match (status.as_u16(), code.as_str()) {
        (404, "not_found") => AskError::Unusable(format!(
            "the server at {base} has nothing at such a path{}",
            match base.prefix() {
                "" => String::new(),
                prefix => format!(": is `{prefix}` right, and does the proxy take it away?"),
            }
        )),
        (_, "lease_not_live") => AskError::LeaseLost(Lost::of(reason.as_deref())),
        (_, "lease_gone") => AskError::LeaseLost(Lost::Deleted),
        // The job that is missing is one to wait for, not the one that is asked about.
        (404, "after_not_found") => AskError::Refused { text, code: Some(code) },
        (404 | 410, _) => AskError::NotFound,
        (408, _) => AskError::TimedOut,
        (429, "queue_full") => AskError::Refused { text, code: Some(code) },
        (429 | 500.., _) => AskError::Failed(text),
        _ => AskError::Refused { text, code: Some(code) },
    }
}

/// An answer that no Spindle gives: that of a proxy, or of another server.
fn foreign(status: StatusCode, headers: &HeaderMap, bytes: &[u8], base: &BaseUrl) -> AskError {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if status.is_server_error() {
        return AskError::Away(format!(
            "{base} answered {status}, as a proxy does without a server"
        ));
    }
    if let Some(place) = header(header::LOCATION).filter(|_| status.is_redirection()) {
        return AskError::Unusable(format!(
            "{base} sends us on to {}: name the server by the URL it is reached at in the end",
            shown(place.as_bytes())
        ));
    }
    let message = shown(bytes).to_ascii_lowercase();
    if status == StatusCode::BAD_REQUEST && !base.is_https() && message.contains("https") {
        return AskError::Unusable(speaks_tls(base));
    }
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        let whose = "this is no refusal of Spindle, but of something in front of it";
        let message = format!("{base} answered {status}: {whose}");
        return AskError::Unusable(message);
    }
    let kind = header(header::CONTENT_TYPE).unwrap_or("no type");
    AskError::Strange(format!(
        "it answered {status} ({}): {}",
        shown(kind.as_bytes()),
        shown(bytes)
    ))
}

/// An answer that should be JSON and is not, or not that of this request.
pub fn no_json(error: &serde_json::Error, bytes: &[u8]) -> AskError {
    AskError::Strange(format!("its answer will not do ({error}): {}", shown(bytes)))
}

/// A request without an answer.
pub fn of(error: SendError, base: &BaseUrl) -> AskError {
    match error {
        SendError::Connect(error) | SendError::Lost(error) => AskError::Io(error),
        SendError::Silent(_) => AskError::Io(ErrorKind::TimedOut.into()),
        SendError::Tls(error) => of_tls(&error, base),
        SendError::NotHttp(NotHttp::Tls) => AskError::Unusable(speaks_tls(base)),
        SendError::NotHttp(NotHttp::Other(bytes)) => {
            AskError::Strange(format!("it does not speak HTTP: {}", shown(&bytes)))
        }
        SendError::NotHttp(NotHttp::Broken(_)) | SendError::TooLong(_) => {
            AskError::Strange(error.to_string())
        }
        SendError::Unwritable(reason) => AskError::refused(reason),
    }
}

fn of_tls(error: &rustls::Error, base: &BaseUrl) -> AskError {
    AskError::Unusable(match error {
        rustls::Error::InvalidMessage(_) => {
            format!("{base} does not speak TLS: write {}", base.with_other_scheme())
        }
        rustls::Error::InvalidCertificate(error) => untrusted(base, error),
        _ => format!("cannot speak TLS with {base}: {error}"),
    })
}

fn speaks_tls(base: &BaseUrl) -> String {
    format!("{base} speaks TLS: write {}", base.with_other_scheme())
}

/// The beginning of a text, in one line.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    line.chars().filter(|letter| !letter.is_control()).take(SHOWN_LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &[u8]) -> AskError {
        refused_with(status, &HeaderMap::new(), body)
    }

    fn refused_with(status: u16, headers: &HeaderMap, body: &[u8]) -> AskError {
        let base = BaseUrl::parse("http://127.0.0.1:7420/jobs").unwrap();
        refusal(StatusCode::from_u16(status).unwrap(), headers, body, &base)
    }

    #[test]
    fn a_problem_is_told_in_the_servers_words() {
        let body = br#"{"type":"urn:x","title":"T","status":409,"code":"job_leased","detail":"D"}"#;
        let AskError::Refused { text, code } = refused(409, body) else { panic!() };
        assert_eq!((text.as_str(), code.as_deref()), ("D", Some("job_leased")));
        let busy = br#"{"code":"busy","title":"Too much"}"#;
        assert!(matches!(refused(503, busy), AskError::Failed(text) if text == "Too much"));
        assert!(matches!(refused(404, br#"{"code":"job_not_found"}"#), AskError::NotFound));
    }

    #[test]
    fn a_lost_lease_says_why() {
        for (body, lost) in [
            (&br#"{"code":"lease_not_live","reason":"cancelled"}"#[..], Lost::Cancelled),
            (br#"{"code":"lease_not_live","reason":"finished"}"#, Lost::Finished),
            (br#"{"code":"lease_not_live","reason":"timeout"}"#, Lost::TimedOut),
            (br#"{"code":"lease_not_live","reason":"leased_again"}"#, Lost::LeasedAgain),
            (br#"{"code":"lease_not_live","reason":"of another kind"}"#, Lost::Unknown),
            (br#"{"code":"lease_not_live"}"#, Lost::Unknown),
        ] {
            assert!(matches!(refused(409, body), AskError::LeaseLost(it) if it == lost));
        }
        let gone = refused(410, br#"{"code":"lease_gone"}"#);
        assert!(matches!(gone, AskError::LeaseLost(Lost::Deleted)));
    }

    #[track_caller]
    fn unusable(error: AskError, part: &str) {
        let AskError::Unusable(message) = error else { panic!("{error:?}") };
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    }

    #[test]
    fn other_servers_are_known_by_their_answers() {
        let html = b"<html>\n<body>Not Found</body>";
        assert!(matches!(refused(404, html), AskError::Strange(text)
            if text == "it answered 404 Not Found (no type): <html> <body>Not Found</body>"));
        assert!(matches!(refused(502, html), AskError::Away(text) if text.contains("502 Bad")));
        unusable(refused(404, br#"{"code":"not_found"}"#), "is `/jobs` right");
        unusable(refused(401, html), "something in front of it");
        let message = b"Client sent an HTTP request to an HTTPS server.";
        unusable(refused(400, message), "write https://127.0.0.1:7420/jobs");
        let mut moved = HeaderMap::new();
        moved.insert(header::LOCATION, "https://jobs.example/".parse().unwrap());
        unusable(refused_with(301, &moved, html), "sends us on to https://jobs.example/");
    }
}
