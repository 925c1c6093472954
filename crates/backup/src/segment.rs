//! Copies one segment: continues the copy that is there, or makes one, and checks the bytes
//! received.

use std::{
    io,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use spindle_log::{
    PartsOf,
    copy::{CheckedCopy, CopyError, SegmentFacts, check_copy},
    disk::{Disk, DiskFile},
};

use crate::{
    error::BackupError,
    manifest::{Kept, copy_name, remove_if_there},
    source::{Source, SourceError},
};

/// Read and synced at once: a large sync would hold up that of a server on the same disk.
const PIECE_BYTES: usize = 1024 * 1024;
/// How long a pause follows a piece, as a multiple of what it took: a third of one core, and of the disk, is used.
const RESTS: u32 = 2;
/// The longest rest after a piece.
const REST_MAX: Duration = Duration::from_millis(500);

/// Where copies go, and how.
pub(crate) struct Copier<'a> {
    pub disk: &'a dyn Disk,
    pub parts_of: PartsOf,
    /// Whether to rest after each piece, for longer than it took.
    pub rests: bool,
    /// Learns of every piece.
    pub progress: &'a mut dyn FnMut(usize),
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
        if let Some(begun) = self.begun(&name, wanted, kept)? {
            let copied = self.finish(source, &name, wanted, begun)?;
            if copied.facts == *wanted {
                return Ok((kept_as(name, &copied), copied));
            }
            if kept.is_some() {
                let reason = format!("segment {} is not as it was", wanted.first);
                return Err(BackupError::OtherLog { folder: self.disk.folder(), reason }.into());
            }
        }
        remove_if_there(self.disk, &name)?;
        let file =
            self.disk.create(&name).map_err(BackupError::failed(self.disk, "create", &name))?;
        let begun = Begun { file, facts: None, damaged: 0, is_kept: false };
        let copied = self.finish(source, &name, wanted, begun)?;
        if copied.facts != *wanted {
            let reason = match copied.bad {
                Some(reason) => {
                    format!("what came is damaged at byte {}: {reason}", copied.facts.bytes)
                }
                None => "what came is not what the source listed".to_owned(),
            };
            return Err(BackupError::damaged(self.disk, &name, reason).into());
        }
        Ok((kept_as(name, &copied), copied))
    }

    /// The copy that is there: of the old manifest, or one that a crash left.
    fn begun(
        &self,
        name: &str,
        wanted: &SegmentFacts,
        kept: Option<&Kept>,
    ) -> Result<Option<Begun>, BackupError> {
        let file = match self.disk.open(name, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(BackupError::failed(self.disk, "open", name))?,
        };
        let bytes = file.len().map_err(BackupError::failed(self.disk, "measure", name))?;
        if let Some(kept) = kept {
            let (facts, damaged) = (Some(kept.facts.clone()), kept.damaged_records);
            // A copy that lost its end is made anew.
            return Ok((bytes >= kept.facts.bytes).then_some(Begun {
                file,
                facts,
                damaged,
                is_kept: true,
            }));
        }
        match check_copy(&file, bytes.min(wanted.bytes), None, self.parts_of) {
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
            if self.rests {
                sleep((begun.elapsed() * RESTS).min(REST_MAX));
            }
        }
        // Bytes that a killed process left were read, but maybe never synced.
        self.sync(&*file, name, is_kept)?;
        let checked = check_copy(&file, wanted.bytes, facts.as_ref(), self.parts_of);
        let mut checked = checked.map_err(|error| BackupError::of_copy(self.disk, name, error))?;
        checked.damaged_parts += damaged;
        Ok(checked)
    }
}

fn kept_as(file: String, copied: &CheckedCopy) -> Kept {
    Kept { file, facts: copied.facts.clone(), damaged_records: copied.damaged_parts }
}
