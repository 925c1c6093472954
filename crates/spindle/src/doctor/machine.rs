//! What the machine lets the server have: files, memory, and a clock.

use std::{
    fs,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::Findings;
use crate::{
    config::Config,
    descriptors::{Connection, least_for, limit_for},
};

/// The memory that a server needs beside what the settings give it.
const MEMORY_BESIDE: u64 = 256 << 20;
/// A clock that is further ahead of the log than this holds TTLs.
const CLOCK_MS: u64 = 5 * 60 * 1000;
/// 2020: nothing was written earlier.
const EARLIEST_MS: u64 = 1_577_836_800_000;
/// The year 10000: no time from then on can be written.
const LATEST_MS: u64 = 253_402_300_800_000;

/// Checks limits and memory. So many files may be open, by default and at most; the log has so many segments.
pub fn check(config: &Config, files: Option<(u64, u64)>, segments: usize, findings: &mut Findings) {
    if let Some(limits) = files {
        check_files(config, limits, segments, findings);
    }
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_FSIZE)
        && hard < config.segment_bytes
    {
        let found = format!("a file may have {hard} bytes, a segment has {}", config.segment_bytes);
        findings.wrong("file-size", found, "raise it: LimitFSIZE, ulimit -f");
    }
    check_memory(config, findings);
}

fn check_files(
    config: &Config,
    (soft, hard): (u64, u64),
    segments: usize,
    findings: &mut Findings,
) {
    let log_files = segments as u64;
    let wanted = limit_for(config.connections_max, Connection::of(config), log_files);
    let number = |limit| {
        if limit == RLIM_INFINITY { "any number of".to_owned() } else { format!("{limit}") }
    };
    let found = format!("{} files may be open ({} by default)", number(hard), number(soft));
    let raise = format!("raise it to {wanted} (LimitNOFILE, ulimit -n)");
    if hard < least_for(log_files) {
        let found = format!("{found}, and the log has {segments} segments");
        findings.wrong("open-files", found, &format!("the server does not start: {raise}"));
    } else if hard < wanted {
        let advice = format!("{raise} or lower --connections-max");
        findings.warn("open-files", found, &advice);
    } else {
        findings.ok("open-files", found);
    }
}

fn check_memory(config: &Config, findings: &mut Findings) {
    let wanted = config.payload_memory_bytes + MEMORY_BESIDE;
    let limits = [("the cgroup", cgroup_memory()), ("the machine", machine_memory())];
    let least = limits.into_iter().filter_map(|(whose, bytes)| Some((bytes?, whose))).min();
    let Some((bytes, whose)) = least else { return };
    let found = format!("{whose} gives {} MiB", bytes >> 20);
    if bytes < wanted {
        let advice = format!(
            "the settings may take {} MiB and jobs come on top: give it more, or lower --payload-memory",
            wanted >> 20
        );
        findings.warn("memory", found, &advice);
    } else {
        findings.ok("memory", found);
    }
}

/// What `memory.max` of the own cgroup says, or of one above it.
fn cgroup_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut place = std::path::PathBuf::from(format!("/sys/fs/cgroup{own}"));
    let mut least = None;
    while place.starts_with("/sys/fs/cgroup") {
        let max = fs::read_to_string(place.join("memory.max")).ok();
        let max: Option<u64> = max.and_then(|text| text.trim().parse().ok());
        least = least.into_iter().chain(max).min();
        place.pop();
    }
    least
}

fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Checks the wall clock, against the time of the log's newest record where there is one, and against how long a
/// server may have been away, if it is.
pub fn check_clock(newest_ms: Option<u64>, away_max: Option<Duration>, findings: &mut Findings) {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    judge_clock(ms(since), newest_ms, away_max.map_or(u64::MAX, ms), findings);
    check_steady(findings);
    judge_synchronization(clock_status(), findings);
}

/// What the kernel knows of its clock (`STA_*` of adjtimex(2)); none where it may not be asked.
fn clock_status() -> Option<libc::c_int> {
    let mut clock = std::mem::MaybeUninit::<libc::timex>::zeroed();
    #[expect(unsafe_code, reason = "neither the standard library nor nix asks the kernel this")]
    // SAFETY: all zeros is a `timex` that changes nothing (`modes`), and the kernel writes no more than one.
    let (state, clock) = unsafe { (libc::adjtimex(clock.as_mut_ptr()), clock.assume_init()) };
    (state >= 0).then_some(clock.status)
}

