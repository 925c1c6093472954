//! A flow as SVG, and as a list.

use std::fmt::Write;

use maud::{Markup, html};

use crate::flow::gather::{Gathered, gather};
use crate::flow::layers::{Arrow, Layout, NODE_HEIGHT, Place, layout, length};
use crate::flow::node::Node;
use crate::html::{grouped, plural, queue_link, status_badge, unseen};
use crate::shapes::{Batch, Counts, FlowNode, JobFlow};

/// Limits of a drawing: the nodes drawn, the layers that their arrows may go through in all, and
/// the bytes that the drawing and its list may take of the page.
const NODES_MAX: usize = 48;
const LENGTH_MAX: usize = 400;
const BYTES_MAX: usize = 24_000;

/// The width of a node, the space between two layers for arrows, and the space around the drawing
/// for the beginnings of arrows that lead elsewhere.
const WIDTH: u32 = 168;
const GAP: u32 = 44;
const MARGIN: u32 = 22;
/// How round the corners of a job are, and those of a batch.
const CORNER: u32 = 6;
const BATCH_CORNER: u32 = 18;
/// The room above and below for the mark of the job itself.
const EDGE: u32 = 4;
/// How many characters of a number and a queue's name fit into a node.
const LINE_CHARS: usize = 19;

/// The part of a job's or a batch's page with the flow that it is in; nothing if it is in none.
pub(crate) fn section(flow: &JobFlow, own: u64) -> Markup {
    let gathered = gather(flow, own);
    if gathered.nodes.len() < 2 {
        return html! {};
    }
    let mut count = gathered.nodes.len().min(NODES_MAX);
    loop {
        let drawing = Drawing::of(&gathered, count);
        let is_least = count <= 2;
        if is_least || drawing.length() <= LENGTH_MAX {
            let drawn = drawing.drawn(flow);
            if is_least || drawn.0.len() <= BYTES_MAX {
                return drawn;
            }
        }
        count -= count.div_ceil(8);
    }
}

/// The nodes of a flow that are drawn.
struct Drawing<'a> {
    gathered: &'a Gathered<'a>,
    /// The places in `gathered` of the nodes drawn, ordered by the numbers of their jobs; a node's
    /// number in the drawing is its index here.
    shown: Vec<usize>,
    arrows: Vec<Arrow>,
    /// The nodes from which, and to which, an arrow leads that is not drawn.
    goes_on: Vec<usize>,
    began_before: Vec<usize>,
}

