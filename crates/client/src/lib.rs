//! A client of a Spindle server, over its native API: jobs are submitted, waited for and looked
//! after, and their tasks are worked. The commands of `spindle` speak to servers through it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use spindle_client::{Client, Failure, JobContext, NewJob, Worker};
//!
//! async fn send(to: String, job: JobContext) -> Result<usize, Failure> {
//!     println!("attempt {}: mail to {to}", job.attempt);
//!     Ok(to.len())
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // The server and the token that the environment names, as for the commands.
//! let client = Client::from_env()?;
//! let job = client.submit(&NewJob::new("mail", &"a@example.org")?.retries(3)).await?;
//!
//! let worker = Worker::new(&client).task("mail", send).concurrency(10);
//! tokio::spawn(worker.run());
//!
//! let length: usize = job.result(Duration::from_secs(60)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Jobs wait for others, belong to batches, and read the results of the jobs before:
//!
//! ```no_run
//! use spindle_client::{Client, Failure, JobContext, NewBatch, NewJob, OnDead};
//!
//! async fn album(name: String, job: JobContext) -> Result<usize, Failure> {
//!     let sizes: Vec<usize> = job.results_before().await?;
//!     println!("{name}: {} pictures", sizes.len());
//!     Ok(sizes.iter().sum())
//! }
//!
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let one = client.submit(&NewJob::new("resize", &"a.jpg")?).await?;
//! let two = client.submit(&NewJob::new("resize", &"b.jpg")?).await?;
//! client.submit(&NewJob::new("album", &"holidays")?.after([&one, &two])).await?;
//!
//! let batch = client.open_batch(&NewBatch::new("photos")).await?;
//! let tried = NewJob::new("mail", &"all were tried")?.after([&batch]).on_dead(OnDead::Run);
//! client.submit(&tried).await?;
//! client.submit(&NewJob::new("resize", &"c.jpg")?.batch(&batch)).await?;
//! batch.seal().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A call is repeated while the server is away or busy, if that is safe: a submit has an idempotency
//! key and adds one job however often it is sent; the end of a job is reported until the server
//! knows it. [`CallError::maybe_received`] says of a call that failed whether it may have been
//! carried out.
//!
//! Start reading here:
//!
//! - `options`, `url`: where the server is, which token to send, which authorities to trust
//! - `client`, `job`, `batch`, `schedule`, `events`: what can be asked of it; `new_job`, `content`: what is sent
//! - `worker`, `attempt`, `lease`, `reporter`, `task`: leases, heartbeats, ends of jobs, the functions
//! - `transport`, `connect`, `line`, `event_stream`: requests over connections that are kept, without
//!   repetition; `send_error`, `error`: what goes wrong

mod attempt;
mod batch;
mod client;
mod clock;
mod connect;
mod content;
mod error;
mod event_stream;
mod events;
mod job;
mod lease;
mod line;
mod new_job;
mod options;
mod pause;
mod reporter;
mod schedule;
mod send_error;
mod task;
mod transport;
mod url;
mod worker;

pub use attempt::Ending;
pub use batch::{Batch, BatchInfo, BatchJobs, NewBatch};
pub use client::{Client, JobFilter, QueueInfo, encoded};
pub use clock::now;
pub use content::{Content, ContentType};
pub use error::{CallError, Problem, Refusal};
pub use event_stream::{EventStream, Opened, RawEvent};
pub use events::{Event, Since};
pub use hyper::http;
pub use job::{Job, JobInfo, JobRef, ResultError, ResultInfo};
pub use line::Line;
pub use new_job::{After, Backoff, IfTaken, NewJob, OnDead};
pub use options::{ConfigError, Options};
pub use schedule::{NewSchedule, Schedule};
pub use send_error::{NotHttp, SendError};
pub use task::{Before, Failure, JobContext};
pub use transport::{Answer, Request, Transport};
pub use url::BaseUrl;
pub use worker::{Worker, WorkerError, WorkerEvent};
