//! Files that lose something while no server runs: the oldest segment, the newest one, the last record, a bit of one in
//! the middle or of a segment's header, the file `bounds`. This is tried on copies of the disk, so
//! that the run goes on with the undamaged one.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_log::copy::segment_file;
use spindle_log::disk::Disk;
use spindle_log::{FileLog, Log, OpenError, Position};
use spindle_testkit::disk::SimDisk;

use super::repair::Refused;
use super::{Judged, Run};
use crate::model::Model;

/// One of this many starts is first tried with damaged or missing files.
const EVERY: u32 = 8;

/// What a segment begins with (`crates/log/src/frame.rs`).
const SEGMENT_HEADER_BYTES: usize = 64;

/// The header of a frame: checksums, length, epoch, and from byte 8 on its position. The record and
/// zeros follow.
const FRAME_HEADER_BYTES: usize = 40;

/// The alignment of frames.
const FRAME_ALIGN: usize = 8;

/// Where a segment has its flags; the lowest says that its folder has the file `bounds`.
const FLAGS_AT: usize = 28;

/// What may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Oldest,
    Newest,
    Last,
    Inside,
    Header,
    Bounds,
}

/// The folder before a start, and what is to be taken from it.
pub(super) struct Copy {
    disk: SimDisk,
    loss: Loss,
    /// The log was stopped in order, and nothing came after that.
    ended: bool,
}

/// The generator that decides which starts are tried, separate from the run's so that it changes
/// nothing else.
pub(super) fn draws(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed ^ 0x10_57)
}

/// All records of a log, with their positions.
pub(super) type Records = Vec<(u64, bytes::Bytes)>;

pub(super) fn records(log: &FileLog) -> Judged<Records> {
    let unread = |error| format!("a copy of the log cannot be read: {error}");
    let stored = log.read(log.first()).map_err(unread)?;
    stored.map(|one| one.map(|one| (one.position.0, one.bytes)).map_err(unread)).collect()
}

pub(super) fn files(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.contents(&name))).collect()
}

/// Checks that the log has the records that were written. The one with a damaged byte, if there is
/// one, differs in nothing else and is reported as damaged.
fn judge_shown(log: &FileLog, whole: &Records, damaged: Option<(u64, usize)>) -> Judged {
    let unread = |error| format!("it cannot be read: {error}");
    let mut written = whole.iter();
    for stored in log.read(log.first()).map_err(unread)? {
        let stored = stored.map_err(unread)?;
        let Some((position, bytes)) = written.next() else {
            return Err("the log has more records".into());
        };
        if stored.position.0 != *position {
            return Err(format!("record {position} is at {}", stored.position));
        }
        let differing = stored.bytes.iter().zip(bytes).enumerate();
        let mut differing = differing.filter(|(_, (is, was))| is != was).map(|(at, _)| at);
        let byte = damaged.filter(|(at, _)| at == position).map(|(_, byte)| byte);
        let is_as_hit = differing.next() == byte && differing.next().is_none();
        if !is_as_hit || stored.bytes.len() != bytes.len() || (byte.is_some() && !stored.damaged) {
            return Err(format!("the log shows record {position} as another one"));
        }
    }
    if written.next().is_some() { Err("the log has fewer records".into()) } else { Ok(()) }
}

fn newest_segment(disk: &SimDisk) -> Option<String> {
    disk.names().into_iter().filter(|name| name.ends_with(".segment")).max()
}

fn first_of(segment: &str) -> Option<u64> {
    segment.strip_suffix(".segment")?.parse().ok()
}

impl Run {
    /// The folder as it is now, if the start to come is one of those to be tried.
    pub(super) fn copy_before_start(&mut self, ended: bool) -> Option<Copy> {
        if self.server.is_in_flight() {
            return None;
        }
        let losses =
            [Loss::Oldest, Loss::Newest, Loss::Last, Loss::Inside, Loss::Header, Loss::Bounds];
        let loss = losses[self.losses.random_range(0..losses.len())];
        let tried = self.losses.random_ratio(1, EVERY) || ended && self.losses.random_ratio(1, 3);
        tried.then(|| Copy { disk: self.server.disk.copy(), loss, ended })
    }

    /// Judges what a start and a repair make of the damaged copy: `log` is what a start made of the
    /// undamaged folder, and `model` its content.
    pub(super) fn judge_loss(&mut self, copy: &Copy, log: &FileLog, model: &Model) -> Judged {
        let whole = records(log)?;
        let newest = newest_segment(&copy.disk).ok_or("a log without a segment")?;
        match copy.loss {
            Loss::Oldest => self.lose_segment(copy, &segment_file(log.first()), &whole),
            Loss::Newest => self.lose_segment(copy, &newest, &whole),
            Loss::Last => self.lose_last(copy, &newest, &whole),
            Loss::Inside => self.damage_inside(copy, log, &whole),
            Loss::Header => self.damage_header(copy, log.first()),
            Loss::Bounds => self.lose_bounds(copy, &whole).map(|()| None),
        }
        .and_then(|refused| {
            refused.map_or(Ok(()), |refused| self.judge_repair(&refused, &whole, model))
        })
        .map_err(|why| {
            format!("{:?} lost (newest {newest}), ended in order: {}: {why}", copy.loss, copy.ended)
        })
    }

