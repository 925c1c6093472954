//! A task and its worker.

use serde::{Deserialize, Serialize};
use spindle_client::{Client, Failure, JobContext, NewJob, Worker};

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

async fn send(mail: Mail, _: JobContext) -> Result<String, Failure> {
    Ok(format!("sent to {}", mail.to))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let mail = Mail { to: "a@example.org".into() };
    client.submit(&NewJob::new("mail", &mail)?.retries(3)).await?;
    Ok(Worker::new(&client).task("mail", send).concurrency(10).run().await?)
}
