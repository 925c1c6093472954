//! Output that workers write while they work, for people who look on. Never logged: the newest part
//! is kept in memory beyond the ends of leases and jobs, and is gone when the server stops.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use spindle_core::JobId;

/// Bytes of output kept of one job; older output goes.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Bytes of one piece of output.
pub const OUTPUT_PIECE_BYTES_MAX: usize = 64 * 1024;
/// What a piece counts besides its bytes.
const PIECE_BYTES: usize = 64;
/// A page ends with the piece that reaches this many bytes.
const PAGE_BYTES: usize = 64 * 1024;

/// Something a worker wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputPiece {
    /// How many bytes of output the job had before it.
    pub offset: u64,
    /// When it came, by the engine's clock.
    pub at_ms: u64,
    /// The attempt that wrote it, from 1.
    pub attempt: u32,
    /// What it wrote.
    pub bytes: Bytes,
}

/// Something to keep.
#[derive(Debug)]
pub(crate) struct Written {
    pub at_ms: u64,
    pub attempt: u32,
    pub bytes: Bytes,
}

/// Where to begin to read a job's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFrom {
    /// At this offset: the first page of what is kept from there on.
    Offset(u64),
    /// At the piece that has the byte so many bytes before the end: all from there on. With 0 bytes
    /// there is nothing but the end's offset.
    End(usize),
}

/// Some of a job's output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputPage {
    /// In order. The first may begin behind the offset that was asked for: what lay between is not
    /// kept any more.
    pub pieces: Vec<OutputPiece>,
    /// The offset to go on from. It lies before the one that was asked for if that offset belongs
    /// to an earlier output: the server was started anew, or the output was dropped and began
    /// again.
    pub next: u64,
}

/// The output of all jobs that is kept.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    by_job: HashMap<JobId, Output>,
    /// Jobs with output, by when they wrote last.
    by_age: BTreeMap<u64, JobId>,
    /// Pieces ever written.
    writes: u64,
    /// What all of it counts.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Output {
    pieces: VecDeque<OutputPiece>,
    /// The offset behind the last piece.
    end: u64,
    /// What the pieces count.
    bytes: usize,
    /// The number of the last piece among those of all jobs.
    last_write: u64,
}

impl OutputPiece {
    /// The offset behind it.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Output {
    /// The pieces that begin at an offset or behind it, up to a page of them.
    fn page(&self, from: u64) -> OutputPage {
        let first = self.pieces.partition_point(|piece| piece.offset < from);
        let mut page = OutputPage { pieces: Vec::new(), next: from };
        let mut bytes = 0;
        for piece in self.pieces.range(first..) {
            if bytes >= PAGE_BYTES {
                break;
            }
            bytes += piece.bytes.len();
            page.next = piece.end();
            page.pieces.push(piece.clone());
        }
        page
    }

    /// The pieces that have the last bytes.
    fn tail(&self, bytes: usize) -> OutputPage {
        let from = self.end.saturating_sub(bytes as u64);
        let first = self.pieces.partition_point(|piece| piece.end() <= from);
        OutputPage { pieces: self.pieces.range(first..).cloned().collect(), next: self.end }
    }

    /// Lets the oldest pieces go until no more than `max` bytes are kept. Returns how many went.
    fn cut(&mut self, max: usize) -> usize {
        let before = self.bytes;
        while self.bytes > max
            && let Some(piece) = self.pieces.pop_front()
        {
            self.bytes -= counted(&piece.bytes);
        }
        before - self.bytes
    }
}

fn counted(bytes: &Bytes) -> usize {
    bytes.len() + PIECE_BYTES
}

impl Outputs {
    /// Keeps what a worker wrote: the newest [`OUTPUT_BYTES_MAX`] of a job, and `all_max` bytes of
    /// all jobs. To stay below `all_max`, the output of the jobs that wrote nothing for the longest
    /// time is dropped.
    pub fn add(&mut self, job: JobId, written: Written, all_max: usize) {
        self.writes += 1;
        let output = self.by_job.entry(job).or_default();
        self.by_age.remove(&output.last_write);
        self.by_age.insert(self.writes, job);
        output.last_write = self.writes;
        let offset = output.end;
        // A copy: the piece may be a small part of a large read.
        let Written { at_ms, attempt, bytes } = written;
        let bytes = Bytes::copy_from_slice(&bytes);
        output.end += bytes.len() as u64;
        output.bytes += counted(&bytes);
        self.bytes += counted(&bytes);
        output.pieces.push_back(OutputPiece { offset, at_ms, attempt, bytes });
        self.bytes -= output.cut(OUTPUT_BYTES_MAX);
        while self.bytes > all_max
            && let Some((_, oldest)) = self.by_age.first_key_value()
        {
            self.forget(*oldest);
        }
    }

