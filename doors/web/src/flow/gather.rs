//! Chooses which jobs of a flow are drawn, and which of them share a node of the drawing.

use std::collections::{BTreeMap, VecDeque};

use crate::flow::layers::{Arrow, depths};
use crate::flow::node::Node;
use crate::shapes::{FlowNode, JobFlow};

/// Up to this many jobs, each is drawn as a node of its own.
pub(super) const WHOLE_MAX: usize = 24;
/// In a larger flow, this many jobs or more that are alike share a node.
const ALIKE_MIN: usize = 3;
/// Jobs are alike if the jobs around them are, up to this many steps away.
const ROUNDS: usize = 4;
/// A node that is farther away is not drawn.
const STEPS_MAX: usize = 12;

/// A flow as nodes.
pub(super) struct Gathered<'a> {
    /// The nearest to the job first: the first one is the job itself.
    pub nodes: Vec<Node<'a>>,
    /// The arrows, between places in the list of nodes.
    pub arrows: Vec<Arrow>,
    /// How many jobs the flow has, including those that are too far away.
    pub jobs: usize,
}

/// Gathers the jobs of a flow, seen from one of them. Without that job the result is empty.
pub(super) fn gather(flow: &JobFlow, own: u64) -> Gathered<'_> {
    let mut jobs: Vec<&FlowNode> = flow.nodes.iter().collect();
    jobs.sort_by_key(|job| job.id);
    let place = |id: u64| jobs.binary_search_by_key(&id, |job| job.id).ok();
    let arrows = flow.edges.iter();
    let arrows: Vec<Arrow> =
        arrows.filter_map(|edge| Some((place(edge.from)?, place(edge.to)?))).collect();
    let Some(own) = place(own) else {
        return Gathered { nodes: Vec::new(), arrows: Vec::new(), jobs: jobs.len() };
    };
    let kinds = if jobs.len() <= WHOLE_MAX {
        (0..jobs.len()).collect()
    } else {
        split_small(alike(&jobs, &arrows, own))
    };
    let mut between: Vec<Arrow> =
        arrows.iter().map(|(from, to)| (kinds[*from], kinds[*to])).collect();
    between.sort_unstable();
    between.dedup();
    let nearest = nearest(kinds[own], &between);
    let mut nodes: Vec<Node<'_>> = nearest.iter().map(|_| Node { jobs: Vec::new() }).collect();
    let places: BTreeMap<usize, usize> = nearest.into_iter().zip(0..).collect();
    for (job, kind) in jobs.iter().zip(&kinds) {
        if let Some(place) = places.get(kind) {
            nodes[*place].jobs.push(job);
        }
    }
    let place = |kind: &usize| places.get(kind).copied();
    let arrows = between.iter().filter_map(|(from, to)| Some((place(from)?, place(to)?)));
    Gathered { arrows: arrows.collect(), nodes, jobs: jobs.len() }
}

/// The kind of each job: jobs that are alike have the same kind, and each batch is a kind of its
/// own. The jobs of a kind are equally deep, so that kinds never wait for each other in a circle,
/// just as jobs do not.
fn alike(jobs: &[&FlowNode], arrows: &[Arrow], own: usize) -> Vec<usize> {
    let depths = depths(jobs.len(), arrows);
    let said = |at: usize| {
        let FlowNode { is_batch, status, queue, .. } = jobs[at];
        let alone = (*is_batch || at == own).then_some(at);
        (depths[at], alone, status.as_str(), queue.bytes())
    };
    let mut kinds = numbered((0..jobs.len()).map(said));
    for _ in 0..ROUNDS {
        let mut around = vec![(Vec::new(), Vec::new()); jobs.len()];
        for (from, to) in arrows {
            around[*to].0.push(kinds[*from]);
            around[*from].1.push(kinds[*to]);
        }
        for (before, after) in &mut around {
            for side in [before, after] {
                side.sort_unstable();
                side.dedup();
            }
        }
        kinds = numbered(kinds.iter().zip(around));
    }
    kinds
}

/// Numbers things from 0 in order of appearance; equal things get the same number.
fn numbered<T: Ord>(things: impl Iterator<Item = T>) -> Vec<usize> {
    let mut numbers = BTreeMap::new();
    things
        .map(|thing| {
            let next = numbers.len();
            *numbers.entry(thing).or_insert(next)
        })
        .collect()
}

/// Splits kinds with few jobs, so that each of these jobs is drawn on its own.
fn split_small(kinds: Vec<usize>) -> Vec<usize> {
    let mut counts = BTreeMap::<usize, usize>::new();
    kinds.iter().for_each(|kind| *counts.entry(*kind).or_default() += 1);
    let alone = |(at, kind)| (kind, if counts[&kind] < ALIKE_MIN { at } else { 0 });
    numbered(kinds.into_iter().enumerate().map(alone))
}

