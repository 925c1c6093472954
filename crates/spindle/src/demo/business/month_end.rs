//! A flow in the middle of its way: books of three shops are closed, then the invoices are made, and
//! what follows from those. Two of the shops are done, and a worker has the third.

use serde_json::{Value, json};

use super::{Filling, HELD_MS, HOUR_MS};
use crate::client::{session::AskError, web::ApiRequest};

const SHOPS: [&str; 3] = ["lisbon", "hamburg", "online"];
/// Shops that are done, and what their workers said.
const CLOSED: [(u32, u64); 2] = [(1_204, 8_310_455), (418, 2_077_190)];
/// The jobs behind the shops: queue, name, what they wait for, and what when one of those dies.
const AFTER: [(&str, &str, &[&str], &str); 4] = [
    ("invoices", "invoices", &SHOPS, "cancel"),
    ("mail", "to-customers", &["invoices"], "cancel"),
    ("reports", "revenue", &["invoices"], "run"),
    ("archive", "archive", &["to-customers", "revenue"], "cancel"),
];

/// Submits the flow, and works a part of it. The queue of the shops has no other jobs.
pub(super) fn begin(filling: &mut Filling) -> Result<(), AskError> {
    let month = "2026-11";
    let shops = SHOPS.map(|shop| {
        json!({
            "queue": "close-books", "ref": shop, "payload": {"shop": shop, "month": month},
            "ttr_ms": HELD_MS, "keep_ms": 24 * HOUR_MS, "tags": ["month-end"],
        })
    });
    let after = AFTER.map(|(queue, name, after, on_dead)| {
        let more = json!({"ref": name, "after": after, "on_dead": on_dead, "tags": ["month-end"]});
        filling.job(queue, more)
    });
    filling.submit(shops.into_iter().chain(after).collect())?;
    let wish = json!({"queues": ["close-books"], "worker": "books-1"});
    let lease = || filling.http.ask::<Value>(ApiRequest::post("/api/v1/lease").with(&wish));
    for (orders, cents) in CLOSED {
        let leased = lease()?;
        let token = leased["lease_token"].as_str().unwrap_or_default();
        let result = json!({"result": {"orders": orders, "cents": cents}});
        let path = format!("/api/v1/leases/{token}/complete");
        filling.http.answer(ApiRequest::post(&path).with(&result))?;
    }
    lease()?;
    Ok(())
}
