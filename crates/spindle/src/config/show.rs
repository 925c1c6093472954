//! Shows settings: what is in force, and the reference of all there are.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{
    parse::parse_switch,
    resolve::{InForce, Resolved, Source},
    table::{Shape, TABLE},
};
use crate::output::{Rows, write_line};

/// Prints a line for each setting: name, value, and where it came from.
pub fn print_table(resolved: &Resolved, out: &mut impl Write) -> io::Result<()> {
    let mut rows = Rows::new(&["setting", "value", "from"]);
    for found in &resolved.settings {
        rows.add([found.setting.name.to_owned(), found.values.join(","), origin(found)]);
    }
    rows.print(out)
}

fn origin(found: &InForce) -> String {
    match found.source {
        Source::Default => Source::Default.to_string(),
        _ => format!("{} ({})", found.source, found.source_name),
    }
}

/// Prints an object for each setting, one in a line.
pub fn print_json(resolved: &Resolved, out: &mut impl Write) -> io::Result<()> {
    for found in &resolved.settings {
        let value = match found.setting.shape {
            Shape::Many => json!(found.values),
            Shape::Switch => {
                json!(found.values.iter().any(|value| parse_switch(value) == Ok(true)))
            }
            Shape::One => found.values.first().map_or(Value::Null, |value| json!(value)),
        };
        let from = Some(&found.source_name).filter(|name| !name.is_empty());
        let line = json!({
            "name": found.setting.name,
            "value": value,
            "source": found.source.to_string(),
            "from": from,
        });
        write_line(out, &line)?;
    }
    Ok(())
}

/// Prints the page of all settings.
pub fn print_reference(out: &mut impl Write) -> io::Result<()> {
    out.write_all(REFERENCE_HEAD.as_bytes())?;
    for setting in TABLE {
        let flag = match setting.shape {
            Shape::Switch => format!("--{}", setting.name),
            Shape::One | Shape::Many => format!("--{} {}", setting.name, setting.value),
        };
        let key = match (setting.in_file, setting.shape) {
            (false, _) => "none".to_owned(),
            (true, Shape::Switch) => format!("`{} = true`", setting.name),
            (true, Shape::Many) => format!("`{} = [\"...\"]`", setting.name),
            (true, Shape::One) => format!("`{} = \"{}\"`", setting.name, setting.default),
        };
        let default = match setting.default {
            "" => "none".to_owned(),
            default => format!("`{default}`"),
        };
        writeln!(out, "\n### {}\n\n{}\n", setting.name, wrapped(setting.help))?;
        writeln!(out, "- flag: `{flag}`")?;
        writeln!(out, "- environment: `{}`", setting.environment_name())?;
        writeln!(out, "- file: {key}")?;
        writeln!(out, "- default: {default}")?;
    }
    Ok(())
}

/// A paragraph of the page, in lines of at most 118 characters.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        width += 1 + word.len();
        if width > 119 {
            lines.push('\n');
            width = 1 + word.len();
        } else if !lines.is_empty() {
            lines.push(' ');
        }
        lines += word;
    }
    lines
}

const REFERENCE_HEAD: &str = "\
# Configuration

<!-- Printed by `spindle config --reference`; a test fails when this page is stale. -->

`spindle serve` needs no configuration. It takes each setting from the first of these sources that
has it:

1. flags: `spindle serve --sync os`
2. the environment: `SPINDLE_SERVE_SYNC=os` (an empty value counts as not set)
3. a TOML file that `--config FILE` or `SPINDLE_SERVE_CONFIG` names: `sync = \"os\"`
4. the defaults below

Lists from several sources are not joined. `spindle config` takes the same flags, reads the same
environment and file, and prints the values in force and where each comes from (`--json`: one object
per line with `name`, `value`, `source` and `from`). An unknown setting or an invalid value stops
the start with exit code 2 and a message that names it; an unknown `SPINDLE_SERVE_` name in the
environment only causes a warning.

The commands that talk to a server (`add`, `work`, `jobs`, ...) use none of these settings. Their
own ones say where the server is:

| flag | environment | default |
|---|---|---|
| `--url URL` | `SPINDLE_URL` | `http://127.0.0.1:7420` |
| `--ca-file FILE`, the authorities for https | `SPINDLE_CA_FILE` | the public authorities |
| `--cert FILE`, a certificate to show to the server | `SPINDLE_CERT` | none |
| `--key FILE`, its private key | `SPINDLE_KEY` | none |
| `--workq ADDR`, to use the Workq door instead | `SPINDLE_WORKQ` | none |
| `--tls`, to encrypt the connection to it | `SPINDLE_TLS=true` | plain |
| `--token-file FILE`, a file with the token to show | `SPINDLE_TOKEN_FILE`, or the token in `SPINDLE_TOKEN` | none |

[The page of commands](commands.md#where-the-server-is) describes them. `SPINDLE_WEBHOOK_SECRET` is
the only name without `SERVE` that the server reads, see
[webhook-secret-file](#webhook-secret-file).

## Settings
";

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::config::{SettingFlags, resolve};

    #[test]
    fn every_switch_is_shown_as_it_is() {
        let environment = [("SPINDLE_SERVE_LIGHTJQ_ALLOW_URLS".into(), "yes".into())];
        let resolved = resolve(&SettingFlags::default(), environment).unwrap();
        let mut lines = Vec::new();
        print_json(&resolved, &mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let line = |name: &str| {
            let values = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            values.into_iter().find(|line| line["name"] == name).unwrap()["value"].clone()
        };
        assert_eq!((line("lightjq-allow-urls"), line("memory")), (json!(true), json!(false)));
    }

    #[test]
    fn the_committed_page_is_the_one_the_table_makes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let mut page = Vec::new();
        print_reference(&mut page).unwrap();
        let committed = fs::read(&path).unwrap_or_default();
        assert!(
            committed == page,
            "docs/configuration.md is stale: \
             `cargo run -- config --reference > docs/configuration.md`"
        );
    }
}
