//! A worker of jobd, as its master sees it: it registers and does as it is told, and runs no job.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use serde_json::{Map, Value, json};

/// What ends a message.
const EOT: u8 = 4;

/// A worker that is connected to a master; dropping it closes the connection.
pub struct JobdWorker {
    stream: TcpStream,
    state: Arc<Mutex<State>>,
}

struct State {
    /// What it answers to `status`.
    status: Map<String, Value>,
    /// What it answers to everything, if that is an error.
    refusal: Option<String>,
    is_silent: bool,
    asked: Vec<String>,
}

impl JobdWorker {
    /// Registers at the master at this address. A target has a name, a concurrency, and how many
    /// jobs there are of it.
    pub fn register(master: &str, name: &str, targets: &[(&str, u32, u32)]) -> JobdWorker {
        let mut stream = TcpStream::connect(master).unwrap();
        let status = |(target, concurrency, length): &(&str, u32, u32)| {
            let status = json!({ "paused": false, "concurrency": concurrency, "length": length });
            ((*target).to_owned(), status)
        };
        let memory =
            json!({ "rss": 1, "heapTotal": 1, "heapUsed": 1, "external": 0, "arrayBuffers": 0 });
        let status = json!({
            "targets": targets.iter().map(status).collect::<Map<_, _>>(),
            "jobPromisesCount": 0,
            "memoryUsage": memory,
        });
        let names: Vec<&str> = targets.iter().map(|(target, ..)| *target).collect();
        let data = json!({ "name": name, "targets": names });
        send(&mut stream, &json!([0, { "no": 1, "type": "register-worker", "data": data }]));
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let answer = hear(&mut reader).unwrap();
        assert_eq!(answer, json!([1, { "no": 1, "data": "ok" }]));
        let status = status.as_object().unwrap().clone();
        let state = State { status, refusal: None, is_silent: false, asked: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let (mut answers, its) = (stream.try_clone().unwrap(), Arc::clone(&state));
        thread::spawn(move || {
            while let Some(message) = hear(&mut reader) {
                if let Some(answer) = its.lock().unwrap().answer(&message) {
                    send(&mut answers, &answer);
                }
            }
        });
        JobdWorker { stream, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Adds a field to its status from now on.
    pub fn says(&self, field: &str, value: Value) {
        self.state().status.insert(field.to_owned(), value);
    }

    /// Answers nothing any more.
    pub fn falls_silent(&self) {
        self.state().is_silent = true;
    }

    /// Answers everything with this error from now on.
    pub fn refuses(&self, error: &str) {
        self.state().refusal = Some(error.to_owned());
    }

    /// Which of its targets are paused.
    pub fn paused(&self) -> Vec<String> {
        let state = self.state();
        let targets = state.status["targets"].as_object().unwrap();
        let paused = targets.iter().filter(|(_, target)| target["paused"] == true);
        paused.map(|(name, _)| name.clone()).collect()
    }

    /// The requests it got, except those for its status.
    pub fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }
}

impl Drop for JobdWorker {
    fn drop(&mut self) {
        // The master may have closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl State {
    fn answer(&mut self, message: &Value) -> Option<Value> {
        if message[0] == 2 {
            return Some(json!([3]));
        }
        let request = message[0].as_u64().filter(|kind| *kind == 0).map(|_| &message[1])?;
        let kind = request["type"].as_str().unwrap();
        if kind != "status" {
            self.asked.push(kind.to_owned());
        }
        if self.is_silent {
            return None;
        }
        let no = &request["no"];
        if let Some(error) = &self.refusal {
            return Some(json!([1, { "no": no, "error": error }]));
        }
        let data = match kind {
            "status" => Value::Object(self.status.clone()),
            "pause" | "continue" => self.pause(kind == "pause", &request["data"]["targets"]),
            _ => json!("ok"),
        };
        Some(json!([1, { "no": no, "data": data }]))
    }

    fn pause(&mut self, is_paused: bool, only: &Value) -> Value {
        for (name, target) in self.status["targets"].as_object_mut().unwrap() {
            let is_meant = |only: &Vec<Value>| only.iter().any(|meant| meant == name.as_str());
            if only.as_array().is_none_or(is_meant) {
                target["paused"] = is_paused.into();
            }
        }
        json!("ok")
    }
}

fn send(stream: &mut TcpStream, message: &Value) {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(EOT);
    // Fails when the master is gone.
    let _ = stream.write_all(&bytes);
}

/// The next message; none at the end.
fn hear(reader: &mut impl BufRead) -> Option<Value> {
    let mut message = Vec::new();
    reader.read_until(EOT, &mut message).ok()?;
    let message = message.strip_suffix(&[EOT])?;
    Some(serde_json::from_slice(message).unwrap())
}
