//! Which certificate the listeners show, and which client certificates they accept.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, InconsistentKeys, ServerConfig};
use x509_cert::der::DateTime;

use crate::clock::{Tickets, WallClock};
use crate::files::{FileError, authorities, certificates, guarded_key, unusable};
use crate::shown::{Flaw, Shown};

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
    expires: Arc<AtomicU64>,
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
    shown: Shown,
}

impl ServerTls {
    /// Reads the files. What clients may refuse in the certificate is no error: [`ServerTls::flaws`] has it.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn load(files: ServerFiles) -> Result<ServerTls, FileError> {
        let current = Current::read(&files)?;
        let expires = Arc::new(AtomicU64::new(current.expires()));
        let current = RwLock::new(current);
        Ok(ServerTls { files, current, expires, handshakes: Handshakes::default() })
    }

    /// Reads the files again. Handshakes that begin from now on use what they hold; connections
    /// that are open stay as they are.
    ///
    /// # Errors
    /// What is wrong with which file; also if the new certificate is not valid at the time `now` and the one in
    /// force is. Then what was in force stays in force.
    pub fn reload(&self, now: SystemTime) -> Result<(), FileError> {
        let read = Current::read(&self.files)?;
        let mut current = self.current.write();
        if let Some(flaw) = read.shown.out_of_time(now)
            && current.shown.is_valid(now)
        {
            return Err(FileError::OutOfTime { path: self.files.certificate.clone(), flaw });
        }
        self.expires.store(read.expires(), Ordering::Relaxed);
        *current = read;
        Ok(())
    }

    /// Why clients refuse the certificate in force at the time `now`, or soon will.
    pub fn flaws(&self, now: SystemTime) -> Vec<Flaw> {
        self.current.read().shown.flaws(now)
    }

    /// Warns of each of the [`flaws`](ServerTls::flaws).
    pub fn warn_of_flaws(&self, now: SystemTime) {
        let path = self.files.certificate.display();
        for flaw in self.flaws(now) {
            tracing::warn!("the server's certificate {path} {flaw}");
        }
    }

    /// Until when the certificate in force is valid, with those that lead to its authority. None if one of
    /// them is malformed.
    pub fn valid_until(&self) -> Option<DateTime> {
        self.current.read().shown.until()
    }

    /// The same in seconds since 1970, and 0 for none; it follows reloads.
    pub fn expires(&self) -> &Arc<AtomicU64> {
        &self.expires
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
        let chain = certificates(&files.certificate)?;
        let shown = Shown::of(&chain);
        let lines = config_of(files, chain)?;
        let mut http = lines.clone();
        http.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Current { lines: Arc::new(lines), http: Arc::new(http), shown })
    }

    fn expires(&self) -> u64 {
        self.shown.until().map_or(0, |until| until.unix_duration().as_secs())
    }
}

fn config_of(
    files: &ServerFiles,
    chain: Vec<CertificateDer<'static>>,
) -> Result<ServerConfig, FileError> {
    let ServerFiles { certificate, key, client_ca, client_certificate_required } = files;
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
    use std::time::Duration;

    use rcgen::{
        Certificate, CertificateParams, KeyPair, date_time_ymd, generate_simple_self_signed,
    };
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
        assert!(matches!(tls.reload(SystemTime::now()), Err(FileError::Mismatch { .. })));
        assert!(Arc::ptr_eq(&first, &tls.config(Speaks::Lines)));
        write(&of.files.key, &key.serialize_pem(), 0o600);
        tls.reload(SystemTime::now()).unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.config(Speaks::Lines)));
    }

    /// Puts a pair that is valid in these years in the place of the old one.
    fn put(of: &Files, from: i32, until: i32) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        write(&of.files.certificate, &params.self_signed(&key).unwrap().pem(), 0o644);
        write(&of.files.key, &key.serialize_pem(), 0o600);
    }

    fn year(year: u16) -> SystemTime {
        let date = DateTime::new(year, 1, 1, 0, 0, 0).unwrap();
        SystemTime::UNIX_EPOCH + date.unix_duration()
    }

    fn ends(tls: &ServerTls) -> SystemTime {
        let seconds = tls.expires().load(Ordering::Relaxed);
        let of_metric = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let until = tls.valid_until().unwrap().unix_duration();
        assert_eq!(of_metric, SystemTime::UNIX_EPOCH + until);
        of_metric
    }

    #[test]
    fn a_pair_that_is_out_of_time_takes_no_valid_ones_place() {
        let of = Files::new();
        put(&of, 2020, 2040);
        let tls = ServerTls::load(of.files.clone()).unwrap();
        let first = tls.config(Speaks::Lines);
        for (from, until, flaw) in
            [(2010, 2021, " has expired on 2021"), (2022, 2050, " is not valid before 2022")]
        {
            put(&of, from, until);
            let refused = tls.reload(year(2021)).unwrap_err().to_string();
            let named = format!("{}{flaw}", of.files.certificate.display());
            assert!(refused.starts_with(&named), "{refused}");
            assert!(Arc::ptr_eq(&first, &tls.config(Speaks::Lines)));
            assert_eq!((tls.flaws(year(2021)), ends(&tls)), (Vec::new(), year(2040)));
        }
        tls.reload(year(2022)).unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.config(Speaks::Lines)));
        assert_eq!(ends(&tls), year(2050));
    }

    #[test]
    fn a_pair_that_is_out_of_time_replaces_one_that_is_too() {
        for now in [year(2040), year(2019)] {
            let of = Files::new();
            put(&of, 2020, 2040);
            let tls = ServerTls::load(of.files.clone()).unwrap();
            put(&of, 2010, 2015);
            tls.reload(now).unwrap();
            assert_eq!(ends(&tls), year(2015));
            assert!(matches!(tls.flaws(now)[..], [Flaw::Expired(_)]));
        }
    }
}