    /// What a job's workers wrote, from there on.
    pub fn page(&self, job: JobId, from: OutputFrom) -> OutputPage {
        let Some(output) = self.by_job.get(&job) else { return OutputPage::default() };
        match from {
            OutputFrom::Offset(offset) => output.page(offset.min(output.end)),
            OutputFrom::End(bytes) => output.tail(bytes),
        }
    }

    /// The job is gone, and its output with it.
    pub fn forget(&mut self, job: JobId) {
        // Most jobs write nothing: then this is all it costs.
        if self.by_job.is_empty() {
            return;
        }
        let Some(output) = self.by_job.remove(&job) else { return };
        self.by_age.remove(&output.last_write);
        self.bytes -= output.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::OutputFrom::{End, Offset};
    use super::*;

    const ALL: usize = 1 << 20;

    fn written(text: &str) -> Written {
        Written { at_ms: 5, attempt: 1, bytes: Bytes::copy_from_slice(text.as_bytes()) }
    }

    fn write(outputs: &mut Outputs, job: u64, text: &str) {
        outputs.add(JobId(job), written(text), ALL);
    }

    fn texts(page: &OutputPage) -> Vec<&str> {
        page.pieces.iter().map(|piece| str::from_utf8(&piece.bytes).unwrap()).collect()
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended() {
        let mut outputs = Outputs::default();
        write(&mut outputs, 1, "one ");
        write(&mut outputs, 1, "two");
        let first = outputs.page(JobId(1), Offset(0));
        assert_eq!((texts(&first), first.next), (vec!["one ", "two"], 7));
        assert_eq!(outputs.page(JobId(1), Offset(7)), OutputPage { pieces: vec![], next: 7 });
        write(&mut outputs, 1, "!");
        let second = outputs.page(JobId(1), Offset(7));
        assert_eq!((texts(&second), second.next, second.pieces[0].offset), (vec!["!"], 8, 7));
        assert_eq!(outputs.page(JobId(2), Offset(7)), OutputPage::default());
    }

    #[test]
    fn an_offset_of_other_output_goes_back_to_the_end() {
        let mut outputs = Outputs::default();
        write(&mut outputs, 1, "new");
        assert_eq!(outputs.page(JobId(1), Offset(500)), OutputPage { pieces: vec![], next: 3 });
    }

    #[test]
    fn the_end_begins_with_the_piece_that_has_the_first_of_its_bytes() {
        let mut outputs = Outputs::default();
        for text in ["one", "two", "three"] {
            write(&mut outputs, 1, text);
        }
        for (bytes, expected) in [
            (0, &[][..]),
            (1, &["three"]),
            (5, &["three"]),
            (6, &["two", "three"]),
            (usize::MAX, &["one", "two", "three"]),
        ] {
            let page = outputs.page(JobId(1), End(bytes));
            assert_eq!((&texts(&page)[..], page.next), (expected, 11), "{bytes}");
        }
        assert_eq!(outputs.page(JobId(2), End(5)), OutputPage::default());
    }

    #[test]
    fn the_newest_of_a_job_is_kept() {
        let mut outputs = Outputs::default();
        let piece = "x".repeat(OUTPUT_PIECE_BYTES_MAX - PIECE_BYTES);
        for _ in 0..4 {
            write(&mut outputs, 1, &piece);
        }
        assert_eq!(outputs.page(JobId(1), Offset(0)).pieces[0].offset, 0);
        write(&mut outputs, 1, "y");
        let page = outputs.page(JobId(1), Offset(0));
        assert_eq!(page.pieces[0].offset, piece.len() as u64);
        assert!(outputs.bytes <= OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_page_is_bounded_and_none_is_empty_before_the_end() {
        let mut outputs = Outputs::default();
        let piece = "x".repeat(OUTPUT_PIECE_BYTES_MAX);
        for _ in 0..3 {
            write(&mut outputs, 1, &piece);
        }
        let page = outputs.page(JobId(1), Offset(0));
        assert_eq!((page.pieces.len(), page.next), (1, piece.len() as u64));
    }

    #[test]
    fn the_job_that_wrote_longest_ago_makes_room() {
        let mut outputs = Outputs::default();
        let text = "0123456789";
        let all_max = 2 * counted(&written(text).bytes);
        let mut write = |job| outputs.add(JobId(job), written(text), all_max);
        write(1);
        write(2);
        write(1);
        write(3);
        let kept = |outputs: &Outputs, job| !outputs.page(JobId(job), Offset(0)).pieces.is_empty();
        // Two pieces of the first job made room for the third's, after the second's was the oldest.
        assert_eq!([1, 2, 3].map(|job| kept(&outputs, job)), [false, false, true]);
        outputs.forget(JobId(3));
        assert_eq!((outputs.bytes, outputs.by_age.len(), outputs.by_job.len()), (0, 0, 0));
    }
}
