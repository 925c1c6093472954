//! Requests to a Spindle server: JSON over HTTP/1.1, connections kept for the next one.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::server::SpindleServer;
use super::stream::{Closable, Encryption, why};

/// How long the server may take to accept, and how long to answer what it need not wait for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for an answer that may be on its way when its request is cancelled.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// A payload of 64 MiB in base64, with room to spare.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Connections kept open for the next request, and for how long: not until the server closes them,
/// which it may do at the moment a request leaves.
const IDLE_MAX: usize = 32;
const IDLE_AGE_MAX: Duration = Duration::from_secs(20);

/// The server's answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    /// Where else to ask.
    pub location: Option<String>,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Not now.
    Away(String),
    /// Something that a person has to put right.
    Wrong(String),
}

type Answered = Result<Answer, NoAnswer>;

fn because(error: impl std::fmt::Display) -> NoAnswer {
    NoAnswer::Away(error.to_string())
}

/// One connection.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Ends our half of it, while an answer may be on its way.
    end: oneshot::Sender<()>,
}

/// The server, and the connections to it that wait for their next use.
pub(super) struct Client {
    server: SpindleServer,
    encryption: Encryption,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.server).finish()
    }
}

impl Client {
    pub fn new(server: SpindleServer) -> Self {
        Self { server, encryption: Encryption::default(), idle: Mutex::default() }
    }

    pub fn server(&self) -> &SpindleServer {
        &self.server
    }

    /// Asks and waits for the answer.
    pub async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> Answered {
        let asked = async {
            let (mut connection, request) = self.begin(method, path, body).await?;
            let answer = converse(&mut connection.sender, request).await?;
            self.keep(connection);
            Ok(answer)
        };
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(silence(PATIENCE)))
    }

    /// Sends a request that the server may answer after `wait`. Dropping the other side of `recall`
    /// cancels it: our half of the connection ends. Either the server has not answered and takes
    /// back what it would have given, or its answer is on the way and is still read. So no lease is
    /// lost.
    pub async fn ask_patiently(
        &self,
        path: &str,
        body: Vec<u8>,
        wait: Duration,
        recall: oneshot::Receiver<()>,
    ) -> Result<Option<Answer>, NoAnswer> {
        let begun = timeout(PATIENCE, self.begin(Method::POST, path, body)).await;
        let (Connection { mut sender, end }, request) =
            begun.unwrap_or_else(|_| Err(silence(PATIENCE)))?;
        let answered = {
            let answer = timeout(wait + PATIENCE, converse(&mut sender, request));
            tokio::pin!(answer);
            tokio::select! {
                answered = &mut answer => answered.unwrap_or_else(|_| Err(silence(wait))).map(Some),
                _ = recall => {
                    // It may be closed already.
                    let _ = end.send(());
                    let last = timeout(LAST_ANSWER, answer).await;
                    return Ok(last.ok().and_then(Result::ok).and_then(Result::ok));
                }
            }
        };
        if answered.is_ok() {
            self.keep(Connection { sender, end });
        }
        answered
    }

    /// A connection that is ready for a request, and the request.
    async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(Connection, Request<Full<Bytes>>), NoAnswer> {
        let server = &self.server;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", server.path))
            .header(HOST, server.authority());
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &server.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(because)?;
        Ok((self.connection().await?, request))
    }

    async fn connection(&self) -> Result<Connection, NoAnswer> {
        // A connection that the server has closed meanwhile is of no use.
        while let Some((mut kept, since)) = { self.idle.lock().pop() } {
            if since.elapsed() < IDLE_AGE_MAX && kept.sender.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let address = (self.server.host.as_str(), self.server.port);
        let stream = TcpStream::connect(address).await.map_err(because)?;
        stream.set_nodelay(true).map_err(because)?;
        match &self.server.tls {
            None => connected(stream).await,
            Some(tls) => connected(self.encryption.begin(&self.server, tls, stream).await?).await,
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push((connection, Instant::now()));
        }
    }
}

/// HTTP over a stream.
async fn connected<S>(stream: S) -> Result<Connection, NoAnswer>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (stream, end) = Closable::new(stream);
    let begun = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = begun.map_err(|error| why(&error))?;
    // A request under way fails with it.
    tokio::spawn(connection);
    Ok(Connection { sender, end })
}

async fn converse(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Answered {
    let response = sender.send_request(request).await.map_err(|error| why(&error))?;
    let status = response.status();
    let location = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    let location = location.map(str::to_owned);
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(Answer { status, location, body: body.map_err(because)?.to_bytes() })
}

fn silence(patience: Duration) -> NoAnswer {
    NoAnswer::Away(format!("no answer for {} seconds", patience.as_secs()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_on_its_way_when_a_question_is_taken_back_is_still_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(SpindleServer {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            path: "/a".to_owned(),
            tls: None,
            token: None,
            worker: "w".to_owned(),
        });
        let (recall, recalled) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\nwish") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            drop(recall);
            // The client ends its half, and the answer still comes.
            assert_eq!(stream.read_buf(&mut request).await.unwrap(), 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let wait = Duration::from_secs(60);
        let asked = client.ask_patiently("/lease", b"wish".to_vec(), wait, recalled).await;
        let answer = asked.unwrap().expect("the answer is read");
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"{}"[..]));
        assert!(serving.await.unwrap().starts_with("POST /a/lease HTTP/1.1\r\n"));
    }
}
