//! Reads a folder and says whether the log in it is sound: `spindle verify DIR [--repair]`.
//!
//! Verifying takes the folder's lock: a running server is just writing the end of the log. It
//! changes nothing. A repair cuts the log at the first damage. Every file that it changes or takes out of the log is kept
//! as it was in a folder inside, `repair-1` or the next number; it never deletes bytes.

use crate::{
    bounds::{BOUNDS_FILE, Bounds, BoundsFile},
    contract::{Position, Stored},
    disk::{Disk, DiskFile},
    faults::Faults,
    folder::{
        FileKind, OpenError, begin_segment, file_kind, filling_name, read_in_steps, repair_name,
        zero,
    },
    frame::{SEGMENT_HEADER_BYTES, SegmentHeader},
    parts::{PartsOf, no_parts},
    salvage::{list_dropped, torn_tail},
    survey::{Manner, Survey, Surveyed, survey},
};

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
    /// What a crash left behind the end of the log. The next start removes it. With `--sync always` none of it was
    /// acknowledged.
    pub tail: Option<TornTail>,
    /// The last server was stopped in order, and the log ends where it ended then.
    pub ended_in_order: bool,
    /// The first record that should be there and is not.
    pub damage: Option<Damage>,
    /// Records of which parts that carry their own checksum are damaged. They count as records: a
    /// server starts with them, and whoever wrote them knows what the damage comes to.
    pub damaged_parts: Vec<Place>,
    /// What the repair did.
    pub repair: Option<RepairReport>,
    /// Files that are not the log's.
    pub foreign: Vec<String>,
    /// Folders of earlier repairs, and files that repairs of older releases saved.
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
    /// The folder inside that keeps files as they were before the repair.
    pub folder: String,
    /// The files in it.
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
    verify_with(disk, repair, no_parts, &mut |_| {}, &mut |_| {})
}

/// As [`verify`], and hands over every sound record, oldest first: what a server would fold if it
/// started on the folder as it is, or as the repair leaves it. Then `dropped` gets what is not among them: what a repair
/// takes out of the log, or the next start behind its end, as far as it can be read.
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
    // Without a log there is nothing to lock, and a lock file must not appear in a folder
    // that is somebody else's.
    let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
    let is_log = |name: &String| matches!(file_kind(name), FileKind::Segment(_) | FileKind::Bounds);
    if !names.iter().any(is_log) {
        return Ok(());
    }
    report.saved_earlier = asides(&names);
    let _lock = disk.lock().map_err(|error| OpenError::not_taken(disk, error))?;
    let mut found = survey(disk, manner, each)?;
    describe(report, &found);
    let last = found.segments.last();
    if let Some(damage) = found.damage.clone() {
        report.damage = Some(damage.clone());
        let known = found.bounds.as_ref().map(|file| file.bounds.reached);
        let failed = OpenError::failed(disk, "read", &damage.file);
        list_dropped(disk, last, &damage, known, &mut manner.faults.listing(dropped))
            .map_err(failed)?;
        if manner.write {
            manner.faults.cut_more(found.segments.last_mut());
            report.repair = Some(cut(disk, &mut found, &damage)?);
        }
    } else if let Some(last) = last {
        report.tail =
            torn_tail(last, dropped).map_err(OpenError::failed(disk, "read", &last.name))?;
    }
    report.foreign = found.foreign;
    Ok(())
}

/// What repairs have kept: folders, and files beside the segments.
fn asides(names: &[String]) -> Vec<String> {
    let kept = names.iter().filter(|name| file_kind(name) == FileKind::Aside);
    let mut kept: Vec<String> =
        kept.map(|name| name.split('/').next().unwrap_or(name).to_owned()).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
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
    report.ended_in_order = found.damage.is_none() && said.is_some_and(|said| said.end.is_some());
}

