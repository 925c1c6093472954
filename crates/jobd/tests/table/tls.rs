//! Encrypted connections: a server with a certificate of its own, which refuses plain text.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use spindle_jobd::table::{SqlServer, TableError, TableSettings, Tls, TlsMode, open_table};
use tempfile::TempDir;

use crate::database::{Database, Mariadb, Pgsql};
use crate::servers::{Kind, Server};

/// A self-signed certificate for `localhost`, one of a client, and one of a stranger.
struct Certificates {
    folder: TempDir,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["server", "client", "other"] {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(folder.path().join(format!("{name}.pem")), made.cert.pem()).unwrap();
            let key = folder.path().join(format!("{name}.key"));
            fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        }
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// PostgreSQL requires that its own user owns the key file.
    fn give_to_postgres(&self) {
        if nix::unistd::geteuid().is_root() {
            let postgres = nix::unistd::User::from_name("postgres").unwrap().unwrap();
            let (uid, gid) = (postgres.uid.as_raw(), postgres.gid.as_raw());
            let files = ["server.pem", "server.key", "client.pem"].map(|name| self.file(name));
            for file in std::iter::once(self.folder.path()).chain(files.iter().map(|f| &**f)) {
                chown(file, Some(uid), Some(gid)).unwrap();
            }
        }
    }

    fn tls(&self, mode: TlsMode, roots: &str) -> Tls {
        Tls { mode, roots: Some(self.file(roots)), identity: None }
    }

    /// Verifies the server, and identifies the client with this certificate and key.
    fn tls_as(&self, certificate: &str, key: &str) -> Tls {
        let identity = Some((self.file(certificate), self.file(key)));
        Tls { identity, ..self.tls(TlsMode::VerifyFull, "server.pem") }
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

async fn checked(settings: &TableSettings, host: &str, tls: Tls) -> Result<(), TableError> {
    let with = |server: &SqlServer| SqlServer { host: host.to_owned(), tls, ..server.clone() };
    let settings = match settings {
        TableSettings::Mysql(server) => TableSettings::Mysql(with(server)),
        TableSettings::Pgsql(server) => TableSettings::Pgsql(with(server)),
        other => panic!("{other:?}"),
    };
    open_table(&settings).check().await
}

async fn each_mode_checks_what_it_says(certificates: &Certificates, settings: &TableSettings) {
    let any = Tls { mode: TlsMode::Require, ..Tls::default() };
    let tls = |mode, roots| certificates.tls(mode, roots);
    for (host, tls) in [
        ("localhost", any.clone()),
        ("127.0.0.1", any.clone()),
        ("localhost", tls(TlsMode::VerifyFull, "server.pem")),
    ] {
        let outcome = checked(settings, host, tls.clone()).await;
        assert!(outcome.is_ok(), "{host} {tls:?}: {outcome:?}");
    }
    for (host, tls) in [
        ("localhost", Tls::default()),
        ("127.0.0.1", tls(TlsMode::VerifyFull, "server.pem")),
        ("localhost", tls(TlsMode::VerifyFull, "other.pem")),
        ("localhost", Tls { mode: TlsMode::VerifyFull, ..Tls::default() }),
        ("localhost", tls(TlsMode::VerifyFull, "missing.pem")),
    ] {
        assert!(checked(settings, host, tls.clone()).await.is_err(), "{host} {tls:?}");
    }
}

/// The server knows the client's certificate and lets this user in with no other.
async fn only_the_clients_own_certificate_opens(
    certificates: &Certificates,
    settings: &TableSettings,
) {
    let outcome = checked(settings, "localhost", certificates.tls_as("client.pem", "client.key"));
    let outcome = outcome.await;
    assert!(outcome.is_ok(), "{outcome:?}");
    for tls in [
        certificates.tls(TlsMode::VerifyFull, "server.pem"),
        certificates.tls_as("other.pem", "other.key"),
        certificates.tls_as("client.pem", "other.key"),
        certificates.tls_as("client.pem", "missing.key"),
    ] {
        let outcome = checked(settings, "localhost", tls.clone()).await;
        assert!(outcome.is_err(), "{tls:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_is_reached_encrypted() {
    let certificates = Certificates::new();
    let options = [
        option("--ssl-cert", &certificates.file("server.pem")),
        option("--ssl-key", &certificates.file("server.key")),
        option("--ssl-ca", &certificates.file("client.pem")),
    ];
    let server = Server::start_with(Kind::Mariadb, &options.each_ref().map(String::as_str));
    let database = Mariadb::on(server.port, None).await;
    database.run("CREATE USER known@'%' REQUIRE X509").await;
    database.run("GRANT ALL ON *.* TO known@'%'").await;
    database.run("SET GLOBAL require_secure_transport = 1").await;
    let TableSettings::Mysql(own) = database.settings_of("jobs") else { unreachable!() };
    each_mode_checks_what_it_says(&certificates, &TableSettings::Mysql(own.clone())).await;
    let known = SqlServer { user: "known".to_owned(), password: String::new(), ..own };
    only_the_clients_own_certificate_opens(&certificates, &TableSettings::Mysql(known)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_is_reached_encrypted() {
    let certificates = Certificates::new();
    certificates.give_to_postgres();
    let file = |name: &str, file: &str| option(name, &certificates.file(file));
    let rules = certificates.file("rules");
    // Only what this test does itself goes in plain text.
    let rule = "hostnossl postgres jobd 127.0.0.1/32 trust\n\
                hostssl all known all trust clientcert=verify-ca\n\
                hostssl all all all trust\n";
    fs::write(&rules, rule).unwrap();
    fs::set_permissions(&rules, fs::Permissions::from_mode(0o644)).unwrap();
    let options = [
        "-c".to_owned(),
        "ssl=on".to_owned(),
        "-c".to_owned(),
        file("ssl_cert_file", "server.pem"),
        "-c".to_owned(),
        file("ssl_key_file", "server.key"),
        "-c".to_owned(),
        file("ssl_ca_file", "client.pem"),
        "-c".to_owned(),
        file("hba_file", "rules"),
    ];
    let server = Server::start_with(Kind::Pgsql, &options.each_ref().map(String::as_str));
    let database = Pgsql::on(server.port, None).await;
    for user in ["sealed", "known"] {
        database.run(&format!("CREATE ROLE {user} LOGIN SUPERUSER")).await;
    }
    let TableSettings::Pgsql(own) = database.settings_of("jobs") else { unreachable!() };
    let of = |user: &str| TableSettings::Pgsql(SqlServer { user: user.to_owned(), ..own.clone() });
    each_mode_checks_what_it_says(&certificates, &of("sealed")).await;
    only_the_clients_own_certificate_opens(&certificates, &of("known")).await;
}
