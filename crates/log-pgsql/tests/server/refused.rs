//! What a log is not opened on, and what it says.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use nix::unistd::User;
use spindle_log::{Log, ReadError};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};
use spindle_testkit::{Certificates, PostgresServer, wait_until};

use crate::harness::{append_many, fresh, options, schema, server};

#[track_caller]
fn check(options: &PgsqlLogOptions, parts: &[&str]) {
    let error = PgsqlLog::open(options).err().expect("refused").to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn synchronous_commit_off_is_refused() {
    let url = server().url("spindle");
    for (value, is_refused) in [("off", true), ("local", false), ("remote_write", false)] {
        let url = format!("{url}?options=-c%20synchronous_commit%3D{value}&schema={}", schema());
        let options = PgsqlLogOptions::from_url(&url).unwrap();
        if is_refused {
            check(&options, &["synchronous_commit is off", "set it to on"]);
        } else {
            PgsqlLog::open(&options).unwrap();
        }
    }
}

#[test]
fn what_is_someone_elses_is_refused() {
    let options = |schema: &str| options(server(), schema);
    server().sql("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int)");
    check(&options("shop"), &["schema shop is not a log", "`orders`", "?schema="]);
    server().sql("CREATE SCHEMA office; CREATE TABLE office.head (name text)");
    check(&options("office"), &["schema office is not a log", "`head`"]);
    let (_, other) = fresh();
    server().sql(&format!("UPDATE {}.head SET kind = 'tree'", other.schema()));
    check(&other, &["is not a log", "`tree`"]);
    let (_, empty) = fresh();
    server().sql(&format!("DELETE FROM {}.head", empty.schema()));
    check(&empty, &["is not a log", "0 rows"]);
}

#[test]
fn a_newer_format_is_refused() {
    let (_, options) = fresh();
    server().sql(&format!("UPDATE {}.head SET format = 99", options.schema()));
    check(&options, &["has format 99", "use a newer one"]);
}

#[test]
fn a_gap_is_refused_wherever_it_is() {
    let (log, options) = fresh();
    append_many(&log, 300);
    drop(log);
    let schema = options.schema();
    server().sql(&format!("DELETE FROM {schema}.records_0 WHERE position = 100"));
    let log = PgsqlLog::open(&options).unwrap();
    let last = log.read(log.first()).unwrap().last().unwrap();
    let Err(ReadError::Damaged { position, file, .. }) = last else { panic!("{last:?}") };
    assert_eq!(position.0, 100);
    assert!(file.contains("records_0"), "{file}");
    drop(log);
    server().sql(&format!("DELETE FROM {schema}.records_1 WHERE position IN (270, 271)"));
    check(&options, &["2 of the records 256 to 299 are missing", "backup"]);
    server().sql(&format!("DROP TABLE {schema}.records_0"));
    check(&options, &["`records_0` is missing"]);
}

#[test]
fn nobody_there_is_said_with_the_address() {
    let address = spindle_testkit::free_address();
    let options = PgsqlLogOptions::from_url(&format!("postgres://u@{address}/d")).unwrap();
    check(&options, &["no PostgreSQL server can be used", &address, "refused"]);
}

/// A server that wants encryption and a password.
fn guarded(certificates: &Certificates) -> PostgresServer {
    let server = PostgresServer::start(&["fsync=off"]);
    server
        .sql("CREATE ROLE guest LOGIN PASSWORD 'key'; GRANT CREATE ON DATABASE postgres TO guest");
    let rules = "local all all trust\nhostssl all all all scram-sha-256\n";
    fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    let files = certificates.server();
    for (from, to) in [(&files.certificate, "server.crt"), (&files.key, "server.key")] {
        hand_over(from, &server.data().join(to));
    }
    server.sql("ALTER SYSTEM SET ssl = on");
    server.sql("SELECT pg_reload_conf()");
    wait_until("the rules", || server.sql("SELECT count(*) FROM pg_hba_file_rules") == "2");
    wait_until("TLS", || server.sql("SHOW ssl") == "on");
    server
}

fn hand_over(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, Permissions::from_mode(0o600)).unwrap();
    if nix::unistd::geteuid().is_root() {
        let postgres = User::from_name("postgres").unwrap().unwrap();
        chown(to, Some(postgres.uid.as_raw()), Some(postgres.gid.as_raw())).unwrap();
    }
}

#[test]
fn passwords_certificates_and_settings_are_checked() {
    let certificates = Certificates::new();
    let server = guarded(&certificates);
    let with = |password: &str, parameters: &str| {
        let url = server.url(&format!("guest:{password}"));
        let mut options = PgsqlLogOptions::from_url(&format!("{url}?{parameters}")).unwrap();
        options.accept_unsafe_server = true;
        options
    };
    let full =
        |authority: &Path| format!("sslmode=verify-full&sslrootcert={}", authority.display());
    let ca = full(&certificates.ca());
    let log = PgsqlLog::open(&with("key", &ca)).unwrap();
    append_many(&log, 3);
    PgsqlLog::open(&with("key", "sslmode=require")).unwrap();
    PgsqlLog::open(&with("key", "")).unwrap();
    check(&with("wrong", &ca), &["does not let the log in", "password", "pg_hba.conf"]);
    check(&with("key", "sslmode=disable"), &["does not let the log in", "no encryption"]);
    let others = Certificates::new();
    check(&with("key", &full(&others.ca())), &["no encrypted connection", "sslrootcert"]);
    check(&with("key", "sslmode=verify-full"), &["no encrypted connection"]);
    let missing = full(Path::new("/nowhere.pem"));
    check(&with("key", &missing), &["/nowhere.pem"]);
    let mut strict = with("key", "");
    strict.accept_unsafe_server = false;
    check(&strict, &["fsync is off", "set it to on"]);
}
