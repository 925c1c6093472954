//! `spindle clock accept`: says that the machine's clock is right.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, anyhow};

use crate::{
    cli::{ClockArgs, ClockCommand},
    exit::{Code, Failure},
};

/// How long the server may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A head of an answer is never longer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Does what `spindle clock` was told.
pub fn clock(args: &ClockArgs) -> anyhow::Result<Code> {
    let ClockCommand::Accept = args.command;
    let authority = authority(&args.url)?;
    let status = post(authority, "/api/v1/clock/accept")
        .with_context(|| format!("no answer from {}", args.url))?;
    if status == 204 {
        return Ok(Code::Ok);
    }
    let message = format!("{} answered with status {status}; is that a Spindle?", args.url);
    Err(Failure::with(Code::Error, message))
}

/// `127.0.0.1:7420` of `http://127.0.0.1:7420`.
fn authority(url: &str) -> anyhow::Result<&str> {
    let rest = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let (_, port) = rest.rsplit_once(':').unwrap_or_default();
    if port.parse::<u16>().is_err() || rest.contains('/') {
        let message = format!("`{url}` will not do: write it as http://127.0.0.1:7420");
        return Err(Failure::with(Code::Usage, message));
    }
    Ok(rest)
}

fn post(authority: &str, path: &str) -> anyhow::Result<u16> {
    let addr = authority.to_socket_addrs()?.next().context("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&addr, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let status = answer
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok());
    status.ok_or_else(|| anyhow!("what came is no HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_with_and_without_their_scheme() {
        for url in ["http://127.0.0.1:7420", "http://127.0.0.1:7420/", "127.0.0.1:7420"] {
            assert_eq!(authority(url).unwrap(), "127.0.0.1:7420");
        }
        assert_eq!(authority("http://[::1]:1").unwrap(), "[::1]:1");
        for url in ["", "http://", "https://127.0.0.1:7420/x", "localhost", "http://a:b"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }
}
