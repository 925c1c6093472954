//! What a server process costs, read from `/proc`.

use anyhow::{Context, Result, ensure};
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::time::Duration;

/// User and system time that process `pid` has used, all its threads together.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks_used(&stat).with_context(|| format!("{path} has no CPU times"))?;
    let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the system has no clock ticks")?;
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// What the threads of process `pid` have used so far, to the nanosecond; those that have ended do
/// not count.
pub(crate) fn cpu_time_of_threads(pid: u32) -> Result<Duration> {
    let mut used = Duration::ZERO;
    for stat in of_threads(pid, "schedstat")? {
        let nanoseconds = stat.split_ascii_whitespace().next().and_then(|text| text.parse().ok());
        used += Duration::from_nanos(nanoseconds.context("a thread has no CPU time")?);
    }
    Ok(used)
}

/// A file of each thread of process `pid`. One that ends meanwhile has none.
fn of_threads(pid: u32, file: &str) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/task");
    let mut files = vec![];
    for task in fs::read_dir(&path).with_context(|| format!("cannot read {path}"))? {
        files.extend(fs::read_to_string(task?.path().join(file)).ok());
    }
    ensure!(!files.is_empty(), "no thread of {path} has {file}");
    Ok(files)
}

/// utime + stime: the 14th and 15th field. The 2nd is a name that may contain anything, so
/// fields are counted from its closing parenthesis.
fn ticks_used(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
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
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_times() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20";
        assert_eq!(ticks_used(stat), Some(154));
        assert_eq!(ticks_used("7 (cut"), None);
    }

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
        cpu_time(pid).unwrap();
        assert!(cpu_time_of_threads(pid).unwrap() > Duration::ZERO);
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
