//! What a run did, and how long no client was answered after each kind of fault.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::faults::{Fault, Group};

/// Notes each acknowledgement that a client gets, of changes and through which node.
pub struct Pulse(Mutex<Beats>);

struct Beats {
    last: Instant,
    longest: Duration,
    /// By node.
    answers: Vec<u64>,
}

impl Pulse {
    pub fn new(nodes: usize) -> Self {
        let (last, longest) = (Instant::now(), Duration::ZERO);
        Self(Mutex::new(Beats { last, longest, answers: vec![0; nodes] }))
    }

    /// A client of this node was answered.
    pub fn answered(&self, node: usize) {
        let (now, mut beats) = (Instant::now(), self.beats());
        beats.longest = beats.longest.max(now - beats.last);
        beats.last = now;
        beats.answers[node] += 1;
    }

    /// From now on the longest time without an answer counts.
    pub fn begin(&self) {
        let mut beats = self.beats();
        (beats.last, beats.longest) = (Instant::now(), Duration::ZERO);
    }

    /// The longest time without an answer.
    pub fn longest(&self) -> Duration {
        let beats = self.beats();
        beats.longest.max(beats.last.elapsed())
    }

    /// How many answers came so far, by node.
    pub fn answers(&self) -> Vec<u64> {
        self.beats().answers.clone()
    }

    /// How many in all.
    pub fn count(&self) -> u64 {
        self.beats().answers.iter().sum()
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The faults of a run, and what was measured.
#[derive(Default)]
pub struct Report {
    silences: BTreeMap<Fault, Vec<Duration>>,
    /// Answers while it was known who led: through that node, and through the others.
    pub through_leader: u64,
    pub through_followers: u64,
    /// How often a queue began to move to another shard.
    pub moves: u64,
}

impl Report {
    /// A fault happened and is over; for `silence` no client was answered.
    pub fn add(&mut self, fault: Fault, silence: Duration) {
        self.silences.entry(fault).or_default().push(silence);
    }

    /// How long no client was answered at the last fault of this kind.
    pub fn newest(&self, fault: Fault) -> Duration {
        self.silences.get(&fault).and_then(|silences| silences.last()).copied().unwrap_or_default()
    }

    /// The faults by group and kind. An error if one did not happen that should have.
    pub fn faults(&self, expected: &[Fault]) -> Result<String> {
        let missed: Vec<_> =
            expected.iter().filter(|fault| !self.silences.contains_key(fault)).collect();
        let missed: Vec<_> = missed.into_iter().map(|fault| fault.name()).collect();
        ensure!(missed.is_empty(), "these did not happen: {}", missed.join(", "));
        ensure!(
            self.through_leader > 0 && self.through_followers > 0,
            "{} answers through the leader and {} through followers: the test proves nothing of one of them",
            self.through_leader,
            self.through_followers
        );
        let groups = Group::ALL.into_iter().filter_map(|group| {
            let kinds: Vec<_> =
                self.silences.iter().filter(|(it, _)| it.group() == group).collect();
            let count: usize = kinds.iter().map(|(_, silences)| silences.len()).sum();
            let each =
                kinds.iter().map(|(it, silences)| format!("{} {}", silences.len(), it.name()));
            (count > 0).then(|| {
                format!("{count} {} ({})", group.name(), each.collect::<Vec<_>>().join(", "))
            })
        });
        Ok(groups.collect::<Vec<_>>().join("; "))
    }

    /// For each kind of fault the time without an answer: the median, that of 95 in 100, the longest.
    pub fn silences(&self) -> String {
        let line = |(fault, silences): (&Fault, &Vec<Duration>)| {
            let mut sorted = silences.clone();
            sorted.sort();
            let [p50, p95, max] = [50, 95, 100].map(|part| percentile(&sorted, part).as_secs_f64());
            format!("  {:<40} {p50:>5.1} {p95:>5.1} {max:>5.1}", fault.name())
        };
        let lines: Vec<_> = self.silences.iter().map(line).collect();
        let head =
            format!("  {:<40} {:>5} {:>5} {:>5}", "seconds without an answer", "p50", "p95", "max");
        [vec![head], lines].concat().join("\n")
    }
}

/// The smallest value that is at least as large as `part` percent of the values. There is at least
/// one.
fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() * part).div_ceil(100) - 1]
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Cut, Victim};
    use super::*;

    #[test]
    fn a_fault_that_did_not_happen_fails_the_run() {
        let mut report = Report { through_leader: 1, through_followers: 1, ..Report::default() };
        let (kill, cut) = (Fault::Killed(Victim::Machine), Fault::Cut(Cut::LogLeader));
        report.add(kill, Duration::from_millis(1_260));
        report.add(kill, Duration::from_millis(900));
        let missed = report.faults(&[kill, cut]).unwrap_err().to_string();
        assert_eq!(missed, "these did not happen: log's leader cut off from its followers");
        assert_eq!(report.faults(&[kill]).unwrap(), "2 kills (2 leader's machine killed)");
        let silences = report.silences();
        assert!(
            silences.contains("leader's machine killed                    0.9   1.3   1.3"),
            "{silences}"
        );
        report.through_followers = 0;
        assert!(report.faults(&[kill]).unwrap_err().to_string().contains("0 through followers"));
    }

    #[test]
    fn percentiles_are_among_what_was_measured() {
        let times: Vec<_> = (1..=20).map(Duration::from_secs).collect();
        let of = |part| percentile(&times, part).as_secs();
        assert_eq!((of(50), of(95), of(100)), (10, 19, 20));
        assert_eq!(percentile(&times[..1], 50).as_secs(), 1);
    }

    #[test]
    fn the_longest_silence_is_between_answers_or_goes_on() {
        let pulse = Pulse::new(2);
        pulse.beats().last -= Duration::from_secs(5);
        pulse.answered(1);
        assert!(pulse.longest() >= Duration::from_secs(5));
        pulse.begin();
        assert!(pulse.longest() < Duration::from_secs(5));
        pulse.beats().last -= Duration::from_secs(9);
        assert!(pulse.longest() >= Duration::from_secs(9), "nobody has been answered yet");
        assert_eq!((pulse.count(), pulse.answers()), (1, vec![0, 1]));
    }
}
