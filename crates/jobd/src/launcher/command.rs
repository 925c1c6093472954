//! The launcher's template, and the command it makes for one job.

use std::{path::PathBuf, process::Stdio};

use thiserror::Error;
use tokio::process::Command;

use crate::table::{Input, RowId};

/// What stands in a template for the job's id.
const ID: &str = "{id}";

/// Variables by which a service manager talks to the daemon itself. A job that inherited them
/// could speak in its name.
const OWN_VARIABLES: [&str; 5] =
    ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"];

/// How jobs are launched, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherSettings {
    /// `launcher`: program and arguments with spaces between them, `{id}` in at least one.
    pub template: String,
    /// `launcher.cwd`: where it runs; else where the daemon does.
    pub cwd: Option<PathBuf>,
    /// `launcher.env.NAME`: added to the daemon's own environment.
    pub environment: Vec<(String, String)>,
    /// `max_output_buffer`: how much is kept of each of the two outputs.
    pub output_bytes_max: usize,
    /// `launcher.signal_group`: whether signals go to the job's process group.
    pub signal_group: bool,
}

/// Why a template cannot launch anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LauncherError {
    /// There is no program in it.
    #[error("is empty; write a program and its arguments, such as php /srv/launcher.php {{id}}")]
    Empty,
    /// There is no `{id}` in it: every job would be the same.
    #[error("has no {{id}}; put {{id}} where the program expects the id of its job")]
    NoId,
}

/// Makes the command of each job. No shell is involved: an argument stays one argument.
#[derive(Clone, Debug)]
pub struct Launcher {
    words: Vec<String>,
    /// Those of [`OWN_VARIABLES`] that the daemon has. Removing even one of them means copying the
    /// whole environment for every job.
    hidden: Vec<&'static str>,
    pub(super) settings: LauncherSettings,
}

impl Launcher {
    /// The launcher of these settings.
    ///
    /// # Errors
    /// [`LauncherError`]; its text goes behind the option's name.
    pub fn new(settings: LauncherSettings) -> Result<Self, LauncherError> {
        let words: Vec<String> = settings
            .template
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        if words.is_empty() {
            return Err(LauncherError::Empty);
        }
        if !words.iter().any(|word| word.contains(ID)) {
            return Err(LauncherError::NoId);
        }
        let is_set = |name: &&str| std::env::var_os(name).is_some();
        let hidden = OWN_VARIABLES.into_iter().filter(is_set).collect();
        Ok(Self { words, hidden, settings })
    }

    /// Program and arguments for this job.
    pub fn words(&self, id: RowId) -> impl Iterator<Item = String> {
        let id = id.to_string();
        self.words.iter().map(move |word| word.replace(ID, &id))
    }

    /// The command, but for its outputs.
    pub(super) fn command(&self, id: RowId, input: &Input) -> Command {
        let mut words = self.words(id);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .stdin(if input.payload.is_empty() { Stdio::null() } else { Stdio::piped() })
            .process_group(0);
        for name in &self.hidden {
            command.env_remove(name);
        }
        let configured = self.settings.environment.iter();
        let of_the_job = input.environment.iter();
        command.envs(configured.chain(of_the_job).map(|(name, value)| (name, value)));
        if let Some(cwd) = &self.settings.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(template: &str) -> Result<Launcher, LauncherError> {
        Launcher::new(LauncherSettings {
            template: template.to_owned(),
            cwd: None,
            environment: Vec::new(),
            output_bytes_max: 100,
            signal_group: false,
        })
    }

    fn words(template: &str) -> Vec<String> {
        launcher(template).unwrap().words(RowId(12)).collect()
    }

    #[test]
    fn a_template_is_split_at_spaces_and_nothing_else() {
        assert_eq!(words("php  /srv/x.php {id} "), ["php", "/srv/x.php", "12"]);
        assert_eq!(words("run --id={id} 'a b' $HOME"), ["run", "--id=12", "'a", "b'", "$HOME"]);
    }

    #[test]
    fn a_template_without_id_is_refused() {
        assert_eq!(launcher("php /srv/x.php").unwrap_err(), LauncherError::NoId);
        assert_eq!(launcher("  ").unwrap_err(), LauncherError::Empty);
    }
}
