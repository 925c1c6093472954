//! Encrypted connections: the files of listeners and of clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use spindle_jobd_master::server::ListenSettings;
use spindle_tls::client::{ClientFiles, Identity, Trust};
use spindle_tls::{FileError, ServerFiles, ServerTls, TlsMode};

use super::{ConfigError, Ini};

/// `tls`, `tls_cert`, `tls_key`, `tls_client_ca`: how a daemon accepts encrypted connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerFiles {
    /// None: it accepts none.
    pub files: Option<ServerFiles>,
    /// `tls`; None: as the address needs it.
    pub mode: Option<TlsMode>,
}

impl ListenerFiles {
    pub(super) fn read(ini: &Ini) -> Result<Self, ConfigError> {
        let mode = ini.text("tls").filter(|word| !word.is_empty()).map(str::parse);
        let mode = mode.transpose().map_err(|_| ini.wrong("tls", TlsMode::WORDS))?;
        let client_ca = file(ini, "tls_client_ca");
        let files = match (file(ini, "tls_cert"), file(ini, "tls_key")) {
            (Some(certificate), Some(key)) => Some(ServerFiles {
                certificate,
                key,
                client_ca,
                // Clients have no names here: a certificate only decides whether they may connect.
                client_certificate_required: true,
            }),
            (None, None) if client_ca.is_some() => {
                return Err(ini.unusable("tls_client_ca needs tls_cert and tls_key"));
            }
            (None, None) if !matches!(mode, None | Some(TlsMode::Off)) => {
                return Err(ini.unusable("tls needs tls_cert and tls_key"));
            }
            (None, None) => None,
            _ => return Err(ini.unusable("tls_cert and tls_key go together; write both")),
        };
        Ok(Self { files, mode })
    }

    /// Reads the files, and has the listener use them. The log says why clients may refuse the certificate.
    /// Returns a handle that can read the files again.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn load_into(
        &self,
        listen: &mut ListenSettings,
    ) -> Result<Option<Arc<ServerTls>>, FileError> {
        let tls = self.files.clone().map(ServerTls::load).transpose()?.map(Arc::new);
        if let Some(tls) = &tls {
            tls.warn_of_flaws(SystemTime::now());
        }
        listen.tls.clone_from(&tls);
        listen.tls_mode = self.mode;
        Ok(tls)
    }
}

/// `tls` and the files of an outgoing connection, with `family` in front of their names; `None` if
/// it is plain.
pub(super) fn client_files(ini: &Ini, family: &str) -> Result<Option<ClientFiles>, ConfigError> {
    let (roots, identity) = ssl_files(ini, family)?;
    if !ini.flag(&format!("{family}tls"))? {
        if roots.is_some() || identity.is_some() {
            let problem = format!("{family}ssl* files mean nothing without {family}tls = 1");
            return Err(ini.unusable(problem));
        }
        return Ok(None);
    }
    // Without authorities of its own, a client trusts those of browsers.
    let trust = roots.map_or(Trust::Public, Trust::File);
    let identity = identity.map(|(certificate, key)| Identity { certificate, key });
    Ok(Some(ClientFiles { trust, identity }))
}

/// A certificate and its key.
type CertificateAndKey = (PathBuf, PathBuf);

/// The authorities, and a certificate of ours.
pub(super) fn ssl_files(
    ini: &Ini,
    family: &str,
) -> Result<(Option<PathBuf>, Option<CertificateAndKey>), ConfigError> {
    let file = |name: &str| file(ini, &format!("{family}{name}"));
    let identity = match (file("sslcert"), file("sslkey")) {
        (Some(certificate), Some(secret)) => Some((certificate, secret)),
        (None, None) => None,
        _ => {
            let problem = format!("{family}sslcert and {family}sslkey go together; write both");
            return Err(ini.unusable(problem));
        }
    };
    Ok((file("sslrootcert"), identity))
}

fn file(ini: &Ini, key: &str) -> Option<PathBuf> {
    ini.text(key).filter(|path| !path.is_empty()).map(PathBuf::from)
}
