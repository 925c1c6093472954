//! Opening a log: connection, settings, and the contents of the stream.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::Info;
use parking_lot::{Condvar, Mutex};
use spindle_log::Opening;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use crate::append::{Work, send_all};
use crate::connect::connect;
use crate::durability;
use crate::error::OpenError;
use crate::log::NatsLog;
use crate::options::{NatsLogOptions, SyncCheck};
use crate::read::Reads;
use crate::server::{Refusal, Server, survey_of};
use crate::settings::{self, MAX_PAYLOAD_MIN, Subjects};
use crate::state::{Shared, State};
use crate::watch;

const PAUSE: Duration = Duration::from_millis(100);
/// The first version with `sync_interval: always`.
const VERSION_MIN: (u64, u64) = (2, 10);

/// The thread that talks to the servers. It ends when this is dropped.
pub(crate) struct Thread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start() -> io::Result<(Thread, Handle)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("log-nats".to_owned()).spawn(move || {
            // An error is the other half dropped, which is the end, too.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok((Thread { end: Some(end), thread: Some(thread) }, handle))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that talks to NATS has panicked");
        }
    }
}

impl NatsLog {
    /// Opens the log for what the options say, and makes its stream if there is none and it is not only to be read. Waits for servers, and for a leader
    /// among them, up to [`NatsLogOptions::open_timeout`].
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn open(options: &NatsLogOptions) -> Result<NatsLog, OpenError> {
        options.check()?;
        let deadline = Instant::now() + options.open_timeout;
        let (thread, runtime) = Thread::start().map_err(OpenError::Thread)?;
        let (server, client, info) = run(&runtime, {
            let options = options.clone();
            async move { reach(&options, deadline).await }
        })?;
        check_sync(options, &runtime, &server, &client, deadline)?;
        run(&runtime, {
            let (server, info) = (server.clone(), info.clone());
            async move { check_contents(&server, &info).await }
        })?;
        let (sender, submitted) = mpsc::unbounded_channel();
        let shared = Arc::new(shared(options, &client, &info)?);
        run(&runtime, {
            let (shared, server) = (Arc::clone(&shared), server.clone());
            async move { begin(&shared, &server, &client, submitted).await }
        })?;
        let reads = Reads { shared, server, runtime };
        Ok(NatsLog::new(reads, sender, thread))
    }
}

/// Runs something on the log's thread, and waits for it on this one.
fn run<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T, OpenError>> + Send + 'static,
) -> Result<T, OpenError> {
    let (answer, answered) = channel();
    runtime.spawn(async move {
        let _ = answer.send(work.await);
    });
    let ended = || OpenError::Thread(io::Error::other("it has ended"));
    answered.recv().map_err(|_| ended())?
}

/// Connects, and finds or makes the stream.
async fn reach(
    options: &NatsLogOptions,
    deadline: Instant,
) -> Result<(Server, Client, Info), OpenError> {
    let client = connect(options, &options.login, deadline).await?;
    let about = client.server_info();
    if !is_new_enough(&about.version) {
        return Err(OpenError::Version(about.version));
    }
    if settings::record_bytes_max(about.max_payload).is_none() {
        return Err(OpenError::MaxPayload { has: about.max_payload, needs: MAX_PAYLOAD_MIN });
    }
    let context = ContextBuilder::new().timeout(options.answer_timeout).build(client.clone());
    let (name, timeout) = (options.stream.clone(), options.answer_timeout);
    let stream = context.get_stream_no_info(&name).await;
    let stream = stream.map_err(|error| OpenError::Option(format!("{name}: {error}")))?;
    let server = Server { context, stream, name, timeout };
    let info = found_or_made(options, &server, deadline).await?;
    let stream = options.stream.clone();
    if let Some(refusal) = settings::refusal(&info.config, &stream, options.opening) {
        return Err(refusal);
    }
    let wrong = settings::wrong(&info.config, &stream, options.replicas);
    if !wrong.is_empty() {
        return Err(OpenError::Settings { stream, wrong });
    }
    Ok((server, client, info))
}

