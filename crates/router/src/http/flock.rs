//! Many jobs in one request: each by the shard of its queue, and the answers in the order of the jobs.
//!
//! Each shard gets the whole list, with `null` in the places of other shards' jobs: so a job has the same
//! place for its shard as for the client. Idempotency keys and messages refer to that place.

use std::collections::{BTreeSet, HashMap, VecDeque};

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use spindle_http::{Code, Problem, ProblemBody, work_on_bytes};

use super::asked::{Asked, Head};
use super::place::{queue_of, said};
use super::router::{Outcome, Routing, json, named_of};
use super::shards::{Missed, Refusal, whole};
use super::submit::{JobSaid, is_elsewhere, not_heard_of, together};
use crate::{Placement, Shard};

/// The most jobs of one request: any shard refuses more.
const JOBS_MAX: usize = 1_000;

/// The jobs of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    jobs: Vec<Box<RawValue>>,
}

/// The fields of a job that say where it belongs.
struct Entry {
    /// The shards that are offered it, in order.
    shards: Option<Vec<Shard>>,
    /// The numbers of existing jobs and batches that it belongs to or waits for.
    linked: Vec<u64>,
    /// The name by which other jobs of the request refer to it.
    name: Option<String>,
    /// The names of jobs of the request that it waits for.
    after: Vec<String>,
}

/// `POST /api/v1/jobs/batch`
pub(super) async fn submit(routing: &Routing, asked: Asked) -> Outcome {
    let joined = many(routing, asked, submitted).await?;
    let answers = match joined {
        Joined::Passed(response) => return Ok(response),
        Joined::Answers(answers) => answers,
    };
    let refused = answers.iter().filter(|answer| is_refused(answer)).count();
    let answer = BatchAnswer { taken: answers.len() - refused, refused, answers };
    Ok(json(written(&answer)))
}

/// `POST /api/v1/jobs/import`
pub(super) async fn import(routing: &Routing, asked: Asked) -> Outcome {
    match many(routing, asked, imported).await? {
        Joined::Passed(response) => Ok(response),
        Joined::Answers(answers) => Ok(json(written(&Answers { answers }))),
    }
}

#[derive(Serialize)]
struct BatchAnswer {
    taken: usize,
    refused: usize,
    answers: Vec<Box<RawValue>>,
}

/// A shard's answers to a request with many jobs.
#[derive(Serialize, Deserialize)]
pub(super) struct Answers {
    pub answers: Vec<Box<RawValue>>,
}

pub(super) fn written(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

/// Whether an answer about one of many has a problem.
pub(super) fn is_refused(answer: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Refused {
        problem: Option<serde::de::IgnoredAny>,
    }
    let read: Result<Refused, _> = serde_json::from_str(answer.get());
    read.is_ok_and(|refused| refused.problem.is_some())
}

/// The answer about one of many jobs that is refused.
pub(super) fn refused(problem: &RawValue) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Refused<'a> {
        problem: &'a RawValue,
    }
    to_raw_value(&Refused { problem }).unwrap_or_default()
}

/// A problem, to stand in an answer about many.
pub(super) fn problem_json(problem: Problem) -> Box<RawValue> {
    to_raw_value(&ProblemBody::from(problem)).unwrap_or_default()
}

fn submitted(raw: &RawValue, placement: &Placement) -> Entry {
    let Some(job) = said::<JobSaid>(raw.get().as_bytes()) else { return Entry::unknown() };
    Entry {
        shards: job.shards(placement),
        linked: job.linked().collect(),
        after: job.names().map(str::to_owned).collect(),
        name: job.r#ref,
    }
}

/// A job of another server refers to others by their numbers and times on that server.
#[derive(Deserialize)]
struct Portable {
    id: u64,
    created_at: String,
    queue: Option<String>,
    queue_base64: Option<String>,
    #[serde(default)]
    after: Vec<PortableAfter>,
}

#[derive(Deserialize)]
struct PortableAfter {
    id: u64,
    #[serde(default)]
    created_at: String,
}

