//! TLS between nodes, and how they speak without it.
//!
//! A leader shows the certificate of its doors at the cluster's address. A node that hands a client on checks that
//! this certificate is for the host that the leader advertises. The node itself is admitted by the key in the
//! [preamble](crate::preamble), with TLS or without: nodes show each other no certificates as clients.
//!
//! Doors and routers take only plain sockets of the system. So behind an encrypted connection there is a pair of
//! sockets within this machine ([`in_plain`]).

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use spindle_tls::client::{ClientFiles, Trust};
use spindle_tls::stream::{HandshakeTurns, MaybeTls, first_byte, shake_hands};
use spindle_tls::{FileError, FirstByte, ListenerTls, Speaks, distrust};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

use crate::seldom::Seldom;

/// Whether nodes encrypt what they say to each other, and whom they trust. Clones share what
/// [`NodeTls::reload`] reads. By default nothing is encrypted.
#[derive(Clone, Default)]
pub struct NodeTls {
    listener: ListenerTls,
    trusted: Option<Arc<Trusted>>,
    /// Counts the lines that say that the settings of this node and of the leader do not fit together.
    at_odds: Arc<Seldom>,
}

struct Trusted {
    files: ClientFiles,
    current: RwLock<Arc<ClientConfig>>,
}

/// How a leader wants to be spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    /// It is in this process: nothing leaves the machine.
    Inside,
    /// In plain bytes.
    Plain,
    /// With TLS.
    Encrypted,
}

impl NodeTls {
    /// Nodes show the certificate of `listener`, and trust the authorities that `trust` names. With a listener
    /// that allows TLS but does not require it, plain connections are taken and made too.
    ///
    /// # Errors
    ///
    /// What is wrong with the file of trusted authorities.
    pub fn new(listener: ListenerTls, trust: Trust) -> Result<NodeTls, FileError> {
        let files = ClientFiles { trust, identity: None };
        let current = RwLock::new(Arc::new(files.config()?));
        let trusted = Some(Arc::new(Trusted { files, current }));
        Ok(NodeTls { listener, trusted, at_odds: Arc::default() })
    }

    /// Reads the trusted authorities again, for connections that are made from now on.
    ///
    /// # Errors
    ///
    /// What is wrong with the file. Then the authorities trusted before remain trusted.
    pub fn reload(&self) -> Result<(), FileError> {
        let Some(trusted) = &self.trusted else { return Ok(()) };
        let read = Arc::new(trusted.files.config()?);
        *trusted.current.write() = read;
        Ok(())
    }

    /// How others may speak to this node.
    pub(crate) fn channel(&self) -> Channel {
        if self.listener.is_off() { Channel::Plain } else { Channel::Encrypted }
    }

    /// Takes a connection as it begins.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        turns: &HandshakeTurns,
        within: Duration,
    ) -> io::Result<MaybeTls<TcpStream>> {
        match first_byte(&stream, &self.listener).await? {
            None => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(FirstByte::Plain) => Ok(MaybeTls::Plain(stream)),
            Some(FirstByte::Refused) if stays_on_this_machine(&stream) => {
                Ok(MaybeTls::Plain(stream))
            }
            Some(FirstByte::Refused) => Err(io::Error::other("it is not encrypted")),
            Some(FirstByte::Handshake(tls)) => {
                shake_hands(stream, &tls, Speaks::Lines, turns, within).await
            }
        }
    }

    /// Connects to a leader at this address, over the channel that it wants.
    pub(crate) async fn connect(
        &self,
        address: &str,
        channel: Channel,
    ) -> io::Result<MaybeTls<TcpStream>> {
        let connected = self.try_connect(address, channel).await;
        if let Err(error) = &connected
            && is_lasting(error)
            && let Some(since_start) = self.at_odds.count()
        {
            tracing::warn!(leader = address, since_start, "the leader cannot be trusted: {error}");
        }
        connected
    }

    async fn try_connect(
        &self,
        address: &str,
        channel: Channel,
    ) -> io::Result<MaybeTls<TcpStream>> {
        let at_odds = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let is_demanded = matches!(self.listener, ListenerTls::Required(_));
        let config = match (channel, &self.trusted) {
            (Channel::Encrypted, None) => {
                return at_odds("it encrypts, and this node has no --cluster-ca-file");
            }
            (Channel::Plain, _) if is_demanded => {
                return at_odds("it does not encrypt, and this node has --cluster-ca-file");
            }
            (Channel::Encrypted, Some(trusted)) => Some(Arc::clone(&*trusted.current.read())),
            (Channel::Plain | Channel::Inside, _) => None,
        };
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(config) = config else { return Ok(MaybeTls::Plain(stream)) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let shaken = TlsConnector::from(config).connect(name, stream).await.map_err(explained)?;
        Ok(MaybeTls::Client(Box::new(shaken)))
    }
}

