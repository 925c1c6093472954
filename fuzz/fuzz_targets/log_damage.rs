//! A log whose files were damaged anywhere: it is opened or refused, without a panic; every record
//! that it shows is one that was written, in order and without a gap; and repairing what was refused
//! leaves a log that opens. In half of the runs the records have a part with a checksum of its own: of
//! a record that is shown as damaged all is proven but that part, and no other is shown otherwise.

#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use spindle_log::verify::{VerifyReport, verify_with};
use spindle_log::{Ack, CheckedPart, FileLog, FileLogOptions, Log, PartsOf, Position, Record};
use spindle_testkit::disk::SimDisk;

/// Set in the first byte: records have parts.
const PARTED: u8 = 0x80;
/// Length and checksum of the part, in front of it.
const PART_START: usize = 8;
/// What stands behind it.
const REST: &[u8] = b"rest";

/// Believes whatever a record says about the part in it.
fn parts_of(record: &[u8]) -> Vec<CheckedPart> {
    let word = |at: usize| record.get(at..at + 4).and_then(|word| word.try_into().ok());
    let (Some(len), Some(crc)) = (word(0), word(4)) else { return Vec::new() };
    let (len, crc) = (u32::from_le_bytes(len), u32::from_le_bytes(crc));
    vec![CheckedPart { offset: PART_START as u32, len, crc }]
}

struct Folder {
    disk: SimDisk,
    parts_of: PartsOf,
    records: Vec<Bytes>,
}

impl Folder {
    /// Records of these lengths, committed and ended in order.
    fn written(lengths: &[u8], has_parts: bool) -> Folder {
        let parts_of = if has_parts { parts_of } else { spindle_log::no_parts };
        let (disk, numbers) = (SimDisk::new(1), 0u8..);
        let bodies = numbers.zip(lengths).map(|(number, len)| vec![number; 8 * usize::from(*len)]);
        let records = bodies.map(|body| if has_parts { parted(&body) } else { body.into() });
        let folder = Folder { disk, parts_of, records: records.collect() };
        let log = folder.open().expect("an empty disk");
        for record in &folder.records {
            let record = Record { epoch: 1, bytes: record.clone() };
            log.submit(log.next(), &record).expect("there is room");
            assert!(matches!(log.next_ack(), Ack::Committed(_)));
        }
        drop(log);
        folder
    }

    fn open(&self) -> Option<FileLog> {
        // Small, so that a few records fill several segments.
        let small = FileLogOptions { segment_bytes: 4096, ..FileLogOptions::default() };
        let options = FileLogOptions { background: false, parts_of: self.parts_of, ..small };
        FileLog::open(Arc::new(self.disk.clone()), options).ok()
    }

    /// Checks what the log shows, if it opens.
    fn opens(&self) -> bool {
        let Some(log) = self.open() else { return false };
        let mut next = log.first();
        for stored in log.read(log.first()).expect("from its first record on") {
            let stored = stored.expect("it was checked when it was opened");
            assert_eq!(stored.position, next);
            let written = self.records.get(next.0 as usize).expect("one that was written");
            if stored.damaged {
                assert_eq!(proven(&stored.bytes), proven(written));
            }
            assert_eq!(stored.bytes == written, !stored.damaged);
            next = Position(next.0 + 1);
        }
        assert_eq!(log.next(), next);
        true
    }

    /// What `spindle verify` says. What it lists as damaged is what it hands over as that.
    fn verify(&self, repair: bool) -> VerifyReport {
        let mut handed = Vec::new();
        let each = &mut |stored: spindle_log::Stored| {
            handed.extend(stored.damaged.then_some(stored.position));
        };
        let report = verify_with(&self.disk, repair, self.parts_of, each, &mut |_| {});
        let listed: Vec<Position> = report.damaged_parts.iter().map(|it| it.position).collect();
        assert_eq!(handed, listed);
        report
    }
}

fn parted(part: &[u8]) -> Bytes {
    let mut bytes = (part.len() as u32).to_le_bytes().to_vec();
    bytes.extend(crc32c::crc32c(part).to_le_bytes());
    bytes.extend([part, REST].concat());
    bytes.into()
}

/// All of a record but its part, and how long that is.
fn proven(record: &[u8]) -> (&[u8], &[u8], usize) {
    let (head, behind) = record.split_at(PART_START);
    let (part, rest) = behind.split_at(behind.len() - REST.len());
    (head, rest, part.len())
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    let (lengths, damage) = data.split_at(usize::from(first % 64).min(data.len()));
    let has_parts = first & PARTED != 0;
    let folder = Folder::written(lengths, has_parts);
    let names = folder.disk.names();
    for place in damage.chunks_exact(4) {
        let name = &names[usize::from(place[0]) % names.len()];
        let Some(mut contents) = folder.disk.contents(name) else { continue };
        let offset = usize::from(u16::from_le_bytes([place[1], place[2]]));
        if let Some(byte) = contents.get_mut(offset) {
            *byte ^= place[3];
            folder.disk.put(name, contents);
        }
    }
    let report = folder.verify(false);
    assert!(has_parts || report.damaged_parts.is_empty());
    let opens = folder.opens();
    // Damage to nothing but parts keeps no server from starting.
    if report.damage.is_none() && report.failure.is_none() {
        assert!(opens, "what is sound opens");
    }
    if !opens && folder.verify(true).repair.is_some() {
        assert!(folder.opens(), "what was repaired opens");
    }
});
