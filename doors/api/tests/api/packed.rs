//! MessagePack reports of LightJQ's workers, as the API shows them.

use serde_json::{Value, json};
use spindle_core::command::Lease;
use spindle_core::job::Origin;
use spindle_core::{Policy, Type};
use spindle_engine::{Options, Payload, WorkResult};
use spindle_msgpack::from_json;
use spindle_testkit::{lease_from, opened, take};

use crate::harness::Bench;

/// An engine that knows what LightJQ's door declares of its workers.
fn bench() -> Bench {
    let packed = Policy { error_type: Type::Msgpack, ..Policy::ONCE };
    let mut options = Options::default();
    options.defaults.policies = [(Origin::Lightjq, packed)].into_iter().collect();
    Bench::with(|_| {}, options)
}

/// A job of this door's worker that ends like this, as the API shows its result.
async fn ended(bench: &Bench, door: Origin, end: WorkResult) -> Value {
    let id = bench.submit(json!({ "queue": "q" })).await;
    let claim = take(&bench.engine, Lease { worker: "w".into(), ..lease_from("q", door) });
    opened(bench.engine.leases().finish(claim, end)).unwrap();
    drop(bench.engine.turn());
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()["result"].clone()
}

fn packed(value: &Value) -> bytes::Bytes {
    from_json(value.to_string().as_bytes()).unwrap().into()
}

/// The result that a worker has come to.
fn result_of(bytes: impl Into<bytes::Bytes>) -> Payload {
    Payload::new(bytes, Type::Msgpack)
}

fn failure(error: bytes::Bytes) -> WorkResult {
    WorkResult { error, result: result_of(""), ..WorkResult::default() }
}

#[tokio::test]
async fn a_result_is_told_exactly_and_as_what_it_says() {
    let bench = bench();
    let result = result_of(packed(&json!({ "bytes": 4711 })));
    let end = WorkResult { success: true, result, ..WorkResult::default() };
    let answer = ended(&bench, Origin::Lightjq, end).await;
    assert_eq!(
        (&answer["type"], &answer["base64"]),
        (&json!("msgpack"), &json!("gaVieXRlc80SZw=="))
    );
    assert_eq!((&answer["as_json"], &answer["value"]), (&json!({ "bytes": 4711 }), &Value::Null));
    let result = result_of("\u{1}\u{2}");
    let broken = WorkResult { success: true, result, ..WorkResult::default() };
    let answer = ended(&bench, Origin::Lightjq, broken).await;
    assert_eq!((&answer["base64"], answer.get("as_json")), (&json!("AQI="), None));
}

#[tokio::test]
async fn an_error_is_told_as_what_it_says_where_its_door_writes_messagepack() {
    let bench = bench();
    for (error, shown) in [
        (json!("no such file"), "no such file"),
        (json!({ "code": 5, "of": ["disk"] }), r#"{"code":5,"of":["disk"]}"#),
        (json!(-7), "-7"),
    ] {
        let answer = ended(&bench, Origin::Lightjq, failure(packed(&error))).await;
        assert_eq!(answer["error"], shown);
    }
    // The same bytes from another door's worker are a text: types are never guessed.
    let answer = ended(&bench, Origin::Api, failure(packed(&json!("x")))).await;
    assert_eq!(answer["error"], "\u{fffd}x");
    let answer = ended(&bench, Origin::Lightjq, failure("plain words".into())).await;
    assert_eq!(answer["error"], "plain words", "what is no MessagePack is not hidden");
}
