//! The tokens file: TOML, one table for each identity.
//!
//! ```toml
//! [[token]]
//! name = "mailer"
//! sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
//! roles = ["submit", "work"]
//! queues = ["mail.*"]
//! expires = "2030-01-31T00:00:00Z"
//!
//! [[token]]
//! name = "backup host"
//! certificate = "backup.example.com"
//! roles = ["read"]
//! queues = ["*"]
//! ```
//!
//! Errors name the line and the field but never quote the value: somebody may have put a token
//! there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::identity::Identity;
use crate::role::Role;
use crate::secret::{SecretError, open_watched};
use crate::token::Digest;

/// A larger file is refused: it is read anew while the server serves.
const FILE_BYTES_MAX: u64 = 4 << 20;
const ENTRIES_MAX: usize = 10_000;
const NAME_CHARS_MAX: usize = 128;
const PATTERNS_MAX: usize = 64;
/// As long as a queue's name.
const PATTERN_BYTES_MAX: usize = 512;

const FIELDS: &str = "name, sha256 or certificate, roles, queues, expires";

/// Why a tokens file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It is not there, or may not be read, or all users of the machine may touch it.
    #[error("the tokens file: {0}")]
    File(#[from] SecretError),
    /// What is in it is not what it must be.
    #[error("the tokens file {path}{}: {reason}", at(*line))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, from 1; 0: the file as a whole.
        line: usize,
        /// What must be there.
        reason: String,
    },
}

fn at(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

/// Tells whether a file is still the one that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    place: (u64, u64),
    written: (i64, i64),
    changed: (i64, i64),
    bytes: u64,
}

impl Stamp {
    /// None if there is no such file.
    pub fn of(path: &Path) -> Option<Stamp> {
        fs::metadata(path).ok().map(|metadata| Stamp::from(&metadata))
    }
}

impl From<&Metadata> for Stamp {
    fn from(of: &Metadata) -> Stamp {
        Stamp {
            place: (of.dev(), of.ino()),
            written: (of.mtime(), of.mtime_nsec()),
            changed: (of.ctime(), of.ctime_nsec()),
            bytes: of.size(),
        }
    }
}

/// The entries of a tokens file.
#[derive(Debug, Default)]
pub struct Tokens {
    by_digest: HashMap<Digest, Arc<Identity>>,
    by_certificate: HashMap<String, Arc<Identity>>,
}

impl Tokens {
    /// Reads a file that others may not read.
    ///
    /// # Errors
    ///
    /// Why it cannot be used.
    pub(crate) fn read(path: &Path) -> Result<(Tokens, Stamp), TokensError> {
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        let mut file = open_watched(path)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let mut text = String::new();
        let read = file.by_ref().take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(unreadable)?;
        let tokens = Tokens::parse(&text).map_err(|(line, reason)| TokensError::Malformed {
            path: path.to_owned(),
            line,
            reason,
        })?;
        Ok((tokens, Stamp::from(&metadata)))
    }

