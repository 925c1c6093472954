//! A worker whose server is behind TLS, or is not what its configuration says.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
};

use serde_json::{Value, json};

use crate::{
    proxy::Proxy,
    server::{Served, until, until_taken_back},
    worker::{connect, stop, worker},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_tls_and_a_path_gives_jobs_and_takes_questions_back() {
    let served = Served::new();
    let proxy = Proxy::start(&served.http, "/queues/spindle").await;
    let worker = worker(&served, "w1", &proxy.lines("/queues/spindle/"), "q = 2\n").await;
    let id = served.submit("q", json!({"payload": "x"}));
    until("it is done", || served.status(id) == "done");
    let waits = || {
        let (_, queue) = served.ask("GET /api/v1/queues/q", &Value::Null);
        queue["waiting_leases"].as_i64().unwrap_or(0)
    };
    until("it asks for as many as it has slots", || waits() == 2);
    let mut peer = connect(&worker);
    peer.data("pause", json!({"targets": ["q"]}));
    until_taken_back("it asks no more", || waits() == 0);
    let id = served.submit("q", json!({"payload": "x"}));
    assert_eq!(served.job(id)["attempts"], 0);
    peer.data("continue", json!({}));
    until("it is done", || served.status(id) == "done");
    assert_eq!(served.job(id)["attempts"], 1);
    stop(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_connection_is_kept_for_the_next_request() {
    let served = Served::new();
    let proxy = Proxy::start(&served.http, "").await;
    let worker = worker(&served, "w1", &proxy.lines(""), "q = 2\n").await;
    let ids: Vec<i64> = (0..60).map(|_| served.submit("q", json!({"payload": "x"}))).collect();
    until("all are done", || served.count("q", "done") == 60);
    assert!(ids.iter().all(|id| served.job(*id)["attempts"] == 1));
    // Each job takes two requests.
    assert!(proxy.accepted() < 60, "{} connections", proxy.accepted());
    stop(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_may_want_a_certificate_of_the_worker() {
    let served = Served::new();
    let proxy = Proxy::start_for_known(&served.http).await;
    let (cert, key) = (proxy.file("client.pem"), proxy.file("client.key"));
    let own = format!("spindle_sslcert = {}\nspindle_sslkey = {}\n", cert.display(), key.display());
    let id = served.submit("q", json!({"payload": "x"}));
    let stranger = worker(&served, "w1", &proxy.lines(""), "q = 1\n").await;
    until_troubled(&stranger, "CertificateRequired");
    assert_eq!(served.job(id)["attempts"], 0);
    let _known = worker(&served, "w2", &(proxy.lines("") + &own), "q = 1\n").await;
    until("it is done", || served.status(id) == "done");
}

fn until_troubled(worker: &spindle_jobd::worker::Worker, expected: &str) {
    let mut peer = connect(worker);
    let mut answer = Value::Null;
    let is_troubled = || {
        answer = peer.data("status", json!({}))["tableTrouble"].take();
        answer.is_string()
    };
    until("it says what is wrong", is_troubled);
    assert!(answer.as_str().unwrap().contains(expected), "{answer} instead of {expected}");
}

/// An HTTP server that redirects every request.
fn elsewhere() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let answer = "HTTP/1.1 301 Moved\r\nLocation: https://q.example/\r\n\
                          Content-Length: 0\r\n\r\n";
            // The client may have disconnected.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_the_servers_address_is_told() {
    let served = Served::new();
    let proxy = Proxy::start(&served.http, "/spindle").await;
    let (http, master, tls) = (&served.http, &served.master, proxy.port);
    let roots = format!("spindle_sslrootcert = {}\n", proxy.file("server.pem").display());
    let other = format!("spindle_sslrootcert = {}\n", proxy.file("client.pem").display());
    let wrong = [
        (format!("https://{http}"), &*roots, "there is no TLS on that port: write http://"),
        (format!("http://localhost:{tls}"), "", "what answers there speaks no HTTP"),
        (format!("https://localhost:{tls}/spindle"), "", "signed by nobody who is trusted"),
        (format!("https://localhost:{tls}/spindle"), &*other, "signed by nobody who is trusted"),
        (format!("https://127.0.0.1:{tls}/spindle"), &*roots, "is not for 127.0.0.1"),
        (
            format!("https://localhost:{tls}/spindle"),
            "spindle_sslrootcert = /no/such/file\n",
            "cannot read /no/such/file",
        ),
        (format!("https://localhost:{tls}/other"), &*roots, "look at host, port and path"),
        (format!("http://{http}/other"), "", "look at host, port and path of spindle_url"),
        (format!("http://{master}"), "", "the connection was closed without an answer"),
        (
            format!("http://127.0.0.1:{}", elsewhere()),
            "",
            "sends us elsewhere to https://q.example/: write that in spindle_url",
        ),
    ];
    for (at, (url, roots, expected)) in wrong.iter().enumerate() {
        let lines = format!("spindle_url = {url}\n{roots}");
        let worker = worker(&served, &format!("w{at}"), &lines, "q = 1\n").await;
        until_troubled(&worker, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_authorities_that_is_mended_is_read_again() {
    let served = Served::new();
    let proxy = Proxy::start(&served.http, "").await;
    let id = served.submit("q", json!({"payload": "x"}));
    let roots = proxy.file("server.pem");
    let right = fs::read(&roots).unwrap();
    fs::copy(proxy.file("client.pem"), &roots).unwrap();
    let worker = worker(&served, "w1", &proxy.lines(""), "q = 1\n").await;
    until_troubled(&worker, "signed by nobody who is trusted");
    fs::write(&roots, right).unwrap();
    until("it is done", || served.status(id) == "done");
}
