//! Reads the configuration file.

use std::{collections::BTreeMap, fs, path::Path};

use toml::{Table, Value};

use super::{
    error::ConfigError,
    table::{Setting, Shape, TABLE},
};

/// The values of a file, by the setting's name.
pub fn read_file(path: &Path) -> Result<BTreeMap<&'static str, Vec<String>>, ConfigError> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: shown.clone(), source })?;
    parse_file(&text, &shown)
}

fn parse_file(text: &str, path: &str) -> Result<BTreeMap<&'static str, Vec<String>>, ConfigError> {
    let table: Table = text.parse().map_err(|source| ConfigError::NotToml {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let Some(setting) = Setting::named(&key).filter(|setting| setting.in_file) else {
            return Err(ConfigError::UnknownKey {
                path: path.to_owned(),
                hint: nearest(&key).map_or_else(String::new, |name| format!(", maybe `{name}`?")),
                key,
            });
        };
        let Some(texts) = texts(setting.shape, value) else {
            let expected = match setting.shape {
                Shape::One => "a text or a number",
                Shape::Switch => "true or false",
                Shape::Many => "a list of texts",
            };
            return Err(ConfigError::WrongType { path: path.to_owned(), key, expected });
        };
        values.insert(setting.name, texts);
    }
    Ok(values)
}

fn texts(shape: Shape, value: Value) -> Option<Vec<String>> {
    match (shape, value) {
        (Shape::One, Value::Integer(number)) => Some(vec![number.to_string()]),
        (Shape::One | Shape::Many, Value::String(text)) => Some(vec![text]),
        (Shape::Switch, Value::Boolean(switch)) => Some(vec![switch.to_string()]),
        (Shape::Many, Value::Array(items)) => {
            items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

/// The key that somebody who wrote `key` most likely meant.
fn nearest(key: &str) -> Option<&'static str> {
    let spelled = key.replace('_', "-").to_lowercase();
    let names = TABLE.iter().filter(|setting| setting.in_file).map(|setting| setting.name);
    names
        .map(|name| (edits(&spelled, name), name))
        .min()
        .filter(|(edits, name)| *edits * 2 <= name.len())
        .map(|(_, name)| name)
}

/// How many letters must be put in, taken out or changed to make one word of the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(&to) {
            let changed = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = changed.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_texts_numbers_switches_and_lists() {
        let text = "sync = 'os'\nconnections-max = 7\nmemory = true\ninsecure = ['workq']\n";
        let values = parse_file(text, "x.toml").unwrap();
        let one = |name: &str| values[name].join("|");
        assert_eq!(one("sync"), "os");
        assert_eq!(one("connections-max"), "7");
        assert_eq!(one("memory"), "true");
        assert_eq!(one("insecure"), "workq");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_key() {
        for (text, part) in [
            ("sink = 'os'", "`sink`, maybe `sync`?"),
            ("payload_memory = 1", "maybe `payload-memory`?"),
            ("config = 'x'", "`config`"),
            ("zzzzzz = 1", "`zzzzzz`"),
            ("memory = 'true'", "`memory` must be true or false"),
            ("sync = ['os']", "`sync` must be a text or a number"),
            ("insecure = [1]", "`insecure` must be a list of texts"),
            ("sync = ", "x.toml is not TOML"),
        ] {
            let message = parse_file(text, "x.toml").unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("sync", "sync"), 0);
        assert_eq!(edits("sink", "sync"), 2);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("data", "date"), 1);
    }
}
