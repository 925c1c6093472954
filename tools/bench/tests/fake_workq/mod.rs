//! A small Workq server in memory, one thread a connection, with faults on request: the bench is
//! only worth something if it notices them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It hands the 50th job out twice.
    DeliversTwice,
    /// It acknowledges the 50th job and forgets it.
    Loses,
    /// It changes a byte of the 50th payload.
    Damages,
    /// It refuses the 50th job.
    Refuses,
    /// It hangs up at the 50th job.
    HangsUp,
}

struct Job {
    id: String,
    queue: String,
    payload: Vec<u8>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    added: u64,
}

struct Server {
    jobs: Mutex<Jobs>,
    more: Condvar,
    fault: Fault,
}

/// Serves on a free loopback port until the test ends.
pub fn start(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Arc::new(Server { jobs: Mutex::default(), more: Condvar::new(), fault });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let server = Arc::clone(&server);
            // A client that goes is no concern of the server.
            std::thread::spawn(move || drop(server.serve(stream.unwrap())));
        }
    });
    address
}

impl Server {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut input = BufReader::new(stream.try_clone()?);
        stream.set_nodelay(true)?;
        let mut line = String::new();
        while input.read_line(&mut line)? > 0 {
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            match words.as_slice() {
                ["add", id, queue, _ttr, _ttl, size] => {
                    let payload = body(&mut input, size)?;
                    let job = Job { id: (*id).to_owned(), queue: (*queue).to_owned(), payload };
                    match self.add(job) {
                        Some(answer) => stream.write_all(answer)?,
                        None => return Ok(()),
                    }
                }
                ["lease", queue, wait] => {
                    let wait = Duration::from_millis(wait.parse().unwrap());
                    stream.write_all(&self.lease(queue, wait))?;
                }
                ["complete", _id, size] => {
                    body(&mut input, size)?;
                    stream.write_all(b"+OK\r\n")?;
                }
                _ => stream.write_all(b"-CLIENT-ERROR Unknown command\r\n")?,
            }
            line.clear();
        }
        Ok(())
    }

    fn add(&self, mut job: Job) -> Option<&'static [u8]> {
        let mut jobs = self.jobs.lock().unwrap();
        jobs.added += 1;
        let fault = if jobs.added == 50 { self.fault } else { Fault::None };
        match fault {
            Fault::None => {}
            Fault::DeliversTwice => jobs.waiting.push_back(Job {
                id: job.id.clone(),
                queue: job.queue.clone(),
                payload: job.payload.clone(),
            }),
            Fault::Loses => return Some(b"+OK\r\n"),
            Fault::Damages => *job.payload.last_mut().unwrap() ^= 1,
            Fault::Refuses => return Some(b"-SERVER-ERROR Disk full\r\n"),
            Fault::HangsUp => return None,
        }
        jobs.waiting.push_back(job);
        drop(jobs);
        self.more.notify_all();
        Some(b"+OK\r\n")
    }

    fn lease(&self, queue: &str, wait: Duration) -> Vec<u8> {
        let jobs = self.jobs.lock().unwrap();
        let position = |jobs: &Jobs| jobs.waiting.iter().position(|job| job.queue == queue);
        let absent = |jobs: &mut Jobs| position(jobs).is_none();
        let (mut jobs, _) = self.more.wait_timeout_while(jobs, wait, absent).unwrap();
        let Some(job) = position(&jobs).and_then(|at| jobs.waiting.remove(at)) else {
            return b"-TIMEOUT\r\n".to_vec();
        };
        let mut answer =
            format!("+OK 1\r\n{} {queue} 60000 {}\r\n", job.id, job.payload.len()).into_bytes();
        answer.extend_from_slice(&job.payload);
        answer.extend_from_slice(b"\r\n");
        answer
    }
}

fn body(input: &mut impl Read, size: &str) -> std::io::Result<Vec<u8>> {
    let size: usize = size.parse().unwrap();
    let mut bytes = vec![0; size + 2];
    input.read_exact(&mut bytes)?;
    bytes.truncate(size);
    Ok(bytes)
}
