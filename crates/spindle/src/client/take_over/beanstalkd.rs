//! Jobs of beanstalkd, by its text protocol.
//!
//! Ready jobs are reserved, many in one exchange. Jobs that are delayed, buried, or in a paused tube
//! cannot be reserved: they are looked at one by one (`peek-...`), which no worker does to get jobs.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};

use super::{
    Other, Rest, Route, Taken, Waiting,
    dial::{dial, resolve},
    job::{Job, Name, Stage},
};
use crate::client::{progress::Progress, when::now_ms};

const PORT: u16 = 11_300;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Jobs that are taken at once, and about how many bytes of payloads: a request to the API has 16 MiB
/// at most, and payloads are in base64 there.
const BATCH_MAX: u64 = 100;
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// No reply of beanstalkd has a longer first line.
const LINE_BYTES_MAX: u64 = 1_024;

/// A connection to beanstalkd.
pub struct Beanstalkd {
    stream: BufReader<TcpStream>,
    /// Distinguishes this run of this server from all others.
    instance: String,
    /// Only these tubes; none of them: all.
    queues: Vec<String>,
    batch: u64,
    /// Jobs that cannot be reserved; they are looked at when nothing else is left.
    aside: Option<VecDeque<Aside>>,
    /// Reserved jobs that stay there: they are ready again when the connection ends.
    left: u64,
}

/// Jobs of a tube that cannot be reserved.
struct Aside {
    tube: String,
    /// The command that shows the next of them.
    peek: &'static str,
}

/// A reply with a body, whose length is the last word of its first line.
struct Reply {
    words: Vec<String>,
    body: Vec<u8>,
}

impl Reply {
    fn id(&self) -> anyhow::Result<u64> {
        let id = self.words.get(1).and_then(|word| word.parse().ok());
        id.ok_or_else(|| anyhow!("beanstalkd sent a job without a number"))
    }

    /// The value of a name in a body of statistics.
    fn value(&self, name: &str) -> anyhow::Result<String> {
        let text = String::from_utf8_lossy(&self.body);
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(found, _)| *found == name);
        let (_, value) = found.ok_or_else(|| anyhow!("beanstalkd does not tell its {name}"))?;
        Ok(value.trim().trim_matches('"').to_owned())
    }

    fn number(&self, name: &str) -> anyhow::Result<u64> {
        let value = self.value(name)?;
        value.parse().with_context(|| format!("beanstalkd tells a {name} of {value}"))
    }

    /// The names in a body that is a list.
    fn names(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.body);
        text.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
    }
}

impl Beanstalkd {
    /// Connects to HOST:PORT, or to the usual port of a host, and watches these tubes, or all.
    pub fn connect(address: &str, queues: &[String]) -> anyhow::Result<Self> {
        let stream = dial(&resolve(address, PORT)?, ANSWER_TIME_MAX)?;
        let mut server = Self {
            stream: BufReader::new(stream),
            instance: String::new(),
            queues: queues.to_vec(),
            batch: 1,
            aside: None,
            left: 0,
        };
        let stats = server.ask("stats").with_context(|| format!("asking {address}"))?;
        server.instance = stats.value("id")?;
        server.batch = (BATCH_BYTES / stats.number("max-job-size")?.max(1)).clamp(1, BATCH_MAX);
        let tubes = server.tubes()?;
        for tube in &tubes {
            server.ask(&format!("watch {tube}"))?;
        }
        // Every connection watches it at first. The last tube cannot be ignored.
        if !tubes.iter().any(|tube| tube == "default") {
            if tubes.is_empty() {
                server.ask("watch spindle-import-nothing")?;
            }
            server.ask("ignore default")?;
        }
        Ok(server)
    }

    /// The tubes whose jobs are wanted.
    fn tubes(&mut self) -> anyhow::Result<Vec<String>> {
        let mut tubes = self.ask("list-tubes")?.names();
        tubes.retain(|tube| self.queues.is_empty() || self.queues.contains(tube));
        Ok(tubes)
    }

