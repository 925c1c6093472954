//! The listening side that the worker and the master share: addresses, the password, limits.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use spindle_budget::Budgets;
use spindle_limits::{DoorPlaces, PlaceLimits, Places, RequestRates};
use spindle_tls::stream::{HandshakeTurns, MaybeTls, first_byte, shake_hands};
use spindle_tls::{FirstByte, ListenerTls, ServerFiles, ServerTls, Speaks, TlsMode};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{Instant, timeout, timeout_at},
};
use tracing::{debug, warn};

use crate::{
    access::Admission,
    link::{Connection, Link, PeerLimits, Responder, Stream},
    wire::{Request, encode_response},
};

pub use crate::access::Access;

/// Where a daemon listens, who may connect, and the limits on that.
#[derive(Clone, Debug, Default)]
pub struct ListenSettings {
    /// Host name or address.
    pub host: String,
    /// TCP port; 0 lets the system choose.
    pub port: u16,
    /// That address, where it was claimed before. It is used by another handle of it.
    pub listener: Option<Arc<StdListener>>,
    /// The password, and whether local peers need it.
    pub access: Access,
    /// Whether other machines may reach the address although something is [missing](Missing).
    pub insecure: bool,
    /// The certificate that it shows, if connections may be encrypted.
    pub tls: Option<Arc<ServerTls>>,
    /// Which connections it takes; `None`: see [`TlsMode::usual`].
    pub tls_mode: Option<TlsMode>,
    /// How long messages may be.
    pub limits: Limits,
    /// The memory that all clients together may make the program hold.
    pub budgets: Budgets,
    /// How many connections there may be.
    pub places: ListenPlaces,
    /// How often each client address may send requests; `None`: unlimited.
    pub rates: Option<Arc<RequestRates>>,
    /// How long a connection may send nothing while no answer is owed; none: for ever.
    pub idle_time: Option<Duration>,
}

/// Protection that an address that other machines can reach should have, and does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It does not require clients to authenticate.
    Identity,
    /// It does not insist on TLS.
    Tls,
    /// Neither.
    Both,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Identity => "no password is set",
            Missing::Tls => "TLS is not required",
            Missing::Both => "no password is set, and TLS is not required",
        })
    }
}

impl ListenSettings {
    /// Which connections are taken at this address.
    fn listener_tls(&self, address: SocketAddr) -> ListenerTls {
        let mode = self.tls_mode.unwrap_or_else(|| TlsMode::usual(address));
        ListenerTls::new(mode, self.tls.as_ref())
    }

    /// The protection that this address should have, and does not. `None` on loopback. Requiring a
    /// client certificate counts as a password.
    pub fn missing(&self, address: SocketAddr) -> Option<Missing> {
        if address.ip().to_canonical().is_loopback() {
            return None;
        }
        let files = self.tls.as_ref().map(|tls| tls.files());
        let shown =
            |files: &ServerFiles| files.client_ca.is_some() && files.client_certificate_required;
        let asks = self.access.password.is_some() || files.is_some_and(shown);
        match (asks, self.listener_tls(address).is_required()) {
            (true, true) => None,
            (false, true) => Some(Missing::Identity),
            (true, false) => Some(Missing::Tls),
            (false, false) => Some(Missing::Both),
        }
    }
}

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one message from a client.
    pub message_bytes_max: usize,
    /// Within this time of being accepted, a connection has encrypted, where it has to, and its peer was
    /// admitted. Otherwise it is closed, whatever it has sent.
    pub login_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes_max: 16 * 1024 * 1024, login_time: Duration::from_secs(60) }
    }
}

/// The places of a listener. Further connections are closed at once.
#[derive(Clone, Debug)]
pub struct ListenPlaces(pub DoorPlaces);

impl ListenPlaces {
    /// This many, for a daemon with one listener.
    pub fn alone(connections_max: usize) -> Self {
        Self(Places::new(PlaceLimits::alone(connections_max)).door("jobd"))
    }
}

