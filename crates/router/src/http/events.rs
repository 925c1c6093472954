//! What happens on all shards, as one stream of server-sent events.
//!
//! Each shard's events come in their order; between shards they come as they arrive. The id of an event
//! says how far the stream is on each shard, so that it can be resumed by it.

use std::collections::VecDeque;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use http_body_util::BodyExt;
use spindle_http::Problem;

use super::asked::{Asked, Head};
use super::lists::with_param;
use super::router::{Outcome, Routing};
use super::shards::Refusal;
use crate::Shard;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// A stream that has no event of a shard yet, and begins with the oldest.
const OLDEST: &str = "oldest";
/// Between the shards' positions.
const BETWEEN: char = '-';
/// The longest event that is passed on.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// `GET /api/v1/events`
pub(super) async fn follow(routing: &Routing, asked: Asked) -> Outcome {
    let head = asked.head;
    let shards: Vec<Shard> = routing.placement.shards().collect();
    let resumed = head.header(&LAST_EVENT_ID).filter(|id| !id.is_empty()).map(str::to_owned);
    let after = head.params("after").next().map(|it| String::from_utf8_lossy(&it).into_owned());
    let from = match resumed.or(after) {
        None => None,
        Some(text) if text == OLDEST => Some(vec![text; shards.len()]),
        Some(text) => Some(read_positions(&text, shards.len())?),
    };
    let begun = shards.iter().enumerate().map(|(place, shard)| {
        let at = from.as_ref().map(|from| from[place].clone());
        begin(routing, &head, *shard, at)
    });
    let mut begun = join_all(begun).await.into_iter().collect::<Result<Vec<_>, Refusal>>()?;
    let positions = match from {
        Some(from) => from,
        // Each shard says first where its stream begins.
        None => join_all(begun.iter_mut().map(Source::first_id)).await,
    };
    // So a client that sees no event before the stream breaks off still knows where it began.
    let is_new = head.header(&LAST_EVENT_ID).is_none_or(str::is_empty)
        && head.params("after").next().is_none();
    let begins = is_new.then(|| Bytes::from(format!("id: {}\n\n", joined(&positions))));
    let follow = head.params("follow").next().as_deref() != Some(b"false");
    let sources = begun.into_iter().map(Source::into_stream).collect();
    let events = Events { sources, positions, follow };
    let events = stream::unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), events))
    });
    let body = Body::from_stream(stream::iter(begins.map(Ok)).chain(events));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    Ok((headers, body).into_response())
}

fn joined(positions: &[String]) -> String {
    positions.join(&BETWEEN.to_string())
}

fn read_positions(text: &str, shards: usize) -> Result<Vec<String>, Problem> {
    let is_position = |part: &str| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        part == OLDEST
            || part.split_once('.').is_some_and(|(one, other)| is_number(one) && is_number(other))
    };
    let parts: Vec<String> = text.split(BETWEEN).take(shards + 1).map(str::to_owned).collect();
    if parts.len() == shards && parts.iter().all(|part| is_position(part)) {
        return Ok(parts);
    }
    let detail = format!(
        "a place in the events of {shards} shards has the form 120.3{BETWEEN}7.0, with one position for \
         each; with ?shard= the stream is that of one shard"
    );
    Err(Problem::out_of_range(detail))
}

/// Asks a shard for its stream.
async fn begin(
    routing: &Routing,
    head: &Head,
    shard: Shard,
    at: Option<String>,
) -> Result<Source, Refusal> {
    let head = head.with_header(LAST_EVENT_ID, None);
    let query = with_param(&head.query, "after", at.as_deref());
    let answer = routing.shards.send(shard, &head.peer, head.with_query(&query)).await?;
    let kind = answer.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !answer.status().is_success() || kind.is_none_or(|kind| !kind.starts_with(b"text/event-")) {
        return Err(Refusal::Answer(Box::new(answer)));
    }
    Ok(Source { shard, body: answer.into_body(), read: BytesMut::new(), ready: VecDeque::new() })
}

/// One shard's stream.
struct Source {
    shard: Shard,
    body: Body,
    read: BytesMut,
    /// Blocks that were read to learn where the stream begins.
    ready: VecDeque<Bytes>,
}

