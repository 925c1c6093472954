//! A job's events: those that its users caused are kept with it, those that the engine caused are
//! derived from the engine's record of the job's attempts.

use bytes::Bytes;
use spindle_core::job::{Cause, Origin, Outcome, Words};
use spindle_core::{JobImage, Status};
use spindle_http::door_word;

use crate::json::quoted;

/// An event as it is kept with a job: when, in milliseconds, and then its JSON. Clients see
/// seconds, but events of the two sources are ordered by the milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub at_ms: u64,
    pub json: String,
    /// How the job was created; only in its first event.
    pub form: Form,
}

/// How a job was created, which tells the clients of Jobq's two generations apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The body was the payload, as the first version sends it; or the form is not known.
    Bare,
    /// The body was an object of a payload and a state, as the newest sends it.
    Newest,
}

/// Follows the JSON of a first event with [`Form::Newest`]: it is white space, so that a server
/// that does not know forms shows the same event.
const NEWEST: char = ' ';

impl Entry {
    /// As it is kept.
    pub fn encode(&self) -> Bytes {
        let mut kept = Vec::with_capacity(9 + self.json.len());
        kept.extend_from_slice(&self.at_ms.to_be_bytes());
        kept.extend_from_slice(self.json.as_bytes());
        if self.form == Form::Newest {
            kept.extend_from_slice(NEWEST.encode_utf8(&mut [0; 4]).as_bytes());
        }
        kept.into()
    }

    /// What was kept. None for bytes that another door kept.
    pub fn decode(kept: &[u8]) -> Option<Entry> {
        let (at_ms, json) = kept.split_first_chunk()?;
        let json = std::str::from_utf8(json).ok()?;
        let (json, form) = match json.strip_suffix(NEWEST) {
            Some(json) => (json, Form::Newest),
            None => (json, Form::Bare),
        };
        Some(Entry { at_ms: u64::from_be_bytes(*at_ms), json: json.to_owned(), form })
    }

    /// The job came in.
    pub fn created(form: Form, at_ms: u64) -> Entry {
        let json = format!("[\"job_created\",{{\"timestamp\":\"{}\"}}]", at_ms / 1000);
        Entry { at_ms, json, form }
    }

    /// The job's state changed; both states are JSON.
    pub fn advanced(old: &str, new: &str, at_ms: u64) -> Entry {
        let seconds = at_ms / 1000;
        let json = format!(
            "[\"job_state_advanced\",{{\"new\":{new},\"old\":{old},\"timestamp\":\"{seconds}\"}}]"
        );
        Entry { at_ms, json, form: Form::Bare }
    }

    /// The same at the end of a failed attempt, with the worker's message.
    fn failed(old: &str, new: &str, at_ms: u64, words: &Words) -> Entry {
        let mut entry = Entry::advanced(old, new, at_ms);
        let facts = facts([("code", &words.code), ("message", &words.message)]);
        // Inserted before the two brackets at the end.
        entry.json.insert_str(entry.json.len() - "}]".len(), &facts);
        entry
    }

    /// A user noted something, which is JSON.
    pub fn noted(event: &str, at_ms: u64) -> Entry {
        let seconds = at_ms / 1000;
        let json = format!("[\"user_event\",{{\"event\":{event},\"timestamp\":\"{seconds}\"}}]");
        Entry { at_ms, json, form: Form::Bare }
    }
}

/// Whether users set the job's state. The engine sets that of all other jobs.
pub fn is_user_driven(image: &JobImage) -> bool {
    image.origin() == Origin::Jobq && image.options().state.is_some()
}

/// The job's state, as JSON.
pub fn state_of(image: &JobImage) -> String {
    match image.options().state.as_deref().map(std::str::from_utf8) {
        Some(Ok(state)) if is_user_driven(image) => state.to_owned(),
        _ => engine_state(image),
    }
}

/// When the job changed last.
pub fn modified_ms(image: &JobImage) -> u64 {
    let updated = image.options().updated_ms;
    let times = [
        Some(image.created_ms),
        (updated > 0).then_some(updated),
        image.lease.as_ref().map(|lease| lease.started_ms),
        image.history.last().map(|attempt| attempt.ended_ms),
        image.finished_ms,
    ];
    let user_driven = is_user_driven(image);
    let times = times.into_iter().take(if user_driven { 2 } else { 5 });
    times.flatten().max().unwrap_or_default()
}

/// The events of a job that are in memory, oldest first: all but those in pages.
pub fn events_of(image: &JobImage) -> Vec<Entry> {
    let kept = image.options().events.iter().filter_map(|event| Entry::decode(event));
    if is_user_driven(image) {
        return kept.collect();
    }
    let mut entries = engine_events(image);
    entries.extend(kept);
    // Stable: what happened in the same millisecond stays as it is.
    entries.sort_by_key(|entry| entry.at_ms);
    entries
}

