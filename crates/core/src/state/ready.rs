//! A queue in memory: its jobs by status, and its ready jobs in groups.
//!
//! Ready jobs of equal labels and size class form a group, ordered by priority and age. Only the
//! groups' heads compete for a lease, and a group whose bucket is exhausted leaves the contest and
//! waits at that bucket: so a lease never scans.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::finished::FinishedOfQueue;
use super::live::LiveJob;
use super::numbered::Numbered;
use super::ordered_list::OrderedList;
use crate::job::{Label, Status};
use crate::queue::QueueSettings;

/// 0 for priorities above 0, 1 for 0, 2 for those below.
pub(crate) fn priority_class(priority: i64) -> usize {
    (1 - priority.signum()) as usize
}

/// Groups by the key of their first job, the best first.
pub(crate) type Heads = BTreeSet<(u128, u32)>;

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
    /// The first two are the groups without labels: small and large payloads.
    pub(crate) groups: Numbered<Group>,
    pub(crate) by_labels: BTreeMap<(Vec<Label>, bool), u32>,
    /// Heads of groups that are not held back: small and large payloads apart.
    pub(crate) heads: [Heads; 2],
    /// Scheduled jobs by time, for lists.
    pub(crate) scheduled: OrderedList,
    /// Finished jobs.
    pub(crate) finished: FinishedOfQueue,
}

/// Ready jobs of equal labels and size class, of which the first competes for all.
#[derive(Debug, Clone, Default)]
pub struct Group {
    pub(crate) labels: Vec<Label>,
    pub(crate) large: bool,
    pub(crate) ready: OrderedList,
    /// The key it competes or waits under.
    pub(crate) head: Option<u128>,
    /// The bucket that holds it back.
    pub(crate) blocked_by: Option<Label>,
    /// It competes on behalf of all groups that wait at this bucket.
    pub(crate) probes: Option<Label>,
    /// The number of its first job, while that is still to be matched: the group does not compete.
    pub(crate) unmatched_head: Option<u64>,
}

impl Queue {
    /// How many groups it has: the two without labels are always there.
    pub(crate) fn groups_count(&self) -> usize {
        2 + self.by_labels.len()
    }

    pub(crate) fn new(name: Bytes) -> Queue {
        let mut groups = Numbered::default();
        groups.insert(Group::default());
        groups.insert(Group { large: true, ..Group::default() });
        Queue {
            name,
            settings: QueueSettings::default(),
            settings_record: None,
            counts: [0; Status::ALL.len()],
            deleted: 0,
            waiting: [0; 3],
            payload_bytes: 0,
            groups,
            by_labels: BTreeMap::new(),
            heads: [Heads::new(), Heads::new()],
            scheduled: OrderedList::default(),
            finished: FinishedOfQueue::default(),
        }
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

    /// The group for these labels, made if it is not there.
    pub(crate) fn group_for(&mut self, labels: &[Label], large: bool) -> u32 {
        self.find_group(labels, large).unwrap_or_else(|| {
            let group = Group { labels: labels.to_vec(), large, ..Group::default() };
            let number = self.groups.insert(group);
            self.by_labels.insert((labels.to_vec(), large), number);
            number
        })
    }

    pub(crate) fn find_group(&self, labels: &[Label], large: bool) -> Option<u32> {
        if labels.is_empty() {
            return Some(u32::from(large));
        }
        self.by_labels.get(&(labels.to_vec(), large)).copied()
    }

    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.find(number)
    }

    /// A group, and the heads it competes with.
    pub(crate) fn group_and_lane(&mut self, number: u32) -> Option<(&mut Group, &mut Heads)> {
        let group = self.groups.find_mut(number)?;
        let lane = &mut self.heads[usize::from(group.large)];
        Some((group, lane))
    }

    /// Forgets an empty group with labels.
    pub(crate) fn drop_group(&mut self, number: u32) {
        let group = (number >= 2).then(|| self.groups.remove(number)).flatten();
        if let Some(group) = group {
            self.by_labels.remove(&(group.labels, group.large));
        }
    }
}
