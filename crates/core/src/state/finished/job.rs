//! A finished job as eleven numbers.

use std::num::NonZeroU64;

use crate::job::{Deletion, JobId, JobImage, Status};
use crate::state::Place;

/// The numbers of a finished job.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    Id,
    /// The halves of its UUID, 0 if it has none.
    UuidHigh,
    UuidLow,
    /// The place of its image.
    Position,
    Offset,
    /// How many records the oldest record that it needs lies before its image.
    Away,
    /// When it ended, in seconds.
    Ended,
    /// How many milliseconds after that second it goes, plus one; 0 if it is kept until it is
    /// deleted.
    Kept,
    /// Its size class, whether it has a UUID, whether it is dead.
    Kind,
    /// The request that deleted it, 0 if it is not deleted.
    Deleted,
    /// As `Kept`, when it would go if it were not deleted; 0 if it is not.
    Retained,
}

impl Column {
    /// In the order in which a job's numbers stand.
    pub const ALL: [Column; 11] = [
        Column::Id,
        Column::UuidHigh,
        Column::UuidLow,
        Column::Position,
        Column::Offset,
        Column::Away,
        Column::Ended,
        Column::Kept,
        Column::Kind,
        Column::Deleted,
        Column::Retained,
    ];
}

/// How many there are.
pub const COLUMNS: usize = Column::ALL.len();

const DEAD: u64 = 1;
const HAS_UUID: u64 = 2;
const SIZE_SHIFT: u32 = 2;

/// Where the numbers of a job are.
pub trait Numbers {
    fn number(&self, column: Column) -> u64;
}

impl Numbers for [u64; COLUMNS] {
    #[inline]
    fn number(&self, column: Column) -> u64 {
        self[column as usize]
    }
}

/// What stays in memory of a finished job: its names, where its image is, when it ended and when it
/// goes. By itself, or in its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FinishedJob<N = [u64; COLUMNS]>(pub(super) N);

/// What a [`FinishedJob`] is made of.
pub(crate) struct FinishedParts {
    pub id: NonZeroU64,
    pub status: Status,
    pub uuid: Option<[u8; 16]>,
    pub image: Place,
    /// The oldest record it needs.
    pub oldest_record: u64,
    pub finished_ms: u64,
    /// When its retention ends.
    pub kept_until_ms: Option<u64>,
    pub deletion: Option<Deletion>,
    /// What it takes on disk.
    pub bytes: u64,
}

impl FinishedJob {
    pub fn new(parts: &FinishedParts) -> FinishedJob {
        let (uuid_high, uuid_low) = JobImage::uuid_halves(parts.uuid);
        let dead = if parts.status == Status::Dead { DEAD } else { 0 };
        let has_uuid = if parts.uuid.is_some() { HAS_UUID } else { 0 };
        let mut numbers = [0; COLUMNS];
        numbers[Column::Id as usize] = parts.id.get();
        numbers[Column::UuidHigh as usize] = uuid_high;
        numbers[Column::UuidLow as usize] = uuid_low;
        numbers[Column::Position as usize] = parts.image.position;
        numbers[Column::Offset as usize] = u64::from(parts.image.offset);
        numbers[Column::Away as usize] = parts.image.position.saturating_sub(parts.oldest_record);
        numbers[Column::Ended as usize] = parts.finished_ms / 1000;
        numbers[Column::Kind as usize] =
            u64::from(size_class(parts.bytes)) << SIZE_SHIFT | has_uuid | dead;
        let mut job = FinishedJob(numbers);
        job.set_retained_until(parts.kept_until_ms);
        if let Some(deletion) = &parts.deletion {
            job.delete(deletion);
        }
        job
    }

    /// Sets when its retention ends: no earlier than in the second in which it ended.
    pub fn set_retained_until(&mut self, until_ms: Option<u64>) {
        let retained = self.after_end(until_ms);
        if self.is_deleted() {
            self.0[Column::Retained as usize] = retained;
            self.0[Column::Kept as usize] = earlier(self.0.number(Column::Kept), retained);
        } else {
            self.0[Column::Kept as usize] = retained;
        }
    }

    pub fn delete(&mut self, deletion: &Deletion) {
        let retained = self.0.number(Column::Kept);
        self.0[Column::Retained as usize] = retained;
        self.0[Column::Kept as usize] = earlier(self.after_end(Some(deletion.gone_ms)), retained);
        self.0[Column::Deleted as usize] = deletion.request;
    }

    pub fn undelete(&mut self) {
        if self.is_deleted() {
            self.0[Column::Kept as usize] = self.0.number(Column::Retained);
            self.0[Column::Retained as usize] = 0;
            self.0[Column::Deleted as usize] = 0;
        }
    }

    /// A time as the columns `Kept` and `Retained` have it.
    fn after_end(&self, until_ms: Option<u64>) -> u64 {
        let ended_ms = self.ended_s() * 1000;
        until_ms.map_or(0, |until| until.saturating_sub(ended_ms).saturating_add(1))
    }
}

/// The earlier of two times as the columns have them.
fn earlier(one: u64, other: u64) -> u64 {
    if one == 0 || other == 0 { one.max(other) } else { one.min(other) }
}

