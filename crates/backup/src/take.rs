//! Takes a backup: copies new bytes, then replaces the manifest, then removes copies that it no
//! longer needs.

use std::io;

use spindle_log::{PartsOf, copy::SegmentFacts, disk::Disk};

use crate::{
    error::BackupError,
    manifest::{
        Kept, MANIFEST_FILE, Manifest, NEW_COPY_FILE, NEW_MANIFEST_FILE, is_copy, remove_if_there,
    },
    segment::{Copier, NotCopied},
    source::{Listing, Source, SourceError},
};

/// How many listings are taken for one backup. Each new one lacks segments that were dropped since,
/// and copies made so far stay: only a server that drops segments faster than they are copied needs
/// many.
pub(crate) const LISTINGS_MAX: usize = 100;

/// How a backup is taken.
#[derive(Clone, Copy)]
pub struct Manner {
    /// What a server opens its log with.
    pub parts_of: PartsOf,
    /// Whether to rest after each piece, for a server beside it: two thirds of the time.
    pub rests: bool,
    /// Whether copies of the older backup are believed to be sound without being read again.
    pub trusts_kept: bool,
}

/// A backup that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What is in it.
    pub manifest: Manifest,
    /// How many bytes were copied for it.
    pub copied_bytes: u64,
    /// How many copies of the one before were dropped.
    pub dropped: usize,
    /// How many copies of the one before were missing or damaged, and were copied anew.
    pub renewed: usize,
    /// The log had dropped the records that would continue the backup before, so nothing of that
    /// was kept.
    pub begun_anew: bool,
}

/// Takes a backup of `source` to a folder, `taken_at` a time (RFC 3339). A folder with an older
/// backup of the same log gets what is new. `progress` learns of each piece: its bytes.
///
/// # Errors
///
/// After an error, and after a crash at any point, the folder holds the backup it held before, maybe with sound copies
/// where there were damaged ones.
pub fn back_up(
    disk: &dyn Disk,
    source: &mut dyn Source,
    manner: Manner,
    taken_at: String,
    progress: &mut dyn FnMut(usize),
) -> Result<Taken, BackupError> {
    refuse_foreign(disk)?;
    let _lock = disk.lock().map_err(|error| BackupError::not_taken(disk, error))?;
    let before = Manifest::read(disk)?;
    let mut copied_bytes = 0;
    let mut count = |bytes: usize| {
        copied_bytes += bytes as u64;
        progress(bytes);
    };
    let mut copier = Copier { disk, manner, progress: &mut count, renewed: 0 };
    for _ in 0..LISTINGS_MAX {
        let listing = listing_of(source)?;
        if let Some(before) = &before {
            let reason = belongs_to(&listing, before);
            reason.map_err(|reason| BackupError::OtherLog { folder: disk.folder(), reason })?;
        }
        let Some(segments) = copy_all(&mut copier, source, &listing, before.as_ref())? else {
            continue;
        };
        disk.sync_folder().map_err(BackupError::failed(disk, "sync", ""))?;
        let manifest = Manifest::new(segments, taken_at, None);
        manifest.write(disk)?;
        let dropped = drop_others(disk, &manifest)?;
        let renewed = copier.renewed;
        return Ok(Taken { manifest, copied_bytes, dropped, renewed, begun_anew: false });
    }
    Err(BackupError::TooFast(LISTINGS_MAX))
}

/// Looks before even a lock file is made.
pub(crate) fn refuse_foreign(disk: &dyn Disk) -> Result<(), BackupError> {
    let names = disk.list().map_err(BackupError::failed(disk, "list", ""))?;
    let is_own = |name: &str| {
        is_copy(name)
            || matches!(
                name,
                MANIFEST_FILE | NEW_MANIFEST_FILE | NEW_COPY_FILE | "lock" | "lost+found"
            )
    };
    match names.into_iter().filter(|name| !is_own(name)).min() {
        Some(file) => Err(BackupError::Foreign { folder: disk.folder(), file }),
        None => Ok(()),
    }
}

fn listing_of(source: &mut dyn Source) -> Result<Listing, BackupError> {
    let listing = source.listing().map_err(|error| match error {
        SourceError::Gone => BackupError::Source(io::Error::from(io::ErrorKind::NotFound).into()),
        SourceError::Failed(error) => BackupError::Source(error),
    })?;
    listing.check().map_err(|reason| BackupError::Listing { reason })?;
    Ok(listing)
}

/// Says why the log that is listed is not the one of an older backup, if that can be seen.
fn belongs_to(listing: &Listing, before: &Manifest) -> Result<(), String> {
    if before.log_id.is_some() {
        return Err("that one is shared by several servers".to_owned());
    }
    if listing.end < before.end {
        return Err(format!("it ends at {}, the backup at {}", listing.end, before.end));
    }
    for old in before.segments.iter().map(|kept| &kept.facts) {
        let same = listing.segments.iter().find(|segment| segment.first == old.first);
        let fits = match same {
            Some(now) if now.bytes == old.bytes => now == old,
            // Whether it continues the copy is seen when it is continued.
            Some(now) => now.bytes > old.bytes && now.next > old.next,
            None => old.next <= listing.first,
        };
        if !fits {
            return Err(format!("segment {} is not as it was", old.first));
        }
    }
    Ok(())
}

/// Copies all segments of a listing; `None` when one of them was dropped meanwhile.
fn copy_all(
    copier: &mut Copier<'_>,
    source: &mut dyn Source,
    listing: &Listing,
    before: Option<&Manifest>,
) -> Result<Option<Vec<Kept>>, BackupError> {
    let mut segments = Vec::with_capacity(listing.segments.len());
    let mut last: Option<SegmentFacts> = None;
    for wanted in &listing.segments {
        let old = before.into_iter().flat_map(|before| &before.segments);
        let kept = old.clone().find(|kept| kept.facts.first == wanted.first);
        let (kept, copied) = match copier.copy(source, wanted, kept) {
            Ok(copied) => copied,
            Err(NotCopied::Gone) => return Ok(None),
            Err(NotCopied::Failed(error)) => return Err(error),
        };
        if last.is_some_and(|last| !copied.follows(&last)) {
            let reason = "it does not follow the segment before it";
            return Err(BackupError::damaged(copier.disk, &kept.file, reason));
        }
        last = Some(kept.facts.clone());
        segments.push(kept);
    }
    Ok(Some(segments))
}

/// Removes copies that the manifest does not name.
pub(crate) fn drop_others(disk: &dyn Disk, manifest: &Manifest) -> Result<usize, BackupError> {
    let names = disk.list().map_err(BackupError::failed(disk, "list", ""))?;
    let is_kept = |name: &String| manifest.segments.iter().any(|kept| kept.file == *name);
    let others: Vec<_> = names.into_iter().filter(|it| is_copy(it) && !is_kept(it)).collect();
    for name in &others {
        remove_if_there(disk, name)?;
    }
    remove_if_there(disk, NEW_COPY_FILE)?;
    disk.sync_folder().map_err(BackupError::failed(disk, "sync", ""))?;
    Ok(others.len())
}
