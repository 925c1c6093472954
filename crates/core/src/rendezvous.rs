//! Rendezvous hashing: each of several candidates gets a score for a name, and the one with the
//! highest score has the name.
//!
//! Programs that know the same candidates find the same one. Adding or removing a candidate moves only
//! the names that this candidate has.

use std::cmp::Reverse;
use std::ops::Range;

/// A candidate's score for a name. Programs of all versions have to agree on it, so it never
/// changes.
#[must_use]
pub fn score(name: &[u8], candidate: u64) -> u64 {
    drawn(hashed(name), candidate)
}

/// The candidate that has a name; none if there are no candidates.
#[must_use]
pub fn first(name: &[u8], candidates: Range<u64>) -> Option<u64> {
    let name = hashed(name);
    // Of equal scores the lower number wins, so that there is one answer.
    candidates.max_by_key(|candidate| (drawn(name, *candidate), Reverse(*candidate)))
}

fn drawn(name: u64, candidate: u64) -> u64 {
    mixed(name ^ mixed(candidate))
}

/// FNV-1a, 64 bits.
fn hashed(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64: each bit of what comes out depends on each bit of what went in.
#[must_use]
pub fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_never_change() {
        let drawn =
            [("", 0), ("mail", 0), ("mail", 1)].map(|(name, of)| score(name.as_bytes(), of));
        let expected = [0x5b21_f68f_fa77_f14c, 0xfb7c_f6bd_c7a4_2bef, 0x8eaa_9a81_8ba3_e183];
        assert_eq!(drawn, expected);
    }
}
