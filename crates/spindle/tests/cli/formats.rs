//! Folders that earlier releases wrote: each is restored and served, and has what it had. They never
//! change; a new version of a format, or a new kind of event, adds one: see `tests/formats/make.py`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spindle_history::{Book, Range};
use tempfile::TempDir;

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{object, output_of, served, url},
    serve::data,
};

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// The folders that have this inside, by the versions of the formats in them.
fn folders_with(inside: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(kept()).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<PathBuf> = entries.filter(|path| path.join(inside).is_dir()).collect();
    assert!(!found.is_empty(), "none has {inside}");
    found
}

/// A copy of a data folder that was kept, and the folder to remove.
fn data_of(folder: &Path) -> (TempDir, String) {
    let (around, data) = data();
    fs::create_dir(&data).unwrap();
    for file in fs::read_dir(folder.join("data")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), Path::new(&data).join(file.file_name())).unwrap();
    }
    (around, data)
}

/// The lines of an export, without the line about the export itself.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(object).filter(|line| line["type"] != "export").collect()
}

/// Checks that a server has everything from a folder that the kept export has.
fn has_it_all(data: &str, kept: &Path) {
    let server = served(&["--data", data]);
    let found = output_of(&server, &["export", "-", "--all"]);
    let expected = fs::read_to_string(kept.join("export.jsonl")).unwrap();
    let (found, expected) = (lines(&found), lines(&expected));
    assert!(expected.len() > 10);
    assert_eq!(found, expected);
    // The first folder has none.
    let Ok(answers) = fs::read_to_string(kept.join("answers.json")) else { return };
    for (path, answer) in object(&answers).as_object().unwrap() {
        let response = ureq::get(format!("{}{path}", url(&server))).call();
        let found = response.unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(object(&found), *answer, "{path}");
    }
}

#[test]
fn every_format_there_is_has_a_folder() {
    let (log, record) = (spindle_log::copy::FORMAT, spindle_engine::record::VERSION);
    let (backup, events) = (spindle_backup::MANIFEST_FORMAT, spindle_core::Event::KINDS);
    let (bounds, history) = (spindle_log::BOUNDS_FORMAT, spindle_history::FILE_FORMAT);
    for name in [
        format!("log{log}-record{record}-backup{backup}-events{events}"),
        format!("log{log}-record{record}-bounds{bounds}-history{history}"),
    ] {
        assert!(
            kept().join(&name).is_dir(),
            "a format has a new version: crates/spindle/tests/formats/make.py target/debug/spindle \
             crates/spindle/tests/formats/{name}"
        );
    }
}

#[test]
fn a_backup_of_every_format_is_restored_with_all_it_had() {
    for folder in folders_with("backup") {
        let (_folder, data) = data();
        let backup = folder.join("backup");
        let output = spindle(&["restore", backup.to_str().unwrap(), &data]).output().unwrap();
        fs::remove_file(backup.join("lock")).ok();
        assert!(output.status.success(), "{}: {}", folder.display(), stderr(&output));
        has_it_all(&data, &folder);
    }
}

#[test]
fn segments_of_every_format_are_served_with_all_they_had() {
    for folder in folders_with("backup") {
        let (_folder, data) = data();
        fs::create_dir(&data).unwrap();
        for copy in fs::read_dir(folder.join("backup")).unwrap() {
            let copy = copy.unwrap().path();
            if copy.extension().is_some_and(|is| is == "copy") {
                let name = copy.with_extension("segment");
                fs::copy(&copy, Path::new(&data).join(name.file_name().unwrap())).unwrap();
            }
        }
        has_it_all(&data, &folder);
    }
}

#[test]
fn a_data_folder_of_every_format_is_served_with_its_bounds_and_its_history() {
    for folder in folders_with("data") {
        let (_folder, data) = data_of(&folder);
        let is_read = |data: &str| !Path::new(data).join("history.unreadable").exists();
        has_it_all(&data, &folder);
        assert!(is_read(&data), "{}", folder.display());
    }
}

/// The kept file says where the log must end, because these folders' servers ended in order.
#[test]
fn a_data_folder_of_every_format_is_refused_without_its_newest_segment() {
    for folder in folders_with("data") {
        let (_folder, data) = data_of(&folder);
        let files = fs::read_dir(&data).unwrap().map(|file| file.unwrap().path());
        let mut segments: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|is| is == "segment")).collect();
        segments.sort();
        assert!(segments.len() > 1, "{segments:?}");
        fs::remove_file(segments.pop().unwrap()).unwrap();
        let output = spindle(&["verify", "--json", &data]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let report = object(&stdout(&output));
        let reason = "the newest segment is missing";
        assert_eq!(report["damage"]["reason"], reason, "{report}");
    }
}

/// The history's day is long over, so no chart shows it any more, and the test reads the file itself.
#[test]
fn a_history_of_every_format_has_the_points_it_had() {
    /// What the file is, the version of its format and a checksum.
    const HEAD_BYTES: usize = 16;
    for folder in folders_with("data") {
        let bytes = fs::read(folder.join("data/history")).unwrap();
        let book = Book::decode(&bytes[HEAD_BYTES..]).unwrap();
        let export = fs::read_to_string(folder.join("export.jsonl")).unwrap();
        let taken_at = object(export.lines().next().unwrap())["taken_at"].clone();
        let taken_at: jiff::Timestamp = taken_at.as_str().unwrap().parse().unwrap();
        let now_ms = u64::try_from(taken_at.as_millisecond()).unwrap() + 60_000;
        let points = book.server(Range::Day, now_ms, 288).points;
        let submitted: u32 = points.iter().map(|(_, point)| point.submitted).sum();
        assert!(submitted >= 40, "{points:?}");
    }
}

#[test]
fn an_export_of_every_format_is_imported() {
    for folder in [folders_with("backup"), folders_with("data")].concat() {
        let (around, _) = data();
        let file = around.path().join("export.jsonl");
        fs::copy(folder.join("export.jsonl"), &file).unwrap();
        let to = served(&["--memory"]);
        let done = output_of(&to, &["import", "--json", file.to_str().unwrap()]);
        let done = object(&done);
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<Value> = text.lines().map(object).collect();
        let unfinished = |line: &&Value| line["type"] == "job" && line.get("finished_at").is_none();
        let unfinished = lines.iter().filter(unfinished).count() as u64;
        let count = |name: &str| done[name].as_u64().unwrap();
        let context = format!("{}: {done}", folder.display());
        assert_eq!(count("imported") + count("expired"), unfinished, "{context}");
        assert!(count("imported") > 0 && count("queues") > 0, "{context}");
    }
}