async fn found_or_made(
    options: &NatsLogOptions,
    server: &Server,
    deadline: Instant,
) -> Result<Info, OpenError> {
    loop {
        let (doing, refusal) = match server.info().await {
            Ok(info) => return Ok(info),
            Err(Refusal::NoStream) if options.opening == Opening::Reader => {
                return Err(OpenError::Absent { stream: options.stream.clone() });
            }
            Err(Refusal::NoStream) => {
                let wanted = settings::wanted(&options.stream, options.replicas, options.opening);
                match server.create(&wanted).await {
                    Ok(info) => {
                        tracing::info!(stream = %options.stream, "the stream was made");
                        return Ok(info);
                    }
                    Err(refusal) => ("make", refusal),
                }
            }
            Err(refusal) => ("find", refusal),
        };
        if Instant::now() >= deadline || !may_pass(&refusal) {
            let stream = options.stream.clone();
            return Err(OpenError::JetStream { doing, stream, reason: refusal.to_string() });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A stream that was found or made. When several nodes make it at the same time, a server may say for a
/// moment that there is none.
async fn found_again(server: &Server, deadline: Instant) -> Result<Info, OpenError> {
    loop {
        let refusal = match server.info().await {
            Ok(info) => return Ok(info),
            Err(refusal) => refusal,
        };
        let may_pass = may_pass(&refusal) || matches!(refusal, Refusal::NoStream);
        if Instant::now() >= deadline || !may_pass {
            let (stream, reason) = (server.name.clone(), refusal.to_string());
            return Err(OpenError::JetStream { doing: "find", stream, reason });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn may_pass(refusal: &Refusal) -> bool {
    // Servers that have just started are no peers yet (10005, 10074).
    refusal.may_pass() || matches!(refusal, Refusal::Said { code: 10005 | 10074, .. })
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= VERSION_MIN
}

/// Asks the servers that keep the stream whether they sync, until all have answered.
fn check_sync(
    options: &NatsLogOptions,
    runtime: &Handle,
    server: &Server,
    client: &Client,
    deadline: Instant,
) -> Result<(), OpenError> {
    if matches!(options.sync, SyncCheck::Os) {
        tracing::warn!(
            stream = %options.stream,
            "it is not checked whether the NATS servers sync: what is confirmed may be lost when \
             machines fail at the same time"
        );
        return Ok(());
    }
    loop {
        let keepers = run(runtime, {
            let (server, client) = (server.clone(), client.clone());
            async move {
                let info = found_again(&server, deadline).await?;
                Ok(durability::keepers(&info, &client.server_info().server_name))
            }
        })?;
        let answers = match &options.sync {
            SyncCheck::Monitoring(addresses) => durability::ask_monitoring(addresses),
            SyncCheck::SystemAccount(login) => run(runtime, {
                let (options, login, keepers) = (options.clone(), login.clone(), keepers.clone());
                async move {
                    let asked =
                        durability::ask_system_account(&options, &login, &keepers, deadline);
                    asked.await
                }
            })?,
            SyncCheck::Os => return Ok(()),
        };
        match durability::judge(&answers, &keepers) {
            Err(OpenError::SyncUnknown { .. }) if Instant::now() < deadline && asks(options) => {
                std::thread::sleep(PAUSE);
            }
            judged => return judged,
        }
    }
}

/// Whether there is any server to ask again.
fn asks(options: &NatsLogOptions) -> bool {
    !matches!(&options.sync, SyncCheck::Monitoring(addresses) if addresses.is_empty())
}

/// Whether the oldest message is a record of a log.
async fn check_contents(server: &Server, info: &Info) -> Result<(), OpenError> {
    if info.state.messages == 0 {
        return Ok(());
    }
    let stream = server.name.clone();
    match server.leaders_record(survey_of(info).first).await {
        Err(Refusal::Unreadable(reason)) => {
            let reason = format!("message {}: {reason}", info.state.first_sequence);
            Err(OpenError::Foreign { stream, reason })
        }
        // Reading it later shows whether it can be read.
        _ => Ok(()),
    }
}

fn shared(options: &NatsLogOptions, client: &Client, info: &Info) -> Result<Shared, OpenError> {
    let survey = survey_of(info);
    let max_payload = client.server_info().max_payload;
    let record_bytes_max = settings::record_bytes_max(max_payload);
    let record_bytes_max = record_bytes_max
        .ok_or(OpenError::MaxPayload { has: max_payload, needs: MAX_PAYLOAD_MIN })?;
    let average = survey.bytes.checked_div(info.state.messages).unwrap_or(0);
    Ok(Shared {
        stream: options.stream.clone(),
        subjects: Subjects::of(&options.stream),
        replicas: options.replicas,
        created: survey.created,
        record_bytes_max,
        in_flight_max: options.in_flight_max,
        state: Mutex::new(State::begin(survey, average, options.run_bytes)),
        moved: Condvar::new(),
        listener: Mutex::new(None),
        health: Mutex::default(),
    })
}

/// Starts everything that goes on until the log is closed.
async fn begin(
    shared: &Arc<Shared>,
    server: &Server,
    client: &Client,
    submitted: mpsc::UnboundedReceiver<Work>,
) -> Result<(), OpenError> {
    let subscribe = |subject: &String| client.subscribe(subject.clone());
    let refused = |error: async_nats::SubscribeError| OpenError::Option(error.to_string());
    let committed = subscribe(&shared.subjects.committed).await.map_err(refused)?;
    let announcements = subscribe(&shared.subjects.announce).await.map_err(refused)?;
    // The server handles the messages of one connection in order: once it has answered this, it
    // repeats to this process what others append and announce. No answer does no harm: the stream
    // is asked regularly.
    if let Ok(survey) = server.survey().await {
        let _ = shared.survey(survey);
    }
    tokio::spawn(watch::follow(Arc::clone(shared), committed));
    tokio::spawn(watch::listen(Arc::clone(shared), announcements));
    let connected_to = client.server_info().server_name;
    tokio::spawn(watch::look_after(Arc::clone(shared), server.clone(), connected_to));
    tokio::spawn(send_all(Arc::clone(shared), server.clone(), submitted));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_without_always_are_too_old() {
        assert!(!is_new_enough("2.9.10") && !is_new_enough("1.11.0") && !is_new_enough("x"));
        assert!(is_new_enough("2.10.27") && is_new_enough("2.14.5") && is_new_enough("3.0.0-beta"));
    }
}
