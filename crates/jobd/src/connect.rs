//! Connections to the daemons of the suite, plain or encrypted, and what goes wrong with TLS.

use std::io;
use std::sync::Arc;

use rustls::CertificateError;
use rustls::pki_types::ServerName;
use spindle_jobd_master::link::Stream;
use spindle_tls::client::ClientFiles;
use spindle_tls::distrust;
use spindle_tls::stream::MaybeTls;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Connects to a daemon. With files, its certificate must be for the host and signed by an
/// authority that they trust; they are read for each connection, because they may have been
/// corrected.
///
/// # Errors
/// There is no connection, or what is wrong with the files or the certificate.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    tls: Option<&ClientFiles>,
    names: &Names,
) -> io::Result<Stream> {
    let stream = TcpStream::connect((host, port)).await?;
    let Some(files) = tls else { return Ok(MaybeTls::Plain(stream)) };
    let config = Arc::new(files.config().map_err(io::Error::other)?);
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| io::Error::other(format!("{host}: {error}")))?;
    let shaken = TlsConnector::from(config).connect(name, stream).await;
    let stream = shaken.map_err(|error| {
        let text = match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Some(format!("it was closed: if there is no TLS on that port, {}", names.plain))
            }
            _ => explained(&error, host, names),
        };
        text.map_or(error, io::Error::other)
    })?;
    Ok(MaybeTls::Client(Box::new(stream)))
}

/// What a person can change when a handshake fails, by the names that the client has for it.
pub(crate) struct Names {
    /// What to do if the other side speaks in plain bytes.
    pub(crate) plain: &'static str,
    /// The option with the file of authorities.
    pub(crate) authority: &'static str,
}

/// Why a handshake failed, and what a person can do about it. None if the connection broke.
pub(crate) fn explained(error: &io::Error, host: &str, names: &Names) -> Option<String> {
    let Names { plain, authority } = names;
    Some(match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidMessage(_) => {
            format!("there is no TLS on that port: {plain}, or name another port")
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is not for {host}: write the name that it is for"),
        rustls::Error::InvalidCertificate(error) => {
            format!("its certificate is not trusted: {}", distrust(error, authority))
        }
        error => format!("TLS fails: {error}"),
    })
}
