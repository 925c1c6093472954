//! Jobs that wait in another order than that of their age: they come through the native API, which
//! can express the order, and are worked through any door.

use crate::http::HttpClient;
use crate::load::Jobs;
use crate::suite::Order;
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::Range;

/// Jobs of one request.
const BATCH: usize = 1_000;

/// Submits the jobs of these numbers to their queue.
pub(crate) fn submit(
    http: SocketAddr,
    jobs: &Jobs,
    numbers: Range<u64>,
    order: Order,
) -> Result<()> {
    let mut client = HttpClient::connect(http)?;
    if matches!(order, Order::Turns { .. }) {
        let path = format!("/api/v1/queues/{}/settings", jobs.queue());
        client.ask_json("PUT", &path, &json!({ "fair": {} }))?;
    }
    let numbers: Vec<u64> = numbers.collect();
    let mut last = None;
    for batch in numbers.chunks(BATCH) {
        let items = batch.iter().enumerate();
        let items: Vec<Value> = items.map(|(at, it)| item(jobs, *it, at, last, order)).collect();
        let answer = client.ask_json("POST", "/api/v1/jobs/batch", &json!({ "jobs": items }))?;
        let answers = answer["answers"].as_array().context("a batch has answers")?;
        let ids: Option<Vec<u64>> = answers.iter().map(|answer| answer["id"].as_u64()).collect();
        last = ids.with_context(|| format!("a job was refused: {answer}"))?.last().copied();
    }
    Ok(())
}

/// A job as the API takes it, at a place in its batch. `last` is the number that the server gave the
/// last job of the batch before.
fn item(jobs: &Jobs, number: u64, at: usize, last: Option<u64>, order: Order) -> Value {
    let mut payload = vec![];
    jobs.encode_payload(number, &mut payload);
    let mut item = json!({ "queue": jobs.queue(), "payload_base64": STANDARD.encode(payload) });
    match order {
        Order::Age => {}
        Order::Turns { keys } => item["fair_key"] = json!(format!("key-{}", number % keys)),
        Order::Chain => {
            item["ref"] = json!(at.to_string());
            let before = at.checked_sub(1).map(|at| json!(at.to_string()));
            item["after"] = before.or(last.map(Value::from)).into_iter().collect();
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    #[test]
    fn jobs_of_a_chain_name_the_one_before_and_keys_come_round() {
        let jobs = Jobs::fresh(Wire::Workq);
        let chain = |at, last| item(&jobs, 7, at, last, Order::Chain);
        assert_eq!(chain(0, None)["after"], json!([]));
        assert_eq!(
            (&chain(0, Some(5))["after"], &chain(0, Some(5))["ref"]),
            (&json!([5]), &json!("0"))
        );
        assert_eq!(chain(3, Some(5))["after"], json!(["2"]));
        let key =
            |number| item(&jobs, number, 0, None, Order::Turns { keys: 3 })["fair_key"].take();
        assert_eq!([key(0), key(1), key(3)], ["key-0", "key-1", "key-0"].map(Value::from));
        let payload = STANDARD.decode(chain(0, None)["payload_base64"].as_str().unwrap()).unwrap();
        assert_eq!(jobs.recognise(&payload), Some(7));
    }
}
