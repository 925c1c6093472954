//! Runs one step after the other, goes on after a failure, and hides none.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// A step that failed.
struct Failed {
    name: String,
    error: String,
}

/// What was run and how it went.
#[derive(Default)]
pub struct Steps {
    passed: u32,
    failed: Vec<Failed>,
    skipped: Vec<String>,
}

impl Steps {
    /// Runs a step and says how long it took. True when it passed.
    pub fn run(&mut self, name: impl Into<String>, step: impl FnOnce() -> Result<()>) -> bool {
        let name = name.into();
        eprintln!("==> {name}");
        let start = Instant::now();
        let outcome = step();
        self.note(name, start.elapsed(), outcome)
    }

    /// Notes a step that has run, and how long it took. True when it passed.
    pub fn note(&mut self, name: String, took: Duration, outcome: Result<()>) -> bool {
        let took_s = took.as_secs_f64();
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("==> {name}: passed in {took_s:.1} s");
                true
            }
            Err(e) => {
                let error = format!("{e:#}");
                println!("==> {name}: FAILED in {took_s:.1} s\n{error}");
                self.failed.push(Failed { name, error });
                false
            }
        }
    }

    /// Leaves a step out and says why, here and in the summary.
    pub fn skip(&mut self, name: impl Into<String>, reason: &str) {
        let name = name.into();
        println!("==> {name}: skipped: {reason}");
        self.skipped.push(name);
    }

    /// What failed, once more, and the summary, alone on its line; an error when a step failed.
    pub fn finish(self) -> Result<()> {
        for Failed { name, error } in &self.failed {
            println!("==> {name} failed:\n{error}");
        }
        println!("{}", self.summary());
        if !self.failed.is_empty() {
            let names: Vec<_> = self.failed.iter().map(|failed| failed.name.as_str()).collect();
            bail!("failed: {}", names.join(", "));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let mut summary = format!("{} passed, {} failed", self.passed, self.failed.len());
        if !self.skipped.is_empty() {
            summary += &format!(", {} skipped ({})", self.skipped.len(), self.skipped.join(", "));
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_counted_and_fails_the_whole() {
        let mut steps = Steps::default();
        assert!(steps.run("one", || Ok(())));
        assert!(!steps.run("two", || bail!("broken")));
        assert!(steps.run("three", || Ok(())));
        assert_eq!(steps.summary(), "2 passed, 1 failed");
        steps.skip("four", "not here");
        assert_eq!(steps.summary(), "2 passed, 1 failed, 1 skipped (four)");
        assert_eq!(steps.finish().unwrap_err().to_string(), "failed: two");
    }
}
