//! Places of the nodes of a graph, in layers from left to right.

use std::collections::VecDeque;

/// The height of a node, and the room that an arrow takes in a layer that it only passes through.
pub(super) const NODE_HEIGHT: u32 = 44;
const BEND_HEIGHT: u32 = 12;
/// The space between two of these.
const GAP_HEIGHT: u32 = 12;
/// How often the layers are reordered, alternately from the left and from the right.
const SWEEPS: usize = 8;

/// An arrow: the numbers of the nodes that it leads from and to.
pub(super) type Arrow = (usize, usize);

/// The place of a node, or of the bend of an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place {
    /// Its layer, counted from the left, from 0.
    pub layer: usize,
    /// Its middle, from the top.
    pub y: u32,
}

/// Where everything is.
pub(super) struct Layout {
    /// Of each node.
    pub nodes: Vec<Place>,
    /// The way of each arrow that is drawn: from a node through its bends to a node.
    pub ways: Vec<(Arrow, Vec<Place>)>,
    pub layers: usize,
    pub height: u32,
}

/// How many arrows lead to each node on the longest way to it. Nodes of a circle (jobs have none)
/// keep the depth at which the way enters the circle.
pub(super) fn depths(count: usize, arrows: &[Arrow]) -> Vec<usize> {
    let mut depths = vec![0; count];
    let mut open = vec![0_usize; count];
    let mut behind = vec![Vec::new(); count];
    for &(from, to) in arrows {
        behind[from].push(to);
        open[to] += 1;
    }
    let mut ready: VecDeque<usize> = (0..count).filter(|node| open[*node] == 0).collect();
    while let Some(from) = ready.pop_front() {
        for &to in &behind[from] {
            depths[to] = depths[to].max(depths[from] + 1);
            open[to] -= 1;
            if open[to] == 0 {
                ready.push_back(to);
            }
        }
    }
    depths
}

/// The layers of nodes: their depths, but a node that waits for nothing stands just before the first
/// one that waits for it.
fn layers(count: usize, arrows: &[Arrow]) -> Vec<usize> {
    let depths = depths(count, arrows);
    let mut layers = depths.clone();
    for (node, layer) in layers.iter_mut().enumerate().filter(|(_, layer)| **layer == 0) {
        let next = arrows.iter().filter(|(from, _)| *from == node).map(|(_, to)| depths[*to]);
        *layer = next.min().unwrap_or_default().saturating_sub(1);
    }
    layers
}

/// How many layers all arrows pass through together, which is a measure of the size of their
/// drawing.
pub(super) fn length(count: usize, arrows: &[Arrow]) -> usize {
    let layers = layers(count, arrows);
    arrows.iter().map(|(from, to)| layers[*to].saturating_sub(layers[*from])).sum()
}

/// Finds the places of `count` nodes. An arrow that does not lead to a later layer is left out,
/// such as one in each circle.
pub(super) fn layout(count: usize, arrows: &[Arrow]) -> Layout {
    let mut grid = Grid::of(&layers(count, arrows));
    let ways: Vec<(Arrow, Vec<usize>)> =
        arrows.iter().filter_map(|arrow| Some((*arrow, grid.join(arrow.0, arrow.1)?))).collect();
    let order = grid.ordered();
    let (places, height) = grid.places(&order, count);
    let ways = ways.into_iter().map(|(arrow, cells)| {
        (arrow, cells.into_iter().map(|cell| places[cell]).collect::<Vec<_>>())
    });
    Layout { ways: ways.collect(), nodes: places[..count].to_vec(), layers: order.len(), height }
}

/// The cells of each layer, from the top.
type Order = Vec<Vec<usize>>;

/// Cells, each in its layer: those of the nodes first, then the bends of arrows. Two that are joined
/// are in neighbouring layers.
struct Grid {
    layers: Vec<usize>,
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

impl Grid {
    fn of(layers: &[usize]) -> Grid {
        let none = vec![Vec::new(); layers.len()];
        Grid { layers: layers.to_vec(), before: none.clone(), after: none }
    }

