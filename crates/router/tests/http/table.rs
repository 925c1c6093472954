use std::collections::BTreeSet;

use crate::shards::Sharded;

#[test]
fn every_route_of_the_api_has_a_row() {
    let sharded = Sharded::over(1);
    let document = sharded.get("/api/openapi.json").json();
    let mut missing: BTreeSet<(String, String)> = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_ascii_uppercase();
            if ["GET", "PUT", "POST", "PATCH", "DELETE"].contains(&method.as_str()) {
                missing.insert((method, path.clone()));
            }
        }
    }
    assert!(missing.len() > 60, "{}", missing.len());
    for (method, path) in spindle_router::http::routes() {
        missing.remove(&(method.to_owned(), path.to_owned()));
    }
    assert_eq!(missing, BTreeSet::new());
}
