//! Which logins are accepted, and on which servers a log is opened at all.

use std::time::Duration;

use spindle_log::{Log, Position};
use spindle_log_nats::{Login, NatsLog, NatsLogOptions, OpenError, SyncCheck};
use spindle_testkit::{Certificates, NatsServers, NatsSetup, free_address};

use crate::harness::{append, check, options, refusal};

const ACCOUNTS: &str = "accounts {
    SYS { users: [{ user: sys, password: system }] }
    APP { jetstream: enabled, users: [{ user: app, password: secret }] }
}
system_account: SYS";

fn user(user: &str, password: &str) -> Login {
    Login::User { user: user.to_owned(), password: password.to_owned() }
}

#[test]
fn a_wrong_password_is_refused_at_once() {
    let servers = NatsServers::start(NatsSetup { more: ACCOUNTS, ..NatsSetup::default() });
    let mut options = options(&servers);
    options.login = user("app", "wrong");
    let error = refusal(&options);
    assert!(matches!(error, OpenError::LoginRefused { .. }), "{error}");
    assert!(error.to_string().contains(&options.servers[0]), "{error}");
    options.login = user("app", "secret");
    append(&NatsLog::open(&options).expect("opens"), 1, 3);
}

#[test]
fn a_url_opens_the_log() {
    let servers = NatsServers::start(NatsSetup { more: ACCOUNTS, ..NatsSetup::default() });
    let address = &servers.addresses()[0];
    let parameters = "replicas=1&system_user=sys&system_password=system";
    let options = |login: &str| {
        let url = format!("nats://{login}@{address}/jobs?{parameters}");
        NatsLogOptions::from_url(&url).expect("right")
    };
    append(&NatsLog::open(&options("app:secret")).expect("opens"), 1, 3);
    assert!(matches!(refusal(&options("app")), OpenError::LoginRefused { .. }));
    let log = NatsLog::open(&options("app").with_password("secret")).expect("opens");
    check(&log, 0, 3);
}

#[test]
fn a_token_opens_the_log() {
    let more = "authorization { token: secret }";
    let servers = NatsServers::start(NatsSetup { more, ..NatsSetup::default() });
    let mut options = options(&servers);
    assert!(matches!(refusal(&options), OpenError::LoginRefused { .. }));
    options.login = Login::Token("secret".to_owned());
    append(&NatsLog::open(&options).expect("opens"), 1, 3);
}

#[test]
fn a_server_behind_tls_is_trusted_by_its_authority() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let server = ours.server_for_clients();
    let more = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        server.certificate.display(),
        server.key.display(),
        ours.ca().display(),
    );
    let servers = NatsServers::start(NatsSetup { more: &more, ..NatsSetup::default() });
    let mut options = options(&servers);
    options.servers = vec![servers.urls()[0].replace("nats://", "tls://")];
    options.tls = ours.trusting(Some(ours.client("node")));
    append(&NatsLog::open(&options).expect("opens"), 1, 3);
    options.tls.trust = spindle_tls::client::Trust::Public;
    options.servers = servers.urls();
    check(&NatsLog::open(&options.clone().with_authority(&ours.ca())).expect("opens"), 0, 3);
    options.open_timeout = Duration::ZERO;
    options.tls = others.trusting(None);
    let error = refusal(&options);
    assert!(matches!(error, OpenError::TlsRefused { .. }), "{error}");
    options.tls = ours.trusting(None);
    let error = refusal(&options);
    assert!(!matches!(error, OpenError::LoginRefused { .. }), "{error}");
    options.tls.trust = spindle_tls::client::Trust::File("no/such/file.pem".into());
    assert!(refusal(&options).to_string().contains("no/such/file.pem"));
}

#[test]
fn where_nobody_listens_opening_ends_with_the_addresses() {
    let servers = NatsServers::one();
    let mut options = options(&servers);
    let address = format!("nats://{}", free_address());
    (options.servers, options.open_timeout) = (vec![address.clone()], Duration::from_millis(300));
    let error = refusal(&options);
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    options.servers = vec!["http://127.0.0.1:4222".to_owned()];
    assert!(refusal(&options).to_string().contains("nats://HOST:PORT"));
}

#[test]
fn a_server_that_does_not_sync_always_is_refused_unless_that_is_wanted() {
    let sync_interval = "\"2m\"";
    let servers = NatsServers::start(NatsSetup { sync_interval, ..NatsSetup::default() });
    let mut options = options(&servers);
    let error = refusal(&options).to_string();
    assert!(error.contains("n0") && error.contains("sync_interval: always"), "{error}");
    options.sync = SyncCheck::Os;
    append(&NatsLog::open(&options).expect("opens"), 1, 3);
}

#[test]
fn a_server_that_cannot_be_asked_is_refused() {
    let servers = NatsServers::one();
    let mut options = options(&servers);
    options.sync = SyncCheck::Monitoring(Vec::new());
    let error = refusal(&options).to_string();
    assert!(error.contains("cannot find out") && error.contains("monitoring address"), "{error}");
    options.open_timeout = Duration::from_millis(300);
    options.sync = SyncCheck::Monitoring(vec![format!("http://{}", free_address())]);
    assert!(matches!(refusal(&options), OpenError::SyncUnknown { .. }));
}

#[test]
fn the_system_account_says_whether_servers_sync() {
    let servers = NatsServers::start(NatsSetup { more: ACCOUNTS, ..NatsSetup::default() });
    let mut options = options(&servers);
    options.login = user("app", "secret");
    options.sync = SyncCheck::SystemAccount(user("sys", "system"));
    let log = NatsLog::open(&options).expect("opens");
    append(&log, 1, 3);
    check(&log, 0, 3);
    assert_eq!(log.first(), Position(0));
    options.open_timeout = Duration::from_millis(300);
    options.sync = SyncCheck::SystemAccount(user("app", "secret"));
    assert!(matches!(refusal(&options), OpenError::SyncUnknown { .. }));
    options.sync = SyncCheck::SystemAccount(user("sys", "wrong"));
    assert!(matches!(refusal(&options), OpenError::LoginRefused { .. }));
}
