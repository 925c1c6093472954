//! Puts the layers together: flags before environment before file before defaults.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::Path};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, builder::ValueHint};
use spindle_tls::TlsMode;

use super::{
    address::{Loopback, loopback},
    cluster,
    doors::DOORS,
    error::ConfigError,
    file::read_file,
    table::{Config, ENVIRONMENT_PREFIX, Setting, Shape, TABLE},
};

/// Where a value came from. The earlier wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The file.
    File,
    /// Nothing was given.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}

/// What the flags said, by the setting's name.
#[derive(Debug, Clone, Default)]
pub struct SettingFlags(BTreeMap<&'static str, Vec<String>>);

/// A setting as it is in force.
#[derive(Debug, Clone)]
pub struct InForce {
    /// The setting.
    pub setting: &'static Setting,
    /// Its values as they were written; more than one only where that is allowed.
    pub values: Vec<String>,
    /// Who said so.
    pub source: Source,
    /// The flag, the name in the environment or the file and key; empty for a default.
    pub source_name: String,
}

/// The configuration and how it came about.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What is in force.
    pub config: Config,
    /// Each setting in the order of the table.
    pub settings: Vec<InForce>,
    /// Names in the environment that look like settings and are none.
    pub unknown_environment: Vec<String>,
}

impl Resolved {
    /// A setting as it was written.
    pub fn written(&self, name: &str) -> String {
        let found = self.settings.iter().find(|found| found.setting.name == name);
        found.map(|found| found.values.join(",")).unwrap_or_default()
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        TABLE.iter().fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(setting: &'static Setting) -> Arg {
    let action = match setting.shape {
        Shape::One => ArgAction::Set,
        Shape::Switch => ArgAction::SetTrue,
        Shape::Many => ArgAction::Append,
    };
    let mut notes = vec![format!("env: {}", setting.environment_name())];
    if !setting.default.is_empty() && setting.shape == Shape::One {
        notes.push(format!("default: {}", setting.default));
    }
    let hint = match setting.value {
        "FILE" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Other,
    };
    let arg = Arg::new(setting.name).long(setting.name).action(action).help(format!(
        "{} [{}]",
        setting.help,
        notes.join(", ")
    ));
    match setting.shape {
        Shape::Switch => arg,
        Shape::One | Shape::Many => arg.value_name(setting.value).value_hint(hint),
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in TABLE {
            let values: Vec<String> = match setting.shape {
                Shape::Switch if matches.get_flag(setting.name) => vec!["true".to_owned()],
                Shape::Switch => Vec::new(),
                Shape::One | Shape::Many => {
                    matches.get_many(setting.name).unwrap_or_default().cloned().collect()
                }
            };
            if !values.is_empty() {
                self.0.insert(setting.name, values);
            }
        }
        Ok(())
    }
}

/// Puts together what is in force. `environment` is the whole environment; variables that are not
/// the server's and empty ones are ignored.
pub fn resolve(
    flags: &SettingFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Resolved, ConfigError> {
    let (mut environment, unknown_environment) = of_environment(environment)?;
    let mut config = Config::default();
    let mut settings = Vec::new();
    let mut file = BTreeMap::new();
    let mut path = String::new();
    for setting in TABLE {
        let layers = [
            (Source::Flag, flags.0.get(setting.name).cloned(), format!("--{}", setting.name)),
            (Source::Environment, environment.remove(setting.name), setting.environment_name()),
            (Source::File, file.remove(setting.name), format!("{path}: `{}`", setting.name)),
        ];
        let given = layers
            .into_iter()
            .find_map(|(source, values, name)| values.map(|values| (source, values, name)));
        let (source, values, source_name) = given.unwrap_or_else(|| {
            let values = Some(setting.default.to_owned()).filter(|text| !text.is_empty());
            (Source::Default, values.into_iter().collect(), String::new())
        });
        for value in &values {
            (setting.apply)(&mut config, value).map_err(|reason| ConfigError::BadValue {
                source_name: source_name.clone(),
                value: value.clone(),
                reason,
            })?;
        }
        // The table begins with the file's name, so that all others can come from it.
        if setting.name == "config"
            && let Some(named) = values.first()
        {
            file = read_file(Path::new(named))?;
            path.clone_from(named);
        }
        settings.push(InForce { setting, values, source, source_name });
    }
    check(&config)?;
    cluster::check(&config, &settings)?;
    Ok(Resolved { config, settings, unknown_environment })
}

type OfEnvironment = (BTreeMap<&'static str, Vec<String>>, Vec<String>);

fn of_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<OfEnvironment, ConfigError> {
    let mut values = BTreeMap::new();
    let mut unknown = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(ENVIRONMENT_PREFIX)) else {
            continue;
        };
        let Some(setting) = TABLE.iter().find(|setting| setting.environment_name() == name) else {
            unknown.push(name.to_owned());
            continue;
        };
        if value.is_empty() {
            continue;
        }
        let Ok(value) = value.into_string() else {
            return Err(ConfigError::NotText { name: name.to_owned() });
        };
        let texts = match setting.shape {
            Shape::Many => value.split(',').map(|part| part.trim().to_owned()).collect(),
            Shape::One | Shape::Switch => vec![value],
        };
        values.insert(setting.name, texts);
    }
    unknown.sort_unstable();
    Ok((values, unknown))
}

fn check(config: &Config) -> Result<(), ConfigError> {
    let mut doors = config.doors().peekable();
    if doors.peek().is_none() {
        return Err(ConfigError::NoDoor);
    }
    for (door, address) in doors {
        let missing = config.missing(door, address).filter(|_| !config.is_insecure(door));
        match (missing, loopback(address)) {
            (Some(missing), Loopback::No) => {
                return Err(ConfigError::NotLoopback { door, address, missing });
            }
            (Some(_), Loopback::Yes) => return Err(ConfigError::MasterAsksNobody),
            (None, _) => {}
        }
    }
    if config.require_auth && config.tokens.is_none() {
        return Err(ConfigError::NobodyKnown);
    }
    let segment_bytes = config.segment_bytes;
    if config.log_bytes_max < 4 * segment_bytes {
        return Err(ConfigError::LogTooShort { segment_bytes });
    }
    check_connections(config)?;
    check_tls(config)
}

/// No limit on connections is larger than the one that it is a part of.
fn check_connections(config: &Config) -> Result<(), ConfigError> {
    let all = config.connections_max;
    let of_door = config.door_connections_max;
    let (door, of) = match of_door {
        Some(door) => (door, "--door-connections-max"),
        None => (all, "--connections-max"),
    };
    for (part, is, most, of) in [
        ("door-connections-max", of_door, all, "--connections-max"),
        ("address-connections-max", config.address_connections_max, door, of),
    ] {
        if let Some(is) = is.filter(|is| *is > most) {
            return Err(ConfigError::MoreThanAll { part, is, of, most });
        }
    }
    Ok(())
}

fn check_tls(config: &Config) -> Result<(), ConfigError> {
    let needs =
        |given: &str, missing| Err(ConfigError::TlsWithout { given: given.to_owned(), missing });
    match (&config.tls_cert, &config.tls_key) {
        (Some(_), None) => return needs("tls-cert", "tls-key"),
        (None, Some(_)) => return needs("tls-key", "tls-cert"),
        (Some(_), Some(_)) => return Ok(()),
        (None, None) => {}
    }
    for (given, file) in
        [("tls-client-ca", &config.tls_client_ca), ("cluster-ca-file", &config.cluster_ca_file)]
    {
        if file.is_some() {
            return needs(given, "tls-cert");
        }
    }
    let speaks = |door: &&str| config.tls_setting(door).is_some_and(|mode| mode != TlsMode::Off);
    match DOORS.iter().copied().find(speaks) {
        Some(door) => needs(&format!("{door}-tls"), "tls-cert"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn flags(given: &[&str]) -> SettingFlags {
        let command = SettingFlags::augment_args(Command::new("serve").no_binary_name(true));
        SettingFlags::from_arg_matches(&command.try_get_matches_from(given).unwrap()).unwrap()
    }

    fn resolved(given: &[&str], environment: &[(&str, &str)]) -> Result<Resolved, ConfigError> {
        let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
        resolve(&flags(given), environment)
    }

    fn source<'a>(resolved: &'a Resolved, name: &str) -> (&'a str, &'a Source) {
        let found = resolved.settings.iter().find(|found| found.setting.name == name).unwrap();
        (found.values.first().map_or("", String::as_str), &found.source)
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let lines = "data = 'f'\nsync = 'os'\npayload-memory = '1KiB'\nconnections-max = 3\n";
        file.write_all(lines.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        let environment = [
            ("SPINDLE_SERVE_CONFIG", path),
            ("SPINDLE_SERVE_SYNC", "interval:5"),
            ("SPINDLE_SERVE_DATA", "e"),
        ];
        let resolved = resolved(&["--data", "c"], &environment).unwrap();
        assert_eq!(source(&resolved, "data"), ("c", &Source::Flag));
        assert_eq!(source(&resolved, "sync"), ("interval:5", &Source::Environment));
        assert_eq!(source(&resolved, "payload-memory"), ("1KiB", &Source::File));
        assert_eq!(source(&resolved, "shutdown-timeout"), ("10s", &Source::Default));
        assert_eq!(resolved.config.connections_max, 3);
        assert_eq!(resolved.config.payload_memory_bytes, 1024);
        assert_eq!(resolved.config.file.as_deref(), Some(file.path()));
    }

    #[test]
    fn what_is_kept_of_finished_jobs_is_as_the_core_has_it_unless_told_otherwise() {
        let defaults = spindle_core::Defaults::default();
        let config = resolved(&[], &[]).unwrap().config;
        let kept = (config.finished_max, config.finished_bytes_max, config.constraint_values_max);
        let known = (defaults.finished_max, defaults.finished_bytes_max, defaults.values_max);
        assert_eq!(kept, known);
        let unfinished = (config.unfinished_max, config.queue_unfinished_max);
        assert_eq!(unfinished, (defaults.unfinished_max, defaults.queue_unfinished_max));
        let environment = [("SPINDLE_SERVE_FINISHED_SIZE_MAX", "3MiB")];
        let config = resolved(&["--finished-max", "7"], &environment).unwrap().config;
        assert_eq!((config.finished_max, config.finished_bytes_max), (7, 3 << 20));
        assert!(resolved(&["--finished-max", "0"], &[]).is_err());
        assert!(resolved(&["--unfinished-jobs-max", "0"], &[]).is_err());
        let limits = ["--unfinished-jobs-max", "1", "--queue-unfinished-jobs-max", "2"];
        let config = resolved(&limits, &[]).unwrap().config;
        assert_eq!((config.unfinished_max, config.queue_unfinished_max), (1, 2));
    }

    #[test]
    fn a_log_shorter_than_four_segments_is_refused() {
        let of = |bytes: &str| resolved(&["--log-bytes-max", bytes, "--segment-size", "1MiB"], &[]);
        assert_eq!(of("4MiB").unwrap().config.log_bytes_max, 4 << 20);
        let refused = of("4194303").unwrap_err();
        assert!(matches!(refused, ConfigError::LogTooShort { segment_bytes: 1_048_576 }));
        assert!(refused.to_string().contains("4194304 bytes"), "{refused}");
        assert_eq!(of("off").unwrap().config.log_bytes_max, u64::MAX);
        assert!(resolved(&["--constraint-values-max", "many"], &[]).is_err());
    }

    #[test]
    fn the_audit_log_is_bounded_as_the_core_has_it_unless_told_otherwise() {
        let defaults = spindle_core::Defaults::default();
        let kept = |arguments: &[&str]| {
            let config = resolved(arguments, &[]).map(|resolved| resolved.config);
            config.map(|config| (config.audit_entries_max, config.audit_days)).ok()
        };
        let day_ms = 24 * 3_600_000;
        let days = usize::try_from(defaults.audit_ms / day_ms).unwrap();
        assert_eq!(kept(&[]), Some((defaults.audit_entries_max, days)));
        let most = ["--audit-entries-max", "1000000", "--audit-days", "3650"];
        assert_eq!(kept(&most), Some((1_000_000, 3_650)));
        for (name, wrong) in [
            ("--audit-entries-max", "0"),
            ("--audit-entries-max", "1000001"),
            ("--audit-days", "0"),
            ("--audit-days", "3651"),
            ("--audit-days", "1d"),
        ] {
            assert_eq!(kept(&[name, wrong]), None, "{name} {wrong}");
        }
    }

    #[test]
    fn an_address_that_is_not_loopback_needs_its_door_named() {
        let refused = resolved(&["--workq", "0.0.0.0:9922"], &[]).unwrap_err();
        assert!(matches!(refused, ConfigError::NotLoopback { door: "workq", .. }));
        assert!(resolved(&["--workq", "0.0.0.0:9922", "--insecure", "workq"], &[]).is_ok());
        let named = [("SPINDLE_SERVE_INSECURE", "workq"), ("SPINDLE_SERVE_WORKQ", "[::]:1")];
        assert!(resolved(&[], &named).is_ok());
    }

    #[test]
    fn an_address_that_is_not_loopback_needs_tokens_and_tls() {
        let tls = ["--tls-cert", "c", "--tls-key", "k"];
        let with = |door: &str, more: &[&str]| {
            let address = format!("--{door}");
            let given = [&[&address, "10.0.0.1:1"][..], more].concat();
            resolved(&given, &[]).map(|_| ()).map_err(|error| error.to_string())
        };
        for (door, identity) in [
            ("workq", "--tokens"),
            ("gearman", "--tokens"),
            ("http", "--tokens"),
            ("jobd-master", "--jobd-master-password-file"),
        ] {
            let who = [identity, "f"];
            let off = format!("--{door}-tls");
            let refused = |more: &[&str]| with(door, more).unwrap_err();
            assert!(refused(&[]).contains(&format!("{identity} and TLS")), "{door}");
            assert!(refused(&tls).contains(&format!("needs {identity} there")), "{door}");
            assert!(refused(&who).contains("needs TLS"), "{door}");
            for mode in ["off", "optional"] {
                let both = [&tls[..], &who, &[&off, mode]].concat();
                assert!(refused(&both).contains("and no --"), "{door} {mode}");
            }
            assert_eq!(with(door, &[&tls[..], &who].concat()), Ok(()));
            for insecure in [&[][..], &tls, &who] {
                let named = [insecure, &["--insecure", door]].concat();
                assert_eq!(with(door, &named), Ok(()), "{door} {named:?}");
            }
            let other = if door == "http" { "workq" } else { "http" };
            assert!(with(door, &["--insecure", other]).is_err(), "{door}");
        }
    }

    #[test]
    fn nodes_encrypt_what_they_say_where_others_can_listen_in() {
        let with = |address: &str, more: &[&str]| {
            let node =
                ["--log", "postgres://u@h/d", "--advertise", "a:1", "--cluster-listen", address];
            resolved(&[&node, more].concat(), &[]).map(|resolved| resolved.config)
        };
        let tls = ["--tls-cert", "c", "--tls-key", "k"];
        let trust = ["--cluster-ca-file", "f"];
        let encrypted = [&tls[..], &trust].concat();
        let named = ["--insecure", "cluster"];
        let mode = |address: &str, more: &[&str]| with(address, more).map(|it| it.cluster_tls());
        let (near, far) = ("127.0.0.1:1", "0.0.0.0:1");
        for more in [&[][..], &tls, &["--insecure", "http"]] {
            assert!(matches!(with(far, more), Err(ConfigError::NodesInClear { .. })), "{more:?}");
        }
        assert!(matches!(with(near, &trust), Err(ConfigError::TlsWithout { .. })));
        assert_eq!(mode(near, &[]).unwrap(), TlsMode::Off);
        assert_eq!(mode(far, &named).unwrap(), TlsMode::Off);
        for address in [near, far] {
            assert_eq!(mode(address, &encrypted).unwrap(), TlsMode::Required);
            let both = [&encrypted[..], &named].concat();
            assert_eq!(mode(address, &both).unwrap(), TlsMode::Optional);
        }
        let danger = |more: &[&str]| with(far, more).unwrap().cluster_in_clear();
        assert_eq!(danger(&encrypted), None);
        assert_eq!(danger(&named), Some(far.parse().unwrap()));
        let alone = resolved(&[&tls[..], &trust].concat(), &[]).unwrap_err().to_string();
        assert!(alone.contains("--cluster-ca-file") && alone.contains("--log URL"), "{alone}");
    }

    #[test]
    fn who_has_to_say_who_they_are_needs_to_be_known() {
        let refused = |given: &[&str]| resolved(given, &[]).unwrap_err().to_string();
        let off = ["--require-auth", "--jobd-master", "off"];
        assert!(refused(&off).contains("needs --tokens"));
        assert!(resolved(&[&off[..], &["--tokens", "t"]].concat(), &[]).is_ok());
        let on = ["--require-auth", "--tokens", "t"];
        assert!(refused(&on).contains("--jobd-master-password-file"));
        for more in [["--insecure", "jobd-master"], ["--jobd-master-password-file", "p"]] {
            assert!(resolved(&[&on[..], &more].concat(), &[]).is_ok(), "{more:?}");
        }
    }

    #[test]
    fn doors_ask_where_others_reach_them_or_everywhere() {
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
        let of = |given: &[&str]| {
            let config = resolved(given, &[]).unwrap().config;
            (config.asks(near), config.asks(far))
        };
        assert_eq!(of(&[]), (false, false));
        assert_eq!(of(&["--tokens", "t"]), (false, true));
        let insecure = ["--tokens", "t", "--insecure", "http"];
        assert_eq!(of(&insecure), (false, true));
        let required = ["--tokens", "t", "--require-auth", "--jobd-master", "off"];
        assert_eq!(of(&required), (true, true));
    }

    #[test]
    fn tls_needs_a_certificate_and_its_key() {
        let refused = |given: &[&str]| resolved(given, &[]).unwrap_err().to_string();
        for (given, missing) in [
            (&["--tls-cert", "c"][..], "--tls-cert needs --tls-key"),
            (&["--tls-key", "k"], "--tls-key needs --tls-cert"),
            (&["--tls-client-ca", "a"], "--tls-client-ca needs --tls-cert"),
            (&["--workq-tls", "required"], "--workq-tls needs --tls-cert"),
            (&["--jobd-master-tls", "optional"], "--jobd-master-tls needs --tls-cert"),
        ] {
            assert!(refused(given).contains(missing), "{given:?}");
        }
        assert!(refused(&["--http-tls", "on"]).contains("write off, optional or required"));
        assert!(resolved(&["--http-tls", "off"], &[]).is_ok());
    }

    #[test]
    fn doors_are_encrypted_as_their_addresses_need_it_unless_a_setting_says_otherwise() {
        let near = "127.0.0.1:1".parse().unwrap();
        let far = "10.0.0.1:1".parse().unwrap();
        let without = resolved(&[], &[]).unwrap().config;
        assert_eq!(without.tls_mode("http", far), TlsMode::Off);
        let with = &["--tls-cert", "c", "--tls-key", "k", "--http-tls", "off"];
        let with = resolved(with, &[]).unwrap().config;
        assert_eq!(with.tls_mode("workq", near), TlsMode::Optional);
        assert_eq!(with.tls_mode("workq", far), TlsMode::Required);
        assert_eq!(with.tls_mode("http", far), TlsMode::Off);
    }

    #[test]
    fn no_part_of_the_connections_is_larger_than_the_whole() {
        let given =
            |given: &[&str]| resolved(given, &[]).map(|_| ()).map_err(|error| error.to_string());
        let all = ["--connections-max", "20"];
        let door = ["--door-connections-max", "20"];
        let address = ["--address-connections-max", "20"];
        assert_eq!(given(&[all, door, address].concat()), Ok(()));
        for (more, named) in [
            (&["--door-connections-max", "21"][..], "--connections-max, 20"),
            (&["--address-connections-max", "21"], "--connections-max, 20"),
            (&["--door-connections-max", "9", "--address-connections-max", "10"], "max, 9"),
        ] {
            let error = given(&[&all, more].concat()).unwrap_err();
            assert!(error.contains("is more than") && error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_bad_value_is_told_with_where_it_stands() {
        let error = resolved(&["--sync", "maybe"], &[]).unwrap_err().to_string();
        assert!(error.contains("--sync: `maybe`"), "{error}");
        let error = resolved(&[], &[("SPINDLE_SERVE_PAYLOAD_MEMORY", "much")]).unwrap_err();
        assert!(error.to_string().contains("SPINDLE_SERVE_PAYLOAD_MEMORY: `much`"), "{error}");
        let error = resolved(&["--insecure", "gate"], &[]).unwrap_err().to_string();
        assert!(error.contains("no such door"), "{error}");
    }

    #[test]
    fn empty_names_in_the_environment_are_not_set_and_strange_ones_are_told() {
        let environment = [("SPINDLE_SERVE_DATA", ""), ("SPINDLE_SERVE_DATUM", "x"), ("HOME", "/")];
        let resolved = resolved(&[], &environment).unwrap();
        assert_eq!(source(&resolved, "data"), ("./spindle-data", &Source::Default));
        assert_eq!(resolved.unknown_environment, ["SPINDLE_SERVE_DATUM"]);
    }

    #[test]
    fn a_server_without_a_door_is_refused() {
        assert!(matches!(
            resolved(
                &["--workq", "off", "--gearman", "off", "--http", "off", "--jobd-master", "off"],
                &[]
            ),
            Err(ConfigError::NoDoor)
        ));
    }

    #[test]
    fn a_switch_can_be_turned_off_in_the_environment_only() {
        assert!(
            resolved(&["--memory"], &[("SPINDLE_SERVE_MEMORY", "false")]).unwrap().config.memory
        );
        assert!(!resolved(&[], &[("SPINDLE_SERVE_MEMORY", "false")]).unwrap().config.memory);
        assert!(resolved(&[], &[("SPINDLE_SERVE_MEMORY", "perhaps")]).is_err());
    }
}