/// The state that the engine derives from a job's status.
fn engine_state(image: &JobImage) -> String {
    match image.status() {
        Status::Scheduled => scheduled(image.options().run_at_ms.unwrap_or_default()),
        // Jobq has no jobs that wait for others, so such a job is shown as waiting.
        Status::Ready | Status::Blocked => ready(),
        Status::Parked => "[\"PARKED\"]".to_owned(),
        Status::Leased => image.lease.as_ref().map_or_else(ready, |lease| {
            leased(lease.door(), &lease.worker, image.attempts, lease.started_ms)
        }),
        Status::Done | Status::Dead => finished(image),
    }
}

/// What the engine did to a job, as far as it remembers: the first attempts and the last.
fn engine_events(image: &JobImage) -> Vec<Entry> {
    let mut entries = vec![Entry::created(Form::Bare, image.created_ms)];
    let options = image.options();
    let waited_until = options.scheduled_ms.filter(|at| *at > image.created_ms);
    let mut state = match waited_until {
        Some(at_ms) => scheduled(at_ms),
        None if image.status() == Status::Parked && image.history.is_empty() => return entries,
        None => ready(),
    };
    let mut advance = |state: &mut String, new: String, at_ms: u64, words: Option<&Words>| {
        if *state != new {
            entries.push(match words {
                Some(words) => Entry::failed(state, &new, at_ms, words),
                None => Entry::advanced(state, &new, at_ms),
            });
            *state = new;
        }
    };
    let first_start = image.history.first().map(|attempt| attempt.started_ms);
    let first_start = first_start.or(image.lease.as_ref().map(|lease| lease.started_ms));
    if let Some(at_ms) = waited_until
        && (first_start.is_some() || image.status() == Status::Ready)
    {
        // Its time may have been brought forward.
        advance(&mut state, ready(), at_ms.min(first_start.unwrap_or(at_ms)), None);
    }
    for (index, attempt) in image.history.iter().enumerate() {
        let (start_ms, end_ms) = (attempt.started_ms, attempt.ended_ms);
        let now = leased(attempt.door(), &attempt.worker, attempt.attempt, start_ms);
        advance(&mut state, now, start_ms, None);
        let last = index + 1 == image.history.len();
        let next = match attempt.cause() {
            _ if last && image.status().is_finished() && image.finished_ms == Some(end_ms) => {
                finished(image)
            }
            _ if last && image.status() == Status::Scheduled => engine_state(image),
            Cause::Completed => finished(image),
            _ => ready(),
        };
        // For the last attempt of a finished job the state itself has these words.
        let words = attempt.words.as_deref().filter(|_| !(last && image.status().is_finished()));
        advance(&mut state, next, end_ms, words);
    }
    if let Some(lease) = &image.lease {
        advance(&mut state, engine_state(image), lease.started_ms, None);
    }
    if let Some(at_ms) = image.finished_ms {
        advance(&mut state, finished(image), at_ms, None);
    }
    entries
}

/// The state of a job that waits for a worker.
pub fn ready() -> String {
    "[\"READY\"]".to_owned()
}

fn scheduled(at_ms: u64) -> String {
    format!("[\"SCHEDULED\",{{\"run_at\":\"{}\"}}]", at_ms / 1000)
}

fn leased(door: Origin, worker: &[u8], attempt: u32, at_ms: u64) -> String {
    let worker = quoted(&String::from_utf8_lossy(worker));
    let (door, since) = (door_word(door), at_ms / 1000);
    format!(
        "[\"LEASED\",{{\"attempt\":{attempt},\"door\":\"{door}\",\"since\":\"{since}\",\
         \"worker\":{worker}}}]"
    )
}

fn finished(image: &JobImage) -> String {
    let tag = if image.status() == Status::Done { "DONE" } else { "DEAD" };
    let said = image.outcome.as_ref().map(|outcome| {
        let Outcome { code, message, .. } = &**outcome;
        facts([("code", code), ("message", message)])
    });
    format!("[\"{tag}\",{{\"attempts\":{}{}}}]", image.attempts, said.unwrap_or_default())
}

/// What was said, as further members of a JSON object.
fn facts(said: [(&str, &Bytes); 2]) -> String {
    let mut facts = String::new();
    for (name, text) in said.into_iter().filter(|(_, text)| !text.is_empty()) {
        let text = quoted(&String::from_utf8_lossy(text));
        facts.push_str(&format!(",\"{name}\":{text}"));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_event_keeps_how_its_job_was_created_and_shows_nothing_of_it() {
        for form in [Form::Bare, Form::Newest] {
            let entry = Entry::created(form, 1_767_323_045_678);
            assert_eq!(entry.json, "[\"job_created\",{\"timestamp\":\"1767323045\"}]");
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
        // An event as it was kept before there were forms.
        let mut kept = 5_u64.to_be_bytes().to_vec();
        kept.extend_from_slice(b"[1]");
        let entry = Entry { at_ms: 5, json: "[1]".to_owned(), form: Form::Bare };
        assert_eq!(Entry::decode(&kept), Some(entry));
    }
}
