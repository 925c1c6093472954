//! Cookies: read from a request, set by an answer.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};

/// The session, of who has logged in.
pub(crate) const SESSION: &str = "spindle_session";
/// What forms are sealed with, of who has no session.
pub(crate) const VISIT: &str = "spindle_visit";
/// Which columns lists of jobs have.
pub(crate) const COLUMNS: &str = "spindle_columns";
/// Light or dark.
pub(crate) const THEME: &str = "spindle_theme";

/// How long a choice of colours or columns is remembered.
pub(crate) const CHOICE_TIME: Duration = Duration::from_hours(24 * 365);

/// The first cookie of that name.
pub(crate) fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// Sets a cookie that scripts cannot read and that no other site's page sends along. `value` is of
/// our own making. Without a time it goes with the browser; over TLS it is sent over TLS only.
pub(crate) fn set(
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
    time: Option<Duration>,
    encrypted: bool,
) {
    let age = time.map(|time| format!("; Max-Age={}", time.as_secs())).unwrap_or_default();
    let secure = if encrypted { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{age}{secure}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        headers.append(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(find(&headers, SESSION), None);
        let lines = ["a=1; xspindle_session=2", "spindle_session=3 ;spindle_session=4"];
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_static(line));
        }
        assert_eq!(find(&headers, SESSION), Some("3"));
        assert_eq!(find(&headers, "a"), Some("1"));
    }

    #[test]
    fn cookies_are_for_this_site_only() {
        let mut headers = HeaderMap::new();
        set(&mut headers, "a", "1", Some(Duration::from_secs(9)), true);
        assert_eq!(
            headers[header::SET_COOKIE],
            "a=1; Path=/; HttpOnly; SameSite=Strict; Max-Age=9; Secure"
        );
    }
}
