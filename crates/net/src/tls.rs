//! The encryption of one connection: rustls between the socket's bytes and the session's.
//!
//! Nothing is kept here that the reactor's limits do not see. What comes in is decrypted at once, so
//! that only an unfinished record stays (at most 16 KiB). What goes out stays in the outbox too
//! until its last encrypted byte has been handed to the socket; it is encrypted one record at a
//! time.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::{ServerConfig, ServerConnection};
use spindle_tls::Records;

/// An encrypted connection.
pub(crate) struct Tls {
    session: ServerConnection,
    /// Encrypted bytes that the socket has not taken yet.
    sealed: BytesMut,
    /// So many bytes of the outbox are in `sealed`.
    sealed_plain: usize,
    records: Records,
    /// What the peer sent is not valid TLS: all that is left to send is the alert that says so.
    failed: bool,
}

/// What encrypted bytes have brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opened {
    /// Plain bytes, or a part of the handshake, or nothing yet.
    More,
    /// The peer sends no more.
    End,
}

impl Tls {
    /// The server's side of a handshake that begins.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        Ok(Tls {
            session: ServerConnection::new(config)?,
            sealed: BytesMut::new(),
            sealed_plain: 0,
            records: Records::default(),
            failed: false,
        })
    }

    /// Takes what came from the socket, and appends what it says to `plain`.
    pub(crate) fn open(
        &mut self,
        mut bytes: &[u8],
        plain: &mut BytesMut,
    ) -> Result<Opened, rustls::Error> {
        self.records.pass(bytes);
        let is_large = bytes.len() > RELEASE_BYTES_MIN;
        while !bytes.is_empty() {
            let fed = self.session.read_tls(&mut bytes);
            let fed = fed.map_err(|error| self.fail(rustls::Error::General(error.to_string())))?;
            if fed == 0 {
                // The peer has announced its end; bytes behind that are not from it.
                return Ok(Opened::End);
            }
            let processed = self.session.process_new_packets();
            let state = processed.map_err(|error| self.fail(error))?;
            let (kept, count) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(kept + count, 0);
            if count > 0 && self.session.reader().read_exact(&mut plain[kept..]).is_err() {
                plain.truncate(kept);
            }
            if state.peer_has_closed() {
                return Ok(Opened::End);
            }
        }
        if is_large && !self.is_mid_record() {
            self.release();
        }
        Ok(Opened::More)
    }

    /// Lets go of the buffer for records, which shrinks when it is about to be read into.
    fn release(&mut self) {
        struct Nothing;
        impl Read for Nothing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
        let _ = self.session.read_tls(&mut Nothing);
    }

    fn fail(&mut self, error: rustls::Error) -> rustls::Error {
        self.failed = true;
        error
    }

    /// Whether the handshake is still under way.
    pub(crate) fn is_shaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether a record has begun and not ended.
    pub(crate) fn is_mid_record(&self) -> bool {
        self.records.is_mid_record()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The common name of the client's certificate, which was verified in the handshake.
    pub(crate) fn certificate_name(&self) -> Option<Arc<str>> {
        let certificate = self.session.peer_certificates()?.first()?;
        spindle_tls::common_name(certificate).map(Arc::from)
    }

    /// Encrypts the first of these bytes, one record of them at most, unless others wait for the
    /// socket already.
    pub(crate) fn seal(&mut self, released: &[u8]) {
        self.collect();
        if self.sealed_plain > 0 || self.failed || released.is_empty() {
            return;
        }
        let record = &released[..released.len().min(RECORD_BYTES_MAX)];
        // rustls takes up to its limit, and returns how much.
        self.sealed_plain = self.session.writer().write(record).unwrap_or(0);
        self.collect();
    }

    /// Says that nothing more follows.
    pub(crate) fn seal_end(&mut self) {
        if !self.failed {
            self.session.send_close_notify();
        }
        self.collect();
    }

    /// Takes over what rustls has to send.
    fn collect(&mut self) {
        while self.session.wants_write() {
            let mut into = Appended(&mut self.sealed);
            if self.session.write_tls(&mut into).is_err() {
                return;
            }
        }
    }

    /// Whether something waits for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.sealed.is_empty() || self.session.wants_write()
    }

    /// What the socket is to be given.
    pub(crate) fn sealed(&self) -> &[u8] {
        &self.sealed
    }

    /// The socket has taken so many bytes. Returns how many bytes of the outbox have left with them:
    /// those of a record count when its last byte is gone.
    pub(crate) fn sent(&mut self, count: usize) -> usize {
        self.sealed.advance(count);
        if !self.sealed.is_empty() {
            return 0;
        }
        // Most connections are idle most of the time.
        self.sealed = BytesMut::new();
        std::mem::take(&mut self.sealed_plain)
    }
}

struct Appended<'a>(&'a mut BytesMut);

impl Write for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The most that one record carries.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// rustls keeps a buffer of this size, and a larger one once it was needed.
const RELEASE_BYTES_MIN: usize = 4 * 1024;
