//! A proxy in front of a server that speaks TLS.

use std::{
    fs,
    io::{Error, Result},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// A proxy for `localhost`. Its certificate signs itself.
pub struct Proxy {
    pub port: u16,
    accepted: Arc<AtomicUsize>,
    folder: TempDir,
    serving: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Proxy {
    /// A proxy that passes bytes on to this address. With a prefix, it passes on what is asked for
    /// behind that path, one request a connection.
    pub async fn start(server: &str, prefix: &'static str) -> Self {
        Self::start_for(server, prefix, false).await
    }

    /// The same, for clients that show the certificate in the file `client.pem`.
    pub async fn start_for_known(server: &str) -> Self {
        Self::start_for(server, "", true).await
    }

    async fn start_for(server: &str, prefix: &'static str, wants_certificate: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut chains = Vec::new();
        for name in ["server", "client"] {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(folder.path().join(format!("{name}.pem")), made.cert.pem()).unwrap();
            let key = made.signing_key.serialize_pem();
            fs::write(folder.path().join(format!("{name}.key")), key).unwrap();
            chains.push(made.cert.der().clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = if wants_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(chains[1].clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            config.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_file(folder.path().join("server.key")).unwrap();
        let config = config.with_single_cert(vec![chains[0].clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, server) = (Arc::clone(&accepted), server.to_owned());
        let serving = tokio::spawn(async move {
            loop {
                let stream = listener.accept().await.unwrap().0;
                let (acceptor, server) = (acceptor.clone(), server.clone());
                count.fetch_add(1, Ordering::SeqCst);
                // Either side may go at any moment.
                tokio::spawn(async move { pass_on(stream, acceptor, &server, prefix).await });
            }
        });
        Self { port, accepted, folder, serving }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The lines of configuration of a worker that knows its certificate.
    pub fn lines(&self, path: &str) -> String {
        let roots = self.file("server.pem");
        let roots = roots.display();
        let port = self.port;
        format!("spindle_url = https://localhost:{port}{path}\nspindle_sslrootcert = {roots}\n")
    }

    /// How many connections there were.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn pass_on(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    server: &str,
    prefix: &str,
) -> Result<()> {
    let mut client = acceptor.accept(stream).await?;
    let mut server = TcpStream::connect(server).await?;
    if !prefix.is_empty() {
        server.write_all(&first_request(&mut client, prefix).await?).await?;
    }
    // The end of one half is passed on, and the other half goes on.
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// The beginning of a connection's only request, without the prefix in its path.
async fn first_request(client: &mut TlsStream<TcpStream>, prefix: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(Error::other("no request"));
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    let (first, rest) = text.split_once("\r\n").unwrap();
    let first = match first.split_once(prefix) {
        Some((method, path)) if method.ends_with(' ') => format!("{method}{path}"),
        _ => "GET /nothing HTTP/1.1".to_owned(),
    };
    Ok(format!("{first}\r\nConnection: close\r\n{rest}").into_bytes())
}
