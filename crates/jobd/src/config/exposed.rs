//! Whether others may read a file with secrets.

use std::{
    fmt,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, geteuid};

/// The permission of all but owner and group to read.
const OTHERS_READ: u32 = 0o004;

/// A file with a secret that every user of the machine may read. It is used all the same: files of
/// the original migrate unchanged. The text says what to do.
#[derive(Clone, Debug)]
pub(super) struct Exposed {
    path: PathBuf,
    /// The option with the secret.
    key: String,
    mode: u32,
    /// Whether who reads it now can read it when only its owner may.
    is_readers: bool,
}

impl Exposed {
    /// What is wrong with the file that has this option, if anything is.
    pub(super) fn of(path: &Path, key: &str, file: &Metadata) -> Option<Self> {
        Self::read_by(geteuid(), path, key, (file.mode(), Uid::from_raw(file.uid())))
    }

    fn read_by(reader: Uid, path: &Path, key: &str, (mode, owner): (u32, Uid)) -> Option<Self> {
        (mode & OTHERS_READ != 0).then(|| Self {
            path: path.to_owned(),
            key: key.to_owned(),
            mode: mode & 0o7777,
            is_readers: reader.is_root() || reader == owner,
        })
    }
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, key, mode, is_readers } = self;
        let path = path.display();
        write!(
            f,
            "all users of this machine may read {key} in {path} (mode {mode:04o}); \
             close it: chmod 600 {path}"
        )?;
        if !is_readers {
            f.write_str(", and chown it to the user who runs this (or 640, and chgrp)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_keeps_the_file_readable_for_who_reads_it() {
        let [root, jobd, other] = [0, 990, 1000].map(Uid::from_raw);
        let said = |reader, mode, owner| {
            let exposed = Exposed::read_by(reader, Path::new("/x.conf"), "password", (mode, owner));
            exposed.map(|exposed| exposed.to_string())
        };
        let own = "all users of this machine may read password in /x.conf (mode 0644); \
                   close it: chmod 600 /x.conf";
        assert_eq!(said(jobd, 0o100_644, jobd).as_deref(), Some(own));
        assert_eq!(said(root, 0o100_644, other).as_deref(), Some(own));
        let given = format!("{own}, and chown it to the user who runs this (or 640, and chgrp)");
        assert_eq!(said(jobd, 0o100_644, root), Some(given));
        for mode in [0o100_640, 0o100_600, 0o100_642] {
            assert_eq!(said(jobd, mode, jobd), None, "{mode:o}");
        }
    }
}
