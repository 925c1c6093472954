//! A blocking Gearman client and worker for the torture only, apart from the server's own code.

use std::io::{self, Read};

use crate::torture::client::{connect, odd};
use crate::torture::papers::{Entrance, Stream, TOKEN};

const CAN_DO: u32 = 1;
const JOB_CREATED: u32 = 8;
const GRAB_JOB: u32 = 9;
const NO_JOB: u32 = 10;
const JOB_ASSIGN: u32 = 11;
const WORK_COMPLETE: u32 = 13;
const SUBMIT_JOB_BG: u32 = 18;
const ERROR: u32 = 19;
/// What an error says when the log has no room for a job.
const NO_ROOM: [&[u8]; 2] = [b"QUEUE_ERROR\0Disk full", b"QUEUE_ERROR\0Log cannot grow"];
/// Longer packets cannot be answers of this server.
const PACKET_BYTES_MAX: usize = 8 << 20;

/// One connection.
pub struct Gearman(Stream);

/// A job as a worker gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    pub handle: String,
    pub payload: Vec<u8>,
}

impl Gearman {
    pub fn connect(to: Entrance) -> io::Result<Self> {
        let mut stream = connect(to)?;
        if to.papers.is_some() {
            stream.say(format!("auth {TOKEN}\n").as_bytes())?;
            let mut line = [0; 4];
            stream.read_exact(&mut line)?;
            if line != *b"OK\r\n" {
                return Err(odd(&String::from_utf8_lossy(&line)));
            }
        }
        Ok(Self(stream))
    }

    /// A background job; its handle, or none if the server has no room for it.
    pub fn submit(&mut self, function: &str, payload: &[u8]) -> io::Result<Option<String>> {
        self.say(SUBMIT_JOB_BG, &[function.as_bytes(), b"", payload])?;
        match self.hear()? {
            (JOB_CREATED, handle) => Ok(Some(String::from_utf8_lossy(&handle).into_owned())),
            (ERROR, body) if NO_ROOM.contains(&&body[..]) => Ok(None),
            (kind, _) => Err(odd(&format!("packet {kind}"))),
        }
    }

    pub fn can_do(&mut self, function: &str) -> io::Result<()> {
        self.say(CAN_DO, &[function.as_bytes()])
    }

    /// A job, if there is one, and room for the record of a durable lease.
    pub fn grab(&mut self) -> io::Result<Option<Assigned>> {
        self.say(GRAB_JOB, &[])?;
        match self.hear()? {
            (NO_JOB, _) => Ok(None),
            (ERROR, body) if NO_ROOM.contains(&&body[..]) => Ok(None),
            (JOB_ASSIGN, body) => {
                let mut parts = body.splitn(3, |byte| *byte == 0);
                let (handle, _, payload) = (parts.next(), parts.next(), parts.next());
                let handle = String::from_utf8_lossy(handle.unwrap_or_default()).into_owned();
                Ok(Some(Assigned { handle, payload: payload.unwrap_or_default().to_vec() }))
            }
            (kind, _) => Err(odd(&format!("packet {kind}"))),
        }
    }

    /// Not answered by the protocol.
    pub fn complete(&mut self, handle: &str, result: &[u8]) -> io::Result<()> {
        self.say(WORK_COMPLETE, &[handle.as_bytes(), result])
    }

    fn say(&mut self, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let body = parts.join(&0);
        let mut bytes = b"\0REQ".to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        self.0.say(&bytes)
    }

    fn hear(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut head = [0; 12];
        self.0.read_exact(&mut head)?;
        let number =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, len) = (number(4), number(8) as usize);
        if &head[..4] != b"\0RES" || len > PACKET_BYTES_MAX {
            return Err(odd("no packet of an answer"));
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body)?;
        Ok((kind, body))
    }
}
