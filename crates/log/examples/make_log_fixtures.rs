//! Writes the folders under `tests/fixtures` that a test opens for ever after. Run it for a new
//! format version only and give the new folders names of their own; the old ones stay.
//!
//! ```sh
//! cargo run -p spindle-log --example make_log_fixtures -- crates/log/tests/fixtures
//! ```

use std::{env, error::Error, fs, path::Path, sync::Arc};

use spindle_log::{Ack, FileLog, FileLogOptions, Log, Position, Record, disk::Disk};
use spindle_testkit::disk::SimDisk;

const SECOND: &str = "00000000000000000044.segment";

fn append(log: &FileLog, count: u64) -> Result<(), Box<dyn Error>> {
    for _ in 0..count {
        let at = log.next();
        let bytes = format!("record {at} of a log that must open for ever: {at:0>90}", at = at.0);
        log.submit(at, &Record { epoch: 1 + at.0 / 20, bytes: bytes.into() })?;
        let Ack::Committed(_) = log.next_ack() else { return Err("not committed".into()) };
    }
    Ok(())
}

fn sound() -> Result<SimDisk, Box<dyn Error>> {
    let disk = SimDisk::new(2024);
    let options =
        FileLogOptions { segment_bytes: 4096, background: false, ..FileLogOptions::default() };
    let log = FileLog::open(Arc::new(disk.clone()), options)?;
    append(&log, 80)?;
    log.trim_before(Position(22))?;
    drop(log);
    Ok(disk)
}

fn edit(
    name: &str,
    file: &str,
    change: impl FnOnce(&mut Vec<u8>),
    root: &Path,
) -> Result<(), Box<dyn Error>> {
    let disk = sound()?;
    let mut bytes = disk.contents(file).ok_or("the file is not there")?;
    change(&mut bytes);
    disk.put(file, bytes);
    save(name, &disk, root)
}

fn save(name: &str, disk: &SimDisk, root: &Path) -> Result<(), Box<dyn Error>> {
    let folder = root.join(name);
    if folder.exists() {
        return Err(format!("{} is there already: fixtures do not change", folder.display()).into());
    }
    fs::create_dir_all(&folder)?;
    for file in disk.names() {
        fs::write(folder.join(&file), disk.contents(&file).unwrap_or_default())?;
    }
    Ok(())
}

fn reseal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = env::args_os().nth(1).ok_or("name the folder to write to")?;
    let root = Path::new(&root);
    save("v1-sound", &sound()?, root)?;
    let disk = sound()?;
    let last = disk.names().into_iter().rfind(|n| n.ends_with(".segment")).ok_or("no segment")?;
    let end = |bytes: &Vec<u8>| bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    let tear = |bytes: &mut Vec<u8>| {
        let end = end(bytes);
        bytes[end - 70..].fill(0);
    };
    edit("v1-torn-tail", &last, tear, root)?;
    edit("v1-flipped-bit", SECOND, |bytes| bytes[1000] ^= 4, root)?;
    edit("v1-damaged-header", SECOND, |bytes| bytes[25] ^= 4, root)?;
    let newer = |bytes: &mut Vec<u8>| {
        bytes[8] = 2;
        reseal(bytes);
    };
    edit("v2-newer-version", SECOND, newer, root)?;
    edit("wrong-magic", SECOND, |bytes| bytes[..8].copy_from_slice(b"SQLite f"), root)?;
    let second = disk.names().into_iter().filter(|n| n.ends_with(".segment")).nth(1);
    let missing = second.ok_or("only one segment")?;
    disk.remove(&missing)?;
    save("v1-missing-segment", &disk, root)?;
    let leftovers = sound()?;
    leftovers.put("99.filling", vec![0; 1000]);
    leftovers.put("98.spare", vec![7; 100]);
    leftovers.put("00000000000000000000.segment.damaged", vec![7; 100]);
    leftovers.put("lock", b"12345\n".to_vec());
    save("v1-leftovers", &leftovers, root)?;
    let foreign = SimDisk::new(1);
    foreign.put("notes.txt", b"nothing of a log\n".to_vec());
    save("foreign", &foreign, root)
}
