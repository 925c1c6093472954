//! A node of the drawing, and the texts that describe it.

use crate::html::{batch_path, cut, grouped};
use crate::query::Query;
use crate::shapes::{FlowNode, QueueName};

/// A node with more jobs than this links to their queue and status instead of to each of them.
const LINKED_MAX: usize = 128;
/// How many characters of a queue's name are in a node's title, and how many at least are beside
/// its number.
const TITLE_CHARS: usize = 60;
const QUEUE_CHARS_MIN: usize = 4;

/// Jobs that are alike, one job, or one batch.
pub(super) struct Node<'a> {
    /// By number; at least one.
    pub jobs: Vec<&'a FlowNode>,
}

impl Node<'_> {
    /// A job that stands for all of them, since they are alike.
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

    /// Its queue; `None` if the job is gone.
    pub fn queue(&self) -> Option<&QueueName> {
        (self.status() != "gone").then(|| &self.first().queue)
    }

    /// Its name in the drawing: the number of a job or a batch, or how many jobs it has.
    pub fn name(&self) -> String {
        match self.jobs.len() {
            _ if self.is_batch() => format!("batch {}", self.id()),
            1 => self.id().to_string(),
            count => format!("{} ×", grouped(count as u64)),
        }
    }

    /// Its queue, cut to the characters left of `chars` after its name.
    pub fn queue_in(&self, chars: usize) -> String {
        let left = chars.saturating_sub(self.name().chars().count()).max(QUEUE_CHARS_MIN);
        self.queue().map(|queue| cut(&queue.shown(), left)).unwrap_or_default()
    }

    /// A description in words. `is_own`: the page is about this node.
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

    /// The page that it links to; `None` for a job that is gone.
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