/// Cuts the log before the damage. What is cut is saved before anything changes, and what proves
/// the damage goes last: after a crash in between the log is still damaged at the same place, and
/// can be repaired again. The bounds change last of all, in their place: there is no time without
/// them, in which nothing would prove any more that the last records were durable.
fn cut(disk: &dyn Disk, found: &mut Survey, damage: &Damage) -> Result<RepairReport, OpenError> {
    for name in &found.fillings {
        disk.remove(name).map_err(OpenError::failed(disk, "remove", name))?;
    }
    let mut aside = Aside::new(disk)?;
    let (first, last) = (found.segments.first(), found.segments.last());
    let cut_inside = last.filter(|segment| damage.offset > 0 && segment.name == damage.file);
    if let Some(segment) = cut_inside {
        aside.copy(&segment.name, &*segment.file, segment.file_bytes)?;
    }
    for name in damage.behind.iter().rev() {
        aside.take(name)?;
    }
    if let Some(segment) = cut_inside {
        let failed = |operation| OpenError::failed(disk, operation, &segment.name);
        zero(&*segment.file, (segment.end, segment.file_bytes)).map_err(failed("cut"))?;
        segment.file.sync().map_err(failed("sync"))?;
    } else if damage.file != BOUNDS_FILE {
        aside.take(&damage.file)?;
        if last.is_none() {
            // The log begins again where the file began: positions do not start over.
            let (salt, first) = (disk.salt(), damage.position);
            let header = SegmentHeader { salt, first, prev_crc: 0, keeps_bounds: false };
            begin_segment(disk, header, u64::MAX, EMPTY_SEGMENT_BYTES)?;
        }
    }
    let bounds = Bounds {
        first: first.map_or(damage.position, |segment| segment.header.first),
        newest: last.map_or(damage.position, |segment| segment.header.first),
        reached: last.map_or(damage.position, Surveyed::next),
        end: None,
    };
    if let Some(file) = &mut found.bounds {
        let bytes = file.file().len().map_err(OpenError::failed(disk, "measure", BOUNDS_FILE))?;
        aside.copy(BOUNDS_FILE, file.file(), bytes)?;
        file.change(bounds).map_err(OpenError::failed(disk, "write", BOUNDS_FILE))?;
    } else {
        aside.take(BOUNDS_FILE)?;
        BoundsFile::create(disk, bounds).map_err(OpenError::failed(disk, "create", BOUNDS_FILE))?;
    }
    Ok(aside.report)
}

const COPY_BYTES: usize = 256 * 1024;
/// Just long enough: the server moves on to a longer one.
const EMPTY_SEGMENT_BYTES: u64 = 4096;

/// The folder inside that keeps files as they were.
struct Aside<'a> {
    disk: &'a dyn Disk,
    report: RepairReport,
}

impl<'a> Aside<'a> {
    /// A folder of a new name, which is made when the first file comes.
    fn new(disk: &'a dyn Disk) -> Result<Self, OpenError> {
        let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
        let taken = asides(&names);
        let free = (1..).map(repair_name).find(|name| !taken.contains(name));
        let folder = free.unwrap_or_else(|| repair_name(0));
        Ok(Self { disk, report: RepairReport { folder, saved: Vec::new() } })
    }

    /// Moves a file there, if there is one of that name.
    fn take(&mut self, name: &str) -> Result<(), OpenError> {
        let failed = |operation| OpenError::failed(self.disk, operation, name);
        if self.disk.list().map_err(failed("list the folder of"))?.iter().any(|own| own == name) {
            self.disk.move_aside(name, &self.report.folder, name).map_err(failed("move aside"))?;
            self.report.saved.push(name.to_owned());
        }
        Ok(())
    }

    /// Copies a file there.
    fn copy(&mut self, name: &str, from: &dyn DiskFile, bytes: u64) -> Result<(), OpenError> {
        let filling = filling_name(u64::MAX);
        let failed = |operation| OpenError::failed(self.disk, operation, &filling);
        let file = self.disk.create(&filling).map_err(failed("create"))?;
        let copy = |bytes: &[u8], offset| file.write_at(bytes, offset);
        read_in_steps(from, (0, bytes), COPY_BYTES, copy).map_err(failed("write"))?;
        file.sync().map_err(failed("sync"))?;
        let folder = &self.report.folder;
        self.disk.move_aside(&filling, folder, name).map_err(failed("move aside"))?;
        self.report.saved.push(name.to_owned());
        Ok(())
    }
}
