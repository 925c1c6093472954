//! A batch that is nearly through: photos of a catalogue, of which most are done and one is dead. The
//! catalogue is made when all have ended.

use serde_json::{Value, json};

use super::{Filling, HELD_MS, HOUR_MS};
use crate::client::{session::AskError, web::ApiRequest};

const PHOTOS: usize = 40;
const DONE: usize = 32;

/// Opens the batch, fills it, and works most of it. The queue of its jobs has no others.
pub(super) fn begin(filling: &mut Filling) -> Result<(), AskError> {
    let new = json!({"queue": "catalogue", "name": "autumn-catalogue", "key": "catalogue-2026-11"});
    let batch: Value = filling.http.ask(ApiRequest::post("/api/v1/batches").with(&new))?;
    let photos = (1..=PHOTOS).map(|page| {
        json!({
            "queue": "photos", "batch": batch["id"], "fails_max": 1, "ttr_ms": HELD_MS,
            "keep_ms": 24 * HOUR_MS, "payload": {"page": page, "width": 2_400},
        })
    });
    filling.submit(photos.collect())?;
    let catalogue = json!({
        "queue": "catalogue", "after": [batch["id"]], "on_dead": "run",
        "payload": {"title": "Autumn 2026", "pages": PHOTOS},
    });
    filling.submit(vec![catalogue])?;
    let wish = json!({"queues": ["photos"], "worker": "studio-1"});
    let lease = || filling.http.ask::<Value>(ApiRequest::post("/api/v1/lease").with(&wish));
    for page in 1..=DONE {
        let result = json!({"result": {"file": format!("page-{page:02}.jpg")}});
        report(filling, &lease()?, "complete", &result)?;
    }
    let said = json!({"code": "no_profile", "error": "page 33: the colour profile is missing"});
    report(filling, &lease()?, "fail", &said)?;
    lease()?;
    Ok(())
}

fn report(filling: &Filling, leased: &Value, what: &str, said: &Value) -> Result<(), AskError> {
    let token = leased["lease_token"].as_str().unwrap_or_default();
    let path = format!("/api/v1/leases/{token}/{what}");
    filling.http.answer(ApiRequest::post(&path).with(said))?;
    Ok(())
}