/// Whether the error will recur until somebody changes a setting or a certificate.
fn is_lasting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData)
}

/// What is wrong with a leader's certificate, in words for the person who has to correct it.
fn explained(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(cause)) => {
            let why = distrust(cause, "--cluster-ca-file");
            io::Error::new(error.kind(), format!("its certificate: {why}"))
        }
        _ => error,
    }
}

/// Whether both ends of a connection have the same address: nobody else can listen in.
fn stays_on_this_machine(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(own), Ok(other)) => own.ip() == other.ip(),
        _ => false,
    }
}

/// A socket with the plain bytes of a connection, which are carried between the two for as long as both last.
pub(crate) async fn in_plain(stream: MaybeTls<TcpStream>) -> io::Result<TcpStream> {
    let mut encrypted = match stream {
        MaybeTls::Plain(stream) => return Ok(stream),
        encrypted => encrypted,
    };
    let (own, mut carried) = pair().await?;
    tokio::spawn(async move {
        if let Err(error) = copy_bidirectional(&mut encrypted, &mut carried).await {
            tracing::debug!("an encrypted connection between nodes broke off: {error}");
        }
    });
    Ok(own)
}

/// Two sockets that are connected with each other.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let own = one.local_addr()?;
    loop {
        // Another program of this machine may connect first: its connection is not taken for ours.
        let (other, from) = listener.accept().await?;
        if from == own {
            one.set_nodelay(true)?;
            other.set_nodelay(true)?;
            return Ok((one, other));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use spindle_testkit::Certificates;
    use spindle_tls::client::Identity;
    use spindle_tls::{ServerFiles, ServerTls};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    fn required(certificates: &Certificates) -> NodeTls {
        let listener = ListenerTls::Required(certificates.loaded());
        NodeTls::new(listener, Trust::File(certificates.ca())).unwrap()
    }

    fn optional(certificates: &Certificates) -> NodeTls {
        let listener = ListenerTls::Optional(certificates.loaded());
        NodeTls::new(listener, Trust::File(certificates.ca())).unwrap()
    }

    /// A leader that takes one connection and echoes what comes on it. Returns its address.
    async fn leader(tls: NodeTls) -> (SocketAddr, tokio::task::JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await?;
            let stream = tls.accept(stream, &HandshakeTurns::default(), TIME).await?;
            let (mut from, mut to) = in_plain(stream).await?.into_split();
            tokio::io::copy(&mut from, &mut to).await.map(drop)
        });
        (address, served)
    }

    /// What is echoed of a word that is sent by this channel.
    async fn echoed(tls: &NodeTls, leader: &str, channel: Channel) -> io::Result<String> {
        let mut stream = in_plain(tls.connect(leader, channel).await?).await?;
        stream.write_all(b"word").await?;
        stream.shutdown().await?;
        let mut back = String::new();
        stream.read_to_string(&mut back).await?;
        Ok(back)
    }

    #[tokio::test]
    async fn bytes_go_both_ways_to_the_end_as_the_leader_wants_them() {
        let certificates = Certificates::new();
        let (off, required, optional) =
            (NodeTls::default(), required(&certificates), optional(&certificates));
        for (leads, comes, channel) in [
            (&off, &off, Channel::Plain),
            (&off, &optional, Channel::Plain),
            (&optional, &off, Channel::Plain),
            (&optional, &required, Channel::Encrypted),
            (&required, &required, Channel::Encrypted),
            (&required, &required, Channel::Inside),
        ] {
            let (address, served) = leader(leads.clone()).await;
            let echoed = echoed(comes, &address.to_string(), channel).await;
            assert_eq!(echoed.unwrap(), "word", "{channel:?}");
            served.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn nodes_at_odds_do_not_speak() {
        let (ours, others) = (Certificates::new(), Certificates::new());
        let Identity { certificate, key } = ours.server_named("another-host");
        let misnamed = ServerFiles { certificate, key, ..ours.server() };
        let misnamed = Arc::new(ServerTls::load(misnamed).unwrap());
        for shown in [others.loaded(), misnamed] {
            let tls = NodeTls { listener: ListenerTls::Required(shown), ..NodeTls::default() };
            let (address, _served) = leader(tls).await;
            let refused = echoed(&required(&ours), &address.to_string(), Channel::Encrypted).await;
            let error = refused.unwrap_err();
            assert!(is_lasting(&error), "{error:?}");
        }
        // Before anything is sent.
        let nobody = "127.0.0.1:1";
        let plain = echoed(&required(&ours), nobody, Channel::Plain).await.unwrap_err();
        assert!(plain.to_string().contains("does not encrypt"), "{plain}");
        let blind = echoed(&NodeTls::default(), nobody, Channel::Encrypted).await.unwrap_err();
        assert!(blind.to_string().contains("no --cluster-ca-file"), "{blind}");
        // An error because nobody listens there is a passing one.
        let gone = echoed(&required(&ours), nobody, Channel::Encrypted).await.unwrap_err();
        assert!(!is_lasting(&gone), "{gone:?}");
    }

    #[tokio::test]
    async fn plain_bytes_are_refused_from_elsewhere() {
        let certificates = Certificates::new();
        for (tls, from, is_taken) in [
            (required(&certificates), "127.0.0.1:0", true),
            (required(&certificates), "127.0.0.2:0", false),
            (optional(&certificates), "127.0.0.2:0", true),
            (NodeTls::default(), "127.0.0.2:0", true),
        ] {
            let (address, served) = leader(tls).await;
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(from.parse().unwrap()).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            stream.write_all(b"S").await.unwrap();
            stream.shutdown().await.unwrap();
            let served = served.await.unwrap();
            assert_eq!(served.is_ok(), is_taken, "{from} {served:?}");
        }
    }

    #[tokio::test]
    async fn who_is_trusted_is_read_anew() {
        let (ours, others) = (Certificates::new(), Certificates::new());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(ours.ca(), file.path()).unwrap();
        let listener = ListenerTls::Required(ours.loaded());
        let tls = NodeTls::new(listener, Trust::File(file.path().to_owned())).unwrap();
        let (address, _served) = leader(required(&others)).await;
        let refused = echoed(&tls, &address.to_string(), Channel::Encrypted).await.unwrap_err();
        assert!(refused.to_string().ends_with("with --cluster-ca-file"), "{refused}");

        std::fs::write(file.path(), "no certificate").unwrap();
        tls.reload().unwrap_err();
        std::fs::copy(others.ca(), file.path()).unwrap();
        tls.reload().unwrap();
        let (address, _served) = leader(required(&others)).await;
        let echoed = echoed(&tls, &address.to_string(), Channel::Encrypted).await;
        assert_eq!(echoed.unwrap(), "word");
    }
}
