//! What clients need for a server that requires TLS and tokens.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use spindle_testkit::Certificates;

/// The token of all clients.
pub const TOKEN: &str = "torture";
/// Its entry in the tokens file, with its SHA-256.
const TOKENS: &str = "[[token]]
name = 'torture'
sha256 = '9270c8c38be2579a7e73a7f2eb3584a363824074311d4f5c26ab8ceb96901d5a'
roles = ['admin']
queues = ['*']
";

/// What a server asks for, and what its clients have.
#[derive(Debug)]
pub struct Papers {
    /// The folder with the server's certificate and key, and the tokens file.
    folder: PathBuf,
    client: Arc<ClientConfig>,
}

impl Papers {
    /// Makes them, with the server's half in this folder. They last as long as the process, because
    /// addresses hold them, and addresses are copied.
    pub fn in_folder(folder: &Path) -> Result<&'static Papers> {
        let certificates = Certificates::new();
        let server = certificates.server();
        fs::copy(server.certificate, folder.join("server.pem"))?;
        fs::copy(server.key, folder.join("server.key"))?;
        let tokens = folder.join("tokens.toml");
        fs::write(&tokens, TOKENS)?;
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
        let client = Arc::new(certificates.trusting(None).config()?);
        Ok(Box::leak(Box::new(Papers { folder: folder.to_path_buf(), client })))
    }

    /// Has the server ask for them at all of its doors.
    pub fn demand(&self, server: &mut Command) {
        let files = [
            ("--tls-cert", "server.pem"),
            ("--tls-key", "server.key"),
            ("--tokens", "tokens.toml"),
        ];
        for (flag, file) in files {
            server.arg(flag).arg(self.folder.join(file));
        }
        for door in ["--workq-tls", "--gearman-tls", "--http-tls"] {
            server.args([door, "required"]);
        }
        server.arg("--require-auth");
    }
}

/// Where a door is, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Entrance {
    pub address: SocketAddr,
    pub papers: Option<&'static Papers>,
}

impl From<SocketAddr> for Entrance {
    /// A door that asks for nothing.
    fn from(address: SocketAddr) -> Self {
        Entrance { address, papers: None }
    }
}

/// A connection, encrypted if its door requires that.
pub enum Stream {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// The handshake comes with the first bytes.
    pub fn over(stream: TcpStream, papers: Option<&Papers>) -> io::Result<Stream> {
        let Some(papers) = papers else { return Ok(Stream::Plain(stream)) };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let client = ClientConnection::new(Arc::clone(&papers.client), name);
        let client = client.map_err(io::Error::other)?;
        Ok(Stream::Encrypted(Box::new(StreamOwned::new(client, stream))))
    }

    /// What carries it.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => &stream.sock,
        }
    }

    /// Sends all of it at once.
    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Encrypted(stream) => {
                stream.write_all(bytes)?;
                // A failure to send is noticed here.
                stream.flush()
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Encrypted(stream) => stream.read(buffer),
        }
    }
}
