//! Requests of HTTP that a follower answers itself: those about this node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// What a follower says to a request: the status, and JSON or text.
pub struct Reply {
    /// The status line's end, such as `200 OK`.
    pub status: &'static str,
    /// The body's type.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// Answers a `GET` of a path, or lets it be handed on.
pub type LocalAnswer = Arc<dyn Fn(&str) -> Option<Reply> + Send + Sync>;

/// The longest request line that is looked at.
const LINE_BYTES_MAX: usize = 1024;
/// The longest head of a request that is answered here.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// A client sends its request line within this time; else its connection is handed on as it is.
const LINE_TIME: Duration = Duration::from_secs(5);
/// The pause between two looks at a request line that has come in part.
const LOOK: Duration = Duration::from_millis(10);
/// How long the rest of the head may take, and the client's end.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// Answers the first request of a connection, if it is about this node. Otherwise nothing was read.
pub(super) async fn answer(client: &mut TcpStream, by: &LocalAnswer) -> io::Result<bool> {
    let Ok(line) = timeout(LINE_TIME, request_line(client)).await else { return Ok(false) };
    let Some(reply) = line?.as_deref().and_then(path_of).and_then(|path| by(path)) else {
        return Ok(false);
    };
    let Ok(ended) = timeout(HEAD_TIME, read_head(client)).await else { return Ok(true) };
    ended?;
    let Reply { status, content_type, body } = reply;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await?;
    client.write_all(body.as_bytes()).await?;
    client.shutdown().await?;
    // Closing the socket with unread bytes of the client would destroy the answer.
    let rest = async {
        let mut rest = [0; 1024];
        while client.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    };
    timeout(HEAD_TIME, rest).await.ok();
    Ok(true)
}

/// The request line, which stays in the socket. None if it is not one of plain HTTP, or is too long.
async fn request_line(client: &TcpStream) -> io::Result<Option<String>> {
    let mut bytes = [0; LINE_BYTES_MAX];
    loop {
        let count = client.peek(&mut bytes).await?;
        let seen = &bytes[..count];
        if let Some(end) = seen.iter().position(|byte| *byte == b'\n') {
            return Ok(String::from_utf8(seen[..end].to_vec()).ok());
        }
        let begins_well = b"GET ".iter().zip(seen).all(|(wanted, byte)| wanted == byte);
        if !begins_well || count == 0 || count == LINE_BYTES_MAX {
            return Ok(None);
        }
        sleep(LOOK).await;
    }
}

/// The path of a request line, without its query.
fn path_of(line: &str) -> Option<&str> {
    let mut words = line.trim_end_matches('\r').split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_one = method == "GET" && version.starts_with("HTTP/1.") && words.next().is_none();
    is_one.then(|| target.split('?').next().unwrap_or(target))
}

/// Reads to the end of the request's head.
async fn read_head(client: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = client.read(&mut piece).await?;
        if count == 0 || head.len() + count > HEAD_BYTES_MAX {
            return Err(io::Error::other("the request has no end"));
        }
        head.extend_from_slice(&piece[..count]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_get_has_a_path() {
        for (line, path) in [
            ("GET /readyz HTTP/1.1\r", Some("/readyz")),
            ("GET /api/v1/cluster?x=1 HTTP/1.0", Some("/api/v1/cluster")),
            ("POST /readyz HTTP/1.1", None),
            ("GET /readyz", None),
            ("GET /readyz HTTP/1.1 more", None),
            ("GET /readyz HTTP/2", None),
        ] {
            assert_eq!(path_of(line), path, "{line}");
        }
    }
}
