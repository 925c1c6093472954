//! The documentation of the suite stays true: the example configurations work, and the page names
//! every option.

use std::{fs, path::Path};

use spindle_jobd::config::{CtlConfig, Ini, MasterConfig, WorkerConfig};

/// All families of tables but one.
const OTHER_FAMILIES: [[&str; 3]; 4] = [
    ["mysql_", "pgsql_", "spindle_"],
    ["mysql_", "sqlite_", "spindle_"],
    ["pgsql_", "sqlite_", "spindle_"],
    ["mysql_", "pgsql_", "sqlite_"],
];

fn example(name: &str) -> Ini {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/jobd");
    Ini::read(&folder.join(name)).unwrap()
}

/// The example with all commented-out options switched on, except lines that begin like this.
fn all_of(name: &str, without: &[&str]) -> Ini {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/jobd");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let line = |line: &str| match line.strip_prefix(';') {
        Some(option) if !option.starts_with(' ') => option.to_owned(),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text
        .lines()
        .map(line)
        .filter(|line| !without.iter().any(|prefix| line.starts_with(prefix)))
        .collect();
    Ini::parse(Path::new(name), &lines.join("\n")).unwrap()
}

#[test]
fn the_example_configurations_work() {
    WorkerConfig::from_ini(&example("jobd.conf")).unwrap();
    MasterConfig::from_ini(&example("jobd-master.conf")).unwrap();
    CtlConfig::from_ini(&example("jobctl.conf")).unwrap();
    for without in OTHER_FAMILIES {
        let ini = all_of("jobd.conf", &without);
        WorkerConfig::from_ini(&ini).unwrap();
        assert_eq!(WorkerConfig::unknown_options(&ini), [] as [String; 0]);
    }
    let ini = all_of("jobd-master.conf", &[]);
    MasterConfig::from_ini(&ini).unwrap();
    assert_eq!(ini.unknown(&[], &[]), [] as [String; 0]);
    CtlConfig::from_ini(&all_of("jobctl.conf", &[])).unwrap();
}

#[test]
fn the_page_names_every_option() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/jobd.md");
    let page = fs::read_to_string(page).unwrap();
    let mut options = Vec::new();
    for without in OTHER_FAMILIES {
        let ini = all_of("jobd.conf", &without);
        WorkerConfig::from_ini(&ini).unwrap();
        options.extend(ini.known());
    }
    let ini = all_of("jobd-master.conf", &[]);
    MasterConfig::from_ini(&ini).unwrap();
    options.extend(ini.known());
    let ini = all_of("jobctl.conf", &[]);
    CtlConfig::from_ini(&ini).unwrap();
    options.extend(ini.known());
    assert!(options.len() > 40, "{options:?}");
    for option in options {
        assert!(page.contains(&format!("`{option}`")), "docs/jobd.md does not name {option}");
    }
}
