//! `spindle export` and `import`: cut off anywhere, killed, run again.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use spindle_testkit::{Program, free_address};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{at, object, output_of, served, url},
    serve::{Served, data},
};

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

fn lines(file: &str) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(object).collect()
}

/// The payloads of jobs by the ids they had first, or have.
fn jobs(file: &str) -> BTreeMap<u64, Value> {
    let jobs = lines(file).into_iter().filter(|line| line["type"] == "job");
    jobs.map(|job| (job["id"].as_u64().unwrap(), job["payload"].clone())).collect()
}

fn add(served: &Served, count: usize, folder: &Path) {
    let file = path(folder, "lines");
    let text: String = (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    fs::write(&file, text).unwrap();
    output_of(served, &["add", "q", "--type", "json", "--lines", &file]);
}

/// How a command ended, and what it said.
fn ended(served: &Served, arguments: &[&str]) -> (i32, String) {
    let output = at(served, arguments).output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

#[test]
fn a_server_goes_over_to_another_with_constraints_queues_and_jobs() {
    let (folder, _) = data();
    let file = path(folder.path(), "jobs.jsonl");
    let (from, to) = (served(&["--memory"]), served(&["--memory"]));
    output_of(&from, &["constraint", "put", "slow", "--queue", "q", "--running-max", "3"]);
    output_of(&from, &["queue", "set", "q", "--tries", "9"]);
    output_of(&from, &["pause", "q"]);
    add(&from, 1500, folder.path());
    output_of(&from, &["add", "late", "x", "--tag", "t"]);
    output_of(&from, &["export", &file]);
    let kinds = lines(&file);
    assert_eq!((&kinds[0]["type"], &kinds[1]["type"]), (&"export".into(), &"constraint".into()));
    assert_eq!(kinds.last().unwrap(), &object(r#"{"type":"end","jobs":1501}"#));
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!(
        (&done["imported"], &done["queues"], &done["constraints"]),
        (&1501.into(), &2.into(), &1.into())
    );
    let again = path(folder.path(), "again.jsonl");
    output_of(&to, &["export", &again]);
    assert_eq!(
        jobs(&again).into_values().collect::<Vec<_>>(),
        jobs(&file).into_values().collect::<Vec<_>>()
    );
    let queue = object(&output_of(&to, &["queue", "show", "q", "--json"]));
    assert_eq!((&queue["paused"], &queue["settings"]["fails_max"]), (&true.into(), &9.into()));
    // A second time: nothing is left to do; and without the notes of the first, nothing is made.
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!(done["imported"], 1501);
    fs::remove_file(format!("{file}.imported")).unwrap();
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!((&done["imported"], &done["existing"]), (&0.into(), &1501.into()));
    let (code, said) = ended(&from, &["import", &file]);
    assert!(code == 2 && said.contains("was imported to"), "{said}");
    let (code, said) = ended(&from, &["export", &file]);
    assert!(code == 2 && said.contains("whole already"), "{said}");
}

#[test]
fn an_export_that_was_cut_off_anywhere_goes_on() {
    let (folder, _) = data();
    let from = served(&["--memory"]);
    add(&from, 30, folder.path());
    let file = path(folder.path(), "whole.jsonl");
    output_of(&from, &["export", &file]);
    let whole = fs::read(&file).unwrap();
    let cut = path(folder.path(), "cut.jsonl");
    let end = whole.len();
    for at in [0, 3, 40, end / 3, end / 2, end - 40, end - 2] {
        fs::write(&cut, &whole[..at]).unwrap();
        output_of(&from, &["export", &cut]);
        assert_eq!(jobs(&cut), jobs(&file), "cut at {at}");
        assert_eq!(lines(&cut).last(), lines(&file).last());
        assert_eq!(lines(&cut).len(), lines(&file).len());
    }
    // Bytes behind the last whole line are removed, however many there are.
    fs::write(&cut, [&whole[..end / 2], &[b'x'; 100_000]].concat()).unwrap();
    output_of(&from, &["export", &cut]);
    assert_eq!(lines(&cut).len(), lines(&file).len());
    fs::write(&cut, &whole[..end / 2]).unwrap();
    let (code, said) = ended(&from, &["export", &cut, "--all"]);
    assert!(code == 2 && said.contains("begun with another --all"), "{said}");
    // Only the owner may read payloads.
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    for foreign in ["notes\n", "{}\n", "x", "{\"type\":\"job\",\"id\":1}\n"] {
        fs::write(&cut, foreign).unwrap();
        let (code, said) = ended(&from, &["export", &cut]);
        assert!(code == 2 && said.contains("no file that `spindle export` began"), "{said}");
        assert_eq!(fs::read_to_string(&cut).unwrap(), foreign);
    }
    // From a job on, to standard output.
    let rest = output_of(&from, &["export", "-", "--from", "29"]);
    let ids: Vec<Value> = rest.lines().map(|line| object(line)["id"].clone()).collect();
    assert_eq!(ids, [29.into(), 30.into(), Value::Null]);
}

#[test]
fn an_import_of_a_file_that_was_cut_off_says_so_and_goes_on_when_it_is_whole() {
    let (folder, _) = data();
    let (from, to) = (served(&["--memory"]), served(&["--memory"]));
    add(&from, 30, folder.path());
    let file = path(folder.path(), "whole.jsonl");
    output_of(&from, &["export", &file]);
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    fs::write(&file, lines[..15].concat()).unwrap();
    let (code, said) = ended(&to, &["import", &file]);
    assert!(code == 1 && said.contains("the file has no end"), "{said}");
    fs::write(&file, lines[..15].concat() + "{\"type\":\"jo").unwrap();
    let (code, said) = ended(&to, &["import", &file]);
    assert!(code == 2 && said.contains("is cut off"), "{said}");
    output_of(&from, &["export", &file]);
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!((&done["imported"], &done["existing"]), (&30.into(), &0.into()));
    let (a_line, end) = (lines[10], lines[lines.len() - 1]);
    for (text, part) in [
        (format!("{}{end}", lines[..20].concat()), "should have 30 jobs, and"),
        (a_line.to_owned(), "first line is none of an export"),
        ("{\"type\":\"export\",\"version\":2}\n".to_owned(), "newer release"),
        ("notes\n".to_owned(), "none of an export"),
        (format!("{}{{\"type\":\"x\"}}\n", lines[0]), "which is unknown"),
    ] {
        let other = path(folder.path(), "other.jsonl");
        let _ = fs::remove_file(format!("{other}.imported"));
        fs::write(&other, text).unwrap();
        let (code, said) = ended(&to, &["import", &other]);
        assert!(code != 0 && said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_job_that_is_refused_stops_the_import_before_it_unless_it_may_be_passed_over() {
    let (folder, _) = data();
    let (from, to) = (served(&["--memory"]), served(&["--memory"]));
    for key in ["a", "b", "c"] {
        output_of(&from, &["add", "q", key, "--unique", key]);
    }
    let taken = output_of(&to, &["add", "q", "mine", "--unique", "b"]);
    let file = path(folder.path(), "jobs.jsonl");
    output_of(&from, &["export", &file]);
    let (code, said) = ended(&to, &["import", &file]);
    assert!(
        code == 1 && said.contains("job 2: the server refused") && said.contains("--skip-refused"),
        "{said}"
    );
    let output = at(&to, &["import", &file, "--skip-refused", "--json"]).output().unwrap();
    let done = object(&stdout(&output));
    assert_eq!(
        (output.status.code(), &done["existing"], &done["refused"]),
        (Some(1), &2.into(), &1.into())
    );
    // The other case: the obstacle is gone.
    fs::remove_file(format!("{file}.imported")).unwrap();
    output_of(&to, &["delete", taken.trim()]);
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!((&done["existing"], &done["imported"]), (&2.into(), &1.into()));
}

/// A server that refuses the last of some jobs `times` times, for this reason, and then takes it. By then it has the
/// first one already.
fn busy(times: usize, code: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut asked = 0;
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                stream.read_line(&mut head).unwrap();
            }
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut sent = vec![0; length.unwrap()];
            stream.read_exact(&mut sent).unwrap();
            let body = if head.starts_with("POST /api/v1/jobs/import ") {
                asked += 1;
                let jobs = serde_json::from_slice::<Value>(&sent).unwrap()["jobs"].clone();
                let jobs = jobs.as_array().unwrap().len();
                let is_there = asked > times;
                let taken = |nth| json!({ "id": nth, "existing": nth == 0 && is_there });
                let refused = json!({ "problem": { "code": code, "detail": "not now" } });
                let last = if is_there { taken(jobs - 1) } else { refused };
                let answers: Vec<Value> = (0..jobs - 1).map(taken).chain([last]).collect();
                json!({ "answers": answers })
            } else {
                // The queue's settings.
                json!({})
            };
            let body = body.to_string();
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
            let stream = stream.get_mut();
            write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    url
}

#[test]
fn an_import_asks_a_server_again_that_has_no_room_now() {
    let (folder, _) = data();
    let from = served(&["--memory"]);
    add(&from, 3, folder.path());
    let file = path(folder.path(), "jobs.jsonl");
    output_of(&from, &["export", &file]);
    for code in ["busy", "disk_full", "log_cannot_grow"] {
        let url = busy(1, code);
        let output = spindle(&["import", &file, "--json", "--url", &url]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{code}: {}", stderr(&output));
        // Counted once, by the last answers.
        let done = object(&stdout(&output));
        assert_eq!((&done["imported"], &done["existing"]), (&2.into(), &1.into()), "{code}");
        fs::remove_file(format!("{file}.imported")).unwrap();
    }
    // Only a lack of room is a reason to ask again.
    let output = spindle(&["import", &file, "--url", &busy(1, "key_taken")]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the server refused: not now"), "{}", stderr(&output));
}

#[test]
fn an_export_does_not_go_on_in_the_file_of_another_server() {
    let (folder, _) = data();
    let (one, other) = (served(&["--memory"]), served(&["--memory"]));
    add(&one, 5, folder.path());
    let file = path(folder.path(), "jobs.jsonl");
    output_of(&one, &["export", &file]);
    let whole = fs::read_to_string(&file).unwrap();
    assert_eq!(lines(&file)[0]["url"], url(&one));
    let cut: String = whole.split_inclusive('\n').take(4).collect();
    fs::write(&file, &cut).unwrap();
    // It has no job yet, and then others with the same numbers.
    for _ in 0..2 {
        let (code, said) = ended(&other, &["export", &file]);
        assert!(code == 2 && said.contains("begun with another server"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), cut);
        add(&other, 5, folder.path());
    }
    // The same server at another URL is known by its jobs; so it is in a file of an earlier release, without a URL.
    let elsewhere = cut.replace(&url(&one), "http://elsewhere:7420");
    let earlier = cut.replace(&format!("\"url\":\"{}\",", url(&one)), "");
    assert!(elsewhere != cut && earlier != cut);
    // Without a URL, other jobs with the same numbers are enough.
    fs::write(&file, &earlier).unwrap();
    let (code, said) = ended(&other, &["export", &file]);
    assert!(code == 2 && said.contains("is another one there"), "{said}");
    for text in [elsewhere, earlier] {
        fs::write(&file, text).unwrap();
        output_of(&one, &["export", &file]);
        assert_eq!(lines(&file).len(), whole.lines().count());
    }
}

#[test]
fn an_export_is_written_to_a_regular_file_that_only_its_owner_reads() {
    let (folder, _) = data();
    let from = served(&["--memory"]);
    for other in ["/dev/full", "/dev/null", folder.path().to_str().unwrap()] {
        let (code, said) = ended(&from, &["export", other]);
        assert!(code == 2 && said.contains("is no regular file"), "{other}: {said}");
    }
    let file = path(folder.path(), "jobs.jsonl");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    output_of(&from, &["export", &file]);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn what_was_noted_of_a_file_is_not_believed_of_another_one_with_its_name() {
    let (folder, _) = data();
    let (from, to) = (served(&["--memory"]), served(&["--memory"]));
    let file = path(folder.path(), "jobs.jsonl");
    add(&from, 3, folder.path());
    output_of(&from, &["export", &file]);
    output_of(&to, &["import", &file]);
    let (first, notes) = (fs::read(&file).unwrap(), format!("{file}.imported"));
    // One that is longer, and one that is shorter.
    fs::remove_file(&file).unwrap();
    add(&from, 3, folder.path());
    output_of(&from, &["export", &file]);
    for text in [fs::read(&file).unwrap(), first[..first.len() / 2].to_vec()] {
        fs::write(&file, text).unwrap();
        let (code, said) = ended(&to, &["import", &file]);
        assert!(code == 2 && said.contains("is about another file"), "{said}");
    }
    // The same, with notes of an earlier release.
    fs::write(&file, first).unwrap();
    let mut noted = object(&fs::read_to_string(&notes).unwrap());
    noted.as_object_mut().unwrap().remove("sum").unwrap();
    fs::write(&notes, noted.to_string()).unwrap();
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!((&done["imported"], &done["existing"]), (&3.into(), &0.into()));
}

#[test]
fn an_import_that_cannot_note_how_far_it_came_does_not_begin() {
    let (folder, _) = data();
    let (from, to) = (served(&["--memory"]), served(&["--memory"]));
    add(&from, 3, folder.path());
    let file = path(folder.path(), "jobs.jsonl");
    output_of(&from, &["export", &file]);
    // A folder in its place keeps anyone from writing the notes.
    fs::create_dir(format!("{file}.imported.new")).unwrap();
    let (code, said) = ended(&to, &["import", &file]);
    assert!(code == 1 && said.contains("spindle import - <"), "{said}");
    assert!(!output_of(&to, &["export", "-"]).contains("\"job\""));
}

#[test]
fn a_job_that_is_too_large_for_a_request_is_refused_for_itself() {
    const BYTES_MAX: usize = 16 * 1024 * 1024 - "{\"jobs\":[]}".len();
    let (folder, _) = data();
    let (from, to) = (served(&["--memory"]), served(&["--memory"]));
    output_of(&from, &["add", "q", "x"]);
    let small = output_of(&from, &["export", "-"]);
    let [head, job, end] = ["export", "job", "end"]
        .map(|kind| object(small.lines().find(|line| object(line)["type"] == kind).unwrap()));
    let with = |id: u64, bytes: usize| {
        let mut job = job.clone();
        (job["id"], job["payload_base64"]) = (id.into(), "".into());
        let room = bytes - job.to_string().len();
        job["payload_base64"] = "A".repeat(room / 4 * 4).into();
        // Spaces make up for what base64 cannot.
        let text = job.to_string();
        text.replacen(':', &format!(":{}", " ".repeat(room % 4)), 1)
    };
    let mut end = end;
    end["jobs"] = 3.into();
    let file = path(folder.path(), "jobs.jsonl");
    let text = [head.to_string(), with(1, BYTES_MAX), with(2, BYTES_MAX + 1), with(3, 1000)];
    fs::write(&file, text.join("\n") + &format!("\n{end}\n")).unwrap();
    let (code, said) = ended(&to, &["import", &file]);
    assert!(code == 1 && said.contains("job 2: its line has 16777206 bytes"), "{said}");
    let output = at(&to, &["import", &file, "--skip-refused", "--json"]).output().unwrap();
    let done = object(&stdout(&output));
    assert_eq!(
        (output.status.code(), &done["imported"], &done["refused"]),
        (Some(1), &2.into(), &1.into())
    );
}

fn begin(arguments: &[&str], url: &str) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.args(arguments).env("SPINDLE_URL", url).env_remove("SPINDLE_WORKQ");
    Program::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn wait_for(file: &str) {
    let deadline = std::time::Instant::now() + spindle_testkit::PATIENCE;
    while !PathBuf::from(file).exists() {
        assert!(std::time::Instant::now() < deadline, "{file} does not come");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn nothing_is_lost_or_made_twice_when_either_side_is_killed() {
    const JOBS: usize = 5_000;
    let (folder, data) = data();
    let from = served(&["--memory"]);
    add(&from, JOBS, folder.path());
    let file = path(folder.path(), "jobs.jsonl");
    output_of(&from, &["export", &file]);
    let address = free_address();
    let on =
        || crate::serve::serve(&["--workq", "127.0.0.1:0", "--http", &address, "--data", &data]);
    let mut to = on();
    let notes = format!("{file}.imported");
    // The importing side, after its first note.
    let mut killed = begin(&["import", &file], &url(&to));
    wait_for(&notes);
    killed.crash();
    // The server, in the middle of the rest: all of it is sent again, but for what is noted.
    let first = fs::read(&notes).unwrap();
    let mut failing = begin(&["import", &file], &url(&to));
    wait_for(&notes);
    to.kill();
    failing.crash();
    let to = on();
    let noted: Value = serde_json::from_slice(&first).unwrap();
    assert!(noted["imported"].as_u64().unwrap() > 0, "{noted}");
    let done = object(&output_of(&to, &["import", &file, "--json"]));
    assert_eq!(
        done["imported"].as_u64().unwrap() + done["existing"].as_u64().unwrap(),
        JOBS as u64
    );
    let again = path(folder.path(), "again.jsonl");
    output_of(&to, &["export", &again]);
    let numbers = |file: &str| {
        let mut numbers: Vec<u64> =
            jobs(file).into_values().map(|payload| payload["n"].as_u64().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(numbers(&again), (0..JOBS as u64).collect::<Vec<_>>());
}
