//! How long a start on a folder takes: `start <folder>`. Opening the log, folding it, and beginning
//! a new epoch; the folder has one more record then.
//!
//! A number to compare before and after a change, not a test. Under callgrind it counts
//! instructions, which other programs on the machine do not change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spindle_engine::{Engine, Options, SystemClock, record};
use spindle_log::{FileLog, FileLogOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let began = Instant::now();
    let (mut read, mut opened) = (Duration::ZERO, Duration::ZERO);
    let options = FileLogOptions { parts_of: record::checked_parts, ..FileLogOptions::default() };
    let engine = Engine::open_with(Arc::new(SystemClock::new()), Options::default(), |each| {
        let log = FileLog::open_dir_with(&folder, options, &mut |shown| {
            if shown.is_none() {
                read = began.elapsed();
            }
            each(shown);
        })?;
        opened = began.elapsed();
        Ok(Arc::new(log))
    })?;
    let all = began.elapsed();
    println!(
        "read and decoded after {read:.3?}, log open after {opened:.3?}, engine after {all:.3?}"
    );
    drop(engine);
    Ok(())
}