    /// The folder must be refused and left unchanged, unless the segment had no record. With the
    /// segment back, it must have everything.
    fn lose_segment(
        &mut self,
        copy: &Copy,
        name: &str,
        whole: &Records,
    ) -> Judged<Option<Refused>> {
        let disk = copy.disk.copy();
        let Some(contents) = disk.contents(name) else { return Err(format!("there is no {name}")) };
        let first = first_of(name).ok_or_else(|| format!("{name} names no position"))?;
        disk.remove(name).and_then(|()| disk.sync_folder()).map_err(|error| error.to_string())?;
        let before = files(&disk);
        let at = match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { position, .. }) if position == Position(first) => position,
            // A rotten record that was proven by the lost ones behind it is taken for the end.
            Err(OpenError::Corrupt { position, .. })
                if position < Position(first) && copy.loss == Loss::Newest =>
            {
                position
            }
            Ok(log) if records(&log)? == *whole && !copy.ended && copy.loss == Loss::Newest => {
                return Ok(None);
            }
            Ok(log) => {
                let left = records(&log)?.len();
                return Err(format!("the log opens with {left} of {} records", whole.len()));
            }
            Err(error) => return Err(error.to_string()),
        };
        if files(&disk) != before {
            return Err("the refused folder was changed".into());
        }
        let refused = disk.copy();
        disk.put(name, contents);
        let log = self.server.open_log_on(&disk);
        let log = log.map_err(|error| format!("with the segment brought back: {error}"))?;
        if records(&log)? != *whole {
            return Err("with the segment brought back, the log is another one".into());
        }
        *match copy.loss {
            Loss::Oldest => &mut self.counts.lost_oldest,
            _ if copy.ended => &mut self.counts.lost_newest,
            _ => &mut self.counts.lost_newest_crashed,
        } += 1;
        let next = disk.names().into_iter().filter_map(|other| first_of(&other));
        let until = next.filter(|other| *other > first).min().unwrap_or(u64::MAX);
        Ok(Some(Refused { disk: refused, at, lost: first..until }))
    }

    /// After an orderly stop the folder must be refused. After a crash it may be impossible to know
    /// that the record was whole.
    fn lose_last(&mut self, copy: &Copy, newest: &str, whole: &Records) -> Judged<Option<Refused>> {
        let end = self.server.disk.contents(newest).unwrap_or_default();
        let Some((last, left)) = whole.split_last() else { return Ok(None) };
        let Some(at) = end.iter().rposition(|byte| *byte != 0) else { return Ok(None) };
        // A segment without records may be the newest.
        if first_of(newest).is_none_or(|first| first > last.0) {
            return Ok(None);
        }
        let disk = copy.disk.copy();
        disk.flip_bit(newest, at, self.losses.random_range(0..8));
        match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { position, .. }) if position == Position(last.0) => {
                self.counts.lost_last += u64::from(copy.ended);
                Ok(Some(Refused { disk, at: position, lost: last.0..last.0 + 1 }))
            }
            Ok(log) if !copy.ended && records(&log)? == left => {
                self.counts.lost_last_cut += 1;
                Ok(None)
            }
            Ok(_) => Err("the log opens with other records than those before it".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A record of a segment that was ended has been durable: the folder is refused, whichever bit of its frame is
    /// wrong. Damage only in a payload costs that payload; the zeros after a record belong to
    /// nothing.
    fn damage_inside(
        &mut self,
        copy: &Copy,
        log: &FileLog,
        whole: &Records,
    ) -> Judged<Option<Refused>> {
        let is_closed = |at: &u64| log.segment_end_before(Position(*at)).is_some();
        let closed = whole.partition_point(|(at, _)| is_closed(at));
        if closed == 0 {
            return Ok(None);
        }
        let (position, bytes) = &whole[self.losses.random_range(0..closed)];
        // One more wrong bit in a rotten payload shows nothing new, and the same bit would repair
        // it.
        if self.has_rotten(*position) {
            return Ok(None);
        }
        let disk = copy.disk.copy();
        let segments = disk.names().into_iter().filter(|name| name.ends_with(".segment"));
        let holder = segments.filter(|name| first_of(name).is_some_and(|first| first <= *position));
        let name = holder.max().ok_or("no segment has the record")?;
        let contents = disk.contents(&name).unwrap_or_default();
        // Other records may have the same bytes.
        let is_frame = |at: &usize| {
            let frame = at.checked_sub(FRAME_HEADER_BYTES).map(|frame| &contents[frame..]);
            frame.is_some_and(|frame| {
                frame[8..16] == position.to_le_bytes()
                    && frame[FRAME_HEADER_BYTES..].starts_with(bytes)
            })
        };
        let Some(at) = (0..contents.len()).step_by(8).find(is_frame) else { return Ok(None) };
        let frame_bytes = (FRAME_HEADER_BYTES + bytes.len()).next_multiple_of(FRAME_ALIGN);
        // Most of a long frame is payload: half of them are hit in their header.
        let among = if self.losses.random_ratio(1, 2) { FRAME_HEADER_BYTES } else { frame_bytes };
        let byte = self.losses.random_range(0..among);
        disk.flip_bit(&name, at - FRAME_HEADER_BYTES + byte, self.losses.random_range(0..8));
        let of_record = byte.checked_sub(FRAME_HEADER_BYTES);
        match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { position: at, .. }) if at == Position(*position) => {
                self.counts.damaged_inside += 1;
                self.counts.damaged_frame_headers += u64::from(of_record.is_none());
                Ok(Some(Refused { disk, at, lost: *position..*position + 1 }))
            }
            Ok(log) if of_record.is_some() => {
                let of_record = of_record.filter(|byte| *byte < bytes.len());
                self.counts.damaged_payloads += u64::from(of_record.is_some());
                judge_shown(&log, whole, of_record.map(|byte| (*position, byte)))
                    .map_err(|why| format!("with byte {byte} of record {position} damaged, {why}"))
                    .map(|()| None)
            }
            Err(error) => Err(format!("with byte {byte} of record {position} damaged: {error}")),
            Ok(_) => Err(format!("the log opens with byte {byte} of record {position} damaged")),
        }
    }

    /// No bit of a segment's header may be another one: the folder is refused, and left as it is.
    fn damage_header(&mut self, copy: &Copy, begin: Position) -> Judged<Option<Refused>> {
        let disk = copy.disk.copy();
        let names = disk.names().into_iter().filter(|name| name.ends_with(".segment"));
        let mut firsts: Vec<(u64, String)> =
            names.filter_map(|name| Some((first_of(&name)?, name))).collect();
        // Segments that a crash left of a trim do not count.
        firsts.retain(|(first, _)| *first >= begin.0);
        firsts.sort();
        let hit = self.losses.random_range(0..firsts.len());
        let (first, name) = &firsts[hit];
        let until = firsts.get(hit + 1).map_or(u64::MAX, |(next, _)| *next);
        let byte = self.losses.random_range(0..SEGMENT_HEADER_BYTES);
        disk.flip_bit(name, byte, self.losses.random_range(0..8));
        let before = files(&disk);
        let at = match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { position, .. }) if position == Position(*first) => position,
            Err(error) => return Err(format!("with byte {byte} of {name} damaged: {error}")),
            Ok(_) => return Err(format!("the log opens with byte {byte} of {name} damaged")),
        };
        if files(&disk) != before {
            return Err("the refused folder was changed".into());
        }
        self.counts.damaged_headers += 1;
        Ok(Some(Refused { disk, at, lost: *first..until }))
    }

    /// A folder whose segments say that it has bounds is refused without them. Another one is of an older release: it
    /// opens with all that it has, and gets its bounds.
    fn lose_bounds(&mut self, copy: &Copy, whole: &Records) -> Judged {
        let disk = copy.disk.copy();
        if disk.contents("bounds").is_none() {
            return Ok(());
        }
        // On a full disk a log does without.
        disk.set_capacity(None);
        disk.remove("bounds")
            .and_then(|()| disk.sync_folder())
            .map_err(|error| error.to_string())?;
        let segments = disk.names().into_iter().filter(|name| name.ends_with(".segment"));
        let says = |name: &String| {
            disk.contents(name)
                .is_some_and(|bytes| bytes.get(FLAGS_AT).is_some_and(|it| it & 1 != 0))
        };
        let keeps_bounds = segments.collect::<Vec<_>>().iter().any(says);
        match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { .. }) if keeps_bounds => {}
            // Segments that a crash left of a trim count again: only the bounds said that they were
            // dropped.
            Ok(log) if !keeps_bounds && records(&log)?.ends_with(whole) => {
                if disk.contents("bounds").is_none() {
                    return Err("no bounds were made again".into());
                }
            }
            Ok(_) => return Err("the log opens with other records, or without its bounds".into()),
            Err(error) => return Err(error.to_string()),
        }
        self.counts.lost_bounds += 1;
        Ok(())
    }
}
