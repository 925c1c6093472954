//! Which door jobs come in through, and which one they are worked through.

use std::fmt;

/// One side of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The native API.
    Api,
    /// Gearman's binary protocol.
    Gearman,
    /// jobd: its master takes a `run-manual`, its worker is registered there.
    Jobd,
    /// Jobq. Its polls see Jobq's own jobs only, so no route is worked through it.
    Jobq,
    /// LightJQ.
    LightJq,
    /// Workq's text protocol.
    Workq,
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Api => "native API",
            Self::Gearman => "Gearman",
            Self::Jobd => "jobd",
            Self::Jobq => "Jobq",
            Self::LightJq => "LightJQ",
            Self::Workq => "Workq",
        })
    }
}

/// A queue, and the two doors of its jobs.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Who submits.
    pub submits: Door,
    /// Who works.
    pub works: Door,
    /// The queue.
    pub queue: &'static str,
}

const fn route(submits: Door, works: Door, queue: &'static str) -> Route {
    Route { submits, works, queue }
}

/// All routes: every door submits, and no door works the jobs that came in through it.
pub const ROUTES: [Route; 6] = [
    route(Door::Gearman, Door::Jobd, "resize"),
    route(Door::Workq, Door::LightJq, "mail"),
    route(Door::Jobd, Door::Workq, "reports"),
    route(Door::LightJq, Door::Gearman, "thumbnails"),
    route(Door::Jobq, Door::Api, "import"),
    route(Door::Api, Door::Gearman, "invoices"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_submits_and_none_works_its_own_jobs() {
        for door in [Door::Api, Door::Gearman, Door::Jobd, Door::Jobq, Door::LightJq, Door::Workq] {
            assert!(ROUTES.iter().any(|route| route.submits == door), "{door}");
            assert!(door == Door::Jobq || ROUTES.iter().any(|route| route.works == door), "{door}");
        }
        assert!(ROUTES.iter().all(|route| route.submits != route.works));
    }
}
