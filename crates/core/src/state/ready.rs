//! A queue in memory: its jobs by status, and its ready jobs in groups.
//!
//! Ready jobs of equal labels and size class form a group, ordered by priority and age; in a fair
//! queue their key is the same, too. Only the groups' heads compete for a lease, and a group whose
//! bucket is exhausted leaves the contest and waits at that bucket: so a lease never scans.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::finished::FinishedOfQueue;
use super::live::LiveJob;
use super::numbered::Numbered;
use super::ordered_list::OrderedList;
use super::ready_list::ReadyList;
use super::shares::{Discipline, Share, Turn};
use crate::job::{Label, Status};
use crate::queue::QueueSettings;

/// 0 for priorities above 0, 1 for 0, 2 for those below.
pub(crate) fn priority_class(priority: i64) -> usize {
    (1 - priority.signum()) as usize
}

/// One queue.
#[derive(Debug, Clone)]
pub struct Queue {
    pub(crate) name: Bytes,
    pub(crate) settings: QueueSettings,
    /// The record that has the settings.
    pub(crate) settings_record: Option<u64>,
    pub(crate) counts: [usize; Status::ALL.len()],
    /// Jobs that are deleted while that can be undone, finished ones included.
    pub(crate) deleted: usize,
    /// Scheduled and ready jobs by [`priority_class`].
    pub(crate) waiting: [usize; 3],
    /// Bytes of the payloads of unfinished jobs.
    pub(crate) payload_bytes: u64,
    pub(crate) groups: Numbered<Box<Group>>,
    /// Groups with labels, by their share.
    pub(super) by_labels: BTreeMap<(u32, Vec<Label>, bool), u32>,
    pub(super) shares: Numbered<Box<Share>>,
    /// How jobs that become ready are ordered.
    pub(super) discipline: Discipline,
    /// How the other ready jobs were ordered when they became ready, oldest first.
    pub(super) earlier: Vec<Discipline>,
    /// Counts the disciplines so far.
    pub(super) disciplines: u64,
    /// The share of a job that is being changed.
    pub(super) pinned: Option<u32>,
    /// Scheduled jobs by time, for lists.
    pub(crate) scheduled: OrderedList,
    /// Finished jobs.
    pub(crate) finished: FinishedOfQueue,
}

/// A group that waits at a bucket: the place of its share, the key of its first job, its number.
pub(crate) type Waiting = (Turn, u128, u32);

/// Ready jobs of equal labels and size class, of which the first competes for all.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// The share it is a part of.
    pub(crate) share: u32,
    /// As its discipline says.
    pub(crate) aging_ms: u64,
    pub(crate) labels: Vec<Label>,
    pub(crate) large: bool,
    pub(crate) ready: ReadyList,
    /// The key it competes or waits under.
    pub(crate) head: Option<u128>,
    /// The bucket that holds it back.
    pub(crate) blocked_by: Option<Label>,
    /// The place of its share under which it waits there.
    pub(super) waits_under: Turn,
    /// It competes on behalf of all groups that wait at this bucket.
    pub(crate) probes: Option<Label>,
    /// The number of its first job, while that is still to be matched: the group does not compete.
    pub(crate) unmatched_head: Option<u64>,
}

impl Group {
    /// Its entry at the bucket that holds it back.
    pub(super) fn waiting(&self, number: u32) -> Option<Waiting> {
        self.head.map(|head| (self.waits_under, head, number))
    }
}

impl Queue {
    /// How many groups it has.
    pub(crate) fn groups_count(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn new(name: Bytes) -> Queue {
        // Replaced below, where the queue is there to open one.
        let nothing = Discipline { number: 0, aging_ms: 0, ready: 0, shared: 0, turns: None };
        let mut queue = Queue {
            name,
            settings: QueueSettings::default(),
            settings_record: None,
            counts: [0; Status::ALL.len()],
            deleted: 0,
            waiting: [0; 3],
            payload_bytes: 0,
            groups: Numbered::default(),
            by_labels: BTreeMap::new(),
            shares: Numbered::default(),
            discipline: nothing,
            earlier: Vec::new(),
            disciplines: 0,
            pinned: None,
            scheduled: OrderedList::default(),
            finished: FinishedOfQueue::default(),
        };
        queue.discipline = queue.open_discipline(0, false);
        queue
    }

    /// Its name.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// What was set for it.
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Jobs of this status.
    pub fn count(&self, status: Status) -> usize {
        self.counts[status as usize]
    }

    /// Jobs that are deleted while that can be undone: they are among the parked, done and dead.
    pub fn deleted(&self) -> usize {
        self.deleted
    }

    /// Scheduled and ready jobs with a priority above 0, of 0, and below 0.
    pub fn waiting(&self) -> [usize; 3] {
        self.waiting
    }

    /// Bytes of the payloads of its unfinished jobs.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Counts an unfinished job that has come, or one that leaves.
    pub(crate) fn count_one(&mut self, job: &LiveJob, comes: bool) {
        let (status, priority, bytes) = (job.status(), job.priority(), u64::from(job.payload_len));
        let count = |sum: &mut usize| *sum = if comes { *sum + 1 } else { *sum - 1 };
        self.payload_bytes =
            if comes { self.payload_bytes + bytes } else { self.payload_bytes - bytes };
        count(&mut self.counts[status as usize]);
        if job.deletion().is_some() {
            count(&mut self.deleted);
        }
        if matches!(status, Status::Scheduled | Status::Ready) {
            count(&mut self.waiting[priority_class(priority)]);
        }
    }

    /// Jobs that are neither done nor dead.
    pub fn unfinished(&self) -> usize {
        Status::ALL.iter().filter(|status| !status.is_finished()).map(|s| self.count(*s)).sum()
    }

    /// Finished jobs above the queue's own cap.
    pub(crate) fn surplus(&self) -> u64 {
        let max = self.settings.finished_max.unwrap_or(u64::MAX);
        (self.finished.len() as u64).saturating_sub(max)
    }

    pub(crate) fn is_forgettable(&self) -> bool {
        self.counts.iter().all(|count| *count == 0) && self.settings_record.is_none()
    }

    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.find(number).map(AsRef::as_ref)
    }
}
