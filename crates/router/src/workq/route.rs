//! Where a request goes.

use spindle_core::address::foreign_job;
use spindle_workq::wire::{Request, Uuid};

use super::known::Known;
use super::lines::Says;
use crate::{Placement, Shard};

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// To one shard, which gives a short answer at once: sent behind other requests.
    Stream(Shard),
    /// To one shard, alone.
    One(Shard),
    /// To several shards, alone.
    Several,
    /// Nowhere: only routers send this request.
    Nowhere,
}

/// Where a request goes, as far as is known.
pub(super) fn route(request: &Request, placement: &Placement, known: &Known) -> Route {
    let by_id = |id: &Uuid, one: fn(Shard) -> Route| {
        shard_of(*id, placement, known).map_or(Route::Several, one)
    };
    let of_queue = |queue: &[u8], one: fn(Shard) -> Route| {
        placement.only_of(queue).map_or(Route::Several, one)
    };
    match request {
        Request::Add(job) | Request::Schedule { job, .. } => of_queue(&job.name, Route::Stream),
        Request::InspectQueue { name } => Route::Stream(placement.of(name)),
        Request::Complete { id, .. }
        | Request::Fail { id, .. }
        | Request::Delete { id }
        | Request::Extend { id, .. } => by_id(id, Route::Stream),
        Request::Result { id, .. } | Request::InspectJob { id } => by_id(id, Route::One),
        Request::Run(run) => of_queue(&run.name, Route::One),
        Request::InspectJobs { name, .. } | Request::InspectScheduledJobs { name, .. } => {
            Route::One(placement.of(name))
        }
        Request::Lease { names, .. } => {
            let mut shards = names.iter().map(|name| placement.only_of(name));
            let first = shards.next().unwrap_or(Some(Shard::FIRST));
            match first.filter(|_| shards.all(|shard| shard == first)) {
                Some(shard) => Route::One(shard),
                None => Route::Several,
            }
        }
        Request::InspectQueues { .. } | Request::InspectServer | Request::Auth { .. } => {
            Route::Several
        }
        Request::Offer { .. } | Request::Take { .. } | Request::Pass => Route::Nowhere,
    }
}

/// The shard that has a job, if it is anywhere.
fn shard_of(id: Uuid, placement: &Placement, known: &Known) -> Option<Shard> {
    if !id.is_foreign() {
        return known.shard_of(id);
    }
    // An id of no job: any shard says so.
    let made_on = foreign_job(id.as_bytes()).map(Shard::of_job);
    Some(made_on.filter(|shard| placement.has(*shard)).unwrap_or(Shard::FIRST))
}

/// What the answer to a request will say of a job.
pub(super) fn says(request: &Request) -> Says {
    match request {
        Request::Add(job) | Request::Schedule { job, .. } => Says::IsNew(job.id),
        Request::Complete { id, .. }
        | Request::Fail { id, .. }
        | Request::Delete { id }
        | Request::Extend { id, .. }
        | Request::Result { id, .. }
        | Request::InspectJob { id } => Says::IsThere(*id),
        _ => Says::Nothing,
    }
}

/// Whether a request may wait at its shard until something happens.
pub(super) fn waits(request: &Request) -> bool {
    match request {
        Request::Run(_) => true,
        Request::Lease { wait_timeout_ms, .. } | Request::Result { wait_timeout_ms, .. } => {
            *wait_timeout_ms > 0
        }
        _ => false,
    }
}

/// The same request without a wait.
pub(super) fn without_wait(mut request: Request) -> Request {
    match &mut request {
        Request::Lease { wait_timeout_ms, .. } | Request::Result { wait_timeout_ms, .. } => {
            *wait_timeout_ms = 0;
        }
        Request::Run(run) => run.wait_timeout_ms = 0,
        _ => {}
    }
    request
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use spindle_core::JobId;
    use spindle_core::address::foreign_uuid;
    use spindle_core::job::JOB_ID_SEQUENCE_END;
    use spindle_workq::wire::{Decoder, Limits};

    use super::*;

    const PLACEMENT: fn() -> Placement = || Placement::over(3);

    fn routed(text: &str, known: &Known) -> Route {
        let mut input = BytesMut::from(text.as_bytes());
        let request = Decoder::new(Limits::default()).decode(&mut input).unwrap().unwrap();
        route(&request, &PLACEMENT(), known)
    }

    fn queues() -> [String; 3] {
        [0, 1, 2].map(|shard| {
            let mut names = (0..).map(|at| format!("queue-{at}"));
            names.find(|name| PLACEMENT().of(name.as_bytes()) == Shard(shard)).unwrap()
        })
    }

    #[test]
    fn what_is_about_a_queue_goes_to_its_shard() {
        let id = "00000001-0000-4000-8000-000000000001";
        let known = Known::default();
        for (queue, shard) in queues().iter().zip(0..) {
            let shard = Shard(shard);
            for (text, route) in [
                (format!("add {id} {queue} 1 1 0\r\n\r\n"), Route::Stream(shard)),
                (format!("inspect queue {queue}\r\n"), Route::Stream(shard)),
                (format!("run {id} {queue} 1 1 0\r\n\r\n"), Route::One(shard)),
                (format!("inspect jobs {queue} 0 1\r\n"), Route::One(shard)),
                (format!("inspect scheduled-jobs {queue} 0 1\r\n"), Route::One(shard)),
                (format!("lease {queue} 0\r\n"), Route::One(shard)),
                (format!("lease {queue} {queue} 0\r\n"), Route::One(shard)),
            ] {
                assert_eq!(routed(&text, &known), route, "{text}");
            }
        }
        let [a, b, _] = queues();
        assert_eq!(routed(&format!("lease {a} {b} 0\r\n"), &known), Route::Several);
    }

    #[test]
    fn what_is_about_a_job_goes_to_where_it_is_or_everywhere() {
        let mut known = Known::default();
        let unknown = Uuid::from_bytes([7; 16]);
        let noted = Uuid::from_bytes([8; 16]);
        known.note(noted, Shard(2));
        let foreign = |job| Uuid::from_bytes(foreign_uuid(JobId(job)));
        let no_job = Uuid::parse(b"7370696e-646c-8000-8000-000000000000").unwrap();
        for (id, shard) in [
            (unknown, None),
            (noted, Some(Shard(2))),
            (foreign(JOB_ID_SEQUENCE_END + 5), Some(Shard(1))),
            // There are three shards.
            (foreign(3 * JOB_ID_SEQUENCE_END), Some(Shard::FIRST)),
            (no_job, Some(Shard::FIRST)),
        ] {
            let stream = shard.map_or(Route::Several, Route::Stream);
            let one = shard.map_or(Route::Several, Route::One);
            for (text, route) in [
                (format!("complete {id} 0\r\n\r\n"), stream),
                (format!("fail {id} 0\r\n\r\n"), stream),
                (format!("delete {id}\r\n"), stream),
                (format!("extend {id} 1\r\n"), stream),
                (format!("result {id} 0\r\n"), one),
                (format!("inspect job {id}\r\n"), one),
            ] {
                assert_eq!(routed(&text, &known), route, "{text}");
            }
        }
    }
}
