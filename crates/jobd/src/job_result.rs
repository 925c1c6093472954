//! How a job ended, in the form that clients and the Spindle server get.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_jobd_master::wire::raw;

use crate::{launcher::Ending, table::Finish};

/// How one job ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// `ok` or `fail`.
    pub result: String,
    /// The exit code, if it has one.
    pub code: Option<i64>,
    /// The signal that ended it, if one did.
    pub signal: Option<String>,
    /// What it printed on standard output.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
    /// Whether `stdout` was cut at `max_output_buffer`. The original has no such field; it is left
    /// out when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdout_cut: bool,
    /// Whether `stderr` was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stderr_cut: bool,
}

impl JobResult {
    /// The word for success or failure, in the table and on the wire.
    pub const fn word(is_success: bool) -> &'static str {
        if is_success { "ok" } else { "fail" }
    }
}

impl From<&Finish> for JobResult {
    fn from(finish: &Finish) -> Self {
        Self {
            result: Self::word(finish.success).to_owned(),
            code: finish.code.map(i64::from),
            signal: finish.signal.clone(),
            stdout: finish.stdout.clone(),
            stderr: finish.stderr.clone(),
            ..Self::default()
        }
    }
}

/// The wire's text for how a process ended.
pub fn result_of(ending: &Ending) -> Box<RawValue> {
    raw(&JobResult {
        result: JobResult::word(ending.is_success()).to_owned(),
        code: ending.code.map(i64::from),
        signal: ending.signal.clone(),
        stdout: ending.stdout.text.clone(),
        stderr: ending.stderr.text.clone(),
        stdout_cut: ending.stdout.is_cut,
        stderr_cut: ending.stderr.is_cut,
    })
}

#[cfg(test)]
mod tests {
    use spindle_jobd_master::manual::ManualResults;

    use super::*;

    #[test]
    fn empty_parts_are_left_out_and_ids_are_in_order() {
        let mut results = ManualResults::default();
        assert_eq!(raw(&results).get(), "{}");
        for id in [999, 15] {
            results.errors.insert(id, format!("job {id} not found"));
        }
        let expected = r#"{"errors":{"15":"job 15 not found","999":"job 999 not found"}}"#;
        assert_eq!(raw(&results).get(), expected);
        results.jobs.insert(1, result_of(&Ending { code: Some(0), ..Ending::default() }));
        let job = r#"{"result":"ok","code":0,"signal":null,"stdout":"","stderr":""}"#;
        assert!(raw(&results).get().starts_with(&format!("{{\"jobs\":{{\"1\":{job}}},\"errors\"")));
        let back: ManualResults = serde_json::from_str(raw(&results).get()).unwrap();
        assert_eq!(back.jobs[&1].get(), job);
    }
}
