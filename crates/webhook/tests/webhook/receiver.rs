//! A receiver that answers as a test tells it to, and an engine with jobs to report.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver as Channel, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::Value;
use spindle_core::{
    JobId,
    command::{Claim, Command},
    job::Origin,
};
use spindle_engine::{Engine, Options as EngineOptions, SystemClock, WorkResult};
use spindle_log::{Log, MemoryLog};
use spindle_testkit::{PATIENCE, lease_from, new_job, opened, spawn, submit_to, take, wait_until};
use spindle_webhook::{Hook, Options, Secret, Webhooks};

pub const SECRET: &[u8] = b"a secret of the tests";

/// A request as it came.
#[derive(Debug)]
pub struct Post {
    pub head: Vec<String>,
    pub body: Vec<u8>,
}

impl Post {
    pub fn header(&self, name: &str) -> &str {
        let prefix = format!("{}:", name.to_lowercase());
        let found = self.head.iter().find(|line| line.to_lowercase().starts_with(&prefix));
        found.unwrap_or_else(|| panic!("no {name} in {:?}", self.head))[prefix.len()..].trim()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Answers each request with a status, or with nothing at all (0).
pub struct Receiver {
    pub url: String,
    posts: Channel<Post>,
}

/// A connection, encrypted or not.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Receiver {
    pub fn start(answers: impl Fn(usize) -> u16 + Send + 'static) -> Receiver {
        Receiver::listen("http", answers, |stream| Box::new(stream))
    }

    /// Over TLS, with a certificate for `localhost` that nobody but itself vouches for: the
    /// certificate in PEM is the second.
    pub fn start_encrypted(answers: impl Fn(usize) -> u16 + Send + 'static) -> (Receiver, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        (Receiver::start_with(&certificate, &key, answers), certificate)
    }

    /// Over TLS, with a certificate and its key in PEM.
    pub fn start_with(
        certificate: &str,
        key: &str,
        answers: impl Fn(usize) -> u16 + Send + 'static,
    ) -> Receiver {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        let config = Arc::new(config.unwrap());
        Receiver::listen("https", answers, move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            Box::new(StreamOwned::new(connection, stream))
        })
    }

    fn listen(
        scheme: &str,
        answers: impl Fn(usize) -> u16 + Send + 'static,
        open: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("{scheme}://localhost:{port}/hook?token=hidden");
        let (sent, posts) = channel();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = BufReader::new(open(stream.unwrap()));
                // Nothing, when a client does not like the certificate.
                let Some(post) = read_post(&mut stream) else { continue };
                let status = answers(number);
                if sent.send(post).is_err() {
                    return;
                }
                if status > 0 {
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\
                         Connection: close\r\n\r\n"
                    );
                    let _ = stream.get_mut().write_all(answer.as_bytes());
                }
            }
        });
        Receiver { url, posts }
    }

    /// The next request.
    pub fn next(&self) -> Post {
        self.posts.recv_timeout(PATIENCE).expect("nothing was reported")
    }

    /// Nothing comes, for a moment.
    pub fn is_quiet(&self) -> bool {
        let waited = self.posts.recv_timeout(Duration::from_millis(150));
        matches!(waited, Err(RecvTimeoutError::Timeout))
    }
}

fn read_post(stream: &mut impl BufRead) -> Option<Post> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    if head.is_empty() {
        return None;
    }
    let mut post = Post { head, body: Vec::new() };
    let length = post.header("content-length").parse().unwrap();
    post.body.resize(length, 0);
    stream.read_exact(&mut post.body).unwrap();
    Some(post)
}

/// An engine at work.
pub fn engine(log: Arc<dyn Log>) -> Engine {
    let clock = Arc::new(SystemClock::new());
    let engine = Engine::open(log, clock, EngineOptions::default()).unwrap();
    spawn(&engine);
    engine
}

pub fn memory() -> Engine {
    engine(Arc::new(MemoryLog::new()))
}

pub fn submit(engine: &Engine, queue: &str) -> JobId {
    let job = new_job(submit_to(queue, Origin::Api), b"");
    let id = opened(engine.jobs().submit(job)).unwrap();
    drop(engine.turn());
    id
}

/// A job that failed for good, and that is on disk.
pub fn dead(engine: &Engine, queue: &str, message: &str) -> JobId {
    let id = submit(engine, queue);
    let claim = lease(engine, queue);
    let result = WorkResult {
        message: Bytes::copy_from_slice(message.as_bytes()),
        code: Bytes::from_static(b"E42"),
        ..WorkResult::default()
    };
    let finished = engine.leases().finish(claim, result);
    let gate = finished.gate();
    opened(finished).unwrap();
    drop(engine.turn());
    wait_until("the job's end on disk", || engine.durable() >= gate);
    id
}

pub fn lease(engine: &Engine, queue: &str) -> Claim {
    take(engine, lease_from(queue, Origin::Api))
}

pub fn cancelled(engine: &Engine, queue: &str) {
    let id = submit(engine, queue);
    opened(engine.jobs().execute(&Command::Cancel { id })).unwrap();
    drop(engine.turn());
}

/// Fast enough for tests.
pub fn options() -> Options {
    Options {
        server: "box".to_owned(),
        poll_every: Duration::from_millis(5),
        look_every: Duration::from_millis(5),
        answer_within: Duration::from_secs(5),
        pause_first: Duration::from_millis(5),
        pause_max: Duration::from_millis(20),
        ..Options::default()
    }
}

pub fn hook(receiver: &Receiver, words: &str) -> Hook {
    format!("{} {words}", receiver.url).parse().unwrap()
}

pub fn start(engine: &Engine, receiver: &Receiver, words: &str, options: &Options) -> Webhooks {
    let hook = hook(receiver, words);
    Webhooks::start(engine, vec![hook], &Secret::new(SECRET).unwrap(), options).unwrap()
}
