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