impl Source {
    /// The next block, without the empty line at its end. None at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(block) = self.ready.pop_front() {
            return Some(block);
        }
        let mut searched = 0;
        loop {
            let from = usize::saturating_sub(searched, 1);
            let end = self.read[from..].windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let block = self.read.split_to(from + end + 2).freeze();
                return Some(block.slice(..block.len() - 2));
            }
            searched = self.read.len();
            if searched > EVENT_BYTES_MAX {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }

    /// The id with which the stream begins: it comes first, without an event.
    async fn first_id(&mut self) -> String {
        let Some(block) = self.next().await else { return OLDEST.to_owned() };
        let id = field(&block, "id").unwrap_or(OLDEST).to_owned();
        if field(&block, "data").is_some() {
            self.ready.push_back(block);
        }
        id
    }

    fn into_stream(self) -> impl Stream<Item = (Shard, Option<Bytes>)> + Unpin {
        // The end is an item, to show which stream has ended.
        let state = (self, false);
        Box::pin(stream::unfold(state, |(mut source, has_ended)| async move {
            if has_ended {
                return None;
            }
            let block = source.next().await;
            let item = (source.shard, block);
            let has_ended = item.1.is_none();
            Some((item, (source, has_ended)))
        }))
    }
}

/// A field of a block, which the doors write once.
fn field<'a>(block: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(block).ok()?.lines();
    lines.find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        Some(value.strip_prefix(' ').unwrap_or(value))
    })
}

/// The streams of all shards.
struct Events<S> {
    sources: SelectAll<S>,
    /// How far each is.
    positions: Vec<String>,
    /// Whether none of them ends by itself.
    follow: bool,
}

impl<S: Stream<Item = (Shard, Option<Bytes>)> + Unpin> Events<S> {
    /// The next block to send. None when all streams have ended, or one that should not end: the client
    /// comes back, and is told what it has missed.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.sources.next().await? {
                (shard, Some(block)) => {
                    if let Some(text) = self.rewritten(shard, &block) {
                        return Some(text);
                    }
                }
                (_, None) if self.follow => return None,
                (_, None) => {}
            }
        }
    }

    /// A block with the id of the joined stream, and with its shard in the data. None for comments, except
    /// those of one shard.
    fn rewritten(&mut self, shard: Shard, block: &[u8]) -> Option<Bytes> {
        let text = std::str::from_utf8(block).ok()?;
        if text.lines().all(|line| line.starts_with(':')) {
            return (shard == Shard::FIRST).then(|| Bytes::from(format!("{text}\n\n")));
        }
        let mut new = String::with_capacity(text.len() + 64);
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id:") {
                if let Some(position) = self.positions.get_mut(usize::from(shard.0)) {
                    *position = id.trim_start().to_owned();
                }
                new.extend(["id: ", &joined(&self.positions)]);
            } else if let Some(rest) = line.strip_prefix("data: {") {
                let comma = if rest.starts_with('}') { "" } else { "," };
                new.push_str(&format!("data: {{\"shard\":{shard}{comma}{rest}"));
            } else {
                new.push_str(line);
            }
            new.push('\n');
        }
        new.push('\n');
        Some(Bytes::from(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_one_for_each_shard() {
        for text in ["120.3-7.0-0.0", "oldest-7.0-oldest"] {
            assert_eq!(joined(&read_positions(text, 3).unwrap()), text);
        }
        for text in ["", "7.0", "7.0-7.0", "7.0-7.0-7.0-7.0", "7.0-x-7.0", "7.-7.0-7.0", "7.0--7.0"]
        {
            assert!(read_positions(text, 3).is_err(), "{text}");
        }
    }

    #[test]
    fn an_event_says_its_shard_and_how_far_the_stream_is() {
        let positions = ["1.0", "2.0"].map(str::to_owned).to_vec();
        let sources = SelectAll::<stream::Empty<_>>::new();
        let mut events = Events { sources, positions, follow: true };
        let block = b"id: 2.1\nevent: ready\ndata: {\"job\":7}";
        let new = "id: 1.0-2.1\nevent: ready\ndata: {\"shard\":1,\"job\":7}\n\n";
        assert_eq!(events.rewritten(Shard(1), block).unwrap(), new);
        assert_eq!(events.rewritten(Shard(1), b":"), None);
        assert_eq!(events.rewritten(Shard(0), b":").unwrap(), ":\n\n");
        assert_eq!(events.rewritten(Shard(0), b"\xff"), None);
    }
}
