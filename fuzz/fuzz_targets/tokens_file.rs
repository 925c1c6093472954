//! Any text as a tokens file: no panic; what was taken has entries with names of their own; and what
//! is refused says which line, and nothing that stands in the file.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use spindle_access::Tokens;

/// A digest that a file may have: no error may show it.
const DIGEST: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data).replace('#', DIGEST);
    match Tokens::of_text(&text) {
        Ok(tokens) => {
            let identities = tokens.identities();
            let names: BTreeSet<_> = identities.iter().map(|entry| entry.name()).collect();
            assert!(names.len() == identities.len() && names.len() == tokens.len());
            assert!(!tokens.is_empty());
        }
        Err(why) => assert!(!why.contains(DIGEST), "{why}"),
    }
});
