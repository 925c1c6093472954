//! Copies one segment: continues the copy that is there, or makes one, and checks the bytes
//! received.

use std::{
    io,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use spindle_log::{
    copy::{CheckedCopy, CopyError, SegmentFacts, check_copy},
    disk::{Disk, DiskFile},
};

use crate::{
    check::wrong_with,
    error::BackupError,
    manifest::{Kept, NEW_COPY_FILE, copy_name, remove_if_there},
    source::{Source, SourceError},
    take::Manner,
};

/// Read and synced at once: a large sync would hold up that of a server on the same disk.
const PIECE_BYTES: usize = 1024 * 1024;
/// How long a pause follows a piece, as a multiple of what it took: a third of one core, and of the disk, is used.
const RESTS: u32 = 2;
/// The longest rest after a piece.
const REST_MAX: Duration = Duration::from_millis(500);

impl Manner {
    /// What is wrong with a copy of the old manifest, if it is to be read again.
    pub(crate) fn wrong_with(
        self,
        disk: &dyn Disk,
        kept: &Kept,
    ) -> Result<Option<String>, BackupError> {
        if self.trusts_kept {
            return Ok(None);
        }
        let begun = Instant::now();
        // Whether it follows the copy before it is seen when that one is known.
        let found = wrong_with(disk, kept, None, self.parts_of);
        self.rest(begun);
        found
    }

    fn rest(self, since: Instant) {
        if self.rests {
            sleep((since.elapsed() * RESTS).min(REST_MAX));
        }
    }
}

/// Where copies go, and how.
pub(crate) struct Copier<'a> {
    pub disk: &'a dyn Disk,
    pub manner: Manner,
    /// Learns of every piece.
    pub progress: &'a mut dyn FnMut(usize),
    /// How many copies of the old manifest were missing or damaged, and were made anew.
    pub renewed: usize,
}

/// Why a segment was not copied.
pub(crate) enum NotCopied {
    /// The source has dropped it.
    Gone,
    Failed(BackupError),
}

impl From<BackupError> for NotCopied {
    fn from(error: BackupError) -> Self {
        Self::Failed(error)
    }
}

/// The part of a copy that is there and sound.
struct Begun {
    file: Arc<dyn DiskFile>,
    facts: Option<SegmentFacts>,
    damaged: u64,
    /// The old manifest has it.
    is_kept: bool,
}

type Opened = (Arc<dyn DiskFile>, u64);

