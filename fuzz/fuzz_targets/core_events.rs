//! Any bytes as an event of the log: the reader that a start uses and the one of the protobuf library
//! read the same, or both refuse; what was read is what its own encoding reads as; and folding it
//! into a state that knows nothing of it does not panic.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use spindle_core::{Defaults, Event, EventReader, Place, State};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let plain = Event::decode(bytes.clone());
    // One that was read into before, as at a start.
    let (mut reader, mut event) = (EventReader::default(), Event::default());
    for _ in 0..2 {
        let read = reader.read(&bytes, 0..bytes.len(), &mut event);
        match (&plain, read) {
            (Ok(Some(plain)), Ok(Some(()))) => assert_eq!(&event, plain),
            (Ok(None), Ok(None)) | (Err(_), Err(_)) => return,
            (plain, read) => panic!("{plain:?} and {read:?}"),
        }
    }
    let mut encoded = Vec::new();
    event.encode(&mut encoded);
    assert_eq!(Event::decode(encoded.into()), Ok(Some(event.clone())));
    let mut state = State::new(1, Defaults::default());
    state.evolve(&event, Place { position: 0, offset: 0 });
});
