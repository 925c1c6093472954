//! The metrics of all shards as one page.

use axum::http::header;
use axum::response::IntoResponse;
use futures_util::future::join_all;
use indexmap::IndexMap;

use super::asked::Head;
use super::router::{Outcome, Routing, whole_if_ok};
use super::shards::{Missed, Refusal};
use crate::Shard;

/// The end of a page in OpenMetrics.
const END: &str = "# EOF";

/// `GET /metrics`: each sample with its shard. The samples of a shard that cannot be reached are missing, and
/// `spindle_shard_up` says so.
pub(super) async fn metrics(routing: &Routing, head: &Head) -> Outcome {
    let asked = routing.placement.shards().map(|shard| async move {
        let request = head.with_query(&head.query);
        let answer = routing.shards.send(shard, &head.peer, request).await?;
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        Ok::<_, Refusal>((kind, whole_if_ok(answer, shard).await?))
    });
    let answers = join_all(asked).await;
    let (mut families, mut kind, mut refused) = (Families::default(), None, None);
    let mut up = Vec::new();
    for (shard, answer) in routing.placement.shards().zip(answers) {
        up.push((shard, answer.is_ok()));
        match answer {
            Ok((its_kind, text)) => {
                let text = std::str::from_utf8(&text).map_err(|_| Missed::BrokeOff(shard))?;
                families.read(shard, text);
                kind = kind.or(its_kind);
            }
            Err(refusal @ Refusal::Answer(_)) => return Err(refusal),
            Err(refusal) => drop(refused.get_or_insert(refusal)),
        }
    }
    let Some(kind) = kind else {
        return Err(refused.unwrap_or_else(|| Missed::BrokeOff(Shard::FIRST).into()));
    };
    families.note_up(&up);
    Ok(([(header::CONTENT_TYPE, kind)], families.written()).into_response())
}

/// Metrics by their names: each with its description, once, and the samples of all shards.
#[derive(Default)]
struct Families {
    by_name: IndexMap<String, Family>,
    has_end: bool,
}

#[derive(Default)]
struct Family {
    described: String,
    samples: String,
}

impl Families {
    fn read(&mut self, shard: Shard, text: &str) {
        let mut name = String::new();
        // Another shard has described it.
        let mut is_known = false;
        for line in text.lines() {
            if line == END {
                self.has_end = true;
            } else if let Some(comment) = line.strip_prefix("# ") {
                let of = comment.split(' ').nth(1).unwrap_or_default();
                if of != name {
                    name = of.to_owned();
                    is_known = self.by_name.contains_key(&name);
                }
                if !is_known {
                    let family = self.by_name.entry(name.clone()).or_default();
                    family.described.push_str(line);
                    family.described.push('\n');
                }
            } else if !line.is_empty() {
                let family = self.by_name.entry(name.clone()).or_default();
                put_sample(&mut family.samples, line, shard);
            }
        }
    }

    fn note_up(&mut self, up: &[(Shard, bool)]) {
        let described = "# HELP spindle_shard_up Whether the shard has answered.\n\
                         # TYPE spindle_shard_up gauge\n";
        let sample = |(shard, is_up): &(Shard, bool)| {
            format!("spindle_shard_up{{shard=\"{shard}\"}} {}\n", u8::from(*is_up))
        };
        let samples = up.iter().map(sample).collect();
        let family = Family { described: described.to_owned(), samples };
        self.by_name.insert("spindle_shard_up".to_owned(), family);
    }

    fn written(self) -> String {
        let mut text = String::new();
        for Family { described, samples } in self.by_name.into_values() {
            text.push_str(&described);
            text.push_str(&samples);
        }
        if self.has_end {
            text.push_str(END);
            text.push('\n');
        }
        text
    }
}

/// A sample with one label more.
fn put_sample(text: &mut String, line: &str, shard: Shard) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let label = format!("{{shard=\"{shard}\"");
    match rest.strip_prefix('{') {
        Some(rest) if rest.starts_with('}') => text.extend([name, &label, rest]),
        Some(rest) => text.extend([name, &label, ",", rest]),
        None => text.extend([name, &label, "}", rest]),
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_described_once_and_each_sample_has_its_shard() {
        let mut families = Families::default();
        let page = "# HELP a_jobs Jobs.\n# TYPE a_jobs counter\na_jobs_total{queue=\"a } b\"} 1\n\
                    # HELP a_up Up.\n# TYPE a_up gauge\na_up 1\n# EOF\n";
        families.read(Shard(0), page);
        families.read(Shard(2), page);
        families.note_up(&[(Shard(0), true), (Shard(1), false)]);
        let joined = "# HELP a_jobs Jobs.\n# TYPE a_jobs counter\n\
            a_jobs_total{shard=\"0\",queue=\"a } b\"} 1\na_jobs_total{shard=\"2\",queue=\"a } b\"} 1\n\
            # HELP a_up Up.\n# TYPE a_up gauge\na_up{shard=\"0\"} 1\na_up{shard=\"2\"} 1\n\
            # HELP spindle_shard_up Whether the shard has answered.\n# TYPE spindle_shard_up gauge\n\
            spindle_shard_up{shard=\"0\"} 1\nspindle_shard_up{shard=\"1\"} 0\n# EOF\n";
        assert_eq!(families.written(), joined);
    }
}