    /// Joins two nodes, with a bend in each layer between them. Returns the cells of the way;
    /// `None` if the second node is not in a later layer.
    fn join(&mut self, from: usize, to: usize) -> Option<Vec<usize>> {
        let between = self.layers[from] + 1..self.layers[to];
        if self.layers[to] <= self.layers[from] {
            return None;
        }
        let mut way = vec![from];
        for layer in between {
            way.push(self.layers.len());
            self.layers.push(layer);
            self.before.push(Vec::new());
            self.after.push(Vec::new());
        }
        way.push(to);
        for pair in way.windows(2) {
            self.after[pair[0]].push(pair[1]);
            self.before[pair[1]].push(pair[0]);
        }
        Some(way)
    }

    /// The order with the fewest crossings among those that the sweeps produce.
    fn ordered(&self) -> Order {
        let count = self.layers.iter().max().map_or(0, |last| last + 1);
        let mut order: Order = vec![Vec::new(); count];
        for (cell, layer) in self.layers.iter().enumerate() {
            order[*layer].push(cell);
        }
        let mut best = (self.crossings(&order), order.clone());
        for sweep in 0..SWEEPS {
            if best.0 == 0 {
                break;
            }
            if sweep % 2 == 0 {
                (1..count).for_each(|layer| self.sort(&mut order, layer, layer - 1, &self.before));
            } else {
                (1..count)
                    .rev()
                    .for_each(|layer| self.sort(&mut order, layer - 1, layer, &self.after));
            }
            let crossings = self.crossings(&order);
            if crossings < best.0 {
                best = (crossings, order.clone());
            }
        }
        best.1
    }

    /// Sorts the cells of a layer by the mean place of the cells that they are joined with in the
    /// next one; cells without any keep their places.
    fn sort(&self, order: &mut Order, layer: usize, next: usize, joined: &[Vec<usize>]) {
        let places = self.places_in(&order[next]);
        let mut cells: Vec<(f64, usize)> = Vec::new();
        for (place, cell) in order[layer].iter().enumerate() {
            let sum: usize = joined[*cell].iter().map(|other| places[*other]).sum();
            let mean = match joined[*cell].len() {
                0 => place as f64,
                count => sum as f64 / count as f64,
            };
            cells.push((mean, *cell));
        }
        cells.sort_by(|one, other| one.0.total_cmp(&other.0));
        order[layer] = cells.into_iter().map(|(_, cell)| cell).collect();
    }

    /// The place of each cell of a layer, by the cell's number.
    fn places_in(&self, layer: &[usize]) -> Vec<usize> {
        let mut places = vec![0; self.layers.len()];
        for (place, cell) in layer.iter().enumerate() {
            places[*cell] = place;
        }
        places
    }

    fn crossings(&self, order: &Order) -> usize {
        let mut crossings = 0;
        for pair in order.windows(2) {
            let places = self.places_in(&pair[1]);
            // The ends of all lines between the two layers, in the order of their beginnings.
            let mut ends: Vec<usize> = Vec::new();
            for cell in &pair[0] {
                let mut own: Vec<usize> = self.after[*cell].iter().map(|it| places[*it]).collect();
                own.sort_unstable();
                crossings +=
                    own.iter().map(|end| ends.iter().filter(|it| *it > end).count()).sum::<usize>();
                ends.extend(own);
            }
        }
        crossings
    }