impl Default for ListenPlaces {
    fn default() -> Self {
        Self::alone(1024)
    }
}

/// What answers the requests of a daemon's connections.
pub trait Service: Send + Sync + 'static {
    /// Takes one request of a peer that may ask; must not block.
    fn request(&self, request: Request, responder: Responder);

    /// A connection that was accepted has ended.
    fn closed(&self, _link: &Link) {}
}

/// Why a daemon cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// The address is taken or not this machine's.
    #[error("cannot listen at {address}: {cause}; change host or port in the configuration")]
    Listen {
        /// `host:port` as configured.
        address: String,
        /// The reason, from the system.
        cause: io::Error,
    },
    /// Other machines can reach the address, and anybody there could start jobs or eavesdrop.
    #[error(
        "{address} can be reached from other machines and {missing}; set password (or \
         tls_client_ca), tls_cert and tls_key, or allow it with insecure = 1 or --insecure"
    )]
    Open {
        /// The address that was resolved.
        address: SocketAddr,
        /// What it should have.
        missing: Missing,
    },
}

/// A claimed address that does not accept yet.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
    tls: ListenerTls,
    limits: Limits,
    budgets: Budgets,
    places: DoorPlaces,
    peer_limits: PeerLimits,
}

impl Listener {
    /// Claims the address. One that other machines can reach needs a password and TLS, unless
    /// `insecure`.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(settings: &ListenSettings) -> Result<Self, BindError> {
        let ListenSettings { host, port, access, insecure, limits, budgets, places, .. } = settings;
        let failed = |cause| BindError::Listen { address: format!("{host}:{port}"), cause };
        let listener = match &settings.listener {
            Some(claimed) => claimed.try_clone().and_then(TcpListener::from_std),
            None => TcpListener::bind((host.as_str(), *port)).await,
        };
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if let (Some(missing), false) = (settings.missing(address), *insecure) {
            return Err(BindError::Open { address, missing });
        }
        let (access, tls) = (access.clone(), settings.listener_tls(address));
        let (budgets, places, limits) = (budgets.clone(), places.0.clone(), *limits);
        let (rates, idle_time) = (settings.rates.clone(), settings.idle_time);
        let peer_limits = PeerLimits { rates, idle_time };
        Ok(Self { listener, address, access, tls, limits, budgets, places, peer_limits })
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections and hands their requests to the service.
    pub fn serve(self, service: Arc<dyn Service>) -> Server {
        let (stop, stopped) = watch::channel(false);
        let links = Links::default();
        let (adopts, adopted) = mpsc::unbounded_channel();
        tokio::spawn(self.accept(service, links.clone(), stopped, adopted));
        Server { stop, links, adopts }
    }

    async fn accept(
        self,
        service: Arc<dyn Service>,
        links: Links,
        mut stop: watch::Receiver<bool>,
        mut adopted: mpsc::UnboundedReceiver<(StdStream, SocketAddr)>,
    ) {
        let Limits { message_bytes_max, login_time } = self.limits;
        let access = Arc::new(self.access);
        let turns = HandshakeTurns::default();
        let mut is_failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some((stream, client)) = adopted.recv() => match TcpStream::from_std(stream) {
                    Ok(stream) => Ok((stream, client)),
                    Err(error) => {
                        debug!(%client, %error, "a connection that was handed on did not begin");
                        continue;
                    }
                },
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let was_failing = std::mem::replace(&mut is_failing, accepted.is_err());
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: some have to close before the next try helps.
                    if !was_failing {
                        warn!(%error, "cannot accept connections; trying again");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = self.places.take(peer) else { continue };
            let (access, service) = (Arc::clone(&access), Arc::clone(&service));
            let (links, tls, turns) = (links.clone(), self.tls.clone(), turns.clone());
            let (budgets, peer_limits) = (self.budgets.clone(), self.peer_limits.clone());
            let accepted_at = Instant::now();
            let by = accepted_at + login_time;
            tokio::spawn(async move {
                let admission = Admission::new(access, peer);
                let is_asked = tls.is_required() || !admission.is_admitted();
                let login_by = is_asked.then_some(by);
                let idle_by = peer_limits.idle_time.and_then(|time| accepted_at.checked_add(time));
                let opening = open(stream, &tls, &turns);
                let opened = match login_by.into_iter().chain(idle_by).min() {
                    None => opening.await,
                    Some(by) => timeout_at(by, opening).await.unwrap_or_else(|_| silent()),
                };
                let opened = match opened {
                    Ok(stream) => Link::open_from(&budgets, stream, peer, message_bytes_max),
                    Err(error) => Err(error),
                };
                let (link, connection) = match opened {
                    Ok(opened) => opened,
                    Err(error) => return debug!(%error, "a connection did not begin"),
                };
                debug!(connection = link.number(), peer = %link.remote(), "connected");
                let admitted =
                    admission.guard(|request, responder| service.request(request, responder));
                let mut serving = pin!(links.run(connection.with(peer_limits), admitted));
                tokio::select! {
                    () = &mut serving => {}
                    () = admission.is_late(by) => {
                        debug!(peer = %link.remote(), "did not log in in time");
                        link.end();
                        serving.await;
                    }
                }
                service.closed(&link);
                drop(place);
            });
        }
    }
}