fn judge_synchronization(status: Option<libc::c_int>, findings: &mut Findings) {
    if status.is_some_and(|status| status & libc::STA_UNSYNC != 0) {
        let advice = "run chrony or systemd-timesyncd, here or on the host; where something else sets the clock, \
                      this does not matter";
        findings.warn("clock", "nothing says to the kernel that it is kept by NTP", advice);
    }
}

fn judge_clock(now_ms: u64, newest_ms: Option<u64>, away_max_ms: u64, findings: &mut Findings) {
    let shown = |ms: u64| {
        let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        at.map_or_else(|| format!("{ms} ms"), |at| format!("{at:.0}"))
    };
    let now = shown(now_ms);
    let set = "set the clock, and keep it by NTP";
    match newest_ms {
        _ if !(EARLIEST_MS..LATEST_MS).contains(&now_ms) => {
            findings.wrong("clock", format!("it says {now}"), set);
        }
        Some(newest) if newest > now_ms.saturating_add(CLOCK_MS) => {
            let found = format!("it says {now}, and the log was written until {}", shown(newest));
            let advice = "set the clock; until it has caught up, TTLs delete nothing. If it is right: \
                          `spindle clock accept`";
            findings.wrong("clock", found, advice);
        }
        Some(newest) if now_ms.saturating_sub(newest) > away_max_ms => {
            let found = format!(
                "it says {now}, and the log was written until {}, longer ago than --away-max",
                shown(newest)
            );
            let advice = "until the clock is accepted, TTLs delete nothing. If it is right, start the server and: \
                          `spindle clock accept`";
            findings.warn("clock", found, advice);
        }
        Some(newest) => {
            findings.ok("clock", format!("{now}; the log was written until {}", shown(newest)));
        }
        None => findings.ok("clock", now),
    }
}

/// Checks whether the wall clock keeps pace with the monotonic one.
fn check_steady(findings: &mut Findings) {
    const LOOK: Duration = Duration::from_millis(100);
    const APART: Duration = Duration::from_millis(50);
    let (wall, steady) = (SystemTime::now(), Instant::now());
    std::thread::sleep(LOOK);
    let passed = steady.elapsed();
    // Read last, so that a pause of the thread in between can only make this one longer.
    let Ok(by_wall) = wall.elapsed() else {
        findings.warn("clock", "it was set back just now", "keep it by NTP, which slews it");
        return;
    };
    if by_wall + APART < passed {
        findings.warn("clock", "it goes slower than time passes", "keep it by NTP, which slews it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_clock_that_nothing_keeps_is_a_warning() {
        let kept = libc::STA_PLL | libc::STA_NANO;
        let cases = [(None, None), (Some(kept), None)];
        let warned = [libc::STA_UNSYNC, kept | libc::STA_UNSYNC]
            .map(|bits| (Some(bits), Some(Verdict::Warning)));
        for (status, verdict) in cases.into_iter().chain(warned) {
            let mut findings = Findings::default();
            judge_synchronization(status, &mut findings);
            assert_eq!(findings.0.first().map(|finding| finding.verdict), verdict, "{status:?}");
        }
    }

    #[test]
    fn a_clock_is_wrong_behind_the_log_and_doubted_too_far_ahead_of_it() {
        const NOW: u64 = 1_800_000_000_000;
        const AWAY: u64 = 1_000;
        for (now, newest, verdict) in [
            (NOW, Some(NOW - AWAY), Verdict::Ok),
            (NOW, Some(NOW - AWAY - 1), Verdict::Warning),
            (LATEST_MS - 1, None, Verdict::Ok),
            (LATEST_MS, None, Verdict::Wrong),
            (u64::MAX, Some(NOW), Verdict::Wrong),
            (NOW, Some(u64::MAX), Verdict::Wrong),
            (NOW, None, Verdict::Ok),
            (NOW, Some(NOW - 1), Verdict::Ok),
            (NOW, Some(NOW + CLOCK_MS), Verdict::Ok),
            (NOW, Some(NOW + CLOCK_MS + 1), Verdict::Wrong),
            (EARLIEST_MS - 1, None, Verdict::Wrong),
            (0, Some(0), Verdict::Wrong),
        ] {
            let mut findings = Findings::default();
            judge_clock(now, newest, AWAY, &mut findings);
            assert_eq!(findings.0[0].verdict, verdict, "{now} {newest:?}");
        }
    }
}
