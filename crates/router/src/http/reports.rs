//! Reports of workers on many leases: each by the shard of its lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::join_all;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use spindle_http::work_on_bytes;

use super::asked::{Asked, Head};
use super::flock::{answers, explained, is_refused, refused, written};
use super::lease::{Jobs, LeaseSaid, Where, many};
use super::place::said;
use super::router::{Outcome, Routing, whole_if_ok};
use super::shards::{Missed, Refusal};
use super::take_back::{Asker, Guard, guarded};
use crate::{Placement, Shard};

/// The most reports of one request: any shard refuses more.
const LEASES_MAX: usize = 100;

/// The reports of a worker.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reports {
    leases: Vec<Box<RawValue>>,
    #[serde(default)]
    lease: Option<Box<RawValue>>,
}

/// The lease that a report is on.
#[derive(Deserialize)]
struct ReportSaid {
    lease_token: String,
}

/// Which shard gets which reports, and where to lease the next jobs.
struct Plan {
    /// The places of the reports that a shard gets.
    places: BTreeMap<Shard, Vec<usize>>,
    reports: Reports,
    /// Where the next jobs are to come from.
    next: Option<Where>,
}

impl Plan {
    fn of(raw: &[u8], placement: &Placement) -> Option<Plan> {
        let reports: Reports = said(raw)?;
        if !(1..=LEASES_MAX).contains(&reports.leases.len()) {
            return None;
        }
        let mut places = BTreeMap::<Shard, Vec<usize>>::new();
        for (place, report) in reports.leases.iter().enumerate() {
            let report = said::<ReportSaid>(report.get().as_bytes());
            // Without a token it is refused, by any shard.
            let shard = report.map_or(Shard::FIRST, |it| placement.of_token(&it.lease_token));
            places.entry(shard).or_default().push(place);
        }
        let next = reports.lease.as_ref().map(|lease| {
            let raw = lease.get().as_bytes();
            match said::<LeaseSaid>(raw) {
                Some(said) => said.place(raw, placement),
                None => Where::On(Shard::FIRST),
            }
        });
        Some(Plan { places, reports, next })
    }

    /// The shard that gets all of it, if it is one.
    fn only(&self) -> Option<Shard> {
        let mut shards = self.places.keys().copied();
        let first = shards.next().filter(|_| shards.next().is_none())?;
        match &self.next {
            None => Some(first),
            Some(Where::On(shard)) => Some(first).filter(|first| first == shard),
            Some(Where::Several(_)) => None,
        }
    }
}

#[derive(Serialize)]
struct ReportsAnswer {
    taken: usize,
    refused: usize,
    answers: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Box<RawValue>>,
}

/// `POST /api/v1/leases/batch`
pub(super) async fn reports(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let head = Arc::new(head);
    let (raw, placement) = (bytes.clone(), routing.placement.clone());
    let plan = work_on_bytes(bytes.len(), move || Plan::of(&raw, &placement)).await;
    let only = plan.as_ref().map_or(Some(Shard::FIRST), Plan::only);
    let (Some(plan), None) = (plan, head.shard.or(only)) else {
        let shard = head.shard.or(only).unwrap_or(Shard::FIRST);
        let asker = Asker::new(&routing.shards, &head, shard);
        return Ok(asker.ask(head.with_bytes(bytes)).await?.map(Body::new));
    };
    drop(bytes);
    let answers = reported(routing, &head, &plan).await?;
    let refused = answers.iter().filter(|answer| is_refused(answer)).count();
    // After the reports, because they make room for further jobs.
    let (lease, guards) = match plan.next {
        None => (None, Vec::new()),
        Some(next) => next_jobs(routing, &head, next, plan.reports.lease).await,
    };
    let answer = ReportsAnswer { taken: answers.len() - refused, refused, answers, lease };
    Ok(guarded(written(&answer), guards))
}

/// The answers to all reports, in their order.
async fn reported(
    routing: &Routing,
    head: &Head,
    plan: &Plan,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let parts = plan.places.iter().map(async |(shard, places)| {
        let leases: Vec<&RawValue> =
            places.iter().map(|place| &*plan.reports.leases[*place]).collect();
        let body: IndexMap<_, _> = [("leases", leases)].into();
        let body = Bytes::from(written(&body));
        match answers(routing, head, *shard, body, places.len()).await {
            Ok(answers) => Ok(answers),
            Err(refusal) => Err(explained(refusal, *shard).await),
        }
    });
    let parts = join_all(parts).await;
    let (mut all, mut whole_refusal, mut is_any_taken) =
        (vec![Box::<RawValue>::default(); plan.reports.leases.len()], None, false);
    for (places, part) in plan.places.values().zip(parts) {
        match part {
            Ok(answers) => {
                is_any_taken = true;
                for (place, answer) in places.iter().zip(answers) {
                    all[*place] = answer;
                }
            }
            Err((refusal, problem)) => {
                for place in places {
                    all[*place] = refused(&problem);
                }
                whole_refusal.get_or_insert(refusal);
            }
        }
    }
    match whole_refusal.filter(|_| !is_any_taken) {
        Some(refusal) => Err(refusal),
        None => Ok(all),
    }
}

/// The next jobs, or why there are none: the reports count all the same.
async fn next_jobs(
    routing: &Routing,
    head: &Arc<Head>,
    next: Where,
    raw: Option<Box<RawValue>>,
) -> (Option<Box<RawValue>>, Vec<Guard>) {
    let leased = match next {
        Where::Several(wanted) => many(routing, head, &wanted).await,
        Where::On(shard) => of_one(routing, head, shard, raw).await,
    };
    match leased {
        Ok((jobs, guards)) => (to_raw_value(&Jobs { jobs }).ok(), guards),
        Err(refusal) => {
            let (_, problem) = explained(refusal, Shard::FIRST).await;
            (Some(refused(&problem)), Vec::new())
        }
    }
}

async fn of_one(
    routing: &Routing,
    head: &Arc<Head>,
    shard: Shard,
    raw: Option<Box<RawValue>>,
) -> Result<(Vec<Box<RawValue>>, Vec<Guard>), Refusal> {
    let body = Bytes::from(raw.map(|raw| raw.get().as_bytes().to_vec()).unwrap_or_default());
    let answer = super::lease::ask(routing, head, shard, body).await?;
    if answer.status() == axum::http::StatusCode::NO_CONTENT {
        return Ok((Vec::new(), Vec::new()));
    }
    if answer.status() != axum::http::StatusCode::OK {
        let refused = whole_if_ok(answer.map(Body::new), shard).await;
        return refused.map(|_| (Vec::new(), Vec::new()));
    }
    let (bytes, guard) = answer.into_body().read().await?;
    // One job stands alone where no number was asked for.
    let jobs = match said::<Jobs>(&bytes) {
        Some(Jobs { jobs }) => jobs,
        None => {
            let text = String::from_utf8(bytes.to_vec()).map_err(|_| Missed::BrokeOff(shard))?;
            vec![RawValue::from_string(text).map_err(|_| Missed::BrokeOff(shard))?]
        }
    };
    Ok((jobs, vec![guard]))
}
