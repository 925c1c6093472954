//! The history as its file holds it, and back.

use bytes::Bytes;
use prost::Message;
use spindle_core::JobId;

use crate::book::{Book, Both, FailureRow, QueueRow};
use crate::slots::{Slot, Slots};

/// A row of slots.
#[derive(Clone, PartialEq, Message)]
struct SlotsImage {
    #[prost(uint64, tag = "1")]
    step_ms: u64,
    #[prost(uint64, tag = "2")]
    newest: u64,
    #[prost(uint32, repeated, tag = "3")]
    numbers: Vec<u32>,
}

/// A row by fine and by coarse slots.
#[derive(Clone, PartialEq, Message)]
struct BothImage {
    #[prost(message, required, tag = "1")]
    hour: SlotsImage,
    #[prost(message, required, tag = "2")]
    day: SlotsImage,
}

#[derive(Clone, PartialEq, Message)]
struct QueueImage {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(double, tag = "2")]
    score: f64,
    #[prost(uint64, tag = "3")]
    active_ms: u64,
    #[prost(message, required, tag = "4")]
    slots: BothImage,
}

#[derive(Clone, PartialEq, Message)]
struct FailureImage {
    #[prost(string, tag = "1")]
    fingerprint: String,
    #[prost(bytes = "bytes", tag = "2")]
    queue: Bytes,
    #[prost(double, tag = "3")]
    score: f64,
    #[prost(uint64, tag = "4")]
    last_job: u64,
    #[prost(uint64, tag = "5")]
    last_ms: u64,
    #[prost(message, required, tag = "6")]
    slots: BothImage,
}

/// All of it.
#[derive(Clone, PartialEq, Message)]
struct BookImage {
    #[prost(message, required, tag = "1")]
    server: BothImage,
    #[prost(message, repeated, tag = "2")]
    queues: Vec<QueueImage>,
    #[prost(message, repeated, tag = "3")]
    failures: Vec<FailureImage>,
}

fn slots_image<T: Slot>(slots: &Slots<T>) -> SlotsImage {
    let (newest, numbers) = slots.numbers();
    SlotsImage { step_ms: slots.tier().step_ms, newest, numbers }
}

fn both_image<T: Slot>(both: &Both<T>) -> BothImage {
    BothImage { hour: slots_image(&both.hour), day: slots_image(&both.day) }
}

/// Reads slots into a row that is empty. None: they do not fit.
fn fill<T: Slot>(both: &mut Both<T>, image: &BothImage) -> Option<()> {
    let read = |slots: &Slots<T>, image: &SlotsImage| {
        let tier = slots.tier();
        let is_same = tier.step_ms == image.step_ms;
        is_same.then(|| Slots::of_numbers(tier, image.newest, &image.numbers))?
    };
    both.hour = read(&both.hour, &image.hour)?;
    both.day = read(&both.day, &image.day)?;
    Some(())
}

impl Book {
    /// The bytes that [`Book::decode`] reads.
    pub fn encode(&self) -> Vec<u8> {
        let queues = self.queues.scored().map(|(name, score, row)| QueueImage {
            name: name.clone(),
            score,
            active_ms: row.active_ms,
            slots: both_image(&row.slots),
        });
        let failures =
            self.failures.scored().map(|((fingerprint, queue), score, row)| FailureImage {
                fingerprint: fingerprint.clone(),
                queue: queue.clone(),
                score,
                last_job: row.last_job.0,
                last_ms: row.last_ms,
                slots: both_image(&row.slots),
            });
        let image = BookImage {
            server: both_image(&self.server),
            queues: queues.collect(),
            failures: failures.collect(),
        };
        image.encode_to_vec()
    }

    /// Reads what [`Book::encode`] wrote. None: it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Book> {
        let image = BookImage::decode(bytes).ok()?;
        let mut book = Book::default();
        fill(&mut book.server, &image.server)?;
        for queue in image.queues {
            let mut row = QueueRow { active_ms: queue.active_ms, ..QueueRow::new() };
            fill(&mut row.slots, &queue.slots)?;
            // A copy: otherwise each name would keep in memory everything that was read.
            book.queues.restore(Bytes::copy_from_slice(&queue.name), queue.score, row);
        }
        for failure in image.failures {
            let FailureImage { fingerprint, queue, score, last_job, last_ms, slots } = failure;
            let mut row = FailureRow { last_job: JobId(last_job), last_ms, ..FailureRow::new() };
            fill(&mut row.slots, &slots)?;
            book.failures.restore((fingerprint, Bytes::copy_from_slice(&queue)), score, row);
        }
        Some(book)
    }
}
