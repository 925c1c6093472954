//! `spindle job`: one job, for people or as JSON.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    server::Server,
    times::{between, of_field, with_distance},
    view::{Job, Outcome, text_of},
};
use crate::{
    cli::{JobArgs, RetryWait},
    exit::Code,
    output::{Rows, preview, write_json},
    quantity::Written,
};

/// Shows a job.
pub fn job(args: &JobArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let asked = server.open()?.job(args.id);
    let job = asked.map_err(|error| server.explain(error, &format!("job {}", args.id)))?;
    let mut out = io::stdout().lock();
    if args.common.json {
        write_json(&mut out, &job.with_texts())?;
    } else {
        fields(&job, spindle_client::now())?.print(&mut out)?;
        print_history(&job, &mut out)?;
    }
    Ok(Code::Ok)
}

/// A job, field by field.
fn fields(job: &Job, now: Timestamp) -> anyhow::Result<Rows> {
    let mut rows = Rows::new(&["field", "value"]);
    let mut add = |name: &str, value: String| rows.add([name.to_owned(), value]);
    let most = |max: Option<u32>| match max {
        None | Some(0) => "no limit".to_owned(),
        Some(max) => max.to_string(),
    };
    let length = |ms: u64| Written(ms).to_string();
    add("id", job.id_text());
    add("queue", job.queue_name().to_string());
    add("status", job.status.clone());
    add("priority", job.priority.to_string());
    add("attempts", job.attempts.to_string());
    add("attempts-max", most(job.attempts_max));
    add("fails", job.fails.to_string());
    add("fails-max", most(Some(job.fails_max.unwrap_or(1))));
    job.ttr_ms.into_iter().for_each(|ms| add("ttr", length(ms)));
    job.ttl_ms.into_iter().for_each(|ms| add("ttl", length(ms)));
    add("created", with_distance(&job.created_at, now));
    job.run_at.iter().for_each(|time| add("time", with_distance(time, now)));
    for (name, value) in job.more.iter().filter(|(name, value)| is_shown(name, value)) {
        let label = name.strip_suffix("_ms").unwrap_or(name).replace('_', "-");
        add(&label, shown(name, value, now));
    }
    if let Some(outcome) = &job.result {
        for (name, text) in outcome_fields(outcome)? {
            add(name, text);
        }
    }
    add("payload-bytes", job.payload_bytes.to_string());
    if let Some(payload) = job.payload_bytes()? {
        add("payload", preview(&payload, usize::MAX));
    }
    Ok(rows)
}

fn outcome_fields(outcome: &Outcome) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut fields = vec![("success", outcome.success.to_string())];
    let words = [("message", &outcome.message), ("error", &outcome.error), ("code", &outcome.code)];
    let said = words.into_iter().filter(|(_, text)| !text.is_empty());
    fields.extend(said.map(|(name, text)| (name, text.clone())));
    fields.push(("result", preview(&outcome.result_bytes()?, usize::MAX)));
    Ok(fields)
}

/// Whether a field is shown: nulls and empty lists are not, and the history has its own table.
fn is_shown(name: &str, value: &Value) -> bool {
    name != "history" && !value.is_null() && !value.as_array().is_some_and(Vec::is_empty)
}

fn shown(name: &str, value: &Value, now: Timestamp) -> String {
    if let Some(text) = of_field(name, value, now) {
        return text;
    }
    if name == "backoff"
        && let Some(wait) = RetryWait::of_json(value)
    {
        // As it is typed.
        return wait.to_string();
    }
    match value {
        Value::Array(items) => {
            let has_parts = items.iter().any(Value::is_object);
            let items: Vec<String> = items.iter().map(|item| parts(item, now)).collect();
            items.join(if has_parts { "; " } else { ", " })
        }
        other => parts(other, now),
    }
}

