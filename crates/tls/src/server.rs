//! Which certificate the listeners show, and which client certificates they accept.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, InconsistentKeys, ServerConfig};

use crate::clock::{Tickets, WallClock};
use crate::files::{FileError, authorities, certificates, guarded_key, unusable};

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, followed by those that lead to an authority; PEM.
    pub certificate: PathBuf,
    /// The private key of the first certificate; PEM.
    pub key: PathBuf,
    /// Those who vouch for client certificates; PEM. Without it, clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are refused. Means nothing without `client_ca`.
    pub client_certificate_required: bool,
}

/// What is spoken within TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// A protocol that ALPN has no name for.
    Lines,
    /// HTTP/1.1.
    Http,
}

/// Certificate and key of a server, as they are in force.
///
/// Clients may resume sessions by tickets, which cost the server no memory. Where clients are asked for
/// certificates there are no tickets: a resumed session would skip the check of a certificate that has
/// expired since. A client without a certificate is let in, without a name, unless the files say
/// otherwise; a client with a wrong certificate is not.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    current: RwLock<Current>,
    handshakes: Handshakes,
}

/// How handshakes have ended since the start. They are statistics: any memory ordering will do.
#[derive(Clone, Debug, Default)]
pub struct Handshakes {
    /// Encrypted connections that have begun.
    pub done: Arc<AtomicU64>,
    /// Handshakes that failed, were broken off, or took too long.
    pub failed: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Current {
    lines: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn load(files: ServerFiles) -> Result<ServerTls, FileError> {
        let current = RwLock::new(Current::read(&files)?);
        Ok(ServerTls { files, current, handshakes: Handshakes::default() })
    }

    /// Reads the files again. Handshakes that begin from now on use what they hold; connections
    /// that are open stay as they are.
    ///
    /// # Errors
    /// What is wrong with which file. Then what was in force stays in force.
    pub fn reload(&self) -> Result<(), FileError> {
        let read = Current::read(&self.files)?;
        *self.current.write() = read;
        Ok(())
    }

    /// The files that it was read from.
    pub fn files(&self) -> &ServerFiles {
        &self.files
    }

    /// Counts handshakes of all listeners that use this certificate; the listeners keep it.
    pub fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    /// What the next handshake uses.
    pub fn config(&self, speaks: Speaks) -> Arc<ServerConfig> {
        let current = self.current.read();
        Arc::clone(match speaks {
            Speaks::Lines => &current.lines,
            Speaks::Http => &current.http,
        })
    }
}

impl Current {
    fn read(files: &ServerFiles) -> Result<Current, FileError> {
        let lines = config_of(files)?;
        let mut http = lines.clone();
        http.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Current { lines: Arc::new(lines), http: Arc::new(http) })
    }
}

