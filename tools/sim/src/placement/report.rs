//! The whole calculation for one size, as text.

use std::fmt;

use super::failover::{TakingOver, dies};
use super::lead::Placement;
use super::rendezvous::Node;

/// A size of cluster.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// How many shards.
    pub shards: u64,
    /// How many nodes.
    pub nodes: u64,
    /// How many nodes have each shard in memory, its leader among them.
    pub replicas: usize,
    /// How many waiting jobs there are in all.
    pub jobs: u64,
    /// What a waiting job takes in memory, in bytes.
    pub job_bytes: f64,
    /// What it costs to take a shard over.
    pub taking_over: TakingOver,
    /// How many placements are looked at, with seeds from 0 on.
    pub seeds: u64,
}

/// Numbers in order.
struct Ordered(Vec<f64>);

impl Ordered {
    fn of(numbers: impl IntoIterator<Item = f64>) -> Ordered {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        Ordered(numbers)
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}

/// The results for one size.
pub struct Report {
    size: Size,
    first: Ordered,
    led: Ordered,
    held: Ordered,
    folded_by_leave: Ordered,
    led_by_leave: Ordered,
    folded_by_join: Ordered,
    led_by_join: Ordered,
    led_again: Ordered,
    answers: Ordered,
    taken: Ordered,
}

impl Report {
    /// Looks at as many placements as there are seeds; in each, one node dies and one comes.
    pub fn of(size: Size) -> Report {
        let counts = |counts: Vec<usize>| counts.into_iter().map(|count| count as f64);
        let mut all: [Vec<f64>; 10] = Default::default();
        for seed in 0..size.seeds {
            let nodes = (0..size.nodes).map(|id| Node { id, weight: 1.0 }).collect();
            let placement = Placement::new(seed, size.shards, nodes, size.replicas);
            let dead = seed % size.nodes;
            let outage = dies(&placement, dead, size.taking_over, seed);
            let left = placement.clone().leave(dead);
            let joined = placement.clone().join(Node { id: size.nodes, weight: 1.0 });
            all[0].extend(counts(placement.first()));
            all[1].extend(counts(placement.led()));
            all[2].extend(counts(placement.held()));
            all[3].push(left.folded as f64);
            all[4].push(left.led as f64);
            all[5].push(joined.folded as f64);
            all[6].push(joined.led as f64);
            all[7].extend(outage.led);
            all[8].extend(outage.answers);
            all[9].push(outage.taken_max as f64);
        }
        let [
            first,
            led,
            held,
            folded_by_leave,
            led_by_leave,
            folded_by_join,
            led_by_join,
            led_again,
            answers,
            taken,
        ] = all.map(Ordered::of);
        Report {
            size,
            first,
            led,
            held,
            folded_by_leave,
            led_by_leave,
            folded_by_join,
            led_by_join,
            led_again,
            answers,
            taken,
        }
    }

    /// Memory of a node that holds so many shards, in GiB.
    fn gib(&self, shards: f64) -> f64 {
        let jobs = shards * self.size.jobs as f64 / self.size.shards as f64;
        jobs * self.size.job_bytes / f64::from(1 << 30)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { shards, nodes, replicas, jobs, job_bytes, taking_over, seeds } = self.size;
        let TakingOver { append_ms, at_a_time } = taking_over;
        writeln!(
            f,
            "placement: {shards} shards, {nodes} nodes, {replicas} members each, {seeds} seeds; {jobs} waiting jobs of \
             {job_bytes} bytes; {append_ms} ms an epoch append, {at_a_time} at a time"
        )?;
        let mut row = |what: &str, numbers: &Ordered, decimals: usize| {
            writeln!(
                f,
                "{what:<46}{:>12.decimals$}{:>12.decimals$}",
                numbers.median(),
                numbers.max()
            )
        };
        row("shards led, by the highest score", &self.first, 0)?;
        row("shards led, by who leads fewest", &self.led, 0)?;
        row("shards in memory", &self.held, 0)?;
        let memory = Ordered(self.held.0.iter().map(|held| self.gib(*held)).collect());
        row("memory of waiting jobs, GiB", &memory, 2)?;
        row("a node goes: shards folded elsewhere", &self.folded_by_leave, 0)?;
        row("a node goes: shards led elsewhere", &self.led_by_leave, 0)?;
        row("a node comes: shards folded there", &self.folded_by_join, 0)?;
        row("a node comes: shards led elsewhere", &self.led_by_join, 0)?;
        row("a node dies: most shards one node takes over", &self.taken, 0)?;
        row("a node dies: a shard is led again, ms", &self.led_again, 0)?;
        row("a node dies: a shard answers again, ms", &self.answers, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_one_size_comes_to() {
        let taking_over = TakingOver { append_ms: 5.0, at_a_time: 16 };
        let size = Size {
            shards: 30,
            nodes: 3,
            replicas: 3,
            jobs: 1 << 30,
            job_bytes: 100.0,
            taking_over,
            seeds: 2,
        };
        let report = Report::of(size).to_string();
        // Three members of three nodes: each node has all shards, and leads a third of them.
        for row in
            ["shards led, by who leads fewest 10 10", "shards in memory 30 30", "GiB 100.00 100.00"]
        {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&report).contains(row), "{row}: {report}");
        }
        assert_eq!(report, Report::of(size).to_string());
    }
}
