//! Which rows' processes have begun. A worker notes a row here before it starts its process. The
//! notes survive if the worker is killed, so that its next life knows which of its `running` rows
//! were run.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::Arc,
};

use nix::fcntl::Flock;
use tracing::{debug, error, info};

use super::state_line::{Header, LINE_BYTES, line};
use crate::{launcher::ProcessId, table::RowId};

const WORD: &str = "began";

/// A row whose process has begun.
#[derive(Debug, Default)]
struct Begin {
    /// Which line of the file it has.
    slot: Option<usize>,
    process: Option<ProcessId>,
}

/// The rows whose processes have begun and whose ends are not in the table, here and in the state
/// file.
///
/// Each has a line of the file to itself, behind the first one. A line is written in one call and
/// never lies across a page of memory, so a killed worker leaves it whole or not at all; a line
/// whose row has ended is blank and used again, so the file is as long as the most rows that ran
/// at the same time. Nothing is synced for a row: that a power cut may have taken lines away is
/// known from the first line, which names the boot of the system.
#[derive(Debug)]
pub(super) struct Begun {
    rows: HashMap<RowId, Begin>,
    /// Blank lines, and the first one that is not there yet.
    free: BTreeSet<usize>,
    next: usize,
    /// Whether every row with the worker's mark that has begun is here.
    is_complete: bool,
    file: Option<Kept>,
}

/// Where it is kept.
#[derive(Debug)]
struct Kept {
    file: Arc<Flock<File>>,
    header: Header,
    /// The table whose rows these are.
    table: String,
    /// Whether the file has all rows that are here.
    is_current: bool,
    /// Whether its first line may claim that.
    may_claim: bool,
}

impl Begun {
    /// Nothing has begun, and there is no file.
    pub(super) fn in_memory() -> Self {
        Self { rows: HashMap::new(), free: BTreeSet::new(), next: 0, is_complete: true, file: None }
    }

    /// The rows of this table in this file, whose first line is `header` and whose other lines are
    /// `lines`. When the first line is of another boot or table, or when a line cannot be read,
    /// nothing is known: then every `running` row may have begun.
    pub(super) fn read(
        file: Arc<Flock<File>>,
        header: Header,
        lines: &[u8],
        table: String,
    ) -> Self {
        let rows = if header.claims(&table) { read(lines) } else { None };
        let is_complete = rows.is_some();
        let next = if is_complete { lines.len() / LINE_BYTES } else { 0 };
        let rows = rows.unwrap_or_default();
        let taken: HashSet<usize> = rows.values().filter_map(|begin| begin.slot).collect();
        let free = (0..next).filter(|slot| !taken.contains(slot)).collect();
        let may_claim = header.claims_something();
        let file = Some(Kept { file, header, table, is_current: is_complete, may_claim });
        Self { rows, free, next, is_complete, file }
    }

    /// The rows that have begun. `None`: any row may have.
    pub(super) fn known(&self) -> Option<HashSet<RowId>> {
        self.is_complete.then(|| self.rows.keys().copied().collect())
    }

    pub(super) fn contains(&self, id: RowId) -> bool {
        self.rows.contains_key(&id)
    }

    /// The row's process, if it is known.
    pub(super) fn process(&self, id: RowId) -> Option<ProcessId> {
        self.rows.get(&id)?.process
    }

    /// The row's process is about to begin.
    ///
    /// # Errors
    /// The file does not take it and still claims to be complete: the process must not begin.
    pub(super) fn begin(&mut self, id: RowId) -> io::Result<()> {
        self.rows.entry(id).or_default().process = None;
        if !self.is_complete {
            return Ok(());
        }
        let kept = self.keep(id);
        if kept.is_err() {
            self.end(id);
        }
        kept
    }