/// What can be reached from a node in either direction, the nearest first.
fn nearest(own: usize, arrows: &[Arrow]) -> Vec<usize> {
    let mut around = BTreeMap::<usize, Vec<usize>>::new();
    for (from, to) in arrows {
        around.entry(*from).or_default().push(*to);
        around.entry(*to).or_default().push(*from);
    }
    let mut steps = BTreeMap::from([(own, 0)]);
    let mut next = VecDeque::from([own]);
    let mut found = Vec::new();
    while let Some(node) = next.pop_front() {
        found.push(node);
        let step = steps[&node] + 1;
        if step > STEPS_MAX {
            continue;
        }
        for other in around.get(&node).into_iter().flatten() {
            if !steps.contains_key(other) {
                steps.insert(*other, step);
                next.push_back(*other);
            }
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// A flow of jobs and batches, each with its number, status and queue, and the edges between
    /// those that wait for each other.
    pub fn flow(jobs: &[(u64, &str, &str)], edges: &[(u64, u64)]) -> JobFlow {
        let nodes = jobs.iter().map(|(id, status, queue)| match *status {
            "gone" => json!({ "id": id, "status": status }),
            "open" | "sealed" | "ended" => {
                json!({ "id": id, "is_batch": true, "status": status, "queue": queue })
            }
            status => json!({ "id": id, "status": status, "queue": queue }),
        });
        let edges = edges.iter().map(|(from, to)| json!({ "from": from, "to": to }));
        let (nodes, edges): (Vec<_>, Vec<_>) = (nodes.collect(), edges.collect());
        from_value(json!({ "nodes": nodes, "edges": edges, "is_partial": false })).unwrap()
    }

    fn ids(node: &Node<'_>) -> Vec<u64> {
        node.jobs.iter().map(|job| job.id).collect()
    }

    #[test]
    fn a_small_flow_is_drawn_job_by_job() {
        let jobs = [(1, "done", "a"), (2, "done", "a"), (3, "done", "a"), (4, "blocked", "b")];
        let flow = flow(&jobs, &[(1, 4), (2, 4), (3, 4), (9, 4)]);
        let found = gather(&flow, 4);
        assert_eq!(found.nodes.iter().map(ids).collect::<Vec<_>>(), [[4], [1], [2], [3]]);
        assert_eq!(found.arrows, [(1, 0), (2, 0), (3, 0)]);
        assert!(gather(&flow, 7).nodes.is_empty(), "it is not in it");
    }

    #[test]
    fn alike_jobs_of_a_large_flow_are_one_node() {
        // A hundred chains of two: one has died, one is the job that is looked at.
        let mut jobs = vec![(1000, "blocked", "album")];
        let mut edges = Vec::new();
        for number in 1..=100 {
            let status = if number == 7 { "dead" } else { "done" };
            jobs.push((number, status, "resize"));
            jobs.push((100 + number, "blocked", "upload"));
            edges.extend([(number, 100 + number), (100 + number, 1000)]);
        }
        let flow = flow(&jobs, &edges);
        let found = gather(&flow, 50);
        let nodes: Vec<(u64, usize)> =
            found.nodes.iter().map(|node| (node.id(), node.jobs.len())).collect();
        // The uploads after the dead job and after the job looked at differ from the others.
        let expected = [(50, 1), (150, 1), (1000, 1), (101, 98), (107, 1), (1, 98), (7, 1)];
        assert_eq!(nodes, expected);
        assert_eq!(found.arrows.len(), 6);
        assert_eq!(found.jobs, 201);
    }

    #[test]
    fn batches_are_gathered_with_nothing() {
        // Ten batches of three jobs each that one job waits for.
        let (mut jobs, mut edges) = (vec![(1000, "blocked", "album")], Vec::new());
        for number in 1..=10 {
            let batch = 100 + number;
            jobs.push((batch, "sealed", "album"));
            edges.push((batch, 1000));
            for job in 3 * number - 2..=3 * number {
                jobs.push((job, "done", "resize"));
                edges.push((job, batch));
            }
        }
        let flow = flow(&jobs, &edges);
        let found = gather(&flow, 1000);
        let counts = |is_batch: bool| -> Vec<usize> {
            let nodes = found.nodes.iter().filter(|node| node.is_batch() == is_batch);
            nodes.map(|node| node.jobs.len()).collect()
        };
        assert_eq!(counts(true), [1; 10]);
        // The job itself, and the jobs of each batch.
        assert_eq!(counts(false), [1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn two_that_are_alike_are_not_worth_a_node_of_their_own() {
        let jobs: Vec<_> = (1..=30).map(|id| (id, "ready", "a")).collect();
        let edges: Vec<_> = (2..=30).map(|id| (1, id)).collect();
        let mut few = jobs.clone();
        few[28].1 = "dead";
        few[29].1 = "dead";
        let flow = flow(&few, &edges);
        let found = gather(&flow, 1);
        let counts: Vec<usize> = found.nodes.iter().map(|node| node.jobs.len()).collect();
        assert_eq!(counts, [1, 27, 1, 1]);
    }

    #[test]
    fn what_is_too_far_away_is_left_out() {
        let jobs: Vec<_> = (1..=1_000).map(|id| (id, "blocked", "chain")).collect();
        let edges: Vec<_> = (1..1_000).map(|id| (id, id + 1)).collect();
        let flow = flow(&jobs, &edges);
        let found = gather(&flow, 500);
        assert_eq!(found.nodes.len(), 1 + 2 * STEPS_MAX);
        assert_eq!(found.nodes[0].id(), 500);
    }
}
