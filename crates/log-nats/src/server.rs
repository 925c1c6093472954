//! Questions to JetStream, one function each, and what its refusals mean.

use std::time::Duration;

use async_nats::jetstream::context::RequestErrorKind;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config, Info, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use serde::Deserialize;
use serde_json::json;
use spindle_log::{LogLag, LogServer, LogServerRole, LogServerState, Position, Stored};

use crate::record;
use crate::state::Survey;

/// What the server says when there is no room: the stream's limit, the account's, the disk's.
const FULL: [u64; 4] = [10002, 10023, 10047, 10077];

/// What it says when a record is not to follow the last one, either of the stream or of those
/// proposed.
const OUT_OF_PLACE: [u64; 2] = [10071, 10164];

/// A live replica is heard from every second.
const AWAY_AFTER: Duration = Duration::from_secs(4);

/// JetStream, and the stream in it.
#[derive(Clone)]
pub(crate) struct Server {
    pub context: Context,
    pub stream: Stream<()>,
    pub name: String,
    /// How long one answer may take.
    pub timeout: Duration,
}

/// Why a question did not get the answer asked for.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// There is no such stream.
    NoStream,
    /// No message stands at that sequence, as the leader of the stream says.
    NoMessage,
    /// Another error of JetStream.
    Said { code: u64, text: String },
    /// No answer: to be asked again.
    Silence(String),
    /// The message is no record of the log.
    Unreadable(&'static str),
}

impl Refusal {
    /// Whether the same question may be answered later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Refusal::Silence(_) => true,
            Refusal::Said { code, .. } => is_passing(*code),
            Refusal::NoStream | Refusal::NoMessage | Refusal::Unreadable(_) => false,
        }
    }

    fn of(error: &async_nats::jetstream::Error) -> Refusal {
        match error.error_code() {
            ErrorCode::STREAM_NOT_FOUND => Refusal::NoStream,
            ErrorCode::NO_MESSAGE_FOUND => Refusal::NoMessage,
            ErrorCode(code) => Refusal::Said { code, text: error.to_string() },
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NoStream => f.write_str("there is no such stream"),
            Refusal::NoMessage => f.write_str("no message stands there"),
            Refusal::Said { text, .. } | Refusal::Silence(text) => f.write_str(text),
            Refusal::Unreadable(reason) => f.write_str(reason),
        }
    }
}

/// Whether the refusal of a record says that there is no room for it.
pub(crate) fn is_full(code: u64) -> bool {
    FULL.contains(&code)
}

/// Whether the refusal of a record says that another one stands at its position, or is to.
pub(crate) fn is_out_of_place(code: u64) -> bool {
    OUT_OF_PLACE.contains(&code)
}

/// Elections, starts, overload: codes of states that pass by themselves.
fn is_passing(code: u64) -> bool {
    // No leader yet, not in a cluster yet, not assigned yet, JetStream not up, the stream or the
    // request queue not available, and the answers of a server that was the leader.
    matches!(
        code,
        0 | 10004 | 10006..=10010 | 10023 | 10035 | 10039 | 10041 | 10076 | 10118 | 10167
    )
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "did_create", default)]
    _did: bool,
    #[serde(flatten)]
    info: Info,
}

#[derive(Deserialize)]
struct Purged {
    success: bool,
}

impl Server {
    /// The stream, as its leader says.
    pub(crate) async fn info(&self) -> Result<Info, Refusal> {
        self.ask(format!("STREAM.INFO.{}", self.name), &json!({})).await
    }

    /// The same in the crate's own types.
    pub(crate) async fn survey(&self) -> Result<Survey, Refusal> {
        self.info().await.map(|info| survey_of(&info))
    }

    /// Makes the stream. If there is one with the same settings, nothing happens.
    pub(crate) async fn create(&self, config: &Config) -> Result<Info, Refusal> {
        let subject = format!("STREAM.CREATE.{}", self.name);
        self.ask::<_, Created>(subject, config).await.map(|created| created.info)
    }

    /// Gives the stream other settings.
    pub(crate) async fn update(&self, config: &Config) -> Result<Info, Refusal> {
        self.ask(format!("STREAM.UPDATE.{}", self.name), config).await
    }