    /// The row's process is this one.
    pub(super) fn is_process(&mut self, id: RowId, process: ProcessId) {
        let Some(begin) = self.rows.get_mut(&id) else { return };
        begin.process = Some(process);
        if let Err(cause) = self.write(id) {
            debug!(%id, %cause, "the row's process cannot be noted in the state file");
        }
    }

    /// The row's end is in the table, or the row is not the worker's any more.
    pub(super) fn end(&mut self, id: RowId) {
        let Some(slot) = self.rows.remove(&id).and_then(|begin| begin.slot) else { return };
        self.free.insert(slot);
        let Some(kept) = &self.file else { return };
        if let Err(cause) = kept.write(slot, "") {
            // At worst, the row stays listed although it need not be.
            debug!(%id, %cause, "the state file still has a row that has ended");
        }
    }

    /// Only these rows may have begun, besides those that are known already.
    pub(super) fn complete_with(&mut self, ids: impl IntoIterator<Item = RowId>) {
        for id in ids {
            self.rows.entry(id).or_default();
        }
        self.is_complete = true;
        if let Err(cause) = self.keep_all() {
            error!(%cause, "cannot write the state file; if this worker is killed now, all rows \
                            that it left running are listed, also those that had not begun");
        }
    }

    fn keep(&mut self, id: RowId) -> io::Result<()> {
        let Some(kept) = &self.file else { return Ok(()) };
        if kept.is_current {
            let Err(cause) = self.write(id) else { return Ok(()) };
            self.disclaim()?;
            error!(%cause, "cannot write the state file; until that works, all rows that a kill \
                            leaves running are listed, also those that had not begun");
        } else if self.keep_all().is_ok() {
            info!("the state file can be written again");
        }
        let is_current = self.file.as_ref().is_some_and(|kept| kept.is_current);
        if is_current { Ok(()) } else { self.disclaim() }
    }

    /// Makes sure that the file does not claim to be complete.
    fn disclaim(&mut self) -> io::Result<()> {
        let Some(kept) = &mut self.file else { return Ok(()) };
        kept.is_current = false;
        if kept.may_claim {
            kept.header.drop_claim();
            kept.write_header()?;
            kept.may_claim = false;
        }
        Ok(())
    }

    /// Writes all rows anew, and only after that the claim that they are complete.
    fn keep_all(&mut self) -> io::Result<()> {
        self.disclaim()?;
        let Some(kept) = &self.file else { return Ok(()) };
        kept.file.set_len(LINE_BYTES as u64)?;
        self.free.clear();
        self.next = 0;
        let mut ids: Vec<RowId> = self.rows.keys().copied().collect();
        ids.sort_unstable();
        for begin in self.rows.values_mut() {
            begin.slot = None;
        }
        for id in ids {
            self.write(id)?;
        }
        let Some(kept) = &mut self.file else { return Ok(()) };
        kept.header.make_claim(&kept.table);
        kept.may_claim = true;
        kept.write_header()?;
        kept.file.sync_all()?;
        kept.is_current = true;
        Ok(())
    }

    /// Writes the row's line.
    fn write(&mut self, id: RowId) -> io::Result<()> {
        let (Some(kept), Some(begin)) = (&self.file, self.rows.get_mut(&id)) else { return Ok(()) };
        let slot = begin.slot.unwrap_or_else(|| self.free.first().copied().unwrap_or(self.next));
        let process =
            begin.process.map(|ProcessId { pid, started_ticks }| format!(" {pid} {started_ticks}"));
        kept.write(slot, &format!("{WORD} {id}{}", process.unwrap_or_default()))?;
        begin.slot = Some(slot);
        self.free.remove(&slot);
        self.next = self.next.max(slot + 1);
        Ok(())
    }
}

impl Kept {
    fn write(&self, slot: usize, text: &str) -> io::Result<()> {
        self.file.write_all_at(&line(text), (LINE_BYTES * (slot + 1)) as u64)
    }

    fn write_header(&self) -> io::Result<()> {
        self.file.write_all_at(&self.header.line(), 0)
    }
}