fn imported(raw: &RawValue, placement: &Placement) -> Entry {
    let Some(job) = said::<Portable>(raw.get().as_bytes()) else { return Entry::unknown() };
    let name = |id: u64, at: &str| format!("{id} {at}");
    let queue = queue_of(job.queue.as_deref(), job.queue_base64.as_deref());
    Entry {
        shards: queue.map(|queue| placement.all_of(&queue)),
        linked: Vec::new(),
        name: Some(name(job.id, &job.created_at)),
        after: job.after.iter().map(|it| name(it.id, &it.created_at)).collect(),
    }
}

impl Entry {
    /// An entry that any shard refuses.
    fn unknown() -> Entry {
        Entry { shards: None, linked: Vec::new(), name: None, after: Vec::new() }
    }
}

/// The answer to a request with many jobs.
enum Joined {
    /// One shard's answer: all went to one shard, or none was taken.
    Passed(Response),
    Answers(Vec<Box<RawValue>>),
}

async fn many(
    routing: &Routing,
    asked: Asked,
    entry: fn(&RawValue, &Placement) -> Entry,
) -> Result<Joined, Refusal> {
    let (head, bytes) = asked.read(routing.limits).await?;
    let (raw, placement) = (bytes.clone(), routing.placement.clone());
    let planned = work_on_bytes(bytes.len(), move || plan(&raw, &placement, entry)).await;
    let Some((jobs, mut plan)) = planned.transpose()? else {
        return Ok(Joined::Passed(routing.pass_read(&head, bytes, Shard::FIRST).await?));
    };
    for offer in plan.iter_mut().flatten() {
        offer.shards = named_of(&head, std::mem::take(&mut offer.shards))?;
        // A client that names a shard can be told of shards.
        offer.is_bound |= head.shard.is_some();
    }
    if let Some(shard) = only_shard(&plan) {
        let answer = routing.pass_read(&head, bytes, shard).await?;
        return passed(answer, shard, &plan).await;
    }
    drop(bytes);
    offer_all(routing, &head, &jobs, plan).await.map(Joined::Answers)
}

/// The shard that gets all jobs, if they can go to one shard only.
fn only_shard(plan: &Plan) -> Option<Shard> {
    let mut shards = plan.iter().map(|offer| match offer.as_ref().map(|it| &it.shards[..]) {
        Ok([only]) => Some(*only),
        _ => None,
    });
    let first = shards.next()??;
    shards.all(|shard| shard == Some(first)).then_some(first)
}

/// One shard's answer, as it is unless it says of some job that its queue is elsewhere.
async fn passed(answer: Response, shard: Shard, plan: &Plan) -> Result<Joined, Refusal> {
    if answer.status() != StatusCode::OK {
        return Ok(Joined::Passed(answer));
    }
    let (parts, body) = answer.into_parts();
    let body = whole(body, shard).await?;
    // Answers do not repeat their jobs' contents, so the code is hardly ever found elsewhere.
    if memmem::find(&body, Code::SeveralShards.as_str().as_bytes()).is_some()
        && let Some(Answers { answers }) = said(&body)
    {
        let answers = answers.into_iter().zip(plan);
        let heard =
            answers.map(|(answer, offer)| ask_again_if_elsewhere(answer, offer.as_ref().ok()));
        return Ok(Joined::Answers(heard.collect()));
    }
    Ok(Joined::Passed(Response::from_parts(parts, Body::from(body))))
}

/// The answer about a job whose shards were all asked. If all say that the queue is elsewhere, it has moved and
/// this node has not heard of it: then the client is to ask again, unless the job can be nowhere else.
fn ask_again_if_elsewhere(answer: Box<RawValue>, offer: Option<&Offer>) -> Box<RawValue> {
    #[derive(Deserialize)]
    struct Refused<'a> {
        #[serde(borrow)]
        problem: &'a RawValue,
    }
    let refusal: Option<Refused<'_>> = serde_json::from_str(answer.get()).ok();
    let is_elsewhere = refusal.is_some_and(|it| is_elsewhere(it.problem.get().as_bytes()));
    match is_elsewhere && offer.is_some_and(|offer| !offer.is_bound) {
        true => refused(&problem_json(not_heard_of())),
        false => answer,
    }
}

