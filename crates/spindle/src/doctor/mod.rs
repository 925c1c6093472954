//! `spindle doctor`: what is wrong with a server's settings, its folder, its disk and its machine,
//! and what to do about it. It changes nothing, and works beside a running server.
//!
//! - `settings`: the settings, and the files they name
//! - `folder`: the data folder, and what is in it
//! - `disk`: how much room there is, and how fast it syncs
//! - `machine`: limits, memory, the clock

mod disk;
mod folder;
mod machine;
mod settings;

use std::io;

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

use folder::Looked;

use crate::{
    cli::DoctorArgs,
    config, descriptors,
    exit::{self, Code},
    output::{Rows, print_all},
};

/// The advice where a start says itself what to do.
const NO_START: &str = "the server does not start";

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It may become bad, or is so by somebody's choice.
    Warning,
    /// The server will not start, will not hold what it promises, or will stop.
    Wrong,
}

/// What was looked at, and how it is.
#[derive(Debug, Serialize)]
pub struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Something is as it should be.
    pub fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.0.push(Finding { check, verdict: Verdict::Ok, found: found.into(), advice: None });
    }

    /// Something may become bad.
    pub fn warn(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(check, Verdict::Warning, found.into(), advice);
    }

    /// Something is wrong.
    pub fn wrong(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(check, Verdict::Wrong, found.into(), advice);
    }

    fn add(&mut self, check: &'static str, verdict: Verdict, found: String, advice: &str) {
        self.0.push(Finding { check, verdict, found, advice: Some(advice.to_owned()) });
    }
}

/// Looks at everything, and says what is wrong.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Code> {
    let mut findings = Findings::default();
    match config::resolve(&args.settings, std::env::vars_os()) {
        Ok(resolved) => {
            let config = &resolved.config;
            // A server raises it, too, and the log's files are opened here as there.
            let limits = getrlimit(Resource::RLIMIT_NOFILE).ok();
            descriptors::raise_limit();
            let (mut of_folder, mut looked) = (Findings::default(), Looked::default());
            if config.memory {
                let advice = "leave --memory out where jobs must outlive the server";
                of_folder.warn("folder", "the data is kept in memory only", advice);
            } else {
                looked = folder::check(config, &mut of_folder);
            }
            settings::check(&resolved, looked.is_live, &mut findings);
            machine::check(config, limits, looked.segments, &mut findings);
            findings.0.append(&mut of_folder.0);
            if !config.memory {
                let away_max = (!looked.is_live).then_some(config.away_max);
                machine::check_clock(looked.newest_ms, away_max, &mut findings);
                disk::check(config, &mut findings);
            }
        }
        Err(error) => {
            let advice = "mend it; the other checks need settings to begin with";
            findings.wrong("settings", exit::whole(&error.into()), advice);
        }
    }
    let is_wrong = findings.0.iter().any(|finding| finding.verdict == Verdict::Wrong);
    print_all(&findings.0, args.json, || rows(&findings))?;
    Ok(if is_wrong { Code::Error } else { Code::Ok })
}

fn rows(findings: &Findings) -> Rows {
    let mut rows = Rows::new(&["CHECK", "VERDICT", "FOUND", "WHAT TO DO"]);
    for Finding { check, verdict, found, advice } in &findings.0 {
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Wrong => "wrong",
        };
        let advice = advice.clone().unwrap_or_default();
        rows.add([(*check).to_owned(), verdict.to_owned(), found.clone(), advice]);
    }
    rows
}

/// What a system said, in a finding.
fn said(error: &io::Error) -> String {
    error.to_string()
}
