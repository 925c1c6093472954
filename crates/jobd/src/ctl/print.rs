//! Answers as a person reads them.

use std::fmt::Write;

use indexmap::IndexMap;
use jiff::Timestamp;
use serde_json::{Value, value::RawValue};
use spindle_jobd_master::{
    MasterStatus, WorkerEntry,
    manual::ManualResults,
    memory::MemoryUsage,
    worker_status::{TargetStatus, Unfinished, WorkerStatus},
};

use super::{code::Code, command::Show, grid::Grid};
use crate::job_result::JobResult;

/// An answer as text, and the exit code it means.
pub(super) fn shown(show: Show, answer: &RawValue) -> Result<(String, Code), serde_json::Error> {
    let json = answer.get();
    let text = match show {
        Show::Text => match serde_json::from_str(json)? {
            Value::String(text) => format!("{text}\n"),
            other => format!("{other}\n"),
        },
        Show::Targets => {
            let status: WorkerStatus = serde_json::from_str(json)?;
            targets(&status.targets).to_string()
        }
        Show::Workers => workers(&serde_json::from_str::<MasterStatus>(json)?.workers).to_string(),
        Show::Memory => memory_of_either(json)?,
        Show::WorkerStatus => worker_status(&serde_json::from_str(json)?),
        Show::MasterStatus => master_status(&serde_json::from_str(json)?),
        Show::Results => return results(&serde_json::from_str(json)?),
        Show::Signals => signals(&serde_json::from_str(json)?),
    };
    Ok((text, Code::Ok))
}

/// What the exit code is when the answer is printed as it came.
pub(super) fn code_of(show: Show, answer: &RawValue) -> Result<Code, serde_json::Error> {
    match show {
        Show::Results => shown(show, answer).map(|(_, code)| code),
        _ => Ok(Code::Ok),
    }
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn targets(targets: &IndexMap<String, TargetStatus>) -> Grid {
    let mut grid = Grid::new(&["TARGET", "CONCURRENCY", "LENGTH", "PAUSED"]);
    for (name, target) in targets {
        grid.row([
            name.clone(),
            target.concurrency.to_string(),
            target.length.to_string(),
            yes_no(target.paused),
        ]);
    }
    grid
}

fn workers(workers: &[WorkerEntry]) -> Grid {
    let mut grid = Grid::new(&["WORKER", "TARGETS", "CONCURRENCY", "LENGTH", "PAUSED"]);
    for worker in workers {
        let head = format!("{}\n({})", worker.name, worker.remote_addr);
        let Some(status) = status_of(worker) else {
            // It did not answer; what it registered is known all the same.
            let unknown = || vec!["?"; worker.targets.len()].join("\n");
            grid.row([head, worker.targets.join("\n"), unknown(), unknown(), unknown()]);
            continue;
        };
        let column = |cell: fn(&TargetStatus) -> String| {
            status.targets.values().map(cell).collect::<Vec<_>>().join("\n")
        };
        grid.row([
            head,
            status.targets.keys().cloned().collect::<Vec<_>>().join("\n"),
            column(|target| target.concurrency.to_string()),
            column(|target| target.length.to_string()),
            column(|target| yes_no(target.paused)),
        ]);
    }
    grid
}

fn memory(usage: &MemoryUsage, pending: Option<usize>) -> Grid {
    let mut grid = Grid::new(&["WHAT", "VALUE"]);
    for (what, value) in [
        ("rss", usage.rss),
        ("heapTotal", usage.heap_total),
        ("heapUsed", usage.heap_used),
        ("external", usage.external),
        ("arrayBuffers", usage.array_buffers),
    ] {
        grid.row([what.to_owned(), value.to_string()]);
    }
    if let Some(pending) = pending {
        grid.row(["pendingJobPromises".to_owned(), pending.to_string()]);
    }
    grid
}

fn memory_of_either(json: &str) -> Result<String, serde_json::Error> {
    if let Ok(status) = serde_json::from_str::<WorkerStatus>(json) {
        return Ok(memory(&status.memory_usage, Some(status.job_promises_count)).to_string());
    }
    Ok(memory(&serde_json::from_str::<MasterStatus>(json)?.memory_usage, None).to_string())
}

fn worker_status(status: &WorkerStatus) -> String {
    let mut text = targets(&status.targets).to_string();
    let usage = memory(&status.memory_usage, Some(status.job_promises_count));
    let _ = write!(text, "\n{usage}");
    if let Some(trouble) = &status.table_trouble {
        let _ = writeln!(text, "\nThe job table: {trouble}");
    }
    if !status.unfinished.is_empty() {
        let _ = write!(text, "\n{}", unfinished(&status.unfinished));
    }
    text
}

fn unfinished(rows: &IndexMap<i64, Unfinished>) -> String {
    let mut grid = Grid::new(&["JOB", "TARGET", "SINCE", "PROCESS"]);
    for (id, row) in rows {
        let since = row.since.and_then(|since| Timestamp::from_second(since).ok());
        let process = match (row.pid, row.alive) {
            (Some(pid), Some(true)) => format!("{pid}, still there"),
            (Some(pid), _) => format!("{pid}, gone"),
            (None, _) => "unknown".to_owned(),
        };
        grid.row([
            id.to_string(),
            row.target.clone(),
            since.map(|since| since.to_string()).unwrap_or_default(),
            process,
        ]);
    }
    format!(
        "Begun before this worker was killed, and still running by the table. See how far each \
         came, then\nset its status to waiting (to run it again) or done, and its sig to NULL:\n\
         {grid}"
    )
}

fn master_status(status: &MasterStatus) -> String {
    let mut text = format!("{}\n{}", workers(&status.workers), memory(&status.memory_usage, None));
    for worker in &status.workers {
        let Some(status) = status_of(worker) else { continue };
        if !status.unfinished.is_empty() {
            let _ = write!(text, "\n{}: {}", worker.name, unfinished(&status.unfinished));
        }
    }
    text
}

/// What a worker answered to its master, if it did.
fn status_of(worker: &WorkerEntry) -> Option<WorkerStatus> {
    worker.worker_status.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok())
}