fn config_of(files: &ServerFiles) -> Result<ServerConfig, FileError> {
    let ServerFiles { certificate, key, client_ca, client_certificate_required } = files;
    let chain = certificates(certificate)?;
    let secret = guarded_key(key)?;
    let provider = Arc::new(ring::default_provider());
    let clock = Arc::new(WallClock(SystemTime::now));
    let config = ServerConfig::builder_with_details(Arc::clone(&provider), clock)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(certificate, error))?;
    let config = match client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            if !client_certificate_required {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build().map_err(|error| unusable(path, error))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_single_cert(chain, secret).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            FileError::Mismatch { key: key.clone(), certificate: certificate.clone() }
        }
        Error::InvalidCertificate(_) => unusable(certificate, error),
        _ => unusable(key, error),
    })?;
    if client_ca.is_none() {
        let tickets = Tickets::new(WallClock(SystemTime::now));
        config.ticketer = Arc::new(tickets.map_err(|error| unusable(key, error))?);
    } else {
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use rcgen::{Certificate, KeyPair, generate_simple_self_signed};
    use tempfile::TempDir;

    use super::*;

    struct Files {
        folder: TempDir,
        files: ServerFiles,
    }

    fn made() -> (Certificate, KeyPair) {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert, made.signing_key)
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    impl Files {
        fn new() -> Files {
            let folder = tempfile::tempdir().unwrap();
            let (cert, key) = made();
            let path = |name: &str| folder.path().join(name);
            let files = ServerFiles {
                certificate: path("cert.pem"),
                key: path("key.pem"),
                client_ca: None,
                client_certificate_required: false,
            };
            write(&files.certificate, &cert.pem(), 0o644);
            write(&files.key, &key.serialize_pem(), 0o600);
            Files { folder, files }
        }

        fn refused(&self) -> String {
            ServerTls::load(self.files.clone()).unwrap_err().to_string()
        }

        #[track_caller]
        fn is_refused(&self, file: &Path, what: &str) {
            let message = self.refused();
            assert!(message.contains(file.to_str().unwrap()), "{message}");
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn a_fitting_pair_is_taken() {
        let of = Files::new();
        let tls = ServerTls::load(of.files.clone()).unwrap();
        assert_eq!(tls.config(Speaks::Http).alpn_protocols, [b"http/1.1"]);
        assert!(tls.config(Speaks::Lines).alpn_protocols.is_empty());
        assert!(tls.config(Speaks::Lines).ticketer.enabled());
    }

    #[test]
    fn files_that_are_not_there_are_named() {
        let mut of = Files::new();
        let gone = of.folder.path().join("gone.pem");
        let files = of.files.clone();
        for files in [
            ServerFiles { certificate: gone.clone(), ..files.clone() },
            ServerFiles { key: gone.clone(), ..files.clone() },
            ServerFiles { client_ca: Some(gone.clone()), ..files },
        ] {
            of.files = files;
            of.is_refused(&gone, "No such file");
        }
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let of = Files::new();
        let path = &of.files.certificate;
        let whole = fs::read_to_string(path).unwrap();
        for text in ["", "certificate", &fs::read_to_string(&of.files.key).unwrap()] {
            write(path, text, 0o644);
            of.is_refused(path, "no certificate");
        }
        write(path, &whole[..whole.len() / 2], 0o644);
        of.is_refused(path, "is damaged");
        write(path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0o644);
        of.is_refused(path, "cannot use");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let of = Files::new();
        let path = &of.files.key;
        let whole = fs::read_to_string(path).unwrap();
        for text in ["", "key", &fs::read_to_string(&of.files.certificate).unwrap()] {
            write(path, text, 0o600);
            of.is_refused(path, "no private key");
        }
        write(path, &whole[..whole.len() / 2], 0o600);
        of.is_refused(path, "is damaged");
        write(path, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0o600);
        of.is_refused(path, "cannot use");
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let of = Files::new();
        write(&of.files.key, &made().1.serialize_pem(), 0o600);
        of.is_refused(&of.files.key, "does not fit");
        of.is_refused(&of.files.certificate, "does not fit");
    }

    #[test]
    fn a_key_that_everybody_can_read_is_refused() {
        let of = Files::new();
        for mode in [0o604, 0o602, 0o644] {
            fs::set_permissions(&of.files.key, Permissions::from_mode(mode)).unwrap();
            of.is_refused(&of.files.key, &format!("{mode:04o}"));
        }
        fs::set_permissions(&of.files.key, Permissions::from_mode(0o640)).unwrap();
        assert!(ServerTls::load(of.files.clone()).is_ok());
    }

    #[test]
    fn authorities_of_clients_are_certificates_too() {
        let mut of = Files::new();
        of.files.client_ca = Some(of.files.key.clone());
        of.is_refused(&of.files.key, "no certificate");
        of.files.client_ca = Some(of.files.certificate.clone());
        let tls = ServerTls::load(of.files.clone()).unwrap();
        assert!(!tls.config(Speaks::Lines).ticketer.enabled());
        assert!(!tls.config(Speaks::Lines).session_storage.can_cache());
        assert_eq!(tls.config(Speaks::Lines).send_tls13_tickets, 0);
    }

    #[test]
    fn a_reload_takes_a_new_pair_and_keeps_the_old_one_if_the_new_is_wrong() {
        let of = Files::new();
        let tls = ServerTls::load(of.files.clone()).unwrap();
        let first = tls.config(Speaks::Lines);
        let (cert, key) = made();
        write(&of.files.certificate, &cert.pem(), 0o644);
        assert!(matches!(tls.reload(), Err(FileError::Mismatch { .. })));
        assert!(Arc::ptr_eq(&first, &tls.config(Speaks::Lines)));
        write(&of.files.key, &key.serialize_pem(), 0o600);
        tls.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.config(Speaks::Lines)));
    }
}
