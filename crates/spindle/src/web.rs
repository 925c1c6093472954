//! The web pages of a running server.

use spindle_access::Access;
use spindle_web::{Options, SettingLine};

use crate::config::{InForce, Resolved, Source};

/// Values with these names in the help may be secret: an address with a password or a token.
const HIDDEN: [&str; 2] = ["URL", "HOOK"];

/// The pages' settings, with those of the server as they show them.
pub fn options(resolved: &Resolved, access: Access, host: String) -> Options {
    let has_tokens = resolved.config.tokens.is_some();
    let settings = resolved.settings.iter().map(line).collect();
    Options { access, has_tokens, host, settings, ..Options::default() }
}

fn line(found: &InForce) -> SettingLine {
    let InForce { setting, values, source, source_name } = found;
    let is_hidden = HIDDEN.contains(&setting.value) && !values.is_empty();
    let value = match is_hidden {
        true if values.iter().any(|value| !value.is_empty()) => "set; not shown".to_owned(),
        _ => values.join(","),
    };
    let from = match source {
        Source::Default => String::new(),
        _ => format!("{source} ({source_name})"),
    };
    SettingLine { name: setting.name, value, from }
}
