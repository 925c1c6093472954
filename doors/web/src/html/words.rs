//! Numbers as people read them.

/// `1,204`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 job`, `2 jobs`.
pub(crate) fn plural(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {one}s", grouped(number)) }
}

/// `312 bytes`, `2.1 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return plural(number, "byte");
    }
    let (mut value, mut unit) = (number as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `0.82 s`, `14 min`, `3 h 5 min`, `2 days`.
pub(crate) fn duration_ms(ms: u64) -> String {
    let (s, min) = (ms / 1000, ms / 60_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{} s", s, ms % 1000 / 100),
        10_000..60_000 => format!("{s} s"),
        60_000..3_600_000 => format!("{min} min"),
        3_600_000..86_400_000 if min % 60 == 0 => format!("{} h", min / 60),
        3_600_000..86_400_000 => format!("{} h {} min", min / 60, min % 60),
        _ => plural(ms / 86_400_000, "day"),
    }
}

/// `0`, `840`, `1.2 k`, `16 k`, `2 M`: a count at an axis.
pub(crate) fn short_count(value: f64) -> String {
    let (value, unit) = match value {
        ..1e3 => (value, ""),
        1e3..1e6 => (value / 1e3, " k"),
        1e6..1e9 => (value / 1e6, " M"),
        _ => (value / 1e9, " G"),
    };
    format!("{}{unit}", (value * 10.0).round() / 10.0)
}

/// `410 µs`, `1.1 ms`, `2.5 s`.
pub(crate) fn duration_us(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} µs"),
        1e3..1e4 => format!("{:.1} ms", us / 1e3),
        1e4..1e6 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// `0`, `400 µs`, `1 ms`: the same at an axis, without a trailing `.0`.
pub(crate) fn short_us(us: f64) -> String {
    if us == 0.0 { "0".to_owned() } else { duration_us(us).replace(".0 ", " ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said_briefly() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in
            [(1, "1 byte"), (1023, "1,023 bytes"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB")]
        {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (3_600_000, "1 h"),
            (11_100_000, "3 h 5 min"),
            (86_400_000, "1 day"),
            (u64::MAX, "213,503,982,334 days"),
        ] {
            assert_eq!(duration_ms(ms), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1_000.0, "1 k"),
            (1_250.0, "1.3 k"),
            (2e6, "2 M"),
            (8e9, "8 G"),
        ] {
            assert_eq!(short_count(value), text);
        }
        for (us, said, short) in [
            (0.0, "0 µs", "0"),
            (999.4, "999 µs", "999 µs"),
            (1_000.0, "1.0 ms", "1 ms"),
            (1_140.0, "1.1 ms", "1.1 ms"),
            (12_400.0, "12 ms", "12 ms"),
            (2_500_000.0, "2.5 s", "2.5 s"),
        ] {
            assert_eq!((duration_us(us), short_us(us)), (said.to_owned(), short.to_owned()));
        }
    }
}
