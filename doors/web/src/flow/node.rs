//! What is drawn as one node, and what is said of it.

use crate::html::{batch_path, cut, grouped};
use crate::query::Query;
use crate::shapes::{FlowNode, QueueName};

/// Of more jobs than these, a node links to their queue and status, not to each of them.
const LINKED_MAX: usize = 128;
/// Characters of a queue's name in the words of a node, and at least beside its number.
const TITLE_CHARS: usize = 60;
const QUEUE_CHARS_MIN: usize = 4;

/// Jobs that are alike, one job, or one batch.
pub(super) struct Node<'a> {
    /// By number; at least one.
    pub jobs: Vec<&'a FlowNode>,
}

impl Node<'_> {
    /// What is true of it is true of all.
    fn first(&self) -> &FlowNode {
        self.jobs[0]
    }

    /// Its least number: no other node has it.
    pub fn id(&self) -> u64 {
        self.first().id
    }

    pub fn is_batch(&self) -> bool {
        self.first().is_batch
    }

    pub fn status(&self) -> &str {
        &self.first().status
    }

    /// None of what is gone.
    pub fn queue(&self) -> Option<&QueueName> {
        (self.status() != "gone").then(|| &self.first().queue)
    }

    /// What it is called in the drawing: a job's number, a batch's, or how many jobs it is.
    pub fn name(&self) -> String {
        match self.jobs.len() {
            _ if self.is_batch() => format!("batch {}", self.id()),
            1 => self.id().to_string(),
            count => format!("{} ×", grouped(count as u64)),
        }
    }

    /// Its queue, cut to what is left of so many characters behind its name.
    pub fn queue_in(&self, chars: usize) -> String {
        let left = chars.saturating_sub(self.name().chars().count()).max(QUEUE_CHARS_MIN);
        self.queue().map(|queue| cut(&queue.shown(), left)).unwrap_or_default()
    }

    /// What it is, in words. `is_own`: the page is about it.
    pub fn title(&self, is_own: bool) -> String {
        let own = if is_own { ", this one" } else { "" };
        let word = if self.is_batch() { "Batch" } else { "Job" };
        let what = match self.jobs.len() {
            1 => format!("{word} {}{own}, {}", self.id(), self.status()),
            count => format!("{} jobs, {}", grouped(count as u64), self.status()),
        };
        match self.queue() {
            Some(queue) => format!("{what}, in {}", cut(&queue.shown(), TITLE_CHARS)),
            None => what,
        }
    }

    /// Where it leads. Nowhere: what is gone has no page.
    pub fn link(&self) -> Option<String> {
        let (field, queue) = self.queue()?.field();
        Some(match self.jobs.len() {
            1 if self.is_batch() => batch_path(self.id()),
            1 => format!("/jobs/{}", self.id()),
            2..=LINKED_MAX => {
                let ids: Vec<String> = self.jobs.iter().map(|job| job.id.to_string()).collect();
                format!("/jobs?ids={}", ids.join(","))
            }
            _ => Query::new().with(field, &queue).with("status", self.status()).to("/jobs"),
        })
    }
}
