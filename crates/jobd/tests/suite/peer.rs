//! A client that speaks bytes.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// How long a test waits for something that must come.
pub const DEADLINE: Duration = Duration::from_secs(60);

const EOT: u8 = 4;

/// A connection, and what has come over it.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Peer {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    pub fn over(stream: TcpStream) -> Self {
        Self { stream, input: Vec::new() }
    }

    /// Sends a message, given without its EOT.
    pub async fn send(&mut self, message: &str) {
        self.send_bytes(format!("{message}\x04").as_bytes()).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next message without its EOT; `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        let read = async {
            loop {
                if let Some(at) = self.input.iter().position(|&byte| byte == EOT) {
                    let message: Vec<u8> = self.input.drain(..=at).collect();
                    return Some(String::from_utf8(message[..at].to_vec()).unwrap());
                }
                match self.stream.read_buf(&mut self.input).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        };
        timeout(DEADLINE, read).await.expect("a message or the end of the connection")
    }

    /// The next message, figures of this process's memory and ports masked.
    pub async fn hear(&mut self) -> String {
        masked(&self.next().await.expect("a message"))
    }

    /// The next message that is no ping. Pings are answered.
    pub async fn hear_work(&mut self) -> String {
        loop {
            let message = self.hear().await;
            if message != "[2]" {
                return message;
            }
            self.send("[3]").await;
        }
    }

    /// Sends a message and answers what comes back.
    pub async fn ask(&mut self, message: &str) -> String {
        self.send(message).await;
        self.hear().await
    }

    /// Sends a request and answers the response's data.
    pub async fn data(&mut self, kind: &str, data: Value) -> Value {
        let message = serde_json::json!([0, {"no": 1, "type": kind, "data": data}]);
        let answer = self.ask(&message.to_string()).await.replace("<N>", "0");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer[1].get("data").unwrap_or_else(|| panic!("{kind}: {answer}")).clone()
    }

    /// What `status` says.
    pub async fn status(&mut self) -> Value {
        self.data("status", Value::Null).await
    }

    /// Shows that nothing came of what was sent before: the next thing to come is the answer to a
    /// ping.
    pub async fn hears_nothing(&mut self) {
        assert_eq!(self.ask("[2]").await, "[3]");
    }

    /// The end of the connection must be next.
    pub async fn is_closed(&mut self) {
        assert_eq!(self.next().await, None);
    }
}

/// Replaces the numbers that no two runs have in common.
pub fn masked(message: &str) -> String {
    let keys = ["rss", "heapTotal", "heapUsed", "external", "arrayBuffers", "remotePort"];
    let mut text = message.to_owned();
    for key in keys {
        let key = format!("\"{key}\":");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(&key) {
            let (before, after) = rest.split_at(at + key.len());
            let _ = write!(out, "{before}<N>");
            rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        out.push_str(rest);
        text = out;
    }
    text
}

/// What `status` says about memory, masked.
pub const MEMORY: &str =
    r#""memoryUsage":{"rss":<N>,"heapTotal":<N>,"heapUsed":<N>,"external":<N>,"arrayBuffers":<N>}"#;

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(DEADLINE, waiting).await.is_ok(), "never came true: {what}");
}

/// Waits until something is so that has to be asked for.
pub async fn until_told(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(DEADLINE, waiting).await.is_ok(), "never came true: {what}");
}
