//! How many processes a second the launcher starts and sees end, beside a bare loop of
//! `posix_spawn` (which the standard library uses when nothing is asked of the child).
//!
//! ```text
//! cargo run --release --example launcher_rate
//! ```

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use spindle_jobd::launcher::{Launcher, LauncherSettings};
use spindle_jobd::table::{Input, RowId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const PROGRAM: &str = "/bin/true";
const AT_ONCE: usize = 20;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    // In turns, so that what else the machine does falls on all of them.
    for _ in 0..ROUNDS {
        rates[0].push(bare(1)?);
        rates[1].push(bare(AT_ONCE)?);
        rates[2].push(runtime.block_on(launched())?);
    }
    let names = ["bare loop, one at a time", "bare loop, 20 threads", "launcher, 20 at once"];
    for (name, mut rates) in names.into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        let (lowest, median, highest) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!("{name}: median {median:.0} processes/s ({lowest:.0} to {highest:.0})");
    }
    Ok(())
}

/// Spawns and waits in this many threads.
fn bare(threads: usize) -> Result<f64> {
    let begin = Instant::now();
    let spawn = || {
        let mut count = 0;
        while begin.elapsed() < ROUND {
            let mut command = Command::new(PROGRAM);
            let stdio = command.arg("1").stdin(Stdio::null()).stdout(Stdio::null());
            ensure!(stdio.stderr(Stdio::null()).status()?.success(), "{PROGRAM} failed");
            count += 1;
        }
        Ok(count)
    };
    let count: Result<i32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(spawn)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it only counts")).sum()
    });
    Ok(f64::from(count?) / begin.elapsed().as_secs_f64())
}

/// The same by the launcher, outputs read.
async fn launched() -> Result<f64> {
    let launcher = Arc::new(Launcher::new(LauncherSettings {
        template: format!("{PROGRAM} {{id}}"),
        cwd: None,
        environment: Vec::new(),
        output_bytes_max: 1024 * 1024,
        signal_group: false,
    })?);
    let (begin, count) = (Instant::now(), Arc::new(AtomicI64::new(0)));
    let mut jobs = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (launcher, count) = (Arc::clone(&launcher), Arc::clone(&count));
        jobs.spawn(async move {
            while begin.elapsed() < ROUND {
                let id = RowId(count.fetch_add(1, Ordering::Relaxed));
                let (_signals, requests) = mpsc::channel(1);
                let ending = launcher.run(id, Input::default(), requests, drop).await;
                ensure!(ending.is_success(), "{ending:?}");
            }
            Ok(())
        });
    }
    while let Some(job) = jobs.join_next().await {
        job??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}
