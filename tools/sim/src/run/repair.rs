//! `spindle verify --repair` on folders that a start refuses: it cuts the log before the damage, keeps all files as they
//! were, and lists what it drops. Then a server starts on what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use rand::Rng;
use spindle_core::{JobId, State};
use spindle_log::Position;
use spindle_log::verify::Dropped;
use spindle_testkit::disk::SimDisk;

use super::lost::{Records, files, records};
use super::{Judged, Run};
use crate::model::Model;

/// One of this many repairs is first interrupted by a power cut.
const CUT_EVERY: u32 = 3;
/// About as many operations as a repair has.
const OPERATIONS: u64 = 16;

/// A folder that a start refuses.
pub(super) struct Refused {
    pub disk: SimDisk,
    /// The first record that is damaged or missing.
    pub at: Position,
    /// Records of which nothing can be read.
    pub lost: Range<u64>,
}

/// Records in a row.
type Part<'a> = &'a [(u64, Bytes)];

/// The report of a repair.
#[derive(Default, PartialEq)]
struct Said {
    finished: bool,
    kept: Records,
    dropped: BTreeMap<u64, Bytes>,
    unreadable: Vec<Range<u64>>,
}

impl Said {
    fn is_unreadable(&self, position: u64) -> bool {
        self.unreadable.iter().any(|range| range.contains(&position))
    }
}

impl Run {
    /// `whole` is what the folder had before the damage, and `model` the state of that.
    pub(super) fn judge_repair(
        &mut self,
        refused: &Refused,
        whole: &Records,
        model: &Model,
    ) -> Judged {
        let at = whole.partition_point(|(position, _)| *position < refused.at.0);
        let (kept, dropped) = whole.split_at(at);
        // Durable, so that a power cut can only take changes of the repair.
        let disk = SimDisk::new(self.losses.random());
        let before: Vec<(String, Vec<u8>)> = files(&refused.disk)
            .into_iter()
            .filter_map(|(name, contents)| Some((name, contents?)))
            .collect();
        before.iter().for_each(|(name, contents)| disk.put(name, contents.clone()));
        let said = self.repair(&disk).map_err(|why| format!("a repair: {why}"))?;
        if said.kept != kept {
            return Err(format!("a repair keeps {} of {at} records", said.kept.len()));
        }
        self.judge_listing(&said, dropped, &refused.lost)?;
        let after = files(&disk);
        let is_kept = |(name, contents): &&(String, Vec<u8>)| {
            let is_log = name.ends_with(".segment") || name == "bounds";
            let own = format!("/{name}");
            let same = |(other, now): &(String, Option<Vec<u8>>)| {
                (other == name || other.ends_with(&own)) && now.as_ref() == Some(contents)
            };
            !is_log || after.iter().any(same)
        };
        if let Some((lost, _)) = before.iter().find(|file| !is_kept(file)) {
            return Err(format!("a repair keeps {lost} nowhere"));
        }
        self.judge_repaired(&disk, refused.at.0, (kept, dropped), model)?;
        self.counts.repairs += 1;
        Ok(())
    }

    /// Repairs, perhaps in two attempts. Until a server starts, what it has dropped is listed again.
    fn repair(&mut self, disk: &SimDisk) -> Judged<Said> {
        if self.losses.random_ratio(1, CUT_EVERY) {
            disk.cut_power_after(self.losses.random_range(0..OPERATIONS));
            self.repair_once(disk)?;
            self.counts.repairs_cut += u64::from(!disk.is_powered());
            disk.crash();
        }
        let said = self.repair_once(disk)?;
        if !said.finished {
            return Err("it does not come to an end".into());
        }
        if self.repair_once(disk)? != said {
            return Err("when it is run again it lists something else".into());
        }
        Ok(said)
    }

    fn repair_once(&self, disk: &SimDisk) -> Judged<Said> {
        let mut said = Said::default();
        let (kept, dropped) = (&mut said.kept, &mut said.dropped);
        let unreadable = &mut said.unreadable;
        let report = self.server.repair_on(
            disk,
            &mut |stored| kept.push((stored.position.0, stored.bytes)),
            &mut |one| match one {
                Dropped::Record { stored, .. } => {
                    dropped.insert(stored.position.0, stored.bytes);
                }
                Dropped::Unreadable { from, to } => {
                    unreadable.push(from.0..to.map_or(u64::MAX, |to| to.0));
                }
            },
        );
        match report.failure {
            Some(_) if !disk.is_powered() => Ok(said),
            Some(error) => Err(error.to_string()),
            None if report.repair.is_none() && report.damage.is_some() => {
                Err("it left the damage as it is".into())
            }
            None => Ok(Said { finished: disk.is_powered(), ..said }),
        }
    }

    /// Each dropped record must be listed, with its bytes or as unreadable, and no other.
    fn judge_listing(&self, said: &Said, dropped: Part<'_>, lost: &Range<u64>) -> Judged {
        for (position, bytes) in dropped {
            let may_be_lost = lost.contains(position) || self.has_rotten(*position);
            match said.dropped.get(position) {
                Some(listed) if listed == bytes => {}
                Some(_) => return Err(format!("record {position} is listed as another one")),
                None if may_be_lost && said.is_unreadable(*position) => {}
                // It is unknown how many there were at the end.
                None if may_be_lost && said.dropped.range(position..).next().is_none() => {}
                None => return Err(format!("record {position} is dropped, and not listed")),
            }
            if said.is_unreadable(*position) && !may_be_lost {
                return Err(format!("record {position} is listed as one that cannot be read"));
            }
        }
        let first = dropped.first().map_or(u64::MAX, |(position, _)| *position);
        match said.dropped.keys().find(|position| **position < first) {
            Some(position) => Err(format!("record {position} stays, and is listed as dropped")),
            None => Ok(()),
        }
    }

    /// A server starts on what is left. It must have what the model had then, and a job may differ
    /// only if it is in a dropped record.
    fn judge_repaired(
        &mut self,
        disk: &SimDisk,
        at: u64,
        (kept, dropped): (Part<'_>, Part<'_>),
        model: &Model,
    ) -> Judged {
        let log = self.server.open_log_on(disk);
        let log = log.map_err(|error| format!("after a repair: {error}"))?;
        if disk.names().iter().any(|name| name.ends_with(".begun")) {
            return Err("after a start a repair still counts as begun".into());
        }
        if records(&log)? != kept {
            return Err("after a repair the log has other records than it kept".into());
        }
        let state: State = self.server.fold_of(&log)?;
        if let Some(then) = self.history.at(at) {
            then.judge(&state, self.server.now_ms())
                .map_err(|why| format!("after a repair at {at}, {why}"))?;
            self.counts.repairs_compared += 1;
        }
        let mut dropped_jobs: BTreeSet<JobId> = BTreeSet::new();
        for (position, bytes) in dropped {
            dropped_jobs.extend(self.server.jobs_of(*position, bytes)?);
        }
        let left = state.jobs_from(JobId(0)).map(|found| found.id());
        let all: BTreeSet<JobId> = left.chain(model.jobs().map(|job| JobId(job.id))).collect();
        for id in all.difference(&dropped_jobs) {
            let same = model.compare_job(*id, &state);
            same.map_err(|why| format!("a repair at {at} changes more than it lists: {why}"))?;
        }
        self.server.starts_on(log).map_err(|why| format!("after a repair at {at}, {why}"))
    }
}