impl<N: Numbers> FinishedJob<N> {
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.number(Column::Id)
    }

    pub fn job_id(&self) -> JobId {
        JobId(self.id())
    }

    pub fn status(&self) -> Status {
        if self.0.number(Column::Kind) & DEAD == 0 { Status::Done } else { Status::Dead }
    }

    #[inline]
    pub fn uuid(&self) -> Option<[u8; 16]> {
        let high = u128::from(self.0.number(Column::UuidHigh)) << 64;
        let uuid = high | u128::from(self.0.number(Column::UuidLow));
        (self.0.number(Column::Kind) & HAS_UUID != 0).then(|| uuid.to_be_bytes())
    }

    pub fn image(&self) -> Place {
        let offset = self.0.number(Column::Offset) as u32;
        Place { position: self.0.number(Column::Position), offset }
    }

    /// The oldest record it needs.
    pub fn oldest_record(&self) -> u64 {
        self.0.number(Column::Position) - self.0.number(Column::Away)
    }

    /// A little more than it takes on disk.
    pub fn bytes(&self) -> u64 {
        size_of_class((self.0.number(Column::Kind) >> SIZE_SHIFT) as u8)
    }

    #[inline]
    fn ended_s(&self) -> u64 {
        self.0.number(Column::Ended)
    }

    /// When it goes.
    #[inline]
    pub fn kept_until_ms(&self) -> Option<u64> {
        self.time_in(Column::Kept)
    }

    /// When its retention ends.
    pub fn retained_until_ms(&self) -> Option<u64> {
        self.time_in(if self.is_deleted() { Column::Retained } else { Column::Kept })
    }

    #[inline]
    fn time_in(&self, column: Column) -> Option<u64> {
        let after = self.0.number(column).checked_sub(1)?;
        Some(self.ended_s() * 1000 + after)
    }

    pub fn is_deleted(&self) -> bool {
        self.0.number(Column::Deleted) != 0
    }

    /// Its deletion, if it is deleted.
    pub fn deletion(&self) -> Option<Deletion> {
        let request = self.0.number(Column::Deleted);
        let gone_ms = self.kept_until_ms().unwrap_or(u64::MAX);
        (request != 0).then_some(Deletion { gone_ms, request, was_parked: false })
    }

    /// Orders by what goes first, then by number. None if it is kept until it is deleted.
    #[inline]
    pub fn expiry_key(&self) -> Option<u128> {
        Some(u128::from(self.kept_until_ms()?) << 64 | u128::from(self.id()))
    }

    /// Orders by what ended first, to the second, then by number.
    #[inline]
    pub fn age_key(&self) -> u128 {
        u128::from(self.ended_s()) << 64 | u128::from(self.id())
    }
}

/// Sizes are kept in eight bits: a power of two and the three bits after it, rounded up. So the sum
/// is never too small, and at most an eighth too large.
fn size_class(bytes: u64) -> u8 {
    let bytes = bytes.max(8);
    let power = bytes.ilog2() - 3;
    let eighths = bytes.div_ceil(1 << power) - 8;
    u8::try_from(u64::from(power) * 8 + eighths).unwrap_or(u8::MAX)
}

fn size_of_class(class: u8) -> u64 {
    (8 + u64::from(class % 8)) << (class / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> FinishedParts {
        FinishedParts {
            id: NonZeroU64::new((1 << 53) - 1).expect("not zero"),
            status: Status::Dead,
            uuid: Some([7; 16]),
            image: Place { position: u64::MAX, offset: u32::MAX },
            oldest_record: 1,
            finished_ms: 1_700_000_000_999,
            kept_until_ms: Some(1_700_000_000_999 + (1 << 45)),
            deletion: None,
            bytes: 1 << 26,
        }
    }

    #[test]
    fn a_finished_job_returns_what_it_was_given() {
        let job = FinishedJob::new(&parts());
        assert_eq!((job.status(), job.job_id()), (Status::Dead, JobId((1 << 53) - 1)));
        assert_eq!((job.image(), job.oldest_record()), (parts().image, 1));
        assert_eq!((job.uuid(), job.kept_until_ms()), (Some([7; 16]), parts().kept_until_ms));
        assert_eq!(job.bytes(), 1 << 26);
        assert_eq!(job.age_key(), 1_700_000_000 << 64 | ((1 << 53) - 1));

        let mut kept = FinishedJob::new(&FinishedParts {
            status: Status::Done,
            uuid: None,
            oldest_record: u64::MAX,
            kept_until_ms: None,
            ..parts()
        });
        assert_eq!(
            (kept.status(), kept.uuid(), kept.oldest_record()),
            (Status::Done, None, u64::MAX)
        );
        assert_eq!((kept.kept_until_ms(), kept.expiry_key()), (None, None));
        kept.set_retained_until(Some(1_700_000_000_005));
        assert_eq!(kept.kept_until_ms(), Some(1_700_000_000_005));
        assert_eq!(kept.expiry_key(), Some(1_700_000_000_005 << 64 | ((1 << 53) - 1)));
        kept.set_retained_until(Some(5));
        assert_eq!(kept.kept_until_ms(), Some(1_700_000_000_000), "not before it ended");
    }

    #[test]
    fn times_at_the_end_of_their_numbers_do_not_overflow() {
        let end = Some(u64::MAX);
        for (finished_ms, until_ms) in [(0, u64::MAX - 1), (5_999, u64::MAX), (u64::MAX, u64::MAX)]
        {
            let job =
                FinishedJob::new(&FinishedParts { finished_ms, kept_until_ms: end, ..parts() });
            assert_eq!(job.kept_until_ms(), Some(until_ms), "ended at {finished_ms}");
        }
    }

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        for bytes in (0..5_000).chain([65_536, 65_537, 1 << 26, (1 << 30) - 1]) {
            let kept = size_of_class(size_class(bytes));
            assert!(kept >= bytes && kept <= bytes.max(8) + bytes / 8 + 1, "{bytes} as {kept}");
        }
    }
}