    /// Reads a file, for callers that want to know what is in it.
    ///
    /// # Errors
    ///
    /// Why it cannot be used.
    pub fn of_file(path: &Path) -> Result<Tokens, TokensError> {
        Tokens::read(path).map(|(tokens, _)| tokens)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// What must be in it.
    pub fn of_text(text: &str) -> Result<Tokens, String> {
        Tokens::parse(text).map_err(|(_, reason)| reason)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.by_digest.len() + self.by_certificate.len()
    }

    /// Whether there is none, which is never so for a file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, in the order of their names.
    pub fn identities(&self) -> Vec<&Identity> {
        let all = self.by_digest.values().chain(self.by_certificate.values());
        let mut all: Vec<&Identity> = all.map(Arc::as_ref).collect();
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }

    pub(crate) fn by_digest(&self, digest: Digest) -> Option<Arc<Identity>> {
        self.by_digest.get(&digest).cloned()
    }

    pub(crate) fn by_certificate(&self, name: &str) -> Option<Arc<Identity>> {
        self.by_certificate.get(name).cloned()
    }

    fn parse(text: &str) -> Result<Tokens, (usize, String)> {
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err((0, format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let line_at = |offset: usize| 1 + text.bytes().take(offset).filter(|b| *b == b'\n').count();
        let document: Document = toml::from_str(text).map_err(|error: toml::de::Error| {
            // Its message may quote the value.
            let line = error.span().map_or(0, |span| line_at(span.start));
            (line, format!("it must be TOML with tables [[token]] of {FIELDS}"))
        })?;
        if document.token.is_empty() {
            return Err((0, "there is no entry in it: write [[token]]".to_owned()));
        }
        if document.token.len() > ENTRIES_MAX {
            return Err((0, format!("it has more than {ENTRIES_MAX} entries")));
        }
        let (mut tokens, mut names) = (Tokens::default(), HashSet::new());
        for entry in document.token {
            let start = entry.span().start;
            let wrong = |wrong: Wrong| (line_at(wrong.at.unwrap_or(start)), wrong.reason);
            let mut fields = Fields(entry.into_inner());
            tokens.take(&mut fields, &mut names).map_err(wrong)?;
            fields.none_left().map_err(wrong)?;
        }
        Ok(tokens)
    }

    fn take(&mut self, fields: &mut Fields, names: &mut HashSet<String>) -> Result<(), Wrong> {
        let name = fields.text("name")?.ok_or_else(|| Wrong::missing("name"))?;
        let is_name = |name: &str| {
            (1..=NAME_CHARS_MAX).contains(&name.chars().count())
                && !name.chars().any(char::is_control)
        };
        name.check(is_name, &format!("name has 1 to {NAME_CHARS_MAX} letters that can be shown"))?;
        if !names.insert(name.value.clone()) {
            return Err(name.wrong("another entry has this name"));
        }
        let digest = fields.text("sha256")?;
        let certificate = fields.text("certificate")?;
        let (granted, patterns) = (fields.roles()?, fields.patterns()?);
        let identity = Identity::new(name.value, granted, patterns, fields.expires()?);
        let identity = Arc::new(identity);
        match (digest, certificate) {
            (Some(digest), None) => {
                let read = Digest::parse(&digest.value).ok_or_else(|| {
                    digest.wrong(
                        "sha256 is 64 hexadecimal digits, as `spindle token new` prints them; the \
                         token itself does not belong here",
                    )
                })?;
                let is_new = self.by_digest.insert(read, identity).is_none();
                is_new.then_some(()).ok_or_else(|| digest.wrong("another entry has this sha256"))
            }
            (None, Some(certificate)) => {
                certificate.check(|name| !name.is_empty(), "certificate is a common name")?;
                let before = self.by_certificate.insert(certificate.value.clone(), identity);
                let message = "another entry has this certificate";
                before.is_none().then_some(()).ok_or_else(|| certificate.wrong(message))
            }
            _ => Err(Wrong::entry("an entry has either sha256 or certificate")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    token: Vec<Spanned<BTreeMap<String, Spanned<Value>>>>,
}

/// What is wrong, and at which byte; none: the entry as a whole.
struct Wrong {
    at: Option<usize>,
    reason: String,
}

impl Wrong {
    fn entry(reason: impl Into<String>) -> Wrong {
        Wrong { at: None, reason: reason.into() }
    }

    fn missing(field: &str) -> Wrong {
        Wrong::entry(format!("the entry has no {field}; an entry has {FIELDS}"))
    }
}

/// A value and where it stands.
struct Placed<T> {
    value: T,
    at: usize,
}

impl<T> Placed<T> {
    fn wrong(&self, reason: impl Into<String>) -> Wrong {
        Wrong { at: Some(self.at), reason: reason.into() }
    }
}

impl Placed<String> {
    fn check(&self, is_right: impl FnOnce(&str) -> bool, reason: &str) -> Result<(), Wrong> {
        if is_right(&self.value) { Ok(()) } else { Err(self.wrong(reason)) }
    }
}

/// The fields of an entry that are not read yet.
struct Fields(BTreeMap<String, Spanned<Value>>);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Placed<Value>> {
        let value = self.0.remove(name)?;
        Some(Placed { at: value.span().start, value: value.into_inner() })
    }

    fn text(&mut self, name: &str) -> Result<Option<Placed<String>>, Wrong> {
        let Some(field) = self.take(name) else { return Ok(None) };
        match field.value {
            Value::String(value) => Ok(Some(Placed { value, at: field.at })),
            _ => Err(field.wrong(format!("{name} is a text in quotes"))),
        }
    }

    fn texts(&mut self, name: &str) -> Result<Placed<Vec<String>>, Wrong> {
        let field = self.take(name).ok_or_else(|| Wrong::missing(name))?;
        let wrong = field.wrong(format!("{name} is a list of texts, and not empty"));
        let Value::Array(items) = field.value else { return Err(wrong) };
        let text = |item: Value| if let Value::String(text) = item { Some(text) } else { None };
        match items.into_iter().map(text).collect::<Option<Vec<String>>>() {
            Some(value) if !value.is_empty() => Ok(Placed { value, at: field.at }),
            _ => Err(wrong),
        }
    }

    fn roles(&mut self) -> Result<Vec<Role>, Wrong> {
        let names = self.texts("roles")?;
        let all: Vec<&str> = Role::ALL.iter().map(|role| role.name()).collect();
        let roles: Option<Vec<Role>> = names.value.iter().map(|name| Role::named(name)).collect();
        roles.ok_or_else(|| names.wrong(format!("roles are {}", all.join(", "))))
    }

    fn patterns(&mut self) -> Result<Vec<String>, Wrong> {
        let patterns = self.texts("queues")?;
        let is_pattern = |text: &String| (1..=PATTERN_BYTES_MAX).contains(&text.len());
        if patterns.value.len() <= PATTERNS_MAX && patterns.value.iter().all(is_pattern) {
            return Ok(patterns.value);
        }
        Err(patterns.wrong(format!(
            "queues are 1 to {PATTERNS_MAX} patterns of 1 to {PATTERN_BYTES_MAX} bytes; * is all"
        )))
    }

    /// Quoted or not: TOML has times of its own.
    fn expires(&mut self) -> Result<Option<SystemTime>, Wrong> {
        let Some(field) = self.take("expires") else { return Ok(None) };
        let text = match &field.value {
            Value::String(text) => text.clone(),
            Value::Datetime(time) => time.to_string(),
            _ => String::new(),
        };
        let time = text.parse::<Timestamp>().ok().map(SystemTime::from);
        let reason = "expires is a time such as 2030-01-31T00:00:00Z (RFC 3339)";
        time.map(Some).ok_or_else(|| field.wrong(reason))
    }

    fn none_left(&self) -> Result<(), Wrong> {
        let Some((_, value)) = self.0.first_key_value() else { return Ok(()) };
        let reason = format!("an entry has {FIELDS}, and nothing else");
        Err(Wrong { at: Some(value.span().start), reason })
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