impl Drawing<'_> {
    /// The `count` nearest nodes.
    fn of<'a>(gathered: &'a Gathered<'a>, count: usize) -> Drawing<'a> {
        let mut shown: Vec<usize> = (0..count).collect();
        shown.sort_by_key(|at| gathered.nodes[*at].id());
        let mut numbers = vec![None; gathered.nodes.len()];
        shown.iter().enumerate().for_each(|(number, at)| numbers[*at] = Some(number));
        let (mut arrows, mut goes_on, mut began_before) = (Vec::new(), Vec::new(), Vec::new());
        for (from, to) in &gathered.arrows {
            match (numbers[*from], numbers[*to]) {
                (Some(from), Some(to)) => arrows.push((from, to)),
                (Some(from), None) => goes_on.push(from),
                (None, Some(to)) => began_before.push(to),
                (None, None) => {}
            }
        }
        for ends in [&mut goes_on, &mut began_before] {
            ends.sort_unstable();
            ends.dedup();
        }
        Drawing { gathered, shown, arrows, goes_on, began_before }
    }

    fn length(&self) -> usize {
        length(self.shown.len(), &self.arrows)
    }

    fn node(&self, number: usize) -> &Node<'_> {
        &self.gathered.nodes[self.shown[number]]
    }

    /// The job itself is the nearest.
    fn is_own(&self, number: usize) -> bool {
        self.shown[number] == 0
    }

    fn drawn(&self, flow: &JobFlow) -> Markup {
        let layout = layout(self.shown.len(), &self.arrows);
        let drawn: usize = (0..self.shown.len()).map(|number| self.node(number).jobs.len()).sum();
        let left_out = self.gathered.jobs - drawn;
        let has_batches = flow.nodes.iter().any(|node| node.is_batch);
        let more = match left_out as u64 {
            count if has_batches => format!("{} more", grouped(count)),
            count => plural(count, "more job"),
        };
        html! {
            section #flow data-follow {
                h2 { "Flow " span.soft { "· " (summary(flow)) } }
                div.flow #flow-drawing data-kept tabindex="0" role="region" aria-label="The flow, drawn" {
                    (self.svg(&layout))
                }
                details #flow-list data-kept {
                    summary { "As a list" }
                    (self.list(&layout, if has_batches { "Job or batch" } else { "Job" }))
                }
                @if left_out > 0 {
                    p.muted { (more) " not drawn: the nearest are." }
                }
                @if flow.is_partial {
                    p.muted { "There are more jobs than these, or some in queues that you may not see." }
                }
            }
        }
    }

    fn svg(&self, layout: &Layout) -> Markup {
        let width = 2 * MARGIN + layout.layers as u32 * (WIDTH + GAP) - GAP;
        let height = layout.height + 2 * EDGE;
        let paths = self.paths(layout);
        html! {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group"
                aria-label="Each arrow leads from a job to one that waits for it" {
                path.stub d=(paths.stubs) {}
                path.arrow d=(paths.others) {}
                path.arrow.own d=(paths.own) {}
                path.head d=(paths.heads) {}
                @for number in in_order(layout) {
                    (self.drawn_node(number, layout.nodes[number]))
                }
            }
        }
    }

    fn drawn_node(&self, number: usize, place: Place) -> Markup {
        let (node, is_own) = (self.node(number), self.is_own(number));
        let (x, y) = (left(place), EDGE + place.y - NODE_HEIGHT / 2);
        let (status, is_batch) = (node.status(), node.is_batch());
        let (mark, corner, word) =
            if is_batch { ("▣", BATCH_CORNER, "batch") } else { ("■", CORNER, "job") };
        let inside = html! {
            title { (node.title(is_own)) }
            rect.batch[is_batch] x=(x) y=(y) width=(WIDTH) height=(NODE_HEIGHT) rx=(corner) {}
            // The inner `svg` cuts off text that is too long.
            svg x=(x + 10) y=(y) width=(WIDTH - 16) height=(NODE_HEIGHT) {
                text y="19" { tspan.mono { (node.name()) } " " (node.queue_in(LINE_CHARS)) }
                text.(status) y="36" { (mark) " " (status) @if is_own { tspan { " · this " (word) } } }
            }
        };
        html! {
            @match node.link().filter(|_| !is_own) {
                Some(to) => a href=(to) { (inside) },
                None => g class=[is_own.then_some("own")] { (inside) },
            }
        }
    }

    /// The same nodes in lines, each with those that it waits for, under this head.
    fn list(&self, layout: &Layout, head: &str) -> Markup {
        let before = |number: usize| {
            let from = self.arrows.iter().filter(move |(_, to)| *to == number);
            from.map(|(from, _)| self.node(*from)).enumerate()
        };
        html! {
            table.list {
                thead { tr { th { (head) } th { "Status" } th { "Queue" } th { (unseen("After")) } } }
                tbody {
                    @for number in in_order(layout) {
                        @let node = self.node(number);
                        tr {
                            td.nowrap {
                                @match node.link() {
                                    Some(to) => a.mono href=(to) { (node.name()) },
                                    None => span.mono { (node.name()) },
                                }
                                @if self.is_own(number) {
                                    " (this " (if node.is_batch() { "batch" } else { "job" }) ")"
                                }
                            }
                            td { (status_badge(node.status())) }
                            td.name { @if let Some(queue) = node.queue() { (queue_link(queue)) } }
                            td.what {
                                @if before(number).next().is_some() { span.soft { "after " } }
                                @for (at, node) in before(number) {
                                    @if at > 0 { ", " }
                                    span.mono { (node.name()) }
                                    @if node.jobs.len() > 1 { " " (node.queue_in(LINE_CHARS)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn paths(&self, layout: &Layout) -> Paths {
        let mut paths = Paths::default();
        let mut targets: Vec<usize> = Vec::new();
        for ((from, to), way) in &layout.ways {
            let is_own = self.is_own(*from) || self.is_own(*to);
            line(if is_own { &mut paths.own } else { &mut paths.others }, way);
            targets.push(*to);
        }
        targets.sort_unstable();
        targets.dedup();
        for to in targets {
            let place = layout.nodes[to];
            // Writing to a string does not fail.
            let _ = write!(paths.heads, "M{} {}l-8-4v8z", left(place), EDGE + place.y);
        }
        let stub = NODE_HEIGHT / 4;
        for from in &self.goes_on {
            let place = layout.nodes[*from];
            let _ = write!(paths.stubs, "M{} {}h18", left(place) + WIDTH, EDGE + place.y + stub);
        }
        for to in &self.began_before {
            let place = layout.nodes[*to];
            let _ = write!(paths.stubs, "M{} {}h-18", left(place), EDGE + place.y + stub);
        }
        paths
    }
}

/// The lines of a drawing: of the arrows of the job itself and of the others, their heads, and the
/// beginnings of those that are not drawn.
#[derive(Default)]
struct Paths {
    own: String,
    others: String,
    heads: String,
    stubs: String,
}

/// Draws the way of an arrow.
fn line(path: &mut String, way: &[Place]) {
    for (at, pair) in way.windows(2).enumerate() {
        let (from, to) = (pair[0], pair[1]);
        let (begin, end) = (left(from) + WIDTH, left(to));
        let (y, end_y) = (EDGE + from.y, EDGE + to.y);
        // Writing to a string does not fail.
        let _ = if at == 0 {
            write!(path, "M{begin} {y}")
        } else {
            // It passes a layer.
            write!(path, "H{begin}")
        };
        // The arrow's head covers the last part.
        let end = if at + 2 == way.len() { end - 6 } else { end };
        let middle = begin + GAP / 2;
        let _ = if y == end_y {
            write!(path, "H{end}")
        } else {
            write!(path, "C{middle} {y} {middle} {end_y} {end} {end_y}")
        };
    }
}

/// Where a node begins.
fn left(place: Place) -> u32 {
    MARGIN + place.layer as u32 * (WIDTH + GAP)
}

/// The nodes in the order in which a person reads them.
fn in_order(layout: &Layout) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..layout.nodes.len()).collect();
    numbers.sort_by_key(|number| (layout.nodes[*number].layer, layout.nodes[*number].y));
    numbers
}

/// How many jobs and how many batches of the flow have which status.
fn summary(flow: &JobFlow) -> String {
    let (batches, jobs): (Vec<_>, Vec<_>) = flow.nodes.iter().partition(|node| node.is_batch);
    let jobs = counted(&jobs, "job", "jobs", &[&Counts::STATUSES[..], &["gone"]].concat());
    let batches = counted(&batches, "batch", "batches", &Batch::STATUSES);
    [jobs, batches].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// How many of these there are, and how many of which status; none if there are none.
fn counted(nodes: &[&FlowNode], one: &str, many: &str, statuses: &[&str]) -> Option<String> {
    let of = |status: &str| nodes.iter().filter(|node| node.status == status).count();
    let counts = statuses.iter().map(|status| (status, of(status) as u64));
    let counts: Vec<String> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(status, count)| format!("{} {status}", grouped(count)))
        .collect();
    let noun = if nodes.len() == 1 { one } else { many };
    let total = grouped(nodes.len() as u64);
    (!nodes.is_empty()).then(|| format!("{total} {noun}: {}", counts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::gather::tests::flow;

    #[test]
    fn a_flow_is_drawn_with_links_words_and_arrows() {
        let jobs = [
            (12, "done", "resize"),
            (13, "gone", ""),
            (14, "blocked", "album"),
            (15, "blocked", "<mail>"),
        ];
        let drawn = section(&flow(&jobs, &[(12, 14), (13, 14), (14, 15)]), 14).into_string();
        for part in [
            "· 4 jobs: 2 blocked, 1 done, 1 gone",
            "<a href=\"/jobs/12\"><title>Job 12, done, in resize</title>",
            "<g><title>Job 13, gone</title>",
            "<g class=\"own\"><title>Job 14, this one, blocked, in album</title>",
            "&lt;mail&gt;</text>",
            ">■ blocked<tspan> · this job</tspan></text>",
            "<path class=\"arrow own\" d=\"M190 26C212 26 212 54 228 54M190 82C212 82 212 54 228 54M402 54H440\">",
            "<path class=\"head\" d=\"M234 54l-8-4v8zM446 54l-8-4v8z\">",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        let alone = section(&flow(&jobs[..1], &[]), 12).into_string();
        assert_eq!(alone, "", "it neither waits nor is waited for");
    }

    #[test]
    fn batches_are_drawn_unlike_jobs_and_lead_to_their_pages() {
        let nodes = [(17, "open", "photos"), (18, "ready", "resize"), (19, "blocked", "album")];
        let flow = flow(&nodes, &[(18, 17), (17, 19)]);
        let drawn = section(&flow, 19).into_string();
        for part in [
            "· 2 jobs: 1 ready, 1 blocked; 1 batch: 1 open",
            "<a href=\"/batches/17\"><title>Batch 17, open, in photos</title><rect class=\"batch\"",
            "<tspan class=\"mono\">batch 17</tspan> photos</text>",
            "<text class=\"open\" y=\"36\">▣ open</text>",
            "<a class=\"mono\" href=\"/batches/17\">batch 17</a>",
            "<th>Job or batch</th>",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        assert_eq!(drawn.matches("<rect class=\"batch\"").count(), 1, "{drawn}");
        let own = section(&flow, 17).into_string();
        assert!(own.contains("<title>Batch 17, this one, open, in photos</title>"), "{own}");
        assert!(own.contains("<tspan> · this batch</tspan>"), "{own}");
    }

    #[test]
    fn what_is_left_out_is_said_and_begun() {
        let jobs: Vec<_> = (1..=100).map(|id| (id, "blocked", "chain")).collect();
        let edges: Vec<_> = (1..100).map(|id| (id, id + 1)).collect();
        let mut flow = flow(&jobs, &edges);
        let drawn = section(&flow, 50).into_string();
        assert!(drawn.contains("75 more jobs not drawn: the nearest are."), "{drawn}");
        assert!(!drawn.contains("There are more jobs"), "{drawn}");
        flow.is_partial = true;
        let drawn = section(&flow, 50).into_string();
        assert!(drawn.contains("There are more jobs than these"), "{drawn}");
    }

    #[test]
    fn a_node_of_many_jobs_links_to_them() {
        let mut jobs: Vec<_> = (1..=30).map(|id| (id, "done", "resize")).collect();
        jobs.push((31, "blocked", "album"));
        let edges: Vec<_> = (1..=30).map(|id| (id, 31)).collect();
        let drawn = section(&flow(&jobs, &edges), 31).into_string();
        assert!(drawn.contains("<title>30 jobs, done, in resize</title>"), "{drawn}");
        assert!(drawn.contains("<a href=\"/jobs?ids=1,2,3,"), "{drawn}");
        assert!(drawn.contains("<tspan class=\"mono\">30 ×</tspan> resize"), "{drawn}");
    }

    /// Every flow of a thousand jobs that the tests know: wide, long, dense, and of jobs that have
    /// nothing in common.
    fn thousands() -> Vec<(&'static str, JobFlow)> {
        let queue = |id: u64| format!("{}{id}", "\"<&".repeat(60));
        let named: Vec<(u64, String)> = (1..=1_000).map(|id| (id, queue(id))).collect();
        let other = |id: u64| ["done", "blocked", "dead"][id as usize % 3];
        let odd: Vec<_> = named.iter().map(|(id, name)| (*id, other(*id), &**name)).collect();
        let same: Vec<_> = (1..=1_000).map(|id| (id, "blocked", "chain")).collect();
        let chain: Vec<_> = (1..1_000).map(|id| (id, id + 1)).collect();
        let before = |id: u64| id.saturating_sub(100).max(1)..id;
        let dense: Vec<_> =
            (2..=1_000).flat_map(|id| before(id).map(move |before| (before, id))).collect();
        let wide: Vec<_> = (1..=1_000).filter(|id| *id != 500).map(|id| (500, id)).collect();
        let halves: Vec<_> = (1..=500)
            .flat_map(|from| (0..100).map(move |at| (from, 501 + (from * 7 + at * 5) % 500)))
            .collect();
        vec![
            ("chain", flow(&odd, &chain)),
            ("a chain of one queue", flow(&same, &chain)),
            ("dense", flow(&odd, &dense)),
            ("dense of one queue", flow(&same, &dense)),
            ("wide", flow(&odd, &wide)),
            ("wide of one queue", flow(&same, &wide)),
            ("halves", flow(&odd, &halves)),
            ("halves of one queue", flow(&same, &halves)),
        ]
    }

    #[test]
    fn a_thousand_jobs_are_drawn_in_little_room() {
        for (name, flow) in thousands() {
            let drawn = section(&flow, 500).into_string();
            assert!(drawn.len() <= BYTES_MAX, "{name}: {} bytes", drawn.len());
            assert!(drawn.matches("<rect").count() >= 2, "{name}: {drawn}");
        }
    }
}
