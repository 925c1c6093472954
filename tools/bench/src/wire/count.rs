//! Asks the server itself how many jobs wait in a queue.

use super::Wire;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Asks a server how many jobs of a queue wait.
pub(crate) fn waiting_jobs(
    wire: Wire,
    address: SocketAddr,
    token: Option<&str>,
    queue: &str,
) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    if let Some(token) = token {
        // The answer to it is skipped.
        stream.write_all(format!("auth {token}\r\n").as_bytes())?;
    }
    stream.write_all(question(wire, queue).as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if let Some(count) = read_line(wire, queue, &line)
            .with_context(|| format!("asked how many jobs wait in {queue}, it said {line:?}"))?
        {
            return Ok(count);
        }
    }
    bail!("asked how many jobs wait in {queue}, it did not say a number")
}

fn question(wire: Wire, queue: &str) -> String {
    match wire {
        Wire::Workq => format!("inspect queue {queue}\r\n"),
        Wire::Beanstalkd => format!("stats-tube {queue}\r\n"),
        Wire::Gearman => "status\n".to_owned(),
        Wire::Api | Wire::Jobq => format!(
            "GET /api/v1/queues/{queue} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ),
    }
}

/// The number, if it is in this line of the answer.
fn read_line(wire: Wire, queue: &str, line: &str) -> Result<Option<u64>> {
    let number = match wire {
        Wire::Workq => {
            // A queue without jobs may be gone.
            if line == "-NOT-FOUND" {
                return Ok(Some(0));
            }
            ensure!(!line.starts_with('-'), "the question was refused");
            line.strip_prefix("ready-len ")
        }
        Wire::Beanstalkd => {
            if line == "NOT_FOUND" {
                return Ok(Some(0));
            }
            line.strip_prefix("current-jobs-ready: ")
        }
        Wire::Gearman => {
            if line == "." {
                return Ok(Some(0));
            }
            line.strip_prefix(queue).and_then(|rest| rest.strip_prefix('\t')?.split('\t').next())
        }
        Wire::Api | Wire::Jobq => {
            if !line.starts_with('{') {
                return Ok(None);
            }
            let jobs = &serde_json::from_str::<Value>(line)?["jobs"];
            let count = |state: &str| jobs[state].as_u64().context("no number of jobs");
            // Jobs of Jobq are parked until somebody changes their state.
            return Ok(Some(count("ready")? + count("parked")?));
        }
    };
    Ok(number.map(str::parse).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first number that a line of the answer has.
    #[track_caller]
    fn check(wire: Wire, answer: &str, expected: Option<u64>) {
        let found = answer.lines().find_map(|line| read_line(wire, "q", line).transpose());
        assert_eq!(found.transpose().ok().flatten(), expected, "{answer}");
    }

    #[test]
    fn the_number_of_waiting_jobs_is_read() {
        check(Wire::Workq, "+OK 1\r\nq 6\r\nready-len 17\r\n", Some(17));
        check(Wire::Workq, "-NOT-FOUND\r\n", Some(0));
        check(Wire::Workq, "-CLIENT-ERROR Invalid name\r\nready-len 3\r\n", None);
        check(Wire::Beanstalkd, "OK 9\r\n---\nname: q\ncurrent-jobs-ready: 4\n", Some(4));
        check(Wire::Beanstalkd, "NOT_FOUND\r\n", Some(0));
        check(Wire::Gearman, "qq\t3\t0\t1\nq\t5\t0\t1\n.\n", Some(5));
        check(Wire::Gearman, ".\n", Some(0));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        check(Wire::Api, &format!("{head}{{\"jobs\":{{\"ready\":2,\"parked\":1}}}}"), Some(3));
        check(Wire::Api, "HTTP/1.1 404 Not Found\r\n\r\n{\"status\":404}", None);
    }
}
