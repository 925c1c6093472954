//! Checks what may be in the lock file: `deny.toml` against `cargo metadata`.
//!
//! `cargo deny` reads the same file and checks more (advisories); it runs too where it is
//! installed. This check needs nothing but Cargo, so every run of the tests makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::workspace::{call, root};

/// The part of `deny.toml` that this check enforces.
#[derive(Debug, Default)]
struct Policy {
    /// Licences that may be used, as SPDX names them, exceptions included.
    licences: BTreeSet<String>,
    /// Packages that may not be used.
    banned: BTreeSet<String>,
    /// `name@version` of packages that may be there beside another version of themselves.
    doubles: BTreeSet<String>,
    /// Repositories that packages may come from.
    repositories: BTreeSet<String>,
}

/// Fails with one line for each package that `deny.toml` does not allow.
pub fn check() -> Result<()> {
    let policy = Policy::read(&root().join("deny.toml"))?;
    let findings = policy.findings(&metadata()?)?;
    ensure!(findings.is_empty(), "deny.toml does not allow:\n{}", findings.join("\n"));
    let is_installed = Command::new("cargo-deny").arg("--version").output().is_ok();
    if is_installed {
        call("cargo-deny", &["--offline", "check", "bans", "licenses", "sources"])?;
    }
    Ok(())
}

/// All packages of the lock file that are used on Linux, the fuzz targets' left out.
/// What Cargo knows of the packages of the lock file.
pub fn metadata() -> Result<Value> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--all-features"];
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("what cargo metadata printed")
}

impl Policy {
    fn read(path: &Path) -> Result<Policy> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Policy::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Policy> {
        let table: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| -> Result<Vec<toml::Value>> {
            let found = table.get(section).and_then(|section| section.get(key));
            let list = found.and_then(toml::Value::as_array);
            list.cloned().with_context(|| format!("{section}.{key} is no list"))
        };
        let words = |list: Vec<toml::Value>| -> Result<BTreeSet<String>> {
            list.iter().map(|word| word_of(word).map(str::to_owned)).collect()
        };
        Ok(Policy {
            licences: words(list("licenses", "allow")?)?,
            banned: words(list("bans", "deny")?)?,
            doubles: words(list("bans", "skip")?)?,
            repositories: words(list("sources", "allow-git")?)?,
        })
    }

    fn findings(&self, metadata: &Value) -> Result<Vec<String>> {
        let packages = metadata["packages"].as_array().context("no packages")?;
        let used: BTreeSet<&str> = metadata["resolve"]["nodes"]
            .as_array()
            .context("nothing is resolved")?
            .iter()
            .filter_map(|node| node["id"].as_str())
            .collect();
        let mut findings = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in packages {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            if !used.contains(text("id")) {
                continue;
            }
            let (name, version) = (text("name"), text("version"));
            versions.entry(name).or_default().insert(version);
            let mut found = |what: String| findings.push(format!("{name} {version}: {what}"));
            if self.banned.contains(name) {
                found("it is banned".to_owned());
            }
            if let Some(source) = package["source"].as_str() {
                self.check_source(source).unwrap_or_else(|error| found(error.to_string()));
                self.check_licence(text("license"))
                    .unwrap_or_else(|error| found(error.to_string()));
            }
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                let is_own = package["source"].is_null();
                if is_own && dependency["req"] == "*" && dependency["path"].is_null() {
                    found(format!("it takes any version of {}", dependency["name"]));
                }
                if is_own && !dependency["registry"].is_null() {
                    found(format!("it takes {} from a registry of its own", dependency["name"]));
                }
            }
        }
        findings.extend(self.doubled(&versions));
        Ok(findings)
    }

    /// Packages that are there twice and not in `skip`, and packages in `skip` that are there once.
    fn doubled(&self, versions: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
        let mut findings = Vec::new();
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            let named = |version: &&&str| self.doubles.contains(&format!("{name}@{version}"));
            if versions.iter().filter(|version| !named(version)).count() > 1 {
                let all: Vec<&str> = versions.iter().copied().collect();
                findings.push(format!("{name}: there are several versions: {}", all.join(", ")));
            }
        }
        for double in &self.doubles {
            let (name, version) = double.split_once('@').unwrap_or((double, ""));
            if !versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(version)) {
                findings.push(format!("{double}: bans.skip names it, but there is only one"));
            }
        }
        findings
    }

    fn check_source(&self, source: &str) -> Result<()> {
        let is_registry = source.starts_with("registry+") || source.starts_with("sparse+");
        let is_allowed = self.repositories.iter().any(|repository| source.contains(repository));
        ensure!(is_registry || is_allowed, "it comes from {source}");
        Ok(())
    }

    fn check_licence(&self, licence: &str) -> Result<()> {
        if licence.is_empty() {
            bail!("it names no licence");
        }
        // Older packages write MIT/Apache-2.0.
        let mode = ParseMode { allow_slash_as_or_operator: true, ..ParseMode::STRICT };
        let expression = Expression::parse_mode(licence, mode)
            .map_err(|error| anyhow::anyhow!("its licence {licence}: {}", error.reason))?;
        let is_met = expression.evaluate(|needed| self.licences.contains(&needed.to_string()));
        ensure!(is_met, "its licence is {licence}");
        Ok(())
    }
}

