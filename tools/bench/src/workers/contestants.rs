//! The contestants: how jobs are submitted to each, how its worker is started, and what it is
//! judged by.

use crate::suite::Bound::{self, AtLeast};

/// The queue of ours.
pub(super) const QUEUE: &str = "bench";
/// The placeholder for the server's address in a command.
pub(super) const URL: &str = "URL";

/// The scripts, by the names by which they refer to each other.
pub(super) const SCRIPTS: [(&str, &str); 5] = [
    ("spindle_tasks.py", include_str!("spindle_tasks.py")),
    ("celery_tasks.py", include_str!("celery_tasks.py")),
    ("rq_tasks.py", include_str!("rq_tasks.py")),
    ("spindle.mjs", include_str!("spindle.mjs")),
    ("bullmq.mjs", include_str!("bullmq.mjs")),
];
/// The modules that those in JavaScript import, and where they are installed.
pub(super) const NODE_MODULES: [(&str, &str); 2] =
    [("spindle-client", "node-client"), ("bullmq", "bullmq-clients/node_modules/bullmq")];

/// The language of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
}

/// What keeps the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Spindle,
    Redis,
}

/// What is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Python with our library.
    Python,
    /// Python with the libraries of others.
    PeersPython,
    Celery,
    Rq,
    Node,
}

impl Program {
    /// Its path among the libraries; `None` if it is searched for in the `PATH`.
    pub(super) fn place(self) -> Option<&'static str> {
        match self {
            Self::Python => Some("python-client/bin/python"),
            Self::PeersPython => Some("worker-peers/bin/python"),
            Self::Celery => Some("worker-peers/bin/celery"),
            Self::Rq => Some("worker-peers/bin/rq"),
            Self::Node => None,
        }
    }
}

/// A library with a worker of one process.
#[derive(Debug)]
pub(crate) struct Contestant {
    /// For people.
    pub(crate) name: &'static str,
    pub(super) backend: Backend,
    /// The program that submits jobs; it is told which and how.
    pub(super) submit: (Program, &'static [&'static str]),
    pub(super) work: (Program, &'static [&'static str]),
    /// It gets one in this many of the jobs, because it is that much slower.
    pub(super) share: u64,
}

/// Ours beside another, by their places among the contestants. Jobs that wait are judged.
pub(crate) type Pair = (usize, usize, Option<Bound>);

impl Language {
    /// Those that take part.
    pub(crate) fn contestants(self) -> &'static [Contestant] {
        match self {
            Self::Python => PYTHON,
            Self::Node => NODE,
        }
    }

    /// The pairs that are compared.
    pub(crate) fn pairs(self) -> &'static [Pair] {
        match self {
            Self::Python => PYTHON_PAIRS,
            Self::Node => NODE_PAIRS,
        }
    }

    /// What must be there.
    pub(crate) fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Python => &[
                "python-client/bin/python",
                "worker-peers/bin/python",
                "worker-peers/bin/celery",
                "worker-peers/bin/rq",
            ],
            Self::Node => &["node-client/build/esm", "bullmq-clients/node_modules/bullmq"],
        }
    }
}

const fn spindle_python(name: &'static str, words: &'static [&'static str]) -> Contestant {
    let (backend, submit) = (Backend::Spindle, (Program::Python, &["spindle_tasks.py"] as &_));
    Contestant { name, backend, submit, work: (Program::Python, words), share: 1 }
}

const fn celery(name: &'static str, words: &'static [&'static str]) -> Contestant {
    let (backend, submit) = (Backend::Redis, (Program::PeersPython, &["celery_tasks.py"] as &_));
    Contestant { name, backend, submit, work: (Program::Celery, words), share: 1 }
}

const fn rq(name: &'static str, words: &'static [&'static str], share: u64) -> Contestant {
    let (backend, submit) = (Backend::Redis, (Program::PeersPython, &["rq_tasks.py"] as &_));
    Contestant { name, backend, submit, work: (Program::Rq, words), share }
}

/// The first contestant of each library runs without flags.
const PYTHON: &[Contestant] = &[
    spindle_python(
        "spindle, 8 threads (default)",
        &["-m", "spindle", "worker", "spindle_tasks:app"],
    ),
    celery("celery, prefork (default)", &["-A", "celery_tasks", "worker"]),
    rq("rq, a process a job (default)", &["worker", "-u", URL], 10),
    celery("celery, 8 threads", &["-A", "celery_tasks", "worker", "--pool", "threads", "-c", "8"]),
    spindle_python(
        "spindle, one at a time",
        &["-m", "spindle", "worker", "spindle_tasks:app", "-c", "1"],
    ),
    celery("celery, solo", &["-A", "celery_tasks", "worker", "--pool", "solo"]),
    rq("rq, SimpleWorker", &["worker", "-u", URL, "-w", "rq.worker.SimpleWorker"], 4),
];

const PYTHON_PAIRS: &[Pair] = &[
    (0, 1, Some(AtLeast(3.0))),
    (0, 2, Some(AtLeast(1.5))),
    (0, 3, None),
    (4, 5, None),
    (4, 6, None),
];

const fn spindle_node(name: &'static str, words: &'static [&'static str]) -> Contestant {
    let (backend, submit) = (Backend::Spindle, (Program::Node, &["spindle.mjs", "submit"] as &_));
    Contestant { name, backend, submit, work: (Program::Node, words), share: 1 }
}

const fn bullmq(name: &'static str, words: &'static [&'static str]) -> Contestant {
    let (backend, submit) = (Backend::Redis, (Program::Node, &["bullmq.mjs", "submit"] as &_));
    Contestant { name, backend, submit, work: (Program::Node, words), share: 1 }
}

/// The first contestant of each library runs without options.
const NODE: &[Contestant] = &[
    spindle_node("spindle, one at a time (default)", &["spindle.mjs", "worker"]),
    bullmq("bullmq, one at a time (default)", &["bullmq.mjs", "worker"]),
    spindle_node("spindle, 10 at a time", &["spindle.mjs", "worker", "10"]),
    bullmq("bullmq, 10 at a time", &["bullmq.mjs", "worker", "10"]),
    spindle_node("spindle, 100 at a time", &["spindle.mjs", "worker", "100"]),
    bullmq("bullmq, 100 at a time", &["bullmq.mjs", "worker", "100"]),
];

const NODE_PAIRS: &[Pair] =
    &[(0, 1, Some(AtLeast(1.0))), (2, 3, Some(AtLeast(1.0))), (4, 5, Some(AtLeast(1.0)))];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_compared_with_others_and_all_that_is_started_is_needed() {
        for language in [Language::Python, Language::Node] {
            let all = language.contestants();
            for (ours, theirs, _) in language.pairs() {
                assert_eq!(all[*ours].backend, Backend::Spindle);
                assert_eq!(all[*theirs].backend, Backend::Redis);
            }
            let started = all.iter().flat_map(|one| [one.submit.0, one.work.0]);
            for place in started.filter_map(Program::place) {
                assert!(language.needs().contains(&place), "{place}");
            }
        }
    }
}
