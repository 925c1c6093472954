//! The style sheet, the script and the picture: in the binary, named by what is in them.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use spindle_http::{Code, Problem};

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// What is served below `/assets/`. A name that changes with the content may be kept for ever.
pub(crate) struct Assets {
    pub style: Asset,
    pub script: Asset,
    pub icon: Asset,
}

/// One file.
pub(crate) struct Asset {
    name: String,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(stem: &str, ending: &str, kind: &'static str, text: &'static str) -> Asset {
        let digest = Sha256::digest(text.as_bytes());
        let hash: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Asset { name: format!("{stem}-{hash}.{ending}"), kind, text }
    }

    /// Its address.
    pub fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

impl Assets {
    pub fn new() -> Assets {
        Assets {
            style: Asset::new("style", "css", "text/css; charset=utf-8", STYLE),
            script: Asset::new("live", "js", "text/javascript; charset=utf-8", SCRIPT),
            icon: Asset::new("icon", "svg", "image/svg+xml", ICON),
        }
    }

    /// The file of that name.
    pub fn answer(&self, name: &str) -> Result<Response, Problem> {
        let mut all = [&self.style, &self.script, &self.icon].into_iter();
        let Some(asset) = all.find(|asset| asset.name == name) else {
            return Err(Problem::new(Code::NotFound, "there is no such file"));
        };
        let mut response = asset.text.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
        let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(header::CACHE_CONTROL, kept);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_small_and_nothing_is_loaded_from_elsewhere() {
        assert!(SCRIPT.len() <= 30_000, "{}", SCRIPT.len());
        for text in [STYLE, SCRIPT] {
            for foreign in ["http:", "https:", "@import", "//cdn", "eval(", "innerHTML ="] {
                assert!(!text.contains(foreign), "{foreign}");
            }
        }
    }
}
