//! Cookies that answers set, and the names of those that requests bring back.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};

/// The session of a visitor who has logged in.
pub(crate) const SESSION: &str = "spindle_session";
/// The nonce that seals the forms of a visitor without a session.
pub(crate) const VISIT: &str = "spindle_visit";
/// The columns chosen for lists of jobs.
pub(crate) const COLUMNS: &str = "spindle_columns";

/// How long a choice of colours or columns is remembered.
pub(crate) const CHOICE_TIME: Duration = Duration::from_hours(24 * 365);

/// Sets a cookie that scripts cannot read and that no other site's page sends along. `value` is
/// made by this server. Without a time the cookie ends with the browser; one set over TLS is sent
/// over TLS only.
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
    fn cookies_are_for_this_site_only() {
        let mut headers = HeaderMap::new();
        set(&mut headers, "a", "1", Some(Duration::from_secs(9)), true);
        assert_eq!(
            headers[header::SET_COOKIE],
            "a=1; Path=/; HttpOnly; SameSite=Strict; Max-Age=9; Secure"
        );
    }
}
