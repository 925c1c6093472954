//! The pages as text: how long their lines are, and where their links lead.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const WIDTH_MAX: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The pages of the project: those beside the README, and those in `docs/`.
fn pages() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut pages: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|is| is == "md"));
    assert!(pages.len() > 12, "{pages:?}");
    pages
}

/// The lines outside code, with their numbers.
fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let lines = page.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code
    });
    lines.map(|(index, line)| (index + 1, line)).collect()
}

/// What a link to a heading is called.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    prose(page).iter().filter(|(_, line)| line.starts_with('#')).map(|(_, h)| anchor(h)).collect()
}

/// Where the links of a page lead, those to other hosts left out.
fn links(page: &str) -> Vec<(usize, &str)> {
    let lines = prose(page).into_iter();
    let links = lines.flat_map(|(number, line)| {
        let ends = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        ends.map(move |(link, _)| (number, link))
    });
    links.filter(|(_, link)| !link.contains("://")).collect()
}

#[test]
fn lines_of_the_pages_are_not_too_long() {
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for (number, line) in prose(&page).iter().filter(|(_, line)| !line.starts_with('|')) {
            let width = line.chars().count();
            assert!(width <= WIDTH_MAX, "{}:{number} has {width} characters", path.display());
        }
    }
}

#[test]
fn links_of_the_pages_lead_somewhere() {
    let mut checked = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for (number, link) in links(&page) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            assert!(target.exists(), "{}:{number}: no file {link}", path.display());
            let is_there = heading.is_empty()
                || anchors(&fs::read_to_string(&target).unwrap()).contains(heading);
            assert!(is_there, "{}:{number}: no heading {link}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn code_is_no_prose_and_headings_are_called_as_hosts_call_them() {
    assert_eq!(prose("a\n```sh\nb\n```\nc"), [(1, "a"), (5, "c")]);
    assert_eq!(anchor("## Jobq's own clients"), "jobqs-own-clients");
    assert_eq!(anchor("### serve, config"), "serve-config");
    assert_eq!(links("[a](b.md#c) and [d](https://e) `[f]`\n"), [(1, "b.md#c")]);
}
