//! Certificates for tests: an authority, a server, clients.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned, SupportedProtocolVersion};
use spindle_tls::client::{ClientFiles, Identity, Trust};
use spindle_tls::{ServerFiles, ServerTls};
use tempfile::TempDir;

/// A folder with an authority, and with the certificates that it has signed. The server is
/// `localhost` and `127.0.0.1`.
pub struct Certificates {
    folder: TempDir,
    authority: Issuer<'static, KeyPair>,
}

/// A client's encrypted connection.
pub type TlsClient = StreamOwned<ClientConnection, TcpStream>;

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::new()
    }
}

impl Certificates {
    /// An authority, and a server that it vouches for.
    pub fn new() -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        let made = Certificates { folder, authority: Issuer::new(params, key) };
        made.renew_server();
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The server's files; clients are not asked for certificates.
    pub fn server(&self) -> ServerFiles {
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        ServerFiles { certificate, key, client_ca: None, client_certificate_required: false }
    }

    /// The server's files, with the authority vouching for clients too.
    pub fn server_for_clients(&self) -> ServerFiles {
        ServerFiles { client_ca: Some(self.ca()), ..self.server() }
    }

    /// The server's files, read.
    pub fn loaded(&self) -> Arc<ServerTls> {
        Arc::new(ServerTls::load(self.server()).unwrap())
    }

    /// A new key and certificate of the server, in the place of the old ones.
    pub fn renew_server(&self) {
        self.issue("server", &server_params(&["localhost", "127.0.0.1"]));
    }

    /// A server of another name than `localhost`.
    pub fn server_named(&self, name: &str) -> Identity {
        self.issue("other-server", &server_params(&[name]))
    }

    /// A server whose certificate has expired.
    pub fn expired_server(&self) -> Identity {
        self.issue("old-server", &expired(server_params(&["localhost", "127.0.0.1"])))
    }

    /// A server whose certificate is not valid yet.
    pub fn early_server(&self) -> Identity {
        self.issue("new-server", &early(server_params(&["localhost", "127.0.0.1"])))
    }

    /// A server whose certificate is one of a client.
    pub fn server_with_a_clients_certificate(&self) -> Identity {
        let mut params = server_params(&["localhost", "127.0.0.1"]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue("no-server", &params)
    }

    /// A server whose certificate may sign others, as `openssl req -x509` makes them.
    pub fn authority_as_a_server(&self) -> Identity {
        let mut params = server_params(&["localhost", "127.0.0.1"]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.issue("signing-server", &params)
    }

    /// A client of this name.
    pub fn client(&self, name: &str) -> Identity {
        self.issue(name, &client_params(name))
    }

    /// A client whose certificate has expired.
    pub fn expired_client(&self, name: &str) -> Identity {
        self.issue(name, &expired(client_params(name)))
    }

    /// A client whose certificate is not valid yet.
    pub fn early_client(&self, name: &str) -> Identity {
        self.issue(name, &early(client_params(name)))
    }

    fn issue(&self, name: &str, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let identity = Identity {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
        };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        write_key(&identity.key, &key).unwrap();
        identity
    }

    /// The settings of a client that trusts this authority.
    pub fn trusting(&self, identity: Option<Identity>) -> ClientFiles {
        ClientFiles { trust: Trust::File(self.ca()), identity }
    }

    /// A client's encrypted connection to `localhost`. The handshake comes with the first bytes.
    pub fn connect(&self, stream: TcpStream, identity: Option<Identity>) -> TlsClient {
        let config = self.trusting(identity).config().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }

    /// The same with one version of TLS.
    pub fn connect_by(
        &self,
        stream: TcpStream,
        version: &'static SupportedProtocolVersion,
    ) -> TlsClient {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in spindle_tls::client::read_authorities(&self.ca()).unwrap() {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }
}

fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn early(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2120, 1, 1);
    params.not_after = date_time_ymd(2121, 1, 1);
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    params
}

fn client_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn write_key(path: &Path, key: &KeyPair) -> io::Result<()> {
    fs::write(path, key.serialize_pem())?;
    fs::set_permissions(path, Permissions::from_mode(0o600))
}