/// The error for a connection that has sent nothing, or whose handshake did not end in time.
fn silent() -> io::Result<Stream> {
    Err(io::ErrorKind::TimedOut.into())
}

/// The stream to use, after the handshake if there is one. A client that connects without TLS
/// although it has to use it gets an error in the protocol.
async fn open(
    mut stream: TcpStream,
    tls: &ListenerTls,
    turns: &HandshakeTurns,
) -> io::Result<Stream> {
    match first_byte(&stream, tls).await? {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(FirstByte::Plain) => Ok(MaybeTls::Plain(stream)),
        Some(FirstByte::Handshake(tls)) => {
            shake_hands(stream, &tls, Speaks::Lines, turns, HANDSHAKE_TIME).await
        }
        Some(FirstByte::Refused) => {
            let text = "this port takes encrypted connections only: connect with TLS";
            stream.write_all(&encode_response(0, Err(text))).await?;
            stream.shutdown().await?;
            // Closing the socket while bytes of the client are unread would destroy the answer.
            let mut rest = [0; 4096];
            let gone = async {
                while stream.read(&mut rest).await? > 0 {}
                io::Result::Ok(())
            };
            let _ = timeout(LINGER, gone).await;
            Err(io::Error::other("it is not encrypted"))
        }
    }
}

/// A handshake ends within this time.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long a client that was refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// A daemon that accepts connections until it is stopped or dropped. Connections that are open
/// then stay open.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    links: Links,
    adopts: mpsc::UnboundedSender<(StdStream, SocketAddr)>,
}

/// Passes connections to a daemon that were accepted elsewhere.
#[derive(Clone, Debug)]
pub struct Adopter(mpsc::UnboundedSender<(StdStream, SocketAddr)>);

impl Adopter {
    /// Has a connection served as if it had been accepted from this client. It is closed if the
    /// daemon accepts no more, or has no place for it. `stream` does not block, and was read up to where the
    /// client's own bytes begin.
    pub fn adopt(&self, stream: StdStream, client: SocketAddr) {
        // A daemon that does not accept any more drops it.
        let _ = self.0.send((stream, client));
    }
}

impl Server {
    /// Passes connections to it that were accepted elsewhere.
    pub fn adopter(&self) -> Adopter {
        Adopter(self.adopts.clone())
    }

    /// Stops accepting.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The open connections.
    pub fn links(&self) -> &Links {
        &self.links
    }
}

/// The open connections of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<Vec<Link>>>);

impl Links {
    /// Reads a connection to its end and hands every request to `serve`.
    pub async fn run(&self, connection: Connection, serve: impl FnMut(Request, Responder)) {
        let link = connection.link().clone();
        self.0.lock().push(link.clone());
        connection.run(serve).await;
        self.0.lock().retain(|open| *open != link);
    }

