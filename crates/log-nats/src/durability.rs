//! Whether the servers sync before they acknowledge.
//!
//! JetStream syncs every two minutes unless its configuration says `sync_interval: always`. A user
//! cannot see that setting; `/varz` of the monitoring port shows it, and so does the same answer
//! through the system account, as `jetstream.config.sync_always`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Info;
use futures_util::StreamExt;
use serde::Deserialize;
use spindle_log::{LogServer, LogServerState};

use crate::connect::connect;
use crate::error::OpenError;
use crate::options::{Login, NatsLogOptions};
use crate::server::servers_of;

const TIMEOUT: Duration = Duration::from_secs(3);
/// All servers answer this, one message each.
const QUESTION: &str = "$SYS.REQ.SERVER.PING.VARZ";
const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a server says of itself.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Varz {
    #[serde(default)]
    server_name: String,
    #[serde(default)]
    jetstream: JetStream,
}

#[derive(Debug, Default, Deserialize)]
struct JetStream {
    #[serde(default)]
    config: Option<JetStreamConfig>,
}

#[derive(Debug, Default, Deserialize)]
struct JetStreamConfig {
    /// The server omits it when it is not set.
    #[serde(default)]
    sync_always: bool,
}

#[derive(Deserialize)]
struct Answer {
    data: Varz,
}

/// The servers that answered, by name, and whether each syncs; and what went wrong on the way.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    syncs: BTreeMap<String, bool>,
    wrong: Vec<String>,
}

impl Answers {
    fn note(&mut self, varz: Varz) {
        let syncs = varz.jetstream.config.is_some_and(|config| config.sync_always);
        self.syncs.insert(varz.server_name, syncs);
    }
}

/// A server that keeps the stream.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    name: String,
    /// The leader of the stream has not heard of it lately.
    is_away: bool,
}

/// The servers that keep the stream.
pub(crate) fn keepers(info: &Info, connected_to: &str) -> Vec<Keeper> {
    let keeper =
        |it: LogServer| Keeper { name: it.name, is_away: it.state == LogServerState::Away };
    servers_of(info, connected_to).into_iter().map(keeper).collect()
}

/// Asks monitoring addresses. Blocks.
pub(crate) fn ask_monitoring(addresses: &[String]) -> Answers {
    let mut answers = Answers::default();
    for address in addresses {
        match varz_at(address) {
            Ok(varz) => answers.note(varz),
            Err(reason) => answers.wrong.push(format!("{address}: {reason}")),
        }
    }
    answers
}

fn varz_at(address: &str) -> Result<Varz, String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
    let url = format!("{}/varz", address.trim_end_matches('/'));
    let answer = ureq::Agent::new_with_config(config).get(&url).call();
    let mut answer = answer.map_err(|error| error.to_string())?;
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let body = body.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body).map_err(|error| format!("that is no NATS server: {error}"))
}

/// Asks through the system account until all of the servers have answered, or none does any more.
pub(crate) async fn ask_system_account(
    options: &NatsLogOptions,
    login: &Login,
    keepers: &[Keeper],
    deadline: Instant,
) -> Result<Answers, OpenError> {
    let client = connect(options, login, deadline).await?;
    let mut answers = Answers::default();
    let asked = async {
        let inbox = client.new_inbox();
        let mut coming = client.subscribe(inbox.clone()).await.map_err(|e| e.to_string())?;
        let sent = client.publish_with_reply(QUESTION, inbox, "".into()).await;
        sent.map_err(|error| error.to_string())?;
        while !keepers.iter().all(|keeper| answers.syncs.contains_key(&keeper.name)) {
            let message = coming.next().await.ok_or("the connection is gone")?;
            match serde_json::from_slice::<Answer>(&message.payload) {
                Ok(answer) => answers.note(answer.data),
                Err(_) => return Err("this login is not of the system account".to_owned()),
            }
        }
        Ok::<(), String>(())
    };
    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => answers.wrong.push(reason),
        Err(_) => answers.wrong.push("no answer through the system account in time".to_owned()),
    }
    Ok(answers)
}

/// Whether all servers that keep the stream sync. Servers that are down cannot be asked, and do not
/// matter as long as most servers were asked: they acknowledge nothing either.
pub(crate) fn judge(answers: &Answers, keepers: &[Keeper]) -> Result<(), OpenError> {
    let silent: Vec<&Keeper> =
        keepers.iter().filter(|keeper| !answers.syncs.contains_key(&keeper.name)).collect();
    let off = keepers.iter().find(|keeper| answers.syncs.get(&keeper.name) == Some(&false));
    if let Some(Keeper { name, .. }) = off {
        return Err(OpenError::NotSynced { server: name.clone() });
    }
    let has_most = silent.len() * 2 < keepers.len();
    for Keeper { name, is_away } in silent {
        let server = name.clone();
        if !(*is_away && has_most) {
            let wrong = answers.wrong.first();
            let reason = wrong.map_or("no answer came from it", String::as_str).to_owned();
            return Err(OpenError::SyncUnknown { server, reason });
        }
        tracing::warn!(
            "the NATS server {server} is away: whether it syncs before it acknowledges was not \
             checked"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varz(text: &str) -> Varz {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn every_keeper_must_say_that_it_syncs() {
        let mut answers = Answers::default();
        answers.note(varz(r#"{"server_name":"a","jetstream":{"config":{"sync_always":true}}}"#));
        answers.note(varz(r#"{"server_name":"a2","jetstream":{"config":{"sync_always":true}}}"#));
        answers.note(varz(r#"{"server_name":"b","jetstream":{"config":{"max_memory":1}}}"#));
        answers.note(varz(r#"{"server_name":"c","jetstream":{}}"#));
        let said = |keepers: &[(&str, bool)]| {
            let keeper =
                |&(name, is_away): &(&str, bool)| Keeper { name: name.to_owned(), is_away };
            judge(&answers, &keepers.iter().map(keeper).collect::<Vec<_>>())
        };
        assert!(said(&[("a", false)]).is_ok());
        let off = said(&[("a", false), ("b", true)]);
        assert!(matches!(off, Err(OpenError::NotSynced { server }) if server == "b"));
        assert!(matches!(said(&[("c", false)]), Err(OpenError::NotSynced { .. })));
        let unknown = said(&[("a", false), ("d", false)]);
        assert!(matches!(unknown, Err(OpenError::SyncUnknown { server, .. }) if server == "d"));
        // One server of two that is down is not a minority; one of three is.
        assert!(matches!(said(&[("a", false), ("d", true)]), Err(OpenError::SyncUnknown { .. })));
        assert!(said(&[("a", false), ("a2", false), ("d", true)]).is_ok());
    }
}
