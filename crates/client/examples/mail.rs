//! A task and its worker.

use spindle_client::{Client, NewJob, Worker};

type Mail = std::collections::BTreeMap<String, String>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let send = |mail: Mail, _| async move { Ok(format!("sent to {}", mail["to"])) };
    let client = Client::from_env()?;
    let mail = Mail::from([("to".into(), "a@example.org".into())]);
    client.submit(&NewJob::new("mail", &mail)?.retries(3)).await?;
    Ok(Worker::new(&client).task("mail", send).concurrency(10).run().await?)
}
