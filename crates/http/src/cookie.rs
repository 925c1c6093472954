//! Cookies that requests bring.

use axum::http::{HeaderMap, header};

/// The cookie of the colours that somebody chose for the pages: `auto`, `light` or `dark`.
pub const THEME_COOKIE: &str = "spindle_theme";

/// The value of the first cookie of that name.
pub fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie_of(&headers, "spindle_session"), None);
        let lines = ["a=1; xspindle_session=2", "spindle_session=3 ;spindle_session=4"];
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_static(line));
        }
        assert_eq!(cookie_of(&headers, "spindle_session"), Some("3"));
        assert_eq!(cookie_of(&headers, "a"), Some("1"));
    }
}
