//! How long a start on a folder takes: `start <folder>`. Opening the log, folding it, and beginning
//! a new epoch; the folder has one more record then.
//!
//! A number to compare before and after a change, not a test. Under callgrind it counts
//! instructions, which other programs on the machine do not change.

use std::sync::Arc;
use std::time::Instant;

use spindle_engine::{Engine, Options, SystemClock, record};
use spindle_log::{FileLog, FileLogOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let began = Instant::now();
    let options = FileLogOptions { parts_of: record::checked_parts, ..FileLogOptions::default() };
    let log = Arc::new(FileLog::open_dir(&folder, options)?);
    let opened = began.elapsed();
    let engine = Engine::open(log, Arc::new(SystemClock::new()), Options::default())?;
    let all = began.elapsed();
    println!("log {opened:.3?}, fold {:.3?}, together {all:.3?}", all - opened);
    drop(engine);
    Ok(())
}
