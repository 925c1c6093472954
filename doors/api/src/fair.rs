//! How the jobs of a queue share its workers, as clients write and read it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_core::queue::{
    self, FAIR_KEY_BYTES_MAX, FAIR_WEIGHT_MAX, FAIR_WEIGHTS_MAX, FairWeight,
};
use spindle_http::{Answered, Problem, whole_values};
use spindle_matching::is_pointer;
use utoipa::ToSchema;

use crate::view::text;

/// A fair queue: ready jobs of different keys take turns, whatever their number.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fair {
    /// The field of the payload that is the key of a job submitted without `fair_key`, as a JSON
    /// Pointer (RFC 6901).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "constraint-pointer", min_length = 1, example = "/tenant")]
    field: Option<String>,
    /// How many jobs of a key start in its turn, 1 to 1000, where that is not 1; the jobs without
    /// key are those of the key `""`. At most 1000 keys of at most 256 bytes.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "whole_values"
    )]
    weights: BTreeMap<String, u32>,
}

impl Fair {
    pub fn of(fair: &queue::Fair) -> Fair {
        let weights = fair.weights.iter().map(|entry| (text(&entry.key), entry.weight));
        Fair {
            field: Some(fair.field.clone()).filter(|field| !field.is_empty()),
            weights: weights.collect(),
        }
    }

    /// The core's words for it.
    pub fn read(self) -> Answered<queue::Fair> {
        if self.field.as_ref().is_some_and(|field| field.is_empty() || !is_pointer(field)) {
            let detail = "fair.field is a JSON Pointer of at most 256 bytes, such as \"/tenant\"";
            return Err(Problem::out_of_range(detail));
        }
        let fits = |(key, weight): (&String, &u32)| {
            key.len() <= FAIR_KEY_BYTES_MAX && (1..=FAIR_WEIGHT_MAX).contains(weight)
        };
        if self.weights.len() > FAIR_WEIGHTS_MAX || !self.weights.iter().all(fits) {
            return Err(Problem::out_of_range(format!(
                "fair.weights has at most {FAIR_WEIGHTS_MAX} keys of at most {FAIR_KEY_BYTES_MAX} \
                 bytes, and weights of 1 to {FAIR_WEIGHT_MAX}"
            )));
        }
        // The map yields them in the order of the keys' bytes.
        let weights = self.weights.into_iter();
        let weights = weights.map(|(key, weight)| FairWeight { key: Bytes::from(key), weight });
        Ok(queue::Fair { field: self.field.unwrap_or_default(), weights: weights.collect() })
    }
}