    /// How many jobs of each wanted tube are in each of these states.
    fn count(&mut self, states: &[&'static str]) -> anyhow::Result<Vec<Waiting>> {
        let mut counts = vec![];
        for queue in self.tubes()? {
            let stats = self.ask(&format!("stats-tube {queue}"))?;
            if stats.words[0] != "OK" {
                continue;
            }
            for state in states {
                let jobs = stats.number(&format!("current-jobs-{state}"))?;
                if jobs > 0 {
                    counts.push(Waiting { queue: queue.clone(), state, jobs });
                }
            }
        }
        Ok(counts)
    }

    fn send(&mut self, text: &str) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes()).context("cannot write to beanstalkd")
    }

    /// One command and its reply.
    fn ask(&mut self, command: &str) -> anyhow::Result<Reply> {
        self.send(&format!("{command}\r\n"))?;
        self.reply()
    }

    fn reply(&mut self) -> anyhow::Result<Reply> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => anyhow!("beanstalkd does not answer; run it again"),
            _ => anyhow::Error::from(error).context("cannot read from beanstalkd"),
        })?;
        if line.is_empty() {
            bail!("beanstalkd closed the connection; run it again: it goes on where it was");
        }
        let line = String::from_utf8_lossy(&line);
        let Some(line) = line.strip_suffix("\r\n") else {
            bail!("that is no beanstalkd: it says `{}`", line.trim_end());
        };
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut body = Vec::new();
        match &*words[0] {
            "OK" | "RESERVED" | "FOUND" => {
                let len = words.last().and_then(|word| word.parse::<u64>().ok());
                let len = len.ok_or_else(|| anyhow!("beanstalkd sent a body without a length"))?;
                self.stream.by_ref().take(len + 2).read_to_end(&mut body)?;
                if body.len() as u64 != len + 2 {
                    bail!("beanstalkd closed the connection; run it again");
                }
                body.truncate(body.len() - 2);
            }
            "WATCHING" | "USING" | "DELETED" | "NOT_FOUND" | "TIMED_OUT" | "DEADLINE_SOON" => {}
            _ => bail!("that is no beanstalkd: it says `{line}`"),
        }
        Ok(Reply { words, body })
    }

    /// Reserves a batch of what is ready.
    fn reserve(&mut self) -> anyhow::Result<Vec<Taken<u64>>> {
        self.send(&"reserve-with-timeout 0\r\n".repeat(self.batch as usize))?;
        let mut reserved = vec![];
        for _ in 0..self.batch {
            let reply = self.reply()?;
            if reply.words[0] == "RESERVED" {
                reserved.push((reply.id()?, reply.body));
            }
        }
        let asked: String = reserved.iter().map(|(id, _)| format!("stats-job {id}\r\n")).collect();
        self.send(&asked)?;
        let mut taken = vec![];
        for (id, payload) in reserved {
            let stats = self.reply()?;
            // The job is gone already if its time to run was very short.
            if stats.words[0] == "OK" {
                taken.push(self.described(id, payload, &stats, Stage::Ready)?);
            }
        }
        Ok(taken)
    }

    /// The next job that cannot be reserved.
    fn peek(&mut self) -> anyhow::Result<Option<Taken<u64>>> {
        if self.aside.is_none() {
            self.aside = Some(self.list_aside()?);
        }
        while let Some(Aside { tube, peek }) = self.aside.as_mut().and_then(VecDeque::pop_front) {
            self.ask(&format!("use {tube}"))?;
            let found = self.ask(peek)?;
            if found.words[0] != "FOUND" {
                continue;
            }
            let id = found.id()?;
            let stats = self.ask(&format!("stats-job {id}"))?;
            self.aside.get_or_insert_default().push_front(Aside { tube, peek });
            if stats.words[0] != "OK" {
                continue;
            }
            let stage = match &*stats.value("state")? {
                "delayed" => {
                    let left_ms = stats.number("time-left")?.saturating_mul(1_000);
                    let run_at_ms = now_ms().saturating_add(left_ms);
                    Stage::Scheduled { run_at_ms: i64::try_from(run_at_ms).unwrap_or(i64::MAX) }
                }
                "buried" => Stage::Parked,
                _ => Stage::Ready,
            };
            return Ok(Some(self.described(id, found.body, &stats, stage)?));
        }
        Ok(None)
    }

    fn list_aside(&mut self) -> anyhow::Result<VecDeque<Aside>> {
        let mut aside = VecDeque::new();
        for tube in self.tubes()? {
            let stats = self.ask(&format!("stats-tube {tube}"))?;
            if stats.words[0] != "OK" {
                continue;
            }
            let is_paused = stats.number("pause-time-left")? > 0;
            let ready = is_paused.then_some("peek-ready");
            for peek in ready.into_iter().chain(["peek-delayed", "peek-buried"]) {
                aside.push_back(Aside { tube: tube.clone(), peek });
            }
        }
        Ok(aside)
    }

    fn described(
        &self,
        id: u64,
        payload: Vec<u8>,
        stats: &Reply,
        stage: Stage,
    ) -> anyhow::Result<Taken<u64>> {
        let job = Job {
            name: Name::Key(format!("beanstalkd:{}:{id}", self.instance)),
            queue: stats.value("tube")?.into_bytes(),
            payload,
            // There, the lowest number goes first.
            priority: -i64::try_from(stats.number("pri")?)?,
            ttr_ms: Some(stats.number("ttr")?.max(1).saturating_mul(1_000)),
            stage,
            ..Job::default()
        };
        Ok(Taken { handle: id, shown: id.to_string(), job })
    }
}

impl Other for Beanstalkd {
    type Handle = u64;

    const ROUTE: Route = Route::Submit;

    fn waiting(&mut self) -> anyhow::Result<Vec<Waiting>> {
        self.count(&["ready", "delayed", "buried"])
    }

    fn take(&mut self, _: &Progress) -> anyhow::Result<Vec<Taken<u64>>> {
        if self.aside.is_none() {
            let ready = self.reserve()?;
            if !ready.is_empty() {
                return Ok(ready);
            }
        }
        Ok(self.peek()?.into_iter().collect())
    }

    fn remove(&mut self, jobs: &[Taken<u64>]) -> anyhow::Result<u64> {
        let deletes: String = jobs.iter().map(|job| format!("delete {}\r\n", job.handle)).collect();
        self.send(&deletes)?;
        let mut gone = 0;
        for _ in jobs {
            gone += u64::from(self.reply()?.words[0] != "DELETED");
        }
        Ok(gone)
    }

    fn leave(&mut self, jobs: Vec<Taken<u64>>) -> anyhow::Result<()> {
        match &mut self.aside {
            None => self.left += jobs.len() as u64,
            // `peek` would show the job again and again, and never those behind it.
            Some(_) if jobs.is_empty() => {}
            Some(aside) => drop(aside.pop_front()),
        }
        Ok(())
    }

    fn rest(&mut self) -> anyhow::Result<Rest> {
        let sum = |counts: Vec<Waiting>| counts.iter().map(|count| count.jobs).sum::<u64>();
        Ok(Rest {
            at_work: sum(self.count(&["reserved"])?).saturating_sub(self.left),
            left: sum(self.waiting()?) + self.left,
            ..Rest::default()
        })
    }
}
