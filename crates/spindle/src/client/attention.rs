//! Which queues need attention, and what to look at.

use serde_json::{Map, Value, json};

use super::{times::lasting, view::Queue};
use crate::{output::jobs_counted, queue_name::QueueName};

/// Ready jobs that have waited this long are late.
const LATE_MS: u64 = 60_000;
/// A queue is nearly full from this percentage of its limit on.
const NEARLY_FULL: u64 = 90;

/// A queue that needs attention, and why.
pub struct Attention {
    /// The queue.
    pub queue: QueueName,
    /// Why, in a word that does not change.
    pub why: &'static str,
    /// Why, for people.
    pub text: String,
    /// What to do next.
    pub command: String,
    /// How urgent it is; the smallest first.
    pub rank: u8,
}

impl Attention {
    /// As JSON.
    pub fn object(&self) -> Value {
        let mut object = Map::new();
        self.queue.put(&mut object, "queue");
        for (name, text) in [("text", &self.text), ("command", &self.command)] {
            object.insert(name.to_owned(), json!(text));
        }
        object.insert("why".to_owned(), json!(self.why));
        Value::Object(object)
    }
}

/// What is the matter with a queue, as a list of queues tells it.
pub fn attentions(queue: &Queue) -> Vec<Attention> {
    let name = queue.queue_name();
    let word = name.for_shell();
    let mut found = Vec::new();
    let mut add = |rank, why, text, command: String| {
        found.push(Attention { queue: name.clone(), why, text, command, rank });
    };
    let number = |field: &str| queue.more.get(field).and_then(Value::as_u64);
    let jobs = &queue.jobs;
    let unfinished: u64 = jobs.ready
        + jobs.scheduled
        + [jobs.leased, jobs.parked, jobs.blocked].iter().flatten().sum::<u64>();
    if let Some(max) = number("jobs_max")
        && u128::from(unfinished) * 100 >= u128::from(max) * u128::from(NEARLY_FULL)
    {
        let is = if unfinished >= max { "full" } else { "nearly full" };
        let text = format!("it is {is}: {} of at most {max}", jobs_counted(unfinished));
        add(0, "full", text, format!("spindle jobs {word}"));
    }
    if queue.paused == Some(true) && jobs.ready + jobs.scheduled > 0 {
        let waiting = jobs_counted(jobs.ready + jobs.scheduled);
        let text = format!("it is paused, with {waiting} waiting");
        add(1, "paused", text, format!("spindle resume {word}"));
    } else if let Some(age_ms) = number("next_ready_age_ms").filter(|ms| *ms >= LATE_MS) {
        let (ready, age) = (jobs_counted(jobs.ready), lasting(age_ms));
        if number("waiting_leases").unwrap_or(0) > 0 {
            let text = format!("{ready} ready, the next one for {age}, though workers wait");
            add(2, "held_back", text, "spindle constraint list".to_owned());
        } else if asked_long_ago(queue) {
            let text = format!("{ready} ready, the next one for {age}, and no worker asks");
            add(2, "no_worker", text, "spindle workers".to_owned());
        }
    }
    if let Some(dead) = jobs.dead.filter(|dead| *dead > 0) {
        let text = format!("{} dead", jobs_counted(dead));
        add(3, "dead", text, format!("spindle jobs {word} --status dead"));
    }
    found
}

/// No worker has asked for its jobs for a while, by the clock of this machine.
fn asked_long_ago(queue: &Queue) -> bool {
    let asked = queue.more.get("last_asked_at").and_then(Value::as_str);
    let asked = asked.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    asked.is_none_or(|at| {
        let ms = spindle_client::now().as_millisecond() - at.as_millisecond();
        u64::try_from(ms).is_ok_and(|ms| ms >= LATE_MS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(more: Value) -> Vec<(&'static str, String, String)> {
        let mut queue = json!({
            "name": "q", "paused": false,
            "jobs": {"ready": 0, "scheduled": 0, "leased": 0, "parked": 0, "done": 9, "dead": 0},
        });
        for (name, value) in more.as_object().unwrap() {
            match queue["jobs"].get_mut(name) {
                Some(count) => *count = value.clone(),
                None => queue[name] = value.clone(),
            }
        }
        let queue: Queue = serde_json::from_value(queue).unwrap();
        attentions(&queue).into_iter().map(|it| (it.why, it.text, it.command)).collect()
    }

    fn whys(more: Value) -> Vec<&'static str> {
        found(more).into_iter().map(|(why, ..)| why).collect()
    }

    #[test]
    fn a_queue_at_work_needs_nobody() {
        assert_eq!(whys(json!({"ready": 5, "leased": 2, "next_ready_age_ms": 59_999})), [""; 0]);
        assert_eq!(whys(json!({"paused": true, "leased": 2})), [""; 0]);
        let asked = spindle_client::now().to_string();
        let busy = json!({"ready": 5, "next_ready_age_ms": 60_000, "last_asked_at": asked});
        assert_eq!(whys(busy), [""; 0]);
        assert_eq!(whys(json!({"ready": 89, "jobs_max": 100})), [""; 0]);
    }

    #[test]
    fn what_is_the_matter_is_told_with_what_to_do() {
        let (_, text, command) = found(json!({"dead": 1_204})).remove(0);
        assert_eq!(
            (text.as_str(), command.as_str()),
            ("1,204 jobs dead", "spindle jobs q --status dead")
        );
        let (_, text, command) = found(json!({"paused": true, "ready": 1})).remove(0);
        assert_eq!(text, "it is paused, with 1 job waiting");
        assert_eq!(command, "spindle resume q");
        let (why, text, _) = found(json!({"ready": 2, "next_ready_age_ms": 3_600_000})).remove(0);
        assert_eq!(why, "no_worker");
        assert_eq!(text, "2 jobs ready, the next one for 1h, and no worker asks");
        let held = json!({"ready": 2, "next_ready_age_ms": 60_000, "waiting_leases": 1});
        assert_eq!(whys(held), ["held_back"]);
        let (_, text, _) = found(json!({"ready": 60, "leased": 30, "jobs_max": 100})).remove(0);
        assert_eq!(text, "it is nearly full: 90 jobs of at most 100");
        let (_, text, _) = found(json!({"ready": 100, "jobs_max": 100})).remove(0);
        assert_eq!(text, "it is full: 100 jobs of at most 100");
        assert_eq!(whys(json!({"jobs_max": 0})), ["full"]);
        let all = json!({"paused": true, "ready": 9, "dead": 1, "next_ready_age_ms": 99_000});
        assert_eq!(whys(all), ["paused", "dead"]);
    }

    #[test]
    fn a_name_is_suggested_as_a_shell_takes_it() {
        let (.., command) = found(json!({"name": "a b\n", "dead": 1})).remove(0);
        assert_eq!(command, r"spindle jobs 'a b\x0a' --status dead");
    }
}
