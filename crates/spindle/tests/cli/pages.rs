//! The examples of the pages: every command is run, and says what the page says.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use crate::serve::serve;

/// A command, and what it prints.
pub struct Example {
    pub line: usize,
    pub command: String,
    pub prints: Vec<String>,
}

/// What stands in the page's `console` blocks.
pub fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut is_inside = false;
    for (number, line) in page.lines().enumerate() {
        match (is_inside, line) {
            (false, "```console") => is_inside = true,
            (true, "```") => is_inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example {
                    line: number + 1,
                    command: command.to_owned(),
                    prints: Vec::new(),
                }),
                None => examples.last_mut().unwrap().prints.push(line.to_owned()),
            },
            (false, _) => {}
        }
    }
    assert!(!is_inside, "a block is never closed");
    examples
}

/// Blanks between columns count as one; `…` stands for anything, alone on a line for any lines.
pub fn fits(wanted: &[String], answer: &[&str]) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return answer.is_empty() };
    if first == "…" {
        return (0..=answer.len()).any(|skipped| fits(rest, &answer[skipped..]));
    }
    answer.split_first().is_some_and(|(line, more)| line_fits(first, line) && fits(rest, more))
}

fn line_fits(wanted: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (wanted, line) = (words(wanted), words(line));
    let parts: Vec<&str> = wanted.split('…').collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return wanted == line;
    }
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in &parts[1..parts.len() - 1] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn every_example_of_the_page_of_commands_says_what_it_does() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let examples = examples(&page);
    assert!(examples.len() > 40, "{}", examples.len());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let served = serve(&["--data", &data, "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    symlink(env!("CARGO_BIN_EXE_spindle"), folder.path().join("spindle")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for Example { line, command, prints } in examples {
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("SPINDLE_URL", format!("http://{}", served.address_of("http")))
            .env("WORKQ", served.address_of("workq"))
            .env_remove("SPINDLE_WORKQ")
            .env_remove("SPINDLE_SERVE_HTTP")
            .output()
            .unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = answer.lines().collect();
        assert!(fits(&prints, &lines), "line {line}: {command}\n{answer}");
    }
}

#[test]
fn every_command_has_an_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_spindle")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = commands.map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names.iter().filter(|name| !["help", "serve", "verify"].contains(name)) {
        let run = format!("spindle {name}");
        let shown = examples(&page).iter().any(|example| example.command.contains(&run));
        assert!(shown, "{name} has no example");
    }
}

#[test]
fn what_differs_from_run_to_run_may_and_the_rest_may_not() {
    assert!(line_fits("a  b\tc", "a b c") && line_fits("a …", "a 1 2") && line_fits("…b", "ab"));
    assert!(!line_fits("a …c", "a b") && !line_fits("a", "ab") && !line_fits("…a…", "b"));
    let lines = |text: &[&str]| text.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(fits(&lines(&["a", "…", "d"]), &["a", "b", "c", "d"]));
    assert!(!fits(&lines(&["a", "…"]), &["b"]) && !fits(&lines(&["a"]), &["a", "b"]));
}