    /// All that are open now.
    pub fn all(&self) -> Vec<Link> {
        self.0.lock().clone()
    }

    /// Closes each once its peer has taken what was sent, and waits for that.
    pub async fn close_all(&self) {
        let links = self.all();
        links.iter().for_each(Link::close);
        for link in &links {
            link.closed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use spindle_testkit::Certificates;
    use tokio::time::Instant;

    use super::*;
    use crate::wire::encode_request;

    fn default<T: Default>() -> T {
        T::default()
    }

    fn guarded() -> Access {
        Access { password: Some("sesame".to_owned()), always_allow_localhost: false }
    }

    #[tokio::test]
    async fn an_open_address_without_a_password_and_tls_is_refused_unless_it_is_allowed() {
        let bind = async |host: &str, access: Access, insecure| {
            let settings = ListenSettings { host: host.to_owned(), access, insecure, ..default() };
            Listener::bind(&settings).await
        };
        for (access, lacks) in [(default(), Missing::Both), (guarded(), Missing::Tls)] {
            let refused = bind("0.0.0.0", access, false).await;
            let expected =
                matches!(refused, Err(BindError::Open { missing, .. }) if missing == lacks);
            assert!(expected, "{refused:?}");
        }
        assert!(bind("0.0.0.0", default(), true).await.is_ok());
        assert!(bind("127.0.0.1", default(), false).await.is_ok());
    }

    struct Echo;

    impl Service for Echo {
        fn request(&self, _: Request, responder: Responder) {
            responder.ok();
        }
    }

    async fn serving(settings: ListenSettings) -> (SocketAddr, Server) {
        let settings = ListenSettings { host: "127.0.0.1".to_owned(), ..settings };
        let listener = Listener::bind(&settings).await.unwrap();
        (listener.address(), listener.serve(Arc::new(Echo)))
    }

    /// How long a test waits for what must come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Whether a connection is closed before it has said anything.
    async fn is_closed(stream: &mut TcpStream) -> bool {
        let mut bytes = [0; 16];
        let read = timeout(PATIENCE, stream.read(&mut bytes)).await;
        matches!(read.expect("neither closed nor answered"), Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn one_connection_too_many_is_closed_at_once() {
        let settings = ListenSettings { places: ListenPlaces::alone(2), ..default() };
        let (address, _server) = serving(settings).await;
        let first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        assert!(is_closed(&mut TcpStream::connect(address).await.unwrap()).await);
        drop(first);
        // Its place is free as soon as its end is noticed.
        let mut third = TcpStream::connect(address).await.unwrap();
        while timeout(Duration::from_millis(50), is_closed(&mut third)).await == Ok(true) {
            third = TcpStream::connect(address).await.unwrap();
        }
        second.write_all(&encode_request(7, "poke", None, None)).await.unwrap();
        assert!(!is_closed(&mut second).await);
    }

    /// The clock is paused, and advances when nothing else is left to do.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_stalls_is_closed() {
        let certificates = Certificates::new();
        let settings = ListenSettings { tls: Some(certificates.loaded()), ..default() };
        let (address, _server) = serving(settings).await;
        for begun in [&b"\x16"[..], b"\x16\x03\x01\x02"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun).await.unwrap();
            let before = Instant::now();
            assert!(is_closed(&mut stream).await);
            assert!(before.elapsed() >= HANDSHAKE_TIME, "{:?}", before.elapsed());
        }
    }

    /// A connection may only be silent between two records.
    #[tokio::test]
    async fn who_is_silent_in_the_middle_of_a_record_is_closed() {
        let certificates = Certificates::new();
        let settings = ListenSettings { tls: Some(certificates.loaded()), ..default() };
        let (address, _server) = serving(settings).await;
        let served = tokio::task::spawn_blocking(move || {
            use std::io::{Read as _, Write as _};
            let mut client = certificates.connect(StdStream::connect(address).unwrap(), None);
            client.write_all(b"[2]\x04").unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
            client.sock
        });
        let stream = served.await.unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(stream).unwrap();
        // From here on the clock is paused, and advances when nothing else is left to do.
        tokio::time::pause();
        let before = Instant::now();
        stream.write_all(b"\x17\x03\x03\0\x40half").await.unwrap();
        // Second by second, so that the server hears of it before all of the time has passed. Neither
        // an error nor what TLS says at the end is of interest.
        let second = Duration::from_secs(1);
        let end = async { stream.read_to_end(&mut Vec::new()).await };
        tokio::pin!(end);
        while timeout(second, &mut end).await.is_err() {
            assert!(before.elapsed() < Duration::from_secs(120), "still open");
        }
        assert!(before.elapsed() >= Duration::from_secs(60), "{:?}", before.elapsed());
    }

    const LOGIN_TIME: Duration = Duration::from_secs(60);

    /// How long it takes until a client is closed that sends these bytes, and then these every five
    /// seconds. The clock is paused.
    async fn time_until_closed(address: SocketAddr, first: &[u8], then: &[u8]) -> Duration {
        let (mut stream, began) = (TcpStream::connect(address).await.unwrap(), Instant::now());
        let mut bytes = [0; 1024];
        let mut to_send = first;
        while began.elapsed() < 10 * LOGIN_TIME {
            let end = async {
                stream.write_all(to_send).await?;
                while stream.read(&mut bytes).await? > 0 {}
                io::Result::Ok(())
            };
            // An error is an end, too.
            if timeout(Duration::from_secs(5), end).await.is_ok() {
                return began.elapsed();
            }
            to_send = then;
        }
        panic!("still open");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_log_in_is_closed_whatever_it_sends() {
        let (with_password, _kept) =
            serving(ListenSettings { access: guarded(), ..default() }).await;
        let certificates = Certificates::new();
        let (tls, tls_mode) = (Some(certificates.loaded()), Some(TlsMode::Required));
        let (with_tls, _kept_too) = serving(ListenSettings { tls, tls_mode, ..default() }).await;
        for (address, first, then) in [
            (with_password, "", ""),
            // A ping now and then, and the rest of a message byte by byte.
            (with_password, "", "[2]\x04"),
            (with_password, "[", " "),
            (with_tls, "", ""),
        ] {
            let time = time_until_closed(address, first.as_bytes(), then.as_bytes()).await;
            // Up to five seconds pass before it is noticed here.
            let range = LOGIN_TIME..LOGIN_TIME + Duration::from_secs(6);
            assert!(range.contains(&time), "{first} {then}: {time:?}");
        }
    }

    #[tokio::test]
    async fn who_has_logged_in_or_need_not_may_be_silent() {
        let near = Access { always_allow_localhost: true, ..guarded() };
        for (access, password) in [(guarded(), Some("sesame")), (near, None), (default(), None)] {
            let (address, _server) = serving(ListenSettings { access, ..default() }).await;
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut answer = [0; 1024];
            if password.is_some() {
                stream.write_all(&encode_request(7, "poke", None, password)).await.unwrap();
                assert!(stream.read(&mut answer).await.unwrap() > 0);
            }
            // From here on the clock advances when nothing else is left to do.
            tokio::time::pause();
            let read = timeout(10 * LOGIN_TIME, stream.read(&mut answer)).await;
            assert!(read.is_err(), "{read:?}");
            tokio::time::resume();
            stream.write_all(&encode_request(8, "poke", None, None)).await.unwrap();
            assert!(stream.read(&mut answer).await.unwrap() > 0);
        }
    }

    #[tokio::test]
    async fn who_is_silent_for_too_long_is_closed_when_asked_for() {
        let idle_time = Some(Duration::from_millis(100));
        let (address, _server) = serving(ListenSettings { idle_time, ..default() }).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&encode_request(7, "poke", None, None)).await.unwrap();
        let mut answer = [0; 1024];
        assert!(stream.read(&mut answer).await.unwrap() > 0);
        assert!(is_closed(&mut stream).await);
    }
}
