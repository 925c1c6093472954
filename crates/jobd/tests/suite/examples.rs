//! The examples of the pages are run as they stand there.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rusqlite::{Connection, types::ValueRef};
use spindle_jobd::config::{Ini, WorkerConfig};

use crate::{
    peer::until,
    programs::{Folder, Program},
};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// The lines of the page's blocks of this kind, one list for each block.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<Vec<&'a str>> {
    let open = format!("```{kind}");
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        match line {
            line if line == open => {
                is_inside = true;
                blocks.push(Vec::new());
            }
            "```" => is_inside = false,
            line if is_inside => blocks.last_mut().unwrap().push(line),
            _ => {}
        }
    }
    blocks
}

/// The one command after which there is a worker on SQLite.
fn first_command(page: &str) -> String {
    let lines = blocks(page, "sh").concat();
    let first = lines.into_iter().find(|line| line.starts_with("jobd -o sqlite_file="));
    first.expect("the page has it").to_owned()
}

/// What its reader types next.
fn first_steps(page: &str) -> Vec<&str> {
    let uses_jobctl = |block: &Vec<&str>| block.iter().any(|line| line.starts_with("$ jobctl"));
    blocks(page, "console").into_iter().find(uses_jobctl).unwrap()
}

/// A block's commands, each with what it prints.
fn commands<'a>(block: &[&'a str]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for &line in block {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command, Vec::new())),
            None => commands.last_mut().unwrap().1.push(line),
        }
    }
    commands
}

/// A shell in a folder in which the programs are found, and which is home.
fn shell(folder: &Folder, command: &str) -> Command {
    let mut shell = Command::new("sh");
    let path = format!("{}:{}", folder.file("bin").display(), std::env::var("PATH").unwrap());
    shell.args(["-c", command]).current_dir(folder.path());
    shell.env("PATH", path).env("HOME", folder.path()).stdin(Stdio::null());
    shell
}

/// What `sqlite3 FILE "SQL"` prints. Its user's client is not what is tested, and may be missing.
fn sqlite3(folder: &Folder, words: &str) -> Vec<String> {
    let (file, sql) = words.split_once(' ').unwrap();
    let database = Connection::open(folder.file(file)).unwrap();
    database.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    let mut statement = database.prepare(sql.trim_matches('"')).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let values: Vec<String> = (0..columns)
            .map(|column| match row.get_ref(column).unwrap() {
                ValueRef::Null => String::new(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        lines.extend(values.join("|").lines().map(str::to_owned));
    }
    lines
}

fn printed(folder: &Folder, command: &str) -> Vec<String> {
    if let Some(words) = command.strip_prefix("sqlite3 ") {
        return sqlite3(folder, words);
    }
    let output = shell(folder, command).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_first_steps_of_the_page_work() {
    let page = page("docs/jobd.md");
    let start = first_command(&page);
    let steps = first_steps(&page);

    let folder = Folder::new("");
    fs::create_dir(folder.file("bin")).unwrap();
    for (program, path) in
        [("jobd", env!("CARGO_BIN_EXE_jobd")), ("jobctl", env!("CARGO_BIN_EXE_jobctl"))]
    {
        std::os::unix::fs::symlink(path, folder.file("bin").join(program)).unwrap();
    }
    // What a test must do differently: a free port, and a word when it listens.
    let own = "-o port=0 -o log_level_console=info -o state_file=own.state";
    let mut command = shell(&folder, &format!("exec {start} {own}"));
    let mut jobd = Program(command.stdout(Stdio::piped()).spawn().unwrap());
    fs::write(folder.file(".jobctl.conf"), format!("port = {}\n", jobd.address().port())).unwrap();
    folder.has_table().await;
    for (command, expected) in commands(&steps) {
        if command.contains("SELECT") {
            // The page's reader is not as fast as the test.
            until(command, || printed(&folder, command) == expected).await;
        } else {
            assert_eq!(printed(&folder, command), expected, "{command}");
        }
    }
}

#[test]
fn the_readme_has_the_same_first_steps() {
    let (readme, own) = (page("README.md"), page("docs/jobd.md"));
    assert_eq!(first_command(&readme), first_command(&own));
    assert_eq!(first_steps(&readme), first_steps(&own));
}

/// The value of each `-o` of a command, as a shell without variables would give it.
fn options(command: &str) -> Vec<String> {
    let words = command.split(" -o ").skip(1);
    words.map(|word| word.trim_end_matches(" &").replace('\'', "")).collect()
}

#[test]
fn every_daemon_on_the_page_has_options_that_exist() {
    let page = page("docs/jobd.md");
    let lines: Vec<&str> = blocks(&page, "sh").concat();
    let daemons: Vec<&&str> = lines.iter().filter(|line| line.starts_with("jobd ")).collect();
    assert!(daemons.len() >= 2, "{daemons:?}");
    for daemon in daemons {
        let (targets, others): (Vec<_>, Vec<_>) =
            options(daemon).into_iter().partition(|option| option.starts_with("targets."));
        let targets = targets.iter().map(|option| option.trim_start_matches("targets."));
        let targets = targets.collect::<Vec<_>>().join("\n");
        let text = format!("{}\n[targets]\n{targets}\n", others.join("\n"));
        let ini = Ini::parse(Path::new("page"), &text).unwrap();
        let config =
            WorkerConfig::from_ini(&ini).unwrap_or_else(|error| panic!("{daemon}: {error}"));
        assert_eq!(WorkerConfig::unknown_options(&ini), [] as [String; 0], "{daemon}");
        assert!(!config.targets.is_empty(), "{daemon}");
    }
}
