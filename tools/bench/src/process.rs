//! What a server process costs, as the kernel counts it.

use anyhow::{Context, Result, ensure};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

/// User and system time that process `pid` has used, all its threads together, to the nanosecond:
/// `/proc` gives it only in hundredths of a second, too coarse for a short run.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))
        .and_then(|clock| clock.now())
        .with_context(|| format!("process {pid} has no CPU time"))?;
    Ok(clock.into())
}

/// The contents of a file of each thread of process `pid`. A thread that ends meanwhile is left
/// out.
fn of_threads(pid: u32, file: &str) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/task");
    let mut files = vec![];
    for task in fs::read_dir(&path).with_context(|| format!("cannot read {path}"))? {
        files.extend(fs::read_to_string(task?.path().join(file)).ok());
    }
    ensure!(!files.is_empty(), "no thread of {path} has {file}");
    Ok(files)
}

/// The most memory that process `pid` ever had resident, in KiB as the kernel counts it.
pub(crate) fn resident_peak_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    kib_of(&status, "VmHWM:").with_context(|| format!("{path} has no VmHWM"))
}

/// How many threads of process `pid` have a name that starts so.
pub(crate) fn threads_named(pid: u32, start: &str) -> Result<usize> {
    let names = of_threads(pid, "comm")?;
    Ok(names.iter().filter(|name| name.starts_with(start)).count())
}

fn kib_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kib() {
        let status = "Name:\tx\nVmHWM:\t    4096 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(kib_of(status, "VmHWM:"), Some(4096));
        assert_eq!(kib_of(status, "VmRSS:"), Some(512));
        assert_eq!(kib_of(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(resident_peak_kib(pid).unwrap() > 0);
        let before = cpu_time(pid).unwrap();
        std::thread::spawn(|| vec![1_u8; 1 << 20].iter().map(|byte| u32::from(*byte)).sum::<u32>())
            .join()
            .unwrap();
        // The time of a thread that has ended counts, too.
        assert!(cpu_time(pid).unwrap() > before);
        // Linux gives no process a number above 4,194,304.
        cpu_time(4_194_305).unwrap_err();
    }

    #[test]
    fn threads_are_counted_by_the_start_of_their_name() {
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("bench-here-1".to_owned());
            let waiting = || {
                barrier.wait();
                barrier.wait();
            };
            named.spawn_scoped(scope, waiting).unwrap();
            // From here on the thread runs, and has its name.
            barrier.wait();
            let counted = threads_named(std::process::id(), "bench-here");
            barrier.wait();
            assert_eq!(counted.unwrap(), 1);
        });
    }
}
