//! A request, from its rule to its answer.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures_util::future::join_all;
use spindle_core::seat::JOBQ_QUEUE;
use spindle_http::{BodyLimits, Code, Problem};

use super::asked::{Asked, Head};
use super::place::{Place, queue_of};
use super::shards::{Missed, Refusal, Shards, whole};
use super::table::{Rule, rule_of};
use super::{
    bulk, constraints, events, flock, jobq, lease, lists, queues, reports, schedules, submit, sums,
};
use crate::{Placement, Reach, Shard};

/// Sends requests over HTTP to shards.
///
/// It is served by a `spindle_http::Site` with [`NoLog`](crate::NoLog) as its committer. Left out are
/// `/healthz`, `/readyz` and `GET /api/v1/cluster`: the node that is asked answers them itself.
#[derive(Clone)]
pub struct HttpRouter(Arc<Routing>);

/// What all requests share.
pub(super) struct Routing {
    pub shards: Shards,
    pub placement: Placement,
    pub limits: BodyLimits,
}

/// What a rule comes to.
pub(super) type Outcome = Result<Response, Refusal>;

impl HttpRouter {
    /// A router to the shards of a cluster.
    #[must_use]
    pub fn new(reach: Arc<dyn Reach>, placement: Placement) -> HttpRouter {
        HttpRouter::with_body_limits(reach, placement, BodyLimits::default())
    }

    /// The same with other limits for bodies: those of the shards' doors.
    #[must_use]
    pub fn with_body_limits(
        reach: Arc<dyn Reach>,
        placement: Placement,
        limits: BodyLimits,
    ) -> HttpRouter {
        let shards = Shards::new(reach);
        HttpRouter(Arc::new(Routing { shards, placement, limits }))
    }

    /// All routes, for a `spindle_http::Site`.
    pub fn router(&self) -> Router {
        // Not a fallback, which is the site's own.
        let routes = Router::new().route("/", any(answer)).route("/{*path}", any(answer));
        routes.with_state(self.clone())
    }
}