    /// Drops all records below a position; it is not 0.
    pub(crate) async fn purge_before(&self, position: Position) -> Result<(), Refusal> {
        // Servers before 2.11 take a purge up to sequence 1 for one of everything.
        if position == Position(0) {
            return Ok(());
        }
        let subject = format!("STREAM.PURGE.{}", self.name);
        let purged: Purged = self.ask(subject, &json!({ "seq": position.0 + 1 })).await?;
        if purged.success { Ok(()) } else { Err(Refusal::Silence("it was not done".to_owned())) }
    }

    /// A record, from any server that has the stream; if that one has it not (yet), from the leader.
    pub(crate) async fn record(&self, position: Position) -> Result<Stored, Refusal> {
        let sequence = position.0 + 1;
        let asked = tokio::time::timeout(self.timeout, self.stream.direct_get(sequence)).await;
        match asked {
            Ok(Ok(message)) if message.sequence == sequence => {
                record::decode(sequence, Some(&message.headers), message.payload)
                    .map_err(|unreadable| Refusal::Unreadable(unreadable.0))
            }
            _ => self.leaders_record(position).await,
        }
    }

    /// A record, from the leader of the stream.
    pub(crate) async fn leaders_record(&self, position: Position) -> Result<Stored, Refusal> {
        use async_nats::jetstream::stream::RawMessageErrorKind as Kind;
        let sequence = position.0 + 1;
        let asked = tokio::time::timeout(self.timeout, self.stream.get_raw_message(sequence)).await;
        let asked = asked.map_err(|_| Refusal::Silence("no answer in time".to_owned()))?;
        let message = asked.map_err(|error| match error.kind() {
            Kind::NoMessageFound => Refusal::NoMessage,
            Kind::JetStream(said) => Refusal::of(&said),
            _ => Refusal::Silence(error.to_string()),
        })?;
        record::decode(sequence, Some(&message.headers), message.payload)
            .map_err(|unreadable| Refusal::Unreadable(unreadable.0))
    }

    async fn ask<T, V>(&self, subject: String, question: &T) -> Result<V, Refusal>
    where
        T: serde::Serialize + ?Sized,
        V: serde::de::DeserializeOwned,
    {
        let asked = self.context.request(subject, question);
        let asked = tokio::time::timeout(self.timeout, asked).await;
        let asked = asked.map_err(|_| Refusal::Silence("no answer in time".to_owned()))?;
        match asked {
            Ok(Response::Ok(answer)) => Ok(answer),
            Ok(Response::Err { error }) => Err(Refusal::of(&error)),
            Err(error) => Err(Refusal::Silence(match error.kind() {
                RequestErrorKind::NoResponders => "JetStream does not answer".to_owned(),
                _ => error.to_string(),
            })),
        }
    }
}

/// What the leader says of the stream, in the crate's own types.
pub(crate) fn survey_of(info: &Info) -> Survey {
    let end = Position(info.state.last_sequence);
    // An empty stream that never had a message says 0 or 1, one that was purged the next sequence.
    let first = Position(info.state.first_sequence.saturating_sub(1)).min(end);
    let bytes_max = u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0);
    let created = info.created.unix_timestamp_nanos();
    Survey { created, first, end, bytes: info.state.bytes, bytes_max }
}

/// The servers that keep the stream, as its leader says.
pub(crate) fn servers_of(info: &Info, connected_to: &str) -> Vec<LogServer> {
    let server = |name: &str, role, state, lag| {
        // Which of them a commit waits for is not fixed in advance: any majority.
        LogServer { name: name.to_owned(), role, state, is_synchronous: Some(true), lag }
    };
    let leads = |name: &str| server(name, LogServerRole::Leader, LogServerState::Current, None);
    let Some(cluster) = &info.cluster else { return vec![leads(connected_to)] };
    let replicas = cluster.replicas.iter().map(|peer| {
        let state = match (peer.offline || peer.active > AWAY_AFTER, peer.current) {
            (true, _) => LogServerState::Away,
            (false, true) => LogServerState::Current,
            (false, false) => LogServerState::Behind,
        };
        server(&peer.name, LogServerRole::Replica, state, peer.lag.map(LogLag::Entries))
    });
    let servers: Vec<LogServer> =
        cluster.leader.iter().map(|name| leads(name)).chain(replicas).collect();
    if servers.is_empty() { vec![leads(connected_to)] } else { servers }
}
