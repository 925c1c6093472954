//! Reads a folder and says whether the log in it is sound: `spindle verify DIR [--repair]`.
//!
//! Verifying takes the folder's lock: a running server is just writing the end of the log. It
//! changes nothing. A repair cuts the log at the first damage and saves what it cuts off in files
//! that end in `.damaged`; it never deletes bytes.

use crate::{
    contract::{Position, Stored},
    disk::Disk,
    folder::{
        FileKind, OpenError, begin_segment, damaged_name, file_kind, is_zero, read_in_steps, zero,
    },
    frame::{SEGMENT_HEADER_BYTES, SegmentHeader},
    parts::{PartsOf, no_parts},
    survey::{Manner, Survey, Surveyed, survey},
};

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
    /// Where the log ends, if a crash left bytes behind it. The next start removes them: no harm.
    pub tail: Option<Place>,
    /// The first record that should be there and is not.
    pub damage: Option<Damage>,
    /// Records of which parts that carry their own checksum are damaged. They count as records: a
    /// server starts with them, and whoever wrote them knows what the damage comes to.
    pub damaged_parts: Vec<Place>,
    /// What the repair did.
    pub repair: Option<RepairReport>,
    /// Files that are not the log's.
    pub foreign: Vec<String>,
    /// Files that earlier repairs saved.
    pub saved_earlier: Vec<String>,
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

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The files that hold what was cut off.
    pub saved: Vec<String>,
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
    verify_with(disk, repair, no_parts, &mut |_| {})
}

/// As [`verify`], and hands over every sound record, oldest first: what a server would fold if it
/// started on the folder as it is, or as the repair leaves it. `parts_of` is what the server opens
/// the log with: damage to nothing but such parts is reported, and no reason to cut.
pub fn verify_with(
    disk: &dyn Disk,
    repair: bool,
    parts_of: PartsOf,
    each: &mut dyn FnMut(Stored),
) -> VerifyReport {
    let mut report = VerifyReport { folder: disk.folder(), ..VerifyReport::default() };
    let manner = Manner { write: repair, check_chain: true, parts_of };
    if let Err(failure) = fill(&mut report, disk, manner, each) {
        report.failure = Some(failure);
    }
    report
}

fn fill(
    report: &mut VerifyReport,
    disk: &dyn Disk,
    manner: Manner,
    each: &mut dyn FnMut(Stored),
) -> Result<(), OpenError> {
    // Without a segment there is nothing to lock, and a lock file must not appear in a folder
    // that is somebody else's.
    let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
    let is_segment = |name: &String| matches!(file_kind(name), FileKind::Segment(_));
    if !names.iter().any(is_segment) {
        return Ok(());
    }
    report.saved_earlier =
        names.into_iter().filter(|name| file_kind(name) == FileKind::Damaged).collect();
    report.saved_earlier.sort_unstable();
    let _lock = disk.lock().map_err(|error| OpenError::not_taken(disk, error))?;
    let found = survey(disk, manner, each)?;
    describe(report, disk, &found)?;
    if let Some(damage) = &found.damage {
        report.damage = Some(damage.clone());
        if manner.write {
            report.repair = Some(cut(disk, &found, damage)?);
        }
    }
    report.foreign = found.foreign;
    Ok(())
}

fn describe(report: &mut VerifyReport, disk: &dyn Disk, found: &Survey) -> Result<(), OpenError> {
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
    if found.damage.is_none()
        && let Some(last) = found.segments.last()
    {
        let torn = !last.ends_in_zeros
            && !is_zero(&*last.file, (last.end, last.file_bytes), |_, _| Ok(()))
                .map_err(OpenError::failed(disk, "read", &last.name))?;
        let (file, offset, position) = (last.name.clone(), last.end, last.next());
        report.tail = torn.then_some(Place { file, offset, position });
    }
    Ok(())
}

/// Cuts the log before the damage. What is cut is saved before anything changes, and what proves
/// the damage goes last: after a crash in between the log is still damaged at the same place, and
/// can be repaired again.
fn cut(disk: &dyn Disk, found: &Survey, damage: &Damage) -> Result<RepairReport, OpenError> {
    let mut saved = Vec::new();
    let last = found.segments.last();
    let cut_inside = last.filter(|_| damage.offset > 0);
    if let Some(segment) = cut_inside {
        saved.push(save_end(disk, segment)?);
    }
    for name in damage.behind.iter().rev() {
        saved.push(set_aside(disk, name)?);
    }
    if let Some(segment) = cut_inside {
        let failed = |operation| OpenError::failed(disk, operation, &segment.name);
        zero(&*segment.file, (segment.end, segment.file_bytes)).map_err(failed("cut"))?;
        segment.file.sync().map_err(failed("sync"))?;
    } else {
        saved.push(set_aside(disk, &damage.file)?);
        if last.is_none() {
            // The log begins again where the file began: positions do not start over.
            let (salt, first) = (disk.salt(), damage.position);
            let header = SegmentHeader { salt, first, prev_crc: 0 };
            begin_segment(disk, header, u64::MAX, EMPTY_SEGMENT_BYTES)?;
        }
    }
    saved.sort_unstable();
    Ok(RepairReport { saved })
}

const COPY_BYTES: usize = 256 * 1024;
/// Just long enough: the server moves on to a longer one.
const EMPTY_SEGMENT_BYTES: u64 = 4096;

fn unused_name(disk: &dyn Disk, file: &str) -> Result<String, OpenError> {
    let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
    let mut nth = 0;
    while names.contains(&damaged_name(file, nth)) {
        nth += 1;
    }
    Ok(damaged_name(file, nth))
}

fn set_aside(disk: &dyn Disk, name: &str) -> Result<String, OpenError> {
    let aside = unused_name(disk, name)?;
    disk.rename(name, &aside).map_err(OpenError::failed(disk, "rename", name))?;
    disk.sync_folder().map_err(OpenError::failed(disk, "sync the folder", ""))?;
    Ok(aside)
}

/// Copies what is behind the end of a segment to a file of its own.
fn save_end(disk: &dyn Disk, segment: &Surveyed) -> Result<String, OpenError> {
    let aside = unused_name(disk, &segment.name)?;
    let failed = |operation| OpenError::failed(disk, operation, &aside);
    let file = disk.create(&aside).map_err(failed("create"))?;
    let range = (segment.end, segment.file_bytes);
    let copy = |bytes: &[u8], offset| file.write_at(bytes, offset - segment.end);
    read_in_steps(&*segment.file, range, COPY_BYTES, copy).map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))?;
    disk.sync_folder().map_err(OpenError::failed(disk, "sync the folder", ""))?;
    Ok(aside)
}