impl Copier<'_> {
    /// Makes the copy of a segment match `wanted`. `kept` is the part that the old manifest has, which is never
    /// changed. Everything but the file's name is durable then.
    pub fn copy(
        &mut self,
        source: &mut dyn Source,
        wanted: &SegmentFacts,
        kept: Option<&Kept>,
    ) -> Result<(Kept, CheckedCopy), NotCopied> {
        let name = copy_name(wanted.first);
        let begun = match kept {
            Some(kept) => self.begun_of(&name, kept)?,
            None => self.leftover(&name, wanted)?,
        };
        if let Some(begun) = begun {
            let copied = self.finish(source, &name, wanted, begun)?;
            if copied.facts == *wanted {
                return Ok((kept_as(name, &copied), copied));
            }
            if kept.is_some() {
                return Err(self.not_as_it_was(wanted).into());
            }
        }
        let Some(kept) = kept else {
            let (_, copied) = self.make(source, &name, wanted)?;
            return Ok((kept_as(name, &copied), copied));
        };
        // What is left of the old copy stays until the new one is whole.
        let (file, copied) = self.make(source, NEW_COPY_FILE, wanted)?;
        let old_part = check_copy(&file, kept.facts.bytes, None, self.manner.parts_of);
        let old_part =
            old_part.map_err(|error| BackupError::of_copy(self.disk, NEW_COPY_FILE, error))?;
        if old_part.facts != kept.facts {
            return Err(self.not_as_it_was(wanted).into());
        }
        let renamed = self.disk.rename(NEW_COPY_FILE, &name);
        renamed.map_err(BackupError::failed(self.disk, "rename", NEW_COPY_FILE))?;
        self.renewed += 1;
        Ok((kept_as(name, &copied), copied))
    }

    fn not_as_it_was(&self, wanted: &SegmentFacts) -> BackupError {
        let reason = format!("segment {} is not as it was", wanted.first);
        BackupError::OtherLog { folder: self.disk.folder(), reason }
    }

    /// Copies all of a segment to a new file.
    fn make(
        &mut self,
        source: &mut dyn Source,
        name: &str,
        wanted: &SegmentFacts,
    ) -> Result<(Arc<dyn DiskFile>, CheckedCopy), NotCopied> {
        remove_if_there(self.disk, name)?;
        let file =
            self.disk.create(name).map_err(BackupError::failed(self.disk, "create", name))?;
        let begun = Begun { file: file.clone(), facts: None, damaged: 0, is_kept: false };
        let copied = self.finish(source, name, wanted, begun)?;
        if copied.facts == *wanted {
            return Ok((file, copied));
        }
        let reason = match copied.bad {
            Some(reason) => {
                format!("what came is damaged at byte {}: {reason}", copied.facts.bytes)
            }
            None => "what came is not what the source listed".to_owned(),
        };
        Err(BackupError::damaged(self.disk, name, reason).into())
    }

    /// The file and its length, if it is there.
    fn opened(&self, name: &str) -> Result<Option<Opened>, BackupError> {
        let file = match self.disk.open(name, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(BackupError::failed(self.disk, "open", name))?,
        };
        let bytes = file.len().map_err(BackupError::failed(self.disk, "measure", name))?;
        Ok(Some((file, bytes)))
    }

    /// The copy of the old manifest. One that is missing or damaged is to be made anew.
    fn begun_of(&self, name: &str, kept: &Kept) -> Result<Option<Begun>, BackupError> {
        let Some((file, bytes)) = self.opened(name)? else { return Ok(None) };
        if bytes < kept.facts.bytes {
            return Ok(None);
        }
        match self.manner.wrong_with(self.disk, kept) {
            Ok(None) => {}
            // A disk that cannot read it any more may still write another one.
            Ok(Some(_)) | Err(BackupError::Failed { operation: "read", .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let (facts, damaged) = (Some(kept.facts.clone()), kept.damaged_records);
        Ok(Some(Begun { file, facts, damaged, is_kept: true }))
    }

    /// The copy that a crash left.
    fn leftover(&self, name: &str, wanted: &SegmentFacts) -> Result<Option<Begun>, BackupError> {
        let Some((file, bytes)) = self.opened(name)? else { return Ok(None) };
        match check_copy(&file, bytes.min(wanted.bytes), None, self.manner.parts_of) {
            // Whether the source has the same damage is not known: only what it sends is believed.
            Ok(found) if found.facts.first == wanted.first && found.damaged_parts == 0 => {
                Ok(Some(Begun { file, facts: Some(found.facts), damaged: 0, is_kept: false }))
            }
            Ok(_) | Err(CopyError::Header(_) | CopyError::NewerFormat(_)) => Ok(None),
            Err(CopyError::Failed(error)) => {
                Err(BackupError::failed(self.disk, "read", name)(error))
            }
        }
    }

    /// Makes a copy durable. A copy that can not be made durable is removed, unless the old
    /// manifest needs it: it might read well until the next power cut, and would be believed.
    fn sync(&self, file: &dyn DiskFile, name: &str, is_kept: bool) -> Result<(), BackupError> {
        file.sync().map_err(|error| {
            if !is_kept {
                // The failed sync is what is reported.
                let _ = self.disk.remove(name);
            }
            BackupError::failed(self.disk, "sync", name)(error)
        })
    }

    /// Fetches what is missing of a copy, and checks it.
    fn finish(
        &mut self,
        source: &mut dyn Source,
        name: &str,
        wanted: &SegmentFacts,
        begun: Begun,
    ) -> Result<CheckedCopy, NotCopied> {
        let Begun { file, facts, damaged, is_kept } = begun;
        let mut offset = facts.as_ref().map_or(0, |facts| facts.bytes);
        while offset < wanted.bytes {
            let len = (wanted.bytes - offset).min(PIECE_BYTES as u64) as usize;
            let begun = Instant::now();
            let piece = source.read(wanted.first, offset, len).map_err(|error| match error {
                SourceError::Gone => NotCopied::Gone,
                SourceError::Failed(error) => NotCopied::Failed(BackupError::Source(error)),
            })?;
            if piece.is_empty() || piece.len() > len {
                let reason = "the source gave another number of bytes than it was asked for";
                return Err(BackupError::damaged(self.disk, name, reason).into());
            }
            file.write_at(&piece, offset).map_err(BackupError::failed(self.disk, "write", name))?;
            self.sync(&*file, name, is_kept)?;
            offset += piece.len() as u64;
            (self.progress)(piece.len());
            self.manner.rest(begun);
        }
        // Bytes that a killed process left were read, but maybe never synced.
        self.sync(&*file, name, is_kept)?;
        let checked = check_copy(&file, wanted.bytes, facts.as_ref(), self.manner.parts_of);
        let mut checked = checked.map_err(|error| BackupError::of_copy(self.disk, name, error))?;
        checked.damaged_parts += damaged;
        Ok(checked)
    }
}

fn kept_as(file: String, copied: &CheckedCopy) -> Kept {
    Kept { file, facts: copied.facts.clone(), damaged_records: copied.damaged_parts }
}