/// The rows of these lines, if every line can be read. An incomplete line at the end does not count:
/// its process has not begun.
fn read(lines: &[u8]) -> Option<HashMap<RowId, Begin>> {
    let mut rows = HashMap::new();
    for (slot, line) in lines.chunks_exact(LINE_BYTES).enumerate() {
        let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let (id, process) = match words.as_slice() {
            [] => continue,
            [word, id] if *word == WORD => (id, None),
            [word, id, pid, ticks] if *word == WORD => {
                let (pid, started_ticks) = (pid.parse().ok()?, ticks.parse().ok()?);
                (id, Some(ProcessId { pid, started_ticks }))
            }
            _ => return None,
        };
        rows.insert(RowId(id.parse().ok()?), Begin { slot: Some(slot), process });
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use nix::{
        fcntl::{FcntlArg, FlockArg, SealFlag, fcntl},
        sys::memfd::{MFdFlags, memfd_create},
    };

    use super::*;
    use crate::{table::Mark, worker::state_line::First};

    const TABLE: &str = "a table";

    fn locked(file: File) -> Arc<Flock<File>> {
        Arc::new(Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap())
    }

    /// A file in memory that can be made to refuse to grow, as on a full disk.
    fn file() -> Arc<Flock<File>> {
        locked(File::from(memfd_create("state", MFdFlags::MFD_ALLOW_SEALING).unwrap()))
    }

    fn new(file: &Arc<Flock<File>>) -> Begun {
        let header = Header::new(Mark::new("abcdefghi").unwrap());
        let mut begun = Begun::read(Arc::clone(file), header, &[], TABLE.to_owned());
        begun.complete_with([]);
        begun
    }

    /// What the next life of the worker would know.
    fn known(file: &Arc<Flock<File>>) -> Option<HashSet<RowId>> {
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let First::Header(header) = Header::read(&bytes) else { panic!("{bytes:?}") };
        let lines = bytes.split_off(LINE_BYTES);
        Begun::read(Arc::clone(file), header, &lines, TABLE.to_owned()).known()
    }

    #[test]
    fn a_full_disk_holds_no_row_up_and_makes_all_doubtful_until_there_is_room() {
        let full = file();
        let mut begun = new(&full);
        begun.begin(RowId(1)).unwrap();
        assert_eq!(known(&full), Some([RowId(1)].into()));
        fcntl(&**full, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).unwrap();
        for id in [2, 3] {
            begun.begin(RowId(id)).unwrap();
            assert_eq!(known(&full), None);
        }
        assert_eq!(begun.known(), Some([1, 2, 3].map(RowId).into()));
        let roomy = file();
        begun.file.as_mut().unwrap().file = Arc::clone(&roomy);
        begun.end(RowId(2));
        begun.begin(RowId(4)).unwrap();
        assert_eq!(known(&roomy), Some([1, 3, 4].map(RowId).into()));
        begun.begin(RowId(5)).unwrap();
        begun.end(RowId(1));
        assert_eq!(known(&roomy), Some([3, 4, 5].map(RowId).into()));
    }

    #[test]
    fn a_row_does_not_begin_while_the_file_says_it_has_not_and_cannot_be_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        let file = locked(File::create_new(&path).unwrap());
        let mut begun = new(&file);
        begun.begin(RowId(1)).unwrap();
        let read_only = locked(File::open("/dev/null").unwrap());
        begun.file.as_mut().unwrap().file = read_only;
        for _ in 0..2 {
            assert!(begun.begin(RowId(2)).is_err());
            assert!(!begun.contains(RowId(2)));
        }
        begun.file.as_mut().unwrap().file = Arc::clone(&file);
        begun.begin(RowId(2)).unwrap();
        drop((begun, file));
        let file = locked(File::options().read(true).write(true).open(&path).unwrap());
        assert_eq!(known(&file), Some([1, 2].map(RowId).into()));
    }
}
