//! gearmand's text protocol: counts of its jobs, and which of them clients wait for.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Context, anyhow, bail};

use super::{ANSWER_TIME_MAX, PORT};
use crate::client::take_over::dial::{dial, resolve};

/// No line of the text protocol is longer: a function's name and numbers.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A connection that speaks the text protocol.
pub struct Admin {
    stream: BufReader<TcpStream>,
    pid: u64,
}

/// Jobs of a function.
pub struct Function {
    pub name: String,
    /// Those that workers have are counted too.
    pub total: u64,
    pub running: u64,
}

/// A job, as `show jobs` lists it.
pub struct Listed {
    pub handle: Vec<u8>,
    /// Clients wait for its result.
    pub is_foreground: bool,
}

impl Admin {
    /// Connects to HOST:PORT, or to the usual port of a host.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let stream = BufReader::new(dial(&resolve(address, PORT)?, ANSWER_TIME_MAX)?);
        let mut admin = Self { stream, pid: 0 };
        let answer = admin.ask_line("getpid").with_context(|| format!("asking {address}"))?;
        let Some(pid) = answer.strip_prefix("OK ").and_then(|pid| pid.parse().ok()) else {
            bail!("that is no gearmand at {address}: it says `{answer}`");
        };
        Ok(Self { pid, ..admin })
    }

    /// Where it is connected to.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.get_ref().peer_addr()
    }

    /// The process id of the server.
    pub fn pid(&self) -> u64 {
        self.pid
    }

    /// The functions, with the numbers of their jobs.
    pub fn functions(&mut self) -> anyhow::Result<Vec<Function>> {
        let lines = self.ask_lines("status")?;
        let functions = lines.iter().map(|line| {
            let (name, [total, running, _workers]) = counts_of(line)?;
            Ok(Function { name, total, running })
        });
        functions.collect()
    }

    /// How many jobs of each function wait with high, normal and low priority.
    pub fn priorities(&mut self) -> anyhow::Result<HashMap<String, [u64; 3]>> {
        let lines = self.ask_lines("prioritystatus")?;
        let counts = lines.iter().map(|line| {
            let (name, [high, normal, low, _workers]) = counts_of(line)?;
            Ok((name, [high, normal, low]))
        });
        counts.collect()
    }

    /// All jobs.
    pub fn jobs(&mut self) -> anyhow::Result<Vec<Listed>> {
        let lines = self.ask_lines("show jobs")?;
        let jobs = lines.iter().map(|line| {
            // Handle, retries, whether it is to be passed over, whether it is queued by itself.
            let mut fields = line.split('\t');
            let handle = fields.next().unwrap_or_default().as_bytes().to_vec();
            Listed { handle, is_foreground: fields.next_back() == Some("0") }
        });
        Ok(jobs.collect())
    }

    fn ask_line(&mut self, command: &str) -> anyhow::Result<String> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes()).map_err(lost)?;
        self.read_line()
    }

    /// A list, which a line with a dot ends.
    fn ask_lines(&mut self, command: &str) -> anyhow::Result<Vec<String>> {
        let mut line = self.ask_line(command)?;
        let mut lines = vec![];
        while line != "." {
            if line.starts_with("ERR ") {
                bail!("gearmand does not know `{command}`: it says `{line}`");
            }
            lines.push(line);
            line = self.read_line()?;
        }
        Ok(lines)
    }

    fn read_line(&mut self) -> anyhow::Result<String> {
        let mut line = Vec::new();
        self.stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(lost)?;
        if line.is_empty() {
            return Err(lost(ErrorKind::UnexpectedEof.into()));
        }
        let line = String::from_utf8_lossy(&line);
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// A function's name, which may have tabs, and the counts behind it.
fn counts_of<const COUNTS: usize>(line: &str) -> anyhow::Result<(String, [u64; COUNTS])> {
    let mut fields = line.rsplitn(COUNTS + 1, '\t');
    let mut counts = [0; COUNTS];
    for count in counts.iter_mut().rev() {
        let text = fields.next().unwrap_or_default();
        *count = text.parse().with_context(|| format!("gearmand counts `{text}` jobs"))?;
    }
    Ok((fields.next().unwrap_or_default().to_owned(), counts))
}

/// What a person is told when a connection to gearmand fails.
pub fn lost(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("gearmand does not answer; run it again: it goes on where it was")
        }
        ErrorKind::InvalidData => anyhow!(error).context("that is no gearmand"),
        _ => anyhow!(error)
            .context("lost the connection to gearmand; run it again: it goes on where it was"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_tabs_and_every_count_is_a_number() {
        assert_eq!(counts_of("a\tb\t7\t2\t1").unwrap(), ("a\tb".to_owned(), [7, 2, 1]));
        let error = counts_of::<3>("a\tmany\t2\t1").unwrap_err().to_string();
        assert_eq!(error, "gearmand counts `many` jobs");
        assert!(counts_of::<3>("").is_err());
    }
}
