//! A NATS server that is newer than the one of the machine's Debian: what the log on JetStream
//! needs (`sync_interval: always`) came with 2.10. The package of a newer Debian is unpacked into
//! the target folder, and not installed: nothing else on the machine changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{call, target};

/// The tests know this folder, and where the package has its program.
const FOLDER: &str = "tools/nats";
const PROGRAM: &str = "usr/sbin/nats-server";
const PACKAGE: &str = "nats-server";
/// The first Debian whose server is new enough.
const SUITE: &str = "trixie";
const SOURCES: &str = "/etc/apt";

/// Unpacks the server, if it is missing, and says which version it is.
pub fn install_missing() -> Result<()> {
    let folder = target()?.join(FOLDER);
    let program = folder.join(PROGRAM);
    if !program.exists() {
        fs::create_dir_all(&folder)?;
        let (package, unpacked) = (download(&folder)?, folder.join("unpacked"));
        call("dpkg-deb", &["-x", &package.to_string_lossy(), &unpacked.to_string_lossy()])?;
        ensure!(unpacked.join(PROGRAM).exists(), "the package {PACKAGE} brings no {PROGRAM}");
        // In one step, so that an interrupted run leaves no incomplete program that the next one
        // would use.
        let place = folder.join("usr");
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::rename(unpacked.join("usr"), place)?;
    }
    call(program, &["--version"])
}

/// Fetches the package with an apt whose lists and sources are in the folder.
fn download(folder: &Path) -> Result<PathBuf> {
    let place = |name: &str| folder.join(name).to_string_lossy().into_owned();
    for needed in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(needed))?;
    }
    fs::write(folder.join("nats.sources"), source()?)?;
    let settings = [
        format!("Dir::Etc::SourceList={}", place("nats.sources")),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", place("lists")),
        format!("Dir::Cache={}", place("cache")),
        // Root may write to the target folder, and the user that apt would change to may not.
        "APT::Sandbox::User=root".to_owned(),
        // Only the index of packages is fetched from the archive.
        "Acquire::Languages=none".to_owned(),
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false".to_owned(),
    ];
    let mut words: Vec<&str> = vec!["--quiet"];
    words.extend(settings.iter().flat_map(|setting| ["--option", setting]));
    for step in [&["update"][..], &["download", PACKAGE]] {
        let status =
            Command::new("apt-get").args(&words).args(step).current_dir(folder).status()?;
        ensure!(status.success(), "apt-get {}: {status}", step.join(" "));
    }
    let is_package = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "deb");
    let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|file| file.path());
    files.filter(is_package).max().context("apt has brought no package")
}

/// The newer suite on the mirror that this machine uses, with the keys that the machine trusts.
fn source() -> Result<String> {
    let mut files = vec![Path::new(SOURCES).join("sources.list")];
    let more = fs::read_dir(Path::new(SOURCES).join("sources.list.d")).into_iter().flatten();
    files.extend(more.filter_map(Result::ok).map(|file| file.path()));
    files.sort();
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    let found = texts.flat_map(|text| sources_in(&text)).next();
    let (mirror, keys) = found.context("no mirror of Debian is in apt's sources")?;
    Ok(format!("Types: deb\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\n{keys}"))
}

/// Mirrors of Debian's main archive in a file of apt's sources, of either format, each with the
/// line of the newer format that names the trusted keys.
fn sources_in(text: &str) -> Vec<(String, String)> {
    let is_archive = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    let mut found = Vec::new();
    for paragraph in text.split("\n\n") {
        let field = |name: &str| {
            paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let uris = field("URIs").unwrap_or_default().split_whitespace();
        let keys = field("Signed-By").map(|keys| format!("Signed-By: {keys}\n"));
        found.extend(
            uris.filter(|uri| is_archive(uri))
                .map(|uri| (uri.to_owned(), keys.clone().unwrap_or_default())),
        );
    }
    for line in text.lines().filter(|line| line.starts_with("deb ")) {
        let uri = line.split_whitespace().find(|word| word.contains("://") && is_archive(word));
        let keys =
            line.split_once("signed-by=").and_then(|(_, rest)| rest.split([']', ' ']).next());
        let keys = keys.map(|keys| format!("Signed-By: {keys}\n")).unwrap_or_default();
        found.extend(uri.map(|uri| (uri.to_owned(), keys)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_both_formats() {
        let new = "Types: deb\nURIs: http://mirror.example/debian-security\nSuites: a-security\n\n\
                   Types: deb\n# by hand\nURIs: http://mirror.example/debian/\nSuites: a\n\
                   Components: main\nSigned-By: /usr/share/keyrings/debian.gpg\n";
        let keys = "Signed-By: /usr/share/keyrings/debian.gpg\n";
        assert_eq!(
            sources_in(new),
            [("http://mirror.example/debian/".to_owned(), keys.to_owned())]
        );
        let old = "deb-src http://mirror.example/debian a main\n\
                   deb [arch=amd64 signed-by=/etc/k.gpg] http://mirror.example/debian a main\n\
                   deb http://other.example/things a main\n";
        let keys = "Signed-By: /etc/k.gpg\n";
        assert_eq!(sources_in(old), [("http://mirror.example/debian".to_owned(), keys.to_owned())]);
        let plain = "deb http://mirror.example/debian a main\n";
        assert_eq!(sources_in(plain), [("http://mirror.example/debian".to_owned(), String::new())]);
    }
}
