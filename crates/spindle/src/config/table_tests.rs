use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

#[test]
fn every_default_is_a_value_its_setting_takes() {
    let mut config = Config::default();
    for setting in TABLE.iter().filter(|setting| !setting.default.is_empty()) {
        (setting.apply)(&mut config, setting.default).unwrap();
    }
    assert_eq!(config.payload_memory_bytes, 64 << 20);
    assert_eq!(config.shutdown_timeout, Duration::from_secs(10));
    assert_eq!(config.workq, Some("127.0.0.1:9922".parse().unwrap()));
}

#[test]
fn every_door_has_a_setting() {
    for door in DOORS {
        assert!(Setting::named(door).is_some(), "{door}");
        assert!(Setting::named(&format!("{door}-tls")).is_some(), "{door}");
    }
}

#[test]
fn segments_too_short_or_too_long_are_refused() {
    let setting = Setting::named("segment-size").unwrap();
    let mut config = Config::default();
    for text in ["64KiB", "256KiB", "2GiB"] {
        (setting.apply)(&mut config, text).unwrap();
    }
    assert_eq!(config.segment_bytes, 2 << 30);
    for text in ["0", "63KiB", "3GiB", "much"] {
        assert!((setting.apply)(&mut config, text).is_err(), "{text}");
    }
}

#[test]
fn limits_of_jobqs_queries_have_limits_themselves() {
    let mut config = Config::default();
    for (name, fitting, others) in [
        ("jobq-query-time", ["1ms", "10m"], ["0", "11m", "2"]),
        ("jobq-list-size", ["1KiB", "1GiB"], ["0", "1025MiB", "much"]),
    ] {
        let setting = Setting::named(name).unwrap();
        for text in fitting {
            (setting.apply)(&mut config, text).unwrap();
        }
        for text in others {
            assert!((setting.apply)(&mut config, text).is_err(), "{name} {text}");
        }
    }
    let last = (config.jobq_query_time, config.jobq_list_bytes_max);
    assert_eq!(last, (Duration::from_mins(10), 1 << 30));
}

/// docs/limits.md has a row for every limit that can be set, with the default it has.
#[test]
fn the_page_of_limits_has_every_setting_that_is_one_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/limits.md");
    let page = fs::read_to_string(path).unwrap();
    let mut shown = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        let name = cells[1].strip_prefix("`--").and_then(|cell| cell.strip_suffix('`'));
        let Some(name) = name else { continue };
        let setting = Setting::named(name).unwrap_or_else(|| panic!("no setting: {row}"));
        let default = format!("`{}`", setting.default);
        let is_right = match setting.default {
            "" => !cells[2].starts_with('`'),
            _ => cells[2].starts_with(&default),
        };
        assert!(is_right, "the default is {default}: {row}");
        assert!(shown.insert(name), "twice: {row}");
    }
    let ends = ["-max", "-size", "-time", "-timeout", "-retries", "-memory"];
    for Setting { name, .. } in TABLE {
        let is_limit = ends.iter().any(|end| name.ends_with(end));
        assert!(!is_limit || shown.contains(name), "--{name} is not on the page");
    }
}

#[test]
fn limits_on_who_connects_and_how_often_have_limits_themselves() {
    for (name, fitting, others) in [
        ("connections-max", &["1", "1000000"][..], &["0", "-1", "many", ""][..]),
        ("door-connections-max", &["1"], &["0", "half"]),
        ("address-connections-max", &["1"], &["0", "1.5"]),
        ("token-requests-max", &["1", "1000000", "off"], &["0", "1000001", "none"]),
        ("address-requests-max", &["1", "1000000", "off"], &["0", "1000001", "none"]),
        ("idle-timeout", &["1s", "30d", "off"], &["999ms", "60", "never"]),
        ("http-idle-timeout", &["1s", "1d"], &["999ms", "25h", "off"]),
        ("login-timeout", &["1s", "1d"], &["999ms", "25h", "off"]),
    ] {
        let setting = Setting::named(name).unwrap();
        let takes = |text: &str| (setting.apply)(&mut Config::default(), text).is_ok();
        assert!(fitting.iter().all(|text| takes(text)), "{name}");
        assert!(!others.iter().any(|text| takes(text)), "{name}");
    }
}