/// An entry of a list: a word, or a table that names a package.
fn word_of(entry: &toml::Value) -> Result<&str> {
    let named = entry.as_str().or_else(|| entry.get("crate").and_then(toml::Value::as_str));
    named.with_context(|| format!("{entry} names nothing"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const POLICY: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0 WITH LLVM-exception"]
        [bans]
        deny = [{ crate = "bad", reason = "it is" }]
        skip = [{ crate = "twice@1.0.0", reason = "two need it" }]
        [sources]
        allow-git = []
    "#;

    /// What is found in a workspace of these packages: name, version, licence, source.
    fn found(packages: &[(&str, &str, &str, &str)]) -> Vec<String> {
        let twice =
            [("twice", "1.0.0", "MIT", "registry+x"), ("twice", "2.0.0", "MIT", "registry+x")];
        let package = |(name, version, license, source): &(&str, &str, &str, &str)| {
            json!({"id": format!("{name}@{version}"), "name": name, "version": version,
                   "license": license, "source": source, "dependencies": []})
        };
        let packages: Vec<Value> = packages.iter().chain(&twice).map(package).collect();
        let nodes: Vec<Value> = packages.iter().map(|p| json!({"id": p["id"]})).collect();
        let metadata = json!({"packages": packages, "resolve": {"nodes": nodes}});
        Policy::parse(POLICY).unwrap().findings(&metadata).unwrap()
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        let none: [String; 0] = [];
        assert_eq!(found(&[("a", "1.0.0", "MIT/Unlicense", "registry+x")]), none);
        assert_eq!(found(&[("a", "1.0.0", "Apache-2.0 WITH LLVM-exception", "sparse+x")]), none);
    }

    #[test]
    fn licences_sources_bans_and_doubles_are_found() {
        let one = |package| found(&[package]).join(";");
        assert_eq!(
            one(("a", "1.0.0", "GPL-3.0-only", "registry+x")),
            "a 1.0.0: its licence is GPL-3.0-only"
        );
        assert_eq!(
            one(("a", "1.0.0", "MIT AND Zlib", "registry+x")),
            "a 1.0.0: its licence is MIT AND Zlib"
        );
        assert_eq!(one(("a", "1.0.0", "", "registry+x")), "a 1.0.0: it names no licence");
        assert_eq!(one(("a", "1.0.0", "MIT", "git+ssh://x")), "a 1.0.0: it comes from git+ssh://x");
        assert_eq!(one(("bad", "1.0.0", "MIT", "registry+x")), "bad 1.0.0: it is banned");
        let third = one(("twice", "3.0.0", "MIT", "registry+x"));
        assert_eq!(third, "twice: there are several versions: 1.0.0, 2.0.0, 3.0.0");
    }

    #[test]
    fn a_double_that_is_gone_is_found() {
        let none: [(&str, &str, &str, &str); 0] = [];
        assert!(found(&none).is_empty());
        let metadata = json!({"packages": [], "resolve": {"nodes": []}});
        let findings = Policy::parse(POLICY).unwrap().findings(&metadata).unwrap();
        assert_eq!(findings, ["twice@1.0.0: bans.skip names it, but there is only one"]);
    }
}
