//! What jobs carry.

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// The seed of everything random in the demo.
const SEED: u64 = 14;

const PEOPLE: [&str; 12] = [
    "ada", "grace", "linus", "margaret", "edsger", "barbara", "donald", "radia", "ken", "frances",
    "tim", "hedy",
];
const SUBJECTS: [&str; 5] = [
    "Your order is on its way",
    "Confirm your address",
    "Your invoice for November",
    "Grüße aus dem Lager",
    "A new login from Lisbon",
];
const REPORTS: [&str; 4] = ["revenue", "churn", "stock", "support-times"];

/// Numbers for one thing of this name and place: the same each time.
pub fn random(name: &str, place: u64) -> ChaCha8Rng {
    let named = name.bytes().fold(SEED, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    ChaCha8Rng::seed_from_u64(named.wrapping_mul(0x9e37_79b9) ^ place)
}

/// What the job of a queue with this number carries.
pub fn payload(queue: &str, number: u64) -> Map<String, Value> {
    let mut random = random(queue, number);
    let person = *PEOPLE.choose(&mut random).unwrap_or(&"ada");
    let id = random.random_range(1_000..100_000);
    let image = json!(format!("s3://uploads/{person}/{id:05x}.jpg"));
    let value = match queue {
        "mail" => {
            let subject = SUBJECTS.choose(&mut random);
            json!({"to": format!("{person}@example.org"), "subject": subject, "template": id % 7})
        }
        "resize" => json!({"image": image, "width": 320 << (id % 3), "quality": 82}),
        "thumbnails" => json!({"image": image, "size": 96}),
        "import" => {
            json!({"file": format!("orders-{id}.csv"), "customer": format!("C-{}", id % 90), "rows": id * 3})
        }
        "invoices" => {
            json!({"invoice": id, "customer": format!("C-{}", id % 90), "cents": id * 17})
        }
        "reports" => {
            json!({"report": REPORTS.choose(&mut random), "month": "2026-11", "by": person})
        }
        "webhooks" => {
            json!({"url": format!("https://hooks.{person}.example/orders"), "event": "order.paid", "order": id})
        }
        "search-index" => {
            json!({"document": format!("product-{id}"), "fields": ["title", "stock"]})
        }
        _ => json!({"id": id}),
    };
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_same_each_time_and_another_for_each_job() {
        for queue in ["mail", "resize", "import", "invoices", "reports", "webhooks"] {
            assert_eq!(payload(queue, 7), payload(queue, 7));
            assert_ne!(payload(queue, 7), payload(queue, 8), "{queue}");
        }
        let first = serde_json::to_string(&payload("mail", 0)).unwrap();
        assert_eq!(first, serde_json::to_string(&payload("mail", 0)).unwrap());
    }
}
