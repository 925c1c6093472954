//! Any bytes to the LightJQ door's readers: no panic and no deep stack; what is one value to the
//! scanner has a JSON form, which is not much longer; and a JSON value comes back from MessagePack.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use spindle_lightjq::wire::{
    Done, NewJob, Order, Registration, WireError, check, from_json, to_json, to_json_text,
};

/// The least MessagePack of an ext is three bytes, and its JSON names two fields.
const JSON_FACTOR: usize = 16;

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    let whole = check(&body);
    let json = to_json(&body);
    assert_eq!(whole.as_ref().err(), json.as_ref().err());
    if let Ok(text) = to_json_text(&body) {
        assert!(text.len() <= JSON_FACTOR * body.len() + 64, "{} of {}", text.len(), body.len());
    }
    if let Ok(job) = NewJob::decode(&body) {
        assert_eq!(check(&job.argument), Ok(()));
        let order = Order {
            job: spindle_core::JobId(1),
            name: &job.name,
            argument: &job.argument,
            timeout_ms: Some(job.timeout_ms),
        };
        let order = order.encode();
        // The argument is one level deeper in there.
        assert!(matches!(check(&order), Ok(()) | Err(WireError::TooDeep)));
    }
    for result in [Registration::decode(&body).err(), Done::decode(&body).err()] {
        assert!(whole.is_ok() || result == whole.clone().err());
    }
    if let Ok(packed) = from_json(data) {
        let again = from_json(&to_json_text(&packed).expect("it came from JSON"));
        assert_eq!(again, Ok(packed));
    }
});