fn results(results: &ManualResults) -> Result<(String, Code), serde_json::Error> {
    let mut jobs = Vec::with_capacity(results.jobs.len());
    for (id, raw) in &results.jobs {
        jobs.push((*id, serde_json::from_str::<JobResult>(raw.get())?));
    }
    let mut grid = Grid::new(&["JOB", "RESULT", "CODE", "SIGNAL", "ERROR"]);
    let mut code = if results.errors.is_empty() { Code::Ok } else { Code::JobFailed };
    let mut outputs = String::new();
    for (id, job) in &jobs {
        if job.result != JobResult::word(true) {
            code = Code::JobFailed;
        }
        grid.row([
            id.to_string(),
            job.result.clone(),
            job.code.map(|code| code.to_string()).unwrap_or_default(),
            job.signal.clone().unwrap_or_default(),
            String::new(),
        ]);
        for (name, output, is_cut) in
            [("stdout", &job.stdout, job.stdout_cut), ("stderr", &job.stderr, job.stderr_cut)]
        {
            if !output.is_empty() {
                let cut = if is_cut { " (cut at max_output_buffer)" } else { "" };
                let _ = write!(outputs, "\njob {id} {name}{cut}:\n{output}");
                if !output.ends_with('\n') {
                    outputs.push('\n');
                }
            }
        }
    }
    for (id, error) in &results.errors {
        grid.row([id.to_string(), String::new(), String::new(), String::new(), error.clone()]);
    }
    Ok((format!("{grid}{outputs}"), code))
}

