//! Cuts a log before its damage.
//!
//! Every file that a repair changes or takes out of the log is kept as it was in a folder inside, `repair-1` or the next
//! number; it never deletes bytes.
//!
//! A repair can be interrupted anywhere and run again, with a folder of its own. The records that it drops are listed
//! before anything moves, but that list may never have been seen. So before the first file moves, an empty file
//! `repair-1.begun` is durable, which the next start of a server removes. As long as it is there, a list of dropped
//! records also covers the files in `repair-1` and all later folders (`salvage.rs`). A separate list, written
//! beforehand, would repeat the same facts in one more format, for possibly as many records as the log has, and it
//! would say what a repair was about to do. The kept files show what it did, and a list made from them is right even
//! when files were brought back meanwhile.

use crate::{
    bounds::{BOUNDS_FILE, Bounds, BoundsFile},
    disk::{Disk, DiskFile},
    folder::{
        OpenError, asides, begin_segment, begun_name, filling_name, read_in_steps, repair_name,
        repair_number, zero,
    },
    frame::SegmentHeader,
    survey::{Damage, Survey, Surveyed},
};

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The folder inside that keeps files as they were before the repair.
    pub folder: String,
    /// The files in it.
    pub saved: Vec<String>,
}

/// Cuts the log before the damage. What is cut is saved before anything changes, and the proof of
/// the damage goes last: after a crash in between, the log is still damaged at the same place, and
/// can be repaired again. The bounds change last of all, and in place: they are never missing,
/// since without them nothing would prove any more that the last records were durable.
pub(crate) fn cut(
    disk: &dyn Disk,
    found: &mut Survey,
    damage: &Damage,
) -> Result<RepairReport, OpenError> {
    for name in &found.fillings {
        disk.remove(name).map_err(OpenError::failed(disk, "remove", name))?;
    }
    let mut aside = Aside::begin(disk, &found.kept.begun)?;
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
    /// A folder of a new name, which is made when the first file comes. That a repair has begun is durable then.
    fn begin(disk: &'a dyn Disk, begun: &[String]) -> Result<Self, OpenError> {
        let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
        let taken = asides(&names).iter().filter_map(|name| repair_number(name)).max();
        let number = taken.map_or(1, |taken| taken.saturating_add(1));
        if begun.is_empty() {
            let name = begun_name(number);
            disk.create(&name).map_err(OpenError::failed(disk, "create", &name))?;
        }
        disk.sync_folder().map_err(OpenError::failed(disk, "sync the folder", ""))?;
        let folder = repair_name(number);
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