/// What an object says, part by part.
fn parts(value: &Value, now: Timestamp) -> String {
    let Some(object) = value.as_object() else { return text_of(value) };
    let part = |(name, value): (&String, &Value)| {
        let text = of_field(name, value, now).unwrap_or_else(|| text_of(value));
        let name = name.strip_suffix("_ms").unwrap_or(name).replace('_', "-");
        format!("{name} {text}")
    };
    object.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The attempts: a table below the fields on a terminal, elsewhere lines that begin with `attempt`.
fn print_history(job: &Job, out: &mut impl Write) -> io::Result<()> {
    let attempts = job.more.get("history").and_then(Value::as_array);
    let Some(attempts) = attempts.filter(|attempts| !attempts.is_empty()) else { return Ok(()) };
    if io::stdout().is_terminal() {
        writeln!(out)?;
    }
    history(attempts, spindle_client::now()).print(out)
}

fn history(attempts: &[Value], now: Timestamp) -> Rows {
    let columns = ["", "attempt", "started", "took", "ended", "worker", "code", "message"];
    let field = |attempt: &Value, name: &str| attempt.get(name).map(text_of).unwrap_or_default();
    let has = |name: &str| attempts.iter().any(|attempt| !field(attempt, name).is_empty());
    // A server that does not tell why an attempt failed gets no columns for it.
    let [has_code, has_message] = ["code", "message"].map(has);
    let count = if has_message { 8 } else { 6 + usize::from(has_code) };
    let mut rows = Rows::new(columns.get(..count).unwrap_or(&columns));
    let mut last = 0;
    for attempt in attempts {
        let number = attempt.get("attempt").and_then(Value::as_u64).unwrap_or_default();
        if last > 0 && number > last + 1 {
            // The first and the last ones are kept.
            rows.add(["attempts".to_owned(), format!("{} to {}", last + 1, number - 1)]);
        }
        last = number;
        let [started, ended] = ["started_at", "ended_at"].map(|name| field(attempt, name));
        let (worker, door) = (field(attempt, "worker"), field(attempt, "door"));
        let holder = if worker.is_empty() { door } else { format!("{worker} ({door})") };
        let cells = [
            "attempt".to_owned(),
            number.to_string(),
            with_distance(&started, now),
            between(&started, &ended).unwrap_or_default(),
            field(attempt, "outcome").replace('_', " "),
            holder,
            field(attempt, "code"),
            field(attempt, "message"),
        ];
        rows.add(cells.into_iter().take(count));
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(attempts: &Value) -> Vec<String> {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let mut out = Vec::new();
        history(attempts.as_array().unwrap(), now).print_lines(&mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn attempts_are_told_with_why_they_ended_as_far_as_that_is_told() {
        let attempt = json!({
            "attempt": 1, "started_at": "2026-01-01T00:00:00.000Z",
            "ended_at": "2026-01-01T00:00:01.500Z", "outcome": "holder_gone", "door": "gearman",
        });
        let started = "2026-01-01 00:00:00 UTC (1h ago)";
        let first = format!("attempt\t1\t{started}\t1.500s\tholder gone\tgearman");
        assert_eq!(lines(&json!([attempt])), [first.as_str()]);
        let mut second = attempt.clone();
        for (name, value) in
            [("worker", "box:7"), ("outcome", "failed"), ("code", "E9"), ("message", "no\tink")]
        {
            second[name] = json!(value);
        }
        second["attempt"] = json!(20);
        let failed =
            format!("attempt\t20\t{started}\t1.500s\tfailed\tbox:7 (gearman)\tE9\tno\\tink");
        let shown = lines(&json!([attempt, second]));
        assert_eq!(shown, [format!("{first}\t\t"), "attempts\t2 to 19".to_owned(), failed]);
    }

    #[test]
    fn what_a_job_has_besides_is_told_in_words() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let backoff = json!({"base_ms": 1000, "factor_thousandths": 2000});
        assert_eq!(shown("backoff", &backoff, now), "base 1s, factor-thousandths 2000");
        assert_eq!(shown("tags", &json!(["a", "b"]), now), "a, b");
        let lease = json!({"worker": "ann", "started_at": "2025-12-31T23:00:00Z"});
        let expected = "started-at 2025-12-31 23:00:00 UTC (1h ago), worker ann";
        assert_eq!(shown("lease", &lease, now), expected);
    }
}