    /// The places of all cells, each layer in the middle, and the height of the highest. Cells up
    /// to `nodes` are nodes.
    fn places(&self, order: &Order, nodes: usize) -> (Vec<Place>, u32) {
        let height = |cell: usize| if cell < nodes { NODE_HEIGHT } else { BEND_HEIGHT };
        let of_layer = |cells: &Vec<usize>| {
            let whole: u32 = cells.iter().map(|cell| height(*cell) + GAP_HEIGHT).sum();
            whole.saturating_sub(GAP_HEIGHT)
        };
        let highest = order.iter().map(of_layer).max().unwrap_or_default();
        let mut places = vec![Place::default(); self.layers.len()];
        for (layer, cells) in order.iter().enumerate() {
            let mut y = (highest - of_layer(cells)) / 2;
            for cell in cells {
                places[*cell] = Place { layer, y: y + height(*cell) / 2 };
                y += height(*cell) + GAP_HEIGHT;
            }
        }
        (places, highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers_of(count: usize, arrows: &[Arrow]) -> Vec<usize> {
        layout(count, arrows).nodes.iter().map(|place| place.layer).collect()
    }

    /// How many pairs of arrows cross between their places.
    fn crossings(layout: &Layout) -> usize {
        let lines: Vec<(Place, Place)> = layout
            .ways
            .iter()
            .flat_map(|(_, way)| way.windows(2).map(|pair| (pair[0], pair[1])))
            .collect();
        let cross = |one: &(Place, Place), other: &(Place, Place)| {
            let is_over = |one: Place, other: Place| one.y < other.y;
            one.0.layer == other.0.layer
                && one.0.y != other.0.y
                && one.1.y != other.1.y
                && is_over(one.0, other.0) != is_over(one.1, other.1)
        };
        let pairs = lines.iter().enumerate();
        pairs.map(|(at, one)| lines[at + 1..].iter().filter(|it| cross(one, it)).count()).sum()
    }

    #[test]
    fn a_layer_is_the_longest_way() {
        // A diamond with a short cut, and one that waits for nothing at its end.
        let arrows = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (4, 3)];
        assert_eq!(layers_of(5, &arrows), [0, 1, 1, 2, 1]);
        assert_eq!(layers_of(3, &[]), [0, 0, 0]);
        assert_eq!(layout(0, &[]).height, 0);
        assert_eq!(length(5, &arrows), 7);
    }

    #[test]
    fn a_diamond_has_no_crossing_and_stands_in_the_middle() {
        let found = layout(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!(crossings(&found), 0);
        let ys: Vec<u32> = found.nodes.iter().map(|place| place.y).collect();
        assert_eq!(ys, [50, 22, 78, 50]);
        assert_eq!((found.layers, found.height), (3, 100));
    }

    #[test]
    fn layers_are_put_in_the_order_that_crosses_least() {
        // Given crosswise: 0 to 5, 1 to 4, 2 to 3, and on from there.
        let arrows = [(0, 5), (1, 4), (2, 3), (3, 8), (4, 7), (5, 6)];
        assert_eq!(crossings(&layout(9, &arrows)), 0);
    }

    #[test]
    fn a_long_arrow_goes_past_the_nodes_between() {
        let found = layout(4, &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        let (_, way) = found.ways.iter().find(|(arrow, _)| *arrow == (0, 3)).unwrap();
        assert_eq!(way.len(), 4);
        for bend in &way[1..3] {
            let node = found.nodes.iter().find(|node| node.layer == bend.layer).unwrap();
            assert!(
                node.y.abs_diff(bend.y) >= (NODE_HEIGHT + BEND_HEIGHT) / 2,
                "{bend:?} {node:?}"
            );
        }
    }

    #[test]
    fn a_circle_has_an_end() {
        let found = layout(4, &[(0, 1), (1, 2), (2, 1), (2, 3), (3, 3)]);
        assert_eq!(found.nodes.len(), 4);
        assert!(
            found.ways.iter().all(|(_, way)| way.windows(2).all(|it| it[0].layer < it[1].layer))
        );
    }

    #[test]
    fn the_same_graph_has_the_same_places() {
        let arrows: Vec<Arrow> = (0..40).flat_map(|at| [(at, at + 3), (at, at + 7)]).collect();
        let (one, other) = (layout(47, &arrows), layout(47, &arrows));
        assert_eq!((one.nodes, one.ways), (other.nodes, other.ways));
    }
}
