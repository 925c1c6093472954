//! What is in deploy/ and what docs/operations.md says of it. The Debian package itself is built
//! and installed by `cargo xtask test`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use spindle_testkit::succeeds;

use crate::fake_workq::{spindle, stderr, stdout};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_units_take_away_what_a_server_does_not_need() {
    for unit in ["deploy/systemd/spindle.service", "deploy/jobd/jobd-master.service"] {
        let mut judge = Command::new("systemd-analyze");
        // In tenths.
        judge.args(["security", "--offline=true", "--threshold=20", "--no-pager"]);
        succeeds(judge.arg(root().join(unit)));
    }
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for unit in ["systemd/spindle.service", "jobd/jobd-master.service", "jobd/jobd.service"] {
        let path = folder.path().join(Path::new(unit).file_name().unwrap());
        // The programs are not installed where the test runs.
        let text = read(&format!("deploy/{unit}"));
        let line = |line: &str| match line.strip_prefix("ExecStart=") {
            Some(command) => {
                let words: Vec<&str> = command.splitn(2, ' ').collect();
                format!("ExecStart=/bin/true {}", words[1])
            }
            None => line.to_owned(),
        };
        let lines: Vec<String> = text.lines().map(line).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let said = succeeds(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no", "--recursive-errors=no"])
                .arg(&path),
        );
        let name = path.file_name().unwrap().to_str().unwrap();
        let own: Vec<&str> = said.lines().filter(|line| line.contains(name)).collect();
        assert_eq!(own, [] as [&str; 0], "{unit}");
    }
}

