//! Ini files as the original reads them: sections, `key = value`, comments after `;` or `#` at the
//! beginning of a line. A value may stand in quotes; nothing in it is escaped.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::exposed::Exposed;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}; name another file with --config", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// An option is there and its value is no good.
    #[error("{place}: {key} = {value:?}: expected {wanted}")]
    Wrong {
        /// File and line.
        place: String,
        /// The option.
        key: String,
        /// What it says; `...` for secrets.
        value: String,
        /// What it should say.
        wanted: String,
    },
    /// A required option is missing, or options do not go together.
    #[error("{}: {problem}", .path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    section: String,
    key: String,
    value: String,
    /// 0 for one from the command line.
    line: usize,
}

/// A file that was read, and overrides from the command line.
#[derive(Debug)]
pub struct Ini {
    path: PathBuf,
    entries: Vec<Entry>,
    /// Whether all users may read a secret in the file.
    exposed: Option<Exposed>,
    /// Keys that the program has asked for, to find those in the file that it does not know.
    known: RefCell<BTreeSet<String>>,
}

impl Ini {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`], or a line that means nothing.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |cause| ConfigError::Unreadable { path: path.to_owned(), cause };
        // One open file, so that what is judged is what is read.
        let mut file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let mut ini = Self::parse(path, &String::from_utf8_lossy(&bytes))?;
        ini.exposed = ini.secret().and_then(|key| Exposed::of(path, key, &metadata));
        Ok(ini)
    }

    /// Reads a text as if it stood in this file.
    ///
    /// # Errors
    /// A line that means nothing.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut ini = Self {
            path: path.to_owned(),
            entries: Vec::new(),
            exposed: None,
            known: RefCell::default(),
        };
        let mut section = String::new();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.strip_suffix(']').ok_or_else(|| {
                    let (key, wanted) = ("section".to_owned(), "a name in [brackets]".to_owned());
                    ConfigError::Wrong {
                        place: ini.place(index + 1),
                        key,
                        value: line.to_owned(),
                        wanted,
                    }
                })?;
                name.trim().clone_into(&mut section);
                continue;
            }
            ini.set(&section, line, index + 1);
        }
        Ok(ini)
    }

    /// Sets an option over what the file says: `key=value`, or `targets.NAME=value`.
    pub fn set_option(&mut self, assignment: &str) {
        match assignment.strip_prefix("targets.") {
            Some(assignment) => self.set("targets", assignment, 0),
            None => self.set("", assignment, 0),
        }
    }

    /// A key alone means `true`, as in the original.
    fn set(&mut self, section: &str, assignment: &str, line: usize) {
        let (key, value) = assignment.split_once('=').unwrap_or((assignment, "true"));
        let entry = Entry {
            section: section.to_owned(),
            key: unquoted(key.trim()).to_owned(),
            value: unquoted(value.trim()).to_owned(),
            line,
        };
        // The last one wins, in the place of the first.
        match self.entries.iter_mut().find(|e| e.section == entry.section && e.key == entry.key) {
            Some(earlier) => *earlier = entry,
            None => self.entries.push(entry),
        }
    }

    fn place(&self, line: usize) -> String {
        match line {
            0 => "command line".to_owned(),
            line => format!("{}:{line}", self.path.display()),
        }
    }

    fn entry(&self, section: &str, key: &str) -> Option<&Entry> {
        self.known.borrow_mut().insert(key.to_owned());
        self.entries.iter().find(|entry| entry.section == section && entry.key == key)
    }

    /// An option's text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.entry("", key).map(|entry| entry.value.as_str())
    }

    /// A required option's text, or an error with this hint.
    pub(super) fn required(&self, key: &str, hint: &str) -> Result<&str, ConfigError> {
        self.text(key).ok_or_else(|| self.unusable(format!("{key} is missing; {hint}")))
    }

    /// An option that is yes or no; no when it is missing.
    pub(super) fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        match self.text(key) {
            Some("1" | "true") => Ok(true),
            None | Some("0" | "false" | "") => Ok(false),
            Some(_) => Err(self.wrong(key, "1 or true, 0 or false")),
        }
    }

    /// An option that is a whole number within bounds.
    pub(super) fn number<T>(&self, key: &str, least: T, most: T) -> Result<Option<T>, ConfigError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse::<T>() {
            Ok(number) if number >= least && number <= most => Ok(Some(number)),
            _ => Err(self.wrong(key, &format!("a whole number from {least} to {most}"))),
        }
    }

    /// The error for an option whose value is no good.
    pub(super) fn wrong(&self, key: &str, wanted: &str) -> ConfigError {
        self.wrong_in("", key, wanted)
    }

    /// The error for an option of a section whose value is no good.
    pub(super) fn wrong_in(&self, section: &str, key: &str, wanted: &str) -> ConfigError {
        let entry = self.entry(section, key);
        ConfigError::Wrong {
            place: self.place(entry.map_or(0, |entry| entry.line)),
            key: key.to_owned(),
            value: match entry {
                Some(entry) if !may_be_secret(key, &entry.value) => entry.value.clone(),
                _ => "...".to_owned(),
            },
            wanted: wanted.to_owned(),
        }
    }

    /// The error for options that do not go together.
    pub(super) fn unusable(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::Unusable { path: self.path.clone(), problem: problem.into() }
    }

    /// All options of a section, in the file's order.
    pub(super) fn section(&self, section: &str) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .filter(move |entry| entry.section == section)
            .map(|entry| (entry.key.as_str(), entry.value.as_str()))
    }

    /// Whether any option outside of sections begins with this.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.section("").any(|(key, _)| key.starts_with(prefix))
    }

    /// An option that has a secret.
    fn secret(&self) -> Option<&str> {
        let mut options = self.section("");
        let found = options.find(|(key, value)| !value.is_empty() && may_be_secret(key, value));
        found.map(|(key, _)| key)
    }

    /// That all users of the machine may read a secret in the file, if it is so, and what to do.
    pub fn exposed(&self) -> Option<String> {
        self.exposed.as_ref().map(Exposed::to_string)
    }

    /// The options outside of sections that were asked for so far, whether they are there or not.
    pub fn known(&self) -> Vec<String> {
        self.known.borrow().iter().cloned().collect()
    }

    /// The places of options that were never asked for: misspelt, most likely.
    pub fn unknown(&self, sections: &[&str], prefixes: &[&str]) -> Vec<String> {
        let known = self.known.borrow();
        let is_unknown = |entry: &&Entry| {
            let is_free = sections.contains(&entry.section.as_str())
                || prefixes.iter().any(|prefix| entry.key.starts_with(prefix));
            !is_free && (!entry.section.is_empty() || !known.contains(&entry.key))
        };
        let describe = |entry: &Entry| format!("{}: {}", self.place(entry.line), entry.key);
        self.entries.iter().filter(is_unknown).map(describe).collect()
    }
}

/// Whether a value may hold a secret, which must not be logged. Names of variables may be in capitals.
fn may_be_secret(key: &str, value: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_url_with_more = key.ends_with("_url") && value.contains(['@', '?']);
    key.contains("password") || key.contains("token") || is_url_with_more
}

fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use tempfile::NamedTempFile;

    use super::*;

    fn ini(text: &str) -> Ini {
        Ini::parse(Path::new("x.conf"), text).unwrap()
    }

    #[test]
    fn values_stay_as_they_are_written() {
        let ini = ini("; a\n# b\npassword = a#b;c\\d\n quoted = \" x = y \" \nempty=\nalone\n");
        assert_eq!(ini.text("password"), Some("a#b;c\\d"));
        assert_eq!(ini.text("quoted"), Some(" x = y "));
        assert_eq!(ini.text("empty"), Some(""));
        assert_eq!(ini.text("alone"), Some("true"));
        assert_eq!(ini.text("none"), None);
    }

    #[test]
    fn sections_keep_their_order_and_dots_mean_nothing() {
        let ini = ini("launcher.env.A = 1\r\n[targets]\r\nlow = 5\r\n1/high = 2\r\na:b = 3\r\n");
        assert_eq!(
            ini.section("targets").collect::<Vec<_>>(),
            [("low", "5"), ("1/high", "2"), ("a:b", "3")]
        );
        assert_eq!(ini.text("launcher.env.A"), Some("1"));
        assert_eq!(ini.text("low"), None);
    }

    #[test]
    fn errors_name_file_line_and_option() {
        let ini = ini("host = a\nport = many\nmysql_password = x\n");
        let error = ini.number::<u16>("port", 1, 100).unwrap_err().to_string();
        assert_eq!(error, "x.conf:2: port = \"many\": expected a whole number from 1 to 100");
        let secret = ini.wrong("mysql_password", "y").to_string();
        assert_eq!(secret, "x.conf:3: mysql_password = \"...\": expected y");
        let error = ini.required("launcher", "write one").unwrap_err().to_string();
        assert_eq!(error, "x.conf: launcher is missing; write one");
        let broken = Ini::parse(Path::new("x.conf"), "[targets\n").unwrap_err().to_string();
        assert_eq!(broken, "x.conf:1: section = \"[targets\": expected a name in [brackets]");
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let mut ini = ini("host = a\n[targets]\nlow = 5\n");
        ini.set_option("host=b");
        ini.set_option("targets.low=6");
        ini.set_option("targets.new=1");
        assert_eq!(ini.text("host"), Some("b"));
        assert_eq!(ini.section("targets").collect::<Vec<_>>(), [("low", "6"), ("new", "1")]);
    }

    #[test]
    fn options_nobody_asked_for_are_found() {
        let ini =
            ini("host = a\nhots = b\nlauncher.env.X = 1\n[targets]\nlow = 5\n[tagrets]\nx=1\n");
        let _ = ini.text("host");
        assert_eq!(
            ini.unknown(&["targets"], &["launcher.env."]),
            ["x.conf:2: hots", "x.conf:7: x"]
        );
    }

    #[test]
    fn secrets_in_a_file_that_all_may_read_are_found() {
        let file = NamedTempFile::new().unwrap();
        let exposed = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            Ini::read(file.path()).unwrap().exposed()
        };
        for (text, key) in [
            ("host = a\npassword = x\n", "password"),
            ("spindle_token=x\n", "spindle_token"),
            ("mysql_password='x'\n", "mysql_password"),
            ("spindle_url = https://u:p@h/\n", "spindle_url"),
            ("launcher.env.API_TOKEN = x\n", "launcher.env.API_TOKEN"),
        ] {
            let said = exposed(text, 0o644).unwrap_or_default();
            assert!(said.contains(&format!("may read {key} in")), "{said}");
            assert_eq!((exposed(text, 0o640), exposed(text, 0o600)), (None, None));
        }
        let none = ";password = x\npassword =\nspindle_url = http://h/\n[targets]\npassword = 5\n";
        assert_eq!(exposed(none, 0o644), None);
    }

    #[test]
    fn a_secret_that_the_command_line_replaces_is_in_the_file_still() {
        let file = NamedTempFile::new().unwrap();
        fs::write(&file, "password = x\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let mut ini = Ini::read(file.path()).unwrap();
        ini.set_option("password=y");
        assert!(ini.exposed().is_some());
        let mut none = Ini::parse(file.path(), "").unwrap();
        none.set_option("password=y");
        assert_eq!(none.exposed(), None);
    }
}
