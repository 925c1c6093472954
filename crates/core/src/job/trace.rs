//! The place of a job in a distributed trace: `traceparent` of W3C Trace Context.

use std::fmt;

/// A trace, and the span in it that is the parent of what follows: the value of a `traceparent`.
///
/// A job keeps the one that came with its submit, and its workers get it. It is read and written as
/// W3C Trace Context (<https://www.w3.org/TR/trace-context/>, section 3.2) says.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TraceParent {
    /// High half of the trace's id.
    #[prost(fixed64, tag = "1")]
    pub trace_high: u64,
    /// Low half of the trace's id.
    #[prost(fixed64, tag = "2")]
    pub trace_low: u64,
    /// The span's id.
    #[prost(fixed64, tag = "3")]
    pub span: u64,
    /// The flags of version 00: [`TraceParent::SAMPLED`], and [`TraceParent::RANDOM`].
    #[prost(uint32, tag = "4")]
    pub flags: u32,
}

/// The length of version 00, and of what later versions begin with.
const LENGTH: usize = 55;

impl TraceParent {
    /// The caller may have recorded the trace.
    pub const SAMPLED: u32 = 1;
    /// The trace's id is random (level 2 of the standard).
    pub const RANDOM: u32 = 2;

    /// Reads the value of a `traceparent` header. None for what the standard says to ignore: another
    /// form, letters in upper case, an id of zeros, version `ff`. From a later version, the parts
    /// that version 00 has are taken.
    pub fn parse(text: &[u8]) -> Option<TraceParent> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let version = hex(known.get(..2)?)?;
        let is_whole = rest.is_empty() || version > 0 && rest.starts_with(b"-");
        let has_dashes = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        if version == 0xff || !is_whole || !has_dashes {
            return None;
        }
        let trace_high = hex(known.get(3..19)?)?;
        let trace_low = hex(known.get(19..35)?)?;
        let span = hex(known.get(36..52)?)?;
        let flags = hex(known.get(53..)?)? as u32 & (TraceParent::SAMPLED | TraceParent::RANDOM);
        let has_ids = (trace_high | trace_low) != 0 && span != 0;
        has_ids.then_some(TraceParent { trace_high, trace_low, span, flags })
    }

    /// The trace's id.
    pub fn trace(&self) -> u128 {
        u128::from(self.trace_high) << 64 | u128::from(self.trace_low)
    }

    /// Whether the caller may have recorded the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & TraceParent::SAMPLED != 0
    }

    /// The same trace, with another span in it.
    pub fn with_span(self, span: u64) -> TraceParent {
        TraceParent { span, ..self }
    }
}

/// As a header has it, in version 00.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace(), self.span, self.flags)
    }
}

/// A number in hexadecimal digits, the letters in lower case.
fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn shown(text: &str) -> Option<String> {
        TraceParent::parse(text.as_bytes()).map(|trace| trace.to_string())
    }

    #[test]
    fn what_is_read_is_written_again() {
        assert_eq!(shown(GIVEN).as_deref(), Some(GIVEN));
        let trace = TraceParent::parse(GIVEN.as_bytes()).unwrap();
        assert_eq!(trace.trace(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((trace.span, trace.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
    }

    #[test]
    fn flags_nobody_knows_are_not_passed_on() {
        let flagged = |flags: &str| shown(&format!("{}{flags}", &GIVEN[..53]));
        for (given, kept) in [("00", "00"), ("01", "01"), ("03", "03"), ("ff", "03"), ("fc", "00")]
        {
            assert_eq!(flagged(given).unwrap()[53..], *kept, "{given}");
        }
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for rest in ["", "-", "-more", "-00-11"] {
            assert_eq!(
                shown(&format!("cc{}{rest}", &GIVEN[2..])).as_deref(),
                Some(GIVEN),
                "{rest}"
            );
        }
        for other in [format!("cc{}.more", &GIVEN[2..]), format!("ff{}", &GIVEN[2..])] {
            assert_eq!(shown(&other), None, "{other}");
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        let long = format!("{GIVEN}-");
        let short = &GIVEN[..54];
        let upper = GIVEN.to_uppercase();
        for text in [
            "",
            short,
            &long,
            &upper,
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
            "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473 -00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-+0f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