/// What `spindle config` says with these arguments.
#[track_caller]
fn config(arguments: &[&str]) -> String {
    let output = spindle(&[&["config"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// What is in force by a file of settings.
#[track_caller]
fn settings(text: &str) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let output = config(&["--json", "--config", file.path().to_str().unwrap()]);
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn value<'a>(settings: &'a [Value], name: &str) -> &'a Value {
    &settings.iter().find(|setting| setting["name"] == name).unwrap()["value"]
}

#[test]
fn the_settings_of_the_package_are_settings_commented_out_ones_included() {
    let text = read("deploy/systemd/spindle.toml");
    assert_eq!(value(&settings(&text), "data"), "/var/lib/spindle");
    let is_option = |line: &&str| line.strip_prefix('#').is_some_and(|rest| !rest.starts_with(' '));
    let options = text.lines().filter(is_option).count();
    assert!(options > 3, "{options}");
    let all: Vec<&str> =
        text.lines().map(|line| if is_option(&line) { &line[1..] } else { line }).collect();
    assert_eq!(value(&settings(&all.join("\n")), "http"), "0.0.0.0:7420");
}

#[test]
fn the_dockerfile_keeps_the_rules_of_images() {
    let text = read("deploy/docker/Dockerfile").replace("\\\n", " ");
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let all = |name: &str| -> Vec<&str> {
        lines.iter().filter(|(word, _)| *word == name).map(|(_, rest)| *rest).collect()
    };
    let stages = all("FROM");
    assert_eq!(stages.len(), 2);
    for stage in &stages {
        let image = stage.split(' ').next().unwrap();
        let (_, tag) = image.split_once(':').expect("a tag");
        assert_ne!(tag, "latest");
    }
    let rust = read("Cargo.toml");
    let version = rust.split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(stages[0].starts_with(&format!("rust:{version}-")), "{}", stages[0]);
    // Both have the same libc.
    assert!(stages.iter().all(|stage| stage.contains("bookworm")));
    assert!(all("COPY").contains(&"--from=build /out/ /"));
    assert_eq!(all("USER"), ["10001:10001"]);
    let doors: BTreeSet<String> = ["workq", "gearman", "http", "jobd-master"]
        .map(|door| {
            value(&settings(""), door).as_str().unwrap().rsplit(':').next().unwrap().to_owned()
        })
        .into();
    let exposed: BTreeSet<String> = all("EXPOSE")[0].split(' ').map(str::to_owned).collect();
    assert_eq!(exposed, doors);
    for form in ["ENTRYPOINT", "CMD"] {
        let words: Vec<String> = serde_json::from_str(all(form)[0]).unwrap();
        assert!(!words.is_empty());
    }
    let words: Vec<String> = serde_json::from_str(all("CMD")[0]).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    config(&words[1..]);
}

/// All documents of a file of YAML.
fn documents(path: &str) -> Vec<Value> {
    const PROGRAM: &str = "import json, sys, yaml\n\
                           print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let output = succeeds(Command::new("python3").args(["-c", PROGRAM]).arg(root().join(path)));
    serde_json::from_str(&output).unwrap()
}

#[test]
fn the_example_for_kubernetes_fits_together() {
    let documents = documents("deploy/kubernetes/spindle.yaml");
    let named = |kind: &str, name: &str| {
        let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
        documents.iter().find(is_it).unwrap_or_else(|| panic!("{kind} {name}"))
    };
    let set = &named("StatefulSet", "spindle")["spec"];
    assert_eq!(set["replicas"], 1);
    let labels = &set["template"]["metadata"]["labels"];
    assert_eq!(&set["selector"]["matchLabels"], labels);
    let service = &named("Service", set["serviceName"].as_str().unwrap())["spec"];
    assert_eq!(&service["selector"], labels);
    let pod = &set["template"]["spec"];
    let user = &pod["securityContext"];
    assert!(user["runAsNonRoot"] == true && user["fsGroup"] == user["runAsGroup"]);
    let container = &pod["containers"][0];
    let own = &container["securityContext"];
    assert!(own["readOnlyRootFilesystem"] == true && own["allowPrivilegeEscalation"] == false);
    for (probe, path) in
        [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
    {
        let get = &container[probe]["httpGet"];
        assert!(get["path"] == path && get["port"] == "http" && get["scheme"] == "HTTPS", "{get}");
    }
    assert!(container["resources"]["limits"]["memory"].is_string());

    // Every volume that is mounted exists, and every Secret and ConfigMap behind one.
    let mut volumes = BTreeSet::new();
    for volume in pod["volumes"].as_array().unwrap() {
        volumes.insert(volume["name"].as_str().unwrap());
        if let Some(secret) = volume["secret"].as_object() {
            named("Secret", secret["secretName"].as_str().unwrap());
            // Not open to everybody: the server refuses such files.
            assert_eq!(secret["defaultMode"], 0o440);
        }
        if let Some(map) = volume["configMap"].as_object() {
            named("ConfigMap", map["name"].as_str().unwrap());
        }
    }
    volumes.extend(
        set["volumeClaimTemplates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|claim| claim["metadata"]["name"].as_str().unwrap()),
    );
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mounted: BTreeSet<&str> = mounts.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(mounted, volumes);

    // Its settings are settings, and their files and folder are below what is mounted.
    let text = named("ConfigMap", "spindle")["data"]["spindle.toml"].as_str().unwrap();
    let settings = settings(text);
    for name in ["data", "tls-cert", "tls-key", "tokens"] {
        let path = value(&settings, name).as_str().unwrap();
        let is_there = mounts.iter().any(|it| path.starts_with(it["mountPath"].as_str().unwrap()));
        assert!(is_there, "{path}");
    }
    for port in container["ports"].as_array().unwrap() {
        let address = value(&settings, port["name"].as_str().unwrap()).as_str().unwrap();
        assert!(address.ends_with(&format!(":{}", port["containerPort"])), "{address}");
    }
}

/// The text of each message that this macro has in a source. Messages that consist almost only of
/// their arguments are left out.
fn messages(source: &str, call: &str) -> Vec<String> {
    let mut messages = Vec::new();
    for behind in source.split(call).skip(1) {
        let Some(literal) = behind.split('"').nth(1) else { continue };
        let joined: Vec<&str> = literal.split("\\\n").map(str::trim_start).collect();
        let text = joined.concat();
        if text.split(['{', '}']).step_by(2).any(|fixed| fixed.trim().len() > 6) {
            messages.push(text);
        }
    }
    messages
}

/// What the page quotes in the first column of its tables.
fn quoted(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// The sources below a folder, but for tests and for the commands that are clients.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "client" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_page_of_operations_has_a_row_for_every_warning_and_error_of_the_server() {
    let page = read("docs/operations.md");
    let quoted = quoted(&page);
    let mut files = Vec::new();
    let crates = [
        "access",
        "backup",
        "budget",
        "cluster",
        "core",
        "engine",
        "history",
        "http",
        "jobd-master",
        "limits",
        "log",
        "log-nats",
        "log-pgsql",
        "matching",
        "net",
        "otlp",
        "router",
        "tls",
        "webhook",
    ];
    for folder in crates.iter().chain(&["spindle"]).map(|name| format!("crates/{name}/src")) {
        sources(&root().join(folder), &mut files);
    }
    for door in ["api", "gearman", "jobq", "lightjq", "workq"] {
        sources(&root().join(format!("doors/{door}/src")), &mut files);
    }
    let mut missing = Vec::new();
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut found = [messages(&text, "warn!("), messages(&text, "error!(")].concat();
        if file.ends_with("log/src/folder.rs") || file.ends_with("engine/src/start.rs") {
            found.extend(messages(&text, "#[error("));
        }
        count += found.len();
        let is_missing = |message: &&String| !quoted.iter().any(|phrase| message.contains(phrase));
        let lacks = found.iter().filter(is_missing).map(|it| format!("{}: {it}", file.display()));
        missing.extend(lacks);
    }
    assert!(count > 50, "{count}");
    assert_eq!(missing, [] as [String; 0], "docs/operations.md lacks these");
}
