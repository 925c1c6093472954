//! A receiver of webhooks.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Receives alerts, and answers each with a status that the test chooses.
pub struct HookReceiver {
    /// The address that alerts are sent to. Its query string is a secret.
    pub url: String,
    /// The heads and bodies of requests, as they come.
    pub posts: Receiver<(String, String)>,
}

impl HookReceiver {
    /// `status_of` gets the head and the body of each request.
    pub fn start(status_of: impl Fn(&str, &str) -> u16 + Send + 'static) -> HookReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?key=hidden", listener.local_addr().unwrap());
        let (sent, posts) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                // A sender may be killed while it sends.
                let Some((head, body)) = read_post(&mut stream) else { continue };
                let answer =
                    format!("HTTP/1.1 {} X\r\nConnection: close\r\n\r\n", status_of(&head, &body));
                let _ = stream.get_mut().write_all(answer.as_bytes());
                if sent.send((head, body)).is_err() {
                    return;
                }
            }
        });
        HookReceiver { url, posts }
    }
}

fn read_post(stream: &mut impl BufRead) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let (_, length) = lower.split_once("content-length: ")?;
    let mut body = vec![0; length.lines().next()?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).ok()?))
}
