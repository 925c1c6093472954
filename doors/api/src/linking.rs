//! Jobs of one request that wait for each other: which jobs each one names, and in which order they
//! are taken.

use std::collections::{BTreeMap, BTreeSet};

use spindle_http::{Answered, Problem};

/// How a job of a request refers to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linked {
    /// The name by which others of the request may wait for it.
    pub name: Option<String>,
    /// The names of those that it waits for.
    pub after: Vec<String>,
}

/// Which jobs of a request wait for which, by their places in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Links {
    /// For each job, the jobs of the request that it waits for, or a name that no job has.
    pub before: Vec<Result<BTreeSet<usize>, String>>,
    /// Jobs that may be taken together once all jobs of the levels before have been taken.
    pub levels: Vec<Vec<usize>>,
}

impl Links {
    /// None: no job names another.
    pub fn of<'a>(jobs: impl Iterator<Item = &'a Linked> + Clone) -> Answered<Option<Links>> {
        if jobs.clone().all(|job| job.after.is_empty()) {
            return Ok(None);
        }
        let mut places = BTreeMap::new();
        for (place, job) in jobs.clone().enumerate() {
            if let Some(name) = &job.name
                && places.insert(name.as_str(), place).is_some()
            {
                let detail = format!("two jobs of the request have the ref `{name}`");
                return Err(Problem::bad_field(detail));
            }
        }
        let place_of = |name: &String| places.get(name.as_str()).copied().ok_or(name.clone());
        let before: Vec<Result<BTreeSet<usize>, String>> =
            jobs.clone().map(|job| job.after.iter().map(place_of).collect()).collect();
        let names: Vec<&str> = jobs.map(|job| job.name.as_deref().unwrap_or_default()).collect();
        let levels = levels(&before, &names)?;
        Ok(Some(Links { before, levels }))
    }
}

/// The jobs by levels, each behind all that its jobs wait for.
fn levels(before: &[Result<BTreeSet<usize>, String>], names: &[&str]) -> Answered<Vec<Vec<usize>>> {
    let mut open: Vec<usize> =
        before.iter().map(|it| it.as_ref().map_or(0, BTreeSet::len)).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (place, before) in before.iter().enumerate() {
        before.iter().flatten().for_each(|other| behind[*other].push(place));
    }
    let mut levels = Vec::new();
    let mut level: Vec<usize> = (0..open.len()).filter(|place| open[*place] == 0).collect();
    let mut count = 0;
    while !level.is_empty() {
        count += level.len();
        let mut next = Vec::new();
        for place in level.iter().flat_map(|place| &behind[*place]) {
            open[*place] -= 1;
            if open[*place] == 0 {
                next.push(*place);
            }
        }
        next.sort_unstable();
        levels.push(std::mem::replace(&mut level, next));
    }
    if count == open.len() { Ok(levels) } else { Err(circle(before, &open, names)) }
}

/// The refusal of jobs that wait for each other, with one circle of them.
///
/// Each remaining job waits for another remaining one, so a path from job to job returns to a job
/// that it has visited; the circle is the part of the path in between.
fn circle(before: &[Result<BTreeSet<usize>, String>], open: &[usize], names: &[&str]) -> Problem {
    let next = |place: usize| {
        let mut others = before[place].iter().flatten();
        others.find(|other| open[**other] > 0).copied()
    };
    let mut path = Vec::new();
    let mut at = open.iter().position(|open| *open > 0);
    while let Some(place) = at.filter(|place| !path.contains(place)) {
        path.push(place);
        at = next(place);
    }
    let from = path.iter().position(|place| Some(*place) == at).unwrap_or_default();
    let mut named: Vec<&str> = path[from..].iter().map(|place| names[*place]).collect();
    named.extend(at.map(|place| names[place]));
    let detail =
        format!("jobs of the request wait for each other in a circle: {}", named.join(" after "));
    Problem::bad_field(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs as `name: names that it waits for`.
    fn links(jobs: &[&str]) -> Result<Option<Links>, String> {
        let linked: Vec<Linked> = jobs
            .iter()
            .map(|text| {
                let (name, after) = text.split_once(':').expect("a name and others");
                Linked {
                    name: Some(name.to_owned()).filter(|name| !name.is_empty()),
                    after: after.split_whitespace().map(str::to_owned).collect(),
                }
            })
            .collect();
        Links::of(linked.iter()).map_err(|problem| problem.detail)
    }

    #[test]
    fn jobs_are_taken_behind_those_they_wait_for_whatever_their_places() {
        let links = links(&["c: b a", "b: a", "a:", ": c c", "x:"]).expect("no circle");
        assert_eq!(links.expect("some wait").levels, [vec![2, 4], vec![1], vec![0], vec![3]]);
        assert_eq!(self::links(&["a:", "b:"]), Ok(None));
    }

    #[test]
    fn a_name_that_nobody_has_is_a_matter_of_that_job_alone() {
        let links = links(&["a: z", "b: a"]).expect("no circle").expect("some wait");
        assert_eq!(links.before, [Err("z".to_owned()), Ok(BTreeSet::from([0]))]);
        assert_eq!(links.levels, [vec![0], vec![1]]);
    }

    #[test]
    fn a_circle_and_a_name_given_twice_refuse_the_request() {
        let circle =
            |way: &str| Err(format!("jobs of the request wait for each other in a circle: {way}"));
        assert_eq!(links(&["a: a"]), circle("a after a"));
        assert_eq!(links(&["d: c", "a: c", "b: a", "c: b"]), circle("c after b after a after c"));
        assert_eq!(
            links(&["a:", "a:", ": a"]),
            Err("two jobs of the request have the ref `a`".to_owned())
        );
    }
}
