//! A proxy in front of a server, as people put one there: TLS, and a path of its own.

use std::{
    fs, io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tempfile::TempDir;
use tokio::{
    io::{
        AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt,
        BufReader, copy, split,
    },
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    spawn,
};
use tokio_rustls::TlsAcceptor;

/// A proxy that listens; dropping it ends it.
pub struct Proxy {
    addr: SocketAddr,
    upstream: Arc<Mutex<String>>,
    folder: TempDir,
    _runtime: Runtime,
}

impl Proxy {
    /// A proxy for clients with TLS. It removes `prefix` from paths and passes requests on to
    /// `upstream`. Its certificate is for `localhost`, and signed by itself.
    pub fn over_tls(prefix: &'static str, upstream: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let proxy = Self::start(prefix, upstream, Some(acceptor));
        fs::write(proxy.ca_file(), made.cert.pem()).unwrap();
        proxy
    }

    /// A proxy without TLS.
    pub fn plain(prefix: &'static str, upstream: &str) -> Self {
        Self::start(prefix, upstream, None)
    }

    fn start(prefix: &'static str, upstream: &str, tls: Option<TlsAcceptor>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let upstream = Arc::new(Mutex::new(upstream.to_owned()));
        let asked = Arc::clone(&upstream);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, upstream) = (tls.clone(), asked.lock().unwrap().clone());
                spawn(async move {
                    // A client may disconnect at any time.
                    let _: io::Result<()> = match tls {
                        None => serve(client, prefix, &upstream).await,
                        Some(tls) => match tls.accept(client).await {
                            Ok(client) => serve(client, prefix, &upstream).await,
                            Err(error) => Err(error),
                        },
                    };
                });
            }
        });
        Self { addr, upstream, folder: tempfile::tempdir().unwrap(), _runtime: runtime }
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// The file with the authority that has signed its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Asks another server from the next connection on.
    pub fn asks(&self, upstream: &str) {
        upstream.clone_into(&mut self.upstream.lock().unwrap());
    }
}

async fn serve<S>(client: S, prefix: &str, upstream: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (from_client, mut to_client) = split(client);
    let mut from_client = BufReader::new(from_client);
    let Some(mut request) = read_request(&mut from_client, prefix).await? else { return Ok(()) };
    if request.is_empty() {
        return refuse(&mut to_client, "404 Not Found").await;
    }
    let Ok(server) = TcpStream::connect(upstream).await else {
        return refuse(&mut to_client, "502 Bad Gateway").await;
    };
    let (mut from_server, mut to_server) = server.into_split();
    let answers = spawn(async move {
        copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    });
    while !request.is_empty() {
        to_server.write_all(&request).await?;
        // A client that hangs up without ending TLS has hung up all the same.
        request =
            read_request(&mut from_client, prefix).await.unwrap_or_default().unwrap_or_default();
    }
    to_server.shutdown().await?;
    answers.await?
}

/// A request without the prefix; empty if it has another one. None at the end.
async fn read_request(
    client: &mut (impl AsyncBufRead + Unpin),
    prefix: &str,
) -> io::Result<Option<Vec<u8>>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    let (method, rest) = head.split_once(' ').unwrap();
    let Some(path) = rest.strip_prefix(prefix) else { return Ok(Some(Vec::new())) };
    let lower = head.to_ascii_lowercase();
    let length = lower
        .split_once("\r\ncontent-length:")
        .map_or("0", |(_, rest)| rest.split("\r\n").next().unwrap().trim());
    let mut request = format!("{method} {path}").into_bytes();
    let start = request.len();
    request.resize(start + length.parse::<usize>().unwrap(), 0);
    client.read_exact(&mut request[start..]).await?;
    Ok(Some(request))
}

async fn refuse(client: &mut (impl AsyncWrite + Unpin), status: &str) -> io::Result<()> {
    let body = format!("<html>\n<h1>{status}</h1>\n</html>");
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\nconnection: close\r\n");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}
