//! The suite as PHP programs meet it: one that speaks the protocol, and one that is the launcher.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::{
    peer::until,
    programs::{Folder, Program},
};

fn script(name: &str) -> String {
    format!("{}/tests/suite/php/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Asks with PHP; blocks.
fn ask(address: std::net::SocketAddr, password: &str, kind: &str, data: &Value) -> Output {
    Command::new("php")
        .args([script("client.php"), address.to_string(), password.to_owned(), kind.to_owned()])
        .arg(data.to_string())
        .output()
        .unwrap()
}

fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_php_client_and_a_php_launcher_work_with_worker_and_master() {
    let options = ["-o", "port=0", "-o", "log_level_console=info", "-o", "password=sesame"];
    let options = options.map(str::to_owned);
    let mut master = Program::start(env!("CARGO_BIN_EXE_jobd-master"), &options);
    let master_address = master.address();
    let folder = Folder::new("");
    let launcher =
        format!("launcher=php {} {} {{id}}", script("launcher.php"), folder.path().display());
    let more = [
        launcher.as_str(),
        "launcher.env.APP_ENV=test",
        "targets.mail=3",
        "password=sesame",
        "name=w1",
        "master_host=127.0.0.1",
        &format!("master_port={}", master_address.port()),
    ];
    let mut jobd = Program::jobd(&folder.options("a", &more));
    let worker_address = jobd.address();
    folder.has_table().await;

    let refused = ask(worker_address, "wrong", "status", &json!({}));
    assert_eq!(
        (refused.status.code(), &*refused.stderr),
        (Some(1), b"invalid password\n".as_slice())
    );
    until("the worker has registered", || {
        let status = answer(&ask(master_address, "sesame", "status", &json!({})));
        status["workers"][0]["name"] == "w1"
    })
    .await;

    folder.insert(1..=5, "mail");
    let poked = ask(master_address, "sesame", "poke", &json!({"targets": ["mail"]}));
    assert_eq!(answer(&poked), "ok");
    until("all are done", || folder.count("done") == 5).await;

    folder.insert(6..=8, "mail");
    folder.database().execute("UPDATE jobs SET status = 'manual' WHERE id > 5", []).unwrap();
    let jobs: Vec<Value> = [6, 7, 8].iter().map(|id| json!({"id": id, "target": "mail"})).collect();
    let results = ask(master_address, "sesame", "run-manual", &json!({ "jobs": jobs }));
    let results = answer(&results);
    assert_eq!(results["jobs"]["7"]["stdout"], "job 7 in test\n");
    let failed = &results["jobs"]["6"];
    assert_eq!((&failed["result"], &failed["code"]), (&json!("fail"), &json!(7)));
    assert_eq!(failed["stderr"], "no luck with 6\n");
    assert_eq!(folder.runs().values().sum::<usize>(), 8);

    let asked = ask(worker_address, "sesame", "poll", &json!({"targets": ["nope"]}));
    assert_eq!(
        (asked.status.code(), &*asked.stderr),
        (Some(1), b"invalid target 'nope'\n".as_slice())
    );
}