/// Offers each job to its shards, one after the other: if a shard refuses a job because its queue is moving to
/// another shard, the next one is offered it.
async fn offer_all(
    routing: &Routing,
    head: &Head,
    jobs: &[Box<RawValue>],
    plan: Plan,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let mut left: Vec<VecDeque<Shard>> = Vec::with_capacity(plan.len());
    let mut answers: Vec<Option<Box<RawValue>>> = Vec::with_capacity(plan.len());
    for offer in &plan {
        let refusal = offer.as_ref().err();
        answers.push(refusal.map(|problem| refused(&problem_json(problem.clone()))));
        left.push(offer.iter().flat_map(|offer| offer.shards.iter().copied()).collect());
    }
    let mut is_any_taken = false;
    loop {
        let round: Vec<Option<Shard>> = left.iter_mut().map(VecDeque::pop_front).collect();
        let used: BTreeSet<Shard> = round.iter().flatten().copied().collect();
        if used.is_empty() {
            let answers = answers.into_iter().map(Option::unwrap_or_default).zip(&plan);
            let heard =
                answers.map(|(answer, offer)| ask_again_if_elsewhere(answer, offer.as_ref().ok()));
            return Ok(heard.collect());
        }
        let parts = used.iter().map(|shard| part(routing, head, *shard, jobs, &round));
        let parts = used.iter().copied().zip(join_all(parts).await).collect();
        let (said, refusal) = join(parts, &round);
        if let Some(refusal) = refusal.filter(|_| !is_any_taken) {
            return Err(refusal);
        }
        is_any_taken = true;
        for (place, said) in said.into_iter().enumerate() {
            let Some(said) = said else { continue };
            if !is_refused(&said) {
                left[place].clear();
            }
            answers[place] = Some(said);
        }
    }
}

/// Where a job is offered.
struct Offer {
    /// To one after the other.
    shards: Vec<Shard>,
    /// Whether it can be nowhere else: a job or batch that it is linked to is there, or its request names
    /// the shard.
    is_bound: bool,
}

/// Where each job is offered, or why nowhere.
type Plan = Vec<Result<Offer, Problem>>;

#[expect(clippy::type_complexity, reason = "it is read once, by its caller")]
fn plan(
    raw: &[u8],
    placement: &Placement,
    entry: fn(&RawValue, &Placement) -> Entry,
) -> Option<Result<(Vec<Box<RawValue>>, Plan), Problem>> {
    let Jobs { jobs } = said(raw)?;
    if !(1..=JOBS_MAX).contains(&jobs.len()) {
        return None;
    }
    let entries: Vec<Entry> = jobs.iter().map(|job| entry(job, placement)).collect();
    Some(places(&entries, placement).map(|places| (jobs, places)))
}

fn places(entries: &[Entry], placement: &Placement) -> Result<Plan, Problem> {
    let mut named: HashMap<&str, &[Shard]> = HashMap::new();
    let are_linked = entries.iter().any(|entry| !entry.after.is_empty());
    for entry in entries.iter().filter(|_| are_linked) {
        if let Some(name) = &entry.name
            && let Some(shards) = &entry.shards
            && named.insert(name.as_str(), shards).is_some()
        {
            // Each shard would see only one of them.
            let detail = format!("two jobs of the request have the ref `{name}`");
            return Err(Problem::bad_field(detail));
        }
    }
    // Jobs without a queue are refused by a shard that gets other jobs.
    let any = entries.iter().find_map(|entry| entry.shards.clone());
    let any = any.unwrap_or_else(|| vec![Shard::FIRST]);
    let place = |entry: &Entry| {
        let is_bound = !entry.linked.is_empty();
        let Some(shards) = entry.shards.clone() else {
            return Ok(Offer { shards: any.clone(), is_bound });
        };
        let shards = together(placement, shards, entry.linked.iter().copied())?;
        let mut bound = shards.clone();
        for name in &entry.after {
            let Some(others) = named.get(name.as_str()) else { continue };
            bound.retain(|shard| others.contains(shard));
            if bound.is_empty() {
                let [shard, other] = [&shards[..], others].map(last);
                let detail = format!(
                    "its queue is on shard {shard}, and `{name}`, which it waits for, on shard {other}: \
                     jobs that wait for each other are in queues of one shard"
                );
                return Err(Problem::new(Code::SeveralShards, detail).with("shard", other.0));
            }
        }
        Ok(Offer { shards: bound, is_bound })
    };
    Ok(entries.iter().map(place).collect())
}

