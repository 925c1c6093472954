//! Folders that earlier releases wrote: each is restored and served, and has what it had. They never
//! change; a new version of a format, or a new kind of event, adds one: see `tests/formats/make.py`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    fake_workq::{spindle, stderr},
    native::{object, output_of, served, url},
    serve::data,
};

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// The folders, by the versions of the formats in them.
fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(kept()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// The lines of an export, without the line about the export itself.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(object).filter(|line| line["type"] != "export").collect()
}

/// Whatever a server makes of a folder is what it had.
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
    let name = format!("log{log}-record{record}-backup{backup}-events{events}");
    assert!(
        kept().join(&name).is_dir(),
        "a format has a new version: crates/spindle/tests/formats/make.py target/debug/spindle \
         crates/spindle/tests/formats/{name}"
    );
}

#[test]
fn a_backup_of_every_format_is_restored_with_all_it_had() {
    for folder in folders() {
        let (_folder, data) = data();
        let backup = folder.join("backup");
        let output = spindle(&["restore", backup.to_str().unwrap(), &data]).output().unwrap();
        fs::remove_file(backup.join("lock")).ok();
        assert!(output.status.success(), "{}: {}", folder.display(), stderr(&output));
        has_it_all(&data, &folder);
    }
}

#[test]
fn a_data_folder_of_every_format_is_served_with_all_it_had() {
    for folder in folders() {
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