fn signals(answer: &IndexMap<String, Value>) -> String {
    let mut grid = Grid::new(&["JOB", "SENT"]);
    for (id, sent) in answer {
        match sent {
            Value::Bool(sent) => grid.row([id.clone(), yes_no(*sent)]),
            Value::Object(errors) => {
                for (id, error) in errors {
                    grid.row([id.clone(), error.as_str().unwrap_or_default().to_owned()]);
                }
            }
            _ => {}
        }
    }
    grid.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(show: Show, json: &str) -> (String, Code) {
        shown(show, &RawValue::from_string(json.to_owned()).unwrap()).unwrap()
    }

    const MEMORY: &str = r#""memoryUsage":{"rss":73584640,"heapTotal":23584768,"heapUsed":18133880,"external":6081683,"arrayBuffers":4043136}"#;

    #[test]
    fn a_workers_targets_and_memory_look_as_in_the_original() {
        let json = format!(
            r#"{{"targets":{{"low":{{"paused":true,"concurrency":1,"length":0}},"1/high":{{"paused":false,"concurrency":10,"length":0}}}},"jobPromisesCount":0,{MEMORY}}}"#
        );
        let (targets, code) = text(Show::Targets, &json);
        assert_eq!(
            targets,
            "TARGET | CONCURRENCY | LENGTH | PAUSED\n\
             ------ | ----------- | ------ | ------\n\
             low    | 1           | 0      | yes   \n\
             1/high | 10          | 0      | no    \n"
        );
        assert_eq!(code, Code::Ok);
        assert_eq!(
            text(Show::Memory, &json).0,
            "WHAT               | VALUE   \n\
             ------------------ | --------\n\
             rss                | 73584640\n\
             heapTotal          | 23584768\n\
             heapUsed           | 18133880\n\
             external           | 6081683 \n\
             arrayBuffers       | 4043136 \n\
             pendingJobPromises | 0       \n"
        );
    }

    #[test]
    fn a_masters_workers_and_memory_look_as_in_the_original() {
        let target = r#"{"paused":false,"concurrency":3,"length":0}"#;
        let status = format!(
            r#"{{"targets":{{"low":{target},"normal":{target}}},"jobPromisesCount":0,{MEMORY}}}"#
        );
        let entry = |name: &str, status: &str| {
            format!(
                r#"{{"remoteAddr":"127.0.0.1","remotePort":5,"targets":["low","normal"],"name":"{name}","workerStatus":{status}}}"#
            )
        };
        let json =
            format!(r#"{{"workers":[{},{}],{MEMORY}}}"#, entry("w1", &status), entry("w2", "null"));
        assert_eq!(
            text(Show::Workers, &json).0,
            "WORKER      | TARGETS | CONCURRENCY | LENGTH | PAUSED\n\
             ----------- | ------- | ----------- | ------ | ------\n\
             w1          | low     | 3           | 0      | no    \n\
             (127.0.0.1) | normal  | 3           | 0      | no    \n\
             w2          | low     | ?           | ?      | ?     \n\
             (127.0.0.1) | normal  | ?           | ?      | ?     \n"
        );
        assert!(text(Show::Memory, &json).0.ends_with("arrayBuffers | 4043136 \n"));
    }

    #[test]
    fn results_show_outputs_and_a_failed_job_is_an_exit_code() {
        let ok = r#"{"result":"ok","code":0,"signal":null,"stdout":"a\n","stderr":""}"#;
        let json = format!(r#"{{"jobs":{{"1":{ok}}}}}"#);
        let (shown, code) = text(Show::Results, &json);
        assert!(shown.ends_with("\njob 1 stdout:\na\n"), "{shown}");
        assert_eq!(code, Code::Ok);
        let (shown, code) = text(Show::Results, r#"{"errors":{"7":"job 7 not found"}}"#);
        assert!(shown.contains("job 7 not found"), "{shown}");
        assert_eq!(code, Code::JobFailed);
        let failed = ok.replace("\"ok\"", "\"fail\"");
        assert_eq!(
            text(Show::Results, &format!(r#"{{"jobs":{{"1":{failed}}}}}"#)).1,
            Code::JobFailed
        );
    }

    #[test]
    fn what_needs_a_person_is_in_the_status() {
        let json = format!(
            r#"{{"targets":{{}},"jobPromisesCount":0,{MEMORY},"unfinished":{{"5":{{"target":"low","since":1700000000,"pid":12,"alive":true}},"6":{{"target":"low","pid":13,"alive":false}},"7":{{"target":"low"}}}},"tableTrouble":"gone"}}"#
        );
        let shown = text(Show::WorkerStatus, &json).0;
        assert!(shown.contains("The job table: gone\n"), "{shown}");
        let listed = "JOB | TARGET | SINCE                | PROCESS        \n\
                      --- | ------ | -------------------- | ---------------\n\
                      5   | low    | 2023-11-14T22:13:20Z | 12, still there\n\
                      6   | low    |                      | 13, gone       \n\
                      7   | low    |                      | unknown        \n";
        assert!(shown.ends_with(listed), "{shown}");
        let entry = r#""remoteAddr":"127.0.0.1","remotePort":5,"targets":["low"],"name":"w1""#;
        let json = format!(r#"{{"workers":[{{{entry},"workerStatus":{json}}}],{MEMORY}}}"#);
        let shown = text(Show::MasterStatus, &json).0;
        assert!(shown.contains("\nw1: Begun before this worker was killed"), "{shown}");
        assert!(shown.ends_with(listed), "{shown}");
    }
}
