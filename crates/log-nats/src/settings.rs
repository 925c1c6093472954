//! The settings of the stream: those it is made with, and which of them must never differ.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::stream::{
    Config, DiscardPolicy, PersistenceMode, Republish, RetentionPolicy, StorageType,
};
use spindle_log::Opening;

use crate::error::OpenError;

/// The key of the stream's metadata that says it is a log of ours, and of which format.
pub(crate) const METADATA: &str = "spindle-log";
pub(crate) const FORMAT: &str = "1";
/// What it says while the log is filled from a backup.
const RESTORING: &str = "1, not restored to its end";
/// The server wants a window, but has nothing to remember: messages carry no id.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);
const MIB: usize = 1024 * 1024;
/// Room for a message's headers, those of the server included.
const HEADERS_BYTES: usize = 4096;
/// The smallest limit on messages that a log can live with.
pub(crate) const MAX_PAYLOAD_MIN: usize = 256 * 1024;

/// Subjects of a log.
#[derive(Clone, Debug)]
pub(crate) struct Subjects {
    /// Records are published to it.
    pub log: String,
    /// The leader of the stream repeats here what is committed.
    pub committed: String,
    /// What nodes announce to each other.
    pub announce: String,
}

impl Subjects {
    pub(crate) fn of(stream: &str) -> Self {
        let subject = |last| format!("{stream}.{last}");
        Self { log: subject("log"), committed: subject("committed"), announce: subject("announce") }
    }
}

/// What the longest record may be on a server with this limit on messages.
pub(crate) fn record_bytes_max(max_payload: usize) -> Option<u32> {
    if max_payload < MAX_PAYLOAD_MIN {
        return None;
    }
    u32::try_from((max_payload - HEADERS_BYTES).min(4 * MIB)).ok()
}

