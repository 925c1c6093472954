//! Reads a folder and says whether the log in it is sound: `spindle verify DIR [--repair]`.
//!
//! Verifying takes the folder's lock, where one can be made: a running server is just writing the end of the log. It
//! changes nothing. A repair (the `repair` module) cuts the log at the first damage.

use crate::{
    contract::{Position, Stored},
    disk::Disk,
    faults::Faults,
    folder::{FileKind, OpenError, asides, file_kind, lock_to_read},
    frame::SEGMENT_HEADER_BYTES,
    parts::{PartsOf, no_parts},
    repair::cut,
    salvage::{list_dropped, torn_tail},
    survey::{Manner, Survey, Surveyed, survey},
};

pub use crate::repair::RepairReport;
pub use crate::salvage::{Dropped, EachDropped, TornTail};
pub use crate::survey::Damage;

/// What is in a folder.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// The folder.
    pub folder: String,
    /// The sound segments, oldest first; the last one is sound up to the damage or the tail.
    pub segments: Vec<SegmentReport>,
    /// The oldest record's position.
    pub first: Position,
    /// The position after the last sound record.
    pub next: Position,
    /// How many sound records there are.
    pub records: u64,
    /// How many bytes they take, framing included.
    pub bytes: u64,
    /// What is behind the end of the log: what a crash left there or, when the log was ended in order, bytes that no
    /// server wrote. The next start removes it. With `--sync always` none of what a crash left was acknowledged, unless
    /// the last record has rotted since: that looks the same.
    pub tail: Option<TornTail>,
    /// The last server was stopped in order, and the log ends where it ended then.
    pub ended_in_order: bool,
    /// One of the two copies of where the log must begin and end is damaged; the other one fits the log. A crash may do
    /// that, and the next start writes it again.
    pub bounds_copy_damaged: bool,
    /// The first record that should be there and is not.
    pub damage: Option<Damage>,
    /// Records of which parts that carry their own checksum are damaged. They count as records: a
    /// server starts with them, and their writer knows what the damage means.
    pub damaged_parts: Vec<Place>,
    /// What the repair did.
    pub repair: Option<RepairReport>,
    /// Files that are not the log's.
    pub foreign: Vec<String>,
    /// Folders of earlier repairs, and files that repairs of older releases saved.
    pub saved_earlier: Vec<String>,
    /// The folders of repairs since the last start of a server, also of those that were interrupted. What they took out
    /// of the log is handed over among the dropped records.
    pub repaired_since_start: Vec<String>,
    /// Why the folder could not be read, or not be repaired.
    pub failure: Option<OpenError>,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// The file.
    pub file: String,
    /// Its first position.
    pub first: Position,
    /// How many sound records it holds.
    pub records: u64,
    /// How many bytes they take, framing included.
    pub bytes: u64,
}

/// A place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Where in the file: where the record's frame begins, or would begin.
    pub offset: u64,
    /// Which record.
    pub position: Position,
}

impl VerifyReport {
    /// Whether a server can start on the folder and has lost nothing.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_none() && self.failure.is_none() && self.damaged_parts.is_empty()
    }
}

/// Reads the folder and, when asked to, cuts the log at the first damage.
///
/// After a repair the report has the damage as it was and the log as it is.
pub fn verify(disk: &dyn Disk, repair: bool) -> VerifyReport {
    verify_with(disk, repair, no_parts, &mut |_| {}, &mut |_| {})
}

/// As [`verify`], and hands over every sound record, oldest first: the records that a server would fold if it started
/// on the folder as it is, or as the repair leaves it. Then `dropped` gets the others, as far as they can be read:
/// those that a repair takes out of the log, or that the next start removes behind its end, and those that repairs have
/// taken out since the last start, so that the list is complete however often a repair is interrupted.
///
/// `parts_of` is what the server opens the log with: damage to nothing but such parts is reported, and no reason to cut.
pub fn verify_with(
    disk: &dyn Disk,
    repair: bool,
    parts_of: PartsOf,
    each: &mut dyn FnMut(Stored),
    dropped: EachDropped<'_>,
) -> VerifyReport {
    verify_planted(disk, repair, parts_of, Faults::default(), each, dropped)
}

/// As [`verify_with`], with faults planted, for the simulator.
#[doc(hidden)]
pub fn verify_planted(
    disk: &dyn Disk,
    repair: bool,
    parts_of: PartsOf,
    faults: Faults,
    each: &mut dyn FnMut(Stored),
    dropped: EachDropped<'_>,
) -> VerifyReport {
    let mut report = VerifyReport { folder: disk.folder(), ..VerifyReport::default() };
    let manner = Manner { write: repair, faults, parts_of };
    if let Err(failure) = fill(&mut report, disk, manner, each, dropped) {
        report.failure = Some(failure);
    }
    report
}

fn fill(
    report: &mut VerifyReport,
    disk: &dyn Disk,
    manner: Manner,
    each: &mut dyn FnMut(Stored),
    dropped: EachDropped<'_>,
) -> Result<(), OpenError> {
    // Without a log there is nothing to lock, and a lock file must not appear in a folder that
    // belongs to something else.
    let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
    let is_log = |name: &String| {
        matches!(file_kind(name), FileKind::Segment(_) | FileKind::Bounds | FileKind::Begun(_))
    };
    if !names.iter().any(is_log) {
        return Ok(());
    }
    report.saved_earlier = asides(&names);
    let _lock = match manner.write {
        true => Some(disk.lock().map_err(|error| OpenError::not_taken(disk, error))?),
        false => lock_to_read(disk)?,
    };
    let mut found = survey(disk, manner, each)?;
    describe(report, &found);
    report.damage = found.damage.clone();
    if let Some(last) = found.segments.last().filter(|_| found.damage.is_none()) {
        report.tail = torn_tail(last).map_err(OpenError::failed(disk, "read", &last.name))?;
    }
    list_dropped(disk, &found, report.tail.as_ref(), &mut manner.faults.listing(dropped))?;
    report.repaired_since_start.clone_from(&found.kept.folders);
    if let Some(damage) = report.damage.as_ref().filter(|_| manner.write) {
        manner.faults.cut_more(found.segments.last_mut());
        report.repair = Some(cut(disk, &mut found, damage)?);
    }
    report.foreign = found.foreign;
    Ok(())
}

fn describe(report: &mut VerifyReport, found: &Survey) {
    for segment in &found.segments {
        let (records, bytes) =
            (segment.spots.len() as u64, segment.end - SEGMENT_HEADER_BYTES as u64);
        let (file, first) = (segment.name.clone(), segment.header.first);
        report.segments.push(SegmentReport { file, first, records, bytes });
        report.records += records;
        report.bytes += bytes;
        let damaged = segment.damaged.iter().map(|frame| Place {
            file: segment.name.clone(),
            offset: frame.offset,
            position: frame.position,
        });
        report.damaged_parts.extend(damaged);
    }
    let start = found.damage.as_ref().map(|damage| damage.position);
    report.first = found.segments.first().map(|s| s.header.first).or(start).unwrap_or_default();
    report.next = found.segments.last().map(Surveyed::next).or(start).unwrap_or_default();
    let said = found.bounds.as_ref().map(|file| file.bounds);
    let is_alone = found.bounds.as_ref().is_some_and(|file| file.is_alone);
    report.bounds_copy_damaged = found.damage.is_none() && is_alone;
    report.ended_in_order = found.damage.is_none() && said.is_some_and(|said| said.end.is_some());
}
