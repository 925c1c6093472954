//! Tables drawn as the original draws them.

use std::fmt;

/// Rows of cells under a line of headings. A cell may have several lines.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table with these headings.
    pub(super) fn new(headings: &[&str]) -> Self {
        let headings: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
        let rules = headings.iter().map(|_| String::new()).collect();
        Self { rows: vec![headings, rules] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |cell: &String| cell.lines().map(|line| line.chars().count()).max();
        (0..columns)
            .map(|at| self.rows.iter().filter_map(|row| row.get(at)).filter_map(width).max())
            .map(Option::unwrap_or_default)
            .collect()
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (number, row) in self.rows.iter().enumerate() {
            if number == 1 {
                let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                writeln!(f, "{}", rules.join(" | "))?;
                continue;
            }
            let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
            for line in 0..height {
                let cells: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(at, &width)| {
                        let text = row.get(at).and_then(|cell| cell.lines().nth(line));
                        format!("{:width$}", text.unwrap_or_default())
                    })
                    .collect();
                writeln!(f, "{}", cells.join(" | "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut grid = Grid::new(&["TARGET", "CONCURRENCY", "LENGTH", "PAUSED"]);
        grid.row(cells(&["low", "1", "0", "no"]));
        grid.row(cells(&["1/high", "10", "0", "no"]));
        let expected = "TARGET | CONCURRENCY | LENGTH | PAUSED\n\
                        ------ | ----------- | ------ | ------\n\
                        low    | 1           | 0      | no    \n\
                        1/high | 10          | 0      | no    \n";
        assert_eq!(grid.to_string(), expected);
    }

    #[test]
    fn a_cell_of_several_lines_makes_its_row_higher() {
        let mut grid = Grid::new(&["WORKER", "TARGETS"]);
        grid.row(cells(&["w1\n(127.0.0.1)", "low\nnormal\n1/high"]));
        let expected = "WORKER      | TARGETS\n\
                        ----------- | -------\n\
                        w1          | low    \n\
                        (127.0.0.1) | normal \n            | 1/high \n";
        assert_eq!(grid.to_string(), expected);
    }
}