/// What a new stream is made with.
pub(crate) fn wanted(stream: &str, replicas: usize, opening: Opening) -> Config {
    let subjects = Subjects::of(stream);
    let (format, first_sequence) = match opening {
        Opening::Restore(first) => (RESTORING, Some(first.0 + 1)),
        Opening::Node | Opening::Reader => (FORMAT, None),
    };
    Config {
        name: stream.to_owned(),
        description: Some(
            "The log of Spindle. Do not delete, purge or edit it by hand.".to_owned(),
        ),
        subjects: vec![subjects.log.clone()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        num_replicas: replicas,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_bytes: -1,
        max_message_size: -1,
        max_consumers: -1,
        duplicate_window: DUPLICATE_WINDOW,
        allow_direct: true,
        // So no record in the middle can be deleted by mistake.
        deny_delete: true,
        republish: Some(Republish {
            source: subjects.log,
            destination: subjects.committed,
            headers_only: false,
        }),
        metadata: HashMap::from([(METADATA.to_owned(), format.to_owned())]),
        first_sequence,
        ..Config::default()
    }
}

/// What a stream with these settings has become when its restore has ended.
pub(crate) fn restored(mut config: Config) -> Config {
    config.metadata.insert(METADATA.to_owned(), FORMAT.to_owned());
    config
}

/// Why the stream cannot be opened so, if its settings show that it is another one or not ready.
pub(crate) fn refusal(config: &Config, stream: &str, opening: Opening) -> Option<OpenError> {
    let is_restored = matches!(opening, Opening::Restore(_));
    let stream = stream.to_owned();
    let reason = match (config.metadata.get(METADATA).map(String::as_str), is_restored) {
        (Some(FORMAT), false) | (Some(RESTORING), true) => return None,
        (Some(FORMAT), true) => return Some(OpenError::NotEmpty { stream }),
        (Some(RESTORING), false) => return Some(OpenError::Unfinished { stream }),
        (Some(other), _) => {
            format!("its metadata `{METADATA}` is {other}, this version knows {FORMAT}")
        }
        (None, _) => format!("its metadata has no `{METADATA}`"),
    };
    Some(OpenError::Foreign { stream, reason })
}

/// What is wrong with the settings of a stream, one sentence each; empty when it can be a log.
/// Settings that do no harm (a limit on bytes, compression, placement) may be as they like.
pub(crate) fn wrong(config: &Config, stream: &str, replicas: usize) -> Vec<String> {
    let subjects = Subjects::of(stream);
    let republished = config.republish.as_ref();
    let republishes =
        republished.is_some_and(|to| to.destination == subjects.committed && !to.headers_only);
    let rules: [(bool, &str, String); 20] = [
        (config.subjects == [subjects.log.clone()], "subjects", format!("[\"{}\"]", subjects.log)),
        (config.retention == RetentionPolicy::Limits, "retention", "limits".to_owned()),
        (config.storage == StorageType::File, "storage", "file".to_owned()),
        (config.discard == DiscardPolicy::New, "discard", "new".to_owned()),
        (
            config.num_replicas >= replicas,
            "num_replicas",
            format!("{replicas} or more (it is {})", config.num_replicas),
        ),
        (config.max_age.is_zero(), "max_age", "0".to_owned()),
        (config.max_messages_per_subject <= 0, "max_msgs_per_subject", "-1".to_owned()),
        (!config.discard_new_per_subject, "discard_new_per_subject", "false".to_owned()),
        (config.max_message_size <= 0, "max_msg_size", "-1".to_owned()),
        (!config.no_ack, "no_ack", "false".to_owned()),
        (!config.sealed, "sealed", "false".to_owned()),
        (!config.deny_purge, "deny_purge", "false".to_owned()),
        (!config.allow_rollup, "allow_rollup_hdrs", "false".to_owned()),
        (config.allow_direct, "allow_direct", "true".to_owned()),
        (
            config.mirror.is_none() && config.sources.as_ref().is_none_or(Vec::is_empty),
            "mirror and sources",
            "none".to_owned(),
        ),
        (config.subject_transform.is_none(), "subject_transform", "none".to_owned()),
        (
            republishes,
            "republish",
            format!("{} to {}, with payloads", subjects.log, subjects.committed),
        ),
        (config.persist_mode != Some(PersistenceMode::Async), "persist_mode", "default".to_owned()),
        (!config.allow_message_ttl, "allow_msg_ttl", "false".to_owned()),
        (!config.allow_message_counter, "allow_msg_counter", "false".to_owned()),
    ];
    let wrong = rules.into_iter().filter(|(holds, _, _)| !holds);
    wrong.map(|(_, setting, must)| format!("`{setting}` must be {must}")).collect()
}

#[cfg(test)]
mod tests {
    use spindle_log::Position;

    use super::*;

    type Change = fn(&mut Config);

    #[test]
    fn a_new_stream_has_the_settings_that_are_asked_for_later() {
        let config = wanted("spindle", 3, Opening::Node);
        assert_eq!(wrong(&config, "spindle", 3), Vec::<String>::new());
        assert!(refusal(&config, "spindle", Opening::Node).is_none());
    }

    #[test]
    fn a_stream_that_is_not_restored_to_its_end_is_for_its_restore_only() {
        let restore = Opening::Restore(Position(7));
        let config = wanted("spindle", 3, restore);
        assert_eq!((config.first_sequence, wrong(&config, "spindle", 3)), (Some(8), vec![]));
        let why = |config: &Config, opening| refusal(config, "spindle", opening);
        assert!(why(&config, restore).is_none());
        for opening in [Opening::Node, Opening::Reader] {
            assert!(matches!(why(&config, opening), Some(OpenError::Unfinished { .. })));
        }
        let config = restored(config);
        assert!(why(&config, Opening::Node).is_none());
        assert!(matches!(why(&config, restore), Some(OpenError::NotEmpty { .. })));
    }

    #[test]
    fn each_wrong_setting_is_named_with_what_it_must_be() {
        let changes: [(&str, Change); 14] = [
            ("`subjects` must be [\"spindle.log\"]", |c| c.subjects.push("more".to_owned())),
            ("`retention` must be limits", |c| c.retention = RetentionPolicy::WorkQueue),
            ("`storage` must be file", |c| c.storage = StorageType::Memory),
            ("`discard` must be new", |c| c.discard = DiscardPolicy::Old),
            ("`num_replicas` must be 3 or more (it is 1)", |c| c.num_replicas = 1),
            ("`max_age` must be 0", |c| c.max_age = Duration::from_secs(9)),
            ("`max_msgs_per_subject` must be -1", |c| c.max_messages_per_subject = 5),
            ("`max_msg_size` must be -1", |c| c.max_message_size = 1000),
            ("`deny_purge` must be false", |c| c.deny_purge = true),
            ("`sealed` must be false", |c| c.sealed = true),
            ("`allow_rollup_hdrs` must be false", |c| c.allow_rollup = true),
            ("`allow_direct` must be true", |c| c.allow_direct = false),
            ("`republish` must be spindle.log to spindle.committed, with payloads", |c| {
                c.republish = None;
            }),
            ("`persist_mode` must be default", |c| c.persist_mode = Some(PersistenceMode::Async)),
        ];
        for (sentence, change) in changes {
            let mut config = wanted("spindle", 3, Opening::Node);
            change(&mut config);
            assert_eq!(wrong(&config, "spindle", 3), [sentence]);
        }
    }

    #[test]
    fn limits_that_refuse_and_drop_nothing_are_allowed() {
        let mut config = wanted("spindle", 1, Opening::Node);
        (config.max_bytes, config.num_replicas, config.deny_delete) = (1 << 30, 3, false);
        assert_eq!(wrong(&config, "spindle", 1), Vec::<String>::new());
    }

    #[test]
    fn records_are_as_long_as_the_server_allows_and_4_mib_at_most() {
        assert_eq!(record_bytes_max(MIB), Some(1_044_480));
        assert_eq!(record_bytes_max(64 * MIB), Some(4_194_304));
        assert_eq!(record_bytes_max(64 * 1024), None);
    }
}
