//! Files with one secret.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::token::hidden;

/// A longer secret is refused.
const BYTES_MAX: u64 = 1024;
/// The permissions of all but owner and group, which must be none.
const OTHERS: u32 = 0o007;

/// Why a file with a secret cannot be used. The text reveals nothing of its contents.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It is not there, or may not be read.
    #[error("cannot read {}: {source}{}", shown(path), advice(path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Everybody on the machine may read or write it.
    #[error(
        "{0} is open to all users of this machine (mode {mode:04o}); close it: chmod 600 {0}",
        shown(path)
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It cannot be read again and again: a pipe, a device, a folder.
    #[error("{} is no regular file, and this one is read again whenever it changes", shown(path))]
    Irregular {
        /// The file.
        path: PathBuf,
    },
    /// What is in it is not what it must be.
    #[error("{}: {reason}", shown(path))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A file's name, which is a token if somebody set the wrong variable.
fn shown(path: &Path) -> String {
    hidden(&path.to_string_lossy()).into_owned()
}

/// What to do, if that is so.
fn advice(path: &Path) -> &'static str {
    match hidden(&path.to_string_lossy()) {
        Cow::Borrowed(_) => "",
        Cow::Owned(_) => {
            "; a file with the token belongs here, and the token itself into SPINDLE_TOKEN"
        }
    }
}

/// Opens a file that others may not touch, and that is read more than once.
///
/// # Errors
///
/// It is not there, is no regular file, or is open to others.
pub(crate) fn open_watched(path: &Path) -> Result<File, SecretError> {
    // Without this flag, opening a named pipe waits until somebody writes to it.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = open_private(path, &options)?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(SecretError::Irregular { path: path.to_owned() }),
        Err(source) => Err(SecretError::Unreadable { path: path.to_owned(), source }),
    }
}

fn open_private(path: &Path, options: &OpenOptions) -> Result<File, SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    let file = options.open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode();
    if mode & OTHERS != 0 {
        return Err(SecretError::Exposed { path: path.to_owned(), mode: mode & 0o7777 });
    }
    Ok(file)
}

/// Reads a file with one secret, white space around it taken off.
///
/// # Errors
///
/// It is not there, is open to others, is empty, is no text, or has more than 1,024 bytes.
pub fn read_secret(path: &Path) -> Result<String, SecretError> {
    let malformed = |reason| SecretError::Malformed { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    let file = open_private(path, OpenOptions::new().read(true))?;
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|source| SecretError::Unreadable { path: path.to_owned(), source })?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(malformed("there is more in it than one secret"));
    }
    let text = String::from_utf8(bytes).map_err(|_| malformed("what is in it is no text"))?;
    let text = text.trim();
    if text.is_empty() { Err(malformed("it is empty")) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, DirBuilder};
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_that_only_its_owner_reads() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("secret");
        let read = |bytes: &[u8], mode| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_secret(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read(b" sesame\n", 0o600), Ok("sesame".to_owned()));
        assert_eq!(read(&[b'x'; 1024], 0o640).map(|text| text.len()), Ok(1024));
        for (bytes, mode, part) in [
            (&b"sesame"[..], 0o644, "chmod 600"),
            (b"sesame", 0o602, "chmod 600"),
            (b" \n", 0o600, "it is empty"),
            (b"sesame\xff", 0o600, "no text"),
            (&[b'x'; 1025], 0o600, "more in it"),
        ] {
            let error = read(bytes, mode).unwrap_err();
            assert!(error.contains(part) && !error.contains("sesame"), "{error}");
        }
        assert!(read_secret(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_token_in_place_of_a_files_name_is_not_shown() {
        let folder = TempDir::new().unwrap();
        let token = crate::Token::random().unwrap();
        let path = folder.path().join(token.reveal());
        let error = || read_secret(&path).unwrap_err().to_string();
        let there = folder.path().display();
        let (none, advice) = ("No such file or directory (os error 2)", "into SPINDLE_TOKEN");
        assert!(error().starts_with(&format!("cannot read {there}/spindle_…: {none}; ")));
        assert!(error().ends_with(advice));
        fs::write(&path, "sesame").unwrap();
        for mode in [0o644, 0o600] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = if mode == 0o644 {
                error()
            } else {
                fs::write(&path, "").unwrap();
                error()
            };
            assert!(found.contains("/spindle_…") && !found.contains(token.reveal()), "{found}");
        }
        let other = read_secret(&folder.path().join("none")).unwrap_err().to_string();
        assert!(!other.contains(advice), "{other}");
    }

    /// A thread that waits for a pipe sees no more changes, and cannot be asked to end.
    #[test]
    fn a_file_that_is_read_again_is_no_pipe_and_no_folder() {
        let folder = TempDir::new().unwrap();
        let (pipe, other) = (folder.path().join("pipe"), folder.path().join("folder"));
        mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        DirBuilder::new().mode(0o700).create(&other).unwrap();
        for path in [pipe, other] {
            let (done, opened) = channel();
            let asked = path.clone();
            thread::spawn(move || done.send(open_watched(&asked).map(drop)));
            let opened = opened.recv_timeout(Duration::from_secs(60));
            let is_refused = matches!(opened, Ok(Err(SecretError::Irregular { .. })));
            assert!(is_refused, "{}: {opened:?}", path.display());
        }
    }
}
