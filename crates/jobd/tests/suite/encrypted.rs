//! TLS between the programs of the suite.

use std::{fs, path::Path};

use nix::sys::signal::Signal;
use serde_json::json;
use spindle_testkit::Certificates;
use spindle_tls::client::Identity;
use tokio::net::TcpStream;

use crate::{
    ctl::{Run, jobctl},
    peer::{Peer, until},
    programs::{Folder, Program},
};

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The options of a listener with this certificate.
fn listener(of: &Identity) -> [String; 2] {
    [format!("tls_cert={}", shown(&of.certificate)), format!("tls_key={}", shown(&of.key))]
}

fn server(certificates: &Certificates) -> Identity {
    let files = certificates.server();
    Identity { certificate: files.certificate, key: files.key }
}

/// A master with these options.
fn master<S: AsRef<str>>(options: &[S]) -> Program {
    let own = ["port=0", "log_level_console=info"];
    let options = own.into_iter().chain(options.iter().map(AsRef::as_ref));
    let words: Vec<String> = options.flat_map(|it| ["-o".to_owned(), it.to_owned()]).collect();
    Program::start(env!("CARGO_BIN_EXE_jobd-master"), &words)
}

/// What a master says to a `jobctl` with these flags.
async fn asked(port: u16, flags: &[&str]) -> Run {
    let port = port.to_string();
    let words = ["--master", "--host", "localhost", "--port", &port];
    jobctl(&[&words, flags, &["list-workers"]].concat()).await
}

#[tokio::test]
async fn worker_master_and_jobctl_speak_tls_and_plain_clients_go_on_on_loopback() {
    let certificates = Certificates::new();
    let ca = shown(&certificates.ca());
    let tls = listener(&server(&certificates));
    let mut master = master(&tls);
    let address = master.address();
    let folder = Folder::new("echo ran $2");
    let to_master = [
        "master_host=localhost".to_owned(),
        format!("master_port={}", address.port()),
        "master_tls=1".to_owned(),
        format!("master_sslrootcert={ca}"),
        "targets.mail=2".to_owned(),
    ];
    let options: Vec<&str> = to_master.iter().chain(&tls).map(String::as_str).collect();
    let mut worker = Program::jobd(&folder.options("w1", &options));
    let workers_port = worker.address().port().to_string();
    folder.has_table().await;
    folder.insert(1..=2, "mail");
    // A client of the original knows nothing of TLS.
    let mut plain = Peer::connect(address).await;
    crate::peer::until_told("the worker is registered", async || {
        plain.status().await["workers"] != json!([])
    })
    .await;
    let port = address.port();
    let run = asked(port, &["--tls", "--ca-file", &ca]).await;
    assert!(run.code == 0 && run.stdout.contains("mail"), "{run:?}");
    let port = port.to_string();
    let poked =
        jobctl(&["--master", "--tls", "--ca-file", &ca, "--port", &port, "poke", "mail"]).await;
    assert_eq!((poked.stdout.as_str(), poked.code), ("ok\n", 0), "{poked:?}");
    until("the worker has run them", || folder.count("done") == 2).await;
    let words = ["--tls", "--ca-file", &ca, "--port", &workers_port, "poll", "mail"];
    assert_eq!(jobctl(&words).await.stdout, "ok\n");
}

#[tokio::test]
async fn a_client_is_told_what_is_wrong_with_a_certificate() {
    let certificates = Certificates::new();
    let strangers = Certificates::new();
    let (ca, other) = (shown(&certificates.ca()), shown(&strangers.ca()));
    let trusting = ["--tls", "--ca-file", &ca];
    for (certificate, flags, expected) in [
        (server(&certificates), &["--tls", "--ca-file", &other][..], "signed by nobody who is"),
        (server(&certificates), &["--tls"], "signed by nobody who is trusted: name the file"),
        (certificates.expired_server(), &trusting, "certificate expired"),
        (certificates.server_named("q.example"), &trusting, "is not for localhost"),
        (server(&certificates), &["--tls", "--ca-file", "/no/file"], "cannot read /no/file"),
        (server(&certificates), &["--tls", "--cert", "/a"], "sslcert and sslkey go together"),
        (server(&certificates), &["--ca-file", &ca], "ssl* files mean nothing without tls = 1"),
    ] {
        let mut master = master(&listener(&certificate));
        let run = asked(master.address().port(), flags).await;
        assert!(run.stderr.contains(expected), "{run:?} instead of {expected}");
        let code = if expected.starts_with("ssl") { 2 } else { 1 };
        assert_eq!(run.code, code, "{run:?}");
    }
    let mut plain = master::<&str>(&[]);
    let run = asked(plain.address().port(), &trusting).await;
    assert!(run.stderr.contains("if there is no TLS on that port, leave --tls out"), "{run:?}");
    let strict = [&listener(&server(&certificates))[..], &["tls=required".to_owned()]].concat();
    let mut strict = master(&strict);
    let run = asked(strict.address().port(), &[]).await;
    assert!(run.stderr.contains("this port takes encrypted connections only"), "{run:?}");
}