/// Of all the shards of a queue, the one that takes its jobs.
fn last(shards: &[Shard]) -> Shard {
    shards.last().copied().unwrap_or(Shard::FIRST)
}

/// What a shard says to its part.
enum Part {
    Answers(Vec<Box<RawValue>>),
    /// It has taken none: the reason, as the answer to the whole request and as the answer about one job.
    None(Refusal, Box<RawValue>),
}

async fn part(
    routing: &Routing,
    head: &Head,
    shard: Shard,
    jobs: &[Box<RawValue>],
    round: &[Option<Shard>],
) -> Part {
    let mut body = br#"{"jobs":["#.to_vec();
    for (place, (job, on)) in jobs.iter().zip(round).enumerate() {
        if place > 0 {
            body.push(b',');
        }
        let is_its_own = *on == Some(shard);
        body.extend_from_slice(if is_its_own { job.get().as_bytes() } else { b"null" });
    }
    body.extend_from_slice(b"]}");
    match answers(routing, head, shard, body.into(), jobs.len()).await {
        Ok(answers) => Part::Answers(answers),
        Err(refusal) => {
            let (refusal, problem) = explained(refusal, shard).await;
            Part::None(refusal, problem)
        }
    }
}

/// A refusal, and the problem in it.
pub(super) async fn explained(refusal: Refusal, shard: Shard) -> (Refusal, Box<RawValue>) {
    let answer = match refusal {
        Refusal::Problem(problem) => {
            let said = problem_json(problem.clone());
            return (problem.into(), said);
        }
        Refusal::Answer(answer) => answer,
    };
    let (head, body) = answer.into_parts();
    match whole(body, shard).await {
        Ok(bytes) => {
            let said = String::from_utf8(bytes.to_vec()).ok().map(RawValue::from_string);
            let said = said.and_then(Result::ok);
            let said = said.unwrap_or_else(|| problem_json(Missed::BrokeOff(shard).into()));
            (Refusal::Answer(Box::new(Response::from_parts(head, Body::from(bytes)))), said)
        }
        Err(problem) => (problem.clone().into(), problem_json(problem)),
    }
}

/// A shard's answers about so many.
pub(super) async fn answers(
    routing: &Routing,
    head: &Head,
    shard: Shard,
    body: Bytes,
    count: usize,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let answer = routing.pass_read(head, body, shard).await?;
    let bytes = super::router::whole_if_ok(answer, shard).await?;
    let read: Option<Answers> = said(&bytes);
    let answers = read.map(|it| it.answers).filter(|answers| answers.len() == count);
    answers.ok_or_else(|| Missed::BrokeOff(shard).into())
}

/// The answers of a round's shards about each job that they were offered, and the refusal if no shard took any.
fn join(
    parts: Vec<(Shard, Part)>,
    round: &[Option<Shard>],
) -> (Vec<Option<Box<RawValue>>>, Option<Refusal>) {
    let mut by_shard = HashMap::new();
    let mut whole_refusal = None;
    let mut is_any_taken = false;
    for (shard, part) in parts {
        match part {
            Part::Answers(answers) => {
                is_any_taken = true;
                by_shard.insert(shard, Ok(answers.into_iter().map(Some).collect::<Vec<_>>()));
            }
            Part::None(refusal, problem) => {
                by_shard.insert(shard, Err(problem));
                whole_refusal.get_or_insert(refusal);
            }
        }
    }
    let answer = |(place, on): (usize, &Option<Shard>)| {
        let shard = (*on)?;
        Some(match by_shard.get_mut(&shard) {
            Some(Ok(answers)) => answers.get_mut(place).and_then(Option::take).unwrap_or_default(),
            Some(Err(problem)) => refused(problem),
            None => refused(&problem_json(Missed::BrokeOff(shard).into())),
        })
    };
    let answers = round.iter().enumerate().map(answer).collect();
    (answers, whole_refusal.filter(|_| !is_any_taken))
}
