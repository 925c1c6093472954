//! A tokens file with a token for every role.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spindle_access::{Access, Digest, Role};
use spindle_limits::RequestRates;
use tempfile::TempDir;

/// Whether the role `had` is enough where `needed` is required, as in `docs/security.md`.
pub fn is_enough(had: Role, needed: Role) -> bool {
    use Role::{Admin, Inspect, Manage, Read, Submit, Work};
    match had {
        Admin => true,
        Manage => matches!(needed, Manage | Inspect | Read),
        Inspect => matches!(needed, Inspect | Read),
        Read | Submit | Work => had == needed,
    }
}

/// A tokens file in a folder of its own. Tokens are plain words here, the names of their entries.
#[derive(Debug)]
pub struct TokensFile(TempDir);

impl TokensFile {
    /// For each role a token of its name for all queues, and one `mine.ROLE` for the queues `mine.*`.
    /// `expired` has all roles, and has expired.
    pub fn of_all_roles() -> TokensFile {
        let roles = Role::ALL.iter().map(|role| role.name());
        let entries = roles.map(|role| {
            let limited = format!("mine.{role}");
            TokensFile::entry(role, role, "*", "")
                + &TokensFile::entry(&limited, role, "mine.*", "")
        });
        let past = "expires = 2020-01-01T00:00:00Z";
        TokensFile::of(
            &(entries.collect::<String>() + &TokensFile::entry("expired", "admin", "*", past)),
        )
    }

    /// A file with this text.
    pub fn of(text: &str) -> TokensFile {
        let file = TokensFile(TempDir::new().unwrap());
        file.write(text);
        file
    }

    /// An entry of a file; `more` are further fields.
    pub fn entry(token: &str, role: &str, queues: &str, more: &str) -> String {
        let digest = Digest::of(token.as_bytes()).unwrap();
        format!(
            "[[token]]\nname = '{token}'\nsha256 = '{digest}'\nroles = ['{role}']\n\
             queues = ['{queues}']\n{more}\n"
        )
    }

    /// Its access, for doors that do not require tokens, with this many requests per second for
    /// each token on a clock that stands still.
    pub fn paced(&self, token_requests: u32) -> Access {
        let rates = RequestRates::with_clock(Some(token_requests), None, || Duration::ZERO);
        self.access(false).with_rates(rates.map(Arc::new))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("tokens.toml")
    }

    /// Replaces it in one step.
    pub fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    /// The access that it grants; `is_required`: whether every client must present a token.
    pub fn access(&self, is_required: bool) -> Access {
        Access::of_file(&self.path()).unwrap().required(is_required)
    }
}
