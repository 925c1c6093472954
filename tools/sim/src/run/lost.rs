//! Files that lose something while no server runs, besides payloads: the oldest segment, the newest one, the
//! last record. Tried on copies of the disk, so that the run goes on with the whole one.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_log::copy::segment_file;
use spindle_log::disk::Disk;
use spindle_log::{FileLog, Log, OpenError, Position};
use spindle_testkit::disk::SimDisk;

use super::{Judged, Run};

/// One of so many starts is tried with less than all files first.
const EVERY: u32 = 8;

/// What may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Oldest,
    Newest,
    Last,
}

/// The folder before a start, and what is to be taken from it.
pub(super) struct Copy {
    disk: SimDisk,
    loss: Loss,
    /// The log was stopped in order, and nothing came after that.
    ended: bool,
}

/// What decides which starts are tried. Apart from the run's, so that it changes nothing else.
pub(super) fn draws(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed ^ 0x10_57)
}

/// All records of a log, with their positions.
type Records = Vec<(u64, bytes::Bytes)>;

fn records(log: &FileLog) -> Judged<Records> {
    let unread = |error| format!("a copy of the log cannot be read: {error}");
    let stored = log.read(log.first()).map_err(unread)?;
    stored.map(|one| one.map(|one| (one.position.0, one.bytes)).map_err(unread)).collect()
}

fn files(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.contents(&name))).collect()
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
        let losses = [Loss::Oldest, Loss::Newest, Loss::Last];
        let loss = losses[self.losses.random_range(0..losses.len())];
        let tried = self.losses.random_ratio(1, EVERY) || ended && self.losses.random_ratio(1, 3);
        tried.then(|| Copy { disk: self.server.disk.copy(), loss, ended })
    }

    /// What a start makes of the copy with something lost: `log` is what it made of the whole.
    pub(super) fn judge_loss(&mut self, copy: &Copy, log: &FileLog) -> Judged {
        let whole = records(log)?;
        let newest = newest_segment(&copy.disk).ok_or("a log without a segment")?;
        match copy.loss {
            Loss::Oldest => self.lose_segment(copy, &segment_file(log.first()), &whole),
            Loss::Newest => self.lose_segment(copy, &newest, &whole),
            Loss::Last => self.lose_last(copy, &newest, &whole),
        }
        .map_err(|why| {
            format!("{:?} lost (newest {newest}), ended in order: {}: {why}", copy.loss, copy.ended)
        })
    }

    /// The folder is refused, and left as it is, unless the segment had no record. With the segment it has all.
    fn lose_segment(&mut self, copy: &Copy, name: &str, whole: &Records) -> Judged {
        let disk = copy.disk.copy();
        let Some(contents) = disk.contents(name) else { return Err(format!("there is no {name}")) };
        let first = first_of(name).ok_or_else(|| format!("{name} names no position"))?;
        disk.remove(name).and_then(|()| disk.sync_folder()).map_err(|error| error.to_string())?;
        let before = files(&disk);
        match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { position, .. }) if position == Position(first) => {}
            // A rotten record that was proven by the lost ones behind it is taken for the end.
            Err(OpenError::Corrupt { position, .. })
                if position < Position(first) && copy.loss == Loss::Newest => {}
            Ok(log) if records(&log)? == *whole && !copy.ended && copy.loss == Loss::Newest => {
                return Ok(());
            }
            Ok(log) => {
                let left = records(&log)?.len();
                return Err(format!("the log opens with {left} of {} records", whole.len()));
            }
            Err(error) => return Err(error.to_string()),
        }
        if files(&disk) != before {
            return Err("the refused folder was changed".into());
        }
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
        Ok(())
    }

    /// After an orderly stop the folder is refused. After a crash nobody may know that the record was whole.
    fn lose_last(&mut self, copy: &Copy, newest: &str, whole: &Records) -> Judged {
        let end = self.server.disk.contents(newest).unwrap_or_default();
        let Some((last, left)) = whole.split_last() else { return Ok(()) };
        let Some(at) = end.iter().rposition(|byte| *byte != 0) else { return Ok(()) };
        // A segment without records may be the newest.
        if first_of(newest).is_none_or(|first| first > last.0) {
            return Ok(());
        }
        let disk = copy.disk.copy();
        disk.flip_bit(newest, at, self.losses.random_range(0..8));
        match self.server.open_log_on(&disk) {
            Err(OpenError::Corrupt { position, .. }) if position == Position(last.0) => {
                self.counts.lost_last += u64::from(copy.ended);
                Ok(())
            }
            Ok(log) if !copy.ended && records(&log)? == left => {
                self.counts.lost_last_cut += 1;
                Ok(())
            }
            Ok(_) => Err("the log opens with other records than those before it".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}
