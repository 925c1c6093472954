//! Any bytes as the manifest of a backup: no panic; and with none of its copies there, a manifest
//! that was read is sound only if it names none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_backup::{MANIFEST_FILE, check};
use spindle_testkit::disk::SimDisk;

fuzz_target!(|data: &[u8]| {
    let disk = SimDisk::new(1);
    disk.put(MANIFEST_FILE, data.to_vec());
    if let Ok(checked) = check(&disk, |_| Vec::new()) {
        assert_eq!(checked.findings.len(), checked.manifest.segments.len());
    }
});
