//! A log whose files were damaged anywhere: it is opened or refused, without a panic; every record
//! that it shows is one that was written, in order and without a gap; and repairing what was refused
//! leaves a log that opens.

#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use spindle_log::{Ack, FileLog, FileLogOptions, Log, Position, Record, verify};
use spindle_testkit::disk::SimDisk;

fn options() -> FileLogOptions {
    // Small, so that a few records fill several segments.
    FileLogOptions { segment_bytes: 4096, background: false, ..FileLogOptions::default() }
}

/// The records whose lengths are given, committed and ended in order.
fn written(disk: &SimDisk, lengths: &[u8]) -> Vec<Bytes> {
    let log = FileLog::open(Arc::new(disk.clone()), options()).expect("an empty disk");
    let records: Vec<Bytes> = (0u8..)
        .zip(lengths)
        .map(|(number, len)| Bytes::from(vec![number; 8 * usize::from(*len)]))
        .collect();
    for record in &records {
        let record = Record { epoch: 1, bytes: record.clone() };
        log.submit(log.next(), &record).expect("there is room");
        assert!(matches!(log.next_ack(), Ack::Committed(_)));
    }
    records
}

/// What a log shows, if it opens.
fn shown(disk: &SimDisk, records: &[Bytes]) -> bool {
    let Ok(log) = FileLog::open(Arc::new(disk.clone()), options()) else { return false };
    let mut next = log.first();
    for stored in log.read(log.first()).expect("from its first record on") {
        let stored = stored.expect("it was checked when it was opened");
        assert_eq!(stored.position, next);
        assert_eq!(Some(&stored.bytes), records.get(next.0 as usize));
        next = Position(next.0 + 1);
    }
    assert_eq!(log.next(), next);
    true
}

fuzz_target!(|data: &[u8]| {
    let Some((&count, data)) = data.split_first() else { return };
    let (lengths, damage) = data.split_at(usize::from(count % 64).min(data.len()));
    let disk = SimDisk::new(1);
    let records = written(&disk, lengths);
    let names = disk.names();
    for place in damage.chunks_exact(4) {
        let name = &names[usize::from(place[0]) % names.len()];
        let Some(mut contents) = disk.contents(name) else { continue };
        let offset = usize::from(u16::from_le_bytes([place[1], place[2]]));
        if let Some(byte) = contents.get_mut(offset) {
            *byte ^= place[3];
            disk.put(name, contents);
        }
    }
    let report = verify::verify(&disk, false);
    let opens = shown(&disk, &records);
    if report.is_sound() {
        assert!(opens, "what is sound opens");
    }
    if !opens && verify::verify(&disk, true).repair.is_some() {
        assert!(shown(&disk, &records), "what was repaired opens");
    }
});
