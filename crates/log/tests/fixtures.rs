//! Folders that releases before this one wrote, and folders that are broken on purpose. They never
//! change: `examples/make_log_fixtures.rs` says how they came to be.

mod common;

use std::{fs, path::Path};

use spindle_log::{Log, OpenError, Position, verify::verify};
use spindle_testkit::disk::SimDisk;

use common::{append_numbered, contents, open, try_open};

fn fixture(name: &str) -> SimDisk {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let disk = SimDisk::new(1);
    for entry in fs::read_dir(folder).expect("the fixture is there") {
        let entry = entry.expect("readable");
        let bytes = fs::read(entry.path()).expect("readable");
        disk.put(&entry.file_name().to_string_lossy(), bytes);
    }
    disk
}

fn check(log: &dyn Log, first: u64, next: u64) {
    assert_eq!((log.first(), log.next()), (Position(first), Position(next)));
    for stored in log.read(Position(first)).expect("readable") {
        let stored = stored.expect("sound");
        let at = stored.position.0;
        let text = format!("record {at} of a log that must open for ever: {at:0>90}");
        assert_eq!((stored.epoch, &stored.bytes[..]), (1 + at / 20, text.as_bytes()));
    }
    assert_eq!(contents(log).len() as u64, next - first);
}

fn refusal(name: &str) -> OpenError {
    let disk = fixture(name);
    let before: Vec<_> = disk.names().into_iter().map(|name| disk.contents(&name)).collect();
    let error = try_open(&disk).err().unwrap_or_else(|| panic!("{name} was opened"));
    let names = disk.names().into_iter().filter(|name| name != "lock");
    let after: Vec<_> = names.map(|name| disk.contents(&name)).collect();
    assert_eq!(before, after, "a refused folder was changed");
    error
}

#[test]
fn a_folder_of_format_1_opens() {
    let disk = fixture("v1-sound");
    let log = open(&disk);
    check(&log, 22, 80);
    append_numbered(&log, 30, 100);
    drop(log);
    assert_eq!(open(&disk).next(), Position(110));
}

#[test]
fn a_folder_with_a_torn_tail_loses_only_that() {
    check(&open(&fixture("v1-torn-tail")), 22, 79);
}

#[test]
fn leftovers_of_a_crash_are_swept_and_saved_bytes_are_kept() {
    let disk = fixture("v1-leftovers");
    check(&open(&disk), 22, 80);
    let names = disk.names();
    assert!(!names.iter().any(|name| name.ends_with(".filling") || name == "98.spare"));
    assert!(names.iter().any(|name| name.ends_with(".damaged")));
}

#[test]
fn damaged_folders_are_refused_and_can_be_repaired() {
    for (name, position) in [
        ("v1-flipped-bit", 49),
        ("v1-damaged-header", 44),
        ("v1-missing-segment", 44),
        ("wrong-magic", 44),
    ] {
        let error = refusal(name);
        let OpenError::Corrupt { position: at, .. } = &error else { panic!("{name}: {error}") };
        assert_eq!(*at, Position(position), "{name}: {error}");
        let disk = fixture(name);
        let report = verify(&disk, true);
        assert_eq!(report.damage.expect("damage").position, Position(position));
        check(&open(&disk), 22, position);
    }
}

#[test]
fn folders_of_others_are_refused_with_the_reason() {
    let error = refusal("v2-newer-version");
    assert!(matches!(error, OpenError::NewerVersion { found: 2, supported: 1, .. }), "{error}");
    let error = refusal("foreign");
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
}
