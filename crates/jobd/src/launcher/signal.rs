//! Signals by number and by name.

use nix::sys::signal::Signal;
use serde_json::Value;

/// A signal that can be sent; 0 only asks whether the process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalNumber(pub(super) Option<Signal>);

impl SignalNumber {
    /// Asks a process to end.
    pub const TERM: Self = Self(Some(Signal::SIGTERM));
    /// Ends a process.
    pub const KILL: Self = Self(Some(Signal::SIGKILL));

    /// The number of the signal that a person names: `TERM`, `SIGTERM`, in letters of any case, or
    /// the number itself.
    pub fn number_of(word: &str) -> Option<i32> {
        /// Linux has no more.
        const MOST: i32 = 64;
        if let Ok(number) = word.parse() {
            return (0..=MOST).contains(&number).then_some(number);
        }
        let name = word.to_ascii_uppercase();
        let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
        name.parse::<Signal>().ok().map(|signal| signal as i32)
    }

    /// The signal that a request names: a number, or a name such as `SIGTERM`. Real-time signals
    /// cannot be named.
    pub fn from_json(value: &Value) -> Option<Self> {
        if let Some(name) = value.as_str() {
            return name.parse().ok().map(|signal| Self(Some(signal)));
        }
        let number = i32::try_from(value.as_i64()?).ok()?;
        if number == 0 {
            return Some(Self(None));
        }
        Signal::try_from(number).ok().map(|signal| Self(Some(signal)))
    }
}

/// The name of a signal that ended a process, at most ten characters.
pub(super) fn name_of(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("SIG{number}"), |signal| signal.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signals_are_known_by_number_and_name() {
        assert_eq!(SignalNumber::from_json(&json!(15)), Some(SignalNumber::TERM));
        assert_eq!(SignalNumber::from_json(&json!("SIGKILL")), Some(SignalNumber::KILL));
        assert_eq!(SignalNumber::from_json(&json!(0)), Some(SignalNumber(None)));
        for unknown in [json!(9999), json!(-1), json!("KILLER"), json!(null), json!(1.5)] {
            assert_eq!(SignalNumber::from_json(&unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_signal_that_a_person_names_has_a_number() {
        for (word, number) in
            [("TERM", 15), ("SIGTERM", 15), ("term", 15), ("sigusr1", 10), ("0", 0), ("64", 64)]
        {
            assert_eq!(SignalNumber::number_of(word), Some(number), "{word}");
        }
        for word in ["", "SIG", "KILLER", "-1", "65", "1.5", "SIG9"] {
            assert_eq!(SignalNumber::number_of(word), None, "{word}");
        }
    }

    #[test]
    fn every_signals_name_fits_its_column() {
        assert_eq!(name_of(9), "SIGKILL");
        assert!((1..65).all(|number| name_of(number).len() <= 10));
    }
}
