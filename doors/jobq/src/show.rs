//! A job as this door shows it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage, Type};
use spindle_engine::{Engine, FetchError};

use crate::history::{self, Entry, Form};
use crate::json::quoted;

/// Whether a job is shown with the time of its last change. The first version of Jobq's client
/// fails on a field it does not know, the newest on a missing one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modified {
    Shown,
    Hidden,
    /// Shown if the job was created in the form of the newest client.
    AsCreated,
}

/// Roughly how many bytes are read to show a job.
pub fn bytes_of(image: &JobImage) -> usize {
    let options = image.options();
    if !options.pages.is_empty() {
        // They are read from the log one by one.
        return usize::MAX;
    }
    let payload = image.payload.as_ref().map_or(0, |payload| payload.len as usize);
    let state = options.state.as_ref().map_or(0, Bytes::len);
    payload + state + options.events.iter().map(Bytes::len).sum::<usize>()
}

/// A job in full. Reads its payload, and older events, from the log: that takes as long as
/// [`bytes_of`] says.
pub fn job(
    engine: &Engine,
    image: JobImage,
    modified: Modified,
) -> Result<Option<String>, FetchError> {
    let id = JobId(image.id);
    let place = image.payload.clone().unwrap_or(BytesRef::NONE);
    let payload = match engine.jobs().payload(id, &place) {
        Ok(bytes) => payload_of(&bytes, place.kind()),
        Err(FetchError::Moved) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut events = String::from("[");
    let mut first_form = None;
    let mut list = |entry: Entry| {
        first_form.get_or_insert(entry.form);
        let comma = if events.len() > 1 { "," } else { "" };
        events.push_str(comma);
        events.push_str(&entry.json);
    };
    for index in 0..image.options().pages.len() {
        let Some(page) = engine.jobs().event_page(id, index)? else { return Ok(None) };
        page.iter().filter_map(|event| Entry::decode(event)).for_each(&mut list);
    }
    history::events_of(&image).into_iter().for_each(&mut list);
    events.push(']');
    let is_modified_shown = match modified {
        Modified::Shown => true,
        Modified::Hidden => false,
        Modified::AsCreated => first_form == Some(Form::Newest),
    };
    let modified = is_modified_shown.then(|| history::modified_ms(&image) / 1000);
    let mut shown = String::with_capacity(payload.len() + events.len() + 64);
    write(&mut shown, id.0, [&payload, &history::state_of(&image), &events], modified);
    Ok(Some(shown))
}

/// A job's payload, state and events, which are JSON, as one JSON object.
pub fn write(
    out: &mut String,
    id: u64,
    [payload, state, events]: [&str; 3],
    modified: Option<u64>,
) {
    let start = format!("{{\"id\":{id},\"payload\":");
    for part in [&*start, payload, ",\"state\":", state, ",\"events\":", events] {
        out.push_str(part);
    }
    if let Some(modified) = modified {
        out.push_str(&format!(",\"modified\":{modified}"));
    }
    out.push('}');
}

/// A payload as JSON: this door's own as it came, text as a string, anything else in base64.
pub fn payload_of(bytes: &Bytes, kind: Type) -> String {
    let text = std::str::from_utf8(bytes);
    match (kind, text) {
        (Type::Json, Ok(text)) if !text.is_empty() => text.to_owned(),
        (Type::Bytes, Ok(text)) => quoted(text),
        (kind, _) => {
            let name = match kind {
                Type::Msgpack => "msgpack",
                Type::Bytes | Type::Json => "bytes",
            };
            format!("{{\"type\":\"{name}\",\"base64\":\"{}\"}}", STANDARD.encode(bytes))
        }
    }
}
