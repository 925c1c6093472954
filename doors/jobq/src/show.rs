//! A job as this door shows it.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage, Type};
use spindle_engine::{Engine, FetchError, Which};

use crate::json::quoted;
use crate::story::{self, Entry};

/// A job in full. Reads its payload, and older events, from the log: for a job with pages of them,
/// not for a thread that others wait for.
pub fn job(engine: &Engine, mut image: JobImage) -> Result<Option<String>, FetchError> {
    let id = JobId(image.id);
    let payload = loop {
        let place = image.payload.clone().unwrap_or(BytesRef::NONE);
        match engine.bytes(&place) {
            Ok(bytes) => break payload_of(&bytes, place.kind()),
            Err(FetchError::Moved) => {}
            Err(error) => return Err(error),
        }
        // Carried meanwhile, or gone.
        match engine.job(Which::Id(id))? {
            (Some(now), _) => image = now,
            (None, _) => return Ok(None),
        }
    };
    let mut events = String::new();
    for index in 0..image.rare().pages.len() {
        let Some(page) = engine.event_page(id, index)? else { return Ok(None) };
        list(&mut events, page.iter().filter_map(|event| Entry::decode(event)));
    }
    list(&mut events, story::events_of(&image).into_iter());
    let (state, modified) = (story::state_of(&image), story::modified_ms(&image) / 1000);
    Ok(Some(format!(
        "{{\"id\":{id},\"payload\":{payload},\"state\":{state},\"events\":[{events}],\
         \"modified\":{modified}}}\n"
    )))
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

fn list(out: &mut String, entries: impl Iterator<Item = Entry>) {
    for entry in entries {
        let comma = if out.is_empty() { "" } else { "," };
        write!(out, "{comma}{}", entry.json).expect("a string takes what is written");
    }
}