async fn answer(State(HttpRouter(routing)): State<HttpRouter>, request: Request) -> Response {
    let (rule, segment) = rule_of(request.method(), request.uri().path());
    let segment = segment.to_owned();
    let answered = match Asked::new(request, &routing.placement, routing.limits) {
        Ok(asked) => routing.answer(rule, &segment, asked).await,
        Err(problem) => Err(problem.into()),
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

impl Routing {
    async fn answer(&self, rule: Rule, segment: &str, asked: Asked) -> Outcome {
        let placement = &self.placement;
        let named = asked.head.shard;
        match rule {
            // Requests that bring something into a queue, or lease: the queue's shard is checked, too.
            Rule::Submit => submit::one(self, asked).await,
            Rule::OpenBatch => submit::batch(self, asked).await,
            Rule::JobEdit => submit::edit(self, segment, asked).await,
            Rule::SubmitMany => flock::submit(self, asked).await,
            Rule::Import => flock::import(self, asked).await,
            Rule::Bulk => bulk::bulk(self, asked).await,
            Rule::PutSchedule => schedules::put(self, asked).await,
            Rule::ApplySchedules => schedules::apply(self, asked).await,
            Rule::Queue => {
                let shards = placement.of_queue_named(segment);
                queues::queue(self, asked, shards).await
            }
            Rule::JobqCreate => {
                let name = asked.head.params("queue").next();
                let shards = placement.all_of(name.as_deref().unwrap_or(JOBQ_QUEUE));
                let (head, bytes) = asked.read(self.limits).await?;
                submit::offer(self, &head, &bytes, &named_of(&head, shards)?).await?.answer(&head)
            }
            Rule::Lease => lease::lease(self, asked).await,
            Rule::Reports => reports::reports(self, asked).await,
            _ => match named {
                Some(shard) => self.pass(asked, shard).await,
                None => self.answer_anywhere(rule, segment, asked).await,
            },
        }
    }

    /// A request that names no shard, and brings nothing into a queue.
    async fn answer_anywhere(&self, rule: Rule, segment: &str, asked: Asked) -> Outcome {
        let placement = &self.placement;
        match rule {
            Rule::Named => Err(name_a_shard("this is about one shard's log").into()),
            Rule::Token => {
                let token = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
                self.pass(asked, placement.of_token(&token)).await
            }
            Rule::Batch => self.pass(asked, placement.of_batch_named(segment)).await,
            Rule::Job => match placement.of_job_named(segment) {
                Place::On(shard) => self.pass(asked, shard).await,
                Place::Somewhere => self.find(asked).await,
            },
            Rule::Schedule => self.find(asked).await,
            Rule::Every => Ok(self.every(asked).await?.remove(0).1),
            Rule::PutConstraint => constraints::put(self, asked).await,
            Rule::Constraints(about) => constraints::answer(self, about, &asked.head).await,
            Rule::List(kind) => lists::list(self, kind, asked).await,
            Rule::Sum(sum) => sums::sum(self, sum, asked).await,
            Rule::Events => events::follow(self, asked).await,
            Rule::JobqList => jobq::list(self, asked).await,
            Rule::JobqPoll => jobq::poll(self, asked).await,
            _ => self.pass(asked, Shard::FIRST).await,
        }
    }

    /// Sends the request on, and its body as it comes.
    pub async fn pass(&self, asked: Asked, shard: Shard) -> Outcome {
        let (head, request) = asked.into_streamed();
        Ok(self.shards.send(shard, &head.peer, request).await?)
    }

    /// Sends on a request whose body was read.
    pub async fn pass_read(&self, head: &Head, bytes: Bytes, shard: Shard) -> Outcome {
        Ok(self.shards.send(shard, &head.peer, head.with_bytes(bytes)).await?)
    }

    /// Asks one shard after the other, until one gives another answer than "not found".
    async fn find(&self, asked: Asked) -> Outcome {
        let (head, bytes) = asked.read(self.limits).await?;
        self.find_read(&head, bytes).await
    }

    /// The same for a request whose body was read.
    pub async fn find_read(&self, head: &Head, bytes: Bytes) -> Outcome {
        let shards: Vec<Shard> = self.placement.shards().collect();
        self.find_among(&shards, head, bytes).await
    }

    /// The same in an order of its own.
    pub async fn find_among(&self, shards: &[Shard], head: &Head, bytes: Bytes) -> Outcome {
        let (mut absent, mut missed) = (None, None);
        for shard in shards {
            let request = head.with_bytes(bytes.clone());
            match self.shards.send(*shard, &head.peer, request).await {
                Ok(answer) if answer.status() == StatusCode::NOT_FOUND => {
                    absent.get_or_insert(answer);
                }
                Ok(answer) => return Ok(answer),
                Err(why @ Missed::Unreached(..)) => {
                    missed.get_or_insert(why);
                }
                Err(why) => return Err(why.into()),
            }
        }
        match (missed, absent) {
            // What is asked for may be on the shard that was not reached.
            (Some(missed), _) => Err(missed.into()),
            (None, Some(absent)) => Ok(absent),
            (None, None) => Err(Problem::new(Code::NotFound, "there are no shards").into()),
        }
    }

    /// Has all shards do the same, and returns their answers, at least one. The first is the answer to the
    /// client; if it is a success, all shards did it. The request's conditions are sent to the first shard
    /// only. A removal that finds nothing on one shard goes on with the others, since an earlier removal may
    /// not have reached all of them.
    pub async fn every(&self, asked: Asked) -> Result<Vec<(Shard, Response)>, Refusal> {
        let (head, bytes) = asked.read(self.limits).await?;
        let is_gone = |answer: &Response| {
            head.method == Method::DELETE && answer.status() == StatusCode::NOT_FOUND
        };
        let first = self.pass_read(&head, bytes.clone(), Shard::FIRST).await?;
        let fails = |answer: &Response| !answer.status().is_success() && !is_gone(answer);
        let is_over = fails(&first);
        let mut done = vec![(Shard::FIRST, first)];
        if is_over {
            return Ok(done);
        }
        let others = head.unconditional();
        for shard in self.placement.shards().filter(|shard| *shard != Shard::FIRST) {
            let answer = self.pass_read(&others, bytes.clone(), shard).await?;
            if fails(&answer) {
                return Ok(vec![(shard, answer)]);
            }
            done.push((shard, answer));
        }
        // If any shard did remove it, its answer comes first.
        done.sort_by_key(|(_, answer)| is_gone(answer));
        Ok(done)
    }

    /// The answers of all shards to a request without a body, each with its own query: all of them, or
    /// the first failure.
    pub async fn gather(
        &self,
        head: &Head,
        query: impl Fn(Shard) -> String,
    ) -> Result<Vec<(Shard, Bytes)>, Refusal> {
        let asked = self.placement.shards().map(|shard| self.read(head, shard, query(shard)));
        join_all(asked).await.into_iter().collect()
    }

    /// One shard's answer, in full.
    pub async fn read(
        &self,
        head: &Head,
        shard: Shard,
        query: String,
    ) -> Result<(Shard, Bytes), Refusal> {
        let answer = self.shards.send(shard, &head.peer, head.with_query(&query)).await?;
        Ok((shard, whole_if_ok(answer, shard).await?))
    }
}

/// An answer's body. An answer other than 200 becomes the answer to the whole request.
pub(super) async fn whole_if_ok(
    answer: axum::http::Response<Body>,
    shard: Shard,
) -> Result<Bytes, Refusal> {
    if answer.status() != StatusCode::OK {
        return Err(Refusal::Answer(Box::new(answer)));
    }
    Ok(whole(answer.into_body(), shard).await?)
}

/// Refuses a request that names another shard than that of its queue.
pub(super) fn check_named(head: &Head, shard: Shard) -> Result<(), Refusal> {
    named_of(head, vec![shard]).map(drop)
}

/// Of the shards of a request's queue, the one that the request names, or all. A request that names another
/// shard is refused.
pub(super) fn named_of(head: &Head, shards: Vec<Shard>) -> Result<Vec<Shard>, Refusal> {
    match head.shard {
        None => Ok(shards),
        Some(named) if shards.contains(&named) => Ok(vec![named]),
        Some(named) => {
            let shard = shards.last().copied().unwrap_or(Shard::FIRST);
            let detail =
                format!("the queue is on shard {shard}, and the request names shard {named}");
            Err(Problem::new(Code::SeveralShards, detail).with("shard", shard.0).into())
        }
    }
}

/// The refusal of a request that only one shard can answer, and that names none.
pub(super) fn name_a_shard(why: &str) -> Problem {
    let detail = format!("{why}: ask one shard, by ?shard= and its number");
    Problem::new(Code::NameAShard, detail)
}

/// An answer in JSON that was joined.
pub(super) fn json(text: Vec<u8>) -> Response {
    let kind = [(axum::http::header::CONTENT_TYPE, "application/json")];
    (kind, text).into_response()
}

/// The queue that a query names, where it is one.
pub(super) fn queue_in(head: &Head) -> Option<Vec<u8>> {
    let text =
        |name| head.params(name).next().map(|value| String::from_utf8_lossy(&value).into_owned());
    let (name, base64) = (text("queue"), text("queue_base64"));
    queue_of(name.as_deref(), base64.as_deref())
}
