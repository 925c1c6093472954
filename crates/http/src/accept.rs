//! Which types a client accepts: the Accept header (RFC 9110, 12.5.1).

use axum::http::{HeaderMap, header};

/// How much a client wants a type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Preference {
    /// In thousandths; 0 is not at all.
    pub weight: u32,
    /// The type itself was named, not only a range such as `*/*`.
    pub named: bool,
}

/// The Accept header as one text. None if there is none, or nothing in it: everything is taken.
pub fn accept_of(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let text = lines.collect::<Vec<_>>().join(",");
    (!text.trim().is_empty()).then_some(text)
}

/// How much an Accept header wants a type that goes by these names, `type/subtype`. The most
/// precise range that matches decides, and of equal ones the largest weight. A range for another
/// `version` than this does not match.
pub fn preference(accept: &str, names: &[&str], version: Option<&str>) -> Preference {
    let mut found = (0, 0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let mut precision = precision(essence, names);
        let mut weight = 1000;
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if name.trim_end().eq_ignore_ascii_case("q") {
                weight = thousandths(value);
            } else if name.trim_end().eq_ignore_ascii_case("version") {
                precision = if version == Some(value) { precision + 1 } else { 0 };
            }
        }
        if precision > 0 {
            found = found.max((precision, weight));
        }
    }
    let (precision, weight) = found;
    Preference { weight, named: precision >= NAMED }
}

const NAMED: u32 = 5;

fn precision(essence: &str, names: &[&str]) -> u32 {
    let family = |name: &&str| {
        let kind = name.split('/').next().unwrap_or_default();
        essence.strip_suffix("/*").is_some_and(|wanted| wanted.eq_ignore_ascii_case(kind))
    };
    if names.iter().any(|name| essence.eq_ignore_ascii_case(name)) {
        NAMED
    } else if names.iter().any(family) {
        3
    } else if essence == "*/*" {
        1
    } else {
        0
    }
}

/// `0.8` is 800. None if the text is no weight.
fn thousandths(text: &str) -> u32 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse::<u32>()) {
        ("0" | "", Ok(part)) => part,
        ("1", Ok(_)) => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_precise_range_decides() {
        let json = |accept: &str| preference(accept, &["application/json"], None).weight;
        for (accept, weight) in [
            ("application/json", 1000),
            ("Application/JSON ; Q=0.5", 500),
            ("*/*", 1000),
            ("application/*;q=0.25", 250),
            ("text/html", 0),
            ("json", 0),
            ("", 0),
            ("*/*, application/json;q=0", 0),
            ("application/json;q=0, */*", 0),
            ("application/*;q=0.1, application/json;q=0.7, */*;q=0.9", 700),
            ("application/json;q=0.1, application/json;q=0.7", 700),
            ("application/json;charset=utf-8;q=0.3", 300),
            ("application/json;q=1.0", 1000),
            ("application/json;q=0.0", 0),
            ("application/json;q=x", 0),
            ("application/json;version=2", 0),
        ] {
            assert_eq!(json(accept), weight, "{accept}");
        }
        assert!(!preference("*/*", &["text/plain"], None).named);
        assert!(preference("text/plain;q=0.1", &["text/plain"], None).named);
    }

    #[test]
    fn a_version_must_be_the_one() {
        let text = |accept: &str| preference(accept, &["text/plain"], Some("0.0.4")).weight;
        assert_eq!(text("text/plain;version=0.0.4;q=0.3, text/plain;version=1.0.0;q=0.4"), 300);
        assert_eq!(text("text/plain;version=\"0.0.4\", text/plain;q=0.1"), 1000);
        assert_eq!(text("text/plain;q=0.6"), 600);
        assert_eq!(text("text/plain;version=1.0.0"), 0);
    }

    #[test]
    fn several_headers_are_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(accept_of(&headers), None);
        headers.append(header::ACCEPT, "text/html".parse().unwrap());
        headers.append(header::ACCEPT, "text/plain".parse().unwrap());
        assert_eq!(accept_of(&headers).as_deref(), Some("text/html,text/plain"));
        headers.clear();
        headers.append(header::ACCEPT, " ".parse().unwrap());
        assert_eq!(accept_of(&headers), None);
    }
}