#[tokio::test]
async fn a_master_with_authorities_of_clients_lets_in_nobody_without_a_certificate() {
    let certificates = Certificates::new();
    let strangers = Certificates::new();
    let ca = shown(&certificates.ca());
    let more = [format!("tls_client_ca={ca}"), "tls=required".to_owned()];
    let mut master = master(&[&listener(&server(&certificates))[..], &more].concat());
    let port = master.address().port();
    let known = certificates.client("w1");
    let old = certificates.expired_client("old");
    let stranger = strangers.client("w1");
    let missing = asked(port, &["--tls", "--ca-file", &ca]).await;
    assert!(missing.code == 1 && missing.stderr.contains("CertificateRequired"), "{missing:?}");
    for (identity, expected) in
        [(&known, ""), (&old, "CertificateExpired"), (&stranger, "DecryptError")]
    {
        let (cert, key) = (shown(&identity.certificate), shown(&identity.key));
        let flags = ["--tls", "--ca-file", &ca, "--cert", &cert, "--key", &key];
        let run = asked(port, &flags).await;
        assert_eq!(run.code == 0, expected.is_empty(), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?} instead of {expected}");
    }
}

#[tokio::test]
async fn a_worker_says_what_is_wrong_and_registers_when_its_files_are_mended() {
    let certificates = Certificates::new();
    let mut master = master(&listener(&server(&certificates)));
    let address = master.address();
    let folder = Folder::new("exit 0");
    let (roots, log) = (folder.file("ca.pem"), folder.file("w1.log"));
    fs::copy(Certificates::new().ca(), &roots).unwrap();
    let options = [
        "master_host=localhost".to_owned(),
        format!("master_port={}", address.port()),
        "master_tls=1".to_owned(),
        format!("master_sslrootcert={}", shown(&roots)),
        "master_reconnect_timeout=0.5".to_owned(),
        format!("log_file={}", shown(&log)),
        "log_level_file=info".to_owned(),
        "targets.mail=2".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _worker = Program::jobd(&folder.options("w1", &options));
    let says = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    until("it says so", || says("vouches for it with master_sslrootcert")).await;
    fs::copy(certificates.ca(), &roots).unwrap();
    until("it is registered", || says("registered")).await;
}

#[tokio::test]
async fn a_daemon_shows_a_new_certificate_after_a_hangup_and_keeps_the_old_one_if_it_is_wrong() {
    let certificates = Certificates::new();
    let folder = Folder::new("");
    let log = folder.file("master.log");
    let logs = [format!("log_file={}", shown(&log)), "log_level_file=info".to_owned()];
    let mut master = master(&[&listener(&server(&certificates))[..], &logs].concat());
    let address = master.address();
    let certificate = || {
        let stream = std::net::TcpStream::connect(address).unwrap();
        let mut client = certificates.connect(stream, None);
        client.conn.complete_io(&mut client.sock).unwrap();
        client.conn.peer_certificates().unwrap()[0].clone()
    };
    let says = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    let first = certificate();
    fs::write(certificates.server().key, "no key").unwrap();
    master.signal(Signal::SIGHUP);
    until("it says so", || says("the old certificate stays in force")).await;
    assert_eq!(certificate(), first);
    let mine = server(&certificates);
    let place = |new: &Identity| {
        fs::copy(&new.certificate, &mine.certificate).unwrap();
        fs::copy(&new.key, &mine.key).unwrap();
    };
    place(&certificates.expired_server());
    master.signal(Signal::SIGHUP);
    until("it says so", || says("has expired on 2021-01-01")).await;
    assert_eq!(certificate(), first);
    certificates.renew_server();
    master.signal(Signal::SIGHUP);
    until("it says so", || says("new connections get the certificate in")).await;
    assert_ne!(certificate(), first);
    place(&certificates.authority_as_a_server());
    master.signal(Signal::SIGHUP);
    until("it warns", || says("may sign others (CA:TRUE)")).await;
}

#[tokio::test]
async fn a_daemon_starts_with_an_expired_certificate_and_warns_of_it() {
    let certificates = Certificates::new();
    let folder = Folder::new("");
    let log = folder.file("master.log");
    let logs = [format!("log_file={}", shown(&log))];
    let old = listener(&certificates.expired_server());
    let mut master = master(&[&old[..], &logs].concat());
    assert_eq!(asked(master.address().port(), &[]).await.code, 0);
    let warned = || fs::read_to_string(&log).is_ok_and(|log| log.contains("has expired on 2021"));
    until("it warns", warned).await;
}

#[tokio::test]
async fn an_address_that_others_reach_is_served_with_a_password_and_tls_or_by_name() {
    let certificates = Certificates::new();
    let open = ["host=0.0.0.0".to_owned(), "password=sesame".to_owned()];
    let mut guarded = master(&[&listener(&server(&certificates))[..], &open].concat());
    let port = guarded.address().port();
    let mut plain = Peer::over(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    assert!(plain.ask("[2]").await.contains("encrypted connections only"));
    plain.is_closed().await;
    let ca = shown(&certificates.ca());
    let flags = ["--tls", "--ca-file", &ca, "--password=sesame"];
    assert_eq!(asked(port, &flags).await.code, 0);
    let run = asked(port, &flags[..3]).await;
    assert!(run.stderr.contains("invalid password"), "{run:?}");

    let folder = Folder::new("");
    let log = folder.file("master.log");
    let more = [format!("log_file={}", shown(&log)), "insecure=1".to_owned()];
    let mut insecure = master(&[&open[..], &more].concat());
    let mut plain = Peer::connect(([127, 0, 0, 1], insecure.address().port()).into()).await;
    assert_eq!(plain.ask("[2]").await, "[3]");
    let warned = || fs::read_to_string(&log).is_ok_and(|log| log.contains("TLS is not required"));
    until("it warns", warned).await;
}
