//! Tokens and TLS.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use spindle_client::{
    CallError, Client, ConfigError, JobContext, NewJob, Options, SendError, Worker, WorkerError,
};
use spindle_testkit::{Certificates, PATIENCE, TokensFile};

use crate::server::Served;

fn job() -> NewJob {
    NewJob::new("q", &1).unwrap()
}

fn client(options: Options) -> Client {
    Client::new(&options.retry_for(Duration::ZERO)).unwrap()
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_say_who_asks_and_are_read_again_when_refused() {
    let tokens = TokensFile::of_all_roles();
    let served = Served::with(&["--tokens", tokens.path().to_str().unwrap(), "--require-auth"]);
    let url = format!("http://{}", served.http);
    let error = client(Options::new(&url)).submit(&job()).await.unwrap_err();
    assert_eq!(error.code(), "unauthorized");
    client(Options::new(&url).token("submit")).submit(&job()).await.unwrap();
    let read = client(Options::new(&url).token("read"));
    assert_eq!(read.submit(&job()).await.unwrap_err().code(), "forbidden");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    write_secret(&file, "wrong\n");
    let renewed = client(Options::new(&url).token_file(&file));
    assert_eq!(renewed.submit(&job()).await.unwrap_err().code(), "unauthorized");
    write_secret(&file, "submit\n");
    renewed.submit(&job()).await.unwrap();

    let wrong = client(Options::new(&url).token("wrong"));
    let worker = Worker::new(&wrong).task("q", |n: u32, _: JobContext| async move { Ok(n) });
    let error = worker.run_until(std::future::pending()).await.unwrap_err();
    assert!(matches!(&error, WorkerError::Refused(error) if error.code() == "unauthorized"));
    assert!(!error.to_string().contains("wrong"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_say_who_the_server_is_and_who_asks() {
    let certificates = Certificates::new();
    let entry = "[[token]]\nname = 'w'\ncertificate = 'w.example.com'\n\
                 roles = ['submit', 'work', 'inspect']\nqueues = ['*']\n";
    let tokens = TokensFile::of(entry);
    let files = certificates.server();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let served = Served::with(&[
        "--tokens",
        &path(&tokens.path()),
        "--require-auth",
        "--http-tls",
        "required",
        "--tls-cert",
        &path(&files.certificate),
        "--tls-key",
        &path(&files.key),
        "--tls-client-ca",
        &path(&certificates.ca()),
    ]);
    let url = format!("https://{}", served.http);
    let me = certificates.client("w.example.com");
    let trusting = Options::new(&url).ca_file(certificates.ca());
    let known = client(trusting.clone().certificate(&me.certificate, &me.key));
    let submitted = known.submit(&job()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(&known).task("q", |n: u32, _: JobContext| async move { Ok(n + 1) });
    let running = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    assert_eq!(submitted.result::<u32>(PATIENCE).await.unwrap(), 2);
    // Stopping hangs up a waiting request under TLS too.
    stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();

    assert_eq!(client(trusting).submit(&job()).await.unwrap_err().code(), "unauthorized");
    let error = client(Options::new(&url)).submit(&job()).await.unwrap_err();
    assert!(matches!(&error, CallError::NoAnswer { cause: SendError::Tls(_), .. }), "{error}");
    assert!(!error.may_pass());
    let plain = format!("http://{}", served.http);
    let error = client(Options::new(plain)).submit(&job()).await.unwrap_err();
    assert!(!error.may_pass(), "{error}");
}

#[test]
fn options_that_cannot_be_used_say_why() {
    let error = |options: Options| Client::new(&options).unwrap_err();
    let url = "http://127.0.0.1:1";
    assert!(matches!(error(Options::new("localhost:1")), ConfigError::Url(_)));
    assert!(matches!(error(Options::new(url).token("two words")), ConfigError::Token(_)));
    assert!(matches!(error(Options::new(url).token_file("/no/file")), ConfigError::Token(_)));
    let https = Options::new("https://127.0.0.1:1").ca_file("/no/file");
    assert!(matches!(error(https), ConfigError::File(_)));
}
