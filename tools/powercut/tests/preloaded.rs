//! Cuts the power of a real process and looks at what is left.
#![expect(clippy::unwrap_used, reason = "a test's own set-up")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().join("libspindle_powercut.so");
    assert!(path.is_file(), "{} was not built", path.display());
    path
}

struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    /// A visible folder that starts with these files, durable.
    fn with(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("data")).unwrap();
        for (name, text) in files {
            fs::write(root.path().join("data").join(name), text).unwrap();
        }
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// How often the report says that something happened.
    fn count(&self, what: &str) -> u64 {
        let report = fs::read_to_string(self.path("report")).unwrap();
        let of = |line: &str| line.strip_prefix(what)?.strip_prefix(' ')?.parse().ok();
        report.lines().find_map(of).unwrap()
    }

    fn writer(&self, steps: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_powercut-writer"))
            .args(steps)
            .current_dir(self.path("data"))
            .env("LD_PRELOAD", library())
            .env("SPINDLE_POWERCUT_DIR", self.path("data"))
            .env("SPINDLE_POWERCUT_SHADOW", self.path("shadow"))
            .env("SPINDLE_POWERCUT_REPORT", self.path("report"))
            .env("SPINDLE_POWERCUT_SETTLE", "1")
            .env("SPINDLE_POWERCUT_BROKEN", self.path("broken"))
            .env("SPINDLE_POWERCUT_UNWRITABLE", self.path("unwritable"))
            .env("SPINDLE_POWERCUT_NO_DESCRIPTORS", self.path("no-descriptors"))
            .env("SPINDLE_POWERCUT_FULL", self.path("full"))
            .env("SPINDLE_POWERCUT_CLOCK", self.path("clock"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs the steps, kills the process, returns what the disk has.
    fn after_cut(&self, steps: &[&str]) -> BTreeMap<String, String> {
        let mut child = self.writer(steps);
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        let mut errors = String::new();
        child.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
        child.wait().unwrap();
        assert_eq!(line, "done\n", "{errors}");
        contents(&self.path("shadow/tree"))
    }
}

fn contents(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                found.insert(name + "/", String::new());
                folders.push(path);
            } else {
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

fn check(files: &[(&str, &str)], steps: &[&str], expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
    assert_eq!(Folder::with(files).after_cut(steps), expected, "after {steps:?}");
}

#[test]
fn unsynced_bytes_are_lost_and_synced_ones_stay() {
    check(&[("a", "old")], &["at:a:0:new"], &[("a", "old")]);
    check(&[("a", "old")], &["at:a:0:new", "sync:a"], &[("a", "new")]);
    check(&[("a", "old")], &["append:a:+1", "sync:a", "append:a:+2"], &[("a", "old+1")]);
    check(&[("a", "old")], &["parts:a:one:two", "sync:a"], &[("a", "onetwo")]);
    check(&[("a", "old")], &["dsync:a:now"], &[("a", "now")]);
}

#[test]
fn a_failed_sync_loses_what_it_was_for_even_if_a_later_one_succeeds() {
    let broken = ["create:../broken:", "sync-fails:a"];
    let first = [&["at:a:0:new"][..], &broken].concat();
    check(&[("a", "old")], &first, &[("a", "old")]);
    let later = [&first[..], &["remove:../broken", "append:a:+2", "sync:a"]].concat();
    check(&[("a", "old")], &later, &[("a", "old+2")]);
}

#[test]
fn a_full_disk_takes_what_needs_no_room() {
    let full = ["create:../full:", "at:a:1:ew", "no-room:a:3:x", "no-room:b:0:x", "sync:a"];
    check(&[("a", "old")], &full, &[("a", "oew")]);
    let again = [&full[..], &["remove:../full", "at:a:3:x", "sync:a"]].concat();
    check(&[("a", "old")], &again, &[("a", "oewx")]);
}

#[test]
fn a_file_that_cannot_be_overwritten_keeps_what_it_has_and_grows() {
    let folder = Folder::with(&[("a", "old")]);
    let steps = ["create:../unwritable:", "unwritable:a:0:new", "at:a:3:er", "sync:a"];
    let kept = folder.after_cut(&steps);
    assert_eq!(kept, BTreeMap::from([("a".to_owned(), "older".to_owned())]));
    assert_eq!((folder.count("failed_writes"), folder.count("failed_syncs")), (1, 0));
}

#[test]
fn without_descriptors_nothing_is_opened() {
    let folder = Folder::with(&[("a", "old")]);
    let steps = ["create:../no-descriptors:", "no-descriptor:a", "remove:../no-descriptors"];
    folder.after_cut(&[&steps[..], &["at:a:0:new", "sync:a"]].concat());
    assert_eq!(folder.count("no_descriptor"), 2);
}

#[test]
fn the_wall_clock_is_as_far_off_as_the_file_says() {
    let folder = Folder::with(&[]);
    // Two hundred years: 1826, which no wall clock says by itself.
    fs::write(folder.path("clock"), (-6_311_390_400_i64).to_le_bytes()).unwrap();
    let output = folder.writer(&["before-1970"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sizes_are_durable_with_the_sync_only() {
    check(&[("a", "0123")], &["resize:a:2"], &[("a", "0123")]);
    check(&[("a", "0123")], &["resize:a:2", "sync:a"], &[("a", "01")]);
    check(&[("a", "0123")], &["resize:a:6", "sync:a"], &[("a", "0123\0\0")]);
    check(&[("a", "0123")], &["create:a:x"], &[("a", "0123")]);
}

#[test]
fn a_created_file_needs_both_its_bytes_and_its_name_synced() {
    check(&[], &["create:a:text", "sync:a"], &[]);
    check(&[], &["create:a:text", "sync:."], &[("a", "")]);
    check(&[], &["create:a:text", "sync:a", "sync:."], &[("a", "text")]);
}

#[test]
fn an_unlink_without_a_directory_sync_comes_back() {
    check(&[("a", "text")], &["remove:a"], &[("a", "text")]);
    check(&[("a", "text")], &["remove:a", "sync:."], &[]);
    check(&[], &["create:a:text", "remove:a", "sync:."], &[]);
}

#[test]
fn a_rename_without_a_directory_sync_has_not_happened() {
    let files = [("a", "new"), ("b", "old")];
    check(&files, &["rename:a:b"], &files);
    check(&files, &["rename:a:b", "sync:."], &[("b", "new")]);
    check(&[], &["create:t:1", "sync:t", "rename:t:f", "sync:."], &[("f", "1")]);
    check(&[], &["create:t:1", "rename:t:f", "sync:f", "sync:."], &[("f", "1")]);
    let replaced = ["remove:f", "create:f:1", "sync:f"];
    check(&[("f", "0")], &replaced, &[("f", "0")]);
    check(&[("f", "0")], &[&replaced[..], &["sync:."]].concat(), &[("f", "1")]);
}

#[test]
fn a_folder_without_a_durable_name_takes_its_files_along() {
    let made = ["mkdir:d", "create:d/a:text", "sync:d/a", "sync:d"];
    check(&[], &made, &[]);
    let named = [&made[..], &["sync:."]].concat();
    check(&[], &named, &[("d/", ""), ("d/a", "text")]);
    let moved = [&named[..], &["rename:d/a:a", "sync:d"]].concat();
    check(&[], &moved, &[("d/", ""), ("a", "text")]);
    // The new folder's sync takes along what the rename needs in the old one.
    let brought = [&named[..], &["create:x:1", "sync:x", "rename:x:d/b", "sync:d"]].concat();
    check(&[], &brought, &[("d/", ""), ("d/a", "text"), ("d/b", "1")]);
}

#[test]
fn after_a_regular_exit_the_shadow_equals_the_folder() {
    let folder = Folder::with(&[("a", "0123"), ("b", "4567")]);
    let steps = ["at:a:2:xyz", "create:c:new", "rename:b:d", "mkdir:e", "create:e/f:deep"];
    let mut child = folder.writer(&steps);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let visible = contents(&folder.path("data"));
    assert_eq!(visible["a"], "01xyz");
    assert_eq!(contents(&folder.path("shadow/tree")), visible);
    let report = fs::read_to_string(folder.path("report")).unwrap();
    assert!(report.contains("writes 00000000000000000003\n"), "{report}");
    assert!(report.contains("written_bytes 00000000000000000010\n"), "{report}");
}

#[test]
fn what_the_shadow_cannot_follow_ends_the_process() {
    for step in ["copy:a:b", "link:a:b"] {
        let folder = Folder::with(&[("a", "text")]);
        let output = folder.writer(&[step]).wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("not modelled"), "{step}: {errors}");
    }
}
